"""One frame of a simulated market: header, map, counters, a row for each city, curves and log, for any terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from isocast.cli.live_map import Line, Mark, height_for
from isocast.cli.live_parts import FAINT, MOTTO, STATES, bars, figures, fitted_map, header, log, panel
from isocast.cli.sim_scene import Scene, Site
from isocast.cli.sim_watch import state_of
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.simulation.timed import TimedRun
from isocast.terms.instants import MILLISECOND, to_seconds

__all__ = ["frame", "phase"]

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
    return fitted_map(columns, rows, [mark for mark in marks if mark], _lines(scene))


def _mark(scene: Scene, run: TimedRun, site: Site) -> Mark | None:
    if site.place is None:
        return None
    shown, style = STATES[state_of(scene, run, site)]
    if site.up and scene.now < site.flash_until:
        style = "bold black on bright_red"
    elif scene.holder == site.site and site.up:
        style = "bold black on yellow"
    return Mark(site.place, shown[0], style)


def _lines(scene: Scene) -> list[Line]:
    """Repairs in green, and the token on its way to its next owner."""
    lines = [
        Line(giver.place, taker.place, "bright_green")
        for giver, taker in scene.recent_repairs()
        if giver.place and taker.place
    ]
    due, token = scene.next_token(), scene.token
    holder = scene.sites.get(scene.holder) if scene.holder is not None else None
    if due is not None and token is not None and holder is not None and holder.place and due[1].place:
        share = (scene.now - token.instant) / scene.scenario.timing.token_period_ns
        lines.append(Line(holder.place, due[1].place, "bright_yellow", share))
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
        ("lost", f"{scene.lost:,} packets", "red" if scene.loss else ""),
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


def _site(scene: Scene, run: TimedRun, site: Site) -> list[Text]:
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
