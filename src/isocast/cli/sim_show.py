"""`isocast sim show`: a simulated market at the pace of the wall clock; its frames, its lines and its summary."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from isocast.checks.properties import explained
from isocast.cli.live_view import FAINT, MOTTO, STATES, bars, can_draw, figures, header, live_screen, log, panel
from isocast.cli.render import entry, line
from isocast.cli.shipped import shipped
from isocast.cli.sim_scene import ObservedSite, Scene
from isocast.cli.world_map import MapLine, Mark, fitted_map, height_for
from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.ring.effects import ReceiverEffect
from isocast.ring.inputs import PacketsArrived
from isocast.ring.receiver import Mode
from isocast.runtime.operate import shutdown
from isocast.simulation.network import PacketBurst, PacketKey
from isocast.simulation.scenario import Scenario, load_scenario
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import Build
from isocast.studies.entry.figures import shuffle_share
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, SECOND, to_seconds
from isocast.terms.quantities import counted
from isocast.trials.demo.cast import LogNote, Tone

__all__ = ["beats", "frame", "next_steps", "phase", "show_scenario", "state_of", "summary", "ten_cities", "watch"]


# ---- What a simulated market comes to: what was promised, what was measured, and what to try next.


_VIOLATIONS_SHOWN = 10
_EXCHANGE_SHARE = 99.3
"""Of London against Sydney at one exchange in London: scenarios/paper/exchange-london.toml."""


def summary(scene: Scene, run: TimedRun, seed: int, *, interrupted: bool) -> Iterator[str]:
    """Lines of at most 80 characters."""
    releases, recorder = scene.releases, run.recorder
    yield ""
    yield f"{to_seconds(scene.now):.1f} s of a market in {len(scene.sites)} cities" + (
        ", interrupted" if interrupted else ""
    )
    yield ""
    made = f"{counted(recorder.tokens, 'token')}, {counted(recorder.rings, 'ring')}"
    yield from entry("messages", f"{releases.messages:,} in one sequence, {made}")
    yield from entry(
        "latency",
        f"{to_seconds(round(releases.unbroken_latency_ns)):.3f} s on an unbroken ring,"
        f" formula {to_seconds(round(releases.unbroken_formula_ns)):.3f} s",
        f"{to_seconds(round(releases.latency_ns)):.3f} s including the time without a ring",
    )
    yield from entry(
        "skew",
        f"{releases.skew_ns / 1e6:.3f} ms at most between cities, bound 2ε = {run.timing.skew_bound_ns / 1e6:g} ms",
        f"over {releases.punctual:,} releases; {releases.late:,} more were late: no ring, or a city that was away",
    )
    missing = scene.lost - scene.regained - scene.awaited
    awaited = f" {scene.awaited} still awaited," if scene.awaited else ""
    yield from entry(
        "losses",
        f"{counted(scene.lost, 'packet')} lost, {scene.regained:,} repaired, {missing or 'none'} missing,{awaited}"
        f" {sum([site.nacks for site in scene.sites.values()]):,} NACKs",
    )
    yield from entry("gaps", f"{scene.gaps:,}" if scene.gaps else "none: every city released the same sequence")
    yield from entry("late", f"{scene.faults} fairness faults: waits for a new ring, and a city that was away")
    yield from _fairness(run)
    yield from _verdict(run, interrupted=interrupted)
    yield from entry("seed", f"{seed}, digest of the trace {recorder.trace_digest}")
    yield ""


def _fairness(run: TimedRun) -> Iterator[str]:
    """Of two orders sent at one instant: shuffled in a token, unless the token's end falls between their arrivals."""
    if run.pairs is None or not any(run.pairs.wins.values()):
        return
    (one, share), (other, _) = run.pairs.shares().items()
    near, far = run.scenario.traders
    expected = shuffle_share(run.scenario.ring, near, far, run.timing.token_period_ns)
    exchange = f"; at an exchange in London {_EXCHANGE_SHARE} %" if one == "London" else ""
    yield from entry(
        "first",
        f"{one} before {other} in {100 * share:.1f} % of {sum(run.pairs.wins.values()):,} pairs of orders",
        f"(expected {100 * expected:.1f} %{exchange})",
    )


def _verdict(run: TimedRun, *, interrupted: bool) -> Iterator[str]:
    violations = run.violations()
    if violations:
        yield from entry("checkers", f"{len(violations)} VIOLATIONS", *violations[:_VIOLATIONS_SHOWN])
        for text in explained(violation.partition(":")[0] for violation in violations):
            yield from entry("", text)
    elif interrupted:
        yield from entry("checkers", "no violation so far; liveness is judged at the end only")
    else:
        yield from entry("checkers", "no violation of safety, fairness or liveness")


def next_steps(file: Path | None, seed: int) -> Iterator[str]:
    """Commands to copy."""
    here = Path(".venv/bin/isocast")
    command = str(here) if here.exists() else "isocast"
    yield "Next:"
    yield f"  {command} sim run {file or _TEN_CITIES} --seed {seed}  # the same run in figures"
    yield f"  {command} sim show scenarios/partition.toml --speed 5  # six cities against four"
    yield f"  {command} sim swarm --seeds 20  # random worlds with faults"
    yield f"  {command} sim swarm --seeds 50 --mutant half-is-enough  # caught"
    yield f"  {command} demo  # the same machines as real processes"


# ---- Ties a scene to a run: receivers that say what passes through them, and a network that says what it loses.


def watch(scenario: Scenario, seed: int) -> tuple[Scene, TimedRun]:
    """A run that is about to begin, and the scene that follows it."""
    scene = Scene(scenario)

    class WatchedReceiver(PrimaryReceiver):
        """The product's receiver; what goes in and comes out is counted."""

        def step(self, event: PrimaryReceiverInput, now: int) -> tuple[ReceiverEffect, ...]:
            site = self.receiver.site
            if isinstance(event, PacketsArrived) and scene.sites[site].lacking:
                scene.arrived(site, event.packets)
            effects = super().step(event, now)
            if effects:
                scene.sent(site, effects)
            return effects

    run = TimedRun(scenario, seed, Build(receiver=WatchedReceiver), transcript=scene.fact)
    world, network = run.world, run.world.network

    def needs(site: NodeId, key: PacketKey) -> bool:
        machine = world.hosts[site].machine
        if not isinstance(machine, PrimaryReceiver):
            return False
        ledger = machine.receiver.ledger
        what, number = key
        if isinstance(what, str):
            return number > ledger.held
        return number >= ledger.next_number.get(what, 1) and (what, number) not in ledger.waiting

    scene.needs = needs
    told = network.lost_hook

    def lost(to: NodeId, burst: PacketBurst) -> None:
        if told is not None:
            told(to, burst)
        scene.lost_packets(to, burst)

    network.lost_hook = lost
    return scene, run


def state_of(scene: Scene, run: TimedRun, site: ObservedSite) -> str:
    """One word on what a city does."""
    machine = run.world.hosts[site.site].machine
    if not isinstance(machine, PrimaryReceiver):
        return "down"
    receiver = machine.receiver
    if receiver.mode is Mode.SEALED:
        return "ballot" if scene.epoch else "start"
    if scene.schedule is None or site.site not in scene.schedule.ring:
        return "outside"
    return "token" if scene.holder == site.site else "ring"


_TEN_CITIES = Path("scenarios/ten-cities.toml")
_FRAMES_PER_S = 10
_BEATS_PER_STEP = 12
"""Of a step of `TimedRun.run`, a quarter of a token period: some 20 ms at a token a second."""
_SETTLING_MAX_NS = 120 * SECOND
"""Long after everything should have come right; then the checkers say what has not."""
_STATUS_EVERY_NS = 5 * SECOND


def ten_cities() -> Scenario:
    """Ten cities: quiet, losses, a crash, a return."""
    return load_scenario(shipped(_TEN_CITIES))


def show_scenario(file: Path | None, seed: int | None, speed: float | None, *, headless: bool) -> int:
    """Show a scenario to its end, or to Ctrl-C; then sum up. 1 if a checker found a violation."""
    scenario = ten_cities() if file is None else load_scenario(shipped(file))
    if scenario.protocol != "timed" or scenario.exchange is not None:
        rule = "only the timed protocol is shown; `isocast sim run` reports its figures"
        raise ConfigurationError(str(file), "protocol", rule)
    seed = scenario.seed if seed is None else seed
    scene, run = watch(scenario, seed)
    interrupted = False
    try:
        if headless or not can_draw():
            _lines(scene, run, speed)
        else:
            shutdown.run(_frames(scene, run, speed or 1.0))
    except KeyboardInterrupt:
        interrupted = True
    for text in (*summary(scene, run, seed, interrupted=interrupted), *next_steps(file, seed)):
        line(text)
    return 1 if run.violations() else 0


def beats(scene: Scene, run: TimedRun) -> Iterator[None]:
    """Let the run live to its verdict, a beat at a time.

    Steps and their ends are those of `TimedRun.run`, so that the same seed gives the same trace, watched or not.
    """
    step = max(run.timing.token_period_ns // 4, 1)
    ends = [step * (beat + 1) // _BEATS_PER_STEP for beat in range(_BEATS_PER_STEP)]
    world = run.world
    settle_by: int | None = None
    while True:
        now = world.agenda.now
        if settle_by is None and run.arrivals.finished_at is not None and now >= run.faults.over_at:
            settle_by = now + _SETTLING_MAX_NS
        if settle_by is not None and (now >= settle_by or run.settled()):
            break
        begin = now
        for end in ends:
            run.advance(begin + end - world.agenda.now)
            scene.tick(world.agenda.now, world.network.model.loss)
            yield
    run.finish()


class _Pace:
    """Keeps virtual time from running ahead of the wall's."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._start = time.monotonic()

    def ahead(self, now: int) -> float:
        """Seconds to wait."""
        if self._speed is None:
            return 0.0
        return max(to_seconds(now) / self._speed - (time.monotonic() - self._start), 0.0)


async def _frames(scene: Scene, run: TimedRun, speed: float) -> None:
    pace = _Pace(speed)
    drawn = 0.0
    with live_screen() as draw:
        for _ in beats(scene, run):
            if time.monotonic() - drawn >= 1 / _FRAMES_PER_S:
                drawn = time.monotonic()
                draw(partial(frame, scene, run))
            await asyncio.sleep(pace.ahead(scene.now))


def _lines(scene: Scene, run: TimedRun, speed: float | None) -> None:
    """Without a terminal: what happens, and now and then how far it is. As fast as it goes, unless paced."""
    line(f"{scene.scenario.title}; seed {run.world.seed}")
    scene.on_note = _say
    pace = _Pace(speed)
    told = 0
    for _ in beats(scene, run):
        if scene.now - told >= _STATUS_EVERY_NS:
            told = scene.now
            line(_status(scene, run))
        time.sleep(pace.ahead(scene.now))
    scene.on_note = None


def _say(note: LogNote) -> None:
    if note.tone in (Tone.TROUBLE, Tone.RING):
        line(f"{to_seconds(note.at):6.1f} s  {note.text}")
        sys.stdout.flush()


def _status(scene: Scene, run: TimedRun) -> str:
    token = scene.token.token_number if scene.token else 0
    return (
        f"{to_seconds(scene.now):6.1f} s  … token {token}, {counted(scene.releases.messages, 'message')} released,"
        f" {counted(scene.lost, 'packet')} lost, {scene.regained:,} repaired,"
        f" {counted(len(run.suite.violations), 'violation')}"
    )


# ---- One frame of a simulated market: header, map, counters, a row for each city, curves and log, for any terminal.


_ROOMY = (96, 34)
"""Columns and rows from which on there are borders and curves."""
_NAMES_MOST = 2
_ROWS_LEAST = 10
"""Of cities, before the map gets more room."""


def frame(scene: Scene, run: TimedRun, width: int, height: int) -> RenderableType:
    """Everything, cut to the size of the terminal."""
    roomy = width >= _ROOMY[0] and height >= _ROOMY[1]
    return _roomy(scene, run, width, height) if roomy else _compact(scene, run, width, height)


def _roomy(scene: Scene, run: TimedRun, width: int, height: int) -> Layout:
    side, curves, lower = 30, 36, 9
    columns, rows = width - side - 2, len(scene.sites)
    upper = min(height_for(columns), max(height - (1 + 2 + min(rows, _ROWS_LEAST) + 3 + lower), 6))
    shown = min(rows, height - (1 + upper + 2 + 3 + lower))
    title = "The ring" if shown == rows else f"The ring, {shown} of {rows} cities"
    layout = Layout()
    layout.split_column(
        Layout(_header(scene, width), size=1),
        Layout(name="upper", size=upper + 2),
        Layout(panel(_sites(scene, run, shown, wide=True), title), size=shown + 3),
        Layout(name="lower"),
    )
    layout["upper"].split_row(
        Layout(panel(_map(scene, run, columns, upper), "The world"), name="map"),
        Layout(panel(_counters(scene, run, roomy=True), "The sequence"), size=side),
    )
    layout["lower"].split_row(
        Layout(panel(_curves(scene, curves - 2), "Releases (§5)"), size=curves),
        Layout(panel(log(scene.notes, height), "What happens")),
    )
    return layout


def _compact(scene: Scene, run: TimedRun, width: int, height: int) -> Layout:
    side = min(29, width // 2)
    rows = min(len(scene.sites), max(height - 1 - 1 - 8, 1))
    upper = max(min(height - 1 - (rows + 1) - 2, 10), 1)
    layout = Layout()
    layout.split_column(
        Layout(_header(scene, width), size=1),
        Layout(name="upper", size=upper),
        Layout(_sites(scene, run, rows, wide=False), size=rows + 1),
        Layout(log(scene.notes, height)),
    )
    layout["upper"].split_row(
        Layout(_map(scene, run, width - side - 1, upper)),
        Layout(_counters(scene, run, roomy=False), size=side),
    )
    return layout


# Header -------------------------------------------------------------------------------------------


def phase(scene: Scene) -> tuple[str, str]:
    """What is going on, in a few words, and its colour."""
    down = [site.name for site in scene.sites.values() if not site.up]
    outside = [site.name for site in scene.missing() if site.up]
    due = scene.next_token()
    if scene.epoch is None or due is None:
        return "the first ring forms", "cyan"
    overdue = scene.now > due[2] + scene.scenario.timing.late_ns
    if overdue and due[2] > 0:
        lost = f", {_and(down)} down" if down else ""
        return f"token {due[0]} is missing{lost}: the ring re-forms", "bold red"
    if down:
        return f"{_and(down)} down, the others go on", "bold yellow"
    if outside:
        return f"{_and(outside)} outside the ring, catching up", "bold magenta"
    if scene.loss:
        return f"{100 * scene.loss:g} % of all packets get lost", "yellow"
    return "quiet", "green"


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) <= _NAMES_MOST else f"{len(names)} cities"


def _header(scene: Scene, width: int) -> Text:
    words, style = phase(scene)
    return header(to_seconds(scene.now), words, style, Text(MOTTO, style=FAINT), width)


# Map ----------------------------------------------------------------------------------------------


def _map(scene: Scene, run: TimedRun, columns: int, rows: int) -> RenderableType:
    marks = [_mark(scene, run, site) for site in scene.sites.values()]
    return fitted_map(columns, rows, [mark for mark in marks if mark], _map_lines(scene))


def _mark(scene: Scene, run: TimedRun, site: ObservedSite) -> Mark | None:
    if site.place is None:
        return None
    shown, style = STATES[state_of(scene, run, site)]
    if site.up and scene.now < site.flash_until:
        style = "bold black on bright_red"
    elif scene.holder == site.site and site.up:
        style = "bold black on yellow"
    return Mark(site.place, shown[0], style)


def _map_lines(scene: Scene) -> list[MapLine]:
    """Repairs in green, and the token on its way to its next owner."""
    lines = [
        MapLine(giver.place, taker.place, "bright_green")
        for giver, taker in scene.recent_repairs()
        if giver.place and taker.place
    ]
    due, token = scene.next_token(), scene.token
    holder = scene.sites.get(scene.holder) if scene.holder is not None else None
    if due is not None and token is not None and holder is not None and holder.place and due[1].place:
        share = (scene.now - token.instant) / scene.scenario.timing.token_period_ns
        lines.append(MapLine(holder.place, due[1].place, "bright_yellow", share))
    return lines


# Counters -----------------------------------------------------------------------------------------


def _counters(scene: Scene, run: TimedRun, *, roomy: bool) -> RenderableType:
    return figures(_counted(scene, run, roomy=roomy))


def _counted(scene: Scene, run: TimedRun, *, roomy: bool) -> list[tuple[str, str, str]]:
    releases = scene.releases
    rows = [("token", f"{scene.token.token_number if scene.token else 0}, epoch {scene.epoch or 0}", "bold yellow")]
    due = scene.next_token()
    if due is None:
        rows.append(("next", "no ring yet", FAINT))
    else:
        wait = to_seconds(due[2] - scene.now)
        on_time = scene.now <= due[2] + scene.scenario.timing.late_ns
        said = f"{due[1].name} {max(wait, 0.0):.1f} s" if on_time else f"{due[1].name} +{-wait:.1f} s"
        rows.append(("next", said, "yellow" if on_time else "bold red"))
    last = releases.chunks[-1] if releases.chunks else None
    if not roomy:
        rows.append(("skew", f"{_microseconds(last.skew_ns if last else 0)} ≤ {_bound(scene)} µs", ""))
        latency = to_seconds(last.latency_ns) if last else 0
        rows.append(("latency", f"{latency:.2f} s of {to_seconds(round(releases.formula_ns(scene.loss))):.2f}", ""))
    else:
        rows += [("submitted", f"{scene.submitted:,}", ""), ("released", f"{releases.messages:,}", "")]
    if roomy:
        rows.append(("rings", str(run.recorder.rings), ""))
    rows += [
        ("lost", counted(scene.lost, "packet"), "red" if scene.loss else ""),
        ("repaired", f"{scene.regained:,}", "green"),
        ("gaps", f"{scene.gaps:,}" if scene.gaps else "none", "bold red" if scene.gaps else "green"),
        ("late", f"{scene.faults:,} releases" if scene.faults else "none", "yellow" if scene.faults else "green"),
    ]
    if run.pairs is not None and any(run.pairs.wins.values()):
        city, share = next(iter(run.pairs.shares().items()))
        rows.append(("first", f"{city} {100 * share:.1f} %", ""))
    violations = len(run.suite.violations)
    rows.append(("violations", str(violations), "bold white on red" if violations else "bold green"))
    return rows


def _microseconds(span_ns: int) -> str:
    return f"{span_ns / 1000:,.0f}"


def _bound(scene: Scene) -> str:
    return _microseconds(scene.scenario.timing.skew_bound_ns)


# Cities -------------------------------------------------------------------------------------------


def _sites(scene: Scene, run: TimedRun, shown: int, *, wide: bool) -> RenderableType:
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=wide, header_style=FAINT)
    table.add_column(" city", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=9)
    names = ("h", "released", "waiting", "lost", "repaired", "NACKs", "repairs", "clock µs", "off µs")
    if not wide:
        names = ("h", "released", "wait", "lost", "back", "NACK", "sent", "clock", "off")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for site in list(scene.sites.values())[:shown]:
        table.add_row(*_site(scene, run, site))
    return table


def _site(scene: Scene, run: TimedRun, site: ObservedSite) -> list[Text]:
    host = run.world.hosts[site.site]
    machine = host.machine
    word, style = STATES[state_of(scene, run, site)]
    held = waiting = "–"
    if isinstance(machine, PrimaryReceiver):
        snapshot = machine.receiver.snapshot()
        held, waiting = str(snapshot.held), str(snapshot.waiting)
    missing = site.lost > site.regained
    return [
        Text(f" {site.name}", style=style),
        Text(word, style=style),
        Text(held),
        Text(f"{site.released:,}"),
        Text(waiting),
        Text(str(site.lost), style="red" if missing else ""),
        Text(str(site.regained), style="green" if site.regained else ""),
        Text(str(site.nacks)),
        Text(str(site.repairs)),
        Text(f"{host.clock.error_ns(scene.now) / 1000:+,.0f}"),
        _offset(scene, site.offset_ns),
    ]


def _offset(scene: Scene, offset_ns: int | None) -> Text:
    if offset_ns is None:
        return Text("–")
    if abs(offset_ns) > scene.scenario.timing.clock_error_ns + MILLISECOND:
        return Text(f"{to_seconds(offset_ns):.1f} s late", style="bold yellow")
    return Text(f"{offset_ns / 1000:+,.0f}")


# Curves -------------------------------------------------------------------------------------------


def _curves(scene: Scene, width: int) -> RenderableType:
    """Skew against its bound, latency against its formula, one bar for each token."""
    releases, timing = scene.releases, scene.scenario.timing
    chunks = [chunk for chunk in releases.chunks if chunk.sites > 0][-(width - 2) :]
    formula_ns = releases.formula_ns(scene.loss)
    top_ns = max([1.5 * formula_ns, *[chunk.latency_ns for chunk in chunks]])
    last = chunks[-1] if chunks else None
    calm = ["cyan"] * len(chunks)
    waits = ["green" if chunk.unbroken else "bold yellow" for chunk in chunks]
    skew = f"{_microseconds(last.skew_ns if last else 0)} µs"
    latency = f"{to_seconds(last.latency_ns) if last else 0:.2f} s"
    return Group(
        Text.assemble(" skew ", (skew, "bold"), f", 2ε = {_bound(scene)} µs"),
        *bars([chunk.skew_ns for chunk in chunks], timing.skew_bound_ns, calm),
        Text(""),
        Text.assemble(" latency ", (latency, "bold"), f", formula {to_seconds(round(formula_ns)):.2f} s"),
        *bars([chunk.latency_ns for chunk in chunks], top_ns, waits),
        Text(" = d+τ_t/2+τ_t·p/(1-p)+Δ_A", style=FAINT),
    )
