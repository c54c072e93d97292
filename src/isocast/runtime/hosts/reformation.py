"""A reformation server as a process: its ballots survive it (§4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from isocast.reformation.scopes.line_keeper import PlannerHostEffect
from isocast.reformation.server import ReformationServer
from isocast.ring.court import Court
from isocast.ring.effects import BallotChosen, LieProven, Record, RingDecided, UniverseForced
from isocast.ring.inputs import ForceRequested
from isocast.ring.ledger import UNIVERSE_MIN
from isocast.ring.notary import Notary
from isocast.runtime.disk.server_store import open_server_store
from isocast.runtime.hosts.convictions import convicted_before, note_conviction
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.lines import LinePlanning
from isocast.runtime.hosts.order_checks import insist_on_order, order_in
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.founding import begun, is_new
from isocast.runtime.market.roster_files import KeysCounting, NewsReader
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.net.clock import ClockStatus
from isocast.runtime.watch.counters import NodeGauges, gauges_from
from isocast.security.signing import RosterVerifier
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.orders import force_entry

__all__ = ["ReformationHost"]

_CLOCK_REMEDY = "synchronise it; rings begin by the receivers' clocks, so that the market goes on meanwhile"


class ReformationHost:
    """What surrounds the machine of one reformation server."""

    def __init__(self, context: Context) -> None:
        """Open disk and sockets."""
        self._context = context
        with ExitStack() as opened:
            self._open(opened)
            self._closing = opened.pop_all()

    def _open(self, opened: ExitStack) -> None:
        """Everything, or nothing: the next attempt must not meet the locks of this one."""
        context = self._context
        market, plan = context.market, context.plan
        self.store = open_server_store(
            context.directory / "ballots",
            context.store_identity(),
            fresh=is_new(context.directory),
        )
        opened.callback(self.store.close)
        regions = {node.node: node.place.name if node.place else node.name for node in market.receivers}
        self.machine = ReformationServer(
            plan.node,
            market.ring_settings(context.stripe),
            market.servers.index(plan.node),
            regions,
            self.store.state,
            market.servers,
            context.notary(),
        )
        before = convicted_before(context, self.machine.court)
        self.machine.court = self._court()
        self.machine.court.convicted.update(dict.fromkeys(before))
        self._channels = context.channels(plan.node, NodeKeys(context.keys.core_ring()))
        opened.callback(self._channels.close)
        self.lines = LinePlanning(context)
        self.driver: Driver[ForceRequested, UniverseForced | LieProven | PlannerHostEffect] = context.driver(
            self.lines.accompany(self.machine), self, self._channels
        )
        self.driver.clock_judged = self._clock_judged
        self._clock_ahead_ns = 0
        context.operations["force"] = self._force

    def _court(self) -> Court:
        """Convicts by the keys of the newest roster: a server does not know at which token an older one ended."""
        context, book = self._context, self._context.keys.book
        if book is None:
            return Court(Notary())
        verifier = RosterVerifier(book.newest.market, NewsReader(context.market, book, KeysCounting.NEWEST))
        return Court(Notary(verifier=verifier, refused=context.counters.refused_signatures))

    async def _force(self, request: Mapping[str, Any]) -> None:
        """An operator's signed word that these sites are all that is left of U."""
        sites = request.get("universe")
        market = self._context.market
        if not isinstance(sites, list) or len(sites) < UNIVERSE_MIN or not all(isinstance(s, int) for s in sites):
            raise LocalProtocolError(f'"universe" lists the ids of the receivers that are left: {UNIVERSE_MIN} or more')
        strangers = [site for site in sites if site not in market.universe]
        if strangers:
            raise LocalProtocolError(f"{strangers[0]} is no primary receiver of this market")
        members, machine = tuple(sorted(set(sites))), self.machine
        entry = force_entry(self._context.plan.node, members, order_in(request))
        first = machine.ring.first_token if machine.ring is not None else 0
        insist_on_order(machine.notary, entry, self._context.stripe, first, 0, self._context.clock.now())
        names = ", ".join([market.name_of(site) for site in members])
        self._context.alarm(
            "forced",
            f"an operator forces U to be {names}",
            "a node that was left out must never run again under its number",
        )
        self.driver.feed(ForceRequested(members, entry.order))

    def _clock_judged(self, status: ClockStatus) -> None:
        if status.trusted:
            self._context.log.info("clock is within its bound again", detail=status.detail)
        else:
            self._context.alarm("clock", status.detail, _CLOCK_REMEDY)

    def _compare_clock(self) -> None:
        """Say when the votes of a ballot show that this server's clock is wrong, and when they no longer do."""
        ahead_ns, before_ns = self.machine.clock_ahead_ns, self._clock_ahead_ns
        self._clock_ahead_ns = ahead_ns
        if ahead_ns and ahead_ns != before_ns:
            span = f"{abs(ahead_ns) / SECOND:.3f} s {'ahead of' if ahead_ns > 0 else 'behind'}"
            self._context.alarm("clock", f"this server's clock is {span} most receivers' clocks", _CLOCK_REMEDY)
        elif before_ns and not ahead_ns:
            self._context.log.info("clock agrees with most receivers' clocks again")

    def persist(self, records: list[Record]) -> None:
        """A ballot is on disk before anybody hears of it."""
        self.store.append_many(records)
        for record in records:
            if isinstance(record, BallotChosen):
                self._context.log.info("ballot begins", epoch=str(record.ballot))
            elif isinstance(record, RingDecided):
                self._context.counters.reformations += 1
                ring = record.ring
                names = ", ".join([self._context.market.name_of(site) for site in ring.ring])
                self._context.log.info(
                    "ring decided", epoch=str(ring.ballot), members=names, first_token=ring.first_token
                )

    def perform(self, effect: UniverseForced | LieProven | PlannerHostEffect, now: int) -> None:  # noqa: ARG002
        """What it has to do is about the plan of lines; of a forced U the alarm was raised when it was asked for."""
        if isinstance(effect, LieProven):
            note_conviction(self._context, effect.evidence)
        elif not isinstance(effect, UniverseForced):
            self.lines.perform(effect)

    def next_deadline(self) -> int:
        """None of its own."""
        return NEVER

    def wake(self, now: int) -> None:
        """Nothing to do."""

    async def start(self) -> None:
        """Begin."""
        begun(self._context.directory)
        if self.store.forgot:
            # It may have used any ballot before, and must not use one again.
            self._context.alarm(
                "forgot",
                f"this server's disk was lost, and with it the ballots that it used"
                f"{f' ({self.store.loss})' if self.store.loss else ''}; it stays silent",
                "see the how-to 'operate': it comes back under a new number",
            )
            return
        self.driver.start()

    def tick(self, _: int) -> None:
        """Bring counts up to date."""
        self.driver.judge_clock()
        self._compare_clock()
        self._channels.collect()
        self._context.counters.store_bytes = self.store.counters.bytes
        self.store.check()

    def gauges(self) -> NodeGauges:
        """The machine's state."""
        gauges = gauges_from(self.machine.snapshot())
        ring, market = self.machine.ring, self._context.market
        gauges.ring = tuple([market.name_of(site) for site in ring.ring]) if ring is not None else None
        gauges.read_clock(self.driver.clock.status)
        gauges.clock_trusted = gauges.clock_trusted and not self.machine.clock_ahead_ns
        gauges.ring_configured = len(ring.universe if ring is not None else market.universe)
        self.lines.fill(gauges)
        return gauges

    async def stop(self) -> None:
        """Close."""
        self.driver.stop()
        self._closing.close()
