"""A node's clock against true time: an error that wanders within a bound, steps beyond it, or runs away from it."""

from __future__ import annotations

__all__ = ["Clock"]

_PPM = 1_000_000
_STEPS = 16
"""Of the search for a true instant: each takes a slope of at most 5 % off what is left, so hours become nanoseconds."""


class Clock:
    """local = true + step + a triangle wave of the given amplitude, whose slope is the drift.

    The wave stands for a clock that drifts and is disciplined back: it stays within ±amplitude for ever. A clock that
    nobody disciplines any more (`run_away`) leaves it at a constant rate.
    """

    def __init__(self, amplitude_ns: int = 0, drift_ppm: int = 0, phase_ns: int = 0) -> None:
        """Without drift the error is constant: `phase_ns` cut to ±amplitude."""
        self.amplitude_ns = amplitude_ns
        self.drift_ppm = drift_ppm
        self.phase_ns = phase_ns
        self._step_ns = 0
        self._constant = max(-amplitude_ns, min(amplitude_ns, phase_ns))
        self._quarter = amplitude_ns * _PPM // drift_ppm if drift_ppm else 0
        self._away_ppm = 0
        self._away_since = 0

    def step(self, by_ns: int) -> None:
        """Set the clock forward, or back."""
        self._step_ns += by_ns
        self._constant += by_ns

    def run_away(self, true: int, rate_ppm: int) -> None:
        """Gain, or lose, so much from now on. Rate 0 sets the clock right: what was gained is given up."""
        self._away_ppm, self._away_since = rate_ppm, true

    def error_ns(self, true: int) -> int:
        """How far the clock is ahead of true time."""
        away = (true - self._away_since) * self._away_ppm // _PPM if self._away_ppm else 0
        if not self._quarter:
            return self._constant + away
        place = (true + self.phase_ns) % (4 * self._quarter)
        if place > 2 * self._quarter:
            place = 4 * self._quarter - place
        return place * self.drift_ppm // _PPM - self.amplitude_ns + self._step_ns + away

    def local(self, true: int) -> int:
        """What the clock shows at a true instant."""
        return true + (self.error_ns(true) if self._quarter or self._away_ppm else self._constant)

    def true(self, local: int) -> int:
        """The first true instant at which the clock shows at least `local`."""
        if not self._quarter and not self._away_ppm:
            return local - self._constant
        guess = local - self.error_ns(local)
        for _ in range(_STEPS):
            guess += local - self.local(guess)
        while self.local(guess) < local:
            guess += 1
        return guess
