"""`isocast order`: a trader's day on the command line, and no token where it does not belong."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.runtime.accounts.memory_desk import MemoryDesk
from tests.runtime.accounts.traders import API_TOKEN, LIMIT_S, Stage, on_stage

from isocast.cli.main import main
from isocast.cli.order import CA, TOKEN_FILE, URL
from isocast.orders.desk import Lifetime, NewOrder, OrderKind
from isocast.orders.needs import Side

NAMES = ("buy", "sell", "send", "cancel", "replace", "list", "watch", "balances")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A service in a thread of its own: commands have event loops of theirs."""
    ready, ending = Event(), Event()
    found: list[Stage] = []

    async def whole() -> None:
        async with on_stage(tmp_path_factory.mktemp("tls")) as one:
            found.append(one)
            ready.set()
            await asyncio.to_thread(ending.wait)

    thread = Thread(target=asyncio.run, args=(whole(),))
    thread.start()
    assert ready.wait(LIMIT_S)
    yield found[0]
    ending.set()
    thread.join(LIMIT_S)


@pytest.fixture
def desk(stage: Stage) -> Iterator[MemoryDesk]:
    """Another day: the books are empty."""
    fresh = MemoryDesk()
    stage.desk.__dict__.update({name: value for name, value in vars(fresh).items() if name != "gate"})
    yield stage.desk
    assert stage.desk.gate.is_set()


class Shell:
    """Commands of one trader."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main(["order", *words]) == code, self._capsys.readouterr()
        got = self._capsys.readouterr()
        return got.err if code else got.out

    def json(self, *words: str) -> Any:  # noqa: ANN401 - whatever a command prints
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(
    stage: Stage,
    desk: MemoryDesk,  # noqa: ARG001 - an empty book
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    monkeypatch.setenv(URL, stage.url)
    monkeypatch.setenv(CA, str(stage.ca))
    monkeypatch.setenv(TOKEN_FILE, str(token_file(tmp_path / "ada.token", API_TOKEN)))
    return Shell(capsys)


def token_file(path: Path, token: str, mode: int = 0o600) -> Path:
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(f"{token}\n")
    return path


def test_from_an_order_to_its_end(shell: Shell, tmp_path: Path) -> None:
    bob = ("--token-file", str(token_file(tmp_path / "bob.token", "token-" + "Bob")))
    assert shell("buy", "ISO", "100", "10.05", "--id", "a-1") == "a-1: buy 100 ISO at 10.05: pending.\n"
    assert shell("buy", "ISO", "100", "10.05", "--id", "a-1") == "a-1: buy 100 ISO at 10.05: pending.\n"
    assert shell("sell", "ISO", "40", "10.00", "--id", "b-1", "--wait", *bob) == (
        "b-1: sell 40 ISO at 10.00: filled, 40 filled at 10.05.\n"
    )
    assert "a-1  buy 100 ISO  10.05  40      60    10.05    part filled" in shell("list")
    assert shell.json("list")[0]["filled_value"] == "402.0000"
    assert shell("replace", "a-1", "--price", "10.06", "--quantity", "90") == (
        "a-1: buy 100 ISO at 10.05: replace pending, 40 filled at 10.05.\n"
    )
    assert shell("cancel", "a-1", "--quantity", "10").endswith("cancel pending, 40 filled at 10.05.\n")
    assert shell.json("list")[0]["quantity"] == 80
    shell("buy", "VOD", "10", "1.2345", "--id", "a-2")
    assert shell("cancel", "--all", "--symbol", "VOD") == "1 cancelled.\n"
    assert shell.json("cancel", "--all") == {"cancelled": 1}
    assert shell("list").splitlines()[2:] == [""]
    assert [one["status"] for one in shell.json("list", "--all")] == ["cancelled", "cancelled"]
    assert "USD    cash    1,250.50   0.00" in shell("balances")
    assert shell.json("balances")[1] == {"asset": "ISO", "kind": "shares", "available": "300", "reserved": "100"}
    assert "there is no live a-1" in shell("cancel", "a-1", code=2)


@pytest.mark.parametrize(
    "words, wanted",
    [
        ("ISO 100 10.05", NewOrder("x", "ISO", Side.BUY, 100, price=100_500)),
        ("ISO 100 10.05 --ioc", NewOrder("x", "ISO", Side.BUY, 100, price=100_500, lifetime=Lifetime.IMMEDIATE)),
        ("ISO 100 10 --fok", NewOrder("x", "ISO", Side.BUY, 100, price=100_000, lifetime=Lifetime.ALL_OR_NOTHING)),
        ("ISO 100 10 --gtc", NewOrder("x", "ISO", Side.BUY, 100, price=100_000, lifetime=Lifetime.UNTIL_CANCELLED)),
        ("ISO 100 --market", NewOrder("x", "ISO", Side.BUY, 100, OrderKind.MARKET)),
        ("ISO 100 --stop 9.95", NewOrder("x", "ISO", Side.BUY, 100, OrderKind.STOP, trigger=99_500)),
        ("ISO 100 9.90 --stop 9.95", NewOrder("x", "ISO", Side.BUY, 100, OrderKind.STOP_LIMIT, 99_000, 99_500)),
        ("ISO 100 9 --post-only", NewOrder("x", "ISO", Side.BUY, 100, price=90_000, is_post_only=True)),
        ("ISO 100 9 --show 10", NewOrder("x", "ISO", Side.BUY, 100, price=90_000, display=10)),
        ("ISO 100 9 --until 1970-01-01T00:00:01Z", NewOrder("x", "ISO", Side.BUY, 100, OrderKind.LIMIT, 90_000, None,
                                                            Lifetime.UNTIL_DATE, 10**9)),
    ],
)  # fmt: skip
def test_what_is_typed_is_what_the_desk_hears(shell: Shell, desk: MemoryDesk, words: str, wanted: NewOrder) -> None:
    shell("buy", *words.split(), "--id", "x")
    assert desk.submitted == [wanted]


@pytest.mark.parametrize(
    "words, text",
    [
        ("buy ISO 100", "PRICE: is missing: give the limit after the quantity, or say --market"),
        ("buy ISO 100 10.05 --market", "a market order has none"),
        ("buy ISO 100 10.00001", "finer than 0.0001"),
        ("buy ISO 100 ten", "not 'ten'"),
        ("buy ISO 0 10", "0"),
        ("buy ISO 10.5 10", 'QUANTITY: unable to convert "10.5" into int'),
        ("buy ISO 1.0 10", "QUANTITY"),
        ("buy ISO 0x10 10", "QUANTITY"),
        ("buy ISO 1_0 10", "QUANTITY"),
        ("cancel a-1 --quantity 1.5", "--quantity"),
        ("buy ISO 100 10 --ioc --fok", "--ioc and --fok: contradict each other"),
        ("buy NIX 100 10", "there is no NIX"),
        ("buy ISO 100 10 --until tomorrow", "with its offset"),
        ("cancel", "name one order"),
        ("cancel a-1 --all", "name one order"),
        ("cancel a-1 --symbol ISO", "name one order"),
        ("replace a-1", "say what is to change"),
        ("replace a-1 --price 1", "there is no live a-1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(shell: Shell, words: str, text: str) -> None:
    said = shell(*words.split(), code=2)
    assert text in said
    assert said.count("\n") == 1


def test_watch_tells_every_report_once(shell: Shell) -> None:
    shell("buy", "ISO", "100", "10.05", "--id", "a-1")
    shell("cancel", "a-1")
    own = shell.json("watch", "--count", "1", "--after", "2")["client_id"]
    assert shell("watch", "--count", "4").replace(own, "@").splitlines() == [
        "1  a-1  buy 100 ISO at 10.05  accepted",
        "2  a-1  buy 100 ISO at 10.05  working",
        "3  @  buy 100 ISO at 10.05  cancel pending",
        "4  @  buy 100 ISO at 10.05  cancelled",
    ]
    rows = [json.loads(line) for line in shell("watch", "--count", "3", "--after", "1", "--json").splitlines()]
    assert [(one["number"], one["kind"]) for one in rows] == [(2, "working"), (3, "cancel pending"), (4, "cancelled")]
    assert rows[0]["at"].endswith("Z")


def test_watch_on_a_terminal_is_a_table(shell: Shell) -> None:
    shell("buy", "ISO", "100", "10.05", "--id", "a-1")
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "isocast", "order", "watch", "--count", "2"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONUTF8": "1"}
    with subprocess.Popen(command, stdout=inner, stderr=subprocess.PIPE, env=environment) as process:
        os.close(inner)
        shown = b"".join(iter(_reading(outer), b"")).decode()
        assert process.wait(LIMIT_S) == 0
    os.close(outer)
    assert "average" in shown
    assert "working" in shown
    assert "buy 100 ISO" in shown


def _reading(descriptor: int) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            return os.read(descriptor, 4_096)
        except OSError:  # The other end is closed.
            return b""

    return read


# ---- many at once


CSV = "side,symbol,quantity,price,lifetime,post_only,id\n"
JSON_LINE = '{"side": "buy", "symbol": "ISO", "quantity": 100, "price": 10.05, "lifetime": "gtc", "id": "q-1"}\n'


def given(folder: Path, text: str) -> str:
    file = folder / "orders"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_orders_of_a_file_are_those_that_the_desk_hears(shell: Shell, desk: MemoryDesk, tmp_path: Path) -> None:
    text = CSV + "buy,ISO,100,10.05,gtc,,q-1\n\nsell,VOD,7,1.2345,,yes,\n"
    assert shell("send", given(tmp_path, text), "--ids", "monday") == "2 entered, 0 refused.\n"
    wanted = NewOrder("q-1", "ISO", Side.BUY, 100, price=100_500, lifetime=Lifetime.UNTIL_CANCELLED)
    assert desk.submitted == [wanted, NewOrder("monday-4", "VOD", Side.SELL, 7, price=12_345, is_post_only=True)]
    assert shell("send", given(tmp_path, text), "--ids", "monday") == "2 entered, 0 refused.\n"
    assert len(shell.json("list")) == 2, "repeated under the same ids, each is entered once"
    desk.submitted.clear()
    [one] = shell.json("send", given(tmp_path, JSON_LINE))["orders"]
    assert (one["line"], one["report"]["client_id"], one["report"]["price"]) == (1, "q-1", "10.0500")
    assert len(shell.json("list")) == 2, "the same order, said in JSON"


def test_orders_come_by_standard_input(shell: Shell, desk: MemoryDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "".join(JSON_LINE.replace("q-1", f"q-{number}") for number in range(450))
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(many.encode())))
    assert shell("send") == "450 entered, 0 refused.\n"
    assert [one.client_id for one in desk.submitted] == [f"q-{number}" for number in range(450)]


def test_what_the_gateway_refuses_is_told_by_line_and_column_and_refuses_no_other(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = given(tmp_path, CSV + "buy,ISO,1,10,,,a-1\nbuy,NIX,1,10,,,a-2\nbuy,ISO,1,10,,,a-3\n")
    assert main(["order", "send", file]) == 2
    refused, summary = capsys.readouterr().out.splitlines()
    assert refused.startswith(f"{file}: line 3, symbol: ")
    assert "there is no NIX" in refused
    assert summary == "2 entered, 1 refused."
    assert [one["client_id"] for one in shell.json("list")] == ["a-1", "a-3"]
    assert main(["order", "send", file, "--json"]) == 2
    answers = json.loads(capsys.readouterr().out)["orders"]
    assert [one["line"] for one in answers if "refused" in one] == [3]


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "has no order"),
        (CSV, "has no order"),
        ("side,symbol,quantity,prise\n", "line 1, prise: is not known here"),
        ("side,symbol,side\n", "line 1, side: occurs twice"),
        (CSV + "buy,ISO,1,10,,,a-1\nbuy,ISO,1\n", "line 3: 3 cells under 7 columns"),
        (CSV + "buy,ISO,1_0,10,,,\n", "line 2, quantity: must be a whole number, not '1_0'"),
        (CSV + "buy,ISO,0,10,,,\n", "line 2, quantity: must be a whole number from 1"),
        (CSV + "buy,ISO,1,ten,,,\n", "line 2, price: "),
        (CSV + "buy,ISO,1,,,,\n", "line 2, price: give a price"),
        (CSV + "buy,ISO,1,10,,maybe,\n", "line 2, post_only: must be yes or no, not 'maybe'"),
        (CSV + "buy,ISO,1,10,forever,,\n", "line 2, lifetime: "),
        (CSV + "hold,ISO,1,10,,,\n", "line 2, side, symbol, quantity: each order has them"),
        (JSON_LINE + "{\n", "line 2: not JSON"),
        (JSON_LINE + "[]\n", "line 2: expected one JSON object"),
        (JSON_LINE + JSON_LINE.replace('"gtc"', "7"), "line 2, lifetime: must be a text, not 7"),
        (JSON_LINE.replace("100", "1.5"), "line 1, quantity: must be a whole number"),
    ],
)
def test_a_row_that_is_no_order_stops_all_before_any_is_sent(
    shell: Shell, desk: MemoryDesk, tmp_path: Path, text: str, told: str
) -> None:
    said = shell("send", given(tmp_path, text), code=2)
    assert told in said
    assert said.count("\n") == 1
    assert desk.submitted == []


def test_a_file_that_is_not_there_is_named(shell: Shell, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in shell("send", str(tmp_path / "none"), code=2)
    (tmp_path / "latin").write_bytes(b"side\nb\xfcy\n")
    assert "line 2: is not UTF-8 text" in shell("send", str(tmp_path / "latin"), code=2)


def test_a_gateway_that_is_lost_leaves_word_of_how_far_it_came(shell: Shell, tmp_path: Path) -> None:
    away = ("--url", "http://127.0.0.1:1", "--patience", "0.1")
    assert "of lines 1 to 1 nothing is known" in shell("send", given(tmp_path, JSON_LINE), *away, code=3)


# ---- who and where


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_file_that_others_may_read_is_refused(shell: Shell, tmp_path: Path, mode: int) -> None:
    loose = token_file(tmp_path / "loose.token", API_TOKEN, mode)
    said = shell("balances", "--token-file", str(loose), code=2)
    assert f"{mode:04o} lets others read it: chmod 600" in said
    assert API_TOKEN not in said


def test_what_is_not_known_is_asked_for_by_name(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "is missing: write the token" in shell("balances", "--token-file", str(tmp_path / "none"), code=2)
    strange = token_file(tmp_path / "strange.token", "two words")
    assert "one line of printable ASCII" in shell("balances", "--token-file", str(strange), code=2)
    wrong = token_file(tmp_path / "wrong.token", "nobodys")
    said = shell("balances", "--token-file", str(wrong), code=2)
    assert "nobody knows this token" in said
    assert "nobodys" not in said
    monkeypatch.delenv(TOKEN_FILE)
    assert f"or set {TOKEN_FILE}" in shell("balances", code=2)
    monkeypatch.delenv(URL)
    assert f"or set {URL}" in shell("balances", code=2)


def test_a_gateway_that_does_not_answer_is_exit_3(shell: Shell) -> None:
    said = shell("buy", "ISO", "1", "1", "--id", "a-1", "--url", "http://127.0.0.1:1", "--patience", "0.1", code=3)
    assert "ask again under the client id a-1" in said
    assert "no answer from the trading service" in shell(
        "list", "--url", "http://127.0.0.1:1", "--patience", "0.1", code=3
    )


def test_no_option_takes_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        assert main(["order", name, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--token-file" in text
        assert "--token " not in text
        assert "--password" not in text
