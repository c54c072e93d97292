"""The picture of the README, one frame of a real demo: `python -m isocast.cli.demo_picture docs/assets/demo.svg`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from isocast.cli.demo_lake import LakeBeside
from isocast.cli.demo_run import COMMANDS
from isocast.cli.demo_view import frame
from isocast.cli.live_picture import picture
from isocast.runtime.disk.scratch import scratch_directory
from isocast.runtime.market.model import Market
from isocast.terms.instants import SECOND
from isocast.trials.demo.place import own_place
from isocast.trials.demo.show import Show, ShowSettings
from isocast.trials.demo.staging import set_stage

__all__ = ["main"]

_SIZE = (100, 40)
_SECONDS, _SEED, _LOSS = 60.0, 7, 0.02
_AFTER_S = 1.0
"""After the ring has re-formed without the city that was killed."""
_SPARK_S = 120.0
"""Nobody waits in front of it."""
_SHARE = 0.7
_LOOK_S = 0.02


async def _frame(market: Market) -> str:
    """The moment when the others go on without the city that was killed; the tables follow."""
    async with LakeBeside(market, _SECONDS) as lake:
        await lake.head_start(_SPARK_S)
        return await _frame_of(Show(market, ShowSettings(_SECONDS, _SEED, COMMANDS)), lake)


async def _frame_of(show: Show, lake: LakeBeside) -> str:
    playing = asyncio.create_task(show.play())
    try:
        while not playing.done() and not (show.story.reformed_at and (lake.events or lake.is_over)):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_AFTER_S)
        await _under_way(show)
        return picture(frame(show, *_SIZE, time.time_ns(), lake), *_SIZE, "isocast demo")
    finally:
        show.hurry()
        show.hurry()
        await playing


async def _under_way(show: Show) -> None:
    """Until the token is well on its way to the next city."""
    ring = show.watch.ring
    if ring is not None:
        now = time.time_ns()
        wanted = ring.instant(ring.token_at(now) + 1) + round(_SHARE * ring.period_ns)
        await asyncio.sleep((wanted - now) / SECOND)


def main(path: str) -> None:
    """Run a demo and write one frame of it."""
    with scratch_directory("demo") as directory, own_place() as place:
        market = set_stage(directory, place, loss=_LOSS, seed=_SEED)
        Path(path).write_text(asyncio.run(_frame(market)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
