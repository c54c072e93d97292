"""Databento's DBN files, versions 1 to 3: metadata that names instruments, then records of fixed layout.

    trades                  TRADE
    tbbo, mbp-1, mbp-10     QUOTE of both sides, the first LINKED, then the TRADE of a record of action T
    mbo A                   ORDER
    mbo M                   REPLACE
    mbo C                   CANCEL
    mbo F                   EXECUTION; reference: the venue's sequence number, as of all trades
    mbo T                   TRADE, unless fills (F) of the same instant carry it

A fill changes no book in DBN: a C of the same order and instant takes the shares away. An EXECUTION does it at once, so
that such a C is left out, or cancels only what is more than the fills. All that is left out is counted.

The side of a trade is that of the order which was hit, the opposite of DBN's. Trades have no numbers there: records
number them. Prices are 10^-9 there; one that is finer than a tick is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import ClockWatch
from isocast.feeds.directories import MetSymbols
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.terms.errors import FeedError
from isocast.terms.market import MIC_BYTES, PRICE_DECIMALS, SYMBOL_BYTES, EventFlag, EventKind, Mic, Side
from isocast.terms.zones import DAY_NS, day_number
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["DBN_MAGIC", "DbnDecoder", "begins_like_dbn"]

DBN_MAGIC = b"DBN"
_VERSION_MAX = 3
_PREFIX_BYTES = 8
_METADATA_MAX = 1 << 28
"""All symbols of all US options are some 100 MB."""

_VENUES = (  # noqa: SIM905 - a table reads better without its quotes
    "GLBX XNAS XBOS XPSX BATS BATY EDGA EDGX XNYS XCIS XASE XCHI XCIS XCIS MEMX EPRL FINN FINC FINY AMXO XBOX "
    "XCBO EMLD EDGO GMNI XISX MCRY XMIO ARCO OPRA MPRL XNDQ XBXO C2OX XPHL BATO MXOP IEXG XCHI XCIS IEXG EPRL "
    "ARCX XNYS XNYS XNAS XNAS XCHI XCIS IEXG EPRL XNAS XNYS FINN FINY FINC IFEU NDEX DBEQ EQUS SPHR XCHI XCIS "
    "IEXG EPRL XNAS XNYS FINN FINY FINC BATS BATY EDGA EDGX XBOS XPSX MEMX XASE ARCX LTSE XNAS FINN FINC XOFF "
    "XOFF XBOS XPSX XBOS XPSX EQUS XCIS XNYS EQUS EQUS EQUS EQUS IFUS XOFF IFLL XOFF XEUR XEEE XOFF XOFF XCBF "
    "XOFF OCEA MXTO IEXO MAIN XASE XBOS XCIS TXSE 24EQ EPRL XISX EDGA EDGX LTSE XCHI XNYS ARCX XNAS MEMX IEXG "
    "XPSX BATY BATS FINN FINY FINC XADF "
).split()
"""By the number of the publisher, from 1 on. Later numbers are indices and publishers to come: they need --as."""

_FLOORS = np.zeros(1 << 16, f"S{MIC_BYTES}")
_FLOORS[1 : len(_VENUES) + 1] = _VENUES

# Metadata: which schema, and which symbol each instrument is on which day.

_SCHEMAS = (  # noqa: SIM905 - as above
    "mbo mbp-1 mbp-10 tbbo trades ohlcv-1s ohlcv-1m ohlcv-1h ohlcv-1d definition statistics status imbalance ohlcv-eod"
    " cmbp-1 cbbo-1s cbbo-1m tcbbo bbo-1s bbo-1m"
).split()
_READ = ("trades", "tbbo", "mbp-1", "mbp-10", "mbo")
_MIXED = 0xFFFF
_HEAD = Struct("<16sHQQQ")
_FIXED_BYTES = 100
_OLD_SYMBOL_BYTES = 22
"""In version 1; later ones say it."""
_BY_ID = 0
"""The symbology whose symbols are numbers of instruments."""
_FAR_DAY = (1 << 31) - 1


def begins_like_dbn(head: bytes) -> bool:
    """Whether a file begins as DBN does, of any version."""
    return head.startswith(DBN_MAGIC) and len(head) > len(DBN_MAGIC) and head[len(DBN_MAGIC)] < ord(" ")


class _Interval(NamedTuple):
    """From the first day to before the last, a number of an instrument is this symbol."""

    instrument: int
    first_day: int
    end_day: int
    symbol: str


class _Metadata(NamedTuple):
    schema: str
    has_sent_time: bool
    intervals: list[_Interval]


class _Fields:
    """Reads metadata from its beginning to its end; FeedError where it ends too early."""

    def __init__(self, raw: bytes, log: FeedLog) -> None:
        self._raw = raw
        self._at = 0
        self._log = log

    def take(self, count: int) -> bytes:
        taken = self._raw[self._at : self._at + count]
        if len(taken) < count:
            raise self.wrong("its metadata ends too early")
        self._at += count
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def text(self, size: int) -> str:
        return self.take(size).split(b"\0")[0].decode("utf-8", "replace")

    def skip_texts(self, size: int) -> None:
        self.take(self.number() * size)

    def day(self) -> int:
        """A day as the number 20240131."""
        number = self.number()
        try:
            return day_number(date(number // 10_000, number // 100 % 100, number % 100))
        except ValueError:
            raise self.wrong(f"a symbol is said to hold for {number}, which is no day") from None

    def wrong(self, what: str) -> FeedError:
        return FeedError(self._log.file, f"is a damaged DBN file: {what}", _PREFIX_BYTES + self._at)


def _read_metadata(version: int, raw: bytes, log: FeedLog) -> _Metadata:
    fields = _Fields(raw, log)
    fixed = fields.take(_FIXED_BYTES)
    _, code, *_ = _HEAD.unpack_from(fixed)
    rest = fixed[_HEAD.size + (8 if version == 1 else 0) :]
    symbol_in, symbol_out, has_sent_time = rest[:3]
    size = _OLD_SYMBOL_BYTES if version == 1 else int.from_bytes(rest[3:5], "little")
    if not size:
        raise fields.wrong("its symbols have no room")
    schema = "mixed" if code == _MIXED else _SCHEMAS[code] if code < len(_SCHEMAS) else f"number {code}"
    fields.take(fields.number())
    for _ in ("symbols", "partial", "not found"):
        fields.skip_texts(size)
    intervals = []
    for _ in range(fields.number()):
        asked = fields.text(size)
        for _ in range(fields.number()):
            first, end, found = fields.day(), fields.day(), fields.text(size)
            number, name = (found, asked) if symbol_out == _BY_ID else (asked, found)
            if number.isascii() and number.isdigit() and len(number) <= 10 and int(number) < 1 << 32:  # noqa: PLR2004
                intervals.append(_Interval(int(number), first, end, name))
    if intervals or _BY_ID in (symbol_in, symbol_out) or schema == "mixed":
        return _Metadata(schema, bool(has_sent_time), intervals)
    raise fields.wrong("it maps no symbols to instruments")


class _Names:
    """The symbol of an instrument on a day."""

    def __init__(self, intervals: list[_Interval]) -> None:
        self._intervals = intervals
        self._sort()

    def learn(self, instrument: int, symbol: str) -> None:
        """An instrument has this symbol from now on, on every day."""
        self._intervals = [each for each in self._intervals if each.instrument != instrument]
        self._intervals.append(_Interval(instrument, 0, _FAR_DAY, symbol))

    def _sort(self) -> None:
        rows = sorted(self._intervals)
        self._known = self._intervals
        self._keys = np.array([each.instrument << 32 | max(each.first_day, 0) for each in rows], np.uint64)
        self._ends = np.array([each.end_day for each in rows], np.int64)
        names = [each.symbol.strip().replace(" ", ".") for each in rows]
        self.texts = [*names, ""]
        sound = [name if len(name) <= SYMBOL_BYTES and name.isascii() and name.isprintable() else "" for name in names]
        self.symbols = np.array([*sound, ""], f"S{SYMBOL_BYTES}")

    def find(self, instruments: npt.NDArray[Any], times: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """A place in `symbols` and `texts` for each; -1, where both are empty, if nobody says."""
        if self._known is not self._intervals:
            self._sort()
        if not len(self._keys):
            return np.full(len(instruments), -1, np.int64)
        days = np.minimum(times // np.uint64(DAY_NS), np.uint64(_FAR_DAY - 1))
        numbers = instruments.astype(np.uint64)
        places = np.searchsorted(self._keys, numbers << np.uint64(32) | days, "right") - 1
        found = (places >= 0) & (self._keys[places] >> np.uint64(32) == numbers)
        found &= self._ends[places] > days.astype(np.int64)
        return np.where(found, places, -1)


def _letters(*names: str) -> list[tuple[str, str]]:
    return [(name, "u1") for name in names]


_HEADER = [("length", "u1"), ("type", "u1"), ("publisher", "<u2"), ("instrument", "<u4"), ("time", "<u8")]
_HEADER_BYTES = 16
_TAIL = [("received", "<u8"), ("delta", "<i4"), ("sequence", "<u4")]
_TRADE = np.dtype([*_HEADER, ("price", "<i8"), ("size", "<u4"), *_letters("action", "side", "flags", "depth"), *_TAIL])
_SIDES = [(f"{side}{what}", form) for what, form in (("", "<i8"), ("_size", "<u4")) for side in ("bid", "ask")]
_QUOTE = np.dtype([*((name, _TRADE[name]) for name in _TRADE.names or ()), *_SIDES, ("counts", "<u8")])
_ORDER = np.dtype(
    [
        *_HEADER,
        ("order", "<u8"),
        ("price", "<i8"),
        ("size", "<u4"),
        *_letters("flags", "channel", "action", "side"),
        *_TAIL,
    ]
)


class _Type(NamedTuple):
    """A type of records: its name, its bytes without the time of sending, and what we read of it."""

    name: str
    sizes: tuple[int, ...]
    layout: np.dtype[np.void] | None = None


_TRADES, _TOP, _TEN, _MBO, _MAPPING = 0x00, 0x01, 0x0A, 0xA0, 0x16
_TYPES = {
    _TRADES: _Type("trade", (48,), _TRADE),
    _TOP: _Type("mbp-1", (80,), _QUOTE),
    _TEN: _Type("mbp-10", (368,), _QUOTE),
    _MBO: _Type("mbo", (56,), _ORDER),
    _MAPPING: _Type("symbol mapping", (80, 176)),
    **{code: _Type("ohlcv", (56,)) for code in (0x11, 0x20, 0x21, 0x22, 0x23, 0x24)},
    0x12: _Type("status", (40,)),
    0x13: _Type("definition", (360, 400, 520)),
    0x14: _Type("imbalance", (112,)),
    0x15: _Type("error", (80, 320)),
    0x17: _Type("system", (80, 320)),
    0x18: _Type("statistics", (64, 80)),
    0xB1: _Type("cmbp-1", (80,)),
    0xC0: _Type("cbbo-1s", (80,)),
    0xC1: _Type("cbbo-1m", (80,)),
    0xC2: _Type("tcbbo", (80,)),
    0xC3: _Type("bbo-1s", (80,)),
    0xC4: _Type("bbo-1m", (80,)),
}
_OLD_MAPPING_BYTES = 80
_STAMP_BYTES = 8
_INSTANT_MAX = 1 << 24
"""Bytes that may wait for the rest of their instant."""
_NO_PRICE = (1 << 63) - 1
_TICK = 10 ** (9 - PRICE_DECIMALS)
_MAYBE_BAD, _NO_ORDER = 4, 64 | 16
_SIDE_OF = np.zeros(256, np.uint8)
_SIDE_OF[[ord("B"), ord("A")]] = Side.BUY, Side.SELL
_HIT = np.array([Side.NONE, Side.SELL, Side.BUY], np.uint8)
"""From who traded to who was hit."""
_BOOK_KINDS = {"A": EventKind.ORDER, "M": EventKind.REPLACE, "C": EventKind.CANCEL, "F": EventKind.EXECUTION}
_KIND_OF = np.zeros(256, np.uint8)
for _letter, _kind in {**_BOOK_KINDS, "T": EventKind.TRADE}.items():
    _KIND_OF[ord(_letter)] = _kind
_OTHER_ACTIONS = {ord("R"): "R the book is cleared", ord("N"): "N nothing happens"}

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Run:
    """Records of one type and length that follow each other."""

    code: int
    at: int
    size: int
    count: int
    first: int
    """How many records of the file stand before."""


@dataclass(slots=True)
class _Records:
    """Records of one type in a block; those that are not good have no event."""

    rows: npt.NDArray[Any]
    where: Indices
    number: Indices
    """In the file, from 1 on."""
    log: FeedLog
    good: Flags = field(init=False)

    def __post_init__(self) -> None:
        self.good = np.ones(len(self.rows), np.bool_)

    def refuse(self, which: Flags, kind: FeedFault, what: str) -> None:
        """Some records are wrong; one that was refused before is not counted twice."""
        bad = np.flatnonzero(which & self.good)
        if len(bad):
            self.log.fault(kind, int(self.where[bad[0]]), what, len(bad))
            self.good[bad] = False

    def leave_out(self, which: Flags, reason: str) -> None:
        """Some sound records have no event."""
        self.log.skip(reason, int(np.count_nonzero(which & self.good)))
        self.good &= ~which


class DbnDecoder:
    """Reads one file; FeedError if its schema is none that events can carry."""

    def __init__(self, log: FeedLog, floor: Mic | None = None) -> None:
        """`floor` is that of publishers whose numbers are not known."""
        self.log = log
        self._floors = _FLOORS if floor is None else np.where(_FLOORS == b"", floor.fixed, _FLOORS)
        self._names = _Names([])
        self._stamp_bytes = 0
        self._met = MetSymbols()
        self._watches: dict[int, ClockWatch] = {}
        self._count = 0
        self._doubtful = 0

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every floor and symbol that was met."""
        return self._met.directory

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """The events, a block for each chunk."""
        source = iter(chunks)
        rest, offset = self._begin(source)
        is_open = True
        while is_open:
            chunk = next(source, b"")
            self.log.bytes_read += len(chunk)
            whole = rest + chunk if rest else chunk
            events, done, is_open = self._decode(whole, offset, last=not chunk)
            rest, offset = whole[done:], offset + done
            if len(events):
                self._met.meet(events)
                yield events
        if self._doubtful:
            self.log.notes.append(f"{self._doubtful:,} records are marked as of a book that may be wrong")

    def _begin(self, source: Iterator[bytes]) -> tuple[bytes, int]:
        """Read the metadata; what is left of the bytes, and where it stands."""
        start = self._fetch(source, b"", _PREFIX_BYTES)
        if not begins_like_dbn(start) or len(start) < _PREFIX_BYTES:
            raise FeedError(self.log.file, "is no DBN file: it does not begin like one", 0)
        version, size = start[3], int.from_bytes(start[4:8], "little")
        if not 1 <= version <= _VERSION_MAX:
            raise FeedError(self.log.file, f"is DBN of version {version}; 1 to {_VERSION_MAX} are read", 3)
        if size > _METADATA_MAX:
            raise FeedError(self.log.file, f"is a damaged DBN file: metadata of {size:,} bytes", 4)
        end = _PREFIX_BYTES + size
        start = self._fetch(source, start, end)
        metadata = _read_metadata(version, start[_PREFIX_BYTES:end], self.log)
        if metadata.schema not in (*_READ, "mixed"):
            rule = f"holds {metadata.schema}, which is no stream of events; {', '.join(_READ)} are read"
            raise FeedError(self.log.file, rule, _PREFIX_BYTES + 16)
        self._names = _Names(metadata.intervals)
        self._stamp_bytes = _STAMP_BYTES if metadata.has_sent_time else 0
        return start[end:], end

    def _fetch(self, source: Iterator[bytes], start: bytes, size: int) -> bytes:
        pieces, held = [start], len(start)
        while held < size and (chunk := next(source, b"")):
            self.log.bytes_read += len(chunk)
            pieces.append(chunk)
            held += len(chunk)
        return b"".join(pieces)

    # ---- bytes to records

    def _decode(self, whole: bytes, offset: int, *, last: bool) -> tuple[EventArray, int, bool]:
        """The events of whole records, how many bytes are done with, and whether there may be more."""
        runs, done, is_sound = self._runs(whole, offset)
        if not last and is_sound:
            done = self._keep_instant(whole, runs, done)
        elif is_sound and done < len(whole):
            left = len(whole) - done
            self.log.fault(FeedFault.TRUNCATED, offset + done, f"the file ends {left} bytes into a record")
        self._count = runs[-1].first + runs[-1].count if runs else self._count
        taken: dict[int, list[_Run]] = {}
        for run in runs:
            if self._is_known(run, offset):
                taken.setdefault(run.code, []).append(run)
        for run in taken.get(_MAPPING, []):
            self._learn(whole, run)
        parts = [
            self._fill(code, self._gather(whole, offset, code, own))
            for code, own in taken.items()
            if _TYPES[code].layout is not None
        ]
        events = np.concatenate([np.empty(0, EVENT_DTYPE), *(made for made, _ in parts)])
        if len(parts) > 1:
            events = events[np.argsort(np.concatenate([order for _, order in parts]), kind="stable")]
        return events, done, is_sound and not last

    def _runs(self, whole: bytes, offset: int) -> tuple[list[_Run], int, bool]:
        """Records by runs, where the last whole one ends, and whether its length lets reading go on."""
        raw = np.frombuffer(whole, np.uint8)
        runs: list[_Run] = []
        at, number = 0, self._count
        while at + _HEADER_BYTES <= len(raw):
            size = int(raw[at]) * 4
            if size < _HEADER_BYTES:
                what = f"a record of {size} bytes, shorter than its header: the rest of the file is not read"
                self.log.fault(FeedFault.BAD_LENGTH, offset + at, what)
                return runs, at, False
            if at + size > len(raw):
                break
            code, most = int(raw[at + 1]), (len(raw) - at) // size
            count, step = 1, 1
            while count < most:  # Twice as many each time: runs are long, or short and cheap.
                upto = min(count + step, most)
                heads = raw[at + count * size : at + (upto - 1) * size + 2]
                differs = np.flatnonzero((heads[::size] != raw[at]) | (heads[1::size] != code))
                if len(differs):
                    count += int(differs[0])
                    break
                count, step = upto, step * 2
            runs.append(_Run(code, at, size, count, number))
            at, number = at + count * size, number + count
        return runs, at, True

    @staticmethod
    def _keep_instant(whole: bytes, runs: list[_Run], done: int) -> int:
        """Let the records of the last instant wait for the next block: fills and what they say belong together."""
        latest = b""
        kept = [_Run(run.code, run.at, run.size, run.count, run.first) for run in runs]
        end = done
        while kept:
            run = kept[-1]
            at = run.at + (run.count - 1) * run.size
            instant = whole[at + 8 : at + 16]
            if latest and instant != latest:
                runs[:] = kept
                return end
            latest, end = instant, at
            run.count -= 1
            if not run.count:
                kept.pop()
        if done < _INSTANT_MAX:
            runs.clear()
            return 0
        return done

    def _is_known(self, run: _Run, offset: int) -> bool:
        """Count the records of a run; those that nobody can read are wrong, those without events left out."""
        known = _TYPES.get(run.code)
        if known is None:
            what = f"a record of type 0x{run.code:02x}"
            self.log.fault(FeedFault.UNKNOWN_TYPE, offset + run.at, what, run.count)
            return False
        if run.size - self._stamp_bytes not in known.sizes and run.size not in known.sizes:
            what = f"{known.name}: a record of {run.size} bytes, not {' or '.join(map(str, known.sizes))}"
            self.log.fault(FeedFault.BAD_LENGTH, offset + run.at, what, run.count)
            return False
        self.log.took(known.name, run.count)
        if known.layout is None and run.code != _MAPPING:
            self.log.skip(f"{known.name}: no event carries it", run.count)
        return True

    def _learn(self, whole: bytes, run: _Run) -> None:
        """Records that say which symbol an instrument is: the symbols of a live session."""
        is_old = run.size - self._stamp_bytes == _OLD_MAPPING_BYTES or run.size == _OLD_MAPPING_BYTES
        place, size = (38, 22) if is_old else (89, 71)
        for at in range(run.at, run.at + run.count * run.size, run.size):
            instrument = int.from_bytes(whole[at + 4 : at + 8], "little")
            name = whole[at + place : at + place + size].split(b"\0")[0]
            self._names.learn(instrument, name.decode("utf-8", "replace"))

    def _gather(self, whole: bytes, offset: int, code: int, runs: list[_Run]) -> _Records:
        layout = _TYPES[code].layout
        rows = [np.ndarray((run.count,), layout, whole, run.at, (run.size,)) for run in runs]
        where = [offset + run.at + np.arange(run.count) * run.size for run in runs]
        number = [np.arange(run.first + 1, run.first + run.count + 1) for run in runs]
        return _Records(np.concatenate(rows), np.concatenate(where), np.concatenate(number), self.log)

    # ---- records to events

    def _fill(self, code: int, records: _Records) -> tuple[EventArray, Indices]:
        """The events of records of one type, and the number of the record of each."""
        base = self._base(records)
        if code == _MBO:
            self._fill_orders(base, records)
        elif code == _TRADES:
            other = records.rows["action"] != ord("T")
            records.refuse(other, FeedFault.BAD_VALUE, "a trade whose action is not T")
            self._fill_trades(base, records, np.ones(len(base), np.bool_))
        else:
            return self._fill_quotes(base, records, is_deep=code == _TEN)
        self._watch(records)
        return base[records.good], records.number[records.good]

    def _base(self, records: _Records) -> EventArray:
        """What all records have: time, floor and symbol."""
        rows = records.rows
        base = np.zeros(len(rows), EVENT_DTYPE)
        base["time"], base["quantity"], base["reference"] = rows["time"], rows["size"], rows["sequence"]
        base["id"] = records.number
        base["floor"] = self._floors[rows["publisher"]]
        # An instant of receipt decides on the day, as it sorts the file; without one that of the event does.
        received = np.where(rows["received"] < np.uint64(1 << 63), rows["received"], rows["time"])
        places = self._names.find(rows["instrument"], received)
        base["symbol"] = self._names.symbols[places]
        records.refuse(rows["time"] >= np.uint64(1 << 63), FeedFault.BAD_VALUE, "a record without a time")
        nowhere = np.flatnonzero(base["floor"] == b"")
        if len(nowhere):
            what = f"publisher {rows['publisher'][nowhere[0]]} is not known; give --as"
            records.refuse(base["floor"] == b"", FeedFault.BAD_VALUE, what)
        if (places < 0).any():
            what = "an instrument that the file gives no symbol"
            records.refuse(places < 0, FeedFault.UNKNOWN_SYMBOL, what)
        bad = base["symbol"] == b""
        if (bad & records.good).any():
            name = self._names.texts[places[np.flatnonzero(bad & records.good)[0]]]
            what = f"symbol {name[:40]!r}: 1 to {SYMBOL_BYTES} printable characters are carried"
            records.refuse(bad, FeedFault.BAD_VALUE, what)
        self._doubtful += int(np.count_nonzero(rows["flags"] & _MAYBE_BAD))
        return base

    def _watch(self, records: _Records) -> None:
        """Time must not step back at any publisher."""
        for publisher in np.unique(records.rows["publisher"]).tolist():
            own = records.good & (records.rows["publisher"] == publisher)
            watch = self._watches.setdefault(publisher, ClockWatch(self.log))
            watch.see(records.rows["time"][own], records.where[own])

    @staticmethod
    def _ticks(records: _Records, name: str, needed: Flags) -> npt.NDArray[np.int64]:
        """A column of prices; 0 where there is none. Where one is needed, it must be there."""
        nanos = records.rows[name]
        none = nanos == _NO_PRICE
        records.refuse(needed & none, FeedFault.BAD_VALUE, "a price is missing")
        finer = ~none & (nanos % _TICK != 0)
        records.refuse(finer, FeedFault.BAD_VALUE, f"a price finer than 10^-{PRICE_DECIMALS}")
        return np.where(none, 0, nanos // _TICK)

    def _fill_trades(self, base: EventArray, records: _Records, own: Flags) -> None:
        base["price"] = np.where(own, self._ticks(records, "price", own), 0)
        base["kind"] = EventKind.TRADE
        base["side"] = _HIT[_SIDE_OF[records.rows["side"]]]
        records.refuse(own & (records.rows["size"] == 0), FeedFault.BAD_VALUE, "a trade of no shares")

    def _fill_quotes(self, base: EventArray, records: _Records, *, is_deep: bool) -> tuple[EventArray, Indices]:
        """The best of both sides, and behind them the trade, if it is one; in tbbo they stood before it."""
        rows, own = records.rows, records.rows["action"] == ord("T")
        bid, ask = (self._ticks(records, side, np.zeros(len(base), np.bool_)) for side in ("bid", "ask"))
        records.rows["price"][~own] = 0
        self._fill_trades(base, records, own)
        each = np.repeat(base, 3)
        for place, side, prices, sizes in (
            (0, Side.BUY, bid, rows["bid_size"]),
            (1, Side.SELL, ask, rows["ask_size"]),
        ):
            quotes = each[place::3]
            quotes["kind"], quotes["side"], quotes["price"] = EventKind.QUOTE, side, prices
            quotes["quantity"] = np.where(prices == 0, 0, sizes)
            quotes["reference"] = quotes["id"] = 0
        each["flags"][0::3] = EventFlag.LINKED
        kept = np.repeat(records.good, 3)
        kept[2::3] &= own
        if is_deep:
            self.log.skip("mbp-10: all prices below the best", int(np.count_nonzero(records.good)))
        self._watch(records)
        return each[kept], np.repeat(records.number, 3)[kept]

    def _fill_orders(self, base: EventArray, records: _Records) -> None:
        rows = records.rows
        kinds = _KIND_OF[rows["action"]]
        for code, reason in _OTHER_ACTIONS.items():
            records.leave_out(rows["action"] == code, f"mbo {reason}: no event carries it")
        records.refuse(kinds == 0, FeedFault.BAD_VALUE, "an action that is none of A, M, C, F, T, R, N")
        records.leave_out((rows["flags"] & _NO_ORDER) > 0, "mbo: levels of a book that are no orders")
        sides = _SIDE_OF[rows["side"]]
        about_order = np.isin(kinds, [int(kind) for kind in _BOOK_KINDS.values()])
        sided = about_order & (kinds != EventKind.CANCEL)
        records.refuse(sided & (sides == 0), FeedFault.BAD_VALUE, "an order whose side is neither A nor B")
        records.refuse(rows["size"] == 0, FeedFault.BAD_VALUE, "an action of no shares")
        priced = kinds != EventKind.CANCEL
        records.rows["price"][~priced] = 0
        base["price"] = self._ticks(records, "price", priced)
        base["kind"] = kinds
        base["side"] = np.where(kinds == EventKind.TRADE, _HIT[sides], np.where(sided, sides, 0))
        base["id"][about_order] = rows["order"][about_order]
        base["reference"][about_order & (kinds != EventKind.EXECUTION)] = 0
        self._settle_fills(base, records)

    @staticmethod
    def _settle_fills(base: EventArray, records: _Records) -> None:
        """What fills say already is left out: their trades, and the cancels by which DBN takes shares away."""
        fills = records.good & (base["kind"] == EventKind.EXECUTION)
        instants = np.unique(records.rows["time"][fills])
        if not len(instants):
            return
        at = np.minimum(np.searchsorted(instants, records.rows["time"]), len(instants) - 1)
        near = np.flatnonzero(records.good & (instants[at] == records.rows["time"]))
        rows, kinds = records.rows[near], base["kind"][near]
        sizes = rows["size"].astype(np.int64)
        fills, trades, cancels = (kinds == kind for kind in (EventKind.EXECUTION, EventKind.TRADE, EventKind.CANCEL))
        moments = _groups(rows["time"], rows["instrument"], rows["publisher"], rows["sequence"])
        told, traded = (np.bincount(moments[which], sizes[which], len(rows))[moments] for which in (fills, trades))
        orders = _groups(rows["time"], rows["instrument"], rows["publisher"], rows["order"])
        filled = np.bincount(orders[fills], sizes[fills], len(rows)).astype(np.int64)[orders]
        cancels &= filled > 0
        for which, reason in (
            (trades & (told > 0) & (told != traded), "mbo T: fills carry the trade, of another number of shares"),
            (trades & (told == traded), "mbo T: fills carry the trade"),
            (cancels & (sizes <= filled), "mbo C: a fill took the shares away"),
        ):
            out = np.zeros(len(base), np.bool_)
            out[near[which]] = True
            records.leave_out(out, reason)
        base["quantity"][near[cancels]] = np.maximum(sizes - filled, 0)[cancels]


def _groups(*columns: npt.NDArray[Any]) -> Indices:
    """A number for each row; rows that agree in all columns have the same."""
    order = np.lexsort(columns)
    differs = np.zeros(len(order), np.bool_)
    for column in columns:
        differs[1:] |= column[order][1:] != column[order][:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(differs)
    return numbers
