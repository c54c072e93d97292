"""Rules of a scenario that concern the whole run: how long it may last, and what the baseline has no use for."""

from __future__ import annotations

from isocast.simulation.key import MAX_RUN_SECONDS
from isocast.simulation.scenario_values import Values
from isocast.terms.formulas import seconds
from isocast.terms.instants import MILLISECOND, SECOND, to_seconds
from isocast.terms.timing import Timing

__all__ = ["check_original", "check_span"]

_TIMED_ONLY = ("traders", "burst", "bandwidth", "clock_error", "wake_lateness", "secondaries")
"""Keys of worlds that the baseline is not simulated in."""


def check_span(values: Values, messages: int, rate: float, timing: Timing) -> None:
    """An instant has 62 bits: what would run into their end is refused now."""
    arriving, turning = messages / rate, 16 * (timing.ring_size + 2) * to_seconds(timing.token_period_ns)
    if "duration" in values:
        arriving = min(arriving, to_seconds(values.count("duration", 0)))
    if arriving + turning <= MAX_RUN_SECONDS:
        return
    key = "messages" if arriving > turning else "token_period" if "token_period" in values else "detect"
    rule = f"makes a run of {arriving + turning:.3g} s or more of virtual time; at most {MAX_RUN_SECONDS:,} can be told"
    raise values.error(key, rule)


def check_original(values: Values, faults: object) -> None:
    """Rules of the event-driven protocol (§2.1)."""
    if values.text("protocol", "timed") != "original":
        return
    ack, resend = values.count("token_ack", SECOND), values.count("token_resend", 1200 * MILLISECOND)
    if ack >= resend:
        rule = f"T_a must be less than token_resend (R_t) = {seconds(resend)} s, not {seconds(ack)} s"
        raise values.error("token_ack", rule)
    for key in _TIMED_ONLY:
        if key in values:
            raise values.error(key, "the original protocol is simulated without it: leave it out")
    if faults:
        raise values.error("faults", "the original protocol is simulated without faults")
