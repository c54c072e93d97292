"""`isocast exchange audit` and `show`: what a user sees, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.runtime.disk.journals import write
from tests.runtime.exchange.halls import CODE, order
from tests.runtime.exchange.test_directing import working
from tests.runtime.worlds import market_file
from tests.wire.journal_samples import block

from isocast.cli.main import main
from isocast.floor.codec import encode_event, floor_topic
from isocast.orders.delivery import Place
from isocast.orders.exchange import answers_topic, encode_answer
from isocast.runtime.exchange.serving import spool_path
from isocast.runtime.exchange.spool import HeardMessage, Spool
from isocast.runtime.market.file import load_market
from isocast.terms.market import Side
from isocast.wire.opaque import OpaqueMessage, cut_opaque


def journal(folder: Path, said: Sequence[str]) -> Path:
    """Three orders share packet 1; then reports, a packet each, of the places that are named."""
    orders = [OpaqueMessage(floor_topic(CODE), encode_event(order(number, Side.BUY, 1, 10))) for number in (1, 2, 3)]
    released = [block(1, 1, cut_opaque(orders, 1_200))]
    for token, text in enumerate(said, 2):
        place = Place.parse(text)
        assert place is not None
        answer = working(1)._replace(order=place)
        released.append(
            block(token, token, cut_opaque([OpaqueMessage(answers_topic(CODE), encode_answer(answer))], 1_200))
        )
    write(folder, released)
    return folder


def test_an_exchange_that_kept_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = journal(tmp_path / "journal", ["1", "1.1"])
    assert main(["exchange", "audit", str(where), "--exchange", CODE]) == 0
    out = capsys.readouterr().out
    assert "3 requests directed to it, 2 taken, 1 waiting, 0 declined." in out
    assert "KEPT" in out


def test_an_exchange_that_departed_is_shown_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = journal(tmp_path / "journal", ["1.1", "1", "9"])
    assert main(["exchange", "audit", str(where), "--exchange", CODE]) == 1
    out = capsys.readouterr().out
    assert "DEPARTED: 2 departures." in out
    assert "order 1 was taken at report 3, after the later order 1.1" in out
    assert main(["exchange", "audit", str(where), "--exchange", CODE, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["departures"] == [
        {"kind": "overtaken", "order": "1", "report": "3", "before": "1.1"},
        {"kind": "unknown", "order": "9", "report": "4", "before": None},
    ]
    assert (found["requests"], found["taken"], found["waiting"], found["is_kept"]) == (3, 2, 1, False)


def test_no_journal_and_one_that_begins_late_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exchange", "audit", str(tmp_path), "--exchange", CODE]) == 2
    assert "there is no journal" in capsys.readouterr().err
    write(tmp_path / "late", [block(2, 5)])
    assert main(["exchange", "audit", str(tmp_path / "late"), "--exchange", CODE]) != 0
    assert "begins with sequence 5" in capsys.readouterr().err


def test_show_says_how_far_it_has_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = market_file(tmp_path)
    words = ["exchange", "show", "--config", str(path), "--exchange"]
    assert main([*words, CODE]) == 2
    assert "nothing was delivered to XLON from here" in capsys.readouterr().err
    assert main([*words, "../x"]) == 2
    assert "letters and digits" in capsys.readouterr().err
    where = spool_path(load_market(path).directory_of(f"exchange-{CODE}"))
    spool = Spool(where, CODE, stripe=3, is_new=True)
    spool.take([HeardMessage(Place(7, 1), 1, encode_event(order(1, Side.BUY, 1, 10)))], 9)
    spool.close()
    assert main([*words, CODE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "exchange": CODE,
        "stripe": 3,
        "sequence": 9,
        "waiting": 1,
        "oldest": "7.1",
        "live": 1,
        "unreadable": 0,
    }
    assert main([*words, CODE]) == 0
    assert "7.1" in capsys.readouterr().out


@pytest.mark.usefixtures("own_logs")
@pytest.mark.parametrize("fix", ["9878", "host:", ":1", "host:x", "host:70000"])
def test_what_is_no_place_is_refused(fix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", str(market_file(tmp_path)), "--exchange", CODE, "--source", "floor"]
    assert main(["exchange", "run", *words, "--fix", fix]) == 2
    assert "must be HOST:PORT" in capsys.readouterr().err
