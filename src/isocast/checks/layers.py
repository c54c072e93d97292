"""Which secondary receivers anybody may rely on: those that somebody on the ring counts, or should.

Memory waits for a secondary receiver as long as the head of its group does, and that head's own, up to a member of the
ring. Whoever heads a group says so in each epoch; until somebody has, everybody below is relied on. A site that is not
the head may count a member too, one whose own head is silent to it: from the moment at which it says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from isocast.checks.facts import GroupHeaded, HandedBack, Returned, Stalled
from isocast.checks.view import EpochView, trim
from isocast.terms.ids import Epoch, NodeId

__all__ = ["Coverage"]

_HEADS_MAX = 65_536
"""Heads of epochs long past are of no interest: rings of hundreds of groups, a hundred epochs."""


class Coverage:
    """Who is below whom, who heads whom in which epoch, and who has been given up by whom."""

    def __init__(self, parents: Mapping[NodeId, NodeId]) -> None:
        """Everybody is relied on."""
        self._parents = dict(parents)
        self._groups: dict[NodeId, list[NodeId]] = {}
        for site, parent in parents.items():
            self._groups.setdefault(parent, []).append(site)
        self._heads: dict[tuple[Epoch, NodeId], NodeId] = {}
        self._stalled: dict[tuple[NodeId, NodeId], None] = {}
        """(who gave up, whom)."""
        self._adopted: dict[tuple[NodeId, NodeId], None] = {}
        """(who counts, whom): members of a group that the counting site does not head."""

    # Facts --------------------------------------------------------------------------------------

    def given_up_before(self, fact: GroupHeaded) -> list[NodeId]:
        """Whom a head had given up, with everybody below, when it begins again with the group in the same epoch."""
        if not fact.anew or self._heads.get((fact.epoch, fact.group)) != fact.site:
            return []
        stalled = [node for node in self._groups.get(fact.group, ()) if (fact.site, node) in self._stalled]
        return [one for node in stalled for one in (node, *self.below(node, fact.epoch))]

    def on_headed(self, fact: GroupHeaded) -> None:
        """A head begins, or goes on, with a group."""
        self._heads[fact.epoch, fact.group] = fact.site
        trim(self._heads, _HEADS_MAX)
        if fact.anew:
            for member in self._groups.get(fact.group, ()):
                self._stalled.pop((fact.site, member), None)
        for member in self._groups.get(fact.group, ()):
            self._adopted.pop((fact.site, member), None)

    def on_stalled(self, fact: Stalled) -> None:
        """A site waits for a member no longer, nor for anybody below it."""
        if self._adopted.pop((fact.site, fact.member), self) is self:
            self._stalled[fact.site, fact.member] = None

    def on_returned(self, fact: Returned) -> None:
        """A site waits for a member again, or has adopted one."""
        if self._stalled.pop((fact.site, fact.member), self) is self:
            self._adopted[fact.site, fact.member] = None

    def on_handed_back(self, fact: HandedBack) -> None:
        """An adopted member is its head's again."""
        self._adopted.pop((fact.site, fact.member), None)

    def forget_adopted(self, site: NodeId) -> None:
        """A site restarts, or enters an epoch that does not continue its own: whom it had adopted must come anew."""
        for key in [key for key in self._adopted if key[0] == site]:
            del self._adopted[key]

    # Who is relied on ---------------------------------------------------------------------------

    def heads(self, site: NodeId, group: NodeId, epoch: Epoch) -> bool:
        """Whether a site heads a group: a secondary receiver its own for good, a member of the ring by the epoch."""
        return site == (group if group in self._parents else self._heads.get((epoch, group)))

    def below(self, site: NodeId, epoch: Epoch) -> list[NodeId]:
        """The secondary receivers that a site speaks for."""
        counted = [node for counting, node in self._adopted if counting == site]
        for group, members in self._groups.items():
            if self.heads(site, group, epoch):
                counted.extend([node for node in members if (site, node) not in self._stalled])
        everybody = [one for node in counted for one in (node, *self.below(node, epoch))]
        return sorted(dict.fromkeys(everybody))

    def of(self, epoch: EpochView) -> list[NodeId]:
        """The secondary receivers that the ring of an epoch waits for."""
        return [node for node in self._parents if self._relied(node, epoch)]

    def uncounted(self, epoch: EpochView) -> list[NodeId]:
        """The secondary receivers that no member of the ring has said to wait for, or that it gave up."""
        counted = {node for member in epoch.members for node in self.below(member, epoch.ring.ballot)}
        return [node for node in self._parents if node not in counted]

    def _relied(self, node: NodeId, epoch: EpochView) -> bool:
        if any((member, node) in self._adopted for member in epoch.members):
            return True
        parent = self._parents[node]
        if parent in self._parents:
            return (parent, node) not in self._stalled and self._relied(parent, epoch)
        return (self._heads.get((epoch.ring.ballot, parent)), node) not in self._stalled
