"""A gateway from the market to the clear edge feed: a complete customer that sends what it gets as MoldUDP64.

Packets go to a group for each edge stripe, at once and in order. A gateway that fell behind sends what was released
since it was started, late and paced: customers wait for it. What was released before that is history, which customers
have or do not want: it is archived, numbered and not sent. So is what is minutes late. Heartbeats and the next packet
show the gap, and requests fill it: they come by unicast, and each is answered with one packet to whoever asked.

Every ITCH message is counted once: sent live, sent late, or not sent, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from time import monotonic, time_ns
from typing import TypeAlias

import numpy as np

from isocast.feeds.mold import SessionEnd, end_of_session, heartbeat
from isocast.runtime.client.listener import Listener
from isocast.runtime.client.received import ReceivedBatch
from isocast.runtime.edge.feed import EdgeBlock, EdgeFeed
from isocast.runtime.edge.narrow.archive import ANSWERS_A_SECOND, DeskCounts, RequestDesk
from isocast.runtime.net.sockets import Endpoint, Outlet, multicast_outlet
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

__all__ = ["GatewayCounts", "ItchGateway", "groups_of"]

OpenListener: TypeAlias = "Callable[[int | str], Listener]"
"""A listener that begins with a sequence, or with the beginning."""

HEARTBEAT_S = 1.0
END_HEARTBEATS = 30
"""How often the end of a session is said, once a second."""
LATE_NS = 10**9
"""What leaves longer after its release is late."""
STALE_NS = 10 * 10**9
"""What was released longer before the gateway was started is history, and so far behind it says that it is."""
OLD_NS = 300 * 10**9
"""What is later than this is history too: a gateway that stood still must not hold up what is new."""
BEFORE_START = "released before this gateway was started"
TOO_LATE = f"more than {OLD_NS // (60 * 10**9)} minutes late"
NOT_TAKEN = "the network did not take the packets"
LATE_BURST = 32
"""Late packets between two pauses of a millisecond, so that no customer's socket overflows."""
TELL_S = 1.0
"""Between two lines about a long restart."""
_PAUSE_S = 0.001
_TURN = 64
"""Messages of the sequence after which requests, heartbeats and signals have their turn."""
_LAST_GROUP = int(IPv4Address("239.255.255.255"))


@dataclass(slots=True)
class GatewayCounts(DeskCounts):
    """What happened so far, requests included."""

    messages: int = 0
    """Of the sequence."""
    events: int = 0
    opaque: int = 0
    """Opaque messages, for which ITCH has no form: they stay out of the feed."""
    unreadable: int = 0
    """Messages of the sequence that are neither events nor opaque messages."""
    itch_messages: int = 0
    """All that got a number: those sent live, sent late, and not sent."""
    sent_live: int = 0
    """ITCH messages that left within a second of their release."""
    sent_late: int = 0
    """ITCH messages that left later."""
    not_sent: int = 0
    """ITCH messages that are archived and were not multicast: customers that lack them ask."""
    not_sent_why: dict[str, int] = field(default_factory=dict)
    """The same by reason."""
    latest_ns: int = 0
    """The longest that something left after its release."""
    packets: int = 0
    """That left, without heartbeats and ends of sessions."""
    heartbeats: int = 0
    sessions_ended: int = 0


def groups_of(first: str, port: int, count: int) -> list[Endpoint]:
    """One group after another, all with the same port."""
    try:
        base = IPv4Address(first)
    except AddressValueError:
        raise ConfigurationError("command line", "--group", f"{first} is not an IPv4 address") from None
    if not base.is_multicast or int(base) + count - 1 > _LAST_GROUP:
        rule = f"{first}: {count} groups from there on are not all multicast groups"
        raise ConfigurationError("command line", "--group", rule)
    return [Endpoint(str(base + place), port) for place in range(count)]


class ItchGateway:
    """Runs until it is cancelled."""

    def __init__(
        self,
        feed: EdgeFeed,
        listening: OpenListener,
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
        self._started = time_ns()
        self._is_behind = False
        self._late_packets = 0
        self.ready = asyncio.Event()
        """Set when it hears the market."""

    async def run(self) -> None:
        """Restore, then send for ever. The port of requests is bound once they can be answered."""
        with ExitStack() as stack:
            stack.callback(self.feed.close)
            for stripe, group in self._groups.items():
                outlet = multicast_outlet(group.address, group.port, self._interface, ttl=self._ttl)
                self._outlets[stripe] = stack.enter_context(outlet)
            # A port that is taken is known before a long restart, not after it.
            self._desk().close()
            await self._restore()
            desk = stack.enter_context(closing(self._desk()))
            self.requests = desk.where
            loop = asyncio.get_running_loop()
            loop.add_reader(desk, desk.read)
            stack.callback(loop.remove_reader, desk)
            beating = asyncio.create_task(self._beat())
            try:
                await self._forward()
            finally:
                beating.cancel()
                with suppress(asyncio.CancelledError):
                    await beating

    def _desk(self) -> RequestDesk:
        return RequestDesk(self.requests, self.feed, strangers=True, rate=ANSWERS_A_SECOND, counts=self.counts)

    async def _restore(self) -> None:
        """Go on where the last run ended; say how far that is, and let signals in."""
        begun = told = monotonic()
        done = total = 0
        for done, total in self.feed.restoring():
            if monotonic() - told >= TELL_S:
                told = monotonic()
                self._told(f"starting: checked {done:,} of {total:,} messages that it sent before")
            await asyncio.sleep(0)
        if told > begun:
            self._told(f"starting: all {total:,} messages are checked, in {monotonic() - begun:.1f} s")
        for text in self.feed.notes:
            self._told(text)

    # ---- from the market

    async def _forward(self) -> None:
        async with self._listening(self.feed.next_sequence or "beginning") as listener:
            self.ready.set()
            async for batch in listener:
                for place, made in enumerate(self._made(batch), 1):
                    self._send_all(made)
                    if self._late_packets >= LATE_BURST:
                        self._late_packets = 0
                        await asyncio.sleep(_PAUSE_S)
                    elif place % _TURN == 0:
                        await asyncio.sleep(0)

    def receive(self, batch: ReceivedBatch) -> None:
        """Send what a batch gives, all of it at once."""
        for made in self._made(batch):
            self._send_all(made)

    def _made(self, batch: ReceivedBatch) -> Iterator[list[EdgeBlock | SessionEnd]]:
        """What each message of a batch gives: it is on disk, so that nothing may come between it and its sending."""
        waited = self.feed.is_waiting
        self.counts.opaque += len(batch.opaque)
        self.counts.unreadable += batch.unreadable
        sequences, releases = batch.sequences, batch.releases
        bounds = np.flatnonzero(np.diff(sequences)) + 1
        starts = [0, *bounds.tolist()] if len(sequences) else []
        following = batch.first_sequence
        for start, stop in zip(starts, [*bounds.tolist(), len(sequences)], strict=False):
            sequence = int(sequences[start])
            self._pass_over(following, sequence)
            self.counts.messages += 1
            self.counts.events += stop - start
            yield list(self.feed.take(sequence, int(releases[start]), batch.events[start:stop]))
            following = sequence + 1
        self._pass_over(following, batch.last_sequence + 1)
        if self.feed.is_waiting and not waited:
            rule = (
                "the beginning of this session is unknown, so its messages cannot be numbered: waiting for the next day"
            )
            self._told(f"sequence {batch.first_sequence} does not follow what is known; {rule}")

    def _pass_over(self, first: int, following: int) -> None:
        """Messages without events."""
        for sequence in range(first, following):
            self.feed.pass_over(sequence)
            self.counts.messages += 1

    def _send_all(self, made: list[EdgeBlock | SessionEnd]) -> None:
        for one in made:
            if isinstance(one, SessionEnd):
                self.counts.sessions_ended += 1
                self._ending[one.session] = one, END_HEARTBEATS
                self._outlets[one.stripe].send([end_of_session(one.session, one.next_number)])
            else:
                self._send(one)

    def _send(self, block: EdgeBlock) -> None:
        """A block, unless it is history; every one of its messages is counted once."""
        counts = self.counts
        counts.itch_messages += block.count
        late = time_ns() - block.release
        self._watch(late)
        if block.release < self._started - STALE_NS:
            self._keep_back(block, BEFORE_START)
            return
        if late > OLD_NS:
            self._keep_back(block, TOO_LATE)
            return
        packets, outlet = block.packets(), self._outlets[block.stripe]
        unsent = outlet.unsent
        outlet.send(packets)
        refused = outlet.unsent - unsent
        counts.packets += len(packets) - refused
        if refused:
            self._keep_back(block, NOT_TAKEN)
            return
        self._quiet[block.stripe] = False
        counts.latest_ns = max(counts.latest_ns, late)
        if late > LATE_NS:
            counts.sent_late += block.count
            self._late_packets += len(packets)
        else:
            counts.sent_live += block.count

    def _keep_back(self, block: EdgeBlock, why: str) -> None:
        """Archived and not multicast: heartbeats and the next packet show the gap."""
        self.counts.not_sent += block.count
        self.counts.not_sent_why[why] = self.counts.not_sent_why.get(why, 0) + block.count

    def _watch(self, late: int) -> None:
        """Say that it fell behind, and that it is no longer."""
        counts = self.counts
        if late > STALE_NS and not self._is_behind:
            self._is_behind = True
            self._told(f"{late / 10**9:.1f} s behind the releases: messages go out late, or are kept for requests only")
        elif late <= LATE_NS and self._is_behind:
            self._is_behind = False
            done = f"{counted(counts.sent_late, 'ITCH message')} sent late so far, {counts.not_sent:,} not multicast"
            self._told(f"up to date: {done}")

    # ---- by itself

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.beat()

    def beat(self) -> None:
        """Say the next number where nothing was sent since the last time, and ends of sessions again."""
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
