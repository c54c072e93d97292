"""Members that lie (§6): what they send instead of, or besides, what their machines say.

A liar runs the product's machine, and its network card betrays it: it signs with its own key whatever it likes, and
has no other key.

    equivocate   an owner sends one content of its token to some and another to the rest, and receipts to match
    forge        a site sends tokens, repairs and receipts in the names of others; a server sends rings that nobody
                 voted for: with the votes of the ring before, or with votes that it made up
    usurp        a site takes another one out of U by its tokens, a server forces U to be two sites: both without an
                 operator's order

Others attack from outside, and have what they overheard or stole:

    replay       somebody sends again what members signed in this and in earlier epochs
    slander      somebody with the group's key alone sends receipts for other tokens in the name of a site
    steal        a thief signs with the first key of a site, which a newer roster or a revocation has made worthless
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.ring.answers import as_packets
from isocast.ring.inputs import ControlRequested, ForceRequested
from isocast.ring.ledger import UNIVERSE_MIN
from isocast.ring.notary import Notary
from isocast.simulation.network import stream
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, is_server, is_site
from isocast.wire.codec import decode, encode
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.packets import (
    NO_DIGEST,
    NO_LIMIT,
    NO_NONCE,
    ControlEntry,
    ControlKind,
    Invite,
    Join,
    NewRing,
    Packet,
    Receipt,
    Repair,
    Token,
    Vote,
)
from isocast.wire.token_body import token_digest

if TYPE_CHECKING:
    from isocast.ring.ledger import Checkpoint
    from isocast.simulation.host import SimulatedHost
    from isocast.simulation.world import World

__all__ = ["Byzantine"]

SIGNED = (Token, Receipt, Invite, Join, NewRing)
_OVERHEARD_MAX = 400
_REPLAYED = 3
"""For each packet that somebody sends where the recorder sits."""


class _Credulous(Notary):
    """Takes any entry for ordered."""

    def is_ordered(self, entry: ControlEntry, stripe: int, token_number: int, *, settled: bool = False) -> bool:  # noqa: ARG002
        return True


class Byzantine:
    """Makes the site lie that a fault names, while the fault lasts."""

    def __init__(self, world: World) -> None:
        """Everybody is honest."""
        self._world = world
        self._random = stream(world.seed, "byzantine")
        self._overhears = any(fault.kind == "replay" for fault in world.scenario.faults)
        self._kinds: dict[NodeId, str] = {}
        self._twins: dict[tuple[Epoch, int], tuple[bytes, tuple[NodeId, ...]]] = {}
        """By token: the digest of its other content, and who got that one."""
        self.lies = 0
        """Tokens that were sent with two contents."""
        self._overheard: list[Packet] = []
        self.replayed = self.thefts = 0
        """Packets that were sent again, or signed with a stolen key."""

    def turn(self, nodes: tuple[NodeId, ...], kind: str, *, lying: bool) -> None:
        """Make nodes lie, or be honest again."""
        for node in nodes:
            if lying:
                self._kinds[node] = kind
                if kind == "usurp":
                    self._usurp(self._world.hosts[node])
            else:
                self._kinds.pop(node, None)

    def sends(self, host: SimulatedHost, packet: Packet, audience: tuple[NodeId, ...]) -> bool:
        """Whether a liar has sent something in the place of a multicast of its machine's."""
        kind = self._kinds.get(host.node)
        if self._overhears and isinstance(packet, SIGNED):
            self._overhear(packet)
        if isinstance(packet, Token | Invite | NewRing):
            self._strike(host, packet)
        if kind == "replay":
            self._replay(host)
        if kind is None or packet.sender != host.node:
            return False
        match packet:
            case Token() if kind == "equivocate":
                self._equivocate(host, packet, audience)
                return True
            case Receipt() if kind == "equivocate" and (packet.epoch, packet.held) in self._twins:
                self._vouch_for_both(host, packet, audience)
                return True
            case Receipt() if kind == "forge":
                self._forge_site(host, packet, audience)
            case _:
                pass
        return False

    def _strike(self, host: SimulatedHost, packet: Token | Invite | NewRing) -> None:
        """What others do as soon as they hear of a token, or of a ballot."""
        for node, kind in self._kinds.items():
            match packet:
                case Token() if kind == "steal":
                    self._steal(host, packet, node)
                case Token() if kind == "slander" and node != host.node:
                    self._slander(host, packet, node)
                case Invite() | NewRing() if kind == "forge" and is_server(node):
                    self._forge_ring(self._world.hosts[node])
                case _:
                    pass

    def _send(self, host: SimulatedHost, packet: Packet, audience: tuple[NodeId, ...]) -> None:
        for part in as_packets(packet) if isinstance(packet, Token) else (packet,):
            frame = encode(part)
            self._world.network.multicast(host.node, audience, (decode(frame),), len(frame))

    def _tell(self, host: SimulatedHost, to: NodeId, packet: Packet) -> None:
        frame = encode(packet)
        self._world.network.unicast(host.node, to, (decode(frame),), len(frame))

    # Equivocation -------------------------------------------------------------------------------

    def _equivocate(self, host: SimulatedHost, token: Token, audience: tuple[NodeId, ...]) -> None:
        """Half of the other sites get a token that says something more."""
        others = [node for node in audience if is_site(node) and node != host.node]
        fooled = tuple(sorted(self._random.sample(others, (len(others) + 1) // 2)))
        said = (*token.control, ControlEntry(ControlKind.MARK, token.token_number, b"only you know this"))
        twin = self._notary(host).sign(replace(token, control=said, signature=b""))
        self._twins[token.epoch, token.token_number] = token_digest(twin), fooled
        self.lies += 1
        self._send(host, token, tuple([node for node in audience if node not in fooled]))
        self._send(host, twin, fooled)

    def _vouch_for_both(self, host: SimulatedHost, receipt: Receipt, audience: tuple[NodeId, ...]) -> None:
        """Each gets a receipt for what it holds."""
        digest, fooled = self._twins[receipt.epoch, receipt.held]
        other = receipt._replace(digest=digest, signature=b"")
        if receipt.signature:
            other = self._notary(host).sign(other)
        self._send(host, receipt, tuple([node for node in audience if node not in fooled]))
        self._send(host, other, fooled)

    # Forgery ------------------------------------------------------------------------------------

    def _forge_site(self, host: SimulatedHost, receipt: Receipt, audience: tuple[NodeId, ...]) -> None:
        """The next owner's token, which calls everything stable, and everybody's receipt for it."""
        machine = host.machine
        if not isinstance(machine, PrimaryReceiver) or machine.receiver.schedule is None:
            return
        receiver, schedule = machine.receiver, machine.receiver.schedule
        number, head, notary = receipt.held + 1, receiver.ledger.head, receiver.notary
        owner, instant, agenda = schedule.owner(number), schedule.instant(number), self._world.agenda
        # It overtakes the genuine one, and is not so early that it puts a clock in doubt.
        at = instant - self._world.scenario.one_way_delay_ns // 2
        if owner == host.node or head.token_number != receipt.held or at <= agenda.now:
            return
        token = Token(
            receipt.stripe, receipt.epoch, owner, number, instant, head.next_sequence, (), (), (),
            NO_NONCE, NO_NONCE, number, NO_LIMIT, (), head.digest,
        )  # fmt: skip
        forged = [Receipt(receipt.stripe, receipt.epoch, site, number, token_digest(token)) for site in schedule.ring]

        def strike(_: object) -> None:
            self._send(host, notary.sign(token), tuple(self._world.hosts))
            for one in forged:
                self._send(host, notary.sign(one) if notary.receipts else one, audience)
            for site in others:
                # As if it had asked for it.
                self._tell(host, site, Repair(token.stripe, token.epoch, host.node, notary.sign(token)))

        others = [site for site in schedule.ring if site != host.node]
        agenda.put(at, strike, None)
        if notary.receipts:
            # Everybody is said to hold what perhaps nobody holds.
            for site in others:
                self._send(host, notary.sign(receipt._replace(sender=site, signature=b"")), audience)
        self._accuse(host, head, notary)

    def _accuse(self, host: SimulatedHost, head: Checkpoint, notary: Notary) -> None:
        """Another content of the newest token, in its owner's name."""
        entry = host.machine.receiver.ledger.entries.get(head.token_number)  # type: ignore[union-attr]
        if entry is not None and entry.token.sender != host.node:
            said = (*entry.token.control, ControlEntry(ControlKind.MARK, head.token_number, b"he said so"))
            false = replace(entry.token, control=said, signature=b"")
            self._send(host, notary.sign(false), tuple(self._world.hosts))

    def _forge_ring(self, host: SimulatedHost) -> None:
        """A ring of one site from the first token on, with old votes and made-up ones; and the ring before, again."""
        if not self._world.rings or not host.running:
            return
        last = self._world.rings[-1]
        ballot = Epoch(last.ballot.number + 1, host.node)
        up = [site for site in last.universe if site in self._world.hosts and self._world.hosts[site].running]
        favourite = self._random.choice(up or last.universe)
        start = self._world.agenda.now + self._world.settings.timing.reformation_ns
        again = last._replace(sender=host.node, epoch=ballot, ballot=ballot, start=start, signature=b"")
        ring = again._replace(
            ring=(favourite,), first_token=1, first_sequence=1, cut_epoch=NO_EPOCH, cut_token=0, cut_digest=NO_DIGEST,
            holders=last.universe, commits=(NO_NONCE,),
        )  # fmt: skip
        notary, rings = self._notary(host), [ring]
        if notary.verifies:
            made = [Vote(site, NO_EPOCH, 0, NO_DIGEST, NO_DIGEST, last.signature) for site in last.universe]
            # The votes of the first ring were cast when nobody held anything.
            rings += [again, *[ring._replace(votes=votes) for votes in (tuple(made), self._world.rings[0].votes)]]
            self._random.shuffle(rings)
        for one in rings:
            self._send(host, notary.sign(one), tuple(self._world.hosts))

    # From outside -------------------------------------------------------------------------------

    def _overhear(self, packet: Packet) -> None:
        if len(self._overheard) < _OVERHEARD_MAX:
            self._overheard.append(packet)
        else:
            self._overheard[self._random.randrange(_OVERHEARD_MAX)] = packet

    def _replay(self, host: SimulatedHost) -> None:
        """Something of the past, to everybody."""
        for packet in self._random.sample(self._overheard, min(_REPLAYED, len(self._overheard))):
            self.replayed += 1
            self._send(host, packet, tuple(self._world.hosts))

    def _slander(self, host: SimulatedHost, token: Token, victim: NodeId) -> None:
        """As if the victim held another token than everybody got."""
        signature = bytes(SIGNATURE_BYTES) if self._notary(host).receipts else b""
        said = Receipt(token.stripe, token.epoch, victim, token.token_number, NO_DIGEST, signature)
        at = token.instant + self._world.settings.timing.release_delay_ns // 2
        everybody = tuple(self._world.hosts)
        self._world.agenda.put(max(at, self._world.agenda.now), lambda _: self._send(host, said, everybody), None)

    def _steal(self, host: SimulatedHost, token: Token, victim: NodeId) -> None:
        """A token was sent: another content of it if the victim is its owner, or else the victim's own next token."""
        world, machine = self._world, self._world.hosts[victim].machine
        if world.rosters is None or not isinstance(machine, PrimaryReceiver):
            return
        receiver, schedule = machine.receiver, machine.receiver.schedule
        if schedule is None or token.epoch != receiver.accepted:
            return
        notary = Notary(world.rosters.stolen(victim), None)
        number = token.token_number
        everybody = world.rosters.unmoved(victim, number)
        if not everybody:
            return
        self.thefts += 1
        if token.sender == victim:
            said = (*token.control, ControlEntry(ControlKind.MARK, number, b"a thief's"))
            self._send(host, notary.sign(replace(token, control=said, signature=b"")), everybody)
        elif schedule.owner(number + 1) == victim:
            false = Token(
                token.stripe, token.epoch, victim, number + 1, schedule.instant(number + 1),
                token.first_sequence + token.count, (), (), (), NO_NONCE, NO_NONCE, number, NO_LIMIT, (),
                token_digest(token),
            )  # fmt: skip
            self._send(host, notary.sign(false), everybody)
        if receiver.notary.receipts:
            receipt = Receipt(token.stripe, token.epoch, victim, number, token_digest(token))
            self._send(host, notary.sign(receipt), everybody)

    # Usurpation ---------------------------------------------------------------------------------

    def _usurp(self, host: SimulatedHost) -> None:
        """Its own machine believes that an operator said so; nobody else's does."""
        if host.machine is None:
            return
        self._notary(host).__class__ = _Credulous
        universe = self._world.universe()
        others = [site for site in universe if site != host.node]
        if is_site(host.node):
            entry = ControlEntry(ControlKind.REMOVE_SITE, self._random.choice(others), b"")
            host.feed(ControlRequested(entry), PrimaryReceiver)
        else:
            host.feed(ForceRequested(tuple(sorted(self._random.sample(universe, UNIVERSE_MIN)))), ReformationServer)

    @staticmethod
    def _notary(host: SimulatedHost) -> Notary:
        machine = host.machine
        if isinstance(machine, PrimaryReceiver):
            return machine.receiver.notary
        if isinstance(machine, ReformationServer):
            return machine.notary
        raise AssertionError(host.node)
