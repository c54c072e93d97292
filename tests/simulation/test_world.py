"""A whole market in virtual time."""

from __future__ import annotations

from tests.simulation.worlds import facts_of, run

from isocast.checks.facts import Completed, Installed, Released, Submitted, TokenSent
from isocast.terms.instants import MILLISECOND
from isocast.wire.packets import Nack, Receipt, Repair


def test_a_quiet_world_releases_everything_everywhere_at_one_instant() -> None:
    world, facts = facts_of()
    released = [fact for fact in facts if isinstance(fact, Released)]
    assert sum(len(fact.messages) for fact in released) == 3 * 60
    assert world.skew_ns() == 0
    assert {fact.at - fact.due for fact in released} == {0}
    assert world.violations() == []


def test_a_quiet_world_needs_neither_requests_nor_repairs() -> None:
    sent = run().recorder.sent
    assert (sent[Nack], sent[Repair]) == (0, 0)
    assert sent[Receipt] > 0


def test_tokens_go_round_in_the_order_of_the_ring() -> None:
    _, facts = facts_of()
    [ring] = {fact.ring.ring for fact in facts if isinstance(fact, Installed)}
    owners = [fact.site for fact in facts if isinstance(fact, TokenSent)]
    assert owners[:6] == [*ring, *ring]


def test_every_site_completes_what_it_releases() -> None:
    _, facts = facts_of(loss=0.1)
    held: dict[int, int] = {}
    for fact in facts:
        if isinstance(fact, Completed):
            held[fact.site] = fact.token_number
        elif isinstance(fact, Released):
            assert fact.token_number <= held[fact.site]


def test_submissions_are_told_before_anything_else_of_them() -> None:
    _, facts = facts_of()
    seen: set[tuple[int, int]] = set()
    for fact in facts:
        if isinstance(fact, Submitted):
            seen.add((fact.source, fact.number))
        elif isinstance(fact, Released):
            assert {(held.sender, held.number) for held in fact.messages} <= seen


def test_losses_cost_requests_and_nothing_else() -> None:
    world = run(loss=0.1, messages=200)
    assert world.recorder.sent[Nack] > 0
    assert world.violations() == []
    assert world.recorder.messages == 200


def test_releases_are_paced() -> None:
    """Protocol §4: in 1 ms steps."""
    _, facts = facts_of(burst=12, release_rate=2)
    first = next(fact for fact in facts if isinstance(fact, Released))
    steps = [fact for fact in facts if isinstance(fact, Released) and fact.site == first.site]
    assert max(len(fact.messages) for fact in steps) == 2
    dues = [fact.due - first.due for fact in steps if fact.token_number == first.token_number]
    assert len(dues) >= 6
    assert dues == [step * MILLISECOND for step in range(len(dues))]


def test_a_world_is_made_of_the_sites_servers_and_sources_of_its_scenario() -> None:
    world = run(receivers=4, servers=2, sources=3).world
    assert (len(world.sites), len(world.servers), len(world.sources)) == (4, 2, 3)


def test_memory_of_the_log_stays_bounded() -> None:
    world = run(messages=3_000, arrival_rate=500).world
    for site in world.sites:
        machine = world.hosts[site].machine
        assert machine is not None
        held = machine.snapshot().receiver  # type: ignore[attr-defined]
        assert held.held - held.collected <= 8
