"""A source whose disk was set back to a backup gives numbers again, on real sockets, and somebody listens.

| what goes wrong | build without | what names it |
|---|---|---|
| two payloads under one label: their difference is read | salts | nobody notices a listener |
| what floors publish takes numbers that are taken, and is lost | memory of numbers | the source ends, with the reason |

`tests.security.test_restored_outbox` shows the first of an outbox and a machine alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from tests.interop.test_core_attacks import CALM, NODES, RECEIVERS
from tests.interop.thief import listening
from tests.interop.weakened import without
from tests.runtime.worlds import World, eventually, market_file, run, trades

from isocast.runtime.market.file import load_market
from isocast.security.sealing import COMMITMENT_BYTES, SALT_BYTES, SEAL_TAG_BYTES
from isocast.wire.events import EventArray
from isocast.wire.packets import Data


@contextmanager
def backup(world: World) -> Iterator[None]:
    """The source's outbox as it is now; put back at the end of the block."""
    outbox, kept = world.market.directory_of("floor") / "outbox", world.path.parent / "backup"
    shutil.copytree(outbox, kept)
    yield
    shutil.rmtree(outbox)
    shutil.copytree(kept, outbox)


@pytest.mark.parametrize("defence", ["salts", ""])
def test_who_listens_reads_no_difference_of_what_was_sent_before_and_after(tmp_path: Path, defence: str) -> None:
    path = market_file(tmp_path, NODES)
    said, again = trades(1, 1), trades(1, 900)

    async def first(world: World, events: EventArray) -> Data:
        """The message that goes out after a start."""
        heard = len(thief.packets(Data))
        await world.start("floor", ready=False)
        await world.publish("floor", events)
        await eventually(lambda: len(thief.packets(Data)) > heard)
        await world.stop("floor")
        return thief.packets(Data)[-1]

    async def story() -> list[Data]:
        async with World(path) as world:
            found: list[Data] = []
            # No receiver is up: nobody can tell the source how far it was.
            await world.start("floor", ready=False)
            await world.stop("floor")
            with backup(world):
                found.append(await first(world, said))
            found.append(await first(world, again))
            return found

    with without(*([defence] if defence else [])), listening(load_market(path), "b") as thief:
        before, after = run(story())
    assert before.label == after.label, "the attack needs one label for both"
    ciphers = [one.payload[SALT_BYTES + COMMITMENT_BYTES : -SEAL_TAG_BYTES] for one in (before, after)]
    read = bytes(one ^ other for one, other in zip(*ciphers, strict=True))
    difference = bytes(one ^ other for one, other in zip(said.tobytes(), again.tobytes(), strict=True))
    assert (read == difference) is bool(defence)


@pytest.mark.parametrize("defence", ["memory of numbers", ""])
def test_what_floors_publish_afterwards_is_not_lost(tmp_path: Path, defence: str) -> None:
    async def story() -> None:
        async with World(market_file(tmp_path, NODES, settings=CALM)) as world:
            await world.start()
            await world.publish("floor", trades(1, 1))
            await world.until_journals_have([1], *RECEIVERS)
            await world.stop("floor")
            with backup(world):
                await world.start("floor")
                for number in (2, 3):
                    await world.publish("floor", trades(1, number))
                await world.until_journals_have([1, 2, 3], *RECEIVERS)
                await world.stop("floor")
            await world.start("floor")
            if not defence:
                process = world.nodes["floor"]
                await eventually(lambda: process.failure is not None)
                assert "the outbox has no record of them" in str(process.failure)
                await world.nodes.pop("floor").stop()
                await world.start("floor")
            for number in (101, 102, 103):
                await world.publish("floor", trades(1, number))
            lost = [101, 102] if defence else []
            kept = [number for number in (101, 102, 103) if number not in lost]
            await world.until_journals_have([1, 2, 3, *kept], *RECEIVERS)

    with without(defence) if defence else nullcontext():
        run(story())
