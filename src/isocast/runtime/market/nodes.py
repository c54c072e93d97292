"""The nodes of a market file: each table alone, then numbers, addresses, ports, and who belongs to whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from isocast.runtime.market.keys import MAX_PORT, NODE_TABLE, SETTINGS, STRIPE_KEYS
from isocast.runtime.market.model import PORT_BLOCK, NodePlan, NodeRole
from isocast.terms.ids import NodeId, other_id, server_id, source_id
from isocast.terms.market import Grade
from isocast.terms.quantities import suggestion
from isocast.terms.toml_files import Faults, Values, shown
from isocast.terms.topology import City, city, unknown_city

__all__ = [
    "LAYERS_MAX",
    "Node",
    "Nodes",
    "Spot",
    "check_ports",
    "give_numbers",
    "give_spots",
    "id_of",
    "node_plans",
    "process_name",
    "read_nodes",
]


# ---- Where the nodes of a market file are: numbers, and for the process of each stripe its name, address and ports.
#
# A node has one process in each of its stripes. In the market's first stripe that is called as the node; in stripe 1 it
# is NAME.s1, which no name of the file can be. Its ports are those of the node's table, further by `stripe_ports` for
# each stripe; its address is the node's, or on loopback one of its own. A table [nodes.NAME.s1] says otherwise.


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


def give_spots(nodes: Collection[Node], first: int, stripe_ports: int, slot: int = 0) -> None:
    """On loopback every process has an address of its own; elsewhere its node's must be given."""
    real = next((node.name for node in nodes for text in _given(node) if not IPv4Address(text).is_loopback), "")
    for node in nodes:
        _check_address(node.values, real)
        for values in node.apart.values():
            _check_address(values, real, inherits=True)
        node.spots = {stripe: _spot(node, stripe, first, stripe_ports, slot) for stripe in node.stripes}


def _given(node: Node) -> list[str]:
    return [text for values in (node.values, *node.apart.values()) if (text := values.text("address"))]


def _check_address(values: Values, real: str, *, inherits: bool = False) -> None:
    address = values.text("address")
    if address and IPv4Address(address).is_multicast:
        values.fault("address", f"{address} is a group: give the address of the machine")
    elif address and IPv4Address(address).is_unspecified:
        values.fault("address", "0.0.0.0 means every interface: give the address that other nodes reach")
    elif real and not address and not inherits and "address" not in values.broken:
        values.fault("address", f"is missing: {real} is not on loopback either")
    elif real and address and IPv4Address(address).is_loopback:
        values.fault("address", f"{address} is a loopback address, which {real} cannot reach")


def _spot(node: Node, stripe: int, first: int, stripe_ports: int, slot: int) -> Spot:
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
            rule = f"would be {number} in stripe {stripe}: choose a lower port, or a smaller network.stripe_ports"
            node.fault(key, rule)
        ports.append(number)
    return Spot(address or _loopback(node, stripe - first, slot), *ports)


def _loopback(node: Node, shift: int, slot: int) -> str:
    octet = _SPACES[node.role].octet + _KINDS * (shift if shift <= _LOOPBACKS else 0)
    return f"127.{octet}.{(node.number >> 8) + slot & 255}.{node.number & 255}"


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
                    node.fault(key, f"{where} is already {used} of {owner}: choose another port or address")
                    break


LAYERS_MAX = 3
"""Of receivers: primary, secondary, and one more below."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_STRIPE = re.compile(r"s(0|[1-9][0-9]{0,4})")
_KEYS = {key.name: key for key in NODE_TABLE.keys}


@dataclass(slots=True)
class Node:
    """A node while the file is being read."""

    name: str
    role: NodeRole
    values: Values
    number: int = 0
    stripes: tuple[int, ...] = ()
    """In which it has a process."""
    apart: dict[int, Values] = field(default_factory=dict)
    """What tables [nodes.NAME.s1] say of single stripes."""
    spots: dict[int, Spot] = field(default_factory=dict)
    """Where its process in each stripe is."""
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


def read_nodes(
    table: object, stripes: tuple[int, ...], bound_ns: int, faults: Faults, stripe_ports: int = 100, slot: int = 0
) -> Nodes:
    """Every node that has a role, with number, addresses, place and layer; every mistake is added to the faults.

    No `stripes` means that they are not known, because their key is wrong.
    """
    nodes = _tables(table, faults)
    give_numbers(nodes.values())
    for node in nodes.values():
        node.place = _place(node)
        _check_alone(node, stripes, bound_ns)
    give_spots(nodes.values(), (stripes or (0,))[0], stripe_ports, slot)
    check_ports(nodes.values())
    for node in nodes.values():
        _check_parent(node, nodes)
        _check_lines(node, nodes)
    _give_layers(nodes)
    for node in nodes.values():
        _check_backup(node, nodes)
    return nodes


def node_plans(nodes: Nodes, stripes: tuple[int, ...], bound_ns: int) -> tuple[NodePlan, ...]:
    """A process for each stripe of each node, of nodes without a fault."""
    return tuple(
        _plan(node, stripe, nodes, stripes[0], bound_ns)
        for stripe in stripes
        for node in nodes.values()
        if stripe in node.stripes
    )


def _plan(node: Node, stripe: int, nodes: Nodes, first: int, bound_ns: int) -> NodePlan:
    values, role, spot = node.values, node.role, node.spots[stripe]
    name = process_name(node.name, stripe, first)

    def here(*names: str) -> tuple[str, ...]:
        """The processes of these nodes in the same stripe."""
        return tuple(process_name(other, stripe, first) for other in names if other and stripe in nodes[other].stripes)

    return NodePlan(
        name=name,
        role=role,
        node=id_of(role, node.number),
        number=node.number,
        address=spot.address,
        port=spot.port,
        http_port=spot.http_port,
        tcp_port=spot.tcp_port,
        place=node.place,
        parent="".join(here(values.text("parent"))),
        backup="".join(here(values.text("backup"))),
        layer=2 if role is NodeRole.SECONDARY_SOURCE else max(node.layer, 1),
        line=node.line,
        lines=here(*values.names("lines")),
        retransmit=here(*values.names("retransmit")),
        grade=Grade(values.text("grade")),
        start=values.flag("start"),
        stripes=(stripe,),
        clock_error_ns=values.count("clock_bound", bound_ns),
        table="" if name == node.name else node.name,
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
            own = {part: value for part, value in entry.items() if not _is_stripe_table(part, value)}
            values = Values(own, NODE_TABLE.keys, faults, f"{key}.", others=SETTINGS)
            if values.text("role"):
                nodes[name] = _node(name, values)
                nodes[name].apart = _apart(entry, faults, key)
            else:
                nodes.without_role.add(name)
    return nodes


def _is_stripe_table(name: str, value: object) -> bool:
    return isinstance(value, Mapping) and _STRIPE.fullmatch(name) is not None


def _apart(entry: Mapping[str, object], faults: Faults, key: str) -> dict[int, Values]:
    """The tables of single stripes, such as [nodes.london.s1]."""
    found = {}
    for name, value in entry.items():
        if isinstance(value, Mapping) and _STRIPE.fullmatch(name):
            found[int(name[1:])] = Values(value, STRIPE_KEYS, faults, f"{key}.{name}.", defaults=False, others=SETTINGS)
    return found


def _node(name: str, values: Values) -> Node:
    role = NodeRole(values.text("role"))
    for key in NODE_TABLE.keys:
        if key.roles and role not in key.roles and key.name in values.given | values.broken:
            values.fault(key.name, f"is not for a {role}: leave it out")
    return Node(name, role, values)


def _check_alone(node: Node, stripes: tuple[int, ...], bound_ns: int) -> None:
    node.stripes = tuple(sorted(node.values.counts("stripes"))) or stripes or (0,)
    listed = ", ".join(map(str, stripes))
    strange = [stripe for stripe in node.stripes if stripes and stripe not in stripes]
    if strange:
        node.fault("stripes", f"the core has no stripe {strange[0]}: ring.stripes has {listed}")
        node.stripes = tuple(stripe for stripe in node.stripes if stripe in stripes) or stripes
    for stripe, values in node.apart.items():
        if stripes and stripe not in node.stripes:
            values.fault("address", f"the node has no process in stripe {stripe}: leave the table out")
    if node.values.count("clock_bound", bound_ns) > bound_ns:
        node.fault("clock_bound", "must not be more than clock.bound of the market: raise clock.bound")


def _place(node: Node) -> City | None:
    """A known city, or coordinates with any name."""
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
        node.fault("city", unknown_city(name, "; give latitude and longitude beside it"))
    return found


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
        return
    missing = [stripe for stripe in node.stripes if stripe not in parent.stripes]
    if missing:
        node.fault("stripes", f"its parent {name} has no process in stripe {missing[0]}")


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
                    node.fault("parent", f"is a cycle: {' → '.join(path)}")
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
        for stripe in node.stripes:
            if names and not any(stripe in nodes[name].stripes for name in names if name in nodes):
                node.fault("lines", f"has no receiver in stripe {stripe}: add one, or remove the stripe from stripes")
    if node.role is NodeRole.CUSTOMER:
        for name in node.values.names("retransmit"):
            server = _find(node, "retransmit", name, nodes)
            if server is not None and server.role is not NodeRole.RETRANSMIT_SERVER:
                node.fault("retransmit", f"must be retransmit servers; {name} is a {server.role}")
