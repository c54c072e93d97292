"""`isocast listen` against a market that runs: rows, JSON, the newest, where to begin and when to end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.forged_line import send_on_line
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

from isocast.cli.listen import _Printer, _rows
from isocast.cli.main import main
from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.terms.ids import Epoch, server_id

ROWS = """kind,floor,symbol,side,price,quantity,id,reference,flags
trade,XNYS,IBM,,143.2,100,1,,
quote,XNYS,IBM,buy,143.1,500,2,,linked
quote,XNYS,IBM,sell,143.3,400,3,,
status,XNYS,IBM,,,,0,halted,
trade,XNYS,IBM,,143.3,50,5,,
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nodes = {
        **SMALL,
        "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    }
    folder = tmp_path_factory.mktemp("market")
    path = market_file(folder, nodes)
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    with running(path) as found:
        assert main(["publish", "--config", str(path), "--source", "floor", str(folder / "rows.csv")]) == 0
        wait_until(lambda: len(found.ids("archive")) == 5)
        yield found


def listen(world: World, *arguments: object) -> int:
    return main(["listen", "--config", str(world.path), *map(str, arguments)])


def test_json_lines_have_everything(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert listen(world, "--from", "beginning", "--count", 5, "--json") == 0
    got = capsys.readouterr()
    rows = [json.loads(line) for line in got.out.splitlines()]
    assert [row["id"] for row in rows] == [1, 2, 3, 0, 5]
    assert rows[1] | {"time_ns": 0, "instant_ns": 0, "release_ns": 0, "received_ns": 0} == {
        "stripe": 0,
        "sequence": 1,
        "batch": "messages",
        "instant_ns": 0,
        "release_ns": 0,
        "received_ns": 0,
        "kind": "quote",
        "side": "buy",
        "flags": ["linked"],
        "floor": "XNYS",
        "symbol": "IBM",
        "price": "143.1000",
        "quantity": 500,
        "reference": 0,
        "time_ns": 0,
        "id": 2,
    }
    assert rows[3]["reference"] == "halted"
    timing = world.market.timing
    assert rows[0]["release_ns"] - rows[0]["instant_ns"] == timing.release_delay_ns
    assert rows[0]["received_ns"] >= rows[0]["release_ns"]
    assert "listening as guest@127.0.0.1 (complete) to b, c" in got.err
    assert "5 events, sequence 1\n" in got.err


def test_rows_are_columns_for_people(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert listen(world, "--from", "1", "--count", 3, "--as", "desk") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert " ".join(header.split()) == "sequence released kind side floor symbol price quantity id reference flags"
    assert len(rows) == 3
    assert rows[1].split()[2:] == ["quote", "buy", "XNYS", "IBM", "143.1000", "500", "2", "0", "linked"]
    at = header.index("price") + len("price")
    assert rows[1][:at].endswith("143.1000")


def test_the_newest_only(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert listen(world, "--latest", "--count", 4, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["batch"] for row in rows} == {"latest"}
    assert sorted((row["kind"], row["id"]) for row in rows) == [("quote", 2), ("quote", 3), ("status", 0), ("trade", 5)]
    assert rows[0]["release_ns"] is None  # Told of by a snapshot.


def test_when_a_price_was_released_is_never_when_it_arrived(capsys: pytest.CaptureFixture[str]) -> None:
    events = trades(2)
    released, unknown = 1_700_000_000_000_000_000, 0
    batch = ReceivedBatch(
        BatchKind.LATEST, 9, 9, events, np.array([8, 9], np.uint64), np.array([released, unknown]), 0, received_at=5
    )
    _Printer(as_json=False).show(_rows(batch))
    assert [row.split()[1] for row in capsys.readouterr().out.splitlines()] == ["22:13:20.000000", "–"]


def test_a_snapshot_comes_first(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert listen(world, "--from", "snapshot", "--count", 4, "--json") == 0
    assert {json.loads(line)["batch"] for line in capsys.readouterr().out.splitlines()} == {"snapshot"}


def test_what_was_heard_can_be_published_again(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listen(world, "--from", "beginning", "--count", 5, "--json") == 0
    (tmp_path / "again.jsonl").write_text(capsys.readouterr().out, encoding="utf-8")
    before = len(world.ids("archive"))
    command = ["publish", "--config", str(world.path), "--source", "floor", str(tmp_path / "again.jsonl")]
    assert main(command) == 0
    wait_until(lambda: len(world.ids("archive")) == before + 5)
    released = [payload for _, payload in world.released("archive")]
    assert released[-1] == released[0]


def test_it_ends_by_itself_after_some_time(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert listen(world, "--seconds", "0.2", "--json") == 0
    got = capsys.readouterr()
    assert got.out == ""
    assert "no messages" in got.err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--as", "dseks"], 'nodes.dseks: is not a customer; did you mean "desk"?; there are bank, desk'),
        (["--from", "yesterday"], "'yesterday' is neither now, beginning, snapshot nor a sequence from 1 on"),
        (["--from", "0"], "0 is neither"),
        (["--latest", "--from", "beginning"], "grade latest never asks for the past"),
        (["--count", "0"], "Must be >= 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    world: World, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listen(world, *arguments) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert text in got.err


def test_a_place_that_is_taken_is_exit_3(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert listen(world, "--as", "bank") == 3
    assert "bank is in use" in capsys.readouterr().err


def test_a_market_that_is_not_up_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocast.cli.listen._PATIENCE_S", 0.1)
    path = market_file(tmp_path)
    assert main(["listen", "--config", str(path), "--seconds", "2"]) == 0
    assert "no packets on any line yet: is the market up?" in capsys.readouterr().err


def test_a_conflict_is_never_silent(tmp_path: Path) -> None:
    """Two lines carry different contents of one message, both under the right key, where nobody signs."""
    nodes = {**SMALL, "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}}
    path = market_file(tmp_path, nodes, settings={"security": {"signatures": False}})
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    publish = ["publish", "--config", str(path), "--source", "floor", str(tmp_path / "rows.csv")]
    with running(path) as world:
        assert main(publish) == 0
        wait_until(lambda: len(world.ids("archive")) == 5)
        command = [sys.executable, "-m", "isocast", "listen", "--config", str(path), "--from", "beginning", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            rows = [json.loads(process.stdout.readline()) for _ in range(5)]
            assert [row["id"] for row in rows] == [1, 2, 3, 0, 5]
            send_on_line(world.market, "b", 1, b"another story", Epoch(9, server_id(1)))
            conflict = json.loads(process.stdout.readline())["conflict"]
            os.kill(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=120)
    assert (conflict["sequence"], conflict["other_line"]) == (1, "b")
    assert conflict["first_digest"] != conflict["other_digest"]
    assert process.returncode == 1
    assert "CONFLICT at sequence 1: " in err
    assert "1 CONFLICTS" in err


def test_an_interruption_is_the_ordinary_end(world: World) -> None:
    command = [sys.executable, "-m", "isocast", "listen", "--config", str(world.path), "--from", "beginning", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == 1
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert "events, sequences 1 to" in err


def test_opaque_messages_are_rows_among_events(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["publish", "--config", str(world.path), "--source", "floor", "--topic", "quiz"]
    for name, raw in (("text", b"pressed"), ("binary", b"\xff\x00"), ("escape", b"\x1b[2J")):
        (tmp_path / name).write_bytes(raw)
        assert main([*command, "--message-key", name, "--format", "raw", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert listen(world, "--from", "beginning", "--topics", "quiz", "--count", 3, "--json") == 0
    got = capsys.readouterr()
    rows = [json.loads(line) for line in got.out.splitlines()]
    assert [row["kind"] for row in rows] == ["opaque"] * 3
    assert [(row["topic"], row["key"], row.get("payload"), row.get("payload_base64")) for row in rows] == [
        ("quiz", "text", "pressed", None),
        ("quiz", "binary", None, "/wA="),
        ("quiz", "escape", "\x1b[2J", None),
    ]
    assert rows[0]["release_ns"] - rows[0]["instant_ns"] == world.market.timing.release_delay_ns
    assert "0 events, 3 opaque messages, sequences" in got.err
    (tmp_path / "again.jsonl").write_text(got.out, encoding="utf-8")
    assert main([*command, "--format", "json", str(tmp_path / "again.jsonl")]) == 0
    capsys.readouterr()
    assert listen(world, "--from", "beginning", "--count", 16) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[2] for line in lines} == {"trade", "quote", "status", "opaque"}
    sequences = [int(line.split()[0]) for line in lines]
    assert sequences == sorted(sequences)
    assert [line.split()[2:] for line in lines[-3:]] == [
        ["opaque", "quiz", "text", "pressed"],
        ["opaque", "quiz", "binary", "base64:/wA="],
        ["opaque", "quiz", "escape", "'\\x1b[2J'"],
    ]
    assert listen(world, "--topics", "a,b c") == 2
    assert "--topics: topic 'b c'" in capsys.readouterr().err
