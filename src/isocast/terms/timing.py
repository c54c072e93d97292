"""All derived times of the protocol, symbol beside name (§5.1; protocol §1); formulas in words; named profiles.

δ_N  detect_ns          a token later than this is taken for lost
X    transmit_ns        to transmit a request and its answer
P    process_ns         to process a request and its answer
k_r  retries_max        requests before a receiver gives up
τ_r  retry_ns           between two requests
τ_t  token_period_ns    between two tokens
ε    clock_error_ns     bound of every clock against true time
k_p  nack_sets          how many sets of receivers take turns in asking (§5.2)
Δ_A  release_delay_ns   between a token's instant and the release of its messages
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import MICROSECOND, to_seconds

__all__ = [
    "PROFILES",
    "Formula",
    "Gate",
    "Profile",
    "Timing",
    "affords_receipts",
    "all_complete",
    "detection_with_receipts",
    "detection_worst",
    "early_reading",
    "latency",
    "nack_sets",
    "number",
    "passes_all_have",
    "passes_all_know",
    "passes_to_certify",
    "reformation",
    "release_delay",
    "retry",
    "reveal",
    "secondary_retry",
    "seconds",
    "skew",
    "token_period",
    "trade_confirmed",
]

_VERIFY_NS = 125 * MICROSECOND
"""What it costs to verify one signature."""
_RECEIPTS_SHARE = 20
"""A twentieth of a token's period is what receipts may cost a member."""


class Gate(StrEnum):
    """What must be known before a token's messages may be released (protocol §4)."""

    TIMED = "timed"
    MAJORITY = "majority"
    NEXT = "next"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one ring. Zero for `retry_ns`, `token_period_ns` or `release_delay_ns` means: derive it."""

    detect_ns: int
    """δ_N: long enough for a reasonable fraction of packets to arrive (§5.1)."""
    transmit_ns: int = 0
    """X: negligible on a fast backbone (§5.1)."""
    process_ns: int = 0
    """P: a few tens of milliseconds in the paper, a few in a program that keeps up."""
    retries_max: int = 4
    """k_r: 3 in the paper; 3 is too small for big batches at 1 % loss."""
    clock_error_ns: int = 0
    """ε: no clock of the ring is further than this from true time."""
    ring_size: int = 0
    """m: receivers on the ring, for the gates that count tokens."""
    gate: Gate = Gate.MAJORITY
    """Which knowledge a release waits for."""
    next_tokens: int = 1
    """L of the gate `next`."""
    nack_sets: int = 1
    """k_p: 1 means that every receiver may ask at once (§5.2 advises no reduction)."""
    secondary_detect_ns: int = 0
    """δ_S: detection between a secondary receiver and its primary one; 0 without a second layer."""
    secondary_retry_ns: int = 0
    """τ_{r,S}: retry interval of a secondary receiver."""
    secondary_layers: int = 1
    """Layers below the primary ring, where there are any: each recovers from the one above it."""
    retry_ns: int = 0
    """τ_r."""
    token_period_ns: int = 0
    """τ_t."""
    release_delay_ns: int = 0
    """Δ_A."""
    reveal_tokens: int = 0
    """V: tokens within which a source's key must be acknowledged where keys are disclosed; 0 where they are not."""
    minimum_retry_ns: int = field(init=False, default=0)
    """2δ_N+X+P: a request and its answer must have had time to arrive."""

    def __post_init__(self) -> None:
        """Derive what was left out; refuse what the protocol does not allow."""
        put = object.__setattr__
        if self.detect_ns <= 0:
            raise LocalProtocolError("detect (δ_N) must be positive")
        if self.retries_max < 1:
            raise LocalProtocolError("retries_max (k_r) must be at least 1")
        if self.nack_sets < 1:
            raise LocalProtocolError("nack_sets (k_p) must be at least 1")
        if self.next_tokens < 1:
            raise LocalProtocolError("next_tokens (L) must be at least 1")
        if self.reveal_tokens and self.gate is not Gate.MAJORITY:
            raise LocalProtocolError(
                "reveal = chain goes with the gate majority alone: a source must see what opens it"
            )
        if self.detect_ns < 2 * self.clock_error_ns:
            raise LocalProtocolError("detect (δ_N) must be at least 2·clock_error (2ε)")
        put(self, "minimum_retry_ns", 2 * self.detect_ns + self.transmit_ns + self.process_ns)
        if self.retry_ns == 0:
            put(self, "retry_ns", self.minimum_retry_ns)
        if self.retry_ns < self.minimum_retry_ns:
            raise LocalProtocolError("retry (τ_r) must be at least 2δ_N+X+P")
        if self.token_period_ns == 0:
            put(self, "token_period_ns", self.recovery_ns)
        if self.token_period_ns < self.recovery_ns:
            raise LocalProtocolError("token_period (τ_t) must be at least δ_N+2ε+k_r·τ_r")
        if self.release_delay_ns == 0:
            put(self, "release_delay_ns", self.minimum_release_delay_ns)
        if self.release_delay_ns < self.minimum_release_delay_ns:
            raise LocalProtocolError(
                "release_delay (Δ_A) must be at least (k_p-1)·τ_t+δ_N+2ε+k_r·τ_r, and what the gate adds"
            )

    @property
    def late_ns(self) -> int:
        """δ_N+2ε: after this, by any clock within its bound, a token that has not come is missing."""
        return self.detect_ns + 2 * self.clock_error_ns

    @property
    def recovery_ns(self) -> int:
        """δ_N+2ε+k_r·τ_r: one request recovers token and data together, so k_r and not 2k_r (§5.1)."""
        return self.late_ns + self.retries_max * self.retry_ns

    @property
    def completion_ns(self) -> int:
        """(k_p-1)·τ_t+δ_N+2ε+k_r·τ_r: by then a receiver holds a token or has suspected (§5.1, §5.2)."""
        return (self.nack_sets - 1) * self.token_period_ns + self.recovery_ns

    @property
    def gate_ns(self) -> int:
        """What the gate adds: the receipts' journey, or the tokens that must follow."""
        match self.gate:
            case Gate.TIMED:
                return 0
            case Gate.MAJORITY:
                return self.late_ns
            case Gate.NEXT:
                return self.next_tokens * self.token_period_ns
            case Gate.TOTAL:
                return max(self.ring_size - 1, 0) * self.token_period_ns

    @property
    def secondary_ns(self) -> int:
        """δ_S+k_r·τ_{r,S}, once for each layer below the first: what they add to the one common Δ_A."""
        return self.secondary_layers * (self.secondary_detect_ns + self.retries_max * self.secondary_retry_ns)

    @property
    def reveal_ns(self) -> int:
        """V·τ_t: what waiting for disclosed keys adds; τ_t is at least δ_N+2ε+k_r·τ_r."""
        return self.reveal_tokens * self.token_period_ns

    @property
    def minimum_release_delay_ns(self) -> int:
        """Δ_A: completion, the gate's share, that of disclosed keys and the second layer's."""
        return self.completion_ns + self.gate_ns + self.reveal_ns + self.secondary_ns

    @property
    def skew_bound_ns(self) -> int:
        """2ε: two releases of one message at two sites whose clocks keep their bound."""
        return 2 * self.clock_error_ns

    @property
    def grace_ns(self) -> int:
        """δ_N: how long a reformation server waits for more joiners after it has a majority."""
        return self.detect_ns

    @property
    def reformation_ns(self) -> int:
        """4δ_N+grace+τ_t+2ε: from a ballot's start to the first new token."""
        return 4 * self.detect_ns + self.grace_ns + self.token_period_ns + 2 * self.clock_error_ns

    def latency_ns(self, one_way_delay_ns: int, loss: float) -> float:
        """Mean submit to release: d+τ_t/2+τ_t·p/(1-p)+Δ_A."""
        period = self.token_period_ns
        return one_way_delay_ns + period / 2 + period * loss / (1 - loss) + self.release_delay_ns


# The formulas of `timing` for people: in the paper's symbols, with the numbers filled in, and their value.


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
    if timing.reveal_tokens:
        symbols, numbers = f"{symbols}+V·τ_t", f"{numbers}+{timing.reveal_tokens}·{period}"
    if timing.secondary_ns:
        more = f"{seconds(timing.secondary_detect_ns)}+{timing.retries_max}·{seconds(timing.secondary_retry_ns)}"
        if timing.secondary_layers == 1:
            symbols, numbers = f"{symbols}+δ_S+k_r·τ_{{r,S}}", f"{numbers}+{more}"
        else:
            symbols = f"{symbols}+{timing.secondary_layers}·(δ_S+k_r·τ_{{r,S}})"
            numbers = f"{numbers}+{timing.secondary_layers}·({more})"
    return _formula("Δ_A", symbols, numbers, timing.minimum_release_delay_ns)


def reveal(timing: Timing) -> Formula:
    """What disclosed keys add to Δ_A (§6)."""
    return _formula("V·τ_t", "V·τ_t", f"{timing.reveal_tokens}·{seconds(timing.token_period_ns)}", timing.reveal_ns)


def early_reading(timing: Timing) -> Formula:
    """How long before its release a receiver could open a message at most, where keys are disclosed (§6)."""
    delay, added = seconds(timing.release_delay_ns), seconds(timing.reveal_ns)
    value = timing.recovery_ns + timing.release_delay_ns - timing.reveal_ns
    symbols = "δ_N+2ε+k_r·τ_r+Δ_A-V·τ_t"
    return _formula("early", symbols, f"{_recovery_numbers(timing)}+{delay}-{added}", value)


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


# Named sets of times: what to start from on a kind of network, each with the reason for its figures.
#
# δ_N is a little more than the slowest packet that is worth waiting for; P is how late a busy process may run its
# timers and answers, and an owner later than that stays silent; the rest follows by the formulas of `timing`.


@dataclass(frozen=True, slots=True)
class Profile:
    """The times that a kind of network is given; all others are derived from them."""

    name: str
    meaning: str
    """For which network, and why these figures."""
    detect_ns: int
    """δ_N."""
    process_ns: int
    """P."""
    retries_max: int
    """k_r."""
    clock_error_ns: int
    """ε, where the configuration names no bound."""
    secondary_detect_ns: int
    """δ_S: from a secondary receiver to its parent, which is near."""
    one_way_delay_ns: int
    """d: what a packet usually takes, for the mean latency."""
    transmit_ns: int = 0
    """X: negligible at today's rates."""

    @property
    def secondary_retry_ns(self) -> int:
        """τ_{r,S} = 2δ_S+X+P: a request to the parent and its answer must have had time to arrive."""
        return 2 * self.secondary_detect_ns + self.transmit_ns + self.process_ns

    def timing(self, ring_size: int, layers: int = 1) -> Timing:
        """The times of a ring of this size, with so many layers of receivers."""
        lower = layers - 1
        return Timing(
            detect_ns=self.detect_ns,
            transmit_ns=self.transmit_ns,
            process_ns=self.process_ns,
            retries_max=self.retries_max,
            clock_error_ns=self.clock_error_ns,
            ring_size=ring_size,
            secondary_detect_ns=self.secondary_detect_ns if lower else 0,
            secondary_retry_ns=self.secondary_retry_ns if lower else 0,
            secondary_layers=max(lower, 1),
        )


_MEANING = {
    "lan": "One building or one machine with cores to spare: packets take microseconds, so that the timers of a process"
    " decide. Clocks by PTP, or one clock for all.",
    "continent": "Sites up to 5,000 km apart: 25 ms in fibre, half as much again for detours, and room for jitter.",
    "world": "Sites anywhere: half-way round the earth is 100 ms in fibre, and half as much again for detours and"
    " jitter. P is the paper's, a few tens of milliseconds.",
    "ci": "Many processes on few busy cores, as in tests: a process may wait long for its turn, but nothing is far and"
    " little is lost, so that three requests are enough.",
}
_FIGURES = (
    # In microseconds, but for k_r:
    # name, δ_N, P, k_r, ε, δ_S, d
    ("lan", 3_000, 5_000, 4, 100, 3_000, 100),
    ("continent", 50_000, 20_000, 4, 1_000, 30_000, 25_000),
    ("world", 150_000, 50_000, 4, 2_000, 50_000, 75_000),
    ("ci", 50_000, 100_000, 3, 1_000, 50_000, 1_000),
)

PROFILES: dict[str, Profile] = {
    name: Profile(
        name,
        _MEANING[name],
        detect_ns=detect * MICROSECOND,
        process_ns=process * MICROSECOND,
        retries_max=retries_max,
        clock_error_ns=clock_error * MICROSECOND,
        secondary_detect_ns=secondary_detect * MICROSECOND,
        one_way_delay_ns=one_way_delay * MICROSECOND,
    )
    for name, detect, process, retries_max, clock_error, secondary_detect, one_way_delay in _FIGURES
}
"""By name, the fastest first."""


def affords_receipts(members: int, token_period_ns: int) -> bool:
    """Whether every member can verify a receipt of every other one for each token: m·125 µs ≤ 5 % of τ_t."""
    return members * _VERIFY_NS * _RECEIPTS_SHARE <= token_period_ns
