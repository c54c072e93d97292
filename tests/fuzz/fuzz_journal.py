"""Fuzz the reader of journal segments with atheris: hostile bytes give only RemoteProtocolError.

    make fuzz                                                   (FUZZ_SECONDS=60)
    python tests/fuzz/fuzz_journal.py -max_total_time=600       (any option of libFuzzer)

The first byte of an input chooses the way in; most of them put right checksums around the rest, so that the
directories are reached (`tests/wire/hostile_journal.py`, which the ordinary tests use as well).
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["isocast"]):
    from tests.wire.hostile_journal import examine, seeds

from tests.fuzz.running import fuzz

if __name__ == "__main__":
    fuzz(examine, seeds())
