"""A small market of three sites that sign, and the journal that one of them keeps of it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.ring.makers import Chain, founding
from tests.wire.journal_samples import DELAY, events_payload

from isocast.checks.vouchers import VoucherWalk
from isocast.ring.effects import Release
from isocast.ring.ledger import LogEntry
from isocast.ring.settings import OrderRule
from isocast.runtime.disk.journal import released_block
from isocast.runtime.disk.journal_vouchers import Vouchers
from isocast.security.identities import Identity, statement
from isocast.security.keys import SecretKey
from isocast.security.roster import Roster, RosterMember, RosterRole
from isocast.security.sealing import Opener, Sealer
from isocast.security.witness import RosterWitness, resealed
from isocast.terms.ids import Epoch, Label, NodeId, source_id
from isocast.wire.journal_blocks import BlockView, ReleasedBlock, encode_block, view_block
from isocast.wire.journal_proofs import MessageSeal
from isocast.wire.packets import Data, Token
from isocast.wire.signing import SignedKind
from isocast.wire.statements import signed

__all__ = ["ROOT", "ROSTER", "SITES", "SignedMarket", "identity", "sign", "views", "walk"]

SITES: tuple[NodeId, ...] = (1, 2, 3)
FLOORS = tuple(source_id(number, 7) for number in (1, 2))
_SECRETS = {number: SecretKey(bytes([number]) * 32) for number in (1, 2)}
_FOREVER = 1 << 62


def identity(node: NodeId) -> Identity:
    """A site's private key."""
    return Identity(node.to_bytes(32))


ROOT = Identity(b"r" * 32)


def roster_of(sites: Sequence[NodeId], serial: int = 1) -> Roster:
    """Who is who."""
    members = tuple(
        RosterMember(site, f"site {site}", RosterRole.PRIMARY_RECEIVER, identity(site).public, bytes(32), 0, _FOREVER)
        for site in sites
    )
    previous = bytes(32) if serial == 1 else b"p" * 32
    return Roster("proven", ROOT.public, serial, members, Identity(b"v" * 32).public, previous)


ROSTER = roster_of(SITES)


def signature(
    signer: Identity, kind: SignedKind, epoch: Epoch, body: bytes, roster: Roster = ROSTER, stripe: int = 0
) -> bytes:
    """Serial and signature, as they travel."""
    said = statement(kind, roster.market, body, stripe=stripe, epoch=epoch, serial=roster.serial)
    return roster.serial.to_bytes(8, "little") + signer.sign(said)


def sign(token: Token, signer: Identity | None = None) -> None:
    """Put its owner's signature, or somebody else's, on a token."""
    kind, epoch, body = signed(token)
    token.signature = signature(signer or identity(token.sender), kind, epoch, body)


class SignedMarket:
    """Grows token by token; its journal is that of a site that releases `behind` tokens later."""

    def __init__(self, *, order: OrderRule = OrderRule.ARRIVAL, behind: int = 2, is_sealed: bool = True) -> None:
        """Nothing was published."""
        self.chain = Chain(founding(*SITES), order)
        self.blocks: list[ReleasedBlock] = []
        self.vouchers = Vouchers()
        self.behind = behind
        self._is_sealed = is_sealed
        self._sealers = {number: Sealer(_SECRETS[number], number, bytes([number]) * 16) for number in (1, 2)}
        self._opener = Opener(_SECRETS)
        self._numbers = {1: 0, 2: 0}

    def data(self, floor: int, payload: bytes | None = None) -> Data:
        """The next message of a floor."""
        number = self._numbers[floor] = self._numbers[floor] + 1
        label = Label(FLOORS[floor - 1], number)
        payload = events_payload(10 * number + floor) if payload is None else payload
        sealed = self._sealers[floor].seal(0, label, payload) if self._is_sealed else payload
        return Data(0, self.chain.ring.ballot, label.source, number, 1, sealed)

    def add(self, *floors: int) -> LogEntry:
        """A token with a message of each of these floors."""
        entry = self.chain.add(*[self.data(floor) for floor in floors])
        return self.issued(entry)

    def issued(self, entry: LogEntry) -> LogEntry:
        """Sign a token, and release what is due."""
        sign(entry.token)
        self.vouchers.completed(entry.token, SITES)
        due = len(self.chain.entries) - 1 - self.behind
        if due >= 0:
            self.release(self.chain.entries[due])
        return entry

    def release(self, entry: LogEntry) -> None:
        """Into the journal."""
        if not entry.messages:
            return
        token = entry.token
        release = Release(token.epoch, entry, token.first_sequence, entry.messages, token.instant + DELAY)
        opened = [
            self._opener.open(0, Label(message.sender, message.number), message.payload)
            for message in (entry.messages if self._is_sealed else ())
        ]
        seals = [MessageSeal(one.salt, one.key) for one in opened]
        held = {one.token.token_number: one for one in self.chain.entries}
        proof = self.vouchers.proof(token, held, SITES, seals)
        payloads = [one.payload for one in opened] if self._is_sealed else None
        self.blocks.append(released_block(release, release.due + 1, 50, payloads, proof))

    def finish(self) -> SignedMarket:
        """Release the rest."""
        for entry in self.chain.entries[max(len(self.chain.entries) - self.behind, 0) :]:
            self.release(entry)
        return self


def views(blocks: Sequence[ReleasedBlock]) -> list[BlockView]:
    """As they are read."""
    return [view_block(b"".join(encode_block(one).pieces)) for one in blocks]


def walk(*rosters: Roster) -> VoucherWalk:
    """The judge, by these rosters or by the usual one."""
    witness = RosterWitness(rosters or (ROSTER,))
    return VoucherWalk(0, witness.voters(0), witness, resealed)
