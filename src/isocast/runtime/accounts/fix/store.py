"""The numbers and sent messages of FIX sessions, in a SQLite file that survives both ends of a session.

A session is (account, their CompID, our CompID): a CompID that somebody else's account uses as well is another session,
so that nobody can ask for what was sent to another. Only application messages are kept, as they were sent; the other
numbers are filled when they are asked for. Changes of all sessions that come together share one transaction, made by a
thread of its own, and are durable when `write` returns: nothing is sent before.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from isocast.terms.errors import StoreError, StoreGone

__all__ = ["KEPT_MAX", "SESSIONS_MAX", "Change", "Kept", "SessionName", "SessionStore"]

KEPT_MAX: Final = 100_000
"""Sent messages of a session: at 400 bytes each 40 MB. Older ones are gap filled when they are asked for."""
SESSIONS_MAX: Final = 64
"""Of one account: whoever logs on under ever new CompIDs fills no disk."""
_PRUNED_EVERY: Final = 1_000
_APPLICATION: Final = 0x15065449
"""Marks our files among SQLite's: any number that others do not use."""
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL, theirs TEXT NOT NULL, ours TEXT NOT NULL,
    next_in INTEGER NOT NULL, next_out INTEGER NOT NULL, report INTEGER NOT NULL,
    UNIQUE (account, theirs, ours)
);
CREATE TABLE message (
    session INTEGER NOT NULL, number INTEGER NOT NULL, frame BLOB NOT NULL, PRIMARY KEY (session, number)
) WITHOUT ROWID;
"""
ResultT = TypeVar("ResultT")


class SessionName(NamedTuple):
    """Whose session it is."""

    account: int
    theirs: str
    ours: str


class Kept(NamedTuple):
    """Where a session stands."""

    id: int
    next_in: int
    next_out: int
    report: int
    """The last report of the account that was sent."""


@dataclass(slots=True)
class Change:
    """What becomes durable together, of one session."""

    session: int
    next_in: int
    next_out: int
    report: int
    forgets: bool = False
    """What was kept goes before `frames` come."""
    frames: list[tuple[int, bytes]] = field(default_factory=list)


class SessionStore:
    """One file, for all sessions of a gateway. Its methods are for one event loop."""

    def __init__(self, path: Path, *, is_new: bool) -> None:
        """Open it; StoreError if it is damaged, another's, or gone.

        `is_new` says that the gateway has never run: then there must be none, and it is made. Without it a store that
        is gone is not made up again, because everybody's numbers would begin at 1.
        """
        self._path = path
        self._waiting: list[tuple[Change, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "fix-store")
        try:
            self._file = self._thread.submit(self._open, is_new).result()
        except BaseException:
            self._thread.shutdown()
            raise

    async def load(self, name: SessionName, report: int = 0) -> Kept | None:
        """Where a session stands, which begins after this report if it is new; None if the account has too many."""
        return await self._run(lambda: self._load(name, report))

    async def write(self, change: Change) -> None:
        """Make a change durable, together with those of others that come now; StoreError if that fails."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        await done

    async def read(self, session: int, first: int, last: int, limit: int = 500) -> list[tuple[int, bytes]]:
        """What was kept of these numbers, both included, in order; at most `limit`."""
        return await self._run(lambda: self._read(session, first, last, limit))

    async def close(self) -> None:
        """Write what waits, and close the file."""
        if self._writer is not None:
            await self._writer
        await self._run(self._file.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)

    async def _write_all(self) -> None:
        """One transaction after the other, while there is something to write."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            trouble: Exception | None = None
            try:
                await self._run(lambda changes=tuple(change for change, _ in batch): self._apply(changes))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are told.
                trouble = error
            for _, done in batch:
                if done.cancelled():
                    continue
                if trouble is None:
                    done.set_result(None)
                else:
                    done.set_exception(trouble)
        self._writer = None

    # ---- in the thread

    def _guarded(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            return work()
        except sqlite3.Error as error:
            raise StoreError(str(self._path), f"does not do its work: {error}; is the disk full or damaged?") from None

    def _open(self, is_new: bool) -> sqlite3.Connection:  # noqa: FBT001
        path = self._path
        if is_new == path.exists():
            there = "is there already: start without saying that it is new, or move it away"
            gone = (
                "is gone: restore it, or say that it is new; then every session begins at 1 and hears only what comes,"
                " and its client must reset its own numbers and ask how its orders stand"
            )
            raise StoreError(str(path), there if is_new else gone)
        try:
            if is_new:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            file = sqlite3.connect(path, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(str(path), f"cannot be opened: {error}") from None
        try:
            self._inode = path.stat().st_ino
            _prepare(file, is_new=is_new)
        except (sqlite3.Error, ValueError) as error:
            file.close()
            rule = f"is damaged, or is no store of FIX sessions ({error}): restore it from a copy"
            raise StoreError(str(path), rule) from None
        return file

    def _load(self, name: SessionName, report: int) -> Kept | None:
        found = self._file.execute(
            "SELECT id, next_in, next_out, report FROM session WHERE account = ? AND theirs = ? AND ours = ?", name
        ).fetchone()
        if found is not None:
            return Kept(*found)
        (count,) = self._file.execute("SELECT count(*) FROM session WHERE account = ?", (name.account,)).fetchone()
        if count >= SESSIONS_MAX:
            return None
        made = self._file.execute(
            "INSERT INTO session (account, theirs, ours, next_in, next_out, report) VALUES (?, ?, ?, 1, 1, ?)",
            (*name, report),
        )
        return Kept(made.lastrowid or 0, 1, 1, report)

    def _read(self, session: int, first: int, last: int, limit: int) -> list[tuple[int, bytes]]:
        return self._file.execute(
            "SELECT number, frame FROM message WHERE session = ? AND number BETWEEN ? AND ? ORDER BY number LIMIT ?",
            (session, first, last, limit),
        ).fetchall()

    def _apply(self, changes: tuple[Change, ...]) -> None:
        try:
            is_ours = self._path.stat().st_ino == self._inode
        except OSError:
            is_ours = False
        if not is_ours:
            raise StoreGone(str(self._path), "was removed or replaced while it was in use: stop, and restore it")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                self._apply_one(change)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def _apply_one(self, change: Change) -> None:
        run = self._file.execute
        if change.forgets:
            run("DELETE FROM message WHERE session = ?", (change.session,))
        self._file.executemany(
            "INSERT OR REPLACE INTO message (session, number, frame) VALUES (?, ?, ?)",
            [(change.session, number, frame) for number, frame in change.frames],
        )
        run(
            "UPDATE session SET next_in = ?, next_out = ?, report = max(report, ?) WHERE id = ?",
            (change.next_in, change.next_out, change.report, change.session),
        )
        if any(number % _PRUNED_EVERY == 0 for number, _ in change.frames):
            oldest = change.next_out - KEPT_MAX
            run("DELETE FROM message WHERE session = ? AND number < ?", (change.session, oldest))


def _prepare(file: sqlite3.Connection, *, is_new: bool) -> None:
    """ValueError or sqlite3.Error if it is not sound."""
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = FULL")
    if is_new:
        file.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
        )
    (mark,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if mark != _APPLICATION:
        raise ValueError("another program's file")
    if version != _VERSION:
        raise ValueError(f"version {version}, and this program reads {_VERSION}")
    (health,) = file.execute("PRAGMA quick_check(1)").fetchone()
    if health != "ok":
        raise ValueError(health)
