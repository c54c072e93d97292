"""A tape as bytes: versioned, checked, and one spelling for each state, so that equal tapes have equal snapshots.

    | magic 8 | version u32 | tables u32 | description bytes u64 | SHA-256 of what follows 32 |
    | description: JSON | tables of fixed records, one after the other |

Little-endian. The description has the position, the counts and the faults, and how many records each table has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from struct import Struct
from typing import NoReturn

import numpy as np

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import EventKind
from isocast.ticker.faults import NAMES_KEPT, FaultBook, FaultName, TapeFault
from isocast.ticker.quotes import CROSSED
from isocast.ticker.records import FLOOR_DTYPE, LINE_DTYPE, SYMBOL_DTYPE, TRADE_DTYPE, Records, TradeState
from isocast.ticker.trades import ORIGINAL_DTYPE

__all__ = ["KINDS", "SNAPSHOT_VERSION", "TapeState", "pack_state", "unpack_state"]

SNAPSHOT_VERSION = 1
KINDS = max(EventKind) + 1
"""Of events, each counted."""
_COUNT_END = 1 << 63
_MAGIC = b"ISOTAPE\n"
_HEADER = Struct("<8sIIQ32s")
_TABLES = (FLOOR_DTYPE, SYMBOL_DTYPE, LINE_DTYPE, TRADE_DTYPE, ORIGINAL_DTYPE)
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
    """Floors, symbols, lines, trades, and what corrected trades were at first."""
    positions: dict[int, int] = field(default_factory=dict)
    """Of several stripes: the newest sequence of each."""


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
    text = json.dumps(description, sort_keys=True, separators=(",", ":")).encode("ascii")
    body = b"".join([text, *(table.tobytes() for table in state.tables)])
    header = _HEADER.pack(_MAGIC, SNAPSHOT_VERSION, len(_TABLES), len(text), sha256(body).digest())
    return header + body


def unpack_state(raw: bytes) -> TapeState:
    """The state in bytes that somebody else wrote."""
    if len(raw) < _HEADER.size:
        _refuse(f"{len(raw)} bytes are no snapshot of a tape")
    magic, version, tables, length, digest = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        _refuse("this is no snapshot of a tape")
    if version != SNAPSHOT_VERSION or tables != len(_TABLES):
        _refuse(f"a tape's snapshot of version {version}; version {SNAPSHOT_VERSION} is read here")
    body = memoryview(raw)[_HEADER.size :]
    if not compare_digest(sha256(body).digest(), digest):
        _refuse("a tape's snapshot is damaged or cut short")
    if length > min(len(body), _DESCRIPTION_LIMIT):
        _refuse("a tape's snapshot contradicts itself")
    try:
        state = _read(json.loads(bytes(body[:length])), body[length:])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as reason:
        raise RemoteProtocolError("a tape's snapshot has a description that nobody wrote here") from reason
    _check(*state.tables)
    return state


def _read(description: dict[str, object], rest: memoryview) -> TapeState:
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
    for dtype, count in zip(_TABLES, map(int, records), strict=True):
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
    return TapeState(sequence, events, kinds, faults, tuple(tables), places)


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


def _within(numbers: Records, least: int, below: int) -> bool:
    return not len(numbers) or bool(int(numbers.min()) >= least and int(numbers.max()) < below)


def _is_text(words: Records) -> bool:
    """Names that are there once each, in ASCII."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    return bool((raw < _ASCII).all()) and len(np.unique(words)) == len(words)


def _refuse(what: str) -> NoReturn:
    raise RemoteProtocolError(what)
