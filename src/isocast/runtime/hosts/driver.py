"""Drives one machine on real sockets and a real clock: step, perform, arm, as the simulator does.

All effects of a step are performed in order, but what must be durable first: nothing leaves the process before the
records that it rests on are written. A step that fails is the last one: the machine may believe what the disk never
took, so from then on nothing is heard, sent or fed.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from isocast.ring.effects import DriverEffect, Multicast, Persist, Record, Unicast
from isocast.ring.inputs import ClockJudged, DriverInput, Event_contra, Machine, PacketsArrived, TimerFired
from isocast.runtime.net.channels import Channels
from isocast.runtime.net.clock import AlarmClock, ClockStatus, SystemClock
from isocast.runtime.watch.counters import NodeCounters
from isocast.terms.instants import NEVER

__all__ = ["Driver", "Host"]

_TIMER_FIRED = TimerFired()
HostEffect_contra = TypeVar("HostEffect_contra", contravariant=True)


class Host(Protocol[HostEffect_contra]):
    """A role's own part: its disk, and the effects that only it knows."""

    def persist(self, records: list[Record]) -> None:
        """Write records; return when they are as durable as the market promises."""

    def perform(self, effect: HostEffect_contra, now: int) -> None:
        """Do one effect that is neither Persist, Multicast nor Unicast."""

    def next_deadline(self) -> int:
        """When the role wants `wake`, apart from its machine, or NEVER."""

    def wake(self, now: int) -> None:
        """The role's own deadline has come, or the clock was set."""


class Driver(Generic[Event_contra, HostEffect_contra]):
    """One machine's place in the event loop; its host feeds it events, and performs its effects, of the given kinds."""

    def __init__(
        self,
        machine: Machine[Event_contra | DriverInput, HostEffect_contra | DriverEffect],
        host: Host[HostEffect_contra],
        channels: Channels,
        clock: SystemClock,
        loop: AbstractEventLoop,
        counters: NodeCounters,
    ) -> None:
        """Nothing happens before `start`."""
        self.machine = machine
        self.host = host
        self.channels = channels
        self.clock = clock
        self.counters = counters
        self.failed: Callable[[BaseException], None] | None = None
        """Told of an error that this process cannot go on with: a full disk, a mistake of ours."""
        self.after_step: Callable[[int], None] | None = None
        """Called when packets or the timer were dealt with: for a role that has more to give its machine."""
        self.clock_judged: Callable[[ClockStatus], None] | None = None
        """Told when the clock is found outside its bound, or within it again."""
        self.heard: Callable[[Sequence[object], int], None] | None = None
        """Told of all packets before the machine is: for measurements of the network."""
        self.behind_ns = 0
        """How late the present step is against the instant that was armed: so long the process did not get to run."""
        self._trusted = True
        self._running = False
        self._loop = loop
        self._alarm = AlarmClock(loop, self._rang, self._clock_set, offset_ns=clock.offset_ns)
        self._armed = NEVER
        self._watched: list[int] = []

    @property
    def running(self) -> bool:
        """Whether anything is heard and done."""
        return self._running

    def start(self) -> None:
        """Listen, and let the machine say when it wants to be woken."""
        self._running = True
        for fileno in self.channels.filenos():
            self._loop.add_reader(fileno, self._guarded, self._read)
            self._watched.append(fileno)
        self._guarded(self._arm)

    def stop(self) -> None:
        """Hear and do nothing more, even if called; sockets and files are closed by their owners."""
        self._running = False
        for fileno in self._watched:
            self._loop.remove_reader(fileno)
        self._watched.clear()
        self._alarm.close()

    def retune(self, change: Callable[[], None]) -> None:
        """Change which sockets there are, while nobody listens to any of them."""
        for fileno in self._watched:
            self._loop.remove_reader(fileno)
        self._watched.clear()
        change()
        if self._running:
            for fileno in self.channels.filenos():
                self._loop.add_reader(fileno, self._guarded, self._read)
                self._watched.append(fileno)

    def feed(self, *events: Event_contra | DriverInput) -> None:
        """Give the machine inputs of another kind than packets; their effects are performed together."""
        self._guarded(lambda: self._run(events))

    def judge_clock(self) -> None:
        """Look at the clock: about once a second, besides whenever it jumps."""
        self._guarded(lambda: self._run(self._judged()))

    def step_clock(self, span_ns: int) -> None:
        """Set this process's clock forward or back, as if the machine's had been set: for drills."""
        self.clock.offset_ns += span_ns
        self._alarm.follow(self.clock.offset_ns)
        self._clock_set()

    def rearm(self) -> None:
        """The role's own deadline has changed."""
        self._guarded(self._arm)

    # What the loop calls ------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do it unless the driver has stopped; an exception ends the process in order, with the reason."""
        if not self._running:
            return
        try:
            work()
        except Exception as error:
            self.stop()
            if self.failed is None:
                raise
            self.failed(error)

    def _rang(self) -> None:
        self._guarded(self._wake)

    def _clock_set(self) -> None:
        self._guarded(self._follow_clock)

    def _read(self) -> None:
        packets = self.channels.receive(self.clock.now())
        if packets:
            if self.heard is not None:
                self.heard(packets, self.clock.now())
            self._run((PacketsArrived(packets),))
            if self.after_step is not None:
                self.after_step(self.clock.now())
        elif self.channels.next_deadline() < self._armed:
            self._arm()

    def _wake(self) -> None:
        now = self.clock.now()
        if self._armed < NEVER:
            self.behind_ns = max(now - self._armed, 0)
            self.counters.timer_lateness.observe(self.behind_ns)
        self._armed = NEVER
        # What waits in our own sockets has arrived: nobody shall be asked for it, or suspected, because we were slow.
        packets = self.channels.receive(now) + self.channels.due(now)
        if packets and self.heard is not None:
            self.heard(packets, now)
        events: list[DriverInput] = [PacketsArrived(packets)] if packets else []
        if self.machine.next_deadline() <= now:
            events.append(_TIMER_FIRED)
        if self.host.next_deadline() <= now:
            self._wake_host(now)
        self._run(events)
        if self.after_step is not None:
            self.after_step(now)

    def _wake_host(self, now: int) -> None:
        self.host.wake(now)
        if self._running:  # A role that fed its machine may have ended everything.
            self.channels.flush()

    def _follow_clock(self) -> None:
        """The clock was set: what was armed no longer counts, and every node of this process is told the time."""
        self._armed = NEVER
        self._run((_TIMER_FIRED,))
        if self._running:
            self._wake_host(self.clock.now())
            self._arm()

    # Step, perform, arm -------------------------------------------------------------------------

    def _judged(self) -> tuple[ClockJudged, ...]:
        """What the machine must hear of its clock before anything else: nothing, unless the judgement changed."""
        status = self.clock.check()
        if status.trusted == self._trusted:
            return ()
        self._trusted = status.trusted
        if self.clock_judged is not None:
            self.clock_judged(status)
        return (ClockJudged(status.trusted),)

    def _run(self, events: Sequence[Event_contra | DriverInput]) -> None:
        if not self._running:
            return  # An earlier call has failed.
        if self.clock.jumped():
            # A clock set forward would make everything due at once: the machine is told before it looks at the time.
            events = (*self._judged(), *events)
        if self._armed < NEVER:  # When the alarm rang, it was noted then.
            self.behind_ns = max(self.clock.now() - self._armed, 0)
        effects: list[HostEffect_contra | DriverEffect] = []
        for event in events:
            effects += self.machine.step(event, self.clock.now())
        if effects:
            self._perform(effects)
        self._arm()

    def _perform(self, effects: Sequence[HostEffect_contra | DriverEffect]) -> None:
        records = [effect.record for effect in effects if isinstance(effect, Persist)]
        if records:
            self.host.persist(records)
        channels, perform, now = self.channels, self.host.perform, self.clock.now()
        for effect in effects:
            if isinstance(effect, Multicast):
                channels.multicast(effect.packet)
            elif isinstance(effect, Unicast):
                channels.unicast(effect.to, effect.packet)
            elif not isinstance(effect, Persist):
                perform(effect, now)
        channels.flush()

    def _arm(self) -> None:
        if not self._running:
            return
        deadline = min(self.machine.next_deadline(), self.channels.next_deadline(), self.host.next_deadline())
        if deadline != self._armed:
            self._armed = deadline
            if deadline >= NEVER:
                self._alarm.clear()
            else:
                self._alarm.set(deadline)
