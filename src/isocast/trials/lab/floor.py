"""A floor at a site of the lab: publishes at one source's door until SIGTERM, and prints what the source accepted.

A program of its own, since only what runs inside a site reaches the door there:
``python -m isocast.trials.lab.floor CONFIG SOURCE EVENTS SEED``. EVENTS is about how many a second. Each message that
the source has promised to publish is a line of the output: "accepted", its source's id and its number.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, NodePlan
from isocast.terms.errors import IsocastError
from isocast.terms.ids import Label
from isocast.trials.demo.floors import FLOORS, SyntheticFloor

__all__ = ["accepted_labels", "floor_command", "main"]

_MODULE = "isocast.trials.lab.floor"
_ACCEPTED = "accepted"
_BEAT_S = 0.1
"""Between two batches: what happened meanwhile."""
_EVENTS_PER_S = 80.0
"""Of a synthetic floor in its own time."""


def floor_command(config: Path, source: str, events_per_s: float, seed: int) -> tuple[str, ...]:
    """The command that runs a floor, by the interpreter that runs us."""
    return (sys.executable, "-m", _MODULE, str(config), source, str(events_per_s), str(seed))


def accepted_labels(output: Path) -> list[Label]:
    """What a floor was promised, in the order of publishing, by what it printed; nothing if it has not begun."""
    if not output.exists():
        return []
    whole = output.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0]  # It may be printing just now.
    rows = [line.split() for line in whole.splitlines()]
    return [Label(int(row[1]), int(row[2])) for row in rows if row[:1] == [_ACCEPTED]]


async def _publish(market: Market, source: NodePlan, events_per_s: float, seed: int) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    plan = replace(FLOORS[source.number % len(FLOORS)], source=source.name)
    floor = SyntheticFloor(plan, seed + source.number)
    async with Publisher(market, source.name) as door:
        began = loop.time()
        while not ending.is_set():
            events = floor.until((loop.time() - began) * events_per_s / _EVENTS_PER_S)
            if len(events):
                events["time"] = time.time_ns()
                labels = await door.publish(events)
                sys.stdout.writelines(f"{_ACCEPTED} {label.source} {label.number}\n" for label in labels)
                sys.stdout.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await ending.wait()


def main(arguments: list[str]) -> int:
    """Publish until SIGTERM."""
    config, source, events_per_s, seed = arguments
    try:
        market = load_market(Path(config))
        asyncio.run(_publish(market, market.node(source), float(events_per_s), int(seed)))
    except (IsocastError, OSError) as error:
        sys.stderr.write(f"the floor at {source}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
