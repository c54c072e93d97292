"""S12 and F1 to F3: what happens when.

Only a site that has run undisturbed, its clock within ε, is held to them. A late token is an exception: a process
that was paused must notice by its clock that it is late.
"""

from __future__ import annotations

from functools import partial

from isocast.checks.facts import (
    Completed,
    Faulted,
    Installed,
    Law,
    ReceiptHeard,
    Released,
    Report,
    Suspected,
    TokenSent,
    milliseconds,
)
from isocast.checks.view import WINDOW_TOKENS, Deadlines, EpochView, SiteView, View, trim
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.terms.instants import NEVER
from isocast.wire.packets import Suspicion

__all__ = ["Punctuality"]

_SPREADS_MAX = 1 << 15
"""Stretches whose release instants are remembered: half a minute of one a millisecond."""
_RANGE_BEHIND = 3
"""A member this many tokens behind was away; it fetches ranges, and suspects only when nothing comes.

A site outside the ring does so as soon as it is behind what the members hold for good.
"""
_GIVEN_UP = (Suspicion.UNRECOVERED, Suspicion.BEHIND, Suspicion.LATE, Suspicion.CLOCK)
_OWN = (Suspicion.BEHIND, Suspicion.LATE)


class _Watch:
    """One token between its instant and the judgement."""

    __slots__ = ("epoch", "excused", "held", "since", "token_number")

    def __init__(self, epoch: Epoch, token_number: int, since: int) -> None:
        self.epoch = epoch
        self.token_number = token_number
        self.since = since
        self.held: dict[NodeId, int] = {}
        """Who takes part, and what it held at T_t."""
        self.excused: dict[NodeId, None] = {}
        """Who has suspected since."""


class _Fairness:
    """What F1 knows of one site."""

    __slots__ = ("faulted", "last_release", "unblocked_at")

    def __init__(self) -> None:
        self.faulted = 0
        """The newest token with a fairness fault that was recorded in time."""
        self.last_release = -NEVER
        """When the site last released anything: a paced token may still be going out when the next one is due."""
        self.unblocked_at = -NEVER
        """When the site last released something after a fault."""


class Punctuality:
    """Watches the clock."""

    def __init__(self, law: Law, view: View, deadlines: Deadlines, report: Report) -> None:
        """Nothing is due yet."""
        self.max_skew_ns = 0
        """The widest spread of release instants of one message among sites without a fault."""
        timing = law.timing
        self._view = view
        self._deadlines = deadlines
        self._report = report
        self._faultless = law.faultless
        self._slandered = law.slandered
        self._secondary = law.parents
        self._error_ns = timing.clock_error_ns
        self._margin_ns = law.margin_ns
        self._delay_ns = timing.release_delay_ns
        self._skew_ns = timing.skew_bound_ns + law.margin_ns
        self._process_ns = timing.process_ns
        # Every request is timed from the one before it, so each may add its own late awakening.
        self._complete_ns = timing.completion_ns + 2 * timing.clock_error_ns + (timing.retries_max + 2) * law.margin_ns
        self._spreads: dict[tuple[int, int], tuple[int, int]] = {}
        self._fairness: dict[NodeId, _Fairness] = {}
        self._just_faulted: Faulted | None = None
        """Nothing has happened since that could have opened a gate."""
        self._watches: dict[tuple[Epoch, int], _Watch] = {}
        self._watching: dict[Epoch, None] = {}
        self._answered: dict[tuple[Epoch, int], None] = {}
        """Tokens that their owner sent, or gave up; a clock that jumped may have made it do so too early."""

    # S12 and F1 ---------------------------------------------------------------------------------

    def on_released(self, fact: Released) -> None:
        """Not too early, and at the same time as others. The view does not know of it yet."""
        self._fairness.setdefault(fact.site, _Fairness()).last_release = fact.at
        if not fact.clock_kept:
            return
        due = fact.instant + self._delay_ns
        epoch = self._view.epochs.get(fact.epoch)
        start = epoch.start if epoch is not None and fact.token_number < epoch.first_token else due
        earliest = max(fact.due, due, start) - self._error_ns
        if start <= due:
            self._check_fault(fact)
        if fact.at < earliest:
            text = (
                f"{describe(fact.site)} released sequence {fact.first_sequence} (token {fact.token_number})"
                f" {milliseconds(earliest - fact.at)} before it is allowed"
            )
            self._report("S12", fact.at, text)
        if not self._delayed(fact):
            self._compare(fact)

    def _check_fault(self, fact: Released) -> None:
        """Whether the very step that releases a token in time calls it late: that would excuse anything."""
        fault = self._just_faulted
        same = fault is not None and (fault.site, fault.at, fault.token_number) == (
            fact.site,
            fact.at,
            fact.token_number,
        )
        if same and fact.at <= fact.due + self._process_ns - self._error_ns:
            text = f"{describe(fact.site)} recorded a fairness fault of token {fact.token_number}"
            self._report("F1", fact.at, f"{text}, which it released in time")

    def on_news(self, fact: Completed | ReceiptHeard) -> None:  # noqa: ARG002
        """Something that may open a gate: a fault of a moment ago was one."""
        self._just_faulted = None

    def _delayed(self, fact: Released) -> bool:
        """Whether the site had recorded a fault, or was not there when the release was due."""
        site = self._view.site(fact.site)
        due = fact.due - self._error_ns
        fairness = self._fairness.get(fact.site)
        if fairness is not None:
            own = fairness.faulted >= fact.token_number
            if own or fairness.faulted > site.released:
                # Releases keep their order: the fault of one token holds those behind it.
                fairness.unblocked_at = fact.at
            if own or fairness.unblocked_at >= due:
                return True
        return not site.steady(due) or site.entered_at > due

    def _compare(self, fact: Released) -> None:
        # Where S1 is not promised, two epochs may give one number to two tokens; their instants differ.
        key = (fact.instant, fact.first_sequence)
        low, high = self._spreads.get(key, (fact.at, fact.at))
        low, high = min(low, fact.at), max(high, fact.at)
        self._spreads[key] = (low, high)
        trim(self._spreads, _SPREADS_MAX)
        self.max_skew_ns = max(self.max_skew_ns, high - low)
        if high - low > self._skew_ns:
            text = (
                f"sequence {fact.first_sequence} (token {fact.token_number}) was released at {describe(fact.site)}"
                f" {milliseconds(high - low)} away from another site; {milliseconds(self._skew_ns)} are allowed"
            )
            self._report("F1", fact.at, text)

    def on_faulted(self, fact: Faulted) -> None:
        """A recorded fault excuses a late release, if it was recorded when the release was due."""
        if self._slandered:
            what = f"{describe(fact.site)} recorded a fault at token {fact.token_number}"
            self._report("F1", fact.at, f"{what}, and nothing happened but words that nobody signed")
        self._just_faulted = fact
        site = self._view.site(fact.site)
        fairness = self._fairness.setdefault(fact.site, _Fairness())
        blocked = fairness.faulted > site.released
        epoch = self._view.epochs.get(site.accepted)
        if epoch is not None and fact.token_number >= epoch.first_token and site.steady(fact.at) and not blocked:
            due = epoch.instant(fact.token_number) + self._delay_ns
            latest = max(due, site.steady_since, site.entered_at, fairness.unblocked_at)
            if site.released == fact.token_number:
                # Paced: part of the token went out in time, and the rest is late from now on.
                latest = fact.at
            elif site.released == fact.token_number - 1:
                # Paced: nobody asks for this token before the last part of the one in front of it is out.
                latest = max(latest, fairness.last_release)
            if fact.at > latest + self._error_ns + self._margin_ns:
                return
        fairness.faulted = max(fairness.faulted, fact.token_number)

    # F2 and F3 ----------------------------------------------------------------------------------

    def on_installed(self, fact: Installed) -> None:
        """Begin, or begin again, to follow the tokens of an epoch. The view knows of it already."""
        ballot = fact.ring.ballot
        if ballot not in self._watching:
            epoch = self._view.epochs[ballot]
            passed = (fact.at + self._error_ns - epoch.start) // epoch.period_ns
            self._follow(ballot, epoch, epoch.first_token + max(passed + 1, 0))

    def _follow(self, ballot: Epoch, epoch: EpochView, number: int) -> None:
        self._watching[ballot] = None
        # Just before any clock within its bound shows T_t, so that a token sent at that very instant counts.
        before = epoch.instant(number) - self._error_ns - 1
        self._deadlines.put(before, partial(self._begin, ballot, epoch, number))

    def _begin(self, ballot: Epoch, epoch: EpochView, number: int, at: int) -> None:
        """T_t: who takes part, and what does it hold."""
        watch = _Watch(ballot, number, at)
        alive = False
        for site in self._view.sites.values():
            if site.takes_part(ballot) and site.site not in self._secondary:
                alive = True
                if site.steady(at):
                    watch.held[site.site] = site.real
        if not alive:
            del self._watching[ballot]
            return
        self._watches[ballot, number] = watch
        late = self._process_ns + 3 * self._error_ns + self._margin_ns + 2
        self._deadlines.put(at + 1 + late, partial(self._judge_owner, epoch, watch))
        self._deadlines.put(at + 1 + self._error_ns + self._complete_ns, partial(self._judge_sites, epoch, watch))
        self._follow(ballot, epoch, number + 1)

    def _present(self, watch: _Watch, site: SiteView) -> bool:
        """Whether a site has taken part, undisturbed, since T_t."""
        return site.site in watch.held and site.takes_part(watch.epoch) and site.steady(watch.since)

    def _judge_owner(self, epoch: EpochView, watch: _Watch, at: int) -> None:
        owner = epoch.owner(watch.token_number)
        if (watch.epoch, watch.token_number) in self._answered or not self._present(watch, self._view.site(owner)):
            return
        text = (
            f"{describe(owner)} neither sent token {watch.token_number} of epoch {watch.epoch}"
            f" by {milliseconds(at - epoch.instant(watch.token_number))} after its instant nor suspected itself"
        )
        self._report("F3", at, text)

    def _judge_sites(self, epoch: EpochView, watch: _Watch, at: int) -> None:
        del self._watches[watch.epoch, watch.token_number]
        number = watch.token_number
        for node, then in watch.held.items():
            site = self._view.site(node)
            if site.real >= number or node in watch.excused or not self._present(watch, site):
                continue
            lag = _RANGE_BEHIND if node in epoch.members else 1
            if then <= number - lag and site.grew_at > watch.since - self._complete_ns:
                continue
            text = (
                f"{describe(node)} holds {site.real} and not token {number} of epoch {watch.epoch},"
                f" {milliseconds(at - watch.since)} after its instant, and suspects nobody"
            )
            self._report("F2", at, text)

    def on_token(self, fact: TokenSent) -> None:
        """An owner is on time, by its clock; a late one must have stayed silent."""
        self._answer(fact.epoch, fact.token_number)
        epoch = self._view.epochs.get(fact.epoch)
        if epoch is None or not self._view.site(fact.site).clock_kept:
            return
        early = epoch.instant(fact.token_number) - self._error_ns - fact.at
        late = -early - 2 * self._error_ns - self._process_ns - self._margin_ns
        what = f"{describe(fact.site)} sent token {fact.token_number} of epoch {fact.epoch}"
        if early > 0:
            self._report(
                "F3", fact.at, f"{what} {milliseconds(early)} before any clock within its bound shows its instant"
            )
        elif late > 0:
            self._report("F3", fact.at, f"{what} {milliseconds(late)} after the last instant at which it may")

    def on_suspected(self, fact: Suspected) -> None:
        """A site that suspects another has done its duty."""
        reason, node = fact.reason, fact.site
        if self._faultless and reason is Suspicion.CLOCK:
            text = f"{describe(node)} doubts the clock of {describe(fact.suspect)} at token {fact.token_number}"
            self._report("F3", fact.at, f"{text}, and all clocks are right")
        if reason not in _GIVEN_UP:
            return
        if fact.suspect == node and reason in _OWN:
            self._answer(self._view.site(node).accepted, fact.token_number)
        for watch in self._watches.values():
            if fact.token_number <= watch.token_number:
                watch.excused[node] = None

    def _answer(self, epoch: Epoch, token_number: int) -> None:
        self._answered[epoch, token_number] = None
        trim(self._answered, WINDOW_TOKENS)
