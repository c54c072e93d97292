"""How fast the simulator runs the real machines: deliveries a second, an hour of a ring of ten; and memory by tokens.

    python bench/simulator.py [--hour] [--json]

Every run is checked by all checkers, as always: a violation ends with exit code 1. The ratio is against a plain heap of
events that does nothing, measured in the same run.

Memory is what the process has at that moment, in a world of three receivers that lasts 150 times as long as disks keep
tokens. It grows while the windows of machines and checkers fill, for some 12,000 tokens, and then stays as it is within
a few tenths of a megabyte. It is measured first, so that no other world has left room for it. Where the system does not
tell (no /proc), the most that the process ever had stands there instead.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from heapq import heappop, heappush
from pathlib import Path
from time import process_time

from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.terms.instants import to_seconds

STATM = Path("/proc/self/statm")
MEGABYTE = 1 << 20
SAMPLE_TOKENS = 2_000
SAMPLES = 10
SMALL: dict[str, object] = {
    "receivers": 3,
    "sources": 1,
    "messages_per_token": 24,
    "burst": 384,
    "messages": 24 * (SAMPLE_TOKENS * SAMPLES + 100),
}
"""One source, whose 65,536 remembered keys are then reached after 2,800 tokens; and bursts, one in 16 tokens, since the
checkers remember up to 65,536 releases, which would take as many tokens otherwise."""


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


def resident_mb() -> float:
    """What the process has in memory now; where the system does not tell, the most that it ever had."""
    if STATM.exists():
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MEGABYTE if sys.platform == "darwin" else peak / 1024


def memory() -> dict[str, object]:
    """A small world that lasts, and what the process has in memory after every so many tokens."""
    run = TimedRun(scenario_from_mapping(SMALL, "memory"), 1)
    began = process_time()
    tokens, sizes = [0], [resident_mb()]
    while run.arrivals.finished_at is None:
        run.advance(run.timing.token_period_ns)
        if run.recorder.tokens >= SAMPLE_TOKENS * len(sizes):
            tokens.append(run.recorder.tokens)
            sizes.append(resident_mb())
    run.run()
    return {
        "measure": "resident" if STATM.exists() else "peak",
        "retain_tokens": run.scenario.retain_tokens,
        "messages": run.recorder.messages,
        "cpu_s": round(process_time() - began, 2),
        "tokens": tokens,
        "mb": [round(size, 2) for size in sizes],
        "violations": run.violations(),
    }


def measure(title: str, **keys: object) -> dict[str, object]:
    """One world, run to its verdict."""
    run = TimedRun(scenario_from_mapping(keys, title), 1)
    began = process_time()
    run.run()
    seconds = process_time() - began
    return {
        "world": title,
        "virtual_s": round(to_seconds(run.world.agenda.now)),
        "cpu_s": round(seconds, 2),
        "deliveries": run.world.network.deliveries,
        "deliveries_per_s": round(run.world.network.deliveries / seconds),
        "violations": run.violations(),
    }


def show_memory(found: dict[str, object]) -> None:
    """A line for each sample: a reader sees where it stops growing."""
    tokens, sizes = found["tokens"], found["mb"]
    assert isinstance(tokens, list)  # noqa: S101
    assert isinstance(sizes, list)  # noqa: S101
    kept = f"disks keep {found['retain_tokens']} tokens"
    print(f"memory of a ring of 3, {found['messages']:,} messages, {kept}, {found['cpu_s']} s of CPU")
    for number, size, before in zip(tokens, sizes, [sizes[0], *sizes], strict=False):
        print(f"{number:>12,} tokens {size:>8.2f} MB {found['measure']} {size - before:>+8.2f}", flush=True)


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hour", action="store_true", help="an hour of a ring of ten besides")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    worlds: list[tuple[str, dict[str, object]]] = [
        ("ring of 10, 100 msg/s, no loss", {"receivers": 10, "arrival_rate": 100, "messages": 30_000}),
        ("ring of 10, 100 msg/s, 1 % loss", {"receivers": 10, "arrival_rate": 100, "messages": 30_000, "loss": 0.01}),
        ("ring of 10, majority", {"receivers": 10, "arrival_rate": 100, "messages": 30_000, "gate": "majority"}),
        ("ring of 100, bursts of 10", {"receivers": 100, "messages_per_token": 100, "burst": 10, "messages": 10_000}),
    ]
    if chosen.hour:
        worlds.append(("one hour: ring of 10, 100 msg/s", {"receivers": 10, "arrival_rate": 100, "messages": 360_000}))
    held = memory()
    if not chosen.json:
        show_memory(held)
    heap = plain_heap()
    rows = []
    for title, keys in worlds:
        row = measure(title, **keys)
        row["of_plain_heap"] = round(int(str(row["deliveries_per_s"])) / heap, 3)
        rows.append(row)
        if not chosen.json:
            print(
                f"{row['world']:<34}{row['virtual_s']:>6} s in {row['cpu_s']:>7} s of CPU"
                f"{row['deliveries_per_s']:>9} deliveries/s ({row['of_plain_heap']} of a plain heap),"
                f" violations {len(row['violations'])}",  # type: ignore[arg-type]
                flush=True,
            )
    if chosen.json:
        print(json.dumps({"plain_heap_events_per_s": round(heap), "memory": held, "worlds": rows}))
    return 1 if any(found["violations"] for found in [held, *rows]) else 0


if __name__ == "__main__":
    sys.exit(main())
