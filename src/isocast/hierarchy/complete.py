"""Grade `complete`: every message, in order, each of them once (§4.1 "guaranteed delivery"; L5).

    next ─ delivered up to here          top ─ gaps and held packets describe everything up to here
    ───────┼───────gap───held held──gap──held──────┼──────────▶ claimed: what some line has spoken of
           └──────────── at most hold_max ─────────┘

A packet beyond `hold_max` is dropped and only its sequence remembered: memory stays bounded whatever lines send, and
what was dropped is fetched in ranges at a server's door.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.hierarchy.arbitration import Arbitration
from isocast.hierarchy.edge import (
    Deliver,
    FetchFailed,
    GapAbandoned,
    GapClosed,
    RangeArrived,
    RangeContinued,
    TokensPassed,
)
from isocast.hierarchy.gaps import Gap, Gaps, missing_runs
from isocast.hierarchy.line_sender import INSTANT_BYTES
from isocast.hierarchy.lines import Line
from isocast.hierarchy.repair import Repairs
from isocast.terms.ids import NodeId
from isocast.wire.packets import Packet, RangeReply, Released

__all__ = ["Complete"]


class Complete:
    """Orders what the lines bring, and has the rest repaired."""

    def __init__(self, arbitration: Arbitration) -> None:
        """Nothing is expected before `start`."""
        self.next = 1
        """The sequence to be delivered next."""
        self.top = 0
        """The highest sequence that is held, delivered, or part of a gap."""
        self.claimed = 0
        """The highest sequence that any line has spoken of, as far as it is believed."""
        self.held: dict[int, Released] = {}
        self.gaps = Gaps(arbitration.settings.gap_ns)
        self.repairs = Repairs(arbitration, self.gaps, self.missing)
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
        run: list[Released] = []
        line: Line | None = None
        owner: NodeId = -1
        wins = duplicates = duplicate = 0
        for packet in packets:
            if type(packet) is not Released:
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
                    if kept.payload != packet.payload:
                        arbitration.conflict(kept, packet, line)
            elif self._hold(line, packet, following, now):
                wins += 1
            else:
                duplicates += 1
        if line is not None:
            arbitration.burst_over(line, wins, duplicates, duplicate, now)
            line.newest = max(line.newest, following - 1) if run else line.newest
        self._advance(following, run, now)

    def _hold(self, line: Line, packet: Released, following: int, now: int) -> bool:
        """A packet ahead of its turn: keep it if the buffer reaches so far; whether it was the first copy."""
        sequence = packet.sequence
        line.newest = max(line.newest, sequence)
        if sequence - following >= self._reach:
            self._beyond(line, sequence, now)
            return False
        kept = self.held.get(sequence)
        if kept is not None:
            if kept.payload != packet.payload:
                self._arbitration.conflict(kept, packet, line)
            return False
        self.held[sequence] = packet
        self._reveal(max(self.top, following - 1), sequence - 1, now)
        self.top = max(self.top, sequence)
        return True

    def _drain(self, following: int, run: list[Released], now: int) -> int:
        """Take what was held from `following` on; return the sequence after it."""
        held, recent = self.held, self._arbitration.recent
        while following in held:
            slot = following & recent.mask
            recent.packets[slot], recent.came[slot] = packet, _ = held.pop(following), now
            run.append(packet)
            following += 1
        return following

    def _on_other(self, line: Line | None, packet: Released, following: int, now: int) -> None:
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

    def _advance(self, following: int, run: list[Released], now: int) -> None:
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
            run: list[Released] = []
            self._advance(self._drain(sequence, run, now), run, now)

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """What of a range is neither delivered nor held."""
        return missing_runs(max(first, self.next), last, self.held)

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back."""
        self.gaps.set_back(now, longest_ns)
        self.repairs.set_back(now, longest_ns)
