"""Test builds: a market without one of its defences, so that a test sees the attack succeed which that defence stops.

    with without("votes"), running(path) as world:
        ...

Nodes of a `World` live in the process of the test: a build replaces the functions of one defence before they start, for
as long as the block lasts. The product has no such switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from tests.interop import packages

from isocast.hierarchy.archive import AnswerLimits, Answers
from isocast.reformation import member
from isocast.ring import court
from isocast.ring.answers import Answering
from isocast.ring.court import Court, Evidence
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.ring.source import PrimarySource
from isocast.runtime.hosts import customer
from isocast.runtime.market import key_files
from isocast.runtime.market.core_keys import CoreKeys
from isocast.runtime.net import channels, tls
from isocast.runtime.net.channels import Channels, Reception
from isocast.runtime.net.lobby import Lobby
from isocast.security import identities, line_seals, signing, subscriptions
from isocast.security import packages as masks
from isocast.security.door_identities import DoorHand, EphemeralKey
from isocast.security.keys import SecretKey
from isocast.security.roster import RosterBook
from isocast.terms.ids import NO_EPOCH
from isocast.wire import codec, statements
from isocast.wire.frame import VERSION, Keys
from isocast.wire.limits import TAG_BYTES
from isocast.wire.packets import Data, Packet, Token
from isocast.wire.signing import SignedKind
from isocast.wire.token_body import token_digest

__all__ = ["without"]

Patch = pytest.MonkeyPatch


def _filter(patch: Patch) -> None:
    """The kernel lets everything through."""
    patch.setattr(Channels, "_guard", lambda _self, _senders: None)


def _tags(patch: Patch) -> None:
    """Whatever has the form of a packet is believed to be its sender's."""
    patch.setattr(codec, "unsealed", lambda frame, _key: frame[:-TAG_BYTES])
    patch.setattr(codec, "compare_digest", lambda _one, _other: True)


def _market_ids(patch: Patch) -> None:
    """Packets of another market are read."""
    for module in (codec, channels):
        patch.setattr(module, "check_market", lambda _frame, _market: None)


def _stripe_ids(patch: Patch) -> None:
    """Packets of another stripe are read as if they were of one's own."""
    reading: list[int] = []
    packets, decode = Reception.packets, codec.decode

    def of_any_stripe(self: Reception, frames: Sequence[bytes]) -> list[Packet]:
        reading[:] = [self._stripe]
        return packets(self, frames)

    def relabelled(frame: bytes, keys: Keys, market: bytes) -> Packet:
        packet = decode(frame, keys, market)
        if packet.stripe == reading[0]:
            return packet
        if isinstance(packet, Token):
            return replace(packet, stripe=reading[0])
        if isinstance(packet, Data):
            return Data(reading[0], *[getattr(packet, name) for name in Data.__match_args__[1:]])
        return packet._replace(stripe=reading[0])

    patch.setattr(Reception, "packets", of_any_stripe)
    patch.setattr(channels, "decode", relabelled)


def _versions(patch: Patch) -> None:
    """A frame of the version before is read as if it were of this one."""
    decode = codec.decode

    def lenient(frame: bytes, keys: Keys, market: bytes) -> Packet:
        if frame[2] == VERSION - 1:
            with pytest.MonkeyPatch.context() as reading:
                reading.setattr(codec, "peek_kind", lambda raw: codec.PacketKind(raw[3]))
                return decode(frame, keys, market)
        return decode(frame, keys, market)

    patch.setattr(channels, "decode", lenient)


def _signatures(patch: Patch) -> None:
    """Whoever has the group's key is believed to be whom it names."""
    patch.setattr(Notary, "_judge", lambda *_: True)


def _votes(patch: Patch) -> None:
    """A server's signature is enough for a ring."""
    patch.setattr(member, "is_voted", lambda ring, notary, _policy, _convicted=(): notary.is_genuine(ring))


def _ballots(patch: Patch) -> None:
    """The signature of a vote does not cover the ballot that it was cast for."""
    signed_vote = statements.signed_vote
    patch.setattr(statements, "signed_vote", lambda vote, ballot: signed_vote(vote, ballot)._replace(epoch=NO_EPOCH))
    patch.setattr("isocast.ring.notary.signed_vote", statements.signed_vote)


def _court(patch: Patch) -> None:
    """Nobody compares what was signed."""
    patch.setattr(Court, "weigh", lambda _self, _first, _second: None)


def _signed_stripes(patch: Patch) -> None:
    """Signatures do not cover the stripe."""
    statement = identities.statement
    patch.setattr(signing, "statement", lambda *said, stripe, **more: statement(*said, stripe=0 * stripe, **more))


def _signed_markets(patch: Patch) -> None:
    """Signatures do not cover the market, but for those of doors."""
    statement = identities.statement

    def of_any_market(kind: SignedKind, market: bytes, body: bytes, **more: Any) -> bytes:  # noqa: ANN401 - as it is
        return statement(kind, market if kind is SignedKind.DOOR else bytes(len(market)), body, **more)

    patch.setattr(signing, "statement", of_any_market)


def _doubts(patch: Patch) -> None:
    """A source does not compare what tokens name with what it sent."""
    patch.setattr(PrimarySource, "_settle_doubt", lambda _self, _token: None)


def _epochs_of_evidence(patch: Patch) -> None:
    """Tokens of one number contradict each other whatever their epochs are."""
    on_token = Receiver.on_token

    def any_epoch(self: Receiver, token: Token, now: int) -> None:
        known = self.ledger.entries.get(token.token_number)
        if known is not None and token_digest(known.token) != token_digest(token):
            self._weigh(known.token, token)
        on_token(self, token, now)

    def contradicts(self: Evidence) -> bool:
        one, other = self.first, self.second
        same = (one.stripe, one.sender, self.number) == (other.stripe, other.sender, court._number(other))  # noqa: SLF001
        return same and court._content(one) != court._content(other)  # noqa: SLF001

    patch.setattr(Receiver, "on_token", any_epoch)
    patch.setattr(Evidence, "contradicts", property(contradicts))


def _revocations(patch: Patch) -> None:
    """What is revoked goes on to count."""
    patch.setattr(RosterBook, "_alive", lambda _self, public: public)


def _serials(patch: Patch) -> None:
    """Every roster that is known counts, whatever came after it."""

    def of_any_serial(self: RosterBook, node: int, serial: int, *_: object, **__: object) -> bytes | None:
        roster = self.of_serial(serial)
        return None if roster is None else roster.public_of(node)

    patch.setattr(RosterBook, "key_of", of_any_serial)


def _answered(patch: Patch) -> None:
    """Every request is answered, however often it comes."""
    patch.setattr(Answering, "_owes", lambda *_: True)


def _door_identities(patch: Patch) -> None:
    """Whoever has the key of a door is believed to be whom it names."""
    patch.setattr(DoorHand, "_judge", lambda *_: True)


def _keys_of_connections(patch: Patch) -> None:
    """What is said at a door is tagged with keys that come from the key of the door alone."""
    patch.setattr(EphemeralKey, "agree", lambda _self, _other, key: key)


def _generations(patch: Patch) -> None:
    """Sources are known by the keys that the market began with, whatever rosters bring."""
    patch.setattr(CoreKeys, "generation", lambda _self, _key: None)


def _generations_of_seals(patch: Patch) -> None:
    """Payloads are sealed by the keys that the market began with, whatever rosters bring."""
    patch.setattr(CoreKeys, "_turn_seals", lambda _self: None)


def _shares(patch: Patch) -> None:
    """One customer may have all that a server gives."""
    make = Answers.__init__

    def greedy(self: Answers, limits: AnswerLimits) -> None:
        make(self, limits)
        self.limits = replace(self.limits, customer_rate=self.limits.rate, customer_burst=self.limits.burst)

    patch.setattr(Answers, "__init__", greedy)


def _giving_way(patch: Patch) -> None:
    """Whoever came first to a door, or page, stays: where there is no place, the newcomer goes."""
    enter = Lobby.enter

    def first_come(self: Lobby, task: asyncio.Task[None], address: str) -> None:
        if self.waiting >= self._most:
            task.cancel()
        else:
            enter(self, task, address)

    patch.setattr(Lobby, "enter", first_come)
    patch.setattr(Lobby, "end_one", lambda _self: None)


def _salts(patch: Patch) -> None:
    """A source seals by the same keys after each start."""
    patch.setattr(key_files, "token_bytes", bytes)


def _memory_of_numbers(patch: Patch) -> None:
    """A source does not mind that the ring has more of its messages than it gave numbers to."""
    acknowledge = PrimarySource._acknowledge  # noqa: SLF001

    def trusting(self: PrimarySource, below: int, token_number: int) -> None:
        acknowledge(self, min(below, self._next_number), token_number)

    patch.setattr(PrimarySource, "_acknowledge", trusting)


def _proofs(patch: Patch) -> None:
    """Customers ask for no proof of what a line says."""
    patch.setattr(customer, "proof_terms", lambda _: None)


class _Unauthenticated:
    """AES-GCM whose tag nobody looks at: what is left is a stream, which whoever knows a payload can change."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, nonce: bytes, clear: bytes, known: bytes) -> bytes:
        return AESGCM(self._key).encrypt(nonce, clear, known)

    def decrypt(self, nonce: bytes, sealed: memoryview, _: bytes) -> bytes:
        stream = Cipher(AES(self._key), CTR(nonce + (2).to_bytes(4))).decryptor()
        return stream.update(sealed[:-TAG_BYTES]) + stream.finalize()


def _seals_of_lines(patch: Patch) -> None:
    """A line is encrypted, and nobody checks that nothing of it was changed."""
    patch.setattr(line_seals, "AESGCM", _Unauthenticated)


def _periods(patch: Patch) -> None:
    """A service has one key for all times."""
    make = subscriptions.service_key

    def timeless(region: SecretKey, service: str, period: int, length_ns: int) -> subscriptions.ServiceKey:
        return make(region, service, period, length_ns)._replace(key=make(region, service, 0, length_ns).key)

    for module in (line_seals, packages):
        patch.setattr(module, "service_key", timeless)


def _secrets_of_packages(patch: Patch) -> None:
    """A package is sealed under the same key, whatever the buyer's secret."""
    mask_of = masks.mask_of
    for module in (masks, packages):
        patch.setattr(module, "mask_of", lambda _secret, salt, *how: mask_of(bytes(16), salt, *how))


def _pins(patch: Patch) -> None:
    """Every certificate of the market's authority is believed."""
    patch.setattr(tls, "pin_trouble", lambda _market, _name, _digest: None)


_DEFENCES: dict[str, Callable[[Patch], None]] = {
    "filter": _filter,
    "tags": _tags,
    "market ids": _market_ids,
    "stripe ids": _stripe_ids,
    "versions": _versions,
    "signatures": _signatures,
    "votes": _votes,
    "ballots in votes": _ballots,
    "court": _court,
    "stripes in signatures": _signed_stripes,
    "markets in signatures": _signed_markets,
    "doubts": _doubts,
    "epochs of evidence": _epochs_of_evidence,
    "revocations": _revocations,
    "serials": _serials,
    "answered once": _answered,
    "door identities": _door_identities,
    "keys of connections": _keys_of_connections,
    "generations": _generations,
    "generations of seals": _generations_of_seals,
    "pins": _pins,
    "proofs": _proofs,
    "seals of lines": _seals_of_lines,
    "periods": _periods,
    "secrets of packages": _secrets_of_packages,
    "salts": _salts,
    "memory of numbers": _memory_of_numbers,
    "shares": _shares,
    "giving way": _giving_way,
}


@contextmanager
def without(*defences: str) -> Iterator[None]:
    """Nodes that start within the block lack these defences."""
    with pytest.MonkeyPatch.context() as patch:
        for defence in defences:
            _DEFENCES[defence](patch)
        yield
