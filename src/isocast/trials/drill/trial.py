"""One market under one drill: what the drill may do to it, and what it waits for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, time_ns

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import NodeRole
from isocast.runtime.operate.operator_door import ask
from isocast.runtime.operate.supervisor import ChildState
from isocast.runtime.watch.status_poll import Target, poll
from isocast.terms.errors import IsocastError
from isocast.terms.instants import SECOND
from isocast.trials.drill.cast import DrillSettings
from isocast.trials.drill.instants import Reformation, reformations
from isocast.trials.drill.load import Load
from isocast.trials.drill.logbook import LogBook
from isocast.trials.drill.staging import DrillStage
from isocast.trials.evidence import is_follower

__all__ = ["DrillError", "Trial"]

_LOOK_S = 0.1
_SLOW_LOOK_S = 0.4
"""Between two questions to all nodes: they have other things to do."""
_PATIENCE_S = 60.0
_ANSWER_S = 20.0
_CALM_TOKENS = 6
"""Before the fault and after it, so that the picture has a before and an after."""
_CALM_LEAST_S = 1.0
_UNCHANGED_S = 4.0
"""Under `availability` nobody knows how long the sequence gets: it has settled when it stays as it is."""


class DrillError(IsocastError):
    """The market did not do in time what the drill waited for."""


class Trial:
    """What a drill has in its hands. Instants are of the machine's clock, 0: not yet."""

    def __init__(self, stage: DrillStage, load: Load, settings: DrillSettings, note: Callable[[str], None]) -> None:
        """`note` hears what is being done, and what is being waited for."""
        self.market = stage.market
        self.stage = stage
        self.load = load
        self.settings = settings
        self.note = note
        self.book = LogBook(Path(stage.market.file).parent / "logs")
        self.sites = tuple([plan.name for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER)])
        self.fault_at = 0
        self.detected_at = 0
        """Where the logs cannot say it."""
        self.returned_at = 0
        """When a majority that was lost was there again."""
        self.whole_at = 0
        """When everybody was there again."""
        self.ended_at = 0
        self.victims: set[str] = set()
        """Whom the fault touches; everybody else is healthy."""
        self.absent: set[str] = set()
        """Who cannot come back."""

    # What is done to the market -------------------------------------------------------------------

    def strike(self, *victims: str) -> None:
        """The fault happens now, to these."""
        self.victims |= set(victims)
        self.fault_at = time_ns()

    def lasts_s(self, usual_s: float) -> float:
        """How long a fault stays that does not end by itself."""
        return usual_s if self.settings.seconds is None else self.settings.seconds

    async def do(self, name: str, operation: str, **arguments: object) -> None:
        """Ask a node at its operator's door."""
        await ask(self.market.directory_of(name), operation, seconds=_ANSWER_S, **arguments)

    async def deafen(self, listeners: Iterable[str], senders: Iterable[str]) -> None:
        """Let these hear nothing of those."""
        deaf = list(senders)
        known = [name for name in listeners if name in self.market.by_name]
        senders = [name for name in deaf if name in self.market.by_name]
        await asyncio.gather(*[self.do(name, "cut", **{"from": senders}) for name in known])

    async def heal(self) -> None:
        """Let everybody hear everybody."""
        await asyncio.gather(*[self.do(name, "heal") for name in self.stage.children])

    def kill(self, *names: str) -> None:
        """By SIGKILL, to stay down until `bring_back`."""
        for name in names:
            self.stage.kill(name)

    def bring_back(self, *names: str) -> None:
        """Start what was held down."""
        for name in names:
            self.stage.let(name)

    # What is waited for ---------------------------------------------------------------------------

    async def until(self, true: Callable[[], bool], what: str, seconds: float = _PATIENCE_S) -> None:
        """Until something is so, by the logs; DrillError if it does not come."""
        end = monotonic() + seconds
        while True:
            self.book.read()
            if true():
                return
            if monotonic() > end:
                raise DrillError(f"not within {seconds:.0f} s: {what}")
            await asyncio.sleep(_LOOK_S)

    def rings(self) -> list[Reformation]:
        """Since the fault."""
        return reformations(self.book, self.fault_at)

    async def goes_on(self, true: Callable[[tuple[str, ...]], bool], what: str) -> None:
        """A ring of these members has sent its first token since the fault."""
        self.note(f"waits for {what}")
        await self.until(lambda: any(true(ring.members) for ring in self.rings()), what)

    async def goes_on_without(self, *names: str) -> None:
        """A ring without any of these."""
        gone = set(names)
        await self.goes_on(lambda members: not gone & set(members), f"a ring without {' and '.join(names)}")

    async def is_whole(self) -> None:
        """Everybody who can is ready, and all sites that can are on one ring."""
        self.note("waits for the whole ring")
        wanted = set(self.sites) - self.absent

        def whole() -> bool:
            rings = reformations(self.book, 0)
            children = [child for name, child in self.stage.children.items() if name not in self.absent]
            return bool(rings) and set(rings[-1].members) == wanted and all(child.ready.is_set() for child in children)

        await self.until(whole, f"a ring of {', '.join(sorted(wanted))} with everybody ready")

    async def returns(self, *names: str) -> None:
        """Processes are up again, and a majority of sites with them; says when that was."""
        since = self.fault_at
        down = set(names) & set(self.sites)
        need = len(self.sites) // 2 + 1 - (len(self.sites) - len(down))

        def started() -> list[int]:
            lines = {line.node: line.at for line in reversed(self.book.since(since, "started")) if line.node in down}
            return sorted(lines.values())

        await self.until(lambda: len(started()) >= need, "a majority is up again")
        self.returned_at = started()[need - 1]

    async def says(self, name: str, alarm: str) -> None:
        """A node has raised an alarm about itself since the fault."""
        await self.until(
            lambda: any(line.node == name for line in self.book.since(self.fault_at, alarm)), f"{name} says {alarm}"
        )

    async def refused(self, name: str) -> None:
        """A node does not start because of what it found on its disk."""
        child = self.stage.children[name]
        await self.until(lambda: child.state is ChildState.REFUSED, f"{name} refuses its disk")

    async def pass_time(self, seconds: float) -> None:
        """Let a fault stay."""
        await asyncio.sleep(seconds)

    async def calm(self) -> None:
        """A few tokens without a fault."""
        await asyncio.sleep(max(_CALM_TOKENS * self.market.timing.token_period_ns / SECOND, _CALM_LEAST_S))

    async def settled(self) -> None:
        """Everything that was promised is in every journal that can have it."""
        self.note("waits for the last messages")
        plans = [plan for plan in self.market.nodes if plan.role.is_receiver or is_follower(plan)]
        targets = [Target(plan.address, plan.http_port, plan.name) for plan in plans if plan.name not in self.absent]
        wanted, end, since, before = 1 + len(self.load.accepted), monotonic() + _PATIENCE_S, monotonic(), None
        while True:
            answers = await poll(targets)
            reached = [None if one.status is None else one.status.gauges.next_sequence for one in answers]
            if reached != before:
                before, since = reached, monotonic()
            if all(sequence == wanted for sequence in reached):
                return
            if self.settings.policy is StartPolicy.AVAILABILITY and monotonic() - since > _UNCHANGED_S:
                return
            if monotonic() > end:
                behind = {one.target.name: at for one, at in zip(answers, reached, strict=True) if at != wanted}
                raise DrillError(f"not within {_PATIENCE_S:.0f} s: everybody has {wanted - 1} messages; {behind}")
            await asyncio.sleep(_SLOW_LOOK_S)

    def signal(self, name: str, number: signal.Signals) -> None:
        """To one process."""
        self.stage.signal(name, number)
