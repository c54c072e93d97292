"""A day of a ticker on a market that runs, by its commands: a broken trade, a correction, a halt, a floor that
restarts, somebody who joins late, and feeds with damage in them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import OPEN, frame
from tests.runtime.worlds import SMALL, World, market_file, running, wait_until

from isocast.cli.main import main
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.wire.events import MarketEvent, build_events

MINUTE = 60 * 10**9
MORNING = [
    itch.directory(1, OPEN, "ISO"),
    itch.directory(2, OPEN, "CAST"),
    itch.action(1, OPEN, "ISO", "T"),
    itch.trade(1, OPEN + 1, 100, "ISO", 1_000_000, 71),
    itch.trade(2, OPEN + 2, 10, "CAST", 50_000, 72),
    itch.trade(1, OPEN + 3, 40, "ISO", 9_000_000, 73),
]
AFTERNOON = [
    itch.broken(1, OPEN + MINUTE, 73),
    itch.trade(1, OPEN + MINUTE, 5, "ISO", 1_002_000, 74),
    itch.action(1, OPEN + 2 * MINUTE, "ISO", "H", "T1  "),
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    desks = {
        name: {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}
        for name in ("desk", "late")
    }
    nodes = {**SMALL, **desks, "other": {"role": "primary-source"}}
    with running(market_file(tmp_path, nodes), *SMALL, "other") as found:
        yield found


def isocast(world: World, command: str, *words: object, code: int = 0) -> None:
    assert main([command, *map(str, words), "--config", str(world.path)]) == code


def replay(world: World, file: Path, floor: str, *words: object, code: int = 0) -> None:
    isocast(world, "replay", file, "--as", floor, "--speed", "max", *words, code=code)


def wait_for(world: World, events: int) -> None:
    wait_until(lambda: world.count("bank") >= events)
    assert world.count("bank") == events


def tape(world: World, capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """The summary of what the bank's journal has."""
    capsys.readouterr()
    journal = world.market.directory_of("bank") / "journal"
    assert main(["tape", "--journal", str(journal), "--summary", "--json", *map(str, words)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def row(summary: dict[str, Any], symbol: str, floor: str) -> dict[str, Any]:
    (found,) = [row for row in summary["rows"] if (row["symbol"], row["floor"]) == (symbol, floor)]
    return dict(found)


def test_a_day(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """§7.1: the trades of all floors in one list, whatever happens at one of them."""
    morning, afternoon = tmp_path / "morning" / "20190130.ITCH50", tmp_path / "afternoon" / "20190130.ITCH50"
    for file, messages in ((morning, MORNING), (afternoon, [*MORNING[:2], *AFTERNOON])):
        file.parent.mkdir()
        file.write_bytes(frame(*messages))
    replay(world, morning, "floor:XAAA")
    other = tmp_path / "other.events"
    sale = MarketEvent(EventKind.TRADE, Mic("XBBB"), Symbol("ISO"), price=1_010_000, quantity=50, time=1, id=5)
    other.write_bytes(build_events([sale]).tobytes())
    isocast(world, "publish", "--source", "other", "--format", "raw", other)
    events = len(MORNING) + 1
    wait_for(world, events)
    noon = tape(world, capsys, "--snapshot", tmp_path / "noon.tape")
    assert (row(noon, "ISO", "XAAA")["volume"], row(noon, "ISO", "XAAA")["high"]) == (140, "900.0000")

    # The floor restarts: its morning, offered again, is known to it; its afternoon follows.
    replay(world, morning, "floor:XAAA")
    assert "Nothing new" in capsys.readouterr().out
    replay(world, afternoon, "floor:XAAA")
    corrected = MarketEvent(EventKind.CORRECTION, Mic("XBBB"), Symbol("ISO"), price=999_000, quantity=60, time=2, id=5)
    other.write_bytes(build_events([corrected]).tobytes())
    isocast(world, "publish", "--source", "other", "--format", "raw", other)
    events += 2 + len(AFTERNOON) + 1
    wait_for(world, events)
    evening = tape(world, capsys)
    here, there = row(evening, "ISO", "XAAA"), row(evening, "ISO", "XBBB")
    assert (here["volume"], here["high"], here["cancelled"], here["status"]) == (105, "100.2000", 1, "halted")
    assert (there["volume"], there["close"], there["corrected"]) == (60, "99.9000", 1)
    assert evening["faults"] == {}

    # Whoever comes in the evening with the tape of noon understands corrections of the morning.
    rest = ("--count", events - noon["events"])
    isocast(world, "tape", "--name", "late", "--snapshot", tmp_path / "noon.tape", *rest)
    late = tape(world, capsys, "--snapshot", tmp_path / "noon.tape")
    assert (late["sequence"], late["state_digest"]) == (evening["sequence"], evening["state_digest"])


TRADES = [itch.trade(1, OPEN + number, 5, "ISO", 77, number) for number in range(1, 401)]
LIST = [itch.directory(1, OPEN, "ISO"), *TRADES]
BAD_LENGTH = frame(*LIST[:9]) + b"\x00\x03" + LIST[9] + frame(*LIST[10:])
UNKNOWN_TYPE = frame(*LIST[:9], b"?" + LIST[9][1:], *LIST[10:])


@pytest.mark.parametrize(
    "name, content, published, faults",
    [
        ("20190130.ITCH50", BAD_LENGTH, (400, 400), {"bad-length": 1}),
        ("20190130.ITCH50", UNKNOWN_TYPE, (400, 400), {"unknown-type": 1}),
        ("20190130.ITCH50.gz", gzip.compress(frame(*LIST))[:-700], (100, 399), {"truncated": 2}),
    ],
    ids=["bad length", "unknown type", "truncated gz"],
)
def test_a_malformed_feed(
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
    published: tuple[int, int],
    faults: dict[str, int],
) -> None:
    """Told with its place and counted; what is whole is published once; a strict replay stops; the market goes on."""
    file = tmp_path / name
    file.write_bytes(content)
    replay(world, file, "floor:XAAA", "--json", code=1)
    report = json.loads(capsys.readouterr().out)
    assert published[0] <= report["events"] <= published[1]
    assert report["files"][0]["faults"] == faults
    wait_for(world, report["events"])
    replay(world, file, "floor:XAAA", "--strict", "--run", "strict", code=2)
    error = capsys.readouterr().err
    assert str(file) in error
    assert f"byte {len(frame(*LIST[:9]))}" in error or file.suffix == ".gz"
