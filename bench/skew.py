"""How simultaneous releases are: lateness against the common instant, and skew between receivers.

    python bench/skew.py [--seconds 20] [--receivers 4] [--json]

From the journals of real processes on LAN timings, with a few messages in every token. On one machine all clocks are
one, so what is seen is the scheduler's doing and ours. The machine's own part is measured in the same run: `timer`
is how late a process with nothing to do wakes up at an absolute instant.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from multiprocessing import Process, Queue

import numpy as np
from markets import quiet_market, run, serve_child
from scratch import folder

from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.net.clock import AlarmClock, become_punctual
from isocast.terms.instants import MILLISECOND

RATE = 100.0
SHARES = (0.5, 0.99, 0.999)


def releases(market: Market) -> tuple[list[int], list[int]]:
    """Lateness of every block at every receiver, and the skew of every block that all of them released."""
    lateness: list[int] = []
    released: dict[int, list[int]] = {}
    for plan in market.by_role(NodeRole.PRIMARY_RECEIVER):
        for block in read_blocks(market.directory_of(plan.name) / "journal", check=False):
            lateness.append(block.header.lateness_ns)
            released.setdefault(block.header.first_sequence, []).append(block.header.released_at)
    everywhere = [instants for instants in released.values() if len(instants) == len(market.universe)]
    return lateness, [max(instants) - min(instants) for instants in everywhere]


def _wake(late: Queue[list[int]], seconds: float, period_ns: int) -> None:
    async def work() -> list[int]:
        become_punctual(realtime=True)
        found: list[int] = []
        done = asyncio.Event()
        until = time.time_ns() + round(seconds * 1e9)

        def rang() -> None:
            now = time.time_ns()
            found.append(now - instant[0])
            instant[0] = now // period_ns * period_ns + period_ns
            if now > until:
                done.set()
            else:
                alarm.set(instant[0])

        alarm = AlarmClock(asyncio.get_running_loop(), rang)
        instant = [time.time_ns() // period_ns * period_ns + period_ns]
        alarm.set(instant[0])
        await done.wait()
        alarm.close()
        return found

    late.put(asyncio.run(work()))


def timer_lateness(processes: int, seconds: float = 3.0) -> list[int]:
    """How late as many idle processes wake up at the same instants."""
    late: Queue[list[int]] = Queue()
    children = [Process(target=_wake, args=(late, seconds, 47 * MILLISECOND)) for _ in range(processes)]
    for child in children:
        child.start()
    found = [value for _ in children for value in late.get(timeout=30)]
    for child in children:
        child.join()
    return found


def spread(values: list[int]) -> dict[str, float]:
    """Quantiles in microseconds."""
    return {f"p{share * 100:g}": round(float(np.quantile(values, share)) / 1e3, 1) for share in SHARES}


def main() -> int:
    """Parse, run, print."""
    if serve_child():
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with folder() as place:
        market, published, _, _ = run(quiet_market(given.receivers), place, given.seconds, rate=RATE, script=__file__)
        lateness, skew = releases(market)
    timer = timer_lateness(given.receivers)
    result = {
        "events": published,
        "tokens": len(skew),
        "early": sum(value < 0 for value in lateness),
        "lateness_us": spread(lateness),
        "skew_us": spread(skew),
        "timer_us": spread(timer),
        "skew_p99_to_timer_p99": round(float(np.quantile(skew, 0.99) / max(np.quantile(timer, 0.99), 1)), 2),
    }
    if given.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24} {value}")
    return 1 if result["early"] or not skew else 0


if __name__ == "__main__":
    sys.exit(main())
