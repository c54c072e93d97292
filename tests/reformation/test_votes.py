"""A member installs nothing that it cannot verify: whose NEWRING it is, and whose votes made it (§6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reformation.ballots import cast, invite, join
from tests.ring.makers import EPOCH, NEXT_EPOCH, SERVER, SETTINGS, START, Chain, T, blank, following, founding, secret
from tests.ring.test_notary import WORLD, notary

from isocast.reformation.forming import Stage
from isocast.reformation.member import Member
from isocast.reformation.server import ReformationServer, ServerState
from isocast.reformation.votes import is_voted, shown_votes
from isocast.ring.effects import Multicast, OrderMissed, Unicast
from isocast.ring.inputs import ForceRequested, PacketsArrived, TimerFired
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.ring.settings import StartPolicy
from isocast.simulation.signatures import KeyedSigner
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import OPERATOR, Epoch, NodeId, server_id
from isocast.terms.instants import SECOND
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.orders import force_entry, with_order
from isocast.wire.packets import ControlEntry, ControlKind, Invite, Join, NewRing, Packet, Repair, Suspect, Suspicion
from isocast.wire.signing import SERIAL_BYTES, SignedKind

MAJORITY = StartPolicy.MAJORITY
CHAIN = Chain().grow(3)


def member(site: NodeId) -> tuple[Receiver, Member]:
    """Holds the chain, on the first ring."""
    receiver = Receiver(site, SETTINGS, secret(site), blank(), notary(site))
    receiver.install(founding(), 0, tuple(CHAIN.entries), T(3))
    receiver.take(T(3))
    return receiver, Member(receiver)


def vote(site: NodeId, held: int = 3, *, by: NodeId | None = None, ballot: Epoch = NEXT_EPOCH) -> Join:
    head = CHAIN.head
    said = join(site, held, EPOCH, ballot=ballot)._replace(digest=head.digest)
    return notary(site if by is None else by).sign(said)


def ring(*votes: Join, by: NodeId = SERVER, **changes: Any) -> NewRing:  # noqa: ANN401
    """The ring after the chain, with these votes, signed by its server or by somebody else."""
    best = max(votes, key=lambda cast: (cast.epoch, cast.held))
    made = following(CHAIN)._replace(votes=shown_votes(best, list(votes), (1, 2, 3), 2))._replace(**changes)
    return notary(by).sign(made)


def test_a_ring_of_a_majoritys_votes_is_installed() -> None:
    receiver, machine = member(2)
    made = ring(vote(1), vote(2))
    machine.on_new_ring(made, T(3))
    assert receiver.accepted == NEXT_EPOCH
    assert receiver.notary.refused == {}


FORGED: dict[str, tuple[NewRing, SignedKind | None]] = {
    "unsigned": (ring(vote(1), vote(2))._replace(signature=b""), SignedKind.NEWRING),
    "signed by a site": (ring(vote(1), vote(2), by=1), SignedKind.NEWRING),
    "by a server of another ballot": (ring(vote(1), vote(2), sender=server_id(2), by=server_id(2)), SignedKind.NEWRING),
    "changed after it was signed": (ring(vote(1), vote(2))._replace(start=SECOND), SignedKind.NEWRING),
    "without votes": (ring(vote(1), vote(2), votes=()), SignedKind.NEWRING),
    "with one vote": (ring(vote(1)), SignedKind.NEWRING),
    "with a vote that another site signed": (ring(vote(1), vote(2, by=3)), SignedKind.JOIN),
    "with a vote for another ballot": (ring(vote(1), vote(2, ballot=Epoch(9, SERVER))), SignedKind.JOIN),
    "with a vote from outside of U": (ring(vote(1), vote(4)), SignedKind.NEWRING),
    "with a cut below the greatest vote": (ring(vote(1, 2), vote(2, 5)), SignedKind.NEWRING),
    "with a cut of another digest": (ring(vote(1), vote(2), cut_digest=bytes(32)), SignedKind.NEWRING),
    "that skips a token": (ring(vote(1), vote(2), first_token=5), SignedKind.NEWRING),
    "without a majority": (ring(vote(1), uncertified=True), SignedKind.NEWRING),
    "with a smaller U": (ring(vote(1), universe=(1,)), None),
    "with another sequence": (ring(vote(1), vote(2), first_sequence=9), None),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_ring_is_not_installed(name: str) -> None:
    """A server that lies, or somebody with its key or the core's, cannot make a ring that nobody voted for."""
    receiver, machine = member(2)
    forged, counted = FORGED[name]
    machine.on_new_ring(forged, T(3))
    assert receiver.accepted == EPOCH
    assert receiver.notary.refused == ({} if counted is None else {counted: 1})
    machine.on_new_ring(ring(vote(1), vote(2)), T(3))
    assert receiver.accepted == NEXT_EPOCH


def test_a_ring_without_a_majority_needs_the_policy_that_allows_it() -> None:
    alone = ring(vote(1), uncertified=True)
    assert not is_voted(alone, notary(2), MAJORITY)
    assert is_voted(alone, notary(2), StartPolicy.AVAILABILITY)


def test_where_nothing_is_signed_the_tags_are_believed() -> None:
    receiver = Receiver(2, SETTINGS, secret(2), blank())
    receiver.install(founding(), 0, tuple(CHAIN.entries), T(3))
    Member(receiver).on_new_ring(following(CHAIN), T(3))
    assert receiver.accepted == NEXT_EPOCH


# ---- rings that force U


def forced(order: bytes, *, universe: tuple[NodeId, ...] = (1, 2), **changes: Any) -> NewRing:  # noqa: ANN401
    return ring(vote(1), vote(2), forced=True, universe=universe, order=order, **changes)


def force_order(number: int = 1, until: int = T(99), *, stripe: int = 0, by: NodeId = OPERATOR) -> bytes:
    return with_order(force_entry(0, (1, 2)), KeyedSigner(WORLD, by), stripe, number, until).order


REMOVE3 = ControlEntry(ControlKind.REMOVE_SITE, 3, b"")


def ordered_removal(by: NodeId) -> bytes:
    return with_order(REMOVE3, KeyedSigner(WORLD, by), 0, 1, T(99)).order


def test_a_ring_that_forces_u_shows_the_operators_order() -> None:
    receiver, machine = member(2)
    machine.on_new_ring(forced(force_order()), T(3))
    assert receiver.accepted == NEXT_EPOCH


UNORDERED: dict[str, NewRing] = {
    "no order": forced(b""),
    "of the server itself": forced(force_order(by=SERVER)),
    "for another stripe": forced(force_order(stripe=1)),
    "for another U": forced(force_order(), universe=(1, 2, 3)),
    "that is too old": forced(force_order(until=T(2))),
    "of an entry that adds a site": forced(
        with_order(ControlEntry(ControlKind.ADD_SITE, 4, b""), KeyedSigner(WORLD, OPERATOR), 0, 1, T(99)).order
    ),
}


@pytest.mark.parametrize("name", UNORDERED)
def test_a_server_that_forces_u_by_itself_is_not_followed(name: str) -> None:
    receiver, machine = member(2)
    effects = machine.on_new_ring(UNORDERED[name], T(3))
    assert receiver.accepted == EPOCH
    assert receiver.notary.refused == {SignedKind.CONTROL: 1}
    assert effects == [OrderMissed(SERVER, 4)]


def test_an_order_to_force_u_counts_once() -> None:
    """The log of the ring that it made has its number, and so has every later one."""
    chain = Chain().grow(3)
    number = 5
    chain.add(control=(force_entry(SERVER, (1, 2), force_order(number)),))
    receiver = Receiver(2, SETTINGS, secret(2), blank(), notary(2))
    receiver.install(founding(), 0, tuple(chain.entries), T(4))
    receiver.take(T(4))
    for old in (number, number - 1):
        made = forced_after(chain, force_order(old))
        Member(receiver).on_new_ring(made, T(4))
        assert receiver.accepted == EPOCH
    assert receiver.notary.refused == {SignedKind.CONTROL: 2}
    Member(receiver).on_new_ring(forced_after(chain, force_order(number + 1)), T(4))
    assert receiver.accepted == NEXT_EPOCH


def forced_after(chain: Chain, order: bytes) -> NewRing:
    votes = [notary(site).sign(join(site, 4, EPOCH, ballot=NEXT_EPOCH)._replace(digest=chain.head.digest))
             for site in (1, 2)]  # fmt: skip
    made = following(chain)._replace(votes=shown_votes(votes[0], votes, (1, 2), 2), forced=True, order=order)
    return notary(SERVER).sign(made._replace(universe=(1, 2)))


@pytest.mark.parametrize("order", [b"", force_order(), ordered_removal(1), ordered_removal(OPERATOR)])
def test_what_a_liar_put_into_its_log_without_an_order_is_not_taken_over(order: bytes) -> None:
    """Not even where several hold it."""
    chain = Chain().grow(3)
    told = chain.add(control=(REMOVE3._replace(order=order),)).token
    receiver, machine = member(2)
    liar = notary(1).sign(join(1, 4, EPOCH, ballot=NEXT_EPOCH)._replace(digest=chain.head.digest))
    made = following(chain, 1, 2, holders=(1, 3))._replace(votes=shown_votes(liar, [liar, vote(2)], (1, 2), 2))
    machine.on_new_ring(notary(SERVER).sign(made), T(4))
    machine.on_repair(Repair(0, NEXT_EPOCH, 1, told), T(4))
    if order == ordered_removal(OPERATOR):
        assert receiver.accepted == NEXT_EPOCH
        assert receiver.ledger.universe == (1, 2)
    else:
        assert receiver.accepted == EPOCH
        assert receiver.notary.refused == {SignedKind.CONTROL: 1}


def test_a_server_forces_nothing_without_an_order() -> None:
    server = ReformationServer(SERVER, SETTINGS, 0, {}, notary=notary(SERVER))
    with pytest.raises(LocalProtocolError, match="no order of the market's operator"):
        server.step(ForceRequested((1, 2)), START)
    with pytest.raises(LocalProtocolError, match="no order"):
        server.step(ForceRequested((1, 3), force_order()), START)
    server.step(ForceRequested((1, 2), force_order()), START)
    assert server.snapshot().forcing


# ---- invitations and votes


def test_only_the_ballots_own_server_invites() -> None:
    receiver, machine = member(2)
    said: Invite = invite()
    for forged in (said, notary(1).sign(said), notary(server_id(2)).sign(said._replace(sender=server_id(2)))):
        assert machine.on_invite(forged, T(3)) == []
    assert receiver.promised == EPOCH
    [told] = [effect.packet for effect in machine.on_invite(notary(SERVER).sign(said), T(3))
              if isinstance(effect, Multicast)]  # fmt: skip
    assert receiver.promised == NEXT_EPOCH
    assert isinstance(told, Join)
    assert notary(SERVER).is_genuine(told)


def test_a_server_counts_genuine_votes_alone_and_shows_a_bare_majority() -> None:
    server = ReformationServer(SERVER, SETTINGS, 0, {}, notary=notary(SERVER))
    said: Packet | None = None
    while said is None:
        effects = server.step(TimerFired(), max(server.next_deadline(), START))
        said = next((effect.packet for effect in effects if isinstance(effect, Multicast)), None)
    assert isinstance(said, Invite)
    assert notary(1).is_genuine(said)
    ballot, now = said.ballot, START
    bare = [join(site, 0, ballot=ballot, now=now) for site in (1, 2, 3)]
    server.step(PacketsArrived(tuple(cast([*bare, notary(1).sign(bare[1])], now))), now)
    assert server.snapshot().votes == 0
    assert server.notary.refused == {SignedKind.JOIN: 4}
    effects = server.step(PacketsArrived(tuple([notary(vote.sender).sign(vote) for vote in bare])), now)
    [made] = [effect.packet for effect in effects if isinstance(effect, Multicast)]
    assert isinstance(made, NewRing)
    assert len(made.votes) == 2
    assert is_voted(made, notary(1), MAJORITY)


class Believing:
    """Believes everybody."""

    def is_from(self, *_: object) -> bool:
        return True

    def is_order(self, *_: object, settled: bool) -> bool:  # noqa: ARG002
        return True


class NextSerial:
    """Signs as `notary` does, under the next roster."""

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:  # noqa: ARG002
        return (2**40).to_bytes(SERIAL_BYTES, "little") + bytes(SIGNATURE_BYTES - SERIAL_BYTES)


@pytest.mark.parametrize("changed", [False, True])
def test_a_ring_of_an_older_roster_is_formed_anew_when_somebody_needs_it(changed: bool) -> None:  # noqa: FBT001
    old = ring(vote(1), vote(2))
    signing = Notary(NextSerial(), Believing()) if changed else notary(SERVER)
    state = ServerState(ballot=old.ballot, ring=old)
    server = ReformationServer(SERVER, SETTINGS, 0, {}, state, notary=signing)
    server.step(TimerFired(), T(4))
    lost = Suspect(SETTINGS.stripe, EPOCH, 3, 0, 3, Suspicion.LOST, EPOCH)
    told = server.step(PacketsArrived((lost,)), T(5))
    assert [effect.packet for effect in told if isinstance(effect, Unicast)] == [old]
    assert server.snapshot().stage is (Stage.WAITING if changed else Stage.IDLE)
