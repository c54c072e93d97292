"""S13: what a source may believe, and what it may let go of."""

from dataclasses import replace

from tests.checks.traces import E1, E2, SOURCE, law, unsafe
from tests.ring.makers import Chain, following, message

from isocast.checks.facts import Acknowledged, Fact, Freed, RingFormed, TokenMade
from isocast.terms.instants import SECOND
from isocast.wire.token_body import token_digest


def made(chain: Chain, stable: int | None = None) -> list[Fact]:
    """The owners make the tokens of a chain; the last of them may call something else stable."""
    tokens = [entry.token for entry in chain.entries]
    if stable is not None:
        tokens[-1] = replace(tokens[-1], stable=stable)
    return [TokenMade(SECOND, token.sender, token_digest(token), token) for token in tokens]


def log() -> Chain:
    """Messages 1, 2 and 3 of the source, one in each token."""
    chain = Chain()
    for number in (1, 2, 3):
        chain.add(message(number, SOURCE))
    return chain


def believed(below: int, epoch: object = E1) -> Acknowledged:
    return Acknowledged(SECOND, SOURCE, epoch, below)  # type: ignore[arg-type]


def test_a_source_believes_what_the_log_of_its_epoch_names() -> None:
    facts = made(log())
    assert unsafe([*facts, believed(4)]) == []
    assert unsafe([*facts, believed(5)]) == ["S13"]


def test_what_an_older_epoch_named_is_cut_off_in_the_newer() -> None:
    chain = log()
    cut = Chain()
    cut.add(message(1, SOURCE))
    ring = following(cut, epoch=E2)
    facts = [*made(chain), RingFormed(SECOND, E2.server, ring)]
    assert unsafe([*facts, believed(2, E2)]) == []
    assert unsafe([*facts, believed(4, E2)]) == ["S13"]


def test_a_source_lets_go_of_what_a_token_calls_stable() -> None:
    facts = made(log(), stable=2)
    assert unsafe([*facts, Freed(SECOND, SOURCE, 3)]) == []
    assert unsafe([*facts, Freed(SECOND, SOURCE, 4)]) == ["S13"], "one message early"
    assert unsafe([*made(log(), stable=0), Freed(SECOND, SOURCE, 2)]) == ["S13"]


def test_a_log_that_is_not_known_far_enough_proves_nothing() -> None:
    facts = made(log(), stable=2)[2:]
    assert unsafe([*facts, Freed(SECOND, SOURCE, 9), believed(4)]) == []


def test_where_rings_may_diverge_stability_is_not_judged() -> None:
    assert unsafe([Freed(SECOND, SOURCE, 2)], law(may_diverge=True, agreement=False)) == []
