"""S7 and S9: what a site has promised, and what a majority therefore remembers.

S7  prom and e_acc never go back, restarts included; no TOKEN or RECEIPT of e after prom > e; a site that lost its
    disk has forgotten its promises and never votes again under its id; a secondary receiver votes for nothing
S9  a majority-gate release of t implies that a majority of U held the log up to t in one epoch, before any of them
    promised more; what a majority held is in the log of every later ring; a restart never holds less than was
    receipted
"""

from __future__ import annotations

from isocast.checks.facts import Completed, Installed, Promised, ReceiptSent, Released, Restarted, TokenSent
from isocast.checks.law import Law, Report
from isocast.checks.view import View, trim
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, describe, is_site
from isocast.terms.timing import Gate
from isocast.wire.packets import NewRing

__all__ = ["Promises"]

_FORGOT = "it lost its disk and may have promised more"
_NO_VOTE = "a secondary receiver, which has no vote"
_EPOCHS_MAX = 64
"""Epochs whose holdings are remembered one by one; older ones leave only how far they were certified."""


_DIGESTS_MAX = 64
"""Digests of an epoch's newest tokens: what its majority holds is never far behind."""


class _Holdings:
    """How far each site held the log while it took part in one epoch."""

    __slots__ = ("certified", "digests", "held", "need", "universe")

    def __init__(self, universe: tuple[NodeId, ...]) -> None:
        self.universe = universe
        self.need = len(universe) // 2 + 1
        self.held: dict[NodeId, int] = {}
        self.digests: dict[int, bytes] = {}
        self.certified = 0

    def covers(self, token_number: int) -> bool:
        """Whether a majority of U held everything up to a token."""
        if self.certified >= token_number:
            return True
        if sum([self.held.get(site, 0) >= token_number for site in self.universe]) < self.need:
            return False
        self.certified = token_number
        return True

    def level(self) -> int:
        """The newest token that a majority of U held."""
        held = sorted([self.held.get(site, 0) for site in self.universe], reverse=True)
        return held[self.need - 1] if len(held) >= self.need else 0


class Promises:
    """Watches what sites promise, and what they may no longer do after that."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """Nobody promised anything."""
        self._by_majority = law.timing.gate is Gate.MAJORITY
        self._secondary = law.parents
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
        if fact.epoch < site.promised or site.forgot or fact.site in self._secondary:
            self._vote(fact.site, fact.at, fact.epoch, f"sent a receipt for token {fact.held} of epoch {fact.epoch}")
        known = self._receipted.get(fact.site)
        if known is None or (fact.epoch, fact.held) > known:
            self._receipted[fact.site] = (fact.epoch, fact.held)

    def _vote(self, node: NodeId, at: int, epoch: Epoch, did: str) -> None:
        site = self._view.site(node)
        if node in self._secondary:
            self._report("S7", at, f"{describe(node)} {did}, but is {_NO_VOTE}")
        elif site.forgot:
            self._report("S7", at, f"{describe(node)} {did}, but {_FORGOT}")
        elif epoch < site.promised:
            self._report("S7", at, f"{describe(node)} {did} after it had promised {site.promised}")

    def on_promised(self, fact: Promised) -> None:
        """Promises only rise."""
        site = self._view.site(fact.site)
        who = describe(fact.site)
        if fact.site in self._secondary:
            self._report("S7", fact.at, f"{who} promised {fact.ballot}, but is {_NO_VOTE}")
        elif site.forgot:
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
            self._check_cut(fact)
            self._holdings[ring.ballot] = _Holdings(ring.universe)
            if len(self._holdings) > _EPOCHS_MAX:
                oldest = self._holdings.pop(min(self._holdings))
                self._certified = max(self._certified, oldest.level())
        self._hold(fact.site, ring.ballot)

    def _check_cut(self, fact: Installed) -> None:
        """What a majority held in any earlier epoch is part of every later ring's log, released or not."""
        ring = fact.ring
        for epoch, holdings in self._holdings.items():
            if epoch > ring.ballot:
                continue
            level = holdings.level()
            if level > ring.cut_token or not self._continues(ring, level, holdings.digests.get(level)):
                text = f"epoch {ring.ballot} begins after token {ring.cut_token} of epoch {ring.cut_epoch}"
                self._report("S9", fact.at, f"{text} and forgets token {level}, which a majority held in epoch {epoch}")
                return

    def _continues(self, ring: NewRing, token_number: int, digest: bytes | None) -> bool:
        """Whether the log of a ring's cut has this token; the chained digest of a holder tells."""
        if token_number == ring.cut_token:
            return digest is None or digest == ring.cut_digest
        known = [self._view.site(holder).digests.get(token_number) for holder in ring.holders]
        return digest is None or all(other in (None, digest) for other in known)

    def on_completed(self, fact: Completed) -> None:
        """A site that takes part in an epoch holds one token more. The view knows of it already."""
        self._hold(fact.site, fact.epoch)

    def _hold(self, node: NodeId, epoch: Epoch) -> None:
        site, holdings = self._view.site(node), self._holdings.get(epoch)
        if holdings is not None and site.takes_part(epoch) and site.real > holdings.held.get(node, 0):
            holdings.held[node] = site.real
            digest = site.digests.get(site.real)
            if digest is not None and site.real not in holdings.digests:
                holdings.digests[site.real] = digest
                trim(holdings.digests, _DIGESTS_MAX)

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
