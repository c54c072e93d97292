"""An operator's orders (§6): the signed word behind every control entry that changes something, and every forced ring.

    order   number 8 | until 8 | serial 8 | signature 64
    signed  until 8 | number 8 | kind 2 | subject 8 | the entry's bytes

Little-endian, as all of a packet; around what is signed stand the purpose, market, stripe and serial. `number` rises
from order to order of a stripe's log, so an order counts once. `until` is the latest scheduled instant of a token that
may carry it, so an order that was kept back is worth nothing later. Both are read from the log alone: every site comes
to the same verdict. An order to force U names no subject, as nobody knows before which server will form the ring.

Of the other kinds, a roster is signed by the market's root, and a mark changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, iter_unpack, pack
from typing import NamedTuple

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.wire.limits import ORDER_BYTES
from isocast.wire.packets import ControlEntry, ControlKind
from isocast.wire.signing import SignedKind, Signer

__all__ = [
    "NO_ORDER",
    "ORDERED",
    "OperatorOrder",
    "force_entry",
    "listed_universe",
    "order_fault",
    "order_number",
    "order_of",
    "order_statement",
    "with_order",
]

NO_ORDER = b""
"""Of an entry in a network without signatures, and of one that needs none."""
ORDERED = (ControlKind.ADD_SITE, ControlKind.REMOVE_SITE, ControlKind.STRIPE_PLAN, ControlKind.FORCE_UNIVERSE)
"""The kinds that count only by an order."""
_LIMITS = Struct("<Qq")
_STATEMENT = Struct("<qQHQ")


class OperatorOrder(NamedTuple):
    """What an order says beside the entry that it is for."""

    number: int
    until: int
    signature: bytes
    """With the roster's serial before it."""


def order_of(raw: bytes) -> OperatorOrder:
    """The parts of an order; RemoteProtocolError for bytes that are none."""
    if len(raw) != ORDER_BYTES:
        raise RemoteProtocolError(f"an order of {len(raw)} bytes, {ORDER_BYTES} expected")
    number, until = _LIMITS.unpack_from(raw)
    return OperatorOrder(number, until, raw[_LIMITS.size :])


def order_number(entry: ControlEntry) -> int:
    """The number of an entry's order; 0 for an entry without one."""
    return int(_LIMITS.unpack_from(entry.order)[0]) if entry.order else 0


def order_fault(raw: bytes) -> str | None:
    """An entry carries a whole order, or none."""
    return None if len(raw) in (0, ORDER_BYTES) else f"an order of {len(raw)} bytes"


def order_statement(entry: ControlEntry, number: int, until: int) -> bytes:
    """What the operator signs."""
    subject = 0 if entry.kind is ControlKind.FORCE_UNIVERSE else entry.subject
    return _STATEMENT.pack(until, number, entry.kind, subject) + entry.body


def with_order(entry: ControlEntry, signer: Signer, stripe: int, number: int, until: int) -> ControlEntry:
    """An entry as the operator orders it for a stripe."""
    signature = signer.sign(SignedKind.CONTROL, stripe, NO_EPOCH, order_statement(entry, number, until))
    return entry._replace(order=_LIMITS.pack(number, until) + signature)


# ---- U, by force


def force_entry(server: NodeId, universe: Sequence[NodeId], order: bytes = NO_ORDER) -> ControlEntry:
    """What the first token of a forced ring says, for ever, of who forced U, to what, and by whose order."""
    return ControlEntry(ControlKind.FORCE_UNIVERSE, server, pack(f"<{len(universe)}I", *universe), order)


def listed_universe(entry: ControlEntry) -> tuple[NodeId, ...]:
    """U as such an entry lists it."""
    whole = len(entry.body) // 4 * 4
    return tuple([site for (site,) in iter_unpack("<I", entry.body[:whole])])
