"""Which machines a world is made of: the product's, or a mutant's."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.hierarchy.heads import GroupPlan
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.ring.source import PrimarySource

__all__ = ["PRODUCT", "Build"]


@dataclass(frozen=True)
class Build:
    """The classes of the four roles, and who heads which group."""

    receiver: type[PrimaryReceiver] = PrimaryReceiver
    source: type[PrimarySource] = PrimarySource
    server: type[ReformationServer] = ReformationServer
    secondary: type[SecondaryReceiver] = SecondaryReceiver
    groups: type[GroupPlan] = GroupPlan
    remembers_nothing: bool = False
    """A site that lost its disk comes back as if nothing had happened (a mutant's mistake)."""
    same_incarnation: bool = False
    """A source that lost its outbox goes on under its old id (a mutant's mistake)."""


PRODUCT = Build()
