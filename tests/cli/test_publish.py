"""`isocast publish` against a market that runs: files of every kind, repeats, bad rows, sources that are down."""

import gzip
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

from isocast.cli.main import main
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import init_keys
from isocast.wire.events import events_view
from isocast.wire.opaque import OpaqueMessage, read_opaque_or_none

CSV = "kind,floor,symbol,side,price,quantity,id\ntrade,XNYS,IBM,,143.2,100,{}\nquote,XNYS,IBM,buy,143.1,500,{}\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nodes = {name: SMALL[name] for name in ("a", "b", "c", "floor", "x")}
    path = market_file(tmp_path_factory.mktemp("market"), {**nodes, "idle": {"role": "primary-source"}})
    with running(path, *nodes) as found:
        yield found


def publish(world: World, *arguments: object, source: str = "floor") -> int:
    return main(["publish", "--config", str(world.path), "--source", source, *map(str, arguments)])


def is_released(world: World, *ids: int) -> bool:
    """Whether each of these events is in the sequence, once."""
    found = world.ids("a")
    return all(found.count(number) == 1 for number in ids)


def publish_input(world: World, content: bytes, *arguments: object) -> int:
    """With everything in a pipe, as a shell would make it."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    with os.fdopen(reading) as pipe, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", pipe)
        return publish(world, *arguments)


def test_a_file_of_each_kind(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.csv").write_text(CSV.format(101, 102), encoding="utf-8")
    (tmp_path / "two").write_text(
        "".join(
            json.dumps({"kind": "trade", "floor": "XNYS", "price": "1", "id": number}) + "\n" for number in (103, 104)
        ),
        encoding="utf-8",
    )
    (tmp_path / "three.bin").write_bytes(trades(40, 105).tobytes())
    for name in ("one.csv", "two", "three.bin"):
        assert publish(world, tmp_path / name) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("Published 2 events in 1 message at floor in ")
    assert out[2].startswith("Published 40 events in 2 messages at floor in ")
    wait_until(lambda: is_released(world, *range(101, 145)))


def test_the_time_of_a_row_that_has_none_is_now(world: World, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("kind,floor,id,time_ns\ntrade,XNYS,151,\ntrade,XNYS,152,7\n", encoding="utf-8")
    assert publish(world, file) == 0
    wait_until(lambda: is_released(world, 151, 152))
    times = {
        int(event["id"]): int(event["time"]) for _, payload in world.released("a") for event in events_view(payload)
    }
    assert times[152] == 7
    assert times[151] > 1_600_000_000 * 10**9


def test_a_repeat_under_the_same_prefix_is_published_once(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(CSV.format(201, 202), encoding="utf-8")
    labels, repeated = [], []
    for _ in range(3):
        assert publish(world, file, "--key-prefix", "monday", "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["source"], report["events"], report["messages"]) == ("floor", 2, 1)
        labels.append(report["last_label"])
        repeated.append(report["repeated_messages"])
    assert labels[0] == labels[1] == labels[2]
    assert repeated == [0, 1, 1]
    before = world.nodes["floor"].counters.events_published
    assert publish(world, file, "--key-prefix", "monday") == 0
    text = capsys.readouterr().out
    assert "Nothing new for floor: it had all 1 message already" in text
    assert "Published" not in text
    assert world.nodes["floor"].counters.events_published == before
    file.write_text(CSV.format(203, 204), encoding="utf-8")
    assert publish(world, file, "--key-prefix", "monday") == 0
    wait_until(lambda: is_released(world, 203, 204))
    assert is_released(world, 201, 202), "once, and other rows under the same prefix are not taken for them"


def test_a_repeat_without_a_prefix_is_published_again(world: World, tmp_path: Path) -> None:
    file = tmp_path / "rows.bin"
    file.write_bytes(trades(1, 251).tobytes())
    assert publish(world, file) == publish(world, file) == 0
    wait_until(lambda: world.ids("a").count(251) == 2)


def test_a_bad_row_of_a_file_is_named_and_nothing_of_it_is_published(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(CSV.format(301, "many"), encoding="utf-8")
    assert publish(world, file) == 2
    got = capsys.readouterr()
    assert got.out == ""
    rule = '"many" is not a whole number from 0 on; nothing was published'
    assert got.err == f"isocast: {file}: line 3, id: {rule}\n"
    file.write_text(CSV.format(302, 303), encoding="utf-8")
    assert publish(world, file) == 0
    wait_until(lambda: is_released(world, 302, 303))
    assert 301 not in world.ids("a")


def test_standard_input_goes_out_up_to_a_bad_row(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish_input(world, (CSV.format(401, 402) + "trade,XNYS,IBM,,1,1,-5\n").encode()) == 2
    text = 'standard input: line 4, id: "-5" is not a whole number from 0 on; published: the first 2 events'
    assert text in capsys.readouterr().err
    assert publish_input(world, CSV.format(403, 404).encode()) == 0
    wait_until(lambda: is_released(world, *range(401, 405)))


def test_standard_input_with_a_prefix_can_be_repeated_after_a_bad_row(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only full messages went out, so that the repeat, with the row mended, cuts at the same places."""
    rows = [f"trade,XNYS,{number}\n" for number in range(501, 541)]
    header = "kind,floor,id\n"
    assert publish_input(world, (header + "".join(rows[:30]) + "bad\n").encode(), "--key-prefix", "tuesday") == 2
    assert "the first 27 events" in capsys.readouterr().err
    assert publish_input(world, (header + "".join(rows)).encode(), "--key-prefix", "tuesday") == 0
    wait_until(lambda: is_released(world, *range(501, 541)))


@pytest.mark.parametrize("content", ["", "kind,floor,symbol,price\n"])
def test_of_nothing_it_is_said_that_nothing_was_published(
    content: str, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text(content, encoding="utf-8")
    assert publish(world, tmp_path / "empty") == 0
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err == f"isocast: {tmp_path / 'empty'} has no event: nothing was published\n"


@pytest.mark.parametrize("words", [(), ("-",)])
def test_standard_input_may_be_a_file_or_nothing_at_all(
    words: tuple[str, ...],
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `< rows.csv`, as systemd and cron start a program, and as `<&-`."""
    (tmp_path / "rows.csv").write_text("kind,floor,id\ntrade,XNYS,7\n", encoding="utf-8")
    for where, said in ((tmp_path / "rows.csv", "Published 1 event"), (Path("/dev/null"), "standard input has no")):
        with where.open() as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            assert publish(world, *words) == 0
        got = capsys.readouterr()
        assert said in got.out + got.err
    monkeypatch.setattr(sys, "stdin", None)
    assert publish(world, *words) == 2
    assert "standard input: input: is closed: name a file" in capsys.readouterr().err


def test_a_table_in_gzip_or_in_parquet_is_published_like_any_other(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv = CSV.format(171, 172)
    (tmp_path / "one.csv.gz").write_bytes(gzip.compress(csv.encode()))
    columns = {"kind": ["trade", "quote"], "floor": ["XNYS"] * 2, "side": [None, "buy"], "price": ["143.2", "143.1"]}
    table = pa.table({**columns, "symbol": ["IBM"] * 2, "quantity": [100, 500], "id": [173, 174]})
    parquet.write_table(table, tmp_path / "two.parquet")
    for name in ("one.csv.gz", "two.parquet"):
        assert publish(world, tmp_path / name) == 0
        assert "Published 2 events" in capsys.readouterr().out
    wait_until(lambda: is_released(world, 171, 172, 173, 174))
    found = [event for _, payload in world.released("a") for event in events_view(payload) if event["id"] > 170]
    prices = {int(event["id"]): int(event["price"]) for event in found}
    assert [prices[number] for number in (171, 172)] == [prices[number] for number in (173, 174)]


def test_a_bad_row_of_a_parquet_file_is_named(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"kind": ["trade"] * 2, "floor": ["XNYS"] * 2, "price": ["1", "1.00001"], "quantity": [1, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "bad.parquet")
    assert publish(world, tmp_path / "bad.parquet") == 2
    err = capsys.readouterr().err
    assert "row 1 (from 0), column price: " in err
    assert err.endswith("; nothing was published\n")


@pytest.mark.parametrize(
    "arguments, source, text",
    [
        (["no-such-file"], "floor", "no-such-file: file: cannot be read: No such file or directory"),
        ([], "flor", 'nodes.flor: is not a source; did you mean "floor"?; there are floor, idle'),
        (["--format", "xml"], "floor", "Choose from"),
        (["--key-prefix", "x" * 41], "floor", "--key-prefix: has 41 bytes: at most 40"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    world: World, arguments: list[str], source: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(world, *arguments, source=source) == 2
    got = capsys.readouterr()
    assert got.err.count("\n") == 1
    assert text in got.err


def test_a_source_that_is_down_is_exit_1(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(CSV.format(601, 602), encoding="utf-8")
    assert publish(world, tmp_path / "rows.csv", "--patience", "0", source="idle") == 1
    err = capsys.readouterr().err
    assert "no connection to" in err
    assert "0 events went out before" in err


def test_a_key_of_another_market_is_refused_at_once(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(world.path, tmp_path / "market.toml")
    init_keys(load_market(tmp_path / "market.toml"))
    (tmp_path / "rows.csv").write_text(CSV.format(701, 702), encoding="utf-8")
    code = main(["publish", "--config", str(tmp_path / "market.toml"), "--source", "floor", str(tmp_path / "rows.csv")])
    assert code == 2
    err = capsys.readouterr().err
    assert "unknown name or wrong key" in err
    assert err.count("\n") == 1


def opaque(world: World) -> list[OpaqueMessage]:
    """What is in the sequence, in order."""
    return [one for _, payload in world.released("a") for one in read_opaque_or_none(payload) or ()]


def heard(world: World, topic: str) -> list[tuple[bytes, bytes]]:
    return [(one.key, one.payload) for one in opaque(world) if one.topic == topic]


def test_each_line_of_a_file_is_an_opaque_message(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "answers.txt"
    file.write_bytes(b"one\r\n\ntwo \xff\nthree")
    assert publish(world, file, "--topic", "lines", "--message-key", "table 7") == 0
    assert capsys.readouterr().out.startswith("Published 4 opaque messages in 2 messages at floor in ")
    wait_until(lambda: len(heard(world, "lines")) == 4)
    assert heard(world, "lines") == [(b"table 7", text) for text in (b"one", b"", b"two \xff", b"three")]
    assert all(one.sent > 1_600_000_000 * 10**9 for one in opaque(world) if one.topic == "lines")


def test_objects_of_json_and_whole_files_are_opaque_messages(world: World, tmp_path: Path) -> None:
    rows = [
        {"payload": "text", "key": "k", "sequence": 12},
        {"payload_base64": "/w==", "key_base64": "/g==", "topic": "json.other", "sent_ns": 17},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert publish(world, file, "--topic", "json", "--format", "json", "--message-key", "default") == 0
    whole = tmp_path / "whole.bin"
    whole.write_bytes(bytes(range(256)))
    assert publish(world, whole, "--topic", "raw", "--format", "raw") == 0
    wait_until(lambda: heard(world, "raw") == [(b"", bytes(range(256)))])
    assert heard(world, "json") == [(b"k", b"text")]
    assert heard(world, "json.other") == [(b"\xfe", b"\xff")]
    assert [one.sent for one in opaque(world) if one.topic == "json.other"] == [17]


def test_repeated_opaque_messages_are_published_once(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\nc\n", encoding="utf-8")
    for known in (0, 3):
        assert publish(world, file, "--topic", "again", "--key-prefix", "tuesday", "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["opaque_messages"], report["events"], report["repeated_messages"]) == (3, 0, known)
    assert publish_input(world, b"a\nb\nc\nd\n", "--topic", "again", "--key-prefix", "tuesday") == 0
    wait_until(lambda: len(heard(world, "again")) >= 4)
    assert [payload for _, payload in heard(world, "again")] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "content, arguments, text",
    [
        ("ok\n" + "x" * 1_300, ["--topic", "t"], "line 2: a payload of 1,300 bytes: at most 1,279 fit"),
        ("x", ["--topic", "a b"], "--topic: topic 'a b': 1 to 64 printable ASCII"),
        ("x", ["--topic", "t", "--message-key", "k" * 65], "--message-key: has 65 bytes: at most 64"),
        ("x", ["--message-key", "k"], "--message-key: is for opaque messages: give a --topic"),
        ("x", ["--topic", "t", "--format", "csv"], "csv is for events"),
        ('{"key": 1}', ["--topic", "t", "--format", "json"], "line 1, payload: must be given"),
        ('{"payload": 1}', ["--topic", "t", "--format", "json"], "line 1, payload: a text is wanted, not int"),
        ('{"payload_base64": "?"}', ["--topic", "t", "--format", "json"], "line 1, payload_base64: "),
        ("[]", ["--topic", "t", "--format", "json"], "line 1: is no object of JSON"),
        ("{", ["--topic", "t", "--format", "json"], "line 1: is not JSON"),
    ],
)
def test_a_bad_opaque_message_is_named_and_nothing_is_published(
    world: World, tmp_path: Path, content: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad"
    file.write_text(content, encoding="utf-8")
    before = world.nodes["floor"].counters.publishes_accepted
    assert publish(world, file, *arguments) == 2
    assert text in capsys.readouterr().err
    assert world.nodes["floor"].counters.publishes_accepted == before


def test_what_comes_before_a_bad_line_of_standard_input_is_sent(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish_input(world, b"good\n" + bytes(2_000) + b"\n", "--topic", "stream") == 2
    assert "published: the first 1 opaque message, and nothing after" in capsys.readouterr().err
    wait_until(lambda: heard(world, "stream") == [(b"", b"good")])
