"""`isocast replay` against a market that runs: several floors and files, repeats, faults, bad words."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import OPEN, frame
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

from isocast.cli.main import main
from isocast.cli.replay import progress_text
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.replay import ReplayedFloor, ReplayReport
from isocast.wire.events import EventArray, events_view

START = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nodes = {name: SMALL[name] for name in ("a", "b", "c", "floor", "x")}
    nodes |= {"other": {"role": "primary-source"}}
    path = market_file(tmp_path_factory.mktemp("market"), {**nodes, "idle": {"role": "primary-source"}})
    with running(path, *nodes) as found:
        yield found


def replay(world: World, *arguments: object) -> int:
    return main(["replay", *map(str, arguments), "--config", str(world.path)])


def day(file: Path, floor: bytes, first_id: int, count: int = 60) -> EventArray:
    events = trades(count, first_id)
    events["floor"] = floor
    events["time"] = START + 1_000_000 * np.arange(count, dtype=np.uint64)
    file.write_bytes(events.tobytes())
    return events


def released(world: World, *codes: bytes) -> EventArray:
    payloads = [events_view(payload) for _, payload in world.released("a")]
    events = np.concatenate([*payloads, np.empty(0, payloads[0].dtype)]) if payloads else trades(0)
    return events[np.isin(events["floor"], codes)]


def digest(events: EventArray) -> str:
    tape = TapeDigest()
    tape.update(events)
    return tape.hex


def test_files_of_several_floors_once(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = day(tmp_path / "one.events", b"XAAA", 1)
    two = day(tmp_path / "two.events", b"XBBB", 1_001)
    words = f"{tmp_path / 'one.events'}=floor", f"{tmp_path / 'two.events'}=other:XBBB", "--speed", "2x", "--json"
    assert replay(world, *words) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["events"], report["known_messages"]) == (120, 0)
    assert [floor["source"] for floor in report["floors"]] == ["floor", "other"]
    assert [floor["digest"] for floor in report["floors"]] == [digest(one), digest(two)]
    assert report["floors"][1]["codes"] == {"XBBB": {"events": 60, "digest": digest(two)}}
    wait_until(lambda: len(released(world, b"XAAA", b"XBBB")) >= 120)
    assert replay(world, *words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["known_messages"] == again["messages"] == report["messages"]
    assert replay(world, *words[:-1]) == 0
    assert "Nothing new: the sources had all" in capsys.readouterr().out
    assert digest(released(world, b"XAAA")) == digest(one)
    assert digest(released(world, b"XBBB")) == digest(two)


def test_a_floor_of_a_file_with_several(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = np.concatenate([day(tmp_path / "x", b"XCCC", 1, 5), day(tmp_path / "y", b"XDDD", 11, 5)])
    (tmp_path / "tape.events").write_bytes(both.tobytes())
    assert replay(world, tmp_path / "tape.events", "--as", "floor:XDDD", "--speed", "max") == 0
    assert "Replayed 5 events" in capsys.readouterr().out
    wait_until(lambda: len(released(world, b"XDDD")) == 5)
    assert len(released(world, b"XCCC")) == 0


def test_a_malformed_file_is_counted_or_refused(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gz that ends in the middle: what is whole is published, the rest is named; a strict replay stops."""
    messages = [itch.directory(1, OPEN, "ISO"), *[itch.trade(1, OPEN + n, 5, "ISO", 77, n) for n in range(400)]]
    whole = gzip.compress(b"".join(frame(message) for message in messages))
    file = tmp_path / "20190130.ITCH50.gz"
    file.write_bytes(whole[: len(whole) // 2])
    assert replay(world, file, "--as", "floor:XEEE", "--speed", "max", "--strict") == 2
    assert "20190130.ITCH50.gz" in capsys.readouterr().err
    assert replay(world, file, "--as", "floor:XEEE", "--speed", "max", "--run", "lenient") == 1
    assert "WRONG in" in capsys.readouterr().out
    wait_until(lambda: len(released(world, b"XEEE")) > 1)


@pytest.mark.parametrize(
    "words, rule",
    [
        (["FILE"], "--as: FILE: which floor publishes it?"),
        (["FILE", "--as", "flour"], "nodes.flour: is not a source"),
        (["FILE", "--as", "floor:x"], "--as: floor 'x'"),
        (["FILE", "--as", "floor", "--speed", "fast"], '--speed: "fast" is neither max nor a number'),
        (["FILE", "--as", "floor", "--speed", "0x"], '--speed: "0x" is neither max nor a number'),
        (["absent.itch", "--as", "floor"], "absent.itch: cannot be read"),
    ],
)
def test_bad_words(
    world: World, tmp_path: Path, words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "day.events"
    day(file, b"XNYS", 1, 1)
    assert replay(world, *[str(file) if word == "FILE" else word for word in words]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert rule.replace("FILE", str(file)) in got.err
    assert got.err.count("\n") == 1


def test_a_source_that_is_down(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day(tmp_path / "day.events", b"XNYS", 1, 1)
    assert replay(world, tmp_path / "day.events", "--as", "idle", "--patience", "0") == 1
    assert "0 messages in the outboxes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "report, seconds, text",
    [
        (ReplayReport([]), 0.0, "0 events, 250 a second, market time unknown"),
        (
            ReplayReport([ReplayedFloor("floor", events=1_000)], market_time=START, part=0.25),
            40.0,
            "1,000 events, 250 a second, 25 % read, about 2 min 0 s left, market time 2023-11-14 22:13:20 UTC",
        ),
        (
            ReplayReport([ReplayedFloor("floor", events=1_000)], part=0.001, behind_s=7.0),
            40.0,
            "1,000 events, 250 a second, 0 % read, about 11 h 6 min left, market time unknown, 7 s behind its pace",
        ),
        (ReplayReport([], part=1.0), 40.0, "0 events, 250 a second, 100 % read, market time unknown"),
    ],
)
def test_progress_is_events_rate_share_and_time_left(report: ReplayReport, seconds: float, text: str) -> None:
    assert progress_text(report, 250.0, seconds) == text
