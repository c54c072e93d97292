"""How long commands take before they do something, in CPU time and in multiples of `python -c pass`.

    python bench/start.py [--rounds 10] [--json]

Each program is run `--rounds` times as a process of its own, and the least CPU time (user and system) counts. `ratio`
is to a Python that does nothing, measured in the same run. `publish` and `listen` are given a market's file that does
not exist: everything is imported and the command line is parsed, and then they end, with one line and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence

_ISOCAST = (sys.executable, "-m", "isocast")
_NOWHERE = ("--config", "/no/such/market.toml")
PROGRAMS: dict[str, tuple[Sequence[str], int]] = {
    "python -c pass": ((sys.executable, "-c", "pass"), 0),
    "import isocast": ((sys.executable, "-c", "import isocast"), 0),
    "isocast.connect": ((sys.executable, "-c", "from isocast import connect"), 0),
    "import numpy": ((sys.executable, "-c", "import numpy"), 0),
    "isocast --help": ((*_ISOCAST, "--help"), 0),
    "isocast --version": ((*_ISOCAST, "--version"), 0),
    "isocast publish": ((*_ISOCAST, "publish", *_NOWHERE, "--source", "floor"), 2),
    "isocast listen": ((*_ISOCAST, "listen", *_NOWHERE), 2),
    "isocast node": ((*_ISOCAST, "node", *_NOWHERE, "--name", "london"), 2),
}
"""Each with the exit code that is right."""


def cpu_ms(command: Sequence[str], code: int) -> float:
    """Of one run of a program; the bench ends with exit code 1 if it went wrong."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)  # noqa: S603 - our own command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        sys.stderr.write(f"bench/start.py: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        sys.exit(1)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="of which the best counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package has its bytecode.
    for command, code in PROGRAMS.values():
        cpu_ms(command, code)  # Writes the bytecode.
    rounds = [
        {name: cpu_ms(command, code) for name, (command, code) in PROGRAMS.items()} for _ in range(options.rounds)
    ]
    best = {name: min(each[name] for each in rounds) for name in PROGRAMS}
    yardstick = best["python -c pass"]
    if options.json:
        print(json.dumps({name: {"cpu_ms": ms, "ratio": ms / yardstick} for name, ms in best.items()}, indent=2))
        return
    print(f"{'program':20}{'CPU ms':>10}{'ratio':>8}")
    for name, ms in best.items():
        print(f"{name:20}{ms:10.1f}{ms / yardstick:8.1f}")


if __name__ == "__main__":
    main()
