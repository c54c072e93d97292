"""A proof is two contents that one site signed for one token, or receipt, of one stripe and epoch (§6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.makers import EPOCH, NEXT_EPOCH, SETTINGS, START, Chain, T, blank, founding, message, receipt, secret
from tests.ring.test_notary import notary, signed_by

from isocast.ring.court import Court, Evidence
from isocast.ring.effects import LieProven, Multicast, Unicast
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.terms.instants import NEVER
from isocast.wire.packets import Nack, Receipt, Token

CHAIN = Chain()
ONE = CHAIN.add().token
OTHER = replace(ONE, stable=0, secstable=5)


def court() -> Court:
    return Court(notary(3))


def test_two_contents_of_one_token_convict_their_owner_once() -> None:
    judge, first, second = court(), signed_by(1, ONE), signed_by(1, OTHER)
    assert judge.weigh(first, second) == Evidence(first, second)
    assert list(judge.convicted) == [1]
    assert judge.weigh(first, second) is None


def signed_receipt(site: int, digest: bytes, *, held: int = 1, stripe: int = 0) -> Receipt:
    return notary(site).sign(Receipt(stripe, EPOCH, site, held, digest))


def test_two_receipts_for_one_token_convict_their_sender() -> None:
    judge = court()
    assert judge.weigh(signed_receipt(2, bytes(32)), signed_receipt(2, b"x" * 32))
    assert list(judge.convicted) == [2]


INNOCENT: dict[str, tuple[Token | Receipt, Token | Receipt]] = {
    "a copy": (signed_by(1, ONE), signed_by(1, ONE)),
    "a token of another stripe": (signed_by(1, ONE), signed_by(1, replace(OTHER, stripe=1))),
    "a token of another stripe, said to be of this one": (
        signed_by(1, ONE),
        replace(signed_by(1, replace(OTHER, stripe=1)), stripe=0),
    ),
    "a token of another epoch": (signed_by(1, ONE), signed_by(1, replace(OTHER, epoch=NEXT_EPOCH))),
    "a token of another epoch, said to be of this one": (
        signed_by(1, ONE),
        replace(signed_by(1, replace(OTHER, epoch=NEXT_EPOCH)), epoch=EPOCH),
    ),
    "another token": (signed_by(1, ONE), signed_by(1, replace(OTHER, token_number=4))),
    "somebody else's token": (signed_by(1, ONE), signed_by(2, replace(OTHER, sender=2))),
    "a forged token": (signed_by(1, ONE), signed_by(2, OTHER)),
    "an unsigned token": (signed_by(1, ONE), OTHER),
    "a forged first": (signed_by(2, ONE), signed_by(1, OTHER)),
    "a receipt and a token": (signed_by(1, ONE), signed_receipt(1, bytes(32))),
    "receipts for two tokens": (signed_receipt(1, bytes(32)), signed_receipt(1, b"x" * 32, held=2)),
    "receipts of two stripes": (signed_receipt(1, bytes(32)), signed_receipt(1, b"x" * 32, stripe=1)),
    "receipts of two sites": (signed_receipt(1, bytes(32)), signed_receipt(2, b"x" * 32)),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_the_innocent_is_not_convicted(name: str) -> None:
    judge = court()
    assert judge.weigh(*INNOCENT[name]) is None
    assert judge.convicted == {}


def test_without_signatures_nobody_is_convicted() -> None:
    assert Court(Notary()).weigh(ONE, OTHER) is None


# ---- at a receiver


def receiver(*, receipts: bool = False) -> Receiver:
    machine = Receiver(3, SETTINGS, secret(3), blank(), notary(3, receipts=receipts))
    machine.install(founding(), 0, (), START // 2)
    machine.take(START // 2)
    return machine


def proofs(machine: Receiver) -> list[Evidence]:
    return [effect.evidence for effect in machine.out if isinstance(effect, LieProven)]


@pytest.mark.parametrize("complete", [True, False])
def test_a_second_content_proves_the_lie_and_everybody_sees_both(complete: bool) -> None:  # noqa: FBT001
    machine, chain = receiver(), Chain()
    first = signed_by(1, chain.add(*([] if complete else [message(1)])).token)
    second = signed_by(1, replace(first, secstable=5))
    machine.on_token(first, T(1))
    machine.out.clear()
    machine.on_token(second, T(1))
    assert proofs(machine) == [Evidence(first, second)]
    assert [effect.packet for effect in machine.out if isinstance(effect, Multicast)] == [first, second]
    assert machine.distrusted[1] == NEVER


def test_who_is_convicted_counts_in_no_majority_and_u_keeps_its_size() -> None:
    machine, chain = receiver(), Chain()
    machine.on_token(signed_by(1, chain.add().token), T(1))
    machine.on_receipt(receipt(1, chain), T(1))
    assert machine.certificates.certified == 1, "sites 1 and 3"
    machine.convict(1)
    assert machine.certificates.certified == 0
    machine.on_receipt(receipt(2, chain), T(1))
    assert machine.certificates.certified == 1, "sites 2 and 3, of three"


def test_a_site_that_receipts_two_logs_convicts_itself() -> None:
    machine, chain = receiver(receipts=True), Chain()
    machine.on_token(signed_by(1, chain.add().token), T(1))
    honest = notary(2).sign(receipt(2, chain))
    machine.on_receipt(honest, T(1))
    lie = notary(2).sign(honest._replace(digest=b"x" * 32))
    machine.on_receipt(lie, T(1))
    assert proofs(machine) == [Evidence(honest, lie)]
    assert machine.certificates.certified == 0


def test_whoever_vouches_for_another_token_is_asked_for_it_and_nothing_is_released_meanwhile() -> None:
    """The owner's other signature, once it is here, convicts it before anything goes out."""
    machine, chain = receiver(), Chain()
    machine.on_token(signed_by(1, chain.add().token), T(1))
    machine.on_receipt(receipt(1, chain), T(1))
    machine.take(T(1))
    assert machine.may_release(1)
    machine.on_receipt(receipt(2, chain)._replace(digest=b"x" * 32), T(1))
    [asked] = [effect for effect in machine.out if isinstance(effect, Unicast)]
    assert asked.to == 2
    assert isinstance(asked.packet, Nack)
    assert asked.packet.token_number == 1
    assert not machine.may_release(1)
    machine.take(T(1) + 10 * SETTINGS.timing.retry_ns)
    assert machine.may_release(1), "an answer that never comes holds nobody up for ever"


@pytest.mark.parametrize("by", [2, 1])
def test_where_receipts_are_signed_a_word_in_anothers_name_holds_nothing_back(by: int) -> None:
    machine, chain = receiver(receipts=True), Chain()
    machine.on_token(signed_by(1, chain.add().token), T(1))
    machine.on_receipt(notary(1).sign(receipt(1, chain)), T(1))
    machine.take(T(1))
    assert machine.may_release(1)
    machine.on_receipt(notary(by).sign(receipt(2, chain)._replace(digest=b"x" * 32)), T(1))
    assert machine.may_release(1) is (by != 2)
