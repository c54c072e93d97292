"""ITCH 5.0 to events, a block at a time: for each type one gather of records, then whole columns.

    S system event          MARK, reference: the event's letter
    W breaker breached      MARK, reference: W and the level, two letters
    R directory             DIRECTORY; the id is the stock locate
    H, h halts              STATUS
    A, F add                ORDER; reference: the participant's four letters as a number, 0 for none
    E, C executed           EXECUTION at the order's price, or at the message's; reference: the match number
    X, D cancel, delete     CANCEL
    U replace               CANCEL, linked to the ORDER that follows it
    P, Q trade, cross       TRADE; a cross is an AUCTION, its reference the letter of the cross
    B broken                TRADE_CANCEL

    L position              no event; ours name the floors of a feed of several (`itch_layout`)

All others are counted and carried by no event. The side of P says nothing since 2014, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import SKIPPED_TIME, ClockWatch, DayClock, WallClock, day_clock
from isocast.feeds.itch_layout import (
    HEADER_BYTES,
    LAYOUTS,
    LENGTH_OF_TYPE,
    LENGTHS,
    NAMES,
    PREFIX_BYTES,
    Bytes,
    Indices,
    ItchFloors,
    OrderTable,
    records_at,
    salt_of,
    told_by,
)
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = [
    "CLOSED_REASON",
    "KINDS",
    "STEP_TICKS",
    "ItchDecoder",
    "MessageBlock",
    "OrderBook",
    "by_code",
    "find_messages",
    "open_block",
]


# A block of ITCH messages on its way to events: its records by type, its events as they fill, what was refused.


KINDS = {
    "S": EventKind.MARK,
    "W": EventKind.MARK,
    "R": EventKind.DIRECTORY,
    "H": EventKind.STATUS,
    "h": EventKind.STATUS,
    "A": EventKind.ORDER,
    "F": EventKind.ORDER,
    "E": EventKind.EXECUTION,
    "C": EventKind.EXECUTION,
    "X": EventKind.CANCEL,
    "D": EventKind.CANCEL,
    "U": EventKind.CANCEL,
    "P": EventKind.TRADE,
    "Q": EventKind.TRADE,
    "B": EventKind.TRADE_CANCEL,
}
"""The types that events carry; U is a CANCEL and an ORDER."""


def by_code(values: Mapping[str, int]) -> npt.NDArray[np.uint8]:
    """A table from the code of a letter; what is not named is 0."""
    table = np.zeros(256, np.uint8)
    for name, value in values.items():
        table[ord(name)] = value
    return table


_KIND_OF = by_code(KINDS)
_EVENTS_OF = by_code({name: 2 if name == "U" else 1 for name in KINDS})


@dataclass(slots=True)
class MessageBlock:
    """Made by `open_block`; everything that has a length of its own is aligned with the messages or the events."""

    log: FeedLog
    where: Indices
    """The byte of each message in the feed."""
    types: npt.NDArray[np.uint8]
    carrier: Indices
    """The message of each event."""
    first: Indices
    """The first event of each message."""
    events: EventArray
    refused: npt.NDArray[np.bool_]
    """Messages whose events are dropped."""
    chosen: dict[str, Indices]
    """The messages of each type."""
    records: dict[str, npt.NDArray[Any]]
    salt: npt.NDArray[np.uint64] | None = None
    """Of each message's floor, where there are several."""

    def of(self, name: str) -> tuple[npt.NDArray[Any], Indices]:
        """The records of a type, and the first event of each."""
        return self.records[name], self.first[self.chosen[name]]

    def order_keys(self, name: str, field: str = "order") -> npt.NDArray[np.uint64]:
        """Numbers of orders as the table of orders knows them: those of different floors differ."""
        numbers: npt.NDArray[np.uint64] = self.records[name][field].astype(np.uint64)
        return numbers if self.salt is None else numbers ^ self.salt[self.chosen[name]]

    def refuse(self, name: str, which: npt.NDArray[np.bool_], kind: FeedFault, what: str) -> None:
        """Some messages of a type have no event, because of a fault."""
        if which.any():
            self.refuse_messages(self.chosen[name][which], kind, what)

    def refuse_messages(self, messages: Indices, kind: FeedFault, what: str) -> None:
        """These messages have no event; one that was refused before is not counted twice."""
        fresh = messages[~self.refused[messages]]
        if len(fresh):
            self.log.fault(kind, int(self.where[fresh[0]]), what, len(fresh))
            self.refused[fresh] = True

    def leave_out(self, name: str, which: npt.NDArray[np.bool_], reason: str) -> None:
        """Some sound messages of a type have no event."""
        if which.any():
            messages = self.chosen[name][which]
            self.log.skip(reason, int(np.count_nonzero(~self.refused[messages])))
            self.refused[messages] = True

    def finished(self) -> EventArray:
        """The events of the messages that were not refused."""
        if not self.refused.any():
            return self.events
        return self.events[~self.refused[self.carrier]]


def open_block(raw: Bytes, places: Indices, where: Indices, log: FeedLog) -> MessageBlock:
    """Gather the records of every type, and make room for the events, whose kinds are known."""
    types = raw[places + PREFIX_BYTES]
    chosen: dict[str, Indices] = {}
    records: dict[str, npt.NDArray[Any]] = {}
    for name in KINDS:
        found = np.flatnonzero(types == ord(name))
        if len(found):
            chosen[name] = found
            records[name] = records_at(raw, places[found] + PREFIX_BYTES, LAYOUTS[name])
    each = _EVENTS_OF[types].astype(np.int64)
    after = np.cumsum(each)
    carrier = np.repeat(np.arange(len(places)), each)
    events = np.zeros(len(carrier), EVENT_DTYPE)
    events["kind"] = _KIND_OF[types[carrier]]
    return MessageBlock(
        log, where, types, carrier, after - each, events, np.zeros(len(places), np.bool_), chosen, records
    )


# What an order's later messages leave out: its price, side and owner, from the message that entered it.


_SIDE_OF = by_code({"B": Side.BUY, "S": Side.SELL})
_U32 = (1 << 32) - 1
_OF_AN_ORDER = ("E", "C", "X", "D", "U")
_LOW_BITS = "match numbers above 32 bits: executions carry their low bits"


class OrderBook:
    """Fills the events of A, F, E, C, X, D and U."""

    def __init__(self) -> None:
        """No order stands."""
        self.orders = OrderTable()

    def fill(self, block: MessageBlock) -> None:
        """Enter everything, look everything up, then forget what has gone."""
        for name in ("A", "F"):
            if name in block.records:
                self._enter(block, name)
        if "U" in block.records:
            self._replace(block)
        present = [name for name in _OF_AN_ORDER if name in block.records]
        if not present:
            return
        numbers = np.concatenate([block.order_keys(name) for name in present])
        slots = np.split(self.orders.find(numbers), np.cumsum([len(block.records[name]) for name in present])[:-1])
        for name, found in zip(present, slots, strict=True):
            if name in ("X", "D"):
                self._cancel(block, name, found)
            elif name in ("E", "C"):
                self._execute(block, name, found)
        for name, found in zip(present, slots, strict=True):
            known = found >= 0
            if name in ("D", "U"):
                self.orders.drop(found[known])
            else:
                self.orders.shrink(found[known], block.records[name]["shares"][known])

    def _enter(self, block: MessageBlock, name: str) -> None:
        records, to = block.of(name)
        sides = _SIDE_OF[records["side"]]
        block.refuse(name, sides == 0, FeedFault.BAD_VALUE, "an order whose side is neither B nor S")
        owners = records["owner"].astype(np.uint32) if name == "F" else np.zeros(len(records), np.uint32)
        prices, shares = records["price"].astype(np.uint32), records["shares"].astype(np.uint32)
        events = block.events
        events["side"][to] = sides
        events["price"][to] = prices
        events["quantity"][to] = shares
        events["id"][to] = records["order"]
        if name == "F":
            events["reference"][to] = owners
        stood = self.orders.enter(block.order_keys(name), prices, sides, owners, shares)
        self._note_reuse(block, name, "order", stood)

    def _replace(self, block: MessageBlock) -> None:
        """A new order takes side and owner of the old one: within a block, of the first one of its chain."""
        records, to = block.of("U")
        old, new = block.order_keys("U"), block.order_keys("U", "new_order")
        slots = self.orders.find(old[_first_of_chain(old, new)])
        known = slots >= 0
        block.refuse("U", ~known, FeedFault.UNKNOWN_ORDER, f"{NAMES['U']}: an order that was not entered")
        sides = np.where(known, self.orders.side[slots], 0)
        owners = np.where(known, self.orders.owner[slots], 0)
        events, second = block.events, to + 1
        events["flags"][to] = EventFlag.LINKED
        events["reference"][to] = owners
        events["id"][to] = records["order"]
        events["kind"][second] = EventKind.ORDER
        events["side"][second] = sides
        events["price"][second] = records["price"]
        events["quantity"][second] = records["shares"]
        events["reference"][second] = owners
        events["id"][second] = records["new_order"]
        stood = np.zeros(len(records), np.bool_)
        stood[known] = self.orders.enter(
            new[known], records["price"][known], sides[known], owners[known], records["shares"][known]
        )
        self._note_reuse(block, "U", "new_order", stood)

    def _cancel(self, block: MessageBlock, name: str, slots: Indices) -> None:
        records, to = block.of(name)
        known = slots >= 0
        unknown = block.chosen[name][~known]
        if len(unknown):
            # The message says all that a CANCEL has: it is worth having even when nobody knows the order.
            what = f"{NAMES[name]}: an order that was not entered"
            block.log.fault(FeedFault.UNKNOWN_ORDER, int(block.where[unknown[0]]), what, len(unknown))
        block.events["id"][to] = records["order"]
        block.events["reference"][to] = np.where(known, self.orders.owner[slots], 0)
        if name == "X":
            block.refuse(name, records["shares"] == 0, FeedFault.BAD_VALUE, "a cancel of no shares")
            block.events["quantity"][to] = records["shares"]

    def _execute(self, block: MessageBlock, name: str, slots: Indices) -> None:
        records, to = block.of(name)
        known = slots >= 0
        events = block.events
        events["id"][to] = records["order"]
        events["side"][to] = np.where(known, self.orders.side[slots], 0)
        events["quantity"][to] = records["shares"]
        matches = records["match"].astype(np.uint64)
        events["reference"][to] = matches & np.uint64(_U32)
        if int(matches.max()) > _U32 and _LOW_BITS not in block.log.notes:
            block.log.notes.append(_LOW_BITS)
        if name == "C":
            # A print with its price is worth having even when nobody knows the order.
            events["price"][to] = records["price"]
            events["flags"][to] = np.where(records["printable"] == ord("N"), int(EventFlag.UNPRINTED), 0)
        else:
            events["price"][to] = np.where(known, self.orders.price[slots], 0)
            block.refuse(name, ~known, FeedFault.UNKNOWN_ORDER, f"{NAMES[name]}: an order that was not entered")

    @staticmethod
    def _note_reuse(block: MessageBlock, name: str, field: str, stood: npt.NDArray[np.bool_]) -> None:
        again = np.flatnonzero(stood)
        if len(again):
            number = int(block.records[name][field][again[0]])
            where = int(block.where[block.chosen[name][again[0]]])
            block.log.fault(FeedFault.REUSED_ORDER, where, f"order {number} exists already", len(again))


def _first_of_chain(old: npt.NDArray[np.uint64], new: npt.NDArray[np.uint64]) -> Indices:
    """For each replacement the first one of its chain within the block, doubling the stride with each step."""
    by_new = np.argsort(new, kind="stable")
    at = np.minimum(np.searchsorted(new[by_new], old), len(new) - 1)
    parent = np.where(new[by_new[at]] == old, by_new[at], np.arange(len(new)))
    for _ in range(len(new).bit_length()):
        further = parent[parent]
        if np.array_equal(further, parent):
            break
        parent = further
    return parent


# Where the messages of a block begin, without walking from one to the next.
#
# A length prefix says where the next message begins, which is a walk. Instead every byte is asked at once whether a
# message could begin there: a zero, the length of a type, that type. Almost all such places are true; the rest lie
# inside messages. A chain from the first byte through places that follow each other exactly is then found by looking
# only at the breaks. What is no known message is judged one by one: see `_BlockPass._judge`.


_UNKNOWN = 0xFF
_HEAD = PREFIX_BYTES + 1
_SCAN = 1 << 16
"""Bytes that are looked at in one step: few enough to stay in the processor's cache."""
_LENGTHS = np.frombuffer(LENGTH_OF_TYPE, np.uint8)
_SHORTEST, _LONGEST = np.uint8(min(LENGTHS.values())), np.uint8(max(LENGTHS.values()))
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RESUME = 128
"""Bytes at the end of garbage that are looked at again with the next block: more than two messages."""


def find_messages(block: Bytes, log: FeedLog, offset: int, *, last: bool) -> tuple[Indices, int]:
    """The places of all whole known messages, and how many bytes are done with.

    A place is that of the length prefix. The rest of the block belongs before the next one; with `last` there is no
    next one, and a rest is a fault. `offset` is where in the feed the block begins.
    """
    walk = _BlockPass(block, log, offset, last=last)
    walk.run()
    return walk.places(), walk.at


def _candidates(block: Bytes) -> Indices:
    """Where a message could begin."""
    found = [np.empty(0, np.int64)]
    for start in range(0, len(block) - PREFIX_BYTES, _SCAN):
        piece = block[start : start + _SCAN + PREFIX_BYTES]
        could = piece[1:-1] - _SHORTEST <= _LONGEST - _SHORTEST  # Wraps below the shortest, and is too large then.
        could &= piece[:-2] == 0
        places = np.flatnonzero(could)
        found.append(places[_LENGTHS[piece[places + 2]] == piece[places + 1]] + start)
    return np.concatenate(found)


class _BlockPass:
    """One pass over one block."""

    def __init__(self, block: Bytes, log: FeedLog, offset: int, *, last: bool) -> None:
        self.at = 0
        """Everything before is done with."""
        self._block = block
        self._log = log
        self._offset = offset
        self._last = last
        self._places = _candidates(block)
        self._after = self._places + PREFIX_BYTES + block[self._places + 1]
        follows = self._after[:-1] == self._places[1:]
        self._breaks = np.flatnonzero(~follows).tolist()
        self._solid = self._places[np.flatnonzero(follows[:-1] & follows[1:])]
        """Places that are the first of three in a row."""
        self._runs: list[Indices] = []

    def run(self) -> None:
        """Go from break to break."""
        places, after, block_end = self._places, self._after, len(self._block)
        here = nearest = 0
        while self.at < block_end:
            while here < len(places) and places[here] < self.at:
                here += 1
            if here < len(places) and places[here] == self.at:
                while nearest < len(self._breaks) and self._breaks[nearest] < here:
                    nearest += 1
                end = self._breaks[nearest] if nearest < len(self._breaks) else len(places) - 1
                if after[end] > block_end:  # The last one is not whole.
                    self._runs.append(places[here:end])
                    self.at = int(places[end])
                    self._unfinished()
                    return
                self._runs.append(places[here : end + 1])
                self.at = int(after[end])
                here = end + 1
            elif not self._judge():
                return

    def places(self) -> Indices:
        """All of them, in order."""
        return np.concatenate(self._runs) if self._runs else np.empty(0, np.int64)

    # ---- what is no known message

    def _judge(self) -> bool:
        """One place where the chain broke: step over it; False when the block ends here."""
        block, at, size = self._block, self.at, len(self._block)
        if at + _HEAD > size:
            return self._unfinished()
        length = int(block[at]) << 8 | int(block[at + 1])
        code = int(block[at + 2])
        known = LENGTH_OF_TYPE[code]
        by_length, by_type = at + PREFIX_BYTES + length, at + PREFIX_BYTES + known
        if not self._last and max(by_length, by_type) + _HEAD > size:
            return False  # Judged when the next bytes are there.
        if length == 0 and known != _UNKNOWN and self._zero_or_sound(by_type):
            self._fault(FeedFault.MISSING_LENGTH, f"a message of type {_shown(code)} has length 0")
            self._runs.append(np.array([at], np.int64))
            self.at = by_type
            return True
        if length and self._sound(by_length):
            kind = FeedFault.UNKNOWN_TYPE if known == _UNKNOWN else FeedFault.BAD_LENGTH
            expected = "" if known == _UNKNOWN else f", not {known}"
            self._fault(kind, f"a message of type {_shown(code)} has {length} bytes{expected}")
            self.at = by_length
            return True
        if known != _UNKNOWN and self._sound(by_type):
            self._fault(FeedFault.BAD_LENGTH, f"a message of type {_shown(code)} has {length} bytes, not {known}")
            self.at = by_type
            return True
        return self._resume(length, code)

    def _sound(self, place: int) -> bool:
        """Whether a message may begin there, of a type that is not known as well; or the feed ends."""
        size = len(self._block)
        if place + _HEAD > size:
            return self._last and place == size
        if self._block[place]:
            return False
        code = int(self._block[place + 2])
        length = int(self._block[place + 1])
        known = LENGTH_OF_TYPE[code]
        return length == known or (known == _UNKNOWN and length >= HEADER_BYTES and code in _LETTERS)

    def _zero_or_sound(self, place: int) -> bool:
        size = len(self._block)
        if place + _HEAD > size:
            return self._last and place == size
        zero = not self._block[place] and not self._block[place + 1]
        return (zero and LENGTH_OF_TYPE[int(self._block[place + 2])] != _UNKNOWN) or self._sound(place)

    def _resume(self, length: int, code: int) -> bool:
        """Go on where three messages follow each other exactly."""
        began = self.at
        nearest = int(np.searchsorted(self._solid, began, side="right"))
        if nearest < len(self._solid):
            self.at = int(self._solid[nearest])
        elif not self._last:
            self.at = max(began + 1, len(self._block) - _RESUME)
        elif began + PREFIX_BYTES + length > len(self._block) and not self._block[began] and code in _LETTERS:
            return self._unfinished()
        else:
            self.at = len(self._block)
        self._fault(FeedFault.GARBAGE, f"{self.at - began} bytes that are no messages", began)
        return True

    def _unfinished(self) -> bool:
        """What is left of the block is the beginning of a message."""
        if self._last:
            left = len(self._block) - self.at
            self._fault(FeedFault.TRUNCATED, f"the feed ends {left} bytes into a message")
            self.at = len(self._block)
        return False

    def _fault(self, kind: FeedFault, what: str, place: int | None = None) -> None:
        self._log.fault(kind, self._offset + (self.at if place is None else place), what)


def _shown(code: int) -> str:
    return repr(chr(code)) if 0x20 < code < 0x7F else f"0x{code:02x}"  # noqa: PLR2004


STEP_TICKS = 100
"""A cent: the smallest step of a US share, which ITCH does not say."""
CLOSED_REASON = b"CLSD"
"""The reason of a trading action by which our writer says that a symbol is closed, which ITCH cannot."""

_CLOCK_MASK = np.uint64((1 << 48) - 1)
_LOCATES = 1 << 16


_STATUS_OF = by_code(
    {
        "H": MarketStatus.HALTED,
        "P": MarketStatus.PAUSED,
        "Q": MarketStatus.QUOTING,
        "T": MarketStatus.TRADING,
    }
)
_NEEDS_SYMBOL = by_code({name: name not in ("S", "W") for name in KINDS})
_NAMED = ("R", "H", "h", "A", "F", "P", "Q")
"""Types that say the name of their stock."""


class ItchDecoder:
    """Turns messages into events, and remembers what later ones need: orders that stand, names of stocks."""

    def __init__(self, floor: Mic, midnight: int | DayClock, log: FeedLog) -> None:
        """`midnight` is the clock of the feed's day at its place, or an instant from which its clock counts."""
        self.log = log
        self._floors = ItchFloors(floor)
        self._midnight = np.int64(day_clock(midnight).wall)
        self._wall = WallClock(day_clock(midnight).zone, log)
        self._book = OrderBook()
        self._fields = np.zeros(_LOCATES, np.uint64)
        """The bytes of each stock's name as the feed writes them ..."""
        self._symbols = np.zeros(_LOCATES, "S8")
        """... and as events do; empty where nothing is known, or nothing that a symbol may be."""
        self._named = np.zeros(_LOCATES, np.uint8)
        self._announced: list[npt.NDArray[Any]] = []
        self._clock = ClockWatch(log)

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every symbol that was announced or met, by its number."""
        found = {
            locate: ListedSymbol(
                self._floors.floors[locate].decode("ascii"), self._symbols[locate].decode("ascii"), locate
            )
            for locate in np.flatnonzero(self._named).tolist()
        }
        for record in (record for records in self._announced for record in records):
            number = int(record["locate"])
            if number in found:
                category, issue = (record[name].decode("ascii", "replace").strip() for name in ("category", "issue"))
                lot = int(record["round_lot"])
                found[number] = replace(found[number], round_lot=lot, category=category, issue=issue)
        return [found[locate] for locate in sorted(found)]

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """The events of a file of length-prefixed messages, a block for each chunk."""
        rest = b""
        offset = 0
        for chunk in chunks:
            self.log.bytes_read += len(chunk)
            whole = rest + chunk if rest else chunk
            events, done = self._decode_file(whole, offset, last=False)
            rest = whole[done:]
            offset += done
            if len(events):
                yield events
        events, _ = self._decode_file(rest, offset, last=True)
        if len(events):
            yield events

    def _decode_file(self, whole: bytes, offset: int, *, last: bool) -> tuple[EventArray, int]:
        raw = np.frombuffer(whole, np.uint8)
        places, done = find_messages(raw, self.log, offset, last=last)
        return self.decode(raw, places, places + offset), done

    def decode(self, raw: Bytes, places: Indices, where: Indices) -> EventArray:
        """The events of whole known messages at these places of the bytes; `where` they stand in the feed."""
        if not len(places):
            return np.empty(0, EVENT_DTYPE)
        block = open_block(raw, places, where, self.log)
        self._count(block, {"L": self._learn_floors(raw, places, block.types)})
        self._fill_all(block, raw, places)
        for name in ("S", "W"):
            if name in block.records:
                _fill_mark(block, name)
        if "R" in block.records:
            self._fill_directory(block)
        for name in ("H", "h"):
            if name in block.records:
                _fill_status(block, name)
        for name in ("P", "Q", "B"):
            if name in block.records:
                _fill_trade(block, name)
        self._book.fill(block)
        if self._floors.tells_flags:
            self._fill_told(block, raw, places)
        return block.finished()

    @staticmethod
    def _fill_told(block: MessageBlock, raw: Bytes, places: Indices) -> None:
        """Flags and sides that a feed of ours has in its tracking numbers; of a replacement, the new order's."""
        tracking = np.ndarray((len(raw) - 1,), ">u2", raw, strides=(1,))[places + PREFIX_BYTES + 3]
        flags, sides = told_by(tracking)
        events, carrier = block.events, block.carrier
        own = (block.types[carrier] != ord("U")) | (np.arange(len(events)) != block.first[carrier])
        events["flags"] |= np.where(own, flags[carrier], 0).astype(np.uint16)
        told = own & (sides[carrier] > 0)
        events["side"][told] = sides[carrier][told]
        if "P" in block.records:
            records, to = block.of("P")
            events["reference"][to] = records["order"].astype(np.uint64) & np.uint64(_U32)

    def _learn_floors(self, raw: Bytes, places: Indices, types: npt.NDArray[np.uint8]) -> int:
        """Floors that positions of participants name; how many did."""
        positions = places[types == ord("L")]
        if not len(positions):
            return 0
        return int(np.count_nonzero(self._floors.learn(records_at(raw, positions + PREFIX_BYTES, LAYOUTS["L"]))))

    def _count(self, block: MessageBlock, used: dict[str, int]) -> None:
        counts = np.bincount(block.types, minlength=256)
        for code in np.flatnonzero(counts).tolist():
            name = chr(code)
            self.log.took(name, int(counts[code]))
            if name not in KINDS:
                self.log.skip(f"{name} {NAMES[name]}: no event carries it", int(counts[code]) - used.get(name, 0))

    def _fill_all(self, block: MessageBlock, raw: Bytes, places: Indices) -> None:
        """What every message has: its time, its floor, and the name of its stock by number."""
        eights = np.ndarray((len(raw) - 7,), ">u8", raw, strides=(1,))
        clock = (eights[places + PREFIX_BYTES + 3].astype(np.uint64) & _CLOCK_MASK).astype(np.int64)
        instants, exists = self._wall.instants(clock + self._midnight)
        times = instants.astype(np.uint64)
        self._clock.see(times, block.where)
        for name in _NAMED:
            if name in block.records:
                self._learn(block, name)
        numbers = np.ndarray((len(raw) - 1,), ">u2", raw, strides=(1,))[places + PREFIX_BYTES + 1].astype(np.int64)
        events, carrier = block.events, block.carrier
        if self._floors.named:
            floors = self._floors.floors[numbers]
            block.salt = salt_of(floors)
            events["floor"] = floors[carrier]
        else:
            events["floor"] = self._floors.floors[0]
        events["time"] = times[carrier]
        events["symbol"] = self._symbols[numbers[carrier]]
        block.refuse_messages(np.flatnonzero(~exists), FeedFault.BAD_VALUE, SKIPPED_TIME)
        nameless = _NEEDS_SYMBOL[block.types] > self._named[numbers]
        block.refuse_messages(np.flatnonzero(nameless), FeedFault.UNKNOWN_SYMBOL, "a stock that was not announced")

    def _learn(self, block: MessageBlock, name: str) -> None:
        """Learn the names of stocks by number, from every message that has both."""
        records = block.records[name]
        numbers = records["locate"].astype(np.int64)
        fields = np.ascontiguousarray(records["stock"]).view(np.uint64)
        old = self._fields[numbers]
        news = np.flatnonzero(old != fields)
        if not len(news):
            return
        numbers, fields = numbers[news], fields[news]
        renamed = np.flatnonzero(old[news] != 0)
        if len(renamed):
            what = f"the name of stock {numbers[renamed[0]]} changes"
            message = block.chosen[name][news[renamed[0]]]
            self.log.fault(FeedFault.BAD_VALUE, int(block.where[message]), what, len(renamed))
        self._fields[numbers] = fields
        self._symbols[numbers] = _clean(fields)
        self._named[numbers] = self._symbols[numbers] != b""

    def _fill_directory(self, block: MessageBlock) -> None:
        records, to = block.of("R")
        block.events["price"][to] = STEP_TICKS
        block.events["quantity"][to] = records["round_lot"]
        block.events["id"][to] = records["locate"]
        self._announced.append(records)


def _clean(fields: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """Names without their padding; empty where a character may not be in a symbol."""
    names = np.char.rstrip(fields.view("S8"), b" ")
    table = np.ascontiguousarray(names.astype("S8")).view(np.uint8).reshape(-1, 8)
    printable = (table > 0x20) & (table < 0x7F)  # noqa: PLR2004 - blanks and controls are not
    good = (printable | (table == 0)).all(axis=1) & (np.char.str_len(names) == printable.sum(axis=1))
    return np.where(good, names, b"")


def _fill_mark(block: MessageBlock, name: str) -> None:
    records, to = block.of(name)
    block.events["symbol"][to] = b""
    if name == "S":
        block.events["reference"][to] = records["event"]
    else:
        block.events["reference"][to] = records["level"].astype(np.uint32) | (ord("W") << 8)


def _fill_status(block: MessageBlock, name: str) -> None:
    records, to = block.of(name)
    status = _STATUS_OF[records["state"]]
    block.refuse(name, status == 0, FeedFault.BAD_VALUE, "a trading state that is not one of H, P, Q, T")
    if name == "H":
        status = np.where(records["reason"] == CLOSED_REASON, int(MarketStatus.CLOSED), status)
    block.events["reference"][to] = status


def _fill_trade(block: MessageBlock, name: str) -> None:
    records, to = block.of(name)
    events = block.events
    events["id"][to] = records["match"]
    if name == "B":
        return
    events["price"][to] = records["price"]
    if name == "Q":
        block.leave_out(name, records["shares"] == 0, "Q cross trade: nothing was traded in it")
        block.refuse(name, records["shares"] > _U32, FeedFault.BAD_VALUE, "a cross of more shares than 32 bits count")
        events["flags"][to] = EventFlag.AUCTION
        events["reference"][to] = records["cross"]
    events["quantity"][to] = records["shares"].astype(np.uint64) & np.uint64(_U32)
