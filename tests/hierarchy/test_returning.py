"""L5 under every fault at once: however a customer fell behind, it has everything a bounded time after faults stop.

A state machine kills the server and the customer, breaks visits off, shuts doors, uses shares up, and loses packets,
repairs among them. At the end of every run all of that stops, and the clock is given `BOUND_NS`.
"""

from __future__ import annotations

from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.hierarchy.door_world import DoorWorld
from tests.hierarchy.edge_makers import MS, X1, X2, C, settings
from tests.hierarchy.edge_world import Link

from isocast.hierarchy.archive import AnswerLimits, RangeAsked
from isocast.hierarchy.customer_settings import JoinPoint
from isocast.nodes.retransmit_server import RetransmitSettings
from isocast.terms.instants import SECOND

BOUND_NS = 20 * SECOND
"""A node is dead for 5 s and a visit hangs for 5 s; at 200 messages a second, 2,000 take 10 s."""
GREEDY = C + 7


class Returning(RuleBasedStateMachine):
    """One customer, one or two servers, two lines."""

    world: DoorWorld

    @initialize(
        seed=st.integers(0, 1 << 16),
        servers=st.sampled_from([(X1,), (X1, X2)]),
        rate=st.sampled_from([200, 2_000, 20_000]),
        burst=st.sampled_from([16, 64, 8_192]),
        hold=st.sampled_from([16, 64, 32_768]),
        fetch=st.sampled_from([8, 64, 4_096]),
        resorts=st.sampled_from([(), (1, 2)]),
        heard=st.sampled_from([(1, 2), (1,)]),
    )
    def begin(
        self,
        seed: int,
        servers: tuple[int, ...],
        rate: int,
        burst: int,
        hold: int,
        fetch: int,
        resorts: tuple[int, ...],
        heard: tuple[int, ...],
    ) -> None:
        self.world = DoorWorld(seed, Link())
        self.servers = servers
        own = settings(
            lines=heard,
            servers=heard,
            last_resorts=(1, 2),
            by_datagram=False,
            join=JoinPoint.SEQUENCE,
            hold_max=hold,
            recent_max=64,
        )
        door = AnswerLimits(
            rate=2 * rate,
            burst=2 * burst,
            customer_rate=rate,
            customer_burst=burst,
            pending_max=1,
            range_max=4_096,
            quantum=4_096,
            quiet_ns=0,
            keeps_rest=False,
            newest_counts=True,
        )
        for server in servers:
            self.world.add_server_with(server, RetransmitSettings(own, AnswerLimits(quiet_ns=10 * MS), door))
        customer = settings(
            servers=servers,
            last_resorts=resorts,
            join=JoinPoint.SEQUENCE,
            hold_max=hold,
            ask_max=16,
            recent_max=64,
            fetch_max=fetch,
        )
        self.host = self.world.add_customer(C, customer)

    def pass_ms(self, milliseconds: int) -> None:
        self.world.run(self.world.now + milliseconds * MS)

    @rule(count=st.integers(1, 300), milliseconds=st.sampled_from([0, 1, 7, 40, 300]))
    def publish(self, count: int, milliseconds: int) -> None:
        self.world.publish(self.world.now, count)
        self.pass_ms(milliseconds)

    @rule(milliseconds=st.sampled_from([1, 5, 11, 25, 100, 1_500, 4_000]))
    def wait(self, milliseconds: int) -> None:
        self.pass_ms(milliseconds)

    @rule(which=st.integers(0, 1), milliseconds=st.sampled_from([1, 30, 700, 5_000]))
    def kill_a_server(self, which: int, milliseconds: int) -> None:
        self.world.kill(self.servers[which % len(self.servers)], milliseconds * MS)

    @rule(line=st.sampled_from([1, 2]), milliseconds=st.sampled_from([1, 30, 700, 5_000]), mute=st.booleans())
    def kill_a_receiver(self, line: int, milliseconds: int, mute: bool) -> None:  # noqa: FBT001 (a drawn value)
        """Perhaps between its journal and its line: what its line never carried, it never will."""
        if mute:
            self.world.mute.add(line)
            self.world.publish(self.world.now, 3)
            self.pass_ms(0)
        self.world.kill(line, milliseconds * MS)

    @rule(milliseconds=st.sampled_from([1, 30, 700, 5_000]))
    def kill_everybody(self, milliseconds: int) -> None:
        for node in (1, 2, *self.servers, C):
            self.world.kill(node, milliseconds * MS)

    @rule(milliseconds=st.sampled_from([1, 30, 700, 5_000]))
    def kill_the_customer(self, milliseconds: int) -> None:
        self.world.kill(C, milliseconds * MS)

    @rule(which=st.integers(0, 1))
    def break_visits_off(self, which: int) -> None:
        self.world.drop_visits(self.servers[which % len(self.servers)])

    @rule(which=st.sampled_from([1, 2, X1, X2]), shut=st.booleans())
    def shut_a_door(self, which: int, shut: bool) -> None:  # noqa: FBT001 (a drawn value)
        (self.world.closed.add if shut else self.world.closed.discard)(which)

    @rule(
        sender=st.sampled_from([1, 2, X1, C]),
        to=st.sampled_from([X1, X2, C]),
        loss=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
        jitter=st.sampled_from([0, 5]),
    )
    def lose(self, sender: int, to: int, loss: float, jitter: int) -> None:
        self.world.links[sender, to] = Link(loss=loss, jitter_ns=jitter * MS)

    @rule(requests=st.integers(1, 20))
    def use_the_share_up(self, requests: int) -> None:
        """Somebody else asks for everything, at the same door."""
        server = self.world.hosts[self.servers[0]]
        for place in range(requests):
            self.world.step(server, RangeAsked(GREEDY + place % 3, 1, max(self.world.sent, 1)))

    @rule()
    def pause_the_customer(self) -> None:
        if self.host.paused is None:
            self.world.pause(C)

    @rule()
    def resume_the_customer(self) -> None:
        if self.host.paused is not None:
            self.world.resume(C)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.closed.clear()
        world.links.clear()
        self.resume_the_customer()
        world.run(world.now + BOUND_NS)
        everything = list(range(1, world.sent + 1))
        assert self.host.sequences() == everything
        assert [payload for _, _, payload in self.host.deliveries()] == world.journal
        for server in self.servers:
            assert sorted(world.archives[server]) == everything


def test_a_server_that_answers_nobody_any_more_keeps_nobody_from_the_rest() -> None:
    """Its process lives, its door is shut, and a customer comes back from far behind."""
    world = DoorWorld(1, Link())
    own = settings(servers=(1, 2), by_datagram=False, join=JoinPoint.SEQUENCE)
    world.add_server_with(X1, RetransmitSettings(own, AnswerLimits(quiet_ns=10 * MS)))
    host = world.add_customer(C, settings(servers=(X1,), last_resorts=(1, 2), join=JoinPoint.SEQUENCE))
    world.publish(world.now + 200 * MS, 100)
    world.run(world.now + 300 * MS)
    world.kill(C, 500 * MS)
    world.closed.add(X1)
    world.links[C, X1] = Link(loss=1.0)
    world.publish(world.now + 100 * MS, 5_000)
    world.run(world.now + 2 * SECOND)
    assert host.sequences() == list(range(1, 5_101))


TestReturning = Returning.TestCase
TestReturning.settings = effort(max_examples=60, stateful_step_count=20, deadline=None)
