"""Sources that disclose their keys after the gate: nothing is read before, and what is void is void everywhere (§6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, scenario
from tests.simulation.worlds import run as build_run

from isocast.checks.facts import Disclosed, Fact, Released, Sealed
from isocast.simulation.mutants import REVEAL_MUTANTS
from isocast.simulation.mutants.ring import Mutant
from isocast.simulation.timed import TimedRun
from isocast.simulation.transcript import describe_fact
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import source_id

CHAIN: dict[str, Any] = {"reveal": "chain"}
SITE_DIES: dict[str, Any] = {"kind": "crash", "at": 0.9, "until": 2.5, "sites": [2]}
SOURCE_DIES: dict[str, Any] = {"kind": "crash", "at": 0.9, "until": 1.5, "sites": ["source1"]}
BLINK: dict[str, Any] = {"kind": "crash", "at": 0.9, "until": 0.92, "sites": ["source1"]}
PAUSE: dict[str, Any] = {"kind": "pause", "at": 0.9, "until": 1.2, "sites": ["source1"]}


def broken(run: TimedRun) -> list[str]:
    return [str(violation) for violation in run.violations()]


def void(facts: list[Fact]) -> dict[int, set[tuple[int, int]]]:
    """By site, the messages that it released with nothing in their place."""
    found: dict[int, set[tuple[int, int]]] = {}
    for fact in facts:
        if isinstance(fact, Released):
            places = zip(fact.messages, fact.links, strict=True)
            found.setdefault(fact.site, set()).update([message.label for message, link in places if not link])
    return found


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_every_message_is_opened_after_its_source_disclosed_it(tokens: int) -> None:
    run, facts = facts_of(**CHAIN, reveal_tokens=tokens)
    assert broken(run) == []
    assert void(facts) == {1: set(), 2: set(), 3: set()}
    shown = {fact.source: fact.links[-1][0] for fact in facts if isinstance(fact, Disclosed) and fact.links}
    sealed = {fact.source: fact.number for fact in facts if isinstance(fact, Sealed)}
    assert shown == sealed
    assert sum(sealed.values()) == 60


def test_secondary_receivers_open_the_same() -> None:
    run, facts = facts_of(PAUSE, **CHAIN, secondaries=2, secondary_delay=0.001, secondary_detect=0.01, messages=120)
    assert broken(run) == []
    assert len(void(facts)) > 3
    [messages] = {frozenset(messages) for messages in void(facts).values()}
    assert {source for source, _ in messages} <= {source_id(1)}


def test_without_disclosed_keys_nothing_is_sealed_shown_or_awaited() -> None:
    run, facts = facts_of()
    assert not [fact for fact in facts if isinstance(fact, Sealed | Disclosed)]
    assert run.timing.reveal_tokens == run.timing.reveal_ns == 0
    assert all(fact.links == () for fact in facts if isinstance(fact, Released))


@pytest.mark.parametrize("seed", range(1, 6))
def test_losses_break_nothing(seed: int) -> None:
    run, facts = facts_of(**CHAIN, loss=0.05, seed=seed)
    assert broken(run) == []
    assert len({frozenset(messages) for messages in void(facts).values()}) == 1


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_ring_that_is_formed_anew_makes_nothing_void(seed: int) -> None:
    run, facts = facts_of(SITE_DIES, **CHAIN, receivers=4, seed=seed, messages=120)
    assert broken(run) == []
    assert {label for messages in void(facts).values() for label in messages} == set()


@pytest.mark.parametrize("signatures", ["off", "receipts"])
def test_a_source_that_dies_stops_nobody_and_what_it_had_under_way_is_void_at_every_site(signatures: str) -> None:
    run, facts = facts_of(SOURCE_DIES, **CHAIN, signatures=signatures)
    assert broken(run) == []
    [messages] = {frozenset(messages) for messages in void(facts).values()}
    assert {source for source, _ in messages} == {source_id(1)}
    last = {fact.site: fact.first_sequence + len(fact.messages) for fact in facts if isinstance(fact, Released)}
    assert len(set(last.values())) == 1


def test_a_source_that_restarts_at_once_discloses_what_it_had_sent_before() -> None:
    run, facts = facts_of(BLINK, **CHAIN)
    assert broken(run) == []
    assert {label for messages in void(facts).values() for label in messages} == set()


def test_a_transcript_tells_who_disclosed_what() -> None:
    assert describe_fact(Sealed(0, source_id(1), 7, b"")).endswith("seals message 7")
    assert "discloses the keys up to 7, 9" in describe_fact(Disclosed(0, source_id(1), ((7, b""), (9, b""))))
    assert "asks" in describe_fact(Disclosed(0, source_id(1), ()))


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"reveal": "chain", "gate": "timed"}, 'goes with gate = "majority" alone'),
        ({"reveal": "chain", "policy": "availability"}, 'goes with policy = "majority" alone'),
        ({"reveal_tokens": 2}, 'means nothing without reveal = "chain"'),
        ({"reveal": "chain", "archives": 1}, "nobody here opens what archives"),
    ],
)
def test_what_does_not_go_with_disclosed_keys_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        scenario(**keys)


WORLDS: dict[str, dict[str, Any]] = {
    "disclosed-before-receipts": BLINK,
    "void-released": PAUSE,
    "opened-by-hearsay": PAUSE,
    "key-off-the-chain": BLINK,
    "released-before-settled": SITE_DIES,
    "chain-reused": SOURCE_DIES,
}
"""What must happen for the checker to tell."""


@pytest.mark.parametrize("mutant", REVEAL_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """The same worlds are clean without the mutation, by the next test."""
    found = build_run(WORLDS[mutant.name], build=mutant.build, **CHAIN, messages=150, receivers=4).violations()
    assert "S20" in {str(violation).partition(":")[0] for violation in found}, mutant.rule


@pytest.mark.parametrize("fault", [BLINK, PAUSE, SITE_DIES, SOURCE_DIES], ids=["blink", "pause", "site", "source"])
def test_the_product_passes_where_mutants_are_caught(fault: dict[str, Any]) -> None:
    assert broken(build_run(fault, **CHAIN, messages=150, receivers=4)) == []
