"""Nothing changes the market without the operator's order (§6), and no order counts twice or too late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ring.makers import START, Chain, T, blank, founding, secret, settings
from tests.ring.test_notary import WORLD, notary, receiver, signed_by

from isocast.ring.effects import ControlOutcome, ControlSettled, OrderMissed
from isocast.ring.inputs import ControlRequested
from isocast.ring.ledger import Checkpoint
from isocast.ring.orders import are_ordered, first_disorder
from isocast.ring.receiver import Receiver
from isocast.simulation.signatures import KeyedSigner
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import OPERATOR, NodeId
from isocast.wire.limits import ORDER_BYTES
from isocast.wire.orders import OperatorOrder, force_entry, order_number, order_of, with_order
from isocast.wire.packets import ControlEntry, ControlKind, Token
from isocast.wire.signing import SignedKind

ADD4 = ControlEntry(ControlKind.ADD_SITE, 4, b"")
REMOVE3 = ControlEntry(ControlKind.REMOVE_SITE, 3, b"")
MARK = ControlEntry(ControlKind.MARK, 3, b"lunch")
LATE = T(50)


def ordered(
    entry: ControlEntry = ADD4, number: int = 1, until: int = LATE, *, stripe: int = 0, by: NodeId = OPERATOR
) -> ControlEntry:
    return with_order(entry, KeyedSigner(WORLD, by), stripe, number, until)


def changed(*control: ControlEntry) -> Token:
    """Token 1 of the first ring, as its owner signs it."""
    return signed_by(1, Chain().add(control=control).token)


def after(token: Token, site: NodeId = 2) -> Receiver:
    machine = receiver(site)
    machine.on_token(token, token.instant)
    return machine


def missed(machine: Receiver) -> list[OrderMissed]:
    return [effect for effect in machine.out if isinstance(effect, OrderMissed)]


def test_a_token_with_the_operators_order_changes_u() -> None:
    machine = after(changed(ordered()))
    assert machine.held == 1
    assert machine.ledger.universe == (1, 2, 3, 4)
    assert machine.ledger.head.order == 1
    assert machine.notary.refused == {}


REFUSED: dict[str, ControlEntry] = {
    "no order": ADD4,
    "signed by a site": ordered(by=1),
    "for another stripe": ordered(stripe=1),
    "for another entry": ADD4._replace(order=ordered(REMOVE3).order),
    "for another site": ControlEntry(ControlKind.ADD_SITE, 5, b"", ordered().order),
    "too late": ordered(until=T(1) - 1),
    "number zero": ordered(number=0),
    "another number": ADD4._replace(order=(7).to_bytes(8, "little") + ordered().order[8:]),
    "another time": ADD4._replace(order=ordered().order[:8] + T(90).to_bytes(8, "little") + ordered().order[16:]),
    "a plan without one": ControlEntry(ControlKind.STRIPE_PLAN, 2, bytes(24)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_owner_that_changes_the_market_by_itself_is_not_followed(name: str) -> None:
    machine = after(changed(REFUSED[name]))
    assert machine.held == 0
    assert machine.notary.refused == {SignedKind.CONTROL: 1}
    assert missed(machine) == [OrderMissed(1, 1)]
    assert 1 in machine.distrusted
    assert machine.conflicts == 1


def test_marks_and_rosters_need_no_order() -> None:
    roster = ControlEntry(ControlKind.ROSTER, 2, bytes(40))
    assert after(changed(MARK, roster)).held == 1


def test_without_signatures_a_word_is_enough() -> None:
    machine = Receiver(2, settings(), secret(2), blank())
    machine.install(founding(), 0, (), START // 2)
    token = Chain().add(control=(ADD4,)).token
    machine.on_token(token, token.instant)
    assert machine.held == 1


@pytest.mark.parametrize("number", [1, 2])
def test_an_order_is_not_carried_out_twice_nor_after_a_newer_one(number: int) -> None:
    chain = Chain()
    first = signed_by(1, chain.add(control=(ordered(number=2),)).token)
    replayed = signed_by(2, chain.fork().add(control=(ordered(REMOVE3, number=number),)).token)
    other = receiver(3)
    other.on_token(first, T(1))
    other.on_token(replayed, T(2))
    assert other.held == 1
    assert missed(other) == [OrderMissed(2, 2)]
    other.on_token(signed_by(2, chain.add(control=(ordered(REMOVE3, number=3),)).token), T(2))
    assert other.held == 2
    assert other.ledger.head.order == 3


def test_two_orders_in_one_token_ascend() -> None:
    first, second = ordered(number=1), ordered(REMOVE3, number=2)
    assert are_ordered(changed(first, second), 0, notary(2))
    assert not are_ordered(changed(second, first), 0, notary(2))
    assert not are_ordered(changed(first, first), 0, notary(2))


def test_the_last_order_is_a_function_of_the_log() -> None:
    chain = Chain()
    for control in ((ordered(number=4),), (), (ordered(REMOVE3, number=9),), ()):
        chain.add(control=control)
    ledger = receiver(1).ledger
    for entry in chain.entries:
        ledger.append(entry)
    assert [ledger.order_at(number) for number in range(5)] == [0, 4, 4, 9, 9]
    ledger.collect(1)
    assert ledger.floor.order == 4
    ledger.truncate(2)
    assert ledger.head.order == ledger.order_at(2) == 4
    assert Checkpoint(order=4).copy().order == 4


def test_a_continuation_is_judged_by_the_orders_before_it() -> None:
    chain = Chain()
    chain.add(control=(ordered(number=4),))
    chain.add(control=(ordered(REMOVE3, number=5),))
    tokens = [entry.token for entry in chain.entries]
    assert first_disorder(tokens, 3, notary(2)) is None
    assert first_disorder(tokens, 4, notary(2)) == 1
    assert first_disorder([tokens[0], replace(tokens[1], control=(REMOVE3,))], 3, notary(2)) == 2


# ---- what a site carries


def settled(machine: Receiver) -> list[ControlOutcome]:
    return [effect.outcome for effect in machine.out if isinstance(effect, ControlSettled)]


@pytest.mark.parametrize("entry", [ADD4, ordered(by=1), ordered(stripe=1)])
def test_a_site_carries_nothing_that_others_would_refuse(entry: ControlEntry) -> None:
    machine = receiver(1)
    machine.on_event(ControlRequested(entry), START // 2)
    assert settled(machine) == [ControlOutcome.NOT_ORDERED]
    assert machine.membership.waiting == []


def test_an_order_that_waited_too_long_is_given_back() -> None:
    machine = receiver(1)
    plan = ControlEntry(ControlKind.STRIPE_PLAN, 2, bytes(24))
    machine.on_event(ControlRequested(ordered(plan, until=T(1) - 1)), START // 2)
    machine.on_event(ControlRequested(ordered(plan, number=2)), START // 2)
    machine.take(T(1))
    assert machine.held == 1
    assert machine.ledger.head.order == 2
    assert machine.membership.waiting == []


def test_an_order_that_has_to_wait_holds_up_those_after_it() -> None:
    """Else the one that waits would be overtaken, and worth nothing."""
    machine = receiver(1)
    plan = ControlEntry(ControlKind.STRIPE_PLAN, 2, bytes(24))
    machine.on_event(ControlRequested(ordered(plan, number=2)), START // 2)
    machine.on_event(ControlRequested(ordered(ADD4, number=1)), START // 2)
    assert list(map(order_number, machine.membership.waiting)) == [1, 2]
    machine.take(T(1))
    assert machine.ledger.head.order == 0, "U changes only on top of a certified token"
    assert len(machine.membership.waiting) == 2


# ---- bytes


@given(st.binary(max_size=2 * ORDER_BYTES))
def test_any_bytes_are_an_order_or_refused(raw: bytes) -> None:
    if len(raw) == ORDER_BYTES:
        found = order_of(raw)
        assert isinstance(found, OperatorOrder)
        assert order_number(ADD4._replace(order=raw)) == found.number
        assert not notary(2).is_ordered(ADD4._replace(order=raw), 0, 1)
    else:
        with pytest.raises(RemoteProtocolError):
            order_of(raw)


def test_a_forced_u_is_ordered_whoever_forms_the_ring() -> None:
    order = ordered(force_entry(0, (1, 2))).order
    assert notary(2).is_ordered(force_entry(77_777, (1, 2), order), 0, 1)
    assert not notary(2).is_ordered(force_entry(77_777, (1, 3), order), 0, 1)
