"""All derived times of the protocol, symbol beside name (§5.1; protocol §1).

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

from dataclasses import dataclass, field, replace
from enum import StrEnum

from isocast.terms.errors import LocalProtocolError

__all__ = ["Gate", "Timing"]


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
    def minimum_release_delay_ns(self) -> int:
        """Δ_A: completion, the gate's share and the second layer's."""
        return self.completion_ns + self.gate_ns + self.secondary_ns

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

    def for_ring(self, ring_size: int) -> Timing:
        """The same ring at another size: only the gate that counts a cycle changes its delay."""
        derived = self.release_delay_ns == self.minimum_release_delay_ns
        return replace(self, ring_size=ring_size, release_delay_ns=0 if derived else self.release_delay_ns)
