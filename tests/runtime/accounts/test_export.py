"""Books as Parquet: everything that is there, once, and nobody's name in it."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from sqlalchemy import Connection
from tests.runtime.accounts.sequence import IBM, LISTED, USD, MemoryGateway, MemorySequence, limit, sqlite_place

from isocast.cli.main import main
from isocast.orders.accounts import UNITS, pseudonym
from isocast.orders.desk import CancelRequest
from isocast.orders.needs import Side
from isocast.runtime.accounts import export
from isocast.runtime.accounts.export import EXPORT_COLUMNS, export_books
from isocast.runtime.accounts.order_store import REPORTS_TOGETHER
from isocast.runtime.accounts.posting import rows_of

SECRET = b"a secret of 16 or more bytes"


def traded(url: str) -> MemoryGateway:
    """A trade, an order that rests, one that the gateway refuses, one that the floor does, a cancel of nothing."""
    market = MemorySequence(LISTED)
    gateway = MemoryGateway(url, 1, ["Ada", "Bob"])
    ada, bob = gateway.accounts
    gateway.fund(ada, USD, 1_000 * UNITS)
    gateway.fund(bob, IBM, 10)
    gateway.follow(market)
    gateway.ask(ada, limit("ada-1", Side.BUY, 5, 10), limit("ada-2", Side.BUY, 5_000, 10))
    gateway.ask(bob, limit("bob-1", Side.SELL, 3, 10), CancelRequest("bob-2", "nothing"))
    gateway.ask(bob, limit("bob-3", Side.SELL, 3, 10)._replace(price=10 * UNITS + 1))
    gateway.publish(market)
    market.step()
    gateway.follow(market)
    return gateway


def test_everything_is_there_once(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_PAGE", 2)  # So that there are several.
    gateway = traded(database_url)
    ada, bob = gateway.accounts
    counts = export_books(gateway.database, tmp_path / "books", SECRET)
    tables = {name: parquet.read_table(tmp_path / "books" / f"{name}.parquet") for name in EXPORT_COLUMNS}
    rows = {name: table.to_pylist() for name, table in tables.items()}
    assert {name: len(some) for name, some in rows.items()} == counts
    for name, table in tables.items():
        assert {field.name: str(field.type) for field in table.schema} == EXPORT_COLUMNS[name], name
    orders = {row["order"]: row for row in rows["orders"]}
    assert len(orders) == counts["orders"] == 3
    first = orders[pseudonym(ada << 32 | 1, SECRET)]
    assert (first["account"], first["filled"], first["open"]) == (pseudonym(ada, SECRET), 3, True)
    assert counts["reports"] == sum(len(gateway.reports(account)) for account in gateway.accounts)
    found = [(row["by"], row["kind"], row["reason"], row["account"]) for row in rows["refusals"]]
    hidden = pseudonym(bob, SECRET)
    assert sorted(found) == [
        ("floor", "refused", "tick", hidden),
        ("gateway", "change refused", "unknown order", hidden),
        ("gateway", "refused", "funds", pseudonym(ada, SECRET)),
    ]
    assert {row["sequence"] is None for row in rows["refusals"] if row["by"] == "gateway"} == {True}
    bound = {row["order"]: row["amount"] for row in rows["reservations"] if row["asset"] == USD}
    assert bound == {first["order"]: 50 * UNITS}
    gateway.close()


def test_a_page_of_reports_is_of_as_many_reports_as_any_other_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row has many of them: else an export would need 64 times the memory."""
    pages: list[int] = []

    def read(connection: Connection, query: str, values: tuple[Any, ...] = ()) -> Sequence[Any]:
        found = rows_of(connection, query, values)
        pages.append(len(found) * (REPORTS_TOGETHER if "FROM reports" in query else 1))
        return found

    monkeypatch.setattr(export, "rows_of", read)
    monkeypatch.setattr(export, "_PAGE", 2 * REPORTS_TOGETHER)
    gateway = traded(sqlite_place(tmp_path, "books"))
    counts = export_books(gateway.database, tmp_path / "books", SECRET)
    assert max(pages) == 2 * REPORTS_TOGETHER
    assert counts["reports"] == sum(len(gateway.reports(account)) for account in gateway.accounts)
    gateway.close()


def test_nobody_is_named_and_nobody_else_reads_it(tmp_path: Path) -> None:
    gateway = traded(sqlite_place(tmp_path, "books"))
    export_books(gateway.database, tmp_path / "hidden", SECRET)
    export_books(gateway.database, tmp_path / "clear", b"")
    names = {"Ada", "Bob", "ada-1", "bob-1", *(str(account) for account in gateway.accounts)}
    names |= {str(account << 32 | 1) for account in gateway.accounts}
    for name in EXPORT_COLUMNS:
        file = tmp_path / "hidden" / f"{name}.parquet"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        cells = {str(cell) for row in parquet.read_table(file).to_pylist() for cell in row.values()}
        assert not cells & names, name
    clear = parquet.read_table(tmp_path / "clear" / "orders.parquet").to_pylist()
    assert {row["account"] for row in clear} == {str(account) for account in gateway.accounts}
    assert [path.name for path in tmp_path.rglob("*.new")] == []
    gateway.close()


def test_the_command_wants_a_secret_or_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = sqlite_place(tmp_path, "books")
    traded(url).close()
    words = ["accounts", "export", str(tmp_path / "out"), "--database", url]
    key = tmp_path / "pseudonyms.key"
    assert main(words) == 2
    assert "--clear" in capsys.readouterr().err
    key.write_bytes(b"short")
    key.chmod(0o600)
    assert main([*words, "--pseudonyms", str(key)]) == 2
    assert "at least 16" in capsys.readouterr().err
    key.write_bytes(SECRET)
    key.chmod(0o644)
    assert main([*words, "--pseudonyms", str(key)]) != 0, "others can read it"
    capsys.readouterr()
    assert not (tmp_path / "out").exists()
    key.chmod(0o600)
    assert main([*words, "--pseudonyms", str(key), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["orders"] == 3
