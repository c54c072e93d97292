"""Attacks at doors over real connections: each succeeds against a build without its defence, and fails with it.

| attack | build without | what names it |
|---|---|---|
| a floor's visitor with the stolen key of its source | door identities | refused_signatures: door, an alarm |
| a receiver's checkpoint for the thief of the core key | door identities | refused_signatures: door, an alarm |
| a door that has the stolen key, and a certificate of the market's authority | door identities | the visitor's error |
| the same, where doors ask for no identities | pins | refused_certificates: unpinned, an alarm |
| a status page that has a certificate of the authority, for the token of every page | pins | the visitor's error |
| words put into an open connection, with the stolen key | keys of connections | the door's alarm: a wrong tag |
| an identity that was revoked | revocations | refused_signatures: door, an alarm |
| one customer that asks for all that a server gives | shares | an alarm with its name |

A slow-loris is in `test_slow_loris`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interop.weakened import without
from tests.runtime.doorways import doorway, enter
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import SMALL, World, eventually, market_file, trades

from isocast.hierarchy.archive import AnswerLimits, Answers
from isocast.runtime.client.publisher import Publisher, PublishRefusedError
from isocast.runtime.hosts.publish_door import KeyedBatches, PublishDoor
from isocast.runtime.hosts.retransmit import ArchiveDoor
from isocast.runtime.market.certificates import certify_service
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, SecuritySettings
from isocast.runtime.market.pins import CertificateFault
from isocast.runtime.market.roster_making import revocation_of
from isocast.runtime.market.tls_files import certificate_paths, read_status_token
from isocast.runtime.net.door import CertificateRefusedError, Door, DoorRefusedError, Doorway, Visit, visit
from isocast.runtime.net.door_keys import (
    core_door_key,
    core_visitor,
    edge_door_key,
    edge_visitor,
    publish_door_key,
)
from isocast.runtime.net.tls import ServerTls
from isocast.runtime.watch.status import node_target, poll
from isocast.terms.ids import Label, source_id
from isocast.wire.door import (
    LENGTH,
    NO_CHANNEL,
    Accepted,
    Block,
    CheckpointWanted,
    Hello,
    Login,
    Publish,
    RangeWanted,
    Refused,
    Session,
    decode_message,
    encode_message,
)
from isocast.wire.journal_blocks import view_block
from isocast.wire.signing import SignedKind

FLOOR = source_id(1, 7)
NAME = "source/floor"


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path, SMALL)


class Floor(Surroundings):
    """The market's source, as far as its door goes."""

    def __init__(self, market: Market) -> None:
        super().__init__(market, "floor")
        self.taken: list[bytes] = []

    async def publish(self, batches: KeyedBatches) -> tuple[Label, ...]:
        self.taken += [payload for _, payload in batches]
        return tuple([Label(FLOOR, number) for number, _ in enumerate(batches, 1)])

    def at_door(self, work: Callable[[], Awaitable[None]]) -> None:
        async def both() -> None:
            door, plan = PublishDoor(self.context(), self.publish, lambda: 1), self.market.node("floor")
            await door.open(plan.address, plan.tcp_port)
            try:
                await work()
            finally:
                await door.close()

        run(both)


def stolen_key(market: Market) -> bytes:
    """Of the floor's door: every receiver holds what it is made of."""
    key = publish_door_key(market, load_keys(market, market.node("floor")), NAME)
    assert key is not None
    return key


def batch(text: bytes = b"key") -> Publish:
    return Publish(((text, trades(1).tobytes()),))


# ---- a visitor that has the key, and not the identity


async def publish_as_thief(market: Market) -> None:
    """Receiver b, or whoever took its disk, speaks as the floor."""
    guest = await enter(market, "floor", NAME, stolen_key(market), by="b")
    await guest.send(batch())
    await guest.expect(Accepted)
    await guest.close()


def test_without_identities_a_stolen_source_key_publishes(market: Market) -> None:
    floor = Floor(market)
    with without("door identities"):
        floor.at_door(lambda: publish_as_thief(market))
    assert len(floor.taken) == 1


def test_a_stolen_source_key_publishes_nothing_and_is_counted_and_named(market: Market) -> None:
    floor = Floor(market)

    async def attack() -> None:
        with pytest.raises(DoorRefusedError, match="the identity of source/floor is not proven: isocast keys check"):
            await publish_as_thief(market)
        with pytest.raises(DoorRefusedError, match="is not proven"):
            await enter(market, "floor", NAME, stolen_key(market), by="bank")  # It has no identity at all.
        await eventually(lambda: len(floor.alarms) == 2)

    floor.at_door(attack)
    assert not floor.taken
    assert floor.counters.refused_signatures == {SignedKind.DOOR: 2}
    assert "the key was stolen" in floor.alarms[0][1]


def checkpoint_for_thief(market: Market, around: Surroundings, visitor: str, *, by: str) -> type:
    """What a receiver gives to whoever has the core key; the kind of its answer."""

    async def work() -> type:
        door = ArchiveDoor(around.context(), market.directory_of("a") / "journal", lambda: None)
        await door.open()
        try:
            key = core_door_key(market, load_keys(market, market.node("a")), visitor)
            guest = await enter(market, "a", visitor, key, by=by)
            await guest.send(CheckpointWanted())
            answer = await guest.receive()
            await guest.close()
            return type(answer)
        finally:
            await door.close()

    return run(work)


def test_without_identities_a_stolen_core_key_is_served_as_a_receiver(market: Market) -> None:
    with without("door identities"):
        answer = checkpoint_for_thief(market, Surroundings(market, "a"), core_visitor(market.node("b")), by="floor")
    assert answer is Refused  # It has none yet, and would have given it.


def test_a_stolen_core_key_is_not_served_as_a_receiver(market: Market) -> None:
    around = Surroundings(market, "a")
    visitor = core_visitor(market.node("b"))
    assert checkpoint_for_thief(market, around, visitor, by="b") is Refused, "b itself is served"
    with pytest.raises(DoorRefusedError, match="the identity of core/b is not proven"):
        checkpoint_for_thief(market, around, visitor, by="floor")
    assert around.counters.refused_signatures == {SignedKind.DOOR: 1}


@pytest.mark.parametrize("defence", ["", "revocations"])
def test_a_revoked_identity_does_not_come_in(market: Market, defence: str) -> None:
    floor = Floor(market)
    said = revocation_of(market, "floor")

    async def attack() -> None:
        context = floor.context()
        assert context.keys.book is not None
        assert context.keys.book.revoke(said)
        door, plan = PublishDoor(context, floor.publish, lambda: 1), market.node("floor")
        await door.open(plan.address, plan.tcp_port)
        try:
            async with Publisher(market, "floor", patience_s=60) as thief:
                await thief.publish(trades(1))
        finally:
            await door.close()

    with without(defence) if defence else nullcontext():
        if defence:
            run(attack)
        else:
            with pytest.raises(PublishRefusedError, match="is not proven"):
                run(attack)
    assert len(floor.taken) == (1 if defence else 0)
    assert floor.counters.refused_signatures == ({} if defence else {SignedKind.DOOR: 1})


# ---- a door that has the key and a certificate, and not the identity


def publish_at_impostor(market: Market) -> list[Publish]:
    """The thief of a receiver's disk and of the authority's key stands at the floor's own address."""
    plan, heard = market.node("floor"), list[Publish]()
    certify_service(market, "floor", [plan.address])
    way = doorway(market, "floor", "b")

    async def serve(guest: Visit) -> None:
        while isinstance(message := await guest.receive(), Publish):
            heard.append(message)
            await guest.send(Accepted(tuple([Label(FLOOR, 1) for _ in message.batches])))

    async def work() -> None:
        tls = ServerTls(*certificate_paths(market, "floor"))
        door = Door({NAME: stolen_key(market)}.get, serve, tls=tls, doorway=way)
        await door.open(plan.address, plan.tcp_port)
        try:
            async with Publisher(market, "floor", patience_s=60) as publisher:
                await publisher.publish(trades(1))
        finally:
            await door.close()

    run(work)
    return heard


def test_without_identities_a_false_door_takes_what_a_floor_publishes(tmp_path: Path) -> None:
    market = new_market(tmp_path, SMALL, {"network": {"tls": "on"}})
    with without("door identities", "pins"):
        assert publish_at_impostor(market)


def test_a_false_door_with_key_and_certificate_is_found_out(tmp_path: Path) -> None:
    market = new_market(tmp_path, SMALL, {"network": {"tls": "on"}})
    with without("pins"), pytest.raises(PublishRefusedError, match="has the key of the door without its identity"):
        publish_at_impostor(market)


# ---- a door's peer with the wrong certificate: one of the market's authority, whose key was stolen


WITHOUT_IDENTITIES = {"network": {"tls": "on"}, "security": {"doors": "key"}}


def test_without_pins_a_false_door_with_any_certificate_of_the_authority_takes_what_is_published(
    tmp_path: Path,
) -> None:
    market = new_market(tmp_path, SMALL, WITHOUT_IDENTITIES)
    with without("pins"):
        assert publish_at_impostor(market)


def test_a_false_door_with_a_certificate_that_nobody_pinned_hears_not_a_word(tmp_path: Path) -> None:
    market = new_market(tmp_path, SMALL, WITHOUT_IDENTITIES)
    with pytest.raises(PublishRefusedError, match="is not one that roster 1 pins for floor"):
        publish_at_impostor(market)


@pytest.mark.parametrize("defence", ["", "pins"])
def test_a_wrong_certificate_is_counted_and_named_by_the_node_that_was_shown_it(tmp_path: Path, defence: str) -> None:
    """Receiver a fetches from b, at whose address the thief stands: with pins it does not even say its name."""
    market = new_market(tmp_path, SMALL, WITHOUT_IDENTITIES)
    around, visited = Surroundings(market, "a"), list[str]()
    certify_service(market, "b", [market.node("b").address])

    async def serve(guest: Visit) -> None:
        visited.append(guest.name)

    async def attack() -> None:
        name, plan = core_visitor(market.node("a")), market.node("b")
        key = core_door_key(market, load_keys(market, plan), name)
        assert key is not None
        door = Door({name: key}.get, serve, tls=ServerTls(*certificate_paths(market, "b")))
        await door.open(plan.address, plan.tcp_port)
        try:
            with nullcontext() if defence else pytest.raises(CertificateRefusedError, match="nobody renewed it"):
                await (await around.context().visit(plan, name, key)).close()
            await eventually(lambda: bool(visited) or not defence)
        finally:
            await door.close()

    with without(defence) if defence else nullcontext():
        run(attack)
    assert visited == ([core_visitor(market.node("a"))] if defence else [])
    assert around.counters.refused_certificates == ({} if defence else {CertificateFault.UNPINNED: 1})
    assert around.codes == ([] if defence else ["certificate-b"])


@pytest.mark.parametrize("defence", ["", "pins"])
def test_a_false_page_is_not_shown_the_token(tmp_path: Path, defence: str) -> None:
    market = new_market(tmp_path, SMALL, {"network": {"tls": "on"}})
    plan, heard = market.node("a"), list[bytes]()
    certify_service(market, "a", [plan.address])

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            heard.append(await reader.read(4_096))
        writer.close()

    async def attack() -> str:
        page = ServerTls(*certificate_paths(market, "a")).context
        server = await asyncio.start_server(take, plan.address, 0, ssl=page)
        target = replace(node_target(market, plan), port=server.sockets[0].getsockname()[1])
        (found,) = await poll([target], seconds=20)
        server.close()
        await server.wait_closed()
        return found.trouble

    with without(defence) if defence else nullcontext():
        trouble = run(attack)
    assert (read_status_token(market).encode() in b"".join(heard)) is bool(defence)
    assert ("is not one that roster 1 pins for a" in trouble) is not bool(defence)


# ---- whoever holds the key between the two, without TLS


class Between:
    """Passes the whole handshake on, both sides' identities too, and then says something as the visitor."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.key = stolen_key(market)
        self.is_over = False

    async def attack(self, until: Callable[[], bool]) -> None:
        plan = self.market.node("floor")
        server = await asyncio.start_server(self._relay, plan.address, 0)
        port = server.sockets[0].getsockname()[1]
        guest = await visit(plan.address, port, NAME, self.key, doorway=doorway(self.market, "floor", "floor"))
        await eventually(until)
        await guest.close()
        await eventually(lambda: self.is_over)
        server.close()
        await server.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plan = self.market.node("floor")
        theirs, ours = await asyncio.open_connection(plan.address, plan.tcp_port)
        hello = await self._pass(theirs, writer)
        login = await self._pass(reader, ours)
        await self._pass(reader, ours)
        await self._pass(theirs, writer)
        await self._pass(theirs, writer)
        asked, came = decode_message(hello), decode_message(login)
        assert isinstance(asked, Hello)
        assert isinstance(came, Login)
        said = Session(self.key, b"client", asked.nonce, came.nonce, NO_CHANNEL).sealed(encode_message(batch()))
        ours.write(LENGTH.pack(len(said)) + said)
        with suppress(OSError):
            await reader.read()  # Until the visitor leaves.
        for one in (writer, ours):
            one.close()
            with suppress(OSError):
                await one.wait_closed()
        self.is_over = True

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        head = await reader.readexactly(LENGTH.size)
        body = await reader.readexactly(*LENGTH.unpack(head))
        writer.write(head + body)
        return body


def between(market: Market) -> Floor:
    floor = Floor(market)
    floor.at_door(lambda: Between(market).attack(lambda: bool(floor.taken or floor.alarms)))
    return floor


def test_without_keys_of_connections_words_are_put_into_them(market: Market) -> None:
    with without("keys of connections"):
        assert len(between(market).taken) == 1


def test_nobody_with_the_key_puts_words_into_a_connection(market: Market) -> None:
    floor = between(market)
    assert not floor.taken
    assert "a message at the door has a wrong tag" in floor.alarms[0][1]


# ---- one customer's requests


async def asked(world: World, name: str, last: int) -> int:
    """How many messages a customer is given of those that it asks for."""
    market = world.market
    visitor = edge_visitor(market.node(name))
    key = edge_door_key(market, load_keys(market, market.node(name)), visitor)
    guest = await enter(market, "archive", visitor, key, by=name)
    await guest.send(RangeWanted(1, last))
    given = 0
    while isinstance(answer := await guest.receive(), Block):
        given += len(view_block(answer.body).sequences)
    await guest.close()
    return given


@pytest.mark.parametrize("defence", ["", "shares"])
def test_one_customer_leaves_the_others_their_share_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defence: str
) -> None:
    make = Answers.__init__

    def small(self: Answers, limits: AnswerLimits) -> None:
        """Sixteen messages, of which one customer has eight; another in a second."""
        make(self, replace(limits, rate=1, burst=16, customer_rate=1, customer_burst=8, quantum=16))

    async def story() -> None:
        async with World(market_file(tmp_path, {**SMALL, "fund": SMALL["bank"]})) as world:
            await world.start("a", "b", "c", "x", "floor", "archive")
            for number in range(1, 25):
                await world.publish("floor", trades(1, number))
            await world.until_journals_have(range(1, 25), "archive")
            taken = await asked(world, "bank", 24)
            left = await asked(world, "fund", 4)
            assert (taken > 8, left < 4) == (bool(defence), bool(defence))
            assert defence or "throttled-bank" in world.alarms("archive")

    monkeypatch.setattr(Answers, "__init__", small)
    with without(defence) if defence else nullcontext():
        run(story)


# ---- versions before, and markets that still have some: nothing falls back by itself


def test_a_visitor_that_says_no_identity_is_told_what_to_do(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isocast.runtime.net.door.HANDSHAKE_S", 2.0)  # The older visitor waits for its welcome.
    floor, plan = Floor(market), market.node("floor")

    async def older() -> None:
        with pytest.raises(DoorRefusedError, match=r"asks for identities besides.*set security.doors = \"key\""):
            await visit(plan.address, plan.tcp_port, NAME, stolen_key(market))
        await eventually(lambda: bool(floor.alarms))

    floor.at_door(older)
    assert "no identity of 'source/floor'" in floor.alarms[0][1]


def test_an_older_door_is_refused_and_the_error_says_what_to_do(market: Market) -> None:
    older = replace(market, security=SecuritySettings(doors="key"))
    floor = Floor(older)

    async def visits() -> None:
        with pytest.raises(DoorRefusedError, match=r"says no identity: .*runs an older version: update it"):
            await enter(market, "floor", NAME, stolen_key(market), by="floor")

    floor.at_door(visits)


def test_where_all_say_so_the_key_alone_counts(market: Market) -> None:
    older = replace(market, security=SecuritySettings(doors="key"))
    floor = Floor(older)

    async def visits() -> None:
        async with Publisher(older, "floor", patience_s=60) as publisher:
            await publisher.publish(trades(1))

    floor.at_door(visits)
    assert len(floor.taken) == 1


def test_a_signature_counts_at_one_door_alone(market: Market) -> None:
    """The floor's own, given at another node's door by whoever stands there."""
    way = doorway(market, "floor", "floor")
    assert way is not None
    elsewhere = Doorway(way.hand, market.node("a").node, way.stripe, way.listed)
    floor, plan = Floor(market), market.node("floor")

    async def visits() -> None:
        with pytest.raises(DoorRefusedError, match="is not proven"):
            await visit(plan.address, plan.tcp_port, NAME, stolen_key(market), doorway=elsewhere)

    floor.at_door(visits)
