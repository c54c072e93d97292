"""Fuzz customers' packages and requests at the box office with atheris: hostile bytes give only RemoteProtocolError.

    make fuzz                                                    (FUZZ_SECONDS=60)
    python tests/fuzz/fuzz_box_office.py -max_total_time=600       (any option of libFuzzer)

The first byte of an input chooses how far in it begins: as it comes, under the office's signature, behind the seal, as
a secret that somebody types, as a request, or as an office's answer (`tests/security/hostile_packages.py`, which the
ordinary tests use as well).
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["isocast"]):
    from tests.security.hostile_packages import examine_package, package_seeds

from tests.fuzz.running import fuzz

if __name__ == "__main__":
    fuzz(examine_package, package_seeds())
