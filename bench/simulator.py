"""How fast the simulator runs the real machines: deliveries a second, an hour of a ring of ten, growth of memory.

    python bench/simulator.py [--hour] [--json]

Every run is checked by all checkers, as always. The ratio is against a plain heap of events that does nothing,
measured in the same run; memory is the peak after the first and after the last third of a run.
"""

from __future__ import annotations

import json
import resource
import sys
from heapq import heappop, heappush
from time import process_time

from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.terms.instants import to_seconds

THIRDS = 3


def plain_heap(events: int = 200_000) -> float:
    """Events a second of a bare heap: push, pop, nothing else."""
    heap: list[tuple[int, int]] = []
    began = process_time()
    for number in range(events):
        heappush(heap, (number * 7919 % 10_007, number))
        if number % 2:
            heappop(heap)
            heappop(heap)
    return events / (process_time() - began)


def measure(title: str, **keys: object) -> dict[str, object]:
    """One world, run to its verdict."""
    run = TimedRun(scenario_from_mapping(keys, title), 1)
    peaks = []
    began = process_time()
    step = run.timing.token_period_ns
    third = max(run.scenario.messages // THIRDS, 1)
    while run.arrivals.finished_at is None:
        run.advance(step)
        if run.recorder.submitted >= third * (len(peaks) + 1) and len(peaks) < THIRDS:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    run.run()
    seconds = process_time() - began
    return {
        "world": title,
        "virtual_s": round(to_seconds(run.world.agenda.now)),
        "cpu_s": round(seconds, 2),
        "deliveries": run.world.network.deliveries,
        "deliveries_per_s": round(run.world.network.deliveries / seconds),
        "peak_mb": [round(peak, 1) for peak in peaks],
        "violations": run.violations(),
    }


def main() -> None:
    """Print the rows."""
    heap = plain_heap()
    worlds: list[tuple[str, dict[str, object]]] = [
        ("ring of 10, 100 msg/s, no loss", {"receivers": 10, "arrival_rate": 100, "messages": 30_000}),
        ("ring of 10, 100 msg/s, 1 % loss", {"receivers": 10, "arrival_rate": 100, "messages": 30_000, "loss": 0.01}),
        ("ring of 10, majority", {"receivers": 10, "arrival_rate": 100, "messages": 30_000, "gate": "majority"}),
        ("ring of 100, bursts of 10", {"receivers": 100, "messages_per_token": 100, "burst": 10, "messages": 10_000}),
    ]
    if "--hour" in sys.argv:
        worlds.append(("one hour: ring of 10, 100 msg/s", {"receivers": 10, "arrival_rate": 100, "messages": 360_000}))
    rows = []
    for title, keys in worlds:
        row = measure(title, **keys)
        row["of_plain_heap"] = round(int(str(row["deliveries_per_s"])) / heap, 3)
        rows.append(row)
        if "--json" not in sys.argv:
            print(
                f"{row['world']:<34}{row['virtual_s']:>6} s in {row['cpu_s']:>7} s of CPU"
                f"{row['deliveries_per_s']:>9} deliveries/s ({row['of_plain_heap']} of a plain heap),"
                f" peak MB {row['peak_mb']}, violations {len(row['violations'])}",  # type: ignore[arg-type]
                flush=True,
            )
    if "--json" in sys.argv:
        print(json.dumps({"plain_heap_events_per_s": round(heap), "worlds": rows}))


if __name__ == "__main__":
    main()
