"""A customer of narrow stripes: as many as its line can take, put in order, and told apart from silent ones.

    async with StripeListener(market, "modem", rate=56_000) as listener:
        async for batch in listener:
            print(batch.stripe, batch.events["price"])

Every line carries the whole of its stripes, so two lines take twice the rate. Who wants everything hears the group of
repairs as well, and that counts too: what is chosen fits the line in any token period.

Where nodes sign, nothing counts before a PROOF says that its sender packed it; where stripes are sold, those are heard
that were paid for.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from time import time_ns
from typing import NamedTuple, Self

import numpy as np

from isocast.feeds.days import DayClock, day_at
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import MoldPacket, parse_packet
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.stripe_writer import plan_version_of
from isocast.runtime.edge.narrow.bought import bought_stripes
from isocast.runtime.edge.narrow.choosing import Chosen
from isocast.runtime.edge.narrow.ears import Heard, StripeEars, StripeInstants
from isocast.runtime.edge.narrow.places import (
    edge_of,
    groups_of,
    numbers_max,
    proof_groups_of,
    repair_groups_of,
    request_endpoint,
)
from isocast.runtime.edge.narrow.stripe_keys import cores_of, proof_check, proof_ns, stripe_guard
from isocast.runtime.market.key_files import load_repair_key
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.market.subscription import Subscription
from isocast.security.repairs import RepairOpener, RepairRequest, write_repair_request
from isocast.striping.merging import StripeCut
from isocast.striping.proving import Genuine, ProofCounts, StripeProofCheck, stripe_of_session
from isocast.striping.rates import RateMeter
from isocast.striping.sequencer import GapRules, NarrowMessage, SequencerCounts, StripeSequencer
from isocast.terms.errors import ForgeryError, RemoteProtocolError, UnpaidError
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.terms.market import Mic
from isocast.terms.quantities import counted
from isocast.wire.events import EventArray
from isocast.wire.limits import IP_UDP_BYTES
from isocast.wire.stripe_proofs import STRIPE_PROOF_MAGIC

__all__ = ["HeardStripe", "ListenerCounts", "SilenceWatch", "StripeBatch", "StripeListener"]


# ---- Whether the stripes of a customer's lines are heard: each beats every second, so that silence means something.


_NAMED = 5
"""Stripes that a sentence names before it counts."""


class HeardStripe(NamedTuple):
    """A narrow stripe as one line brings it."""

    line: str
    stripe: int


class SilenceWatch:
    """Says once what has fallen silent, and once that it is back. Pure: the caller says what time it is."""

    def __init__(self, patience_ns: int) -> None:
        """Nothing is expected yet."""
        self._patience_ns = patience_ns
        self._last: dict[HeardStripe, int] = {}
        self._silent: set[HeardStripe] = set()

    def expect(self, stripes: Iterable[HeardStripe], now: int) -> None:
        """These from now on, and no others."""
        self._last = {each: self._last.get(each, now) for each in stripes}
        self._silent &= self._last.keys()

    def heard(self, line: str, stripe: int, at: int) -> None:
        """Something of a stripe came."""
        each = HeardStripe(line, stripe)
        if each in self._last:
            self._last[each] = max(at, self._last[each])

    def poll(self, now: int) -> list[str]:
        """What there is to say."""
        silent = {each for each, at in self._last.items() if now - at > self._patience_ns}
        fallen, back = silent - self._silent, self._silent - silent
        self._silent = silent
        seconds = f"{self._patience_ns / SECOND:g} s"
        texts = [
            f"{name} sends nothing on {which} for {seconds}: look at its edge, and at the network between"
            for name, which in _by_line(fallen)
        ]
        return texts + [f"{name} is heard again on {which}" for name, which in _by_line(back)]


def _by_line(stripes: Iterable[HeardStripe]) -> list[tuple[str, str]]:
    found: dict[str, list[int]] = {}
    for each in sorted(stripes):
        found.setdefault(each.line, []).append(each.stripe)
    return [(line, _numbers(numbers)) for line, numbers in found.items()]


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"stripe{'s' * (len(numbers) > 1)} {shown}{more}"


_WAIT_NS = 50 * MILLISECOND
"""Skew of two lines, and packets that overtake each other."""
_SILENT_NS = 5 * SECOND
"""Of a stripe that should beat every second."""
_BATCHES_MAX = 65_536
_NOBODY = Mic("XXXX")
"""The floor of a stock that was not introduced yet."""


class StripeBatch(NamedTuple):
    """Messages of one stripe that are in order."""

    stripe: int
    session: str
    first: int
    last: int
    events: EventArray
    """Of stocks that are known; introductions are DIRECTORY events."""


@dataclass(slots=True)
class ListenerCounts:
    """What happened so far, all stripes together."""

    packets: int = 0
    ip_bytes: int = 0
    strange: int = 0
    """Datagrams that are none of ours."""
    forged: int = 0
    """Packets, heartbeats, proofs and repairs that nobody signed, or that are under another key."""
    unproven: int = 0
    """Packets whose proof did not come."""
    unpaid: int = 0
    """Sealed packets of stripes or periods that were not bought."""
    filtered: int = 0
    """Datagrams of strangers that the kernel dropped."""
    unread: int = 0
    """Batches that the program did not read in time, the oldest first."""
    by_stripe: dict[int, SequencerCounts] = field(default_factory=dict)

    @property
    def total(self) -> SequencerCounts:
        """Of all stripes."""
        total = SequencerCounts()
        for counts in self.by_stripe.values():
            for name in SequencerCounts.__slots__:
                setattr(total, name, getattr(total, name) + getattr(counts, name))
        return total


class StripeListener:
    """Hears stripes until it is closed."""

    def __init__(
        self,
        market: Market,
        seat: NodePlan,
        chosen: Chosen,
        *,
        subscription: Subscription | None = None,
        told: Callable[[str], None] = lambda _: None,
        now: Callable[[], int] = time_ns,
    ) -> None:
        """`chosen` says which stripes, of which lines, and whether everything is wanted.

        `subscription`: the package, where stripes are sold; left out, the seat's own in the keys directory.
        """
        self.counts = ListenerCounts()
        self.chosen = self._wanted = chosen
        self._market, self._seat, self._edge = market, seat, edge_of(market)
        self._told, self._now = told, now
        self._meter = RateMeter(market.timing.token_period_ns)
        retry_ns = max(4 * self._edge.repair_window_ns, 2 * market.timing.token_period_ns, 200 * MILLISECOND)
        self._rules = GapRules(chosen.complete, _WAIT_NS, retry_ns, from_first=chosen.from_first)
        self.proofs = proof_check(market, chosen.stripes)
        """What judges packets; None where nobody signs."""
        self._bought = bought_stripes(market, seat, subscription, told)
        self._secret = load_repair_key(market) if chosen.complete and self._bought is None else None
        self._repairs = None if self._secret is None else RepairOpener(self._secret)
        self._instants = StripeInstants()
        self._sequencers: dict[int, StripeSequencer] = {}
        self._decoders: dict[int, tuple[bytes, ItchDecoder]] = {}
        self._ears = StripeEars(seat.address, self._edge.port)
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._out.bind((seat.address, 0))
        self._out.settimeout(0)
        self._batches: asyncio.Queue[StripeBatch] = asyncio.Queue(_BATCHES_MAX)
        self._polling: asyncio.Task[None] | None = None
        self._watched: list[int] = []
        self._server = 0
        self._senders: dict[str, NodePlan] = {}
        """Whose an address is."""
        self._refused = 0
        """Packets and repairs under another key."""
        self._unproven = False
        """Whether it was told that no proofs come."""
        self._named: dict[tuple[NodeId, int], None] = {}
        """Whose forgeries were told, by stripe."""
        self._silence = SilenceWatch(max(_SILENT_NS, 4 * market.timing.token_period_ns, 3 * proof_ns(market)))
        self.plan_version = 0
        """The newest plan that stocks were introduced under."""
        self.plan_changed: Callable[[int], None] = lambda _: None
        """Told when that is newer than the one that the stripes were chosen by."""
        self._drop: Callable[[Heard], bool] = lambda _: False

    # ---- life

    async def __aenter__(self) -> Self:
        try:
            self.follow(self.chosen)
        except BaseException:
            self.close()
            raise
        self._polling = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._polling is not None:
            self._polling.cancel()
            with suppress(asyncio.CancelledError):
                await self._polling
        self.close()

    def close(self) -> None:
        """Hear nothing more."""
        loop = asyncio.get_running_loop()
        for handle in self._watched:
            loop.remove_reader(handle)
        self._watched.clear()
        self.collect()
        self._ears.close()
        self._out.close()

    def collect(self) -> None:
        """Bring the count of what the kernel dropped up to date."""
        self._ears.collect()
        self.counts.filtered = self._ears.filtered

    def follow(self, chosen: Chosen) -> None:
        """Hear these stripes, and no others; of those that are sold, what was bought."""
        self._wanted = chosen
        if self._bought is not None:
            chosen = self._bought.readable(chosen)
        self.chosen = chosen
        whole = self._market.whole or self._market
        origins = {node.origin for node in (*chosen.lines, *chosen.servers)}
        heard = [node for node in whole.nodes if node.origin in origins]
        self._senders = {node.address: node for node in heard}
        self._ears.guard(stripe_guard(self._market, self._senders))
        if self.proofs is not None:
            self.proofs.signers = frozenset([node.node for node in heard])
            self.proofs.cores = {**self.proofs.cores, **cores_of(chosen.stripes)}
        self._silence.expect(
            [HeardStripe(line.origin, stripe.number) for line in chosen.lines for stripe in chosen.stripes], self._now()
        )
        groups: list[str] = []
        for line in chosen.lines:
            groups += groups_of(self._market, line, chosen.stripes)
            groups += proof_groups_of(self._market, line, chosen.stripes)
        for server in chosen.servers:
            groups += repair_groups_of(self._market, server, chosen.stripes)
        for stripe in chosen.stripes:
            if stripe.number not in self._sequencers:
                made = self._sequencers[stripe.number] = StripeSequencer(stripe.number, self._rules)
                self.counts.by_stripe[stripe.number] = made.counts
        loop = asyncio.get_running_loop()
        for one in self._ears.hear(groups):
            loop.add_reader(one, partial(self._read, one))
            self._watched.append(one.fileno())

    def __aiter__(self) -> AsyncIterator[StripeBatch]:
        return self

    async def __anext__(self) -> StripeBatch:
        return await self._batches.get()

    @property
    def peak(self) -> int:
        """The most IP bytes that came in any token period, as the kernel got them."""
        return self._meter.peak

    def cut(self, instant: int) -> StripeCut | None:
        """For each stripe the last number that was released up to an instant, the same at all customers; 0 for none.

        Numbers are of the sessions of the instant's day, and its whole millisecond counts. None while a stripe has not
        passed it: by a later message, or by a beat `BEAT_NS` later. LocalProtocolError for an instant from before this
        customer came, and for one at which messages were released that it lost.
        """
        day = f"{day_at(instant, self._edge.zone):%y%m%d}".encode()
        return self._instants.at(instant, day, [stripe.number for stripe in self.chosen.stripes])

    # ---- what comes

    def _read(self, one: socket.socket) -> None:
        for heard in self._ears.read(one):
            self.hear(heard)

    def hear(self, heard: Heard) -> None:
        """A datagram of one of the groups."""
        if self._drop(heard):
            return
        node = self._senders.get(heard.sender)
        if node is None:
            self.counts.strange += 1
            return
        size = IP_UDP_BYTES + len(heard.raw)
        self._meter.note(heard.at, size)
        self.counts.packets += 1
        self.counts.ip_bytes += size
        try:
            self._judge(heard, node)
        except UnpaidError:
            self.counts.unpaid += 1
        except ForgeryError:
            self._refused += 1
        except RemoteProtocolError:
            self.counts.strange += 1
        self._count_forgeries()

    def _judge(self, heard: Heard, node: NodePlan) -> None:
        """What of a datagram is genuine, and what waited for it; RemoteProtocolError for what is none of ours."""
        raw, repair = self._opened(heard.raw, node)
        check = self.proofs
        if check is None:
            packet = parse_packet(raw)
            self._take(Genuine(packet, node.node, heard.at, repair), node, heard.at)
            return
        if raw.startswith(STRIPE_PROOF_MAGIC):
            found = check.proof(raw, heard.at, repair=repair)
        else:
            packet = parse_packet(raw)
            self._sequencer_of(packet)
            found = check.heard(raw, packet, node.node, heard.at, repair=repair)
        for one in found:
            sender = next((other for other in self._senders.values() if other.node == one.sender), node)
            self._take(one, sender, heard.at)
        self._tell_forgeries(check)

    def _take(self, one: Genuine, node: NodePlan, now: int) -> None:
        """Something that its sender said."""
        packet, repair = one.packet, one.repair
        sequencer = self._sequencer_of(packet)
        if not repair:
            self._silence.heard(node.origin, sequencer.stripe, one.at)
            self._instants.heard(sequencer.stripe, packet, one.at)
        sequencer.receive(packet, now, repair=repair)
        self._hand_over(sequencer)
        beats = not repair and not packet.messages and not packet.is_end
        if beats and sequencer.is_whole and packet.session == sequencer.session:
            self._instants.beat(sequencer.stripe, packet.session, sequencer.next_number, one.at)

    def _count_forgeries(self) -> None:
        proven = ProofCounts() if self.proofs is None else self.proofs.counts
        self.counts.forged, self.counts.unproven = self._refused + proven.forged, proven.unproven

    def _tell_forgeries(self, check: StripeProofCheck) -> None:
        names = {node.node: node.origin for node in self._senders.values()}
        for one in check.news():
            stripe = stripe_of_session(one.session)
            if (one.sender, stripe) in self._named:
                continue
            self._named[one.sender, stripe] = None
            who, what = names.get(one.sender, str(one.sender)), f"number {one.number} of stripe {stripe}"
            if one.other is None:
                self._told(
                    f"{what} in the name of {who} is forged: it is dropped, and so are others, which are counted"
                )
            else:
                other = names.get(one.other, str(one.other))
                self._told(
                    f"{who} and {other} signed different packets under {what}: one of them lies; tell the market"
                )

    def _tell_unproven(self, check: StripeProofCheck) -> None:
        """Once: packets come, and proofs do not."""
        if self._unproven or not check.counts.unproven or check.counts.proofs:
            return
        self._unproven = True
        self._told(
            f"packets come and no PROOF of them does, so nothing is shown: look whether the groups from "
            f"{self._edge.proofs} on reach {self._seat.address}"
        )

    def _sequencer_of(self, packet: MoldPacket) -> StripeSequencer:
        """RemoteProtocolError for a session or a number that no receiver of ours can be at: anybody can write them."""
        try:
            day, stripe = _day_of(packet.session), int(packet.session[6:], 36)
            sequencer = self._sequencers[stripe]
        except (ValueError, KeyError):
            raise RemoteProtocolError("the session belongs to no stripe of the plan") from None
        rate = next((one.rate for one in self.chosen.stripes if one.number == stripe), 0)
        if abs(day - day_at(self._now(), self._edge.zone)) > timedelta(days=1):
            raise RemoteProtocolError(f"a session of {day}")
        if rate and packet.sequence > numbers_max(rate):
            raise RemoteProtocolError(f"number {packet.sequence}: more than its stripe carries in a day")
        return sequencer

    def _opened(self, raw: bytes, node: NodePlan) -> tuple[bytes, bool]:
        """(packet or PROOF, whether it is a repair)."""
        if self._bought is not None:
            opened = self._bought.opener.open(raw)
            if opened.sender != node.node:
                raise RemoteProtocolError(f"a packet in the name of {opened.sender} from the address of {node.name}")
            return opened.raw, node.role is NodeRole.RETRANSMIT_SERVER
        if not raw.startswith(b"ICRP"):
            return raw, False
        if self._repairs is None:
            raise RemoteProtocolError("a repair, but this customer has no key for repairs")
        try:
            return self._repairs.open(raw)[2], True
        except RemoteProtocolError as reason:
            raise ForgeryError(str(reason)) from None

    async def _poll(self) -> None:
        while True:
            now, deadline = self._now(), NEVER
            if self._bought is not None and await self._bought.watch(self.chosen, now):
                self.follow(self._wanted)
            if self.proofs is not None:
                self.proofs.expire(now)
                self._count_forgeries()
                self._tell_unproven(self.proofs)
            for sequencer in self._sequencers.values():
                lost = sequencer.counts.lost
                for ask in sequencer.poll(now):
                    self._ask(sequencer.stripe, RepairRequest(self._seat.node, ask.session, ask.first, ask.count))
                if sequencer.counts.lost > lost:
                    count = sequencer.counts.lost - lost
                    self._told(
                        f"stripe {sequencer.stripe}: {counted(count, 'message')} lost before {sequencer.next_number}"
                    )
                self._hand_over(sequencer)
                deadline = min(deadline, sequencer.next_deadline())
            for text in self._silence.poll(now):
                self._told(text)
            await asyncio.sleep(max(min(deadline - self._now(), _WAIT_NS), MILLISECOND) / SECOND)

    def _ask(self, stripe: int, wanted: RepairRequest) -> None:
        secret = self._secret if self._bought is None else self._bought.request_key(stripe, self._now())
        if secret is None or not self.chosen.servers:
            return
        core = next((one.core for one in self.chosen.stripes if one.number == stripe), None)
        server = self.chosen.servers[self._server % len(self.chosen.servers)]
        self._server += 1
        with suppress(OSError):
            where = request_endpoint(self._market, server, core)
            self._out.sendto(write_repair_request(secret, wanted), where)

    # ---- what goes out

    def _hand_over(self, sequencer: StripeSequencer) -> None:
        ready = sequencer.take()
        self._instants.take(sequencer.stripe, ready)
        while ready:
            session = ready[0].session
            same = [message for message in ready if message.session == session]
            version = max(plan_version_of(message.framed) for message in same)
            if version > max(self.plan_version, self.chosen.plan_version):
                self.plan_version = version
                self.plan_changed(version)
            ready = ready[len(same) :]
            batch = self._batch(sequencer.stripe, session, same)
            if self._batches.full():
                self._batches.get_nowait()  # A program that does not read gets what is newest.
                self.counts.unread += 1
                if self.counts.unread == 1:
                    self._told(f"more than {_BATCHES_MAX:,} batches wait to be read: the oldest are dropped")
            self._batches.put_nowait(batch)

    def _batch(self, stripe: int, session: bytes, messages: Sequence[NarrowMessage]) -> StripeBatch:
        known, decoder = self._decoders.get(stripe, (b"", None))
        if decoder is None or known != session:
            clock = DayClock.at(_day_of(session), self._edge.zone)
            decoder = ItchDecoder(_NOBODY, clock, FeedLog(session.decode("ascii")))
            self._decoders[stripe] = session, decoder
        events = _decoded(decoder, [message.framed for message in messages])
        return StripeBatch(stripe, session.decode("ascii"), messages[0].number, messages[-1].number, events)


def _decoded(decoder: ItchDecoder, framed: Iterable[bytes]) -> EventArray:
    pieces = list(framed)
    places = np.cumsum([0, *[len(piece) for piece in pieces[:-1]]], dtype=np.int64)
    raw = np.frombuffer(b"".join(pieces), np.uint8)
    return decoder.decode(raw, places, places)


def _day_of(session: bytes) -> date:
    return date(2000 + int(session[:2]), int(session[2:4]), int(session[4:6]))
