"""S7 and S9: what a site has promised, and what a majority therefore remembers."""

from __future__ import annotations

from isocast.checks.evidence import majority_level
from isocast.checks.facts import (
    Completed,
    Installed,
    Invited,
    Law,
    Promised,
    ReceiptSent,
    Released,
    Replaced,
    Report,
    Restarted,
    RingFormed,
    TokenMade,
    TokenSent,
    Voted,
)
from isocast.checks.universe import Chain, UniverseChange, spans
from isocast.checks.view import WINDOW_TOKENS, EpochView, SiteView, View, trim
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, describe, is_site
from isocast.terms.timing import Gate
from isocast.wire.packets import ControlKind, NewRing

__all__ = ["Promises", "Tokens"]


_FORGOT = "it lost its disk and may have promised more"
_NO_VOTE = "a secondary receiver, which has no vote"
_EPOCHS_MAX = 64
"""Epochs whose holdings are remembered one by one; older ones leave only how far they were certified."""


_CHANGES = (ControlKind.ADD_SITE, ControlKind.REMOVE_SITE)
_DIGESTS_MAX = 64
"""Digests of an epoch's newest tokens: what its majority holds is never far behind."""


class _Holdings:
    """How far each site held the log while it took part in one epoch, and who must, for it to be certified there."""

    __slots__ = ("chain", "digests", "held", "ring", "settled")

    def __init__(self, ring: NewRing, chain: Chain, settled: int) -> None:
        self.ring = ring
        self.settled = settled
        """What earlier epochs certified: changes of U up to here need no certificate in this one."""
        self.chain = (UniverseChange(0, ring.universe),) if ring.forced or not chain else chain
        self.held: dict[NodeId, int] = {}
        self.digests: dict[int, bytes] = {}

    def covers(self, token_number: int) -> bool:
        """Whether a majority held everything up to a token."""
        return self.level() >= token_number

    def level(self) -> int:
        """The newest token that a majority held: of U, a change of it counting once it is certified.

        In a ring without a majority of U, a majority of the ring.
        """
        if self.ring.uncertified:
            return majority_level(self.held, self.ring.ring)
        level = 0
        governing = spans(self.chain, self.settled)
        for place, (last, universe) in enumerate(governing):
            level = max(level, min(majority_level(self.held, universe), last))
            if level < last and place + 1 < len(governing):
                level = max(level, min(majority_level(self.held, governing[place + 1][1]), last))
            if level < last:
                break
        return level

    def lacking(self, token_number: int) -> str:
        """Who held a token, and how many of whom had to."""
        universe = self.ring.ring
        if not self.ring.uncertified:
            universe = next(u for last, u in spans(self.chain, self.settled) if token_number <= last)
        holders = [site for site in universe if self.held.get(site, 0) >= token_number]
        return f"only {', '.join(map(describe, holders)) or 'nobody'} held there, {len(universe) // 2 + 1} being needed"


class Promises:
    """Watches what sites promise, and what they may no longer do after that."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """Nobody promised anything."""
        self._by_majority = law.timing.gate is Gate.MAJORITY
        self._may_diverge = law.may_diverge
        self._secondary = law.parents
        self._view = view
        self._report = report
        self._receipted: dict[NodeId, tuple[Epoch, int]] = {}
        self._holdings: dict[Epoch, _Holdings] = {}
        self._changes: dict[tuple[Epoch, int], None] = {}
        self._invited: dict[NodeId, Epoch] = {}
        """Of each server, the newest ballot of its present life, and below it those of lives before."""
        self._used: dict[NodeId, Epoch] = {}
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

    def on_voted(self, fact: Voted) -> None:
        """A site that votes is bound by its vote, and remembers it."""
        site, who = self._view.site(fact.site), describe(fact.site)
        if site.forgot:
            self._report("S7", fact.at, f"{who} voted for {fact.ballot}, but {_FORGOT}")
        elif fact.ballot != site.promised:
            self._report("S7", fact.at, f"{who} voted for {fact.ballot}, but its promise is {site.promised}")

    def on_invited(self, fact: Invited) -> None:
        """A ballot belongs to one life of its server: in the next it has forgotten the votes, and what came of them."""
        self._invited[fact.server] = max(fact.ballot, self._invited.get(fact.server, NO_EPOCH))
        if fact.ballot <= self._used.get(fact.server, NO_EPOCH):
            self._report("S7", fact.at, f"{describe(fact.server)} invites to {fact.ballot}, as before it restarted")

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

    def on_replaced(self, fact: Replaced) -> None:
        """A log is taken over by those who may vote with it, ahead of what they held, in an epoch that they are in."""
        site, who = self._view.site(fact.site), describe(fact.site)
        what = f"{who} took over token {fact.token_number} of epoch {fact.epoch}"
        if site.forgot:
            self._report("S7", fact.at, f"{what}, but {_FORGOT}")
        elif fact.epoch > site.accepted:
            self._report("S7", fact.at, f"{what}, but is in epoch {site.accepted}")
        elif site.promised > site.accepted:
            self._report("S7", fact.at, f"{what} after it had promised {site.promised}")

    def on_restarted(self, fact: Restarted) -> None:
        """A disk that was kept has everything that anybody may rely on."""
        if fact.node in self._invited:
            self._used[fact.node] = self._invited[fact.node]
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

    def on_back(self, fact: Restarted) -> None:
        """What a disk has counts, though its site went down before it could say so. The view knows of it already."""
        if is_site(fact.node) and fact.disk_kept:
            self._hold(fact.node, fact.accepted)

    # S9 -----------------------------------------------------------------------------------------

    def on_entered(self, fact: Installed) -> None:
        """A site that entered an epoch holds the cut in it. The view knows of it already."""
        ring = fact.ring
        if ring.ballot not in self._holdings:
            if not self._may_diverge:
                self._check_cut(fact)
            settled = max([known.level() for known in self._holdings.values()], default=0)
            chain = self._view.chains.at(ring.cut_digest)
            self._holdings[ring.ballot] = _Holdings(ring, chain, max(settled, self._certified))
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
        epoch = self._view.epochs.get(fact.epoch)
        issued = epoch is not None and fact.token_number >= epoch.first_token
        if issued and fact.control and (fact.epoch, fact.token_number) not in self._changes:
            self._changes[fact.epoch, fact.token_number] = None
            trim(self._changes, _EPOCHS_MAX)
            self._check_change(fact)
        self._hold(fact.site, fact.epoch)

    def _check_change(self, fact: Completed) -> None:
        """U changes on top of what is certified, by one site at a time: the first to complete a change issued it."""
        earlier = [change for change in self._view.site(fact.site).chain if change.token_number <= fact.token_number]
        epoch = self._view.epochs.get(fact.epoch)
        if earlier[-1:] and earlier[-1].token_number == fact.token_number and not earlier.pop().forced and epoch:
            last = earlier[-1] if earlier else None
            what = f"token {fact.token_number} of epoch {fact.epoch} changes U"
            if len([entry for entry in fact.control if entry.kind in _CHANGES]) > 1:
                self._report("S9", fact.at, f"{what} by more than one site")
            elif epoch.ring.uncertified:
                self._report("S9", fact.at, f"{what}, and no majority of U stands behind that epoch")
            elif last is not None and last.token_number and not last.forced and not self._covered(last.token_number):
                self._report("S9", fact.at, f"{what} before token {last.token_number}, which changed it, is certified")

    def _covered(self, token_number: int) -> bool:
        return token_number <= self._certified or any(
            holdings.covers(token_number) for holdings in self._holdings.values()
        )

    def on_taken_over(self, fact: Replaced) -> None:
        """A site that took a checkpoint over holds it in its epoch. The view knows of it already."""
        self._hold(fact.site, self._view.site(fact.site).accepted)

    def _hold(self, node: NodeId, epoch: Epoch) -> None:
        site, holdings = self._view.site(node), self._holdings.get(epoch)
        if holdings is not None and site.takes_part(epoch) and site.real > holdings.held.get(node, 0):
            holdings.held[node] = site.real
            if len(site.chain) > len(holdings.chain) and not site.real < site.held:
                holdings.chain = site.chain
            digest = site.digests.get(site.real)
            if digest is not None and site.real not in holdings.digests:
                holdings.digests[site.real] = digest
                trim(holdings.digests, _DIGESTS_MAX)

    def on_released(self, fact: Released) -> None:
        """Nothing goes out that a later ring could forget; what could be forgotten says so."""
        number, own = fact.token_number, self._holdings.get(fact.epoch)
        if not self._by_majority:
            return
        if own is not None and own.ring.uncertified != fact.uncertified:
            what = "as if no majority stood behind it" if fact.uncertified else "without a word that no majority does"
            self._report("S9", fact.at, f"{describe(fact.site)} released token {number} in epoch {fact.epoch} {what}")
        if number <= self._certified:
            return
        for epoch in reversed(self._holdings):
            holdings = self._holdings[epoch]
            if epoch <= fact.epoch and fact.uncertified >= holdings.ring.uncertified and holdings.covers(number):
                return
        text = f"{describe(fact.site)} released token {number} in epoch {fact.epoch}"
        self._report("S9", fact.at, f"{text}, which {own.lacking(number) if own else 'nobody held there'}")


# S5, S6, S8 and S11: who may send which token, and what that proves.


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
            # Where a majority stands behind it, every site that goes on to another epoch takes it there.
            lost = epoch.left.get(member, 0) >= floor and self._view.may_lose(epoch)
            if not site.forgot and not site.shares(sender, floor) and not lost:
                text = f"{what} in a ring of {epoch.size}, but {describe(member)} holds {site.real} and not {floor}"
                self._report("S8", fact.at, text)
                return

    def on_completed(self, fact: Completed) -> None:
        """A site that completes a token must have the content that its owner gave it."""
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
        """All sites that enter an epoch enter the same ring."""
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
