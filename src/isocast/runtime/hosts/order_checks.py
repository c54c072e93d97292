"""Who signed what an operator says, by the roster.

What a node's operator door demands of an order before it carries it: one sentence for each that does not count. And
whose keys a correction of a trade is judged by: at release, where every site must find the same, and at a source's
door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from isocast.ring.notary import Notary
from isocast.ring.orders import is_within
from isocast.security.roster import RosterBook
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.limits import ORDER_BYTES
from isocast.wire.orders import NO_ORDER
from isocast.wire.packets import ControlEntry, Token

if TYPE_CHECKING:
    from isocast.floor.rights import Listed

__all__ = ["insist_on_order", "listed_at", "listed_now", "order_in"]


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


def listed_at(book: RosterBook | None, token: Token) -> Listed | None:
    """The keys that count at a token, by its roster and its instant; None in a market without a roster.

    A function of the log. Revocations are not: they count from the roster on that has them, or else sites would void
    different messages; a source's door refuses such a key at once.
    """
    if book is None:
        return None
    roster, instant = book.at(token.token_number), token.instant
    return roster.market, lambda node: roster.public_of(node, now_ns=instant)


def listed_now(book: RosterBook | None, now: int) -> Listed | None:
    """The keys that count now, by the newest roster, and that nobody has revoked."""
    if book is None:
        return None
    newest, revoked = book.newest, [said.public for said in book.revocations]

    def key_of(node: NodeId) -> bytes | None:
        found = newest.public_of(node, now_ns=now)
        return None if found in revoked else found

    return newest.market, key_of
