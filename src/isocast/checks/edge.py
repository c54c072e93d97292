"""S14, S15, L5, and S1 to S4 at the edge of the network: archives, customers and secondary sources.

S1   what a customer gets at a sequence is what the sites released there
S2   a complete customer's sequences are contiguous, restarts included, and so are an archive's; what a secondary source
     took enters the sequence once
S3   and in the order in which it took it
S14  an archive gives only what is on its disk, as it is there, and says truly how far that goes; what it or a complete
     customer leaves out, no server that it asks has any more
S15  a customer of grade latest gets the newest event of a key as of some sequence, and of one key never an older event
     after a newer one
L1   what a secondary source took is released, once faults stop
L5   every complete customer gets every message from its start on, and every archive has it; a customer of grade latest
     has the newest event of each key, or was told that it was left out
L6   the same, where the customer or the archive was down meanwhile

Content is compared where S1 is promised. The first site to release a sequence makes the reference.
"""

from __future__ import annotations

from bisect import bisect_right

from isocast.checks.facts import (
    Delivered,
    EndOfRun,
    Entrusted,
    Given,
    LatestDelivered,
    Law,
    LeftOut,
    Released,
    Report,
    Restarted,
    SnapshotTaken,
    label,
)
from isocast.checks.view import trim
from isocast.terms.ids import NodeId, describe
from isocast.wire.limits import EVENT_BYTES

__all__ = ["EdgeChecker"]

_REFERENCE_MAX = 1 << 16
"""Messages of the reference that are kept."""
_KEY_BYTES = 16
"""Kind, side, flags, floor, symbol: what an event is the latest of."""


def _events(payload: bytes) -> list[bytes]:
    return [payload[at : at + EVENT_BYTES] for at in range(0, len(payload), EVENT_BYTES)]


class _Reference:
    """What the sites released, by sequence, and each key's events in order."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.next_sequence = 1
        self._sequences: dict[bytes, list[int]] = {}
        self._events: dict[bytes, list[bytes]] = {}

    def add(self, sequence: int, payload: bytes) -> None:
        """The next message."""
        self.payloads[sequence] = payload
        self.next_sequence = sequence + 1
        trim(self.payloads, _REFERENCE_MAX)
        if len(payload) % EVENT_BYTES:
            return
        for event in _events(payload):
            key = event[:_KEY_BYTES]
            self._sequences.setdefault(key, []).append(sequence)
            self._events.setdefault(key, []).append(event)

    def newest(self, key: bytes, sequence: int) -> tuple[int, bytes]:
        """The newest event of a key at or before a sequence, and its own sequence; 0 if there is none."""
        sequences = self._sequences.get(key, [])
        place = bisect_right(sequences, sequence) - 1
        return (sequences[place], self._events[key][place]) if place >= 0 else (0, b"")

    def all_keys(self) -> list[bytes]:
        """All of them."""
        return list(self._sequences)


class _Life:
    """What a customer of grade latest was told since it started."""

    def __init__(self) -> None:
        self.newest = 0
        self.first = 0
        """Where it began: what came late from before counts, and is not owed."""
        self.told: dict[bytes, int] = {}
        """Each key's newest event: its own sequence."""
        self.left_out: list[tuple[int, int]] = []


class EdgeChecker:
    """Watches archives, customers and secondary sources."""

    def __init__(self, law: Law, report: Report) -> None:
        """Nobody has anything."""
        self._law = law
        self._report = report
        self._reference = _Reference()
        self._next: dict[NodeId, int] = {}
        """Of complete customers and archives."""
        self._stored: dict[NodeId, dict[int, bytes]] = {}
        """What each of them was given, in this life of its disk."""
        self._lives: dict[NodeId, _Life] = {}
        self._returned: dict[NodeId, None] = {}
        self._entrusted: dict[bytes, Entrusted] = {}
        self._entered: dict[NodeId, int] = {}
        self._done: dict[bytes, None] = {}

    # The sequence -------------------------------------------------------------------------------

    def on_released(self, fact: Released) -> None:
        """A site's stretch: what nobody released before is the reference from now on."""
        reference = self._reference
        for sequence, message in enumerate(fact.messages, fact.first_sequence):
            if sequence != reference.next_sequence:
                continue
            reference.add(sequence, message.payload)
            if self._law.agreement:
                self._enter(fact, sequence, message.digest)

    def _enter(self, fact: Released, sequence: int, digest: bytes) -> None:
        entrusted = self._entrusted.get(digest)
        if entrusted is None or entrusted.source not in self._law.forwarders:
            return
        what = f"{label(entrusted.source, entrusted.number)} entered the sequence at {sequence}"
        expected = self._entered.get(entrusted.source, 0) + 1
        if digest in self._done:
            self._report("S2", fact.at, f"{what}, and had been there before")
        elif entrusted.number != expected:
            self._report("S3", fact.at, f"{what}, before {label(entrusted.source, expected)}")
        self._done[digest] = None
        self._entered[entrusted.source] = max(expected, entrusted.number)

    def on_entrusted(self, fact: Entrusted) -> None:
        """A secondary source promises that this will be in the sequence."""
        self._entrusted[fact.digest] = fact

    # Complete customers and archives ------------------------------------------------------------

    def on_delivered(self, fact: Delivered) -> None:
        """The next messages of a customer, or of an archive."""
        who, expected = describe(fact.node), self._next.get(fact.node)
        stored = self._stored.setdefault(fact.node, {})
        for packet in fact.packets:
            sequence = packet.sequence
            if expected is not None and sequence != expected:
                what = "again" if sequence < expected else "onwards"
                self._report("S2", fact.at, f"{who} went {what} with sequence {sequence} after {expected - 1}")
            expected = sequence + 1
            stored[sequence] = packet.payload
            self._compare(fact.at, who, sequence, packet.payload)
        if expected is not None:
            self._next[fact.node] = expected

    def _compare(self, at: int, who: str, sequence: int, payload: bytes) -> None:
        if sequence >= self._reference.next_sequence:
            self._report("S4", at, f"{who} has sequence {sequence}, which no site has released")
        elif self._law.agreement and self._reference.payloads.get(sequence, payload) != payload:
            self._report("S1", at, f"{who} has another message at sequence {sequence} than the sites")

    def on_snapshot(self, fact: SnapshotTaken) -> None:
        """A customer begins behind a snapshot, which must be what the sequence says."""
        self._next[fact.node] = fact.next_sequence
        if not self._law.agreement:
            return
        for event in _events(fact.payload):
            _, newest = self._reference.newest(event[:_KEY_BYTES], fact.next_sequence - 1)
            if newest != event:
                text = f"{describe(fact.node)} begins at {fact.next_sequence} with an event that is not the newest"
                self._report("S15", fact.at, text)
                return

    def on_given(self, fact: Given) -> None:
        """An archive speaks of what it has."""
        stored, who = self._stored.get(fact.node, {}), describe(fact.node)
        for packet in fact.packets:
            if stored.get(packet.sequence) != packet.payload:
                self._report("S14", fact.at, f"{who} gives sequence {packet.sequence}, which is not on its disk so")
                break
        newest = self._next.get(fact.node, 1) - 1
        if fact.newest != newest:
            self._report("S14", fact.at, f"{who} says that it has everything up to {fact.newest}, and has {newest}")

    def on_left_out(self, fact: LeftOut) -> None:
        """A customer goes on without some messages."""
        if fact.node in self._law.latest:
            life = self._lives.setdefault(fact.node, _Life())
            life.left_out.append((fact.first, fact.last))
            life.newest = max(life.newest, fact.last)
            return
        self._next[fact.node] = fact.last + 1
        if fact.kept:
            text = f"{describe(fact.node)} leaves out {fact.first}..{fact.last}, and a server that it asks has them"
            self._report("S14", fact.at, text)

    def on_restarted(self, fact: Restarted) -> None:
        """A customer of grade latest remembers nothing; the others do, unless they lost their disk."""
        self._returned[fact.node] = None
        self._lives.pop(fact.node, None)
        if not fact.disk_kept:
            self._next.pop(fact.node, None)
            self._stored.pop(fact.node, None)

    # Grade latest -------------------------------------------------------------------------------

    def on_latest(self, fact: LatestDelivered) -> None:
        """Each event must be the newest of its key as of its sequence, and newer than what was told before."""
        life = self._lives.setdefault(fact.node, _Life())
        who = describe(fact.node)
        life.newest = max(life.newest, fact.newest)
        life.first = life.first or min(fact.sequences, default=0)
        for event, sequence in zip(_events(fact.payload), fact.sequences, strict=True):
            key = event[:_KEY_BYTES]
            place, newest = self._reference.newest(key, sequence)
            if not self._law.agreement:
                place = sequence
            elif newest != event:
                self._report("S15", fact.at, f"{who} got an event as of {sequence} that is not the newest of its key")
                place = sequence
            if place <= life.told.get(key, 0):
                text = f"{who} got an event of sequence {place} after one of {life.told[key]} with the same key"
                self._report("S15", fact.at, text)
            life.told[key] = max(life.told.get(key, 0), place)

    # At the end ---------------------------------------------------------------------------------

    def finish(self, end: EndOfRun) -> None:
        """Customers and archives that run at the end must have everything."""
        last = self._reference.next_sequence - 1
        for node, waits_for in end.edge.items():
            name = "L6" if node in self._returned else "L5"
            # Who began when all was over got nothing, and lacks nothing.
            following = self._next.get(node, waits_for)
            if node in self._law.latest:
                if node in self._lives or waits_for <= last:
                    self._finish_latest(name, end, node, last)
            elif node in self._law.complete and following <= last:
                text = f"{describe(node)} has nothing from {following} on; the sites released {last}"
                self._report(name, end.now, text)
        self._finish_entrusted(end)

    def _finish_latest(self, name: str, end: EndOfRun, node: NodeId, last: int) -> None:
        life = self._lives.get(node, _Life())
        if life.newest < last:
            text = f"{describe(node)} has heard of sequence {life.newest}, and the sites released {last}"
            self._report(name, end.now, text)
        elif self._law.agreement:
            for key in self._reference.all_keys():
                place, _ = self._reference.newest(key, last)
                left_out = any(first <= place <= until for first, until in life.left_out)
                if place >= life.first > 0 and life.told.get(key, 0) < place and not left_out:
                    text = f"{describe(node)} was told neither of sequence {place}, the newest of its key, nor of a gap"
                    self._report(name, end.now, text)
                    return

    def _finish_entrusted(self, end: EndOfRun) -> None:
        if not self._law.agreement:
            return
        for digest, fact in self._entrusted.items():
            if digest not in self._done and fact.source in end.edge and fact.source in self._law.forwarders:
                self._report("L1", end.now, f"no site released {label(fact.source, fact.number)}")
                return
