"""Members that lie: without signatures they break the market, with them they break nothing and are proven to lie."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of
from tests.simulation.worlds import run as build_run

from isocast.checks.facts import Convicted, Fact, Installed, Ordered
from isocast.simulation.mutants import MUTANTS
from isocast.simulation.timed import TimedRun
from isocast.terms.errors import ConfigurationError
from isocast.wire.signing import SignedKind

EQUIVOCATE: dict[str, Any] = {"kind": "equivocate", "at": 0.6, "sites": [2]}
FORGE: dict[str, Any] = {"kind": "forge", "at": 0.6, "until": 1.0, "sites": [2]}
FORGED_RINGS: tuple[dict[str, Any], ...] = (
    {"kind": "forge", "at": 0.6, "until": 1.2, "sites": ["server1"]},
    {"kind": "crash", "at": 0.7, "until": 0.9, "sites": [3]},
)


def convicted(facts: list[Fact]) -> set[tuple[int, int]]:
    """(who holds the proof, against whom)."""
    return {(fact.node, fact.author) for fact in facts if isinstance(fact, Convicted)}


def refused(run: TimedRun) -> set[SignedKind]:
    machines = [host.machine for host in run.world.hosts.values()]
    notaries = [getattr(getattr(machine, "receiver", machine), "notary", None) for machine in machines]
    return {kind for notary in notaries if notary is not None for kind in notary.refused}


def broken(run: TimedRun) -> set[str]:
    return {str(violation).partition(":")[0] for violation in run.violations()}


@pytest.mark.parametrize("receivers", [3, 4, 5])
@pytest.mark.parametrize("signatures", ["on", "receipts"])
def test_an_owner_that_sends_two_tokens_is_proven_to_lie_and_left_out(receivers: int, signatures: str) -> None:
    run, facts = facts_of(EQUIVOCATE, receivers=receivers, signatures=signatures)
    assert run.faults.byzantine.lies
    assert broken(run) == set()
    honest = [site for site in range(1, receivers + 1) if site != 2]
    assert {(site, 2) for site in honest} <= convicted(facts)
    assert {author for _, author in convicted(facts)} == {2}
    rings = [fact.ring.ring for fact in facts if isinstance(fact, Installed)]
    assert 2 in rings[0]
    assert sorted(rings[-1]) == honest
    assert {run.recorder.last_sequence[site] for site in honest} == {60}


def test_without_signatures_two_tokens_split_the_sequence() -> None:
    run, facts = facts_of(EQUIVOCATE, receivers=3)
    assert broken(run) == {"S1"}
    assert convicted(facts) == set()


def test_tokens_and_receipts_in_others_names_are_refused() -> None:
    assert "S1" in broken(facts_of(FORGE, receivers=4)[0]), "without signatures the attack succeeds"
    run, facts = facts_of(FORGE, receivers=4, signatures="on")
    assert broken(run) == set()
    assert refused(run) == {SignedKind.TOKEN}
    assert len([fact for fact in facts if isinstance(fact, Installed) and fact.site == 1]) == 1, "no ring was re-formed"
    run, _ = facts_of(FORGE, receivers=4, signatures="receipts")
    assert broken(run) == set()
    assert refused(run) == {SignedKind.TOKEN, SignedKind.RECEIPT}


def test_a_ring_with_the_votes_of_another_is_refused() -> None:
    """A server that lies replays votes: they were cast for another ballot."""
    assert "S1" in broken(facts_of(*FORGED_RINGS, receivers=4, servers=2)[0]), "without signatures the attack succeeds"
    run, facts = facts_of(*FORGED_RINGS, receivers=4, servers=2, signatures="on")
    assert broken(run) == set()
    assert refused(run) == {SignedKind.JOIN, SignedKind.NEWRING}
    assert {len(fact.ring.ring) for fact in facts if isinstance(fact, Installed)} <= {3, 4}


@pytest.mark.parametrize("nodes, servers", [([2], 1), (["server1"], 2)])
def test_nobody_but_the_operator_changes_u(nodes: list[Any], servers: int) -> None:
    """A site's token that takes another out of U, and a server's ring that forces it, are followed by nobody."""
    usurp = {"kind": "usurp", "at": 0.6, "until": 1.2, "sites": nodes}
    alone, _ = facts_of(usurp, receivers=4, servers=servers)
    assert alone.world.universe() != (1, 2, 3, 4), "without signatures the attack succeeds"
    run, _ = facts_of(usurp, receivers=4, servers=servers, signatures="on")
    assert broken(run) == set()
    assert refused(run) == {SignedKind.CONTROL}
    assert run.world.universe() == (1, 2, 3, 4)
    assert {run.recorder.last_sequence[site] for site in (1, 3, 4)} == {60}


def test_a_checker_sees_u_changed_without_an_order() -> None:
    usurp = {"kind": "usurp", "at": 0.6, "until": 1.2, "sites": [2]}
    subservient = build_run(usurp, receivers=4, signatures="on", build=MUTANTS["order-unchecked"].build)
    assert broken(subservient) == {"S19"}


def test_what_the_operator_orders_is_done_among_liars_too() -> None:
    changes = ({"kind": "remove", "at": 0.6, "sites": [4]}, {"kind": "add", "at": 1.4, "sites": [5]})
    run, facts = facts_of(*changes, receivers=4, signatures="on")
    assert broken(run) == set()
    assert run.world.universe() == (1, 2, 3, 5)
    assert [fact.entry.kind.name for fact in facts if isinstance(fact, Ordered)][:1] == ["REMOVE_SITE"]


def test_only_members_can_lie_so() -> None:
    with pytest.raises(ConfigurationError, match="primary receivers"):
        facts_of({"kind": "equivocate", "at": 0.6, "sites": ["server1"]})
    with pytest.raises(ConfigurationError, match="primary receivers and servers"):
        facts_of({"kind": "forge", "at": 0.6, "sites": ["source1"]})
