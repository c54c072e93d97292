"""The alarm is never early, forgets what was cleared, and says when the clock was set."""

import asyncio
import errno
import os
from collections.abc import Callable
from time import time_ns
from typing import cast

import pytest

from isocast.runtime.net import kernel
from isocast.runtime.net.clock import AlarmClock, Bell, DescriptorBell, LoopBell, Woken, open_bell
from isocast.terms.instants import MICROSECOND, MILLISECOND, NEVER, SECOND

Opened = Callable[[asyncio.AbstractEventLoop, Woken], Bell]
BELLS: dict[str, Opened] = {"descriptor": open_bell, "loop": LoopBell}


class FakeBell:
    """Rings when a test says so."""

    def __init__(self, _: asyncio.AbstractEventLoop, woken: Woken) -> None:
        self.woken = woken
        self.armed: list[int] = []
        self.closed = False

    def arm(self, instant_ns: int) -> None:
        self.armed.append(instant_ns)

    def close(self) -> None:
        self.closed = True

    def ring(self, *, stepped: bool = False) -> None:
        self.woken(stepped)


class Stage:
    """An alarm over a fake bell and a fake clock."""

    def __init__(self, *, offset_ns: int = 0) -> None:
        self.now = 1_000
        self.heard: list[str] = []
        self.alarm = AlarmClock(
            cast("asyncio.AbstractEventLoop", None),
            lambda: self.heard.append("rang"),
            lambda: self.heard.append("stepped"),
            offset_ns=offset_ns,
            now=lambda: self.now,
            bell=FakeBell,
        )
        self.bell = cast("FakeBell", self.alarm._bell)  # noqa: SLF001


# ---- real timers


@pytest.mark.parametrize("bell, count", [("descriptor", 1_000), ("loop", 200)])
def test_no_instant_rings_early(bell: str, count: int) -> None:
    """Only earliness is judged: lateness is the machine's business."""
    earliness: list[int] = []

    async def ring_all() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        instant = 0

        def rang() -> None:
            earliness.append(instant - time_ns())
            if len(earliness) == count:
                done.set_result(None)
            else:
                set_next()

        def set_next() -> None:
            nonlocal instant
            instant = time_ns() + len(earliness) * 7919 % 1_000 * MICROSECOND
            alarm.set(instant)

        alarm = AlarmClock(loop, rang, bell=BELLS[bell])
        set_next()
        await done
        alarm.close()

    asyncio.run(ring_all())
    assert len(earliness) == count
    assert max(earliness) <= 0


@pytest.mark.parametrize("bell", BELLS)
def test_a_cleared_alarm_is_silent_and_a_past_one_rings_at_once(bell: str) -> None:
    heard: list[str] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        cleared = AlarmClock(loop, lambda: heard.append("cleared"), bell=BELLS[bell])
        replaced = AlarmClock(loop, lambda: heard.append("replaced"), bell=BELLS[bell])
        closed = AlarmClock(loop, lambda: heard.append("closed"), bell=BELLS[bell])
        past = AlarmClock(loop, lambda: heard.append("past"), bell=BELLS[bell])
        last = AlarmClock(loop, lambda: done.set_result(None), bell=BELLS[bell])
        for alarm in (cleared, replaced, closed):
            alarm.set(time_ns() + MILLISECOND)
        cleared.clear()
        replaced.set(time_ns() + 3600 * SECOND)
        closed.close()
        past.set(-SECOND)
        assert heard == []
        last.set(time_ns() + 20 * MILLISECOND)
        await done
        for alarm in (cleared, replaced, past, last):
            alarm.close()
            alarm.close()

    asyncio.run(scene())
    assert heard == ["past"]


@pytest.mark.parametrize("bell", BELLS)
def test_an_alarm_cleared_after_its_instant_but_before_the_loop_looked_is_silent(bell: str) -> None:
    heard: list[str] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        alarm = AlarmClock(loop, lambda: heard.append("cleared"), bell=BELLS[bell])
        last = AlarmClock(loop, lambda: done.set_result(None), bell=BELLS[bell])
        instant = time_ns() + MILLISECOND // 10
        alarm.set(instant)
        while time_ns() < instant + MILLISECOND:
            pass
        alarm.clear()
        last.set(time_ns() + 5 * MILLISECOND)
        await done
        alarm.close()
        last.close()

    asyncio.run(scene())
    assert heard == []


def test_linux_has_the_precise_bell() -> None:
    async def scene() -> None:
        bell = open_bell(asyncio.get_running_loop(), lambda _: None)
        assert isinstance(bell, DescriptorBell)
        bell.close()

    asyncio.run(scene())


# ---- the alarm's own rules


def test_a_bell_that_rings_early_is_set_again() -> None:
    stage = Stage()
    stage.alarm.set(2_000)
    stage.now = 1_999
    stage.bell.ring()
    assert stage.heard == []
    assert stage.bell.armed[-2:] == [2_000, 2_000]
    stage.now = 2_000
    stage.bell.ring()
    stage.bell.ring()
    assert stage.heard == ["rang"]
    assert stage.alarm.instant == NEVER


def test_a_set_clock_is_told_and_the_alarm_stays_set() -> None:
    stage = Stage()
    stage.alarm.set(2_000)
    stage.now = 5
    stage.bell.ring(stepped=True)
    assert stage.heard == ["stepped"]
    assert stage.bell.armed[-1] == 2_000
    stage.now = 2_000
    stage.bell.ring()
    assert stage.heard == ["stepped", "rang"]


def test_a_set_clock_is_told_even_while_nothing_is_set() -> None:
    stage = Stage()
    stage.bell.ring(stepped=True)
    assert stage.heard == ["stepped"]
    assert stage.bell.armed == [NEVER, NEVER]


def test_instants_before_1970_and_beyond_never_are_possible() -> None:
    stage = Stage()
    for instant in (-5, 0, NEVER, NEVER + 5, 7):
        stage.alarm.set(instant)
    assert stage.bell.armed == [NEVER, 1, 1, NEVER, NEVER, 7]


def test_an_offset_clock_rings_by_its_own_time() -> None:
    stage = Stage(offset_ns=-300)
    stage.alarm.set(2_000)
    assert stage.bell.armed[-1] == 2_300
    stage.now = 2_299
    stage.bell.ring()
    assert stage.heard == []
    stage.now = 2_300
    stage.bell.ring()
    assert stage.heard == ["rang"]


def test_an_alarm_that_is_set_follows_a_clock_that_is_set() -> None:
    stage = Stage(offset_ns=0)
    stage.alarm.set(2_000)
    stage.alarm.follow(500)
    assert stage.bell.armed[-1] == 1_500
    stage.now = 1_500
    stage.bell.ring()
    assert stage.heard == ["rang"]


# ---- what the kernel says when somebody sets the clock


def test_a_cancelled_timer_means_a_set_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def cancelled(*_: object) -> bytes:
        raise OSError(errno.ECANCELED, "Operation canceled")

    async def scene() -> None:
        bell = cast("DescriptorBell", open_bell(asyncio.get_running_loop(), told.append))
        monkeypatch.setattr(os, "read", cancelled)
        bell._readable()  # noqa: SLF001 - what the event loop calls
        monkeypatch.undo()
        bell._readable()  # noqa: SLF001 - nothing to read: a spurious wake-up
        assert told == [True]
        monkeypatch.setattr(kernel, "arm_timer", cancelled)
        bell.arm(NEVER)
        assert told == [True]
        await asyncio.sleep(0)
        assert told == [True, True]
        bell.close()

    asyncio.run(scene())


def test_other_errors_of_the_timer_are_not_hidden() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.arm_timer(-1, 5)


class FakeLoop:
    """Keeps what was to be called later."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> "FakeLoop":
        self.calls.append((delay, call))
        return self

    def cancel(self) -> None:
        self.calls.clear()

    def run(self) -> float:
        (delay, call), self.calls = self.calls[-1], []
        call()
        return delay


def test_without_a_descriptor_a_set_clock_is_noticed_at_the_next_hop() -> None:
    loop, told = FakeLoop(), list[bool]()
    clocks = {"wall": 10 * SECOND, "monotonic": SECOND}
    bell = LoopBell(
        cast("asyncio.AbstractEventLoop", loop), told.append, lambda: clocks["wall"], lambda: clocks["monotonic"]
    )
    bell.arm(15 * SECOND)
    for _ in range(2):
        clocks["wall"] += SECOND
        clocks["monotonic"] += SECOND
        assert loop.run() == 1.0
    assert told == []
    clocks["wall"] -= 5 * SECOND
    loop.run()
    assert told == [True]
    bell.arm(15 * SECOND)
    clocks["wall"] = 15 * SECOND - 1
    clocks["monotonic"] = 11 * SECOND - 1
    loop.run()
    assert told == [True]
    clocks["wall"] += 1
    assert loop.run() < 0.001
    assert told == [True, False]
    bell.close()
    assert loop.calls == []
