"""Events to ITCH 5.0, a block at a time: for each type one array of records, scattered to their places.

    MARK            S for the letters of system events, W for breached circuit breakers, I for what an auction would do
    DIRECTORY       R; a symbol that was not announced gets one before its first message
    STATUS          H; a closed symbol is a halt whose reason is CLSD
    ORDER           A, or F where the reference is the letters of a participant
    CANCEL          X, D; U for one that is LINKED to the ORDER after it
    EXECUTION       E at the order's own price, otherwise C
    TRADE           P, or Q for an auction
    CORRECTION      B, and P with the right price and quantity under the same number
    TRADE_CANCEL    B

ITCH has no quotes, and a replaced order gets a new number there: QUOTE and REPLACE have no message. What is not
written is counted in the log, by reason, and so is what an event is written without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import DayClock, day_clock
from isocast.feeds.directories import pairs_of
from isocast.feeds.itch_layout import (
    CROSS_TYPES,
    LENGTHS,
    PREFIX_BYTES,
    SYSTEM_EVENTS,
    Indices,
    OrderTable,
    are_letters,
    floor_messages,
    framed,
    salt_of,
    tracking_of,
)
from isocast.feeds.itch_reader import CLOSED_REASON, STEP_TICKS
from isocast.feeds.outcomes import FeedLog
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instruments import PLAIN
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.names import are_coded, are_names, decimals_of

__all__ = ["OTHER_DAY", "TRADE_BYTES", "ItchWriter", "Locates", "plain_trades"]


# ---- Numbers of stocks: each pair of floor and symbol gets one when it is met.


_MOST = (1 << 16) - 1


class Locates:
    """From (floor, symbol) to a number: the one that its directory says if it is free, otherwise the least free one.

    Whole floors are numbered from the top. Without numbers of their own they have 0, as in a feed of one floor.
    """

    def __init__(self) -> None:
        """Nothing was met."""
        self.numbers: dict[tuple[bytes, bytes], int] = {}
        self._taken: set[int] = set()
        self._least = 1
        self._highest = _MOST

    def restore(self, numbers: dict[tuple[bytes, bytes], int]) -> None:
        """Begin with these."""
        self.numbers = numbers
        self._taken = set(numbers.values())
        # Numbers are never given back: the least and the highest free ones are found again when they are wanted.
        self._least, self._highest = 1, _MOST

    def whole_floor(self, floor: bytes) -> int:
        """The number of a whole floor, its own."""
        return self._number((floor, b""), 0)

    def of(self, events: EventArray, *, floors: bool) -> tuple[Indices, Indices]:
        """The number of each event, and the first events of pairs that are new, in order.

        With `floors` a whole floor has a number of its own too.
        """
        pairs, first, pair_of = pairs_of(events)
        directory = events["kind"][first] == EventKind.DIRECTORY
        wanted = np.where(directory, np.minimum(events["id"][first], _MOST), 0).tolist()
        numbers = np.zeros(len(pairs), np.int64)
        fresh = []
        for place in np.argsort(first, kind="stable").tolist():
            pair = pairs[place]
            if not pair[1] and not floors:
                continue
            if pair not in self.numbers:
                fresh.append(int(first[place]))
            numbers[place] = self._number(pair, int(wanted[place]))
        return numbers[pair_of], np.array(fresh, np.int64)

    def _number(self, pair: tuple[bytes, bytes], wanted: int) -> int:
        if pair not in self.numbers:
            if len(self.numbers) >= _MOST:
                raise LocalProtocolError(f"more than {_MOST:,} symbols do not fit one ITCH feed")
            self.numbers[pair] = self._free(wanted) if pair[1] else self._top()
            self._taken.add(self.numbers[pair])
        return self.numbers[pair]

    def _free(self, wanted: int) -> int:
        if wanted and wanted not in self._taken:
            return wanted
        while self._least in self._taken:
            self._least += 1
        return self._least

    def _top(self) -> int:
        while self._highest in self._taken:
            self._highest -= 1
        return self._highest


def _have_scales(symbols: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
    """Which symbols are of instruments with other decimals than ITCH has."""
    if not are_coded(symbols).any():
        return np.zeros(len(symbols), np.bool_)
    prices, quantities = decimals_of(symbols)
    found: npt.NDArray[np.bool_] = (prices != PLAIN.price) | (quantities != PLAIN.quantity)
    return found


OTHER_DAY = "times of another day, written as the same time of this day"

_U32 = (1 << 32) - 1
_CLOCK_BITS = 48
_NONE = 0
_BREAKER = ord("W") << 8
_INTRADAY = ord("I")
_INDICATIVE = ord("I")
"""The reference of a mark that says what the auction of a call would do now."""
_STRANGERS = "an order that was entered before it is cancelled: readers of ITCH call that a fault"
_NO_SIDE, _NO_REFERENCE = "the side of a trade", "the reference of a trade"
_FRAMED = {name: framed(name) for name in LENGTHS}
_LENGTH = np.zeros(256, np.int64)
for _name, _size in LENGTHS.items():
    _LENGTH[ord(_name)] = PREFIX_BYTES + _size
_STATE_OF = np.zeros(256, np.uint8)
for _status, _letter in {
    MarketStatus.CLOSED: "H",
    MarketStatus.HALTED: "H",
    MarketStatus.PAUSED: "P",
    MarketStatus.QUOTING: "Q",
    MarketStatus.TRADING: "T",
}.items():
    _STATE_OF[_status] = ord(_letter)
_DIRECTORY_TEXT = {
    "category": b" ",
    "financial": b" ",
    "lots_only": b"N",
    "issue": b"C",
    "subtype": b"Z ",
    "authenticity": b"P",
    "short_sale": b" ",
    "ipo": b" ",
    "tier": b" ",
    "etp": b" ",
    "inverse": b"N",
}
"""What an event does not say of a symbol: a common share in live use, and nothing else is claimed."""

_ONE_TO_ONE = {
    EventKind.DIRECTORY: "R",
    EventKind.STATUS: "H",
    EventKind.TRADE_CANCEL: "B",
    EventKind.CORRECTION: "B",
}


class ItchWriter:
    """Writes one feed. Floors may be several: each pair of floor and symbol is a stock with a number of its own."""

    def __init__(
        self,
        midnight: int | DayClock,
        log: FeedLog,
        *,
        name_floors: bool = False,
        tell_flags: bool = False,
        keep_hour: bool = False,
    ) -> None:
        """`midnight` is the clock of the feed's day at its place, or an instant from which its clock counts.

        With `name_floors` the feed says of which floor each number is (`itch_layout`); without, nobody can know. With
        `tell_flags` too, tracking numbers are flags and sides. With `keep_hour` an event of another day is told at its
        own hour, as of this day.
        """
        self.log = log
        self.locates = Locates()
        self._day = day_clock(midnight)
        self._keep_hour = keep_hour
        self._orders = OrderTable()
        self._name_floors = name_floors
        self._tell_flags = name_floors and tell_flags
        self._introduced: set[bytes] = set()

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """All that later messages depend on: numbers of stocks, floors that were introduced, orders that stand."""
        pairs = list(self.locates.numbers)
        return {
            "floors": np.array([floor for floor, _ in pairs], "S4"),
            "symbols": np.array([symbol for _, symbol in pairs], "S8"),
            "numbers": np.array(list(self.locates.numbers.values()), np.uint32),
            "introduced": np.array(sorted(self._introduced), "S4"),
            "orders": self._orders.standing(),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on as the writer did whose state this is."""
        pairs = zip(state["floors"].tolist(), state["symbols"].tolist(), strict=True)
        self.locates.restore(dict(zip(pairs, state["numbers"].tolist(), strict=True)))
        self._introduced = set(state["introduced"].tolist())
        self._orders.restore(state["orders"])

    def write(self, events: EventArray) -> bytes:
        """The messages of these events, each with its length before it, as files and packets have them."""
        events = self._sound(events)
        if not len(events):
            return b""
        numbers, fresh = self.locates.of(events, floors=self._name_floors)
        floors = self._floors(events, numbers, fresh) if self._name_floors else b""
        events, numbers = self._announce(events, numbers, fresh)
        types = self._types(events)
        return floors + self._scatter(events, numbers, types)

    def _floors(self, events: EventArray, numbers: Indices, fresh: Indices) -> bytes:
        """Which floors the new numbers are of, and first of all what floors there are."""
        pairs = list(zip(events["floor"][fresh].tolist(), events["symbol"][fresh].tolist(), strict=True))
        clock = int(self.clock(events[:1])[0])
        introduced = []
        for floor in dict.fromkeys(floor for floor, _ in pairs):
            if floor not in self._introduced:
                self._introduced.add(floor)
                if (floor, b"") not in pairs:
                    introduced.append((floor, b""))
        places = [self.locates.whole_floor(floor) for floor, _ in introduced]
        chosen = np.concatenate([np.array(places, np.int64), numbers[fresh]])
        self.log.took("L", len(chosen))
        return floor_messages(introduced + pairs, chosen, clock, tells_flags=self._tell_flags)

    # ---- what can be written

    def clock(self, events: EventArray) -> npt.NDArray[np.int64]:
        """Nanoseconds since midnight by the clock on the wall; below 0 for an event that is not of this day."""
        return self._day.told(events["time"])[0] if self._keep_hour else self._day.of(events["time"])

    def counted_clock(self, events: EventArray) -> npt.NDArray[np.int64]:
        """The same, of events that are about to be written: those that keep the hour of another day are counted."""
        if not self._keep_hour:
            return self._day.of(events["time"])
        clock, others = self._day.told(events["time"])
        self.log.skip(OTHER_DAY, others)
        return clock

    def _sound(self, events: EventArray) -> EventArray:
        """Events whose values have room in a message."""
        clock = self.counted_clock(events)
        late = (clock < 0) | (clock >= 1 << _CLOCK_BITS)
        dear = (events["price"] < 0) | (events["price"] > _U32)
        spelling = are_names(events)
        dear &= ~spelling
        scaled = _have_scales(events["symbol"]) & ~spelling
        self.log.skip("the time is not of this day", int(np.count_nonzero(late)))
        self.log.skip("ITCH has eight characters for a name", int(np.count_nonzero(spelling & ~late)))
        self.log.skip("ITCH has four decimals and whole shares", int(np.count_nonzero(scaled & ~late)))
        self.log.skip("the price does not fit 32 bits", int(np.count_nonzero(dear & ~late & ~scaled)))
        bad = late | dear | spelling | scaled
        return events[~bad] if bad.any() else events

    def _announce(self, events: EventArray, numbers: Indices, fresh: Indices) -> tuple[EventArray, Indices]:
        """A DIRECTORY event before the first event of each symbol that is new, unless that is one itself."""
        fresh = fresh[(events["kind"][fresh] != EventKind.DIRECTORY) & (events["symbol"][fresh] != b"")]
        if not len(fresh):
            return events, numbers
        news = np.zeros(len(fresh), EVENT_DTYPE)
        for field in ("floor", "symbol", "time"):
            news[field] = events[field][fresh]
        news["kind"] = EventKind.DIRECTORY
        return np.insert(events, fresh, news), np.insert(numbers, fresh, numbers[fresh])

    def _types(self, events: EventArray) -> npt.NDArray[np.uint8]:
        """The message of each event by its letter; 0 for none."""
        kind, symbol, reference = events["kind"], events["symbol"], events["reference"]
        types = np.zeros(len(events), np.uint8)
        for name, letter in _ONE_TO_ONE.items():
            types[kind == name] = ord(letter)
        _mark_types(types, kind, reference, symbol)
        auction = (events["flags"] & int(EventFlag.AUCTION)) > 0
        types[kind == EventKind.TRADE] = ord("P")
        types[(kind == EventKind.TRADE) & auction] = ord("Q")
        order = kind == EventKind.ORDER
        types[order] = np.where(are_letters(reference[order]), ord("F"), ord("A"))
        cancel = kind == EventKind.CANCEL
        types[cancel] = np.where(events["quantity"][cancel] > 0, ord("X"), ord("D"))
        self._pair(events, types)
        self._skip(types, kind == EventKind.QUOTE, "ITCH has no quotes")
        self._skip(types, kind == EventKind.REPLACE, "ITCH gives a replaced order a new number")
        self._skip(types, (kind == EventKind.MARK) & (types == _NONE), "a mark that ITCH has no message for")
        self._skip(types, order & (events["side"] == Side.NONE), "an order without a side")
        stateless = (kind == EventKind.STATUS) & (_STATE_OF[np.minimum(reference, 0xFF)] == 0)
        self._skip(types, stateless, "a status that ITCH has no letter for")
        self._skip(types, (types == ord("Q")) & (events["quantity"] == 0), "a cross of no shares")
        nameless = (symbol == b"") & (kind != EventKind.MARK)
        self._skip(types, nameless, "an event of the whole floor")
        self._orders_of(events, types)
        self._say_lacking(events, types)
        return types

    def _pair(self, events: EventArray, types: npt.NDArray[np.uint8]) -> None:
        """A LINKED CANCEL and the ORDER after it are one U, if that order can have no other side or owner."""
        linked = (events["flags"][:-1] & int(EventFlag.LINKED)) > 0
        same = (events["symbol"][:-1] == events["symbol"][1:]) & (events["floor"][:-1] == events["floor"][1:])
        one = linked & same & (types[:-1] == ord("D")) & (events["kind"][1:] == EventKind.ORDER)
        one &= (events["side"][1:] != Side.NONE) & (events["reference"][:-1] == events["reference"][1:])
        at = np.flatnonzero(one)
        types[at] = ord("U")
        types[at + 1] = _NONE

    def _skip(self, types: npt.NDArray[np.uint8], which: npt.NDArray[np.bool_], reason: str) -> None:
        self.log.skip(reason, int(np.count_nonzero(which)))
        types[which] = _NONE

    def _orders_of(self, events: EventArray, types: npt.NDArray[np.uint8]) -> None:
        """Which executions are at the order's own price; and what stands afterwards."""
        replaced = np.flatnonzero(types == ord("U"))
        entered = np.concatenate([np.flatnonzero((types == ord("A")) | (types == ord("F"))), replaced + 1])
        new = events[entered]
        keys = events["id"] ^ salt_of(events["floor"])
        self._orders.enter(keys[entered], new["price"], new["side"], new["reference"], new["quantity"])
        replaced = self._replaced(events, types, keys, replaced)
        executed = np.flatnonzero(events["kind"] == EventKind.EXECUTION)
        executed = executed[events["symbol"][executed] != b""]
        slots = self._orders.find(keys[executed])
        plain = (slots >= 0) & (self._orders.price[slots] == events["price"][executed])
        plain &= (events["flags"][executed] & int(EventFlag.UNPRINTED)) == 0
        types[executed] = np.where(plain, ord("E"), ord("C"))
        if not self._tell_flags:
            sided = (slots < 0) & (events["side"][executed] > 0)
            self.log.lack("the side of an execution whose order was never entered", int(np.count_nonzero(sided)))
        shrunk = np.concatenate([executed, np.flatnonzero(types == ord("X"))])
        gone = np.concatenate([np.flatnonzero(types == ord("D")), replaced])
        shrunk_slots, gone_slots = self._orders.find(keys[shrunk]), self._orders.find(keys[gone])
        self._orders.drop(gone_slots[gone_slots >= 0])
        known = shrunk_slots >= 0
        strangers = int(np.count_nonzero(gone_slots < 0))
        strangers += int(np.count_nonzero(~known & (types[shrunk] == ord("X"))))
        self.log.lack(_STRANGERS, strangers)
        self._orders.shrink(shrunk_slots[known], events["quantity"][shrunk[known]])

    def _replaced(
        self, events: EventArray, types: npt.NDArray[np.uint8], keys: npt.NDArray[np.uint64], replaced: Indices
    ) -> Indices:
        """Those whose new order takes side and owner of the old one, as a reader will; the others are D and A or F."""
        slots, new = self._orders.find(keys[replaced]), events[replaced + 1]
        alike = (
            (slots >= 0) & (self._orders.side[slots] == new["side"]) & (self._orders.owner[slots] == new["reference"])
        )
        apart = replaced[~alike]
        types[apart] = ord("D")
        types[apart + 1] = np.where(are_letters(events["reference"][apart + 1]), ord("F"), ord("A"))
        kept: Indices = replaced[alike]
        return kept

    def _say_lacking(self, events: EventArray, types: npt.NDArray[np.uint8]) -> None:
        """What messages have no place for: their events are written, and come back without it."""
        kind, reference = events["kind"], events["reference"]
        trade, auction = types == ord("P"), types == ord("Q")
        lacks = {
            "a correction: it comes back as a broken trade and a new one": (types > 0) & (kind == EventKind.CORRECTION),
            "the owner of an order, which is not four letters": (types == ord("A")) & (reference > 0),
            "the reference of a trade in an auction: it comes back as the letter of a cross": auction
            & (reference != _cross_letters(events)),
            "the number of a mark": ((types == ord("S")) | (types == ord("W"))) & (events["id"] > 0),
            "the smallest step of a symbol": (types == ord("R"))
            & (events["price"] != STEP_TICKS)
            & (events["price"] > 0),
        }
        if not self._tell_flags:
            lacks[_NO_SIDE] = (trade | auction) & (events["side"] > 0)
            lacks[_NO_REFERENCE] = trade & (reference > 0)
            kept = np.where(auction, int(EventFlag.AUCTION), 0) | np.where(
                types == ord("C"), int(EventFlag.UNPRINTED), 0
            )
            kept |= np.where(types == ord("U"), int(EventFlag.LINKED), 0)
            kept |= np.where(types == ord("I"), int(EventFlag.OPENING | EventFlag.CLOSING), 0)
            for flag in EventFlag:
                lacks[_flag_text(flag)] = (types > 0) & (events["flags"] & ~kept & int(flag) > 0)
        for what, which in lacks.items():
            self.log.lack(what, int(np.count_nonzero(which)))

    def lack_of_trades(self, trades: EventArray) -> None:
        """The same of ordinary trades: of them a P has time, stock, price, size and number."""
        self.log.lack(_NO_SIDE, int(np.count_nonzero(trades["side"])))
        self.log.lack(_NO_REFERENCE, int(np.count_nonzero(trades["reference"])))
        found = int(np.bitwise_or.reduce(trades["flags"]))
        for flag in EventFlag(found):
            self.log.lack(_flag_text(flag), int(np.count_nonzero(trades["flags"] & int(flag))))

    # ---- bytes

    def _scatter(self, events: EventArray, numbers: Indices, types: npt.NDArray[np.uint8]) -> bytes:
        """Every message at its place; a correction is followed by its trade."""
        sizes = _LENGTH[types]
        corrected = events["kind"] == EventKind.CORRECTION
        sizes[corrected & (types != _NONE)] += _LENGTH[ord("P")]
        after = np.cumsum(sizes)
        places = after - sizes
        raw = np.zeros(int(after[-1]), np.uint8)
        for code in np.unique(types[types != _NONE]).tolist():
            name = chr(code)
            chosen = np.flatnonzero(types == code)
            self._put(raw, places[chosen], name, self._records(name, events, numbers, chosen))
        again = np.flatnonzero(corrected & (types != _NONE))
        if len(again):
            self._put(raw, places[again] + _LENGTH[ord("B")], "P", self._records("P", events, numbers, again))
        return raw.tobytes()

    def _put(self, raw: npt.NDArray[np.uint8], places: Indices, name: str, records: npt.NDArray[Any]) -> None:
        size = records.dtype.itemsize
        overlapping = np.ndarray((len(raw) - size + 1,), f"V{size}", raw, strides=(1,))
        overlapping[places] = records.view(f"V{size}")
        self.log.took(name, len(records))

    def _records(self, name: str, events: EventArray, numbers: Indices, chosen: Indices) -> npt.NDArray[Any]:
        rows = events[chosen]
        records = np.zeros(len(rows), _FRAMED[name])
        fields = records.dtype.names or ()
        clock = self.clock(rows)
        records["length"] = LENGTHS[name]
        records["type"] = name.encode("ascii")
        records["locate"] = numbers[chosen]
        records["clock_high"], records["clock_low"] = clock >> 32, clock & _U32
        if "stock" in fields:
            records["stock"] = np.char.ljust(rows["symbol"], 8, b" ")
        if "price" in fields:
            records["price"] = rows["price"]
        if "shares" in fields:
            records["shares"] = rows["quantity"]
        if "match" in fields:
            records["match"] = rows["reference"] if name in ("E", "C") else rows["id"]
        if "order" in fields and name != "P":
            records["order"] = rows["id"]
        if "side" in fields:
            records["side"] = np.where(rows["side"] == Side.SELL, ord("S"), ord("B")) if name != "P" else ord("B")
        if self._tell_flags:
            records["tracking"] = tracking_of(events[chosen + 1] if name == "U" else rows)
            if name == "P":
                records["order"] = rows["reference"]
        self._own_fields(name, records, rows, events, chosen)
        return records

    @staticmethod
    def _own_fields(
        name: str, records: npt.NDArray[Any], rows: EventArray, events: EventArray, chosen: Indices
    ) -> None:
        """What only one type has."""
        match name:
            case "S":
                records["event"] = rows["reference"]
            case "W":
                records["level"] = rows["reference"] & 0xFF
            case "R":
                for field, text in _DIRECTORY_TEXT.items():
                    records[field] = text
                records["round_lot"] = rows["quantity"]
            case "H":
                records["state"] = _STATE_OF[np.minimum(rows["reference"], 0xFF)]
                records["reserved"] = b" "
                records["reason"] = np.where(rows["reference"] == int(MarketStatus.CLOSED), CLOSED_REASON, b"    ")
            case "F":
                records["owner"] = rows["reference"]
            case "C":
                records["printable"] = np.where(rows["flags"] & int(EventFlag.UNPRINTED), ord("N"), ord("Y"))
            case "U":
                new = events[chosen + 1]
                records["new_order"] = new["id"]
                records["shares"] = new["quantity"]
                records["price"] = new["price"]
            case "Q":
                records["cross"] = _cross_letters(rows)
            case "I":
                priced = rows["price"] > 0
                records["paired"], records["imbalance"] = rows["quantity"], rows["id"]
                for field in ("far", "near", "reference"):
                    records[field] = rows["price"]
                sides = np.array([b"N", b"B", b"S"])[np.minimum(rows["side"], Side.SELL)]
                records["direction"] = np.where(priced, sides, b"O")
                opening, closing = (rows["flags"] & int(flag) > 0 for flag in (EventFlag.OPENING, EventFlag.CLOSING))
                records["cross"] = np.where(opening, b"O", np.where(closing, b"C", b"H"))
                records["variation"] = b" "
            case _:
                pass


def _mark_types(
    types: npt.NDArray[np.uint8],
    kind: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    symbol: npt.NDArray[np.bytes_],
) -> None:
    mark = kind == EventKind.MARK
    types[mark & (reference == _INDICATIVE) & (symbol != b"")] = ord("I")
    types[mark & np.isin(reference, np.frombuffer(SYSTEM_EVENTS, np.uint8))] = ord("S")
    types[mark & ((reference & 0xFFFFFF00) == _BREAKER) & (reference & 0xFF > 0)] = ord("W")


def _flag_text(flag: EventFlag) -> str:
    return f"the flag {str(flag.name).lower()}"


def _cross_letters(events: EventArray) -> npt.NDArray[Any]:
    """Of auctions: the reference if it is one, or what the flags say, or intraday."""
    known = np.isin(events["reference"], np.frombuffer(CROSS_TYPES, np.uint8))
    opening, closing = (events["flags"] & int(flag) > 0 for flag in (EventFlag.OPENING, EventFlag.CLOSING))
    letters = np.where(opening, ord("O"), np.where(closing, ord("C"), _INTRADAY))
    return np.where(known, events["reference"], letters)


# ---- Trades to ITCH by the short way: most messages of a market are nothing else, and small.
#
# `ItchWriter` takes whole blocks of any events; for a few dozen trades of stocks that it has numbered already, one
# array of records does. The bytes are the same.


_TRADE_FRAMED = framed("P")
TRADE_BYTES = _TRADE_FRAMED.itemsize
"""With the length before it."""
_TRADE_LENGTH = LENGTHS["P"]


_OTHERWISE = int(EventFlag.AUCTION | EventFlag.LINKED)
_BLANK = np.uint8(0x20)


def plain_trades(writer: ItchWriter, events: EventArray) -> bytes | None:
    """What `writer.write` would give; None unless all are ordinary trades of stocks that have their numbers."""
    if (events["kind"] != EventKind.TRADE).any() or (events["flags"] & _OTHERWISE).any():
        return None
    price = events["price"]
    if price.min() < 0 or price.max() > _U32:
        return None
    known = writer.locates.numbers.get
    numbers = [known(pair, 0) for pair in zip(events["floor"].tolist(), events["symbol"].tolist(), strict=True)]
    symbols = np.ascontiguousarray(events["symbol"]).view(np.uint8).reshape(-1, 8)
    if not all(numbers) or not symbols[:, 0].all():
        return None
    clock = writer.counted_clock(events)
    if clock.min() < 0 or int(clock.max()) >> _CLOCK_BITS:
        return None
    records = np.zeros(len(events), _TRADE_FRAMED)
    records["length"], records["type"], records["side"] = _TRADE_LENGTH, b"P", ord("B")
    records["locate"] = numbers
    records["clock_high"], records["clock_low"] = clock >> 32, clock & _U32
    records["shares"], records["price"], records["match"] = events["quantity"], price, events["id"]
    records["stock"] = np.where(symbols, symbols, _BLANK).reshape(-1).view("S8")
    writer.log.took("P", len(records))
    writer.lack_of_trades(events)
    return records.tobytes()
