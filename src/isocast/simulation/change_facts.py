"""What machines say of planned, forced and lost changes, as facts for the checkers."""

from __future__ import annotations

from isocast.checks.facts import Fact, Forced, Settled, Strayed
from isocast.ring.effects import ControlSettled, Diverged, UniverseForced
from isocast.terms.ids import NodeId

__all__ = ["CHANGE_EFFECTS", "change_fact"]

CHANGE_EFFECTS = (ControlSettled, UniverseForced, Diverged)
"""Effects that only tell."""


def change_fact(now: int, node: NodeId, effect: object) -> Fact | None:
    """The fact of an effect."""
    match effect:
        case ControlSettled(entry, outcome):
            return Settled(now, node, entry, str(outcome))
        case UniverseForced(epoch, token_number, universe):
            return Forced(now, node, epoch, token_number, universe)
        case Diverged(epoch, first_sequence, next_sequence):
            return Strayed(now, node, epoch, first_sequence, next_sequence)
        case _:
            return None
