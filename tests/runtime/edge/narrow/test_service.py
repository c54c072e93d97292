"""The edge of a receiver over its journal: killed, without a plan, behind a gap; on loopback."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from time import time_ns

import pytest
from tests.runtime.edge.narrow.edge_worlds import PLAN_2, block, edge_market, trades_of, write_journal
from tests.runtime.worlds import eventually, run

from isocast.runtime.disk.journal import Journal
from isocast.runtime.edge.narrow.plans import PLAN_NOTES, PlanFolder, PlanNote, PlanNotes, plan_name
from isocast.runtime.edge.narrow.service import EdgeService, TokenPassed
from isocast.runtime.market.model import Market
from isocast.striping.plan import plan_entry, plan_text
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

Alarms = list[tuple[str, str, str]]


def market_of(folder: Path, **edge: object) -> Market:
    draw = SystemRandom()
    place = f"127.{draw.randrange(16, 240)}.{draw.randrange(256)}"
    nodes = {
        f"nodes.{name}": {"role": "primary-receiver", "address": f"{place}.{n}"}
        for n, name in enumerate(("a", "b", "c"), 1)
    }
    table = {"plan": "stripes.toml", "groups": f"239.{draw.randrange(193, 199)}.0.0", "span": 16, **edge}
    table |= {"port": draw.randrange(30_000, 32_000), "request_port": draw.randrange(32_000, 34_000)}
    return edge_market(folder, {"edge": table, **nodes})


def service(market: Market, alarms: Alarms, name: str = "a") -> EdgeService:
    return EdgeService(market, market.node(name), time_ns, lambda *said: alarms.append(said))


def tokens(first: int, count: int, start: int) -> list[object]:
    return [
        block(token, token, trades_of("ABCX", 10 * token, start), start + token * SECOND)
        for token in range(first, first + count)
    ]


def made(one: EdgeService) -> list[tuple[int, bytes]]:
    return list(one.archive.packets())


def advance(one: EdgeService) -> None:
    while one.advance():
        pass


def test_who_is_killed_goes_on_with_the_next_number(tmp_path: Path) -> None:
    """Not closed, so no snapshot is newer than the last that was kept: the journal says the rest."""
    market, start = market_of(tmp_path), time_ns() - 100 * SECOND
    alarms: Alarms = []
    whole = tmp_path / "whole"
    whole.mkdir()
    other = market_of(whole)
    write_journal(market.directory_of("a"), tokens(1, 30, start))  # type: ignore[arg-type]
    write_journal(other.directory_of("a"), tokens(1, 60, start))  # type: ignore[arg-type]
    reference = service(other, alarms)
    advance(reference)
    first = service(market, alarms)
    advance(first)
    first._keep()  # noqa: SLF001 - as it does every few seconds
    with Journal.open(market.directory_of("a") / "journal", 0, 1) as journal:
        for one in tokens(31, 10, start):
            journal.append(one)  # type: ignore[arg-type]
        advance(first)
        first._closing.close()  # noqa: SLF001 - the kernel closes what a killed process had open, and keeps nothing
        for one in tokens(41, 20, start):
            journal.append(one)  # type: ignore[arg-type]
    second = service(market, alarms)
    assert second.engine.next_sequence == 31
    advance(second)
    assert made(second) == made(reference)
    assert alarms == []
    second.close()
    reference.close()


def test_without_the_plan_it_is_silent_and_goes_on_when_the_file_comes(tmp_path: Path) -> None:
    market, start = market_of(tmp_path), time_ns() - 100 * SECOND
    alarms: Alarms = []
    home = market.directory_of("a")
    write_journal(home, tokens(1, 20, start))  # type: ignore[arg-type]
    PlanNotes(home / PLAN_NOTES).append(PlanNote(10, start + 10 * SECOND, 10, plan_entry(PLAN_2)))
    one = service(market, alarms)
    advance(one)
    assert one.engine.next_sequence == 10
    assert [code for code, _, _ in alarms] == ["edge-plan"]
    assert PLAN_2.digest.hex() in alarms[0][1]
    assert one.status()["blocked"]
    before = made(one)
    assert market.edge is not None
    market.edge.plans.mkdir()
    (market.edge.plans / plan_name(PLAN_2)).write_text(plan_text(PLAN_2), encoding="utf-8")
    one._blocked_at = 0  # noqa: SLF001 - a second later
    advance(one)
    assert (one.engine.next_sequence, one.engine.striper.plan) == (21, PLAN_2)
    assert made(one)[: len(before)] == before
    assert not one.status()["blocked"]
    one.close()


def test_it_sends_and_says_what_it_did(tmp_path: Path) -> None:
    async def work() -> None:
        market, alarms = market_of(tmp_path), list[tuple[str, str, str]]()
        one = service(market, alarms)
        running = asyncio.create_task(one.run())
        start = time_ns()
        with Journal.open(market.directory_of("a") / "journal", 0, 1) as journal:
            journal.append(block(1, 1, trades_of("ABCX", 1, start), start - 2 * SECOND))
            one.wake(TokenPassed(2, start - SECOND, 2))
            await eventually(lambda: one.sender.pacer.counts.packets == 3)
        status = one.status()
        assert (status["messages"], status["not_sent"], status["token"]) == (16, 0, 2)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        one.close()
        assert alarms == []

    run(work())


def test_a_snapshot_of_other_settings_is_refused_with_the_way_out(tmp_path: Path) -> None:
    market, start = market_of(tmp_path), time_ns() - 100 * SECOND
    write_journal(market.directory_of("a"), tokens(1, 3, start))  # type: ignore[arg-type]
    one = service(market, [])
    advance(one)
    one.close()
    changed = market_of(tmp_path, patience=7)
    with pytest.raises(ConfigurationError, match="other settings of the edge; restore the settings"):
        service(changed, [])


def test_a_damaged_snapshot_is_made_anew_from_the_journal(tmp_path: Path) -> None:
    market, start = market_of(tmp_path), time_ns() - 100 * SECOND
    alarms: Alarms = []
    write_journal(market.directory_of("a"), tokens(1, 5, start))  # type: ignore[arg-type]
    one = service(market, alarms)
    advance(one)
    before = made(one)
    one.close()
    path = market.directory_of("a") / "edge" / "state"
    path.write_bytes(path.read_bytes()[:-3])
    one = service(market, alarms)
    advance(one)
    assert made(one) == before
    assert [code for code, _, _ in alarms] == ["edge-state"]
    one.close()


def test_a_plan_for_another_core_is_bad_configuration(tmp_path: Path) -> None:
    market = market_of(tmp_path)
    text = plan_text(PLAN_2).replace("core = 0", "core = 3")
    (tmp_path / "stripes.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="has no plan for stripe 0"):
        service(market, [])
    assert market.edge is not None
    assert PlanFolder(market.edge).find(PLAN_2.digest) is None
