"""What a show came to: what the journals prove, and what the nodes said last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from isocast.checks.journals import Copy, Difference, FaultKind, FloorEvents, JournalWalk, differences
from isocast.checks.skew import Quantiles
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.terms.instants import SECOND
from isocast.terms.market import Grade, Mic
from isocast.terms.timing import Formula, latency
from isocast.trials.demo.cast import actors, process_count
from isocast.trials.demo.releases import ReleaseFigures, Releases, one_way_ns
from isocast.trials.demo.story import Story
from isocast.trials.demo.watching import StatusLedger
from isocast.trials.evidence import Journals, journal_of, read_journals
from isocast.wire.journal_blocks import BlockView

if TYPE_CHECKING:
    from isocast.trials.demo.trading_summary import TradingSummary

__all__ = ["CustomerLine", "JudgedCopy", "MarketProof", "Summary", "read_proof", "sum_up"]


# What the journals of a market prove: one sequence, the same everywhere, without gaps, and nothing of it early.
#
# Nobody is believed. Every receiver's journal is read from disk, checksums included, and compared with the others'; so
# are the journals of complete customers and of retransmit servers, which only heard lines. What was published is known
# by the floors' own numbers: each floor's events are numbered from 1 on, so a missing or repeated one shows.


_TOLD_MAX = 3
"""Faults of one journal that are told; the others are like them."""


@dataclass(frozen=True, slots=True)
class JudgedCopy:
    """One journal: what it holds, and how it differs from what it should."""

    messages: int
    events: int
    gaps: int
    """Sequences that it lacks, up to the end of the longest journal."""
    early: int
    """Messages that were out before their instant."""
    strange: int
    """Messages that it repeats, or that another journal has differently."""
    faults: list[str]
    """What is wrong, in words, the first few."""


@dataclass(frozen=True, slots=True)
class MarketProof:
    """All journals of a market, judged."""

    copies: dict[str, JudgedCopy]
    releases: Releases
    messages: int
    """In the one sequence."""
    events: int
    by_floor: dict[Mic, int]
    """Events of each floor in the sequence."""
    faults: list[str]
    """Everything that is wrong; empty: nothing."""


def read_proof(market: Market, published: Mapping[Mic, int] | None = None) -> MarketProof:
    """Read every journal; `published` is how many events each floor was promised, None if that is not known."""
    releases, floors = Releases(market), FloorEvents()
    delay_ns = market.timing.release_delay_ns

    def watch(plan: NodePlan, block: BlockView) -> None:
        if plan.role.is_receiver:
            releases.add(plan.name, block)
        floors.take(block)

    journals = read_journals(market, lambda: JournalWalk(1, delay_ns), watch)
    found = journals.copies
    end = max((copy.last_sequence for copy in found.values()), default=0)
    others = {one.name: one for one in differences(list(journals.sites.values()), list(journals.followers.values()))}
    judged = {
        name: _judged(
            copy, others.get(name), delay_ns, end, _unread(market, journals, name), is_site=name in journals.sites
        )
        for name, copy in found.items()
    }
    faults = [fault for copy in judged.values() for fault in copy.faults]
    if published is not None:
        faults += floors.faults(published)
    messages = len(np.unique(np.concatenate([copy.sequences for copy in found.values()]))) if found else 0
    return MarketProof(judged, releases, messages, floors.total, floors.counts(), faults)


def _judged(
    copy: Copy, other: Difference | None, delay_ns: int, end: int, told: list[str], *, is_site: bool
) -> JudgedCopy:
    """One journal beside the others, the longest of which comes to `end`; `told` is what could not be read."""
    told += [f"{breach.text} ({breach.law})" for breach in copy.breaches]
    told += _differs(other) if other else []
    if copy.last_sequence < end:
        law = "L1" if is_site else "L5"
        told.append(f"ends before sequence {copy.last_sequence + 1}; others have up to {end} ({law})")
    overlaps = [breach.messages for breach in copy.breaches if breach.kind is FaultKind.OVERLAP]
    return JudgedCopy(
        copy.messages,
        sum(header.events for header in copy.headers),
        copy.missing(end),
        copy.early(delay_ns),
        sum(overlaps) + (len(other.by_label) + len(other.by_content) if other else 0),
        [f"{copy.name}: {text}" for text in told[:_TOLD_MAX]],
    )


def _unread(market: Market, journals: Journals, name: str) -> list[str]:
    """What could not be read."""
    if name in journals.damaged:
        return [f"its journal is damaged: {journals.damaged[name]}"]
    return [] if journal_of(market, name).is_dir() else ["has no journal"]


def _differs(other: Difference) -> list[str]:
    told = [(at, f"sequence {at} is another message than elsewhere: the order differs (S1)") for at in other.by_label]
    told += [(at, f"sequence {at} has another content than elsewhere (S1)") for at in other.by_content]
    return [text for _, text in sorted(told, key=lambda one: one[0])]


@dataclass(frozen=True, slots=True)
class CustomerLine:
    """One customer at the end."""

    name: str
    city: str
    grade: Grade
    messages: int
    """In its journal; for a customer of the grade "latest" those that it took."""
    events: int
    gaps: int
    """Sequences that it lacks; None are allowed to a complete one."""
    gaps_seen: int
    gaps_repaired: int
    skipped: int
    packets_lost: int
    """On purpose, on their way to it."""

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return asdict(self) | {"grade": self.grade.value}


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything, for people and programs."""

    seconds: float
    seed: int
    loss: float
    nodes: int
    messages: int
    events: int
    published: int
    by_floor: dict[Mic, int]
    places: int
    figures: ReleaseFigures
    formula: Formula
    late_after_ns: int
    """P."""
    lost: int
    lost_at_receivers: int
    kernel_drops: int
    nacks: int
    repairs: int
    rings: int
    suspicions: int
    fairness_faults: int
    gaps: int
    early: int
    customers: tuple[CustomerLine, ...]
    story: Story
    victim: str
    faults: tuple[str, ...]
    """What was wrong; empty: nothing."""
    trading: TradingSummary | None = None
    """What the traders did; None: there were none."""

    def with_trading(self, trading: TradingSummary) -> Summary:
        """The same, with what the traders did, and what was wrong with it."""
        return replace(self, trading=trading, faults=(*self.faults, *trading.faults))

    @property
    def ratio(self) -> float:
        """Measured latency to the formula's."""
        return self.figures.latency_ns / SECOND / self.formula.value if self.formula.value else 0.0

    def as_json(self) -> dict[str, object]:
        """For programs."""
        figures, story = self.figures, self.story
        return {
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "loss": self.loss,
            "nodes": self.nodes,
            "messages": self.messages,
            "events": self.events,
            "events_published": self.published,
            "events_by_floor": dict(self.by_floor),
            "receivers": self.places,
            "latency": {
                "mean_s": _seconds(figures.latency_ns),
                "formula_s": round(self.formula.value, 6),
                "formula": str(self.formula),
                "ratio": round(self.ratio, 4),
                "mean_with_reformations_s": _seconds(figures.latency_all_ns),
                "releases": figures.measured,
                "releases_left_out": figures.disturbed,
            },
            "skew": asdict(figures.skew),
            "lateness": _quantiles(figures.lateness),
            "packets_lost": self.lost,
            "packets_lost_at_receivers": self.lost_at_receivers,
            "kernel_drops": self.kernel_drops,
            "nacks": self.nacks,
            "repairs": self.repairs,
            "rings": self.rings,
            "suspicions": self.suspicions,
            "fairness_faults": self.fairness_faults,
            "gaps": self.gaps,
            "early": self.early,
            "customers": [line.as_json() for line in self.customers],
            "killed": _killed(story),
            "trading": None if self.trading is None else self.trading.as_json(),
            "faults": list(self.faults),
        }


def _killed(story: Story) -> dict[str, object] | None:
    if not story.killed_at:
        return None
    return {
        "name": story.victim,
        "token": story.token_number,
        "ring_without_it_s": _after(story, story.reformed_at),
        "process_back_s": _after(story, story.started_at),
        "on_the_ring_again_s": _after(story, story.whole_at),
    }


def _seconds(span_ns: float) -> float:
    return round(span_ns / SECOND, 6)


def _quantiles(values: Quantiles) -> dict[str, object]:
    return {
        "count": values.count,
        "p50_s": _seconds(values.p50_ns),
        "p99_s": _seconds(values.p99_ns),
        "max_s": _seconds(values.max_ns),
    }


def _after(story: Story, instant: int) -> float | None:
    return _seconds(instant - story.killed_at) if instant else None


def sum_up(
    market: Market,
    proof: MarketProof,
    ledger: StatusLedger,
    story: Story,
    *,
    seconds: float,
    rings: int,
    published: Mapping[Mic, int],
) -> Summary:
    """Put everything together."""
    receivers = [plan.name for plan in market.receivers]
    copies = proof.copies
    d_ns = one_way_ns(market, proof.releases.sources)
    faults = [*proof.faults, *_said(ledger)]
    plan = market.by_name.get(story.victim)
    return Summary(
        seconds=seconds,
        seed=market.impairment.seed,
        loss=market.impairment.loss,
        nodes=process_count(market),
        messages=proof.messages,
        events=proof.events,
        published=sum(published.values()),
        by_floor=proof.by_floor,
        places=len(receivers),
        figures=proof.releases.figures(story.absences()),
        formula=latency(market.timing, d_ns, market.impairment.loss),
        late_after_ns=market.timing.process_ns,
        lost=ledger.total("injected_losses_total"),
        lost_at_receivers=ledger.total("injected_losses_total", receivers),
        kernel_drops=ledger.total("kernel_drops_total"),
        nacks=ledger.total("nacks_sent_total", receivers),
        repairs=ledger.total("repairs_received_total", receivers),
        rings=rings,
        suspicions=ledger.total("suspicions_total", receivers),
        fairness_faults=ledger.total("fairness_faults_total", receivers),
        gaps=sum([copies[name].gaps for name in receivers]),
        early=sum([copy.early for copy in copies.values()]),
        customers=_customers(market, proof, ledger),
        story=story,
        victim=plan.place.name if plan is not None and plan.place else story.victim,
        faults=tuple(faults),
    )


def _said(ledger: StatusLedger) -> Sequence[str]:
    """What the nodes themselves counted and must not have."""
    wrong = {
        "early_releases_total": "messages went out before their instant, as their nodes say",
        "unopened_payloads_total": "payloads could not be opened",
        "journal_alarms_total": "writes to a journal failed",
        "store_alarms_total": "writes of protocol state failed",
    }
    return [f"{count} {text}" for name, text in wrong.items() if (count := ledger.total(name))]


def _customers(market: Market, proof: MarketProof, ledger: StatusLedger) -> tuple[CustomerLine, ...]:
    lines = []
    for plan in actors(market, NodeRole.CUSTOMER):
        copy = proof.copies.get(plan.name)
        own = [plan.name]
        lines.append(
            CustomerLine(
                name=plan.name,
                city=plan.place.name if plan.place else "",
                grade=plan.grade,
                messages=ledger.total("messages_received_total", own) if copy is None else copy.messages,
                events=ledger.total("events_received_total", own) if copy is None else copy.events,
                gaps=0 if copy is None else copy.gaps,
                gaps_seen=ledger.total("gaps_seen_total", own),
                gaps_repaired=ledger.total("gaps_repaired_total", own),
                skipped=ledger.total("messages_skipped_total", own),
                packets_lost=ledger.total("injected_losses_total", own),
            )
        )
    return tuple(lines)
