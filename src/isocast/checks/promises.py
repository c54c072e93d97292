"""S7 and S9: what a site has promised, and what a majority therefore remembers.

S7  prom and e_acc never go back, restarts included; no TOKEN or RECEIPT of e after prom > e; a site that lost its
    disk has forgotten its promises and never votes again under its id
S9  a majority-gate release of t implies that a majority of U held the log up to t in one epoch, before any of them
    promised more; and a restart never holds less than was receipted
"""

from __future__ import annotations

from isocast.checks.facts import Completed, Installed, Promised, ReceiptSent, Released, Restarted, TokenSent
from isocast.checks.law import Law, Report
from isocast.checks.view import View
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, describe, is_site
from isocast.terms.timing import Gate

__all__ = ["Promises"]

_FORGOT = "it lost its disk and may have promised more"
_EPOCHS_MAX = 64
"""Epochs whose holdings are remembered one by one; older ones leave only how far they were certified."""


class _Holdings:
    """How far each site held the log while it took part in one epoch."""

    __slots__ = ("certified", "held", "need", "universe")

    def __init__(self, universe: tuple[NodeId, ...]) -> None:
        self.universe = universe
        self.need = len(universe) // 2 + 1
        self.held: dict[NodeId, int] = {}
        self.certified = 0

    def covers(self, token_number: int) -> bool:
        """Whether a majority of U held everything up to a token."""
        if self.certified >= token_number:
            return True
        if sum([self.held.get(site, 0) >= token_number for site in self.universe]) < self.need:
            return False
        self.certified = token_number
        return True


class Promises:
    """Watches what sites promise, and what they may no longer do after that."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """Nobody promised anything."""
        self._by_majority = law.timing.gate is Gate.MAJORITY
        self._view = view
        self._report = report
        self._receipted: dict[NodeId, tuple[Epoch, int]] = {}
        self._holdings: dict[Epoch, _Holdings] = {}
        self._certified = 0
        """By epochs that are no longer remembered."""

    # S7 -----------------------------------------------------------------------------------------

    def on_token(self, fact: TokenSent) -> None:
        """A token is a vote for its epoch."""
        self._vote(fact.site, fact.at, fact.epoch, f"sent token {fact.token_number} of epoch {fact.epoch}")

    def on_receipt(self, fact: ReceiptSent) -> None:
        """So is a receipt; and what was receipted must outlive a restart."""
        site = self._view.site(fact.site)
        if fact.epoch < site.promised or site.forgot:
            self._vote(fact.site, fact.at, fact.epoch, f"sent a receipt for token {fact.held} of epoch {fact.epoch}")
        known = self._receipted.get(fact.site)
        if known is None or (fact.epoch, fact.held) > known:
            self._receipted[fact.site] = (fact.epoch, fact.held)

    def _vote(self, node: NodeId, at: int, epoch: Epoch, did: str) -> None:
        site = self._view.site(node)
        if site.forgot:
            self._report("S7", at, f"{describe(node)} {did}, but {_FORGOT}")
        elif epoch < site.promised:
            self._report("S7", at, f"{describe(node)} {did} after it had promised {site.promised}")

    def on_promised(self, fact: Promised) -> None:
        """Promises only rise."""
        site = self._view.site(fact.site)
        who = describe(fact.site)
        if site.forgot:
            self._report("S7", fact.at, f"{who} promised {fact.ballot}, but {_FORGOT}")
        elif fact.ballot < site.promised:
            self._report("S7", fact.at, f"{who} promised {fact.ballot} after {site.promised}")

    def on_installed(self, fact: Installed) -> None:
        """A ring is entered only upwards, and never below a promise."""
        site, ballot = self._view.site(fact.site), fact.ring.ballot
        who = describe(fact.site)
        if site.forgot:
            self._report("S7", fact.at, f"{who} entered epoch {ballot}, but {_FORGOT}")
        elif ballot < site.promised:
            self._report("S7", fact.at, f"{who} entered epoch {ballot} after it had promised {site.promised}")
        elif ballot == site.accepted:
            self._report("S7", fact.at, f"{who} entered epoch {ballot} again, back to token {fact.ring.cut_token}")

    def on_restarted(self, fact: Restarted) -> None:
        """A disk that was kept has everything that anybody may rely on."""
        if not fact.disk_kept or not is_site(fact.node):
            return
        site, who = self._view.site(fact.node), describe(fact.node)
        if site.forgot:
            return
        if fact.promised < site.promised:
            self._report(
                "S7", fact.at, f"{who} restarted with promise {fact.promised}, but had promised {site.promised}"
            )
        if fact.accepted < site.accepted:
            self._report("S7", fact.at, f"{who} restarted in epoch {fact.accepted}, but had entered {site.accepted}")
        epoch, held = self._receipted.get(fact.node, (NO_EPOCH, 0))
        if epoch == fact.accepted and fact.held < held:
            text = f"{who} restarted with token {fact.held}, but had receipted {held} in epoch {epoch}"
            self._report("S9", fact.at, text)

    # S9 -----------------------------------------------------------------------------------------

    def on_entered(self, fact: Installed) -> None:
        """A site that entered an epoch holds the cut in it. The view knows of it already."""
        ring = fact.ring
        if ring.ballot not in self._holdings:
            self._holdings[ring.ballot] = _Holdings(ring.universe)
            if len(self._holdings) > _EPOCHS_MAX:
                oldest = self._holdings.pop(min(self._holdings))
                held = sorted([oldest.held.get(site, 0) for site in oldest.universe], reverse=True)
                self._certified = max([self._certified, *held[oldest.need - 1 : oldest.need]])
        self._hold(fact.site, ring.ballot)

    def on_completed(self, fact: Completed) -> None:
        """A site that takes part in an epoch holds one token more. The view knows of it already."""
        self._hold(fact.site, fact.epoch)

    def _hold(self, node: NodeId, epoch: Epoch) -> None:
        site, holdings = self._view.site(node), self._holdings.get(epoch)
        if holdings is not None and site.takes_part(epoch) and site.real > holdings.held.get(node, 0):
            holdings.held[node] = site.real

    def on_released(self, fact: Released) -> None:
        """Nothing goes out that a later ring could forget."""
        number = fact.token_number
        if not self._by_majority or number <= self._certified:
            return
        for epoch in reversed(self._holdings):
            if epoch <= fact.epoch and self._holdings[epoch].covers(number):
                return
        own = self._holdings.get(fact.epoch)
        holders = [site for site in own.universe if own.held.get(site, 0) >= number] if own else []
        who = ", ".join(map(describe, holders)) or "nobody"
        text = (
            f"{describe(fact.site)} released token {number} in epoch {fact.epoch},"
            f" which only {who} held there, {own.need if own else 'a majority'} being needed"
        )
        self._report("S9", fact.at, text)
