"""How long a planet takes: CPU time by the number of customers, memory, and whether parts change anything.

    python bench/world.py [--receivers 10000] [--customers 250000 1000000] [--jobs 1] [--json]

The yardstick is what no model could do without: two random numbers for each customer, line and message, drawn in one
go. Every run is judged: figures that are not what their formulas say, or that differ between one process and two, end
with exit code 1. Memory is the most that any process had; it must not follow the number of customers.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from time import process_time

import numpy as np

from isocast.studies.planet.report import report
from isocast.studies.planet.settings import planet_from_mapping
from isocast.studies.planet.study import PlanetRun, run_planet
from isocast.studies.spreading import Spreading

MESSAGES, LINES = 4, 2


def cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    return process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def megabytes() -> float:
    """The most that one process had."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max([resource.getrusage(kind).ru_maxrss for kind in kinds]) / 1024


def planet(receivers: int, customers: int, jobs: int) -> tuple[float, PlanetRun]:
    """CPU seconds, and the run."""
    mapping = {
        "receivers": {"count": receivers, "primaries": min(max(round(receivers**0.5), 2), 1_000)},
        "customers": {"count": customers, "pattern": "cities", "spread": 300},
        "times": {"clock_error": "5ms", "secondary_detect": "50ms", "retries_max": 4},
        "core": {"loss_model": "tree", "branches": 2, "nack_sets": 1, "tokens": 40},
        "edge": {"loss_model": "tree", "messages": MESSAGES, "lines": LINES},
    }
    world = planet_from_mapping(mapping)
    began = cpu()
    run = run_planet(world, Spreading(jobs=jobs))
    return cpu() - began, run


def drawing(customers: int) -> float:
    """CPU seconds of the yardstick, the least of three."""
    found = []
    for seed in range(3):
        random = np.random.Generator(np.random.Philox(seed))
        began = process_time()
        for _ in range(MESSAGES * LINES):
            random.random(customers)
            random.exponential(1.0, customers)
        found.append(process_time() - began)
    return min(found)


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receivers", type=int, default=10_000, help="on land")
    parser.add_argument("--customers", type=int, nargs="+", default=[250_000, 1_000_000], help="a run for each number")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows, sound = [], True
    for customers in options.customers:
        seconds, run = planet(options.receivers, customers, options.jobs)
        wrong = [row.figure for row in report(run).disagreeing]
        sound = sound and not wrong
        unit = drawing(customers)
        rows.append({"customers": customers, "cpu_s": seconds, "ratio": seconds / unit, "mb": megabytes(),
                     "disagreeing": wrong})  # fmt: skip
    small = [planet(200, 20_000, jobs)[1] for jobs in (1, 2)]
    same = all(
        np.array_equal(getattr(small[0].edge, name), getattr(small[1].edge, name)) for name in ("table", "delays")
    )
    result = {"receivers": options.receivers, "jobs": options.jobs, "rows": rows, "same_bits": same}
    if options.json:
        print(json.dumps(result))
        return 0 if sound and same else 1
    print(f"{options.receivers:,} receivers, {MESSAGES} messages, {LINES} lines, {options.jobs} processes")
    for row in rows:
        count, seconds, ratio, size = (row[key] for key in ("customers", "cpu_s", "ratio", "mb"))
        print(f"{count:>12,} customers {seconds:>8.1f} s of CPU {ratio:>7.1f} × {size:>7.0f} MB")
        if row["disagreeing"]:
            print(f"  NOT as the formulas say: {', '.join(row['disagreeing'])}")
    print("the same bits by one process and by two" if same else "OTHER BITS by two processes")
    return 0 if sound and same else 1


if __name__ == "__main__":
    sys.exit(main())
