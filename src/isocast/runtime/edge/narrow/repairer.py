"""A retransmit server's part in the narrow stripes: it keeps what receivers sent, and repairs it once for many losers.

It hears every stripe on the lines that it hears anyway, so that one of two may lose a packet; what both lost it asks of
the receivers' edges, of those that it does not hear as well, until it has it. Strangers ask as MoldUDP64 prescribes and
are answered alone. Customers with the key of repairs ask under it, and are answered in the stripe's group of repairs,
sealed: requests that come within a window are one. Of stripes that are sold, the key is that of the stripe and period.

Where nodes sign, only what a receiver signed is kept, and repairs are whole packets, with a PROOF of this server.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from isocast.feeds.days import day_at
from isocast.feeds.mold import (
    MoldPacket,
    MoldRequest,
    end_of_session,
    heartbeat,
    packet_of,
    parse_packet,
    request,
    session_name,
)
from isocast.runtime.edge.narrow.archive import ROOM, RequestDesk, StripeArchive, proof_request
from isocast.runtime.edge.narrow.ears import StripeEars
from isocast.runtime.edge.narrow.places import (
    edge_of,
    groups_of,
    numbers_max,
    proof_groups_of,
    repair_budget,
    repair_room,
    request_endpoint,
)
from isocast.runtime.edge.narrow.plans import PlanFolder
from isocast.runtime.edge.narrow.stripe_keys import (
    SenderKeys,
    cores_of,
    period_instant,
    proof_check,
    stripe_guard,
    stripe_opener,
)
from isocast.runtime.market.key_files import MarketKeys
from isocast.runtime.market.model import Market, NodePlan
from isocast.security.keys import SecretKey
from isocast.security.repairs import REQUEST_SESSION, RepairRequest, RepairSealer, read_repair_request
from isocast.security.stripe_seals import STRIPE_SEAL_BYTES, stripe_request_key
from isocast.security.subscriptions import period_of
from isocast.striping.plan import StripePlan
from isocast.striping.proving import PACKETS_A_PROOF, StripeProver, stripe_of_session
from isocast.striping.rates import RateGate
from isocast.terms.errors import ForgeryError, RemoteProtocolError
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.wire.limits import IP_UDP_BYTES
from isocast.wire.stripe_proofs import BLOCK_BYTES, STRIPE_PROOF_MAGIC, stripe_proof_bytes

__all__ = ["RepairCounts", "Repairer"]

Alarm = Callable[[str, str, str], None]

_FILL_NS = 200 * MILLISECOND
"""Between two rounds of asking the receivers for what all lines lost."""
_FILL_TRIES = 50
_FILL_SLOW_NS = 5 * SECOND
"""After so many tries: the servers that have it may be away for hours."""
_FILL_NEAR = 4
"""Tries for which only receivers are asked that are heard."""
_HOLES_MAX = 16
_PACKETS_MAX = 256
"""Bounds: packets that one request may bring about."""
_SKEW_NS = 5 * SECOND
"""Of the clocks of a customer and this server."""
_WAITING_MAX = 4_096
"""Bounds: repairs that wait for room."""


@dataclass(slots=True)
class RepairCounts:
    """What happened so far."""

    packets: int = 0
    """Archived."""
    repeated: int = 0
    filled: int = 0
    """Messages that no line brought, and a receiver's edge had."""
    conflicts: int = 0
    strange: int = 0
    """From others than our receivers, or of no session of ours."""
    asked: int = 0
    """Requests of customers, under the key."""
    forged: int = 0
    """Requests and packets under another key, and what no receiver signed."""
    unproven: int = 0
    """Packets whose proof did not come; they are asked for again."""
    filtered: int = 0
    """Datagrams of strangers that the kernel dropped."""
    coalesced: int = 0
    """Requests for what was about to be repaired already."""
    repairs: int = 0
    """Multicast, once each."""
    dropped: int = 0
    """Repairs that found no room."""
    not_kept: int = 0
    """Packets that the disk did not take."""


@dataclass(slots=True)
class _Wanted:
    """Messages of one packet that a customer lacks."""

    stripe: int
    session: bytes
    first: int
    last: int
    at: int
    """When it is repaired."""
    proven: bool = False
    """Whether a PROOF of it was sent."""


@dataclass(slots=True)
class _Hole:
    """Somewhere in a session something is missing."""

    tries: int = 0
    at: int = 0
    """When the receivers are asked next."""


@dataclass(slots=True)
class _KeptStripe:
    gate: RateGate
    waiting: deque[_Wanted] = field(default_factory=deque)


class Repairer:
    """Runs in this event loop until it is cancelled."""

    def __init__(
        self,
        market: Market,
        plan: NodePlan,
        secret: SecretKey,
        now: Callable[[], int],
        alarm: Alarm,
        keys: MarketKeys | None = None,
    ) -> None:
        """Opens what is on disk and the sockets; `keys` of the server, which are read if they are not given."""
        self.counts = RepairCounts()
        self._market, self._plan, self._edge = market, plan, edge_of(market)
        self._secret, self._now, self._alarm = secret, now, alarm
        self._sealer = RepairSealer(secret, plan.node, os.urandom(4), now())
        self._keys = SenderKeys(market, plan, keys)
        self._folder = PlanFolder(self._edge)
        self._newest: StripePlan = self._folder.first()
        self._lines = [market.node(name) for name in plan.lines]
        self._senders = {line.address for line in self._lines}
        others = [other for other in market.receivers if other.stripe == plan.stripe and other not in self._lines]
        self._givers = [*self._lines, *others]
        self._nodes = {giver.address: giver.node for giver in self._givers}
        book = self._keys.book
        self._check = None if book is None else proof_check(market, (), book)
        region = self._keys.region
        self._opener = None if book is None or region is None else stripe_opener(market, region, book.newest.market)
        if self._check is not None:
            self._check.signers = frozenset(self._nodes.values())
        self._refused = 0
        """What comes under another key."""
        self._known: dict[bytes, int] = {}
        """The ends of our sessions' names, and how far their numbers can go."""
        self._wanted: dict[tuple[bytes, int], _Wanted] = {}
        self._stripes: dict[int, _KeptStripe] = {}
        self._begun = now() - market.timing.token_period_ns
        self._tops: dict[bytes, int] = {}
        self._holes: dict[bytes, _Hole] = {}
        """Sessions with holes: each is known until it is filled."""
        with ExitStack() as opened:
            self.archive = StripeArchive(market.directory_of(plan.name) / "edge", self._edge.keep_days)
            opened.callback(self.archive.close)
            self._ears = StripeEars(plan.address, self._edge.port)
            self._ears.guard(stripe_guard(market, self._senders))
            opened.callback(self._ears.close)
            self.desk = RequestDesk(
                request_endpoint(market, plan),
                self.archive,
                strangers=self._edge.requests,
                rate=self._edge.request_rate,
                other=self._asked,
                sealed=self._answered,
            )
            opened.callback(self.desk.close)
            self._out = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._out.settimeout(0)
            self._out.bind((plan.address, 0))
            self._out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(plan.address))
            self._out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, market.network.ttl)
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Give everything back."""
        self._closing.close()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        watched: list[int] = [self.desk.fileno(), self._out.fileno()]
        loop.add_reader(self.desk, self.desk.read)
        loop.add_reader(self._out, self._read_answers)
        try:
            following = 0
            while True:
                if self._now() >= following:
                    following = self._now() + SECOND
                    self.collect()
                    for one in self._join():
                        loop.add_reader(one, partial(self._read, one))
                        watched.append(one.fileno())
                deadline = min(self.poll(), following)
                await asyncio.sleep(max(min(deadline - self._now(), self._edge.repair_window_ns), MILLISECOND) / SECOND)
        finally:
            for handle in watched:
                loop.remove_reader(handle)

    def _join(self) -> list[socket.socket]:
        """Every stripe of every plan that is here: one that comes into force is heard from its first packet on."""
        plans = self._folder.all()
        self._newest = plans[-1]
        stripes = {stripe.number: stripe for plan in plans for stripe in plan.of_core(self._plan.stripe)}
        today = day_at(self._now(), self._edge.zone)
        self._known = {
            session_name(today, number).encode("ascii")[6:]: numbers_max(stripe.rate)
            for number, stripe in stripes.items()
        }
        if self._check is not None:
            self._check.cores = cores_of(stripes.values())
        groups: list[str] = []
        for line in self._lines:
            groups += groups_of(self._market, line, stripes.values())
            groups += proof_groups_of(self._market, line, stripes.values())
        return self._ears.hear(groups)

    def collect(self) -> None:
        """Bring counts up to date, and sign under the newest roster."""
        self._ears.collect()
        self.counts.filtered = self._ears.filtered
        if fault := self._keys.refresh(self._now()):
            self._alarm("edge-roster", fault, "it signs on with the key that it has")
        if self._check is not None:
            self._check.expire(self._now())
            self.counts.unproven = self._check.counts.unproven

    # ---- what receivers send

    def _read(self, one: socket.socket) -> None:
        for heard in self._ears.read(one):
            if heard.sender in self._senders:
                self.hear(heard.raw, heard.sender, heard.at)
            else:
                self.counts.strange += 1

    def hear(self, raw: bytes, sender: str, at: int) -> list[bytes]:
        """A datagram of a receiver: what of it, or of what waited for it, was new and is kept now."""
        try:
            genuine = self._genuine(raw, sender, at)
        except ForgeryError:
            self._refused += 1
            self.counts.forged += 1
            return []
        except RemoteProtocolError:
            self.counts.strange += 1
            return []
        kept = [packet for packet, came in genuine if self.keep(packet, came)]
        if self._check is not None:
            self.counts.forged = self._refused + self._check.counts.forged
            for one in self._check.news():
                if one.other is not None:
                    names = self._market.name_of(one.sender), self._market.name_of(one.other)
                    text = (
                        f"{' and '.join(names)} signed different packets under number {one.number} of {one.session!r}"
                    )
                    self._alarm("edge-conflict", text, "one of them lies: compare their journals")
        return kept

    def _genuine(self, raw: bytes, sender: str, at: int) -> list[tuple[bytes, int]]:
        """(packet, when it came) of what a receiver signed."""
        node = self._nodes[sender]
        if self._opener is not None:
            opened = self._opener.open(raw)
            if opened.sender != node:
                raise RemoteProtocolError(f"a packet in the name of {opened.sender} from the address of {node}")
            raw, at = opened.raw, self._within(opened.period, at)
        if self._check is None:
            return [(raw, at)]
        if raw.startswith(STRIPE_PROOF_MAGIC):
            found = self._check.proof(raw, self._now())
        else:
            found = self._check.heard(raw, parse_packet(raw), node, at)
        return [(_raw_of(one.packet), one.at) for one in found]

    def _within(self, period: int, at: int) -> int:
        """An instant of a period: the one at which a packet came, if it can be."""
        length_ns = self._market.subscriptions.period_ns
        shift = at - period_instant(self._market, at)
        return min(max(at, period * length_ns + shift), (period + 1) * length_ns + shift - 1)

    def keep(self, raw: bytes, at: int) -> bool:
        """A packet of a line; whether it was new."""
        try:
            packet = parse_packet(raw)
        except RemoteProtocolError:
            return False
        session = packet.session
        top = packet.sequence + packet.messages
        contiguous = self._tops.get(session, self.archive.next_number(session))
        if not self._is_ours(session) or top > self._known[session[6:]] + 1:
            self.counts.strange += 1
            return False
        left = session not in self._tops and bool(self.archive.missing(session, contiguous, 1))
        if packet.sequence > contiguous or left:
            self._holes.setdefault(session, _Hole())
        self._tops[session] = max(top, contiguous)
        if not packet.messages:
            return False
        if self.archive.has(session, packet.sequence):
            self.counts.repeated += 1
            kept = self.archive.find(session, packet.sequence)
            if len(kept) == len(raw) and kept != raw:
                self.counts.conflicts += 1
                text = f"two receivers say different things under number {packet.sequence} of session {session!r}"
                self._alarm("edge-conflict", text, "compare their plans: isocast edge status")
            return False
        try:
            self.archive.append(session, packet.sequence, packet.count, at, raw)
        except OSError as reason:
            self.counts.not_kept += 1
            self._tops[session] = contiguous  # A hole: with the next packet that is kept the receivers are asked.
            text = f"packets of narrow stripes cannot be kept: {reason.strerror}"
            self._alarm("edge-disk", text, "make room: what is missing is asked of the receivers then")
            return False
        self.counts.packets += 1
        return True

    def _is_ours(self, session: bytes) -> bool:
        """A stripe of ours, yesterday, today or tomorrow: nobody else's numbers are worth a file."""
        if session[6:] not in self._known:
            return False
        today = day_at(self._now(), self._edge.zone)
        days = [today + timedelta(days=shift) for shift in (-1, 0, 1)]
        return session[:6] in [f"{day:%y%m%d}".encode() for day in days]

    def _fill(self, now: int) -> None:
        """Ask the receivers' edges for what no line brought."""
        for session, hole in list(self._holes.items()):
            if now < hole.at:
                continue
            missing = self.archive.missing(session, self._tops.get(session, 1), _HOLES_MAX)
            if not missing or not self._is_ours(session):
                del self._holes[session]
                continue
            givers = self._lines if hole.tries < _FILL_NEAR else self._givers
            giver = givers[hole.tries % len(givers)]
            hole.tries += 1
            hole.at = now + (_FILL_NS if hole.tries < _FILL_TRIES else _FILL_SLOW_NS)
            where = request_endpoint(self._market, giver)
            for first, count in missing:
                with suppress(OSError):
                    if self._check is not None:
                        self._out.sendto(proof_request(session, first, min(count, 65_534)), where)
                    self._out.sendto(request(session, first, min(count, 65_534)), where)

    def _read_answers(self) -> None:
        for _ in range(_PACKETS_MAX):
            try:
                raw, sender = self._out.recvfrom(9_216)
            except OSError:
                return
            for kept in self.hear(raw, sender[0], self._now()) if sender[0] in self._nodes else ():
                packet = parse_packet(kept)
                self.counts.filled += packet.count
                hole = self._holes.get(packet.session)
                if hole is not None:
                    # The server that gave something is asked for the rest, at once.
                    hole.tries, hole.at = max(hole.tries - 1, 0), 0

    # ---- what customers ask

    def _asked(self, raw: bytes, _: tuple[str, int]) -> bool:
        try:
            wanted = self._request(raw)
        except RemoteProtocolError:
            self._refused += 1
            self.counts.forged += 1
            return False
        self.counts.asked += 1
        number, fresh = wanted.first, False
        for _place in range(_PACKETS_MAX):
            if number >= wanted.first + wanted.count:
                break
            found = self.archive.find(wanted.session, number)
            if not found:
                break
            try:
                packet = parse_packet(found)
            except RemoteProtocolError:
                break
            last = min(packet.sequence + packet.count, wanted.first + wanted.count) - 1
            fresh |= self._want(wanted.session, packet.sequence, number, last)
            number = packet.sequence + packet.count
        self.counts.coalesced += not fresh
        return True

    def _request(self, raw: bytes) -> RepairRequest:
        """What is asked for, under the key of repairs; of a stripe that is sold, under its own of this period."""
        region = self._keys.region
        if region is None:
            return read_repair_request(self._secret, raw)
        stripe = stripe_of_session(raw[REQUEST_SESSION])
        now, fault = self._now(), RemoteProtocolError("no key")
        # Two clocks do not agree to the moment at which a period ends.
        periods = [
            period_of(period_instant(self._market, now + off), region.length_ns) for off in (0, -_SKEW_NS, _SKEW_NS)
        ]
        for period in dict.fromkeys(periods):
            key = stripe_request_key(region, stripe, period)
            try:
                if key is not None:
                    return read_repair_request(key, raw)
            except RemoteProtocolError as reason:
                fault = reason
        raise fault

    def _answered(self, wanted: MoldRequest, raw: bytes) -> bytes:
        """The answer to a stranger's request: sealed where stripes are."""
        sealer = self._keys.sealer
        if sealer is None:
            return raw
        return sealer.seal(stripe_of_session(wanted.session), self._instant(wanted.session, wanted.sequence), raw)

    def _instant(self, session: bytes, number: int) -> int:
        """The T_t that decides the period of a packet."""
        return period_instant(self._market, self.archive.due(session, number))

    def _want(self, session: bytes, packet: int, first: int, last: int) -> bool:
        """Messages of a packet; whether nobody else had asked for any of them."""
        known = self._wanted.get((session, packet))
        if known is not None:
            known.first, known.last = min(known.first, first), max(known.last, last)
            return False
        if len(self._wanted) >= _WAITING_MAX:
            self.counts.dropped += 1
            return False
        stripe = int(session[6:], 36)
        wanted = _Wanted(stripe, session, first, last, self._now() + self._edge.repair_window_ns)
        self._wanted[session, packet] = wanted
        line = self._stripes.get(stripe)
        if line is None:
            gate = RateGate(self._market.timing.token_period_ns, self._begun)
            line = self._stripes[stripe] = _KeptStripe(gate)
        line.waiting.append(wanted)
        return True

    def poll(self) -> int:
        """Repair what is due and fits; when there is something to do again."""
        now = self._now()
        self._fill(now)
        deadline = min([hole.at for hole in self._holes.values()], default=NEVER)
        for stripe, line in self._stripes.items():
            while line.waiting:
                at = self._repair(stripe, line, line.waiting[0], now)
                if at > now:
                    deadline = min(deadline, at)
                    break
        return deadline

    def _repair(self, stripe: int, line: _KeptStripe, wanted: _Wanted, now: int) -> int:
        """Multicast a part of what is wanted; when, if not now."""
        if now < wanted.at:
            return wanted.at
        if self._keys.prover is not None:
            return self._repair_whole(self._keys.prover, stripe, line, now)
        budget = repair_budget(self._market, self._newest, stripe)
        count, framed = self.archive.take(
            wanted.session, wanted.first, wanted.last - wanted.first + 1, repair_room(budget, ROOM)
        )
        sealed = self._sealer.seal(stripe, packet_of(wanted.session, wanted.first, count, framed)) if count else b""
        at = line.gate.room_at(IP_UDP_BYTES + len(sealed), budget, now) if count else 0
        if at > now:
            return at
        if count:
            with suppress(OSError):
                self._out.sendto(sealed, (self._edge.repair_group(self._plan.number, stripe), self._edge.port))
            line.gate.note(self._now(), IP_UDP_BYTES + len(sealed))
            self.counts.repairs += 1
            wanted.first += count
        if not count or wanted.first > wanted.last:
            line.waiting.popleft()
            self._wanted = {key: one for key, one in self._wanted.items() if one is not wanted}
        return 0

    def _repair_whole(self, prover: StripeProver, stripe: int, line: _KeptStripe, now: int) -> int:
        """Multicast a PROOF of what is wanted, or the next packet as it was packed; when, if not now."""
        wanted = line.waiting[0]
        raw = self.archive.find(wanted.session, wanted.first)
        budget = repair_budget(self._market, self._newest, stripe)
        covered: list[_Wanted] = []
        if raw and not wanted.proven:
            covered = self._run(
                line, (budget - IP_UDP_BYTES - STRIPE_SEAL_BYTES - stripe_proof_bytes(0, 0)) // BLOCK_BYTES
            )
            raw = prover.prove_packets([self.archive.find(one.session, one.first) for one in covered], now)
        if raw:
            sealed = self._sealed(stripe, wanted, raw)
            at = line.gate.room_at(IP_UDP_BYTES + len(sealed), budget, now)
            if at > now:
                return at
            with suppress(OSError):
                self._out.sendto(sealed, (self._edge.repair_group(self._plan.number, stripe), self._edge.port))
            line.gate.note(self._now(), IP_UDP_BYTES + len(sealed))
        for one in covered:
            one.proven = True
        if not covered:
            self.counts.repairs += bool(raw)
            line.waiting.popleft()
            self._wanted = {key: one for key, one in self._wanted.items() if one is not wanted}
        return 0

    def _run(self, line: _KeptStripe, most: int) -> list[_Wanted]:
        """What is wanted next and follows one another, for one PROOF."""
        found: list[_Wanted] = []
        following: tuple[bytes, int, int] | None = None
        for wanted in list(line.waiting)[: max(min(most, PACKETS_A_PROOF), 1)]:
            raw = self.archive.find(wanted.session, wanted.first)
            if not raw:
                break
            packet = parse_packet(raw)
            # A PROOF is of one period: who bought that reads it.
            period = self._keys.period_at(self.archive.due(wanted.session, wanted.first))
            if found and following != (packet.session, packet.sequence, period):
                break
            found.append(wanted)
            following = packet.session, packet.sequence + packet.count, period
        return found

    def _sealed(self, stripe: int, wanted: _Wanted, raw: bytes) -> bytes:
        if self._keys.sealer is None:
            return self._sealer.seal(stripe, raw)
        return self._keys.sealer.seal(stripe, self._instant(wanted.session, wanted.first), raw)


def _raw_of(packet: MoldPacket) -> bytes:
    """A packet as it was packed."""
    if packet.is_heartbeat:
        return heartbeat(packet.session, packet.sequence)
    if packet.is_end:
        return end_of_session(packet.session, packet.sequence)
    return packet_of(packet.session, packet.sequence, packet.count, packet.body)
