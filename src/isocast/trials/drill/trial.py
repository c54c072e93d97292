"""One market under one drill: its load, what the drill may do, what its logs tell, and how long it needed."""

from __future__ import annotations

import asyncio
import json
import signal
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, Self

import numpy as np

from isocast.checks.journals import Copy
from isocast.ring.settings import StartPolicy
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.operate.operator_door import ask
from isocast.runtime.operate.supervisor import ChildState
from isocast.runtime.watch.status import node_target, poll
from isocast.terms.errors import IsocastError
from isocast.terms.instants import MICROSECOND, MILLISECOND, SECOND
from isocast.terms.market import EventKind
from isocast.terms.timing import Timing
from isocast.trials.drill.cast import DrillSettings
from isocast.trials.drill.staging import DrillStage
from isocast.trials.evidence import is_follower
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.packets import payload_digest

__all__ = [
    "ALARMS",
    "BALLOT",
    "DECIDED",
    "FIRST_TOKEN",
    "SUSPECTS",
    "AcceptedMessage",
    "DrillError",
    "DrillLoad",
    "LogBook",
    "LogLine",
    "Reformation",
    "Trial",
    "detected_at",
    "first_span_ns",
    "outage_ns",
    "parse_line",
    "read_ledger",
    "reformations",
    "release_instants",
    "releases_by_part",
]


# What the nodes of a market wrote into their logs, with its instants: followed while they run, read when they
# ended.
#
# A log is a file of JSON lines for each node. Its times are the machine's, whatever a drill did to a node's clock.


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one node."""

    at: int
    """Of the machine's clock."""
    node: str
    event: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A value of it, or nothing."""
        return str(self.values.get(name, ""))


class LogBook:
    """The logs of a directory; `read` brings `lines` up to date."""

    def __init__(self, directory: Path) -> None:
        """Nothing is read yet."""
        self.lines: list[LogLine] = []
        """In the order of their instants."""
        self._directory = directory
        self._read: dict[Path, int] = {}

    def read(self) -> list[LogLine]:
        """What is new; a line that is not finished is left for the next time."""
        new = [line for path in sorted(self._directory.glob(f"*{_SUFFIX}")) for line in self._new_lines(path)]
        if new:
            self.lines = sorted([*self.lines, *new], key=lambda line: line.at)
        return new

    def since(self, instant: int, *events: str) -> list[LogLine]:
        """Lines from an instant on, with one of these events."""
        return [line for line in self.lines if line.at >= instant and line.event in events]

    def first(self, instant: int, true: Callable[[LogLine], bool]) -> LogLine | None:
        """The first line from an instant on that is so."""
        return next((line for line in self.lines if line.at >= instant and true(line)), None)

    def _new_lines(self, path: Path) -> Iterator[LogLine]:
        start = self._read.get(path, 0)
        with path.open("rb") as file:
            file.seek(start)
            whole, _, _ = file.read().rpartition(b"\n")
        if whole:
            self._read[path] = start + len(whole) + 1
            for raw in whole.splitlines():
                line = parse_line(raw, path.stem)
                if line is not None:
                    yield line


def parse_line(raw: bytes, node: str) -> LogLine | None:
    """A line of JSON with a time and an event; None for anything else, such as a traceback."""
    try:
        values = json.loads(raw)
        at = datetime.fromisoformat(values.pop("time")) - _EPOCH
        event = values.pop("event")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    whole = (at.days * 86_400 + at.seconds) * SECOND + at.microseconds * MICROSECOND
    return LogLine(whole, node, str(event), values)


# How long a market needed: from the fault to its detection, from the ballot to the new token, between two
# releases.
#
# fault ──detected in──▶ first suspicion … ballot begins ──ballot to token──▶ first token of the new ring
#
# Every instant is one that a node logged or journalled, on the one clock of the machine.


SUSPECTS = "suspects"
BALLOT = "ballot begins"
DECIDED = "ring decided"
FIRST_TOKEN = "first token of a ring"  # noqa: S105  A token of the ring, no secret.
ALARMS = ("clock", "disk-full", "failed", "forgot")
"""By which a node says that something is wrong with itself."""


@dataclass(frozen=True, slots=True)
class Reformation:
    """A ballot that came to a ring, and the ring to its first token."""

    epoch: str
    members: tuple[str, ...]
    ballot_at: int
    decided_at: int
    token_at: int

    @property
    def span_ns(self) -> int:
        """From the ballot to the first new token."""
        return self.token_at - self.ballot_at


def reformations(book: LogBook, since: int) -> list[Reformation]:
    """Those whose ring was decided from an instant on and sent a token, in the order of their tokens."""
    begun = {line.text("epoch"): line.at for line in reversed(book.since(0, BALLOT))}
    tokens = {line.text("epoch"): line.at for line in reversed(book.since(since, FIRST_TOKEN))}
    found = [
        Reformation(epoch, _members(line), begun.get(epoch, line.at), line.at, tokens[epoch])
        for line in book.since(since, DECIDED)
        if (epoch := line.text("epoch")) in tokens
    ]
    return sorted(found, key=lambda one: one.token_at)


def _members(line: LogLine) -> tuple[str, ...]:
    return tuple([name.strip() for name in line.text("members").split(",")])


def first_span_ns(rings: Sequence[Reformation], returned_at: int = 0, ballots: Iterable[int] = ()) -> int | None:
    """From ballot to first new token, of the first ring; None if there was none.

    A majority that was lost counts from its return, whatever ballots were held in vain before. `ballots` are those of
    servers that may have died: then the first of them counts.
    """
    ring = next((ring for ring in rings if ring.token_at >= returned_at), None)
    if ring is None:
        return None
    return ring.token_at - max(min([ring.ballot_at, *ballots]), returned_at)


def detected_at(book: LogBook, since: int) -> int | None:
    """When anybody first suspected, said that something is wrong with itself, or began a ballot."""
    found = book.first(since, lambda line: line.event in (SUSPECTS, BALLOT, *ALARMS))
    return None if found is None else found.at


def outage_ns(sites: Iterable[Sequence[int]], since: int, until: int, timing: Timing) -> int | None:
    """The longest time without a release at any of these sites, less the ordinary time between two; None without any.

    `sites` are the instants at which each released, in order. What counts is every interval that reaches into the
    time from `since` to `until`.
    """
    spans: list[int] = []
    for instants in sites:
        first = max(bisect_left(instants, since) - 1, 0)
        marks = instants[first : bisect_right(instants, until) + 1]
        spans += [late - early for early, late in pairwise(marks)]
    return max(max(spans) - timing.token_period_ns, 0) if spans else None


def release_instants(copies: Iterable[Copy]) -> list[int]:
    """When any of these sites released something, in order."""
    return sorted({header.released_at for copy in copies for header in copy.headers})


def releases_by_part(copies: Mapping[str, Copy], start: int, part_ns: int, parts: int) -> dict[str, list[int]]:
    """For a picture: how many messages each site released in each of so many parts of a time."""
    found = {}
    for name, copy in copies.items():
        counts = [0] * parts
        for header in copy.headers:
            part = (header.released_at - start) // part_ns
            if 0 <= part < parts:
                counts[part] += header.messages
        found[name] = counts
    return found


# The load of a drill: floors that publish all the time, and a ledger of what they were promised.
#
# `publish` returns once a message is in its source's outbox, on disk. From then on it is the market's to deliver; the
# ledger says which messages these are, by label and digest, in a file that outlives whatever a drill does.


_PER_TOKEN = 3
"""Messages of each floor to a token, so that every token has something to release."""
_PAUSE_LEAST_NS = 15 * MILLISECOND
_EVENTS = 2
_PUBLISH_PATIENCE_S = 120.0
"""A drill may keep a source down for some time."""


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """A message that a source took, and so must be in the sequence, once."""

    source: int
    number: int
    digest: bytes
    at: int
    """When it was taken."""


class DrillLoad:
    """Publishes at every source of a market until it is told to stop; an `async with` block."""

    def __init__(self, market: Market, ledger: Path) -> None:
        """Nothing is published yet."""
        self.accepted: list[AcceptedMessage] = []
        self._market = market
        self._ledger = ledger
        self._going = True
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        sources = self._market.by_role(NodeRole.PRIMARY_SOURCE)
        self._tasks = [asyncio.create_task(self._publish(plan.name), name=f"floor {plan.name}") for plan in sources]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._going = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Publish no more; every floor waits for the answer that is due to it."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def _publish(self, source: str) -> None:
        pause_s = max(self._market.timing.token_period_ns // _PER_TOKEN, _PAUSE_LEAST_NS) / SECOND
        async with Publisher(self._market, source, patience_s=_PUBLISH_PATIENCE_S) as publisher:
            count = 0
            while self._going:
                batch = _events(source, count)
                (label,) = await publisher.publish(batch, f"drill/{count}".encode())
                self._note(AcceptedMessage(label.source, label.number, payload_digest(batch.tobytes()), time_ns()))
                count += 1
                await asyncio.sleep(pause_s)

    def _note(self, accepted: AcceptedMessage) -> None:
        self.accepted.append(accepted)
        row = {"source": accepted.source, "number": accepted.number, "digest": accepted.digest.hex(), "at": accepted.at}
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")


def _events(source: str, count: int) -> EventArray:
    """Numbered without holes: no two messages of a drill have the same content."""
    events = np.zeros(_EVENTS, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XDRL", source.encode()[:8]
    events["id"] = 1 + count * _EVENTS + np.arange(_EVENTS)
    events["time"] = time_ns()
    return events


def read_ledger(path: Path) -> Sequence[AcceptedMessage]:
    """What was promised, from the file."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [AcceptedMessage(row["source"], row["number"], bytes.fromhex(row["digest"]), row["at"]) for row in rows]


_LOOK_S = 0.1
_SLOW_LOOK_S = 0.4
"""Between two questions to all nodes: they have other things to do."""
_WAIT_S = 60.0
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

    def __init__(
        self, stage: DrillStage, load: DrillLoad, settings: DrillSettings, note: Callable[[str], None]
    ) -> None:
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

    async def until(self, true: Callable[[], bool], what: str, seconds: float = _WAIT_S) -> None:
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
        targets = [node_target(self.market, plan) for plan in plans if plan.name not in self.absent]
        wanted, end, since, before = 1 + len(self.load.accepted), monotonic() + _WAIT_S, monotonic(), None
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
                raise DrillError(f"after {_WAIT_S:.0f} s not every receiver has {wanted - 1} messages: {behind}")
            await asyncio.sleep(_SLOW_LOOK_S)

    def signal(self, name: str, number: signal.Signals) -> None:
        """To one process."""
        self.stage.signal(name, number)
