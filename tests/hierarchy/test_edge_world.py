"""Customers, lines and retransmit servers together, under loss, delay, reordering, repetition and absence.

L5: a guaranteed-service customer gets every sequence. In the simulator's world, whose checkers judge every run.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from tests.hierarchy.edge_makers import rel
from tests.simulation.worlds import EdgeRun

from isocast.hierarchy.archive import AnswerLimits, CustomerThrottled
from isocast.hierarchy.edge import (
    ConflictFound,
    CustomerSlow,
    DeliverLatest,
    FetchRange,
    GapAbandoned,
    GapOpened,
    LineSilent,
    Slowness,
)
from isocast.nodes.retransmit_server import RetransmitServer
from isocast.simulation.layers import archive_id, customer_id
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import MILLISECOND
from isocast.wire.events import events_view
from isocast.wire.packets import Range, RangeRequest

C, X1 = customer_id(1), archive_id(1)
SITES = [1, 2, 3]
links = st.fixed_dictionaries(
    {
        "edge_loss": st.sampled_from([0.0, 0.01, 0.1, 0.4]),
        "jitter": st.sampled_from([0.0, 0.001, 0.004]),
        "duplicate": st.sampled_from([0.0, 0.2]),
        "burst": st.sampled_from([1, 10]),
    }
)
seeds = st.integers(0, 1 << 32)


def cut(at: float, until: float, customer: str = "customer1") -> dict[str, Any]:
    """Its lines bring nothing to a customer."""
    return {"kind": "one-way", "at": at, "until": until, "groups": [SITES, [customer]]}


def newest(world: EdgeRun, node: int) -> dict[bytes, int]:
    """Of each symbol the newest price that a customer was told; each must stand behind the one before.

    Behind it in the sequence: of two messages on their way at once the later one may be put first.
    """
    prices: dict[bytes, int] = {}
    places: dict[bytes, int] = {}
    for effect in world.effects(node, DeliverLatest):
        for event, place in zip(effect.events(), effect.sequences, strict=True):
            symbol = bytes(event["symbol"])
            assert places.get(symbol, 0) < place
            prices[symbol], places[symbol] = int(event["price"]), place
    return prices


def truth(world: EdgeRun) -> dict[bytes, int]:
    """Of each symbol the newest price that was released."""
    payloads = [payload for _, _, payload in world.released(1)]
    return {bytes(event["symbol"]): int(event["price"]) for payload in payloads for event in events_view(payload)}


@effort(max_examples=8, deadline=None)
@given(seeds, links, st.sampled_from([1, 2]), st.sampled_from([16, 64]))
def test_a_complete_customer_ends_with_the_exact_sequence(
    seed: int, link: dict[str, Any], archives: int, hold: int
) -> None:
    """L5: whatever the lines do, as long as a retransmit server can be reached and keeps everything."""
    own = {"hold_max": hold, "ask_max": 16, "recent_max": 64}
    world = EdgeRun(seed=seed, customer=own, archives=archives, customers=1, **link).run()
    everything = list(range(1, 61))
    assert world.sequences(C) == everything
    assert all(world.sequences(archive_id(number)) == everything for number in range(1, archives + 1))
    assert (world.view(C).gaps, world.view(C).held, world.view(C).counters.abandoned) == (0, 0, 0)
    assert world.effects(C, ConflictFound, GapAbandoned) == []


@effort(max_examples=8, deadline=None)
@given(seeds, links)
@example(115149, {"edge_loss": 0.1, "jitter": 0.004, "duplicate": 0.0, "burst": 1}).via("prices out of order")
def test_a_latest_customer_never_gets_an_older_event_after_a_newer_one(seed: int, link: dict[str, Any]) -> None:
    world = EdgeRun(seed=seed, archives=1, latest_customers=1, **link).run()
    told = newest(world, C)
    assert world.effects(C, FetchRange) == []
    assert world.view(C).counters.requests == 0
    if link["edge_loss"] == 0:
        assert told == truth(world)


@pytest.mark.parametrize("late", [0.2, 0.8, 1.5])
def test_a_late_joiner_of_grade_latest_ends_with_the_newest_of_every_key(late: float) -> None:
    """A snapshot as of s, and everything after it."""
    away = {"kind": "crash", "at": 0, "until": late, "sites": ["customer1"]}
    world = EdgeRun(away, archives=1, latest_customers=1, jitter=0.002).run()
    assert newest(world, C) == truth(world)


def test_the_loss_of_the_last_messages_on_every_line_is_found_by_heartbeats() -> None:
    world = EdgeRun(cut(1.3, 2.2), archives=1, customers=1).run()
    assert world.sequences(C) == list(range(1, 61))
    gaps = [(gap.first, gap.last) for gap in world.effects(C, GapOpened)]
    assert [last for _, last in gaps] == [60]
    released, found = world.released(3)[-1][0], world.deliveries(C)[-1][0]
    assert released + 2 * MILLISECOND < found < released + 200 * MILLISECOND


def test_one_line_alone_carries_everything_and_the_other_is_named() -> None:
    silent = {"kind": "one-way", "at": 0.4, "groups": [[3], ["customer1"]]}
    world = EdgeRun(silent, archives=1, customers=1).run()
    assert world.sequences(C) == list(range(1, 61))
    assert [told.line for told in world.effects(C, LineSilent)] == [3]
    assert world.effects(C, GapOpened) == []


def busy_world(*, slow: bool) -> EdgeRun:
    """Customers whose lines fail at times; one of them may be stopped for long, and lacks most of the messages."""
    faults = [cut(0.6, 0.75, "customer2"), cut(0.9, 1.1, "customer3")]
    if slow:
        faults += [{"kind": "pause", "at": 0.5, "until": 1.6, "sites": ["customer1"]}, cut(0.55, 1.3)]
    keys: dict[str, Any] = {"arrival_rate": 200, "messages": 300, "archives": 1, "customers": 3}
    return EdgeRun(*faults, customer={"hold_max": 32, "ask_max": 16, "recent_max": 64}, **keys).run()


def test_a_slow_customer_changes_nothing_for_the_others_names_itself_and_gets_everything() -> None:
    """ "A slow customer never slows anybody else, and is named"."""
    alone, world = busy_world(slow=False), busy_world(slow=True)
    for other in (customer_id(2), customer_id(3)):
        before, after = alone.deliveries(other), world.deliveries(other)
        # Repairs that the slow one asked for may help the others; nobody gets anything later.
        assert [late for early, late in zip(before, after, strict=True) if late[0] > early[0]] == []
        assert world.effects(other, FetchRange), "it needed the archive too"
        assert [told for told in world.effects(other, CustomerSlow) if told.reason is Slowness.STOPPED] == []
    assert world.sequences(C) == list(range(1, 301))
    reasons = [told.reason for told in world.effects(C, CustomerSlow)]
    assert Slowness.STOPPED in reasons
    assert Slowness.OVERFLOW in reasons


def test_a_customer_that_asks_for_everything_is_throttled_by_name_and_others_are_repaired_in_time() -> None:
    hostile = customer_id(900)

    def world_with(requests: int) -> EdgeRun:
        line = AnswerLimits(quiet_ns=10 * MILLISECOND, rate=2_000, customer_rate=200, customer_burst=64)
        keys: dict[str, Any] = {"arrival_rate": 200, "messages": 300, "archives": 1, "customers": 1}
        world = EdgeRun(cut(0.9, 1.0), cut(1.3, 1.4), limits={"line": line}, **keys)
        for place in range(requests):
            first = 1 + 64 * place % 128
            request = RangeRequest(0, NO_EPOCH, hostile, Range.SEQUENCES, first, first + 63)
            world.hears(X1, 0.6 + place / 2_000, request)
        return world.run()

    calm, world = world_with(0), world_with(2_000)
    assert world.sequences(C) == list(range(1, 301))
    named = world.effects(X1, CustomerThrottled)
    assert [told.customer for told in named] == [hostile] * len(named)
    assert 1 <= len(named) <= 3
    archive = world.world.hosts[X1].machine
    assert isinstance(archive, RetransmitServer)
    account = archive.line.accounts[hostile]
    assert account.served <= 64 + 200 * 3
    assert account.refused > 1_500
    late = [b for a, b in zip(calm.deliveries(C), world.deliveries(C), strict=True) if b[0] > a[0]]
    assert late == []


def test_servers_that_cannot_be_reached_leave_a_gap_open_and_nothing_is_delivered_out_of_order() -> None:
    down = {"kind": "crash", "at": 0.5, "until": 2.5, "sites": ["archive1"]}
    own = {"last_resorts": (), "hold_max": 32, "ask_max": 16}
    world = EdgeRun(down, cut(0.8, 1.0), customer=own, archives=1, customers=1, messages=120, arrival_rate=80)
    got = world.until(2.4).sequences(C)
    assert got == list(range(1, len(got) + 1))
    assert len(got) < 120
    assert 0 < world.view(C).held <= 32
    assert world.run().sequences(C) == list(range(1, 121))


def test_a_line_that_lies_is_found_out_and_bounded() -> None:
    """A line that invents messages, near and far, at ten times the normal rate."""
    world = EdgeRun(customer={"hold_max": 128, "recent_max": 64}, archives=1, customers=1)
    for place in range(500):
        far = [rel((1 << 40) + place * 10 + more, 3, b"lie") for more in range(5)]
        world.hears(C, 0.4 + place / 500, *far)
    world.run()
    assert world.sequences(C) == list(range(1, 61))
    assert world.view(C).held == 0
    assert world.view(C).counters.fetches < 20
    assert world.effects(C, CustomerSlow) == []


def test_a_run_is_a_function_of_its_seed() -> None:
    def told(seed: int) -> list[tuple[int, object]]:
        return EdgeRun(seed=seed, edge_loss=0.1, jitter=0.004, duplicate=0.1, archives=1, customers=1).run().told[C]

    assert told(1) == told(1)
    assert told(1) != told(2)
