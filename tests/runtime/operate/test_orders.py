"""The operator's hand: who signs orders, with which key, and what a market makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.market.test_roster_files import market_in

from isocast.ring.notary import Notary
from isocast.runtime.hosts.order_checks import insist_on_order, order_in
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import load_book, read_news, save_revocation
from isocast.runtime.market.roster_making import (
    RosterWish,
    make_request,
    read_request,
    renew_roster,
    revocation_of,
    rotate_identity,
)
from isocast.runtime.operate.orders import BroughtOrder, OperatorHand, order_text, read_order
from isocast.security.signing import RosterVerifier
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.wire.orders import order_number, order_of
from isocast.wire.packets import ControlEntry, ControlKind

REMOVE3 = ControlEntry(ControlKind.REMOVE_SITE, 3, b"")
PLAN = ControlEntry(ControlKind.STRIPE_PLAN, 3, b"digest")


@pytest.fixture
def keyed(tmp_path: Path) -> Market:
    market = market_in(tmp_path)
    init_keys(market)
    return market


def notary_of(market: Market) -> Notary:
    book = load_book(market)
    return Notary(None, RosterVerifier(book.newest.market, book))


def test_the_operators_key_signs_and_the_market_believes_it(keyed: Market) -> None:
    signed = OperatorHand(keyed).sign(REMOVE3, 0)
    assert notary_of(keyed).is_ordered(signed, 0, 1)
    insist_on_order(notary_of(keyed), signed, 0, 1, 0, order_of(signed.order).until)


def test_numbers_rise_whatever_this_clock_shows(keyed: Market) -> None:
    assert order_number(OperatorHand(keyed).sign(REMOVE3, 0, last=1 << 62)) == (1 << 62) + 1


def test_a_market_without_a_roster_asks_for_no_order(tmp_path: Path) -> None:
    hand = OperatorHand(market_in(tmp_path))
    hand.insist()
    assert hand.sign(REMOVE3, 0) == REMOVE3
    insist_on_order(Notary(), REMOVE3, 0, 1, 0, 0)


def test_an_order_counts_in_no_other_stripe_and_no_other_market_of_the_same_name(
    keyed: Market, tmp_path_factory: pytest.TempPathFactory
) -> None:
    twin = market_in(tmp_path_factory.mktemp("twin"))
    init_keys(twin)
    assert twin.name == keyed.name
    signed = OperatorHand(keyed).sign(REMOVE3, 0)
    assert not notary_of(keyed).is_ordered(signed, 1, 1)
    assert not notary_of(twin).is_ordered(signed, 0, 1)


def test_a_revoked_operator_orders_nothing_and_what_is_in_the_log_stays(keyed: Market) -> None:
    signed = OperatorHand(keyed).sign(REMOVE3, 0)
    judge = notary_of(keyed)
    save_revocation(keyed, revocation_of(keyed, "operator"))
    after = notary_of(keyed)
    assert judge.is_ordered(signed, 0, 1)
    assert not after.is_ordered(signed, 0, 1)
    assert after.is_ordered(signed, 0, 1, settled=True)
    with pytest.raises(ConfigurationError, match="was revoked, and orders nothing: isocast keys rotate operator"):
        OperatorHand(keyed).sign(REMOVE3, 0)
    renew_roster(keyed)
    assert not notary_of(keyed).is_ordered(signed, 0, 1), "nor under the roster that took the key away"


def test_a_new_key_signs_under_its_own_roster_and_an_old_one_under_the_roster_in_force(keyed: Market) -> None:
    running = load_book(keyed)
    judge = Notary(None, RosterVerifier(running.newest.market, running))
    renew_roster(keyed, RosterWish(extend=("operator",)))
    assert judge.is_ordered(OperatorHand(keyed).sign(REMOVE3, 0, roster=1), 0, 1), "nodes that know roster 1 alone"
    assert not judge.is_ordered(OperatorHand(keyed).sign(REMOVE3, 0), 0, 1)
    follower = make_request("operator", rotate_identity(keyed, "operator"))
    renew_roster(keyed, RosterWish(requests=(read_request(follower),)))
    signed = OperatorHand(keyed).sign(REMOVE3, 0, roster=1)
    assert not judge.is_ordered(signed, 0, 1)
    read_news(keyed, running)
    assert judge.is_ordered(signed, 0, 1)


def test_without_the_key_one_sentence_says_what_to_do(keyed: Market) -> None:
    key = keyed.keys_directory / "identity-operator.key"
    key.unlink()
    with pytest.raises(ConfigurationError, match=r"is not here: run this where it is, or bring its order"):
        OperatorHand(keyed).insist()


# ---- orders that travel


@pytest.mark.parametrize("entry", [REMOVE3, PLAN])
def test_an_order_travels_as_one_line(keyed: Market, tmp_path: Path, entry: ControlEntry) -> None:
    brought = BroughtOrder(0, OperatorHand(keyed).sign(entry, 0))
    path = tmp_path / "order"
    path.write_text(order_text(brought), encoding="ascii")
    assert read_order(path) == brought
    (keyed.keys_directory / "identity-operator.key").unlink()
    hand = OperatorHand(keyed, brought)
    hand.insist()
    assert hand.sign(entry, 0) == brought.entry
    with pytest.raises(ConfigurationError, match="is for something else"):
        hand.sign(entry._replace(subject=2), 0)
    with pytest.raises(ConfigurationError, match="is for something else"):
        hand.sign(entry, 1)
    with pytest.raises(ConfigurationError, match="was carried out already, or a newer one was"):
        hand.sign(entry, 0, order_number(brought.entry))


@given(st.one_of(st.binary(max_size=400), st.text("isocat-order 0123456789abcdef", max_size=400).map(str.encode)))
def test_any_bytes_are_an_order_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile-order"
    path.write_bytes(raw)
    with pytest.raises(ConfigurationError, match="is no order: isocast ring order writes one"):
        read_order(path)


# ---- at a door


def test_a_door_says_what_is_wrong_with_an_order(keyed: Market) -> None:
    judge, signed = notary_of(keyed), OperatorHand(keyed).sign(REMOVE3, 0)
    order = order_of(signed.order)
    with pytest.raises(LocalProtocolError, match="the market's operator did not sign this"):
        insist_on_order(judge, REMOVE3, 0, 1, 0, 0)
    with pytest.raises(LocalProtocolError, match="did not sign this for this ring: sign it anew"):
        insist_on_order(judge, signed, 1, 1, 0, 0)
    for last, now in ((order.number, 0), (0, order.until + 1)):
        with pytest.raises(LocalProtocolError, match="overtaken by a newer one, or its time is over"):
            insist_on_order(judge, signed, 0, 1, last, now)


@pytest.mark.parametrize("text", ["ff", "zz", 7, None, ["00"], "0" * 178])
def test_a_door_takes_whole_orders_alone(text: object) -> None:
    with pytest.raises(LocalProtocolError, match='"order" has 88 bytes in hexadecimal'):
        order_in({"order": text})
    assert order_in({}) == b""
