"""The faults of a scenario: what goes wrong, when, for how long, and to whom."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from isocast.ring.ledger import UNIVERSE_MIN
from isocast.simulation.layers import NO_EDGE, Edge, Layers, archive_id, customer_id, narrow_id, stripe_sender_id
from isocast.simulation.scenario_keys import FAULT_TABLE
from isocast.terms.ids import FIRST_SERVER, NodeId, is_server, is_site, server_id, source_id
from isocast.terms.instants import NEVER, SECOND
from isocast.terms.quantities import suggestion
from isocast.terms.toml_files import Faults, Values, read_list
from isocast.terms.topology import City, city

__all__ = ["ATTACKS", "BYZANTINE", "ROSTER_FAULTS", "FaultTargets", "PlannedFault", "read_faults"]

_NEEDS: dict[str, tuple[str, ...]] = {
    "crash": ("sites",),
    "restart": ("sites",),
    "pause": ("sites",),
    "partition": ("groups",),
    "one-way": ("groups",),
    "isolate": ("sites",),
    "clock-step": ("sites", "step"),
    "clock-drift": ("sites", "rate"),
    "loss": ("loss",),
    "late": ("late", "by"),
    "lie": ("sites",),
    "equivocate": ("sites",),
    "forge": ("sites",),
    "usurp": ("sites",),
    "replay": ("sites",),
    "roster": ("sites",),
    "revoke": ("sites",),
    "stale": ("sites",),
    "steal": ("sites",),
    "slander": ("sites",),
    "drain": ("sites",),
    "add": ("sites",),
    "remove": ("sites",),
    "force": ("sites",),
}
"""Keys that a kind cannot do without."""

_MAY: dict[str, tuple[str, ...]] = {
    "crash": ("duration", "until", "disk", "inside"),
    "restart": ("disk",),
    "pause": ("duration", "until"),
    "partition": ("duration", "until"),
    "one-way": ("duration", "until"),
    "isolate": ("duration", "until"),
    "clock-step": ("duration", "until"),
    "clock-drift": ("duration", "until"),
    "loss": ("duration", "until"),
    "late": ("duration", "until"),
    "lie": ("duration", "until"),
    "equivocate": ("duration", "until"),
    "forge": ("duration", "until"),
    "usurp": ("duration", "until"),
    "replay": ("duration", "until"),
    "roster": (),
    "revoke": (),
    "stale": ("duration", "until"),
    "steal": ("duration", "until"),
    "slander": ("duration", "until"),
    "drain": ("duration", "until"),
    "add": (),
    "remove": (),
    "force": (),
}
"""Keys that a kind may have besides; any other would say something that nobody hears."""


_RATE_MAX_NS = SECOND // 20
"""What a clock may gain in a second: a hundred times what the worst oscillator does."""
BYZANTINE = ("equivocate", "forge", "usurp")
"""Kinds that make a member lie about what others rely on."""
ATTACKS = ("replay", "steal", "slander")
"""Kinds by which somebody else speaks in the names of members, who stay honest."""
ROSTER_FAULTS = ("roster", "revoke", "stale", "steal")
"""Kinds that need rosters which change."""
_CHANGES = ("drain", "add", "remove", "force")
"""What an operator does."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault, its nodes already resolved to ids."""

    kind: str
    """One of `scenario_keys.FAULT_KINDS`."""
    at_ns: int
    until_ns: int = NEVER
    """NEVER: it lasts to the end of the run."""
    sites: tuple[NodeId, ...] = ()
    groups: tuple[tuple[NodeId, ...], ...] = ()
    step_ns: int = 0
    rate_ppm: int = 0
    disk_kept: bool = True
    loss: float = 0.0
    inside: int = 0
    """Effects of a step that a crash inside it lets pass; 0: between two steps."""
    late: float = 0.0
    by_ns: int = 0


@dataclass(frozen=True, slots=True)
class FaultTargets:
    """Whom a fault may name."""

    file: str
    ring: tuple[City, ...]
    tree: Layers
    servers: int
    sources: int
    edge: Edge = NO_EDGE
    added: tuple[int, ...] = ()
    """Numbers of sites that come later."""

    @property
    def sites(self) -> int:
        """How many receivers there are, secondary ones included."""
        return self.tree.receivers + len(self.tree.secondary_sites)

    def node(self, values: Values, key: str, item: object) -> NodeId:
        """A number from 1 on, a city of the ring, its secondaries as city/1, or a name such as site3, server1."""
        if isinstance(item, int) and not isinstance(item, bool):
            return self._numbered(values, key, "site", item)
        if not isinstance(item, str):
            raise values.error(key, f"a node is a number or a name, not {item}")
        name, slash, child = item.rpartition("/")
        place = city(name if slash else item)
        if place is not None and place in self.ring:
            site = self.ring.index(place) + 1
            return self._below(values, key, site, child) if slash else site
        found = re.fullmatch(
            r"(site|server|source|archive|customer|sender|narrow)\s*(\d{1,9})", item.strip().casefold()
        )
        if found:
            return self._numbered(values, key, found[1], int(found[2]))
        raise values.error(key, f'unknown site "{item}"{suggestion(item, [known.name for known in self.ring])}')

    def _below(self, values: Values, key: str, site: NodeId, child: str) -> NodeId:
        children = self.tree.children(site)
        if not child.isdecimal() or not 1 <= int(child) <= len(children):
            rule = f"it has secondaries 1 to {len(children)}" if children else "this scenario has no secondaries"
            raise values.error(key, f'unknown secondary "{child}" of {self.ring[site - 1].name}: {rule}')
        return children[int(child) - 1]

    def _numbered(self, values: Values, key: str, role: str, number: int) -> NodeId:
        edge = self.edge
        many = {
            "site": self.sites,
            "server": self.servers,
            "source": self.sources + edge.secondary_sources,
            "archive": edge.archives,
            "customer": edge.customers + edge.latest_customers,
            "sender": edge.stripe_senders,
            "narrow": edge.narrow_customers,
        }[role]
        if role == "site" and number in self.added:
            return number
        if not 1 <= number <= many:
            rule = f"{role}s are 1 to {many}" if many else f"this scenario has no lasting {role}s"
            raise values.error(key, f"unknown {role} {number}: {rule}")
        made = {
            "server": server_id,
            "source": source_id,
            "archive": archive_id,
            "customer": customer_id,
            "sender": stripe_sender_id,
            "narrow": narrow_id,
        }
        return made[role](number) if role in made else number


def read_faults(tables: object, roster: FaultTargets) -> tuple[PlannedFault, ...]:
    """All `[[faults]]` tables, in the order of the file."""
    faults = Faults(roster.file, collect=False)
    read = read_list({"faults": tables}, FAULT_TABLE, faults)
    if read and roster.sites == 1:
        raise faults.error("faults", "a central exchange has no sites for faults to hit")
    later = replace(roster, added=_added(read, roster))
    return tuple(_fault(values, later) for values in read)


def _added(tables: list[Values], roster: FaultTargets) -> tuple[int, ...]:
    """The numbers of all sites that come later."""
    named = [values.items("sites") for values in tables if values.text("kind") == "add"]
    added = [item for items in named for item in items if isinstance(item, int)]
    return tuple([number for number in added if roster.sites < number < FIRST_SERVER])


def _fault(values: Values, roster: FaultTargets) -> PlannedFault:
    kind = values.text("kind")
    for key in _NEEDS[kind]:
        if key not in values:
            raise values.error(key, f'is required by kind = "{kind}"')
    for name in [key.name for key in FAULT_TABLE.keys if key.name in values]:
        if name not in ("kind", "at", *_NEEDS[kind], *_MAY[kind]):
            raise values.error(name, f'means nothing to kind = "{kind}"')
    return PlannedFault(
        kind=kind,
        at_ns=values.count("at"),
        until_ns=_end(values),
        sites=_sites(values, roster),
        groups=_groups(values, kind, roster),
        step_ns=values.count("step"),
        rate_ppm=_rate(values),
        disk_kept=values.text("disk") == "kept",
        loss=values.number("loss"),
        inside=_inside(values),
        late=values.number("late"),
        by_ns=values.count("by"),
    )


def _rate(values: Values) -> int:
    """How fast a clock runs away, in parts per million."""
    rate_ns = values.count("rate")
    if abs(rate_ns) > _RATE_MAX_NS:
        raise values.error("rate", "a clock gains or loses at most 0.05 seconds in a second")
    return rate_ns // 1_000


def _inside(values: Values) -> int:
    inside = values.count("inside")
    if inside and "duration" not in values:
        raise values.error("inside", "needs duration: how long the node is down, from whenever that is")
    if inside and values.text("disk") == "lost":
        raise values.error("inside", "is about what a disk has, and this one is lost: leave out one of the two")
    return inside


def _end(values: Values) -> int:
    at = values.count("at")
    if "duration" in values and "until" in values:
        raise values.error("until", "say either duration or until, not both")
    if "duration" in values:
        return at + values.count("duration")
    until = values.count("until", NEVER)
    if until <= at:
        raise values.error("until", "must be later than at")
    return until


def _sites(values: Values, roster: FaultTargets) -> tuple[NodeId, ...]:
    if "sites" not in values:
        return ()
    nodes = tuple(roster.node(values, "sites", item) for item in values.items("sites"))
    if not nodes:
        raise values.error("sites", "must name at least one")
    if len(set(nodes)) < len(nodes):
        raise values.error("sites", "names a node twice")
    _check_changes(values, nodes, roster)
    if values.text("disk") == "lost" and any(node in roster.tree.secondary_sites for node in nodes):
        rule = "a secondary receiver without its disk forgot what it released: it can crash, not lose its disk"
        raise values.error("disk", rule)
    if values.text("disk") == "lost" and any(node in _forwarders(roster) for node in nodes):
        raise values.error("disk", "a secondary source without its outbox lost what it had accepted: it can only crash")
    return nodes


def _forwarders(roster: FaultTargets) -> tuple[NodeId, ...]:
    return roster.edge.secondary_source_nodes(roster.sources)


def _votes(node: NodeId) -> bool:
    return is_site(node) or is_server(node)


def _check_changes(values: Values, nodes: tuple[NodeId, ...], roster: FaultTargets) -> None:
    """Planned changes, and lies, are of primary receivers; an added site has a number that was never used."""
    kind = values.text("kind")
    if kind in ("forge", "usurp") and any(node in roster.tree.secondary_sites or not _votes(node) for node in nodes):
        raise values.error("sites", f'kind = "{kind}" is for primary receivers and servers')
    if kind in ("roster", "stale", "replay") and any(not _votes(node) for node in nodes):
        raise values.error("sites", f'kind = "{kind}" is for receivers and servers')
    if kind not in (*_CHANGES, "lie", "equivocate", "revoke", "steal", "slander"):
        return
    if any(not is_site(node) or node in roster.tree.secondary_sites for node in nodes):
        raise values.error("sites", f'kind = "{kind}" is for primary receivers')
    if kind == "add" and any(node not in roster.added for node in nodes):
        raise values.error("sites", f"a site that is added needs an unused number: {roster.sites + 1} or more")
    if kind == "force" and len(nodes) < UNIVERSE_MIN:
        raise values.error("sites", f"must name at least {UNIVERSE_MIN}: they are U from then on")


def _groups(values: Values, kind: str, roster: FaultTargets) -> tuple[tuple[NodeId, ...], ...]:
    if "groups" not in values:
        return ()
    groups = []
    for items in values.items("groups"):
        if not isinstance(items, list) or not items:
            raise values.error("groups", "each group is a list of at least one node")
        groups.append(tuple(roster.node(values, "groups", item) for item in items))
    nodes = [node for group in groups for node in group]
    if len(set(nodes)) < len(nodes):
        raise values.error("groups", "no node may be named twice")
    if kind == "one-way" and len(groups) != 2:  # noqa: PLR2004  # from, to
        raise values.error("groups", f'kind = "one-way" needs two groups, from and to, not {len(groups)}')
    if len(groups) < 2:  # noqa: PLR2004  # a partition has two sides
        raise values.error("groups", f"needs at least two groups, not {len(groups)}")
    return tuple(groups)
