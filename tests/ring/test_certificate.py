"""Receipts, and what a majority of them certifies (protocol §4)."""

from __future__ import annotations

import pytest
from tests.ring.makers import Chain, T, receipt, receiver, secret, settings

from isocast.ring.receiver import Receiver
from isocast.ring.release import Certificates, majority
from isocast.wire.packets import ControlEntry, ControlKind


def certificates(receipts: dict[int, int]) -> Certificates:
    found = Certificates()
    for site, held in receipts.items():
        found.receive(site, held)
    return found


@pytest.mark.parametrize("size, need", [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (10, 6)])
def test_a_majority_is_more_than_half(size: int, need: int) -> None:
    """Protocol §1: more than |U|/2."""
    assert majority(tuple(range(size))) == need


def test_receipts_are_cumulative_and_never_go_back() -> None:
    found = Certificates()
    assert [found.receive(1, held) for held in (3, 2, 3, 5)] == [True, False, False, True]
    assert found.receipts == {1: 5}


def test_a_token_is_certified_by_receipts_at_or_beyond_it_from_a_majority_of_u() -> None:
    assert certificates({1: 7, 2: 5, 3: 4}).level((1, 2, 3)) == 5
    assert certificates({1: 7, 2: 5}).level((1, 2, 3, 4)) == 0


def test_receipts_from_outside_u_count_for_nothing() -> None:
    assert certificates({1: 7, 8: 7, 9: 7}).level((1, 2, 3)) == 0


def test_a_new_epoch_forgets_receipts_and_keeps_what_is_certified() -> None:
    """Protocol §4: RECEIPT_e(≥ t) from a majority: receipts of two epochs do not add up."""
    found = certificates({1: 7, 2: 7})
    found.certify((1, 2, 3), 7)
    found.restart()
    found.receive(1, 9)
    found.certify((1, 2, 3), 9)
    assert found.certified == 7


def test_nothing_beyond_the_limit_is_certified() -> None:
    """U is known up to h only: who must certify what lies beyond is not."""
    found = certificates({1: 9, 2: 9})
    found.certify((1, 2, 3), 6)
    assert found.certified == 6


# Changes of U, by the receiver that knows the log

ADD = [ControlEntry(ControlKind.ADD_SITE, site, b"") for site in (4, 5, 6, 7)]


def changed(*, at: int, tokens: int) -> Chain:
    """Token `at` adds site 4 to sites 1, 2 and 3."""
    chain = Chain().grow(at - 1)
    chain.add(control=(ADD[0],))
    return chain.grow(tokens - at)


def certified(chain: Chain, site: int, *others: int) -> int:
    """What a site that holds a chain takes for certified after receipts from others."""
    machine = receiver(site, chain)
    for other in others:
        machine.on_receipt(receipt(other, chain), chain.entries[-1].token.instant)
    return machine.certificates.certified


def test_a_change_of_u_is_certified_by_the_old_u() -> None:
    """Protocol §5: a `control` entry that a majority of the old U has certified."""
    assert certified(changed(at=2, tokens=2), 1, 4) == 0
    assert certified(changed(at=2, tokens=2), 1, 3) == 2


def test_what_follows_a_change_is_certified_by_the_new_u() -> None:
    assert certified(changed(at=2, tokens=3), 1, 3) == 2
    assert certified(changed(at=2, tokens=3), 1, 3, 4) == 3


def test_receipts_for_tokens_that_are_not_here_yet_certify_nothing_of_them() -> None:
    """They may change U: a majority of the U that is known need not be one of the U that decides."""
    chain = Chain().grow(1)
    for change in ADD:
        chain.add(control=(change,))
    machine = receiver(3)
    for other in (1, 2):
        machine.on_receipt(receipt(other, chain), T(5))
    for entry in chain.entries:
        machine.on_token(entry.token, T(5))
    assert machine.ledger.universe == (1, 2, 3, 4, 5, 6, 7)
    assert machine.certificates.certified < 5


def test_a_restart_needs_no_receipts_from_sites_that_have_left_u() -> None:
    """L1: what this site has released was certified; and a change is certified before the next one is issued."""
    steps = [
        ControlEntry(ControlKind.ADD_SITE, 4, b""), ControlEntry(ControlKind.REMOVE_SITE, 2, b""),
        ControlEntry(ControlKind.ADD_SITE, 5, b""), ControlEntry(ControlKind.REMOVE_SITE, 3, b""),
    ]  # fmt: skip
    chain = Chain()
    for change in steps:
        chain.add(control=(change,))
    chain.grow(2)
    machine = Receiver(1, settings(), secret(1), chain.state(released=5))
    for other in (4, 5):
        machine.on_receipt(receipt(other, chain), T(6))
    entry = chain.add()
    machine.on_token(entry.token, T(7))
    for other in (4, 5):
        machine.on_receipt(receipt(other, chain), T(7))
    assert machine.certificates.certified == 7
