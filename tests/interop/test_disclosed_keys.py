"""A market over UDP whose sources disclose their keys after the gate (§6), and a receiver that wants to read early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, trades

from isocast.cli.main import main
from isocast.ring.disclosures import Discloser, links
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.hosts.receiver import ReceiverHost
from isocast.runtime.market.roster_files import ROSTER
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Label
from isocast.wire.packets import Data, Disclose, Disclosure, Packet, Token

CALM: dict[str, dict[str, object]] = {"timing": {"detect": "60ms", "process": "200ms"}}
"""A source that a busy machine keeps from disclosing in time loses messages, as it should."""


def written(folder: Path, reveal: str) -> Path:
    path = market_file(folder, SMALL, settings=CALM)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("durability", f'reveal = "{reveal}"\ndurability', 1), encoding="utf-8")
    return path


class EarlyReader:
    """A test build of a receiver: it keeps every key that it can get, and tries each message when it comes."""

    def __init__(self, host: ReceiverHost) -> None:
        self.read: dict[Label, bytes] = {}
        self.tried: dict[Label, None] = {}
        self._host = host
        self._shown: list[Disclosure] = []
        channels: Any = host._channels  # noqa: SLF001
        self._tap = channels.tap
        channels.tap = self.look

    def look(self, packets: list[Packet]) -> list[Packet]:
        for packet in packets:
            if isinstance(packet, Disclose):
                self._shown += [Disclosure(packet.sender, *link) for link in packet.links]
            elif isinstance(packet, Token):
                self._shown += packet.disclosures
            elif isinstance(packet, Data) and Label(*packet.label) not in self.tried:
                self.tried[Label(*packet.label)] = None
                self._try(packet)
        return packets if self._tap is None else self._tap(packets)

    def _try(self, packet: Data) -> None:
        keys, label = self._host._context.keys, Label(*packet.label)  # noqa: SLF001
        try:
            self.read[label] = keys.opener().open(0, label, packet.payload).payload
        except RemoteProtocolError:
            chain = keys.chain_opener(0)
            for link in self._links(packet):
                if chain.fits(label, link, packet.payload):
                    self.read[label] = chain.open(label, link, packet.payload).payload

    def _links(self, packet: Data) -> Iterator[bytes]:
        for shown in self._shown:
            if shown.source == packet.sender:
                yield from links(shown, 1).values()


def reader_at(world: World, name: str) -> EarlyReader:
    host = world.nodes[name].host
    assert isinstance(host, ReceiverHost)
    return EarlyReader(host)


def verdict(capsys: pytest.CaptureFixture[str], world: World, name: str) -> Any:  # noqa: ANN401  JSON
    roster, journal = world.market.keys_directory / ROSTER, world.market.directory_of(name) / "journal"
    capsys.readouterr()
    assert main(["journal", "verify", str(journal), "--roster", str(roster), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_everybody_gets_what_was_published_and_journals_prove_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> World:
        async with World(written(tmp_path, "chain")) as world:
            await world.start()
            for first in (1, 101, 201):
                await world.publish("floor", trades(100, first_id=first))
                await world.until_journals_have(range(1, first + 100), "a", "b", "c", "bank")
            # A source that starts again has its seed: what waits in its outbox can still be opened.
            await world.stop("floor")
            await world.start("floor")
            await world.publish("floor", trades(100, first_id=301))
            await world.until_journals_have(range(1, 401), "a", "b", "c", "bank")
            assert [world.nodes[name].counters.void_messages for name in "abc"] == [0, 0, 0]
            return world

    world = asyncio.run(asyncio.wait_for(story(), 120))
    seed = world.market.directory_of("floor") / "chain.secret"
    assert seed.stat().st_mode & 0o777 == 0o600
    for name in "abc":
        got = verdict(capsys, world, name)
        assert (got["faults"]["proof"], got["proof"]["unproven"]) == (0, {})
        assert got["proof"]["unopened_messages"] == 0


@pytest.mark.parametrize("reveal", ["seal", "chain"])
def test_a_receiver_that_opens_on_arrival_reads_sealed_messages_and_no_chained_ones(
    tmp_path: Path, reveal: str
) -> None:
    async def story() -> None:
        async with World(written(tmp_path, reveal)) as world:
            await world.start()
            reader = reader_at(world, "b")
            for first in (1, 101, 201):
                await world.publish("floor", trades(100, first_id=first))
                await world.until_journals_have(range(1, first + 100), "a", "b", "c")
            assert len(reader.tried) >= 3
            assert len(reader.read) == (len(reader.tried) if reveal == "seal" else 0)

    asyncio.run(asyncio.wait_for(story(), 120))


def test_what_a_source_does_not_disclose_is_void_everywhere_and_readable_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with World(written(tmp_path, "chain")) as world:
            await world.start()
            await world.publish("floor", trades(20))
            await world.until_journals_have(range(1, 21), "a", "b", "c", "bank")
            reader = reader_at(world, "b")
            with monkeypatch.context() as patched:
                patched.setattr(Discloser, "due", lambda _self, _now: ())
                await world.publish("floor", trades(20, first_id=21))
                await eventually(lambda: all(world.nodes[name].counters.void_messages for name in "abc"))
            await world.publish("floor", trades(20, first_id=41))
            wanted = [*range(1, 21), *range(41, 61)]
            await world.until_journals_have(wanted, "a", "b", "c", "bank")
            assert not [label for label, payload in reader.read.items() if payload]
            assert len({world.nodes[name].counters.void_messages for name in "abc"}) == 1
            assert "void-floor" in world.alarms("a")
            sequences = {name: tuple(world.released(name)) for name in ("a", "b", "c", "bank")}
            assert len(set(sequences.values())) == 1

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_void_message_keeps_its_place_and_its_digest_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> World:
        monkeypatch.setattr(Discloser, "due", lambda _self, _now: ())
        async with World(written(tmp_path, "chain")) as world:
            await world.start("a", "b", "c", "x", "floor")
            for count in (1, 2):
                await world.publish("floor", trades(1, first_id=count))
                await eventually(lambda: all(world.nodes[name].counters.void_messages == count for name in "abc"))  # noqa: B023 - within its turn
            return world

    world = asyncio.run(asyncio.wait_for(story(), 120))
    [first, *_] = [block.messages() for block in read_blocks(world.market.directory_of("a") / "journal")]
    [(_, number, digest, payload)] = list(first)
    assert (number, len(digest), payload) == (1, 32, b"")
    proof = verdict(capsys, world, "a")["proof"]
    assert (proof["unproven"], proof["unopened_messages"]) == ({}, 2)
