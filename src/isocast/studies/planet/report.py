"""What a planet came to: every figure beside the formula that it should follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import sqrt

import numpy as np

from isocast.reformation.scopes.bounds import KM_PER_MILE, HexagonalBounds
from isocast.reformation.scopes.surface import Floats, Ints
from isocast.studies.coverage.land import land_area_km2
from isocast.studies.planet import closed_forms
from isocast.studies.planet.core_run import COMPLETIONS, RingTally
from isocast.studies.planet.study import PlanetRun
from isocast.studies.planet.tallies import DELAYS, DISTANCES, OFFSETS, Column
from isocast.terms.formulas import passes_to_certify
from isocast.terms.instants import MILLISECOND, to_seconds

__all__ = ["Beside", "PlanetReport", "report"]

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
            "customers": run.edge.total(Column.CUSTOMERS),
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
            "counts": {column.name.lower(): run.edge.total(column) for column in Column},
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
        {**delays, "last": run.edge.total(Column.DELAY_MAX) / MILLISECOND},
        _loads(run),
    )


# ---- the receivers


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


# ---- the customers


def _coverage(run: PlanetRun) -> Iterator[Beside]:
    wanted, edge = run.world.receivers, run.edge
    grid = HexagonalBounds(wanted.count, land_area_km2(wanted.south, wanted.north), 2)
    for name, counts, line in (("nearest", edge.nearest, 1), ("second nearest", edge.second, 2)):
        radius = grid.radius_km(line) / KM_PER_MILE
        for share in (0.99, 0.999):
            got = DISTANCES.quantile(counts, share) / KM_PER_MILE
            formula = "d/√3, hexagonal grid" if line == 1 else "d, hexagonal grid"
            yield Beside(f"{name} receiver of {share:.1%} of the customers, miles", formula, radius, got)
    customers = max(edge.total(Column.CUSTOMERS), 1)
    yield Beside("customers who hear two lines, %", "", None, 100 * edge.total(Column.HEAR_TWO) / customers)
    yield Beside("customers who hear one line, %", "", None, 100 * edge.total(Column.HEAR_ONE) / customers)
    yield Beside("customers who hear none, %", "", None, 100 * edge.total(Column.HEAR_NONE) / customers)


def _edge(run: PlanetRun) -> Iterator[Beside]:
    edge, settings = run.edge, run.world.edge
    messages, customers = settings.messages, max(edge.total(Column.CUSTOMERS), 1)
    one, two = edge.total(Column.HEAR_ONE), edge.total(Column.HEAR_TWO)
    expected = edge.total(Column.EXPECTED)
    share = 100 / max(expected, 1)
    # A neighbourhood loses together: as many draws as it has people count as one.
    crowd = 1 + (customers / max(len(run.ground.cell_customers), 1) if settings.tree else 0)
    nearest = settings.loss * expected
    yield Beside("lost on the nearest line, %", "p", 100 * settings.loss, share * edge.total(Column.LOST_NEAREST),
                 share * 4 * sqrt(nearest * crowd))  # fmt: skip
    if settings.lines <= 2:  # noqa: PLR2004 (who hears more than two is not counted apart)
        both = messages * (one * settings.loss + two * settings.loss**settings.lines)
        yield Beside("lost on all lines, %", "p for one line, p² for two", share * both,
                     share * edge.total(Column.LOST_ALL), share * 4 * sqrt(both * crowd))  # fmt: skip
    direct = edge.total(Column.EXPECTED_DIRECT) / 1e6
    late = share * 4 * sqrt(max(expected - direct, 1) * crowd)
    yield Beside("there by the deadline, by the lines alone, %", "1-Π(1-(1-p)·P(delay))", share * direct,
                 share * edge.total(Column.IN_TIME_DIRECT), late)  # fmt: skip
    yield Beside("there by the deadline, %", "", None, share * edge.total(Column.IN_TIME))
    yield Beside("never there, %", "", None, share * edge.total(Column.NEVER))
    lost = max(edge.total(Column.LOST_ALL), 1)
    yield Beside("requests for each message that a customer lacks", "", None,
                 edge.total(Column.REQUESTS) / lost)  # fmt: skip
    yield Beside("customers served by one repair", "", None, lost / max(edge.total(Column.REPAIRS), 1))


def _loads(run: PlanetRun) -> dict[str, dict[str, float]]:
    core, edge, messages = run.core, run.edge, run.world.edge.messages
    heads = run.ground.ring
    return {
        "NACKs at a primary receiver, per token": _spread(core.asked[heads] / core.tokens),
        "customers of a retransmit server": _spread(edge.table[:, Column.CUSTOMERS]),
        "customers who hear a line": _spread(edge.listeners),
        "requests at a retransmit server, per message": _spread(edge.table[:, Column.REQUESTS] / messages),
        "repairs of a retransmit server, per message": _spread(edge.table[:, Column.REPAIRS] / messages),
        "requests for one message at once, the most": _spread(edge.table[:, Column.WAVE_MAX]),
    }


def _spread(values: Floats | Ints) -> dict[str, float]:
    if not len(values):
        return {"mean": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "mean": float(values.mean()),
        "p99": float(np.quantile(values, 0.99, method="higher")),
        "max": float(values.max()),
    }
