"""S10, S6 and S8 below the ring, and L8: what is said about those who hold a token is true.

S6   a secondary token v passed implies that its sender, and everybody below it, really holds everything up to v
S8   a token's `stable` and `secstable` are really held by whom they speak of
S10  what leaves one site's memory is held by every member of its ring, and by every secondary receiver below them
L8   at the end every correct secondary receiver is counted by somebody on the ring, its own head or another

A secondary receiver that its head has given up, and named, is not waited for, unless another has adopted it.
"""

from __future__ import annotations

from collections.abc import Mapping

from isocast.checks.facts import (
    Collected,
    GroupHeaded,
    HandedBack,
    Installed,
    Restarted,
    Returned,
    SecondaryTokenPassed,
    StabilityClaimed,
    Stalled,
)
from isocast.checks.law import EndOfRun, Report
from isocast.checks.layers import Coverage
from isocast.checks.view import SiteView, View
from isocast.terms.ids import NodeId, describe
from isocast.wire.packets import NO_LIMIT

__all__ = ["Stability"]


class Stability:
    """Watches what is dropped, and what is said that allows it."""

    def __init__(self, view: View, report: Report, parents: Mapping[NodeId, NodeId]) -> None:
        """Nothing is dropped yet."""
        self._view = view
        self._report = report
        self._coverage = Coverage(parents)
        self._claimed = 0
        """What a token has called stable."""
        self._written_off: dict[NodeId, int] = {}
        """Up to where nobody waited for a secondary receiver, though somebody waits for it now."""

    def on_stalled(self, fact: Stalled) -> None:
        """A head waits for a member no longer."""
        self._coverage.on_stalled(fact)

    def on_returned(self, fact: Returned) -> None:
        """It waits for it again."""
        self._coverage.on_returned(fact)

    def on_headed(self, fact: GroupHeaded) -> None:
        """A group has a head in this epoch.

        One that restarts within it counts everybody anew, and what a token had called stable before stays so.
        """
        self._written_off.update(dict.fromkeys(self._coverage.given_up_before(fact), self._claimed))
        self._coverage.on_headed(fact)

    def on_handed_back(self, fact: HandedBack) -> None:
        """A site waits no longer for a member of another's group."""
        self._coverage.on_handed_back(fact)

    def on_installed(self, fact: Installed) -> None:
        """Adopted members stay where an epoch goes on. Before the view: it knows the epoch that the site leaves."""
        if fact.ring.cut_epoch != self._view.site(fact.site).accepted:
            self._coverage.forget_adopted(fact.site)

    def on_restarted(self, fact: Restarted) -> None:
        """A site that restarts has adopted nobody."""
        self._coverage.forget_adopted(fact.node)

    def on_collected(self, fact: Collected) -> None:
        """Everybody whom the collecting site's ring waits for must really hold the token."""
        collector = self._view.site(fact.site)
        epoch = self._view.epochs.get(collector.accepted)
        if epoch is None:
            self._report("S10", fact.at, f"{describe(fact.site)} collected token {fact.token_number} outside any ring")
            return
        lacking = self._lacking([*epoch.members, *self._coverage.of(epoch)], collector, fact.token_number)
        if lacking is not None:
            text = (
                f"{describe(fact.site)} collected token {fact.token_number} in epoch {collector.accepted},"
                f" but {describe(lacking.site)} holds {lacking.real}"
            )
            self._report("S10", fact.at, text)

    def on_claimed(self, fact: StabilityClaimed) -> None:
        """Sources free what is `stable`, and everybody drops what is `secstable` at all heads."""
        epoch, sender = self._view.epochs.get(fact.epoch), self._view.site(fact.site)
        if epoch is None:
            return
        what = f"token {fact.token_number} of {describe(fact.site)} in epoch {fact.epoch}"
        below = self._coverage.below(fact.site, fact.epoch)
        if fact.secstable == NO_LIMIT:
            if below:
                text = f"{what} waits for nobody below, and {describe(below[0])} has not been given up"
                self._report("S8", fact.at, text)
        elif fact.secstable >= epoch.first_token:
            self._check(
                "S8", fact.at, f"{what} says that the group holds {fact.secstable}", below, fact.secstable, sender
            )
        if fact.stable >= epoch.first_token:
            # What is stable since an earlier epoch was judged there.
            everybody = [*epoch.members, *self._coverage.of(epoch)]
            self._check("S8", fact.at, f"{what} says that all hold {fact.stable}", everybody, fact.stable, sender)
            self._claimed = max(self._claimed, fact.stable)

    def on_passed(self, fact: SecondaryTokenPassed) -> None:
        """Nobody passes what it does not hold, or what somebody below it lacks."""
        sender = self._view.site(fact.site)
        what = f"{describe(fact.site)} passed secondary token {fact.token_number} of epoch {fact.epoch}"
        if fact.epoch != sender.accepted:
            self._report("S6", fact.at, f"{what}, but is in epoch {sender.accepted}")
            return
        # A head speaks for itself in its own group.
        heads = self._coverage.heads(fact.site, fact.group, fact.epoch)
        below = [] if heads else self._coverage.below(fact.site, fact.epoch)
        self._check("S6", fact.at, what, [fact.site, *below], fact.token_number, sender)

    def uncounted(self, correct: tuple[NodeId, ...]) -> list[NodeId]:
        """Correct secondary receivers for which nobody of the newest ring waits."""
        epochs = self._view.epochs
        if not epochs:
            return []
        return [node for node in self._coverage.uncounted(epochs[max(epochs)]) if node in correct]

    def finish(self, end: EndOfRun) -> None:
        """L8."""
        for node in self.uncounted(end.correct):
            self._report("L8", end.now, f"nobody on the ring waits for {describe(node)}")

    def _check(self, name: str, at: int, what: str, sites: list[NodeId], number: int, sender: SiteView) -> None:
        lacking = self._lacking(sites, sender, number)
        if lacking is not None:
            self._report(name, at, f"{what}, but {describe(lacking.site)} holds {lacking.real}")

    def _lacking(self, sites: list[NodeId], other: SiteView, token_number: int) -> SiteView | None:
        """The first of some sites that does not really hold another's log up to a token."""
        known, epoch = self._view.sites, other.accepted
        for node in sites:
            site = known.get(node) or self._view.site(node)
            if site.accepted == epoch and site.held >= token_number < site.hollow:
                # The common case of `shares`, spelled out: a hundred members ask it of one another at every token.
                continue
            if token_number <= self._written_off.get(node, 0):
                continue
            if not site.forgot and not site.shares(other, token_number):
                return site
        return None
