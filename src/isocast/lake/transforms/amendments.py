"""What corrections and cancels make of a trade, as the ticker has it (`isocast.ticker.trades`).

They are a thousandth of the trades: they are collected, with the trades that they mean, and applied one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isocast.terms.market import EventFlag, EventKind
from isocast.ticker.pieces import PRICE_LIMIT
from isocast.ticker.records import TradeState

__all__ = ["DAY_LEAST_NS", "Amendment", "FloorDays", "Line", "Place", "Reference", "Trade", "amend"]

DAY_LEAST_NS = 12 * 3_600 * 1_000_000_000
"""A mark for the start of messages begins another day if it comes so long after the one before."""


class Line(NamedTuple):
    """A symbol on a floor, in a stripe."""

    stripe: int
    symbol: str
    floor: str


class Place(NamedTuple):
    """Of an event in its stripe's sequence."""

    sequence: int
    at: int
    """Its index in the message."""


class Trade(NamedTuple):
    """A trade as it stands."""

    line: Line
    id: int
    place: Place
    price: int
    quantity: int
    state: int


class Reference(NamedTuple):
    """A correction or a cancel."""

    line: Line
    id: int
    place: Place
    kind: int
    flags: int
    price: int
    quantity: int


class Amendment(NamedTuple):
    """A trade as it stands now, and the last event that changed it."""

    stripe: int
    place: Place
    price: int
    quantity: int
    state: int
    amended: int


@dataclass
class FloorDays:
    """Where days of floors begin, by their own marks (`isocast.ticker.tape`)."""

    opened: dict[tuple[int, str], int] = field(default_factory=dict)
    begun: dict[tuple[int, str], list[Place]] = field(default_factory=dict)

    def mark(self, stripe: int, floor: str, place: Place, moment: int) -> None:
        """A floor says that it starts; marks come in the order of the sequence."""
        opened = self.opened.get((stripe, floor), 0)
        if opened and moment < opened + DAY_LEAST_NS:
            return
        if opened:
            self.begun.setdefault((stripe, floor), []).append(place)
        self.opened[stripe, floor] = moment

    def lie_apart(self, line: Line, one: Place, two: Place) -> bool:
        """Whether a day began after one place and not after the other."""
        return any(one < begin <= two for begin in self.begun.get((line.stripe, line.floor), ()))

    def as_json(self) -> list[list[object]]:
        """For a file."""
        return [
            [stripe, floor, moment, [list(place) for place in self.begun.get((stripe, floor), [])]]
            for (stripe, floor), moment in sorted(self.opened.items())
        ]

    @classmethod
    def from_json(cls, rows: Iterable[Sequence[object]]) -> FloorDays:
        """As they were."""
        days = cls()
        for stripe, floor, moment, places in rows:
            days.opened[stripe, floor] = moment  # type: ignore[index, assignment]
            days.begun[stripe, floor] = [Place(*place) for place in places]  # type: ignore[index, attr-defined]
        return days


def amend(trades: Iterable[Trade], references: Iterable[Reference], days: FloorDays) -> list[Amendment]:
    """Every trade that changed, once, as it stands behind all references."""
    known: dict[tuple[Line, int], list[Trade]] = {}
    for trade in sorted(trades, key=lambda each: each.place):
        known.setdefault((trade.line, trade.id), []).append(trade)
    changed: dict[tuple[int, Place], Amendment] = {}
    for reference in sorted(references, key=lambda each: (each.line.stripe, each.place)):
        found = _newest_before(known, reference)
        if found is None:
            continue
        trades_of_id, at = found
        trade = trades_of_id[at]
        if days.lie_apart(trade.line, trade.place, reference.place):
            continue
        after = _apply(trade, reference)
        if after is not None:
            trades_of_id[at] = after
            changed[trade.line.stripe, trade.place] = Amendment(
                trade.line.stripe, trade.place, after.price, after.quantity, after.state, reference.place.sequence
            )
    return list(changed.values())


def _newest_before(
    known: Mapping[tuple[Line, int], list[Trade]], reference: Reference
) -> tuple[list[Trade], int] | None:
    trades = known.get((reference.line, reference.id), [])
    places = [at for at, trade in enumerate(trades) if trade.place < reference.place]
    return (trades, places[-1]) if places and reference.id else None


def _apply(trade: Trade, reference: Reference) -> Trade | None:
    """The trade behind a reference; None if it changes nothing."""
    if trade.state & TradeState.CANCELLED:
        return None
    if reference.kind == EventKind.TRADE_CANCEL:
        return trade._replace(state=trade.state | TradeState.CANCELLED)
    price, quantity = reference.price, reference.quantity
    if price == 0 or abs(price) > PRICE_LIMIT or quantity == 0:
        return None
    state = (trade.state & ~(TradeState.FLAWED | TradeState.TENTATIVE)) | TradeState.CORRECTED
    if reference.flags & EventFlag.TENTATIVE:
        state |= TradeState.TENTATIVE
    if (price, quantity) == (trade.price, trade.quantity) and state == trade.state | TradeState.CORRECTED:
        return None
    return trade._replace(price=price, quantity=quantity, state=int(state))
