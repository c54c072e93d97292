"""One frame of the demo, as its processes and journals show it, for any size of terminal; and the README's picture."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from isocast.cli.demo_lake import LakeBeside, lake_words
from isocast.cli.demo_run import COMMANDS
from isocast.cli.demo_trading import floor_line, floor_panel, floor_title
from isocast.cli.live_view import FAINT, MOTTO, STATES, bars, figures, header, log, panel, picture
from isocast.cli.world_map import MapLine, Mark, fitted_map, height_for
from isocast.runtime.disk.scratch import scratch_directory
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.operate.supervisor import ChildState
from isocast.runtime.watch.status import NodeStatus
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.terms.topology import City
from isocast.trials.demo.cast import actors, own_place, process_count
from isocast.trials.demo.releases import Chunk
from isocast.trials.demo.show import Show, ShowPhase, ShowSettings
from isocast.trials.demo.staging import set_stage

__all__ = ["frame", "main", "phase", "state_of"]


_ROOMY = (96, 36)
"""Columns and rows from which on there are borders and curves."""
_SIDE, _CURVES, _FLOORS, _LOWER = 30, 36, 23, 10
_LOSS_SHOWN_NS = SECOND // 4
_REPAIR_SHOWN_NS = SECOND * 6 // 10
_BAR = 16
_UNKNOWN = "–"
_MAP_ROLES = (
    NodeRole.PRIMARY_RECEIVER,
    NodeRole.SECONDARY_RECEIVER,
    NodeRole.CUSTOMER,
    NodeRole.SECONDARY_SOURCE,
    NodeRole.REFORMATION_SERVER,
)
"""Who is drawn where several are in one city: the first of these."""
_SYMBOLS = {
    NodeRole.CUSTOMER: ("▪", "green"),
    NodeRole.SECONDARY_SOURCE: ("▴", "bright_blue"),
    NodeRole.REFORMATION_SERVER: ("▫", FAINT),
}


def frame(show: Show, width: int, height: int, now: int, lake: LakeBeside | None = None) -> RenderableType:
    """Everything at an instant of the system clock, cut to the size of the terminal."""
    roomy = width >= _ROOMY[0] and height >= _ROOMY[1]
    top = _header(show, lake, width, now)
    # A market that has stopped stands still, however long its tables take.
    seen = min(now, show.stopped_at or now)
    return (_roomy if roomy else _compact)(show, lake, top, width, height, seen)


def _roomy(show: Show, lake: LakeBeside | None, top: Text, width: int, height: int, now: int) -> Layout:
    columns, rows = width - _SIDE - 2, len(show.market.receivers)
    edge = max(len(show.feeds), len(actors(show.market, NodeRole.CUSTOMER)) + 1)
    lower = _LOWER + (show.watch.floor is not None)
    upper = max(min(height_for(columns), height - (1 + 2 + rows + 3 + edge + 3 + lower)), 6)
    layout = Layout()
    layout.split_column(
        Layout(top, size=1),
        Layout(name="upper", size=upper + 2),
        Layout(panel(_receivers(show, now, wide=True), "Receivers: the ring, and a layer below it"), size=rows + 3),
        Layout(name="edge", size=edge + 3),
        Layout(name="lower"),
    )
    layout["upper"].split_row(
        Layout(panel(_map(show, columns, upper, now), "The world"), name="map"),
        Layout(panel(figures(_sequence(show, now)), "The sequence"), size=_SIDE),
    )
    layout["edge"].split_row(
        Layout(panel(_floors(show), "Floors"), size=_FLOORS),
        Layout(panel(_customers(show), "Customers, and who retransmits")),
    )
    layout["lower"].split_row(
        Layout(panel(_curves(show, _CURVES - 2), "Releases (§5)"), size=_CURVES),
        Layout(name="right"),
    )
    _right(layout["right"], show, lake, height)
    return layout


def _right(layout: Layout, show: Show, lake: LakeBeside | None, height: int) -> None:
    """The trading floor, if there is one, and what happens."""
    floor, parts = show.watch.floor, [Layout(_log(show, lake, height))]
    if floor is not None:
        rows = max(len(floor.symbols), 1)
        parts.insert(0, Layout(panel(floor_panel(show, floor), floor_title(floor)), size=rows + 3))
    layout.split_column(*parts)


def _log(show: Show, lake: LakeBeside | None, height: int) -> Panel:
    """What happens, and below it, in the border, how far the tables are."""
    framed = panel(log(show.notes, height), "What happens")
    if lake is not None:
        framed.subtitle, framed.subtitle_align = Text(lake_words(lake, show), style="cyan"), "right"
    return framed


def _compact(show: Show, lake: LakeBeside | None, top: Text, width: int, height: int, now: int) -> Layout:
    side = min(29, width // 2)
    rows = min(len(show.market.receivers), max(height - 1 - 1 - 8, 1))
    upper = max(min(height - 1 - (rows + 1) - 4, 9), 1)
    layout = Layout()
    layout.split_column(
        Layout(top, size=1),
        Layout(name="upper", size=upper),
        Layout(_receivers(show, now, wide=False, shown=rows), size=rows + 1),
        Layout(_edge_line(show), size=1),
        *([] if show.watch.floor is None else [Layout(floor_line(show.watch.floor), size=1)]),
        *([] if lake is None else [Layout(_lake_line(show, lake), size=1)]),
        Layout(log(show.notes, height)),
    )
    layout["upper"].split_row(
        Layout(_map(show, width - side - 1, upper, now)),
        Layout(figures(_sequence(show, now)), size=side),
    )
    return layout


# Header -------------------------------------------------------------------------------------------


def phase(show: Show) -> tuple[str, str]:
    """What is going on, in a few words, and its colour."""
    if show.phase is ShowPhase.SETTING:
        ready = sum([state is ChildState.READY for state in show.children.values()])
        return f"{process_count(show.market)} processes start, {ready} are ready", "cyan"
    story = show.story
    who = show.watch.title(story.victim)
    if story.killed_at and not story.whole_at:
        if not story.reformed_at:
            return f"token {story.token_number} is missing, {who} down: the ring re-forms", "bold red"
        if not story.started_at:
            return f"{who} down, the others go on", "bold yellow"
        return f"{who} outside the ring, catching up", "bold magenta"
    if show.phase is not ShowPhase.PLAYING:
        return show.phase.value, "cyan"
    loss = show.market.impairment.loss
    return (f"{100 * loss:g} % of all packets get lost", "yellow") if loss else ("nothing gets lost", "green")


def _is_broken(show: Show) -> bool:
    """Whether the others wait for a token that does not come."""
    return bool(show.story.killed_at and not show.story.reformed_at)


def _header(show: Show, lake: LakeBeside | None, width: int, now: int) -> Text:
    words, style = phase(show)
    if lake is not None and lake.expected is not None:
        words, style = f"all have stopped; {lake_words(lake, show)}", "cyan"
    done = round(_BAR * show.share(now))
    right = Text.assemble(
        ("━" * done, "yellow"),
        ("─" * (_BAR - done), "color(239)"),
        (f" {show.settings.seconds:g} s", FAINT) if show.opened_at else (f" {MOTTO}", FAINT),
    )
    return header((now - show.began_at) / SECOND, words, style, right, width)


# Map ----------------------------------------------------------------------------------------------


def state_of(show: Show, plan: NodePlan, now: int) -> str:
    """One word on what a receiver does."""
    watch, child = show.watch, show.children.get(plan.name)
    status, ring = watch.status(plan.name), watch.ring
    if child is ChildState.PAUSING:
        return "down"
    if status is None and child is ChildState.READY:
        status = watch.ledger.newest(plan.name)  # It is only busy.
    if status is None or ring is None or not status.gauges.epoch:
        return "start"
    if status.gauges.mode == "sealed":
        return "ballot"
    if plan.role is NodeRole.SECONDARY_RECEIVER:
        return "ring" if status.ready else "outside"
    if plan.name not in ring.members or status.gauges.mode == "catchup":
        return "outside"
    token = ring.token_at(now)
    if _is_broken(show):
        return "ring"
    return "token" if token >= ring.first_token and ring.owner(token) == plan.name else "ring"


def _map(show: Show, columns: int, rows: int, now: int) -> RenderableType:
    marks: dict[City, Mark] = {}
    for role in _MAP_ROLES:
        for plan in actors(show.market, role):
            if plan.place is not None and plan.place not in marks:
                marks[plan.place] = _mark(show, plan, plan.place, now)
    return fitted_map(columns, rows, list(marks.values()), _lines(show, now))


def _mark(show: Show, plan: NodePlan, place: City, now: int) -> Mark:
    if not plan.role.is_receiver:
        return Mark(place, *_SYMBOLS[plan.role])
    state = state_of(show, plan, now)
    shown, style = STATES[state]
    symbol = "◦" if plan.role is NodeRole.SECONDARY_RECEIVER and state == "ring" else shown[0]
    if state != "down" and now - show.watch.losses.get(plan.name, 0) < _LOSS_SHOWN_NS:
        style = "bold black on bright_red"
    elif state == "token":
        style = "bold black on yellow"
    return Mark(place, symbol, style)


def _lines(show: Show, now: int) -> Iterable[MapLine]:
    """Repairs in green, and the token on its way to its next owner."""
    by_name, ring = show.market.by_name, show.watch.ring
    for at, giver, taker in show.watch.repairs:
        start, end = by_name[giver].place, by_name[taker].place
        if now - at < _REPAIR_SHOWN_NS and start is not None and end is not None:
            yield MapLine(start, end, "bright_green")
    if ring is None or _is_broken(show):
        return
    token = ring.token_at(now)
    if token >= ring.first_token:
        here, there = by_name[ring.owner(token)].place, by_name[ring.owner(token + 1)].place
        if here is not None and there is not None:
            yield MapLine(here, there, "bright_yellow", (now - ring.instant(token)) / ring.period_ns)


# Figures ------------------------------------------------------------------------------------------


def _sequence(show: Show, now: int) -> Iterable[tuple[str, str, str]]:
    watch, ring = show.watch, show.watch.ring
    ledger = watch.ledger
    receivers = [plan.name for plan in show.market.receivers]
    token = ring.token_at(now) if ring is not None else 0
    yield "token", f"{max(token, 0)}, epoch {ring.epoch if ring else 0}", "bold yellow"
    if ring is None:
        yield "next", "no ring yet", FAINT
    elif _is_broken(show):
        yield "next", "a ballot", "bold red"
    else:
        wait = (ring.instant(token + 1) - now) / SECOND
        yield "next", f"{watch.title(ring.owner(token + 1))} {max(wait, 0.0):.1f} s", "yellow"
    yield "published", counted(sum([feed.events for feed in show.feeds]), "event"), ""
    yield "released", counted(max([_next(watch.status(name)) - 1 for name in receivers]), "message"), ""
    yield "lost", counted(int(ledger.total("injected_losses_total")), "packet"), "red"
    yield "repaired", f"{ledger.total('repairs_received_total'):,} on request", "green"
    rings = len(watch.rings)
    yield "rings", f"{rings}", "bold cyan" if rings > 1 else ""
    early = ledger.total("early_releases_total")
    yield "early", f"{early:,}" if early else "none", "bold white on red" if early else "green"
    late = ledger.total("late_releases_total", receivers)
    yield "late", f"{late:,} releases" if late else "none", "yellow" if late else "green"


def _next(status: NodeStatus | None) -> int:
    return 1 if status is None else status.gauges.next_sequence or 1


def _table(names: Sequence[str], *, left: int = 1, wide: bool = True) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=wide, header_style=FAINT)
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place < left else "right", no_wrap=True)
    return table


def _receivers(show: Show, now: int, *, wide: bool, shown: int | None = None) -> RenderableType:
    names = (" city", "state", "token", "released", "off ms", "lost", "NACKs", "repaired", "sent", "CPU")
    if not wide:
        names = (" city", "state", "token", "released", "off ms", "lost", "NACK", "back", "sent", "CPU")
    table = _table(names, left=2, wide=wide)
    for plan in show.market.receivers[:shown]:
        table.add_row(*_receiver(show, plan, now))
    return table


def _receiver(show: Show, plan: NodePlan, now: int) -> list[Text]:
    status, ledger = show.watch.status(plan.name), show.watch.ledger
    word, style = STATES[state_of(show, plan, now)]
    below = plan.role is NodeRole.SECONDARY_RECEIVER
    if below and word.startswith("●"):
        word = "◦ below"

    def total(counter: str) -> int:
        return ledger.total(counter, [plan.name])

    held = status.gauges.held_token if status else None
    cpu = f"{100 * status.rates.cpu:.0f} %" if status else _UNKNOWN
    return [
        Text(f" {show.watch.title(plan.name)}", style=style),
        Text(f"{word:<9}", style=style),
        Text(_UNKNOWN if held is None else str(held)),
        Text(f"{_next(status) - 1:,}" if status else _UNKNOWN),
        _offset(show, plan.name),
        Text(f"{total('injected_losses_total'):,}"),
        Text(f"{total('nacks_sent_total'):,}"),
        Text(f"{total('repairs_received_total'):,}", style="green"),
        Text(f"{total('repairs_total'):,}"),
        Text(cpu),
    ]


def _offset(show: Show, name: str) -> Text:
    """Of its last release, against the instant that is common to all."""
    chunks = reversed(show.watch.releases.chunks.values())
    found = next((chunk for chunk in chunks if name in chunk.released), None)
    if found is None:
        return Text(_UNKNOWN)
    offset_ns = found.released[name] - found.due
    late = offset_ns > show.market.timing.process_ns
    text = f"{offset_ns / SECOND:.1f} s late" if late else f"{offset_ns / 1e6:.1f}"
    return Text(text, style="bold yellow" if late else "")


# Floors and customers -----------------------------------------------------------------------------


def _floors(show: Show) -> RenderableType:
    table = _table((" floor", "events", "/s"))
    for feed in show.feeds:
        table.add_row(Text(f" {feed.plan.mic}", style="bright_blue"), f"{feed.events:,}", f"{feed.rate:.0f}")
    return table


def _customers(show: Show) -> RenderableType:
    table = _table((" customer", "grade", "sequence", "events/s", "gaps", "closed", "skipped"), left=2)
    ledger = show.watch.ledger
    for plan in actors(show.market, NodeRole.CUSTOMER, NodeRole.RETRANSMIT_SERVER):
        status, own = show.watch.status(plan.name), [plan.name]
        customer = plan.role is NodeRole.CUSTOMER
        gaps = status.gauges.sequence_gaps if status else None
        table.add_row(
            Text(
                f" {plan.name}, {plan.place.name}" if plan.place else f" {plan.name}", style="green" if customer else ""
            ),
            plan.grade.value if customer else "retransmits",
            f"{_next(status) - 1:,}",
            f"{status.rates.events:.0f}" if status and customer else "",
            Text(_UNKNOWN if gaps is None else str(gaps or "none"), style="yellow" if gaps else "green"),
            f"{ledger.total('gaps_repaired_total', own):,}" if customer else "",
            f"{ledger.total('messages_skipped_total', own):,}" if customer else "",
        )
    return table


def _edge_line(show: Show) -> Text:
    """Floors and customers in one line."""
    text = Text(" ", no_wrap=True, overflow="ellipsis")
    for feed in show.feeds:
        text.append(f" {feed.plan.mic} {feed.events:,} ", style="bright_blue")
    for plan in actors(show.market, NodeRole.CUSTOMER):
        text.append(f" {plan.name} {_next(show.watch.status(plan.name)) - 1:,} ", style="green")
    return text


def _lake_line(show: Show, lake: LakeBeside) -> Text:
    return Text(f" {lake_words(lake, show)}", style="cyan", no_wrap=True, overflow="ellipsis")


# Curves -------------------------------------------------------------------------------------------


def _curves(show: Show, width: int) -> RenderableType:
    """Skew against its bound, latency against its formula, one bar for each token."""
    timing, releases = show.market.timing, show.watch.releases
    chunks = list(show.watch.recent)[-(width - 2) :]
    formula_ns = timing.latency_ns(show.one_way_ns, show.market.impairment.loss)
    timed = [chunk for chunk in chunks if chunk.submitted]  # Orders and reports say no instant of their own.
    latencies = [_latency(chunk) for chunk in timed]
    top_ns = max([1.5 * formula_ns, *latencies])
    styles = ["cyan" if releases.is_unbroken(chunk) else "bold yellow" for chunk in chunks]
    waits = ["green" if releases.is_unbroken(chunk) else "bold yellow" for chunk in timed]
    last = chunks[-1].skew_ns if chunks else 0
    return Group(
        Text.assemble(" skew ", (f"{last / 1e6:.1f} ms", "bold"), f", 2ε = {timing.skew_bound_ns / 1e6:g} ms"),
        *bars([chunk.skew_ns for chunk in chunks], timing.skew_bound_ns, styles),
        Text(""),
        Text.assemble(
            " latency ",
            (f"{(latencies[-1] if latencies else 0) / SECOND:.2f} s", "bold"),
            f", formula {formula_ns / SECOND:.2f} s",
        ),
        *bars(latencies, top_ns, waits),
        Text(" = d+τ_t/2+τ_t·p/(1-p)+Δ_A", style=FAINT),
    )


def _latency(chunk: Chunk) -> int:
    """Mean submit to first release."""
    return min(chunk.released.values()) - chunk.submitted


# ---- The picture of the README, one frame of a real demo: `python -m isocast.cli.demo_view docs/assets/demo.svg`.


_SIZE = (100, 40)
_SECONDS, _SEED, _LOSS = 60.0, 7, 0.02
_SPARK_S = 120.0
"""Nobody waits in front of it."""
_SHARE = 0.7
_LOOK_S = 0.02


async def _frame(market: Market) -> str:
    """The moment when the others go on without the city that was killed; the tables follow."""
    async with LakeBeside(market, _SECONDS) as lake:
        await lake.head_start(_SPARK_S)
        return await _frame_of(Show(market, ShowSettings(_SECONDS, _SEED, COMMANDS)), lake)


async def _frame_of(show: Show, lake: LakeBeside) -> str:
    playing = asyncio.create_task(show.play())
    try:
        while not playing.done() and not show.story.reformed_at:  # noqa: ASYNC110 - a look at what others did
            await asyncio.sleep(_LOOK_S)
        await _under_way(show)
        return picture(frame(show, *_SIZE, time.time_ns(), lake), *_SIZE, "isocast demo")
    finally:
        playing.cancel()
        with suppress(asyncio.CancelledError):
            await playing


async def _under_way(show: Show) -> None:
    """Until the token is well on its way to the next city."""
    ring = show.watch.ring
    if ring is not None:
        now = time.time_ns()
        wanted = ring.instant(ring.token_at(now) + 1) + round(_SHARE * ring.period_ns)
        await asyncio.sleep((wanted - now) / SECOND)


def main(path: str) -> None:
    """Run a demo and write one frame of it."""
    with scratch_directory("demo") as directory, own_place() as place:
        market = set_stage(directory, place, loss=_LOSS, seed=_SEED, traders=True)
        Path(path).write_text(asyncio.run(_frame(market)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
