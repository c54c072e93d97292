"""A relational database, in SQLite or PostgreSQL, with one writer at a time.

Every change takes one lock, and what it read cannot have changed before it writes: no order is numbered twice, no
money spent twice. Where changes are many, they share a transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, Text, create_engine, event, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from isocast.terms.errors import ConfigurationError, IsocastError

__all__ = ["NAME_LENGTH", "WRITER", "Database", "settings_table", "sqlite_url"]

NAME_LENGTH = 64
WRITER = "writer"
"""The row of the settings that a writer locks."""
_WAIT_S = 30
"""For the lock of a writer: thousands of changes."""
_CONNECT_S = 10
_SCHEMES = ("sqlite", "postgresql")
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "secure_delete = ON",
    "cache_size = -65536",  # KiB at most: pages of a million accounts' indexes are read once, not for each order.
    "wal_autocheckpoint = 16384",  # Pages, 64 MiB: one that many transactions change is copied back once.
)


def settings_table(tables: MetaData) -> Table:
    """Names and values that are about the database as a whole."""
    return Table(
        "settings",
        tables,
        Column("name", String(NAME_LENGTH), primary_key=True),
        Column("value", Text, nullable=False),
    )


def sqlite_url(path: Path) -> str:
    """The URL of a database in a file."""
    return URL.create("sqlite", database=str(path)).render_as_string()


class Database:
    """One database; threads may share it."""

    def __init__(self, url: str, keeper: str, settings: Table, refusal: Callable[[str], IsocastError]) -> None:
        """`sqlite:///FILE` or `postgresql://…`; ConfigurationError, without its password, for any other.

        `keeper` is whose it is, in errors; `refusal` makes the error for a database that does not do it.
        """
        place = _checked(url, keeper)
        self.place = place.render_as_string(hide_password=True)
        self.is_sqlite = place.get_backend_name() == "sqlite"
        self._settings = settings
        self._refusal = refusal
        try:
            self._engine = _sqlite_engine(place) if self.is_sqlite else _postgresql_engine(place)
        except ModuleNotFoundError:
            rule = "needs the package psycopg: pip install isocast[postgres]"
            raise ConfigurationError(keeper, "database", rule) from None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def wait_at_most(self, seconds: float) -> None:
        """How long to wait for the lock of a writer, from the next connection on; longer waits are refused."""
        self._engine.dispose()
        setting = f"PRAGMA busy_timeout = {seconds * 1_000:.0f}" if self.is_sqlite else _lock_timeout(seconds)
        event.listen(self._engine, "connect", lambda raw, _: _tell(raw, setting))

    @property
    def file(self) -> Path | None:
        """Where it is, if it is a file."""
        name = self._engine.url.database
        return Path(name) if self.is_sqlite and name not in (None, "", ":memory:") else None

    @contextmanager
    def making(self) -> Iterator[Connection]:
        """Make tables: in a file that only its owner can read, from the start."""
        if self.file is not None:
            _create_private(self.file)
        with self.errors(), self._engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One view of everything."""
        with self.errors(), self._engine.connect() as connection, connection.begin():
            if not self.is_sqlite:
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Everything in this block is changed together or not at all, and nobody else writes meanwhile."""
        with self.errors(), self._engine.connect().execution_options(writes=True) as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(select(self._settings).where(self._settings.c.name == WRITER).with_for_update())
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Name the kind of an error alone: the error itself has the statement with its values, nobody's to read.

        Without a statement nobody was let in: what the driver says of that has addresses and names, and no password.
        """
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            reason = type(cause).__name__
            if isinstance(error, DBAPIError) and error.statement is None:
                reason = str(cause).partition("\n")[0].strip() or reason
            raise self._refusal(f"the database {self.place} refuses: {reason}") from None


def _checked(url: str, keeper: str) -> URL:
    try:
        place = make_url(url)
    except ArgumentError:
        place = None
    if place is None or place.get_backend_name() not in _SCHEMES:
        rule = "must be sqlite:///FILE or postgresql://USER@HOST/NAME"
        raise ConfigurationError(keeper, "database", rule)
    return place.set(drivername="postgresql+psycopg") if place.get_backend_name() == "postgresql" else place


def _create_private(path: Path) -> None:
    """The file, readable by its owner alone from the start; SQLite gives its own files beside it the same mode."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigurationError(str(path), "database", f"cannot be written: {error.strerror}") from None


def _sqlite_engine(place: URL) -> Engine:
    engine = create_engine(place, connect_args={"timeout": _WAIT_S}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # Transactions begin where we say so.
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _began(connection: Connection) -> None:
        options: Any = connection.get_execution_options()
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")

    return engine


def _postgresql_engine(place: URL) -> Engine:
    """An engine whose waits all end: for a server that vanished, and for the holder of a lock."""
    limits = {"connect_timeout": _CONNECT_S, "tcp_user_timeout": _WAIT_S * 1_000, "keepalives_idle": _CONNECT_S}
    engine = create_engine(place, connect_args=limits, hide_parameters=True, pool_pre_ping=True)
    event.listen(engine, "connect", lambda raw, _: _tell(raw, _lock_timeout(_WAIT_S)))
    return engine


def _lock_timeout(seconds: float) -> str:
    return f"SET lock_timeout = {max(1, round(seconds * 1_000))}"


def _tell(raw: Any, setting: str) -> None:  # noqa: ANN401 - a connection of either driver
    """A setting of a new connection, for all of its transactions."""
    raw.execute(setting)
    raw.commit()
