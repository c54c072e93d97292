"""How many requests one lost packet causes: the NACK implosion that §5.2 is about."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from isocast.terms.ids import NodeId
from isocast.wire.packets import Data, Nack, Token, TokenPart

__all__ = ["LossLedger"]

_Key: TypeAlias = tuple[NodeId, int] | tuple[str, int]

SETTLE_NS = 120_000_000_000
"""A lost packet's requests are over after two minutes of virtual time; then only its count is kept."""


class LossLedger:
    """Lost multicast packets, and the requests of all receivers that name each of them."""

    def __init__(self) -> None:
        """Nothing is lost."""
        self.histogram: Counter[int] = Counter()
        """How many lost packets caused so many NACKs."""
        self._asked: dict[_Key, int] = {}
        self._since: dict[_Key, int] = {}
        self._lacking: dict[NodeId, dict[_Key, None]] = {}
        self.now = 0

    def lost(self, to: NodeId, burst: tuple[object, ...]) -> None:
        """One destination does not get these packets."""
        for packet in burst:
            key = _key(packet)
            if key is not None:
                if key not in self._asked:
                    self._asked[key] = 0
                    self._since[key] = self.now
                self._lacking.setdefault(to, {})[key] = None

    def asked(self, node: NodeId, nack: Nack) -> None:
        """A receiver requests; without the token it asks for everything that it lacks."""
        lacking = self._lacking.get(node)
        if not lacking:
            return
        if nack.has_token:
            named: list[_Key] = [
                (holding.source, holding.first + bit)
                for holding in nack.listed
                for bit in range(holding.bitmap.bit_length())
                if holding.bitmap >> bit & 1
            ]
        else:
            named = list(lacking)
        for key in named:
            if key in lacking and key in self._asked:
                self._asked[key] += 1

    def completed(self, node: NodeId, now: int) -> None:
        """A receiver completed a token: what it lacked before is repaired, or belongs to the next."""
        self.now = now
        self._lacking.pop(node, None)
        while self._since:
            key = next(iter(self._since))
            if self._since[key] > now - SETTLE_NS:
                return
            self._settle(key)

    def _settle(self, key: _Key) -> None:
        del self._since[key]
        self.histogram[self._asked.pop(key)] += 1

    def quantile(self, share: float) -> int:
        """NACKs per lost multicast packet that `share` of them do not exceed."""
        for key in list(self._since):
            self._settle(key)
        total = sum(self.histogram.values())
        seen = 0
        for count in sorted(self.histogram):
            seen += self.histogram[count]
            if seen >= share * total:
                return count
        return 0


def _key(packet: object) -> _Key | None:
    match packet:
        case Data():
            return (packet.sender, packet.number)
        case Token():
            return ("token", packet.token_number)
        case TokenPart():
            return (f"part {packet.part}", packet.token_number)
        case _:
            return None
