"""Grade `complete`: every message, in order, each once (§4.1 "guaranteed delivery"; L5); gaps are repaired by servers.

    next ─ delivered up to here          top ─ gaps and held packets describe everything up to here
    ───────┼───────gap───held held──gap──held──────┼──────────▶ claimed: what some line has spoken of
           └──────────── at most hold_max ─────────┘

A packet beyond `hold_max` is dropped and only its sequence remembered: memory stays bounded whatever lines send, and
what was dropped is fetched in ranges at a server's door.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isocast.hierarchy.archive import Bucket
from isocast.hierarchy.edge import (
    Deliver,
    FetchFailed,
    FetchRange,
    GapAbandoned,
    GapClosed,
    GapOpened,
    RangeArrived,
    RangeContinued,
    RepairUnanswered,
    TokensPassed,
)
from isocast.hierarchy.gaps import Gap, Gaps, missing_runs, split_runs
from isocast.hierarchy.line_sender import INSTANT_BYTES
from isocast.hierarchy.lines import Arbitration, Line
from isocast.ring.effects import Unicast
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Packet, Range, RangeReply, RangeRequest, ReleasedPacket

__all__ = ["Complete", "Repairs"]


# Asking retransmit servers: by datagram for a few messages, at their doors for many (§4.1; protocol §7).
#
# A gap that outlives the lines' difference is asked of the first server, k_r times, then of the next one. The repairs
# are multicast, so whoever else lost the same is served too. Who lacks more than `ask_max` was away, not unlucky: it
# fetches ranges at a door, as does who was not answered, and who lacks what nobody else does: what was sent while it
# was away, or did not read.
#
# Servers that give nothing in two rounds are down or stuck. Then receivers are asked, too, where they have doors; at
# once if every server says that it is behind. What is missing stays missing until it comes: only when every door there
# is says, in one round, that it has nothing of it, is it taken for something that was never sent.
#
# While no line says anything new, doors are asked now and then whether there is more: the lines may be those of dead
# receivers.
#
# By datagram a customer asks for no more than a server gives it. What is lost again and again is fetched, before the
# server must refuse it.
#
# That a message is lost for good is believed only when every server's door says so. A datagram may say it too, but it
# only hurries the question along: whoever holds the edge key could have sent it.


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
        """The doors that may be asked for ranges, in the order of asking."""
        return self._doors

    @property
    def wake_at(self) -> int:
        """When to poll, gaps apart."""
        if self._fetch is not None:
            return self._fetch.give_up_at
        return self._not_before if self._wants_fetch else NEVER

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


class Complete:
    """Orders what the lines bring, and has the rest repaired."""

    repairs_class: type[Repairs] = Repairs

    def __init__(self, arbitration: Arbitration) -> None:
        """Nothing is expected before `start`."""
        self.next = 1
        """The sequence to be delivered next."""
        self.top = 0
        """The highest sequence that is held, delivered, or part of a gap."""
        self.claimed = 0
        """The highest sequence that any line has spoken of, as far as it is believed."""
        self.held: dict[int, ReleasedPacket] = {}
        self.gaps = Gaps(arbitration.settings.gap_ns)
        self.repairs = self.repairs_class(arbitration, self.gaps, self.missing)
        self.alone = False
        """Whether what is found missing now is missed by this customer alone."""
        self._returned_at = 0
        self._arbitration = arbitration
        self._reach = arbitration.settings.hold_max
        self._gaps_max = arbitration.settings.gaps_max
        self._stripe = arbitration.settings.stripe
        self._passing: list[TokensPassed] = []
        """What lines say of their tokens: the oldest that is not reached yet, and the newest."""
        self._passed = 0

    @property
    def overflown(self) -> int:
        """How far the lines are beyond what the buffer can reach, 0 if they are not."""
        ahead = self.claimed - self.next
        return ahead if ahead >= self._reach else 0

    def start(self, sequence: int, *, returns: bool = False) -> None:
        """Begin to expect `sequence`; what is older is not wanted. One that `returns` was away meanwhile."""
        self.next, self.top = sequence, sequence - 1
        self.claimed = max(self.claimed, self.top)
        self.held = {}
        self.gaps.clear()
        self._returned_at = sequence if returns else 0

    # Packets ------------------------------------------------------------------------------------

    def take(self, packets: Sequence[Packet], now: int, *, door: bool = False) -> None:
        """A burst, in the order in which it came. Kept flat: this runs for every packet of every line."""
        arbitration, held, stripe = self._arbitration, self.held, self._stripe
        recent, came, mask = arbitration.recent.packets, arbitration.recent.came, arbitration.recent.mask
        following = self.next
        run: list[ReleasedPacket] = []
        line: Line | None = None
        owner: NodeId = -1
        wins = duplicates = duplicate = 0
        for packet in packets:
            if type(packet) is not ReleasedPacket:
                self._on_reply(packet, now)
                continue
            if packet.sender != owner:
                if line is not None:
                    arbitration.burst_over(line, wins, duplicates, duplicate, now)
                owner, wins, duplicates, duplicate = packet.sender, 0, 0, 0
                line = arbitration.lines.door if door else arbitration.lines.by_owner.get(owner)
            if line is None or packet.stripe != stripe or packet.count != 1:
                self._on_other(line, packet, following, now)
                continue
            sequence = packet.sequence
            if sequence == following:
                slot = sequence & mask
                recent[slot], came[slot] = packet, now
                run.append(packet)
                wins += 1
                following += 1
                if following in held:
                    following = self._drain(following, run, now)
            elif sequence < following:
                duplicates += 1
                kept = recent[sequence & mask]
                if kept is None or kept.sequence != sequence:
                    # Older than everything remembered, so at least as late as the oldest of that.
                    arbitration.counters.old += 1
                    duplicate = following - 1 - mask
                else:
                    duplicate = sequence
                    if kept.payload != packet.payload or kept.shuffle_key != packet.shuffle_key:
                        arbitration.conflict(kept, packet, line)
            elif self._hold(line, packet, following, now):
                wins += 1
            else:
                duplicates += 1
        if line is not None:
            arbitration.burst_over(line, wins, duplicates, duplicate, now)
            line.newest = max(line.newest, following - 1) if run else line.newest
        self._advance(following, run, now)

    def _hold(self, line: Line, packet: ReleasedPacket, following: int, now: int) -> bool:
        """A packet ahead of its turn: keep it if the buffer reaches so far; whether it was the first copy."""
        sequence = packet.sequence
        line.newest = max(line.newest, sequence)
        if sequence - following >= self._reach:
            self._beyond(line, sequence, now)
            return False
        kept = self.held.get(sequence)
        if kept is not None:
            if kept.payload != packet.payload or kept.shuffle_key != packet.shuffle_key:
                self._arbitration.conflict(kept, packet, line)
            return False
        self.held[sequence] = packet
        self._reveal(max(self.top, following - 1), sequence - 1, now)
        self.top = max(self.top, sequence)
        return True

    def _drain(self, following: int, run: list[ReleasedPacket], now: int) -> int:
        """Take what was held from `following` on; return the sequence after it."""
        held, recent = self.held, self._arbitration.recent
        while following in held:
            slot = following & recent.mask
            recent.packets[slot], recent.came[slot] = packet, _ = held.pop(following), now
            run.append(packet)
            following += 1
        return following

    def _on_other(self, line: Line | None, packet: ReleasedPacket, following: int, now: int) -> None:
        """A heartbeat, or something strange."""
        if line is None or packet.stripe != self._stripe or packet.count != 0 or packet.sequence == 0:
            self._arbitration.counters.strange += packet.sender != self._arbitration.node
            return
        line.heartbeat(packet, now)
        if len(packet.payload) == INSTANT_BYTES:
            instant = int.from_bytes(packet.payload, "little", signed=True)
            if instant > (self._passing[-1].instant if self._passing else self._passed):
                self._passing[1:] = [TokensPassed(instant, packet.sequence)]
        announced = packet.sequence - 1
        if announced - following >= self._reach:
            self._beyond(line, announced, now)
        else:
            self.claimed = max(self.claimed, announced)

    def _beyond(self, line: Line, sequence: int, now: int) -> None:
        """Out of reach: remember how far the lines are, as far as this one is believed."""
        line.beyond += 1
        self._arbitration.counters.beyond += 1
        if now >= line.distrusted_until:
            self.claimed = max(self.claimed, sequence)

    def _on_reply(self, packet: Packet, now: int) -> None:
        if isinstance(packet, RangeReply) and packet.stripe == self._stripe:
            self.repairs.on_reply(packet, now)
        else:
            self._arbitration.counters.strange += 1

    def _reveal(self, top: int, last: int, now: int) -> None:
        """Everything above `top` up to `last` is missing."""
        if last <= top:
            return
        if len(self.gaps) >= self._gaps_max:
            self.gaps.widen(last, now)
        else:
            # What was sent while this customer was away, it alone does not have.
            self.gaps.add(top + 1, last, now, alone=self.alone or top + 1 == self._returned_at)

    def _advance(self, following: int, run: list[ReleasedPacket], now: int) -> None:
        """Hand on what is in order, close the gaps that it passed, and look how far the lines are."""
        arbitration = self._arbitration
        if run:
            arbitration.counters.delivered += len(run)
            arbitration.out.append(Deliver(tuple(run)))
        self.next = following
        self.top = max(self.top, following - 1)
        troubled = len(self.gaps) > 0
        if troubled:
            self._tell_closed(self.gaps.passed(following), now)
        if self.claimed > self.top:
            limit = min(self.claimed, following + self._reach - 1)
            self._reveal(self.top, limit, now)
            self.top = max(self.top, limit)
        elif self.claimed < self.top:
            self.claimed = self.top
        if troubled or len(self.gaps):
            self.repairs.reconsider(self.overflown)
        while self._passing and self._passing[0].next_sequence <= following:
            told = self._passing.pop(0)
            self._passed = told.instant
            arbitration.out.append(told)

    def _tell_closed(self, gaps: list[Gap], now: int) -> None:
        for gap in gaps:
            if gap.told:
                self._arbitration.out.append(GapClosed(gap.first, gap.last, now - gap.seen_at))

    # Repairs ------------------------------------------------------------------------------------

    def poll(self, now: int) -> None:
        """Ask for what is due."""
        self.repairs.poll(self.next, self.overflown, now)

    def next_deadline(self) -> int:
        """When to poll."""
        return min(self.gaps.wake_at, self.repairs.wake_at)

    def on_range(self, event: RangeArrived, now: int) -> None:
        """A door answered."""
        before = self.next
        self.take(event.packets, now, door=True)
        if event.server in self.repairs.doors and event.newest > self.claimed:
            # What a door has exists, whether or not the lines that are heard have spoken of it.
            self.claimed = max(self.claimed, min(event.newest, self.next + self._reach - 1))
            self._advance(self.next, [], now)
        floor = self.repairs.on_range(event, self.next, advanced=self.next > before, now=now)
        if self.repairs.refuted is not None:
            self._refute(self.repairs.refuted, now)
        if floor > self.next:
            self._abandon(floor, now)
        self.poll(now)

    def probe(self, now: int) -> None:
        """No line says anything new: ask whether there is more."""
        self.repairs.probe(self.next, now)

    def on_part(self, event: RangeContinued, now: int) -> None:
        """A door is answering."""
        before = self.next
        self.take(event.packets, now, door=True)
        self.repairs.on_part(event.server, advanced=self.next > before, now=now)

    def on_failed(self, event: FetchFailed, now: int) -> None:
        """A door did not answer."""
        self.repairs.on_failed(event.server, self.next, now)
        self.poll(now)

    def _refute(self, newest: int, now: int) -> None:
        """No door there is has anything beyond `newest`: what is missing was never sent, or will be claimed again."""
        arbitration = self._arbitration
        refuted = arbitration.lines.refute(newest, now)
        arbitration.out.extend(refuted)
        if not refuted and self.overflown:
            return
        limit = max([newest, self.next - 1, *self.held])
        if limit < self.top:
            self._tell_closed(self.gaps.retract(limit), now)
            self.top = self.claimed = limit

    def _abandon(self, floor: int, now: int) -> None:
        """No server keeps anything below `floor`: what is not held is lost, and people must know."""
        arbitration = self._arbitration
        self.gaps.passed(floor)
        for sequence in [*sorted([sequence for sequence in self.held if sequence < floor]), floor]:
            if sequence < self.next:
                continue
            if sequence > self.next:
                lost = sequence - self.next
                arbitration.counters.abandoned += lost
                arbitration.out.append(GapAbandoned(self.next, sequence - 1, lost))
            run: list[ReleasedPacket] = []
            self._advance(self._drain(sequence, run, now), run, now)

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """What of a range is neither delivered nor held."""
        return missing_runs(max(first, self.next), last, self.held)

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back."""
        self.gaps.set_back(now, longest_ns)
        self.repairs.set_back(now, longest_ns)
