"""One node of the simulated world: a machine with a clock that errs, a timer and a network under it.

The driver is the same three lines as on the real network: step, perform, arm. The effects of a step are performed one
by one, and a node that is doomed goes down between two of them: what it had done is done, and the rest never happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from isocast.ring.effects import EntryCompleted, Persist
from isocast.ring.inputs import Machine, PacketsArrived, TimerFired
from isocast.ring.ledger import LogEntry
from isocast.simulation.network import Agenda, PacketBurst
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER

if TYPE_CHECKING:
    from isocast.simulation.witness import NodeWitness

__all__ = ["Clock", "Doom", "Ordinary", "SimulatedHost"]


# A node's clock against true time: an error that wanders within a bound, steps beyond it, or runs away from it.


_PPM = 1_000_000
_STEPS = 16
"""Of the search for a true instant: each takes a slope of at most 5 % off what is left, so hours become nanoseconds."""


class Clock:
    """local = true + step + a triangle wave of the given amplitude, whose slope is the drift.

    The wave stands for a clock that drifts and is disciplined back: it stays within ±amplitude for ever. A clock that
    nobody disciplines any more (`run_away`) leaves it at a constant rate.
    """

    def __init__(self, amplitude_ns: int = 0, drift_ppm: int = 0, phase_ns: int = 0) -> None:
        """Without drift the error is constant: `phase_ns` cut to ±amplitude."""
        self.amplitude_ns = amplitude_ns
        self.drift_ppm = drift_ppm
        self.phase_ns = phase_ns
        self._step_ns = 0
        self._constant = max(-amplitude_ns, min(amplitude_ns, phase_ns))
        self._quarter = amplitude_ns * _PPM // drift_ppm if drift_ppm else 0
        self._away_ppm = 0
        self._away_since = 0

    def step(self, by_ns: int) -> None:
        """Set the clock forward, or back."""
        self._step_ns += by_ns
        self._constant += by_ns

    def run_away(self, true: int, rate_ppm: int) -> None:
        """Gain, or lose, so much from now on. Rate 0 sets the clock right: what was gained is given up."""
        self._away_ppm, self._away_since = rate_ppm, true

    def error_ns(self, true: int) -> int:
        """How far the clock is ahead of true time."""
        away = (true - self._away_since) * self._away_ppm // _PPM if self._away_ppm else 0
        quarter = self._quarter
        if not quarter:
            return self._constant + away
        place = (true + self.phase_ns) % (4 * quarter)
        if place > 2 * quarter:
            place = 4 * quarter - place
        return place * self.drift_ppm // _PPM - self.amplitude_ns + self._step_ns + away

    def local(self, true: int) -> int:
        """What the clock shows at a true instant."""
        return true + (self.error_ns(true) if self._quarter or self._away_ppm else self._constant)

    def true(self, local: int) -> int:
        """The first true instant at which the clock shows at least `local`."""
        if not self._quarter and not self._away_ppm:
            return local - self._constant
        guess = local - self.error_ns(local)
        for _ in range(_STEPS):
            guess += local - self.local(guess)
        while self.local(guess) < local:
            guess += 1
        return guess


_TIMER_FIRED = TimerFired()


Ordinary: TypeAlias = PacketsArrived | TimerFired
"""What every simulated machine gets."""
Event = TypeVar("Event")


class Doom:
    """A crash that falls inside a step: the first from now on that writes, after so many of its effects."""

    def __init__(
        self, effects: int, strike: Callable[[SimulatedHost], None], written: Callable[[SimulatedHost, LogEntry], bool]
    ) -> None:
        """`strike` brings the host down; `written` says whether its disk has an entry of the log."""
        self.effects = effects
        self.strike = strike
        self.written = written


class SimulatedHost:
    """Drives one machine. `perform(host, effect)` is the world's."""

    def __init__(
        self,
        node: NodeId,
        machine: Machine[Ordinary, object],
        agenda: Agenda,
        clock: Clock,
        perform: Callable[[SimulatedHost, object], None],
    ) -> None:
        """A host that is up, its timer not armed yet."""
        self.node = node
        self.machine: Machine[Ordinary, object] | None = machine
        self.clock = clock
        self.wake_lateness_ns = 0
        """Mean of an exponential delay between a timer's instant and the machine's step."""
        self.wake_random: Random | None = None
        self.witness: NodeWitness | None = None
        self.doom: Doom | None = None
        self._agenda = agenda
        self._perform = perform
        self._armed_local = NEVER
        self._arming = 0
        self._paused: list[PacketBurst] | None = None

    @property
    def running(self) -> bool:
        """Whether the node is up and not stopped."""
        return self.machine is not None and self._paused is None

    def local_now(self) -> int:
        """What this host's clock shows."""
        return self.clock.local(self._agenda.now)

    def deliver(self, burst: PacketBurst) -> None:
        """Packets arrived; a host that is down hears nothing."""
        machine = self.machine
        if machine is None:
            return
        if self._paused is not None:
            self._paused.append(burst)
            return
        witness = self.witness
        if witness is not None and witness.counts_receipts:
            witness.hears(self, burst)
        effects = machine.step(PacketsArrived(burst), self.clock.local(self._agenda.now))  # type: ignore[arg-type]
        if effects:
            self.perform(effects)
        if witness is not None:
            if witness.by_arrival:
                witness.took(self, burst)
            witness.stepped(self)
        if machine.next_deadline() < self._armed_local:
            self.arm()

    def feed(self, event: Event, *roles: type[Machine[Event, object]]) -> None:
        """Any other input, for a machine of one of these roles; a node that is down or stopped hears nothing."""
        machine = self.machine
        if self._paused is None and isinstance(machine, roles):
            self._stepped(machine.step(event, self.local_now()))

    def _stepped(self, effects: Sequence[object]) -> None:
        self.perform(effects)
        if self.witness is not None:
            self.witness.stepped(self)
        self.arm()

    def perform(self, effects: Sequence[object]) -> None:
        """Do what a step asks for, in order; or some of it."""
        doom = self.doom
        struck = doom is not None and len(effects) > doom.effects and any(isinstance(e, Persist) for e in effects)
        for effect in effects if doom is None or not struck else effects[: doom.effects]:
            self._perform(self, effect)
        if doom is not None and struck:
            for effect in effects[doom.effects :]:
                if isinstance(effect, EntryCompleted) and doom.written(self, effect.entry):
                    # The log grew, though nobody lived to say so.
                    self._perform(self, effect)
            self.doom = None
            doom.strike(self)

    def arm(self) -> None:
        """Make sure that the machine is woken at its deadline."""
        if self.machine is None or self._paused is not None:
            return
        deadline = self.machine.next_deadline()
        if deadline >= self._armed_local:
            return
        due = max(self.clock.true(deadline), self._agenda.now)
        if self.wake_random is not None:
            due += round(self.wake_random.expovariate(1 / self.wake_lateness_ns))
        self._armed_local = deadline
        self._arming += 1
        self._agenda.put(due, self._wake, self._arming)

    def rearm(self) -> None:
        """After a step of the clock: what was armed no longer counts, and the machine is told the time."""
        self._armed_local = NEVER
        machine = self.machine
        if machine is not None and self._paused is None:
            self._stepped(machine.step(_TIMER_FIRED, self.local_now()))

    def pause(self) -> None:
        """Stop running, as by SIGSTOP: packets wait in the socket, timers do not fire."""
        if self._paused is None:
            self._paused = []
            self._arming += 1
            self._armed_local = NEVER

    def resume(self) -> None:
        """Go on: first the timer that is late by now, then the packets that waited."""
        waiting, self._paused = self._paused, None
        if waiting is None or self.machine is None:
            return
        self._arming += 1
        self._wake(self._arming)
        for burst in waiting:
            self.deliver(burst)

    def crash(self) -> None:
        """Lose everything volatile."""
        self._paused = None
        self.machine = None
        self._armed_local = NEVER
        self._arming += 1

    def boot(self, machine: Machine[Ordinary, object]) -> None:
        """Come back with a machine made from what the disk kept."""
        self.machine = machine
        self._armed_local = NEVER
        if self.witness is not None:
            self.witness.begins(self)
        self.arm()

    def _wake(self, arming: object) -> None:
        if arming != self._arming:
            return
        self._armed_local = NEVER
        machine = self.machine
        if machine is None:
            return
        now = self.local_now()
        if machine.next_deadline() <= now:
            self.perform(machine.step(_TIMER_FIRED, now))
            if self.witness is not None:
                self.witness.stepped(self)
        self.arm()
