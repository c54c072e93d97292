"""The times that a market should have, from the delays it measured: δ_N for a wanted fraction, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isocast.terms.timing import Timing

__all__ = ["Advice", "advise"]

_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Advice:
    """What is, and what would do."""

    fraction: float
    tokens: int
    present: Timing
    wanted: Timing
    slowest: str
    """The receiver whose delays decide."""
    enough: bool
    """Whether every receiver heard so many tokens that the fraction can be told at all."""
    token_loss: float
    """Share of tokens that had to be asked for: no δ_N helps against these."""
    below_ns: Mapping[str, int] = field(default_factory=dict)
    """The same delay of each secondary receiver, which may wait for δ_N+δ_S."""

    @property
    def below_allowed_ns(self) -> int:
        """What the recommended times give a secondary receiver before it asks."""
        return self.wanted.late_ns + self.wanted.secondary_detect_ns

    @property
    def below_short(self) -> list[str]:
        """Secondary receivers for which that is too little: δ_S should be larger."""
        return sorted(node for node, delay in self.below_ns.items() if delay > self.below_allowed_ns)

    @property
    def rows(self) -> list[tuple[str, str, int, int]]:
        """Symbol, meaning, present and wanted nanoseconds."""
        return [
            ("δ_N", "detect", self.present.detect_ns, self.wanted.detect_ns),
            ("τ_r", "retry", self.present.retry_ns, self.wanted.retry_ns),
            ("τ_t", "token_period", self.present.token_period_ns, self.wanted.token_period_ns),
            ("Δ_A", "release_delay", self.present.release_delay_ns, self.wanted.release_delay_ns),
        ]

    @property
    def give_up(self) -> float:
        """Chance that all k_r requests for one token are lost, there or back: a false suspicion."""
        one = 1 - (1 - self.token_loss) ** 2
        return self.token_loss * one**self.wanted.retries_max


def advise(
    present: Timing,
    wanted_ns: Mapping[str, int],
    tokens: Mapping[str, int],
    fraction: float,
    token_loss: float,
    below_ns: Mapping[str, int] | None = None,
) -> Advice:
    """From each primary receiver's delay at the fraction: δ_N is the largest, rounded up; the rest follows (§5.1).

    Secondary receivers (`below_ns`) do not decide: they wait δ_S longer before they ask.
    """
    slowest = max(wanted_ns, key=lambda node: (wanted_ns[node], node))
    detect_ns = _rounded_up(max(wanted_ns[slowest], 2 * present.clock_error_ns, 1))
    # All that follows from δ_N is derived again, also where an operator had chosen more.
    wanted = replace(present, detect_ns=detect_ns, retry_ns=0, token_period_ns=0, release_delay_ns=0)
    least = 1 / (1 - fraction) if fraction < 1 else float("inf")
    return Advice(
        fraction,
        sum(tokens.values()),
        present,
        wanted,
        slowest,
        min(tokens.values()) >= least,
        token_loss,
        below_ns or {},
    )


def _rounded_up(nanoseconds: int) -> int:
    """To three digits, as people write settings."""
    step = int(10 ** max(len(str(nanoseconds)) - _DIGITS, 0))
    return -(-nanoseconds // step) * step
