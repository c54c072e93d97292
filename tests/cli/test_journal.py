"""`isocast journal` as a user meets it: tables, JSON, exit codes, and one line for what is wrong."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.checks.proven_journals import ROOT, ROSTER, SignedMarket
from tests.runtime.disk.journals import TINY, segments, write, write_of
from tests.wire.journal_samples import block, blocks

from isocast.cli.main import main
from isocast.ring.settings import OrderRule
from isocast.runtime.disk.journal import prune
from isocast.security.roster import sign_roster
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal import SEGMENT_HEADER_BYTES
from isocast.wire.journal_blocks import encode_block, view_block

COMMANDS = ("inspect", "verify", "cat")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six messages in three segments, then one that is not events."""
    made = tmp_path / "journal"
    write(made, [*blocks(3), block(4, 7, (b"ten bytes!",))], TINY)
    return made


def run(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    assert main(["journal", *map(str, arguments)]) == code
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> Any:  # noqa: ANN401  JSON is anything
    return json.loads(run(capsys, code, *arguments, "--json"))


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_says_how_it_is_used(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, 0, command, "--help")
    assert f"isocast journal {command} data/london/journal" in out
    assert "Exit code" in out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["nowhere", "empty", "notes.txt"])
def test_what_is_no_journal_is_one_line_and_exit_2(
    command: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a segment")
    assert main(["journal", command, str(tmp_path / what)]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.startswith(f"isocast: {tmp_path / what}: ")
    assert got.err.count("\n") == 1


# ---- verify: shuffles


@pytest.mark.parametrize("order", list(OrderRule))
def test_verify_says_how_many_shuffles_it_verified(
    order: OrderRule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market = SignedMarket(order=order)
    for _ in range(6):
        market.add(1, 2, 1, 2, 2)
    write_of(tmp_path / "journal", 0, 1, market.finish().blocks)
    roster = tmp_path / "roster.bin"
    roster.write_bytes(sign_roster(ROSTER, ROOT))
    got = run_json(capsys, 0, "verify", tmp_path / "journal", "--roster", roster)
    out = run(capsys, 0, "verify", tmp_path / "journal", "--roster", roster)
    assert "shuffle keys: 6 made again from the nonces that owners revealed, 3 of these nonces as committed" in out
    if order is OrderRule.SHUFFLE:
        assert (got["shuffles"]["verified"], got["shuffles"]["is_shuffled"]) == (6, True)
        assert "6 of 6 tokens with messages of several sources\n" in out
        assert "shuffles: 6 of 6 tokens" in out
    else:
        assert got["shuffles"]["is_shuffled"] is False
        assert f"from token {got['shuffles']['first_other']} on not in the order of the key: by arrival" in out
        assert "shuffles: 0 of 6 tokens" in out


# ---- verify --roster


@pytest.fixture
def proven(tmp_path: Path) -> tuple[Path, Path]:
    """A journal of a market that signs, in three segments, and its roster."""
    market = SignedMarket(behind=1)
    for floors in ((1, 2), (), (2, 1), (1,), ()):
        market.add(*floors)
    write_of(tmp_path / "journal", 0, 1, market.finish().blocks, TINY)
    roster = tmp_path / "roster.bin"
    roster.write_bytes(sign_roster(ROSTER, ROOT))
    return tmp_path / "journal", roster


def test_a_journal_is_proven_by_a_roster(proven: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder, roster = proven
    out = run(capsys, 0, "verify", folder, "--roster", roster)
    assert f"Roster 1 of the market proven, root {ROOT.fingerprint}" in out
    assert "PROVEN: 3 of 3 tokens (5 messages), everything before sequence 6." in out
    assert "site2 vouched for 2 tokens" in out
    got = run_json(capsys, 0, "verify", folder, "--roster", roster)["proof"]
    assert (got["whole"], got["proven_tokens"], got["proven_until"], got["universe"]) == (True, 3, 6, [1, 2, 3])
    assert sum(got["signed"].values()) >= 6
    assert run_json(capsys, 0, "verify", folder)["proof"] is None


def test_a_changed_payload_is_named_with_its_place(
    proven: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By somebody who knows how checksums are made."""
    folder, roster = proven
    path = segments(folder)[1]
    raw = path.read_bytes()
    view = view_block(raw, SEGMENT_HEADER_BYTES)
    [one, (source, number, digest, payload)] = view.messages()
    lie = replace(view.released(), messages=[one, (source, number, digest, payload[:-48])])
    path.write_bytes(raw[:SEGMENT_HEADER_BYTES] + b"".join(encode_block(lie).pieces))
    assert run_json(capsys, 0, "verify", folder)["sound"], "nothing but the proof shows it"
    got = run_json(capsys, 1, "verify", folder, "--roster", roster)
    assert got["faults"]["proof"] == 1
    [fault] = got["first_faults"]
    assert (fault["law"], fault["sequence"], fault["offset"], fault["file"]) == ("S17", 4, 64, str(path))
    assert got["proof"]["proven_until"] == 3
    out = run(capsys, 1, "verify", folder, "--roster", roster)
    assert "WRONG: 1, the first of them proof (S17)" in out
    assert "S17 (vouched by a majority)" in out
    assert "NOT PROVEN: 1 token: a content is not what was ordered" in out


def test_what_is_sound_and_not_proven_is_exit_1(
    proven: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "bare", blocks(3))
    out = run(capsys, 1, "verify", tmp_path / "bare", "--roster", proven[1])
    assert "NOT PROVEN: 3 tokens: the journal keeps no proof of it" in out
    assert "token 1 of epoch 2.1, sequences 1 to 2" in out


def test_a_roster_that_is_none_is_one_line_and_exit_2(
    proven: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, roster = proven
    flip(roster, 60)
    for path in (roster, tmp_path / "nowhere"):
        assert main(["journal", "verify", str(folder), "--roster", str(path)]) == 2
        got = capsys.readouterr()
        assert got.err.startswith(f"isocast: {path}: ")
        assert got.err.count("\n") == 1


# ---- inspect


def test_inspect_lists_segments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, 0, "inspect", folder)
    for path in segments(folder):
        assert path.name in out
    assert "3 – 4" in out
    assert "2.1" in out, "the epoch"
    assert "1970-01-01T00:00:01.250041001Z + 0.000 s" in out
    assert "4 segments: 4 blocks, 7 messages, 12 events" in out


def test_inspect_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, 0, "inspect", folder)
    assert [one["first_sequence"] for one in found["segments"]] == [1, 3, 5, 7]
    assert found["segments"][0]["largest_lateness_ns"] == 41_001
    assert (found["messages"], found["events"]) == (7, 12)
    assert found["bytes"] == sum(one["bytes"] for one in found["segments"])


def test_a_journal_without_its_first_segment_is_not_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = segments(folder)[:2]
    first.unlink()
    out = run(capsys, 0, "inspect", folder)
    assert "GAP: sequences 1 to " in out
    out = run(capsys, 1, "verify", folder)
    assert "no record says why" in out
    assert "\nS2 (no gap, no duplicate): " in out
    found = run_json(capsys, 1, "verify", folder)
    assert (found["faults"]["gap"], found["first_faults"][0]["law"]) == (1, "S2")
    assert run_json(capsys, 0, "verify", second)["faults"]["gap"] == 0, "one segment by itself begins where it begins"
    assert "GAP" not in run(capsys, 0, "inspect", second)


def test_what_retention_removed_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prune(folder, keep_bytes=1, keep_seconds=0, now=0)
    for command in ("inspect", "verify"):
        assert re.search(
            r"Begins with sequence \d+: messages before it were removed by retention", run(capsys, 0, command, folder)
        )
    found = run_json(capsys, 0, "verify", folder)
    assert found["begins"] == "retention"
    assert found["not_judged"] == {"release_delay_blocks": found["blocks"]}
    assert "the journal does not record Δ_A for them" in run(capsys, 0, "verify", folder)


def test_inspect_shows_damage_and_what_is_unfinished(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = segments(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    assert "of an unfinished block" in run(capsys, 0, "inspect", folder)
    flip(segments(folder)[0], 70)
    out = run(capsys, 1, "inspect", folder)
    assert f"DAMAGED {segments(folder)[0]}: byte 64: the checksum of the block header is wrong" in out


# ---- verify


def test_verify_finds_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Sound: nothing is wrong." in run(capsys, 0, "verify", folder)
    found = run_json(capsys, 0, "verify", folder)
    assert found["sound"]
    assert (found["blocks"], found["first_sequence"], found["next_sequence"]) == (4, 1, 8)
    assert set(found["faults"].values()) == {0}


def test_verify_names_the_first_fault(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segments(folder)[1]
    flip(path, 300)
    out = run(capsys, 1, "verify", folder)
    assert f"WRONG: 2, the first of them damage: {path}: byte 64: the checksum of the block's body is wrong" in out
    found = run_json(capsys, 1, "verify", folder)
    assert found["faults"]["damage"] == 1
    assert found["first_faults"][0]["file"] == str(path)


def test_verify_takes_an_unfinished_block_for_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = segments(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    out = run(capsys, 0, "verify", folder)
    assert "of an unfinished block" in out
    assert "Sound" in out


def test_verify_shows_some_of_many_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [block(token, token * 2) for token in range(1, 33)])
    assert "and 11 more" in run(capsys, 1, "verify", tmp_path)


def test_verify_shows_how_far_it_is_when_it_takes_its_time(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocast.cli.render._PLAIN_EVERY_S", 0.0)
    assert main(["journal", "verify", str(folder)]) == 0
    assert capsys.readouterr().err == "", "quick enough"
    monkeypatch.setattr("isocast.cli.journal._PATIENCE_S", 0.0)
    assert main(["journal", "verify", str(folder)]) == 0
    size = sum(path.stat().st_size for path in segments(folder))
    assert f"{size:,} of {size:,} bytes" in capsys.readouterr().err
    assert main(["journal", "verify", str(folder), "--json"]) == 0
    assert capsys.readouterr().err == ""


# ---- cat


def test_cat_prints_a_row_for_each_event(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, 0, "cat", folder).splitlines()
    assert len(lines) == 1 + 12 + 1
    assert lines[0].split()[:4] == ["sequence", "token", "epoch", "released"]
    first = "1 1 2.1 1970-01-01T00:00:01.250041001Z 41.0 source1 1 trade buy XLON ISO 1.0001 5 1000 0"
    assert lines[1].split() == first.split()
    assert lines[-1].split()[-3:] == ["10", "bytes:", b"ten bytes!".hex()]


def test_cat_beyond_the_journal_says_what_it_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "cat", str(folder), "--from", "99999"]) == 0
    got = capsys.readouterr()
    assert got.out == ""
    assert f"isocast: no event in these sequences of {folder}: it has 1 to " in got.err


@pytest.mark.parametrize(
    "options, sequences",
    [
        ("--from 6", [6, 6, 7]),
        ("--to 1", [1, 1]),
        ("--from 2 --to 3", [2, 2, 3, 3]),
        ("--limit 3", [1, 1, 2]),
        ("--from 5 --limit 1", [5]),
        ("--from 100", []),
    ],
)
def test_cat_takes_a_range(
    folder: Path, options: str, sequences: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, 0, "cat", folder, *options.split())
    assert [row["sequence"] for row in found] == sequences


def test_cat_as_json_tells_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = MarketEvent(
        EventKind.STATUS,
        Mic("XPAR"),
        Symbol("AB.C"),
        Side.NONE,
        price=-5,
        quantity=9,
        time=77,
        id=12,
        reference=MarketStatus.HALTED,
        flags=EventFlag.LINKED | EventFlag.TENTATIVE,
    )
    write(tmp_path, [block(6, 20, (pack_events(build_events([row])), b"\1\2"))])
    event, opaque = run_json(capsys, 0, "cat", tmp_path)
    shared = {
        "token": 6,
        "epoch": "2.1",
        "instant_ns": 6_000_000_000,
        "due_ns": 6_250_000_000,
        "released_ns": 6_250_041_006,
        "clock_bound_ns": 100_000,
        "late_ns": 41_006,
    }
    assert event == {
        **shared,
        "sequence": 20,
        "source": "source2",
        "number": 7,
        "kind": "status",
        "side": "none",
        "floor": "XPAR",
        "symbol": "AB.C",
        "price": "-0.0005",
        "quantity": 9,
        "reference": "halted",
        "flags": ["linked", "tentative"],
        "time_ns": 77,
        "id": 12,
    }
    assert opaque == {
        **shared,
        "sequence": 21,
        "source": "source3",
        "number": 7,
        "kind": "opaque",
        "bytes": 2,
        "payload": "0102",
    }


def test_cat_stops_at_damage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segments(folder)[1]
    flip(path, 300)
    assert main(["journal", "cat", str(folder)]) == 2
    got = capsys.readouterr()
    assert len(got.out.splitlines()) == 5
    assert got.err == f"isocast: {path}: byte 64: the checksum of the block's body is wrong\n"


@pytest.mark.parametrize("option", ["--from -1", "--to x", "--limit 0"])
def test_a_wrong_number_is_one_line_and_exit_2(folder: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "cat", str(folder), *option.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1
