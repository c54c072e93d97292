"""What one WebSocket client is to be told next: a snapshot, then events; less of them when it does not keep up.

Rows wait in a bounded queue. When it is full it is emptied: the client is told how many rows it did not get and gets a
snapshot instead, as soon as it takes anything at all. So nobody's slowness costs memory, or touches anybody else.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.hierarchy.latest import LatestTable
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import Symbol
from isocast.wire.events import EventArray

__all__ = ["ROWS_MAX", "SNAPSHOT_ROWS", "SYMBOLS_MAX", "Row", "WebClient", "read_wish"]

Row: TypeAlias = Callable[[tuple[int, int, int, bytes, bytes, int, int, int, int, int]], dict[str, object]]
"""An event of `events.tolist()` by names, as programs read it."""

ROWS_MAX = 20_000
"""Rows that wait for one client: some 5 MB."""
SNAPSHOT_ROWS = 2_000
"""In one message."""
SYMBOLS_MAX = 10_000
"""For one client; more is everything."""
_EVERYTHING = "*"
_WORDS = ("subscribe", "unsubscribe")
_NOTICES_MAX = 16


class _Waiting(NamedTuple):
    first: int
    last: int
    rows: list[str]


def read_wish(raw: str | bytes) -> dict[str, list[str]]:
    """Symbols under subscribe and unsubscribe, as a client asks for them; RemoteProtocolError for anything else."""
    if isinstance(raw, bytes):
        raise RemoteProtocolError("text is wanted, not bytes")
    try:
        wish = json.loads(raw)
    except (ValueError, RecursionError):
        raise RemoteProtocolError("this is not JSON") from None
    if not isinstance(wish, dict) or not wish or not set(wish) <= set(_WORDS):
        raise RemoteProtocolError('an object is wanted, such as {"subscribe": ["IBM"]}')
    return {word: _symbols(names) for word, names in wish.items()}


def _symbols(names: object) -> list[str]:
    if names == _EVERYTHING:
        return [_EVERYTHING]
    if not isinstance(names, list) or len(names) > SYMBOLS_MAX:
        raise RemoteProtocolError(f'a list of at most {SYMBOLS_MAX:,} symbols is wanted, or "*"')
    try:
        return [str(Symbol(name)) for name in names if isinstance(name, str) or _refuse(name)]
    except LocalProtocolError as reason:
        raise RemoteProtocolError(str(reason)) from None


def _refuse(name: object) -> bool:
    raise RemoteProtocolError(f"{name!r} is no symbol")


class WebClient:
    """One client's wishes and what waits for it."""

    def __init__(self, row: Row, rows_max: int = ROWS_MAX) -> None:
        """It has asked for nothing yet."""
        self.missed = 0
        """Rows that it did not get, in all."""
        self._row = row
        self._rows_max = rows_max
        self._everything = False
        self._symbols: set[str] = set()
        self._wanted: npt.NDArray[np.bytes_] = np.empty(0, "S8")
        self._waiting: deque[_Waiting] = deque()
        self._rows = 0
        self._missed: tuple[int, int, int] | None = None
        self._snapshot_wanted = False
        self._parts: Iterator[str] | None = None
        self._notices: deque[str] = deque(maxlen=_NOTICES_MAX)
        self._beat: str | None = None

    @property
    def is_subscribed(self) -> bool:
        """Whether it wants anything."""
        return self._everything or bool(self._symbols)

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell."""
        return bool(
            self._notices or self._parts or self._snapshot_wanted or self._missed or self._waiting or self._beat
        )

    # ---- what it says

    def wish(self, raw: str | bytes) -> None:
        """A message of the client; one that is wrong is answered, and changes nothing."""
        try:
            wish = read_wish(raw)
            symbols = self._after(wish)
        except RemoteProtocolError as reason:
            self._notices.append(json.dumps({"type": "error", "text": str(reason)}))
            return
        if _EVERYTHING in wish.get("unsubscribe", ()):
            self._everything, symbols = False, set()
        if _EVERYTHING in wish.get("subscribe", ()):
            self._everything = True
        self._symbols = symbols
        self._wanted = np.array(sorted(symbols), "S8")
        self._waiting.clear()
        self._rows, self._parts, self._missed = 0, None, None
        self._snapshot_wanted = self.is_subscribed

    def _after(self, wish: dict[str, list[str]]) -> set[str]:
        symbols = self._symbols | (set(wish.get("subscribe", ())) - {_EVERYTHING})
        symbols -= set(wish.get("unsubscribe", ()))
        if len(symbols) > SYMBOLS_MAX:
            raise RemoteProtocolError(f'more than {SYMBOLS_MAX:,} symbols: subscribe to "*"')
        return symbols

    # ---- what happens

    def chosen(self, events: EventArray) -> npt.NDArray[np.bool_]:
        """Which of them it wants; events of a whole floor are everybody's."""
        if self._everything:
            return np.ones(len(events), np.bool_)
        found: npt.NDArray[np.bool_] = np.isin(events["symbol"], self._wanted) | (events["symbol"] == b"")
        return found

    def add(self, first: int, last: int, rows: Sequence[str]) -> None:
        """Rows of messages that followed; kept if there is room and no snapshot will tell them anyway."""
        if not rows or self._snapshot_wanted:
            return
        if self._missed or self._rows + len(rows) > self._rows_max:
            lost = self._rows + len(rows)
            begun, count = (self._missed[0], self._missed[2]) if self._missed else (self._first(first), 0)
            self._missed = begun, last, count + lost
            self.missed += lost
            self._waiting.clear()
            self._rows = 0
            return
        self._waiting.append(_Waiting(first, last, list(rows)))
        self._rows += len(rows)

    def _first(self, otherwise: int) -> int:
        return self._waiting[0].first if self._waiting else otherwise

    def beat(self, text: str) -> None:
        """Something to say if nothing else is."""
        self._beat = text

    # ---- what it is told

    def next_text(self, table: LatestTable) -> str | None:
        """The next message for it; None if there is nothing."""
        beat, self._beat = self._beat, None
        if self._notices:
            return self._notices.popleft()
        if self._parts is not None:
            part = next(self._parts, None)
            if part is not None:
                return part
            self._parts = None
        if self._missed is not None:
            first, last, count = self._missed
            self._missed, self._parts = None, None
            self._snapshot_wanted = True
            return json.dumps({"type": "conflated", "first": first, "last": last, "rows": count})
        if self._snapshot_wanted:
            # Everything that waits is in the table already.
            self._snapshot_wanted = False
            self._waiting.clear()
            self._rows = 0
            self._parts = self._snapshot(table)
            return next(self._parts)
        return self._events() or beat

    def _events(self) -> str | None:
        if not self._waiting:
            return None
        rows: list[str] = []
        first, last = self._waiting[0].first, 0
        while self._waiting and len(rows) < SNAPSHOT_ROWS:
            some = self._waiting.popleft()
            rows += some.rows
            last = some.last
        self._rows -= len(rows)
        return f'{{"type": "events", "first": {first}, "last": {last}, "rows": [{", ".join(rows)}]}}'

    def _snapshot(self, table: LatestTable) -> Iterator[str]:
        snapshot = table.snapshot()
        events = snapshot.events
        events = events[self.chosen(events)]
        parts = max(-(-len(events) // SNAPSHOT_ROWS), 1)
        for part in range(parts):
            rows = [self._row(event) for event in events[part * SNAPSHOT_ROWS : (part + 1) * SNAPSHOT_ROWS].tolist()]
            head = {"type": "snapshot", "sequence": snapshot.next_sequence - 1, "part": part + 1, "parts": parts}
            yield json.dumps({**head, "rows": rows})
