"""S9 by evidence: what a site may count as certified, and release, from what it has heard.

That a majority happens to hold a token is not enough: a site must know it, from receipts of one epoch and of sites of
U. One that counts others is right by luck, until a ring is reformed at the wrong moment.
"""

from __future__ import annotations

from isocast.checks.facts import Certified, Installed, Law, ReceiptHeard, Released, Replaced, Report, Restarted
from isocast.checks.universe import spans
from isocast.checks.view import SiteView, View
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.terms.timing import Gate

__all__ = ["ReceiptEvidence", "majority_level"]


def majority_level(held: dict[NodeId, int], universe: tuple[NodeId, ...]) -> int:
    """The newest token that more than half of some sites hold."""
    levels = sorted([held.get(site, 0) for site in universe], reverse=True)
    return levels[len(universe) // 2] if levels else 0


class ReceiptEvidence:
    """Watches what sites make of receipts."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """Nobody has heard anything."""
        self._watches = law.hears and law.timing.gate is Gate.MAJORITY and not law.may_diverge
        self._view = view
        self._report = report
        self._heard: dict[NodeId, dict[Epoch, dict[NodeId, int]]] = {}
        self._certified: dict[NodeId, int] = {}
        """What each site may count as certified, by evidence of epochs that it has left."""

    def on_heard(self, fact: ReceiptHeard) -> None:
        """A receipt counts in its own epoch alone."""
        held = self._heard.setdefault(fact.site, {}).setdefault(fact.epoch, {})
        if fact.held > held.get(fact.sender, 0):
            held[fact.sender] = fact.held

    def on_installed(self, fact: Installed) -> None:
        """What was certified stays so; receipts of older epochs are worth nothing. Before the view."""
        if not self._watches:
            return
        self._certified[fact.site] = self._level(fact.site)
        epochs = self._heard.get(fact.site, {})
        for epoch in [epoch for epoch in epochs if epoch < fact.ring.ballot]:
            del epochs[epoch]

    def on_replaced(self, fact: Replaced) -> None:
        """A checkpoint is of what its giver has released."""
        self._certified[fact.site] = max(self._certified.get(fact.site, 0), fact.token_number)

    def on_restarted(self, fact: Restarted) -> None:
        """What a site heard was in its memory; what it released, it need not certify again."""
        if fact.node in self._heard:
            self._certified[fact.node] = self._level(fact.node)
            self._heard[fact.node].clear()

    def on_certified(self, fact: Certified) -> None:
        """The view knows what the site holds."""
        self._check(fact.at, fact.site, fact.token_number, f"counts token {fact.token_number} as certified")

    def on_released(self, fact: Released) -> None:
        """Nothing goes out on trust."""
        self._check(fact.at, fact.site, fact.token_number, f"released token {fact.token_number}")

    def _check(self, at: int, node: NodeId, number: int, did: str) -> None:
        if not self._watches or number <= self._certified.get(node, 0):
            return
        level = self._certified[node] = self._level(node)
        if number > level:
            site = self._view.site(node)
            heard = self._heard.get(node, {}).get(site.accepted, {})
            known = ", ".join([f"{describe(other)} {held}" for other, held in sorted(heard.items())]) or "nothing"
            text = f"{describe(node)} {did} in epoch {site.accepted}, but has heard of {known}: evidence for {level}"
            self._report("S9", at, text)

    def _level(self, node: NodeId) -> int:
        """How far a majority of U holds the site's log, as far as it can know."""
        site = self._view.site(node)
        level = self._certified.get(node, 0)
        held = dict(self._heard.get(node, {}).get(site.accepted, {}))
        held[node] = max(held.get(node, 0), site.held)
        governing = spans(site.chain, level) if site.chain else []
        for place, (last, universe) in enumerate(governing):
            level = max(level, min(majority_level(held, universe), last))
            if level < last and place + 1 < len(governing):
                level = max(level, min(majority_level(held, governing[place + 1][1]), last))
            if level < last:
                break
        return max(level, _settled_change(site))


def _settled_change(site: SiteView) -> int:
    """The newest change of U that another one follows: it was certified before that one was issued."""
    return site.chain[-2].token_number if len(site.chain) > 1 else 0
