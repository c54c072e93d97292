"""All checkers over one run: facts go in, violations come out.

Facts come in the order in which they happened. What was due in between is judged before the next fact is taken, so
a checker needs no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from isocast.checks.agreement import Agreement
from isocast.checks.evidence import Evidence
from isocast.checks.facts import (
    Acknowledged,
    BatchTaken,
    Certified,
    ClockStepped,
    Collected,
    Completed,
    Crashed,
    Cut,
    EndOfRun,
    Fact,
    Faulted,
    Forced,
    Freed,
    GroupHeaded,
    HandedBack,
    HeadChanged,
    Healed,
    Installed,
    Invited,
    Law,
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
    SecondaryTokenPassed,
    Settled,
    StabilityClaimed,
    Stalled,
    Strayed,
    Submitted,
    Suspected,
    TokenMade,
    TokenSent,
    Unanswered,
    Violation,
    Voted,
)
from isocast.checks.liveness import Liveness
from isocast.checks.promises import Promises, Tokens
from isocast.checks.sources import Logs, Reveals, Sources
from isocast.checks.stability import Shares, Stability
from isocast.checks.timing import Punctuality
from isocast.checks.view import Deadlines, View
from isocast.terms.ids import NodeId

__all__ = ["EndOfRun", "Law", "Suite", "Violation"]

_Handlers: TypeAlias = tuple[Callable[[Any], None], ...]


class Suite:
    """S1 to S13, F1 to F5, L1 to L4 and L6 to L8, watched from outside."""

    def __init__(self, law: Law) -> None:
        """Before anything happened."""
        self._report = Report()
        self._view = View(law)
        self._deadlines = Deadlines()
        self._agreement = Agreement(law, self._view, self._report)
        self._punctuality = Punctuality(law, self._view, self._deadlines, self._report)
        self._liveness = Liveness(law, self._view, self._deadlines, self._agreement, self._report)
        self._stability = Stability(self._view, self._report, law.parents)
        self._handlers = self._table(law)

    def _table(self, law: Law) -> dict[type[Fact], _Handlers]:
        """Who hears of what. Before `view` a checker sees the site as it was, after it as it is."""
        view, agreement, punctuality, liveness = self._view, self._agreement, self._punctuality, self._liveness
        tokens = Tokens(law, view, self._report)
        promises = Promises(law, view, self._report)
        stability, evidence = self._stability, Evidence(law, view, self._report)
        logs = Logs()
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
            Forced: (),
            Strayed: (agreement.on_strayed,),
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
        for handle in self._handlers[type(fact)]:
            handle(fact)

    def tick(self, now: int) -> None:
        """Time passed; judge what was due before `now`."""
        if now > self._deadlines.next_at:
            self._deadlines.run(now)

    def finish(self, end: EndOfRun) -> None:
        """The run is over."""
        self._deadlines.run(end.now + 1)
        self._liveness.finish(end)
        self._stability.finish(end)

    def uncounted(self, correct: tuple[NodeId, ...]) -> list[NodeId]:
        """Secondary receivers among some sites for which nobody of the newest ring waits at this moment."""
        return self._stability.uncounted(correct)
