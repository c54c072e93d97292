"""A gateway's books as Parquet files: orders, reports, refusals and reservations, with pseudonyms for whose they are.

Refusals by a gateway, and what it has reserved, are nowhere but in its books: the sequence has only what was accepted.
Accounts, orders, owners and traders' own ids leave as keyed hashes, made before anything is written; under the same
secret they are those of the lake's frames, so that both join. Texts for people, which may name anybody, stay here.

All files are of one view of the books. Rows are read and written page by page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Connection

from isocast.orders.accounts import pseudonym
from isocast.orders.desk import ReportKind, TradeReport
from isocast.runtime.accounts.order_store import REPORTS_TOGETHER, holder_of, order_id, reports_of
from isocast.runtime.accounts.posting import rows_of
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EXPORT_COLUMNS", "export_books"]

_PAGE: Final = 50_000
_HOLDER: Final = holder_of(0)[:-1]
_TEXT, _NUMBER, _FLAG = "string", "int64", "bool"
EXPORT_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "orders": {
            **dict.fromkeys(("account", "order", "client_id", "symbol", "side", "kind", "lifetime"), _TEXT),
            **dict.fromkeys(("quantity", "price", "trigger"), _NUMBER),
            **dict.fromkeys(("currency", "owner"), _TEXT),
            "entered_ns": _NUMBER,
            "status": _TEXT,
            **dict.fromkeys(("filled", "filled_value"), _NUMBER),
            "open": _FLAG,
        },
        "reports": {
            "account": _TEXT,
            "number": _NUMBER,
            **dict.fromkeys(("order", "client_id", "original_id", "kind", "status", "reason", "symbol", "side"), _TEXT),
            **dict.fromkeys(("quantity", "filled", "left", "price", "last_quantity", "last_price", "trade"), _NUMBER),
            **dict.fromkeys(("sequence", "at_ns"), _NUMBER),
        },
        "refusals": {
            "account": _TEXT,
            "number": _NUMBER,
            **dict.fromkeys(("order", "client_id", "original_id", "kind", "reason", "symbol", "side"), _TEXT),
            **dict.fromkeys(("quantity", "price"), _NUMBER),
            "by": _TEXT,
            **dict.fromkeys(("sequence", "at_ns"), _NUMBER),
        },
        "reservations": {**dict.fromkeys(("account", "order", "asset"), _TEXT), "amount": _NUMBER},
    }
)
"""Of each file, its columns and their types in Arrow."""

Row = dict[str, Any]
Hide = Callable[[int | str], str]


class _Page(NamedTuple):
    """How the rows of a table are read: behind the key of the last one, so many."""

    columns: str
    table: str
    key: tuple[str, ...]
    together: int = 1
    """What a row has of what is exported, at most: a page is of as much less rows."""

    def rows(self, connection: Connection) -> Iterator[Any]:
        query = f"SELECT {self.columns} FROM {self.table}"  # noqa: S608 - our own names
        key = ", ".join(self.key)
        behind = f" WHERE ({key}) > ({', '.join('?' * len(self.key))})"
        most = max(1, _PAGE // self.together)
        end = f" ORDER BY {key} LIMIT {most}"
        page = rows_of(connection, query + end)
        while page:
            yield from page
            last = page[-1]._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
            values = tuple(last[name] for name in self.key)
            page = rows_of(connection, query + behind + end, values) if len(page) == most else []


def export_books(database: AccountsDatabase, folder: Path, secret: bytes) -> dict[str, int]:
    """Write all files into a folder, and say how many rows each has; an empty secret leaves everything in the clear.

    ValueError for a secret that could be guessed; ConfigurationError without pyarrow, or where nothing can be written.
    """

    def hide(name: int | str) -> str:
        return pseudonym(name, secret)

    hide(0)
    database.gateway()
    makers: dict[str, Callable[[Connection, Hide], Iterator[Row]]] = {
        "orders": _orders,
        "reports": _reports,
        "refusals": _refusals,
        "reservations": _reservations,
    }
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with database.reading() as connection:
            return {
                name: _write(folder / f"{name}.parquet", name, make(connection, hide)) for name, make in makers.items()
            }
    except OSError as error:
        raise ConfigurationError(str(folder), "export", f"cannot be written: {error.strerror}") from None


def _orders(connection: Connection, hide: Hide) -> Iterator[Row]:
    columns = (
        "account, number, client_id, symbol, side, kind, lifetime, total, price, trigger_price, currency, owner,"
        " entered_ns, status, filled, filled_value, is_open"
    )
    for row in _Page(columns, "orders", ("account", "number")).rows(connection):
        account, number, client_id, *terms, currency, owner, entered, status, filled, value, is_open = row
        names = hide(account), hide(order_id(account, number)), hide(f"{account}/{client_id}")
        whose = hide(f"{account}:{owner}") if owner else None
        rest = currency, whose, entered, status, filled, value, bool(is_open)
        yield dict(zip(EXPORT_COLUMNS["orders"], (*names, *terms, *rest), strict=True))


def _told(connection: Connection) -> Iterator[TradeReport]:
    pages = _Page("account, number, body", "reports", ("account", "number"), REPORTS_TOGETHER)
    for _, _, body in pages.rows(connection):
        yield from reports_of(body)


def _reports(connection: Connection, hide: Hide) -> Iterator[Row]:
    for one in _told(connection):
        yield _report(one, hide)


def _report(one: TradeReport, hide: Hide) -> Row:
    return {
        "account": hide(one.account),
        "number": one.number,
        "order": hide(one.order) if one.order else None,
        "client_id": hide(f"{one.account}/{one.client_id}"),
        "original_id": hide(f"{one.account}/{one.original_id}") if one.original_id else None,
        "kind": one.kind.value,
        "status": one.status.value,
        "reason": None if one.reason is None else one.reason.value,
        "symbol": one.symbol,
        "side": one.side.value,
        "quantity": one.quantity,
        "filled": one.filled,
        "left": one.left,
        "price": one.price,
        "last_quantity": one.last_quantity or None,
        "last_price": one.last_price or None,
        "trade": one.trade or None,
        "sequence": one.sequence or None,
        "at_ns": one.at,
    }


def _refusals(connection: Connection, hide: Hide) -> Iterator[Row]:
    """By the gateway, which nobody else knows of; and by the floor, as the sequence has them."""
    for one in _told(connection):
        if one.kind in (ReportKind.REFUSED, ReportKind.CHANGE_REFUSED):
            row = _report(one, hide) | {"by": "floor" if one.sequence else "gateway"}
            yield {name: row[name] for name in EXPORT_COLUMNS["refusals"]}


def _reservations(connection: Connection, hide: Hide) -> Iterator[Row]:
    for holder, account, asset, amount in _Page("holder, account, asset, amount", "reservations", ("holder",)).rows(
        connection
    ):
        order = hide(int(holder.removeprefix(_HOLDER))) if holder.startswith(_HOLDER) else None
        yield {"account": hide(account), "order": order, "asset": asset, "amount": amount}


def _write(path: Path, name: str, rows: Iterator[Row]) -> int:
    """One file, whole or not at all; how many rows it has."""
    try:
        import pyarrow  # noqa: PLC0415, ICN001 - for those who export
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError:
        rule = "needs the package pyarrow: pip install isocast[arrow]"
        raise ConfigurationError("command line", "export", rule) from None
    schema: pa.Schema = pyarrow.schema(list(EXPORT_COLUMNS[name].items()))
    made = path.with_suffix(".new")
    count = 0
    try:
        with open(made, "wb", opener=_private) as file, parquet.ParquetWriter(file, schema) as writer:
            page: list[Row] = []
            for row in rows:
                page.append(row)
                if len(page) == _PAGE:
                    writer.write_table(pyarrow.Table.from_pylist(page, schema))
                    count, page = count + len(page), []
            writer.write_table(pyarrow.Table.from_pylist(page, schema))
            count += len(page)
        made.replace(path)
    finally:
        with suppress(OSError):
            made.unlink()
    return count


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
