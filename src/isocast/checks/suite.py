"""All checkers over one run: facts go in, violations come out.

Facts come in the order in which they happened. What was due in between is judged before the next fact is taken, so
a checker needs no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from isocast.checks.agreement import Agreement
from isocast.checks.disclosure import DisclosureChecker
from isocast.checks.edge import EdgeChecker
from isocast.checks.evidence import ReceiptEvidence
from isocast.checks.facts import (
    Acknowledged,
    BatchTaken,
    Certified,
    ClockStepped,
    Collected,
    Completed,
    Convicted,
    Crashed,
    Cut,
    Delivered,
    Disclosed,
    EndOfRun,
    Entrusted,
    Fact,
    Faulted,
    FloorBusted,
    FloorConfirmed,
    FloorCut,
    FloorDiffered,
    FloorReported,
    FloorStepped,
    FloorTold,
    Forced,
    Freed,
    Given,
    GroupHeaded,
    HandedBack,
    HeadChanged,
    Healed,
    Installed,
    Invited,
    LatestDelivered,
    Law,
    LeftOut,
    Ordered,
    Paused,
    Promised,
    ReceiptHeard,
    ReceiptSent,
    Released,
    Replaced,
    Report,
    Restarted,
    Resumed,
    Returned,
    RingFormed,
    Sealed,
    SecondaryTokenPassed,
    Settled,
    SnapshotTaken,
    StabilityClaimed,
    Stalled,
    Strayed,
    StripeArchived,
    StripeDatagramSent,
    StripeDelivered,
    StripeLeftOut,
    Submitted,
    Suspected,
    TokenMade,
    TokenSent,
    Unanswered,
    Violation,
    Voted,
    label,
)
from isocast.checks.floors import FloorChecker
from isocast.checks.liveness import Liveness
from isocast.checks.narrow import NarrowChecker
from isocast.checks.promises import Promises, Tokens
from isocast.checks.sources import Logs, Reveals, Sources
from isocast.checks.timing import Punctuality
from isocast.checks.view import Deadlines, EpochView, SiteView, View, trim
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.wire.packets import NO_LIMIT, ControlKind

__all__ = ["EndOfRun", "Law", "ReceiverTree", "Shares", "Stability", "Suite", "Violation"]


# F4: what a token takes of what waits at its owner, and in which order.


class Shares:
    """Watches what owners take."""

    def __init__(self, law: Law, report: Report) -> None:
        """No token yet."""
        self._batch_max = law.batch_max
        self._shuffled = law.shuffled
        self._report = report

    def on_batch(self, fact: BatchTaken) -> None:
        """An owner took its share of what waited."""
        what = f"token {fact.token_number} of {describe(fact.site)} in epoch {fact.epoch}"
        if fact.left:
            self._check_shares(fact, what)
        if not self._shuffled:
            self._check_order(fact, what)

    def _check_shares(self, fact: BatchTaken, what: str) -> None:
        count = len(fact.taken)
        source, waiting = fact.left[0]
        if count < self._batch_max:
            text = f"{what} leaves {waiting} of {describe(source)} waiting, and has room for {self._batch_max - count}"
            self._report("F4", fact.at, text)
            return
        shares: dict[NodeId, int] = {}
        for sender, _, _ in fact.taken:
            shares[sender] = shares.get(sender, 0) + 1
        most = max(shares, key=lambda sender: shares[sender])
        least, waiting = min(fact.left, key=lambda item: shares.get(item[0], 0))
        # Shares are whole numbers: those that want more may differ by one.
        if shares[most] > shares.get(least, 0) + 1:
            text = (
                f"{what} takes {shares[most]} of {describe(most)} and {shares.get(least, 0)} of {describe(least)},"
                f" which has {waiting} more"
            )
            self._report("F4", fact.at, text)

    def _check_order(self, fact: BatchTaken, what: str) -> None:
        """Each message counts from when it and all before it of its source were there."""
        there: dict[NodeId, int | None] = {}
        newest, before = -1, None
        for source, number, arrival in fact.taken:
            known = there.get(source, 0)
            ready = there[source] = None if known is None or arrival < 0 else max(known, arrival)
            if ready is None:
                continue
            if ready < newest and before is not None:
                text = f"{what} has {label(source, number)} behind {label(*before)}, which came later"
                self._report("F4", fact.at, text)
                return
            newest, before = ready, (source, number)


# Which secondary receivers anybody may rely on: those that somebody on the ring counts, or should.
#
# Memory waits for a secondary receiver as long as the head of its group does, and that head's own, up to a member of
# the ring. Whoever heads a group says so in each epoch; until somebody has, everybody below is relied on. A site that
# is not the head may count a member too, one whose own head is silent to it: from the moment at which it says so.


_HEADS_MAX = 65_536
"""Heads of epochs long past are of no interest: rings of hundreds of groups, a hundred epochs."""


class ReceiverTree:
    """Who is below whom, who heads whom in which epoch, and who has been given up by whom."""

    def __init__(self, parents: Mapping[NodeId, NodeId]) -> None:
        """Everybody is relied on."""
        self._parents = dict(parents)
        self._groups: dict[NodeId, list[NodeId]] = {}
        for site, parent in parents.items():
            self._groups.setdefault(parent, []).append(site)
        self._heads: dict[tuple[Epoch, NodeId], NodeId] = {}
        self._stalled: dict[tuple[NodeId, NodeId], None] = {}
        """(who gave up, whom)."""
        self._adopted: dict[tuple[NodeId, NodeId], None] = {}
        """(who counts, whom): members of a group that the counting site does not head."""

    # Facts --------------------------------------------------------------------------------------

    def given_up_before(self, fact: GroupHeaded) -> list[NodeId]:
        """Whom a head had given up, with everybody below, when it begins again with the group in the same epoch."""
        if not fact.anew or self._heads.get((fact.epoch, fact.group)) != fact.site:
            return []
        stalled = [node for node in self._groups.get(fact.group, ()) if (fact.site, node) in self._stalled]
        return [one for node in stalled for one in (node, *self.below(node, fact.epoch))]

    def on_headed(self, fact: GroupHeaded) -> None:
        """A head begins, or goes on, with a group."""
        self._heads[fact.epoch, fact.group] = fact.site
        trim(self._heads, _HEADS_MAX)
        if fact.anew:
            for member in self._groups.get(fact.group, ()):
                self._stalled.pop((fact.site, member), None)
        for member in self._groups.get(fact.group, ()):
            self._adopted.pop((fact.site, member), None)

    def on_stalled(self, fact: Stalled) -> None:
        """A site waits for a member no longer, nor for anybody below it."""
        if self._adopted.pop((fact.site, fact.member), self) is self:
            self._stalled[fact.site, fact.member] = None

    def on_returned(self, fact: Returned) -> None:
        """A site waits for a member again, or has adopted one."""
        if self._stalled.pop((fact.site, fact.member), self) is self:
            self._adopted[fact.site, fact.member] = None

    def on_handed_back(self, fact: HandedBack) -> None:
        """An adopted member is its head's again."""
        self._adopted.pop((fact.site, fact.member), None)

    def forget_adopted(self, site: NodeId) -> None:
        """A site restarts, or enters an epoch that does not continue its own: whom it had adopted must come anew."""
        for key in [key for key in self._adopted if key[0] == site]:
            del self._adopted[key]

    # Who is relied on ---------------------------------------------------------------------------

    def heads(self, site: NodeId, group: NodeId, epoch: Epoch) -> bool:
        """Whether a site heads a group: a secondary receiver its own for good, a member of the ring by the epoch."""
        return site == (group if group in self._parents else self._heads.get((epoch, group)))

    def below(self, site: NodeId, epoch: Epoch) -> list[NodeId]:
        """The secondary receivers that a site speaks for."""
        counted = [node for counting, node in self._adopted if counting == site]
        for group, members in self._groups.items():
            if self.heads(site, group, epoch):
                counted.extend([node for node in members if (site, node) not in self._stalled])
        everybody = [one for node in counted for one in (node, *self.below(node, epoch))]
        return sorted(dict.fromkeys(everybody))

    def of(self, epoch: EpochView) -> list[NodeId]:
        """The secondary receivers that the ring of an epoch waits for."""
        return [node for node in self._parents if self._relied(node, epoch)]

    def uncounted(self, epoch: EpochView) -> list[NodeId]:
        """The secondary receivers that no member of the ring has said to wait for, or that it gave up."""
        counted = {node for member in epoch.members for node in self.below(member, epoch.ring.ballot)}
        return [node for node in self._parents if node not in counted]

    def _relied(self, node: NodeId, epoch: EpochView) -> bool:
        if any((member, node) in self._adopted for member in epoch.members):
            return True
        parent = self._parents[node]
        if parent in self._parents:
            return (parent, node) not in self._stalled and self._relied(parent, epoch)
        return (self._heads.get((epoch.ring.ballot, parent)), node) not in self._stalled


# S10, S6 and S8 below the ring, and L8: what is said about those who hold a token is true.
#
# A secondary receiver that its head has given up, and named, is not waited for, unless another has adopted it.


class Stability:
    """Watches what is dropped, and what is said that allows it."""

    def __init__(self, view: View, report: Report, parents: Mapping[NodeId, NodeId]) -> None:
        """Nothing is dropped yet."""
        self._view = view
        self._report = report
        self._coverage = ReceiverTree(parents)
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
        """No head passes a token that it, or a member below it, does not hold."""
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


_Handlers: TypeAlias = tuple[Callable[[Any], None], ...]


_AMONG_LIARS = frozenset(("S1", "S2", "S3", "S4", "S18", "S19", "L1"))
"""What holds for honest sites while others lie."""
_CHANGES_OF_U = (ControlKind.ADD_SITE, ControlKind.REMOVE_SITE, ControlKind.FORCE_UNIVERSE)


class Suite:
    """S1 to S21, F1 to F6, L1 to L8 and T1 to T5, watched from outside."""

    def __init__(self, law: Law) -> None:
        """Before anything happened."""
        self._report = Report(_AMONG_LIARS if law.byzantine else None)
        self._byzantine = law.byzantine
        self._orders: set[bytes] | None = set() if law.orders else None
        self._view = View(law)
        self._deadlines = Deadlines()
        self._agreement = Agreement(law, self._view, self._report)
        self._punctuality = Punctuality(law, self._view, self._deadlines, self._report)
        self._liveness = Liveness(law, self._view, self._deadlines, self._agreement, self._report)
        self._stability = Stability(self._view, self._report, law.parents)
        self._edge = EdgeChecker(law, self._report)
        self._narrow = NarrowChecker(law, self._report)
        self._handlers = self._table(law)
        self._watch_disclosures(law)
        self._watch_edge(there_is_one=bool(law.complete or law.latest or law.forwarders))
        self._watch_stripes(there_are_some=bool(law.stripe_senders))
        self._floors = FloorChecker(law, self._view, self._report) if law.floor else None
        if self._floors is not None:
            self._watch_floor(self._floors)

    def _table(self, law: Law) -> dict[type[Fact], _Handlers]:
        """Who hears of what. Before `view` a checker sees the site as it was, after it as it is."""
        view, agreement, punctuality, liveness = self._view, self._agreement, self._punctuality, self._liveness
        tokens = Tokens(law, view, self._report)
        promises = Promises(law, view, self._report)
        stability, evidence = self._stability, ReceiptEvidence(law, view, self._report)
        logs = self._logs = Logs()
        sources, reveals = Sources(law, logs, self._report), Reveals(law, view, logs, self._report)
        return {
            Submitted: (agreement.on_submitted, liveness.on_submitted),
            TokenSent: (
                tokens.on_token,
                promises.on_token,
                punctuality.on_token,
            ),
            TokenMade: (logs.on_made, sources.on_made, reveals.on_made, tokens.on_made),
            BatchTaken: (Shares(law, self._report).on_batch,),
            ReceiptSent: (promises.on_receipt,),
            ReceiptHeard: (evidence.on_heard, punctuality.on_news),
            Certified: (evidence.on_certified,),
            Completed: (
                view.on_completed,
                tokens.on_completed,
                promises.on_completed,
                reveals.on_completed,
                punctuality.on_news,
                self._on_completed,
            ),
            Released: (
                agreement.on_released,
                promises.on_released,
                evidence.on_released,
                reveals.on_released,
                punctuality.on_released,
                view.on_released,
            ),
            Promised: (promises.on_promised, view.on_promised, liveness.on_promised),
            Voted: (promises.on_voted,),
            Invited: (promises.on_invited,),
            RingFormed: (tokens.on_formed, sources.on_formed, reveals.on_formed),
            Freed: (sources.on_freed,),
            Acknowledged: (sources.on_acknowledged,),
            Installed: (
                evidence.on_installed,
                stability.on_installed,
                agreement.on_installed,
                tokens.on_installed,
                promises.on_installed,
                view.on_installed,
                promises.on_entered,
                punctuality.on_installed,
                liveness.on_installed,
            ),
            Replaced: (
                tokens.on_replaced,
                agreement.on_replaced,
                promises.on_replaced,
                evidence.on_replaced,
                view.on_replaced,
                promises.on_taken_over,
                reveals.on_disturbed,
            ),
            Collected: (stability.on_collected,),
            Suspected: (punctuality.on_suspected, liveness.on_suspected),
            Faulted: (punctuality.on_faulted,),
            Settled: (),
            Ordered: (self._on_ordered,),
            Forced: (),
            Strayed: (agreement.on_strayed,),
            Convicted: (self._on_convicted,),
            StabilityClaimed: (stability.on_claimed,),
            SecondaryTokenPassed: (stability.on_passed,),
            Stalled: (stability.on_stalled,),
            Returned: (stability.on_returned,),
            GroupHeaded: (stability.on_headed,),
            HandedBack: (stability.on_handed_back,),
            HeadChanged: (),
            Unanswered: (),
            Crashed: (agreement.on_crashed, view.on_crashed, liveness.on_crashed),
            Restarted: (
                stability.on_restarted,
                agreement.on_restarted,
                promises.on_restarted,
                evidence.on_restarted,
                view.on_restarted,
                promises.on_back,
                reveals.on_disturbed,
            ),
            ClockStepped: (view.on_clock_stepped,),
            Paused: (view.on_paused,),
            Resumed: (view.on_resumed,),
            Cut: (liveness.on_cut,),
            Healed: (liveness.on_healed,),
        }

    def _watch_disclosures(self, law: Law) -> None:
        """Only where keys are disclosed: the checker looks at every message."""
        handlers = self._handlers
        handlers |= {Sealed: (), Disclosed: ()}
        if law.opens is None:
            return
        checker = DisclosureChecker(law, law.opens, self._logs, self._report)
        handlers[Sealed] = (checker.on_sealed,)
        handlers[Disclosed] = (checker.on_disclosed,)
        handlers[TokenMade] += (checker.on_made,)
        handlers[ReceiptSent] += (checker.on_receipt,)
        handlers[ReceiptHeard] += (checker.on_heard,)
        handlers[Completed] += (checker.on_completed,)
        handlers[Replaced] += (checker.on_replaced,)
        handlers[Released] += (checker.on_released,)

    def _watch_edge(self, *, there_is_one: bool) -> None:
        """Releases only where there is an edge: its checker keeps everything that was released."""
        edge, handlers = self._edge, self._handlers
        if there_is_one:
            handlers[Released] += (edge.on_released,)
            handlers[Restarted] += (edge.on_restarted,)
        handlers |= {
            Delivered: (edge.on_delivered,),
            SnapshotTaken: (edge.on_snapshot,),
            LatestDelivered: (edge.on_latest,),
            LeftOut: (edge.on_left_out,),
            Given: (edge.on_given,),
            Entrusted: (edge.on_entrusted,),
        }

    def _watch_stripes(self, *, there_are_some: bool) -> None:
        """Releases only where there are narrow stripes."""
        narrow, handlers = self._narrow, self._handlers
        if there_are_some:
            handlers[Released] += (narrow.on_released,)
            handlers[Restarted] += (narrow.on_restarted,)
        handlers |= {
            StripeArchived: (narrow.on_archived,),
            StripeDatagramSent: (narrow.on_sent,),
            StripeDelivered: (narrow.on_delivered,),
            StripeLeftOut: (narrow.on_left_out,),
        }

    def _watch_floor(self, floors: FloorChecker) -> None:
        """Only where the sites are a trading floor."""
        self._handlers |= {
            FloorStepped: (floors.on_stepped,),
            FloorReported: (floors.on_reported,),
            FloorConfirmed: (floors.on_confirmed,),
            FloorBusted: (floors.on_busted,),
            FloorCut: (floors.on_cut,),
            FloorDiffered: (floors.on_differed,),
            FloorTold: (floors.on_told,),
        }

    @property
    def violations(self) -> list[Violation]:
        """What was broken so far: at most 100, and 10 of one property."""
        return self._report.violations

    @property
    def divergent(self) -> int:
        """Sequences at which two sites released two messages, where rings without a majority are allowed."""
        return self._agreement.divergent

    @property
    def max_skew_ns(self) -> int:
        """The widest spread of release instants of one message among sites without a fairness fault."""
        return self._punctuality.max_skew_ns

    def observe(self, fact: Fact) -> None:
        """Take the next fact."""
        if fact.at > self._deadlines.next_at:
            self._deadlines.run(fact.at)
        if self._byzantine and isinstance(fact, Released) and fact.site in self._byzantine:
            # Nothing is promised to a liar, and nobody listens to what it releases.
            return
        for handle in self._handlers[type(fact)]:
            handle(fact)

    def _on_ordered(self, fact: Ordered) -> None:
        if self._orders is not None:
            self._orders.add(fact.entry.order)

    def _on_completed(self, fact: Completed) -> None:
        """S19."""
        if self._orders is None or not fact.control or fact.site in self._byzantine:
            return
        for entry in fact.control:
            if entry.kind in _CHANGES_OF_U and entry.order not in self._orders:
                what = f"{entry.kind.name} {entry.subject} in token {fact.token_number} of epoch {fact.epoch}"
                self._report("S19", fact.at, f"{describe(fact.site)} took {what}, which no operator ordered")

    def _on_convicted(self, fact: Convicted) -> None:
        """S18."""
        if fact.author not in self._byzantine:
            what = f"two contents of token {fact.token_number} in epoch {fact.epoch}"
            self._report("S18", fact.at, f"{describe(fact.node)} holds {what} signed by {describe(fact.author)}")

    def tick(self, now: int) -> None:
        """Time passed; judge what was due before `now`."""
        if now > self._deadlines.next_at:
            self._deadlines.run(now)

    def finish(self, end: EndOfRun) -> None:
        """The run is over."""
        self._deadlines.run(end.now + 1)
        self._liveness.finish(end)
        self._stability.finish(end)
        self._edge.finish(end)
        self._narrow.finish(end)
        if self._floors is not None:
            self._floors.finish(end)

    def uncounted(self, correct: tuple[NodeId, ...]) -> list[NodeId]:
        """Secondary receivers among some sites for which nobody of the newest ring waits at this moment."""
        return self._stability.uncounted(correct)
