"""Step, perform, arm: the order of everything that a driver does, with everything around it made of paper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from tests.wire.samples import SAMPLES

from isocast.ring.effects import Multicast, Persist, PromiseMade, Record, Unicast
from isocast.ring.inputs import ClockJudged, PacketsArrived, TimerFired
from isocast.runtime.hosts import driver as module
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.net.channels import Channels
from isocast.runtime.net.clock import ClockStatus, Readings, SystemClock
from isocast.runtime.watch.counters import NodeCounters
from isocast.terms.errors import LocalProtocolError, StoreFull
from isocast.terms.ids import Epoch
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.wire.codec import PacketKind
from isocast.wire.packets import Packet

TOKEN, RECEIPT, NACK = SAMPLES[PacketKind.TOKEN], SAMPLES[PacketKind.RECEIPT], SAMPLES[PacketKind.NACK]
FIRST, SECOND_RECORD = PromiseMade(Epoch(1, 65_537)), PromiseMade(Epoch(2, 65_537))
START = 1_000 * SECOND
BOUND = 2 * MILLISECOND


class Stage:
    """A machine, its host, its channels, its clock and its loop; `log` has what was done to them, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.wall = START
        self.steady = 0
        self.answers: dict[type, Sequence[object]] = {}
        """What the machine does about an input."""
        self.machine_deadline = self.host_deadline = self.channels_deadline = NEVER
        self.arrived: list[Packet] = []
        self.delayed: list[Packet] = []
        self.trouble: dict[str, Exception] = {}
        """What raises instead of working."""
        self.failures: list[BaseException] = []
        self.judgements: list[ClockStatus] = []
        self.readers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        monkeypatch.setattr(module, "AlarmClock", lambda *parts, **_: PaperAlarm(self, *parts))
        readings = Readings(lambda: self.wall, lambda: self.steady, lambda: self.steady, lambda: None)
        self.clock = SystemClock(BOUND, readings=readings)
        self.counters = NodeCounters()
        stage = cast("Any", self)
        self.driver = Driver(stage, Host(self), cast("Channels", Wires(self)), self.clock, stage, self.counters)
        self.driver.failed = self.failures.append
        self.driver.clock_judged = self.judgements.append
        self.alarm: PaperAlarm

    def did(self, *what: object) -> None:
        self.log.append(what)
        if str(what[0]) in self.trouble:
            raise self.trouble[str(what[0])]

    def pass_time(self, nanoseconds: int) -> None:
        self.wall += nanoseconds
        self.steady += nanoseconds

    def took(self) -> list[tuple[Any, ...]]:
        """What was done since the last time."""
        done, self.log = self.log, []
        return done

    # ---- the machine

    def step(self, event: object, now: int) -> Sequence[object]:
        self.did("step", event, now)
        return self.answers.get(type(event), ())

    def next_deadline(self) -> int:
        return self.machine_deadline

    # ---- the loop

    def add_reader(self, fileno: int, callback: Callable[..., None], *arguments: object) -> None:
        self.readers[fileno] = (callback, arguments)

    def remove_reader(self, fileno: int) -> None:
        del self.readers[fileno]

    def readable(self) -> None:
        callback, arguments = self.readers[3]
        callback(*arguments)


class Host:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def persist(self, records: list[Record]) -> None:
        self.stage.did("persist", *records)

    def perform(self, effect: object, now: int) -> None:
        self.stage.did("perform", effect, now)

    def next_deadline(self) -> int:
        return self.stage.host_deadline

    def wake(self, now: int) -> None:
        self.stage.did("wake", now)


class Wires:
    """Channels without sockets."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def filenos(self) -> list[int]:
        return [3, 4]

    def receive(self, _: int) -> list[Packet]:
        if "receive" in self.stage.trouble:
            raise self.stage.trouble["receive"]
        arrived, self.stage.arrived = self.stage.arrived, []
        return arrived

    def due(self, now: int) -> list[Packet]:
        if now < self.stage.channels_deadline:
            return []
        delayed, self.stage.delayed = self.stage.delayed, []
        self.stage.channels_deadline = NEVER
        return delayed

    def next_deadline(self) -> int:
        return self.stage.channels_deadline

    def multicast(self, packet: Packet) -> None:
        self.stage.did("multicast", packet)

    def unicast(self, to: int, packet: Packet) -> None:
        self.stage.did("unicast", to, packet)

    def flush(self) -> None:
        self.stage.did("flush")


class PaperAlarm:
    def __init__(self, stage: Stage, _loop: object, rang: Callable[[], None], stepped: Callable[[], None]) -> None:
        self.stage = stage
        self.rang, self.stepped = rang, stepped
        self.instant = NEVER
        self.sets = 0
        self.closed = False
        stage.alarm = self

    def set(self, instant: int) -> None:
        assert not self.closed
        self.instant = instant
        self.sets += 1

    def clear(self) -> None:
        self.set(NEVER)

    def close(self) -> None:
        self.closed = True

    def ring(self) -> None:
        self.instant = NEVER
        self.rang()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(monkeypatch)
    made.driver.start()
    made.took()
    return made


# ---- persist, perform, flush


def test_records_are_written_before_anything_is_sent_and_everything_leaves_together(stage: Stage) -> None:
    effects = (
        Multicast(TOKEN),
        Persist(FIRST),
        Unicast(7, NACK),
        "its own",
        Persist(SECOND_RECORD),
        Multicast(RECEIPT),
    )
    stage.answers[PacketsArrived] = effects
    stage.arrived = [TOKEN]
    stage.readable()
    assert stage.took() == [
        ("step", PacketsArrived([TOKEN]), START),
        ("persist", FIRST, SECOND_RECORD),
        ("multicast", TOKEN),
        ("unicast", 7, NACK),
        ("perform", "its own", START),
        ("multicast", RECEIPT),
        ("flush",),
    ]


def test_inputs_that_are_fed_together_share_one_write_and_one_flush(stage: Stage) -> None:
    stage.answers = {str: (Persist(FIRST), Multicast(TOKEN)), int: (Persist(SECOND_RECORD), Unicast(7, NACK))}
    stage.driver.feed("one", 2)
    assert stage.took() == [
        ("step", "one", START),
        ("step", 2, START),
        ("persist", FIRST, SECOND_RECORD),
        ("multicast", TOKEN),
        ("unicast", 7, NACK),
        ("flush",),
    ]


def test_a_step_without_effects_writes_and_sends_nothing(stage: Stage) -> None:
    stage.arrived = [TOKEN]
    stage.readable()
    assert stage.took() == [("step", PacketsArrived([TOKEN]), START)]


def test_after_packets_and_timers_the_role_may_go_on_but_not_after_nothing(stage: Stage) -> None:
    stage.driver.after_step = lambda now: stage.did("after", now)
    stage.readable()
    assert stage.took() == []
    stage.arrived = [TOKEN]
    stage.readable()
    assert stage.took()[-1] == ("after", START)
    stage.alarm.ring()
    assert stage.took() == [("after", START)]


# ---- when it is woken


def test_the_earliest_of_machine_network_and_role_counts(stage: Stage) -> None:
    for deadlines, expected in (((9, 5, 7), 5), ((4, 5, 7), 4), ((9, NEVER, 3), 3), ((NEVER, NEVER, NEVER), NEVER)):
        stage.machine_deadline, stage.channels_deadline, stage.host_deadline = deadlines
        stage.driver.rearm()
        assert stage.alarm.instant == expected


def test_an_alarm_that_stands_is_not_set_again(stage: Stage) -> None:
    stage.machine_deadline = START + 5
    stage.driver.rearm()
    before = stage.alarm.sets
    stage.driver.feed("nothing new")
    stage.driver.rearm()
    assert stage.alarm.sets == before


def test_an_alarm_that_rang_is_set_again_even_for_the_same_instant(stage: Stage) -> None:
    """A machine that does not move its deadline is asked again, not forgotten."""
    stage.machine_deadline = START
    stage.driver.rearm()
    stage.alarm.ring()
    assert stage.took() == [("step", TimerFired(), START)]
    assert stage.alarm.instant == START


def test_whoever_is_due_is_woken_and_nobody_else(stage: Stage) -> None:
    stage.machine_deadline, stage.host_deadline = START + 10, START + 20
    stage.driver.rearm()
    stage.pass_time(10)
    stage.alarm.ring()
    assert stage.took() == [("step", TimerFired(), START + 10)]
    stage.machine_deadline = NEVER
    stage.pass_time(10)
    stage.alarm.ring()
    assert stage.took() == [("wake", START + 20), ("flush",)]


def test_packets_that_a_demo_delayed_come_before_the_timer(stage: Stage) -> None:
    stage.channels_deadline = stage.machine_deadline = START + 10
    stage.delayed = [TOKEN, NACK]
    stage.driver.rearm()
    stage.pass_time(10)
    stage.alarm.ring()
    assert stage.took() == [
        ("step", PacketsArrived([TOKEN, NACK]), START + 10),
        ("step", TimerFired(), START + 10),
    ]


def test_a_packet_that_only_waits_sets_the_alarm(stage: Stage) -> None:
    stage.channels_deadline = START + 7
    stage.readable()
    assert stage.took() == []
    assert stage.alarm.instant == START + 7


def test_a_step_knows_how_late_the_process_came_to_it(stage: Stage) -> None:
    """Whether by its alarm, or by a packet that was read before the alarm was heard."""
    seen: list[int] = []
    stage.answers[PacketsArrived] = stage.answers[TimerFired] = ("its own",)
    perform = stage.driver.host.perform

    def note(effect: object, now: int) -> None:
        seen.append(stage.driver.behind_ns)
        perform(effect, now)

    stage.driver.host.perform = note  # type: ignore[method-assign]
    stage.machine_deadline = START + SECOND
    stage.driver.rearm()
    stage.arrived = [TOKEN]
    stage.readable()
    stage.pass_time(SECOND + 30 * MILLISECOND)
    stage.arrived = [TOKEN]
    stage.readable()
    stage.pass_time(10 * MILLISECOND)
    stage.alarm.ring()
    stage.machine_deadline = stage.wall + SECOND
    stage.driver.rearm()
    stage.arrived = [TOKEN]
    stage.readable()
    assert seen == [0, 30 * MILLISECOND, 40 * MILLISECOND, 0]


def test_how_late_the_alarm_rang_is_counted(stage: Stage) -> None:
    stage.machine_deadline = START + 10
    stage.driver.rearm()
    stage.pass_time(10 + 3 * MILLISECOND)
    stage.alarm.ring()
    lateness = stage.counters.timer_lateness
    assert (lateness.count, lateness.total_ns) == (1, 3 * MILLISECOND)


# ---- what goes wrong


@pytest.mark.parametrize("place", ["step", "persist", "multicast", "unicast", "perform", "flush"])
def test_a_step_that_fails_is_the_last(stage: Stage, place: str) -> None:
    """The machine may believe what the disk never took: nothing more is heard, sent or asked of it."""
    stage.answers[str] = (Persist(FIRST), Multicast(TOKEN), Unicast(7, NACK), "its own")
    stage.trouble[place] = StoreFull("log", "no space left")
    stage.driver.feed("one")
    assert stage.failures == [stage.trouble[place]]
    assert stage.took()[-1][0] == place
    assert stage.readers == {}
    assert stage.alarm.closed
    stage.trouble.clear()
    stage.driver.feed("two")
    stage.driver.rearm()
    stage.driver.judge_clock()
    stage.alarm.rang()
    stage.alarm.stepped()
    assert stage.took() == []
    assert len(stage.failures) == 1


def test_when_the_disk_takes_nothing_nothing_is_sent(stage: Stage) -> None:
    stage.answers[str] = (Multicast(TOKEN), Persist(FIRST))
    stage.trouble["persist"] = StoreFull("log", "no space left")
    stage.driver.feed("one")
    assert [what[0] for what in stage.took()] == ["step", "persist"]


def test_a_socket_that_fails_is_reported(stage: Stage) -> None:
    stage.trouble["receive"] = LocalProtocolError("reads from a closed inlet")
    stage.readable()
    assert stage.failures == [stage.trouble["receive"]]


def test_a_role_that_fails_when_woken_is_reported(stage: Stage) -> None:
    stage.host_deadline = START
    stage.trouble["wake"] = ValueError("a mistake of ours")
    stage.alarm.ring()
    assert stage.failures == [stage.trouble["wake"]]
    assert stage.took() == [("wake", START)]


def test_a_role_whose_own_feeding_failed_sends_nothing_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source is woken to publish, and its disk is full: the failure is told once."""
    stage.answers[str] = (Persist(FIRST), Multicast(TOKEN))
    stage.trouble["persist"] = StoreFull("outbox", "no space left")
    stage.host_deadline = stage.machine_deadline = START
    monkeypatch.setattr(stage.driver.host, "wake", lambda _: stage.driver.feed("a batch"))
    stage.alarm.ring()
    assert [what[0] for what in stage.took()] == ["step", "persist"]
    assert stage.failures == [stage.trouble["persist"]]


def test_without_anybody_to_tell_the_error_is_raised(stage: Stage) -> None:
    stage.driver.failed = None
    stage.trouble["step"] = KeyError("a mistake of ours")
    with pytest.raises(KeyError):
        stage.driver.feed("one")
    assert stage.readers == {}


def test_before_the_start_and_after_the_end_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.machine_deadline = START
    stage.driver.judge_clock()
    stage.driver.feed("too early")
    assert stage.took() == []
    assert stage.alarm.sets == 0
    stage.driver.start()
    assert sorted(stage.readers) == [3, 4]
    assert stage.alarm.instant == START
    stage.driver.stop()
    stage.driver.feed("too late")
    stage.driver.stop()
    assert stage.took() == []
    assert stage.readers == {}
    assert stage.alarm.closed


# ---- the clock


def test_a_clock_that_jumped_is_judged_before_the_machine_sees_the_time(stage: Stage) -> None:
    """Set forward by an hour, everything would be due at once."""
    stage.arrived = [TOKEN]
    stage.wall += 3_600 * SECOND
    stage.readable()
    later = START + 3_600 * SECOND
    assert stage.took() == [("step", ClockJudged(trusted=False), later), ("step", PacketsArrived([TOKEN]), later)]
    assert [status.trusted for status in stage.judgements] == [False]
    stage.wall -= 3_600 * SECOND
    stage.machine_deadline = START
    stage.alarm.ring()
    assert stage.took() == [("step", ClockJudged(trusted=True), START), ("step", TimerFired(), START)]
    assert [status.trusted for status in stage.judgements] == [False, True]


def test_what_a_judgement_stops_is_not_performed_in_the_same_step(stage: Stage) -> None:
    """The machine answers the timer knowing what was judged: the order of inputs decides it."""
    stage.machine_deadline = START + SECOND
    stage.answers[ClockJudged] = ("stop releasing",)
    stage.wall += 2 * SECOND
    stage.alarm.ring()
    seen = [what[1] for what in stage.took() if what[0] == "step"]
    assert seen == [ClockJudged(trusted=False), TimerFired()]


def test_a_clock_within_its_bound_is_no_news(stage: Stage) -> None:
    stage.driver.judge_clock()
    stage.wall += MILLISECOND
    stage.driver.feed("one")
    stage.driver.judge_clock()
    assert stage.took() == [("step", "one", START + MILLISECOND)]
    assert stage.judgements == []


def test_the_regular_look_finds_a_clock_that_moved(stage: Stage) -> None:
    stage.wall += 10 * SECOND
    stage.driver.judge_clock()
    stage.driver.judge_clock()
    assert stage.took() == [("step", ClockJudged(trusted=False), START + 10 * SECOND)]


def test_a_clock_that_was_set_back_leaves_nobody_waiting(stage: Stage) -> None:
    """Machine and role are told the time, and the alarm follows what they say then."""
    stage.machine_deadline = stage.host_deadline = START + 5 * SECOND
    stage.driver.rearm()
    stage.wall -= 3_600 * SECOND
    back = stage.wall
    stage.machine_deadline = back + SECOND
    stage.alarm.stepped()
    assert stage.took() == [
        ("step", ClockJudged(trusted=False), back),
        ("step", TimerFired(), back),
        ("wake", back),
        ("flush",),
    ]
    assert stage.alarm.instant == back + SECOND


# ---- on the real loop


def test_on_a_real_loop_a_timer_fires_at_its_instant_and_never_early(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    monkeypatch.undo()
    clock = SystemClock(BOUND)
    woken: list[int] = []

    async def work() -> int:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        class Sleeper:
            deadline = clock.now() + 20 * MILLISECOND

            def step(self, _: object, now: int) -> tuple[()]:
                woken.append(now)
                self.deadline = NEVER
                done.set()
                return ()

            def next_deadline(self) -> int:
                return self.deadline

        machine = Sleeper()
        wires = Wires(stage)
        monkeypatch.setattr(wires, "filenos", list)
        driver = Driver(machine, Host(stage), cast("Channels", wires), clock, loop, stage.counters)
        expected = machine.deadline
        driver.start()
        try:
            await asyncio.wait_for(done.wait(), 30)
        finally:
            driver.stop()
        return expected

    expected = asyncio.run(work())
    assert len(woken) == 1
    assert woken[0] >= expected
