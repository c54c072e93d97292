"""A host: step, perform, arm; crash, boot, pause, and a clock that is set."""

from __future__ import annotations

from isocast.ring.effects import OutboxFreed, Persist
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.simulation.host import Clock, Doom, SimulatedHost
from isocast.simulation.network import Agenda, stream
from isocast.terms.instants import NEVER


class Echo:
    """A machine that tells what happens to it and wants to be woken every so often."""

    def __init__(self, every: int = NEVER) -> None:
        self.every = every
        self.deadline = every

    def step(self, event: object, now: int) -> tuple[tuple[int, object], ...]:
        if isinstance(event, TimerFired):
            self.deadline = now + self.every
            return ((now, "timer"),)
        assert isinstance(event, PacketsArrived)
        return ((now, tuple(event.packets)),)

    def next_deadline(self) -> int:
        return self.deadline


class Rack:
    """One host."""

    def __init__(self, machine: Echo, clock: Clock | None = None) -> None:
        self.agenda = Agenda()
        self.done: list[tuple[int, object]] = []
        self.host = SimulatedHost(
            1, machine, self.agenda, clock or Clock(), lambda _, effect: self.done.append((self.agenda.now, effect))
        )
        self.host.arm()

    def run(self, until: int) -> list[tuple[int, object]]:
        self.agenda.run(until)
        done, self.done = self.done, []
        return done

    def deliver(self, at: int, packet: str) -> None:
        self.agenda.put(at, self.host.deliver, (packet,))


def test_a_machine_is_woken_at_its_deadlines() -> None:
    assert Rack(Echo(10)).run(35) == [(10, (10, "timer")), (20, (20, "timer")), (30, (30, "timer"))]


def test_deadlines_are_local_time() -> None:
    assert Rack(Echo(10), Clock(3, 0, 3)).run(8) == [(7, (10, "timer"))]


def test_a_wake_up_may_be_late() -> None:
    rack = Rack(Echo(10))
    rack.host.wake_lateness_ns, rack.host.wake_random = 1_000, stream(1, "wake")
    rack.host.crash()
    rack.host.boot(Echo(10))
    [(at, _)] = rack.run(10**6)[:1]
    assert at > 10


def test_a_crashed_host_hears_nothing_and_its_timers_die() -> None:
    rack = Rack(Echo(10))
    rack.deliver(12, "lost")
    rack.run(10)
    rack.host.crash()
    assert rack.run(100) == []
    rack.host.boot(Echo(30))
    rack.deliver(110, "heard")
    assert rack.run(110) == [(100, (100, "timer")), (110, (110, ("heard",)))]


def test_a_paused_host_stands_still_and_then_catches_up() -> None:
    """As by SIGSTOP: packets wait in the socket, timers do not fire; first the late timer, then the packets."""
    rack = Rack(Echo(10))
    rack.host.pause()
    rack.deliver(5, "first")
    rack.deliver(15, "second")
    assert rack.run(40) == []
    rack.host.resume()
    assert rack.done == [(40, (40, "timer")), (40, (40, ("first",))), (40, (40, ("second",)))]
    rack.done.clear()
    assert rack.run(50) == [(50, (50, "timer"))]


def test_a_crash_ends_a_pause() -> None:
    rack = Rack(Echo(10))
    rack.host.pause()
    rack.host.crash()
    rack.host.boot(Echo(10))
    rack.host.resume()
    assert rack.run(10) == [(10, (10, "timer"))]


def test_a_clock_that_is_set_wakes_the_machine_and_arms_it_anew() -> None:
    rack = Rack(Echo(10))
    rack.run(4)
    rack.host.clock.step(100)
    rack.host.rearm()
    assert rack.done == [(4, (104, "timer"))]
    rack.done.clear()
    assert rack.run(14) == [(14, (114, "timer"))]


class Clerk(Echo):
    """Writes, and says what it wrote."""

    def step(self, event: object, now: int) -> tuple[object, ...]:  # type: ignore[override]
        self.deadline = now + self.every
        wrote = Persist(OutboxFreed(1))
        return (wrote, "said", "done") if isinstance(event, PacketsArrived) else ("idle", "idle")


def test_a_doomed_host_goes_down_between_two_effects_of_the_first_step_that_writes() -> None:
    rack = Rack(Clerk(10))
    rack.host.doom = Doom(1, lambda host: host.crash(), lambda _, __: False)
    rack.deliver(15, "write this")
    rack.deliver(16, "and this")
    done = [effect for _, effect in rack.run(100)]
    assert done == ["idle", "idle", Persist(OutboxFreed(1))]
    assert rack.host.machine is None


def test_a_doom_that_lets_the_whole_step_pass_waits_for_a_longer_one() -> None:
    rack = Rack(Clerk())
    rack.host.doom = Doom(3, lambda host: host.crash(), lambda _, __: False)
    rack.deliver(15, "write this")
    assert len(rack.run(100)) == 3
    assert rack.host.machine is not None
