"""What a node's operator door demands of an order before it carries it: one sentence for each that does not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocast.ring.notary import Notary
from isocast.ring.orders import is_within
from isocast.terms.errors import LocalProtocolError
from isocast.wire.limits import ORDER_BYTES
from isocast.wire.orders import NO_ORDER
from isocast.wire.packets import ControlEntry

__all__ = ["insist_on_order", "order_in"]


def order_in(request: Mapping[str, Any]) -> bytes:
    """The order that a request brings, in hexadecimal; none where it brings none."""
    text = request.get("order", "")
    try:
        order = bytes.fromhex(text)
    except (TypeError, ValueError):
        order = b"?"
    if len(order) not in (0, ORDER_BYTES):
        raise LocalProtocolError(f'"order" has {ORDER_BYTES} bytes in hexadecimal, as isocast ring order writes them')
    return order


def insist_on_order(notary: Notary, entry: ControlEntry, stripe: int, token_number: int, last: int, now: int) -> None:
    """LocalProtocolError, which says what to do, unless the operator signed this, after order `last`."""
    if not notary.verifies:
        return
    if entry.order == NO_ORDER:
        raise LocalProtocolError("the market's operator did not sign this: run it where identity-operator.key is")
    if not notary.is_ordered(entry, stripe, token_number):
        rule = "the operator's key under the roster in force did not sign this for this ring"
        raise LocalProtocolError(f"{rule}: sign it anew, with the key that isocast keys show lists")
    if not is_within(entry, last, now):
        raise LocalProtocolError("this order was overtaken by a newer one, or its time is over: sign it anew")
