"""How much memory a market of real processes takes on this machine, by process, and what they share.

    python bench/memory.py [--cities London,Paris,Frankfurt] [--seconds 10] [--json]

It starts the market of `isocast config example` by `isocast up`, waits until every node is ready, lets it run for
`--seconds`, and reads /proc/PID/smaps_rollup of `isocast up`, of the process that the nodes are forks of, and of every
node. RSS counts a page once for each process that has it; PSS divides it among them, so that the sum of PSS is what
the market takes of the machine. `private` is what would be given back if that process alone ended.

`ratio` is the PSS of the whole market to that of one `python -c 'import numpy'`, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scratch import folder

_COMMAND = (sys.executable, "-m", "isocast")
_FIELDS = {"Rss": "rss_mb", "Pss": "pss_mb", "Private_Clean": "private_mb", "Private_Dirty": "private_mb"}
_UNTIL_READY_S = 120
_STOP_S = 60


def memory(pid: int) -> dict[str, float]:
    """RSS, PSS and private memory of a process, in MB."""
    found = dict.fromkeys(_FIELDS.values(), 0.0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, _, value = line.partition(":")
        if name in _FIELDS:
            found[_FIELDS[name]] += int(value.split()[0]) * 1024 / 1e6
    return found


def children(pid: int) -> list[int]:
    """Those that a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text(encoding="ascii").split()]


def yardstick() -> float:
    """PSS of a Python that has imported numpy, with nobody to share it."""
    program = "import sys, numpy; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(  # noqa: S603 - Python itself
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101
        process.stdout.readline()
        return memory(process.pid)["pss_mb"]


def measured(place: Path, cities: str | None, seconds: float) -> dict[str, dict[str, float]]:
    """Memory by process of a market that runs; nothing is left of it afterwards."""
    example = ["config", "example", "--out", "market.toml", *(("--cities", cities) if cities else ())]
    for words in (example, ["keys", "init"]):
        subprocess.run([*_COMMAND, *words], cwd=place, check=True, capture_output=True)  # noqa: S603 - our own command
    with subprocess.Popen(  # noqa: S603 - our own command
        [*_COMMAND, "up", "--config", "market.toml", "--json"], cwd=place, stdout=subprocess.PIPE, text=True
    ) as up:
        try:
            nodes = until_ready(up)
            time.sleep(seconds)
            found = {"isocast up": memory(up.pid)}
            forked = [memory(pid) for pid in children(up.pid) if pid not in nodes.values()]
            found |= {"what nodes are forks of" if not at else f"helper {at}": each for at, each in enumerate(forked)}
            return found | {name: memory(pid) for name, pid in nodes.items()}
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=_STOP_S)


def until_ready(up: subprocess.Popen[str]) -> dict[str, int]:
    """The process of every node, once all are ready."""
    assert up.stdout is not None  # noqa: S101
    nodes: dict[str, int] = {}
    until = time.monotonic() + _UNTIL_READY_S
    for line in up.stdout:
        said = json.loads(line)
        if said["event"] == "ready":
            nodes[said["node"]] = said["pid"]
        if said["event"] == "all-ready":
            return nodes
        if time.monotonic() > until:
            break
    sys.exit("bench/memory.py: the market did not become ready")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cities", help="of the market; five cities of the world if left out")
    parser.add_argument("--seconds", type=float, default=10.0, help="for which the market runs before it is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package has its bytecode.
    with folder() as place:
        found = measured(place, options.cities, options.seconds)
    total = {field: sum(each[field] for each in found.values()) for field in ("rss_mb", "pss_mb", "private_mb")}
    ratio = total["pss_mb"] / yardstick()
    if options.json:
        print(json.dumps({"processes": found, "total": total, "ratio": ratio}, indent=2))
        return
    print(f"{'process':28}{'RSS MB':>10}{'PSS MB':>10}{'private MB':>12}")
    for name, each in [*found.items(), (f"total of {len(found)}", total)]:
        print(f"{name:28}{each['rss_mb']:10.1f}{each['pss_mb']:10.1f}{each['private_mb']:12.1f}")
    print(f"PSS of the whole to that of one Python with numpy: {ratio:.1f}")


if __name__ == "__main__":
    main()
