"""A gateway from the market to the clear edge feed: a complete customer that sends what it gets as MoldUDP64.

Packets go to a group for each edge stripe, at once and in order; what was released long ago (a gateway that catches up)
is written to the archive and not sent. Requests come by unicast, and each is answered with one packet to whoever asked.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from time import time_ns
from typing import TypeAlias

import numpy as np

from isocast.feeds.mold import HEADER_BYTES, end_of_session, heartbeat, parse_request
from isocast.runtime.edge_feed import EdgeBlock, EdgeFeed, SessionEnd
from isocast.runtime.listener import Listener
from isocast.runtime.received import ReceivedBatch
from isocast.runtime.udp import Endpoint, Outlet, multicast_outlet
from isocast.terms.errors import ConfigurationError, RemoteProtocolError, TransportError

__all__ = ["GatewayCounts", "ItchGateway", "groups_of"]

Listening: TypeAlias = "Callable[[int | str], Listener]"
"""A listener that begins with a sequence, or with the beginning."""

HEARTBEAT_S = 1.0
END_HEARTBEATS = 30
"""How often the end of a session is said, once a second."""
STALE_NS = 10 * 10**9
"""What was due longer ago is not sent any more: whoever lacks it asks."""
ANSWERS_A_SECOND = 20_000
"""Whoever floods us with requests slows down requests only."""
_REQUESTS_AT_ONCE = 256
_LAST_GROUP = int(IPv4Address("239.255.255.255"))


@dataclass(slots=True)
class GatewayCounts:
    """What happened so far."""

    messages: int = 0
    """Of the sequence."""
    events: int = 0
    itch_messages: int = 0
    packets: int = 0
    heartbeats: int = 0
    sessions_ended: int = 0
    not_sent: int = 0
    """Blocks that went to the archive alone, because they were old."""
    requests: int = 0
    answered: int = 0
    refused: int = 0
    """Requests that are none, or beyond what may be asked in a second."""


def groups_of(first: str, port: int, count: int) -> list[Endpoint]:
    """One group after another, all with the same port."""
    try:
        base = IPv4Address(first)
    except AddressValueError:
        raise ConfigurationError("command line", "--group", f"{first} is no IPv4 address") from None
    if not base.is_multicast or int(base) + count - 1 > _LAST_GROUP:
        rule = f"{first}: {count} groups from there on are not all multicast groups"
        raise ConfigurationError("command line", "--group", rule)
    return [Endpoint(str(base + place), port) for place in range(count)]


class ItchGateway:
    """Runs until it is cancelled."""

    def __init__(
        self,
        feed: EdgeFeed,
        listening: Listening,
        groups: Mapping[int, Endpoint],
        requests: Endpoint,
        *,
        interface: str,
        ttl: int = 1,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`groups` are those of the feed's stripes; `requests` is where to ask again, port 0 for any."""
        self.counts = GatewayCounts()
        self.feed = feed
        self.requests: Endpoint = requests
        """Where requests are heard, once it runs."""
        self._listening = listening
        self._groups = dict(groups)
        self._interface = interface
        self._ttl = ttl
        self._told = told
        self._outlets: dict[int, Outlet] = {}
        self._quiet: dict[int, bool] = {}
        self._ending: dict[str, tuple[SessionEnd, int]] = {}
        self._allowance = ANSWERS_A_SECOND
        self.ready = asyncio.Event()
        """Set when it hears the market."""

    async def run(self) -> None:
        """Restore, then send for ever."""
        with ExitStack() as stack:
            stack.callback(self.feed.close)
            for stripe, group in self._groups.items():
                outlet = multicast_outlet(group.address, group.port, self._interface, ttl=self._ttl)
                self._outlets[stripe] = stack.enter_context(outlet)
            asked = stack.enter_context(_request_socket(self.requests))
            self.requests = Endpoint(*asked.getsockname())
            self.feed.restore()
            loop = asyncio.get_running_loop()
            loop.add_reader(asked, self._answer, asked)
            stack.callback(loop.remove_reader, asked)
            beating = asyncio.create_task(self._beat())
            try:
                await self._forward()
            finally:
                beating.cancel()
                with suppress(asyncio.CancelledError):
                    await beating

    # ---- from the market

    async def _forward(self) -> None:
        async with self._listening(self.feed.next_sequence or "beginning") as listener:
            self.ready.set()
            async for batch in listener:
                self.receive(batch)

    def receive(self, batch: ReceivedBatch) -> None:
        """Send what a batch gives."""
        counts = self.counts
        waited = self.feed.is_waiting
        sequences, releases = batch.sequences, batch.releases
        bounds = np.flatnonzero(np.diff(sequences)) + 1
        starts = [0, *bounds.tolist()] if len(sequences) else []
        following = batch.first_sequence
        for start, stop in zip(starts, [*bounds.tolist(), len(sequences)], strict=False):
            sequence = int(sequences[start])
            while following < sequence:
                self.feed.pass_over(following)
                following += 1
            for made in self.feed.take(sequence, int(releases[start]), batch.events[start:stop]):
                self._send(made)
            following = sequence + 1
        while following <= batch.last_sequence:
            self.feed.pass_over(following)
            following += 1
        counts.messages += batch.last_sequence - batch.first_sequence + 1
        counts.events += len(batch)
        if self.feed.is_waiting and not waited:
            rule = "a session that is not known from its beginning cannot be numbered: waiting for the next day's"
            self._told(f"sequence {batch.first_sequence} does not follow what is known; {rule}")

    def _send(self, made: EdgeBlock | SessionEnd) -> None:
        if isinstance(made, SessionEnd):
            self.counts.sessions_ended += 1
            self._ending[made.session] = made, END_HEARTBEATS
            self._outlets[made.stripe].send([end_of_session(made.session, made.next_number)])
            return
        packets = made.packets()
        self.counts.itch_messages += made.count
        if made.release < time_ns() - STALE_NS:
            self.counts.not_sent += 1
            return
        self.counts.packets += len(packets)
        self._quiet[made.stripe] = False
        self._outlets[made.stripe].send(packets)

    # ---- by itself

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.beat()

    def beat(self) -> None:
        """Say the next number where nothing was sent since the last time, and ends of sessions again."""
        self._allowance = ANSWERS_A_SECOND
        for stripe, session, number in self.feed.running:
            if self._quiet.get(stripe, True):
                self.counts.heartbeats += 1
                self._outlets[stripe].send([heartbeat(session, number)])
            self._quiet[stripe] = True
        for name, (end, left) in list(self._ending.items()):
            self._outlets[end.stripe].send([end_of_session(end.session, end.next_number)])
            if left > 1:
                self._ending[name] = end, left - 1
            else:
                del self._ending[name]

    # ---- asked by others

    def _answer(self, asked: socket.socket) -> None:
        for _ in range(_REQUESTS_AT_ONCE):
            try:
                raw, sender = asked.recvfrom(HEADER_BYTES + 1)
            except OSError:
                return
            self.counts.requests += 1
            if self._allowance <= 0:
                self.counts.refused += 1
                continue
            self._allowance -= 1
            try:
                packet = self.feed.answer(parse_request(raw))
            except RemoteProtocolError:
                self.counts.refused += 1
                continue
            if packet:
                with suppress(OSError):
                    asked.sendto(packet, sender)
                    self.counts.answered += 1


def _request_socket(where: Endpoint) -> socket.socket:
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        asked.settimeout(0)
        asked.bind((where.address, where.port))
    except OSError as reason:
        asked.close()
        raise TransportError(f"cannot hear requests at {where}: {reason.strerror}") from None
    return asked
