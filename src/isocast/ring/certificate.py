"""Receipts, and what a majority of them certifies (protocol §4)."""

from __future__ import annotations

from isocast.terms.ids import NodeId

__all__ = ["Certificates", "majority"]


def majority(universe: tuple[NodeId, ...]) -> int:
    """More than half of U."""
    return len(universe) // 2 + 1


class Certificates:
    """How far each site has said that it holds the log in the present epoch."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self.receipts: dict[NodeId, int] = {}
        self.certified = 0
        """A majority of U held everything up to here, in one epoch. Never goes back."""

    def restart(self) -> None:
        """A new epoch: receipts of an old one say nothing about it."""
        self.receipts = {}

    def receive(self, site: NodeId, held: int) -> bool:
        """Note a receipt; whether it says something new."""
        if held <= self.receipts.get(site, -1):
            return False
        self.receipts[site] = held
        return True

    def receive_from_all(self, sites: tuple[NodeId, ...], held: int) -> None:
        """Note what each of some sites is known to hold, whoever told."""
        receipts = self.receipts
        for site in sites:
            if receipts.get(site, -1) < held:
                receipts[site] = held

    def level(self, universe: tuple[NodeId, ...]) -> int:
        """The newest token that a majority of this universe holds."""
        need = majority(universe)
        held = sorted([self.receipts.get(site, 0) for site in universe], reverse=True)
        return held[need - 1] if len(held) >= need else 0

    def certify(self, universe: tuple[NodeId, ...], limit: int) -> None:
        """Raise `certified` to what a majority of this universe holds, at most to `limit`."""
        self.certified = max(self.certified, min(self.level(universe), limit))
