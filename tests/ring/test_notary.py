"""What is signed, what is verified, and what becomes of a packet that somebody forged (§6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.makers import (
    EPOCH,
    NEXT_EPOCH,
    PERIOD,
    S1,
    SETTINGS,
    START,
    Chain,
    T,
    blank,
    founding,
    message,
    receipt,
    secret,
    settings,
)

from isocast.ring.effects import EntryAppended, Multicast, NumbersForgotten, Persist
from isocast.ring.inputs import PacketsArrived, PublishRequested
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.ring.source import PrimarySource
from isocast.simulation.signatures import KeyedSigner, KeyedVerifier
from isocast.terms.ids import NodeId
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.packets import Receipt, Token
from isocast.wire.signing import SignedKind
from isocast.wire.token_body import split_token

WORLD = 7


def notary(node: NodeId, *, receipts: bool = False) -> Notary:
    return Notary(KeyedSigner(WORLD, node), KeyedVerifier(WORLD), receipts=receipts)


def signed_by(site: NodeId, token: Token) -> Token:
    return notary(site).sign(replace(token))


def receiver(site: NodeId, *, receipts: bool = False) -> Receiver:
    """On the first ring, holding nothing."""
    machine = Receiver(site, SETTINGS, secret(site), blank(), notary(site, receipts=receipts))
    machine.install(founding(), 0, (), START // 2)
    machine.take(START // 2)
    return machine


def test_an_owner_signs_its_token_once_before_it_is_on_disk() -> None:
    """What is sent is what was written: the same signature lies in the log, and answers carry it."""
    machine = receiver(1)
    effects = machine.take(T(1))
    [written] = [effect.record.entry.token for effect in effects if isinstance(effect, Persist)
                 if isinstance(effect.record, EntryAppended)]  # fmt: skip
    [sent] = [effect.packet for effect in effects if isinstance(effect, Multicast) if isinstance(effect.packet, Token)]
    assert sent is written
    assert len(sent.signature) == SIGNATURE_BYTES
    assert notary(2).is_genuine(sent)


def test_a_token_of_its_owner_is_taken() -> None:
    machine = receiver(2)
    machine.on_token(signed_by(1, Chain().add().token), T(1))
    assert machine.held == 1
    assert machine.notary.refused == {}


@pytest.mark.parametrize("forger", [None, 2, 3])
def test_a_token_that_its_owner_did_not_sign_is_refused_and_counted(forger: NodeId | None) -> None:
    """Whoever holds the core's key can tag a frame as anybody; nobody else can sign as site 1."""
    machine = receiver(2)
    forged = Chain().add().token
    machine.on_token(forged if forger is None else signed_by(forger, forged), T(1))
    assert machine.held == 0
    assert machine.notary.refused == {SignedKind.TOKEN: 1}
    machine.on_token(signed_by(1, Chain().add().token), T(1))
    assert machine.held == 1


def test_a_token_in_parts_is_verified_when_it_is_whole() -> None:
    machine = receiver(2)
    token = Chain().add(message(1)).token
    machine.on_data(message(1), T(1))
    for part in split_token(signed_by(3, token), 100):
        machine.on_part(part, T(1))
    assert machine.notary.refused == {SignedKind.TOKEN: 1}
    for part in split_token(signed_by(1, token), 100):
        machine.on_part(part, T(1))
    assert machine.held == 1


def test_what_is_dropped_anyway_is_not_verified() -> None:
    """Drop before crypto: copies, tokens of others' slots, of wrong instants and of other epochs cost nothing."""
    machine = receiver(2)
    token = signed_by(1, Chain().add().token)
    machine.on_token(token, T(1))
    for useless in (token, replace(token, sender=3, token_number=2), replace(token, instant=9, token_number=2)):
        machine.on_token(replace(useless, signature=b""), T(1))
    machine.on_token(replace(token, epoch=NEXT_EPOCH, signature=b""), T(1))
    assert machine.notary.refused == {}


def test_a_signature_counts_for_one_purpose_stripe_and_epoch_alone() -> None:
    """A replay attack with a genuine signature: elsewhere the same bytes were never signed."""
    token = signed_by(1, Chain().add().token)
    eye = notary(2)
    assert eye.is_genuine(token)
    assert not eye.is_genuine(replace(token, stripe=1))
    assert not eye.is_genuine(replace(token, epoch=NEXT_EPOCH))
    assert not eye.is_genuine(replace(token, sender=2))
    assert not eye.is_genuine(Receipt(0, EPOCH, 1, 1, token.prev_digest, token.signature))
    assert eye.refused == {SignedKind.TOKEN: 3, SignedKind.RECEIPT: 1}


def test_without_a_verifier_everything_is_believed_and_nothing_is_signed() -> None:
    token = Chain().add().token
    assert Notary().sign(token).signature == b""
    assert Notary().is_genuine(token)


# ---- receipts


def test_signed_receipts_count_for_their_senders_alone() -> None:
    machine, chain = receiver(2, receipts=True), Chain()
    machine.on_token(signed_by(1, chain.add().token), T(1))
    forged = notary(1).sign(receipt(3, chain))
    machine.on_receipt(forged, T(1))
    assert machine.certificates.certified == 0
    assert machine.notary.refused == {SignedKind.RECEIPT: 1}
    genuine = notary(3).sign(receipt(3, chain))
    machine.on_receipt(genuine, T(1))
    assert machine.certificates.certified == 1
    machine.on_receipt(replace_signature(genuine), T(1))
    assert machine.notary.refused == {SignedKind.RECEIPT: 1}, "a copy says nothing new and is not looked at"


def replace_signature(told: Receipt) -> Receipt:
    return told._replace(signature=bytes(SIGNATURE_BYTES))


@pytest.mark.parametrize("receipts", [False, True])
def test_receipts_are_signed_by_setting(receipts: bool) -> None:  # noqa: FBT001
    machine = receiver(2, receipts=receipts)
    machine.on_token(signed_by(1, Chain().add().token), T(1))
    [told] = [
        effect.packet for effect in machine.take(T(1))
        if isinstance(effect, Multicast) and isinstance(effect.packet, Receipt)
    ]  # fmt: skip
    assert bool(told.signature) == receipts


# ---- a source


def test_a_forged_token_frees_nothing_in_an_outbox() -> None:
    """It would say that everybody holds everything, and the source would forget the only copy."""
    machine = PrimarySource(S1, settings(), notary=Notary(None, KeyedVerifier(WORLD)))
    machine.step(PublishRequested(b"key", b"payload"), START)
    chain = Chain()
    chain.add(message(1))
    lie = replace(chain.entries[0].token, stable=1)
    machine.step(PacketsArrived((lie, replace(signed_by(3, lie)))), T(1))
    assert machine.snapshot().unstable == 1
    assert machine.notary.refused == {SignedKind.TOKEN: 2}
    effects = machine.step(PacketsArrived((signed_by(1, lie),)), T(1) + PERIOD)
    assert machine.snapshot().unstable == 0
    assert not [effect for effect in effects if isinstance(effect, NumbersForgotten)]
