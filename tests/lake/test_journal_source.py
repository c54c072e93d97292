"""`format("isocast")` over a folder of journals: rows, ranges, gaps, and everything that can be wrong with a folder."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import run
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from tests.lake.direct import expected_rows, read_table
from tests.lake.markets import FLOORS, Market, write_market
from tests.runtime.disk.journals import segments

from isocast.lake.schemas import RELEASED_SCHEMA, SCHEMA_VERSION
from isocast.lake.source import options as source_options
from isocast.lake.source.columns import event_batch
from isocast.lake.source.journal import IsocastSource
from isocast.lake.source.options import struct_of
from isocast.runtime.disk.journal import Journal
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.journal import (
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    JOURNAL_VERSION,
    SEGMENT_HEADER_BYTES,
    pack_block_header,
)
from isocast.wire.journal_blocks import DIRECTORY_OFFSETS, ReleasedBlock, view_block
from isocast.wire.packets import payload_digest


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    """Three receivers, two stripes, several segments each; nobody may change it."""
    return write_market(tmp_path_factory.mktemp("market"), events=3_000, seed=3, segment_bytes=40_000)


def own(market: Market, tmp_path: Path) -> Market:
    """A copy to be damaged."""
    shutil.copytree(market.path, tmp_path / "own")
    return replace(market, path=tmp_path / "own")


def keys(table: pa.Table) -> list[tuple[int, int, int]]:
    return list(zip(*(table[name].to_pylist() for name in ("stripe", "sequence", "index")), strict=True))


def flip(file: Path, offset: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[offset] ^= 1
    file.write_bytes(raw)


def last_sequence(market: Market, stripe: int) -> int:
    *_, last = market.blocks(stripe)
    return last.first_sequence + len(last.messages) - 1


# ---- rows


def test_every_event_of_one_receiver_is_a_row_with_its_provenance(market: Market) -> None:
    table = read_table(market.path)
    expected = expected_rows(market.journal(1, 0), 1, 0) + expected_rows(market.journal(1, 1), 1, 1)
    assert table.schema == RELEASED_SCHEMA
    assert table.to_pylist() == expected


def test_fields_keep_their_bits(tmp_path: Path) -> None:
    """Numbers without a sign, at the ends of what they hold."""
    events = np.zeros(2, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = [1, 11], FLOORS[0], [b"LONGNAME", b""]
    events["price"], events["flags"] = [-5, (1 << 63) - 1], [63, 0]
    for name in ("quantity", "reference", "time", "id"):
        events[name] = np.iinfo(EVENT_DTYPE[name]).max
    payload = events.tobytes()
    source = source_id((1 << 32) - 1, (1 << 32) - 1)
    message = (source, (1 << 64) - 1, payload_digest(payload), payload)
    epoch = Epoch((1 << 32) - 1, server_id(65_535))
    block = ReleasedBlock(epoch, 1, 1, 0, 1, -1, -2, -3, (1 << 64) - 1, bytes(16), [message], uncertified=True)
    with Journal.open(tmp_path / "journal", 65_535, 131_073) as journal:
        journal.append(block)
    rows = read_table(tmp_path).to_pylist()
    assert [row["symbol"] for row in rows] == ["LONGNAME", ""]
    assert {row["source"] for row in rows} == {-1}
    assert {row["number"] for row in rows} == {-1}
    assert {row["id"] for row in rows} == {-1}
    assert {row["clock_bound_ns"] for row in rows} == {-1}
    assert {row["epoch_number"] for row in rows} == {-1}
    assert {row["epoch_server"] for row in rows} == {server_id(65_535)}
    assert {row["quantity"] for row in rows} == {(1 << 32) - 1}
    assert [row["price"] for row in rows] == [-5, (1 << 63) - 1]
    assert [row["flags"] for row in rows] == [63, 0]
    assert {(row["uncertified"], row["fetched"], row["receiver"], row["stripe"]) for row in rows} == {
        (True, False, 131_073, 65_535)
    }


def test_only_the_columns_that_are_asked_for_are_made(market: Market) -> None:
    some = read_table(market.path, ["price", "sequence", "symbol"])
    assert some.column_names == ["price", "sequence", "symbol"]
    assert some == read_table(market.path).select(["price", "sequence", "symbol"])
    named = read_table(market.path, columns="price,sequence , symbol")
    assert named == some
    assert not any(field.nullable for field in named.schema)
    faults = read_table(market.path, frame="quarantine", columns="reason,path")
    assert faults.column_names == ["reason", "path"]


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["", ""],
        ["A", "B"],
        ["ABCDEFGH", "HGFEDCBA"],
        ["SIXSIX", "SIXSIY"],
        ["A", "", "ABCDEFGH", "AB"],
        ["A\0B", "CD"],
    ],
)
def test_texts_of_any_length_come_out_as_they_went_in(texts: list[str]) -> None:
    events = np.zeros(len(texts), EVENT_DTYPE)
    events["symbol"] = np.array([text.encode() for text in texts], "S8")
    events["floor"] = [text[:4].encode() for text in texts]
    got = event_batch(events, pa.schema([RELEASED_SCHEMA.field("symbol"), RELEASED_SCHEMA.field("floor")]))
    got.validate(full=True)
    assert got["symbol"].to_pylist() == texts
    assert got["floor"].to_pylist() == [text[:4] for text in texts]


def test_a_worker_does_without_pandas(market: Market) -> None:
    """Its import costs a second of CPU time in every worker."""
    program = (
        "import pickle, sys\n"
        "from isocast.lake.source.journal import IsocastSource\n"
        "source = IsocastSource({'path': sys.argv[1]})\n"
        "reader = source.reader(source.schema())\n"
        "print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))\n"
        "print('pandas' in sys.modules)\n"
    )
    said = run([sys.executable, "-c", program, str(market.path)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(read_table(market.path).num_rows), "False"]


@pytest.mark.parametrize("names", ["price,symbol,sequence", "price,sequence"])
def test_columns_and_another_schema_are_not_reconciled(market: Market, names: str) -> None:
    source = IsocastSource(CaseInsensitiveDict({"path": str(market.path), "columns": names}))
    wanted = struct_of(pa.schema([RELEASED_SCHEMA.field(name) for name in ("price", "sequence", "symbol")]))
    with pytest.raises(ConfigurationError, match="either the option columns or a schema"):
        source.reader(wanted)
    with pytest.raises(ConfigurationError, match="either the option columns or a schema"):
        source.streamReader(wanted)


@pytest.mark.parametrize("split", [65_536, 1 << 26])
@pytest.mark.parametrize("parts", [1, 7])
def test_how_a_read_is_cut_changes_nothing(market: Market, split: int, parts: int) -> None:
    cut = read_table(market.path, splitBytes=split, minPartitions=parts)
    assert cut == read_table(market.path, splitBytes=1 << 30, minPartitions=1)


def test_a_large_segment_is_read_by_several_tasks(tmp_path: Path) -> None:
    market = write_market(tmp_path, receivers=1, stripes=(0,), events=90_000)
    assert len(segments(market.journal(1, 0))) == 1
    whole = read_table(tmp_path, minPartitions=1)
    parts = read_table(tmp_path, minPartitions=4)
    assert len(parts["price"].chunks) >= 4
    assert parts.combine_chunks() == whole.combine_chunks()


def test_a_range_of_sequences(market: Market) -> None:
    whole = read_table(market.path, stripe=1)
    got = read_table(market.path, stripe=1, fromSequence=17, toSequence=41)
    chosen = np.asarray(whole["sequence"])
    assert got == whole.filter(pa.array((chosen >= 17) & (chosen <= 41)))
    assert set(got["sequence"].to_pylist()) <= set(range(17, 42))


def test_symbols_are_chosen_before_columns_are_made(market: Market) -> None:
    whole = read_table(market.path)
    got = read_table(market.path, symbol="S0N003, S1N004")
    assert got.num_rows
    assert got == whole.filter(pa.compute.is_in(whole["symbol"], pa.array(["S0N003", "S1N004"])))


def test_one_journal_or_one_segment_may_be_named(market: Market) -> None:
    journal = market.journal(2, 1)
    assert read_table(journal).to_pylist() == expected_rows(journal, 2, 1)
    second = segments(journal)[1]
    first = int(second.stem.rpartition("-")[2])
    assert read_table(second)["sequence"][0].as_py() >= first


@pytest.mark.parametrize("receiver", ["2", "london-0"])
def test_a_receiver_may_be_chosen(market: Market, receiver: str) -> None:
    got = read_table(market.path, receiver=receiver, stripe=0)
    assert got.to_pylist() == expected_rows(market.journal(2, 0), 2, 0)


def test_all_receivers_are_read_each_for_itself(market: Market) -> None:
    got = read_table(market.path, receiver="all")
    expected = [row for s in (0, 1) for r in (1, 2, 3) for row in expected_rows(market.journal(r, s), r, s)]
    assert got.to_pylist() == expected


def test_an_event_of_a_feed_has_the_same_columns(market: Market) -> None:
    from isocast.lake.schemas import EVENT_SCHEMA  # noqa: PLC0415

    got = read_table(market.path, EVENT_SCHEMA.names, stripe=0)
    assert pa.Table.from_batches([event_batch(market.events(0), EVENT_SCHEMA)]) == got


# ---- gaps


def test_a_gap_is_filled_by_another_receiver(tmp_path: Path) -> None:
    missing = {(1, 0): [range(20, 60)], (2, 0): [range(40, 50)]}
    market = write_market(tmp_path, stripes=(0,), events=3_000, missing=missing)
    table = read_table(tmp_path)
    truth = expected_rows(market.journal(3, 0), 3, 0)
    assert keys(table) == [(row["stripe"], row["sequence"], row["index"]) for row in truth]
    for first, receivers in ((10, {1}), (20, {2}), (40, {3}), (50, {2}), (60, {1})):
        block = next(block for block in market.blocks(0) if block.first_sequence >= first)
        sequences = range(block.first_sequence, block.first_sequence + len(block.messages))
        assert {row["receiver"] for row in table.to_pylist() if row["sequence"] in sequences} == receivers


def test_a_gap_that_nobody_fills_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = {(receiver, 0): [range(20, 30)] for receiver in (1, 2, 3)}
    write_market(tmp_path, stripes=(0,), events=3_000, missing=missing)
    with pytest.raises(JournalError, match=r"sequences (1[7-9]|2\d) to \d+ of stripe 0 are in no journal"):
        read_table(tmp_path)


def test_a_gap_that_nobody_fills_goes_to_quarantine_if_wanted(tmp_path: Path) -> None:
    missing = {(receiver, 0): [range(20, 30)] for receiver in (1, 2)}
    market = write_market(tmp_path / "m", receivers=3, stripes=(0,), events=3_000, missing=missing)
    shutil.rmtree(market.journal(3, 0))
    got = read_table(tmp_path / "m", onError="quarantine", quarantine=tmp_path / "q")
    gap = read_table(tmp_path / "m", frame="quarantine").to_pylist()
    assert [(row["reason"], row["count"]) for row in gap] == [
        ("gap", gap[0]["last_sequence"] - gap[0]["first_sequence"] + 1)
    ]
    lost = range(gap[0]["first_sequence"], gap[0]["last_sequence"] + 1)
    assert lost.start in {block.first_sequence for block in market.blocks(0)}
    assert 20 <= lost.start < 30 < lost.stop
    assert not set(got["sequence"].to_pylist()) & set(lost)
    assert [path.name.partition("-")[0] for path in (tmp_path / "q").iterdir()] == ["gap"]


def test_quarantine_without_a_place_is_refused(market: Market) -> None:
    with pytest.raises(ConfigurationError, match="needs a directory"):
        read_table(market.path, onError="quarantine")


def test_one_receiver_alone_is_not_filled(tmp_path: Path) -> None:
    write_market(tmp_path, stripes=(0,), events=3_000, missing={(1, 0): [range(20, 60)]})
    with pytest.raises(JournalError, match="in no journal that was asked"):
        read_table(tmp_path, receiver=1)
    assert read_table(tmp_path, receiver="all").num_rows < 3 * 3_000


def test_what_is_no_longer_kept_is_a_gap_if_it_is_asked_for(tmp_path: Path) -> None:
    market = write_market(tmp_path, receivers=1, stripes=(0,), events=3_000, segment_bytes=20_000)
    oldest, second, *_ = segments(market.journal(1, 0))
    oldest.unlink()
    kept = int(second.stem.rpartition("-")[2])
    assert read_table(tmp_path)["sequence"][0].as_py() == kept
    with pytest.raises(JournalError, match=f"sequences 1 to {kept - 1} "):
        read_table(tmp_path, fromSequence=1)


# ---- damage


def test_a_torn_end_is_read_up_to_its_last_whole_block(market: Market, tmp_path: Path) -> None:
    torn = own(market, tmp_path)
    newest = segments(torn.journal(1, 0))[-1]
    cut = newest.stat().st_size - 100
    with newest.open("r+b") as file:
        file.truncate(cut)
    got = read_table(torn.path, receiver=1, stripe=0)
    assert got.to_pylist() == expected_rows(torn.journal(1, 0), 1, 0)
    told = read_table(torn.path, receiver=1, stripe=0, frame="quarantine").to_pylist()
    assert [(row["reason"], row["path"]) for row in told] == [("torn", str(newest))]
    assert told[0]["offset"] + told[0]["count"] == cut
    # Another receiver has the block that is torn here.
    assert keys(read_table(torn.path, stripe=0)) == keys(read_table(market.path, stripe=0))


def test_an_older_segment_that_ends_within_a_block_is_damage(market: Market, tmp_path: Path) -> None:
    torn = own(market, tmp_path)
    older = segments(torn.journal(1, 0))[1]
    with older.open("r+b") as file:
        file.truncate(older.stat().st_size - 8)
    for receiver in ("1", "all"):
        with pytest.raises(JournalError, match="ends within a block, although a later one exists"):
            read_table(torn.path, receiver=receiver, stripe=0)
    assert keys(read_table(torn.path, stripe=0)) == keys(read_table(market.path, stripe=0))


@pytest.mark.parametrize("where", [BLOCK_HEADER_BYTES + 300, 5, 60, 106])
def test_a_flipped_bit_is_found_and_made_good_by_another_receiver(market: Market, tmp_path: Path, where: int) -> None:
    """In a body, in the length, in the sequence, in a checksum."""
    damaged = own(market, tmp_path)
    file = segments(damaged.journal(1, 0))[1]
    second = view_block(file.read_bytes(), SEGMENT_HEADER_BYTES).header
    flip(file, SEGMENT_HEADER_BYTES + second.block_bytes + where)
    whole = read_table(market.path, stripe=0)
    assert keys(read_table(damaged.path, stripe=0)) == keys(whole)
    with pytest.raises(JournalError, match=rf"{file.name}: byte \d+: the checksum .* is wrong; sequences "):
        read_table(damaged.path, stripe=0, receiver=1)
    with pytest.raises(JournalError, match="checksum"):
        read_table(damaged.path, stripe=0, receiver="all")
    told = read_table(damaged.path, stripe=0, receiver=1, frame="quarantine").to_pylist()
    assert [row["reason"] for row in told] == ["damage", "gap"]
    assert told[0]["count"] % 8 == 0
    assert told[1]["first_sequence"] == second.next_sequence


@pytest.mark.parametrize("where", [40, 110, BLOCK_HEADER_BYTES + 60])
def test_damage_in_the_very_last_block_is_no_silent_end(market: Market, tmp_path: Path, where: int) -> None:
    damaged = own(market, tmp_path)
    file = segments(damaged.journal(1, 0))[-1]
    starts = _starts(file)
    flip(file, starts[-1] + where)
    with pytest.raises(JournalError, match="checksum"):
        read_table(damaged.path, stripe=0, receiver=1)
    assert keys(read_table(damaged.path, stripe=0)) == keys(read_table(market.path, stripe=0))


def _starts(file: Path) -> list[int]:
    raw, at, found = file.read_bytes(), SEGMENT_HEADER_BYTES, []
    while at < len(raw):
        found.append(at)
        at += view_block(raw, at).header.block_bytes
    return found


@pytest.mark.parametrize(
    "where, value, rule",
    [
        (DIRECTORY_OFFSETS["events"], (1 << 32) - 1, "count different events"),
        (DIRECTORY_OFFSETS["events"], 3, "count different events"),
        (-1, 0xFFFF_FFFF, "its texts are not ASCII"),
    ],
)
def test_a_block_that_lies_with_right_checksums_is_refused(
    market: Market, tmp_path: Path, where: int, value: int, rule: str
) -> None:
    """CRC-32 protects from no one: a directory, or an event, that somebody made up."""
    forged = own(market, tmp_path)
    file = segments(forged.journal(1, 0))[0]
    raw = bytearray(file.read_bytes())
    header = view_block(bytes(raw), SEGMENT_HEADER_BYTES).header
    body = SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES
    place = body + where if where >= 0 else body + header.messages * DIRECTORY_BYTES + 8
    raw[place : place + 4] = value.to_bytes(4, "little")
    end = SEGMENT_HEADER_BYTES + header.block_bytes
    changed = header._replace(body_checksum=crc32(raw[body:end]))
    raw[SEGMENT_HEADER_BYTES:body] = pack_block_header(changed)
    file.write_bytes(raw)
    with pytest.raises(JournalError, match=rule):
        read_table(forged.path, stripe=0)
    told = read_table(forged.path, stripe=0, frame="quarantine").to_pylist()
    assert [(row["reason"], row["first_sequence"], row["last_sequence"]) for row in told] == [
        ("damage", 1, header.messages)
    ]
    rest = read_table(forged.path, stripe=0, onError="quarantine", quarantine=tmp_path / "q")
    assert keys(rest) == [key for key in keys(read_table(market.path, stripe=0)) if key[1] > header.messages]


def test_a_missing_block_is_a_gap(market: Market, tmp_path: Path) -> None:
    holed = own(market, tmp_path)
    file = segments(holed.journal(1, 0))[1]
    first, second, *_ = _starts(file)[1:]
    raw = file.read_bytes()
    file.write_bytes(raw[:first] + raw[second:])
    with pytest.raises(JournalError, match="in no journal"):
        read_table(holed.path, stripe=0, receiver=1)
    assert keys(read_table(holed.path, stripe=0)) == keys(read_table(market.path, stripe=0))


def test_a_block_that_is_there_twice_is_an_overlap_but_shown_to_an_audit(market: Market, tmp_path: Path) -> None:
    doubled = own(market, tmp_path)
    file = segments(doubled.journal(1, 0))[1]
    first, second, *_ = _starts(file)
    raw = file.read_bytes()
    file.write_bytes(raw + raw[first:second])
    with pytest.raises(JournalError, match="occur twice in one journal"):
        read_table(doubled.path, stripe=0, minPartitions=1)
    rows = keys(read_table(doubled.path, stripe=0, receiver="all"))
    assert len(rows) - len(keys(read_table(market.path, stripe=0, receiver="all"))) == len(
        view_block(raw, first).events
    )


def test_a_journal_of_a_newer_version_is_refused(market: Market, tmp_path: Path) -> None:
    newer = own(market, tmp_path)
    for receiver in (1, 2, 3):
        file = segments(newer.journal(receiver, 0))[-1]
        raw = bytearray(file.read_bytes())
        raw[8] = JOURNAL_VERSION + 1
        file.write_bytes(raw)
    with pytest.raises(JournalError, match=f"journal version {JOURNAL_VERSION + 1}; this program reads version"):
        read_table(newer.path, stripe=0)
    told = read_table(newer.path, stripe=0, frame="quarantine").to_pylist()
    assert "version" in {row["reason"] for row in told}


def test_a_segment_without_its_first_bytes_is_made_good(market: Market, tmp_path: Path) -> None:
    headless = own(market, tmp_path)
    flip(segments(headless.journal(1, 0))[1], 3)
    assert keys(read_table(headless.path, stripe=0)) == keys(read_table(market.path, stripe=0))
    with pytest.raises(JournalError, match="is not that of a journal"):
        read_table(headless.path, stripe=0, receiver=1)


# ---- two markets


def test_two_markets_in_one_folder_are_told_apart_by_what_they_did(market: Market, tmp_path: Path) -> None:
    mixed = own(market, tmp_path)
    other = write_market(tmp_path / "other", receivers=2, stripes=(0,), events=3_000, seed=99)
    shutil.rmtree(mixed.journal(2, 0))
    shutil.copytree(other.journal(2, 0), mixed.journal(2, 0))
    with pytest.raises(JournalError, match="two markets are mixed"):
        read_table(mixed.path)
    quarantined = read_table(mixed.path, onError="quarantine", quarantine=tmp_path / "q")
    assert keys(quarantined) == keys(read_table(market.path))
    assert [path.name.partition("-")[0] for path in (tmp_path / "q").iterdir()] == ["foreign"]


def test_two_markets_that_share_no_stripe_are_told_apart_by_their_nodes_own_logs(tmp_path: Path) -> None:
    first = write_market(tmp_path / "data", receivers=1, stripes=(0,), events=300)
    other = write_market(tmp_path / "other", receivers=1, stripes=(1,), events=300, seed=99)
    shutil.move(other.path / "tokyo-1", first.path / "tokyo-1")
    for name, market in (("tokyo-0", "one"), ("tokyo-1", "two")):
        (first.path / name / "log").mkdir()
        (first.path / name / "log" / "identity.json").write_text(json.dumps({"market": market}), encoding="utf-8")
    with pytest.raises(JournalError, match=r'tokyo-1/journal: is of market "two", and .* of "one"'):
        read_table(first.path)
    quarantined = read_table(first.path, ["stripe"], onError="quarantine", quarantine=tmp_path / "q")
    assert set(quarantined["stripe"].to_pylist()) == {0}
    assert [path.name.partition("-")[0] for path in (tmp_path / "q").iterdir()] == ["foreign"]


def test_a_second_journal_of_one_receiver_is_refused(market: Market, tmp_path: Path) -> None:
    mixed = own(market, tmp_path)
    shutil.copytree(mixed.journal(1, 0), mixed.path / "backup" / "journal")
    with pytest.raises(JournalError, match="a second journal of site1 for stripe 0"):
        read_table(mixed.path)


# ---- options


@pytest.mark.parametrize(
    "options, rule",
    [
        ({"fromsequnce": 3}, 'did you mean "fromSequence"'),
        ({"fromSequence": "x"}, "is not a number"),
        ({"stripe": 7}, "there are 0, 1"),
        ({"receiver": "lodnon-0", "stripe": 0}, 'did you mean "london-0"'),
        ({"symbol": "TOO LONG A NAME"}, "printable ASCII"),
        ({"onError": "ignore"}, "fail or quarantine"),
        ({"frame": "all"}, "released or messages or quarantine"),
        ({"market": "market.toml"}, "either a folder"),
        ({"columns": "prise"}, r"no column 'prise'; did you mean \"price\"\? \(there are stripe, .*, uncertified\)"),
        ({"columns": "price,,symbol"}, "no column ''"),
        ({"columns": "price, symbol, price"}, "price is named twice"),
        ({"columns": "price", "frame": "quarantine"}, "no column 'price'.*there are path, stripe, "),
    ],
)
def test_a_wrong_option_is_named(market: Market, options: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        read_table(market.path, None, IsocastSource, **options)


def test_a_folder_without_journals_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no journal"):
        read_table(tmp_path)
    with pytest.raises(ConfigurationError, match="no such folder"):
        read_table(tmp_path / "absent")


def test_several_paths_are_one_market(market: Market, tmp_path: Path) -> None:
    """As `.load(["here", "there"])` hands them over."""
    for stripe in market.stripes:
        shutil.copytree(market.journal(1, stripe), tmp_path / f"stripe{stripe}" / "journal")
    parts = [str(tmp_path / f"stripe{stripe}") for stripe in market.stripes]
    whole = read_table(tmp_path)
    assert whole.num_rows
    assert read_table(None, paths=json.dumps(parts)) == whole
    doubled = [*parts, str(tmp_path), f"file://{parts[0]}"]
    assert read_table(None, paths=json.dumps(doubled)) == whole, "what lies below two of them is read once"
    assert read_table(None, paths=json.dumps(parts[:1])).num_rows < whole.num_rows
    with pytest.raises(ConfigurationError, match="absent: no such folder"):
        read_table(None, paths=json.dumps([*parts, str(tmp_path / "absent")]))
    with pytest.raises(ConfigurationError, match="give all paths in one way"):
        read_table(tmp_path, paths=json.dumps(parts))
    with pytest.raises(ConfigurationError, match="no JSON list"):
        read_table(None, paths="here, there")


@pytest.mark.parametrize("option", ["path", "paths", "quarantine", "market"])
def test_a_place_in_an_object_store_is_refused(market: Market, tmp_path: Path, option: str) -> None:
    there = "s3a://bucket/data"
    given = {option: json.dumps([there]) if option == "paths" else there, "onError": "quarantine"}
    place = market.path if option == "quarantine" else None
    with pytest.raises(ConfigurationError, match=r"s3a://bucket/data is in no folder .* mount it"):
        read_table(place, None, IsocastSource, **{"quarantine": str(tmp_path), **given})


def test_the_version_of_the_page_is_that_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "lake-schema.md").read_text(encoding="utf-8")
    assert re.findall(r"version (\d+) of the columns", page) == [str(SCHEMA_VERSION)]


def test_every_option_of_reading_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "lake-schema.md").read_text(encoding="utf-8")
    for name in source_options._KNOWN:  # noqa: SLF001 - what a reader takes
        assert f"`{name}`" in page, name


def test_the_columns_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "lake-schema.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")]
    columns = RELEASED_SCHEMA.names
    assert [name for name in rows if name in columns][: len(columns)] == columns
