"""The tape of a market that is heard: batches onto it, of one stripe or of several; rows of it for people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.terms.instruments import Scale, scale_of
from isocast.ticker.tape import Tape
from isocast.ticker.views import Best, Depth, DepthLevel, SymbolView
from isocast.wire.events import EventArray

__all__ = ["BookLevel", "BookRow", "TapeRow", "book_row", "depth_fields", "take_batch", "take_messages", "tape_rows"]


@dataclass(frozen=True, slots=True)
class TapeRow:
    """A symbol as it stands over all floors; prices are in units, and None where there is none."""

    symbol: str
    last: Decimal | None
    """The price of the last sale."""
    last_quantity: int | Decimal | None
    """Quantities are whole, or Decimals where the instrument has fractions."""
    last_floor: str | None
    change: Decimal | None
    """From the floor's last price of the day before, or from the day's first where that is not known."""
    bid: Decimal | None
    bid_size: int | Decimal
    """At that price, on all floors together."""
    ask: Decimal | None
    ask_size: int | Decimal
    volume: int | Decimal
    trades: int
    status: str | None
    """closed, halted, paused, quoting or trading."""
    incomplete: tuple[str, ...]
    """Floors whose best prices come from books that have missed something."""


@dataclass(frozen=True, slots=True)
class BookLevel:
    """A price in units, with the size and the number of orders that all floors have there."""

    price: Decimal
    size: int | Decimal
    orders: int
    floors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BookRow:
    """The books of a symbol on all floors, put together by price; the best price comes first."""

    symbol: str
    bids: tuple[BookLevel, ...]
    asks: tuple[BookLevel, ...]
    market: str
    """locked, crossed, or nothing."""
    incomplete: tuple[str, ...]
    """Floors whose books have missed something."""


def tape_rows(views: Iterable[SymbolView]) -> list[TapeRow]:
    """The views of a tape with full names, and with prices and quantities in units."""
    return [_row(view, scale_of(view.symbol)) for view in views]


def _row(view: SymbolView, scale: Scale) -> TapeRow:
    last = view.last
    bid, bid_size = _best(view.bid, scale)
    ask, ask_size = _best(view.ask, scale)
    return TapeRow(
        view.name,
        None if last is None else scale.to_price(last.price),
        None if last is None else scale.to_quantity(last.quantity),
        None if last is None else last.floor,
        None if view.change is None else scale.to_price(view.change),
        bid,
        bid_size,
        ask,
        ask_size,
        scale.to_quantity(view.volume),
        view.trades,
        None if view.status is None else view.status.name.lower(),
        view.incomplete,
    )


def book_row(depth: Depth) -> BookRow:
    """The books of a symbol with prices in units."""
    scale = scale_of(depth.symbol)
    return BookRow(depth.name, _levels(depth.bids, scale), _levels(depth.asks, scale), depth.market, depth.incomplete)


def depth_fields(depth: Depth) -> dict[str, object]:
    """The books of a symbol for programs: prices as text, exactly."""
    scale = scale_of(depth.symbol)
    sides = {
        name: [{**asdict(level), "price": str(level.price), "size": _plain(level.size)} for level in found]
        for name, found in (("bids", _levels(depth.bids, scale)), ("asks", _levels(depth.asks, scale)))
    }
    state = {"market": depth.market or "normal", "incomplete": list(depth.incomplete)}
    return {"symbol": depth.name, **sides, **state}


def _plain(quantity: int | Decimal) -> int | str:
    return quantity if isinstance(quantity, int) else str(quantity)


def _levels(levels: Iterable[DepthLevel], scale: Scale) -> tuple[BookLevel, ...]:
    return tuple(
        BookLevel(scale.to_price(level.price), scale.to_quantity(level.size), level.orders, level.floors)
        for level in levels
    )


def _best(best: Best | None, scale: Scale) -> tuple[Decimal | None, int | Decimal]:
    return (None, 0) if best is None else (scale.to_price(best.price), scale.to_quantity(best.size))


# ---- batches. Of several stripes: one sequence, ordered by (token instant, stripe, sequence), numbered from 1 on.


def _warn(text: str) -> None:
    logging.getLogger("isocast").warning(text)


def take_batch(
    tape: Tape, batch: ReceivedBatch, part: int, *, several: bool, told: Callable[[str], None] = _warn
) -> None:
    """The first events of what was heard, the whole of it if those are all; `told` hears which messages are missing."""
    if batch.names is not None and batch.names is not tape.names:
        batch.names.merge(tape.names)  # A tape of before knows names that nobody may spell again.
        tape.names = batch.names
    events, sequences, is_whole = batch.events[:part], batch.sequences[:part], part == len(batch)
    if not several:
        if batch.kind is not BatchKind.MESSAGES or (not tape.sequence and batch.first_sequence > 1):
            tape.books.gap()
        elif batch.first_sequence > tape.sequence + 1:
            tape.gap()
            told(f"sequences {tape.sequence + 1:,} to {batch.first_sequence - 1:,} are not here: {_LACKS}")
        tape.take(events, sequences, batch.last_sequence if is_whole else None)
    elif batch.kind is BatchKind.MESSAGES:
        last = batch.last_sequence if is_whole else int(sequences[-1]) if part else 0
        if last:
            take_messages(tape, batch.stripe, events, sequences, batch.first_sequence, last, told)
    else:
        tape.books.gap()
        # The newest of each key: it has the place of the last message that it takes account of, whatever that is.
        tape.take(events, np.full(part, tape.sequence, np.uint64), tape.sequence)
        tape.positions[batch.stripe] = batch.last_sequence


def take_messages(
    tape: Tape,
    stripe: int,
    events: EventArray,
    sequences: npt.NDArray[np.uint64],
    first: int,
    last: int,
    told: Callable[[str], None] = _warn,
) -> None:
    """Messages of one of several stripes, which follow all before."""
    known = tape.positions.get(stripe)
    if known is None and first > 1:
        tape.books.gap()
    elif known is not None and first > known + 1:
        tape.gap()
        told(f"sequences {known + 1:,} to {first - 1:,} of stripe {stripe} are not here: {_LACKS}")
    places = sequences - np.uint64(first) + np.uint64(tape.sequence + 1)
    tape.take(events, places, tape.sequence + last - first + 1)
    tape.positions[stripe] = last


_LACKS = "the tape lacks what they say"
