"""Journals of a market over UDP are proven offline, by the roster alone; a bent one is named."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, trades

from isocast.cli.main import main
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.roster_files import ROSTER
from isocast.wire.journal import SEGMENT_HEADER_BYTES
from isocast.wire.journal_blocks import encode_block

RING = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}


def verdict(capsys: pytest.CaptureFixture[str], world: World, name: str, code: int) -> Any:  # noqa: ANN401  JSON
    roster = world.market.keys_directory / ROSTER
    journal = world.market.directory_of(name) / "journal"
    capsys.readouterr()
    assert main(["journal", "verify", str(journal), "--roster", str(roster), "--json"]) == code
    return json.loads(capsys.readouterr().out)


async def a_whole_turn(world: World) -> None:
    """Every site signs a token of one ring.

    Where a busy machine lets ring follow upon ring, each may have had its first token only, all of one site: their
    vouchers wait for a ring that lasts.
    """

    def sent() -> list[int]:
        return [world.nodes[name].counters.tokens_sent for name in "abc"]

    def rings() -> list[int]:
        return [world.nodes[name].counters.reformations for name in "abc"]

    while True:
        before, ring = sent(), rings()
        await eventually(
            lambda: rings() != ring or all(now > then for now, then in zip(sent(), before, strict=True))  # noqa: B023
        )
        if rings() == ring:
            return


def test_what_sites_release_is_proven_and_what_is_changed_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rings = 0

    async def work() -> World:
        nonlocal rings
        async with World(market_file(tmp_path, RING)) as world:
            await world.start()
            for count in (60, 120, 180):
                await world.publish("floor", trades(60, first_id=count - 59))
                await eventually(lambda: all(len(world.ids(name)) == count for name in "abc"))  # noqa: B023 - within its turn
            # The vouchers of what went before come with the next block, if they were not there.
            await a_whole_turn(world)
            await world.publish("floor", trades(1, first_id=181))
            await eventually(lambda: all(len(world.ids(name)) == 181 for name in "abc"))
            rings = world.nodes["a"].counters.reformations
            return world

    world = asyncio.run(asyncio.wait_for(work(), 120))
    for name in "abc":
        got = verdict(capsys, world, name, 0)
        proof = got["proof"]
        assert (got["faults"]["proof"], proof["unproven"]) == (0, {})
        assert proof["proven_tokens"] >= proof["tokens"] - 1 > 0
        signers = sorted(map(int, proof["signed"]))
        assert signers == proof["universe"] or (
            # On a busy machine somebody may have been on none of the rings that brought messages.
            rings > 1 and set(signers) < set(proof["universe"]) and 2 * len(signers) > len(proof["universe"])
        )
        signed = proof["sources"]
        assert (signed["unsigned"], signed["messages_before"]) == ({}, 0)
        assert sum(signed["signed"].values()) + signed["waiting_messages"] == got["messages"]
        assert sum(signed["signed"].values()) > 0
    journal = world.market.directory_of("b") / "journal"
    blocks = [block.released() for block in read_blocks(journal)]
    source, number, digest, payload = blocks[0].messages[0]
    lie = replace(blocks[0], messages=[(source, number, digest, payload[:-48]), *blocks[0].messages[1:]])
    [path] = journal.glob("*.isoj")
    head = path.read_bytes()[:SEGMENT_HEADER_BYTES]
    path.write_bytes(head + b"".join(b"".join(encode_block(block).pieces) for block in [lie, *blocks[1:]]))
    got = verdict(capsys, world, "b", 1)
    assert [(fault["kind"], fault["sequence"]) for fault in got["first_faults"]] == [("proof", 1)]


def test_shuffles_of_a_market_are_verified_from_the_nonces_through_a_reformation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F5: keys are made again from what owners revealed, also where one ring's nonces meet those of the next."""
    nodes = {**RING, "other": {"role": "primary-source"}}

    async def work() -> World:
        async with World(market_file(tmp_path, nodes, settings={"ring": {"order": "shuffle"}})) as world:
            await world.start()
            count = 0
            for turn in range(24):
                if turn == 12:
                    await world.stop("c")
                for source in ("floor", "other"):
                    await world.publish(source, trades(2, first_id=count + 1))
                    count += 2
                await eventually(lambda: all(len(world.ids(name)) == count for name in "ab"))  # noqa: B023 - within its turn
            return world

    world = asyncio.run(asyncio.wait_for(work(), 240))
    for name in "ab":
        got = verdict(capsys, world, name, 0)
        assert got["faults"]["proof"] == 0
        assert (got["shuffles"]["other"], got["shuffles"]["unknown"]) == (0, 0)
        shuffles = got["proof"]["shuffles"]
        assert shuffles["keyed_tokens"] > 12
        assert shuffles["committed_tokens"] > 0
        assert shuffles["shuffled_tokens"] == shuffles["mixed_tokens"] == got["shuffles"]["verified"] > 0


def test_a_source_that_is_killed_goes_on_with_its_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9, with statements under way; what it sent before and after is signed for, and nobody is accused."""

    async def work() -> World:
        async with World(market_file(tmp_path, RING)) as world:
            await world.start("a", "b", "c", "x")
            for turn in range(3):
                await world.start_apart("floor")
                async with Publisher(world.market, "floor") as publisher:
                    await publisher.publish(trades(600, first_id=600 * turn + 1))
                await world.kill("floor")
            await world.start("floor")
            await world.publish("floor", trades(1, first_id=1_801))
            await world.until_journals_have(range(1, 1_802), "a", "b", "c")
            return world

    world = asyncio.run(asyncio.wait_for(work(), 120))
    for name in "abc":
        got = verdict(capsys, world, name, 0)
        signed = got["proof"]["sources"]
        assert (got["faults"]["proof"], signed["unsigned"], signed["messages_before"]) == (0, {}, 0)
        assert sum(signed["signed"].values()) + signed["waiting_messages"] == got["messages"]
        assert sum(signed["signed"].values()) > 0
