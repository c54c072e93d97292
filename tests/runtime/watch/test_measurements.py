"""Measurements: one line a second, only what moved, never more bytes than allowed, and a full disk harms nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.hosts.contexts import new_market, run
from tests.runtime.worlds import eventually

from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.market.model import NodeRole
from isocast.runtime.watch.counters import Channel, NodeCounters, packet_slot
from isocast.runtime.watch.measurements import FOLDER, Measurements, TokenEar
from isocast.runtime.watch.metrics import NodeIdentity
from isocast.terms.ids import Epoch
from isocast.terms.instants import SECOND
from isocast.wire.frame import PacketKind
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Token

WHO = NodeIdentity("london", NodeRole.PRIMARY_RECEIVER, 2, 1, "London")
START = 1_767_623_400 * SECOND


def token(number: int, instant: int, sender: int = 3) -> Token:
    return Token(1, Epoch(1, 65_537), sender, number, instant, 1, (), (), (), NO_NONCE, NO_NONCE, 0, 0, (), NO_DIGEST)


def lines(folder: Path) -> list[dict[str, Any]]:
    found = sorted((folder / FOLDER).glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text(encoding="ascii").splitlines()]


def test_a_line_a_second_says_what_moved(tmp_path: Path) -> None:
    counters, ear = NodeCounters(), TokenEar()
    measured = Measurements(tmp_path, WHO, counters, 1 << 20, ear)
    assert not measured.tick(START)
    assert not measured.tick(START + SECOND // 2), "an eager loop does not write more"
    counters.packets_sent[packet_slot(Channel.DIRECT, PacketKind.NACK)] += 3
    counters.fairness_faults += 1
    counters.release_lateness.observe(15_000, 7)
    ear.hear([token(5, START - 4_000_000), object(), token(5, START), token(4, START)], START)
    assert measured.tick(START + SECOND)
    assert measured.tick(START + 2 * SECOND)
    measured.close()
    first, second = lines(tmp_path)
    assert first == {
        "v": 1,
        "node": "london",
        "id": 2,
        "role": "primary-receiver",
        "stripe": 1,
        "city": "London",
        "at_ns": START + SECOND,
        "over_ns": SECOND,
        "counts": {"nacks_sent": 3, "fairness_faults": 1},
        "lateness": [[20_000, 7]],
        "tokens": [[3, 5, 4_000_000]],
        "tokens_unlisted": 0,
    }
    assert (second["counts"], second["lateness"], second["tokens"]) == ({}, [], [])


def test_what_was_counted_before_it_began_is_not_told(tmp_path: Path) -> None:
    counters = NodeCounters(fairness_faults=9)
    measured = Measurements(tmp_path, WHO, counters, 1 << 20)
    measured.tick(START)
    measured.tick(START + SECOND)
    measured.close()
    (line,) = lines(tmp_path)
    assert line["counts"] == {}
    assert "tokens" not in line


def test_a_clock_that_is_set_back_does_not_silence_it(tmp_path: Path) -> None:
    measured = Measurements(tmp_path, WHO, NodeCounters(), 1 << 20)
    measured.tick(START)
    assert measured.tick(START - 100 * SECOND)
    measured.close()


def test_files_rotate_and_never_grow_beyond_what_may_be_kept(tmp_path: Path) -> None:
    keep = 16_000
    measured = Measurements(tmp_path, WHO, NodeCounters(), keep)
    for second in range(500):
        measured.tick(START + second * SECOND)
        if (tmp_path / FOLDER).exists():
            assert sum(path.stat().st_size for path in (tmp_path / FOLDER).iterdir()) <= keep
    measured.close()
    found = lines(tmp_path)
    assert found[-1]["at_ns"] == START + 499 * SECOND
    assert 20 < len(found) < 499
    assert measured.lost == 0


def test_a_restart_goes_on_beside_what_is_there(tmp_path: Path) -> None:
    for begin in (0, 10):
        measured = Measurements(tmp_path, WHO, NodeCounters(), 1 << 20)
        for second in range(begin, begin + 3):
            measured.tick(START + second * SECOND)
        measured.close()
    assert [line["at_ns"] - START for line in lines(tmp_path)] == [SECOND, 2 * SECOND, 11 * SECOND, 12 * SECOND]


def test_a_disk_that_takes_nothing_costs_lines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measurements(tmp_path, WHO, NodeCounters(), 1 << 20)
    measured.tick(START)
    measured.tick(START + SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert measured.tick(START + 2 * SECOND)
    assert measured.lost == 1
    assert measured.tick(START + 3 * SECOND)
    measured.close()
    assert [line["at_ns"] - START for line in lines(tmp_path)] == [SECOND, 3 * SECOND]


def test_a_burst_of_tokens_is_counted_and_not_listed_without_end() -> None:
    ear = TokenEar()
    ear.hear([token(number, START) for number in range(1, 301)], START)
    assert (len(ear.heard), ear.unlisted) == (256, 44)


# ---- in a process

NODES: dict[str, dict[str, object]] = {
    "a": {"role": "primary-receiver"},
    "b": {"role": "primary-receiver"},
    "x": {"role": "reformation-server"},
    "floor": {"role": "primary-source"},
}


@pytest.mark.parametrize("keep_bytes, writes", [("1MiB", True), ("0B", False)])
def test_a_node_writes_them_unless_the_market_wants_none(tmp_path: Path, keep_bytes: str, *, writes: bool) -> None:
    market = new_market(tmp_path, NODES, {"measurements": {"keep_bytes": keep_bytes}})
    process = NodeProcess(market, market.node("a"))

    async def work() -> None:
        await process.start()
        try:
            assert (process.measurements is not None) == writes
            assert process.host is not None
            assert (process.host.driver.heard is not None) == writes
            if writes:
                await eventually(lambda: lines(market.directory_of("a")))
        finally:
            await process.stop()

    run(work)
    assert (market.directory_of("a") / FOLDER).exists() == writes
    if writes:
        first = lines(market.directory_of("a"))[0]
        assert (first["node"], first["tokens"]) == ("a", [])
