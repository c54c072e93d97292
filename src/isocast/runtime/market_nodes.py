"""The nodes of a market file: each table alone, then numbers, addresses, ports, and who belongs to whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from isocast.runtime.market import PORT_BLOCK, Grade, NodePlan, NodeRole
from isocast.runtime.market_values import Faults, Values, shown
from isocast.runtime.node_keys import NODE_TABLE
from isocast.terms.ids import NodeId, other_id, server_id, source_id
from isocast.terms.suggestion import suggestion
from isocast.terms.topology import CITIES, City, city

__all__ = ["LAYERS_MAX", "Node", "Nodes", "node_plans", "read_nodes"]

LAYERS_MAX = 3
"""Of receivers: primary, secondary, and one more below."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KEYS = {key.name: key for key in NODE_TABLE.keys}


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


@dataclass(slots=True)
class Node:
    """A node while the file is being read."""

    name: str
    role: NodeRole
    values: Values
    number: int = 0
    address: str = ""
    place: City | None = None
    layer: int = 0
    """0: unknown, because something above it is wrong."""

    def fault(self, key: str, rule: str) -> None:
        """Something is wrong with this key of the node."""
        self.values.fault(key, rule)

    @property
    def line(self) -> bool:
        """Whether it has a line to customers."""
        return self.role in _KEYS["line"].roles and self.values.flag("line")


class Nodes(dict[str, Node]):
    """The nodes of a file that have a role, by name."""

    def __init__(self) -> None:
        """Empty; `without_role` are the names of the others, so that nobody is told that they do not exist."""
        super().__init__()
        self.without_role: set[str] = set()


def read_nodes(table: object, stripes: tuple[int, ...], bound_ns: int, faults: Faults) -> Nodes:
    """Every node that has a role, with number, address, place and layer; whatever is wrong is among the faults.

    No `stripes` means that they are not known, because their key is wrong.
    """
    nodes = _tables(table, faults)
    _give_numbers(nodes)
    _give_addresses(nodes)
    for node in nodes.values():
        node.place = _place(node)
        _check_alone(node, stripes, bound_ns)
    _check_ports(nodes)
    for node in nodes.values():
        _check_parent(node, nodes)
        _check_lines(node, nodes)
    _give_layers(nodes)
    for node in nodes.values():
        _check_backup(node, nodes)
    return nodes


def node_plans(nodes: Nodes, stripes: tuple[int, ...], bound_ns: int) -> tuple[NodePlan, ...]:
    """The values of nodes without a fault."""
    return tuple(_plan(node, stripes, bound_ns) for node in nodes.values())


def _plan(node: Node, stripes: tuple[int, ...], bound_ns: int) -> NodePlan:
    values, role = node.values, node.role
    return NodePlan(
        name=node.name,
        role=role,
        node=_SPACES[role].node(node.number),
        number=node.number,
        address=node.address,
        port=values.count("port"),
        http_port=values.count("http_port"),
        tcp_port=values.count("tcp_port") if role.has_door else 0,
        place=node.place,
        parent=values.text("parent"),
        backup=values.text("backup"),
        layer=2 if role is NodeRole.SECONDARY_SOURCE else max(node.layer, 1),
        line=node.line,
        lines=values.names("lines"),
        retransmit=values.names("retransmit"),
        grade=Grade(values.text("grade")),
        start=values.flag("start"),
        stripes=(values.count("stripe"),) if role.is_source else stripes,
        clock_error_ns=values.count("clock_bound", bound_ns),
    )


# ---- one by one


def _tables(table: object, faults: Faults) -> Nodes:
    if not isinstance(table, Mapping):
        faults.add("nodes", "must be tables, one for each process, such as [nodes.london]")
        return Nodes()
    nodes = Nodes()
    for name, entry in table.items():
        key = f"nodes.{name}"
        if not isinstance(entry, Mapping):
            faults.add(key, f"must be a table, [{key}], not {shown(entry)}")
        elif not _NAME.fullmatch(name):
            rule = "a name has small letters, digits and hyphens, at most 32 characters, a letter first"
            faults.add(key, f'{rule}, not "{name}"')
        else:
            values = Values(entry, NODE_TABLE.keys, faults, f"{key}.")
            if values.text("role"):
                nodes[name] = _node(name, values)
                continue
            nodes.without_role.add(name)
            if "role" not in values.broken:
                values.fault("role", f"must be given: {_KEYS['role'].type_text}")
    return nodes


def _node(name: str, values: Values) -> Node:
    role = NodeRole(values.text("role"))
    for key in NODE_TABLE.keys:
        if key.roles and role not in key.roles and key.name in values.given | values.broken:
            values.fault(key.name, f"is not for a {role}: leave it out")
    return Node(name, role, values)


def _check_alone(node: Node, stripes: tuple[int, ...], bound_ns: int) -> None:
    stripe = node.values.count("stripe")
    if node.role.is_source and stripes and stripe not in stripes:
        listed = ", ".join(map(str, stripes))
        node.fault("stripe", f"is none of ring.stripes: {listed}, not {stripe}")
    if node.values.count("clock_bound", bound_ns) > bound_ns:
        node.fault("clock_bound", "must not be more than the market's, clock.bound: raise that")


def _place(node: Node) -> City | None:
    """A known city, or coordinates with whatever name."""
    values = node.values
    name = values.text("city").strip()
    given = [key for key in ("latitude", "longitude") if key in values.given | values.broken]
    if len(given) == 1:
        missing = "longitude" if given == ["latitude"] else "latitude"
        node.fault(missing, f"must be given beside {given[0]}")
        return None
    if given:
        label = name or node.name
        return City(label, label[:3].upper(), values.number("latitude"), values.number("longitude"))
    found = city(name) if name else None
    if name and found is None:
        hint = suggestion(name, [place.name for place in CITIES] + [place.code for place in CITIES])
        node.fault("city", f'unknown city "{name}"{hint or "; give latitude and longitude beside it"}')
    return found


# ---- numbers, addresses, ports


def _give_numbers(nodes: Nodes) -> None:
    taken: dict[tuple[str, int], str] = {}
    for node in nodes.values():
        space = _SPACES[node.role]
        number = node.values.count("number")
        if number:
            other = taken.setdefault((space.what, number), node.name)
            if other == node.name:
                node.number = number
            else:
                node.fault("number", f"{number} is already the number of {space.what} {other}")
    free: dict[str, int] = {}
    for node in nodes.values():
        if not node.number:
            what = _SPACES[node.role].what
            number = free.get(what, 0) + 1
            while (what, number) in taken:
                number += 1
            node.number = free[what] = number


def _give_addresses(nodes: Nodes) -> None:
    """On loopback everybody has an address of his own; elsewhere it must be given."""
    real = next((node.name for node in nodes.values() if node.values.text("address") and not _loops(node)), "")
    for node in nodes.values():
        node.address = node.values.text("address")
        if node.address and IPv4Address(node.address).is_multicast:
            node.fault("address", f"{node.address} is a group: give the address of the machine")
        elif node.address and IPv4Address(node.address).is_unspecified:
            node.fault("address", "0.0.0.0 is every interface: give the one that others reach")
        elif real and not node.address and "address" not in node.values.broken:
            node.fault("address", f"must be given, as {real} is not on loopback either")
        elif real and node.address and _loops(node):
            node.fault("address", f"{node.address} is a loopback address, which {real} cannot reach")
        if not node.address:
            number = node.number
            node.address = f"127.{_SPACES[node.role].octet}.{number >> 8}.{number & 255}"


def _loops(node: Node) -> bool:
    return IPv4Address(node.values.text("address")).is_loopback


def _check_ports(nodes: Nodes) -> None:
    """Nobody shares a port of an address with anybody, himself included."""
    claims: dict[tuple[str, str, int], tuple[str, str]] = {}
    for node in nodes.values():
        port = node.values.count("port")
        wanted = [("UDP", "port", port + place) for place in range(PORT_BLOCK)]
        wanted += [("TCP", key, node.values.count(key)) for key in ("http_port", "tcp_port") if _uses(node, key)]
        for protocol, key, number in wanted:
            owner, used = claims.setdefault((node.address, protocol, number), (node.name, key))
            if (owner, used) != (node.name, key):
                where = f"{protocol} port {number} of {node.address}"
                node.fault(key, f"{where} is {used} of {owner} already: choose another port or address")
                break


def _uses(node: Node, key: str) -> bool:
    return bool(node.values.count(key)) and (key == "http_port" or node.role.has_door)


# ---- who belongs to whom


def _find(node: Node, key: str, name: str, nodes: Nodes) -> Node | None:
    """The node that a key names; a fault if there is none."""
    found = nodes.get(name)
    if found is None:
        if name not in nodes.without_role:
            node.fault(key, f'there is no node "{name}"{suggestion(name, nodes)}')
    elif found is node:
        node.fault(key, "names the node itself")
        return None
    return found


def _check_parent(node: Node, nodes: Nodes) -> None:
    if node.role not in _KEYS["parent"].roles:
        return
    name = node.values.text("parent")
    receiver = node.role is NodeRole.SECONDARY_RECEIVER
    wanted = "a receiver" if receiver else "a primary source"
    if not name:
        if "parent" not in node.values.broken:
            node.fault("parent", f"must be given: the name of {wanted}")
        return
    parent = _find(node, "parent", name, nodes)
    if parent is None:
        return
    if not (parent.role.is_receiver if receiver else parent.role is NodeRole.PRIMARY_SOURCE):
        node.fault("parent", f"must be {wanted}; {name} is a {parent.role}")
    elif not receiver and parent.values.count("stripe") != node.values.count("stripe"):
        node.fault("stripe", f"must be that of its parent {name}, {parent.values.count('stripe')}")


def _give_layers(nodes: Nodes) -> None:
    told: set[str] = set()
    for node in nodes.values():
        if not node.role.is_receiver:
            continue
        path = [node.name]
        above = node
        while above.role is NodeRole.SECONDARY_RECEIVER:
            parent = nodes.get(above.values.text("parent"))
            if parent is None or parent is above or not parent.role.is_receiver:
                break
            path.append(parent.name)
            if parent.name in path[:-1]:
                if parent is node and not told.intersection(path):
                    told.update(path)
                    node.fault("parent", f"goes round in a circle: {' → '.join(path)}")
                break
            above = parent
        else:
            node.layer = len(path)
            if node.layer > LAYERS_MAX:
                node.fault(
                    "parent", f"would be in layer {node.layer} ({' → '.join(path)}): at most {LAYERS_MAX} layers"
                )


def _check_backup(node: Node, nodes: Nodes) -> None:
    name = node.values.text("backup")
    if not name or node.role is not NodeRole.SECONDARY_RECEIVER:
        return
    backup = _find(node, "backup", name, nodes)
    if backup is None:
        return
    if not backup.role.is_receiver:
        node.fault("backup", f"must be a receiver; {name} is a {backup.role}")
    elif name == node.values.text("parent"):
        node.fault("backup", f"is the parent, {name}: name another receiver, or leave it out")
    elif node.layer and backup.layer and backup.layer >= node.layer:
        rule = f"must be of a layer above {node.name}'s, which is {node.layer}"
        node.fault("backup", f"{rule}; {name} is in layer {backup.layer}")


def _check_lines(node: Node, nodes: Nodes) -> None:
    if node.role in _KEYS["lines"].roles:
        names = node.values.names("lines")
        if not names and "lines" not in node.values.broken:
            node.fault("lines", "must be given: the names of receivers, two or more if possible")
        for name in names:
            receiver = _find(node, "lines", name, nodes)
            if receiver is None:
                continue
            if not receiver.role.is_receiver:
                node.fault("lines", f"must be receivers; {name} is a {receiver.role}")
            elif not receiver.line:
                node.fault("lines", f"{name} has no line: set nodes.{name}.line = true, or hear another")
    if node.role is NodeRole.CUSTOMER:
        for name in node.values.names("retransmit"):
            server = _find(node, "retransmit", name, nodes)
            if server is not None and server.role is not NodeRole.RETRANSMIT_SERVER:
                node.fault("retransmit", f"must be retransmit servers; {name} is a {server.role}")
