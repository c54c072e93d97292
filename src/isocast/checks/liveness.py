"""L1 to L4, L6 and L7: that something good happens, once faults stop, or while some of them stay."""

from __future__ import annotations

from functools import partial

from isocast.checks.agreement import Agreement
from isocast.checks.facts import (
    Crashed,
    Cut,
    EndOfRun,
    Healed,
    Installed,
    Law,
    Promised,
    Report,
    Submitted,
    Suspected,
    milliseconds,
)
from isocast.checks.view import Deadlines, EpochView, View
from isocast.terms.ids import Epoch, NodeId, describe, is_site
from isocast.terms.instants import NEVER
from isocast.wire.packets import Suspicion

__all__ = ["Liveness"]


class _Crash:
    """A member that went down, and whether anybody noticed."""

    __slots__ = ("at", "epoch", "noticed", "site")

    def __init__(self, site: NodeId, epoch: Epoch, at: int) -> None:
        self.site = site
        self.epoch = epoch
        self.at = at
        self.noticed = False


class Liveness:
    """Watches for what does not happen."""

    def __init__(self, law: Law, view: View, deadlines: Deadlines, agreement: Agreement, report: Report) -> None:
        """Nothing is owed yet."""
        timing = law.timing
        self._view = view
        self._deadlines = deadlines
        self._agreement = agreement
        self._report = report
        self._bounded = law.backlog_bounded
        self._period_ns = timing.token_period_ns
        slack_ns = 2 * timing.clock_error_ns + (timing.retries_max + 2) * law.margin_ns
        self._noticed_ns = timing.completion_ns + slack_ns
        self._submitted_at = -NEVER
        self._cuts = 0
        self._crashes: list[_Crash] = []

    # L3 -----------------------------------------------------------------------------------------

    def on_crashed(self, fact: Crashed) -> None:
        """A member of the newest ring went down while most others work: they must notice. The view knows already."""
        if not is_site(fact.node) or not self._view.epochs:
            return
        site = self._view.site(fact.node)
        epoch = self._view.epochs.get(site.accepted)
        if epoch is None or site.accepted != max(self._view.epochs) or fact.node not in epoch.members:
            return
        crash = _Crash(fact.node, site.accepted, fact.at)
        if self._cuts or not self._alive(epoch, crash):
            return
        self._crashes.append(crash)
        cycle_ns = (epoch.size + 1) * self._period_ns
        deadline = max(fact.at, epoch.start) + cycle_ns + self._noticed_ns
        self._deadlines.put(deadline, partial(self._judge, epoch, crash))

    def _alive(self, epoch: EpochView, crash: _Crash) -> bool:
        """Whether a majority of the ring has taken part, undisturbed, since the crash."""
        members = [self._view.site(member) for member in epoch.members]
        well = sum([site.takes_part(crash.epoch) and site.steady(crash.at) for site in members])
        return well > epoch.size // 2

    def _judge(self, epoch: EpochView, crash: _Crash, at: int) -> None:
        self._crashes.remove(crash)
        site = self._view.site(crash.site)
        stayed_down = not site.up and site.down_since == crash.at
        if crash.noticed or not stayed_down or not self._alive(epoch, crash):
            return
        text = (
            f"{describe(crash.site)} of epoch {crash.epoch} is down for {milliseconds(at - crash.at)}, and nobody minds"
        )
        self._report("L3", at, text)

    def on_suspected(self, fact: Suspected) -> None:
        """The crashed site, or a token that does not come: either way servers hear of it."""
        for crash in self._crashes:
            if fact.suspect == crash.site or fact.reason is Suspicion.UNRECOVERED:
                crash.noticed = True

    def on_promised(self, fact: Promised) -> None:
        """A ballot is under way."""
        self._newer(fact.ballot)

    def on_installed(self, fact: Installed) -> None:
        """A ring that was formed since."""
        self._newer(fact.ring.ballot)

    def _newer(self, epoch: Epoch) -> None:
        for crash in self._crashes:
            if epoch > crash.epoch:
                crash.noticed = True

    def on_cut(self, fact: Cut) -> None:  # noqa: ARG002
        """Those who would notice may not hear each other."""
        self._cuts += 1
        for crash in self._crashes:
            crash.noticed = True

    def on_healed(self, fact: Healed) -> None:  # noqa: ARG002
        """One cut less."""
        self._cuts = max(self._cuts - 1, 0)

    # L1, L2, L4 ---------------------------------------------------------------------------------

    def on_submitted(self, fact: Submitted) -> None:
        """The last one decides whether the backlog must be gone."""
        self._submitted_at = fact.at

    def finish(self, end: EndOfRun) -> None:
        """Judge what should have happened by the end."""
        owed = self._agreement.owed(end.submissions_due)
        if owed is not None:
            self._breach("L1", end, f"no site released {owed}")
        for site in end.correct:
            missing = self._agreement.missing(site, end.submissions_due)
            if missing is not None:
                self._breach("L1", end, f"{describe(site)} did not release {missing}")
        self._finish_epochs(end)
        for wish in end.wishes:
            self._report("L6", end.now, f"an operator asked in vain: {wish}")
        if self._bounded and end.unacknowledged and self._submitted_at < end.submissions_due:
            self._breach("L4", end, f"{end.unacknowledged} messages still wait for a token")

    def _breach(self, name: str, end: EndOfRun, text: str) -> None:
        """What must hold at the end does not: where faults stay for ever, that is L7."""
        if end.lasting:
            names = ", ".join([describe(node) for node in end.lasting])
            name, text = "L7", f"{text}, while {names} stay dead or wrong"
        self._report(name, end.now, text)

    def _finish_epochs(self, end: EndOfRun) -> None:
        newest = max([accepted for site, (_, accepted, _) in end.epochs.items() if site in end.correct], default=None)
        for site in end.correct:
            promised, accepted, sealed = end.epochs[site]
            if sealed or promised != accepted:
                text = f"{describe(site)} is sealed in epoch {accepted}, its promise being {promised}"
                self._breach("L2", end, text)
            elif accepted != newest:
                self._breach("L2", end, f"{describe(site)} is in epoch {accepted}, others are in {newest}")
