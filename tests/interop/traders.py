"""A trader at a source's door: reacts at agreed instants until SIGTERM, one order for each.

A program of its own, since only what runs inside a site of the lab reaches the door there:
``python -m tests.interop.traders CONFIG SOURCE STEP_NS``. All traders decide at the multiples of STEP_NS of the
machine's clock, so that two of them decide together; an order says when it was really sent, and its symbol's reference
which instant it reacts to. A trader that the machine kept waiting passes instants over.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.file import load_market
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE

__all__ = ["main"]


async def _react(config: str, source: str, step_ns: int) -> None:
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with Publisher(load_market(Path(config)), source) as door:
        while not ending.is_set():
            release = time.time_ns() // step_ns + 1
            with suppress(TimeoutError):
                async with asyncio.timeout(release * step_ns / 1e9 - time.time()):
                    await ending.wait()
                    return
            order = np.zeros(1, EVENT_DTYPE)
            order["kind"], order["floor"], order["symbol"] = EventKind.ORDER, b"XISO", b"ISO"
            order["id"], order["price"], order["quantity"] = release, 10_000, 1
            order["time"] = time.time_ns()
            await door.publish(order)


def main(arguments: list[str]) -> int:
    """React until SIGTERM."""
    config, source, step_ns = arguments
    asyncio.run(_react(config, source, int(step_ns)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
