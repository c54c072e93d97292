"""S5, S6, S8 and S11: who may send which token, and what that proves.

S5   at most one content per (e, t), from its owner
S6   TOKEN(e, t) sent implies that its sender really held everything up to t-1
S8   TOKEN(t) sent and t-m+1 ≥ t0 implies that every member really holds everything up to t-m+1
S11  T_t is the scheduled instant; a ring starts at least a period after the newest token of its cut
"""

from __future__ import annotations

from isocast.checks.facts import Completed, Installed, Replaced, RingFormed, TokenMade, TokenSent
from isocast.checks.law import Law, Report
from isocast.checks.view import WINDOW_TOKENS, EpochView, SiteView, View, trim
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.wire.packets import NewRing

__all__ = ["Tokens"]


class Tokens:
    """Watches every token against its epoch's ring and its sender's log."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """No token yet."""
        self._period_ns = law.timing.token_period_ns
        self._view = view
        self._report = report
        self._contents: dict[tuple[Epoch, int], tuple[bytes, NodeId]] = {}
        self._instants: dict[bytes, int] = {}
        self._formed: dict[Epoch, NewRing] = {}

    def on_made(self, fact: TokenMade) -> None:
        """What is on an owner's disk may come to others, though the owner went down before it sent it."""
        token = fact.token
        self._content(token.epoch, token.token_number, fact.digest, fact.site, fact.at)
        self._instants[fact.digest] = token.instant
        trim(self._instants, WINDOW_TOKENS)

    def on_token(self, fact: TokenSent) -> None:
        """A token went out: all four properties speak about this moment."""
        number = fact.token_number
        what = f"{describe(fact.site)} sent token {number} of epoch {fact.epoch}"
        self._content(fact.epoch, number, fact.digest, fact.site, fact.at)
        self._instants[fact.digest] = fact.instant
        trim(self._instants, WINDOW_TOKENS)
        epoch = self._view.epochs.get(fact.epoch)
        if epoch is None:
            self._report("S5", fact.at, f"{what}, a ring that nobody installed")
            return
        if number < epoch.first_token or fact.site != epoch.owner(number):
            owner = describe(epoch.owner(number)) if number >= epoch.first_token else "a site of an earlier epoch"
            self._report("S5", fact.at, f"{what}, whose owner is {owner}")
        if fact.instant != epoch.instant(number):
            text = f"{what} with instant {fact.instant}, but it is scheduled for {epoch.instant(number)}"
            self._report("S11", fact.at, text)
        sender = self._view.site(fact.site)
        self._check_sender(fact, what, sender)
        self._check_members(fact, what, epoch, sender)

    def _check_sender(self, fact: TokenSent, what: str, sender: SiteView) -> None:
        # The owner's own token joins its log in the same step, before it is sent.
        if sender.real < fact.token_number - 1 or sender.held > fact.token_number:
            holds = f"it held {sender.held}"
            if sender.real < sender.held:
                holds += f", and token {sender.hollow} of that is not whole"
            self._report("S6", fact.at, f"{what}, but {holds}")
        elif fact.epoch > sender.accepted:
            self._report("S6", fact.at, f"{what}, but its log is that of epoch {sender.accepted}")

    def _check_members(self, fact: TokenSent, what: str, epoch: EpochView, sender: SiteView) -> None:
        floor = fact.token_number - epoch.size + 1
        if floor < epoch.first_token:
            return
        for member in epoch.members:
            site = self._view.site(member)
            if not site.forgot and not site.shares(sender, floor):
                text = f"{what} in a ring of {epoch.size}, but {describe(member)} holds {site.real} and not {floor}"
                self._report("S8", fact.at, text)
                return

    def on_completed(self, fact: Completed) -> None:
        """Whoever completes a token must have the content that its owner gave it."""
        epoch = self._view.epochs.get(fact.epoch)
        if epoch is None:
            return
        if fact.token_number >= epoch.first_token:
            self._content(fact.epoch, fact.token_number, fact.digest, fact.site, fact.at)
        elif fact.token_number == epoch.ring.cut_token and fact.digest != epoch.ring.cut_digest:
            who = f"{describe(fact.site)} entered epoch {fact.epoch}"
            self._report("S5", fact.at, f"{who} with another token {fact.token_number} than its cut's")

    def on_replaced(self, fact: Replaced) -> None:
        """What is taken over is what the owner of that token made."""
        if fact.token_number:
            self._content(fact.epoch, fact.token_number, fact.digest, fact.site, fact.at)

    def _content(self, epoch: Epoch, number: int, digest: bytes, site: NodeId, at: int) -> None:
        known = self._contents.get((epoch, number))
        if known is None:
            self._contents[epoch, number] = (digest, site)
            trim(self._contents, WINDOW_TOKENS)
        elif known[0] != digest:
            text = (
                f"token {number} of epoch {epoch} is {digest.hex()[:8]} at {describe(site)}"
                f" and {known[0].hex()[:8]} at {describe(known[1])}"
            )
            self._report("S5", at, text)

    def on_formed(self, fact: RingFormed) -> None:
        """One ring per ballot, and time for the newest token of its cut."""
        ring = fact.ring
        known = self._formed.setdefault(ring.ballot, ring)
        trim(self._formed, WINDOW_TOKENS)
        if known != ring:
            self._report("S5", fact.at, f"{describe(fact.server)} formed another ring of epoch {ring.ballot}")
        self._check_start(ring, fact.at)

    def on_installed(self, fact: Installed) -> None:
        """Whoever enters an epoch enters the same ring."""
        ring = fact.ring
        known = self._view.epochs.get(ring.ballot)
        if known is not None:
            if known.ring != ring:
                self._report("S5", fact.at, f"{describe(fact.site)} installed another ring of epoch {ring.ballot}")
            return
        if ring.ballot not in self._formed:
            self._check_start(ring, fact.at)

    def _check_start(self, ring: NewRing, at: int) -> None:
        before = self._instants.get(ring.cut_digest)
        if before is not None and ring.start < before + self._period_ns:
            text = (
                f"epoch {ring.ballot} starts with token {ring.first_token} at {ring.start},"
                f" less than a period after token {ring.cut_token} at {before}"
            )
            self._report("S11", at, text)
