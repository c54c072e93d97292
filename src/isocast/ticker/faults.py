"""What floors publish that a tape cannot believe: counted by kind, the first of each kind by name, never raised."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from isocast.ticker.keys import Indices, Words
from isocast.wire.events import EventArray

__all__ = ["NAMES_KEPT", "FaultBook", "FaultName", "TapeFault"]

NAMES_KEPT = 20
"""Of each kind: enough to see what is wrong; a floor that is wrong all day costs no memory."""


class TapeFault(StrEnum):
    """What can be wrong, and what the tape does about it."""

    NO_SYMBOL = "no-symbol"
    """An event that needs a symbol has none: left out."""
    TOO_MANY_LINES = "too-many-lines"
    """A new symbol on a floor when there are as many as the tape has room for: left out."""
    NO_PRICE = "no-price"
    """A trade or quote at price 0: the trade is kept and not counted until it is corrected, the quote is left out."""
    WILD_PRICE = "wild-price"
    """A price beyond what any market asks: likewise."""
    NO_QUANTITY = "no-quantity"
    """A trade of nothing: likewise."""
    NO_SIDE = "no-side"
    """A quote of neither side: left out."""
    UNKNOWN_STATUS = "unknown-status"
    """A status that nobody knows: left out."""
    DUPLICATE_TRADE = "duplicate-trade"
    """The same trade once more, as when a floor repeats itself after a restart: left out."""
    REUSED_ID = "reused-id"
    """Another trade under an id that was used: counted; references mean the newer one."""
    UNKNOWN_REFERENCE = "unknown-reference"
    """A correction or cancel of a trade that was not on the tape: left out."""
    LATE_REFERENCE = "late-reference"
    """A correction or cancel of a trade of the floor's day before: left out."""
    DUPLICATE_REFERENCE = "duplicate-reference"
    """A correction that changes nothing, or a second cancel: left out."""
    CANCELLED_REFERENCE = "cancelled-reference"
    """A correction of a trade that was cancelled: left out."""
    BAD_CORRECTION = "bad-correction"
    """A correction to a price or quantity that cannot be: left out."""
    LOCKED_MARKET = "locked-market"
    """The best bid of all floors has become equal to the best offer."""
    CROSSED_MARKET = "crossed-market"
    """The best bid of all floors has risen above the best offer."""


class FaultName(NamedTuple):
    """Which event it was."""

    sequence: int
    kind: int
    floor: str
    symbol: str
    id: int
    price: int


class FaultBook:
    """Counts and names; names do not depend on how events were cut into blocks."""

    def __init__(self) -> None:
        """Nothing is wrong."""
        self.counts: dict[TapeFault, int] = {}
        self.names: dict[TapeFault, list[FaultName]] = {}
        self._pending: list[tuple[TapeFault, Indices]] = []

    def note(self, fault: TapeFault, places: Indices | Iterable[int]) -> None:
        """Events of the block at hand, by their places in it."""
        found = np.asarray(places if isinstance(places, np.ndarray) else list(places), np.int64)
        if len(found):
            self._pending.append((fault, found))

    def settle(self, events: EventArray, sequences: Words) -> None:
        """The block is done: count and name what was noted."""
        if not self._pending:
            return
        together: dict[TapeFault, list[Indices]] = {}
        for fault, places in self._pending:
            together.setdefault(fault, []).append(places)
        self._pending.clear()
        for fault, parts in together.items():
            places = np.sort(np.concatenate(parts))
            self.counts[fault] = self.counts.get(fault, 0) + len(places)
            names = self.names.setdefault(fault, [])
            names += [
                FaultName(
                    int(sequences[place]),
                    int(events["kind"][place]),
                    events["floor"][place].decode("ascii"),
                    events["symbol"][place].decode("ascii"),
                    int(events["id"][place]),
                    int(events["price"][place]),
                )
                for place in places[: NAMES_KEPT - len(names)].tolist()
            ]

    @property
    def total(self) -> int:
        """Everything together."""
        return sum(self.counts.values())
