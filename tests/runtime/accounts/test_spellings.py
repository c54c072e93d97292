"""What is kept as text for ever is spelled as the general encoder would: a repeated order is known after an upgrade."""

from __future__ import annotations

import json
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.desk import Lifetime, NewOrder, OrderKind, OrderStatus, Reason, ReportKind, TradeReport
from isocast.orders.needs import Side
from isocast.runtime.accounts.order_store import report_body, reports_of
from isocast.runtime.accounts.requests import content_digest

ENCODE = json.JSONEncoder(separators=(",", ":")).encode
WHOLE = st.integers(-(2**63), 2**64)
MAYBE = st.none() | WHOLE
REPORTS = st.builds(
    TradeReport,
    **dict.fromkeys(("number", "account", "order", "quantity", "filled", "filled_value", "left", "at"), WHOLE),
    **dict.fromkeys(("sequence", "trade", "last_quantity", "last_price"), WHOLE),
    **dict.fromkeys(("client_id", "original_id", "symbol", "text"), st.text()),
    **dict.fromkeys(("price", "trigger"), MAYBE),
    kind=st.sampled_from(ReportKind),
    status=st.sampled_from(OrderStatus),
    side=st.sampled_from(Side),
    kind_of_order=st.sampled_from(OrderKind),
    lifetime=st.sampled_from(Lifetime),
    reason=st.none() | st.sampled_from(Reason),
)
ORDERS = st.builds(
    NewOrder,
    client_id=st.text(),
    symbol=st.text(),
    side=st.sampled_from(Side),
    quantity=WHOLE,
    kind=st.sampled_from(OrderKind),
    price=MAYBE,
    trigger=MAYBE,
    lifetime=st.sampled_from(Lifetime),
    until=MAYBE,
    is_post_only=st.booleans(),
    display=WHOLE,
    is_open_offer=st.booleans(),
    owner=WHOLE,
)


@given(REPORTS)
def test_a_report_is_kept_as_json_and_read_as_it_was(report: TradeReport) -> None:
    assert report_body(report) == ENCODE(report)
    assert reports_of(f"[{report_body(report)},{report_body(report)}]") == [report, report]
    assert reports_of(report_body(report)) == [report]  # As rows were until version 0006.


@given(ORDERS)
def test_an_orders_digest_is_that_of_its_content_as_json(order: NewOrder) -> None:
    content = ENCODE(["NewOrder", *order[1:]])
    assert content_digest(order) == blake2b(content.encode(), digest_size=16).hexdigest()
