"""One scenario, run under simulation and on loopback UDP: the same sequence, the same tokens, the same releases.

The real market goes first and says when each message was on its way, counted from the ring's first token. The
simulator then gets the same messages at the same instants, with the same secrets, times and ids. Nothing else is
handed over: order, tokens, shuffle and release instants are each world's own doing.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.interop.places import new_market, own_place
from tests.interop.released import whole_journal

from isocast.checks.facts import Fact
from isocast.checks.facts import Released as ReleasedFact
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.outbox_store import open_outbox_store
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.market.model import Market, NodeRole
from isocast.simulation.recording import Recorder
from isocast.simulation.scenario import Scenario, scenario_from_mapping
from isocast.simulation.world import Build, World
from isocast.terms.ids import Epoch, Label, NodeId, server_id, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.packets import payload_digest

INCARNATION = 77
YEAR_2020 = 1_577_836_800
SECRETS = {site: bytes([site]) * 32 for site in range(1, 7)}
"""Of the nonces, so that a shuffle comes out alike."""
RECEIVERS: dict[str, dict[str, object]] = {
    "amsterdam": {"role": "primary-receiver"},
    "boston": {"role": "primary-receiver"},
    "cairo": {"role": "primary-receiver"},
    "delft": {"role": "secondary-receiver", "parent": "amsterdam", "backup": "boston"},
    "exeter": {"role": "secondary-receiver", "parent": "boston", "backup": "cairo"},
    "fez": {"role": "secondary-receiver", "parent": "cairo", "backup": "amsterdam"},
}
NODES = RECEIVERS | {
    "nyse": {"role": "primary-source"},
    "lse": {"role": "primary-source"},
    "tse": {"role": "primary-source"},
    "server": {"role": "reformation-server"},
}
PROCESS_MS = (600, 600, 1_200, 2_400, 2_400, 2_400)
"""Of each attempt: nobody is late before 0.6 s, and a token comes every 0.752 s; a starved machine gets more time."""
PLAN = (
    (1, 0.20, "nyse", 1),
    (1, 0.35, "lse", 2),
    (1, 0.50, "nyse", 1),
    (1, 0.65, "tse", 1),
    (2, 0.25, "tse", 2),
    (2, 0.40, "lse", 1),
    (2, 0.55, "nyse", 4),
    # Token 4 has nothing to acknowledge.
    (4, 0.20, "lse", 1),
    (4, 0.30, "tse", 1),
    (4, 0.40, "nyse", 1),
    (4, 0.50, "lse", 3),
    (4, 0.60, "tse", 2),
    (5, 0.30, "nyse", 5),
    (5, 0.60, "lse", 1),
)
"""After which token's instant, at which part of the period, whose, and how many messages at once."""
GUARD_NS = 75 * MILLISECOND
"""Between a message's arrival anywhere and the next token."""
PATIENCE_S = 60.0


class Line(NamedTuple):
    """One message as a site released it; instants count from the ring's first token."""

    sequence: int
    source: int
    number: int
    payload: bytes
    """Its digest."""
    token_number: int
    epoch: Epoch
    instant: int
    due: int


class Submission(NamedTuple):
    at: int
    """After T0."""
    source: NodeId
    payloads: tuple[bytes, ...]


@dataclass
class Outcome:
    """What one world did."""

    ring: tuple[NodeId, ...]
    epoch: Epoch
    released: dict[NodeId, list[Line]]


class TooBusyError(Exception):
    """The machine did not give us our instants: nothing can be compared."""


# ---- the real one


def settled_market(folder: Path, place: Any, order: str, process_ms: int) -> Market:  # noqa: ANN401 (a Place)
    """A market whose secrets and incarnations are known."""
    timing = {"profile": "ci", "detect": "50ms", "process": f"{process_ms}ms", "retries_max": 1}
    market = new_market(folder, place, NODES, timing=timing, ring={"order": order, "release_rate": 2})
    for plan in market.receivers:
        path = market.directory_of(plan.name) / "nonces.secret"
        path.write_bytes(SECRETS[plan.node])
    for plan in market.by_role(NodeRole.PRIMARY_SOURCE):
        identity = StoreIdentity(market.name, plan.name, plan.node)
        directory = market.directory_of(plan.name) / "outbox"
        open_outbox_store(directory, identity, clock=lambda: YEAR_2020 + INCARNATION).close()
    return market


class RealRun:
    """Every node of a market in this process, each on sockets of its own."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.nodes = {plan.name: NodeProcess(market, plan) for plan in market.nodes}
        self.submissions: list[Submission] = []

    async def run(self) -> None:
        async with AsyncExitStack() as opened:
            # The server last: everybody is there for the first ballot.
            for name in (*RECEIVERS, "nyse", "lse", "tse", "server"):
                await self.nodes[name].start()
                opened.push_async_callback(self.nodes[name].stop)
            await self._until(lambda: all(receiver.schedule for receiver in self._receivers()))
            publishers = {
                name: await opened.enter_async_context(Publisher(self.market, name)) for name in ("nyse", "lse", "tse")
            }
            for place, (token, part, source, count) in enumerate(PLAN):
                await self._submit(place, token, part, publishers[source], count)
            total = sum(len(submission.payloads) for submission in self.submissions)
            await self._until(lambda: all(self._released(name) == total for name in RECEIVERS))
            self._check_epoch()

    @property
    def start(self) -> int:
        """T0."""
        schedule = self._receivers()[0].schedule
        assert schedule is not None
        return int(schedule.start)

    async def _submit(self, place: int, token: int, part: float, publisher: Publisher, count: int) -> None:
        """Publish at an instant; the next one waits until everybody has it."""
        period = self.market.timing.token_period_ns
        begin = self.start + (token - 1) * period
        await asyncio.sleep(max(begin + round(part * period) - time_ns(), 0) / SECOND)
        per_message = publisher.events_per_message
        events = np.zeros(per_message * count, EVENT_DTYPE)
        events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XTST", b"ISO"
        events["id"] = events["time"] = 1 + place * 1_000 + np.arange(len(events))
        labels = await publisher.publish(events)
        at = time_ns()
        await self._until(lambda: all(self._has(receiver, labels) for receiver in self._receivers()))
        if not begin + GUARD_NS < at <= time_ns() < begin + period - GUARD_NS:
            raise TooBusyError(f"message {place} arrived {(time_ns() - begin) / SECOND:.3f} s after its token")
        step = per_message * EVENT_DTYPE.itemsize
        whole = events.tobytes()
        payloads = tuple(whole[start : start + step] for start in range(0, len(whole), step))
        self.submissions.append(Submission(at - self.start, labels[0].source, payloads))

    @staticmethod
    def _has(receiver: Any, labels: Sequence[Label]) -> bool:  # noqa: ANN401 (a Receiver)
        ledger = receiver.ledger
        return all(
            tuple(label) in ledger.waiting or label.number < ledger.next_number.get(label.source, 1) for label in labels
        )

    def _receivers(self) -> list[Any]:
        hosts: list[Any] = [self.nodes[name].host for name in RECEIVERS]
        return [host.machine.receiver for host in hosts]

    def _released(self, name: str) -> int:
        host: Any = self.nodes[name].host
        return int(host.journal.position.next_sequence) - 1

    def _check_epoch(self) -> None:
        epochs = {receiver.accepted for receiver in self._receivers()}
        members = len(self._receivers()[0].schedule.ring)
        if epochs != {Epoch(1, server_id(1))} or members < 3:
            raise TooBusyError(f"the ring was formed anew, or without somebody: {sorted(epochs)}, {members} members")

    async def _until(self, true: Any) -> None:  # noqa: ANN401 (a condition)
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                failures = [node.failure for node in self.nodes.values() if node.failure is not None]
                assert not failures, failures
                await asyncio.sleep(0.002)

    def outcome(self) -> Outcome:
        """From the journals alone, but for the ring."""
        receiver, start = self._receivers()[0], self.start
        released = {
            plan.node: [
                Line(
                    m.sequence,
                    *m.label,
                    payload_digest(m.payload),
                    m.token_number,
                    m.epoch,
                    m.instant - start,
                    m.due - start,
                )
                for m in whole_journal(self.market.directory_of(plan.name))
            ]
            for plan in self.market.receivers
        }
        return Outcome(receiver.schedule.ring, receiver.accepted, released)


# ---- the simulated one


class _KnownPrimary(PrimaryReceiver):
    def __init__(self, site: NodeId, settings: Any, _: bytes, state: Any, **rest: Any) -> None:  # noqa: ANN401
        super().__init__(site, settings, SECRETS[site], state, **rest)


class _KnownSecondary(SecondaryReceiver):
    def __init__(self, site: NodeId, settings: Any, *, secret: bytes, **rest: Any) -> None:  # noqa: ANN401
        del secret
        super().__init__(site, settings, secret=SECRETS[site], **rest)


def scenario_of(market: Market, order: str) -> Scenario:
    timing = market.timing
    return scenario_from_mapping(
        {
            "receivers": 3,
            "secondaries": 1,
            "servers": 1,
            "sources": 1,
            "one_way_delay": 0.0002,
            "secondary_delay": 0.0001,
            "detect": timing.detect_ns / SECOND,
            "process": timing.process_ns / SECOND,
            "retries_max": timing.retries_max,
            "clock_error": timing.clock_error_ns / SECOND,
            "secondary_detect": timing.secondary_detect_ns / SECOND,
            "gate": "majority",
            "order_in_token": order,
            "window": market.window,
            "release_rate": market.release_rate,
        },
        "interop",
    )


def simulate(scenario: Scenario, submissions: Sequence[Submission]) -> Outcome:
    """The same submissions, counted from this world's own first token."""
    facts: list[Fact] = []
    recorder = Recorder(None, 6, transcript=facts.append)
    world = World(scenario, 1, recorder, Build(receiver=_KnownPrimary, secondary=_KnownSecondary))
    for number in (1, 2, 3):
        world.add(source_id(number, INCARNATION))
    while not world.rings:
        world.agenda.run(world.agenda.now + MILLISECOND)
    ring = world.rings[0]
    for place, (at, source, payloads) in enumerate(submissions):
        batch = [(b"%d/%d" % (place, count), payload) for count, payload in enumerate(payloads)]

        def submit(argument: Any) -> None:  # noqa: ANN401 (source and batch)
            world.submit(*argument)

        world.agenda.put(ring.start + at, submit, (source, batch))
    world.agenda.run(ring.start + submissions[-1].at + 4 * scenario.timing.release_delay_ns)
    released: dict[NodeId, list[Line]] = {site: [] for site in world.all_sites}
    for fact in facts:
        if isinstance(fact, ReleasedFact):
            for sequence, message in enumerate(fact.messages, fact.first_sequence):
                due = fact.due - ring.start
                label = (message.sender, message.number)
                digest = payload_digest(message.payload)
                line = Line(sequence, *label, digest, fact.token_number, fact.epoch, fact.instant - ring.start, due)
                released[fact.site].append(line)
    return Outcome(ring.ring, world.rings[-1].ballot, released)


# ---- both


@pytest.mark.parametrize("order", ["arrival", "shuffle"])
def test_simulation_and_loopback_give_the_same_sequence_and_releases(tmp_path: Path, order: str) -> None:
    run = _real_run(tmp_path, order)
    real = run.outcome()
    scenario = scenario_of(run.market, order)
    assert scenario.timing == run.market.timing
    simulated = simulate(scenario, run.submissions)

    total = sum(len(submission.payloads) for submission in run.submissions)
    assert {site: len(lines) for site, lines in real.released.items()} == dict.fromkeys(range(1, 7), total)
    assert simulated.ring == real.ring
    assert simulated.epoch == real.epoch
    for site in range(1, 7):
        assert simulated.released[site] == real.released[site], f"site {site}"
    assert len({line.token_number for line in real.released[1]}) == 4
    in_order = [line[:3] for line in real.released[1]]
    assert (in_order == _as_submitted(run.submissions)) is (order == "arrival"), "the rule under test was not at work"


def _real_run(folder: Path, order: str) -> RealRun:
    """A run in which every message met the token that it was meant for; a starved machine gets another chance."""
    excuses: list[str] = []
    for attempt, process_ms in enumerate(PROCESS_MS):
        with own_place() as place:
            run = RealRun(settled_market(folder / str(attempt), place, order, process_ms))
            try:
                asyncio.run(run.run())
            except TooBusyError as reason:
                excuses.append(str(reason))
            else:
                return run
    pytest.fail(f"this machine is too busy to keep {GUARD_NS / SECOND} s: {excuses}")


def _as_submitted(submissions: Sequence[Submission]) -> list[tuple[int, int, int]]:
    """Sequence and label of every message, if nothing changes the order of arrival."""
    following = {source_id(number, INCARNATION): 1 for number in (1, 2, 3)}
    labels: list[tuple[int, int, int]] = []
    for submission in submissions:
        for _ in submission.payloads:
            labels.append((len(labels) + 1, submission.source, following[submission.source]))
            following[submission.source] += 1
    return labels
