"""`isocast feed` as a user meets it: tables, JSON, exit codes, and one line for what is wrong."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import frame

from isocast.cli.main import main
from isocast.feeds.captures import write_capture
from isocast.feeds.mappings import read_mapping
from isocast.feeds.mold import end_of_session, heartbeat, packetise
from isocast.feeds.outcomes import ADVICE, FeedFault

ROOT = Path(__file__).parents[2]
COMMANDS = ("show", "convert", "generate")


def run(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    assert main(["feed", *map(str, arguments)]) == code
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> Any:  # noqa: ANN401  JSON is anything
    return json.loads(run(capsys, code, *arguments, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Exit code 2, nothing on standard output, and one line."""
    assert main(["feed", *map(str, arguments)]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    return got.err


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "01302019.NASDAQ_ITCH50.gz"
    path.write_bytes(gzip.compress(frame(*itch.day())))
    return path


def test_show_says_what_is_in_a_feed(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, 0, "show", day, "--rows", 2)
    for text in ("itch", "add order", "2019-01-30T14:30:00.000000000Z", "XNAS", "execution", "Sound: nothing"):
        assert text in out, text
    assert "I imbalance: no event carries it" in out


def test_show_as_json_has_everything(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got = run_json(capsys, 0, "show", day, "--rows", 3)
    assert (got["format"], got["events"], got["symbols"]) == ("itch", 21, 2)
    assert got["messages"]["E"] == 2
    assert got["kinds"]["execution"] == 4
    assert got["directory"][1] == {"floor": "XNAS", "symbol": "CAST", "number": 2, "round_lot": 10, "category": "Q"}
    assert got["floors"] == {"XNAS": {"events": 21, "digest": got["digest"]}}
    assert [row["kind"] for row in got["rows"]] == ["mark", "directory", "directory"]
    assert got["faults"] == {}


def test_show_stops_at_its_limit(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, 0, "show", day, "--limit", 5)["events"] == 5


def test_the_floor_of_a_feed_that_names_none_can_be_said(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(run_json(capsys, 0, "show", day, "--as", "XBOS")["floors"]) == ["XBOS"]


def test_a_malformed_feed_is_exit_1_and_strictly_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "20190130.itch"
    path.write_bytes(frame(*itch.day(), b"z" * 30) + b"\0\x2cP")
    out = run(capsys, 1, "show", path)
    assert "WRONG" in out
    assert re.search(r"unknown-type +1 +\d+ +– +a message of type 'z' has 30 bytes", out)
    assert re.search(r"truncated +1 +\d+ +– +the feed ends 3 bytes into a message", out)
    assert "unknown-type: a message of type" in refused(capsys, "show", path, "--strict")
    got = run_json(capsys, 1, "show", path)
    assert got["faults"]["unknown-type"]["count"] == 1
    assert got["events"] == 21


def test_a_truncated_gzip_file_is_said(tmp_path: Path, day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "02302019-2019-01-30.itch.gz"
    cut.write_bytes(day.read_bytes()[:-20])
    assert "the gzip stream ends too early" in run(capsys, 1, "show", cut)


@pytest.mark.parametrize("name", ["x.parquet", "x.itch.gz", "x.pcap", "x.events"])
def test_convert_keeps_the_digest(tmp_path: Path, day: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = run_json(capsys, 0, "show", day)["digest"]
    target = tmp_path / name
    out = run(capsys, 0, "convert", day, target)
    assert f"21 events to {target}, digest {before}." in out
    assert run_json(capsys, 0, "show", target, "--day", "2019-01-30")["digest"] == before


def test_convert_merges_several_files_in_the_order_of_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for symbol, clocks in (("aig", (1_000, 3_000)), ("ibm", (2_000, 4_000))):
        rows = "".join(f"{clock},491800,300,P,2000,0\n" for clock in clocks)
        (tmp_path / f"20131007_{symbol}_Trade_Tick.csv").write_text(rows)
    sources = sorted(tmp_path.glob("*.csv"))
    got = run_json(capsys, 0, "convert", *sources, tmp_path / "tape.events")
    assert (got["events"], len(got["sources"])) == (4, 2)
    rows = run_json(capsys, 0, "show", tmp_path / "tape.events", "--rows", 4)["rows"]
    assert [row["symbol"] for row in rows] == ["AIG", "IBM", "AIG", "IBM"]


def test_what_a_format_cannot_carry_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, 0, "generate", tmp_path / "x.itch", "--trades", 300, "--symbols", 5, "--floors", 1)
    assert re.search(r"\d+ +ITCH has no quotes", out)


def test_generate_is_the_same_by_its_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--trades", 500, "--symbols", 20, "--floors", 6)
    first = run_json(capsys, 0, "generate", tmp_path / "a.parquet", *options, "--seed", 3)
    again = run_json(capsys, 0, "generate", tmp_path / "b.parquet", *options, "--seed", 3)
    other = run_json(capsys, 0, "generate", tmp_path / "c.parquet", *options, "--seed", 4)
    assert first["digest"] == again["digest"] != other["digest"]
    assert len(first["floors"]) == 6
    whole = run_json(capsys, 0, "show", tmp_path / "a.parquet")
    assert (whole["symbols"], whole["listings"]) == (20, len(whole["directory"])), "a symbol of four floors is one"
    assert whole["listings"] > 20
    one = run_json(capsys, 0, "generate", tmp_path / "d.itch", *options, "--seed", 3, "--as", "XNYS", "--quotes", 0)
    assert list(one["floors"]) == ["XNYS"]
    shown = run_json(capsys, 0, "show", tmp_path / "d.itch", "--day", "2026-03-02", "--zone", "UTC", "--as", "XNYS")
    assert shown["kinds"]["trade"] == one["floors"]["XNYS"]["events"] - sum(
        count for kind, count in shown["kinds"].items() if kind != "trade"
    )


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (["show", "nowhere.itch"], "nowhere.itch: cannot be read: No such file"),
        (["show", "DAY", "--as", "nasdaq"], "--as: floor 'nasdaq'"),
        (["show", "DAY", "--symbol", "TOOLONGNAME"], "--symbol: symbol"),
        (["show", "DAY", "--day", "yesterday"], "--day: 'yesterday' is not a day"),
        (["show", "DAY", "--zone", "Mars/Base"], "zone: 'Mars/Base' is no time zone"),
        (["show", "DAY", "--format", "itsch"], 'did you mean "itch"'),
        (["show", "DAY", "--mapping", "us-tape"], "is not one of us-tape-trades"),
        (["show", "DAY", "--limit", "0"], "limit"),
        (["convert", "DAY"], "one file to read and one to write"),
        (["convert", "DAY", "x.doc"], "must end in .parquet"),
        (["convert", "DAY", "nowhere/x.parquet"], "its folder does not exist"),
        (["generate", "x.itch", "--as", "XXXX"], "XXXX is not one of the day's floors"),
        (["generate", "x.events", "--floors", "5000"], "floors: 5000 is not from 1 to 1,000"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], rule: str, day: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(day.parent)
    assert rule in refused(capsys, *(str(day) if word == "DAY" else word for word in arguments))
    assert [path.name for path in day.parent.iterdir()] == [day.name]


def test_a_strict_conversion_of_a_malformed_feed_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "2019-01-30.itch"
    path.write_bytes(frame(*itch.day()) + b"rest")
    assert "garbage" in refused(capsys, "convert", path, tmp_path / "x.parquet", "--strict")
    assert list(tmp_path.iterdir()) == [path]
    assert "21 events" in run(capsys, 1, "convert", path, tmp_path / "x.parquet")


def test_a_file_is_not_converted_onto_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "2019-01-30.itch"
    path.write_bytes(frame(*itch.day()))
    assert "would overwrite a file that is read" in refused(capsys, "convert", path, path)


# ---- the documentation


def test_the_reference_explains_every_fault() -> None:
    page = (ROOT / "docs" / "reference" / "feeds.md").read_text(encoding="utf-8")
    assert set(ADVICE) == set(FeedFault)
    for fault in FeedFault:
        assert f"| `{fault}` |" in page, fault


def test_the_mappings_of_the_documentation_are_valid() -> None:
    for name in ("how-to/feeds.md", "reference/feeds.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        blocks = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
        assert blocks, name
        for block in blocks:
            assert tomllib.loads(block)
            read_mapping(block, name)


# ---- captures


def capture_of(path: Path, *packets: bytes, port: int = 26_477) -> Path:
    path.write_bytes(
        b"".join(write_capture([(itch.MIDNIGHT + itch.OPEN, packet) for packet in packets], "239.1.2.3", port))
    )
    return path


def trades_in_packets(count: int) -> list[bytes]:
    trades = [itch.trade(1, itch.OPEN + number, 100, "ISO", 10_000, number) for number in range(1, count + 1)]
    return list(packetise("ISO", 1, frame(*trades), room=300))


@pytest.mark.parametrize(
    "last, what",
    [(end_of_session("ISO", 253), "the end of the session"), (heartbeat("ISO", 253), "a heartbeat")],
    ids=["end", "heartbeat"],
)
def test_a_capture_whose_tail_is_lost_is_not_sound(
    last: bytes, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = capture_of(tmp_path / "tail.pcap", *trades_in_packets(30), last)
    told = run_json(capsys, 1, "show", path)
    assert told["faults"]["gap"]["count"] == 222
    (session,) = told["sessions"]
    assert (session["messages"], session["missing"], session["gaps"], session["last"]) == (30, 222, 1, 252)
    assert session["first_gaps"] == [{"first": 31, "last": 252, "messages": 222}]
    out = run(capsys, 1, "show", path)
    assert f"messages 31 to 252 are missing, as {what} says" in " ".join(out.split())
    assert "Sound" not in out


def test_a_gap_counts_its_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packets = trades_in_packets(60)
    told = run_json(capsys, 1, "show", capture_of(tmp_path / "gap.pcap", packets[0], packets[5], packets[7]))
    assert told["faults"]["gap"]["count"] == 30
    assert [gap["messages"] for gap in told["sessions"][0]["first_gaps"]] == [24, 6]


def test_a_capture_of_two_lines_has_every_message_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packets = trades_in_packets(30)
    path = capture_of(tmp_path / "lines.pcap", *packets)
    path.write_bytes(path.read_bytes() + capture_of(tmp_path / "b.pcap", *packets, port=26_478).read_bytes()[24:])
    told = run_json(capsys, 0, "show", path)
    assert told["kinds"] == {"trade": 30}
    assert told["sessions"][0]["lines"] == ["239.1.2.3:26477", "239.1.2.3:26478"]


def test_what_a_format_cannot_carry_is_said_in_the_figures_and_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "AAPL_2012-06-21_34200000_57600000_message_1.csv"
    path.write_text("34200.1,5,0,7,5855000,-1\n34200.2,3,12,15,5859100,-1\n34200.3,6,-1,5,5855000,1\n")
    target = tmp_path / "out.itch"
    assert main(["feed", "convert", str(path), str(target), "--json"]) == 0
    got = capsys.readouterr()
    assert json.loads(got.out)["written_without"] == {
        "an order that was entered before it is cancelled: readers of ITCH call that a fault": 1,
        "the reference of a trade in an auction: it comes back as the letter of a cross": 1,
    }
    assert got.err == f"{target}: 1 event or more written without something; the format cannot carry it.\n"
    out = run(capsys, 0, "convert", path, target)
    assert f"Written to {target} without" in out


def test_sale_conditions_are_counted_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "20131007_aig_Trade_Tick.csv"
    path.write_text("1000,491800,300,P,1000000,0\n2000,491800,300,P,1,0\n")
    assert run_json(capsys, 0, "show", path)["conditions"] == {"regular": 1, "official close": 1}
    assert "official close" in run(capsys, 0, "show", path)
