"""A retransmit server's part in the narrow stripes: it keeps what receivers sent, and repairs it once for many losers.

It hears every stripe on the lines that it hears anyway, so that one of two may lose a packet; what both lost it asks of
the receivers' edges, of those that it does not hear as well, until it has it. Strangers ask as MoldUDP64 prescribes and
are answered alone. Customers with the key of repairs ask under it, and are answered in the stripe's group of repairs,
sealed: requests that come within a window are one.
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
from isocast.feeds.mold import packet_of, parse_packet, request, session_name
from isocast.runtime.edge.narrow.archive import ROOM, RequestDesk, StripeArchive
from isocast.runtime.edge.narrow.ears import StripeEars
from isocast.runtime.edge.narrow.places import (
    edge_of,
    groups_of,
    numbers_max,
    repair_budget,
    repair_room,
    request_endpoint,
)
from isocast.runtime.edge.narrow.plans import PlanFolder
from isocast.runtime.market.model import Market, NodePlan
from isocast.security.keys import SecretKey
from isocast.security.repairs import RepairSealer, read_repair_request
from isocast.striping.plan import StripePlan
from isocast.striping.rates import RateGate
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.wire.limits import IP_UDP_BYTES

__all__ = ["RepairCounts", "Repairer"]

Alarm = Callable[[str, str, str], None]

_FILL_NS = 200 * MILLISECOND
"""Between two rounds of asking the receivers for what all lines lost."""
_FILL_TRIES = 50
_FILL_SLOW_NS = 5 * SECOND
"""After so many tries: whoever has it may be away for hours."""
_FILL_NEAR = 4
"""Tries for which only receivers are asked that are heard."""
_HOLES_MAX = 16
_PACKETS_MAX = 256
"""Bounds: packets that one request may bring about."""
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
    """Messages of one packet that somebody lacks."""

    stripe: int
    session: bytes
    first: int
    last: int
    at: int
    """When it is repaired."""


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

    def __init__(self, market: Market, plan: NodePlan, secret: SecretKey, now: Callable[[], int], alarm: Alarm) -> None:
        """Opens what is on disk and the sockets."""
        self.counts = RepairCounts()
        self._market, self._plan, self._edge = market, plan, edge_of(market)
        self._secret, self._now, self._alarm = secret, now, alarm
        self._sealer = RepairSealer(secret, plan.node, os.urandom(4), now())
        self._folder = PlanFolder(self._edge)
        self._newest: StripePlan = self._folder.first()
        self._lines = [market.node(name) for name in plan.lines]
        self._senders = {line.address for line in self._lines}
        others = [other for other in market.receivers if other.stripe == plan.stripe and other not in self._lines]
        self._givers = [*self._lines, *others]
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
            opened.callback(self._ears.close)
            self.desk = RequestDesk(
                request_endpoint(market, plan),
                self.archive,
                strangers=self._edge.requests,
                rate=self._edge.request_rate,
                other=self._asked,
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
        return self._ears.hear(
            [group for line in self._lines for group in groups_of(self._market, line, stripes.values())]
        )

    # ---- what receivers send

    def _read(self, one: socket.socket) -> None:
        for heard in self._ears.read(one):
            if heard.sender in self._senders:
                self.keep(heard.raw, heard.at)
            else:
                self.counts.strange += 1

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
            for first, count in missing:
                with suppress(OSError):
                    self._out.sendto(request(session, first, min(count, 65_534)), request_endpoint(self._market, giver))

    def _read_answers(self) -> None:
        givers = {giver.address for giver in self._givers}
        for _ in range(_PACKETS_MAX):
            try:
                raw, sender = self._out.recvfrom(9_216)
            except OSError:
                return
            if sender[0] in givers and self.keep(raw, self._now()):
                packet = parse_packet(raw)
                self.counts.filled += packet.count
                hole = self._holes.get(packet.session)
                if hole is not None:
                    # Whoever gave something is asked for the rest, at once.
                    hole.tries, hole.at = max(hole.tries - 1, 0), 0

    # ---- what customers ask

    def _asked(self, raw: bytes, _: tuple[str, int]) -> bool:
        try:
            wanted = read_repair_request(self._secret, raw)
        except RemoteProtocolError:
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
