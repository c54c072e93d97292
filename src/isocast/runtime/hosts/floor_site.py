"""A trading floor at one primary receiver (§7.3): what was released goes to its arbiter, and its reports to a source.

The floor reads the site's own journal, behind the writer: a start, a site that was away and the usual token are the
same to it. `stable` and the owner of a token are not in the journal; of tokens that the log no longer has, nothing is
published and nothing confirmed, which later tokens make good.

The last state that all agree on is kept beside the journal; a restart goes on from there. Where a reformation cuts the
log behind what was released here, trades of the lost part are void, and the floor goes on by the ring's own log
(`floor_cuts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, assert_never

from isocast.floor.arbiter import (
    Arbiter,
    ArbiterEffect,
    ArbiterStopped,
    FloorDiverged,
    PublishHalt,
    PublishPrints,
    PublishReport,
    PublishWake,
    Stepped,
    TokenReleased,
    TradesBusted,
    TradesConfirmed,
    Truncated,
)
from isocast.floor.corrections import correction_topic
from isocast.floor.following import FloorMessage
from isocast.floor.printing import amends, is_on_tape, prints, tape_topic
from isocast.floor.reporting import encode_report, report_topic
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.receiver import Receiver
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.journal_reader import JournalCursor
from isocast.runtime.hosts.floor_cuts import FloorCuts, TokenAgain
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.floors import FloorTable, floor_state_file
from isocast.runtime.market.secret_files import replace_file
from isocast.terms.errors import IsocastError, JournalError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.events import EventArray
from isocast.wire.journal import BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.opaque import OpaqueMessage, is_opaque, read_opaque_or_none

__all__ = ["FloorSite", "site_key"]

_SITE_BYTES: Final = 8
_PATIENCE_S: Final = 5.0
"""For a source that is silent: then the next one of the floor is asked."""
_PAUSE_S: Final = 0.5
_WAITING_MAX: Final = 10_000
"""Reports, or batches of prints, that no source took: an hour of them; other sites report the same."""
_KEEPING_SHARE: Final = 1 / 20
"""Of the time at most, for keeping the state: it grows with the trades of a token, and all else waits for it."""


def site_key(site: NodeId) -> bytes:
    """The key of an opaque message that carries a site's report: whose it is."""
    return site.to_bytes(_SITE_BYTES)


_Batch: TypeAlias = tuple[bytes, "list[OpaqueMessage] | EventArray"]
"""What is published together under a key: reports, or trades as market events."""


class _Completed(NamedTuple):
    """What a token said that its journal does not keep. A small ring lets go of a token before it is released."""

    instant: int
    stable: int
    is_own: bool
    ring_size: int


class _Release(NamedTuple):
    """What the journal has of a token."""

    instant: int
    messages: list[FloorMessage]


class FloorSite:
    """One floor, as one site runs it."""

    def __init__(
        self,
        context: Context,
        table: FloorTable,
        journal: Path,
        opened: Callable[[LogEntry, int], Sequence[bytes]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """From the last agreed state on; nothing is published before `start`.

        `opened` gives the first messages of a token as its release would; LocalProtocolError where it cannot.
        """
        self.table = table
        self._context = context
        self._site = context.plan.node
        self._state = floor_state_file(context.directory, table.code)
        self._journal = journal
        self.arbiter = Arbiter(table.code, self._site, self._read_state())
        self._cursor = JournalCursor(journal, self.arbiter.floor.sequence + 1)
        self._expected = self._cursor.next_sequence
        self._heard: dict[int, _Release] = {}
        """What was read of the journal and is not applied, by token."""
        self._completed: dict[int, _Completed] = {}
        """Tokens that are complete here and not released; one that a reformation issues again replaces the first."""
        self._report_topic = report_topic(table.code)
        self._correction_topic = correction_topic(table.code)
        self._complete = self.arbiter.token
        """The newest token of which the journal has everything, as far as it was read."""
        self._is_broken = False
        self._opened = opened
        self._cuts = self._read_cuts(context.directory / f"floor-{table.code}.cuts")
        self._kept = self.arbiter.agreed_token
        self._clock = clock
        self._keep_from = 0.0
        self._waiting: asyncio.Queue[_Batch] = asyncio.Queue(_WAITING_MAX)
        self._printing: asyncio.Queue[_Batch] = asyncio.Queue(_WAITING_MAX)
        self._tasks: list[asyncio.Task[None]] = []

    def _read_state(self) -> bytes | None:
        try:
            data = self._state.read_bytes()
            Arbiter(self.table.code, self._site, data)
        except FileNotFoundError:
            return None
        except (OSError, RemoteProtocolError) as reason:
            self._context.alarm(
                f"floor-{self.table.code}-state",
                f"{self._state.name} cannot be used: {reason}",
                "nothing is lost: the floor is computed again from the journal; find out what damaged the file",
            )
            return None
        return data

    def _read_cuts(self, path: Path) -> FloorCuts:
        try:
            return FloorCuts(path)
        except (OSError, ValueError) as reason:
            self._break(f"{path.name} cannot be used: {reason}")
            return FloorCuts(path.with_suffix(".none"))

    # Released tokens ----------------------------------------------------------------------------

    def replay(self) -> None:
        """Apply what the journal has already, before this site takes part in anything."""
        if self._is_broken:
            return
        for one in self._cuts.tokens():
            if one.token > self.arbiter.token:
                self._heard[one.token] = _Release(one.instant, list(one.messages))
                self._complete = max(self._complete, one.token if self._cuts.is_whole(one) else one.token - 1)
        try:
            while blocks := self._cursor.read():
                for block in blocks:
                    self._hear(block)
                self._apply(None, self._complete)
            self._apply(None, self._complete)
        except (JournalError, LocalProtocolError) as reason:
            self._break(str(reason))

    def restore(self, entries: Iterable[LogEntry], cut: Checkpoint | None, following: int) -> None:
        """What the site's log holds when it starts; `cut` is where it begins if the journal's end is not in it.

        The journal ends before sequence `following`. Who was killed after its log was cut, and before the floor had
        written that down, does so now.
        """
        if cut is not None and not self._cuts.has_lost(following - 1):
            self.cut(cut.token_number, cut.next_sequence)
        for entry in entries:
            self._cuts.completed(entry)

    def cut(self, keep: int, first_sequence: int) -> None:
        """A ring begins behind this token, and what was released here from a sequence on is not in its log."""
        if self._is_broken:
            return
        try:
            while blocks := self._cursor.read():
                for block in blocks:
                    self._hear(block)
            self._cuts.cut(keep, first_sequence, self._expected)
        except (JournalError, LocalProtocolError, OSError) as reason:
            self._break(str(reason))
            return
        for waiting in (self._heard, self._completed):
            for number in [number for number in waiting if number > keep]:
                del waiting[number]
        self._complete = min(self._complete, keep)
        self._perform(self.arbiter.step(Truncated(keep)))

    def strayed(self) -> None:
        """Another site's checkpoint takes the place of a log of which something was released here."""
        self._break("it applied tokens that are not in the market's log, which begins behind them now")

    def completed(self, entry: LogEntry, ring_size: int) -> None:
        """A token, with all its messages, is in this site's log."""
        token = entry.token
        if token.token_number <= self.arbiter.token:
            return
        self._cuts.completed(entry)
        is_own = token.sender == self._site
        self._completed[token.token_number] = _Completed(token.instant, token.stable, is_own, ring_size)

    def settle(self, receiver: Receiver) -> None:
        """Apply every token that has been released since the last call; cheap where there is none."""
        releaser = receiver.releaser
        if releaser.released <= self.arbiter.token or self._is_broken:
            return
        try:
            while self._expected < releaser.next_sequence:
                blocks = self._cursor.read()
                if not blocks:
                    return  # The journal is being filled from elsewhere.
                for block in blocks:
                    self._hear(block)
            self._apply(receiver, releaser.released)
        except (JournalError, LocalProtocolError) as reason:
            self._break(str(reason))

    def _hear(self, block: BlockView) -> None:
        """Keep what a block has for this floor until its token is applied."""
        header = block.header
        if header.first_sequence > self._expected:
            raise LocalProtocolError(
                f"the journal has nothing of sequences {self._expected:,} to {header.first_sequence - 1:,}"
            )
        for sequence, (_, _, _, payload) in zip(block.sequences, block.messages(), strict=True):
            is_known = sequence < self._expected or header.token_number <= self.arbiter.token
            if is_known or self._cuts.has_lost(sequence):
                continue
            for message in self._of_floor(sequence, payload, header.shuffle_key):
                self._keep(header, message)
        self._expected = header.next_sequence
        is_lost = self._cuts.has_lost(header.next_sequence - 1)
        if header.place + header.messages == header.token_count and not is_lost:
            self._complete = header.token_number

    def _of_floor(self, sequence: int, payload: bytes, key: bytes) -> list[FloorMessage]:
        """What a message of the sequence has for this floor."""
        code, topics = self.table.code, (self.arbiter.floor.topic, self._report_topic, self._correction_topic)
        if is_opaque(payload):
            return [
                FloorMessage(sequence, message.topic, message.payload, key, _site_of(message.key))
                for message in read_opaque_or_none(payload) or ()
                if message.topic in topics
            ]
        if is_on_tape(code, payload):
            return [FloorMessage(sequence, tape_topic(code), payload, key)]
        return []

    def _keep(self, header: BlockHeader, message: FloorMessage) -> None:
        self._heard.setdefault(header.token_number, _Release(header.instant, [])).messages.append(message)

    def _apply(self, receiver: Receiver | None, last: int) -> None:
        """Tokens up to this one; of those that came from elsewhere only the messages are known."""
        universe = () if receiver is None else tuple(receiver.ledger.universe)
        for number in range(self.arbiter.token + 1, last + 1):
            if receiver is not None and self._cuts.is_open and number > self._cuts.keep:
                self._take_again(number)
            heard = self._heard.pop(number, None)
            known = self._completed.pop(number, None)
            instant = heard.instant if heard is not None else 0
            event = TokenReleased(
                token=number,
                instant=instant if known is None else known.instant,
                stable=0 if known is None else known.stable,
                is_own=known is not None and known.is_own,
                ring_size=1 if known is None else known.ring_size,
                universe=universe,
                messages=() if heard is None else tuple(heard.messages),
                is_replay=known is None,
            )
            self._perform(self.arbiter.step(event))
            if self._is_broken:
                return

    def _take_again(self, number: int) -> None:
        """What the journal will not have of a token, from the log; LocalProtocolError where that is not known."""
        found = self._cuts.entry(number)
        if found is None:
            raise LocalProtocolError(f"token {number} takes the place of one that was cut off, and is not in the log")
        entry, count = found
        token = entry.token
        messages = [
            message
            for place, payload in enumerate(self._opened(entry, count) if count else ())
            for message in self._of_floor(token.first_sequence + place, payload, entry.shuffle_key)
        ]
        later = self._heard.pop(number, _Release(token.instant, []))
        self._heard[number] = _Release(token.instant, [*messages, *later.messages])
        following = token.first_sequence + len(entry.messages)
        try:
            self._cuts.applied(TokenAgain(number, token.instant, following, tuple(messages)))
        except OSError as reason:
            self._context.log.warning("what a floor has read again is not kept", reason=str(reason))

    # What the arbiter wants ---------------------------------------------------------------------

    def _perform(self, effects: Sequence[ArbiterEffect]) -> None:
        counters, context, code = self._context.counters, self._context, self.table.code
        for effect in effects:
            match effect:
                case PublishReport(key, parts):
                    topic, own = self._report_topic, site_key(self._site)
                    self._publish(key, [OpaqueMessage(topic, encode_report(part), own) for part in parts])
                case PublishHalt(key, payload, token):
                    context.alarm(
                        f"floor-{code}-halted",
                        f"no majority agrees on the state of {code} after token {token}: the floor is halted",
                        "compare isocast floor verify of each site's journal; isocast floor phase open goes on",
                    )
                    self._publish(key, [OpaqueMessage(self.arbiter.floor.topic, payload)])
                case PublishPrints(key, instant, trades, corrections):
                    events = amends(code, instant, corrections) if corrections else prints(code, instant, trades)
                    with suppress(asyncio.QueueFull):  # Another site takes over.
                        self._printing.put_nowait((key, events))
                case PublishWake(key, payload):
                    self._publish(key, [OpaqueMessage(self.arbiter.floor.topic, payload)])
                case Stepped(step):
                    counters.floor_trades += len(step.trades)
                case TradesConfirmed(trades, _):
                    counters.floor_trades_confirmed += len(trades)
                case TradesBusted(trades, token):
                    counters.floor_trades_busted += len(trades)
                    context.log.warning("trades are void", floor=code, trades=len(trades), behind_token=token)
                case FloorDiverged(token, _, _, site):
                    name = "somebody" if site is None else context.market.name_of(site)
                    context.alarm(
                        f"floor-{code}-differs",
                        f"{name} has another state of {code} after token {token} than this site",
                        "a majority decides; the site that is wrong stops and computes its floor again",
                    )
                case ArbiterStopped(token, _, _, reason):
                    self._begin_again(token, reason)
                case _:
                    assert_never(effect)

    def _begin_again(self, token: int, reason: str) -> None:
        """This site was wrong: once more from the last agreed state; twice at the same place, it stays silent."""
        code = self.table.code
        snapshot, agreed = self.arbiter.snapshot(), self.arbiter.agreed_token
        self._context.alarm(
            f"floor-{code}-stopped",
            f"the floor {code} stops here at token {token}: {reason}",
            f"it is computed again from token {agreed} on; if this comes back, look at this machine's memory and disk",
        )
        self._break("it was stopped")
        self._state_written(snapshot)

    def _break(self, reason: str) -> None:
        """The floor goes no further at this site; the others go on without it."""
        self._is_broken = True
        self._context.alarm(
            f"floor-{self.table.code}-behind",
            f"the floor {self.table.code} does not go on at this site: {reason}",
            "restart this node; if it says so again, copy floor-*.state and the journal of another site",
        )

    # Reports on their way to a source -----------------------------------------------------------

    def _publish(self, key: bytes, messages: list[OpaqueMessage]) -> None:
        with suppress(asyncio.QueueFull):  # Another site takes over.
            self._waiting.put_nowait((key, messages))

    async def _send(self, waiting: asyncio.Queue[_Batch], turn: int) -> None:
        """Bring batches into the sequence, in order, through the first source that takes them, from one on."""
        sources = self.table.sources
        while True:
            source = sources[turn % len(sources)]
            try:
                async with Publisher(self._context.market, source, patience_s=_PATIENCE_S) as publisher:
                    while True:
                        key, batch = await waiting.get()
                        try:
                            await self._sent(publisher, key, batch)
                        except (IsocastError, OSError):
                            with suppress(asyncio.QueueFull):
                                waiting.put_nowait((key, batch))  # Order does not matter: each names its token.
                            raise
            except (IsocastError, OSError) as reason:
                # Others report the same; and whoever is refused here may not be elsewhere.
                self._context.log.warning("a source takes no reports", source=source, reason=str(reason))
            turn += 1
            await asyncio.sleep(_PAUSE_S)

    async def _sent(self, publisher: Publisher, key: bytes, batch: list[OpaqueMessage] | EventArray) -> None:
        if isinstance(batch, list):
            await publisher.send(batch, key)
            self._context.counters.floor_reports += 1
        else:
            await publisher.publish(batch, key)
            self._context.counters.floor_prints += 1

    # Life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take in the past, and publish from now on."""
        self.replay()
        loop, code = self._context.loop, self.table.code
        # All sites print through the same source while it answers: it takes a key once. Reports are spread over all.
        for name, waiting, turn in (
            ("reports", self._waiting, self._context.plan.number),
            ("prints", self._printing, 0),
        ):
            self._tasks.append(loop.create_task(self._send(waiting, turn), name=f"{name} of {code}"))

    def tick(self) -> None:
        """Keep the last agreed state, where there is a new one and the last keeping is long enough ago."""
        agreed, began = self.arbiter.agreed_token, self._clock()
        if agreed > self._kept and not self._is_broken and began >= self._keep_from:
            self._kept = agreed
            if self._state_written(self.arbiter.snapshot()):
                self._cuts.forget(self.arbiter.agreed_sequence)
            self._keep_from = began + (self._clock() - began) / _KEEPING_SHARE

    def _state_written(self, snapshot: bytes) -> bool:
        try:
            replace_file(self._state, snapshot)
        except OSError as reason:
            self._context.log.warning("the state of a floor is not kept", file=str(self._state), reason=str(reason))
            return False
        return True

    async def stop(self) -> None:
        """Publish no more; what is not in the sequence others report."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._cursor.close()

    @property
    def has_stopped(self) -> bool:
        """Whether it runs its floor no more, until somebody has looked."""
        return self._is_broken or self.arbiter.has_stopped


def _site_of(key: bytes) -> NodeId | None:
    return int.from_bytes(key) if len(key) == _SITE_BYTES else None
