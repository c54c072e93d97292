"""Where a customer begins (protocol §7: "late joiners of every kind").

    now        with what the lines send next: as soon as two of them have spoken, or one for as long as a gap may last
    snapshot   with the message after a server's snapshot; what the lines bring meanwhile is held

A single line's word is not enough while others may speak: a customer that began beyond all other lines would
wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.hierarchy.arbitration import Arbitration
from isocast.hierarchy.edge import DeliverSnapshot, FetchFailed, FetchSnapshot, RepairUnanswered, SnapshotArrived
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Packet, Released

__all__ = ["Joining"]

_ENOUGH = 2
_BACKOFF_MAX = 16
"""Rounds over all servers are at most this many retry intervals apart."""


class Joining:
    """Listens until it is known with which sequence to begin."""

    def __init__(self, arbitration: Arbitration, *, snapshot: bool) -> None:
        """Nothing was heard yet; `snapshot` says that only a server's snapshot will do."""
        self.held: dict[int, Released] = {}
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
            fits = type(packet) is Released and packet.stripe == settings.stripe and packet.count <= 1
            if line is None or type(packet) is not Released or not fits or packet.sequence == 0:
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
            if kept is not None and kept.payload != packet.payload:
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
