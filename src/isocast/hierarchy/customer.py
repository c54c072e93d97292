"""A customer, R (§4.1; protocol §7): where it begins, which lines it follows, grade `latest`, and the machine of both.

Everything that a customer keeps is bounded. Whatever happens to it, it asks nobody but retransmit servers, and those
give each customer a bounded share: a slow customer loses what its own sockets drop, notices it by the gap, and fetches
it again without anybody else noticing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar, assert_never

from isocast.hierarchy.complete import Complete
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    CustomerCaughtUp,
    CustomerEffect,
    CustomerInput,
    CustomerSlow,
    DeliverLatest,
    DeliverSnapshot,
    FetchFailed,
    FetchSnapshot,
    GapAbandoned,
    LinesPlanned,
    LineSwitched,
    MarketGoesOn,
    MarketWaits,
    RangeArrived,
    RangeContinued,
    RepairUnanswered,
    Slowness,
    SnapshotArrived,
    Waiting,
)
from isocast.hierarchy.gaps import Gaps, missing_runs
from isocast.hierarchy.latest import LatestTable
from isocast.hierarchy.lines import Arbitration, Counters, Line, LineView
from isocast.hierarchy.proving import ProofCheck, ProofTerms
from isocast.ring.inputs import ClockJudged, PacketsArrived, TimerFired
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Packet, ReleasedPacket

__all__ = ["Customer", "CustomerSnapshot", "Joining", "LineChoice", "Newest"]


_Fetched = TypeVar("_Fetched", RangeArrived, RangeContinued)

# Where a customer begins (protocol §7: "late joiners of every kind").
#
# now        with what the lines send next: as soon as two of them have spoken, or one for as long as a gap may last
# snapshot   with the message after a server's snapshot; what the lines bring meanwhile is held
#
# A single line's word is not enough while others may speak: a customer that began beyond all other lines would
# wait for ever.


_ENOUGH = 2
_BACKOFF_MAX = 16
"""Rounds over all servers are at most this many retry intervals apart."""


class Joining:
    """Listens until it is known with which sequence to begin."""

    def __init__(self, arbitration: Arbitration, *, snapshot: bool) -> None:
        """Nothing was heard yet; `snapshot` says that only a server's snapshot will do."""
        self.held: dict[int, ReleasedPacket] = {}
        """What the lines brought meanwhile, a bounded number of messages."""
        self.first: int | None = None
        """Where to begin, once it is known."""
        self._arbitration = arbitration
        self._settings = arbitration.settings
        self._snapshot = snapshot
        self._claims: dict[NodeId, int] = {}
        self._decide_at = NEVER
        self._asking: NodeId | None = None
        self._turn = 0
        self._rounds = 0
        self._ask_at = 0 if snapshot else NEVER

    def take(self, packets: Sequence[Packet], now: int) -> None:
        """Hear where the lines are."""
        settings, arbitration = self._settings, self._arbitration
        for packet in packets:
            line = arbitration.lines.by_owner.get(packet.sender)
            fits = type(packet) is ReleasedPacket and packet.stripe == settings.stripe and packet.count <= 1
            if line is None or type(packet) is not ReleasedPacket or not fits or packet.sequence == 0:
                arbitration.counters.strange += packet.sender != arbitration.node
                continue
            line.heard_at = now
            if not line.repairs:
                self._claims.setdefault(line.owner, packet.sequence)
            if packet.count == 0:
                line.heartbeat(packet, now)
                continue
            line.newest = max(line.newest, packet.sequence)
            kept = self.held.get(packet.sequence)
            if kept is not None and (kept.payload != packet.payload or kept.shuffle_key != packet.shuffle_key):
                arbitration.conflict(kept, packet, line)
            elif kept is None and len(self.held) < settings.hold_max:
                self.held[packet.sequence] = packet
        if self._claims and not self._snapshot:
            self._decide_at = min(self._decide_at, now + settings.gap_ns)
            if len(self._claims) >= _ENOUGH or len(settings.lines) == 1:
                self._decide_at = now
        self.poll(now)

    def poll(self, now: int) -> None:
        """Decide if it is time, or ask for the snapshot."""
        if self._asking is not None and now >= self._ask_at:
            self.on_failed(FetchFailed(self._asking), now)
        if self._snapshot and self._asking is None and now >= self._ask_at:
            settings = self._settings
            self._asking = settings.servers[self._turn]
            self._ask_at = now + settings.retries_max * settings.retry_ns
            self._arbitration.counters.fetches += 1
            self._arbitration.out.append(FetchSnapshot(self._asking))
        if now >= self._decide_at:
            self.first = self._choose()

    def next_deadline(self) -> int:
        """When to poll."""
        return min(self._decide_at, self._ask_at)

    def _choose(self) -> int:
        """The lowest claim among those that most lines agree with, as far as a buffer reaches."""
        claims = sorted(self._claims.values())
        reach, best, support = self._settings.hold_max, claims[0], 0
        for claim in claims:
            near = len([other for other in claims if abs(other - claim) <= reach])
            if near > support:
                best, support = claim, near
        return best

    def on_snapshot(self, event: SnapshotArrived) -> None:
        """Begin after it."""
        if not self._snapshot or event.snapshot.stripe != self._settings.stripe:
            self._arbitration.counters.strange += 1
            return
        self._arbitration.out.append(DeliverSnapshot(event.snapshot))
        self.first = event.snapshot.next_sequence

    def on_failed(self, event: FetchFailed, now: int) -> None:
        """A door did not answer: try the next; after all of them, wait."""
        if event.server != self._asking:
            return
        settings = self._settings
        self._asking, self._ask_at = None, now
        self._turn = (self._turn + 1) % len(settings.servers)
        if self._turn == 0:
            self._rounds += 1
            self._ask_at = now + settings.retry_ns * min(1 << min(self._rounds, 16), _BACKOFF_MAX)
            self._arbitration.out.append(RepairUnanswered(0, 0, self._rounds))

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back: nothing waits for the difference."""
        if self._decide_at < NEVER:
            self._decide_at = min(self._decide_at, now + self._settings.gap_ns)
        if self._ask_at < NEVER:
            self._ask_at = min(self._ask_at, now + _BACKOFF_MAX * longest_ns)


# Which line a customer follows, and whether anything can come by it (§4.1; protocol §7).
#
# Every line is heard all the time and the first copy of a message counts, so nothing has to be done when a line fails.
# But people want to know on whom they rely: the followed line is the first of the customer's own list that speaks and
# is not late.
#
# A quiet market and a dead one sound alike, but for the heartbeats. They say which token a receiver holds: while the
# ring turns, tokens come whether or not anybody publishes. If heartbeats come and tokens do not, the ring is being
# re-formed; if no heartbeat comes, nobody is there, or nothing arrives here.


class LineChoice:
    """Looks at the lines once for each heartbeat."""

    def __init__(self, settings: CustomerSettings, main: Sequence[Line]) -> None:
        """Nobody was heard yet; `main` are the receivers' lines, the preferred first."""
        self.followed: NodeId | None = None
        self.switches = 0
        """Times that another line was followed than before, the first choice apart."""
        self.waiting: Waiting | None = None
        self.waiting_since = 0
        self._main = main
        self._ring_ns = settings.ring_ns
        self._newest: tuple[Epoch, int] = (NO_EPOCH, 0)
        self._moved_at: int | None = None
        self._last: NodeId | None = None

    def tick(self, now: int) -> list[CustomerEffect]:
        """What has changed; after the lines have been looked at."""
        if self._moved_at is None or now < self._moved_at:
            self._moved_at = now
        speaking = [line for line in self._main if line.heard_at > -NEVER and not line.silent]
        told = self._choose(speaking)
        newest = max([line.held for line in self._main])
        if newest > self._newest:
            self._newest, self._moved_at = newest, now
        if all(line.silent for line in self._main):
            heard_at = max([min(line.heard_at, now) for line in self._main])
            self._wait(Waiting.SILENT, max(heard_at, 0), told)
        elif self._newest > (NO_EPOCH, 0) and now - self._moved_at > self._ring_ns:
            self._wait(Waiting.REFORMING, self._moved_at, told)
        elif speaking and self.waiting is not None:
            told.append(MarketGoesOn(self.waiting, max(now - self.waiting_since, 0) if self.waiting_since else 0))
            self.waiting, self.waiting_since = None, 0
        return told

    def slept(self, now: int) -> None:
        """The reader did not run until now: that no token came meanwhile says nothing of the ring."""
        self._moved_at = now

    def _choose(self, speaking: Sequence[Line]) -> list[CustomerEffect]:
        timely = [line for line in speaking if not line.late] or speaking
        chosen = timely[0].owner if timely else None
        if chosen == self.followed:
            return []
        self.followed = chosen
        if chosen is None or chosen == self._last:
            # Nobody speaks, or the same one does again: there is nobody else to follow.
            return []
        before, self._last = self._last, chosen
        self.switches += before is not None
        return [LineSwitched(chosen, before)]

    def _wait(self, reason: Waiting, since: int, told: list[CustomerEffect]) -> None:
        if reason is not self.waiting:
            self.waiting, self.waiting_since = reason, since
            told.append(MarketWaits(reason, since))


# Grade `latest`: the newest event of each key at once, and nothing that is stale (§4.1 "best effort", §7.1).
#
# "Once the next value of a stock is received, there is no reason for these customers to retrieve the previous price."
#
# Nothing is held and nothing is asked for. A message that comes late, by a slower line, still counts for the keys that
# nothing newer has touched. A snapshot, fetched at the start and after an absence, fills in the keys that did not
# change since; it is merged into what is there, so nobody waits for it.


_DISPUTED_TICKS = 3
"""Heartbeats for which most lines must be far below what was followed before that counts as a lie."""
_NEWEST_BACKOFF_MAX = 64
"""Snapshots that do not come are asked for at most this many retry intervals apart."""


class Newest:
    """Conflates what the lines bring."""

    table_class: type[LatestTable] = LatestTable

    def __init__(self, arbitration: Arbitration) -> None:
        """Nothing is expected before `start`."""
        settings = arbitration.settings
        self.top = 0
        """The highest sequence that was seen or announced."""
        self.table = self.table_class(settings.stripe, settings.keys_max)
        self.gaps = Gaps(settings.gap_ns)
        self._arbitration = arbitration
        self._settings = settings
        self._since = 0
        """A snapshot that covers everything before this sequence leaves nothing out."""
        self._wanted = False
        self._asked_until = NEVER
        self._asking: NodeId | None = None
        self._failures = 0
        self._not_before = -NEVER
        self._disputed = 0

    def __contains__(self, sequence: object) -> bool:
        """Whether a message was taken, as far as is remembered."""
        return isinstance(sequence, int) and self._arbitration.recent.find(sequence) is not None

    def start(self, sequence: int, *, snapshot: bool) -> None:
        """Begin with `sequence`; a snapshot is to fill in what came before, if one is wanted."""
        self.top, self._since = sequence - 1, sequence
        if snapshot:
            self._want_snapshot()

    # Packets ------------------------------------------------------------------------------------

    def take(self, packets: Sequence[Packet], now: int) -> None:
        """A burst, in the order in which it came."""
        arbitration, stripe = self._arbitration, self._settings.stripe
        recent, came, mask = arbitration.recent.packets, arbitration.recent.came, arbitration.recent.mask
        fresh: list[ReleasedPacket] = []
        line: Line | None = None
        owner: NodeId = -1
        wins = duplicates = duplicate = 0
        for packet in packets:
            if type(packet) is not ReleasedPacket:
                arbitration.counters.strange += 1
                continue
            if packet.sender != owner:
                if line is not None:
                    arbitration.burst_over(line, wins, duplicates, duplicate, now)
                owner, wins, duplicates, duplicate = packet.sender, 0, 0, 0
                line = arbitration.lines.by_owner.get(owner)
            if line is None or packet.stripe != stripe or packet.count != 1:
                self._on_other(line, packet, now)
                continue
            sequence = packet.sequence
            slot = sequence & mask
            kept = recent[slot]
            if kept is not None and kept.sequence == sequence:
                duplicates, duplicate = duplicates + 1, sequence
                if kept.payload != packet.payload:
                    arbitration.conflict(kept, packet, line)
            elif sequence + mask < self.top:
                duplicates, duplicate = duplicates + 1, self.top - mask
                arbitration.counters.old += 1
            elif self._reached(line, sequence, sequence - 1, now):
                recent[slot], came[slot] = packet, now
                fresh.append(packet)
                wins += 1
        if line is not None:
            arbitration.burst_over(line, wins, duplicates, duplicate, now)
        if fresh:
            self._conflate(fresh)

    def _reached(self, line: Line, sequence: int, last_missing: int, now: int) -> bool:
        """Go up to a sequence, noting what is left out; whether it is believed that the lines are there."""
        line.newest = max(line.newest, sequence)
        top = self.top
        if sequence <= top:
            return True
        arbitration = self._arbitration
        if sequence - top > self._settings.hold_max:
            line.beyond += 1
            arbitration.counters.beyond += 1
            if now < line.distrusted_until:
                return False
            # We were away, or the line lies. Either way a snapshot says what is true.
            self._want_snapshot()
            if not arbitration.lines.corroborated(sequence):
                return False
            self._leave_out(top + 1, last_missing, last_missing - top)
            self._since = last_missing + 1
        elif last_missing > top:
            if len(self.gaps) >= self._settings.gaps_max:
                self.gaps.widen(last_missing, now)
            else:
                self.gaps.add(top + 1, last_missing, now)
        self.top = sequence
        return True

    def _on_other(self, line: Line | None, packet: ReleasedPacket, now: int) -> None:
        """A heartbeat, or something strange."""
        if line is None or packet.stripe != self._settings.stripe or packet.count != 0 or packet.sequence == 0:
            self._arbitration.counters.strange += packet.sender != self._arbitration.node
            return
        line.heartbeat(packet, now)
        self._reached(line, packet.sequence - 1, packet.sequence - 1, now)

    def _conflate(self, fresh: list[ReleasedPacket]) -> None:
        """Apply messages to the table and hand on what is new."""
        counters = self._arbitration.counters
        counters.delivered += len(fresh)
        fresh.sort(key=attrgetter("sequence"))
        sequences, payloads = [packet.sequence for packet in fresh], [packet.payload for packet in fresh]
        news, unreadable = self.table.apply_readable(sequences, payloads)
        counters.unreadable += unreadable
        if news:
            counters.events += len(news.sequences)
            instants = {packet.sequence: packet.instant for packet in fresh}
            told = tuple([instants[sequence] for sequence in news.sequences])
            self._arbitration.out.append(DeliverLatest(self.top, news.payload, news.sequences, told))

    # What is left out, and snapshots ------------------------------------------------------------

    def _leave_out(self, first: int, last: int, missing: int) -> None:
        self._arbitration.counters.gaps += 1
        self._arbitration.counters.abandoned += missing
        self._arbitration.out.append(GapAbandoned(first, last, missing))

    def poll(self, now: int) -> None:
        """Give up on gaps that outlived the lines' difference; fetch a snapshot if one is wanted."""
        if now >= self.gaps.wake_at:
            for gap in self.gaps.due(now):
                runs = missing_runs(gap.first, gap.last, self)
                if runs:
                    self._leave_out(runs[0][0], runs[-1][1], sum([last - first + 1 for first, last in runs]))
                self.gaps.passed(gap.last + 1)
            self.gaps.rearm()
        if self._asking is not None and now >= self._asked_until:
            self.on_failed(FetchFailed(self._asking), now)
        if self._wanted and self._asking is None and now >= self._not_before:
            settings = self._settings
            self._asking = settings.servers[self._failures % len(settings.servers)]
            self._asked_until = now + settings.retries_max * settings.retry_ns
            self._arbitration.counters.fetches += 1
            self._arbitration.out.append(FetchSnapshot(self._asking))

    def tick(self) -> None:
        """Once for each heartbeat: is what we follow one line's word against the others'."""
        self._disputed = 0 if self._arbitration.lines.corroborated(self.top) else self._disputed + 1
        if self._disputed >= _DISPUTED_TICKS:
            self._want_snapshot()

    def next_deadline(self) -> int:
        """When to poll."""
        snapshot_at = NEVER
        if self._asking is not None:
            snapshot_at = self._asked_until
        elif self._wanted:
            snapshot_at = self._not_before
        return min(self.gaps.wake_at, snapshot_at)

    @property
    def wants_snapshot(self) -> bool:
        """Whether what lies before the lines' messages is still to be filled in."""
        return self._wanted

    def _want_snapshot(self) -> None:
        self._wanted = bool(self._settings.servers)

    def on_snapshot(self, event: SnapshotArrived, now: int) -> None:
        """Merge a server's snapshot: keys that changed since keep what they have."""
        arbitration, snapshot = self._arbitration, event.snapshot
        if event.server == self._asking:
            self._asking = None
        if snapshot.stripe != self._settings.stripe:
            arbitration.counters.strange += 1
            return
        arbitration.out.extend(arbitration.lines.refute(snapshot.next_sequence - 1, now))
        if self.top - snapshot.next_sequence > self._settings.hold_max and self._disputed >= _DISPUTED_TICKS:
            # Neither the other lines nor a server know of what we followed: its sender lied.
            self.table = self.table_class(self._settings.stripe, self._settings.keys_max)
            self.gaps.clear()
            self.top, self._since = 0, 0
        news = self.table.restore(snapshot)
        self.top = max(self.top, snapshot.next_sequence - 1)
        if news:
            arbitration.counters.events += len(news.sequences)
            unknown = (0,) * len(news.sequences)
            arbitration.out.append(DeliverLatest(self.top, news.payload, news.sequences, unknown))
        if snapshot.next_sequence >= self._since:
            self._wanted, self._failures = False, 0
        else:
            # The server is behind the lines: what lies between is in neither.
            self._failed(now)

    def on_failed(self, event: FetchFailed, now: int) -> None:
        """A door did not answer."""
        if event.server == self._asking:
            self._asking = None
            self._failed(now)

    def _failed(self, now: int) -> None:
        self._failures += 1
        rounds = self._failures // len(self._settings.servers)
        wait_ns = self._settings.retry_ns * min(1 << min(rounds, 16), _NEWEST_BACKOFF_MAX) if rounds else 0
        self._not_before = now + wait_ns

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back: nothing waits for the difference."""
        self.gaps.set_back(now, longest_ns)
        self._not_before = min(self._not_before, now + _NEWEST_BACKOFF_MAX * longest_ns)
        if self._asking is not None:
            self._asked_until = min(self._asked_until, now + self._settings.retries_max * longest_ns)


@dataclass(frozen=True, slots=True)
class CustomerSnapshot:
    """A customer's state for checkers and console."""

    customer: NodeId
    grade: Grade
    joined: bool
    next_sequence: int
    """The first that was not delivered; by grade latest, the first that was not seen."""
    newest: int
    """The highest sequence known."""
    held: int
    gaps: int
    keys: int
    slow: tuple[Slowness, ...]
    counters: Counters
    lines: tuple[LineView, ...]
    followed: NodeId | None = None
    """The line that it follows: the first of its list that speaks."""
    switches: int = 0
    """Times that this was another one than before."""
    waiting: Waiting | None = None
    """Why nothing can come now."""
    waiting_since: int = 0
    wants_snapshot: bool = False
    """By grade latest: keys that did not change lately may be missing until a server's snapshot comes."""


class Customer:
    """The machine of one customer of one stripe."""

    complete_class: type[Complete] = Complete
    newest_class: type[Newest] = Newest

    proof_check_class: type[ProofCheck] = ProofCheck

    def __init__(
        self,
        node: NodeId,
        settings: CustomerSettings,
        state: CustomerState | None = None,
        proofs: ProofTerms | None = None,
    ) -> None:
        """Start, or go on where an earlier run stopped; with `proofs` believe nothing on a line that is not signed."""
        self.node = node
        self.settings = settings
        self._arbitration = Arbitration(node, settings)
        self._proofs = None if proofs is None else self.proof_check_class(self._arbitration, proofs)
        self._choice = LineChoice(settings, self._arbitration.lines.main)
        self._complete = self.complete_class(self._arbitration)
        self._newest = self.newest_class(self._arbitration) if settings.grade is Grade.LATEST else None
        self._joining: Joining | None = None
        self._slow: dict[Slowness, None] = {}
        self._tick_ns = settings.heartbeat_ns
        self._tick_at = 0
        self._deadline = 0
        self._last_now = -NEVER
        self._begin(state.next_sequence if state is not None else 0)

    def _begin(self, next_sequence: int) -> None:
        settings = self.settings
        if self._newest is None and (next_sequence or settings.join is JoinPoint.SEQUENCE):
            self._complete.start(next_sequence or settings.first_sequence, returns=next_sequence > 1)
        else:
            snapshot = self._newest is None and settings.join is JoinPoint.SNAPSHOT
            self._joining = Joining(self._arbitration, snapshot=snapshot)

    # The contract -------------------------------------------------------------------------------

    def step(self, event: CustomerInput, now: int) -> tuple[CustomerEffect, ...]:
        """Take one input at local time `now`."""
        if now < self._last_now:
            self._set_back(now)
        elif now - self._deadline > self.settings.slow_ns and self._last_now > -NEVER:
            self._name(Slowness.STOPPED, now - self._deadline)
            self._arbitration.lines.slept(now)
            self._choice.slept(now)
        self._last_now = now
        # What it finds missing while it did not read in time, its own sockets have dropped.
        self._complete.alone = Slowness.STOPPED in self._slow or Slowness.LAGGING in self._slow
        service = self._joining or self._newest or self._complete
        match event:
            case PacketsArrived(packets):
                service.take(packets if self._proofs is None else self._proofs.admit(packets, now), now)
            case TimerFired() | ClockJudged():
                pass
            case RangeArrived() if isinstance(service, Complete):
                service.on_range(event if self._proofs is None else self._without_lies(event), now)
            case RangeContinued() if isinstance(service, Complete):
                service.on_part(event if self._proofs is None else self._without_lies(event), now)
            case SnapshotArrived():
                self._on_snapshot(event, now)
            case FetchFailed():
                service.on_failed(event, now)
            case LinesPlanned(lines) if lines:
                self._arbitration.lines.plan(lines, now)
            case RangeArrived() | RangeContinued() | LinesPlanned():
                # An answer that comes too late, or a plan without lines.
                pass
            case _:
                assert_never(event)
        if self._joining is not None:
            self._join(now)
        return self._settle(now)

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        return self._deadline

    def snapshot(self) -> CustomerSnapshot:
        """The state, for checkers and status pages."""
        complete, newest = self._complete, self._newest
        gaps = complete.gaps if newest is None else newest.gaps
        return CustomerSnapshot(
            self.node,
            self.settings.grade,
            self._joining is None,
            complete.next if newest is None else newest.top + 1,
            complete.claimed if newest is None else newest.top,
            len(self._joining.held) if self._joining is not None else len(complete.held),
            len(gaps),
            0 if newest is None else len(newest.table),
            tuple(self._slow),
            replace(self._arbitration.counters),
            self._arbitration.lines.views(),
            self._choice.followed,
            self._choice.switches,
            self._choice.waiting,
            self._choice.waiting_since,
            newest is not None and newest.wants_snapshot,
        )

    def recall(self, first: int, last: int) -> tuple[ReleasedPacket, ...] | None:
        """Delivered messages that are still in memory, if the whole range is."""
        return self._arbitration.recent.recall(first, last) if last < self._complete.next else None

    # Steps --------------------------------------------------------------------------------------

    def _without_lies(self, event: _Fetched) -> _Fetched:
        """A door's answer without what the lines' owners signed otherwise."""
        return event if self._proofs is None else replace(event, packets=self._proofs.fetched(event.packets))

    def _on_snapshot(self, event: SnapshotArrived, now: int) -> None:
        if self._joining is not None and self._newest is None:
            self._joining.on_snapshot(event)
        elif self._joining is None and self._newest is not None:
            self._newest.on_snapshot(event, now)

    def _join(self, now: int) -> None:
        """Begin, if it is known where, with what the lines brought meanwhile."""
        joining = self._joining
        if joining is None:
            return
        joining.poll(now)
        first = joining.first
        if first is None:
            return
        self._joining = None
        if self._newest is not None:
            self._newest.start(first, snapshot=self.settings.join is JoinPoint.SNAPSHOT)
        else:
            self._complete.start(first)
        waited = [joining.held[sequence] for sequence in sorted(joining.held) if sequence >= first]
        (self._newest or self._complete).take(waited, now)

    def _settle(self, now: int) -> tuple[CustomerEffect, ...]:
        """Do what is due, then set the next deadline and hand over the effects."""
        arbitration = self._arbitration
        service = self._joining or self._newest or self._complete
        if service.next_deadline() <= now:
            service.poll(now)
        overflown = self._complete.overflown
        if overflown and arbitration.lines.corroborated(self._complete.claimed):
            self._name(Slowness.OVERFLOW, overflown)
        if now >= self._tick_at:
            self._tick(now)
        self._deadline = min(self._tick_at, service.next_deadline())
        return arbitration.flush() if arbitration.out else ()

    def _tick(self, now: int) -> None:
        """Once for each heartbeat: look at the lines, and at ourselves."""
        if now - self._tick_at <= self.settings.slow_ns:
            self._clear(Slowness.STOPPED)
        self._tick_at = now + self._tick_ns
        arbitration, slow_ns = self._arbitration, self.settings.slow_ns
        arbitration.out.extend(arbitration.lines.tick(now))
        arbitration.out.extend(self._choice.tick(now))
        lag_ns = arbitration.lines.reader_lag_ns()
        lagging = Slowness.LAGGING in self._slow
        if lag_ns > (slow_ns // 2 if lagging else slow_ns):
            self._name(Slowness.LAGGING, lag_ns)
        else:
            self._clear(Slowness.LAGGING)
        if not self._complete.overflown:
            self._clear(Slowness.OVERFLOW)
        if self._joining is not None:
            return
        if self._newest is not None:
            self._newest.tick()
        elif self._choice.waiting is not None or arbitration.lines.know_less(self._complete.next):
            self._complete.probe(now)

    def _name(self, reason: Slowness, behind: int) -> None:
        if reason not in self._slow:
            self._slow[reason] = None
            self._arbitration.counters.slow += 1
            self._arbitration.out.append(CustomerSlow(self.node, reason, behind))

    def _clear(self, reason: Slowness) -> None:
        if reason in self._slow:
            del self._slow[reason]
            self._arbitration.out.append(CustomerCaughtUp(self.node, reason))

    def _set_back(self, now: int) -> None:
        """The clock was set back: waiting times move with it."""
        if self._proofs is not None:
            self._proofs.set_back(self._last_now - now)
        self._tick_at = min(self._tick_at, now + self._tick_ns)
        self._arbitration.lines.set_back(now)
        for service in (self._joining, self._newest, self._complete):
            if service is not None:
                service.set_back(now, self.settings.retry_ns)
