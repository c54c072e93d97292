"""`isocast floor`: rules to read, and lines to try them with."""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from pathlib import Path

import pytest
from tests.runtime.client.test_floor_replay import LOBSTER
from tests.runtime.disk.journals import write
from tests.runtime.disk.test_floor_journal import computed, kept_beside, written
from tests.wire.journal_samples import block

from isocast.cli.floor import app
from isocast.cli.main import main

ROOT = Path(__file__).parents[2]
CASE = [
    {"kind": "directory", "symbol": "ISO", "tick": 1, "lot": 1, "phase": "open"},
    {"kind": "token", "t": 1, "T": 0},
    {"kind": "order", "id": 1, "account": 7, "symbol": "ISO", "side": "sell", "quantity": 100, "price": 1002},
    {"kind": "order", "id": 2, "account": 8, "symbol": "ISO", "side": "buy", "quantity": 40, "price": 1005},
]


def filtered(monkeypatch: pytest.MonkeyPatch, *lines: str) -> int:
    monkeypatch.setattr(sys, "stdin", StringIO("".join(f"{line}\n" for line in lines)))
    return main(["floor", "lines"])


def test_lines_go_in_and_come_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert filtered(monkeypatch, *map(json.dumps, CASE)) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[0] == {"trade": 1, "symbol": "ISO", "price": 1002, "quantity": 40, "buy": 2, "sell": 1}
    assert [list(line) for line in told[1:]] == [["book"]]


def test_a_line_that_is_no_event_is_told_with_its_number_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = map(json.dumps, CASE)
    assert filtered(monkeypatch, first, "", "{", *rest) == 1
    output = capsys.readouterr()
    assert "line 3: not a JSON object" in output.err
    assert "1 line changed nothing" in output.err
    assert '"trade":1' in output.out


def test_an_input_that_is_closed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["floor", "lines"]) == 2
    assert capsys.readouterr().err == "isocast: standard input: input: is closed: send events through a pipe\n"


def test_the_example_of_the_help_is_a_case() -> None:
    text = str(app["lines"].help_epilogue)
    examples = [json.loads(line) for line in map(str.strip, text.splitlines()) if line.startswith("{")]
    assert examples == CASE


def test_every_rule_is_explained_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["floor", "rules", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert len(rules) == 6
    assert all("Example" in text for text in rules.values())
    assert main(["floor", "rules", "dutch"]) == 0
    output = capsys.readouterr().out
    assert "Amsterdam" in output
    assert "second" not in output


def test_an_unknown_rule_is_refused_with_the_ones_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["floor", "rules", "vickrey"]) == 2
    assert "second-price" in capsys.readouterr().err


def test_the_cases_of_the_page_print_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "auctions.md").read_text(encoding="utf-8")
    blocks = [block.strip() for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    assert len(blocks) == 8
    for asked, expected in zip(blocks[::2], blocks[1::2], strict=True):
        assert filtered(monkeypatch, *asked.splitlines()) == 0
        assert capsys.readouterr().out.strip() == expected


# ---- recordings and journals


def test_a_recording_goes_through_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ISO_2012-06-21_34200000_37800000_message_10.csv"
    path.write_text(LOBSTER)
    assert main(["floor", "replay", str(path)]) == 0
    told = capsys.readouterr().out
    assert "100.00% at the best price of its book" in told
    assert "50.00% at the head of the queue there" in told
    assert main(["floor", "replay", str(path), "--rule", "midpoint", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["trades"], found["volume"], found["at_fifo_head"]) == (3, 120, 0.5)
    assert main(["floor", "replay", str(path), "--limit", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 3


def test_a_table_of_orders_goes_through_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id,side,price,quantity,time_ns\n1,sell,10.02,100,1\n2,buy,10.05,40,2\n")
    for rule in ("resting", "batch"):
        assert main(["floor", "replay", str(path), "--rule", rule, "--tick", "0.01", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["volume"] == 40


@pytest.mark.parametrize(
    "words, said",
    [
        (["replay", "orders.csv", "--rule", "midpiont"], 'did you mean "midpoint"'),
        (["replay", "none.csv"], "is no file"),
        (["replay", "words.txt"], "words.txt"),
        (["verify", "nowhere"], "there is no journal"),
        (["book", "journal", "--floor", "XISO", "--symbol", "OSI"], '"OSI" is not one of ISO'),
        (["trades", "empty"], "there is no floor in this journal"),
    ],
)
def test_what_cannot_be_read_is_said(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text("id,side,price,quantity\n")
    (tmp_path / "words.txt").write_text("no orders here\n")
    written(tmp_path / "journal", computed())
    write(tmp_path / "empty", [block(1, 1, (None,))])
    assert main(["floor", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_journal_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(written(tmp_path / "journal", computed()))
    assert main(["floor", "verify", where]) == 0
    assert "EQUAL" in capsys.readouterr().out
    assert main(["floor", "verify", where, "--floor", "XISO", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal_reports"] == 2


@pytest.mark.parametrize("verb", ["verify", "book", "trades"])
def test_a_floor_that_a_journal_has_no_message_of_is_not_called_sound(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(written(tmp_path / "journal", computed()))
    assert main(["floor", verb, where, "--floor", "XIOS"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert 'XIOS has no message in this journal; did you mean "XISO"?; it has XISO' in said


def test_a_report_that_differs_is_shown_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = computed()
    reports[3] = reports[3]._replace(state=bytes(32))
    where = str(written(tmp_path / "journal", reports))
    assert main(["floor", "verify", where]) == 1
    assert "DIFFERENT: 1 report; the first is about token 8." in capsys.readouterr().out
    assert main(["floor", "verify", where, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"][0]["what"] == "state"


def test_book_and_trades_of_a_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(written(tmp_path / "journal", computed()))
    assert main(["floor", "book", where]) == 0
    assert "0.1003" in capsys.readouterr().out
    assert main(["floor", "book", where, "--token", "5", "--levels", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["symbols"]["ISO"]["sells"] == [["0.1002", 100, 1]]
    assert main(["floor", "trades", where]) == 0
    assert "3 trades, volume 130." in capsys.readouterr().out
    assert main(["floor", "trades", where, "--limit", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["price"] == "0.1002"


def test_a_book_says_from_where_it_was_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = written(tmp_path / "journal", computed())
    kept_beside(journal)
    told = []
    for how in ([], ["--whole"]):
        assert main(["floor", "book", str(journal), "--json", *how]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert [one.pop("computed_behind_token") for one in told] == [6, 0]
    assert told[0] == told[1]
    assert main(["floor", "book", str(journal)]) == 0
    assert "XISO, computed from the state kept after token 6" in capsys.readouterr().out
    assert main(["floor", "book", str(journal), "--whole"]) == 0
    assert "XISO, computed from the first message on" in capsys.readouterr().out


@pytest.mark.parametrize("last, numbers", [(1, [3]), (2, [2, 3]), (9, [1, 2, 3])])
def test_the_newest_trades_are_the_same_with_a_kept_state_and_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: int, numbers: list[int]
) -> None:
    journal = written(tmp_path / "journal", computed())
    kept_beside(journal)
    assert main(["floor", "trades", str(journal), "--last", str(last), "--json"]) == 0
    assert [json.loads(line)["number"] for line in capsys.readouterr().out.splitlines()] == numbers
    assert main(["floor", "trades", str(journal), "--last", "1", "--limit", "1"]) == 2
    assert "not both" in capsys.readouterr().err
