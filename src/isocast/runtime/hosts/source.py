"""A primary source as a process: its outbox, and the door through which floors publish (§4.2).

A batch that was accepted is on disk and will be in the sequence, whatever dies. What the window does not allow yet
waits at the door, in order, and is never dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NoReturn, assert_never

from isocast.ring.effects import (
    NameForged,
    NumbersForgotten,
    PublishAccepted,
    PublishRejected,
    Record,
    SourceHostEffect,
)
from isocast.ring.inputs import PublishRequested
from isocast.ring.source import PrimarySource
from isocast.runtime.disk.outbox_store import open_outbox_store
from isocast.runtime.disk.site_store import site_secret
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.process import Context
from isocast.runtime.hosts.publish_door import OutboxGuard, PublishDoor, PublishError, SourceStopsError, tell_outbox
from isocast.runtime.market.founding import begun
from isocast.runtime.market.model import Reveal
from isocast.runtime.market.roster_files import KeysCounting
from isocast.runtime.market.routes import insist_on_routes
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.watch.counters import NodeGauges, gauges_from
from isocast.security.chains import ChainSealer
from isocast.security.sealing import CHANGES_SENT
from isocast.terms.errors import StoreError
from isocast.terms.ids import Label, NodeId, source_id
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.frame import PacketKind
from isocast.wire.limits import EVENT_BYTES

__all__ = ["SourceHost"]

_PACE_NS = MILLISECOND
"""Between two bursts of a source."""
WAITING_MAX = 65_536
"""Batches that wait for the window, over all visitors: then the door reads no more until some are out."""
_CHUNK = 256
"""Batches given to the machine at once: tokens have their turn between two chunks."""


@dataclass(slots=True, eq=False)
class _PendingBatches:
    """Batches of one caller, and who waits for their labels."""

    batches: Sequence[tuple[bytes, bytes]]
    done: asyncio.Future[tuple[Label, ...]]
    labels: list[Label]


class SourceHost:
    """What surrounds the machine of one source."""

    def __init__(self, context: Context) -> None:
        """Open outbox and sockets."""
        self._context = context
        self._counters = context.counters
        self._clock = context.clock
        routes = insist_on_routes(context.market, context.directory)
        with ExitStack() as opened:
            self._open(opened)
            self._closing = opened.pop_all()
        self.door = PublishDoor(
            context, self.publish, lambda: self.machine.snapshot().next_number, self._until_some_are_out, routes
        )
        self._guard = OutboxGuard(context, self.store, lambda: self.machine.snapshot().unstable)
        self._waiting: deque[_PendingBatches] = deque()
        self._waiting_batches = 0
        self._room = asyncio.Event()
        self._tokens_seen = 0
        self._token_at = 0
        self._burst = self._burst_size()
        self._burst_left = 0
        self._burst_at = 0
        self._resume_at = NEVER

    def _open(self, opened: ExitStack) -> None:
        """Everything, or nothing: the next attempt must not meet the locks of this one."""
        context = self._context
        market, plan = context.market, context.plan
        self.store = open_outbox_store(
            context.directory / "outbox", context.store_identity(), settings=context.market.log
        )
        opened.callback(self.store.close)
        own = source_id(plan.number, self.store.incarnation)
        self._insist_on_seals(own)
        chain = self._chain(own)
        sealer = chain or (context.keys.sealer(plan.number) if market.seal else None)
        seal = None if sealer is None else sealer.seal
        notary = context.notary(KeysCounting.NOT_REPLACED)
        self.machine = PrimarySource(own, market.ring_settings(context.stripe), self.store.state, seal, notary, chain)
        self._channels = context.channels(own, NodeKeys(context.keys.core_ring()))
        opened.callback(self._channels.close)
        self.driver: Driver[PublishRequested, SourceHostEffect] = context.driver(self.machine, self, self._channels)

    def _insist_on_seals(self, own: NodeId) -> None:
        """What waits in the outbox must be heard: this source may have been away over many changes of the core key."""
        keys, stripe = self._context.keys, self._context.stripe
        chained = self._context.market.reveal is Reveal.CHAIN
        opener = keys.chain_opener(stripe) if chained else keys.opener()
        held = self.store.state.messages.items() if self._context.market.seal else ()
        lost = [n for n, (_, sealed) in held if not opener.knows(stripe, (own, n), sealed, CHANGES_SENT)]
        if lost:
            why = f"messages {lost[0]} to {lost[-1]} are sealed with a core key of too many rosters ago"
            self.store.renounce(why)
            rule = f"{why}: start the source again, and it begins a new incarnation; publish what they were again"
            raise StoreError(str(self._context.directory / "outbox"), rule)

    def _chain(self, own: NodeId) -> ChainSealer | None:
        """The keys that this source discloses, if it does: their seed lies beside the outbox."""
        context = self._context
        if context.market.reveal is not Reveal.CHAIN:
            return None
        seed = site_secret(context.directory, "chain.secret")
        sealed = {number: payload for number, (_, payload) in self.store.state.messages.items()}
        return context.keys.chain_sealer(own, context.stripe, seed, sealed)

    # Publishing ---------------------------------------------------------------------------------

    async def publish(self, batches: Sequence[tuple[bytes, bytes]]) -> tuple[Label, ...]:
        """Put (key, payload) batches into the sequence, in this order; returns when all are in the outbox.

        Waits while the window is full. PublishError for a payload that fits no packet.
        """
        if not batches:
            return ()
        self._guard.insist()
        limit = self._context.market.events_per_payload * EVENT_BYTES
        for _, payload in batches:
            if len(payload) > limit:
                raise PublishError(f"a batch of {len(payload)} bytes: at most {limit} fit a message of this market")
        order = _PendingBatches(batches, self._context.loop.create_future(), [])
        self._waiting.append(order)
        self._waiting_batches += len(batches)
        self._pump()
        return await order.done

    async def _until_some_are_out(self) -> None:
        """The door reads no more while too much waits for the window."""
        while self._waiting_batches >= WAITING_MAX:
            self._room.clear()
            await self._room.wait()

    def _burst_size(self) -> int:
        """Messages in a millisecond that no receiver's socket can overflow on.

        All sources send to the same sockets, which a receiver may leave alone for P: n·burst·P fit the buffer.
        """
        market = self._context.market
        patience_ms = max(market.timing.process_ns // MILLISECOND, 1)
        sources = len(market.data_senders(self._context.stripe))
        return max(market.network.receive_buffer // (market.network.mtu * sources * patience_ms), 8)

    def _pump(self) -> None:
        """Give the machine as much as its window and the pace take, in order."""
        if self._resume_at < NEVER:
            return
        while self._waiting:
            snapshot = self.machine.snapshot()
            room = min(snapshot.window - snapshot.unacknowledged, _CHUNK)
            if room <= 0:
                return
            allowed = self._allowed(self._clock.now())
            if not allowed:
                self._resume_at = self._burst_at + _PACE_NS
                self.driver.rearm()
                return
            taken = self._next(min(room, allowed))
            self._burst_left -= len(taken)
            self.door.answers.clear()
            self.driver.feed(*[request for _, request in taken])
            if not self._settle(taken):
                return

    def _allowed(self, now: int) -> int:
        """What is left of this millisecond's burst, for all publishers; a clock that was set begins a new one."""
        if not self._burst_at <= now < self._burst_at + _PACE_NS:
            self._burst_at, self._burst_left = now, self._burst
        return self._burst_left

    def _next(self, room: int) -> list[tuple[_PendingBatches, PublishRequested]]:
        """The first batches that wait, over as many callers as it takes."""
        taken: list[tuple[_PendingBatches, PublishRequested]] = []
        for order in self._waiting:
            done = len(order.labels)
            ahead = order.batches[done : done + room - len(taken)]
            taken += [(order, PublishRequested(key, payload)) for key, payload in ahead]
            if len(taken) >= room:
                break
        return taken

    def _settle(self, taken: list[tuple[_PendingBatches, PublishRequested]]) -> bool:
        """Hand out the labels; False when the window closed on the way, or the source cannot go on."""
        for order, request in taken:
            answer = self.door.answers.get(request.key)
            if not isinstance(answer, PublishAccepted):
                return False
            order.labels.append(answer.label)
            self._waiting_batches -= 1
            if len(order.labels) == len(order.batches):
                self._waiting.remove(order)
                if not order.done.done():
                    order.done.set_result(tuple(order.labels))
        if self._waiting_batches < WAITING_MAX:
            self._room.set()
        return True

    # The driver's side --------------------------------------------------------------------------

    def persist(self, records: list[Record]) -> None:
        """Write to the outbox before anything is sent or promised; nothing once the store is gone."""
        if self._guard.gone is None:
            self.store.append_many(records)

    def perform(self, effect: SourceHostEffect, now: int) -> None:  # noqa: ARG002
        """Do one effect of a source."""
        match effect:
            case PublishAccepted() | PublishRejected():
                self.door.note(effect)
            case NumbersForgotten(_, known, next_number):
                self._forgot(known, next_number)
            case NameForged(_, first, last, token_number):
                self._forged(first, last, token_number)
            case _:
                assert_never(effect)

    def _forgot(self, known: int, next_number: int) -> None:
        """The ring has numbers that this source did not give, as far as it knows."""
        self._end_incarnation(
            next_number - known,
            f"the ring has messages {known} to {next_number - 1} of this source, and the outbox has no record of them"
            " although they were acknowledged",
        )

    def _forged(self, first: int, last: int, token_number: int) -> None:
        """Another sender uses numbers that this source has given."""
        self._end_incarnation(
            last - first + 1,
            f"token {token_number} orders messages {first} to {last} of this source with contents that it never sent",
        )

    def _end_incarnation(self, count: int, why: str) -> NoReturn:
        """Another sender uses this source's name, or its outbox is an older copy: this process ends too."""
        self._counters.forged_messages += count
        self._context.alarm(
            "forged-name",
            why,
            "if this outbox is no restored copy, a receiver forges: compare `isocast journal verify --roster` at all"
            " sites, and rotate this source's key without the liar",
        )
        self.store.renounce(why)
        rule = f"{why}: start the source again, and it begins a new incarnation; what is in the outbox is in doubt"
        raise StoreError(str(self._context.directory / "outbox"), rule)

    def next_deadline(self) -> int:
        """When the next burst may go out, if one waits."""
        return self._resume_at

    def wake(self, _: int) -> None:
        """The next burst."""
        self._resume_at = NEVER
        self._pump()

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin and open the door; `after_step` lets what waits follow each token."""
        plan = self._context.plan
        begun(self._context.directory)
        tell_outbox(self._context, self.store)
        self.driver.after_step = self._after_step
        self.driver.start()
        if plan.tcp_port:
            await self.door.open(plan.address, plan.tcp_port)

    def _after_step(self, now: int) -> None:
        heard = self._counters.received_of(PacketKind.TOKEN) + self._counters.received_of(PacketKind.TOKENPART)
        if heard != self._tokens_seen:
            self._tokens_seen = heard
            self._token_at = now
        if self._waiting:
            self._context.loop.call_soon(self._pump)

    def tick(self, now: int) -> None:
        """Bring counts up to date, and look after the outbox."""
        self.driver.judge_clock()
        self._channels.collect()
        self._counters.store_bytes = self.store.counters.bytes
        if self._guard.tick(now):
            self._refuse(PublishError(f"this source accepts no batches: {self._guard.gone}"))

    def _refuse(self, reason: PublishError) -> None:
        """What waits was never accepted."""
        for order in self._waiting:
            if not order.done.done():
                order.done.set_exception(reason)
        self._waiting.clear()
        self._waiting_batches = 0
        self._room.set()

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        gauges = gauges_from(self.machine.snapshot())
        gauges.token_age_ns = self._clock.now() - self._token_at if self._token_at else None
        gauges.read_clock(self._clock.status)
        gauges.clients = self.door.visitors
        return gauges

    async def stop(self) -> None:
        """Stop, then close; what waits at the door was never accepted."""
        self.driver.stop()
        await self.door.close()
        self._refuse(SourceStopsError("the source stops: publish it again, with the same keys"))
        self._closing.close()
