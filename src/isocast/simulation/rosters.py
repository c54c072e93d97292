"""Rosters of a simulated market: who knows which, since which token each counts, and whose key was taken away.

Books, signers and verifiers are the product's; only the signature itself is a keyed hash, as in `signatures`. Every
node has a book of its own, and files reach it one after the other, or not at all while it is *stale*: its operator
forgot to copy them. Primary receivers follow the sequence, as their hosts do in a real market: a certified entry says
from which token on a roster counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b, sha256
from hmac import compare_digest

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.inputs import ControlRequested
from isocast.security.identities import Identity
from isocast.security.roster import (
    Revocation,
    Roster,
    RosterBook,
    RosterMember,
    RosterNotice,
    RosterRole,
    read_roster_entry,
    roster_entry,
    sign_revocation,
)
from isocast.security.signing import IdentitySigner, RosterVerifier
from isocast.simulation.host import SimulatedHost
from isocast.simulation.network import Agenda, stream
from isocast.simulation.scenario import Scenario
from isocast.terms.errors import RosterError
from isocast.terms.ids import OPERATOR, Epoch, NodeId, is_server, is_site, server_id, source_id, without_incarnation
from isocast.wire.packets import Token
from isocast.wire.signing import SignedKind

__all__ = ["Rosters", "SimulatedKey"]

_ROUNDS, _MARGIN = 2, 8
"""As a host announces a roster: by then every site that is up has seen its entry certified."""
_COPYING_PERIODS = 2
"""How long it takes an operator to copy files to all machines."""
_ROOT, _REVOKE = Identity(sha256(b"root").digest()), Identity(sha256(b"revoke").digest())


class SimulatedKey:
    """A private key: its owner has it, and the market's verifiers can judge what it signed."""

    def __init__(self, seed: object, node: NodeId, generation: int) -> None:
        """The same for the same seed, node and generation."""
        self.secret = blake2b(f"{seed}/{node}/identity/{generation}".encode(), digest_size=32).digest()
        self.public = blake2b(self.secret, digest_size=32, person=b"public").digest()

    def sign(self, statement: bytes) -> bytes:
        """64 bytes."""
        return blake2b(statement, key=self.secret).digest()


class Rosters:
    """All rosters, books and keys of one world."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        agenda: Agenda,
        hosts: Mapping[NodeId, SimulatedHost],
        newest: Callable[[], PrimaryReceiver | None],
        book: type[RosterBook] = RosterBook,
    ) -> None:
        """One roster, which lists everybody and counts from the beginning; `newest` knows most of the log."""
        self._seed = seed
        self._agenda = agenda
        self._hosts = hosts
        self._newest = newest
        self._new_book = book
        self._period_ns = scenario.timing.token_period_ns
        self._random = stream(seed, "rosters")
        self._keys: dict[NodeId, list[SimulatedKey]] = {}
        self._secrets: dict[bytes, SimulatedKey] = {}
        self._followers: dict[NodeId, list[SimulatedKey]] = {}
        """Keys that followed the first, as far as a node has a roster that lists them."""
        sites = range(1, scenario.receivers + 1)
        servers = map(server_id, range(1, scenario.servers + 1))
        nodes = [*sites, *scenario.tree.secondary_sites, *servers, *map(source_id, range(1, scenario.sources + 1))]
        members = tuple([self._member(without_incarnation(node)) for node in sorted([*nodes, OPERATOR])])
        self.chain = [Roster("simulated", _ROOT.public, 1, members, _REVOKE.public)]
        self.revocations: list[Revocation] = []
        self.books: dict[NodeId, RosterBook] = {}
        self._stale: dict[NodeId, None] = {}
        self._told: dict[NodeId, dict[bytes, None]] = {}
        """Which revocations came to each node."""
        self._held: dict[NodeId, dict[int, RosterNotice]] = {}
        self._due: dict[NodeId, dict[int, RosterNotice]] = {}

    def _member(self, node: NodeId) -> RosterMember:
        key = self._new_key(node)
        return RosterMember(node, f"node {node}", _role(node), key.public, key.public, 0, 1 << 62)

    def _new_key(self, node: NodeId) -> SimulatedKey:
        keys = self._keys.setdefault(node, [])
        key = SimulatedKey(self._seed, node, len(keys))
        keys.append(key)
        self._secrets[key.public] = key
        return key

    # What a node signs and believes -------------------------------------------------------------

    def book(self, node: NodeId) -> RosterBook:
        """What a node knows of rosters; its disk keeps it."""
        return self.books.setdefault(node, self._new_book(self.chain[0]))

    def signer(self, node: NodeId) -> IdentitySigner:
        """Signs as a node, with all keys that it was given: the roster says which of them counts."""
        own = without_incarnation(node)
        # A node that joins later has a key that no roster lists.
        first = self._keys[own][0] if own in self._keys else self._new_key(own)
        return IdentitySigner(first, self.chain[0].market, self.book(node), self._followers.setdefault(node, []))

    def verifier(self, node: NodeId) -> NodesVerifier:
        """Judges as a node."""
        return NodesVerifier(self.chain[0].market, self.book(node), self._is_signed, lambda: self.passed(node))

    def _is_signed(self, public: bytes, signature: bytes, statement: bytes) -> bool:
        key = self._secrets.get(public)
        return key is not None and compare_digest(key.sign(statement), signature)

    # What an operator does ----------------------------------------------------------------------

    def rotate(self, nodes: tuple[NodeId, ...]) -> Roster:
        """The next roster, which gives some nodes new keys; it is copied to the machines one after the other."""
        before = self.chain[-1]
        changed = {without_incarnation(node): self._new_key(without_incarnation(node)) for node in nodes}
        members = [
            replace(member, public=changed[member.node].public) if member.node in changed else member
            for member in before.members
        ]
        dead = tuple(sorted({*before.revoked, *[said.public for said in self.revocations]}))
        roster = replace(before, serial=before.serial + 1, previous=before.digest, members=tuple(members), revoked=dead)
        self.chain.append(roster)
        self._copy()
        return roster

    def revoke(self, nodes: tuple[NodeId, ...]) -> None:
        """The first keys of some nodes count no more, wherever the word comes."""
        for node in nodes:
            member = self.chain[0].member(node)
            if member is not None:
                self.revocations.append(sign_revocation(self.chain[-1], member, _REVOKE, len(self.revocations)))
        self._copy()

    def stale(self, nodes: tuple[NodeId, ...], *, ends: bool) -> None:
        """Some machines get no files any more; or everything that they missed."""
        for node in nodes:
            if ends:
                self._stale.pop(node, None)
                self._news(node)
            else:
                self._stale[node] = None

    def announce(self, roster: Roster) -> bool:
        """Ask a member of the ring to put a roster into force; False if none can."""
        newest = self._newest()
        ring = None if newest is None else newest.receiver.ring
        if newest is None or ring is None:
            return False
        effective = newest.receiver.held + _ROUNDS * len(ring.ring) + _MARGIN
        able = [site for site in ring.ring if site not in self._stale and self._hosts[site].running]
        if able:
            entry = ControlRequested(roster_entry(roster, effective))
            self._hosts[self._random.choice(able)].feed(entry, PrimaryReceiver)
        return bool(able)

    def is_announced(self, roster: Roster) -> bool:
        """Whether the newest log has an entry for it that is certified."""
        newest = self._newest()
        if newest is None:
            return False
        self.passed(newest.receiver.site)
        return self.book(newest.receiver.site).entries[-1][1].serial >= roster.serial

    def is_in_force(self, roster: Roster) -> bool:
        """Whether a roster counts at the next token, as the newest log has it, wherever its file came."""
        newest = self._newest()
        if newest is None:
            return False
        self.passed(newest.receiver.site)
        book = self.book(newest.receiver.site)
        return book.at(newest.receiver.held + 1).serial >= roster.serial

    def _copy(self) -> None:
        agenda, span = self._agenda, _COPYING_PERIODS * self._period_ns
        self._news(OPERATOR)
        for node in list(self._hosts):
            agenda.put(agenda.now + self._random.randrange(span), self._copied, node)

    def _copied(self, node: NodeId) -> None:
        if node not in self._stale:
            self._news(node)

    def _news(self, node: NodeId) -> None:
        """A machine has all files."""
        book = self.book(node)
        for roster in self.chain:
            if roster.serial > book.newest.serial:
                book.offer(roster)
        for said in self.revocations:
            book.revoke(said)
            self._told.setdefault(node, {})[said.public] = None
        for number in sorted(self._due.get(node, {})):
            self._schedule(node, number)
        _, *others = self._keys[without_incarnation(node)]
        followers = self._followers.setdefault(node, [])
        followers += [key for key in others if book.newest.lists(key.public) and key not in followers]

    # What a receiver's host does ----------------------------------------------------------------

    def completed(self, node: NodeId, token: Token) -> None:
        """A receiver holds a token: perhaps another of its number than before."""
        held, due = self._held.setdefault(node, {}), self._due.setdefault(node, {})
        number, notice = token.token_number, _notice(token)
        gone = due.get(number)
        if gone is not None and gone != notice:
            del due[number]
            self.book(node).withdraw(gone.effective)
        if notice is None:
            held.pop(number, None)
        elif gone != notice:
            held[number] = notice

    def passed(self, node: NodeId) -> None:
        """What is certified now counts from its token on."""
        held = self._held.get(node)
        machine = self._hosts[node].machine if held else None
        if not held or not isinstance(machine, PrimaryReceiver):
            return
        receiver = machine.receiver
        certified = max(receiver.certificates.certified, receiver.releaser.released)
        for number in [one for one in held if one <= certified]:
            self._due[node][number] = held.pop(number)
            self._schedule(node, number)

    def _schedule(self, node: NodeId, number: int) -> None:
        notice, book = self._due[node][number], self.book(node)
        roster = book.of_serial(notice.serial)
        if roster is not None and roster.digest == notice.digest and roster.serial > book.entries[-1][1].serial:
            book.schedule(roster, notice.effective)

    # What a thief has ---------------------------------------------------------------------------

    def stolen(self, node: NodeId) -> IdentitySigner:
        """Signs with the first key of a node, under the first roster."""
        return IdentitySigner(self._keys[without_incarnation(node)][0], self.chain[0].market, RosterBook(self.chain[0]))

    def unmoved(self, victim: NodeId, number: int) -> tuple[NodeId, ...]:
        """Who believes the first key of a node no more at a token, and in ballots: by the product's rules."""
        found = []
        for node, host in self._hosts.items():
            if not host.running:
                continue
            self.passed(node)
            retired = all(RosterBook.key_of(self.book(node), victim, 1, at) is None for at in (number, None))
            if retired or self._keys[victim][0].public in self._told.get(node, ()):
                found.append(node)
        return tuple(found)


class NodesVerifier(RosterVerifier):
    """Looks first whether another roster counts by now."""

    def __init__(
        self,
        market: bytes,
        book: RosterBook,
        signed: Callable[[bytes, bytes, bytes], bool],
        look: Callable[[], None],
    ) -> None:
        """`look` brings the book up to date."""
        super().__init__(market, book, signed)
        self._look = look

    def is_from(self, node: NodeId, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes, signature: bytes) -> bool:
        """As the book has it now."""
        self._look()
        return super().is_from(node, kind, stripe, epoch, body, signature)

    def is_order(self, stripe: int, body: bytes, signature: bytes, token_number: int, *, settled: bool) -> bool:
        """As the book has it now."""
        self._look()
        return super().is_order(stripe, body, signature, token_number, settled=settled)


def _role(node: NodeId) -> RosterRole:
    if node == OPERATOR:
        return RosterRole.OPERATOR
    if is_server(node):
        return RosterRole.REFORMATION_SERVER
    return RosterRole.PRIMARY_RECEIVER if is_site(node) else RosterRole.PRIMARY_SOURCE


def _notice(token: Token) -> RosterNotice | None:
    for entry in token.control:
        try:
            return read_roster_entry(entry, token.token_number)
        except RosterError:
            continue
    return None
