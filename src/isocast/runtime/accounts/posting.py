"""Entries into tables: what some entries touch is read, judged by the ledger's rules, and written with them.

All of it inside the caller's transaction, by statements of the driver itself: an order costs a few rows, and what an
ORM, or even an expression, adds to each row would be most of its price.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

from isocast.orders.ledger import Balance, Entry, EntryKind, Ledger, Leg, Move, Pot, Reservation

__all__ = [
    "execute",
    "execute_many",
    "last_entry",
    "ledger_at",
    "ledger_of",
    "lookup",
    "posted_before",
    "rows_of",
    "scalar",
    "write_entries",
]

_INSERT: Final = re.compile(r"INSERT INTO (\w+ \([^)]*\)) VALUES (\([?, ]+\))(.*)")
_PLAIN: Final = {str(member): str(member) for kind in (EntryKind, Pot) for member in kind}
"""The text of an enumeration's member, as drivers take it without asking what it is."""
_RESERVATION, _AVAILABLE, _RESERVED = EntryKind.RESERVATION.value, Pot.AVAILABLE.value, Pot.RESERVED.value
_AT_ONCE: Final = 400
"""Rows of one query: SQLite has 32,766 places for values in a statement, older ones 999."""


def execute(connection: Connection, statement: str, values: tuple[Any, ...] = ()) -> CursorResult[Any]:
    """Run a statement written with `?`."""
    if connection.dialect.name != "sqlite":
        statement = statement.replace("?", "%s")
    return connection.exec_driver_sql(statement, values) if values else connection.exec_driver_sql(statement)


def execute_many(connection: Connection, statement: str, values: list[tuple[Any, ...]]) -> None:
    """Run a statement written with `?` for each of some rows; nothing for none."""
    if not values:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(statement, values)
    elif (parts := _INSERT.fullmatch(statement)) is not None:
        _insert_many(connection, parts, values)
    else:
        connection.exec_driver_sql(statement.replace("?", "%s"), values)


def _insert_many(connection: Connection, parts: re.Match[str], values: list[tuple[Any, ...]]) -> None:
    """Rows of one statement: a server that is asked once for each of them takes many times as long."""
    head, row, tail = parts.groups()
    if not tail:
        _copy(connection, head, values)
        return
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        rows = ", ".join([row.replace("?", "%s")] * len(some))
        flat = tuple([value for one in some for value in one])
        connection.exec_driver_sql(f"INSERT INTO {head} VALUES {rows}{tail}", flat)  # noqa: S608 - our own statement


def _copy(connection: Connection, head: str, values: list[tuple[Any, ...]]) -> None:
    """PostgreSQL's own way for many rows."""
    dbapi: Any = connection.dialect.dbapi
    raw: Any = connection.connection
    try:
        with raw.cursor() as cursor, cursor.copy(f"COPY {head} FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    except dbapi.Error as error:
        raise DBAPIError(None, None, error) from None


def rows_of(connection: Connection, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The rows of a statement written with `?`."""
    return list(execute(connection, statement, values))


def scalar(connection: Connection, statement: str, values: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - as it is kept
    """The one value of the first row; None where there is none."""
    return execute(connection, statement, values).scalar()


def lookup(connection: Connection, statement: str, keys: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """The rows of a statement that names the keys as `wanted`: `SELECT … FROM wanted JOIN … `."""
    every = list(dict.fromkeys(keys))
    for start in range(0, len(every), _AT_ONCE):
        some = every[start : start + _AT_ONCE]
        width = len(some[0])
        names = ", ".join(f"k{place}" for place in range(width))
        rows = ", ".join(["(" + ", ".join("?" * width) + ")"] * len(some))
        values = tuple([value for key in some for value in key])
        yield from execute(connection, f"WITH wanted({names}) AS (VALUES {rows}) {statement}", values)


def ledger_of(connection: Connection, entries: Sequence[Entry]) -> Ledger:
    """Balances, reservations, limits and freezes of what some entries touch."""
    ledger = ledger_at(connection, [(leg.account, leg.asset) for entry in entries for leg in entry.legs])
    holders = dict.fromkeys((entry.holder,) for entry in entries if entry.holder)
    query = "SELECT r.holder, r.account, r.asset, r.amount FROM wanted JOIN reservations r ON r.holder = k0"
    ledger.reservations.update(
        {holder: Reservation(*rest) for holder, *rest in lookup(connection, query, holders)},
    )
    return ledger


def ledger_at(connection: Connection, places: Iterable[tuple[int, str]]) -> Ledger:
    """Balances, limits and freezes of some (account, asset), and no reservations."""
    places = list(dict.fromkeys(places))
    balances = {
        (account, asset): Balance(available, reserved)
        for account, asset, available, reserved in lookup(
            connection,
            "SELECT b.account, b.asset, b.available, b.reserved FROM wanted"
            " JOIN balances b ON b.account = k0 AND b.asset = k1",
            places,
        )
    }
    limits = {
        (account, asset): limit
        for account, asset, limit in lookup(
            connection,
            'SELECT l.account, l.asset, l."limit" FROM wanted JOIN limits l ON l.account = k0 AND l.asset = k1',
            places,
        )
    }
    query = "SELECT a.number FROM wanted JOIN accounts a ON a.number = k0 WHERE a.frozen"
    frozen = [number for (number,) in lookup(connection, query, [(account,) for account, _ in places])]
    return Ledger(balances, None, limits, frozen)


def posted_before(connection: Connection, keys: Iterable[str]) -> dict[str, tuple[str, list[Leg]]]:
    """What was posted before under some keys: kind and legs."""
    found: dict[str, tuple[str, list[Leg]]] = {}
    query = (
        "SELECT e.key, e.kind, p.account, p.asset, p.pot, p.amount FROM wanted JOIN entries e ON e.key = k0"
        " JOIN postings p ON p.entry = e.number ORDER BY p.entry, p.leg"
    )
    for key, kind, account, asset, pot, amount in lookup(connection, query, [(key,) for key in keys]):
        _, legs = found.setdefault(key, (kind, []))
        legs.append(Leg(account, asset, Pot(pot), amount))
    return found


def last_entry(connection: Connection) -> int:
    """The number of the newest entry; 0: there is none."""
    return scalar(connection, "SELECT max(number) FROM entries") or 0


def write_entries(
    connection: Connection, entries: Sequence[Entry | Move], ledger: Ledger, now: int, first: int
) -> None:
    """Entries that the ledger took, numbered from `first`, and what they have changed."""
    if not entries:
        return
    heads: list[tuple[Any, ...]] = []
    legs: list[tuple[Any, ...]] = []
    places: dict[tuple[int, str], None] = {}
    holders: dict[str, None] = {}
    for number, entry in enumerate(entries, first):
        if isinstance(entry, Move):
            holder, account, asset, amount = entry
            heads.append((number, holder, _RESERVATION, now, ""))
            legs.append((number, 0, account, asset, _AVAILABLE, -amount))
            legs.append((number, 1, account, asset, _RESERVED, amount))
            places[account, asset] = holders[holder] = None
            continue
        heads.append((number, entry.key, _PLAIN[entry.kind], now, entry.memo))
        for index, (account, asset, pot, amount) in enumerate(entry.legs):
            legs.append((number, index, account, asset, _PLAIN[pot], amount))
            places[account, asset] = None
        if entry.holder:
            holders[entry.holder] = None
    execute_many(connection, "INSERT INTO entries (number, key, kind, at_ns, memo) VALUES (?, ?, ?, ?, ?)", heads)
    posted = "INSERT INTO postings (entry, leg, account, asset, pot, amount) VALUES (?, ?, ?, ?, ?, ?)"
    execute_many(connection, posted, legs)
    execute_many(
        connection,
        "INSERT INTO balances (account, asset, available, reserved) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (account, asset) DO UPDATE SET available = excluded.available, reserved = excluded.reserved",
        [(*place, *ledger.balances[place]) for place in places],
    )
    _write_reservations(connection, holders, ledger)


def _write_reservations(connection: Connection, holders: Iterable[str], ledger: Ledger) -> None:
    live = [(holder, *ledger.reservations[holder]) for holder in holders if holder in ledger.reservations]
    if live:
        execute_many(
            connection,
            "INSERT INTO reservations (holder, account, asset, amount) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (holder) DO UPDATE SET amount = excluded.amount",
            live,
        )
    ended = [(holder,) for holder in holders if holder not in ledger.reservations]
    if ended:
        execute_many(connection, "DELETE FROM reservations WHERE holder = ?", ended)
