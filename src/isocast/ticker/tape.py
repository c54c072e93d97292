"""The consolidated tape: events in sequence order go in; last sales, best prices, figures, snapshots, digests come out.

Best prices are those of quotes, and of the books of floors that publish orders instead (`ticker.books`).

The same events give the same tape, byte for byte, however they were cut into messages and blocks. Nothing that a
floor publishes raises: what cannot be believed is counted and named (`ticker.records`).

A floor's day ends when its mark for the start of messages (O) comes twelve hours or more after the one before; a floor
that restarts within its day goes on. A floor without marks has one day.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from struct import Struct
from typing import NoReturn, Self

import numpy as np

from isocast.feeds.tape_digest import DIGEST_BYTES, TapeDigest
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import EventKind, MarketStatus, Side
from isocast.ticker.books import BOOK_DTYPE, DAY_MARK, ORDER_DTYPE, OrderBooks, begins_day, is_of_books
from isocast.ticker.quotes import CROSSED, QuoteLines, floor_name, symbol_name, take_quotes
from isocast.ticker.records import (
    FLOOR_DTYPE,
    LINE_DTYPE,
    NAMES_KEPT,
    PRICE_LIMIT,
    SYMBOL_DTYPE,
    TRADE_DTYPE,
    FaultBook,
    FaultName,
    Indices,
    Records,
    TapeFault,
    TapePiece,
    TradeState,
    Words,
)
from isocast.ticker.trades import ORIGINAL_DTYPE, Trades
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.names import InstrumentNames, name_events

__all__ = [
    "KINDS",
    "PIECE_EVENTS",
    "SNAPSHOT_VERSION",
    "Tape",
    "TapeDigest",
    "TapeState",
    "pack_state",
    "state_digest",
    "unpack_state",
]


# ---- A tape as bytes: versioned, checked, and one spelling for each state, so that equal tapes have equal snapshots.
#
# | magic 8 | version u32 | tables u32 | description bytes u64 | SHA-256 of what follows 32 |
# | description: JSON | tables of fixed records, one after the other |
#
# Little-endian. The description has the position, the counts and the faults, and how many records each table has.
# A tape without full names is written as version 2, which has no table of names: these are events of the directory.
# One without orders too is written as version 1, which has no tables of books either.


SNAPSHOT_VERSION = 3
KINDS = max(EventKind) + 1
"""Of events, each counted."""
_COUNT_END = 1 << 63
_MAGIC = b"ISOTAPE\n"
_HEADER = Struct("<8sIIQ32s")
_TABLES = (FLOOR_DTYPE, SYMBOL_DTYPE, LINE_DTYPE, TRADE_DTYPE, ORIGINAL_DTYPE)
_BOOK_TABLES = (BOOK_DTYPE, ORDER_DTYPE)
_NAMES_AT = len(_TABLES) + len(_BOOK_TABLES)
_TABLES_OF = {1: _TABLES, 2: (*_TABLES, *_BOOK_TABLES), SNAPSHOT_VERSION: (*_TABLES, *_BOOK_TABLES, EVENT_DTYPE)}
_VERSION_OF = {len(tables): version for version, tables in _TABLES_OF.items()}
_DESCRIPTION_LIMIT = 1 << 20
_ASCII = 128


@dataclass(frozen=True, slots=True)
class TapeState:
    """What is saved."""

    sequence: int
    events: int
    kinds: list[int]
    faults: FaultBook
    tables: tuple[Records, ...]
    """Floors, symbols, lines, trades, what corrected trades were at first; then books and orders, if there are any or
    names follow; then events that spell full names, if there are any."""
    positions: dict[int, int] = field(default_factory=dict)
    """Of several stripes: the newest sequence of each."""
    whole_floors: list[int] | None = None
    """Behind a gap: the floors that began another day since."""


def pack_state(state: TapeState) -> bytes:
    """The bytes of a state."""
    description: dict[str, object] = {
        "sequence": state.sequence,
        "events": state.events,
        "kinds": state.kinds,
        "counts": {fault.value: count for fault, count in state.faults.counts.items()},
        "names": {fault.value: [list(name) for name in names] for fault, names in state.faults.names.items()},
        "records": [len(table) for table in state.tables],
    }
    if state.positions:
        description["positions"] = {str(stripe): last for stripe, last in sorted(state.positions.items())}
    if state.whole_floors is not None:
        description["whole_floors"] = state.whole_floors
    text = json.dumps(description, sort_keys=True, separators=(",", ":")).encode("ascii")
    body = b"".join([text, *(table.tobytes() for table in state.tables)])
    header = _HEADER.pack(_MAGIC, _VERSION_OF[len(state.tables)], len(state.tables), len(text), sha256(body).digest())
    return header + body


def unpack_state(raw: bytes) -> TapeState:
    """The state in bytes that are not trusted."""
    if len(raw) < _HEADER.size:
        _refuse(f"{len(raw)} bytes are no snapshot of a tape")
    magic, version, tables, length, digest = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        _refuse("this is no snapshot of a tape")
    dtypes = _TABLES_OF.get(version, ())
    if not dtypes or tables != len(dtypes):
        _refuse(f"a tape's snapshot of version {version}; versions up to {SNAPSHOT_VERSION} are read here")
    body = memoryview(raw)[_HEADER.size :]
    if not compare_digest(sha256(body).digest(), digest):
        _refuse("a tape's snapshot is damaged or cut short")
    if length > min(len(body), _DESCRIPTION_LIMIT):
        _refuse("a tape's snapshot contradicts itself")
    try:
        state = _read(json.loads(bytes(body[:length])), body[length:], dtypes)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as reason:
        raise RemoteProtocolError("the description in this snapshot of a tape is invalid") from reason
    _check(*state.tables[: len(_TABLES)])
    if len(state.tables) > len(_TABLES):
        _check_books(*state.tables[len(_TABLES) : _NAMES_AT])
    for table in state.tables[_NAMES_AT:]:
        _check_names(table)
    return state


def _read(description: dict[str, object], rest: memoryview, dtypes: tuple[np.dtype[np.void], ...]) -> TapeState:
    counts, names, records = description["counts"], description["names"], description["records"]
    kinds = description["kinds"]
    if not (isinstance(counts, dict) and isinstance(names, dict)):
        raise TypeError
    if not (isinstance(records, list) and isinstance(kinds, list) and len(kinds) <= KINDS):
        raise TypeError
    if not all(isinstance(kind, int) and 0 <= kind < _COUNT_END for kind in kinds):
        raise ValueError
    faults = FaultBook()
    faults.counts = {TapeFault(name): int(count) for name, count in counts.items()}
    faults.names = {
        TapeFault(name): [_fault_name(*entry) for entry in entries[:NAMES_KEPT]] for name, entries in names.items()
    }
    tables, at = [], 0
    for dtype, count in zip(dtypes, map(int, records), strict=True):
        tables.append(np.frombuffer(rest, dtype, count, at).copy())
        at += count * dtype.itemsize
    if at != len(rest):
        raise ValueError
    sequence, events = description["sequence"], description["events"]
    if not (isinstance(sequence, int) and isinstance(events, int)):
        raise TypeError
    positions = description.get("positions", {})
    if not isinstance(positions, dict):
        raise TypeError
    places = {int(stripe): int(last) for stripe, last in positions.items()}
    floors = description.get("whole_floors")
    if not isinstance(floors, list | None):
        raise TypeError
    whole = None if floors is None else [int(floor) for floor in floors]
    return TapeState(sequence, events, kinds, faults, tuple(tables), places, whole)


def _fault_name(sequence: int, kind: int, floor: str, symbol: str, number: int, price: int) -> FaultName:
    return FaultName(int(sequence), EventKind(kind).value, str(floor), str(symbol), int(number), int(price))


def _check(floors: Records, symbols: Records, lines: Records, trades: Records, originals: Records) -> None:
    """Every number that points somewhere points at something."""
    sound = (
        _within(lines["symbol_number"], 0, len(symbols))
        and _within(lines["floor_number"], 0, len(floors))
        and _within(lines["first_row"], -1, len(trades))
        and _within(lines["last_row"], -1, len(trades))
        and _within(trades["line"], 0, len(lines))
        and _within(originals["row"], 0, len(trades))
        and bool((trades["earlier"] < np.arange(len(trades))).all() and (trades["earlier"] >= -1).all())
        and np.array_equal(np.bincount(lines["symbol_number"], minlength=len(symbols)), symbols["lines"])
        and np.array_equal(symbols["symbol"][lines["symbol_number"]], lines["symbol"])
        and np.array_equal(floors["floor"][lines["floor_number"]], lines["floor"])
        and np.array_equal(np.flatnonzero(trades["state"] & TradeState.CORRECTED), originals["row"])
        and _within(symbols["market"], 0, CROSSED + 1)
        and all(_is_text(words) for words in (symbols["symbol"], floors["floor"]))
        and len(np.unique(lines[["symbol", "floor"]])) == len(lines)
    )
    if not sound:
        _refuse("a tape's snapshot points at what it does not have")


def _check_books(books: Records, orders: Records) -> None:
    """Every order belongs to a book, once, and can be in one."""
    owners = np.repeat(np.arange(len(books)), np.minimum(books["orders"], len(orders) + 1).astype(np.int64))
    shown = orders[orders["shown"] != 0]
    sound = (
        len(owners) == len(orders)
        and _within(books["market"], 0, CROSSED + 1)
        and _within(orders["side"], Side.BUY, Side.SELL + 1)
        and _within(orders["quantity"], 1, 1 << 32)
        and _within(shown["price"], -PRICE_LIMIT, PRICE_LIMIT + 1)
        and len(np.unique(books[["symbol", "floor"]])) == len(books)
        and len(np.unique(np.stack([owners.astype(np.uint64), orders["id"]], axis=1), axis=0)) == len(orders)
    )
    if not sound:
        _refuse("a tape's snapshot has books that cannot be")


def _check_names(events: Records) -> None:
    """Every event spells a name that its symbol can have, once, in the order of names."""
    names = InstrumentNames()
    if are_events(events.tobytes()):
        names.take(events)
    if not len(events) or names.refused or not np.array_equal(name_events(names), events):
        _refuse("a tape's snapshot has names that cannot be")


def _within(numbers: Records, least: int, below: int) -> bool:
    return not len(numbers) or bool(int(numbers.min()) >= least and int(numbers.max()) < below)


def _is_text(words: Records) -> bool:
    """Names that are there once each, in ASCII."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    return bool((raw < _ASCII).all()) and len(np.unique(words)) == len(words)


def _refuse(what: str) -> NoReturn:
    raise RemoteProtocolError(what)


PIECE_EVENTS = 16_384
"""Events that are looked at together: their columns stay in the processor's cache."""

_STATUSES = np.array(list(MarketStatus), np.uint32)

_TRADE, _REFERENCE, _QUOTE, _STATUS, _DIRECTORY, _MARK, _ORDER = range(1, 8)
_PART = np.zeros(256, np.uint8)
_PART[[EventKind.TRADE, EventKind.EXECUTION]] = _TRADE
_PART[[EventKind.CORRECTION, EventKind.TRADE_CANCEL]] = _REFERENCE
_PART[EventKind.QUOTE], _PART[EventKind.STATUS] = _QUOTE, _STATUS
_PART[EventKind.DIRECTORY], _PART[EventKind.MARK] = _DIRECTORY, _MARK
_PART[[EventKind.ORDER, EventKind.CANCEL, EventKind.REPLACE]] = _ORDER


class Tape:
    """A function of the events that it was given."""

    def __init__(self) -> None:
        """Nothing was published yet."""
        self.sequence = 0
        """Of the newest message that it takes account of: in the merged sequence, where it is of several stripes."""
        self.positions: dict[int, int] = {}
        """Of several stripes: the newest sequence of each that it takes account of."""
        self.names = InstrumentNames()
        """Full names of instruments, as far as they were heard."""
        self.events = 0
        """How many events it was given."""
        self._kinds = np.zeros(KINDS, np.int64)
        self._faults = FaultBook()
        self._lines = QuoteLines()
        self._trades = Trades(self._lines, self._faults)
        self._books = OrderBooks()
        self._waiting: list[tuple[EventArray, Words]] = []
        self._settled = 0

    @property
    def kinds(self) -> Indices:
        """How many events there were of each `EventKind`."""
        self.settle()
        return self._kinds

    @property
    def faults(self) -> FaultBook:
        """What cannot be believed."""
        self.settle()
        return self._faults

    @property
    def lines(self) -> QuoteLines:
        """Each symbol on each floor."""
        self.settle()
        return self._lines

    @property
    def trades(self) -> Trades:
        """Every trade of the day."""
        self.settle()
        return self._trades

    @property
    def books(self) -> OrderBooks:
        """The orders that stand, of floors that publish them."""
        self.settle()
        return self._books

    def gap(self) -> None:
        """Messages are missing: it is counted, and no book is sound before its floor begins another day."""
        self.settle()
        self._faults.counts[TapeFault.GAP] = self._faults.counts.get(TapeFault.GAP, 0) + 1
        self._faults.names.setdefault(TapeFault.GAP, [])
        self._books.gap()

    def take(self, events: EventArray, sequences: Words | None = None, last_sequence: int | None = None) -> None:
        """Some events more.

        `sequences` are those of their messages; without them events are numbered from 1 on. `last_sequence` is the
        newest message of the block, if that has no events. Small blocks wait for each other until somebody asks.
        """
        if events.dtype != EVENT_DTYPE or events.ndim != 1:
            raise LocalProtocolError(f"not a row of events: {events.dtype} in {events.ndim} dimensions")
        if sequences is None:
            sequences = np.arange(self.events + 1, self.events + len(events) + 1, dtype=np.uint64)
        if len(sequences) != len(events):
            raise LocalProtocolError(f"{len(sequences)} sequences for {len(events)} events")
        if len(events) < PIECE_EVENTS:
            # A copy: what the caller has may be a file that it closes.
            self._waiting.append((events.copy(), sequences.copy()))
            self.events += len(events)
            if self.events - self._settled >= PIECE_EVENTS:
                self.settle()
        else:
            self.settle()
            self.events += len(events)
            self._take_all(events, sequences)
        newest = int(sequences[-1]) if len(sequences) else 0
        self.sequence = max(self.sequence, newest if last_sequence is None else last_sequence)

    def settle(self) -> None:
        """Work off what waits; no reader of a tape need call it."""
        if self._waiting:
            events, sequences = zip(*self._waiting, strict=True)
            self._waiting.clear()
            self._take_all(np.concatenate(events), np.concatenate(sequences))

    def snapshot(self) -> bytes:
        """The whole state: restored from it and given the rest, a tape is as if it had been given all."""
        lines, trades = self.lines, self.trades
        trades.clean()
        tables = lines.floors, lines.symbols, lines.all, trades.all, trades.originals()
        kinds, whole = self._kinds.tolist(), self._books.whole_floors
        names = self._name_events()
        more = (*self._books.tables(), names) if len(names) else self._books.tables() if self._books.books else ()
        state = TapeState(self.sequence, self.events, kinds, self._faults, (*tables, *more), self.positions, whole)
        return pack_state(state)

    def _name_events(self) -> EventArray:
        """The full names of its own symbols: `names` may be shared, and know more than this tape has heard of."""
        if not len(self.names):
            return np.zeros(0, EVENT_DTYPE)
        lines = self._lines.all
        own = {(floor_name(floor), symbol_name(code)) for code, floor in lines[["symbol", "floor"]].tolist()}
        return name_events(one for one in self.names if (one.floor, str(one.symbol)) in own)

    @classmethod
    def restore(cls, snapshot: bytes) -> Self:
        """A tape as it was; RemoteProtocolError for bytes that are no whole snapshot."""
        state = unpack_state(snapshot)
        tape = cls()
        tape.sequence, tape.events, tape._settled = state.sequence, state.events, state.events
        tape.positions = dict(state.positions)
        tape._kinds[: len(state.kinds)] = state.kinds
        tape._faults.counts, tape._faults.names = state.faults.counts, state.faults.names
        floors, symbols, lines, trades, originals, *books = state.tables[:_NAMES_AT]
        for names in state.tables[_NAMES_AT:]:
            tape.names.take(names)
        if books or state.whole_floors is not None:
            standing, orders = books or (np.zeros(0, BOOK_DTYPE), np.zeros(0, ORDER_DTYPE))
            tape._books.restore(standing, orders, state.whole_floors)
        tape._lines.restore(lines, symbols, floors)
        tape._trades.restore(trades, originals)
        return tape

    # Inside -------------------------------------------------------------------------------------

    def _take_all(self, events: EventArray, sequences: Words) -> None:
        for start in range(0, len(events), PIECE_EVENTS):
            stop = start + PIECE_EVENTS
            self._take(np.ascontiguousarray(events[start:stop]), sequences[start:stop])

    def _take(self, events: EventArray, sequences: Words) -> None:
        """One piece; where a floor's day begins it is cut."""
        marks = np.flatnonzero((events["kind"] == EventKind.MARK) & (events["reference"] == DAY_MARK))
        start, knows = 0, self._lines.knows_floors
        for place in marks.tolist():
            word = int.from_bytes(events["floor"][place].ljust(4, b"\0"), "little")
            moment = int(events["time"][place])
            opened = int(self._lines.floors["opened"][self._lines.floor_number(word)]) if knows([word]) else 0
            if not begins_day(opened, moment):
                continue
            self._take_within_day(events[start:place], sequences[start:place])
            start = place
            number = self._lines.floor_number(word)
            if opened:
                self._trades.begin_day(number)
            self._books.begin_day(word)
            self._lines.floors["opened"][number] = moment
        self._take_within_day(events[start:], sequences[start:])

    def _take_within_day(self, events: EventArray, sequences: Words) -> None:
        if not len(events):
            return
        words = events.view(np.uint64).reshape(len(events), -1)
        floors, symbols = words[:, 0] >> np.uint64(32), np.ascontiguousarray(words[:, 1])
        self._meet_floors(floors, symbols)
        lines = self._lines.numbers(symbols, floors)
        piece = TapePiece(events, sequences, lines, self._settled)
        kinds = events["kind"]
        self._kinds += np.bincount(kinds, minlength=KINDS)[:KINDS]
        part = _PART[kinds]
        is_homeless = (lines < 0) & (symbols != 0)
        if is_homeless.any():
            self._faults.note(TapeFault.TOO_MANY_LINES, np.flatnonzero(is_homeless))
            part[is_homeless] = 0
        self._count_floors(floors[symbols == 0], lines)
        for number, work in (
            (_TRADE, self._trades.take),
            (_REFERENCE, self._trades.refer),
            (_QUOTE, self._quotes),
            (_STATUS, self._statuses),
            (_DIRECTORY, self._directory),
            (_ORDER, None),
        ):
            places = np.flatnonzero(part == number)
            if len(places) and number != _STATUS:
                places = self._with_symbol(lines, places)
            if len(places) and work is not None:
                work(piece, places)
        self._orders(piece)
        self._trades.end_piece()
        self._faults.settle(events, sequences)
        self._settled += len(events)

    def _with_symbol(self, lines: Indices, places: Indices) -> Indices:
        has_none = lines[places] < 0
        if not has_none.any():
            return places
        self._faults.note(TapeFault.NO_SYMBOL, places[has_none])
        return places[~has_none]

    def _meet_floors(self, floors: Words, symbols: Words) -> None:
        """Floors are numbered as they appear, also those that speak first of themselves and not of a symbol."""
        alone = np.unique(floors[symbols == 0])
        if not self._lines.knows_floors(alone.tolist()):
            words, places = np.unique(floors, return_index=True)
            for word in words[np.argsort(places)].tolist():
                self._lines.floor_number(word)

    def _count_floors(self, without: Words, lines: Indices) -> None:
        """How many events each floor has published, with a symbol and without."""
        own = lines[lines >= 0]
        table = self._lines.floors
        for word, count in zip(*np.unique(without, return_counts=True), strict=True):
            table["events"][self._lines.floor_number(int(word))] += np.uint64(count)
        numbers = self._lines.all["floor_number"][own]
        table["events"] += np.bincount(numbers, minlength=len(table)).astype(np.uint64)

    def _quotes(self, piece: TapePiece, places: Indices) -> None:
        take_quotes(piece, places, self._lines, self._faults)

    def _orders(self, piece: TapePiece) -> None:
        """What happens to displayed orders, executions included."""
        places = np.flatnonzero(is_of_books(piece.events) & (piece.lines >= 0))
        if len(places):
            for fault, found in self._books.take(piece.events[places]).items():
                self._faults.note(fault, places[found])

    def _statuses(self, piece: TapePiece, places: Indices) -> None:
        """Halts, resumptions, openings and closes: of a line, or of a whole floor."""
        is_known = np.isin(piece.events["reference"][places], _STATUSES)
        self._faults.note(TapeFault.UNKNOWN_STATUS, places[~is_known])
        places = places[is_known]
        is_whole = piece.lines[places] < 0
        floors = piece.events["floor"][places[is_whole]].view(np.uint32)
        numbers = np.array([self._lines.floor_number(word) for word in floors.tolist()], np.int64)
        for table, which, at in (
            (self._lines.all, piece.lines[places[~is_whole]], places[~is_whole]),
            (self._lines.floors, numbers, places[is_whole]),
        ):
            newest = _newest(which)
            to, chosen = which[newest], at[newest]
            table["status"][to] = piece.events["reference"][chosen]
            table["status_time"][to] = piece.events["time"][chosen]
            table["status_event"][to] = (piece.first_event + chosen + 1).astype(np.uint64)

    def _directory(self, piece: TapePiece, places: Indices) -> None:
        """Symbols that floors announce; the newest announcement counts. With a side it spells a full name."""
        spelling = piece.events["side"][places] != Side.NONE
        if spelling.any():
            self.names.take(piece.events[places[spelling]])
            places = places[~spelling]
        newest = places[_newest(piece.lines[places])]
        table, which, events = self._lines.all, piece.lines[newest], piece.events[newest]
        table["listed"][which] = 1
        table["step"][which], table["lot"][which] = events["price"], events["quantity"]


def _newest(numbers: Indices) -> Indices:
    """The last place of each number."""
    _, places = np.unique(numbers[::-1], return_index=True)
    return len(numbers) - 1 - places


# ---- Whether two tapes are the same: by the events that they were given, or by what they say.
#
# `TapeDigest` is over the canonical records of 48 bytes, in order, of the whole sequence and of each floor: cutting
# events into messages and blocks leaves it alone, and inputs, customers and journals can be compared.
# `state_digest` is over everything that a tape knows: somebody who joined late, from a snapshot, has it too.


def state_digest(tape: Tape) -> str:
    """Of everything that a tape knows: sequence, trades as they stand, quotes, status, directory and faults."""
    return sha256(tape.snapshot()).digest()[:DIGEST_BYTES].hex()
