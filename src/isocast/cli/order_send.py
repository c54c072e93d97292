"""`isocast order send`: many orders from a file, JSON lines or CSV, in few requests."""

from __future__ import annotations

import csv
import json as json_module
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import App, Parameter

from isocast.cli.options import Flag
from isocast.cli.order import GatewayChoice, report_fields
from isocast.cli.render import Progress, line, note, show_json
from isocast.terms.errors import ConfigurationError, TraderRefusedError, TransportError

if TYPE_CHECKING:
    from isocast.runtime.client.trader import Trader, TraderOrder

__all__ = ["send"]

_FILE_BYTES_MAX = 64 << 20
_ORDERS_MAX = 100_000
"""Bounds: all rows are read and checked before the first is sent."""
_AT_ONCE = 200
"""Rows between two looks at how far it has come: one request."""
_PLACE = GatewayChoice()
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_FLAGS = ("market", "post_only", "open_offer")
_NUMBERS = ("quantity", "show", "owner")
_TEXTS = ("client_id", "symbol", "side", "lifetime", "until")


class _Row(NamedTuple):
    """An order, and where it stands in its file."""

    line: int
    said: dict[str, Any]


send = App(
    name="send",
    help_epilogue="""Examples:

    isocast order send orders.csv --ids monday

    isocast order send orders.jsonl --json

    isocast order send --ids monday < orders.csv

A file names side, symbol, quantity and price, and if wanted market, stop, lifetime (day, ioc, fok, gtc), until,
post_only, show, owner, open_offer and id. Exit code: 0 all are entered, 2 bad input, or some were refused, 3 no gateway
answers.
""",
)


@send.default
def _send_file(
    file: Annotated[Path | None, Parameter(help="JSON lines or CSV; left out, standard input.")] = None,
    /,
    *,
    ids: str | None = None,
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Send the orders of a file, each judged by itself; a row that cannot be an order stops it before any is sent.

    Parameters
    ----------
    ids
        Rows without an id get this name and the number of their line, so that the command can be repeated after any
        failure and each order is entered once. Left out, ids are made.
    json
        Print one JSON object instead of lines.
    """
    name, content = _content(file)
    rows = list(_rows(name, content, ids))
    _check(name, rows)
    found = place.run(lambda trader: _send(trader, rows, quiet=json))
    refused = [(row.line, one) for row, one in zip(rows, found, strict=True) if isinstance(one, TraderRefusedError)]
    if json:
        show_json({"orders": [_as_json(row, one) for row, one in zip(rows, found, strict=True)]})
    else:
        for number, one in refused:
            line(f"{name}: line {number}{f', {one.field}' if one.field else ''}: {one.reason}: {one}")
        line(f"{len(rows) - len(refused):,} entered, {len(refused):,} refused.")
    return 2 if refused else 0


def _as_json(row: _Row, one: TraderOrder | TraderRefusedError) -> dict[str, object]:
    if isinstance(one, TraderRefusedError):
        return {"line": row.line, "refused": {"reason": one.reason, "field": one.field, "message": str(one)}}
    return {"line": row.line, "report": report_fields(one.report)}


async def _send(trader: Trader, rows: list[_Row], *, quiet: bool) -> list[TraderOrder | TraderRefusedError]:
    found: list[TraderOrder | TraderRefusedError] = []
    with Progress("orders", len(rows), quiet=quiet) as progress:
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            try:
                found += await trader.send_many([row.said for row in some])
            except (TransportError, TraderRefusedError):
                known = f"up to line {rows[start - 1].line} are answered" if start else "of the file are not answered"
                note(f"isocast: orders {known}; of lines {some[0].line} to {some[-1].line} nothing is known")
                raise
            progress.reach(len(found))
    return found


def _check(name: str, rows: list[_Row]) -> None:
    """ConfigurationError, with line and column, for the first row that no gateway would take."""
    from isocast.runtime.client.trader import order_of

    for row in rows:
        try:
            order_of(lambda own: own or "x", row.said)
        except TraderRefusedError as reason:
            rule = str(reason).removeprefix(f"{reason.field}: ")
            raise _bad(name, row.line, reason.field, rule) from None


# ---- rows


def _bad(name: str, number: int, column: str, rule: str) -> ConfigurationError:
    return ConfigurationError(name, f"line {number}{f', {column}' if column else ''}", rule)


def _content(file: Path | None) -> tuple[str, str]:
    """What to call it, and its text."""
    name = "standard input" if file is None else str(file)
    try:
        if file is None:
            raw = sys.stdin.buffer.read(_FILE_BYTES_MAX + 1)
        else:
            with file.open("rb") as opened:
                raw = opened.read(_FILE_BYTES_MAX + 1)
    except OSError as reason:
        raise ConfigurationError(name, "FILE", f"cannot be read: {reason.strerror}") from None
    if len(raw) > _FILE_BYTES_MAX:
        raise ConfigurationError(name, "FILE", f"is larger than {_FILE_BYTES_MAX >> 20} MiB: send it in parts")
    try:
        return name, raw.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        number = raw.count(b"\n", 0, reason.start) + 1
        raise _bad(name, number, "", "is not UTF-8 text") from None


def _rows(name: str, content: str, ids: str | None) -> Iterator[_Row]:
    """Every order; ConfigurationError for what is none, for none at all, and for more than may be."""
    read = _json_rows if content.lstrip().startswith("{") else _csv_rows
    count = 0
    for row in read(name, content):
        count += 1
        if count > _ORDERS_MAX:
            raise _bad(name, row.line, "", f"at most {_ORDERS_MAX:,} orders at once: send the file in parts")
        if ids is not None and row.said.get("client_id") is None:
            row.said["client_id"] = f"{ids}-{row.line}"
        yield row
    if not count:
        raise ConfigurationError(name, "FILE", "has no order: JSON objects, one on a line, or CSV with a header")


def _named(name: str, number: int, columns: list[str]) -> list[str]:
    """Columns as an order calls them; ConfigurationError for one that comes twice, or is not known."""
    from isocast.runtime.client.trader import ORDER_TERMS
    from isocast.terms.quantities import suggestion

    known = ("side", "symbol", "quantity", *ORDER_TERMS)
    found: list[str] = []
    for column in columns:
        term = "client_id" if column.strip() == "id" else column.strip()
        if term not in known:
            rule = f"is not known here: there are {', '.join(known)}{suggestion(term, known)}"
            raise _bad(name, number, column[:40], rule)
        if term in found:
            raise _bad(name, number, column, "occurs twice")
        found.append(term)
    return found


def _json_rows(name: str, content: str) -> Iterator[_Row]:
    for number, text in enumerate(content.split("\n"), 1):
        if not text.strip():
            continue
        try:
            row = json_module.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as reason:
            raise _bad(name, number, "", f"not JSON: {reason}") from None
        if not isinstance(row, dict):
            raise _bad(name, number, "", "expected one JSON object for each order")
        said = dict(zip(_named(name, number, list(row)), row.values(), strict=True))
        for term, value in said.items():
            kind, wanted = _KINDS.get(term, (object, ""))
            if value is not None and not isinstance(value, kind):
                raise _bad(name, number, term, f"must be {wanted}, not {json_module.dumps(value, default=str)[:40]}")
        yield _Row(number, {term: value for term, value in said.items() if value is not None})


_KINDS: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(_TEXTS, (str, "a text")),
    **dict.fromkeys(_FLAGS, (bool, "true or false")),
}
"""What JSON must have there; numbers and prices are checked with the order."""


def _csv_rows(name: str, content: str) -> Iterator[_Row]:
    reader = csv.reader(StringIO(content, newline=""), strict=True)
    columns: list[str] = []
    try:
        for cells in reader:
            number = reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _named(name, number, cells)
                continue
            if len(cells) != len(columns):
                raise _bad(name, number, "", f"{len(cells)} cells under {len(columns)} columns")
            named = zip(columns, map(str.strip, cells), strict=True)
            yield _Row(number, {term: _value(name, number, term, cell) for term, cell in named if cell})
    except csv.Error as reason:
        raise _bad(name, reader.line_num, "", f"not CSV: {reason}") from None


def _value(name: str, number: int, term: str, cell: str) -> object:
    if term in _FLAGS:
        if cell.lower() not in (*_YES, *_NO):
            raise _bad(name, number, term, f"must be yes or no, not {cell[:40]!r}")
        return cell.lower() in _YES
    if term in _NUMBERS:
        if not cell.isascii() or not cell.isdecimal():
            raise _bad(name, number, term, f"must be a whole number, not {cell[:40]!r}")
        return int(cell)
    return cell
