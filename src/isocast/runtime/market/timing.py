"""The times of a market: its profile, what the file gives instead, and the formulas of `terms.timing` for the rest."""

from __future__ import annotations

from dataclasses import replace

from isocast.runtime.market.values import Values
from isocast.terms.errors import LocalProtocolError
from isocast.terms.formulas import Formula, release_delay, retry, seconds, token_period
from isocast.terms.profiles import PROFILES
from isocast.terms.timing import Gate, Timing

__all__ = ["clock_bound_ns", "read_timing"]

_SECOND_LAYER = ("secondary_detect", "secondary_retry")


def clock_bound_ns(timing: Values, clock: Values) -> int:
    """ε: what the file says, or the profile's."""
    return clock.count("bound", PROFILES[timing.text("profile")].clock_error_ns)


def read_timing(values: Values, error_ns: int, ring_size: int, layers: int) -> Timing | None:
    """All times; None when a rule is broken, which is then among the faults."""
    profile = PROFILES[values.text("profile")]
    detect = values.count("detect", profile.detect_ns)
    if detect < 2 * error_ns:
        rule = f"δ_N must be at least 2ε = 2·{seconds(error_ns)} = {seconds(2 * error_ns)} s (ε is clock.bound)"
        values.fault("detect", f"{rule}, not {seconds(detect)} s")
        return None
    sets = values.count("nack_sets")
    if sets > max(ring_size - 1, 1):
        values.fault("nack_sets", f"k_p must be at most one less than primary receivers, {ring_size - 1}, not {sets}")
        return None
    try:
        first = Timing(
            detect_ns=detect,
            transmit_ns=values.count("transmit", profile.transmit_ns),
            process_ns=values.count("process", profile.process_ns),
            retries_max=values.count("retries_max", profile.retries_max),
            clock_error_ns=error_ns,
            ring_size=ring_size,
            gate=Gate(values.text("gate")),
            next_tokens=values.count("next_tokens"),
            nack_sets=sets,
        )
        return _given_times(values, _with_layers(values, first, profile.secondary_detect_ns, layers))
    except LocalProtocolError as error:
        # The rules above name the key; this one is for a rule that they do not know yet.
        values.fault(str(error).split(" ", 1)[0], str(error))
        return None


def _with_layers(values: Values, timing: Timing, detect_ns: int, layers: int) -> Timing:
    """What the layers below the primary ring need."""
    if layers == 1:
        for key in _SECOND_LAYER:
            if key in values.given:
                values.fault(key, "is of a second layer, and no node is a secondary receiver: leave it out")
        return timing
    detect = values.count("secondary_detect", detect_ns)
    least = 2 * detect + timing.transmit_ns + timing.process_ns
    chosen = values.count("secondary_retry", least)
    if chosen < least:
        numbers = f"2·{seconds(detect)}+{seconds(timing.transmit_ns)}+{seconds(timing.process_ns)}"
        rule = f"τ_{{r,S}} must be at least 2δ_S+X+P = {numbers} = {seconds(least)} s, not {seconds(chosen)} s"
        values.fault("secondary_retry", rule)
    return replace(
        timing,
        secondary_detect_ns=detect,
        secondary_retry_ns=max(chosen, least),
        secondary_layers=layers - 1,
        release_delay_ns=0,
    )


def _given_times(values: Values, timing: Timing) -> Timing:
    """τ_r, τ_t and Δ_A as given, each judged after those that it rests on."""
    chosen = _at_least(values, "retry", timing.minimum_retry_ns, retry(timing))
    timing = replace(timing, retry_ns=chosen, token_period_ns=0, release_delay_ns=0)
    chosen = _at_least(values, "token_period", timing.recovery_ns, token_period(timing))
    timing = replace(timing, token_period_ns=chosen, release_delay_ns=0)
    chosen = _at_least(values, "release_delay", timing.minimum_release_delay_ns, release_delay(timing))
    return replace(timing, release_delay_ns=chosen)


def _at_least(values: Values, key: str, minimum_ns: int, formula: Formula) -> int:
    """The given time, or 0, which means: derive it. A fault that shows the formula for one that is too short."""
    given = values.count(key)
    if given and given < minimum_ns:
        values.fault(key, f"{formula.symbol} must be at least {formula} s, not {seconds(given)} s")
        return 0
    return given
