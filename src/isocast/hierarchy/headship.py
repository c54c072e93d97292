"""Secondary groups: who heads each on a ring, and those that a primary receiver speaks for (§4.1, §4.3).

It heads what `heads` gives it on the ring of its epoch: its own group, and those of sites that are off the ring. A new
ring takes groups away and gives others, and nothing else does. Its tokens report the least of what all of them hold.

An *orphan* is a secondary receiver whose head is up for the ring and silent to it, or is no member of the ring at all
(below the second layer). It sends its secondary tokens to an adopter too, and that is all it takes:

1. Whoever hears a secondary token of a group that it does not head, from a member of that group and in its own epoch,
   adopts the sender: it counts it as one that returns. So nothing is dropped that the orphan lacks from then on, and it
   is named as one to rely on when it holds all that may have been dropped before.
2. An orphan that is silent for G tokens is named and waited for no longer, like any other member.
3. An orphan that hears its head again sends its tokens to both for two cycles, then secondary token 0 to the adopter:
   it is handed back.
4. A new ring keeps orphans counted where the adopter's own epoch goes on in it. Elsewhere they come as in 1.

In between an orphan may be counted by nobody. Then its head is off the ring or named by its own, or names the orphan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from isocast.hierarchy.secondary_ring import SecondaryRing, SecondaryRingSnapshot, Tally
from isocast.ring.effects import GroupLeft, SecondaryHandedBack, SecondaryReturned, SecondaryStalled
from isocast.ring.receiver import Mode, Receiver
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import NO_LIMIT, SecondaryToken

__all__ = ["NO_GROUPS", "Group", "GroupPlan", "Headship", "Orphans"]


# Who heads each secondary group on a ring (§4.1, §4.3; protocol §5): a function of NEWRING and the market's
# file.
#
# Every node computes it alike, so nobody is told and nobody votes: a new ring is news enough. A group is named after
# the head that the file gives it, and keeps that name under any other.
#
# the file's head, while it is on the ring
# else the backup that most of its members name, of those on the ring
# else a member of the ring with less than its share of the groups: the nearest to the file's head
#
# A group whose head is a secondary receiver itself keeps it whatever the ring: rings say nothing of secondary
# receivers. Its members find out by silence (`allegiance`).


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
        # Heads of the file first, then backups: the remaining groups are spread over the remaining sites.
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
        """The site that counts a group's members while their head is silent.

        Below the second layer: the head of their head; else the site that would head the group without its head.
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


class Orphans:
    """Secondary receivers of other groups that count here. Effects leave through the receiver."""

    def __init__(self, receiver: Receiver, plan: GroupPlan, stall_tokens: int) -> None:
        """None."""
        self.floor = NO_LIMIT
        self.groups: dict[NodeId, NodeId] = {}
        """Of each orphan its group."""
        self._receiver = receiver
        self._plan = plan
        self._stall_tokens = stall_tokens
        self._tally = Tally(receiver)
        self._epoch = NO_EPOCH

    @property
    def counted(self) -> tuple[NodeId, ...]:
        """For whom memory waits."""
        return tuple([member for member in self.groups if self._tally.counts(member)])

    def settle(self, others: int) -> None:
        """Watch for those who are silent, and infer; `others` is what the groups hold that this site heads."""
        receiver, schedule, tally = self._receiver, self._receiver.schedule, self._tally
        if schedule is None or receiver.mode is Mode.SEALED:
            return
        self._enter()
        tally.look_away()
        for member, group in list(self.groups.items()):
            size = self._plan.groups[group].size
            if tally.overdue(member, size, max(self._stall_tokens, 2 * size)):
                receiver.emit(SecondaryStalled(group, member, tally.passed.get(member, 0)))
                self._forget(member)
        self.floor = tally.floor(self.counted, schedule.first_token)
        # What others may drop is the least of all: an orphan that comes while its head is waited for has lost nothing.
        tally.claim(min(self.floor, others))

    def on_token(self, token: SecondaryToken, now: int) -> None:
        """A member of a group that this site does not head asks to be counted."""
        receiver, sender, group = self._receiver, token.sender, token.group
        if token.epoch != receiver.accepted:
            receiver.on_other_epoch(token.epoch, sender, now)
            return
        if receiver.mode is Mode.SEALED or receiver.schedule is None or receiver.site not in receiver.schedule.ring:
            return
        self._enter()
        if token.token_number == 0:
            if sender in self.groups:
                receiver.emit(SecondaryHandedBack(group, sender))
                self._forget(sender)
            return
        if sender not in self.groups:
            self.groups[sender] = group
            self._tally.stalled[sender] = None
        if self._tally.hear(sender, token.token_number, self._plan.groups[group].size):
            receiver.emit(SecondaryReturned(group, sender, token.token_number))

    def _enter(self) -> None:
        """A new epoch: keep those that counted in the one whose log it continues."""
        receiver = self._receiver
        if receiver.accepted == self._epoch or receiver.ring is None:
            return
        if receiver.ring.cut_epoch != self._epoch:
            for member in list(self.groups):
                self._forget(member)
        self._epoch = receiver.accepted
        self._tally.enter(receiver.ring.first_token - 1)

    def drop(self, group: NodeId) -> None:
        """This site heads the group itself now."""
        for member in [member for member, of in self.groups.items() if of == group]:
            self._forget(member)

    def _forget(self, member: NodeId) -> None:
        del self.groups[member]
        self._tally.forgive(member)
        self._tally.passed.pop(member, None)


class Headship:
    """Everything that a primary receiver's `secstable` speaks of."""

    orphans_class = Orphans

    def __init__(
        self, receiver: Receiver, plan: GroupPlan, stall_tokens: int, ring_class: type[SecondaryRing] = SecondaryRing
    ) -> None:
        """Heads nothing before there is a ring."""
        self.rings: dict[NodeId, SecondaryRing] = {}
        """By group."""
        self.orphans = self.orphans_class(receiver, plan, stall_tokens)
        self._receiver = receiver
        self._plan = plan
        self._stall_tokens = stall_tokens
        self._ring_class = ring_class
        self._epoch = NO_EPOCH

    def settle(self, now: int) -> None:
        """Take over, pass, watch and infer; then `floor` is true."""
        self._assign()
        for ring in self.rings.values():
            ring.settle(now)
        self.orphans.settle(min([ring.floor for ring in self.rings.values()], default=NO_LIMIT))

    @property
    def floor(self) -> int:
        """What everybody below this site holds; no limit where nobody is."""
        return min([self.orphans.floor, *[ring.floor for ring in self.rings.values()]])

    def next_deadline(self) -> int:
        """When a secondary token is due."""
        return min([ring.next_deadline() for ring in self.rings.values()], default=NEVER)

    def on_token(self, token: SecondaryToken, now: int) -> None:
        """Of a group that this site heads, or of an orphan; a stranger's is nobody's."""
        self._assign()
        ring, group = self.rings.get(token.group), self._plan.groups.get(token.group)
        if ring is not None:
            ring.on_token(token, now)
        elif group is not None and token.sender in group.members:
            self.orphans.on_token(token, now)

    def snapshot(self) -> tuple[SecondaryRingSnapshot, ...]:
        """Of each group that this site heads."""
        return tuple([ring.snapshot() for ring in self.rings.values()])

    def _assign(self) -> None:
        """Take the groups that the ring of this epoch gives, and leave the others."""
        receiver = self._receiver
        if receiver.ring is None or receiver.accepted == self._epoch:
            return
        self._epoch = receiver.accepted
        heads = self._plan.heads(receiver.ring.ring)
        for group in [group for group in self.rings if heads.get(group) != receiver.site]:
            del self.rings[group]
            receiver.emit(GroupLeft(receiver.accepted, group, heads[group]))
        for group, head in heads.items():
            if head == receiver.site and group not in self.rings:
                members = (head, *self._plan.groups[group].members)
                self.rings[group] = self._ring_class(receiver, group, members, self._stall_tokens)
                self.orphans.drop(group)
