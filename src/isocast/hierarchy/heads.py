"""Who heads each secondary group on a ring (§4.1, §4.3; protocol §5): a function of NEWRING and the market's file.

Every node computes it alike, so nobody is told and nobody votes: a new ring is news enough. A group is named after the
head that the file gives it, and keeps that name under any other.

    the file's head, while it is on the ring
    else the backup that most of its members name, of those on the ring
    else a member of the ring with less than its share of the groups: the nearest to the file's head

A group whose head is a secondary receiver itself keeps it whatever the ring: rings say nothing of secondary receivers.
Its members find out by silence (`allegiance`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from isocast.terms.ids import NodeId

__all__ = ["NO_GROUPS", "Group", "GroupPlan"]


@dataclass(frozen=True, slots=True)
class Group:
    """A secondary group as the market's file has it."""

    head: NodeId
    """Also its name."""
    members: tuple[NodeId, ...]
    """Without the head, in the order that everybody knows."""
    backups: tuple[NodeId | None, ...]
    """Of each member."""

    @property
    def size(self) -> int:
        """b: the members and a head."""
        return 1 + len(self.members)


def _everywhere_alike(group: NodeId, site: NodeId) -> int:  # noqa: ARG001
    return 0


class GroupPlan:
    """All secondary groups of a market, and who heads them when."""

    def __init__(
        self, groups: Iterable[Group] = (), distance: Callable[[NodeId, NodeId], int] = _everywhere_alike
    ) -> None:
        """`distance` is that between a group's own head and another site: the same at every node."""
        self.groups: dict[NodeId, Group] = {group.head: group for group in sorted(groups, key=lambda g: g.head)}
        self._distance = distance
        self._of = {member: group for group in self.groups.values() for member in group.members}
        self._top = [group for group in self.groups.values() if group.head not in self._of]

    @classmethod
    def below(
        cls,
        parents: Mapping[NodeId, NodeId],
        backups: Mapping[NodeId, NodeId],
        distance: Callable[[NodeId, NodeId], int] = _everywhere_alike,
    ) -> GroupPlan:
        """From whom each secondary receiver asks first, and second."""
        members: dict[NodeId, list[NodeId]] = {}
        for site, parent in parents.items():
            members.setdefault(parent, []).append(site)
        groups = [Group(head, tuple(of), tuple([backups.get(m) for m in of])) for head, of in members.items()]
        return cls(groups, distance)

    def group_of(self, site: NodeId) -> Group | None:
        """The group in which a site is a member; None for a primary receiver."""
        return self._of.get(site)

    def backup_of(self, site: NodeId) -> NodeId | None:
        """Whom a secondary receiver asks second."""
        group = self._of.get(site)
        return group.backups[group.members.index(site)] if group is not None else None

    def askers_of(self, site: NodeId) -> tuple[NodeId, ...]:
        """The secondary receivers that may turn to a site: its children, and those whose backup it is."""
        return tuple([m for m, group in self._of.items() if site in (group.head, self.backup_of(m))])

    def heads(self, ring: Sequence[NodeId]) -> dict[NodeId, NodeId]:
        """The head of every group on a ring; nobody heads what is below an empty one."""
        found = {head: head for head in self.groups if head in self._of}
        if not ring:
            return found
        load: Counter[NodeId] = Counter()
        homeless: list[Group] = []
        # Those of the file first, then backups: whoever is left is spread over what they leave.
        for group in self._top:
            head = group.head if group.head in ring else _backup(group, ring)
            if head is None:
                homeless.append(group)
            else:
                found[group.head] = head
                load[head] += 1
        share = -(-len(self._top) // len(ring))
        for group in homeless:
            light = [site for site in ring if load[site] < share]
            head = min(light, key=lambda site: (self._distance(group.head, site), _rendezvous(group.head, site)))
            found[group.head] = head
            load[head] += 1
        return found

    def adopter(self, group: NodeId, ring: Sequence[NodeId]) -> NodeId | None:
        """Who counts a group's members while their head is silent, and whoever heads it otherwise is not.

        Below the second layer whoever heads their head; else whoever would head the group if its head left the ring.
        """
        above = self._of.get(group)
        if above is not None:
            return self.heads(ring).get(above.head)
        head = self.heads(ring).get(group)
        return self.heads([site for site in ring if site != head]).get(group)


NO_GROUPS = GroupPlan()
"""A market without secondary receivers."""


def _backup(group: Group, ring: Sequence[NodeId]) -> NodeId | None:
    """The backup that most members name; of several the lowest number."""
    named = Counter([backup for backup in group.backups if backup in ring])
    return min(named, key=lambda site: (-named[site], site), default=None)


def _rendezvous(group: NodeId, site: NodeId) -> bytes:
    """An order of the sites that differs from group to group, and is the same everywhere."""
    return blake2b(f"{group}/{site}".encode(), digest_size=8).digest()
