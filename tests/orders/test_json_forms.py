"""What traders say and hear as JSON: exact, and the same after a round trip."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.desk import (
    BidRequest,
    CancelRequest,
    Lifetime,
    LotKind,
    LotRequest,
    NewOrder,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    RevealRequest,
    SealedBidRequest,
    TakeRequest,
    TradeReport,
    TradingRequest,
)
from isocast.orders.json_forms import (
    PRICE_MAX,
    QUANTITY_MAX,
    bid_of,
    cancel_of,
    lot_of,
    order_of,
    price_text,
    price_units,
    read_price,
    read_until,
    replace_of,
    report_fields,
    report_of,
    request_fields,
    reveal_of,
    sealed_bid_of,
    take_of,
)
from isocast.orders.needs import Side
from isocast.runtime.accounts.web_forms import BID, CANCEL, LOT, ORDER, REPLACE, REVEAL, SEALED_BID, TAKE
from isocast.runtime.net.json_service import Fields, read_body
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instants import instant_text

PRICES = st.integers(0, PRICE_MAX)
IDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)
INSTANTS = st.integers(0, 2**62)
QUANTITIES = st.integers(1, QUANTITY_MAX)


@given(PRICES)
def test_a_price_is_the_same_after_a_round_trip_in_every_spelling(units: int) -> None:
    text = price_text(units)
    assert read_price(text) == price_units(text) == price_units(Decimal(text)) == units
    assert len(text.partition(".")[2]) in (2, 4)
    if units < 2**40:
        assert price_units(units / 10_000) == units


@given(st.floats(0, 1_000_000))
def test_a_float_is_taken_only_if_no_other_float_is_nearer_to_its_price(price: float) -> None:
    nearest = round(price * 10_000)
    if float(price_text(nearest)) == price:
        assert price_units(price) == nearest
    else:
        with pytest.raises(ValueError, match=re.escape(repr(price))):
            price_units(price)


@given(INSTANTS)
def test_an_instant_is_the_same_after_a_round_trip(nanoseconds: int) -> None:
    assert read_until(instant_text(nanoseconds)) == nanoseconds


ORDERS = st.builds(
    NewOrder,
    client_id=IDS,
    symbol=st.sampled_from(["ISO", "BRK.B"]),
    side=st.sampled_from(Side),
    quantity=QUANTITIES,
    kind=st.sampled_from([OrderKind.LIMIT, OrderKind.MARKET, OrderKind.STOP, OrderKind.STOP_LIMIT]),
    price=st.none() | PRICES,
    trigger=st.none() | PRICES,
    lifetime=st.sampled_from(Lifetime),
    until=st.none() | INSTANTS,
    is_post_only=st.booleans(),
    display=st.integers(0, QUANTITY_MAX),
    is_open_offer=st.booleans(),
    owner=st.integers(0, 2**32 - 1),
)
CANCELS = st.builds(CancelRequest, IDS, IDS, st.integers(0, QUANTITY_MAX), unchanged=st.none())
MAYBE_PRICES = st.none() | PRICES
REPLACES = st.builds(
    ReplaceRequest, IDS, IDS, st.none() | st.integers(0, QUANTITY_MAX), MAYBE_PRICES, MAYBE_PRICES, unchanged=st.none()
)


@given(ORDERS | CANCELS | REPLACES)
def test_a_service_reads_what_a_client_writes(request: NewOrder | CancelRequest | ReplaceRequest) -> None:
    raw = json.dumps(request_fields(request)).encode()
    match request:
        case NewOrder():
            assert order_of(read_body(raw, ORDER)) == request
        case CancelRequest():
            assert cancel_of(read_body(raw, CANCEL)) == request
        case ReplaceRequest():
            assert replace_of(read_body(raw, REPLACE)) == request


@pytest.mark.parametrize(
    "request_, fields, read",
    [
        (TakeRequest("a", 2**64 - 1, 5), TAKE, take_of),
        (LotRequest("a", "ISO", LotKind.SECOND_PRICE, 5, 100, 10**18, 10**9, 7), LOT, lot_of),
        (LotRequest("a", "ISO", LotKind.DUTCH, 5, 100, start=200, step=1), LOT, lot_of),
        (SealedBidRequest("a", 7, 100, "ab" * 32), SEALED_BID, sealed_bid_of),
        (RevealRequest("a", "b", 100, "ab" * 16), REVEAL, reveal_of),
        (BidRequest("a", 7, 5, 100), BID, bid_of),
    ],
)
def test_offers_lots_and_bids_are_read_as_they_are_written(
    request_: TradingRequest, fields: Fields, read: Callable[[Any], TradingRequest]
) -> None:
    assert read(read_body(json.dumps(request_fields(request_)).encode(), fields)) == request_


REPORTS = st.builds(
    TradeReport,
    number=st.integers(0, 2**53),
    account=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(ReportKind),
    status=st.sampled_from(OrderStatus),
    client_id=IDS,
    original_id=IDS,
    order=st.integers(0, 2**64 - 1),
    symbol=st.just("ISO"),
    side=st.sampled_from(Side),
    kind_of_order=st.sampled_from(OrderKind),
    lifetime=st.sampled_from(Lifetime),
    quantity=QUANTITIES,
    filled=QUANTITIES,
    filled_value=st.integers(0, PRICE_MAX * QUANTITY_MAX),
    left=QUANTITIES,
    price=st.none() | PRICES,
    trigger=st.none() | PRICES,
    at=INSTANTS,
    sequence=QUANTITIES,
    trade=QUANTITIES,
    last_quantity=QUANTITIES,
    last_price=PRICES,
    reason=st.none() | st.sampled_from(Reason),
    text=st.text(),
)


@given(REPORTS)
def test_a_client_reads_the_report_that_a_service_writes(report: TradeReport) -> None:
    assert report_of(json.loads(json.dumps(report_fields(report)))) == report


@given(REPORTS, st.data())
def test_a_report_with_a_field_that_is_none_of_its_kind_is_one_error(report: TradeReport, data: st.DataObject) -> None:
    said: dict[str, Any] = report_fields(report)
    name = data.draw(st.sampled_from(sorted(said)))
    if data.draw(st.booleans()):
        del said[name]
    else:
        said[name] = data.draw(st.sampled_from([[], {}, True, 1.5, "\x00", "9" * 5_000]))
    if name in {"client_id", "original_id", "symbol", "text"} and isinstance(said.get(name), str):
        assert report_of(said)
        return
    with pytest.raises(RemoteProtocolError):
        report_of(said)
