"""Asking retransmit servers: by datagram for a few messages, at their doors for many (§4.1; protocol §7).

A gap that outlives the lines' difference is asked of the first server, k_r times, then of the next one. The repairs are
multicast, so whoever else lost the same is served too. Who lacks more than `ask_max` was away, not unlucky: it fetches
ranges at a door, as does who was not answered, and who lacks what nobody else does: what was sent while it was
away, or did not read.

Servers that give nothing in two rounds are down or stuck. Then receivers are asked, too, where they have doors; at
once if every server says that it is behind. What is missing stays missing until it comes: only when every door there
is says, in one round, that it has nothing of it, is it taken for something that was never sent.

While no line says anything new, doors are asked now and then whether there is more: the lines may be those of dead
receivers.

By datagram a customer asks for no more than a server gives it. What is lost again and again is fetched, before the
server must refuse it.

That a message is lost for good is believed only when every server's door says so. A datagram may say it too, but it
only hurries the question along: whoever holds the edge key could have sent it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isocast.hierarchy.arbitration import Arbitration
from isocast.hierarchy.archive import Bucket
from isocast.hierarchy.edge import FetchRange, GapOpened, RangeArrived, RepairUnanswered
from isocast.hierarchy.gaps import Gap, Gaps, split_runs
from isocast.ring.effects import Unicast
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Range, RangeReply, RangeRequest

__all__ = ["Repairs"]

_NEAR = 3
"""Runs with at most two messages between them are asked for as one: a request costs as much as a repair."""
_PATIENT_ROUNDS = 2
"""Rounds over all servers before the last resorts are asked, too."""
_BACKOFF_MAX = 16
"""Rounds over all servers are at most this many retry intervals apart."""
_PROBES = (16, 64)
"""Retry intervals between two questions whether there is more, at first and at most."""
_SHARE_RATE, _SHARE_BURST = 3_000, 1_536
"""Messages a second, and at once, that are asked of one server by datagram: three quarters of what it gives, since
requests that the network delays arrive together."""


@dataclass(slots=True)
class _Fetch:
    """What a door was asked for."""

    server: NodeId
    first: int
    last: int
    give_up_at: int
    advanced: bool = False
    """Whether a part of the answer brought something."""
    probe: bool = False
    """Whether nothing is known to be missing."""


class Repairs:
    """One customer's requests."""

    def __init__(
        self, arbitration: Arbitration, gaps: Gaps, missing: Callable[[int, int], list[tuple[int, int]]]
    ) -> None:
        """Nothing was asked for yet; `missing` says which runs of a range are neither delivered nor held."""
        settings = arbitration.settings
        self.rounds = 0
        """Rounds over all servers since the last progress."""
        self._arbitration = arbitration
        self._gaps = gaps
        self._missing = missing
        self._settings = settings
        self._exhausted = settings.retries_max * len(settings.servers) if settings.by_datagram else 0
        self._doors = (*settings.servers, *[door for door in settings.last_resorts if door not in settings.servers])
        self._fetch: _Fetch | None = None
        self._turn = 0
        self._not_before = -NEVER
        self._wants_fetch = False
        self._low_water: dict[NodeId, int] = {}
        self._behind: dict[NodeId, int] = {}
        """The newest of each door that, in this round, had nothing of what is missing."""
        self.refuted: int | None = None
        """Every door was asked in one round, and has nothing beyond this; None while that is not so."""
        self._shares: dict[NodeId, Bucket] = {}
        self._probes = 0
        """Since one of them brought something."""
        self._probe_at = -NEVER

    @property
    def doors(self) -> tuple[NodeId, ...]:
        """Whoever may be asked for ranges, in the order of asking."""
        return self._doors

    @property
    def wake_at(self) -> int:
        """When to poll, gaps apart."""
        if self._fetch is not None:
            return self._fetch.give_up_at
        return self._not_before if self._wants_fetch else NEVER

    @property
    def fetching(self) -> bool:
        """Whether a door was asked and has not answered."""
        return self._fetch is not None

    def poll(self, following: int, overflown: int, now: int) -> None:
        """Look at the gaps that are due, and keep the fetch going."""
        if self._fetch is not None and now >= self._fetch.give_up_at:
            self.on_failed(self._fetch.server, following, now)
        if now >= self._gaps.wake_at:
            self._look(now)
        self._go_on(following, overflown, now)

    # By datagram --------------------------------------------------------------------------------

    def _look(self, now: int) -> None:
        due: list[tuple[Gap, list[tuple[int, int]]]] = []
        total = 0
        for gap in self._gaps.due(now):
            runs = self._missing(gap.first, gap.last)
            if not runs:
                # All of it is held, and waits for a lower gap.
                gap.next_at = NEVER
                continue
            missing = sum([last - first + 1 for first, last in runs])
            total += missing
            if not gap.told:
                gap.told = True
                self._arbitration.counters.gaps += 1
                self._arbitration.out.append(GapOpened(runs[0][0], runs[-1][1], missing))
            due.append((gap, runs))
        wanted: dict[NodeId, list[tuple[int, int]]] = {}
        for gap, runs in due:
            if gap.alone or total > self._settings.ask_max or gap.attempts >= self._exhausted:
                gap.spent = True
                gap.next_at = NEVER
                continue
            server = self._settings.servers[gap.attempts // self._settings.retries_max]
            if not self._has_share(server, runs, now):
                gap.spent = True
                gap.next_at = NEVER
                continue
            wanted.setdefault(server, []).extend(runs)
            gap.attempts += 1
            gap.next_at = now + self._settings.retry_ns
        self._gaps.rearm()
        for server, runs in wanted.items():
            self._request(server, runs)

    def _has_share(self, server: NodeId, runs: list[tuple[int, int]], now: int) -> bool:
        """Whether the server will answer so much, by what it was asked for lately; if so, it is asked for."""
        share = self._shares.setdefault(server, Bucket(_SHARE_RATE, _SHARE_BURST))
        asked = sum([last - first + 1 for first, last in split_runs(runs, self._settings.range_max, _NEAR)])
        if asked > share.room(now):
            return False
        share.take(asked, now)
        return True

    def _request(self, server: NodeId, runs: list[tuple[int, int]]) -> None:
        """One RXREQ for each range, as many as may be sent at a time; the next attempt names the rest."""
        settings, arbitration = self._settings, self._arbitration
        for first, last in split_runs(runs, settings.range_max, _NEAR)[: settings.requests_max]:
            arbitration.counters.requests += 1
            arbitration.counters.asked += last - first + 1
            packet = RangeRequest(settings.stripe, NO_EPOCH, arbitration.node, Range.SEQUENCES, first, last)
            arbitration.out.append(Unicast(server, packet))

    def on_reply(self, reply: RangeReply, now: int) -> None:
        """A server says that it does not keep so old messages: do not wait for it."""
        settings = self._settings
        if reply.kind is not Range.SEQUENCES or reply.sender not in settings.servers:
            self._arbitration.counters.strange += 1
            return
        turn = settings.servers.index(reply.sender)
        for gap in self._gaps:
            if gap.first >= reply.low_water:
                break
            if gap.attempts and not gap.spent and (gap.attempts - 1) // settings.retries_max == turn:
                gap.attempts = (turn + 1) * settings.retries_max
                gap.next_at = now
        self._gaps.rearm()

    # At doors -----------------------------------------------------------------------------------

    def reconsider(self, overflown: int) -> None:
        """Whether what delivery waits for must be fetched."""
        lowest = self._gaps.lowest
        self._wants_fetch = overflown > 0 or (lowest is not None and lowest.spent)
        if not self._wants_fetch and self._turn >= len(self._settings.servers):
            self._turn = 0
            self._behind.clear()

    def _go_on(self, following: int, overflown: int, now: int) -> None:
        """Fetch what delivery waits for, if it cannot be had by datagram."""
        self.reconsider(overflown)
        if not self._wants_fetch or self._fetch is not None or now < self._not_before:
            return
        settings, first = self._settings, following
        last = limit = first + settings.fetch_max - 1
        if not overflown:
            last = first
            for gap in self._gaps:
                if not gap.spent or gap.first > limit:
                    break
                last = min(gap.last, limit)
        server = self._doors[self._turn]
        self._fetch = _Fetch(server, first, last, now + settings.retries_max * settings.retry_ns)
        self._arbitration.counters.fetches += 1
        self._arbitration.out.append(FetchRange(server, first, last))

    def on_range(self, event: RangeArrived, following: int, *, advanced: bool, now: int) -> int:
        """A door answered; return the sequence below which nothing can be had anywhere, or 0."""
        self.refuted = None
        if event.server in self._settings.servers:
            self._low_water[event.server] = event.low_water
        if self._fetch is None or self._fetch.server != event.server:
            return 0
        fetch, self._fetch = self._fetch, None
        if advanced or fetch.advanced:
            self.rounds = self._probes = 0
            self._not_before = now
            self._behind.clear()
            return 0
        if fetch.probe:
            return 0
        self._not_before = now
        if event.newest < following:
            self._behind[event.server] = event.newest
        if event.low_water > following:
            floor = min(self._low_water.values(), default=0)
            if len(self._low_water) == len(self._settings.servers) and floor > following:
                self.rounds = 0
                return floor
        self._rotate(fetch, now)
        return 0

    def on_part(self, server: NodeId, *, advanced: bool, now: int) -> None:
        """A door is answering: it is given as long again for the rest."""
        if self._fetch is not None and self._fetch.server == server:
            self._fetch.give_up_at = now + self._settings.retries_max * self._settings.retry_ns
            self._fetch.advanced |= advanced
            if advanced:
                self.rounds = 0

    def on_failed(self, server: NodeId, following: int, now: int) -> None:
        """A door did not answer: try the next; after all of them, wait."""
        if self._fetch is None or self._fetch.server != server:
            return
        fetch, self._fetch = self._fetch, None
        fetch.first = following
        if not fetch.probe:
            self._rotate(fetch, now)

    def _rotate(self, fetch: _Fetch, now: int) -> None:
        """Ask the next door; after the last, wait, and see whether anybody may have what is missing."""
        servers, behind = self._settings.servers, self._behind
        patient = self.rounds < _PATIENT_ROUNDS and not all(server in behind for server in servers)
        asked = servers if patient else self._doors
        self._turn += 1
        self._not_before = now
        if self._turn >= len(asked):
            if all(door in behind for door in self._doors):
                self.refuted = max(behind.values())
            behind.clear()
            self._turn = 0
            self.rounds += 1
            self._not_before = now + self._settings.retry_ns * min(1 << min(self.rounds, 16), _BACKOFF_MAX)
            self._arbitration.out.append(RepairUnanswered(fetch.first, fetch.last, self.rounds))

    # Without a gap ------------------------------------------------------------------------------

    def probe(self, following: int, now: int) -> None:
        """No line says anything new: ask one door after the other whether there is more."""
        if self._fetch is not None or self._wants_fetch or now < self._probe_at:
            return
        settings = self._settings
        first, most = _PROBES
        wait_ns = settings.retry_ns * min(first << min(self._probes // len(self._doors), 16), most)
        self._probe_at = now + wait_ns
        server = self._doors[self._probes % len(self._doors)]
        self._probes += 1
        give_up_at = now + settings.retries_max * settings.retry_ns
        self._fetch = _Fetch(server, following, following + settings.fetch_max - 1, give_up_at, probe=True)
        self._arbitration.counters.fetches += 1
        self._arbitration.out.append(FetchRange(server, self._fetch.first, self._fetch.last))

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back: nothing waits for the difference."""
        self._shares.clear()
        self._probe_at = min(self._probe_at, now + _PROBES[1] * longest_ns)
        self._not_before = min(self._not_before, now + longest_ns)
        if self._fetch is not None:
            self._fetch.give_up_at = min(self._fetch.give_up_at, now + self._settings.retries_max * longest_ns)
