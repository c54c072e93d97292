"""One frame of the demo: header, map, counters, a row for each city, curves and log, for any size of terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.align import Align
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from isocast.cli.live_map import Line, Mark, draw_map, height_for
from isocast.cli.live_scene import Note, Scene, Site, Tone
from isocast.cli.live_watch import state_of
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.simulation.timed import TimedRun
from isocast.terms.instants import MILLISECOND, to_seconds

__all__ = ["frame", "phase"]

_ROOMY = (96, 34)
"""Columns and rows from which on there are borders and curves."""
_NAMES_MOST = 2
_ROWS_LEAST = 10
"""Of cities, before the map gets more room."""
_BARS = "▁▂▃▄▅▆▇█"
_MOTTO = "one sequence, one instant"

_TONES = {Tone.TOKEN: "color(245)", Tone.REPAIR: "green", Tone.TROUBLE: "bold red", Tone.RING: "bold cyan"}
_STATES = {
    "token": ("◆ token", "bold yellow"),
    "ring": ("● ring", "cyan"),
    "outside": ("○ outside", "magenta"),
    "ballot": ("◌ ballot", "magenta"),
    "start": ("◌ start", "color(245)"),
    "down": ("✖ down", "bold red"),
}
"""A city's state as it is written, and its colour."""


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
        Layout(_panel(_sites(scene, run, shown, wide=True), title), size=shown + 3),
        Layout(name="lower"),
    )
    layout["upper"].split_row(
        Layout(_panel(_map(scene, run, columns, upper), "The world"), name="map"),
        Layout(_panel(_counters(scene, run, roomy=True), "The sequence"), size=side),
    )
    layout["lower"].split_row(
        Layout(_panel(_curves(scene, curves - 2), "Releases (§5)"), size=curves),
        Layout(_panel(_log(scene, height), "What happens")),
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
        Layout(_log(scene, height)),
    )
    layout["upper"].split_row(
        Layout(_map(scene, run, width - side - 1, upper)),
        Layout(_counters(scene, run, roomy=False), size=side),
    )
    return layout


def _panel(content: RenderableType, title: str) -> Panel:
    return Panel(
        content,
        title=Text(title, style="bold color(252)"),
        title_align="left",
        box=box.ROUNDED,
        border_style="color(239)",
        padding=0,
    )


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
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" Isocast ", style="bold black on yellow")
    text.append(f" {to_seconds(scene.now):5.1f} s  ", style="bold")
    words, style = phase(scene)
    text.append(words, style=style)
    room = width - text.cell_len - len(_MOTTO) - 1
    if room > 0:
        text.append(" " * room + _MOTTO, style="color(245)")
    return text


# Map ----------------------------------------------------------------------------------------------


def _map(scene: Scene, run: TimedRun, columns: int, rows: int) -> RenderableType:
    """As wide as its height allows, and a little wider: better a stretched world than an empty sea."""
    wide = min(columns, round(1.3 * rows * columns / height_for(columns)))
    marks = [_mark(scene, run, site) for site in scene.sites.values()]
    drawn = draw_map(max(wide, 20), rows, [mark for mark in marks if mark], _lines(scene))
    return Align.center(drawn)


def _mark(scene: Scene, run: TimedRun, site: Site) -> Mark | None:
    if site.place is None:
        return None
    shown, style = _STATES[state_of(scene, run, site)]
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
    table = Table.grid(padding=(0, 1), pad_edge=True)
    table.add_column(style="color(245)", no_wrap=True, min_width=10)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value, style in _counted(scene, run, roomy=roomy):
        table.add_row(name, Text(value, style=style))
    return table


def _counted(scene: Scene, run: TimedRun, *, roomy: bool) -> list[tuple[str, str, str]]:
    releases = scene.releases
    rows = [("token", f"{scene.token.token_number if scene.token else 0}, epoch {scene.epoch or 0}", "bold yellow")]
    due = scene.next_token()
    if due is None:
        rows.append(("next", "no ring yet", "color(245)"))
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
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=wide, header_style="color(245)")
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
    word, style = _STATES[state_of(scene, run, site)]
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


# Curves and log -----------------------------------------------------------------------------------


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
        *_bars([chunk.skew_ns for chunk in chunks], timing.skew_bound_ns, calm),
        Text(""),
        Text.assemble(" latency ", (latency, "bold"), f", formula {to_seconds(round(formula_ns)):.2f} s"),
        *_bars([chunk.latency_ns for chunk in chunks], top_ns, waits),
        Text(" = d+τ_t/2+τ_t·p/(1-p)+Δ_A", style="color(245)"),
    )


def _bars(values: Sequence[float], top: float, styles: Sequence[str]) -> tuple[Text, Text]:
    """Two rows of eighths of a character; both full stand for `top`."""
    steps = len(_BARS)
    upper, lower = Text(" "), Text(" ")
    for value, style in zip(values, styles, strict=True):
        eighths = min(max(round(value / max(top, 1) * 2 * steps), 1), 2 * steps)
        upper.append(_BARS[eighths - steps - 1] if eighths > steps else " ", style=style)
        lower.append(_BARS[min(eighths, steps) - 1], style=style)
    return upper, lower


def _log(scene: Scene, most: int) -> RenderableType:
    """The newest line comes first: what does not fit is old."""
    lines = [_note_text(note) for note in list(scene.notes)[-most:][::-1]]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines) if lines else Text("")


def _note_text(note: Note) -> Text:
    return Text.assemble((f"{to_seconds(note.at):6.1f} ", "color(245)"), (note.text, _TONES[note.tone]))
