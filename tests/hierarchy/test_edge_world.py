"""Customers, lines and retransmit servers together, under loss, delay, reordering, repetition and absence.

L5: a guaranteed-service customer gets every sequence.
"""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from tests.hierarchy.edge_makers import MS, NOW, X1, X2, C, arrive, rel, settings
from tests.hierarchy.edge_world import Host, Link, World, symbol_of

from isocast.hierarchy.archive import AnswerLimits, CustomerThrottled
from isocast.hierarchy.customer import Customer, CustomerSnapshot
from isocast.hierarchy.customer_settings import Grade, JoinPoint
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
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import SECOND
from isocast.wire.packets import Range, RangeRequest

LATE = 3 * SECOND
"""By then everything has been repaired, or will never be."""

links = st.builds(
    Link,
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.4]),
    delay_ns=st.sampled_from([0, MS, 4 * MS]),
    jitter_ns=st.sampled_from([0, MS, 8 * MS]),
    repeat=st.sampled_from([0.0, 0.2]),
)
bursts = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=12)


def publish(world: World, plan: list[tuple[int, int]]) -> None:
    """Bursts: so many milliseconds after the one before, so many messages."""
    at = NOW + 200 * MS
    for pause, count in plan:
        at += pause * MS
        world.publish(at, count)


def view(host: Host) -> CustomerSnapshot:
    return cast("Customer", host.machine).snapshot()


@effort(max_examples=60)
@given(st.integers(0, 1 << 32), links, st.sampled_from([(X1,), (X1, X2)]), bursts)
def test_a_complete_customer_ends_with_the_exact_sequence(
    seed: int, link: Link, servers: tuple[int, ...], plan: list[tuple[int, int]]
) -> None:
    """L5: whatever the lines do, as long as a retransmit server can be reached and keeps everything."""
    world = World(seed, link)
    for server in servers:
        world.add_server(server)
    own = settings(servers=servers, join=JoinPoint.SEQUENCE, hold_max=64, ask_max=16, recent_max=64)
    host = world.add_customer(C, own)
    publish(world, plan)
    world.run(NOW + LATE)
    everything = list(range(1, world.sent + 1))
    assert host.sequences() == everything
    assert [payload for _, _, payload in host.deliveries()] == world.journal
    assert all(list(archive) == everything for archive in world.archives.values())
    assert (view(host).gaps, view(host).held, view(host).counters.abandoned) == (0, 0, 0)
    assert host.effects(ConflictFound, GapAbandoned) == []


@effort(max_examples=60)
@given(st.integers(0, 1 << 32), links, bursts)
def test_a_latest_customer_never_gets_an_older_event_after_a_newer_one(
    seed: int, link: Link, plan: list[tuple[int, int]]
) -> None:
    world = World(seed, link)
    world.add_server(X1)
    host = world.add_customer(C, settings(Grade.LATEST, servers=(X1,), join=JoinPoint.SNAPSHOT))
    publish(world, plan)
    world.run(NOW + LATE)
    newest: dict[bytes, int] = {}
    for effect in host.effects(DeliverLatest):
        for event in cast("DeliverLatest", effect).events():
            assert newest.get(bytes(event["symbol"]), 0) < int(event["price"])
            newest[bytes(event["symbol"])] = int(event["price"])
    assert host.effects(FetchRange) == []
    assert view(host).counters.requests == 0
    if link.loss == 0:
        truth = {symbol_of(place).encode(): place for place in range(1, world.sent + 1)}
        assert newest == truth


@effort(max_examples=30)
@given(st.integers(0, 1 << 32), st.integers(0, 300), bursts)
def test_a_late_joiner_of_grade_latest_ends_with_the_newest_of_every_key(
    seed: int, late: int, plan: list[tuple[int, int]]
) -> None:
    """A snapshot as of s, and everything after it."""
    world = World(seed, Link(jitter_ns=2 * MS))
    world.add_server(X1)
    publish(world, plan)
    own = settings(Grade.LATEST, servers=(X1,), join=JoinPoint.SNAPSHOT)
    joined: list[Host] = []
    world.at(NOW + (200 + late) * MS, lambda: joined.append(world.add_customer(C, own)))
    world.run(NOW + LATE)
    [host] = joined
    newest = {}
    for effect in host.effects(DeliverLatest):
        for event in cast("DeliverLatest", effect).events():
            newest[bytes(event["symbol"])] = int(event["price"])
    assert newest == {symbol_of(place).encode(): place for place in range(1, world.sent + 1)}


@pytest.mark.parametrize("lost", [1, 5])
def test_the_loss_of_the_last_messages_on_every_line_is_found_by_heartbeats(lost: int) -> None:
    world = World(1, Link())
    world.add_server(X1)
    host = world.add_customer(C, settings(servers=(X1,), join=JoinPoint.SEQUENCE))
    world.publish(NOW + 200 * MS, 10)
    world.at(NOW + 250 * MS, lambda: world.links.update({(line, C): Link(loss=1.0) for line in (1, 2)}))
    world.publish(NOW + 260 * MS, lost)
    world.at(NOW + 261 * MS, world.links.clear)
    world.run(NOW + 350 * MS)
    assert host.sequences() == list(range(1, 11 + lost))
    assert [(gap.first, gap.last) for gap in cast("list[GapOpened]", host.effects(GapOpened))] == [(11, 10 + lost)]


def test_one_line_alone_carries_everything_and_the_other_is_named() -> None:
    world = World(1, Link())
    world.add_server(X1)
    host = world.add_customer(C, settings(servers=(X1,), join=JoinPoint.SEQUENCE))
    world.at(NOW + 150 * MS, lambda: world.links.update({(1, C): Link(loss=1.0)}))
    for place in range(20):
        world.publish(NOW + (200 + 50 * place) * MS, 5)
    world.run(NOW + 2 * SECOND)
    assert host.sequences() == list(range(1, 101))
    assert [told.line for told in cast("list[LineSilent]", host.effects(LineSilent))] == [1]
    assert host.effects(GapOpened) == []


def busy_world(*, slow: bool) -> tuple[World, list[Host], Host | None]:
    """Customers under loss; one more may be stopped for long, and asks for everything again and again."""
    world = World(7, Link(loss=0.05, jitter_ns=3 * MS))
    world.add_server(X1, AnswerLimits(quiet_ns=10 * MS, customer_rate=500, customer_burst=64))
    own = settings(servers=(X1,), join=JoinPoint.SEQUENCE, hold_max=256, recent_max=64)
    quick = [world.add_customer(C + place, own) for place in range(3)]
    other = world.add_customer(C + 50, own) if slow else None
    for host in quick:
        # Between them and the server nothing is drawn: one repair more must not change the fate of the next.
        world.links[host.node, X1] = world.links[X1, host.node] = Link()
    for place in range(300):
        world.publish(NOW + (200 + 10 * place) * MS, 10)
    if slow:
        world.at(NOW + 500 * MS, lambda: world.pause(C + 50))
        world.at(NOW + 2_500 * MS, lambda: world.resume(C + 50))
    world.run(NOW + 8 * SECOND)
    return world, quick, other


def test_a_slow_customer_changes_nothing_for_the_others_names_itself_and_gets_everything() -> None:
    """ "A slow customer never slows anybody else, and is named"."""
    _, alone, _ = busy_world(slow=False)
    world, others, slow = busy_world(slow=True)
    for before, after in zip(alone, others, strict=True):
        assert after.sequences() == before.sequences() == list(range(1, 3_001))
        # Repairs that the slow one asked for may help the others; nobody gets anything later.
        late = [b for a, b in zip(before.deliveries(), after.deliveries(), strict=True) if b[0] > a[0]]
        assert late == []
    assert slow is not None
    assert slow.sequences() == list(range(1, world.sent + 1))
    reasons = [told.reason for told in cast("list[CustomerSlow]", slow.effects(CustomerSlow))]
    assert Slowness.STOPPED in reasons
    assert Slowness.OVERFLOW in reasons
    assert not any(host.effects(CustomerSlow) for host in others)


def test_a_customer_that_asks_for_everything_is_throttled_by_name_and_others_are_repaired_in_time() -> None:
    def world_with(hostile: int) -> tuple[World, Host, Host]:
        world = World(3, Link(loss=0.05))
        server = world.add_server(X1, AnswerLimits(quiet_ns=10 * MS, rate=2_000, customer_rate=200, customer_burst=64))
        host = world.add_customer(C, settings(servers=(X1,), join=JoinPoint.SEQUENCE))
        for place in range(100):
            world.publish(NOW + (200 + 10 * place) * MS, 10)
        world.links[C, X1] = world.links[X1, C] = Link()
        for place in range(hostile):
            first = 1 + 64 * place % 500
            event = arrive(RangeRequest(0, NO_EPOCH, C + 7, Range.SEQUENCES, first, first + 63))
            world.at(NOW + 300 * MS + place * MS // 4, lambda event=event: world.step(server, event))  # type: ignore[misc]
        world.run(NOW + 3 * SECOND)
        return world, host, server

    _, calm, _ = world_with(hostile=0)
    world, host, server = world_with(hostile=4_000)
    assert host.sequences() == list(range(1, 1_001))
    named = cast("list[CustomerThrottled]", server.effects(CustomerThrottled))
    assert [told.customer for told in named] == [C + 7] * len(named)
    assert 1 <= len(named) <= 3
    account = cast("RetransmitServer", server.machine).line.accounts[C + 7]
    assert account.served <= 64 + 200 * 3
    assert account.refused > 3_000
    worst = max([b[0] - a[0] for a, b in zip(calm.deliveries(), host.deliveries(), strict=True)])
    assert worst <= 0
    assert world.sent == 1_000


def test_servers_that_cannot_be_reached_leave_a_gap_open_and_nothing_is_delivered_out_of_order() -> None:
    world = World(5, Link())
    world.add_server(X1)
    host = world.add_customer(C, settings(servers=(X1,), join=JoinPoint.SEQUENCE, hold_max=64))
    world.links[C, X1] = world.links[X1, C] = Link(loss=1.0)
    world.closed.add(X1)
    world.links[1, C] = world.links[2, C] = Link(loss=0.3)
    for place in range(100):
        world.publish(NOW + (200 + 10 * place) * MS, 10)
    world.run(NOW + 2 * SECOND)
    got = host.sequences()
    assert got == list(range(1, len(got) + 1))
    assert len(got) < 1_000
    assert view(host).held <= 64
    world.closed.clear()
    world.run(NOW + 5 * SECOND)
    assert host.sequences() == list(range(1, 1_001))


def test_a_line_that_lies_is_found_out_and_bounded() -> None:
    """A line that invents messages, near and far, at ten times the normal rate."""
    world = World(9, Link())
    world.add_server(X1)
    own = settings(servers=(X1,), lines=(1, 2, 3), join=JoinPoint.SEQUENCE, hold_max=128, recent_max=64)
    host = world.add_customer(C, own)
    for place in range(100):
        world.publish(NOW + (200 + 10 * place) * MS, 10)
        for step in range(10):
            far = [rel((1 << 40) + place * 100 + step * 10 + more, 3, b"lie") for more in range(10)]
            event = arrive(*far)
            world.at(NOW + (200 + 10 * place + step) * MS, lambda event=event: world.step(host, event))  # type: ignore[misc]
    world.run(NOW + 3 * SECOND)
    assert host.sequences() == list(range(1, 1_001))
    assert [payload for _, _, payload in host.deliveries()] == world.journal
    assert view(host).held == 0
    assert view(host).counters.fetches < 20
    assert host.effects(CustomerSlow) == []


def test_a_run_is_a_function_of_its_seed() -> None:
    def told(seed: int) -> list[tuple[int, object]]:
        world = World(seed, Link(loss=0.1, jitter_ns=4 * MS, repeat=0.1))
        world.add_server(X1)
        host = world.add_customer(C, settings(servers=(X1,), join=JoinPoint.SEQUENCE))
        publish(world, [(10, 20)] * 10)
        world.run(NOW + LATE)
        return host.told

    assert told(1) == told(1)
    assert told(1) != told(2)
