"""One frame of `isocast top`: a header, a table for each kind of role, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isocast.runtime.watch.status import NodeStatus, Spread, StatusAnswer
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted

__all__ = ["frame", "release_skew"]

_RECENT_NS = 60 * SECOND
"""An alarm of the last minute is red, an older one grey."""
_TABLE_HEAD = 3
"""Rows of a table before its first node: a blank, the heading, the names of the columns."""
_WRONG_SHARE, _WRONG_LEAST = 3, 3
"""What is wrong may take a third of a terminal, and three lines of the smallest."""
_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class _Column:
    """A figure of a node."""

    title: str
    show: Callable[[NodeStatus], Text | str]
    spare: int = 0
    """Where there is no room, columns with the highest of these go first; those with 0 stay."""
    left: bool = False
    optional: bool = False
    """Left out where it says nothing of anybody."""


# Figures ------------------------------------------------------------------------------------------


def _figure(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _newest(next_sequence: int | None) -> str:
    """The newest sequence that is there, as journals have it: the one before the next."""
    return _figure(None if next_sequence is None else max(next_sequence - 1, 0))


def _span(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"  # noqa: PLR2004


def _spread(spread: Spread | None) -> str:
    return _UNKNOWN if spread is None else f"{_span(spread.p50_s)} / {_span(spread.p99_s)}"


def _total(*names: str) -> Callable[[NodeStatus], str]:
    return lambda status: _figure(sum(status.totals.get(name, 0) for name in names))


def _wrong(*names: str) -> Callable[[NodeStatus], Text]:
    """A total that should be zero."""

    def show(status: NodeStatus) -> Text:
        value = sum(status.totals.get(name, 0) for name in names)
        return Text(_figure(value), style="bold red" if value else "green")

    return show


def _state(status: NodeStatus) -> Text:
    mode = status.gauges.mode or ""
    if not status.healthy:
        return Text("✖ stalled", style="bold red")
    if status.gauges.waiting is not None:
        return Text("◌ waiting", style="bold magenta")
    if status.ready:
        return Text("◆ token", style="bold yellow") if status.gauges.owns_token else Text("● ready", style="green")
    return Text(f"◌ {mode}" if mode in ("sealed", "catchup") else "◌ not ready", style="magenta")


def _clock(status: NodeStatus) -> Text:
    gauges = status.gauges
    if gauges.clock_bound_ns is None:
        return Text(_UNKNOWN)
    bound = f"±{_span(gauges.clock_bound_ns / SECOND)}"
    if gauges.clock_trusted is False:
        return Text(f"{bound} WRONG", style="bold white on red")
    return Text(bound) if gauges.clock_synchronised else Text(f"{bound} unsynced", style="yellow")


def _ring(status: NodeStatus) -> Text:
    gauges = status.gauges
    if gauges.ring is None:
        return Text(_UNKNOWN)
    members, configured = len(gauges.ring), gauges.ring_configured
    short = configured is not None and members < configured
    return Text(f"{members}" if configured is None else f"{members}/{configured}", style="bold red" if short else "")


def _head(status: NodeStatus) -> Text:
    """Whom a receiver heads, or who heads it; what is not as the market's file has it stands out."""
    gauges = status.gauges
    if gauges.head is not None and gauges.head != gauges.head_configured:
        return Text(f"{gauges.head} (adopted from {gauges.head_configured})", style="bold magenta")
    if gauges.head is not None:
        return Text(gauges.head)
    others = [f"+ {name}" for name in (*(gauges.heads or ()), *(gauges.adopted or ())) if name != status.name]
    own = ["own"] if status.name in (gauges.heads or ()) else []
    return Text("heads " + " ".join([*own, *others]) if own or others else "", style="bold magenta" if others else "")


def _line(status: NodeStatus) -> Text:
    """Where a receiver's line is, where lines are planned."""
    plan = status.gauges.line_plan
    if plan is None:
        return Text("")
    return (
        Text("silent", style="color(245)")
        if plan.group is None
        else Text(f"{plan.group} {plan.radius_km or 0:,.0f} km")
    )


def _planned(status: NodeStatus) -> Text:
    """How many lines a listener hears by the plan."""
    plan = status.gauges.line_plan
    if plan is None:
        return Text("")
    count = len(plan.sources)
    return Text(f"{count}/{plan.wanted}", style="bold red" if count < plan.wanted else "")


def _gaps(status: NodeStatus) -> Text:
    gaps = status.gauges.sequence_gaps
    return Text(_figure(gaps), style="bold red" if gaps else "green")


def _lines(status: NodeStatus) -> str:
    gauges = status.gauges
    return _UNKNOWN if gauges.lines_heard is None else f"{gauges.lines_heard}/{gauges.lines_configured or 0}"


_NODE = _Column("node", lambda status: Text(status.name, style="bold"), left=True)
_CITY = _Column("city", lambda status: status.city, spare=1, left=True)
_STATE = _Column("state", _state, left=True)
_EVENTS = _Column("events/s", lambda status: _figure(status.rates.events))
_DROPS = _Column("drops", _wrong("kernel_drops_total", "unsent_packets_total"))
_LOST = _Column("lost", _total("injected_losses_total"), spare=2)
_REFUSED = (
    "authentication_failures_total",
    "malformed_packets_total",
    "unknown_senders_total",
    "another_market_packets_total",
)
_FORGED = _Column("refused", _total(*_REFUSED), spare=2)
_CPU = _Column("CPU", lambda status: f"{100 * status.rates.cpu:.0f} %", spare=2)
_EPOCH = _Column("epoch", lambda status: status.gauges.epoch or _UNKNOWN, spare=1)
_SEQUENCE = _Column("sequence", lambda status: _newest(status.gauges.next_sequence))

_RECEIVERS = (
    _EPOCH,
    _Column("ring", _ring, spare=1),
    _Column("head", _head, spare=1, left=True, optional=True),
    _Column("line", _line, spare=2, left=True, optional=True),
    _Column("token", lambda status: _figure(status.gauges.held_token), spare=1),
    _Column("released", lambda status: _figure(status.gauges.released_token), spare=2),
    _SEQUENCE,
    _EVENTS,
    _Column("lateness p50 / p99", lambda status: _spread(status.lateness)),
    _Column("late", _wrong("late_releases_total")),
    _DROPS,
    _LOST,
    _Column("NACKs", _total("nacks_sent_total"), spare=1),
    _Column("repaired", _total("repairs_received_total"), spare=1),
    _FORGED,
    _Column("clock", _clock, spare=2),
    _CPU,
)
_SOURCES = (
    _EVENTS,
    _Column("published", _total("events_published_total")),
    _Column("rejected", _total("publishes_rejected_total")),
    _Column("unacknowledged", lambda status: _figure(status.gauges.outbox_unacknowledged)),
    _Column("unstable", lambda status: _figure(status.gauges.outbox_unstable), spare=2),
    _Column("window", lambda status: _figure(status.gauges.outbox_window), spare=2),
    _DROPS,
    _CPU,
)
_SERVERS = (
    _Column("stage", lambda status: status.gauges.mode or _UNKNOWN, left=True),
    _EPOCH,
    _Column("ballot", lambda status: _figure(status.gauges.ballot_number)),
    _Column("votes", lambda status: _figure(status.gauges.ballot_votes)),
    _Column("rings", _total("reformations_total")),
    _DROPS,
    _CPU,
)
_ARCHIVES = (
    _Column("from", lambda status: _figure(status.gauges.archive_first_sequence)),
    _Column("to", lambda status: _newest(status.gauges.archive_next_sequence)),
    _Column("clients", lambda status: _figure(status.gauges.clients)),
    _Column("ranges", _total("ranges_served_total")),
    _Column("refused", _total("ranges_refused_total")),
    _Column("repairs", _total("repairs_total")),
    _DROPS,
    _CPU,
)
_CUSTOMERS = (
    _Column("lines", _lines),
    _Column("planned", _planned, spare=2, optional=True),
    _Column("follows", lambda status: status.gauges.line_followed or _UNKNOWN, left=True),
    _SEQUENCE,
    _EVENTS,
    _Column("gaps", _gaps),
    _Column("conflicts", _wrong("line_conflicts_total")),
    _Column("repaired", _total("gaps_repaired_total")),
    _Column("skipped", _total("messages_skipped_total")),
    _Column("copies", _total("line_duplicates_total"), spare=2),
    _DROPS,
    _LOST,
    _CPU,
)
_TABLES: tuple[tuple[str, tuple[str, ...], tuple[_Column, ...]], ...] = (
    ("Receivers", ("primary-receiver", "secondary-receiver"), _RECEIVERS),
    ("Sources", ("primary-source", "secondary-source"), _SOURCES),
    ("Reformation servers", ("reformation-server",), _SERVERS),
    ("Retransmit servers", ("retransmit-server",), _ARCHIVES),
    ("Customers", ("customer",), _CUSTOMERS),
)


# The frame ----------------------------------------------------------------------------------------


def frame(title: str, answers: Sequence[StatusAnswer], width: int, height: int | None = None) -> RenderableType:
    """Everything that the nodes said. A height keeps what is wrong, and then as many nodes as there is room for."""
    troubles = _troubles(answers)
    room = None if height is None else height - 1
    wrong: list[RenderableType] = []
    if troubles:
        shown = troubles if room is None else _cut(troubles, max(room // _WRONG_SHARE, _WRONG_LEAST))
        wrong = [Text("\nWhat is wrong", style="bold"), *shown]
        room = None if room is None else room - len(shown) - 2
    tables = _tables(answers, width, room)
    # In a terminal what is wrong comes first: the lower edge is where a screen that is too small ends.
    parts = [*tables, *wrong] if height is None else [*wrong, *tables]
    return Group(_header(title, answers, width), *parts)


def _cut(lines: list[Text], most: int) -> list[Text]:
    """The first of them, and how many more there are."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], Text(f" … and {len(lines) - most + 1:,} more: isocast top --once shows all", "bold")]


def _tables(answers: Sequence[StatusAnswer], width: int, room: int | None) -> list[RenderableType]:
    """A table for each kind of role, as far as there is room."""
    known = [role for _, roles, _ in _TABLES for role in roles]
    kinds = [(heading, columns, [one for one in answers if _role(one) in roles]) for heading, roles, columns in _TABLES]
    kinds.append(("Others", (), [one for one in answers if _role(one) not in known]))
    parts: list[RenderableType] = []
    left_out = 0
    for heading, columns, rows in kinds:
        if not rows:
            continue
        if room is None:
            parts.append(_table(heading, columns, rows, width))
            continue
        # The last line says how many are not shown.
        fitting = max(min(room - _TABLE_HEAD - 1, len(rows)), 0)
        if fitting:
            parts.append(_table(heading, columns, rows[:fitting], width))
            room -= _TABLE_HEAD + fitting
        left_out += len(rows) - fitting
    if left_out:
        nodes = "node does" if left_out == 1 else "nodes do"
        parts.append(Text(f" {left_out:,} more {nodes} not fit this terminal", style="color(245)"))
    return parts


def _role(answer: StatusAnswer) -> str:
    return answer.status.role if answer.status else answer.target.role


def _header(title: str, answers: Sequence[StatusAnswer], width: int) -> Text:
    statuses = [answer.status for answer in answers if answer.status]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" Isocast ", style="bold black on yellow")
    text.append(f" {title}  " if title else " ", style="bold")
    text.append(f"{datetime.now(UTC):%H:%M:%S} UTC  ", style="color(245)")
    ready = sum(status.ready for status in statuses)
    fine = ready == len(answers)
    text.append(f"{ready} of {len(answers)} nodes ready", style="green" if fine else "bold red")
    receivers = [status for status in statuses if status.role in _TABLES[0][1]]
    epochs = sorted({status.gauges.epoch for status in receivers if status.gauges.epoch})
    if epochs:
        style = "" if len(epochs) == 1 else "bold magenta"
        text.append(f"  epoch {' and '.join(epochs)}", style=style)
    if receivers:
        text.append(f"  {max(status.rates.events for status in receivers):,.0f} events/s")
    skew = release_skew(receivers)
    if skew is not None:
        text.append(f"  skew {_spread(skew)} of {skew.count} tokens")
    text.truncate(width, overflow="ellipsis")
    return text


def release_skew(statuses: Sequence[NodeStatus]) -> Spread | None:
    """First to last release of each token that two or more nodes remember, by their own clocks."""
    instants: dict[int, list[int]] = {}
    for status in statuses:
        for mark in status.releases:
            instants.setdefault(mark.token_number, []).append(mark.at_ns)
    skews = sorted(max(times) - min(times) for times in instants.values() if len(times) > 1)
    if not skews:
        return None
    middle, high = skews[len(skews) // 2], skews[min(len(skews) * 99 // 100, len(skews) - 1)]
    return Spread(len(skews), middle / SECOND, high / SECOND)


def _table(heading: str, columns: Sequence[_Column], answers: Sequence[StatusAnswer], width: int) -> RenderableType:
    drawn = [(column, [_cell(column, answer) for answer in answers]) for column in (_NODE, _CITY, _STATE, *columns)]
    drawn = [(column, cells) for column, cells in drawn if not column.optional or any(map(len, cells))]
    while _width(drawn) > width:
        spare = max(column.spare for column, _ in drawn)
        if not spare:
            break
        drawn.remove([pair for pair in drawn if pair[0].spare == spare][-1])
    table = Table(title=f"\n{heading}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.header_style = "color(245)"
    for column, _ in drawn:
        table.add_column(column.title, justify="left" if column.left else "right", no_wrap=True, overflow="ellipsis")
    for row in zip(*(cells for _, cells in drawn), strict=True):
        table.add_row(*row)
    return table


def _width(drawn: Sequence[tuple[_Column, list[Text]]]) -> int:
    """What a table needs: a blank on either side of each column, but for the edges."""
    return sum(max(len(column.title), *(cell.cell_len for cell in cells)) + 2 for column, cells in drawn) - 2


def _cell(column: _Column, answer: StatusAnswer) -> Text:
    if answer.status is not None:
        figure = column.show(answer.status)
        return Text(figure) if isinstance(figure, str) else figure
    if column is _NODE:
        return Text(answer.target.title, style="bold red")
    if column is _STATE:
        return Text("✖ unreachable", style="bold red")
    return Text(answer.target.city if column is _CITY else "")


def _troubles(answers: Sequence[StatusAnswer]) -> list[Text]:
    """A line for each: first who does not answer, then who is not ready, then alarms, the newest first."""
    lines: list[Text] = []
    alarms: list[tuple[int, Text]] = []
    for answer in answers:
        status = answer.status
        if status is None:
            lines.append(_trouble(answer.target.title, answer.trouble, "", "bold red"))
            continue
        lines += [_trouble(status.name, reason, "", "magenta") for reason in status.reasons]
        if status.gauges.waiting is not None:
            lines.append(_trouble(status.name, f"waiting: {status.gauges.waiting}", "", "magenta"))
        for alarm in status.alarms:
            recent = status.at_ns - alarm.last_ns <= _RECENT_NS
            often = f"{counted(alarm.count, 'time')}, last" if alarm.count > 1 else "once,"
            times = f" ({often} {_ago(status.at_ns - alarm.last_ns)})"
            style = "bold red" if recent else "color(245)"
            alarms.append((alarm.last_ns, _trouble(status.name, alarm.text + times, alarm.remedy, style)))
    return lines + [line for _, line in sorted(alarms, key=lambda pair: -pair[0])]


def _trouble(name: str, text: str, remedy: str, style: str) -> Text:
    line = Text.assemble((f" {name}: ", "bold"), (text, style), overflow="ellipsis", no_wrap=True)
    if remedy:
        line.append(f" → {remedy}")
    return line


def _ago(span_ns: int) -> str:
    seconds = max(span_ns, 0) // SECOND
    return f"{seconds} s ago" if seconds < 120 else f"{seconds // 60} min ago"  # noqa: PLR2004
