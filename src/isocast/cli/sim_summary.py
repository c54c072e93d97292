"""What a simulated market comes to: what was promised, what was measured, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from isocast.cli.sim_scene import Scene
from isocast.simulation.timed import TimedRun
from isocast.terms.instants import to_seconds
from isocast.terms.topology import delay_ns

__all__ = ["next_steps", "summary"]

_LABEL = 12
_VIOLATIONS_SHOWN = 10
_EXCHANGE_SHARE = 99.3
"""Of London against Sydney at one exchange in London: scenarios/paper/exchange-london.toml."""


def summary(scene: Scene, run: TimedRun, seed: int, *, interrupted: bool) -> Iterator[str]:
    """Lines of at most 80 characters."""
    releases, recorder = scene.releases, run.recorder
    yield ""
    yield f"{to_seconds(scene.now):.1f} s of a market in {len(scene.sites)} cities" + (
        ", interrupted" if interrupted else ""
    )
    yield ""
    yield from _entry(
        "messages", f"{releases.messages:,} in one sequence, {recorder.tokens} tokens, {recorder.rings} rings"
    )
    yield from _entry(
        "latency",
        f"{to_seconds(round(releases.unbroken_latency_ns)):.3f} s on an unbroken ring,"
        f" formula {to_seconds(round(releases.unbroken_formula_ns)):.3f} s",
        f"{to_seconds(round(releases.latency_ns)):.3f} s with the time without a ring",
    )
    yield from _entry(
        "skew",
        f"{releases.skew_ns / 1e6:.3f} ms at most between cities, bound 2ε = {run.timing.skew_bound_ns / 1e6:g} ms",
        f"over {releases.punctual:,} releases; {releases.late:,} more were late: no ring, or a city that was away",
    )
    missing = scene.lost - scene.regained
    yield from _entry(
        "losses",
        f"{scene.lost:,} packets lost, {scene.regained:,} repaired, {missing or 'none'} missing,"
        f" {sum([site.nacks for site in scene.sites.values()]):,} NACKs",
    )
    yield from _entry("gaps", f"{scene.gaps:,}" if scene.gaps else "none: every city released the same sequence")
    yield from _entry("late", f"{scene.faults} fairness faults: waits for a new ring, and a city that was away")
    yield from _fairness(run)
    yield from _verdict(run, interrupted=interrupted)
    yield from _entry("seed", f"{seed}, digest of the trace {recorder.trace_digest}")
    yield ""


def _entry(name: str, *texts: str) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield f"  {'' if place else name:<{_LABEL}}{text}"


def _fairness(run: TimedRun) -> Iterator[str]:
    """Of two orders sent at one instant: shuffled in a token, unless the token's end falls between their arrivals."""
    if run.pairs is None or not any(run.pairs.wins.values()):
        return
    (one, share), (other, _) = run.pairs.shares().items()
    near, far = run.scenario.traders
    lead = sum([delay_ns(far, owner) - delay_ns(near, owner) for owner in run.scenario.ring]) / run.scenario.receivers
    expected = 0.5 + lead / (2 * run.timing.token_period_ns)
    exchange = f"; at an exchange in London {_EXCHANGE_SHARE} %" if one == "London" else ""
    yield from _entry(
        "first",
        f"{one} before {other} in {100 * share:.1f} % of {sum(run.pairs.wins.values()):,} pairs of orders",
        f"(expected {100 * expected:.1f} %{exchange})",
    )


def _verdict(run: TimedRun, *, interrupted: bool) -> Iterator[str]:
    violations = run.violations()
    if violations:
        yield from _entry("checkers", f"{len(violations)} VIOLATIONS", *violations[:_VIOLATIONS_SHOWN])
    elif interrupted:
        yield from _entry("checkers", "no violation so far; liveness is judged at the end only")
    else:
        yield from _entry("checkers", "no violation of safety, fairness or liveness")


def next_steps(file: Path | None, seed: int) -> Iterator[str]:
    """Commands to copy; those that need the repository's files only where these are."""
    here = Path(".venv/bin/isocast")
    command = str(here) if here.exists() else "isocast"
    own = Path("scenarios/ten-cities.toml")
    scenario = file or (own if own.exists() else None)
    yield "Next:"
    if scenario is not None:
        yield f"  {command} sim run {scenario} --seed {seed}  # the same run in figures"
    if own.exists():
        yield f"  {command} sim show scenarios/partition.toml --speed 5  # six cities against four"
    yield f"  {command} sim swarm --seeds 20  # random worlds with faults"
    yield f"  {command} sim swarm --seeds 50 --mutant half-is-enough  # caught"
    yield f"  {command} demo  # the same machines as real processes"
