"""The formulas of `timing` for people: in the paper's symbols, with the numbers filled in, and their value."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.instants import to_seconds
from isocast.terms.timing import Gate, Timing

__all__ = [
    "Formula",
    "all_complete",
    "detection_with_receipts",
    "detection_worst",
    "latency",
    "nack_sets",
    "number",
    "passes_all_have",
    "passes_all_know",
    "passes_to_certify",
    "reformation",
    "release_delay",
    "retry",
    "secondary_retry",
    "seconds",
    "skew",
    "token_period",
    "trade_confirmed",
]


@dataclass(frozen=True, slots=True)
class Formula:
    """One derived quantity: ``τ_r = 2δ_N+X+P = 2·0.375+0+0.05 = 0.8``."""

    symbol: str
    symbols: str
    """The formula in symbols."""
    numbers: str
    """The same with its numbers."""
    value: float
    """In seconds, or a number of tokens."""

    def __str__(self) -> str:
        return f"{self.symbols} = {self.numbers} = {number(self.value)}"


def number(value: float) -> str:
    """A number as people write it: up to nine digits, no trailing zeros."""
    return f"{value:.9g}"


def seconds(nanoseconds: int) -> str:
    """Nanoseconds as seconds, without trailing zeros."""
    return number(to_seconds(nanoseconds))


def _formula(symbol: str, symbols: str, numbers: str, value_ns: float) -> Formula:
    return Formula(symbol, symbols, numbers, value_ns / 1_000_000_000)


def retry(timing: Timing) -> Formula:
    """τ_r at least: a request and its answer must have had time to arrive (§5.1)."""
    numbers = f"2·{seconds(timing.detect_ns)}+{seconds(timing.transmit_ns)}+{seconds(timing.process_ns)}"
    return _formula("τ_r", "2δ_N+X+P", numbers, timing.minimum_retry_ns)


def secondary_retry(timing: Timing) -> Formula:
    """τ_{r,S} at least: the same between a secondary receiver and its parent (§4.1)."""
    lower = timing.secondary_detect_ns
    numbers = f"2·{seconds(lower)}+{seconds(timing.transmit_ns)}+{seconds(timing.process_ns)}"
    return _formula("τ_{r,S}", "2δ_S+X+P", numbers, 2 * lower + timing.transmit_ns + timing.process_ns)


def _recovery_numbers(timing: Timing) -> str:
    late = f"{seconds(timing.detect_ns)}+2·{seconds(timing.clock_error_ns)}"
    return f"{late}+{timing.retries_max}·{seconds(timing.retry_ns)}"


def token_period(timing: Timing) -> Formula:
    """τ_t at least: at most one token is ever in recovery (§5.1)."""
    return _formula("τ_t", "δ_N+2ε+k_r·τ_r", _recovery_numbers(timing), timing.recovery_ns)


def release_delay(timing: Timing) -> Formula:
    """Δ_A at least: completion, then what NACK sets, the gate and lower layers add (§5.1, §5.2)."""
    period = seconds(timing.token_period_ns)
    symbols, numbers = "δ_N+2ε+k_r·τ_r", _recovery_numbers(timing)
    if timing.nack_sets > 1:
        symbols, numbers = f"(k_p-1)·τ_t+{symbols}", f"{timing.nack_sets - 1}·{period}+{numbers}"
    match timing.gate:
        case Gate.TIMED:
            pass
        case Gate.MAJORITY:
            symbols += "+(δ_N+2ε)"
            numbers += f"+({seconds(timing.detect_ns)}+2·{seconds(timing.clock_error_ns)})"
        case Gate.NEXT:
            symbols, numbers = f"{symbols}+L·τ_t", f"{numbers}+{timing.next_tokens}·{period}"
        case Gate.TOTAL:
            symbols, numbers = f"{symbols}+(m-1)·τ_t", f"{numbers}+{timing.ring_size - 1}·{period}"
    if timing.secondary_ns:
        more = f"{seconds(timing.secondary_detect_ns)}+{timing.retries_max}·{seconds(timing.secondary_retry_ns)}"
        if timing.secondary_layers == 1:
            symbols, numbers = f"{symbols}+δ_S+k_r·τ_{{r,S}}", f"{numbers}+{more}"
        else:
            symbols = f"{symbols}+{timing.secondary_layers}·(δ_S+k_r·τ_{{r,S}})"
            numbers = f"{numbers}+{timing.secondary_layers}·({more})"
    return _formula("Δ_A", symbols, numbers, timing.minimum_release_delay_ns)


def skew(timing: Timing) -> Formula:
    """How far apart two sites release one message at most."""
    return _formula("skew", "2ε", f"2·{seconds(timing.clock_error_ns)}", timing.skew_bound_ns)


def all_complete(timing: Timing) -> Formula:
    """With a release delay of this, all sites are complete by true time before anyone releases."""
    delay, error = timing.release_delay_ns, timing.clock_error_ns
    return _formula("Δ_A+2ε", "Δ_A+2ε", f"{seconds(delay)}+2·{seconds(error)}", delay + 2 * error)


def latency(timing: Timing, one_way_delay_ns: int, loss: float) -> Formula:
    """Mean submit to release; where nothing is lost, nothing is waited for again."""
    period = seconds(timing.token_period_ns)
    again = f"+{period}·{number(loss)}/{number(1 - loss)}" if loss else ""
    numbers = f"{seconds(one_way_delay_ns)}+{period}/2{again}+{seconds(timing.release_delay_ns)}"
    formula = "d+τ_t/2+τ_t·p/(1-p)+Δ_A" if loss else "d+τ_t/2+Δ_A"
    return _formula("latency", formula, numbers, timing.latency_ns(one_way_delay_ns, loss))


def detection_worst(timing: Timing) -> Formula:
    """A silent site is found when its turn comes: at the worst a whole cycle and one token later (§5)."""
    size, period = timing.ring_size, timing.token_period_ns
    return _formula("detection", "(m+1)·τ_t", f"{size + 1}·{seconds(period)}", (size + 1) * period)


def detection_with_receipts(timing: Timing) -> Formula:
    """Two missing receipts raise suspicion."""
    period = timing.token_period_ns
    return _formula("detection", "2τ_t", f"2·{seconds(period)}", 2 * period)


def reformation(timing: Timing) -> Formula:
    """From the start of a ballot to the first new token, at most (§4.3)."""
    numbers = (
        f"4·{seconds(timing.detect_ns)}+{seconds(timing.grace_ns)}"
        f"+{seconds(timing.token_period_ns)}+2·{seconds(timing.clock_error_ns)}"
    )
    return _formula("reformation", "4δ_N+grace+τ_t+2ε", numbers, timing.reformation_ns)


def passes_all_have(ring_size: int) -> Formula:
    """Token passes until every receiver has a message, and the next sender knows it (§2.1, corrected)."""
    return Formula("all have", "m-1", f"{ring_size}-1", ring_size - 1)


def passes_all_know(ring_size: int) -> Formula:
    """Token passes until every receiver knows that every receiver has it."""
    return Formula("all know", "2m-2", f"2·{ring_size}-2", 2 * ring_size - 2)


def trade_confirmed(ring_size: int) -> Formula:
    """Tokens after t until its owner confirms the trades of t (§7.3)."""
    return Formula("confirmed", "t+m", f"t+{ring_size}", ring_size)


def passes_to_certify(ring_sizes: tuple[int, ...]) -> Formula:
    """Token passes until every R_T of chained rings is certified: the rings add up, a+b-1 for two of them."""
    letters = [chr(ord("a") + place) for place in range(len(ring_sizes))]
    less = len(ring_sizes) - 1
    tail = f"-{less}" if less else ""
    return Formula(
        "certified",
        "+".join(letters) + tail,
        "+".join(map(str, ring_sizes)) + tail,
        sum(ring_sizes) - less,
    )


def nack_sets(ring_size: int, sets: int, sender: int = 0) -> tuple[tuple[int, ...], ...]:
    """S_i = {(r+i+1+j·k_p) mod m : 0 ≤ j ≤ ⌊(m-i-2)/k_p⌋}: who may ask after the i-th pass (§5.2, corrected)."""
    return tuple(
        tuple((sender + i + 1 + j * sets) % ring_size for j in range((ring_size - i - 2) // sets + 1))
        for i in range(sets)
    )
