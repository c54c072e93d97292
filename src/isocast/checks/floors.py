"""T1 to T8: a distributed trading floor as its sites tell of it (§7.3).

One token has one content (S5) behind one log, so what sites say of a floor is compared by epoch and token. What a site
has applied, and what was ordered and filled there, is kept for each site: a log may be cut, and a restart applies
tokens again. T4 and T6 to T8 are the judges' of a transcript, one set for each site; after a cut they begin anew with
what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from isocast.checks.entered_order import EnteredOrder
from isocast.checks.facts import (
    AgreedTrade,
    EndOfRun,
    FloorBusted,
    FloorConfirmed,
    FloorCut,
    FloorDiffered,
    FloorReported,
    FloorStepped,
    FloorTold,
    Law,
    Report,
)
from isocast.checks.floor_acts import FloorTranscript, FloorWrong
from isocast.checks.order_paths import KeptOrder, OrderPaths
from isocast.checks.price_time import PriceTime
from isocast.checks.sealed_bids import SealedBids
from isocast.checks.view import View, trim
from isocast.terms.ids import Epoch, NodeId, describe

__all__ = ["FloorChecker", "FloorJudges"]

_TOKENS_MAX: Final = 4_096
"""Remembered of each site, and in all."""


class FloorJudges:
    """All that judge one floor by its transcript: T4, T6, T7 and T8."""

    def __init__(self, *, honest: bool = True) -> None:
        """Before anything was entered. Only where traders number honestly does T8 speak of their own order."""
        judges = (PriceTime(), OrderPaths(), SealedBids(), EnteredOrder())
        self._judges = (*judges, KeptOrder()) if honest else judges

    def step(self, transcript: FloorTranscript) -> list[FloorWrong]:
        """The next token; what is wrong in it."""
        return [wrong for judge in self._judges for wrong in judge.step(transcript)]


@dataclass(slots=True)
class _Site:
    """What a site's floor has gone through."""

    steps: dict[int, FloorStepped] = field(default_factory=dict)
    """By token."""
    last: int = 0
    confirmed: int = 0
    """Up to which trade, by what it said itself."""
    ordered: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By order: the token that has it, and its quantity."""
    filled: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By order: token and quantity of each trade."""
    judges: FloorJudges = field(default_factory=FloorJudges)
    transcripts: dict[int, FloorTranscript] = field(default_factory=dict)
    """By token; all that the judges have heard."""


class FloorChecker:
    """Compares what sites say of one floor."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """Before anything happened."""
        self._agreement = law.agreement
        self._outboxes_kept = law.outboxes_kept
        self._view = view
        self._report = report
        self._sites: dict[NodeId, _Site] = {}
        self._known: dict[tuple[Epoch, int], FloorStepped] = {}
        """Who applied a token first, and what came of it."""
        self._confirmed: dict[int, AgreedTrade] = {}
        self._told = 0

    def _site(self, node: NodeId) -> _Site:
        if node not in self._sites:
            self._sites[node] = _Site(judges=self._judges())
        return self._sites[node]

    def _judges(self) -> FloorJudges:
        """A gateway's orders keep their order while the source that took them keeps its outbox."""
        return FloorJudges(honest=self._outboxes_kept)

    # T1, T3, T5 ------------------------------------------------------------------------------------------------

    def on_stepped(self, fact: FloorStepped) -> None:
        """The same state and trades at all sites; each order once, and filled no further than its quantity."""
        who, number = describe(fact.site), fact.token_number
        first = self._known.setdefault((fact.epoch, number), fact)
        trim(self._known, _TOKENS_MAX)
        if (first.state, first.trades) != (fact.state, fact.trades):
            what = "other trades" if first.trades != fact.trades else "another state"
            self._report("T1", fact.at, f"{who} has {what} after token {number} than {describe(first.site)}")
        if not fact.again and number > self._view.site(fact.site).released:
            self._report("T1", fact.at, f"{who} applied token {number}, which it has not released")
        for trade in fact.trades if self._agreement else ():
            # Elsewhere a tentative trade of a token that is still to be cut off may have the number, until it is.
            self._compare(fact.at, who, trade, "makes")
        site = self._site(fact.site)
        site.steps[number] = fact
        trim(site.steps, _TOKENS_MAX)
        if number > site.last:
            site.last = number
            self._count(site, fact)

    def _count(self, site: _Site, fact: FloorStepped) -> None:
        for order, quantity in fact.orders:
            if order in site.ordered:
                tokens = f"{site.ordered[order][0]} and {fact.token_number}"
                self._report("T5", fact.at, f"order {order} is in tokens {tokens} at {describe(fact.site)}")
            site.ordered.setdefault(order, (fact.token_number, quantity))
        for trade in fact.trades:
            for order in (trade.buy, trade.sell):
                fills = site.filled.setdefault(order, [])
                fills.append((fact.token_number, trade.quantity))
                filled = sum([quantity for _, quantity in fills])
                total = site.ordered.get(order, (0, 0))[1]
                if filled > total:
                    self._report("T3", fact.at, f"order {order} of {total} traded {filled} at {describe(fact.site)}")

        if fact.transcript is not None:
            site.transcripts[fact.token_number] = fact.transcript
            for wrong in site.judges.step(fact.transcript):
                self._report(wrong.property, fact.at, f"{wrong.text}, at {describe(fact.site)}")

    def on_reported(self, fact: FloorReported) -> None:
        """A site says what it has."""
        who, number = describe(fact.site), fact.token_number
        own = self._site(fact.site).steps.get(number)
        if own is None:
            self._report("T1", fact.at, f"{who} reports token {number}, which it has not released")
        elif fact.state != own.state or (fact.trades and fact.trades != own.trades):
            self._report("T1", fact.at, f"{who} reports of token {number} what it does not have")
        if fact.confirmed > len(self._confirmed):
            self._report("T2", fact.at, f"{who} reports trade {fact.confirmed} as confirmed, which nobody confirmed")

    def on_differed(self, fact: FloorDiffered) -> None:
        """No report ever differs, where no released token is ever cut off."""
        if self._agreement:
            self._report("T1", fact.at, f"{describe(fact.site)} after token {fact.token_number}: {fact.text}")

    def on_cut(self, fact: FloorCut) -> None:
        """What lay behind the cut did not happen at this site."""
        site, last = self._site(fact.site), fact.token_number
        site.last = min(site.last, last)
        site.steps = {number: step for number, step in site.steps.items() if number <= last}
        site.ordered = {order: place for order, place in site.ordered.items() if place[0] <= last}
        site.transcripts = {number: kept for number, kept in site.transcripts.items() if number <= last}
        site.judges = self._judges()
        for transcript in site.transcripts.values():
            site.judges.step(transcript)
        site.filled = {
            order: kept for order, fills in site.filled.items() if (kept := [fill for fill in fills if fill[0] <= last])
        }

    # T2 --------------------------------------------------------------------------------------------------------

    def on_confirmed(self, fact: FloorConfirmed) -> None:
        """In order, as others confirmed it, and every member holds the report."""
        who, site = describe(fact.site), self._site(fact.site)
        for trade in fact.trades:
            if trade.number > len(self._confirmed) + 1:
                self._report("T2", fact.at, f"{who} confirms trade {trade.number}, and the one before is open")
            self._compare(fact.at, who, trade, "confirms")
            self._confirmed.setdefault(trade.number, trade)
            site.confirmed = max(site.confirmed, trade.number)
        epoch = self._view.epochs.get(fact.epoch)
        own = self._view.site(fact.site)
        for member in () if epoch is None else epoch.ring.ring:
            seen = self._view.site(member)
            if not seen.forgot and not seen.shares(own, fact.reported):
                what = f"{who} confirms trades up to {fact.trades[-1].number}, reported in token {fact.reported}"
                self._report("T2", fact.at, f"{what}, but {describe(member)} holds {seen.real}")

    def on_busted(self, fact: FloorBusted) -> None:
        """Nothing that it had confirmed; where no released token is cut off, nothing that anybody had."""
        own = self._site(fact.site).confirmed
        for trade in fact.trades:
            if trade.number <= own or (self._agreement and self._confirmed.get(trade.number) == trade):
                self._report("T2", fact.at, f"{describe(fact.site)} takes trade {trade.number} back, though confirmed")

    def on_told(self, fact: FloorTold) -> None:
        """A customer believes no more than sites do."""
        for trade in fact.trades:
            if trade.number != self._told + 1:
                self._report("T2", fact.at, f"a customer hears of trade {trade.number} behind trade {self._told}")
            if self._confirmed.get(trade.number) != trade:
                self._report("T2", fact.at, f"a customer takes trade {trade.number} for confirmed, which no site did")
            self._told = trade.number

    def _compare(self, at: int, who: str, trade: AgreedTrade, does: str) -> None:
        known = self._confirmed.get(trade.number)
        if known is not None and known != trade:
            self._report("T2", at, f"{who} {does} {trade}, but {known} was confirmed")

    def finish(self, end: EndOfRun) -> None:
        """All trades are confirmed everywhere, and other trades made under their numbers are taken back."""
        most = len(self._confirmed)
        for node in end.floor:
            for step in self._site(node).steps.values():
                for trade in step.trades:
                    self._compare(end.now, f"at the end {describe(node)}", trade, "still has")
        for node, (made, confirmed) in end.floor.items():
            who = describe(node) if node else "a customer"
            if confirmed < made:
                self._report("T2", end.now, f"trades {confirmed + 1}..{made} are never confirmed at {who}")
            elif made < most:
                self._report("T2", end.now, f"{who} lacks trades {made + 1}..{most}, which were confirmed")
