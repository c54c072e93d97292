"""A floor at a site of the lab: publishes at one source's door until SIGTERM, and notes what the source accepted.

A program of its own, since only what runs inside a site reaches the door there:
``python -m isocast.runtime.lab.floor CONFIG SOURCE EVENTS SEED ACCEPTED``. EVENTS is about how many a second. ACCEPTED
is a file that gets a line for each message which the source has promised to publish: its source and number.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from isocast.runtime.market import Market, NodePlan
from isocast.runtime.market_file import load_market
from isocast.runtime.publisher import Publisher
from isocast.runtime.showcase.floors import FLOORS, SyntheticFloor
from isocast.terms.errors import IsocastError
from isocast.terms.ids import Label

__all__ = ["accepted_labels", "floor_command", "main"]

_BEAT_S = 0.1
"""Between two batches: what happened meanwhile."""
_EVENTS_PER_S = 80.0
"""Of a synthetic floor in its own time."""


def floor_command(config: Path, source: str, events_per_s: float, seed: int, accepted: Path) -> tuple[str, ...]:
    """The command that runs a floor, by the interpreter that runs us."""
    module = "isocast.runtime.lab.floor"
    return (sys.executable, "-m", module, str(config), source, str(events_per_s), str(seed), str(accepted))


def accepted_labels(accepted: Path) -> list[Label]:
    """What a floor was promised, in the order of publishing; nothing while it has not begun."""
    if not accepted.exists():
        return []
    whole = accepted.read_text(encoding="ascii").rpartition("\n")[0]  # It may be writing a line just now.
    return [Label(*map(int, line.split())) for line in whole.splitlines()]


async def _publish(market: Market, source: NodePlan, events_per_s: float, seed: int, notes: TextIO) -> None:
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
                notes.writelines(f"{label.source} {label.number}\n" for label in await door.publish(events))
                notes.flush()
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), _BEAT_S)


def main(arguments: list[str]) -> int:
    """Publish until SIGTERM."""
    config, source, events_per_s, seed, accepted = arguments
    try:
        market = load_market(Path(config))
        with Path(accepted).open("w", encoding="ascii") as notes:
            asyncio.run(_publish(market, market.node(source), float(events_per_s), int(seed), notes))
    except (IsocastError, OSError) as error:
        sys.stderr.write(f"floor of {source}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
