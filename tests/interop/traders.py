"""Traders at a source's door: some of them react at each event of a ticker, one order each, until SIGTERM.

A program of its own, since only what runs inside a site of the lab reaches the door there:
``python -m tests.interop.traders CONFIG SOURCE STEP_NS GROUPS TRADERS``. The ticker is the machine's clock: it has an
event at every multiple of STEP_NS, and all cities learn of it at that instant. There are GROUPS times TRADERS accounts,
and the groups take turns, so that an account has at most one order in a token if a turn of the groups is longer than
that. An order's id says which trader of which city it competes with upon which event, its reference whose it is, its
time when it was really sent. Where the machine keeps the traders waiting they pass events over.
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


async def _react(config: str, source: str, step_ns: int, groups: int, traders: int) -> None:
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
            orders = np.zeros(traders, EVENT_DTYPE)
            orders["kind"], orders["floor"], orders["symbol"] = EventKind.ORDER, b"XISO", b"ISO"
            orders["price"], orders["quantity"] = 10_000, 1
            orders["id"] = release * traders + np.arange(traders)
            orders["reference"] = release % groups * traders + np.arange(traders) + 1
            orders["time"] = time.time_ns()
            await door.publish(orders)


def main(arguments: list[str]) -> int:
    """React until SIGTERM."""
    config, source, step_ns, groups, traders = arguments
    asyncio.run(_react(config, source, int(step_ns), int(groups), int(traders)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
