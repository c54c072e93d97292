"""Who and which: sites, servers, sources with incarnations, epochs, message labels.

All nodes share one 64-bit space, so that one `sender` field names any of them:

    1 .. 65,535                     sites (primary and secondary receivers)
    65,536 .. 131,071               reformation servers
    131,072 .. 2^32-1               others of the network (retransmit servers, customers)
    source number << 32 | incarnation   sources, source number from 1
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = [
    "FIRST_SERVER",
    "NO_EPOCH",
    "Epoch",
    "Label",
    "NodeId",
    "describe",
    "is_server",
    "is_site",
    "is_source",
    "other_id",
    "server_id",
    "source_id",
]

NodeId: TypeAlias = int

FIRST_SERVER = 1 << 16
_FIRST_OTHER = 1 << 17
_INCARNATION_BITS = 32


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


def other_id(number: int) -> NodeId:
    """The node id of retransmit server or customer `number`, from 1."""
    return _FIRST_OTHER + number


def source_id(number: int, incarnation: int = 1) -> NodeId:
    """The node id of a source in one of its incarnations."""
    return number << _INCARNATION_BITS | incarnation


def is_site(node: NodeId) -> bool:
    """Whether the id is that of a trusted receiver."""
    return 0 < node < FIRST_SERVER


def is_server(node: NodeId) -> bool:
    """Whether the id is that of a reformation server."""
    return FIRST_SERVER <= node < _FIRST_OTHER


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
    if node > _FIRST_OTHER:
        return f"edge{node - _FIRST_OTHER}"
    return f"site{node}"
