"""`isocast accounts`: from the first account to an audit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from isocast.cli.main import main
from isocast.orders.desk import Scope
from isocast.runtime.accounts.logins import Logins
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.market.example import example_text


class Desk:
    """Commands on one gateway's books."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = f"sqlite:///{folder}/books.db"
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main(["accounts", *words, "--database", self.url]) == code, self._capsys.readouterr()
        got = self._capsys.readouterr()
        return got.err if code == 2 else got.out

    def json(self, *words: str, code: int = 0) -> Any:  # noqa: ANN401 - whatever a command prints
        assert main(["accounts", *words, "--json", "--database", self.url]) == code
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.delenv("ISOCAST_ACCOUNTS_DATABASE", raising=False)
    return Desk(tmp_path, capsys)


def test_from_the_first_account_to_an_audit(desk: Desk) -> None:
    assert desk("open", "Ada") == "Ada has account 1048592.\n"
    assert desk.json("open", "Smith Brokers")["number"] == 1_048_593
    assert desk("deposit", "Ada", "5,000.00 USD", "--key", "wire-77") == "Ada has 5,000.00 USD available.\n"
    again = desk("deposit", "Ada", "5,000.00 USD", "--key", "wire-77")
    assert again == "Ada has 5,000.00 USD available; this was booked before.\n"
    assert "take another key" in desk("deposit", "Ada", "1 USD", "--key", "wire-77", code=2)
    assert desk("withdraw", "1048592", "100.5 USD") == "Ada has 4,899.50 USD available.\n"
    assert "can spend 4,899.50 USD, not 4,900.00 USD" in desk("withdraw", "Ada", "4900 USD", code=2)
    assert desk("grant", "Ada", "IBM", "1,000") == "Ada has 1,000 IBM available.\n"
    assert desk("grant", "Ada", "IBM", "1", "--take") == "Ada has 999 IBM available.\n"
    assert desk("limit", "Ada", "IBM", "5", "--short") == "Ada may sell short up to 5 IBM.\n"
    assert desk("limit", "Ada", "USD", "10.50") == "Ada may owe up to 10.50 USD.\n"
    assert desk("withdraw", "Ada", "4900 USD") == "Ada has -0.50 USD available.\n"
    held = {one["asset"]: one for one in desk.json("show", "Ada")["holdings"]}
    assert held["cash:USD"] == {"asset": "cash:USD", "available": -5_000, "reserved": 0, "limit": 105_000}
    assert "999 IBM" in desk("show", "Ada")
    assert desk("freeze", "Ada", "--reason", "a court") == "Ada spends nothing new.\n"
    assert "frozen: a court" in desk("show")
    assert "is frozen" in desk("withdraw", "Ada", "1 USD", code=2)
    assert desk("freeze", "Ada", "--lift") == "Ada may spend again.\n"
    statement = desk("statement", "Ada")
    assert "5,000.00 USD" in statement
    assert "wire-77" in statement
    assert desk.json("statement", "Ada", "--last", "1")["after"] == -5_000
    assert "sound" in desk("audit")
    assert desk.json("audit")["sound"] is True
    assert "already of today" in desk("upgrade")


def test_the_next_account_is_of_the_gateway_that_the_books_are_of(desk: Desk) -> None:
    first = desk.json("open", "Ada", "--gateway", "2")
    second = desk.json("open", "Ben")
    assert second["number"] == first["number"] + 1
    assert "has the books of gateway 2, not 1" in desk("open", "Cy", "--gateway", "1", code=2)


def test_an_audit_of_two_gateways_and_of_damaged_books(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk("open", "Ada")
    desk("deposit", "Ada", "1 USD")
    there = Desk(tmp_path / "there", capsys)
    there("open", "Eve", "--gateway", "2")
    assert main(["accounts", "audit", desk.url, there.url, "--settled"]) == 0
    assert main(["accounts", "audit", desk.url, desk.url]) == 2
    assert "name a gateway twice" in capsys.readouterr().err
    import sqlite3  # noqa: PLC0415 - somebody's careless hand

    with sqlite3.connect(tmp_path / "books.db") as raw:
        raw.execute("UPDATE balances SET available = available + 1 WHERE account = 1048577")
        raw.execute("INSERT INTO balances VALUES (1048577, 'cash:USD', 7, 0)")
    assert main(["accounts", "audit", desk.url, there.url, "--settled"]) == 1
    output = capsys.readouterr().out
    assert "its entries add up to -0.0007 USD more available than it has" in output
    assert "Not settled between gateways: 0.0007 USD." in output


@pytest.mark.parametrize(
    "words, told",
    [
        (["show"], "isocast accounts open makes the first"),
        (["deposit", "Ada", "5"], "a sum has up to four decimals and a currency"),
        (["deposit", "Ada", "0 USD"], "an amount must be positive"),
        (["grant", "Ada", "ibm", "5"], "a symbol has up to 12 capital letters"),
        (["grant", "Ada", "IBM", "1.5"], "a number of shares is a whole number"),
        (["limit", "Ada", "IBMX", "5"], "a currency has three capital letters"),
        (["show", "Eve"], "there is no account 'Eve'"),
        (["open", "17"], "cannot be a name"),
    ],
)
def test_bad_input_is_one_sentence_that_says_what_to_do(desk: Desk, words: list[str], told: str) -> None:
    if words != ["show"]:
        desk("open", "Ada")
    assert told in desk(*words, code=2)


def test_a_password_on_the_command_line_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.url
    assert main(["accounts", "show", "--database", "postgresql://a:hunter2@c/d"]) == 2
    told = capsys.readouterr().err
    assert "ISOCAST_ACCOUNTS_DATABASE" in told
    assert "hunter2" not in told


def test_a_market_has_its_books_in_its_data_directory(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desk.url
    monkeypatch.chdir(tmp_path)
    (tmp_path / "market.toml").write_text(example_text(), encoding="utf-8")
    assert main(["accounts", "open", "Ada", "--config", "market.toml"]) == 0
    assert [path.name for path in tmp_path.rglob("accounts.db")] == ["accounts.db"]


def test_a_password_is_read_from_a_file_or_standard_input_and_lets_its_owner_in(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk("open", "Ada")
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    assert desk("password", "Ada") == "Ada comes in by the new password, for account 1048592.\n"
    file = tmp_path / "secret"
    file.write_text("another horse battery\n", encoding="utf-8")
    assert "lets others read it" in desk("password", "Ada", "--name", "ada", "--file", str(file), code=2)
    file.chmod(0o600)
    assert desk.json("password", "Ada", "--name", "ada", "--file", str(file)) == {"account": 1_048_592, "name": "ada"}
    database = AccountsDatabase(desk.url)
    logins = Logins(database)
    assert logins.account_by_password("Ada", "correct horse battery") == 1_048_592
    assert logins.account_by_password("ada", "another horse battery") == 1_048_592
    assert logins.account_by_password("ada", "correct horse battery") is None
    database.close()
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert "from 10 to" in desk("password", "Ada", code=2)


def test_a_token_is_printed_once_and_works(desk: Desk) -> None:
    desk("open", "Ada")
    token = desk("token", "Ada", "--scope", "trade").strip()
    assert desk.json("token", "Ada")["scopes"] == ["read"]
    database = AccountsDatabase(desk.url)
    login = Logins(database).login_by_token(token)
    assert login is not None
    assert (login.account, login.scopes) == (1_048_592, frozenset({Scope.TRADE}))
    database.close()


def test_tokens_are_revoked_by_their_label_or_all_at_once(desk: Desk) -> None:
    for name in ("Ada", "Bob"):
        desk("open", name)
    bot, screen, bobs = (
        desk("token", name, "--label", label).strip() for name, label in (("Ada", "bot"), ("Ada", ""), ("Bob", "bot"))
    )

    def good() -> list[str]:
        database = AccountsDatabase(desk.url)
        found = [one for one in (bot, screen, bobs) if Logins(database).login_by_token(one) is not None]
        database.close()
        return found

    assert desk("revoke", "Ada", "--label", "bot") == "API tokens of Ada that are revoked: 1.\n"
    assert good() == [screen, bobs]
    assert desk.json("revoke", "Ada") == {"account": 1_048_592, "revoked": 1}
    assert good() == [bobs]
    assert desk.json("revoke", "Ada")["revoked"] == 0


def test_kill_switches_are_set_listed_and_lifted(desk: Desk) -> None:
    desk("open", "Ada")
    assert desk("kill", "Ada", "--reason", "fat finger").startswith("The account is stopped; 0 live orders")
    assert desk.json("kill", "Ada", "--customer", "7")["scope"] == "customer"
    assert desk.json("kill", "--gateway")["scope"] == "gateway"
    assert [one["scope"] for one in desk.json("kill", "--list")] == ["account", "customer", "gateway"]
    assert desk.json("unkill", "Ada")["lifted"] is True
    assert desk("unkill", "Ada") == "The account was not stopped.\n"
    assert desk.json("unkill", "--gateway")["lifted"] is True
    assert [one["scope"] for one in desk.json("kill", "--list")] == ["customer"]
    assert "name an account" in desk("kill", code=2)
    assert "name an account" in desk("kill", "Ada", "--gateway", code=2)


def test_controls_of_an_account_are_shown_and_set(desk: Desk) -> None:
    desk("open", "Ada")
    assert desk.json("controls", "Ada")["rate"] == 100
    found = desk.json("controls", "Ada", "--rate", "0", "--value", "50,000", "--open-orders", "5")
    assert (found["rate"], found["value"], found["open_orders"]) == (0, 500_000_000, 5)
    assert desk.json("controls", "Ada") == found
    assert "none" in desk("controls", "Ada")
