"""Mutants of the distributed trading floor: one rule of its arbiters or of the floor switched off each (§7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from isocast.floor.arbiter import Arbiter, ArbiterEffect, Standing, StepRecord, TokenReleased
from isocast.floor.book import Book, BookSide, WorkingOrder
from isocast.floor.events import Reveal
from isocast.floor.following import Entering, FloorFollower, FloorMessage, read_token
from isocast.floor.machine import Floor, SymbolState
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.rules.second_price import SealedLot, Sold
from isocast.simulation.mutants.ring import Mutant, switch_off
from isocast.terms.ids import NodeId

__all__ = ["FLOOR_MUTANTS"]

_MUTANTS: list[Mutant] = []
_register = partial(switch_off, _MUTANTS)


def _with(standing: type[Standing] = Standing, floor: type[Floor] = Floor) -> type[Arbiter]:
    follower = type("MutantFollower", (FloorFollower,), {"floor_class": floor})
    return type("MutantArbiter", (Arbiter,), {"standing_class": standing, "follower_class": follower})


# Arbiters ---------------------------------------------------------------------------------------------------------


class _Hasty(Standing):
    def is_stable(self, reported: int, stable: int) -> bool:  # noqa: ARG002
        return reported > 0


class _Renumbering(Standing):
    """Numbers what it takes over behind the last trade that is confirmed."""

    def _report(self, record: StepRecord, event: TokenReleased) -> list[ArbiterEffect]:
        result = record.result
        if result.token == event.token:
            return super()._report(record, event)
        anew = tuple([trade._replace(number=number) for number, trade in enumerate(result.trades, self.confirmed + 1)])
        return super()._report(replace(record, result=result._replace(trades=anew)), event)


class _Silent(Standing):
    """Says what is due at its own tokens alone."""

    def _publish(self, event: TokenReleased) -> list[ArbiterEffect]:
        own = self.records.get(event.token)
        if not event.is_own or own is not None:
            return self._report(own, event) if event.is_own and own is not None else []
        return self._announce(event) if any(token == event.token for _, token, _ in self.unannounced) else []


# The floor --------------------------------------------------------------------------------------------------------


class _Backwards(FloorFollower):
    """Applies the events of a token from the last to the first."""

    @staticmethod
    def reads(messages: Sequence[FloorMessage]) -> tuple[list[Entering], int]:
        events, strange = read_token(messages)
        return events[::-1], strange


class _ByArrival(FloorFollower):
    """Applies them in the order of the sequence: whose message comes first, all of his orders are first."""

    @staticmethod
    def reads(messages: Sequence[FloorMessage]) -> tuple[list[Entering], int]:
        events, strange = read_token(messages)
        return sorted(events, key=attrgetter("place")), strange


class _OneBackwards(Arbiter):
    """One site has an order of its own."""

    def __init__(self, code: str, site: NodeId, snapshot: bytes | None = None, **more: Any) -> None:  # noqa: ANN401
        if site == 2:  # noqa: PLR2004 (any of them)
            self.follower_class = _Backwards
        super().__init__(code, site, snapshot, **more)


class _WakingTwice(Floor):
    """Leaves a copy of each stop that it wakes."""

    def _note_prices(self, state: SymbolState, prices: list[int]) -> None:
        before = len(self._woken)
        super()._note_prices(state, prices)
        for _, stop in list(self._woken)[before:]:
            self._woken.append((state, replace(stop)))


class _NewestFirst(BookSide):
    """A level fills from its end."""

    @property
    def best(self) -> WorkingOrder | None:
        return next(reversed(self._levels[self._ranks[0]].values())) if self._ranks else None


class _NewestFirstBook(Book):
    def __init__(self) -> None:
        self.buys, self.sells = _NewestFirst(), _NewestFirst()


class _LastComeFirstServed(Floor):
    def __init__(self) -> None:
        super().__init__(_NewestFirstBook)


class _CancellingTwice(Floor):
    """Says of each remainder twice that it is cancelled."""

    def _drop(self, order: WorkingOrder) -> None:
        super()._drop(order)
        self._reports.append(self._reports[-1])


class _OpeningEarly(Floor):
    """Opens a sealed bid whenever its bidder says so."""

    def _reveal(self, reveal: Reveal) -> None:
        found = self.bid_of(reveal.id, reveal.account)
        if found is None or not found[0].reveal(reveal.account, reveal.price, reveal.nonce):
            super()._reveal(reveal)


class _HighestWins(SealedLot):
    def decide(self) -> Sold | None:
        sold = super().decide()
        return None if sold is None or sold.bid.price is None else Sold(sold.bid, sold.bid.price)


class _FirstPrice(Floor):
    """The winner pays what it bid."""

    def take_over_lot(self, lot: SealedLot | DutchLot) -> None:
        super().take_over_lot(_HighestWins(lot.lot, lot.place, lot.bids) if isinstance(lot, SealedLot) else lot)


_register(
    "report-before-release",
    "an arbiter applies and reports a token when it is released, not when it is complete",
    floor_unreleased=True,
)
_register(
    "confirmed-before-stable",
    "a trade is confirmed when every member of a ring holds its report",
    arbiter=_with(standing=_Hasty),
)
_register(
    "takeover-numbers-anew",
    "trades are numbered by the floor, whoever reports them",
    arbiter=_with(standing=_Renumbering),
)
_register(
    "no-takeover",
    "what the owner of a token does not report, or announce, other owners do",
    arbiter=_with(standing=_Silent),
)
_register(
    "another-order-at-one-site",
    "every site applies the events of a token in the order that its key gives",
    arbiter=_OneBackwards,
)
_register(
    "stop-woken-twice",
    "a stop that is woken enters the book once",
    arbiter=_with(floor=_WakingTwice),
)
_register(
    "newest-first",
    "of one price whoever came first trades first, at every site",
    arbiter=_with(floor=_LastComeFirstServed),
)
_register(
    "another-order-at-all-sites",
    "what an account enters is applied in the order in which it was entered",
    arbiter=type("MutantArbiter", (Arbiter,), {"follower_class": _Backwards}),
)
_register(
    "entered-by-arrival",
    "the events of a token enter in the order that its key gives, not in that of the sequence",
    arbiter=type("MutantArbiter", (Arbiter,), {"follower_class": _ByArrival}),
)
_register(
    "cancelled-twice",
    "an order that has ended is not heard of again",
    arbiter=_with(floor=_CancellingTwice),
)
_register(
    "opened-before-the-close",
    "a sealed bid is opened from the close on",
    arbiter=_with(floor=_OpeningEarly),
)
_register(
    "first-price",
    "the winner of a sealed lot pays the second price",
    arbiter=_with(floor=_FirstPrice),
)
FLOOR_MUTANTS: Sequence[Mutant] = tuple(_MUTANTS)
"""Each is caught where receivers are a trading floor, and some of them crash."""
