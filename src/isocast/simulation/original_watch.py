"""Watches a world of the original protocol from outside: counts, figures, and what §2.1 promises.

It sees only effects and losses, never the inside of a machine. What every receiver has placed leaves its
memory, so that a run may be as long as it likes.
"""

from __future__ import annotations

from collections import Counter, deque
from hashlib import blake2b
from typing import assert_never

from isocast.ring.original.packets import Ack, AckItem, AckOfItem, Data, MessageItem, Nack, Packet, Repair, TokenAck
from isocast.ring.original.receiver import possession_floor
from isocast.terms.ids import Label, NodeId, describe

__all__ = ["Watch"]

_VIOLATIONS_MAX = 20
"""Enough to understand a failure; one broken rule breaks all later positions too."""


class Watch:
    """Checks every effect of every node as it is performed."""

    def __init__(self, sites: tuple[NodeId, ...]) -> None:
        """Nothing submitted, nothing placed."""
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.counting = True
        """Off while a world closes: what that costs is no figure of the protocol."""
        self.assigned = 0
        """The highest position that was ever acknowledged."""
        self.stable = 0
        """Every receiver has placed everything up to here."""
        self.nacks_by_loss: Counter[int] = Counter()
        """How many lost packets cost so many NACKs."""
        self.latency_ns = 0
        """Summed over all messages: from submission to the instant at which a token site acknowledges."""
        self._sites = sites
        self._placed = dict.fromkeys(sites, 0)
        self._acks: dict[int, Ack] = {}
        self._lacking: dict[int, int] = {}
        self._submitted: dict[NodeId, int] = {}
        self._instants: dict[NodeId, deque[int]] = {}
        self._last_acks: dict[NodeId, Ack] = {}
        self._nacks: dict[int | Label, int] = {}
        self._trace = blake2b(digest_size=16)

    @property
    def trace_digest(self) -> str:
        """Over every assignment and every control packet, with their instants."""
        return self._trace.hexdigest()

    def submitted(self, source: NodeId, now: int) -> None:
        """A source takes one more message from its client."""
        self._submitted[source] = self._submitted.get(source, 0) + 1
        self._instants.setdefault(source, deque()).append(now)

    def sent(self, node: NodeId, to: NodeId, packet: Packet, now: int) -> None:
        """A node sends a packet; `to` is 0 for a multicast."""
        match packet:
            case Data():
                return
            case Ack(number, label):
                self._acknowledged(node, packet)
                self._control("acks", f"{now} {node} {to} ack {number} {label.source} {label.number}\n")
            case TokenAck(number):
                self._control("tokacks", f"{now} {node} {to} tokack {number}\n")
            case Nack(_, item):
                key = self._key(item)
                if key in self._nacks:
                    self._nacks[key] += 1
                self._control("nacks", f"{now} {node} {to} nack {item}\n")
            case Repair(item):
                if isinstance(item, Ack):
                    self._acknowledged(node, item)
                self._control("repairs", f"{now} {node} {to} repair {item.label}\n")
            case _:
                assert_never(packet)

    def _control(self, kind: str, line: str) -> None:
        if self.counting:
            self.counts[kind] += 1
        self._trace.update(line.encode())

    def placed(self, site: NodeId, number: int, label: Label, now: int) -> Label | None:
        """A receiver fills a position. Says which message every receiver has now, if this was the last."""
        if number != self._placed[site] + 1:
            self._violated(f"{describe(site)} placed {number} after {self._placed[site]}")
        self._placed[site] = number
        if number == self.assigned + 1:
            # The acknowledging site itself places first: what it places is what it will send.
            self._assign(site, number, label, now)
        elif number not in self._lacking:
            self._violated(f"{describe(site)} placed {number}, which nobody acknowledged or everybody had")
            return None
        elif self._acks[number].label != label:
            self._violated(f"{describe(site)} placed {label} at {number}, others {self._acks[number].label}")
        self._lacking[number] -= 1
        if self._lacking[number]:
            return None
        return self._settle(number)

    def lost(self, packet: object) -> None:
        """A multicast packet did not reach some receiver, and not all receivers have what is in it."""
        if isinstance(packet, Ack):
            if packet.token_number > self.stable:
                self._nacks.setdefault(packet.token_number, 0)
        elif isinstance(packet, Data):
            last = self._last_acks.get(packet.label.source)
            if last is None or packet.label.number > last.label.number or last.token_number > self.stable:
                self._nacks.setdefault(packet.label, 0)

    def closed(self) -> None:
        """Nothing is left to happen: everything that was submitted must be everywhere."""
        for source, count in self._submitted.items():
            last = self._last_acks.get(source)
            if last is None or last.label.number < count:
                self._violated(f"{describe(source)} submitted {count}, of which some were never acknowledged")
        for site, number in self._placed.items():
            if number != self.assigned:
                self._violated(f"{describe(site)} ends at {number}, acknowledged were {self.assigned}")

    def nacks_per_loss(self, quantile: float) -> int:
        """The smallest number of NACKs that this share of the lost packets did not exceed."""
        reached, total = 0, self.nacks_by_loss.total()
        for nacks in sorted(self.nacks_by_loss):
            reached += self.nacks_by_loss[nacks]
            if reached >= quantile * total:
                return nacks
        return 0

    def _assign(self, site: NodeId, number: int, label: Label, now: int) -> None:
        last, size = self._last_acks.get(label.source), len(self._sites)
        if site != self._sites[(number - 1) % size]:
            self._violated(f"{describe(site)} acknowledged {number} out of turn")
        if label.number != (1 if last is None else last.label.number + 1):
            self._violated(f"{label} was acknowledged at {number}, after {last}")
        if label.number > self._submitted.get(label.source, 0):
            self._violated(f"{label} was acknowledged at {number}, but never submitted")
        elif self.counting and (instants := self._instants[label.source]):
            self.latency_ns += now - instants.popleft()
        self._acks[number] = self._last_acks[label.source] = Ack(number, label, site, self._sites[number % size])
        self._acks.pop(number - 2 * size, None)
        self._lacking[number] = size
        self.assigned = number
        if possession_floor(number, size) > self.stable:
            self._violated(f"{number} was acknowledged while all have only {self.stable}")

    def _acknowledged(self, node: NodeId, ack: Ack) -> None:
        """Whoever sends an acknowledgement, first or again, has everything up to it, and all copies agree."""
        number = ack.token_number
        if self._placed[node] < number:
            self._violated(f"{describe(node)} sent acknowledgement {number} with {self._placed[node]} placed")
        known = self._acks.get(number) or self._last_acks[ack.label.source]
        # An older one, whose source has moved on since, is out of memory: everybody has it.
        if known != ack and not (number <= self.stable and ack.label.number < known.label.number):
            self._violated(f"acknowledgement {number} is {ack} and {known}")

    def _settle(self, number: int) -> Label:
        """Everybody has the position: no NACK can name it any more."""
        label = self._acks[number].label
        del self._lacking[number]
        self.stable = number
        for key in (number, label):
            nacks = self._nacks.pop(key, None)
            if nacks is not None:
                self.nacks_by_loss[nacks] += 1
        return label

    def _key(self, item: AckItem | AckOfItem | MessageItem) -> int | Label:
        match item:
            case AckItem(number):
                return number
            case MessageItem(_, label):
                return label
            case AckOfItem(label):
                return next((number for number, ack in self._acks.items() if ack.label == label), 0)

    def _violated(self, text: str) -> None:
        if len(self.violations) < _VIOLATIONS_MAX:
            self.violations.append(text)
