"""Fuzz the readers of other people's feeds with atheris: hostile bytes give events, counted faults, or FeedError.

    make fuzz                                                   (FUZZ_SECONDS=60)
    python tests/fuzz/fuzz_feeds.py -max_total_time=600         (any option of libFuzzer)

The first byte of an input chooses the reader and the size of its chunks (`tests/feeds/hostile_feeds.py`, which the
ordinary tests use as well).

Atheris keeps the results of comparisons of arrays in the code that it instruments, so that memory grows by some tens
of kilobytes with each input: hence the limit, which another `-rss_limit_mb` after it overrides.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["isocast"]):
    from tests.feeds.hostile_feeds import examine, seeds

from tests.fuzz.running import fuzz

if __name__ == "__main__":
    fuzz(examine, seeds(), "-rss_limit_mb=4096")
