"""A market of real processes for tests that know no event loop: started, watched, killed, and published to."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any, Self, TypeVar

import numpy as np
from tests.interop.released import JournalWatch

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.operate.nursery import Nursery, NurseryProcess
from isocast.runtime.operate.supervisor import Supervisor, node_command
from isocast.runtime.watch.status import NodeStatus, node_target, poll
from isocast.terms.ids import Label
from isocast.terms.market import EventKind, Grade
from isocast.wire.events import EVENT_DTYPE

__all__ = ["PATIENCE_S", "Floor", "Stage"]

ResultT = TypeVar("ResultT")

PATIENCE_S = 90.0
"""Before something counts as never coming; a passing test does not wait for it."""
_LOOK_S = 0.02
_MODULES = (
    "isocast.cli.main",
    "isocast.runtime.hosts.process",
    *[f"isocast.runtime.hosts.{role}" for role in ("receiver", "source", "reformation", "retransmit", "customer")],
)
"""Imported once for all processes of a stage."""
_LOG_LINES = 30


@dataclass
class Floor:
    """Publishes batch after batch, each with a key of its own, and notes what was promised."""

    name: str
    pause_s: float
    accepted: list[tuple[bytes, Label, bytes]] = field(default_factory=list)
    """Key, label and payload of everything that `publish` returned for."""
    asked: int = 0

    async def run(self, market: Market, going: asyncio.Event) -> None:
        async with Publisher(market, self.name, patience_s=PATIENCE_S) as publisher:
            while going.is_set():
                await self.publish(publisher)
                await asyncio.sleep(self.pause_s)

    async def publish(self, publisher: Publisher) -> None:
        self.asked += 1
        key = f"{self.name}/{self.asked}".encode()
        events = np.zeros(1 + self.asked % 3, EVENT_DTYPE)
        events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XTST", self.name.encode()[:8]
        events["id"] = events["time"] = self.asked * 10 + np.arange(len(events))
        (label,) = await publisher.publish(events, key)
        self.accepted.append((key, label, events.tobytes()))


class Stage:
    """Runs the supervisor and the floors in a thread of their own."""

    def __init__(self, market: Market, *, pause_s: float = 0.03, without: Sequence[str] = ()) -> None:
        """`without` are nodes that somebody else starts."""
        self.market = market
        self._without = without
        self.floors = {plan.name: Floor(plan.name, pause_s) for plan in market.nodes if plan.role.is_source}
        self.watches = {plan.name: JournalWatch(market.directory_of(plan.name)) for plan in market.receivers}
        self.edges = {
            plan.name: JournalWatch(market.directory_of(plan.name))
            for plan in market.by_role(NodeRole.RETRANSMIT_SERVER, NodeRole.CUSTOMER)
            if plan.role is NodeRole.RETRANSMIT_SERVER or plan.grade is Grade.COMPLETE
        }
        """Of those who write down what lines brought them: every message, but not its label."""
        self._logs = Path(market.file).parent / "logs"
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="stage", daemon=True)
        self._going = asyncio.Event()
        self._publishing: list[Future[None]] = []
        self.supervisor: Supervisor | None = None
        self._nursery = Nursery(_MODULES)
        self._away: set[str] = set()

    # Life ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._logs.mkdir(exist_ok=True)
        self._thread.start()
        self.supervisor = Supervisor(log_directory=self._logs, launch=self._launch)
        try:
            self.call(self._start())
            self.until(lambda: all(child.ready.is_set() for child in self._children()), "everybody is ready")
        except BaseException:
            self._end()
            raise
        return self

    async def _start(self) -> None:
        await self._nursery.__aenter__()
        for plan in [plan for plan in self.market.nodes if plan.start and plan.name not in self._without]:
            await self._supervising.start(plan.name, node_command(Path(self.market.file), plan.name))

    async def _launch(
        self, command: Sequence[str], environment: Mapping[str, str], output: Path | None
    ) -> NurseryProcess:
        """A node's process, once nobody keeps it away."""
        while self._away.intersection(command):  # noqa: ASYNC110 - another thread lets it come back
            await asyncio.sleep(_LOOK_S)
        return await self._nursery.launch(command, environment, output)

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._going.clear()
        self._away.clear()
        for future in self._publishing:
            future.cancel()
        try:
            self.call(self._supervising.stop_all())
            self.call(self._nursery.close())
            self.call(self._finish())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()
            for watch in (*self.watches.values(), *self.edges.values()):
                with watch:
                    pass

    async def _finish(self) -> None:
        """What was cancelled comes to its end."""
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Driving ------------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Do something in the stage's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def until(self, true: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a condition; what the nodes logged last says why it did not come."""
        end = monotonic() + seconds
        while not true():
            for future in self._publishing:
                if future.done() and not future.cancelled():
                    future.result()
            assert monotonic() < end, f"not within {seconds:.0f} s: {what}\n{self.story()}"
            sleep(_LOOK_S)

    def kill(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        """All of them at once; each that was running is sure to have ended."""
        pids = self.call(self._kill(names, number))
        children = self._supervising.children
        self.until(lambda: not any(pid and children[name].pid == pid for name, pid in pids.items()), "the killed end")

    @contextmanager
    def away(self, *names: str) -> Iterator[None]:
        """Whichever of them dies is not started again before the block ends, however long that takes."""
        self._away.update(names)
        yield
        self._away.difference_update(names)

    async def _kill(self, names: Iterable[str], number: signal.Signals) -> dict[str, int | None]:
        pids = {name: self._supervising.children[name].pid for name in names}
        for name in names:
            self._supervising.kill(name, number)
        return pids

    def until_ready(self, *names: str) -> None:
        """Each of them has said so since it was started last."""
        children = [self._supervising.children[name] for name in names]
        self.until(lambda: all(child.ready.is_set() for child in children), f"ready again: {', '.join(names)}")

    def statuses(self, *names: str) -> dict[str, NodeStatus]:
        """What nodes say of themselves; everybody's without names. Whoever does not answer is left out."""
        plans = [self.market.node(name) for name in names or self.market.by_name]
        plans = [plan for plan in plans if plan.start and plan.http_port]
        answers = self.call(poll([node_target(self.market, plan) for plan in plans], seconds=5))
        return {answer.target.name: answer.status for answer in answers if answer.status is not None}

    def all_statuses(self, *names: str) -> dict[str, NodeStatus]:
        """As `statuses`, of everybody: a node that is busy is asked again."""
        wanted = [name for name in names or self.market.by_name if self.market.node(name).start]
        wanted = [name for name in wanted if self.market.node(name).http_port]
        found: dict[str, NodeStatus] = {}

        def answered() -> bool:
            found.update(self.statuses(*[name for name in wanted if name not in found]))
            return len(found) == len(wanted)

        self.until(answered, "every node tells its status")
        return {name: found[name] for name in wanted}

    def until_whole(self) -> None:
        """Every primary receiver is ready and on one ring with all others."""
        names = sorted(plan.name for plan in self.market.receivers if plan.node in self.market.universe)

        def whole() -> bool:
            found = self.statuses(*names)
            rings = {(status.gauges.epoch, status.gauges.ring) for status in found.values() if status.ready}
            return len(found) == len(names) and len(rings) == 1 and sorted(rings.pop()[1] or ()) == names

        self.until(whole, "all primary receivers are on one ring")

    # Publishing ---------------------------------------------------------------------------------

    def publish(self) -> None:
        """Let every floor publish until `quiet`."""
        self._loop.call_soon_threadsafe(self._going.set)
        self.call(asyncio.sleep(0))
        self._publishing = [
            asyncio.run_coroutine_threadsafe(floor.run(self.market, self._going), self._loop)
            for floor in self.floors.values()
        ]

    def quiet(self) -> None:
        """Let every floor have the answer that it waits for, and end."""
        self._loop.call_soon_threadsafe(self._going.clear)
        for future in self._publishing:
            future.result(2 * PATIENCE_S)
        self._publishing = []

    def until_published(self, count: int) -> None:
        """Every floor has had so many more answers."""
        wanted = {name: len(floor.accepted) + count for name, floor in self.floors.items()}
        self.until(
            lambda: all(len(floor.accepted) >= wanted[name] for name, floor in self.floors.items()),
            f"{count} more messages of each floor are accepted",
        )

    def until_released(self) -> dict[Label, bytes]:
        """Every message that was accepted before this call is in the journal of every receiver; which, and what.

        A secondary source's labels are between it and its floor: in the sequence its messages have its parent's.
        """
        accepted = {label: payload for floor in self.floors.values() for _, label, payload in list(floor.accepted)}
        secondary = {plan.number for plan in self.market.by_role(NodeRole.SECONDARY_SOURCE)}
        wanted = {payload if label.source >> 32 in secondary else label for label, payload in accepted.items()}
        seen = {name: set[object]() for name in self.watches}
        taken = dict.fromkeys(self.watches, 0)

        def everywhere() -> bool:
            for name, watch in self.watches.items():
                messages = watch.look()
                for message in messages[taken[name] :]:
                    seen[name] |= {message.label, message.payload}
                taken[name] = len(messages)
            return all(labels >= wanted for labels in seen.values())

        self.until(everywhere, "everything that was accepted is in every journal")
        return accepted

    def until_heard(self) -> None:
        """Whatever is in a receiver's journal is in those of archives and complete customers too."""
        newest = max(len(watch.look()) for watch in self.watches.values())
        self.until(
            lambda: all(watch.look() and watch.messages[-1].sequence >= newest for watch in self.edges.values()),
            f"archives and customers have the first {newest} messages",
        )

    # Telling ------------------------------------------------------------------------------------

    def story(self) -> str:
        """Where everybody stands, and what was logged last."""
        journals = {**self.watches, **self.edges}
        lines = [f"{name}: {len(watch.messages)} messages in its journal" for name, watch in journals.items()]
        lines += [f"{name}: {len(floor.accepted)} of {floor.asked} accepted" for name, floor in self.floors.items()]
        with suppress(Exception):
            for name, status in self.statuses().items():
                gauges = status.gauges
                where = f"{gauges.epoch} {gauges.ring} {gauges.mode}"
                lines.append(f"{name}: ready {status.ready} {status.reasons} {where}")
                if gauges.lines_configured:
                    reach = (
                        f"next {gauges.next_sequence}, {gauges.sequence_gaps} gaps, {gauges.lines_heard} lines heard"
                    )
                    lines.append(f"{name}: {reach}, follows {gauges.line_followed}, waiting {gauges.waiting}")
                # A log has the first alarm of its kind; here is what it says now.
                lines += [f"{name}: {alarm.count} times: {alarm.text}" for alarm in status.alarms]
        for child in self._children():
            log = self._logs / f"{child.name}.log"
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            lines.append(f"--- {child.name}: {child.state}, {child.starts} lives")
            lines += text.splitlines()[-_LOG_LINES:]
        return "\n".join(lines)

    @property
    def _supervising(self) -> Supervisor:
        assert self.supervisor is not None
        return self.supervisor

    def _children(self) -> list[Any]:
        return list(self._supervising.children.values())
