"""`isocast tape` as a user meets it: from feeds, from a journal, and from a market that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.runtime.worlds import SMALL, World, market_file, running, wait_until

from isocast.cli.main import main
from isocast.cli.tape_live import Moment, TapeChoice, read_journal, tell_gap
from isocast.cli.tape_view import depth_frame, live_frame
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.ticker.tape import Tape
from isocast.wire.events import EventArray, MarketEvent, build_events

SECOND = 10**9
NOON = 1_772_452_800 * SECOND
"""2026-03-02T12:00:00Z."""
NYSE, LSE = Mic("XNYS"), Mic("XLON")
ISO, CAST = Symbol("ISO"), Symbol("CAST")

DAY = [
    MarketEvent(EventKind.DIRECTORY, NYSE, ISO, price=100, quantity=100, time=NOON),
    MarketEvent(EventKind.STATUS, NYSE, ISO, time=NOON, reference=MarketStatus.TRADING),
    MarketEvent(EventKind.TRADE, NYSE, ISO, price=1_000_000, quantity=100, time=NOON + SECOND, id=1),
    MarketEvent(EventKind.TRADE, LSE, ISO, price=1_010_000, quantity=50, time=NOON + 2 * SECOND, id=1),
    MarketEvent(EventKind.QUOTE, NYSE, ISO, Side.BUY, 999_900, 300, NOON + 3 * SECOND, flags=EventFlag.LINKED),
    MarketEvent(EventKind.QUOTE, NYSE, ISO, Side.SELL, 1_000_100, 200, NOON + 3 * SECOND),
    MarketEvent(EventKind.TRADE, NYSE, CAST, price=50_000, quantity=10, time=NOON + 4 * SECOND, id=2),
    MarketEvent(EventKind.CORRECTION, LSE, ISO, price=1_005_000, quantity=50, time=NOON + 5 * SECOND, id=1),
    MarketEvent(EventKind.TRADE_CANCEL, NYSE, ISO, time=NOON + 5 * SECOND, id=77),
    MarketEvent(EventKind.STATUS, NYSE, ISO, time=NOON + 6 * SECOND, reference=MarketStatus.HALTED),
]


def day() -> EventArray:
    return build_events(DAY)


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "day.events"
    path.write_bytes(day().tobytes())
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["tape", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json").splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Exit code 2, nothing on standard output, and one line."""
    assert main(["tape", *map(str, arguments)]) == 2
    got = capsys.readouterr()
    assert (got.out, got.err.count("\n")) == ("", 1)
    return got.err


def test_a_feed_gives_a_row_for_each_symbol(feed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cast, iso = rows(capsys, "--feed", feed)
    assert (cast["symbol"], cast["last"]["price"], cast["status"]) == ("CAST", "5.0000", None)
    assert iso == {
        "symbol": "ISO",
        "sequence": 10,
        "last": {
            "price": "100.5000",
            "quantity": 50,
            "floor": "XLON",
            "time": NOON + 2 * SECOND,
            "sequence": 4,
            "id": 1,
        },
        "change": "0.5000",
        "bid": {"price": "99.9900", "size": 300, "floors": ["XNYS"]},
        "ask": {"price": "100.0100", "size": 200, "floors": ["XNYS"]},
        "market": "normal",
        "incomplete": [],
        "volume": 150,
        "trades": 2,
        "status": "halted",
        "status_floors": ["XNYS"],
        "status_time": NOON + 6 * SECOND,
    }


def test_a_table_names_what_is_halted(feed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--feed", feed, "--symbols", "ISO")
    assert "100.5000" in out
    assert "99.9900 × 300" in out
    assert "halted XNYS" in out
    assert "CAST" not in out


def test_floors_are_chosen(feed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (iso,) = rows(capsys, "--feed", feed, "--floors", "XLON")
    assert (iso["volume"], iso["bid"], iso["status"]) == (50, None, None)


@pytest.mark.parametrize("moment, last", [("4", "101.0000"), ("2026-03-02T12:00:01Z", "100.0000"), ("7", "101.0000")])
def test_the_state_at_an_event_or_a_time(
    feed: Path, moment: str, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {row["symbol"]: row for row in rows(capsys, "--feed", feed, "--at", moment)}
    assert found["ISO"]["last"]["price"] == last
    assert ("CAST" in found) == (moment == "7")


def test_the_summary_has_each_floor_and_all_and_what_is_in_doubt(
    feed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(capsys, "--feed", feed, "--summary", "--json"))
    iso = {row["floor"]: row for row in found["rows"] if row["symbol"] == "ISO"}
    assert (iso[None]["volume"], iso[None]["vwap"], iso[None]["corrected"]) == (150, "100.166667", 1)
    assert (iso["XLON"]["high"], iso["XLON"]["close"], iso["XLON"]["listed"]) == ("100.5000", "100.5000", False)
    assert found["faults"] == {"unknown-reference": 1}
    assert found["first_faults"]["unknown-reference"][0]["id"] == 77
    assert found["unlisted"] == 2
    out = run(capsys, "--feed", feed, "--summary")
    assert "XNYS ISO trade_cancel id 77 at sequence 9" in out
    assert found["events_digest"] in out


def test_a_snapshot_goes_on_where_it_ended(feed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "tape.snapshot"
    whole = json.loads(run(capsys, "--feed", feed, "--summary", "--json"))
    run(capsys, "--feed", feed, "--count", 5, "--snapshot", saved)
    assert Tape.restore(saved.read_bytes()).events == 5
    late = json.loads(run(capsys, "--feed", feed, "--snapshot", saved, "--summary", "--json"))
    assert late["state_digest"] == whole["state_digest"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    saved.write_bytes(b"nothing")
    assert "--snapshot" in refused(capsys, "--feed", feed, "--snapshot", saved)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--config", "m.toml", "--feed", "x"], "--config, --journal and --feed"),
        (["--feed", "x", "--seconds", "3"], "running market"),
        (["--config", "m.toml", "--at", "3"], "--at"),
        (["--feed", "x", "--at", "noon"], "--at"),
        (["--feed", "x", "--symbols", "X" * 49], "--symbols"),
        (["--feed", "x", "--floors", "NY"], "--floors"),
        (["--feed", "/no/such/file"], "/no/such/file"),
        (["--journal", "/no/such/place"], "/no/such/place"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason in refused(capsys, *arguments)


def test_a_live_frame_has_the_busiest_symbols_and_colours_halts() -> None:
    tape = Tape()
    tape.take(day())
    console = Console(width=120, record=True, color_system="truecolor", force_terminal=True)
    with console.capture() as captured:
        console.print(live_frame("test", tape, None, None, 120, 6))
    out = captured.get()
    assert "ISO" in out
    assert "CAST" not in out
    assert "1 of 2 symbols" in out
    assert "41m" in out  # Red behind it.


def test_a_malformed_feed_is_shown_as_far_as_it_can_be_read_and_told(
    feed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.write_bytes(feed.read_bytes()[:-20])
    assert main(["tape", "--feed", str(feed), "--json"]) == 0
    got = capsys.readouterr()
    assert "1 truncated" in got.err
    assert [json.loads(line)["status"] for line in got.out.splitlines()] == [None, "trading"]


@pytest.mark.parametrize("width, missing", [(130, []), (100, ["time"]), (80, ["time", "ask × size"])])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_words(width: int, missing: list[str]) -> None:
    tape = Tape()
    tape.take(day())
    console = Console(width=width)
    with console.capture() as captured:
        console.print(live_frame("test", tape, None, None, width, 20))
    out = captured.get()
    assert "…" not in out
    for header in ("symbol", "last", "time", "change", "ask × size", "volume", "halted XNYS"):
        assert (header in out) == (header not in missing), header


# ---- a market that runs


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    desks = {
        name: {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}
        for name in ("desk", "late")
    }
    folder = tmp_path_factory.mktemp("market")
    path = market_file(folder, {**SMALL, **desks, "other": {"role": "primary-source"}})
    with running(path) as found:
        for source, name in (("floor", NYSE), ("other", LSE)):
            file = folder / f"{name}.events"
            file.write_bytes(day()[day()["floor"] == name.encode()].tobytes())
            assert main(["publish", "--config", str(path), "--source", source, "--format", "raw", str(file)]) == 0
        wait_until(lambda: found.count("archive") == len(DAY) == found.count("bank"))
        yield found


def test_customers_journals_and_inputs_have_one_tape(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """§7.1: "The investors receive the list in the same order, at the same time"."""
    journals = [world.market.directory_of(name) / "journal" for name in ("a", "archive", "bank")]
    tapes = [json.loads(run(capsys, "--journal", journal, "--summary", "--json")) for journal in journals]
    assert tapes[1:] == tapes[:1] * 2
    feed = tmp_path / "inputs.events"
    feed.write_bytes(day().tobytes())
    inputs = json.loads(run(capsys, "--feed", feed, "--summary", "--json"))
    assert inputs["floors"] == tapes[0]["floors"]
    heard = json.loads(
        run(capsys, "--config", world.path, "--name", "desk", "--count", len(DAY), "--summary", "--json")
    )
    assert heard["state_digest"] == tapes[0]["state_digest"]


def test_somebody_who_joins_late_from_a_snapshot_has_the_same_tape(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, saved = world.market.directory_of("a") / "journal", tmp_path / "tape.snapshot"
    whole = json.loads(run(capsys, "--journal", journal, "--summary", "--json"))
    run(capsys, "--journal", journal, "--at", 1, "--snapshot", saved)
    first = Tape.restore(saved.read_bytes())
    assert first.sequence == 1
    assert 0 < first.events < len(DAY)
    run(capsys, "--config", world.path, "--name", "late", "--snapshot", saved, "--count", len(DAY) - first.events)
    late = Tape.restore(saved.read_bytes())
    assert late.sequence == whole["sequence"]
    again = json.loads(run(capsys, "--journal", journal, "--snapshot", saved, "--summary", "--json"))
    assert again["state_digest"] == whole["state_digest"]


def test_live_rows_are_those_of_symbols_that_changed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "--config", world.path, "--name", "desk", "--symbols", "ISO", "--count", len(DAY))
    assert {row["symbol"] for row in found} == {"ISO"}
    assert (found[-1]["volume"], found[-1]["status"]) == (150, "halted")


def test_before_anything_was_released_a_journal_has_an_empty_tape(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = world.market.directory_of("a") / "journal"
    assert rows(capsys, "--journal", journal, "--at", "2020-01-01T00:00:00") == []
    late = rows(capsys, "--journal", journal, "--at", "2100-01-01T00:00:00+01:00")
    assert [row["symbol"] for row in late] == ["CAST", "ISO"]


def test_messages_that_a_tape_does_not_get_are_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    tape = Tape()
    read_journal(world.market.directory_of("a") / "journal", tape, Moment(), TapeChoice(), None)
    assert capsys.readouterr().err == ""
    tape = Tape()
    tape.sequence = 3
    tell_gap(tape, 4)
    assert capsys.readouterr().err == ""
    tell_gap(tape, 7)
    assert "sequences 4 to 6 are not here" in capsys.readouterr().err


def test_a_count_ends_with_a_whole_message_so_that_a_snapshot_loses_nothing(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, saved = world.market.directory_of("a") / "journal", tmp_path / "tape.snapshot"
    whole = json.loads(run(capsys, "--journal", journal, "--summary", "--json"))
    run(capsys, "--journal", journal, "--count", 1, "--snapshot", saved)
    first = Tape.restore(saved.read_bytes())
    assert (first.sequence, 1 < first.events < len(DAY)) == (1, True)
    again = json.loads(run(capsys, "--journal", journal, "--snapshot", saved, "--summary", "--json"))
    assert again["state_digest"] == whole["state_digest"]


ORDERS = [
    MarketEvent(EventKind.ORDER, NYSE, ISO, Side.BUY, 999_900, 300, NOON, id=1),
    MarketEvent(EventKind.ORDER, LSE, ISO, Side.BUY, 999_900, 100, NOON, id=1),
    MarketEvent(EventKind.ORDER, NYSE, ISO, Side.SELL, 1_000_100, 200, NOON, id=2),
    MarketEvent(EventKind.CANCEL, LSE, ISO, time=NOON, id=9),
]


def test_books_of_all_floors_by_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "orders.events"
    path.write_bytes(build_events(ORDERS).tobytes())
    assert rows(capsys, "--feed", path, "--depth", 3) == [
        {
            "sequence": 4,
            "symbol": "ISO",
            "bids": [{"price": "99.9900", "size": 400, "orders": 2, "floors": ["XNYS", "XLON"]}],
            "asks": [{"price": "100.0100", "size": 200, "orders": 1, "floors": ["XNYS"]}],
            "market": "normal",
            "incomplete": ["XLON"],
        }
    ]
    shown = run(capsys, "--feed", path, "--depth", 3)
    assert "incomplete XLON" in shown
    assert "99.9900" in run(capsys, "--feed", path), "best prices without quotes"
    assert "--depth" in refused(capsys, "--feed", path, "--depth", 3, "--summary")


def test_a_live_frame_of_books_has_room_for_what_it_shows() -> None:
    tape = Tape()
    tape.take(build_events(ORDERS))
    table = depth_frame(3, "tests", tape, None, None, width=100, height=20)
    console = Console(width=100, record=True, file=StringIO())
    console.print(table)
    text = console.export_text()
    assert "99.9900" in text
    assert "1 books" in text
