"""The show from beginning to end: processes start, floors publish, one is killed, all settles, journals are read."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.operate.supervisor import Child, ChildState
from isocast.terms.instants import SECOND
from isocast.trials.demo.cast import LogNote, Tone, actors
from isocast.trials.demo.floors import FLOORS, Feed
from isocast.trials.demo.releases import one_way_ns
from isocast.trials.demo.staging import DemoStage
from isocast.trials.demo.story import Story
from isocast.trials.demo.summary import Summary, read_proof, sum_up
from isocast.trials.demo.traders import TradingSession
from isocast.trials.demo.watching import MarketWatch
from isocast.trials.evidence import is_follower

__all__ = ["Show", "ShowPhase", "ShowSettings"]

_NOTES_KEPT = 200
_LOOK_S = 0.5
"""Between two looks at everybody."""
_KILL_AT = 0.45
"""Of the show: late enough to have seen the peace before, early enough to see the end."""
_PAUSE = 0.05
"""Of the show: how long the others go on without the victim."""
_SETTLE_S = 60.0
"""For everything that was published to be released everywhere, and every trade to be final, after the floors have
closed."""
_QUIET_LOOKS = 4
"""At what everybody says, of the same contents: two of theirs."""
_COUNTED_S = 1.1
"""Nodes bring some of their counts up to date once a second."""


class ShowPhase(StrEnum):
    """How far the show is."""

    SETTING = "processes start"
    PLAYING = "floors publish"
    SETTLING = "floors have closed; the last messages are released"
    JUDGING = "all have stopped; the journals are read"


@dataclass(frozen=True, slots=True)
class ShowSettings:
    """What the visitor asks for; loss, delays and seed are in the market."""

    seconds: float
    seed: int
    commands: tuple[str, ...] = ()
    """Modules of the command line that nodes import."""


class Show:
    """One run of the demo; its attributes are what views draw."""

    def __init__(self, market: Market, settings: ShowSettings) -> None:
        """Nothing runs before `play`."""
        self.market = market
        self.settings = settings
        self.phase = ShowPhase.SETTING
        self.began_at = time.time_ns()
        self.opened_at = 0
        """When the floors began, by the system clock."""
        self.closed_at = 0
        self.stopped_at = 0
        """When the last process was gone."""
        self.notes: deque[LogNote] = deque(maxlen=_NOTES_KEPT)
        self.on_note: Callable[[LogNote], None] | None = None
        self.watch = MarketWatch(market, self.note)
        self.story = Story()
        self.session = TradingSession(market, settings.seed, self.note) if market.floors else None
        """Of the market's trading floor, if it has one."""
        self.feeds = [Feed(plan, settings.seed) for plan in FLOORS if plan.source in market.by_name]
        self.children: dict[str, ChildState] = {}
        """Where each process stands."""
        self._going = asyncio.Event()

    # Asked of it ----------------------------------------------------------------------------------

    def share(self, now: int) -> float:
        """How much of it is over at an instant of the system clock."""
        played_s = (now - self.opened_at) / SECOND if self.opened_at else 0.0
        return min(max(played_s / self.settings.seconds, 0.0), 1.0)

    @property
    def one_way_ns(self) -> int:
        """The formula's d, for what was released so far."""
        return one_way_ns(self.market, self.watch.releases.sources)

    def note(self, tone: Tone, text: str) -> None:
        """Something happened."""
        note = LogNote(time.time_ns() - self.began_at, tone, text)
        self.notes.append(note)
        if self.on_note is not None:
            self.on_note(note)

    # The performance ------------------------------------------------------------------------------

    async def play(self) -> Summary:
        """From the first process to the verdict; processes are gone when it returns or raises."""
        with self.watch:
            try:
                await self._play()
            except ExceptionGroup as several:
                # One failed, and the others were only ended for it.
                raise several.exceptions[0] from None
            self.watch.follow_journals()
        return await self._judge()

    async def _play(self) -> None:
        stage = DemoStage(self.market, self._told, commands=self.settings.commands)
        async with stage, asyncio.TaskGroup() as group:
            looking = group.create_task(self._look())
            await stage.all_ready()
            nodes = len(actors(self.market))
            took = (time.time_ns() - self.began_at) / SECOND
            self.note(Tone.RING, f"After {took:.1f} s all {nodes} nodes are ready; the floors open")
            await self._perform(stage, group)
            await asyncio.sleep(_COUNTED_S)
            looking.cancel()
            await self.watch.look()

    async def _perform(self, stage: DemoStage, group: asyncio.TaskGroup) -> None:
        self.opened_at = time.time_ns()
        self.phase = ShowPhase.PLAYING
        self._going.set()
        feeding = [
            group.create_task(feed.run(self.market, self._going, place / len(self.feeds) / 10))
            for place, feed in enumerate(self.feeds)
        ]
        if self.session is not None:
            feeding.append(group.create_task(self.session.run(stage, self._going)))
        telling = group.create_task(self._tell(stage))
        await asyncio.sleep(self.settings.seconds)
        self._going.clear()
        self.phase = ShowPhase.SETTLING
        self.closed_at = time.time_ns()
        self.note(Tone.RING, "The floors close; what is on its way is released")
        if not self.story.killed_at:
            telling.cancel()
        await self._settle(stage, [*feeding, telling])
        for task in (*feeding, telling):
            task.cancel()

    async def _tell(self, stage: DemoStage) -> None:
        """The surprise, half-way."""
        seconds = self.settings.seconds
        await asyncio.sleep(_KILL_AT * seconds)
        await self.story.play(stage, self.watch, self.note, _PAUSE * seconds)

    async def _settle(self, stage: DemoStage, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until everything promised is everywhere, and the receiver that was killed is on the ring again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                await asyncio.wait(tasks)
                if self.session is not None and self.watch.floor is not None:
                    await self.session.settle(stage, self.watch.floor)
                looks = 0
                while looks < _QUIET_LOOKS:
                    await asyncio.sleep(_LOOK_S / 2)
                    # Whoever has just released may have something to say to it: once more.
                    looks = looks + 1 if self._is_settled() else 0

    def _is_settled(self) -> bool:
        """Whether everybody has released all that sources took: feeds, and what gateways and arbiters published."""
        sources = [plan.name for plan in actors(self.market, NodeRole.PRIMARY_SOURCE)]
        taken = self.watch.ledger.total("publishes_accepted_total", sources)
        wanted = 1 + max(taken, sum([feed.messages for feed in self.feeds]))
        return all(self.watch.next_sequence(plan) == wanted for plan in actors(self.market) if _must_have_all(plan))

    async def _look(self) -> None:
        while True:
            due = time.monotonic() + _LOOK_S
            await self.watch.look()
            await asyncio.sleep(max(due - time.monotonic(), 0.05))

    def _told(self, child: Child) -> None:
        self.children[child.name] = child.state
        if child.state is ChildState.REFUSED:
            self.note(Tone.TROUBLE, f"{child.name} refuses its input: {child.last_line()}")
        elif child.state is ChildState.PAUSING and child.name != self.story.victim:
            self.note(Tone.TROUBLE, f"{child.name} ended with code {child.exit_code}: {child.last_line()}")

    async def _judge(self) -> Summary:
        self.phase = ShowPhase.JUDGING
        self.stopped_at = time.time_ns()
        published = {feed.plan.mic: feed.events for feed in self.feeds}
        evidence = read_proof(self.market, published)
        summary = sum_up(
            self.market,
            evidence,
            self.watch.ledger,
            self.story,
            seconds=((self.closed_at or time.time_ns()) - self.opened_at) / SECOND if self.opened_at else 0.0,
            rings=len(self.watch.rings),
            published=published,
        )
        return await self._with_trading(summary) if self.market.floors else summary

    async def _with_trading(self, summary: Summary) -> Summary:
        from isocast.trials.demo.trading_summary import judge_trading  # noqa: PLC0415 - its packages are an extra's

        alarms = [f"{name}: {text}" for name, text in self.watch.ledger.alarms("floor-")]
        judging = judge_trading(self.market, is_complete=True, alarms=alarms)
        while True:
            try:
                next(judging)
            except StopIteration as end:
                return summary.with_trading(end.value)
            await asyncio.sleep(0)  # An interruption need not wait for all of it.


def _must_have_all(plan: NodePlan) -> bool:
    return plan.role.is_receiver or is_follower(plan)
