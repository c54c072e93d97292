"""What a replay at full speed reaches of what the ring carries: `isocast replay --speed max` beside `bench/ring.py`.

    python bench/replay.py [--events 1000000] [--sources 2] [--receivers 3] [--mtu 1500] [--rounds 2] [--json]

The same market in turns: fed by sources of the bench's own, as in `ring.py`, and by the command itself, which reads a
file for each floor and publishes at the sources' doors. Both rates are events that all receivers have released, over
the time from the first to the last release, and the best of the rounds. After each the journals are read: every
receiver must have the same events in the same order, and all that was published.

On a shared machine only the ratio counts; half of the ring's rate is the aim, and less ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from markets import run, run_with, serve_child
from scratch import folder

from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.instants import SECOND
from isocast.wire.events import EVENT_DTYPE
from ring import Options, judge, market_text

AIM = 0.5
CHUNK = 64
REPLAY_S = 240.0
"""For which a replay may last."""
BYTES_PER_EVENT = 2.5 * EVENT_DTYPE.itemsize
"""In the log and the journal of one receiver, and in the files."""


def released_rate(market: Market) -> float:
    """Events a second that every receiver has released, between its first block and its last."""
    rates = []
    for plan in market.by_role(NodeRole.PRIMARY_RECEIVER):
        blocks = list(read_blocks(market.directory_of(plan.name) / "journal", check=False))
        if len(blocks) < 2:  # noqa: PLR2004 - one block has no duration
            return 0.0
        # The first block comes with the first token: what it releases was gathered before.
        events = sum(block.header.events for block in blocks[1:])
        rates.append(events * SECOND / max(blocks[-1].header.released_at - blocks[0].header.released_at, 1))
    return min(rates)


def write_files(place: Path, events: int, sources: int) -> list[Path]:
    """A file of events for each floor, one every microsecond of market time over all of them."""
    files = []
    for number in range(sources):
        rows = np.zeros(events // sources, EVENT_DTYPE)
        rows["kind"], rows["floor"], rows["symbol"] = 1, f"XF{number:02}".encode(), b"ISO"
        rows["id"] = np.arange(len(rows))
        rows["price"], rows["quantity"] = 10_000, 100
        rows["time"] = 1_700_000_000 * SECOND + 1_000 * (np.arange(len(rows), dtype=np.uint64) * sources + number)
        files.append(place / f"s{number + 1}.events")
        rows.tofile(files[-1])
    return files


def replayed(options: Options, place: Path, events: int) -> tuple[Market, int]:
    """Run the command against a market with real sources; how many events it has published."""
    words = [f"{file}={file.stem}" for file in write_files(place, events, options.sources)]

    def offering(_: Market, config: Path) -> list[list[str]]:
        own = [sys.executable, "-m", "isocast", "replay", *words, "--speed", "max", "--json"]
        return [[*own, "--config", str(config)]]

    market, answers, _, _ = run_with(market_text(options), place, offering, REPLAY_S, with_sources=True)
    return market, int(json.loads(answers[0])["events"])


def _round(name: str, options: Options, place: Path, events: int) -> tuple[float, bool]:
    """Events a second of one way, and whether all receivers have all of them in the same order."""
    if name == "ring":
        market, published, _, _ = run(market_text(options), place, options.seconds, chunk=CHUNK, script=__file__)
    else:
        market, published = replayed(options, place, events)
    judged = judge(market, published)
    return released_rate(market), bool(judged["complete"] and judged["same_order"])


def main() -> int:
    """Parse, run, print."""
    if serve_child():
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=2)
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--mtu", type=int, default=1_500)
    parser.add_argument("--window", type=int, default=4_096, help="the most; sources size their own")
    parser.add_argument("--seconds", type=float, default=5, help="for which the ring is measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave everything in this directory")
    given = parser.parse_args()
    options = Options(given.seconds, given.sources, given.receivers, given.mtu, 0.0, given.window)
    needed = given.rounds * (given.events + given.seconds * 1e6) * BYTES_PER_EVENT * options.receivers
    rates: dict[str, list[float]] = {"ring": [], "replay": []}
    sound = True
    with folder(given.keep, needed, warm=True) as place:
        for count in range(given.rounds):
            for name, found in rates.items():
                (place / f"{name}-{count}").mkdir(exist_ok=True)
                rate, well = _round(name, options, place / f"{name}-{count}", given.events)
                found.append(rate)
                sound &= well
    ring, replay = max(rates["ring"]), max(rates["replay"])
    result: dict[str, object] = {
        "ring_events_per_second": round(ring),
        "replay_events_per_second": round(replay),
        "replay_ratio_to_ring": round(replay / max(ring, 1), 3),
        "ring_rounds": [round(rate) for rate in rates["ring"]],
        "replay_rounds": [round(rate) for rate in rates["replay"]],
        "same_order_and_complete": sound,
    }
    if given.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value}")
    return 0 if sound and replay >= AIM * ring else 1


if __name__ == "__main__":
    sys.exit(main())
