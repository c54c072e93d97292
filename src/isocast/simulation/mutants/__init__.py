"""The product with one rule switched off, each a plausible mistake of an implementation.

A mutant is a set of subclasses that override one rule of a machine. Nothing in the product's configuration
reaches them: only a simulated world can be built from them, to show that the checkers would catch us.
"""

from __future__ import annotations

from isocast.simulation.mutants.floors import FLOOR_MUTANTS
from isocast.simulation.mutants.layers import EDGE_MUTANTS, LAYER_MUTANTS
from isocast.simulation.mutants.liars import LIAR_MUTANTS
from isocast.simulation.mutants.reveals import REVEAL_MUTANTS
from isocast.simulation.mutants.ring import CHANGE_MUTANTS, CLOCK_MUTANTS, MISTAKE_MUTANTS, RULE_MUTANTS, Mutant

__all__ = [
    "CHANGE_MUTANTS",
    "CLOCK_MUTANTS",
    "EDGE_MUTANTS",
    "FLOOR_MUTANTS",
    "LAYER_MUTANTS",
    "LIAR_MUTANTS",
    "MUTANTS",
    "REVEAL_MUTANTS",
    "Mutant",
]

_ALL = (
    *MISTAKE_MUTANTS,
    *LAYER_MUTANTS,
    *CHANGE_MUTANTS,
    *CLOCK_MUTANTS,
    *RULE_MUTANTS,
    *EDGE_MUTANTS,
    *LIAR_MUTANTS,
    *REVEAL_MUTANTS,
    *FLOOR_MUTANTS,
)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
"""By name."""
