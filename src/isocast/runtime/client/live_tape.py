"""The tape of a market that is heard: batches onto it, of one stripe or of several; rows of it for people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.terms.market import from_ticks
from isocast.ticker.tape import Tape
from isocast.ticker.views import Best, SymbolView
from isocast.wire.events import EventArray

__all__ = ["TapeRow", "take_batch", "take_messages", "tape_rows"]


@dataclass(frozen=True, slots=True)
class TapeRow:
    """A symbol as it stands over all floors; prices are in units, and None where there is none."""

    symbol: str
    last: Decimal | None
    """The price of the last sale."""
    last_quantity: int | None
    last_floor: str | None
    change: Decimal | None
    """From the floor's last price of the day before, or from the day's first where that is not known."""
    bid: Decimal | None
    bid_size: int
    """At that price, on all floors together."""
    ask: Decimal | None
    ask_size: int
    volume: int
    trades: int
    status: str | None
    """closed, halted, paused, quoting or trading."""


def tape_rows(views: Iterable[SymbolView]) -> list[TapeRow]:
    """The views of a tape with prices in units."""
    return [_row(view) for view in views]


def _row(view: SymbolView) -> TapeRow:
    last = view.last
    bid, bid_size = _best(view.bid)
    ask, ask_size = _best(view.ask)
    return TapeRow(
        view.symbol,
        None if last is None else from_ticks(last.price),
        None if last is None else last.quantity,
        None if last is None else last.floor,
        None if view.change is None else from_ticks(view.change),
        bid,
        bid_size,
        ask,
        ask_size,
        view.volume,
        view.trades,
        None if view.status is None else view.status.name.lower(),
    )


def _best(best: Best | None) -> tuple[Decimal | None, int]:
    return (None, 0) if best is None else (from_ticks(best.price), best.size)


# ---- batches. Of several stripes: one sequence, ordered by (token instant, stripe, sequence), numbered from 1 on.


def _warn(text: str) -> None:
    logging.getLogger("isocast").warning(text)


def take_batch(
    tape: Tape, batch: ReceivedBatch, part: int, *, several: bool, told: Callable[[str], None] = _warn
) -> None:
    """The first events of what was heard, the whole of it if those are all; `told` hears which messages are missing."""
    events, sequences, is_whole = batch.events[:part], batch.sequences[:part], part == len(batch)
    if not several:
        if batch.kind is BatchKind.MESSAGES and tape.sequence and batch.first_sequence > tape.sequence + 1:
            told(f"sequences {tape.sequence + 1:,} to {batch.first_sequence - 1:,} are not here: {_LACKS}")
        tape.take(events, sequences, batch.last_sequence if is_whole else None)
    elif batch.kind is BatchKind.MESSAGES:
        last = batch.last_sequence if is_whole else int(sequences[-1]) if part else 0
        if last:
            take_messages(tape, batch.stripe, events, sequences, batch.first_sequence, last, told)
    else:
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
    if known is not None and first > known + 1:
        told(f"sequences {known + 1:,} to {first - 1:,} of stripe {stripe} are not here: {_LACKS}")
    places = sequences - np.uint64(first) + np.uint64(tape.sequence + 1)
    tape.take(events, places, tape.sequence + last - first + 1)
    tape.positions[stripe] = last


_LACKS = "the tape lacks what they say"
