"""The second of the story that surprises: the owner of the next token is killed, and comes back.

It dies by SIGKILL just before its token is due, so that the others must notice, vote and go on without it. It is
started again once they have, reads its disk, fetches what it missed, and is taken in by another ballot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from isocast.terms.instants import SECOND
from isocast.trials.demo.cast import Tone
from isocast.trials.demo.releases import Absence
from isocast.trials.demo.staging import DemoStage
from isocast.trials.demo.watching import MarketWatch, WatchedRing

__all__ = ["Story"]

_BEFORE = 0.3
"""Of a token period: so long before its token the owner dies."""
_LOOK_S = 0.1
_DOWN_MOST_S = 15.0
"""Then it comes back in any case."""


@dataclass(slots=True)
class Story:
    """What happened to whom; instants are of the system clock, 0: not yet."""

    victim: str = ""
    token_number: int = 0
    killed_at: int = 0
    reformed_at: int = 0
    """The others had a new ring."""
    started_at: int = 0
    whole_at: int = 0
    """It was on the ring again."""

    async def play(
        self, stage: DemoStage, watch: MarketWatch, note: Callable[[Tone, str], None], pause_s: float
    ) -> None:
        """Kill, wait for the ring without it and a pause more, let it come back, wait for the whole ring."""
        ring = await self._chosen(watch)
        pid = stage.kill(self.victim)
        self.killed_at = time.time_ns()
        who = watch.title(self.victim)
        left = (ring.instant(self.token_number) - self.killed_at) / SECOND
        note(Tone.TROUBLE, f"kill -9 {pid}: {who} dies, {left:.1f} s before its token {self.token_number}")
        await _until(lambda: self._goes_on_without(watch, ring), _DOWN_MOST_S)
        self.reformed_at = time.time_ns()
        await asyncio.sleep(pause_s)
        stage.let(self.victim)
        await stage.children[self.victim].ready.wait()
        self.started_at = time.time_ns()
        note(Tone.RING, f"{who} is back with its disk, and asks to come in")
        await _until(watch.is_whole, None)
        self.whole_at = time.time_ns()
        after = (self.whole_at - self.killed_at) / SECOND
        note(Tone.RING, f"{who} is on the ring again, {after:.1f} s after it was killed")

    def absences(self) -> tuple[Absence, ...]:
        """When the victim was not there to release."""
        if not self.killed_at:
            return ()
        return (Absence(self.victim, self.killed_at, self.whole_at or 1 << 63),)

    async def _chosen(self, watch: MarketWatch) -> WatchedRing:
        """Wait for the moment; the ring whose next owner is the victim."""
        while True:
            ring = watch.ring
            if ring is not None and watch.is_whole():
                now = time.time_ns()
                before = round(_BEFORE * ring.period_ns)
                token = ring.token_at(now + before) + 1
                await asyncio.sleep((ring.instant(token) - before - now) / SECOND)
                if watch.ring is ring:
                    self.victim, self.token_number = ring.owner(token), token
                    return ring
            await asyncio.sleep(_LOOK_S)

    def _goes_on_without(self, watch: MarketWatch, before: WatchedRing) -> bool:
        ring = watch.ring
        return ring is not None and ring.number > before.number and self.victim not in ring.members


async def _until(true: Callable[[], bool], seconds: float | None) -> None:
    """Look again and again; who watches does not signal."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while not true() and (deadline is None or time.monotonic() < deadline):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
