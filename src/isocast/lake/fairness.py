"""Fairness and health of a market, from its journals and measurements: delays, entry, faults, losses, and their report.

    found = fairness(released, lines, market)

Everything heavy is a frame-to-frame step under `transforms`; here the small results come together as plain rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from isocast.checks.skew import ReleaseSkew
from isocast.lake.timing_advice import Advice, advise
from isocast.lake.transforms.entry import competing_orders, entry_shares, orders_left_out, region_of
from isocast.lake.transforms.skew import (
    message_releases,
    release_skew,
    site_curves,
    site_skew,
    skew_totals,
    worst_messages,
)
from isocast.runtime.watch.measurements import FOLDER, MEASUREMENT_VERSION
from isocast.terms.errors import ConfigurationError
from isocast.terms.timing import Timing

__all__ = [
    "LIVE_NS",
    "FairnessReport",
    "FairnessSettings",
    "MeasurementLines",
    "MeasurementRow",
    "delay_curves",
    "delay_quantiles",
    "entry_delays",
    "fairness",
    "fairness_faults",
    "loss_correlation",
    "losses_by_place",
    "measurement_files",
    "messages_by_region",
    "read_measurements",
    "region_order",
    "token_delays",
    "worst_faults",
]

# The measurements of nodes as a frame: what `runtime.watch.measurements` writes, and what of it cannot be read.

_BROKEN = "broken"
_LINE_DDL = (
    "v INT, node STRING, id BIGINT, role STRING, stripe INT, city STRING, at_ns BIGINT, over_ns BIGINT, "
    "counts MAP<STRING, BIGINT>, lateness ARRAY<ARRAY<BIGINT>>, tokens ARRAY<ARRAY<BIGINT>>, tokens_unlisted BIGINT"
)


class MeasurementLines(NamedTuple):
    """What could be read, and what could not."""

    lines: DataFrame
    unread: dict[str, int]
    """By reason: lines that are no measurements, lines of a newer version."""


def measurement_files(where: Path) -> list[str]:
    """Every file of measurements below a folder."""
    return sorted(str(path) for path in where.rglob(f"{FOLDER}/m-*.jsonl"))


def read_measurements(spark: SparkSession, where: Path) -> MeasurementLines:
    """The measurements of a market's data directory; ConfigurationError if there are none."""
    files = measurement_files(where)
    if not files:
        rule = f"holds no measurements (NODE/{FOLDER}/m-*.jsonl): is measurements.keep_bytes 0B in the market's file?"
        raise ConfigurationError(str(where), "--journals", rule)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    # Spark parses lazily and may leave columns out: the broken ones are counted from what was parsed once.
    read = spark.read.schema(f"{_LINE_DDL}, {_BROKEN} STRING").options(**options).json(files).cache()
    whole = F.col(_BROKEN).isNull() & F.col("v").isNotNull() & F.col("at_ns").isNotNull() & F.col("node").isNotNull()
    reasons = read.select(
        F.sum((~whole).cast("bigint")).alias("broken"),
        F.sum((whole & (F.col("v") != MEASUREMENT_VERSION)).cast("bigint")).alias("newer"),
    ).first()
    unread = {} if reasons is None else {name: count for name, count in reasons.asDict().items() if count}
    return MeasurementLines(read.where(whole & (F.col("v") == MEASUREMENT_VERSION)).drop(_BROKEN), unread)


# Delay distributions: when tokens are heard after their instant, at each receiver and from each owner (§5.1).


_ACCURACY = 100_000
_ACCURACY_MAX = 2**31 - 1
_OWNER, _TOKEN, _DELAY = range(3)
_RECEIVER = ("node", "city", "role")
_CURVE_STEPS = 200


def token_delays(lines: DataFrame) -> DataFrame:
    """One row for each token that a receiver heard by itself: clocks, distance, queues and the owner's lateness."""
    return (
        lines.where(F.col("tokens").isNotNull())
        .select("node", "city", "role", "stripe", F.explode("tokens").alias("heard"))
        .select(
            "node",
            "city",
            "role",
            "stripe",
            F.col("heard")[_OWNER].alias("owner"),
            F.col("heard")[_TOKEN].alias("token"),
            F.col("heard")[_DELAY].alias("delay_ns"),
        )
    )


def delay_quantiles(delays: DataFrame, fraction: float) -> DataFrame:
    """Of each receiver: median, 99 %, the wanted fraction and the largest delay."""
    # An error of 1/accuracy in rank must be small beside the tail that is asked for.
    accuracy = min(max(_ACCURACY, round(100 / (1 - fraction))), _ACCURACY_MAX)
    found = F.percentile_approx("delay_ns", [0.5, 0.99, fraction], accuracy)
    return (
        delays.groupBy(*_RECEIVER)
        .agg(
            F.count("*").alias("tokens"),
            found[0].alias("p50_ns"),
            found[1].alias("p99_ns"),
            found[2].alias("wanted_ns"),
            F.max("delay_ns").alias("max_ns"),
        )
        .orderBy(*_RECEIVER)
    )


def delay_curves(delays: DataFrame) -> DataFrame:
    """For a picture: of each receiver the quantiles 0, 1/200, … 1."""
    shares = [step / _CURVE_STEPS for step in range(_CURVE_STEPS + 1)]
    return delays.groupBy("node").agg(F.percentile_approx("delay_ns", shares, _ACCURACY).alias("curve")).orderBy("node")


# Entry fairness: how long messages of each region wait for their token, and which of two comes first (§3, point
# 6).
#
# A region is the place of a source, or its floor where places are not known. Times of events are those of the floors'
# own clocks; what is replayed carries the times of another day, and is counted apart.


LIVE_NS = 60 * 10**9
"""An event this much older than its token is replayed."""
_SHARES = (0.5, 0.99)


def messages_by_region(messages: DataFrame, places: Mapping[int, str], lowest: int | None = None) -> DataFrame:
    """One row for each message, however many released it, with its region; `places` are those of source numbers.

    A message that begins with a copy entered in another stripe, unless its own is the `lowest` that is there.
    """
    counted = ~F.col("copied") if lowest is None else ~F.col("copied") | (F.col("stripe") == lowest)
    once = (
        messages.where(counted)
        .dropDuplicates(["stripe", "sequence"])
        .select("stripe", "sequence", "token", "source", "floor", "event_ns", "instant_ns")
    )
    return once.withColumn("region", region_of(places)).withColumn("delay_ns", F.col("instant_ns") - F.col("event_ns"))


def _is_live() -> Column:
    return F.col("delay_ns").between(0, LIVE_NS)


def entry_delays(messages: DataFrame) -> DataFrame:
    """For each region: from the event to the instant of the token that ordered it."""
    delay = F.when(_is_live(), F.col("delay_ns"))
    found = F.percentile_approx(delay, list(_SHARES), _ACCURACY)
    return (
        messages.groupBy("region")
        .agg(
            F.count("*").alias("messages"),
            F.sum((~_is_live()).cast("bigint")).alias("not_live"),
            F.avg(delay).alias("mean_ns"),
            found[0].alias("p50_ns"),
            found[1].alias("p99_ns"),
            F.max(delay).alias("max_ns"),
        )
        .orderBy("region")
    )


def region_order(messages: DataFrame, within_ns: int) -> DataFrame:
    """For each pair of regions: of two neighbours in time, less than `within_ns` apart, who got the lower sequence.

    `one_first` is the share that the first region won: a half is fair, whatever their distances. An inversion is a
    pair in which the later event got the lower sequence. Neighbours are looked for inside whole minutes.
    """
    minute = F.floor(F.col("event_ns") / F.lit(LIVE_NS))
    order = Window.partitionBy("stripe", "minute").orderBy("event_ns", "sequence")
    pairs = (
        messages.where(_is_live())
        .withColumn("minute", minute)
        .withColumn("other", F.lead("region").over(order))
        .withColumn("other_sequence", F.lead("sequence").over(order))
        .withColumn("apart_ns", F.lead("event_ns").over(order) - F.col("event_ns"))
        .where((F.col("other") != F.col("region")) & (F.col("apart_ns") < within_ns))
    )
    earlier_won = F.col("sequence") < F.col("other_sequence")
    is_one = F.col("region") < F.col("other")
    return (
        pairs.select(
            F.least("region", "other").alias("one"),
            F.greatest("region", "other").alias("two"),
            is_one.cast("int").alias("one_earlier"),
            (is_one == earlier_won).cast("int").alias("one_won"),
            (~earlier_won & (F.col("apart_ns") > 0)).cast("int").alias("inverted"),
        )
        .groupBy("one", "two")
        .agg(
            F.count("*").alias("pairs"),
            F.avg("one_earlier").alias("one_earlier"),
            F.avg("one_won").alias("one_first"),
            F.sum("inverted").alias("inversions"),
        )
        .orderBy("one", "two")
    )


# Fairness faults: messages that a receiver released after their instant, or from an earlier ring's backlog (§5).


def fairness_faults(messages: DataFrame, late_after_ns: int) -> DataFrame:
    """For each receiver: late by more than P, late beyond its clock's bound, and owed from before a new ring."""
    late, backlog = F.col("late_ns") > late_after_ns, F.col("due_ns") > F.col("first_due_ns")
    return (
        messages.groupBy("receiver")
        .agg(
            F.count("*").alias("messages"),
            F.sum(late.cast("bigint")).alias("late"),
            F.sum((F.col("late_ns") > F.col("bound_ns")).cast("bigint")).alias("beyond_bound"),
            F.sum(backlog.cast("bigint")).alias("backlog"),
            F.countDistinct(F.when(late | backlog, F.col("token"))).alias("tokens"),
            F.max("late_ns").alias("worst_ns"),
            F.max_by("sequence", "late_ns").alias("worst_sequence"),
        )
        .orderBy("receiver")
    )


def worst_faults(messages: DataFrame, late_after_ns: int, count: int) -> DataFrame:
    """The tokens that were latest, each with the receiver and its first late message."""
    return (
        messages.where((F.col("late_ns") > late_after_ns) | (F.col("due_ns") > F.col("first_due_ns")))
        .groupBy("stripe", "token", "receiver")
        .agg(
            F.min("sequence").alias("sequence"),
            F.count("*").alias("messages"),
            F.max("late_ns").alias("late_ns"),
            F.max(F.col("due_ns") - F.col("first_due_ns")).alias("backlog_ns"),
        )
        .orderBy(F.desc(F.col("late_ns") + F.col("backlog_ns")), "stripe", "token", "receiver")
        .limit(count)
    )


# Losses and repairs by place, and which places lose together: shared losses point at a shared branch (§5.2).


_SECOND_NS = 10**9


def _count(name: str) -> Column:
    return F.coalesce(F.col("counts")[name], F.lit(0))


def losses_by_place(lines: DataFrame) -> DataFrame:
    """For each receiver: tokens that came by themselves, requests, repairs, drops; and the share of tokens lost."""
    heard = F.size(F.coalesce("tokens", F.array())) + F.coalesce("tokens_unlisted", F.lit(0))
    return (
        lines.where(F.col("role").endswith("receiver"))
        .groupBy("node", "city", "role", "stripe")
        .agg(
            F.count("*").alias("seconds"),
            F.sum(_count("tokens_accepted")).alias("tokens"),
            F.sum(heard).alias("heard"),
            F.sum(_count("data_received")).alias("data"),
            F.sum(_count("nacks_sent")).alias("nacks_sent"),
            F.sum(_count("repairs_received")).alias("repairs_received"),
            F.sum(_count("nacks_received")).alias("nacks_received"),
            F.sum(_count("repairs_sent")).alias("repairs_sent"),
            F.sum(_count("kernel_drops")).alias("kernel_drops"),
            F.sum(_count("fairness_faults")).alias("fairness_faults"),
            F.sum(_count("late_releases")).alias("late_releases"),
        )
        # Restarts and repairs can make a token complete that was never heard, and the other way round.
        .withColumn("token_loss", F.greatest(F.lit(0.0), 1 - F.col("heard") / F.greatest("tokens", F.lit(1))))
        .withColumn("repairs_per_data", F.col("repairs_received") / F.greatest("data", F.lit(1)))
        .orderBy("node", "stripe")
    )


def loss_correlation(lines: DataFrame) -> DataFrame:
    """For each pair of receivers: the correlation of their losses, second by second, and how often both lost.

    All places lose more when there is more to lose, and nothing when there is nothing. So what is correlated is what a
    second had beyond the place's mean share of its data, in the seconds in which both had any. `lift` is how often both
    lost in one of these over how often independent losses would: 1 is independent.
    """
    place = Window.partitionBy("node", "stripe")
    seconds = (
        lines.where(F.col("role").endswith("receiver"))
        .withColumn("second", F.round(F.col("at_ns") / F.lit(_SECOND_NS)).cast("bigint"))
        .groupBy("node", "city", "stripe", "second")
        .agg(
            F.sum(_count("repairs_received") + _count("kernel_drops")).alias("lost"),
            F.sum(_count("data_received")).alias("data"),
        )
        .withColumn("all", F.col("lost") + F.col("data"))
        .where(F.col("all") > 0)
        .withColumn("mean_share", F.sum("lost").over(place) / F.sum("all").over(place))
        .withColumn("excess", F.col("lost") - F.col("mean_share") * F.col("all"))
    )
    one, two = (
        seconds.select(
            "stripe",
            "second",
            F.col("node").alias(side),
            F.col("city").alias(f"{side}_city"),
            (F.col("lost") > 0).cast("int").alias(f"{side}_lost"),
            F.col("excess").alias(f"{side}_excess"),
        )
        for side in ("one", "two")
    )
    both = F.sum(F.col("one_lost") * F.col("two_lost"))
    alone = F.sum("one_lost") * F.sum("two_lost")
    return (
        one.join(two, ["stripe", "second"])
        .where(F.col("one") < F.col("two"))
        .groupBy("stripe", "one", "one_city", "two", "two_city")
        .agg(
            F.count("*").alias("seconds"),
            F.corr("one_excess", "two_excess").alias("correlation"),
            both.alias("both"),
            (both * F.count("*") / F.nullif(alone, F.lit(0))).alias("lift"),
        )
        .orderBy(F.desc_nulls_last("correlation"), "one", "two")
    )


MeasurementRow: TypeAlias = dict[str, Any]

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
    together_ns: int = 10_000_000
    """Orders of one id compete if they were decided within this time."""
    owners: int = 1
    """Of tokens, in turn; with one alone, tokens are taken as if all were alike."""
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

    basis: MeasurementRow
    """What was there: receivers, stripes, messages, first and last instant, and what figures are held to."""
    skew: ReleaseSkew
    """Of all messages, and what is left out."""
    sites: list[MeasurementRow]
    worst: list[MeasurementRow]
    faults: list[MeasurementRow]
    worst_faults: list[MeasurementRow]
    entry: list[MeasurementRow]
    order: list[MeasurementRow]
    contests: list[MeasurementRow] = field(default_factory=list)
    """Of orders by id, the figures of `transforms.entry`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Of orders: those in no contest, by the reason."""
    losses: list[MeasurementRow] = field(default_factory=list)
    correlation: list[MeasurementRow] = field(default_factory=list)
    delays: list[MeasurementRow] = field(default_factory=list)
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
        tables = (
            "sites", "worst", "faults", "worst_faults", "entry", "order", "contests", "losses", "correlation", "delays",
        )  # fmt: skip
        return {
            "sentence": self.sentence,
            "basis": self.basis,
            "messages": self.messages,
            "exceeding": self.exceeding,
            "faulted": self.faulted,
            "skew": asdict(self.skew),
            **{name: getattr(self, name) for name in tables},
            "left_out": self.left_out,
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
        orders = keep(competing_orders(released, settings.places, settings.together_ns))
        report.contests = _rows(entry_shares(orders, settings.owners), settings)
        report.left_out = _rows(orders_left_out(orders), settings)[0]
        if settings.curves:
            curves = site_curves(messages, late_ns).collect()
            report.skew_curves = {_name(settings, row.receiver): list(row.curve) for row in curves}
    if lines is not None:
        _measured(report, lines, settings)
    return report


def _basis(messages: DataFrame, settings: FairnessSettings) -> MeasurementRow:
    found = messages.agg(
        F.sort_array(F.collect_set("receiver")).alias("receivers"),
        F.sort_array(F.collect_set("stripe")).alias("stripes"),
        F.count("*").alias("releases"),
        F.min("instant_ns").alias("first_instant_ns"),
        F.max("instant_ns").alias("last_instant_ns"),
        F.max("clock_bound_ns").alias("clock_bound_ns"),
    ).collect()[0]
    row: MeasurementRow = found.asDict()
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


def _rows(frame: DataFrame, settings: FairnessSettings) -> list[MeasurementRow]:
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
