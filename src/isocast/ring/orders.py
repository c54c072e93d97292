"""Whether an operator ordered what a log says of the market itself (§6).

A token's owner puts control entries into the sequence, and a server forms a forced ring; neither decides what they say.
Each carries the operator's order (`wire.orders`), and whoever holds the log checks it: the signature, that the order's
number is above those of all orders before it in this log, and that the token's instant is within the order's time.

All of that but a revocation follows from the log and the rosters, so all sites judge alike. A revoked key orders
nothing from the moment on that somebody knows of it; but what others took into the log before stays there.
"""

from __future__ import annotations

from collections.abc import Iterable

from isocast.ring.notary import Notary
from isocast.terms.ids import NodeId
from isocast.wire.orders import ORDERED, force_entry, order_number, order_of
from isocast.wire.packets import ControlEntry, NewRing, Token
from isocast.wire.signing import SignedKind

__all__ = ["are_ordered", "first_disorder", "is_force_ordered", "is_within"]


def is_within(entry: ControlEntry, last: int, instant: int) -> bool:
    """Whether an order is above the last one, and a token of this instant may carry it."""
    if not entry.order:
        return False
    order = order_of(entry.order)
    return order.number > last and instant <= order.until


def are_ordered(token: Token, last: int, notary: Notary, *, settled: bool = False) -> bool:
    """Whether an operator ordered all that a token says of the market, after order `last`; counted if not.

    `settled`: others hold the token, and a revocation since does not undo it.
    """
    if not token.control or not notary.verifies:
        return True
    for entry in token.control:
        if entry.kind not in ORDERED:
            continue
        if not is_within(entry, last, token.instant):
            notary.refuse(SignedKind.CONTROL)
            return False
        if not notary.is_ordered(entry, token.stripe, token.token_number, settled=settled):
            return False
        last = order_number(entry)
    return True


def first_disorder(tokens: Iterable[Token], last: int, notary: Notary) -> NodeId | None:
    """Whose token of a log's continuation says of the market what no operator ordered; None if all is in order."""
    for token in tokens:
        if not are_ordered(token, last, notary, settled=True):
            return token.sender
        last = max([last, *map(order_number, token.control)])
    return None


def is_force_ordered(ring: NewRing, notary: Notary) -> bool:
    """Whether an operator ordered to force U as a ring does; counted if not. A ring that forces nothing needs none."""
    if not ring.forced or not notary.verifies:
        return True
    entry = force_entry(ring.ballot.server, ring.universe, ring.order)
    if not is_within(entry, 0, ring.start):
        notary.refuse(SignedKind.CONTROL)
        return False
    return notary.is_ordered(entry, ring.stripe, ring.first_token)
