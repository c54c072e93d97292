"""Fuzz every decoder with atheris: hostile bytes give only RemoteProtocolError.

    make fuzz                                                    (FUZZ_SECONDS=60)
    python tests/fuzz/fuzz_decoders.py -max_total_time=600       (any option of libFuzzer)

The first byte of an input chooses the decoder: of packets, of what is said at doors and about repairs, of
snapshots and records. Most ways in put a right tag or digest around the rest, so that the bodies are reached
(`tests/wire/hostile.py`, which the ordinary tests use as well). The corpus starts from one accepted input per kind,
in a folder that is thrown away.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["isocast"]):
    from tests.wire.hostile import examine, seeds

from tests.fuzz.running import fuzz

if __name__ == "__main__":
    fuzz(examine, seeds())
