"""The edge of one receiver as a process: follows its journal, stripes it, and sends each narrow stripe to its group.

It is a process of its own, so that the ring has nothing to do with it: the journal is all that it needs, and its own
snapshot with the journal behind it is all that it needs after a restart. A packet is archived before it is sent, and
one that was archived before a restart is not sent again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple

import numpy as np

from isocast.feeds.mold import MoldRequest
from isocast.nodes.stripe_sender import ArchiveStripe, PartReleased, StripeSender, StripeSenderInput, StripeSent
from isocast.ring.inputs import TimerFired
from isocast.runtime.disk.journal_reader import JournalCursor
from isocast.runtime.edge.narrow.archive import RequestDesk, StripeArchive, read_proof_request
from isocast.runtime.edge.narrow.places import check_cores, edge_of, request_endpoint
from isocast.runtime.edge.narrow.plans import PLAN_NOTES, PlanFolder, PlanNote, PlanNotes
from isocast.runtime.edge.narrow.stripe_keys import SenderKeys, period_instant, proof_ns, seal_bytes
from isocast.runtime.hosts.edge_process import TOKEN_PASSED
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.net.door import visit_node
from isocast.runtime.net.door_keys import core_door_key, core_visitor, door_hand
from isocast.striping.edge import EdgeSettings
from isocast.striping.engine import EngineState, StripeEngine, read_engine_state
from isocast.striping.pacing import SendStripe
from isocast.striping.plan import StripePlan, read_plan_entry
from isocast.striping.proving import PACKETS_A_PROOF, stripe_of_session
from isocast.striping.released import ReleasedPart, part_of_block
from isocast.striping.sizes import feed_sizes
from isocast.terms.errors import (
    ConfigurationError,
    IsocastError,
    LocalProtocolError,
    RemoteProtocolError,
    TransportError,
)
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.wire.door import Snapshot, SnapshotWanted
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.journal_blocks import BlockView
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN
from isocast.wire.packets import ControlEntry, ControlKind

__all__ = [
    "EdgeService",
    "HistoryGapError",
    "JournalFollower",
    "TokenPassed",
    "edge_settings",
    "newest_state",
    "run_edge",
]


# Follows a receiver's journal: what it released, token by token, with the plans that its tokens announced.
#
# The journal has no empty tokens. That one has passed is worth knowing, because what waits for a stripe may then leave;
# the receiver says so while it runs (`TokenPassed`), and nothing is lost if it does not.


_EMPTY = np.empty(0, EVENT_DTYPE)
_NO_COUNTS = np.empty(0, np.int64)


class HistoryGapError(Exception):
    """The journal does not say all that happened behind a sequence: another edge must be asked."""


class TokenPassed(NamedTuple):
    """Everything up to this token is out."""

    token_number: int
    instant: int
    next_sequence: int


class JournalFollower:
    """The parts of a sequence, from a place on."""

    def __init__(self, directory: Path, next_sequence: int, token_number: int = 0) -> None:
        """`directory` is the receiver's; everything up to `token_number` is known, and what is before the sequence."""
        self._where = directory / "journal"
        self._notes = PlanNotes(directory / PLAN_NOTES)
        self._waiting: deque[PlanNote] = deque()
        self._token = token_number
        self._next = next_sequence
        self._cursor = JournalCursor(self._where, next_sequence)

    def close(self) -> None:
        """Let go of the journal."""
        self._cursor.close()

    def read(self) -> Iterator[ReleasedPart]:
        """What is there and was not read yet; HistoryGapError where something is missing before it."""
        while blocks := self._cursor.read() if self._where.exists() else []:
            # Notes are written before the blocks of their tokens, so those of the blocks that were read are there.
            self._learn()
            for block in blocks:
                yield from self._parts(block)

    def passed(self, token: TokenPassed) -> Iterator[ReleasedPart]:
        """The receiver says that everything up to a token is out: so are the empty ones among them."""
        yield from self.read()
        if token.next_sequence != self._next or token.token_number <= self._token:
            return
        self._learn()
        yield from self._announced(token.token_number)
        if token.token_number > self._token:
            yield self._empty(token.token_number, token.instant)

    def _learn(self) -> None:
        self._waiting.extend([note for note in self._notes.read() if note.token_number > self._token])

    def _parts(self, block: BlockView) -> Iterator[ReleasedPart]:
        header = block.header
        if header.next_sequence <= self._next:
            return
        if header.first_sequence > self._next:
            raise HistoryGapError(f"sequences {self._next} to {header.first_sequence - 1} are not in {self._where}")
        if header.fetched or header.token_count >= MAX_MESSAGES_PER_TOKEN:
            raise HistoryGapError(
                f"sequence {header.first_sequence} of {self._where} came from another archive, which does not say"
                " which plans were announced"
            )
        yield from self._announced(header.token_number - 1)
        control = self._entries(header.token_number)
        part = part_of_block(block, control)
        skip = self._next - header.first_sequence
        if skip:
            part = part.behind(skip)
        self._token = header.token_number
        self._next = header.next_sequence
        yield part

    def _announced(self, upto: int) -> Iterator[ReleasedPart]:
        """Tokens without messages that announce a plan."""
        while self._waiting and self._waiting[0].token_number <= upto:
            note = self._waiting.popleft()
            yield self._empty(note.token_number, note.instant, (note.entry,))

    def _entries(self, token: int) -> tuple[ControlEntry, ...]:
        found: list[ControlEntry] = []
        while self._waiting and self._waiting[0].token_number <= token:
            found.append(self._waiting.popleft().entry)
        return tuple(found)

    def _empty(self, token: int, instant: int, control: tuple[ControlEntry, ...] = ()) -> ReleasedPart:
        self._token = max(self._token, token)
        return ReleasedPart(token, instant, 0, 0, self._next, _EMPTY, _NO_COUNTS, control)


Alarm = Callable[[str, str, str], None]
"""(code, what happened, what to do)."""

STATE = "state"
_KEEP_NS = 5 * SECOND
"""Between two snapshots."""
_LOOK_NS = 100 * MILLISECOND
"""How long the journal is left alone when nobody says that something came."""
_PARTS_AT_ONCE = 64
"""Between two looks at the clock, when there is much to catch up with."""


def edge_settings(market: Market) -> EdgeSettings:
    """What all receivers of a market agree on beside the plan."""
    edge, timing = edge_of(market), market.timing
    proven, sealed = proof_ns(market), seal_bytes(market)
    return EdgeSettings(
        timing.token_period_ns,
        timing.release_delay_ns,
        market.release_rate,
        edge.patience,
        sizes=feed_sizes(proven=bool(proven), seal_bytes=sealed),
        introduce_ns=edge.introduce_ns,
        zone=edge.zone,
        proof_ns=proven,
        seal_bytes=sealed,
    )


class EdgeService:
    """Runs in this event loop until it is cancelled."""

    def __init__(self, market: Market, plan: NodePlan, now: Callable[[], int], alarm: Alarm) -> None:
        """Opens what is on disk and the sockets; ConfigurationError for a plan that is not for this market."""
        self._market, self._plan, self._edge = market, plan, edge_of(market)
        self._now, self._alarm = now, alarm
        self._home = market.directory_of(plan.name)
        self._directory = self._home / "edge"
        self._settings = edge_settings(market)
        self._keys = SenderKeys(market, plan)
        self._folder = PlanFolder(self._edge)
        self._backlog: deque[ReleasedPart] = deque()
        self._blocked = ""
        self._blocked_at = 0
        self._kept_at = 0
        self._changed = False
        self._lacks_history = False
        self._woken = asyncio.Event()
        self._passed: TokenPassed | None = None
        engine = self._engine()
        with ExitStack() as opened:
            self.archive = StripeArchive(self._directory, self._edge.keep_days)
            opened.callback(self.archive.close)
            self._socket = opened.enter_context(_outlet(plan.address, market.network.ttl))
            servers = [node.address for node in market.by_role(NodeRole.RETRANSMIT_SERVER)]
            self.desk = RequestDesk(
                request_endpoint(market, plan),
                self.archive,
                strangers=self._edge.requests,
                known=servers,
                rate=self._edge.request_rate,
                other=self._asked,
                sealed=self._sealed,
            )
            opened.callback(self.desk.close)
            self._check_groups(engine.striper.plan)
            self.sender = StripeSender(engine, self.archive.newest(), now(), self._keys.prover)
            self._follower = JournalFollower(self._home, self.engine.next_sequence, self.engine.striper.token_number)
            opened.callback(self._leave_journal)
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Keep where it stands, and give everything back."""
        self._keep()
        self._closing.close()

    def _leave_journal(self) -> None:
        self._follower.close()

    @property
    def engine(self) -> StripeEngine:
        """What makes the packets."""
        return self.sender.engine

    # ---- from the disk

    def _engine(self) -> StripeEngine:
        first = self._folder.first()
        check_cores(self._market, first)
        engine = StripeEngine(first, self._plan.stripe, self._settings, self._edge.delay_ns)
        path = self._directory / STATE
        if path.exists():
            self._restore(engine, path.read_bytes(), str(path))
        else:
            # Somebody else may know more than our journal does: how the market's first day began, for one.
            self._lacks_history = True
        return engine

    def _restore(self, engine: StripeEngine, raw: bytes, where: str) -> None:
        try:
            state = read_engine_state(raw)
            plan = self._folder.find(state.plan_digest)
            if plan is None:
                rule = f"{self._edge.plans} has no file of stripe plan {state.plan_version} ({state.plan_digest.hex()})"
                raise ConfigurationError(str(self._edge.plans), "plans", rule)
            engine.striper.learn(plan)
            for known in self._folder.all():
                if known.version > plan.version and known.of_core(self._plan.stripe):
                    engine.striper.learn(known)
            engine.restore(state)
        except RemoteProtocolError as reason:
            self._alarm("edge-state", f"{where}: {reason}", "its narrow stripes are rebuilt from the journal")
        except LocalProtocolError as reason:
            rule = "restore the settings, or start over: stop every receiver and remove its directory `edge`"
            raise ConfigurationError(where, "edge", f"{reason}; {rule}") from None

    def _keep(self) -> None:
        """All of the snapshot or nothing."""
        if not self._changed:
            return
        draft = self._directory / f"{STATE}.new"
        draft.write_bytes(self.engine.snapshot())
        os.replace(draft, self._directory / STATE)  # noqa: PTH105
        self._changed = False

    # ---- the sequence

    def wake(self, passed: TokenPassed | None = None) -> None:
        """The receiver released something, or an empty token."""
        if passed is not None:
            self._passed = passed
        self._woken.set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.desk, self.desk.read)
        try:
            while True:
                if self._lacks_history:
                    await self._take_over()
                busy = self.advance()
                self._tell(TimerFired())
                if fault := self._keys.refresh(self._now()):
                    self._alarm("edge-roster", fault, "it signs on with the key that it has")
                if self._now() >= self._kept_at + _KEEP_NS:
                    self._kept_at = self._now()
                    self._keep()
                await self._rest(0 if busy else min(self.sender.next_deadline(), self._now() + _LOOK_NS))
        finally:
            loop.remove_reader(self.desk)

    async def _rest(self, until: int) -> None:
        span = max(until - self._now(), 0) / SECOND if until < NEVER else None
        if not span:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(span):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def advance(self) -> bool:
        """Take what the journal has; whether there may be more at once."""
        if self._blocked and self._now() < self._blocked_at + SECOND:
            return False
        try:
            if not self._backlog:
                self._backlog.extend(self._parts())
        except HistoryGapError as gap:
            self._block("edge-gap", str(gap), "it takes the state of another receiver's narrow stripes over")
            self._lacks_history = True
            return False
        for _ in range(_PARTS_AT_ONCE):
            if not self._backlog:
                return False
            if not self._step(self._backlog[0]):
                return False
            self._backlog.popleft()
        return True

    async def _take_over(self) -> None:
        """Go on where another receiver's edge is; the next attempt is a second later."""
        self._lacks_history = False
        found = await newest_state(self._market, self._plan, self.engine.next_sequence)
        if found is None:
            return
        name, state = found
        engine = StripeEngine(self._folder.first(), self._plan.stripe, self._settings, self._edge.delay_ns)
        try:
            for known in self._folder.all():
                if known.of_core(self._plan.stripe):
                    engine.striper.learn(known)
            engine.restore(state)
        except (ConfigurationError, LocalProtocolError, RemoteProtocolError) as reason:
            self._alarm("edge-state", f"the state of {name}: {reason}", "isocast edge status shows who is well")
            return
        self._check_groups(engine.striper.plan)
        self.sender.take_over(engine, self._now())
        self._follower.close()
        self._follower = JournalFollower(self._home, engine.next_sequence, engine.striper.token_number)
        self._backlog.clear()
        self._alarm("edge-taken-over", f"goes on with sequence {engine.next_sequence}, where {name} is", "nothing")
        self._blocked, self._changed = "", True

    def _parts(self) -> Iterable[ReleasedPart]:
        passed, self._passed = self._passed, None
        return self._follower.read() if passed is None else self._follower.passed(passed)

    def _step(self, part: ReleasedPart) -> bool:
        if not self._know_plans(part):
            return False
        before = self.engine.striper.plan
        self._tell(PartReleased(part))
        self._changed = True
        self._blocked = ""
        if self.engine.striper.plan is not before:
            self._keep()
        return True

    def _tell(self, event: StripeSenderInput) -> None:
        """A step of the machine, and of each datagram when its sending was over."""
        effects = deque(self.sender.step(event, self._now()))
        while effects:
            effect = effects.popleft()
            if isinstance(effect, ArchiveStripe):
                made = effect.packet
                self.archive.append(made.session, made.number, made.count, made.due, made.raw)
            else:
                taken = self._send(effect)
                effects.extend(self.sender.step(StripeSent(effect.stripe, taken), self._now()))

    def _know_plans(self, part: ReleasedPart) -> bool:
        """Whether the plans that a token announces are here; without one the stripes are silent, and never wrong."""
        for entry in part.control:
            if entry.kind is not ControlKind.STRIPE_PLAN or entry.subject <= self.engine.striper.plan.version:
                continue
            try:
                digest = read_plan_entry(entry).digest
            except RemoteProtocolError:
                continue
            plan = self._folder.find(digest)
            if plan is None:
                text = f"stripe plan {entry.subject} with digest {digest.hex()} is in force, and no file here has it"
                self._block("edge-plan", text, f"copy it to {self._edge.plans}; the narrow stripes go on then")
                return False
            try:
                self._check_groups(plan)
                self.engine.striper.learn(plan)
            except (ConfigurationError, LocalProtocolError) as reason:
                self._block("edge-plan", str(reason), "announce another plan, with a higher version")
                return False
        return True

    def _block(self, code: str, text: str, remedy: str) -> None:
        self._blocked, self._blocked_at = text, self._now()
        self._alarm(code, text, remedy)

    # ---- the network

    def _check_groups(self, plan: StripePlan) -> None:
        for stripe in plan.of_core(self._plan.stripe):
            self._edge.group(self._plan.number, stripe.number)
            if self._keys.prover is not None:
                self._edge.proof_group(self._plan.number, stripe.number)

    def _sealed(self, wanted: MoldRequest, raw: bytes) -> bytes:
        """The answer to a request, sealed for buyers of the period at which it was due."""
        sealer = self._keys.sealer
        if sealer is None:
            return raw
        instant = period_instant(self._market, self.archive.due(wanted.session, wanted.sequence))
        return sealer.seal(stripe_of_session(wanted.session), instant, raw)

    def _asked(self, raw: bytes, sender: tuple[str, int]) -> bool:
        """A customer lacks the proofs of packets: sign them anew."""
        prover = self._keys.prover
        if prover is None:
            return False
        try:
            wanted = read_proof_request(raw)
        except RemoteProtocolError:
            return False
        if not self.desk.grant(sender):
            return False
        packets = self.archive.run(wanted.session, wanted.sequence, wanted.count, PACKETS_A_PROOF)
        if packets:
            made = prover.prove_packets(packets, self._now())
            self.desk.reply(self._sealed(wanted, made), sender)
        return True

    def _send(self, effect: SendStripe) -> bool:
        group = self._edge.proof_group if effect.proof else self._edge.group
        where = group(self._plan.number, effect.stripe), self._edge.port
        raw = effect.raw
        if self._keys.sealer is not None:
            raw = self._keys.sealer.seal(effect.stripe, period_instant(self._market, effect.instant), raw)
        try:
            self._socket.sendto(raw, where)
        except OSError as reason:
            self._alarm("edge-send", f"cannot send to {where[0]}: {reason.strerror}", "look at the network")
            return False
        return True

    def status(self) -> dict[str, Any]:
        """The state, for status pages."""
        striper, counts, desk = self.engine.striper, self.sender.pacer.counts, self.desk.counts
        conflated = {str(n): sum(by.values()) for n, by in striper.conflated.items() if sum(by.values())}
        return {
            "plan": striper.plan.version,
            "digest": striper.plan.digest.hex(),
            "plans": [plan.digest.hex() for plan in self._folder.all()],
            "stripes": len(striper.plan.of_core(self._plan.stripe)),
            "next_sequence": striper.next_sequence,
            "token": striper.token_number,
            "packets": counts.packets,
            "messages": counts.messages,
            "ip_bytes": counts.ip_bytes,
            "heartbeats": counts.heartbeats,
            "proofs": counts.proofs,
            "not_sent": counts.not_sent,
            "not_sent_messages": counts.not_sent_messages,
            "late_ns": counts.late_ns // max(counts.packets, 1),
            "latest_ns": counts.latest_ns,
            "waiting": self.sender.pacer.waiting,
            "not_carried": striper.not_carried,
            "conflated": conflated,
            "requests": desk.requests,
            "answered": desk.answered,
            "refused": desk.refused,
            "blocked": self._blocked,
        }


def _outlet(address: str, ttl: int) -> socket.socket:
    """One socket for all groups: where a datagram goes is said with it."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.bind((address, 0))
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except OSError as reason:
        made.close()
        raise TransportError(f"cannot send from {address}: {reason.strerror}") from None
    return made


# The state of another receiver's narrow stripes, for one whose journal does not say all that happened.
#
# A receiver that was away long enough fills its journal from others, and what it gets so does not say which plans were
# announced meanwhile. Any other edge of the same stripe knows the next numbers, what waits and what was introduced.


_SILENCE_S = 5.0


async def newest_state(market: Market, plan: NodePlan, above: int) -> tuple[str, EngineState] | None:
    """Whose state is newest, and it; None where nobody has one that begins behind a sequence."""
    others = [one for one in market.receivers if one.line and one.tcp_port and one is not plan]
    others = [one for one in others if one.stripe == plan.stripe]
    found = await asyncio.gather(*[_state_of(market, plan, other) for other in others])
    states = [(other.name, state) for other, state in zip(others, found, strict=True) if state is not None]
    states = [(name, state) for name, state in states if state.next_sequence > above and state.core == plan.stripe]
    return max(states, key=lambda one: one[1].next_sequence, default=None)


async def _state_of(market: Market, plan: NodePlan, other: NodePlan) -> EngineState | None:
    name = core_visitor(plan)
    try:
        keys = load_keys(market, plan)
        key = core_door_key(market, keys, name)
        if key is None:
            return None
        here = await visit_node(market, other, name, key, door_hand(market, keys))
        try:
            await here.send(SnapshotWanted())
            async with asyncio.timeout(_SILENCE_S):
                return read_engine_state((await here.expect(Snapshot)).events)
        finally:
            await here.close()
    except (IsocastError, OSError, TimeoutError, ValueError):
        return None


# The process of a receiver's narrow stripes, between the pipe that the receiver writes and the one that it
# reads.


_STATUS_S = 1.0
_STDIN, _STDOUT = 0, 1
_READ = 1 << 16


def run_edge(config: Path, name: str) -> int:
    """Until the pipe ends, or a signal comes."""
    try:
        market = load_market(config)
        plan = market.by_name.get(name)
        if plan is None or not plan.role.is_receiver:
            raise ConfigurationError(market.file, f"nodes.{name}", "is not a receiver")
        return asyncio.run(_Running(EdgeService(market, plan, time_ns, _alarm)).run())
    except (IsocastError, OSError) as reason:
        _say({"ended": _why(reason)})
        raise


def _why(reason: IsocastError | OSError) -> str:
    return f"the disk, or the machine: {reason.strerror or reason}" if isinstance(reason, OSError) else str(reason)


def _alarm(code: str, text: str, remedy: str) -> None:
    _say({"alarm": [code, text, remedy]})


def _say(what: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(_STDOUT, json.dumps(what).encode() + b"\n")


class _Running:
    """The service and its pipes."""

    def __init__(self, service: EdgeService) -> None:
        self._service = service
        self._over = asyncio.Event()
        self._rest = b""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        os.set_blocking(_STDIN, False)
        with suppress(OSError):  # A file, or nothing: then nobody tells us, and nobody ends us by it.
            loop.add_reader(_STDIN, self._hear)
        work = asyncio.create_task(self._service.run())
        ended = asyncio.create_task(self._over.wait())
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.wait([work, ended], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                # It ends anyway; a signal that met the event loop while it closes would be a traceback.
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            for task in (work, ended, telling):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self._service.close()
        return 0

    def _hear(self) -> None:
        try:
            raw = os.read(_STDIN, _READ)
        except BlockingIOError:
            return
        if not raw:
            asyncio.get_running_loop().remove_reader(_STDIN)
            self._over.set()
            return
        raw = self._rest + raw
        whole = len(raw) // TOKEN_PASSED.size * TOKEN_PASSED.size
        self._rest = raw[whole:]
        if whole:
            self._service.wake(TokenPassed(*TOKEN_PASSED.unpack_from(raw, whole - TOKEN_PASSED.size)))

    async def _tell(self) -> None:
        while True:
            _say({"status": self._service.status()})
            await asyncio.sleep(_STATUS_S)
