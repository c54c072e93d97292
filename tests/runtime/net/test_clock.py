"""What is known of a clock, from a kernel and an oscillator that the test controls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.runtime.market.model import ClockSource
from isocast.runtime.net.clock import ClockState, ClockStatus, Readings, SystemClock
from isocast.runtime.net.kernel import KernelClock, read_kernel_clock
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND

MS = MILLISECOND
UNSYNCHRONISED = KernelClock(synchronised=False, max_error_ns=16 * SECOND)


def synchronised(error_ns: int) -> KernelClock:
    return KernelClock(synchronised=True, max_error_ns=error_ns)


class Machine:
    """True time, an oscillator that drifts, a wall clock with an error, a kernel with an opinion."""

    def __init__(self, kernel: KernelClock | None = UNSYNCHRONISED) -> None:
        self.true = 1_000 * SECOND
        self.drifted = 0
        self.error = 0
        self.kernel = kernel
        self.readings = Readings(
            wall=lambda: self.true + self.error,
            oscillator=lambda: self.true + self.drifted - 900 * SECOND,
            steady=lambda: self.true - 800 * SECOND,
            kernel=lambda: self.kernel,
        )

    def clock(self, bound_ns: int | None, *, watch_kernel: bool = True) -> SystemClock:
        return SystemClock(bound_ns, file="market.toml", watch_kernel=watch_kernel, readings=self.readings)

    def wait(self, nanoseconds: int = SECOND, *, drift_ppm: int = 0) -> None:
        self.true += nanoseconds
        self.drifted += nanoseconds * drift_ppm // 1_000_000


def verdict(status: ClockStatus) -> tuple[ClockState, bool]:
    return status.state, status.trusted


# ---- whose bound counts


def test_an_unsynchronised_kernel_is_shown_and_the_configured_bound_counts() -> None:
    status = Machine().clock(5 * MS).status
    assert verdict(status) == (ClockState.UNSYNCHRONISED, True)
    assert (status.bound_ns, status.bound_source) == (5 * MS, ClockSource.CONFIGURED)
    assert status.kernel_max_error_ns == 16 * SECOND
    assert "not synchronised" in status.detail
    assert "5.000 ms" in status.detail


def test_a_synchronised_kernel_gives_the_bound_when_nobody_else_does() -> None:
    machine = Machine(synchronised(3 * MS))
    clock = machine.clock(None)
    assert verdict(clock.status) == (ClockState.SYNCHRONISED, True)
    assert (clock.status.bound_ns, clock.status.bound_source) == (3 * MS, ClockSource.KERNEL)
    machine.kernel = synchronised(4 * MS)
    assert clock.check().bound_ns == 4 * MS


def test_a_configured_bound_outranks_the_kernels() -> None:
    status = Machine(synchronised(3 * MS)).clock(5 * MS).status
    assert (status.bound_ns, status.bound_source) == (5 * MS, ClockSource.CONFIGURED)
    assert verdict(status) == (ClockState.SYNCHRONISED, True)


@pytest.mark.parametrize("kernel", [UNSYNCHRONISED, None])
def test_without_any_bound_the_error_names_the_key(kernel: KernelClock | None) -> None:
    with pytest.raises(ConfigurationError, match=r"market\.toml: clock\.bound: .*set a bound"):
        Machine(kernel).clock(None)


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not be negative"):
        Machine().clock(-1)


def test_a_kernel_that_will_not_say_is_unsynchronised() -> None:
    status = Machine(None).clock(5 * MS).status
    assert verdict(status) == (ClockState.UNSYNCHRONISED, True)
    assert status.kernel_max_error_ns is None


def test_a_kernel_that_loses_its_daemon_leaves_no_bound_and_no_trust() -> None:
    machine = Machine(synchronised(3 * MS))
    clock = machine.clock(None)
    machine.kernel = UNSYNCHRONISED
    status = clock.check()
    assert verdict(status) == (ClockState.UNSYNCHRONISED, False)
    assert status.bound_ns is None
    assert "clock.bound" in status.detail
    machine.kernel = synchronised(3 * MS)
    assert clock.check().trusted


# ---- proven outside


def test_a_kernel_error_above_the_bound_is_proof_until_it_falls() -> None:
    machine = Machine(synchronised(5 * MS))
    clock = machine.clock(5 * MS)
    assert clock.status.trusted
    machine.kernel = synchronised(5 * MS + 1)
    status = clock.check()
    assert verdict(status) == (ClockState.OUTSIDE, False)
    assert "NTP" in status.detail
    machine.kernel = synchronised(MS)
    assert verdict(clock.check()) == (ClockState.SYNCHRONISED, True)


def test_an_unsynchronised_kernels_error_proves_nothing() -> None:
    assert Machine(UNSYNCHRONISED).clock(5 * MS).check().trusted


def test_a_market_may_decide_not_to_watch_the_kernel() -> None:
    clock = Machine(synchronised(SECOND)).clock(5 * MS, watch_kernel=False)
    assert verdict(clock.status) == (ClockState.SYNCHRONISED, True)


@pytest.mark.parametrize("by", [-SECOND, -11 * MS, 11 * MS, SECOND])
def test_a_step_beyond_both_ends_of_the_bound_is_proof(by: int) -> None:
    machine = Machine()
    clock = machine.clock(5 * MS)
    machine.wait()
    machine.error += by
    status = clock.check()
    assert verdict(status) == (ClockState.STEPPED, False)
    assert f"{by / MS:.3f} ms" in status.detail
    assert "restart" in status.detail


def test_a_step_that_a_clock_within_its_bound_could_make_is_none() -> None:
    machine = Machine()
    machine.error = -5 * MS
    clock = machine.clock(5 * MS)
    machine.wait()
    machine.error = 5 * MS
    assert clock.check().trusted


def test_waiting_does_not_heal_a_step_and_going_back_does() -> None:
    machine = Machine()
    clock = machine.clock(5 * MS)
    machine.error = 100 * MS
    for _ in range(1_000):
        machine.wait()
        assert clock.check().state is ClockState.STEPPED
    machine.error = 6 * MS
    assert clock.check().state is ClockState.STEPPED
    machine.error = 5 * MS
    assert verdict(clock.check()) == (ClockState.UNSYNCHRONISED, True)
    machine.wait()
    assert clock.check().trusted


def test_many_small_steps_are_one_large_one() -> None:
    machine = Machine()
    clock = machine.clock(5 * MS)
    states = []
    for _ in range(10):
        machine.wait()
        machine.error += 2 * MS
        states.append(clock.check().state)
    assert ClockState.STEPPED in states


@pytest.mark.parametrize("drift_ppm", [-500, -20, 100, 500])
def test_an_oscillator_may_drift_for_hours(drift_ppm: int) -> None:
    machine = Machine()
    clock = machine.clock(0)
    for _ in range(2 * 3600):
        machine.wait(drift_ppm=drift_ppm)
        assert clock.check().trusted


def test_a_drift_that_no_oscillator_has_is_found() -> None:
    machine = Machine()
    clock = machine.clock(MS)
    for _ in range(60):
        machine.wait(drift_ppm=600)
        clock.check()
    assert clock.status.state is ClockState.STEPPED


@given(
    st.integers(0, 10 * MS),
    st.lists(
        st.tuples(st.integers(MS, 100 * SECOND), st.integers(-500, 500), st.floats(-1, 1)), min_size=1, max_size=30
    ),
)
def test_a_clock_within_its_bound_is_never_accused(bound: int, life: list[tuple[int, int, float]]) -> None:
    machine = Machine()
    clock = machine.clock(bound)
    for pause, drift_ppm, error in life:
        machine.wait(pause, drift_ppm=drift_ppm)
        machine.error = int(error * bound)
        assert clock.check().trusted


def test_the_kernels_correction_is_no_step() -> None:
    machine = Machine(synchronised(10 * MS))
    machine.error = 9 * MS
    clock = machine.clock(None)
    machine.wait()
    machine.error = 0
    machine.kernel = synchronised(MS)
    assert verdict(clock.check()) == (ClockState.SYNCHRONISED, True)


def test_an_interrupted_reading_is_no_step() -> None:
    machine = Machine()
    # The clock is read three times for the start, four times for each judgement: once, then always interrupted.
    pauses = iter([0] * 7 + [0, 50 * MS, 0, 0] + [50 * MS] * 4)

    def interrupted() -> int:
        machine.true += next(pauses, 0)
        return machine.true

    machine.readings = Readings(
        wall=interrupted, oscillator=lambda: machine.true, steady=lambda: 0, kernel=lambda: UNSYNCHRONISED
    )
    clock = machine.clock(0)
    assert clock.check().trusted
    assert clock.check().trusted


def test_a_set_clock_is_noticed_before_the_next_judgement() -> None:
    machine = Machine()
    clock = machine.clock(5 * MS)
    machine.wait(3600 * SECOND, drift_ppm=400)
    machine.error = 5 * MS
    assert not clock.jumped()
    for error in (-SECOND, 5 * MS + 1, 3600 * SECOND):
        machine.error = error
        assert clock.jumped()
    clock.check()
    assert not clock.jumped()
    machine.error = 0
    assert clock.jumped()


def test_a_wait_between_two_readings_is_no_jump() -> None:
    machine = Machine()
    clock = machine.clock(0)
    machine.error = MS
    assert not clock.jumped()
    machine.error += 1
    assert clock.jumped()


# ---- experiments, and this machine


def test_an_offset_makes_a_wrong_clock_and_changing_it_is_a_step() -> None:
    machine = Machine()
    clock = SystemClock(5 * MS, offset_ns=7, readings=machine.readings)
    assert clock.now() == machine.true + 7
    clock.offset_ns += 20 * MS
    assert clock.check().state is ClockState.STEPPED


def test_this_machine_has_a_clock() -> None:
    clock = SystemClock(SECOND)
    first = clock.now()
    assert clock.check().bound_ns == SECOND
    assert clock.now() >= first
    kernel = read_kernel_clock()
    assert kernel is not None
    assert kernel.max_error_ns >= 0
