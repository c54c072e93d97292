"""The protocol page's own figures, by the arrays: the parameters of its table, and what it expects (protocol §11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from isocast.reformation.scopes.bounds import KM_PER_MILE, HexagonalBounds
from isocast.studies.planet.core_net import CoreNet, TreeLevel
from isocast.studies.planet.core_run import CorePart, CoreTally, CoreWorld, joined, run_tokens
from isocast.studies.planet.draws import Purpose, generator
from isocast.studies.planet.report import Beside
from isocast.studies.planet.settings import PAPER_TIMES, CoreSettings
from isocast.studies.spreading import Spreading, spread
from isocast.terms.instants import MILLISECOND, to_seconds
from isocast.terms.timing import Timing
from isocast.terms.topology import city, delay_ns

__all__ = ["count_tokens", "page_figures", "ring_of"]

_DELAY_NS = 50e6
_LAND_SQUARE_MILES = 57e6
_TOKENS_OF_PART = 500
_PAIRS = 200_000
"""Of traders who bid at the same instant: a standard deviation of .001."""
_RING = (
    "New York", "Chicago", "London", "Frankfurt", "Tokyo", "Hong Kong", "Singapore", "Sydney", "São Paulo", "Mumbai",
)  # fmt: skip
_JITTER_MS = 20.0
_PERIOD_MS = 3_000.0
_RARE_TOKENS = 4_000
"""Of one part, where only who gives up is counted."""


def ring_of(receivers: int, branches: int = 0, secondaries: int = 0, below_ns: float = 5e6) -> CoreNet:
    """A ring at one constant delay, as the simulator has it without cities; each with so many below it."""
    size = receivers * (1 + secondaries)
    parent = np.concatenate((np.arange(receivers), np.repeat(np.arange(receivers), secondaries)))
    levels = (TreeLevel(parent * branches // receivers),) if branches else ()
    below = below_ns if secondaries else 0.0
    return CoreNet(np.zeros((size, 3)), np.arange(receivers), parent, levels, 0.0, _DELAY_NS, below)


def count_tokens(
    world: CoreWorld, tokens: int, how: Spreading, reached: Callable[[int], None] | None = None
) -> CoreTally:
    """So many tokens of a world, in parts."""
    starts = range(0, tokens, _TOKENS_OF_PART)
    parts = [CorePart(first, min(first + _TOKENS_OF_PART, tokens)) for first in starts]
    return joined(spread(run_tokens, world, parts, how, reached or (lambda _: None)))


def page_figures(run: int, how: Spreading, tokens: int = 20_000) -> list[Beside]:
    """Every row of the page that arrays can answer; the tolerance is the page's own."""
    rows = [*_times(), *_recovery(run, how, tokens), *_control(run, how, tokens // 2), *_skew(run, how, tokens // 10)]
    return [*rows, *_reformation(run, how, max(tokens // 10, 1)), *_grid(), *_who_is_first(run)]


def _margin(expected: float, tokens: int) -> float:
    """The page's 3 %, or more where few tokens are drawn: of one token every count here deviates by half at most."""
    return max(0.03, 4 * 0.5 / sqrt(tokens)) * expected


def _times() -> list[Beside]:
    error = replace(PAPER_TIMES, clock_error_ns=5 * MILLISECOND, token_period_ns=0, release_delay_ns=0)
    return [
        Beside("τ_r, s", "δ_N=.375, P=.05", 0.8, to_seconds(PAPER_TIMES.retry_ns), 1e-9),
        Beside("τ_t, s", "k_r=3", 2.775, to_seconds(PAPER_TIMES.token_period_ns), 1e-9),
        Beside("Δ_A, s", "ε=5 ms", 2.785, to_seconds(error.release_delay_ns), 1e-9),
    ]


def _world(receivers: int, run: int, timing: Timing, *, batch: int, loss: float) -> CoreWorld:
    settings = CoreSettings(timing, batch=batch, loss=loss, jitter_ns=0.0)
    return CoreWorld(ring_of(receivers), settings, run, reduced=False)


def _recovery(run: int, how: Spreading, tokens: int) -> list[Beside]:
    tally = count_tokens(_world(10, run, PAPER_TIMES, batch=30, loss=0.02), tokens, how)
    return [
        Beside("NACKs per token", "m=10, p=.02, k=30", 4.39, tally.ring.nacks / tokens, _margin(4.39, tokens)),
        Beside("repairs per token", "m=10, p=.02, k=30", 5.69, tally.ring.repairs / tokens, _margin(5.69, tokens)),
    ]


def _control(run: int, how: Spreading, tokens: int) -> list[Beside]:
    rows = []
    for loss, rate, expected in ((0.0, 10, 0.0360), (0.01, 100, 0.127)):
        mean = rate * to_seconds(PAPER_TIMES.token_period_ns)
        batches = generator(run, Purpose.TOKEN, tokens + rate).poisson(mean, tokens)
        world = replace(_world(10, run, PAPER_TIMES, batch=0, loss=loss), batches=batches)
        tally = count_tokens(world, tokens, how)
        got = (tokens + tally.ring.nacks + tally.ring.repairs) / tally.messages
        margin = _margin(expected, tokens)
        rows.append(Beside("tokens, NACKs and repairs per message", f"p={loss:g}, λ={rate}", expected, got, margin))
    return rows


def _skew(run: int, how: Spreading, tokens: int) -> list[Beside]:
    timing = replace(PAPER_TIMES, clock_error_ns=5 * MILLISECOND, token_period_ns=0, release_delay_ns=0)
    tally = count_tokens(_world(10, run, timing, batch=30, loss=0.01), tokens, how)
    return [Beside("largest skew, ms", "ε=5 ms", 10.0, float(tally.skews.max()) / MILLISECOND, bound=True)]


@dataclass(frozen=True, slots=True)
class _Rare:
    """A ring whose receivers are told apart by how many items each lacks: enough for who gives up, and quick."""

    run: int
    receivers: int
    items: int
    loss: float
    retries: int


def _given_up(ring: _Rare, part: int) -> int:
    """Of so many tokens, those on which somebody still lacked something after k_r requests."""
    random = generator(ring.run, Purpose.TOKEN, part)
    lacking = random.binomial(ring.items, ring.loss, (_RARE_TOKENS, ring.receivers))
    token, receiver = np.nonzero(lacking)
    left = lacking[token, receiver]
    for _ in range(ring.retries):
        heard = random.random(len(left)) >= ring.loss
        left = np.where(heard, random.binomial(left, ring.loss), left)
        token, left = token[left > 0], left[left > 0]
    return len(np.unique(token))


def _reformation(run: int, how: Spreading, parts: int) -> list[Beside]:
    expected = 7.5e-4
    found = sum(spread(_given_up, _Rare(run, 99, 101, 0.01, 3), range(parts), how))
    tokens = parts * _RARE_TOKENS
    # The page allows a tenth; few tokens allow more.
    margin = max(0.1, 4 / sqrt(expected * tokens)) * expected
    return [Beside("false reformations per token", "m=100, p=.01, k=100, k_r=3", expected, found / tokens, margin)]


def _grid() -> list[Beside]:
    grid = HexagonalBounds(10_000, _LAND_SQUARE_MILES * KM_PER_MILE**2, 2)
    return [
        Beside("nearest receiver, miles", "10,000 on 57·10⁶ square miles", 46.8, grid.radius_km(1) / KM_PER_MILE, 0.05),
        Beside("two receivers, miles", "the same", 81.1, grid.radius_km(2) / KM_PER_MILE, 0.05),
    ]


def _who_is_first(run: int) -> list[Beside]:
    """London and Sydney bid at the same instant: at one exchange, and before a ring of ten cities."""
    random = generator(run, Purpose.TOKEN, 0)
    waits = np.array([[_delay_ms(trader, owner) for owner in _RING] for trader in ("London", "Sydney")])
    at_exchange = waits[:, [_RING.index("London")]] + random.exponential(_JITTER_MS, (2, _PAIRS))
    exchange = float((at_exchange[0] < at_exchange[1]).mean())
    # Each bid is in the first token whose owner has it when that is due; the next owner is the next on the ring.
    owner, left = random.integers(0, len(_RING), _PAIRS), random.uniform(0, _PERIOD_MS, _PAIRS)
    late = waits[:, owner] > left
    london_alone, sydney_alone = late[1] & ~late[0], late[0] & ~late[1]
    together = np.where(late[0] & late[1], (owner + 1) % len(_RING), owner)
    nearer = np.where(waits[0, together] < waits[1, together], 1.0, 0.0)
    shares = [
        float(np.where(london_alone, 1.0, np.where(sydney_alone, 0.0, inside)).mean())
        for inside in (nearer, random.integers(0, 2, _PAIRS))
    ]
    name = "London before Sydney"
    return [
        Beside(name, "one exchange in London, jitter 20 ms", 0.993, exchange, 0.005),
        Beside(name, "ring of ten cities, 3 s, by arrival", 0.600, shares[0], 0.005),
        Beside(name, "the same, shuffled", 0.503, shares[1], 0.005),
    ]


def _delay_ms(one: str, other: str) -> float:
    first, second = city(one), city(other)
    assert first is not None  # noqa: S101 (the page's own cities)
    assert second is not None  # noqa: S101
    return delay_ns(first, second) / MILLISECOND
