"""What machines say of the layers below the ring becomes a fact, or is told by somebody else."""

from __future__ import annotations

import pytest

from isocast.checks.facts import Fact, GroupHeaded, HandedBack, HeadChanged, Returned, Stalled, Unanswered
from isocast.ring import effects
from isocast.simulation.recording import LAYER_EFFECTS, layer_fact
from isocast.simulation.transcript import describe_fact
from isocast.terms.ids import Epoch

E2 = Epoch(2, 65_537)
TOLD: list[tuple[object, Fact | None, str]] = [
    (effects.SupportSilent(7, 2), Unanswered(5, 1, 7, 2), "asked site2 for token 7 in vain"),
    (effects.SecondaryStalled(1, 4, 3), Stalled(5, 1, 4, 3), "waits for site4 no longer: it said 3 last"),
    (effects.SecondaryReturned(1, 4, 9), Returned(5, 1, 4, 9), "waits for site4 again, which holds 9"),
    (effects.SecondaryHandedBack(4, 9), HandedBack(5, 1, 9), "hands site9 back to its head"),
    (
        effects.HeadshipAssumed(E2, 1, anew=False),
        GroupHeaded(5, 1, E2, 1, anew=False),
        "heads its own group in epoch 2.1",
    ),
    (
        effects.HeadshipAssumed(E2, 3, anew=True),
        GroupHeaded(5, 1, E2, 3, anew=True),
        "heads the group of site3 in epoch 2.1, everybody anew",
    ),
    (effects.HeadSwitched(3, 2, silent=False), HeadChanged(5, 1, 3, 2, silent=False), "belongs to site2"),
    (
        effects.HeadSwitched(3, 2, silent=True),
        HeadChanged(5, 1, 3, 2, silent=True),
        "belongs to site2: site3 is silent",
    ),
    (effects.GroupLeft(E2, 3, 3), None, ""),
]


@pytest.mark.parametrize("effect, fact, text", TOLD)
def test_an_effect_of_the_layers_becomes_a_fact_with_a_line_for_people(
    effect: object, fact: Fact | None, text: str
) -> None:
    assert layer_fact(5, 1, effect) == fact
    assert fact is None or describe_fact(fact).endswith(text)


def test_every_effect_of_the_layers_is_known() -> None:
    assert {type(effect) for effect, _, _ in TOLD} == set(LAYER_EFFECTS)
