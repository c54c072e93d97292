"""What the machines say of the layers below the ring, as facts."""

from __future__ import annotations

from isocast.checks.facts import Fact, GroupHeaded, HandedBack, HeadChanged, Returned, Stalled, Unanswered
from isocast.ring import effects
from isocast.terms.ids import NodeId

__all__ = ["LAYER_EFFECTS", "layer_fact"]

LAYER_EFFECTS = (
    effects.SupportSilent,
    effects.SecondaryStalled,
    effects.SecondaryReturned,
    effects.SecondaryHandedBack,
    effects.GroupHeaded,
    effects.GroupLeft,
    effects.HeadChanged,
)


def layer_fact(at: int, site: NodeId, effect: object) -> Fact | None:
    """One of `LAYER_EFFECTS`; None where another site tells of the same."""
    match effect:
        case effects.SupportSilent(number, asked):
            return Unanswered(at, site, number, asked)
        case effects.SecondaryStalled(_, member, number):
            return Stalled(at, site, member, number)
        case effects.SecondaryReturned(_, member, number):
            return Returned(at, site, member, number)
        case effects.SecondaryHandedBack(_, member):
            return HandedBack(at, site, member)
        case effects.GroupHeaded(epoch, group, anew):
            return GroupHeaded(at, site, epoch, group, anew)
        case effects.HeadChanged(group, head, silent):
            return HeadChanged(at, site, group, head, silent)
        case _:
            return None
