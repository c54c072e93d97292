"""What an exchange has yet to answer, and up to where the sequence was heard: one SQLite file.

Requests and the position behind them are one transaction, so that after a crash the sequence goes on exactly there. A
request stays until the exchange's first report of it is published; an order stays until a report says that it has
ended. So the file holds what is under way and nothing else, however long the exchange has been served.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from isocast.floor.codec import decode_event, encode_event
from isocast.floor.events import Order, Replace
from isocast.orders.delivery import Place
from isocast.orders.desk import ReportKind
from isocast.orders.exchange import ExchangeAnswer
from isocast.runtime.exchange.directing import Declined, Directed, Entered, direct, replaced
from isocast.terms.errors import RemoteProtocolError, StoreError

__all__ = ["HeardMessage", "Spool", "SpoolState", "Spooled"]

_APPLICATION: Final = 0x15065458
"""Marks our files among SQLite's: any number that others do not use."""
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE position (
    exchange TEXT PRIMARY KEY, stripe INTEGER NOT NULL, sequence INTEGER NOT NULL, unreadable INTEGER NOT NULL
);
CREATE TABLE request (
    place INTEGER PRIMARY KEY, instant INTEGER NOT NULL, event BLOB NOT NULL,
    entered INTEGER NOT NULL, terms BLOB NOT NULL, latest INTEGER NOT NULL, declined TEXT NOT NULL
);
CREATE TABLE entered (
    place INTEGER PRIMARY KEY, id BLOB NOT NULL, terms BLOB NOT NULL, latest INTEGER NOT NULL
);
CREATE INDEX entered_id ON entered (id);
CREATE INDEX entered_latest ON entered (latest);
"""
ResultT = TypeVar("ResultT")


class HeardMessage(NamedTuple):
    """A message of the exchange's topic, as the sequence has it."""

    place: Place
    instant: int
    """T_t."""
    payload: bytes


class Spooled(NamedTuple):
    """A request that is not answered."""

    directed: Directed
    instant: int


class SpoolState(NamedTuple):
    """Where an exchange stands."""

    exchange: str
    stripe: int
    sequence: int
    """Up to which the sequence was heard."""
    waiting: int
    """Requests without a report."""
    oldest: Place | None
    """Of them: everything before it is acknowledged."""
    live: int
    """Orders that have not ended."""
    unreadable: int
    """Messages of the topic that are no event."""


class Spool:
    """One exchange's file. One thread at a time."""

    def __init__(self, path: Path, exchange: str, *, stripe: int | None = None, is_new: bool) -> None:
        """Open it; StoreError if it is damaged, another's, or gone. `is_new`: there must be none, and it is made.

        Without a stripe, it may be of any.
        """
        self._path = path
        self._exchange = exchange
        if is_new == path.exists():
            there = "is there already: it goes on from its position"
            gone = "is gone: restore it; a new one would deliver every order again"
            raise StoreError(str(path), there if is_new else gone)
        try:
            if is_new:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(str(path), f"cannot be opened: {error}") from None
        try:
            _prepare(self._file, exchange, stripe, is_new=is_new)
        except (sqlite3.Error, ValueError) as error:
            self._file.close()
            raise StoreError(str(path), f"is no spool of exchange {exchange}, or damaged: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # The sequence -----------------------------------------------------------------------------------------------

    def take(self, messages: Iterable[HeardMessage], sequence: int) -> list[Declined]:
        """Keep what is directed to the exchange, and that everything up to a sequence was heard; what is declined.

        What was heard before changes nothing.
        """
        declined: list[Declined] = []
        with self._changing() as run:
            ((known,),) = run("SELECT sequence FROM position").fetchall()
            for message in messages:
                if message.place.sequence > known:
                    declined += self._keep(message)
            run("UPDATE position SET sequence = max(sequence, ?)", (sequence,))
        return declined

    def _keep(self, message: HeardMessage) -> list[Declined]:
        run = self._file.execute
        try:
            event = decode_event(message.payload)
        except RemoteProtocolError:
            run("UPDATE position SET unreadable = unreadable + 1")
            return []
        found = direct(message.place, event, self._known(getattr(event, "id", 0)))
        number = message.place.number
        match found:
            case Declined():
                row = (number, message.instant, message.payload, 0, b"", 0, found.reason)
                run("INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                return [found]
            case Directed(_, request, entered):
                terms = encode_event(entered.order)
                row = (number, message.instant, message.payload, entered.place.number, terms, entered.latest.number, "")
                run("INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                if isinstance(request, Order):
                    run("INSERT INTO entered VALUES (?, ?, ?, ?)", (number, _id(request.id), terms, number))
                elif isinstance(request, Replace):
                    self._change(replaced(entered, message.place, request))
            case None:
                pass
        return []

    def _known(self, number: int) -> Entered | None:
        query = "SELECT place, terms, latest FROM entered WHERE id = ? ORDER BY place LIMIT 1"
        row = self._file.execute(query, (_id(number),)).fetchone()
        return None if row is None else _entered(*row)

    def _change(self, entered: Entered) -> None:
        row = encode_event(entered.order), entered.latest.number, entered.place.number
        self._file.execute("UPDATE entered SET terms = ?, latest = ? WHERE place = ?", row)

    # The exchange -----------------------------------------------------------------------------------------------

    def requests(self, after: int, limit: int, before: int = 1 << 62) -> list[Spooled]:
        """What is to be delivered behind a place, in the order of the sequence; places are numbers here."""
        query = (
            "SELECT place, instant, event, entered, terms, latest FROM request"
            " WHERE place > ? AND place < ? AND declined = '' ORDER BY place LIMIT ?"
        )
        with self._errors():
            rows = self._file.execute(query, (after, before, limit)).fetchall()
        return [
            Spooled(
                Directed(Place.of_number(place), decode_event(event), _entered(at, terms, latest)),  # type: ignore[arg-type]  # as `direct` had it
                instant,
            )
            for place, instant, event, at, terms, latest in rows
        ]

    def declined(self) -> list[Declined]:
        """What is declined, and not published yet."""
        query = "SELECT place, declined FROM request WHERE declined <> '' ORDER BY place"
        with self._errors():
            return [Declined(Place.of_number(place), why) for place, why in self._file.execute(query)]

    def waiting(self, up_to: int = 1 << 62) -> int:
        """How many requests, up to a place, have no report."""
        with self._errors():
            query = "SELECT count(*) FROM request WHERE place <= ?"
            return int(self._file.execute(query, (up_to,)).fetchone()[0])

    def is_waiting(self, place: Place) -> bool:
        """Whether a request has no report."""
        with self._errors():
            query = "SELECT 1 FROM request WHERE place = ?"
            return self._file.execute(query, (place.number,)).fetchone() is not None

    def answered(self, answers: Sequence[ExchangeAnswer]) -> None:
        """Reports are published: what they answer is done with."""
        with self._changing():
            for answer in answers:
                self._answered(answer)

    def _answered(self, answer: ExchangeAnswer) -> None:
        run, number = self._file.execute, answer.order.number
        row = run("SELECT event, entered, terms, latest FROM request WHERE place = ?", (number,)).fetchone()
        run("DELETE FROM request WHERE place = ?", (number,))
        if answer.is_declined:
            return
        if answer.status.is_final:
            run("DELETE FROM entered WHERE place = ? OR latest = ?", (number, number))
            if answer.original is not None:
                of = answer.original.number
                run("DELETE FROM entered WHERE place = ? OR latest = ?", (of, of))
            elif row is not None:
                run("DELETE FROM entered WHERE place = ?", (row[1],))
        elif answer.kind is ReportKind.CHANGE_REFUSED and row is not None:
            # The order is as it was, unless something has changed it since.
            _, place, terms, latest = row
            run(
                "UPDATE entered SET terms = ?, latest = ? WHERE place = ? AND latest = ?",
                (terms, latest, place, number),
            )

    def state(self) -> SpoolState:
        """Where it stands."""
        with self._errors():
            run = self._file.execute
            code, stripe, sequence, unreadable = run("SELECT * FROM position").fetchone()
            waiting, oldest = run("SELECT count(*), min(place) FROM request").fetchone()
            (live,) = run("SELECT count(*) FROM entered").fetchone()
        first = None if oldest is None else Place.of_number(oldest)
        return SpoolState(code, stripe, sequence, waiting, first, live, unreadable)

    @contextmanager
    def _changing(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        with self._errors():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield self._file.execute
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(str(self._path), f"does not do its work: {error}; is the disk full or damaged?") from None


def _id(number: int) -> bytes:
    """64 bits without a sign, which SQLite's numbers do not have."""
    return number.to_bytes(8)


def _entered(place: int, terms: bytes, latest: int) -> Entered:
    order = decode_event(terms)
    if not isinstance(order, Order):
        raise RemoteProtocolError("the spool has an order that is none")
    return Entered(Place.of_number(place), order, Place.of_number(latest))


def _prepare(file: sqlite3.Connection, exchange: str, stripe: int | None, *, is_new: bool) -> None:
    """ValueError or sqlite3.Error if it is not sound."""
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = FULL")
    if is_new:
        file.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
        )
        file.execute("INSERT INTO position VALUES (?, ?, 0, 0)", (exchange, stripe or 0))
    (mark,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    (health,) = file.execute("PRAGMA quick_check(1)").fetchone()
    if mark != _APPLICATION:
        raise ValueError("another program's file")
    if version != _VERSION:
        raise ValueError(f"version {version}, and this program reads {_VERSION}")
    if health != "ok":
        raise ValueError(health)
    (whose, where) = file.execute("SELECT exchange, stripe FROM position").fetchone()
    if whose != exchange or stripe not in (None, where):
        raise ValueError(f"it is of exchange {whose} in stripe {where}")
