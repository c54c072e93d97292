"""Attacks on the core over real sockets: each succeeds against a build without its defence, and fails with it.

| attack | build without | what names it |
|---|---|---|
| a forged source | tags | authentication_failures, refused_by_address |
| a source, by a receiver, which holds its keys | doubts | forged_messages, an alarm: it is found |
| a source, by a receiver that was removed and kept all its keys | generations | authentication_failures |
| a payload before its release, by such a receiver | generations of seals | nobody notices a listener |
| DATA, TOKEN, JOIN of another market with the same keys | market ids | another_market |
| TOKEN of another market with the same identities | the same, markets in signatures | refused_signatures: token |
| DATA and TOKEN of another stripe | stripe ids | unaddressed |
| votes of another stripe, of another market | ballots, stripes or markets in signatures | refused_signatures: join |
| a vote of an earlier ballot, by a server | ballots in votes | refused_signatures: join |
| a frame of the version before | versions | malformed |
| tokens and rings with the stolen core key | signatures | refused_signatures: token, newring |
| a ring without votes, by a server | votes | refused_signatures: newring |
| two tokens of one owner | court | convictions, an alarm, a proof on disk (test_stolen_keys) |
| a token of another stripe against its honest owner | stripes in signatures | refused_signatures: token |
| a token of another epoch against its honest owner | epochs of evidence | nobody is convicted |
| a stolen site key after its revocation | revocations | refused_signatures: token |
| a key that was rotated away, under the roster before | serials | refused_signatures: token |
| copies of one request, in a site's name | answered once | nobody: they cost no answers |
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import time_ns

import numpy as np
import pytest
from tests.interop.ears import keys_of_a_receiver
from tests.interop.stalls import Stalls
from tests.interop.thief import Thief, hand_of, listening
from tests.interop.weakened import without
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

from isocast.ring.receiver import Receiver
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.hosts.receiver import ReceiverHost
from isocast.runtime.hosts.roster_following import RosterFollower
from isocast.runtime.hosts.source import SourceHost
from isocast.runtime.market import core_keys
from isocast.runtime.market.core_keys import CoreKeys
from isocast.runtime.market.file import load_market
from isocast.runtime.market.roster_files import save_revocation
from isocast.runtime.market.roster_making import (
    RosterWish,
    make_request,
    read_request,
    renew_roster,
    revocation_of,
    rotate_identity,
)
from isocast.runtime.market.routes import core_routes
from isocast.runtime.operate.operator_door import ask
from isocast.runtime.operate.roster_change import RosterChange
from isocast.runtime.watch.counters import NodeCounters
from isocast.security.sealing import Opener
from isocast.terms.errors import ForgeryError
from isocast.terms.ids import NO_EPOCH, Epoch, Label
from isocast.wire.codec import encode
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.frame import VERSION, PacketKind, tag_of
from isocast.wire.limits import SIGNATURE_BYTES, TAG_BYTES
from isocast.wire.packets import NO_DIGEST, ControlEntry, ControlKind, Data, Join, Nack, NewRing, Receipt, Token, Vote
from isocast.wire.signing import SignedKind
from isocast.wire.statements import vote_of

NODES = {name: node for name, node in SMALL.items() if name not in ("archive", "bank")}
RECEIVERS = ("a", "b", "c")
CALM = {"timing": {"detect": "60ms", "process": "200ms"}}
"""A ring that re-forms because a busy machine was late says nothing about an attack."""
SETTINGS = {**CALM, "network": {"filter": "off"}}
"""What the kernel would drop is judged by the nodes: the filter is a defence of its own, see
`tests.runtime.net.test_channels`."""
BRISK: dict[str, dict[str, object]] = {"timing": {"detect": "20ms", "process": "50ms"}}
"""A new roster counts some fifteen tokens later."""
_NUMBER_AT = slice(28, 36)
"""Of the message, in a frame of DATA."""
_IDS = count(1)
FALSE = 666_666
"""The id of a trade that nobody made."""


@dataclass
class Scene:
    """A market that runs, and a thief on the machine of b."""

    world: World
    thief: Thief
    published: list[int]

    def receiver(self, name: str) -> Receiver:
        host = self.world.nodes[name].host
        assert isinstance(host, ReceiverHost)
        return host.machine.receiver

    def counters(self, name: str) -> NodeCounters:
        return self.world.nodes[name].counters

    def epochs(self) -> set[Epoch]:
        return {self.receiver(name).accepted for name in RECEIVERS}

    def ring(self, name: str = "a") -> tuple[int, ...]:
        ring = self.receiver(name).ring
        return () if ring is None else ring.ring

    def publish(self) -> int:
        """One event; returns its id, which nobody else has."""
        number = next(_IDS)
        asyncio.run(_published(self.world, number))
        self.published.append(number)
        return number

    def until_everywhere(self) -> None:
        """All that was published is in every journal, in its order and once."""
        wait_until(lambda: all(self.world.ids(name)[-1:] == self.published[-1:] for name in RECEIVERS))
        assert all(self.world.ids(name) == self.published for name in RECEIVERS)

    def token(self, name: str = "", stripe: int = 0) -> Token:
        """The newest token, of anybody or of one owner."""
        sender = self.world.market.node(name).node if name else None
        wait_until(lambda: self.thief.newest_token(sender, stripe) is not None)
        found = self.thief.newest_token(sender, stripe)
        assert found is not None
        return found

    def later(self, tokens: int) -> None:
        """So many tokens were completed meanwhile."""
        until = self.receiver("a").held + tokens
        wait_until(lambda: self.receiver("a").held >= until)


async def _published(world: World, number: int, *symbols: bytes) -> None:
    async with Publisher(world.market, "floor") as floor:
        await floor.publish(trades(max(len(symbols), 1), number, symbols or (b"ISO",)))


@contextmanager
def scene(folder: Path, *defences: str, **settings: dict[str, object]) -> Iterator[Scene]:
    """A market, without some defences if any are named."""
    folder.mkdir(exist_ok=True)
    path = market_file(folder, NODES, settings={**SETTINGS, **settings})
    with without(*defences), listening(load_market(path), "b") as thief, running(path) as world:
        yield Scene(world, thief, [])


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """With every defence; all attacks that must fail are tried on this one."""
    with scene(tmp_path_factory.mktemp("core")) as here:
        yield here


@contextmanager
def unmoved(market: Scene) -> Iterator[None]:
    """Whatever happens here changes neither the ring nor the sequence."""
    before, members, began = market.epochs(), sorted(market.ring()), time_ns()
    with Stalls() as stalls:
        market.publish()
        yield
        market.publish()
        market.until_everywhere()
        stalled = stalls.longest_ns(began, time_ns()) > market.world.market.timing.process_ns // 2
    assert stalled or market.epochs() == before
    wait_until(lambda: sorted(market.ring()) == members)
    assert not any(market.counters(name).convictions for name in RECEIVERS)


def until_counted(market: Scene, counted: Callable[[NodeCounters], int], before: dict[str, int]) -> None:
    """Those who hear the thief have counted what they refused; b does not hear its own machine."""
    wait_until(lambda: all(counted(market.counters(name)) > before[name] for name in before))


def until_after(attack: Callable[[], None], holds: Callable[[], object]) -> None:
    """Attack until it shows."""

    def shows() -> object:
        attack()
        return holds()

    wait_until(shows)


def counts(market: Scene, counted: Callable[[NodeCounters], int], *names: str) -> dict[str, int]:
    return {name: counted(market.counters(name)) for name in names or ("a", "c")}


def refused(kind: SignedKind) -> Callable[[NodeCounters], int]:
    return lambda counters: counters.refused_signatures.get(kind, 0)


# ---- a forged source


def forge_source(here: Scene) -> None:
    """The source's next message, from its address, by somebody without its key."""
    here.publish()
    here.until_everywhere()
    frame = here.thief.frames(Data)[-1]
    number = int.from_bytes(frame[_NUMBER_AT], "little") + 1
    forged = frame[: _NUMBER_AT.start] + number.to_bytes(8, "little") + frame[_NUMBER_AT.stop :]
    here.thief.send_frame(forged, here.world.market.data_group())


def test_without_tags_a_stranger_speaks_as_a_source(tmp_path: Path) -> None:
    with scene(tmp_path, "tags") as here:
        source, failures = here.world.nodes["floor"].host, list[BaseException]()
        assert source is not None
        source.driver.failed = failures.append
        forge_source(here)
        lost = here.publish()
        # The place in the sequence is taken: at those who heard the forgery first, which b did not.
        wait_until(lambda: here.counters("a").unopened_payloads or here.counters("c").unopened_payloads)
        # The source finds out, and ends its incarnation; what it published under that number is in nobody's sequence.
        wait_until(lambda: failures)
        assert "with contents that it never sent" in str(failures[0])
        assert lost not in here.world.ids("a")


def test_a_forged_source_is_refused_and_its_address_named(market: Scene) -> None:
    def failures(counters: NodeCounters) -> int:
        return counters.authentication_failures

    before = counts(market, failures)
    with unmoved(market):
        forge_source(market)
        until_counted(market, failures, before)
    for name in before:
        host = market.world.nodes[name].host
        assert host is not None
        assert market.thief.plan.address in host.driver.channels.noise.loudest()
    assert not market.counters("a").unopened_payloads


# ---- a source that a receiver forges, with the keys that every receiver has


def forge_with_its_keys(here: Scene) -> None:
    """The source's next message, tagged and sealed as its own."""
    here.publish()
    here.until_everywhere()
    wait_until(lambda: here.thief.packets(Data))
    last = here.thief.packets(Data)[-1]
    label = Label(last.sender, last.number + 1)
    sealer = keys_of_a_receiver(here.world.market).sealer(last.sender >> 32)
    payload = sealer.seal(0, label, trades(1, FALSE).tobytes())
    here.thief.send_frame(
        encode(Data(0, last.epoch, *label, last.base, payload), here.thief.keys, here.world.market.id),
        here.world.market.data_group(),
    )
    wait_until(lambda: FALSE in here.world.ids("a"))


def failures_of(here: Scene) -> list[BaseException]:
    source, failures = here.world.nodes["floor"].host, list[BaseException]()
    assert source is not None
    source.driver.failed = failures.append
    return failures


def test_without_doubts_a_receiver_speaks_as_a_source_and_nobody_finds_out(tmp_path: Path) -> None:
    with scene(tmp_path, "doubts", "memory of numbers") as here:
        failures = failures_of(here)
        forge_with_its_keys(here)
        lost = here.publish()
        here.publish()
        wait_until(lambda: here.world.ids("a")[-1:] == here.published[-1:])
        assert lost not in here.world.ids("a"), "its place is taken"
        assert (failures, here.world.alarms("floor")) == ([], [])


def test_a_receiver_that_speaks_as_a_source_is_found_out_and_the_source_says_so(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        failures = failures_of(here)
        forge_with_its_keys(here)
        wait_until(lambda: failures)
        assert "of this source" in str(failures[0])
        assert here.counters("floor").forged_messages == 1
        assert "forged-name" in here.world.alarms("floor")


# ---- a receiver that was removed, and kept the sources' keys


async def _another_core_key(world: World) -> None:
    assert renew_roster(world.market, RosterWish(new_core_key=True)) is not None
    await RosterChange(world.market).apply()


def core_keys_of(here: Scene, name: str) -> CoreKeys:
    host = here.world.nodes[name].host
    assert isinstance(host, ReceiverHost | SourceHost)
    keys = host._context.keys.core_keys  # noqa: SLF001
    assert keys is not None
    return keys


def removed(here: Scene) -> Callable[[], None]:
    """Those who remain have another core key; the source's next message, by all the keys that a receiver had before."""
    kept = here.thief.keys
    cores = [core_keys_of(here, name) for name in (*RECEIVERS, "floor")]
    first = [core.current for core in cores]
    asyncio.run(_another_core_key(here.world))
    wait_until(
        lambda: all(core.other() is None and core.current != was for core, was in zip(cores, first, strict=True))
    )
    here.thief.learn()
    here.publish()
    here.until_everywhere()
    wait_until(lambda: here.thief.packets(Data))
    last = here.thief.packets(Data)[-1]
    forged = Data(last.stripe, last.epoch, last.sender, last.number + 1, last.base, last.payload)
    frame = encode(forged, kept, here.world.market.id)
    return lambda: here.thief.send_frame(frame, here.world.market.data_group())


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core key before is heard for three seconds, not for a minute."""
    monkeypatch.setattr(core_keys, "FORMER_S", 3.0)


@pytest.mark.usefixtures("forgetful")
def test_without_generations_a_receiver_that_was_removed_speaks_as_a_source(tmp_path: Path) -> None:
    with scene(tmp_path, "generations", **BRISK) as here:
        source = here.world.nodes["floor"].host
        assert source is not None
        source.driver.failed = lambda _: None  # It finds out, and ends its incarnation.
        until_after(removed(here), lambda: any(here.counters(name).unopened_payloads for name in ("a", "c")))


@pytest.mark.usefixtures("forgetful")
def test_a_receiver_that_was_removed_speaks_as_no_source_and_is_counted(tmp_path: Path) -> None:
    def failures(counters: NodeCounters) -> int:
        return counters.authentication_failures

    with scene(tmp_path, **BRISK) as here:
        attack = removed(here)
        before = counts(here, failures)
        attack()
        until_counted(here, failures, before)
        here.publish()
        here.until_everywhere()
        assert not any(here.counters(name).unopened_payloads for name in RECEIVERS)


# ---- a receiver that was removed, and listens on


def overheard(here: Scene) -> tuple[Data, Opener]:
    """A message that is sealed after the change, and what opens payloads by all the keys that a receiver had before."""
    kept = keys_of_a_receiver(here.world.market).opener()
    source = core_keys_of(here, "floor")
    first = source.current
    asyncio.run(_another_core_key(here.world))
    wait_until(lambda: source.current != first)
    here.thief.learn()  # Only so that the test reads the frame: a tag hides nothing.
    here.publish()
    wait_until(lambda: here.thief.packets(Data))
    return here.thief.packets(Data)[-1], kept


def test_without_generations_of_seals_a_receiver_that_was_removed_reads_early(tmp_path: Path) -> None:
    with scene(tmp_path, "generations of seals", **BRISK) as here:
        message, kept = overheard(here)
        (event,) = np.frombuffer(kept.open(0, message.label, message.payload).payload, EVENT_DTYPE)
        assert [event["id"]] == here.published
        here.until_everywhere()


def test_a_receiver_that_was_removed_reads_nothing_before_its_release(tmp_path: Path) -> None:
    with scene(tmp_path, **BRISK) as here:
        message, kept = overheard(here)
        with pytest.raises(ForgeryError, match="the seal is broken"):
            kept.open(0, message.label, message.payload)
        here.until_everywhere()
        assert not any(here.counters(name).unopened_payloads for name in RECEIVERS)


# ---- replays: of another market, another stripe, another ballot, another version


@contextmanager
def twin(folder: Path, first: Scene, *defences: str) -> Iterator[tuple[Scene, list[bytes]]]:
    """Another market with the same secrets, as a copied directory of keys makes it; and what the first one said."""
    first.publish()
    first.until_everywhere()
    recorded = [frame for kind in (Data, Token, Join) for frame in first.thief.frames(kind)[:3]]
    assert {frame[3] for frame in recorded} == {1, 2, 12}
    keys = first.world.market.keys_directory
    kept = folder / keys.relative_to(first.world.path.parent)
    kept.mkdir(mode=0o700, exist_ok=True)
    for key in keys.glob("identity-*.key"):  # The root is another one: who it lists is the same.
        shutil.copy(key, kept / key.name)
    path = market_file(folder, NODES, settings=SETTINGS)
    second = load_market(path)
    for name in ("core.key", "source-floor.key"):
        shutil.copy(keys / name, second.keys_directory / name)
    with without(*defences), listening(second, "b") as thief, running(path) as world:
        yield Scene(world, thief, []), recorded


def replay(here: Scene, recorded: list[bytes]) -> None:
    here.publish()
    here.until_everywhere()
    market = here.world.market
    for frame in recorded:
        here.thief.send_frame(frame, market.data_group() if frame[3] == 1 else market.control_group())


def test_without_market_ids_another_markets_messages_are_in_the_sequence(tmp_path: Path, market: Scene) -> None:
    with twin(tmp_path, market, "market ids") as (here, recorded):
        replay(here, recorded)
        wait_until(lambda: len(here.world.ids("a")) > 1)
        assert here.world.ids("a")[1] < here.published[0], "an event of the market before"


@contextmanager
def built_like(folder: Path, market: Scene, *defences: str) -> Iterator[Scene]:
    """A market whose nodes lack the same, or the one that lacks nothing."""
    if any(defences):
        with scene(folder / "first", *filter(None, defences)) as here:
            yield here
    else:
        yield market


@pytest.mark.parametrize("defence", ["markets in signatures", ""])
def test_tokens_of_another_market_contradict_nobody_where_signatures_cover_it(
    tmp_path: Path, market: Scene, defence: str
) -> None:
    """Where nobody looks at the market's id, and the identities are the same."""
    with (
        built_like(tmp_path, market, defence) as first,
        twin(tmp_path, first, "market ids", *filter(None, [defence])) as (here, recorded),
    ):
        kind = refused(SignedKind.TOKEN)
        replay(here, [frame for frame in recorded if frame[3] == 2])
        if defence:
            wait_until(lambda: here.counters("a").convictions or here.counters("c").convictions)
        else:
            wait_until(lambda: kind(here.counters("a")) or kind(here.counters("c")))
            assert not any(here.counters(name).convictions for name in RECEIVERS)


@pytest.mark.parametrize("defence", ["markets in signatures", ""])
def test_votes_of_another_market_form_no_ring_where_signatures_cover_it(
    tmp_path: Path, market: Scene, defence: str
) -> None:
    with (
        built_like(tmp_path, market, "ballots in votes", defence) as first,
        twin(tmp_path, first, "ballots in votes", *filter(None, [defence])) as (here, _),
    ):
        ring_of(here, votes_of(first), succeeds=bool(defence))


@pytest.mark.parametrize("defence", ["stripes in signatures", ""])
def test_votes_of_another_stripe_form_no_ring_where_signatures_cover_it(tmp_path: Path, defence: str) -> None:
    with scene(tmp_path, "ballots in votes", *filter(None, [defence]), **STRIPED) as here:
        ring_of(here, votes_of(here, 1), succeeds=bool(defence))


def votes_of(here: Scene, stripe: int = 0) -> tuple[Vote, ...]:
    """The first ballot's, which say that nobody holds anything."""
    found = {vote.sender: vote_of(vote) for vote in here.thief.packets(Join, stripe) if vote.held == 0}
    assert len(found) >= 2
    return tuple(found.values())


def ring_of(here: Scene, votes: tuple[Vote, ...], *, succeeds: bool) -> None:
    """A server's, by votes that were cast for something else."""
    before, kind = here.epochs(), refused(SignedKind.JOIN)
    counted = counts(here, kind)
    here.thief.send(hand_of(here.world.market, "x").sign(forged_ring(here, votes)))
    if succeeds:
        wait_until(lambda: here.receiver("a").promised not in before and here.receiver("c").promised not in before)
    else:
        until_counted(here, kind, counted)
        here.later(2)
        wait_until(lambda: len(here.ring()) == len(RECEIVERS))


def test_another_markets_packets_are_refused_and_counted(tmp_path: Path, market: Scene) -> None:
    with twin(tmp_path, market) as (here, recorded):
        replay(here, recorded)
        wait_until(lambda: here.counters("a").another_market == len(recorded))
        here.publish()
        here.until_everywhere()


def test_a_frame_of_the_version_before_is_refused_and_counted(market: Scene) -> None:
    def malformed(counters: NodeCounters) -> int:
        return counters.malformed

    before = counts(market, malformed)
    with unmoved(market):
        older(market)
        until_counted(market, malformed, before)


def test_without_versions_a_frame_of_the_version_before_is_read(tmp_path: Path) -> None:
    with scene(tmp_path, "versions", "signatures") as here:
        older(here)
        # The receipt names another log than there is: it is read, and compared.
        wait_until(lambda: here.receiver("a").conflicts > 0)


def older(here: Scene) -> None:
    """A receipt as the version before spelled it, with a tag that is right."""
    market, token = here.world.market, here.token()
    here.later(2)
    node = market.node("b").node
    frame = encode(Receipt(0, token.epoch, node, token.token_number, bytes(32)), here.thief.keys, market.id)
    signed = frame[:2] + bytes((VERSION - 1,)) + frame[3:-TAG_BYTES]
    here.thief.send_frame(signed + tag_of(signed, here.thief.keys[node]), market.control_group())


# ---- a stolen core key


def forged_ring(here: Scene, votes: tuple[Vote, ...] = ()) -> NewRing:
    """Everything from the first token on is to be ordered anew, by one site."""
    market, token = here.world.market, here.token()
    universe = tuple([market.node(name).node for name in RECEIVERS])
    ballot = Epoch(token.epoch.number + 1, market.servers[0])
    return NewRing(
        *(0, ballot, ballot.server, ballot, universe[:1], 1, 1, token.instant, NO_EPOCH, 0, NO_DIGEST, universe),
        *((bytes(16),), universe, ()),
        votes=votes,
    )


def ring_of_a_key_holder(here: Scene) -> None:
    """With votes that nobody cast."""
    signature = bytes(SIGNATURE_BYTES)
    sites = [here.world.market.node(name).node for name in ("a", "b")]
    votes = tuple([Vote(site, NO_EPOCH, 0, NO_DIGEST, bytes(32), signature) for site in sites])
    here.thief.send(forged_ring(here, votes)._replace(signature=signature))


def token_of_a_key_holder(here: Scene) -> None:
    """The next token, in its owner's name."""
    known = here.receiver("b")
    assert known.schedule is not None
    number = known.held + 1
    owner, instant = known.schedule.owner(number), known.schedule.instant(number)
    forged = replace(here.token(), sender=owner, token_number=number, instant=instant)
    forged.signature = bytes(SIGNATURE_BYTES)
    here.thief.send(forged)


def test_without_signatures_a_stolen_core_key_forms_rings(tmp_path: Path) -> None:
    with scene(tmp_path, "signatures") as here:
        before = here.epochs()
        ring_of_a_key_holder(here)
        wait_until(lambda: here.receiver("a").promised not in before and here.receiver("c").promised not in before)


def test_without_signatures_a_stolen_core_key_sends_tokens(tmp_path: Path) -> None:
    with scene(tmp_path, "signatures") as here:
        until_after(
            lambda: token_of_a_key_holder(here), lambda: here.receiver("a").conflicts or here.receiver("c").conflicts
        )


@pytest.mark.parametrize("attack", [ring_of_a_key_holder, token_of_a_key_holder])
def test_a_stolen_core_key_neither_forms_a_ring_nor_sends_a_token(
    market: Scene, attack: Callable[[Scene], None]
) -> None:
    kind = SignedKind.NEWRING if attack is ring_of_a_key_holder else SignedKind.TOKEN
    before = counts(market, refused(kind))
    with unmoved(market):
        until_after(
            lambda: attack(market),
            lambda: all(refused(kind)(market.counters(name)) > before[name] for name in before),
        )


# ---- a server that lies


def ring_without_votes(here: Scene) -> None:
    here.thief.send(hand_of(here.world.market, "x").sign(forged_ring(here)))


def ring_of_old_votes(here: Scene) -> None:
    """The first ballot's votes for the next one."""
    here.thief.send(hand_of(here.world.market, "x").sign(forged_ring(here, votes_of(here))))


@pytest.mark.parametrize("attack, defence", [(ring_without_votes, "votes"), (ring_of_old_votes, "ballots in votes")])
def test_without_its_defence_a_server_ends_the_ring(
    tmp_path: Path, attack: Callable[[Scene], None], defence: str
) -> None:
    with scene(tmp_path, defence) as here:
        before = here.epochs()
        attack(here)
        wait_until(lambda: here.receiver("a").promised not in before and here.receiver("c").promised not in before)


@pytest.mark.parametrize(
    "attack, kind", [(ring_without_votes, SignedKind.NEWRING), (ring_of_old_votes, SignedKind.JOIN)]
)
def test_a_server_that_forges_a_ring_is_refused_and_counted(
    market: Scene, attack: Callable[[Scene], None], kind: SignedKind
) -> None:
    before = counts(market, refused(kind))
    with unmoved(market):
        attack(market)
        until_counted(market, refused(kind), before)


# ---- whoever signs two things, and whoever does not


def second_token(here: Scene, epoch: Epoch | None = None) -> Token:
    """Another content of a token of b, as b itself would sign it: of its own epoch, or of one that is over."""
    token = here.token("b")
    wait_until(lambda: here.receiver("a").held >= token.token_number)
    said = (ControlEntry(ControlKind.MARK, 1, b"something else"),)
    twin = replace(token, control=said, epoch=epoch or token.epoch, signature=b"")
    return hand_of(here.world.market, "b").sign(twin)


def test_without_a_court_an_owner_that_signs_two_tokens_stays(tmp_path: Path) -> None:
    with scene(tmp_path, "court") as here:
        twin, liar = second_token(here), here.world.market.node("b").node
        here.thief.send(twin)
        wait_until(lambda: here.receiver("a").conflicts and here.receiver("c").conflicts)
        here.later(4)
        wait_until(lambda: liar in here.ring())
        assert not any(here.counters(name).convictions for name in RECEIVERS)


def test_without_epochs_an_innocent_owner_is_convicted_of_a_token_that_was_cut_off(tmp_path: Path) -> None:
    with scene(tmp_path, "epochs of evidence") as here:
        here.thief.send(second_token(here, NO_EPOCH._replace(server=here.token().epoch.server)))
        wait_until(lambda: here.counters("a").convictions)
        assert here.world.market.node("b").node in here.receiver("a").court.convicted


def test_nobody_is_convicted_of_a_token_of_another_epoch(market: Scene) -> None:
    with unmoved(market):
        for _ in range(3):
            market.thief.send(second_token(market, NO_EPOCH._replace(server=market.token().epoch.server)))
            market.later(1)
    assert not any(market.receiver(name).court.convicted for name in RECEIVERS)


# ---- two stripes

STRIPED: dict[str, dict[str, object]] = {
    "ring": {"stripes": [0, 1]},
    "timing": {"detect": "150ms", "process": "400ms"},
}
"""Where neither ring re-forms, both number their tokens alike."""


def token_of_the_other_stripe(here: Scene) -> None:
    """What b signed in stripe 1, against what it signed in stripe 0 under the same number."""
    theirs = here.token("b", stripe=1)
    wait_until(lambda: here.receiver("a").held >= theirs.token_number)
    known = here.receiver("a").ledger.entries[theirs.token_number].token
    assert (known.sender, known.epoch) == (theirs.sender, theirs.epoch), "rings number their tokens alike"
    here.thief.send(replace(theirs, stripe=0))


def data_of_the_other_stripe(here: Scene) -> None:
    symbols = np.array([f"SYM{number}" for number in range(32)], "S8")
    there = symbols[core_routes(here.world.market).stripes_of(symbols) == 1]
    asyncio.run(_published(here.world, 1, there[0]))
    wait_until(lambda: here.thief.frames(Data, 1))
    here.thief.send_frame(here.thief.frames(Data, 1)[0], here.world.market.data_group(0))


def test_without_stripes_in_signatures_an_innocent_owner_is_convicted(tmp_path: Path) -> None:
    with scene(tmp_path, "stripes in signatures", **STRIPED) as here:
        token_of_the_other_stripe(here)
        wait_until(lambda: here.counters("a").convictions)
        assert here.world.market.node("b").node in here.receiver("a").court.convicted


def test_without_stripe_ids_a_message_of_another_stripe_takes_a_place(tmp_path: Path) -> None:
    with scene(tmp_path, "stripe ids", **STRIPED) as here:
        source = here.world.nodes["floor"].host
        assert source is not None
        source.driver.failed = lambda _: None  # It may hear of a message that it never sent, and stop.
        data_of_the_other_stripe(here)
        wait_until(lambda: here.counters("a").unopened_payloads)


def test_what_another_stripe_said_convicts_nobody_and_is_counted(tmp_path: Path) -> None:
    with scene(tmp_path, **STRIPED) as here:
        unaddressed = counts(here, lambda counters: counters.unaddressed)
        data_of_the_other_stripe(here)
        until_counted(here, lambda counters: counters.unaddressed, unaddressed)
        kind = refused(SignedKind.TOKEN)
        before = counts(here, kind)
        token_of_the_other_stripe(here)
        until_counted(here, kind, before)
        here.later(3)
        wait_until(lambda: len(here.ring()) == 3)
        assert not any(here.counters(name).convictions or here.counters(name).unopened_payloads for name in RECEIVERS)


# ---- a stolen key that was revoked, and one that was rotated away


def revoke(here: Scene, name: str) -> None:
    """Everybody reads it but the thief, who runs on with the key."""
    market = here.world.market
    save_revocation(market, revocation_of(market, name))
    for other in ("a", "c", "x"):
        asyncio.run(_told(here.world, other))


async def _told(world: World, name: str) -> None:
    await ask(world.market.directory_of(name), "roster")


def test_without_revocations_a_thief_stays_on_the_ring(tmp_path: Path) -> None:
    with scene(tmp_path, "revocations") as here:
        revoke(here, "b")
        here.later(4)
        thief = here.world.market.node("b").node
        wait_until(lambda: thief in here.ring())
        assert not here.counters("a").refused_signatures


def test_a_thief_that_runs_on_with_a_revoked_key_is_refused_counted_and_left_out(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        revoke(here, "b")
        thief = here.world.market.node("b").node
        wait_until(lambda: here.ring() and thief not in here.ring())
        assert here.counters("a").refused_signatures or here.counters("c").refused_signatures
        number = here.publish()
        wait_until(lambda: all(here.world.ids(name)[-1:] == [number] for name in ("a", "c")))
        # Its votes count for nothing: no server lets it in again.
        wait_until(lambda: refused(SignedKind.JOIN)(here.counters("x")))
        assert thief not in here.ring()


async def _rotate(world: World) -> None:
    request = read_request(make_request("b", rotate_identity(world.market, "b")))
    assert renew_roster(world.market, RosterWish((request,))) is not None
    await RosterChange(world.market).apply()


def rotated(here: Scene) -> Callable[[], None]:
    """A second content of b's newest token, with the key and under the roster that b had before."""
    old = hand_of(here.world.market, "b")
    asyncio.run(_rotate(here.world))
    here.thief.learn()
    host = here.world.nodes["a"].host
    assert isinstance(host, ReceiverHost)
    assert isinstance(host.rosters, RosterFollower)
    effective = host.rosters.book.entries[-1][0]
    wait_until(lambda: here.token("b").token_number > effective)

    def attack() -> None:
        token = here.token("b")
        said = (ControlEntry(ControlKind.MARK, 1, b"else"),)
        here.thief.send(old.sign(replace(token, control=said, signature=b"")))

    return attack


def test_without_serials_a_key_that_was_rotated_away_convicts_its_owner(tmp_path: Path) -> None:
    with scene(tmp_path, "serials", **BRISK) as here:
        attack = rotated(here)
        until_after(attack, lambda: here.counters("a").convictions)


def test_a_key_that_was_rotated_away_convicts_nobody_and_is_counted(tmp_path: Path) -> None:
    """Not at a server either, which does not follow the sequence, and cannot tell at which token the key ended."""
    with scene(tmp_path, **BRISK) as here:
        attack, kind = rotated(here), refused(SignedKind.TOKEN)
        until_after(attack, lambda: all(kind(here.counters(name)) for name in ("a", "c", "x")))
        here.later(3)
        assert not any(here.counters(name).convictions for name in (*RECEIVERS, "x"))


# ---- copies of a request


BEGS = 400


def beg(here: Scene) -> int:
    """One request in c's name, again and again; how many answers a sent meanwhile."""
    counters, market, token = here.counters("a"), here.world.market, here.token()
    here.later(2)
    number = here.receiver("a").held + 1_000  # Nobody has it, so whoever is asked says that it is pending.
    nack = Nack(0, token.epoch, market.node("c").node, number, False, 0, ())  # noqa: FBT003 - it has no token
    frame = encode(nack, here.thief.keys, market.id)
    heard, said = counters.received_of(PacketKind.NACK), counters.sent_of(PacketKind.PENDING)
    for _ in range(BEGS):
        here.thief.send_to(frame, "a")
    wait_until(lambda: counters.received_of(PacketKind.NACK) >= heard + BEGS)
    return counters.sent_of(PacketKind.PENDING) - said


def test_without_its_defence_copies_of_a_request_are_all_answered(tmp_path: Path) -> None:
    with scene(tmp_path, "answered once") as here:
        assert beg(here) >= BEGS


def test_copies_of_a_request_cost_few_answers(market: Scene) -> None:
    with unmoved(market):
        assert beg(market) < BEGS // 10
