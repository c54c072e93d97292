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

    L position              no event; ours name the floors of a feed of several (`itch_floors`)

All others are counted and carried by no event. The side of P says nothing since 2014, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.clock_watch import ClockWatch
from isocast.feeds.days import DayClock, day_clock
from isocast.feeds.itch_block import KINDS, MessageBlock, by_code, open_block
from isocast.feeds.itch_book import OrderBook
from isocast.feeds.itch_floors import FloorTable, salt_of, told_by
from isocast.feeds.itch_frames import find_messages
from isocast.feeds.itch_layout import LAYOUTS, NAMES, PREFIX_BYTES, Bytes, Indices, records_at
from isocast.feeds.outcomes import Fault, FeedLog, Listing
from isocast.feeds.wall_clock import SKIPPED_TIME, WallClock
from isocast.terms.market import EventFlag, MarketStatus, Mic
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["CLOSED_REASON", "STEP_TICKS", "ItchDecoder"]

STEP_TICKS = 100
"""A cent: the smallest step of a US share, which ITCH does not say."""
CLOSED_REASON = b"CLSD"
"""The reason of a trading action by which our writer says that a symbol is closed, which ITCH cannot."""

_CLOCK_MASK = np.uint64((1 << 48) - 1)
_LOCATES = 1 << 16
_U32 = (1 << 32) - 1
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
        self._floors = FloorTable(floor)
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
    def directory(self) -> list[Listing]:
        """Every symbol that was announced or met, by its number."""
        found = {
            locate: Listing(self._floors.floors[locate].decode("ascii"), self._symbols[locate].decode("ascii"), locate)
            for locate in np.flatnonzero(self._named).tolist()
        }
        for record in (record for records in self._announced for record in records):
            number = int(record["locate"])
            if number in found:
                category, issue = (record[name].decode("ascii", "replace").strip() for name in ("category", "issue"))
                lot = int(record["round_lot"])
                found[number] = replace(found[number], round_lot=lot, category=category, issue=issue)
        return [found[locate] for locate in sorted(found)]

    @property
    def orders_known(self) -> int:
        """Orders that the table has room for, those that have gone since its last growth among them."""
        return self._book.orders.count

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
        block.refuse_messages(np.flatnonzero(~exists), Fault.BAD_VALUE, SKIPPED_TIME)
        nameless = _NEEDS_SYMBOL[block.types] > self._named[numbers]
        block.refuse_messages(np.flatnonzero(nameless), Fault.UNKNOWN_SYMBOL, "a stock that was not announced")

    def _learn(self, block: MessageBlock, name: str) -> None:
        """Numbers of stocks get their names from whatever message says both."""
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
            self.log.fault(Fault.BAD_VALUE, int(block.where[message]), what, len(renamed))
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
    block.refuse(name, status == 0, Fault.BAD_VALUE, "a trading state that is none of H, P, Q, T")
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
        block.refuse(name, records["shares"] > _U32, Fault.BAD_VALUE, "a cross of more shares than 32 bits count")
        events["flags"][to] = EventFlag.AUCTION
        events["reference"][to] = records["cross"]
    events["quantity"][to] = records["shares"].astype(np.uint64) & np.uint64(_U32)
