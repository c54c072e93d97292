"""Grade `latest`: the newest event of each key at once, and nothing that is stale (§4.1 "best effort", §7.1).

    "Once the next value of a stock is received, there is no reason for these customers to retrieve the previous price."

Nothing is held and nothing is asked for. A message that comes late, by a slower line, still counts for the keys that
nothing newer has touched. A snapshot, fetched at the start and after an absence, fills in the keys that did not
change since; it is merged into what is there, so nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from isocast.hierarchy.arbitration import Arbitration
from isocast.hierarchy.edge import DeliverLatest, FetchFailed, FetchSnapshot, GapAbandoned, SnapshotArrived
from isocast.hierarchy.gaps import Gaps, missing_runs
from isocast.hierarchy.latest import LatestTable
from isocast.hierarchy.lines import Line
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Packet, Released

__all__ = ["Newest"]

_DISPUTED_TICKS = 3
"""Heartbeats for which most lines must be far below what was followed before that counts as a lie."""
_BACKOFF_MAX = 64
"""Snapshots that do not come are asked for at most this many retry intervals apart."""


class Newest:
    """Conflates what the lines bring."""

    def __init__(self, arbitration: Arbitration) -> None:
        """Nothing is expected before `start`."""
        settings = arbitration.settings
        self.top = 0
        """The highest sequence that was seen or announced."""
        self.table = LatestTable(settings.stripe, settings.keys_max)
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
        fresh: list[Released] = []
        line: Line | None = None
        owner: NodeId = -1
        wins = duplicates = duplicate = 0
        for packet in packets:
            if type(packet) is not Released:
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

    def _on_other(self, line: Line | None, packet: Released, now: int) -> None:
        """A heartbeat, or something strange."""
        if line is None or packet.stripe != self._settings.stripe or packet.count != 0 or packet.sequence == 0:
            self._arbitration.counters.strange += packet.sender != self._arbitration.node
            return
        line.heartbeat(packet, now)
        self._reached(line, packet.sequence - 1, packet.sequence - 1, now)

    def _conflate(self, fresh: list[Released]) -> None:
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
            # Neither the other lines nor a server know of what we followed: whoever sent it lied.
            self.table = LatestTable(self._settings.stripe, self._settings.keys_max)
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
        wait_ns = self._settings.retry_ns * min(1 << min(rounds, 16), _BACKOFF_MAX) if rounds else 0
        self._not_before = now + wait_ns

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back: nothing waits for the difference."""
        self.gaps.set_back(now, longest_ns)
        self._not_before = min(self._not_before, now + _BACKOFF_MAX * longest_ns)
        if self._asking is not None:
            self._asked_until = min(self._asked_until, now + self._settings.retries_max * longest_ns)
