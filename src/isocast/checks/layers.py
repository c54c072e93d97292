"""Which secondary receivers anybody may rely on: those that no head has given up, below a member of the ring.

Memory waits for a secondary receiver as long as its head does, and that head's own, up to a primary receiver that is
on the ring. A head that is off the ring reports nothing, so nobody waits for its group.
"""

from __future__ import annotations

from collections.abc import Mapping

from isocast.checks.facts import Returned, Stalled
from isocast.checks.view import EpochView
from isocast.terms.ids import NodeId

__all__ = ["Coverage"]


class Coverage:
    """Who is below whom, and who has stalled."""

    def __init__(self, parents: Mapping[NodeId, NodeId]) -> None:
        """Everybody is relied on."""
        self._lines = {site: _line(site, parents) for site in parents}
        self._stalled: dict[NodeId, None] = {}

    def on_stalled(self, fact: Stalled) -> None:
        """Its head waits for it no longer, nor for anybody below it."""
        self._stalled[fact.member] = None

    def on_returned(self, fact: Returned) -> None:
        """Its head waits for it again."""
        self._stalled.pop(fact.member, None)

    def below(self, site: NodeId) -> list[NodeId]:
        """The secondary receivers that a site speaks for."""
        return [node for node, line in self._lines.items() if site in line[1:] and self._counts(line, site)]

    def of(self, epoch: EpochView) -> list[NodeId]:
        """The secondary receivers that the ring of an epoch waits for."""
        return [
            node for node, line in self._lines.items() if line[-1] in epoch.members and self._counts(line, line[-1])
        ]

    def _counts(self, line: tuple[NodeId, ...], top: NodeId) -> bool:
        return not any(site in self._stalled for site in line[: line.index(top)])


def _line(site: NodeId, parents: Mapping[NodeId, NodeId]) -> tuple[NodeId, ...]:
    """A site, its head, that one's head, up to the primary receiver."""
    line = [site]
    while line[-1] in parents:
        line.append(parents[line[-1]])
    return tuple(line)
