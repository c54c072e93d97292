"""What a planet came to: every figure beside the formula that it should follow, and the protocol page's own figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import sqrt

import numpy as np

from isocast.reformation.scopes.plan import KM_PER_MILE, HexagonalBounds
from isocast.reformation.scopes.world import Floats, Ints
from isocast.studies.coverage.land import land_area_km2
from isocast.studies.entry.figures import entry_figures
from isocast.studies.entry.replay import EntryReplay, ReplayRule, ReplaySettings
from isocast.studies.entry.stream import cities_of, draw_stream
from isocast.studies.planet import closed_forms
from isocast.studies.planet.core import (
    COMPLETIONS,
    CoreNet,
    CorePart,
    CoreTally,
    CoreWorld,
    RingTally,
    TreeLevel,
    joined,
    run_tokens,
)
from isocast.studies.planet.settings import (
    DELAYS,
    DISTANCES,
    OFFSETS,
    PAPER_TIMES,
    CoreSettings,
    CountColumn,
    StreamPurpose,
    generator,
)
from isocast.studies.planet.study import PlanetRun
from isocast.studies.spreading import Spreading, spread
from isocast.terms.instants import MILLISECOND, to_seconds
from isocast.terms.timing import Timing, passes_to_certify

__all__ = ["Beside", "PlanetReport", "count_tokens", "page_figures", "report", "ring_of"]


_SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999)


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure as the formula has it, and as it came out."""

    figure: str
    formula: str
    expected: float | None
    """None where there is no formula."""
    got: float | None
    """None where the formula alone answers, and nothing was drawn."""
    margin: float | None = None
    """Four standard deviations of what was drawn, where the formula says the mean."""
    bound: bool = False
    """The formula is a bound, not a mean: `got` must not exceed it."""

    @property
    def agrees(self) -> bool | None:
        """Whether the figure is within its margin, or its bound; None where nothing is claimed."""
        if self.expected is None or self.got is None:
            return None
        if self.bound:
            return self.got <= self.expected * (1 + 1e-9)
        return None if self.margin is None else abs(self.got - self.expected) <= self.margin


@dataclass(frozen=True, eq=False)
class PlanetReport:
    """All figures of a run, in groups."""

    run: PlanetRun
    core: tuple[Beside, ...]
    reduction: tuple[tuple[str, float, float | None], ...]
    """Without and with NACK sets; None where they are switched off."""
    coverage: tuple[Beside, ...]
    edge: tuple[Beside, ...]
    delays_ms: dict[str, float]
    """Delivery after the common instant, by the share of deliveries that are not later."""
    loads: dict[str, dict[str, float]]
    """Mean, 99th percentile and maximum over those who serve."""

    @property
    def disagreeing(self) -> tuple[Beside, ...]:
        """Figures that are not what their formula says."""
        return tuple([row for row in (*self.core, *self.coverage, *self.edge) if row.agrees is False])

    def as_json(self) -> dict[str, object]:
        """One object; times in seconds or as named."""
        world, run = self.run.world, self.run
        timing = world.core.timing
        return {
            "title": world.title,
            "seed": world.seed,
            "receivers": world.receivers.count,
            "primaries": len(run.ground.ring),
            "customers": run.edge.total(CountColumn.CUSTOMERS),
            "tokens": run.core.tokens,
            "messages_followed": world.edge.messages,
            "release_delay_s": to_seconds(timing.release_delay_ns),
            "token_period_s": to_seconds(timing.token_period_ns),
            "core": [_row(row) for row in self.core],
            "nack_reduction": [
                {"figure": name, "all_at_once": plain, "in_sets": reduced} for name, plain, reduced in self.reduction
            ],
            "nack_sets": world.core.reduction_sets,
            "coverage": [_row(row) for row in self.coverage],
            "edge": [_row(row) for row in self.edge],
            "counts": {column.name.lower(): run.edge.total(column) for column in CountColumn},
            "delays_ms": self.delays_ms,
            "loads": self.loads,
        }


def _row(row: Beside) -> dict[str, object]:
    return {**asdict(row), "agrees": row.agrees}


def report(run: PlanetRun) -> PlanetReport:
    """Judge a run."""
    delays = {f"{share:.2%}": DELAYS.quantile(run.edge.delays, share) / MILLISECOND for share in _SHARES}
    return PlanetReport(
        run,
        tuple(_core(run)),
        tuple(_reduction(run)),
        tuple(_coverage(run)),
        tuple(_edge(run)),
        {**delays, "last": run.edge.total(CountColumn.DELAY_MAX) / MILLISECOND},
        _loads(run),
    )


def _message_losses(run: PlanetRun, *, on_ring: bool) -> list[tuple[float, float]]:
    """How many receivers lose a message's first copy how often, averaged over owners, the owner itself apart.

    Under tree loss whoever shares edges with the owner has passed these already.
    """
    core, net = run.world.core, run.net
    each, depth = net.edge_loss(core.loss, tree=core.tree), len(net.levels) if core.tree else 0
    receivers = net.ring if on_ring else np.flatnonzero(~net.primary)
    shared_counts = np.zeros(depth + 1, dtype=np.int64)
    for owner in net.ring.tolist():
        others = receivers[receivers != owner]
        shared = np.zeros(len(others), dtype=np.int64)
        for level in net.levels[:depth]:
            shared += level.edge_of[others] == level.edge_of[owner]
        shared_counts += np.bincount(shared, minlength=depth + 1)
    counts = (shared_counts / len(net.ring)).tolist()
    return [(count, 1 - (1 - each) ** (depth + 1 - shared)) for shared, count in enumerate(counts) if count]


def _core(run: PlanetRun) -> Iterator[Beside]:
    core, tally, ring_size = run.world.core, run.core, len(run.ground.ring)
    timing, tokens, batch = core.timing, run.core.tokens, core.batch
    losses = _message_losses(run, on_ring=True)
    nacks = sum([n * closed_forms.nacks_of_one(batch, core.loss, timing.retries_max, loss) for n, loss in losses])
    repairs = sum([n * closed_forms.repairs_of_one(batch, core.loss, loss) for n, loss in losses])
    # Under tree loss a whole branch asks together: the spread of a token's count is that much wider.
    together = (ring_size / core.branches if core.tree else 1) * (1 + core.loss * batch)
    yield Beside("NACKs of the ring per token", "(m-1)·E[attempts]", nacks, tally.ring.nacks / tokens,
                 4 * sqrt(nacks * together / tokens))  # fmt: skip
    yield Beside("repairs of the ring per token", "(m-1)·(lacking items)/(1-p)", repairs, tally.ring.repairs / tokens,
                 4 * sqrt(repairs * together / tokens))  # fmt: skip
    if batch:
        control = (1 + nacks + repairs) / batch
        got = (tokens + tally.ring.nacks + tally.ring.repairs) / max(tally.messages, 1)
        yield Beside("tokens, NACKs and repairs per message", "(1+NACKs+repairs)/k", control, got)
    false = closed_forms.false_reformation(ring_size - 1, batch + 1, core.loss, timing.retries_max)
    yield Beside("false reformations per token", "1-(1-P(lacking after k_r))^(m-1)", false, tally.ring.gave_up / tokens)
    yield from _lower(run)
    yield from _skew(run)


def _lower(run: PlanetRun) -> Iterator[Beside]:
    core, tally = run.world.core, run.core
    receivers, ring_size, tokens = len(run.ground.points), len(run.ground.ring), run.core.tokens
    flat = (receivers - 1) * closed_forms.nacks_of_one(core.batch, core.loss, core.timing.retries_max)
    yield Beside("NACKs per token, were all on one ring", "(n-1)·E[attempts]", flat, None)
    below = receivers - ring_size
    if below:
        losses = _message_losses(run, on_ring=False)
        repairs = sum([n * closed_forms.repairs_of_one(core.batch, core.loss, loss) for n, loss in losses])
        together = (receivers / core.branches if core.tree else 1) * (1 + core.loss * core.batch)
        yield Beside("repairs to secondary receivers per token", "(n-m)·(lacking items)/(1-p)", repairs,
                     tally.lower_repairs / tokens, 4 * sqrt(repairs * together / tokens))  # fmt: skip
        yield Beside("NACKs to one primary receiver per token", "", None, tally.lower_nacks / tokens / ring_size)
        passes = passes_to_certify((ring_size, -(-receivers // ring_size)))
        yield Beside("passes until all are certified", f"{passes.symbols} = {passes.numbers}", passes.value, None)


def _skew(run: PlanetRun) -> Iterator[Beside]:
    core, tally = run.world.core, run.core
    timing, receivers = core.timing, len(run.ground.points)
    bound = timing.skew_bound_ns / MILLISECOND
    late = core.wake_lateness_ns > 0
    mean = None if late else closed_forms.expected_skew_ns(receivers, timing.clock_error_ns) / MILLISECOND
    yield Beside("mean skew of a token's releases, ms", "2ε·(n-1)/(n+1)", mean,
                 float(tally.skews.mean()) / MILLISECOND,
                 None if mean is None else 4 * bound / receivers + 1e-6)  # fmt: skip
    yield Beside(
        "largest skew, ms", "≤ 2ε", None if late else bound, float(tally.skews.max()) / MILLISECOND, bound=True
    )
    half = OFFSETS.quantile(tally.offsets, 0.99) - OFFSETS.quantile(tally.offsets, 0.01)
    yield Beside("spread of 98 % of the releases, ms", "0.98·2ε", None if late else 0.98 * bound, half / MILLISECOND)
    complete = COMPLETIONS.quantile(tally.completions, 0.9999) / 1e9
    yield Beside("99.99 % of the receivers complete after, s", "≤ Δ_A", to_seconds(timing.release_delay_ns), complete,
                 bound=True)  # fmt: skip
    yield Beside("late releases per million", "", None, 1e6 * tally.late / (tally.tokens * receivers))


def _reduction(run: PlanetRun) -> Iterator[tuple[str, float, float | None]]:
    plain, reduced, tokens = run.core.ring, run.core.reduced, run.core.tokens
    timing, sets = run.world.core.timing, run.world.core.reduction_sets

    def both(name: str, figure: object) -> tuple[str, float, float | None]:
        assert callable(figure)  # noqa: S101
        return name, float(figure(plain)), None if reduced is None else float(figure(reduced))

    def per_token(name: str) -> object:
        return lambda tally: getattr(tally, name) / tokens

    def quantile(tally: RingTally) -> int:
        return tally.per_lost_quantile(0.99)

    yield both("NACKs per token", per_token("nacks"))
    yield both("repairs per token", per_token("repairs"))
    yield both("NACKs per lost packet, 99th percentile", quantile)
    yield both("the most NACKs at one instant", lambda tally: tally.wave_max)
    delay = to_seconds(timing.release_delay_ns)
    more = (sets - 1) * to_seconds(timing.token_period_ns)
    yield "Δ_A, s", delay, None if reduced is None else delay + more


def _coverage(run: PlanetRun) -> Iterator[Beside]:
    wanted, edge = run.world.receivers, run.edge
    grid = HexagonalBounds(wanted.count, land_area_km2(wanted.south, wanted.north), 2)
    for name, counts, line in (("nearest", edge.nearest, 1), ("second nearest", edge.second, 2)):
        radius = grid.radius_km(line) / KM_PER_MILE
        for share in (0.99, 0.999):
            got = DISTANCES.quantile(counts, share) / KM_PER_MILE
            formula = "d/√3, hexagonal grid" if line == 1 else "d, hexagonal grid"
            yield Beside(f"{name} receiver of {share:.1%} of the customers, miles", formula, radius, got)
    customers = max(edge.total(CountColumn.CUSTOMERS), 1)
    yield Beside("customers who hear two lines, %", "", None, 100 * edge.total(CountColumn.HEAR_TWO) / customers)
    yield Beside("customers who hear one line, %", "", None, 100 * edge.total(CountColumn.HEAR_ONE) / customers)
    yield Beside("customers who hear none, %", "", None, 100 * edge.total(CountColumn.HEAR_NONE) / customers)


def _edge(run: PlanetRun) -> Iterator[Beside]:
    edge, settings = run.edge, run.world.edge
    messages, customers = settings.messages, max(edge.total(CountColumn.CUSTOMERS), 1)
    one, two = edge.total(CountColumn.HEAR_ONE), edge.total(CountColumn.HEAR_TWO)
    expected = edge.total(CountColumn.EXPECTED)
    share = 100 / max(expected, 1)
    # A neighbourhood loses together: as many draws as it has people count as one.
    crowd = 1 + (customers / max(len(run.ground.cell_customers), 1) if settings.tree else 0)
    nearest = settings.loss * expected
    yield Beside("lost on the nearest line, %", "p", 100 * settings.loss, share * edge.total(CountColumn.LOST_NEAREST),
                 share * 4 * sqrt(nearest * crowd))  # fmt: skip
    if settings.lines <= 2:  # noqa: PLR2004 (who hears more than two is not counted apart)
        both = messages * (one * settings.loss + two * settings.loss**settings.lines)
        yield Beside("lost on all lines, %", "p for one line, p² for two", share * both,
                     share * edge.total(CountColumn.LOST_ALL), share * 4 * sqrt(both * crowd))  # fmt: skip
    direct = edge.total(CountColumn.EXPECTED_DIRECT) / 1e6
    late = share * 4 * sqrt(max(expected - direct, 1) * crowd)
    yield Beside("there by the deadline, by the lines alone, %", "1-Π(1-(1-p)·P(delay))", share * direct,
                 share * edge.total(CountColumn.IN_TIME_DIRECT), late)  # fmt: skip
    yield Beside("there by the deadline, %", "", None, share * edge.total(CountColumn.IN_TIME))
    yield Beside("never there, %", "", None, share * edge.total(CountColumn.NEVER))
    lost = max(edge.total(CountColumn.LOST_ALL), 1)
    yield Beside("requests for each message that a customer lacks", "", None,
                 edge.total(CountColumn.REQUESTS) / lost)  # fmt: skip
    yield Beside("customers served by one repair", "", None, lost / max(edge.total(CountColumn.REPAIRS), 1))


def _loads(run: PlanetRun) -> dict[str, dict[str, float]]:
    core, edge, messages = run.core, run.edge, run.world.edge.messages
    heads = run.ground.ring
    return {
        "NACKs at a primary receiver, per token": _spread(core.asked[heads] / core.tokens),
        "customers of a retransmit server": _spread(edge.table[:, CountColumn.CUSTOMERS]),
        "customers who hear a line": _spread(edge.listeners),
        "requests at a retransmit server, per message": _spread(edge.table[:, CountColumn.REQUESTS] / messages),
        "repairs of a retransmit server, per message": _spread(edge.table[:, CountColumn.REPAIRS] / messages),
        "requests for one message at once, the most": _spread(edge.table[:, CountColumn.WAVE_MAX]),
    }


def _spread(values: Floats | Ints) -> dict[str, float]:
    if not len(values):
        return {"mean": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "mean": float(values.mean()),
        "p99": float(np.quantile(values, 0.99, method="higher")),
        "max": float(values.max()),
    }


# The protocol page's own figures, by the arrays: the parameters of its table, and what it expects (protocol
# §11).


_DELAY_NS = 50e6
_BELOW_NS = 5e6
"""Between a receiver and those below it."""
_MEMBERS = 10
"""Of the ring of the page: m."""
_LAND_SQUARE_MILES = 57e6
_TOKENS_OF_PART = 500
_PAIRS = 200_000
"""Of traders who bid at the same instant: a standard deviation of .001."""
_RARE_TOKENS = 4_000
"""Of one part, where only who gives up is counted."""


def ring_of(receivers: int, branches: int = 0, secondaries: int = 0) -> CoreNet:
    """A ring at one constant delay, as the simulator has it without cities; each with so many below it."""
    size = receivers * (1 + secondaries)
    parent = np.concatenate((np.arange(receivers), np.repeat(np.arange(receivers), secondaries)))
    levels = (TreeLevel(parent * branches // receivers),) if branches else ()
    below = _BELOW_NS if secondaries else 0.0
    return CoreNet(np.zeros((size, 3)), np.arange(receivers), parent, levels, 0.0, _DELAY_NS, below)


def count_tokens(world: CoreWorld, tokens: int, how: Spreading) -> CoreTally:
    """So many tokens of a world, in parts."""
    starts = range(0, tokens, _TOKENS_OF_PART)
    parts = [CorePart(first, min(first + _TOKENS_OF_PART, tokens)) for first in starts]
    return joined(spread(run_tokens, world, parts, how, lambda _: None))


def page_figures(run: int, how: Spreading, tokens: int = 20_000) -> list[Beside]:
    """Every row of the page that arrays can answer; the tolerance is the page's own."""
    rows = [
        *_times(),
        *_recovery(run, how, tokens),
        *_control(run, how, tokens // 2),
        *_skew_rows(run, how, tokens // 10),
    ]
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


def _world(run: int, timing: Timing, *, batch: int, loss: float) -> CoreWorld:
    settings = CoreSettings(timing, batch=batch, loss=loss, jitter_ns=0.0)
    return CoreWorld(ring_of(_MEMBERS), settings, run, reduced=False)


def _recovery(run: int, how: Spreading, tokens: int) -> list[Beside]:
    tally = count_tokens(_world(run, PAPER_TIMES, batch=30, loss=0.02), tokens, how)
    return [
        Beside("NACKs per token", "m=10, p=.02, k=30", 4.39, tally.ring.nacks / tokens, _margin(4.39, tokens)),
        Beside("repairs per token", "m=10, p=.02, k=30", 5.69, tally.ring.repairs / tokens, _margin(5.69, tokens)),
    ]


def _control(run: int, how: Spreading, tokens: int) -> list[Beside]:
    rows = []
    for loss, rate, expected in ((0.0, 10, 0.0360), (0.01, 100, 0.127)):
        mean = rate * to_seconds(PAPER_TIMES.token_period_ns)
        batches = generator(run, StreamPurpose.TOKEN, tokens + rate).poisson(mean, tokens)
        world = replace(_world(run, PAPER_TIMES, batch=0, loss=loss), batches=batches)
        tally = count_tokens(world, tokens, how)
        got = (tokens + tally.ring.nacks + tally.ring.repairs) / tally.messages
        margin = _margin(expected, tokens)
        rows.append(Beside("tokens, NACKs and repairs per message", f"p={loss:g}, λ={rate}", expected, got, margin))
    return rows


def _skew_rows(run: int, how: Spreading, tokens: int) -> list[Beside]:
    timing = replace(PAPER_TIMES, clock_error_ns=5 * MILLISECOND, token_period_ns=0, release_delay_ns=0)
    tally = count_tokens(_world(run, timing, batch=30, loss=0.01), tokens, how)
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
    """Of so many tokens, those that a receiver still lacked after k_r requests."""
    random = generator(ring.run, StreamPurpose.TOKEN, part)
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
    ring, pair = cities_of(), cities_of(("London", "Sydney"))
    settings = ReplaySettings(ring, pair[0])
    window_ns = len(ring) * settings.token_period_ns
    stream = draw_stream(pair, _PAIRS, generator(run, StreamPurpose.TOKEN, 0), window_ns=window_ns)
    replay = EntryReplay(stream, settings, run)
    shares = {
        rule: entry_figures(stream, replay.ranks(rule), rule.value).pairs[0].share
        for rule in (ReplayRule.EXCHANGE, ReplayRule.ARRIVAL, ReplayRule.SHUFFLE)
    }
    name = "London before Sydney"
    return [
        Beside(name, "one exchange in London, jitter 20 ms", 0.993, shares[ReplayRule.EXCHANGE], 0.005),
        Beside(name, "ring of ten cities, 3 s, by arrival", 0.600, shares[ReplayRule.ARRIVAL], 0.005),
        Beside(name, "the same, shuffled", 0.503, shares[ReplayRule.SHUFFLE], 0.005),
    ]
