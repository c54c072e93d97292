"""Where the nodes of a market file are: numbers, and for the process of each stripe its name, address and ports.

A node has one process in each of its stripes. In the market's first stripe that is called as the node; in stripe 1 it
is NAME.s1, which no name of the file can be. Its ports are those of the node's table, further by `stripe_ports` for
each stripe; its address is the node's, or on loopback one of its own. A table [nodes.NAME.s1] says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from isocast.runtime.market.keys import MAX_PORT
from isocast.runtime.market.model import PORT_BLOCK, NodeRole
from isocast.terms.ids import NodeId, other_id, server_id, source_id

if TYPE_CHECKING:
    from isocast.runtime.market.nodes import Node
    from isocast.runtime.market.values import Values

__all__ = ["Spot", "check_ports", "give_numbers", "give_spots", "id_of", "process_name"]

_KINDS = 4
_LOOPBACKS = 255 // _KINDS - 1
"""Stripes that have loopback addresses of their own: four kinds of nodes have a second octet each."""


@dataclass(frozen=True, slots=True)
class _Space:
    """Nodes that share one range of numbers."""

    what: str
    octet: int
    """Of their loopback addresses."""
    node: Callable[[int], NodeId]


_SITES = _Space("receiver", 1, lambda number: number)
_SOURCES = _Space("source", 2, lambda number: source_id(number, 0))
_SERVERS = _Space("reformation server", 3, server_id)
_OTHERS = _Space("retransmit server or customer", 4, other_id)

_SPACES = {
    NodeRole.PRIMARY_RECEIVER: _SITES,
    NodeRole.SECONDARY_RECEIVER: _SITES,
    NodeRole.PRIMARY_SOURCE: _SOURCES,
    NodeRole.SECONDARY_SOURCE: _SOURCES,
    NodeRole.REFORMATION_SERVER: _SERVERS,
    NodeRole.RETRANSMIT_SERVER: _OTHERS,
    NodeRole.CUSTOMER: _OTHERS,
}


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one process is."""

    address: str
    port: int
    http_port: int
    tcp_port: int


def process_name(name: str, stripe: int, first: int) -> str:
    """What the process of a node in a stripe is called."""
    return name if stripe == first else f"{name}.s{stripe}"


def id_of(role: NodeRole, number: int) -> NodeId:
    """A node's id on the wire, the same in every stripe."""
    return _SPACES[role].node(number)


def give_numbers(nodes: Collection[Node]) -> None:
    """Each has the number that it asks for, or the lowest that is free."""
    taken: dict[tuple[str, int], str] = {}
    for node in nodes:
        space = _SPACES[node.role]
        number = node.values.count("number")
        if number:
            other = taken.setdefault((space.what, number), node.name)
            if other == node.name:
                node.number = number
            else:
                node.fault("number", f"{number} is already the number of {space.what} {other}")
    free: dict[str, int] = {}
    for node in nodes:
        if not node.number:
            what = _SPACES[node.role].what
            number = free.get(what, 0) + 1
            while (what, number) in taken:
                number += 1
            node.number = free[what] = number


def give_spots(nodes: Collection[Node], first: int, stripe_ports: int) -> None:
    """On loopback every process has an address of its own; elsewhere its node's must be given."""
    real = next((node.name for node in nodes for text in _given(node) if not IPv4Address(text).is_loopback), "")
    for node in nodes:
        _check_address(node.values, real)
        for values in node.apart.values():
            _check_address(values, real, inherits=True)
        node.spots = {stripe: _spot(node, stripe, first, stripe_ports) for stripe in node.stripes}


def _given(node: Node) -> list[str]:
    return [text for values in (node.values, *node.apart.values()) if (text := values.text("address"))]


def _check_address(values: Values, real: str, *, inherits: bool = False) -> None:
    address = values.text("address")
    if address and IPv4Address(address).is_multicast:
        values.fault("address", f"{address} is a group: give the address of the machine")
    elif address and IPv4Address(address).is_unspecified:
        values.fault("address", "0.0.0.0 is every interface: give the one that others reach")
    elif real and not address and not inherits and "address" not in values.broken:
        values.fault("address", f"must be given, as {real} is not on loopback either")
    elif real and address and IPv4Address(address).is_loopback:
        values.fault("address", f"{address} is a loopback address, which {real} cannot reach")


def _spot(node: Node, stripe: int, first: int, stripe_ports: int) -> Spot:
    own = node.apart.get(stripe)
    address = (own.text("address") if own is not None else "") or node.values.text("address")
    # At an address of its own the process needs no other ports than the node's.
    shift = 0 if own is not None and "address" in own.given else stripe_ports * (stripe - first)
    ports = []
    for key in ("port", "http_port", "tcp_port"):
        number = node.values.count(key)
        if key == "tcp_port" and not node.role.has_door:
            number = 0
        if own is not None and key in own.given:
            number = own.count(key)
        elif number:
            number += shift
        if number + (PORT_BLOCK - 1 if key == "port" else 0) > MAX_PORT:
            rule = f"would be {number} in stripe {stripe}: choose a lower one, or network.stripe_ports"
            node.fault(key, rule)
        ports.append(number)
    return Spot(address or _loopback(node, stripe - first), *ports)


def _loopback(node: Node, shift: int) -> str:
    octet = _SPACES[node.role].octet + _KINDS * (shift if shift <= _LOOPBACKS else 0)
    return f"127.{octet}.{node.number >> 8}.{node.number & 255}"


def check_ports(nodes: Collection[Node]) -> None:
    """No process shares a port of an address with any other, or with itself."""
    claims: dict[tuple[str, str, int], tuple[str, str]] = {}
    for node in nodes:
        for stripe, spot in node.spots.items():
            wanted = [("UDP", "port", spot.port + place) for place in range(PORT_BLOCK)]
            doors = (("http_port", spot.http_port), ("tcp_port", spot.tcp_port))
            wanted += [("TCP", key, number) for key, number in doors if number]
            who = node.name if stripe == min(node.stripes) else f"{node.name} in stripe {stripe}"
            for protocol, key, number in wanted:
                owner, used = claims.setdefault((spot.address, protocol, number), (who, key))
                if (owner, used) != (who, key):
                    where = f"{protocol} port {number} of {spot.address}"
                    node.fault(key, f"{where} is {used} of {owner} already: choose another port or address")
                    break
