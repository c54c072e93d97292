"""What waits for one narrow stripe, when it may leave within its budget, and what conflation may leave out.

Time here is scheduled time, which all receivers share. A packet leaves at the first instant at which the bytes of the
token period that ends there, its own included, are within the budget: a leaky bucket whose memory is exact. What a
packet contains depends on what waits and on nothing else, so that it makes no difference how often somebody looks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.striping.sizes import PacketSizes
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["EdgePacket", "EdgeQueue", "QueueState", "are_prices", "conflate"]


# Which events of an overfull stripe may be left out: older prices of what has a newer one. Never anything else.
#
# Quotes of one side and last sales are conflated, each by symbol and floor, and sales that may not be last by their
# conditions apart from those that may. Auctions, official prices, statuses, corrections, cancels, marks, directories
# and everything about orders stay, all of them. The newest takes the place of the oldest of its kind that was waiting,
# so that a busy symbol is not pushed back for ever; but it never overtakes an event of its symbol, or of a whole floor,
# that is not a price: a quote behind a halt stays behind the halt.


_LINKED = np.uint16(0xFFFF & ~EventFlag.LINKED)

_OF_AUCTIONS = int(EventFlag.AUCTION | EventFlag.OPENING | EventFlag.CLOSING)
_NO_LAST = int(EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW | EventFlag.UNPRINTED)

Places = npt.NDArray[np.intp]


def are_prices(events: EventArray) -> npt.NDArray[np.bool_]:
    """Which events a newer one of the same kind makes superfluous."""
    kinds = events["kind"]
    auction = (events["flags"] & _OF_AUCTIONS) > 0
    prices: npt.NDArray[np.bool_] = (kinds == EventKind.QUOTE) | ((kinds == EventKind.TRADE) & ~auction)
    return prices


def conflate(events: EventArray) -> tuple[Places, EventArray]:
    """Where the events that stay stood, in their new order; and they themselves, links that are broken undone."""
    prices = are_prices(events)
    places = np.flatnonzero(prices)
    newest, oldest = _newest_of_each(events, prices, places)
    others = np.flatnonzero(~prices)
    kept = np.concatenate([newest, others])
    order = np.argsort(np.concatenate([oldest, others]), kind="stable")
    kept = kept[order]
    result = events[kept]
    follows = np.append(kept[1:] == kept[:-1] + 1, np.False_)
    result["flags"][~follows] &= _LINKED
    return kept, result


def _newest_of_each(events: EventArray, prices: npt.NDArray[np.bool_], places: Places) -> tuple[Places, Places]:
    """For each key its newest event, and the place that this one takes."""
    if not len(places):
        return places, places
    symbols = np.ascontiguousarray(events["symbol"]).view("<u8")
    section = _sections(symbols, prices)[places]
    symbol = symbols[places]
    floor = np.ascontiguousarray(events["floor"][places]).view("<u4").astype(np.uint64)
    kind, side = events["kind"][places].astype(np.uint64), events["side"][places].astype(np.uint64)
    no_last = ((events["flags"][places] & _NO_LAST) > 0).astype(np.uint64)
    head = floor << np.uint64(16) | kind << np.uint64(8) | np.where(kind == EventKind.QUOTE, side, no_last)
    order = np.lexsort((section, head, symbol))
    symbol, head, section = symbol[order], head[order], section[order]
    key_ends = np.append((symbol[1:] != symbol[:-1]) | (head[1:] != head[:-1]), np.True_)
    group_begins = np.append(np.True_, key_ends[:-1] | (section[1:] != section[:-1]))
    begins = np.flatnonzero(group_begins)
    ends = np.flatnonzero(key_ends)
    firsts = begins[np.searchsorted(begins, ends, side="right") - 1]
    return places[order[ends]], places[order[firsts]]


def _sections(symbols: npt.NDArray[np.uint64], prices: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """A number that grows, for events of one symbol, at each event of it or of a floor that is no price."""
    order = np.argsort(symbols, kind="stable")
    own = np.empty(len(symbols), np.int64)
    own[order] = np.cumsum(~prices[order])
    own += np.cumsum(~prices & (symbols == 0))
    return own


Sequences = npt.NDArray[np.uint64]


class EdgePacket(NamedTuple):
    """A packet of a narrow stripe: the same, number by number, from every receiver."""

    stripe: int
    number: int
    """Of its first message on this stripe."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    """Numbers that it takes; one for each message."""
    due: int
    """When it leaves, by the clock that all receivers share."""
    ip_bytes: int
    """As counted against the stripe's rate."""
    events: EventArray
    sequences: Sequences
    """For each event, the core sequence of the message that brought it."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """Everything that the future of a stripe depends on."""

    stripe: int
    next_number: int
    clock: int
    sent: tuple[tuple[int, int], ...] = ()
    """(instant, IP bytes) of packets that still count."""
    events: bytes = b""
    sequences: tuple[int, ...] = ()
    conflated_quotes: int = 0
    conflated_trades: int = 0


@dataclass(slots=True)
class EdgeQueue:
    """The queue of one stripe. `budget` bytes in any `period_ns`; more than `patience` budgets behind: conflate."""

    stripe: int
    budget: int
    period_ns: int
    patience: int
    sizes: PacketSizes
    next_number: int = 1
    clock: int = 0
    """Nothing leaves before this instant any more."""
    conflated: dict[EventKind, int] = field(default_factory=lambda: {EventKind.QUOTE: 0, EventKind.TRADE: 0})
    events: EventArray = field(default_factory=lambda: np.empty(0, EVENT_DTYPE))
    sequences: Sequences = field(default_factory=lambda: np.empty(0, np.uint64))
    sent: deque[tuple[int, int]] = field(default_factory=deque)
    sent_bytes: int = 0

    def push(self, events: EventArray, sequences: Sequences, at: int) -> list[EdgePacket]:
        """Events that are due at an instant; the packets that leave up to and at that instant."""
        packets = self.leave_before(at) if len(self.events) else []
        self.clock = max(self.clock, at)
        if len(self.events):
            events, sequences = np.concatenate([self.events, events]), np.concatenate([self.sequences, sequences])
        self.events, self.sequences = events, sequences
        if self._is_overfull():
            self._conflate()
        return packets + self.leave_before(self.clock + 1)

    def leave_before(self, end: int) -> list[EdgePacket]:
        """The packets whose instant comes before `end`."""
        packets: list[EdgePacket] = []
        if not len(self.events):
            return packets
        kinds = self.events["kind"]
        after = np.cumsum(self.sizes.bytes_table[kinds])
        numbers = np.cumsum(self.sizes.numbers_table[kinds])
        room = min(self.sizes.mtu, self.budget) - self.sizes.packet_bytes
        start, body_before, count_before = 0, 0, 0
        while start < len(after):
            stop = int(np.searchsorted(after, body_before + room, side="right"))
            size = int(after[stop - 1]) - body_before + self.sizes.packet_bytes
            instant = self._earliest(size)
            if instant >= end:
                break
            self._note(instant, size)
            count = int(numbers[stop - 1]) - count_before
            part = slice(start, stop)
            packets.append(
                EdgePacket(self.stripe, self.next_number, count, instant, size, self.events[part], self.sequences[part])
            )
            self.next_number += count
            start, body_before, count_before = stop, int(after[stop - 1]), count_before + count
        if start:
            self.events, self.sequences = self.events[start:], self.sequences[start:]
        return packets

    def _earliest(self, size: int) -> int:
        """When so many bytes may leave."""
        instant, left = self.clock, self.sent_bytes
        for sent_at, sent_size in self.sent:
            if sent_at + self.period_ns > instant and left + size <= self.budget:
                break
            instant = max(instant, sent_at + self.period_ns)
            left -= sent_size
        return instant

    def _note(self, instant: int, size: int) -> None:
        """So many bytes leave."""
        self.clock = instant
        self._forget(instant)
        self.sent.append((instant, size))
        self.sent_bytes += size

    def _forget(self, instant: int) -> None:
        while self.sent and self.sent[0][0] + self.period_ns <= instant:
            self.sent_bytes -= self.sent.popleft()[1]

    def _is_overfull(self) -> bool:
        body = int(self.sizes.bytes_table[self.events["kind"]].sum())
        self._forget(self.clock)
        room = self.sizes.body_room(self.budget)
        # Whole periods that what waits will take, beside what this one has carried already.
        return body * self.budget > (self.budget * (1 + self.patience) - self.sent_bytes) * room

    def _conflate(self) -> None:
        before = {kind: np.count_nonzero(self.events["kind"] == kind) for kind in self.conflated}
        kept, self.events = conflate(self.events)
        self.sequences = self.sequences[kept]
        for kind, count in before.items():
            self.conflated[kind] += int(count - np.count_nonzero(self.events["kind"] == kind))

    # ---- state

    def state(self) -> QueueState:
        """Frozen."""
        self._forget(self.clock)
        return QueueState(
            self.stripe,
            self.next_number,
            self.clock,
            tuple(self.sent),
            self.events.tobytes(),
            tuple(self.sequences.tolist()),
            self.conflated[EventKind.QUOTE],
            self.conflated[EventKind.TRADE],
        )

    def restore(self, state: QueueState) -> None:
        """As it was."""
        self.next_number, self.clock = state.next_number, state.clock
        self.sent = deque(state.sent)
        self.sent_bytes = sum(size for _, size in state.sent)
        self.events = np.frombuffer(state.events, EVENT_DTYPE)
        self.sequences = np.array(state.sequences, np.uint64)
        self.conflated = {EventKind.QUOTE: state.conflated_quotes, EventKind.TRADE: state.conflated_trades}
