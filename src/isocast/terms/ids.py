"""Who and which: sites, servers, sources with incarnations, epochs, message labels.

All nodes share one 64-bit space, so that one `sender` field names any of them:

    1 .. 65,535                     sites (primary and secondary receivers)
    65,536 .. 131,071               reformation servers
    131,072                         the operator, who signs changes and sends no packet
    131,073 .. 2^30-1               others of the network (retransmit servers, customers)
    2^30 .. 2^31-2                  further operators, by their names: they sign, and send no packet
    2^31-1                          the box office, which signs what customers bought and sends no packet
    2^31 .. 2^32-1                  guests: listeners without a seat; known to themselves and at a door, in no packet
    source number << 32 | incarnation   sources, source number from 1
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, TypeAlias

__all__ = [
    "BOX_OFFICE",
    "FIRST_SERVER",
    "GATEWAY_SHIFT",
    "NO_EPOCH",
    "OPERATOR",
    "Epoch",
    "Label",
    "NodeId",
    "describe",
    "guest_id",
    "is_guest",
    "is_server",
    "is_site",
    "is_source",
    "operator_id",
    "other_id",
    "server_id",
    "source_id",
    "without_incarnation",
]

NodeId: TypeAlias = int

FIRST_SERVER = 1 << 16
_FIRST_OTHER = 1 << 17
_FIRST_NAMED = 1 << 30
_FIRST_GUEST = 1 << 31
_INCARNATION_BITS = 32
GATEWAY_SHIFT = 20
"""An account's gateway is in its number above so many bits: the upper 12 of 32."""

OPERATOR: NodeId = _FIRST_OTHER
BOX_OFFICE: NodeId = _FIRST_GUEST - 1


class Epoch(NamedTuple):
    """A ballot, and the ring that it formed: compared number first, then server (protocol §1)."""

    number: int
    server: NodeId

    def __str__(self) -> str:
        """Short form for people: ``3.1`` is ballot 3 of server 1."""
        return f"{self.number}.{max(self.server - FIRST_SERVER, 0)}"


NO_EPOCH = Epoch(0, 0)
"""Before the first ballot."""


class Label(NamedTuple):
    """(s, M_s): the M-th message of source s (§2.1)."""

    source: NodeId
    number: int


def server_id(number: int) -> NodeId:
    """The node id of reformation server `number`, from 1."""
    return FIRST_SERVER + number


def operator_id(name: str) -> NodeId:
    """The node id of an operator with a name: `OPERATOR` has none but that; of others it follows from the name."""
    if name == "operator":
        return OPERATOR
    return _FIRST_NAMED + int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) % (BOX_OFFICE - _FIRST_NAMED)


def other_id(number: int) -> NodeId:
    """The node id of retransmit server or customer `number`, from 1."""
    return _FIRST_OTHER + number


def guest_id(number: int) -> NodeId:
    """The node id of guest `number`, from 0: at a door one of its places, in a program its own and nobody else's."""
    return _FIRST_GUEST + number


def source_id(number: int, incarnation: int = 1) -> NodeId:
    """The node id of a source in one of its incarnations."""
    return number << _INCARNATION_BITS | incarnation


def without_incarnation(node: NodeId) -> NodeId:
    """The id that all incarnations of a source share; of anybody else its own."""
    return node >> _INCARNATION_BITS << _INCARNATION_BITS or node


def is_site(node: NodeId) -> bool:
    """Whether the id is that of a trusted receiver."""
    return 0 < node < FIRST_SERVER


def is_server(node: NodeId) -> bool:
    """Whether the id is that of a reformation server."""
    return FIRST_SERVER <= node < _FIRST_OTHER


def is_guest(node: NodeId) -> bool:
    """Whether the id is that of a listener without a seat, which no key and no packet belongs to."""
    return node >> 31 == 1


def is_source(node: NodeId) -> bool:
    """Whether the id is that of a source."""
    return node >> _INCARNATION_BITS > 0


def describe(node: NodeId) -> str:
    """A node id as a person would write it."""
    if is_source(node):
        number, incarnation = node >> _INCARNATION_BITS, node & ((1 << _INCARNATION_BITS) - 1)
        return f"source{number}" if incarnation == 1 else f"source{number}#{incarnation}"
    if is_server(node):
        return f"server{node - FIRST_SERVER}"
    if node in (OPERATOR, BOX_OFFICE):
        return "operator" if node == OPERATOR else "box-office"
    if _FIRST_NAMED <= node < BOX_OFFICE:
        return f"operator{node}"
    if is_guest(node):
        return f"guest{node - _FIRST_GUEST}"
    if node > _FIRST_OTHER:
        return f"edge{node - _FIRST_OTHER}"
    return f"site{node}"
