"""Customers fail over between lines while the ring re-forms, and say whom they follow and what they wait for."""

from __future__ import annotations

from tests.hierarchy.edge_makers import EPOCH, FIRE, MS, NOW, arrive, beat, customer, of, rel, rels
from tests.simulation.worlds import EdgeRun

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.edge import (
    ConflictFound,
    GapAbandoned,
    GapOpened,
    LineSilent,
    LineSwitched,
    MarketGoesOn,
    MarketWaits,
    Waiting,
)
from isocast.simulation.layers import customer_id
from isocast.terms.ids import Epoch, NodeId, server_id
from isocast.terms.instants import SECOND
from isocast.wire.packets import ReleasedPacket

TICK = 100 * MS
LATER = Epoch(2, server_id(2))


def token(number: int, line: NodeId = 1, epoch: Epoch = EPOCH) -> ReleasedPacket:
    """A heartbeat of a receiver that holds a token."""
    return beat(1, line)._replace(token_number=number, epoch=epoch)


def hear(machine: Customer, first: int, ticks: int, *beats: ReleasedPacket) -> list[object]:
    """The same heartbeats at every tick; all effects."""
    effects: list[object] = []
    for tick in range(first, first + ticks):
        now = NOW + tick * TICK
        effects += machine.step(arrive(*[packet._replace(instant=now) for packet in beats]), now)
        effects += machine.step(FIRE, now)
    return effects


def test_the_first_of_its_lines_that_speaks_is_followed() -> None:
    machine = customer()
    assert machine.snapshot().followed is None
    assert of(hear(machine, 1, 1, token(1, 2)), LineSwitched) == [LineSwitched(2, None)]
    assert of(hear(machine, 2, 1, token(1, 2), token(1)), LineSwitched) == [LineSwitched(1, 2)]
    assert (machine.snapshot().followed, machine.snapshot().switches) == (1, 1)


def test_a_line_that_falls_silent_is_left_and_taken_back_when_it_returns() -> None:
    machine = customer()
    hear(machine, 1, 3, token(1), token(1, 2))
    effects = hear(machine, 4, 8, token(1, 2))
    assert [line.line for line in of(effects, LineSilent)] == [1]
    assert of(effects, LineSwitched) == [LineSwitched(2, 1)]
    assert of(hear(machine, 12, 1, token(1, 2), token(1)), LineSwitched) == [LineSwitched(1, 2)]
    assert machine.snapshot().switches == 2


def test_when_all_fall_silent_nobody_is_followed_and_the_same_line_is_no_switch() -> None:
    machine = customer()
    hear(machine, 1, 2, token(1), token(1, 2))
    effects = hear(machine, 3, 8)
    assert of(effects, LineSwitched) == []
    assert machine.snapshot().followed is None
    assert of(effects, MarketWaits) == [MarketWaits(Waiting.SILENT, NOW + 2 * TICK)]
    assert machine.snapshot().waiting is Waiting.SILENT
    effects = hear(machine, 11, 1, token(1))
    assert of(effects, MarketGoesOn) == [MarketGoesOn(Waiting.SILENT, 9 * TICK)]
    assert of(effects, LineSwitched) == []
    assert (machine.snapshot().followed, machine.snapshot().switches, machine.snapshot().waiting) == (1, 0, None)


def test_who_never_heard_a_line_says_so_and_not_before_it_could_have() -> None:
    machine = customer()
    assert of(hear(machine, 1, 5), MarketWaits) == []
    assert of(hear(machine, 6, 2), MarketWaits) == [MarketWaits(Waiting.SILENT, 0)]


def test_heartbeats_without_new_tokens_are_a_ring_that_is_being_formed_anew() -> None:
    """A quiet market has tokens: what does not turn is not quiet."""
    machine = customer(ring_ns=SECOND)
    effects: list[object] = []
    for number in range(1, 31):
        effects += hear(machine, number, 1, token(number), token(number, 2))
    assert of(effects, MarketWaits) == [], "nothing was published, and the ring turned"
    effects = hear(machine, 31, 20, token(30), token(30, 2))
    assert of(effects, MarketWaits) == [MarketWaits(Waiting.REFORMING, NOW + 30 * TICK)]
    snapshot = machine.snapshot()
    assert (snapshot.waiting, snapshot.waiting_since, snapshot.followed) == (Waiting.REFORMING, NOW + 30 * TICK, 1)
    effects = hear(machine, 51, 1, token(29, 2, LATER))
    assert of(effects, MarketGoesOn) == [MarketGoesOn(Waiting.REFORMING, 21 * TICK)], "a new ring may begin lower"
    assert machine.snapshot().waiting is None


def test_one_line_whose_tokens_come_is_enough() -> None:
    machine = customer(ring_ns=SECOND)
    effects: list[object] = []
    for number in range(1, 31):
        effects += hear(machine, number, 1, token(1), token(number, 2))
    assert of(effects, MarketWaits) == []


def test_a_customer_that_did_not_run_does_not_blame_the_ring() -> None:
    machine = customer(ring_ns=SECOND)
    hear(machine, 1, 3, token(1), token(1, 2))
    effects = hear(machine, 60, 3, token(1), token(1, 2))
    assert of(effects, MarketWaits) == []


def test_a_repetition_under_a_later_epoch_is_no_conflict_and_other_content_is() -> None:
    machine = customer()
    machine.step(arrive(*rels(1, 3)), NOW)
    again = [rel(sequence, 2, epoch=LATER) for sequence in (1, 2, 3)]
    effects = machine.step(arrive(*again), NOW + MS)
    assert of(effects, ConflictFound) == []
    effects = machine.step(arrive(rel(2, 2, b"other", epoch=LATER)), NOW + MS)
    assert [(found.sequence, found.first_line, found.other_line) for found in of(effects, ConflictFound)] == [(2, 1, 2)]
    assert machine.snapshot().counters.conflicts == 1


# ---- in the simulator's world


def test_while_a_receiver_is_dead_the_other_line_brings_everything_once() -> None:
    """Receiver 3 dies for some tokens while both lines are busy, and comes back."""
    node = customer_id(1)
    dead = {"kind": "crash", "at": 0.7, "until": 1.1, "sites": [3]}
    world = EdgeRun(dead, archives=1, customers=1, messages=500, arrival_rate=80, jitter=0.0005).run()
    assert world.sequences(node) == list(range(1, 501))
    assert world.effects(node, GapOpened, GapAbandoned, ConflictFound) == []
    switched = [(told.line, told.before) for told in world.effects(node, LineSwitched)]
    assert switched[:3] == [(3, None), (2, 3), (3, 2)]
    assert switched[-1] == (3, 2), "it is followed again, once it has caught up"
    released = {sequence: at for at, sequence, _ in world.released(2)}
    waits = [at - released[sequence] for at, sequence in world.deliveries(node)]
    assert max(waits) <= 15 * MS, "nobody waited for the line that had failed"
