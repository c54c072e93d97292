"""Fairness and health of a market, from its journals and measurements: what the tables of the report are made of.

    found = fairness(released, lines, market)

Everything heavy is a frame-to-frame step under `transforms`; here the small results come together as plain rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isocast.checks.skew import ReleaseSkew
from isocast.lake.timing_advice import Advice, advise
from isocast.lake.transforms.delays import delay_curves, delay_quantiles, token_delays
from isocast.lake.transforms.entry import entry_delays, messages_by_region, region_order
from isocast.lake.transforms.faults import fairness_faults, worst_faults
from isocast.lake.transforms.losses import loss_correlation, losses_by_place
from isocast.lake.transforms.skew import (
    message_releases,
    release_skew,
    site_curves,
    site_skew,
    skew_totals,
    worst_messages,
)
from isocast.terms.timing import Timing

__all__ = ["FairnessReport", "FairnessSettings", "Row", "fairness"]

Row: TypeAlias = dict[str, Any]

_PRIMARY = "primary-receiver"
"""As measurements call the receivers whose δ_N it is."""


@dataclass(frozen=True, slots=True)
class FairnessSettings:
    """What the figures are held to."""

    fraction: float = 0.999
    """Of tokens that should be heard within δ_N."""
    late_after_ns: int = 50_000_000
    """P: a release later than this after its instant is a fault; the paper's, where no market says its own."""
    within_ns: int = 1_000_000_000
    """Two events less than this apart met: the token period."""
    worst: int = 10
    names: Mapping[int, str] = field(default_factory=dict)
    """Of receivers."""
    places: Mapping[int, str] = field(default_factory=dict)
    """Of sources, by their numbers."""
    timing: Timing | None = None
    """The market's present times; no advice without."""
    curves: bool = False
    """Whether somebody wants pictures."""


@dataclass(slots=True)
class FairnessReport:
    """Plain rows, each table with the columns of its step."""

    basis: Row
    """What was there: receivers, stripes, messages, first and last instant, and what figures are held to."""
    skew: ReleaseSkew
    """Of all messages, and what is left out."""
    sites: list[Row]
    worst: list[Row]
    faults: list[Row]
    worst_faults: list[Row]
    entry: list[Row]
    order: list[Row]
    losses: list[Row] = field(default_factory=list)
    correlation: list[Row] = field(default_factory=list)
    delays: list[Row] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)
    advice: Advice | None = None
    skew_curves: dict[str, list[int]] = field(default_factory=dict)
    delay_curves: dict[str, list[int]] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """That at least two receivers released."""
        return self.skew.count + self.skew.faulted

    @property
    def exceeding(self) -> int:
        """Of them: without a fault, and further apart than 2ε."""
        return self.skew.exceeding

    @property
    def faulted(self) -> int:
        """Of them: with a fairness fault."""
        return self.skew.faulted

    @property
    def sentence(self) -> str:
        """In one line."""
        if not self.messages:
            here = ", ".join(self.basis["receivers"]) or "nobody"
            return (
                f"No message was released by two receivers ({here} alone): there is no skew to judge, nor what a site"
                " owed to an earlier ring. For these, read the journals of all receivers."
            )
        within = self.messages - self.exceeding - self.faulted
        skew = f"{within:,} of {self.messages:,} messages were released within 2ε of each other everywhere"
        over = f"{self.exceeding:,} without a fault were further apart" if self.exceeding else "none beyond it"
        return f"{skew}; {over}; {self.faulted:,} are fairness faults."

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        tables = ("sites", "worst", "faults", "worst_faults", "entry", "order", "losses", "correlation", "delays")
        return {
            "sentence": self.sentence,
            "basis": self.basis,
            "messages": self.messages,
            "exceeding": self.exceeding,
            "faulted": self.faulted,
            "skew": asdict(self.skew),
            **{name: getattr(self, name) for name in tables},
            "unread_lines": self.unread,
            "advice": None if self.advice is None else _advice_json(self.advice),
        }


def _advice_json(advice: Advice) -> dict[str, Any]:
    return {
        "fraction": advice.fraction,
        "tokens": advice.tokens,
        "enough_tokens": advice.enough,
        "slowest": advice.slowest,
        "token_loss": advice.token_loss,
        "false_suspicion": advice.give_up,
        "secondary": dict(advice.below_ns),
        "secondary_allowed": advice.below_allowed_ns,
        "secondary_too_short": advice.below_short,
        "present": {name: present for _, name, present, _ in advice.rows},
        "wanted": {name: wanted for _, name, _, wanted in advice.rows},
    }


def fairness(
    released: DataFrame,
    lines: DataFrame | None,
    settings: FairnessSettings,
    unread: Mapping[str, int] | None = None,
) -> FairnessReport:
    """`released` of all receivers; `lines` of measurements where there are any."""
    late_ns = settings.late_after_ns
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.unpersist)
            return frame.cache()

        messages = keep(message_releases(released))
        skew = keep(release_skew(messages, late_ns))
        basis = _basis(messages, settings)
        regions = keep(messages_by_region(messages, settings.places, min(basis["stripes"], default=None)))
        report = FairnessReport(
            basis,
            skew_totals(messages, late_ns, len(basis["receivers"])),
            _rows(site_skew(messages, late_ns), settings),
            _rows(worst_messages(skew, settings.worst), settings),
            _rows(fairness_faults(messages, late_ns), settings),
            _rows(worst_faults(messages, late_ns, settings.worst), settings),
            _rows(entry_delays(regions), settings),
            _rows(region_order(regions, settings.within_ns), settings),
            unread=dict(unread or {}),
        )
        if settings.curves:
            curves = site_curves(messages, late_ns).collect()
            report.skew_curves = {_name(settings, row.receiver): list(row.curve) for row in curves}
    if lines is not None:
        _measured(report, lines, settings)
    return report


def _basis(messages: DataFrame, settings: FairnessSettings) -> Row:
    found = messages.agg(
        F.sort_array(F.collect_set("receiver")).alias("receivers"),
        F.sort_array(F.collect_set("stripe")).alias("stripes"),
        F.count("*").alias("releases"),
        F.min("instant_ns").alias("first_instant_ns"),
        F.max("instant_ns").alias("last_instant_ns"),
        F.max("clock_bound_ns").alias("clock_bound_ns"),
    ).collect()[0]
    row: Row = found.asDict()
    row["receivers"] = [_name(settings, receiver) for receiver in row["receivers"]]
    return {**row, "late_after_ns": settings.late_after_ns, "within_ns": settings.within_ns}


def _measured(report: FairnessReport, lines: DataFrame, settings: FairnessSettings) -> None:
    """What journals do not say."""
    report.losses = _rows(losses_by_place(lines), settings)
    report.correlation = _rows(loss_correlation(lines), settings)
    delays = token_delays(lines).cache()
    try:
        report.delays = _rows(delay_quantiles(delays, settings.fraction), settings)
        if settings.curves:
            report.delay_curves = {row.node: list(row.curve) for row in delay_curves(delays).collect()}
    finally:
        delays.unpersist()
    primary = [row for row in report.delays if row["role"] == _PRIMARY]
    if settings.timing is not None and primary:
        wanted = {row["node"]: row["wanted_ns"] for row in primary}
        tokens = {row["node"]: row["tokens"] for row in primary}
        below = {row["node"]: row["wanted_ns"] for row in report.delays if row["role"] != _PRIMARY}
        counted = [row for row in report.losses if row["role"] == _PRIMARY]
        heard, all_tokens = (sum(row[name] for row in counted) for name in ("heard", "tokens"))
        loss = max(0.0, 1 - heard / all_tokens) if all_tokens else 0.0
        report.advice = advise(settings.timing, wanted, tokens, settings.fraction, loss, below)


def _rows(frame: DataFrame, settings: FairnessSettings) -> list[Row]:
    """Rows of a small frame, with receivers by name where there is one."""
    found = []
    for row in frame.collect():
        plain = row.asDict()
        for column in ("receiver", "first_receiver", "last_receiver"):
            if column in plain:
                plain[column] = _name(settings, plain[column])
        found.append(plain)
    return found


def _name(settings: FairnessSettings, receiver: int) -> str:
    return settings.names.get(receiver, f"site{receiver}")
