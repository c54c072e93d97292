"""How long a coverage plan takes: 10,000 receivers and 100,000 customers on land, and its adjustment.

    python bench/coverage.py [--receivers 10000] [--customers 100000] [--json]

The yardstick is what no planner could do without: sorting as many numbers as there are customers and receivers
together, twenty times, with numpy. Every plan is judged from the outside; one that leaves a customer short of two
sources, or lets two overlapping scopes share an address, ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from time import process_time
from typing import TypeVar

import numpy as np

from isocast.reformation.scopes.adjustment import adjust, plan_scopes
from isocast.reformation.scopes.world import CoverageWorld
from isocast.studies.coverage.report import CoverageReport, change_counts, report
from isocast.studies.coverage.world_file import world_from_mapping
from isocast.terms.instants import SECOND

Result = TypeVar("Result")

SORTS = 20
LOST = 0.01
"""Of the receivers, that fail at once before the adjustment."""


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds, and what came of it."""
    began = process_time()
    result = work()
    return process_time() - began, result


def sorting(count: int) -> float:
    """CPU seconds of the yardstick, the least of three."""
    numbers = np.random.default_rng(1).random((SORTS, count))
    return min([timed(lambda: np.sort(numbers, axis=1))[0] for _ in range(3)])


def sound(judged: CoverageReport) -> bool:
    """Everybody hears two sources, and no two scopes clash."""
    return not judged.coverage.short and judged.clashes == 0


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receivers", type=int, default=10_000, help="on land")
    parser.add_argument("--customers", type=int, default=100_000, help="on land")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    places = {
        "receivers": {"pattern": "land", "count": options.receivers},
        "customers": {"pattern": "land", "count": options.customers},
        "scopes": {"delay_max": "200ms"},  # So that the remotest island can be served too.
    }
    drawing_s, world = timed(lambda: world_from_mapping(places).world)
    planning_s, plan = timed(lambda: plan_scopes(world))
    judging_s, judged = timed(lambda: report(world, plan))
    step = max(round(1 / LOST), 1)
    there: CoverageWorld = world.without(world.receivers.names[::step])
    adjusting_s, after = timed(lambda: adjust(plan, there, SECOND))
    unit = sorting(options.receivers + options.customers)
    rows = [
        ("draw the world", drawing_s),
        ("plan from nothing", planning_s),
        ("judge the plan", judging_s),
        (f"adjust it after {len(world.receivers.names[::step]):,} failures", adjusting_s),
    ]
    good = sound(judged) and sound(report(there, after))
    result = {
        "receivers": options.receivers,
        "customers": options.customers,
        "cpu_s": dict(rows),
        "ratio": {name: seconds / unit for name, seconds in rows},
        "addresses": plan.addresses,
        "clique": judged.clique,
        "against_bounds": {part.figure: part.ratio for part in judged.comparisons()},
        "changes": change_counts(plan, after),
        "sound": good,
    }
    if options.json:
        print(json.dumps(result))
        return 0 if good else 1
    print(f"{options.receivers:,} receivers, {options.customers:,} customers; yardstick {unit:.3f} s of CPU")
    for name, seconds in rows:
        print(f"{name:<34}{seconds:>8.2f} s {seconds / unit:>8.1f} ×")
    print(f"{plan.addresses} addresses, at least {judged.clique} for these scopes; changes: {result['changes']}")
    for part in judged.comparisons():
        print(f"{part.figure:<38}{part.achieved:>10.4g} against {part.bound:>8.4g}: {part.ratio:.3f}")
    print("sound" if good else "NOT SOUND")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
