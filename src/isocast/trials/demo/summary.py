"""What a show came to: what the journals prove, and what the nodes said last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

import numpy as np

from isocast.checks.skew import Quantiles
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Grade, Market, NodeRole
from isocast.terms.errors import JournalError
from isocast.terms.instants import SECOND
from isocast.terms.market import Mic
from isocast.terms.timing import Formula, latency
from isocast.trials.demo.cast import actors
from isocast.trials.demo.ledger import Ledger
from isocast.trials.demo.releases import Figures, Releases, one_way_ns
from isocast.trials.demo.story import Story
from isocast.trials.evidence import is_follower, journal_of
from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import BlockView

__all__ = ["Copy", "CustomerLine", "Evidence", "Summary", "read_evidence", "sum_up"]


# ---- What the journals of a market prove: one sequence, the same everywhere, without gaps, and nothing of it early.
#
# Nobody is believed. Every receiver's journal is read from disk, checksums included, and compared with the others'; so
# are the journals of complete customers and of retransmit servers, which only heard lines. What was published is known
# by the floors' own numbers: each floor's events are numbered from 1 on, so a missing or repeated one shows.


_TOLD_MAX = 3
"""Faults of one journal that are told; the others are like them."""
_DIGEST_BYTES = 16


@dataclass(slots=True)
class Copy:
    """One journal: what it holds, and how it differs from what it should."""

    name: str
    role: NodeRole
    messages: int = 0
    events: int = 0
    next_sequence: int = 1
    gaps: int = 0
    """Sequences that it lacks, up to the end of the longest journal."""
    early: int = 0
    """Messages that were out before their instant."""
    strange: int = 0
    """Messages that another journal has differently."""
    faults: list[str] = field(default_factory=list)
    """What is wrong, in words, the first of each kind."""

    def fault(self, text: str) -> None:
        """Tell the first few."""
        if len(self.faults) < _TOLD_MAX:
            self.faults.append(f"{self.name}: {text}")


@dataclass(slots=True)
class Evidence:
    """All journals of a market, judged."""

    copies: dict[str, Copy]
    releases: Releases
    messages: int
    """In the one sequence."""
    events: int
    by_floor: dict[Mic, int]
    """Events of each floor in the sequence."""
    faults: list[str]
    """Everything that is wrong; empty: nothing."""


def read_evidence(market: Market, published: Mapping[Mic, int] | None = None) -> Evidence:
    """Read every journal; `published` is how many events each floor was promised, None if that is not known."""
    releases = Releases(market)
    keepers = [plan for plan in market.nodes if plan.role.is_receiver or is_follower(plan)]
    receivers = [plan for plan in keepers if plan.role.is_receiver]
    digests: dict[int, bytes] = {}
    labels: dict[int, bytes] = {}
    copies: dict[str, Copy] = {}
    floors = _Floors()
    for plan in [*receivers, *[plan for plan in keepers if plan not in receivers]]:
        copy = copies[plan.name] = Copy(plan.name, plan.role)
        for block in _blocks(market, copy):
            _check_place(copy, block)
            _check_instant(copy, block, market.timing.release_delay_ns)
            if plan.role.is_receiver:
                releases.add(plan.name, block)
                _check_labels(copy, block, labels)
            _check_payloads(copy, block, digests, floors)
    faults = _ends(copies)
    if published is not None:
        faults += floors.faults(published)
    return Evidence(copies, releases, len(digests), floors.total, floors.counts(), faults)


def _blocks(market: Market, copy: Copy) -> Iterator[BlockView]:
    """All whole blocks; damage is a fault, and ends the reading."""
    where = journal_of(market, copy.name)
    if not where.is_dir():
        copy.fault("has no journal")
        return
    try:
        yield from read_blocks(where)
    except JournalError as reason:
        copy.fault(f"its journal is damaged: {reason}")


# One journal --------------------------------------------------------------------------------------


def _check_place(copy: Copy, block: BlockView) -> None:
    """Sequences follow each other."""
    header = block.header
    first, wanted = header.first_sequence, copy.next_sequence
    if first > wanted:
        copy.gaps += first - wanted
        copy.fault(f"sequences {wanted} to {first - 1} are missing")
    elif first < wanted:
        copy.strange += wanted - first
        copy.fault(f"sequences {first} to {wanted - 1} come again")
    copy.next_sequence = header.next_sequence
    copy.messages += header.messages
    copy.events += header.events


def _check_instant(copy: Copy, block: BlockView, release_delay_ns: int) -> None:
    """Nothing is out before its token's instant plus Δ_A, and nothing before what was agreed for it."""
    header = block.header
    due = max(header.due, header.instant + release_delay_ns)
    if header.released_at < due:
        copy.early += header.messages
        early_ms = (due - header.released_at) / 1e6
        copy.fault(f"token {header.token_number} was out {early_ms:.3f} ms before its instant")


# Journals against each other ----------------------------------------------------------------------


def _check_labels(copy: Copy, block: BlockView, labels: dict[int, bytes]) -> None:
    """The same source, number and digest at the same sequence, for all receivers."""
    rows = block.directory[["source", "number", "digest"]].tolist()
    for sequence, (source, number, digest) in zip(block.sequences, rows, strict=True):
        label = source.to_bytes(8) + number.to_bytes(8) + digest
        if labels.setdefault(sequence, label) != label:
            copy.strange += 1
            copy.fault(f"sequence {sequence} is another message than elsewhere: the order differs")


def _check_payloads(copy: Copy, block: BlockView, digests: dict[int, bytes], floors: _Floors) -> None:
    """The same content at the same sequence, for all who have it."""
    for sequence, (_, _, _, payload) in zip(block.sequences, block.messages(), strict=True):
        digest = blake2b(payload, digest_size=_DIGEST_BYTES).digest()
        known = digests.setdefault(sequence, digest)
        if known is not digest and known != digest:
            copy.strange += 1
            copy.fault(f"sequence {sequence} has another content than elsewhere")
    if block.header.next_sequence > floors.next_sequence:
        floors.take(block.events, block.header.next_sequence)


def _ends(copies: Mapping[str, Copy]) -> list[str]:
    """Everybody has come as far as the one who came farthest."""
    end = max((copy.next_sequence for copy in copies.values()), default=1)
    for copy in copies.values():
        if copy.next_sequence < end:
            copy.gaps += end - copy.next_sequence
            copy.fault(f"ends before sequence {copy.next_sequence}; others have up to {end - 1}")
    return [fault for copy in copies.values() for fault in copy.faults]


class _Floors:
    """The numbers of every floor's events, in the order of the sequence."""

    def __init__(self) -> None:
        self.next_sequence = 1
        self.total = 0
        self._numbers: dict[bytes, list[np.ndarray]] = {}

    def take(self, events: EventArray, next_sequence: int) -> None:
        """Of a block that no journal had before."""
        self.next_sequence = next_sequence
        self.total += len(events)
        for floor in np.unique(events["floor"]).tolist():
            self._numbers.setdefault(floor, []).append(events["id"][events["floor"] == floor])

    def counts(self) -> dict[Mic, int]:
        """How many of each floor."""
        return {Mic(floor.decode()): sum(map(len, parts)) for floor, parts in self._numbers.items()}

    def faults(self, published: Mapping[Mic, int]) -> list[str]:
        """Each floor's events from 1 on, each once; all that were promised."""
        found = []
        for mic, count in published.items():
            parts = self._numbers.get(mic.fixed, [])
            numbers = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
            if (numbers[1:] < numbers[:-1]).any():
                found.append(f"{mic}: its own order is not kept")
            lost = np.setdiff1d(np.arange(1, count + 1, dtype=np.uint64), numbers)
            repeated = len(numbers) - len(np.unique(numbers))
            if len(lost):
                found.append(f"{mic}: {len(lost)} of {count} events are in no journal, the first is number {lost[0]}")
            if repeated:
                found.append(f"{mic}: {repeated} events are in the sequence more than once")
        return found


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
    interrupted: bool
    seed: int
    loss: float
    nodes: int
    messages: int
    events: int
    published: int
    by_floor: dict[Mic, int]
    places: int
    figures: Figures
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

    @property
    def ratio(self) -> float:
        """Measured latency to the formula's."""
        return self.figures.latency_ns / SECOND / self.formula.value if self.formula.value else 0.0

    def as_json(self) -> dict[str, object]:
        """For programs."""
        figures, story = self.figures, self.story
        return {
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
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
    evidence: Evidence,
    ledger: Ledger,
    story: Story,
    *,
    seconds: float,
    interrupted: bool,
    rings: int,
    published: Mapping[Mic, int],
) -> Summary:
    """Put everything together."""
    receivers = [plan.name for plan in market.receivers]
    copies = evidence.copies
    d_ns = one_way_ns(market, evidence.releases.sources)
    faults = [*evidence.faults, *_said(ledger)]
    plan = market.by_name.get(story.victim)
    return Summary(
        seconds=seconds,
        interrupted=interrupted,
        seed=market.impairment.seed,
        loss=market.impairment.loss,
        nodes=len(actors(market)),
        messages=evidence.messages,
        events=evidence.events,
        published=sum(published.values()),
        by_floor=evidence.by_floor,
        places=len(receivers),
        figures=evidence.releases.figures(story.absences()),
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
        customers=_customers(market, evidence, ledger),
        story=story,
        victim=plan.place.name if plan is not None and plan.place else story.victim,
        faults=tuple(faults),
    )


def _said(ledger: Ledger) -> Sequence[str]:
    """What the nodes themselves counted and must not have."""
    wrong = {
        "early_releases_total": "messages went out before their instant, as their nodes say",
        "unopened_payloads_total": "payloads could not be opened",
        "journal_alarms_total": "writes to a journal failed",
        "store_alarms_total": "writes of protocol state failed",
    }
    return [f"{count} {text}" for name, text in wrong.items() if (count := ledger.total(name))]


def _customers(market: Market, evidence: Evidence, ledger: Ledger) -> tuple[CustomerLine, ...]:
    lines = []
    for plan in actors(market, NodeRole.CUSTOMER):
        copy = evidence.copies.get(plan.name)
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
