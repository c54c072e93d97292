"""Submit to release against the formula d+τ_t/2+τ_t·p/(1-p)+Δ_A (protocol §1), on LAN timings.

    python bench/latency.py [--seconds 20] [--receivers 4] [--json]

Events carry the instant at which they were published; the journals say when each receiver released them. Publishing
is spread over the whole token period. The ratio to the formula is the figure; it should be within 20 %.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
from markets import quiet_market, run, serve_child
from scratch import folder

from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Market, NodeRole

RATE = 200.0
SHARES = (0.01, 0.5, 0.99)


def latencies(market: Market) -> np.ndarray:
    """Of every event at every receiver, in nanoseconds."""
    journals = [market.directory_of(plan.name) / "journal" for plan in market.by_role(NodeRole.PRIMARY_RECEIVER)]
    blocks = [block for journal in journals for block in read_blocks(journal)]
    return np.concatenate([block.header.released_at - block.events["time"].astype(np.int64) for block in blocks])


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
        found = latencies(market)
    expected = market.timing.latency_ns(0, 0.0)
    result = {
        "events": published,
        "releases": len(found),
        "expected_ms": round(expected / 1e6, 2),
        "mean_ms": round(float(found.mean()) / 1e6, 2),
        "ratio": round(float(found.mean()) / expected, 3),
        **{f"p{share * 100:g}_ms": round(float(np.quantile(found, share)) / 1e6, 2) for share in SHARES},
    }
    if given.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:16} {value}")
    return 0 if len(found) == published * given.receivers else 1


if __name__ == "__main__":
    sys.exit(main())
