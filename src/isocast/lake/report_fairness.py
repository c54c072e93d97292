"""A fairness report as tables: for the terminal, and with its pictures as a page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from isocast.checks.skew import ReleaseSkew
from isocast.lake.fairness import FairnessReport, MeasurementRow
from isocast.lake.report import Page, ReportTable
from isocast.lake.timing_advice import Advice

__all__ = ["fairness_page", "fairness_tables", "span_text"]

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_PAIRS_SHOWN = 20


def span_text(nanoseconds: float | None) -> str:
    """A measured span for people, to four digits."""
    if nanoseconds is None:
        return "–"
    for size, unit in _UNITS:
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.0f} ns"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def fairness_page(report: FairnessReport, title: str, pictures: Mapping[str, Path]) -> Page:
    """The whole of it."""
    return Page(title, report.sentence, tuple(fairness_tables(report, pictures)), not report.exceeding)


def fairness_tables(report: FairnessReport, pictures: Mapping[str, Path] | None = None) -> list[ReportTable]:
    """Every table that has something to say."""
    drawn = pictures or {}
    tables = [_basis(report), _sites(report, drawn.get("skew")), _worst(report), _faults(report), _worst_faults(report)]
    tables += [_entry(report), _order(report), _contests(report)]
    if report.losses:
        tables += [_losses(report), _correlation(report), _delays(report, drawn.get("delays"))]
    if report.advice is not None:
        tables.append(_advice(report.advice))
    return tables


def _basis(report: FairnessReport) -> ReportTable:
    """What the figures are based on."""
    basis = report.basis
    rows = [
        ("receivers", ", ".join(basis["receivers"]), "whose journals were read; what one fetched later is left out"),
        ("stripes", ", ".join(map(str, basis["stripes"])), "each has a sequence of its own"),
        ("from", _instant(basis["first_instant_ns"]), "instant of the first token"),
        ("to", _instant(basis["last_instant_ns"]), "instant of the last"),
        ("releases", f"{basis['releases']:,}", "of messages with events, counted at each receiver"),
        ("in common", f"{report.messages:,}", "messages that at least two receivers released"),
        ("skew", _figures(report.skew), f"median, p99 and most of {report.skew.count:,} messages without a fault"),
        ("… beyond 2ε", f"{report.skew.exceeding:,}", "of these"),
        ("… partly", f"{report.skew.partly:,}", "of these; a receiver was away, and the others are compared"),
        ("fairness faults", f"{report.skew.faulted:,}", _kinds(report.skew)),
        ("alone", f"{report.skew.alone:,}", "messages of one receiver; there is nothing to compare"),
        ("ε", span_text(basis["clock_bound_ns"]), "no clock was further from true time, as each one vouched"),
        ("P", span_text(basis["late_after_ns"]), "released later than this after the common instant is a fault"),
    ]
    text = (
        "A release time is what the receiver's own clock showed. Clocks that are within ε show one instant up to 2ε"
        " apart, so a skew within 2ε cannot be told from none, and one beyond it is real."
    )
    return ReportTable("What was measured", ("", "", "meaning"), rows, text)


def _figures(skew: ReleaseSkew) -> str:
    return " / ".join(map(span_text, (skew.p50_ns, skew.p99_ns, skew.max_ns))) if skew.count else "–"


def _kinds(skew: ReleaseSkew) -> str:
    return f"{skew.late:,} later than P, {skew.backlog:,} owed to an earlier ring; held to no bound, in no quantile"


def _instant(nanoseconds: int | None) -> str:
    """UTC, to the millisecond."""
    if nanoseconds is None:
        return "–"
    whole = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    return f"{whole:%Y-%m-%d %H:%M:%S}.{nanoseconds // 10**6 % 1000:03} UTC"


def _sites(report: FairnessReport, picture: Path | None) -> ReportTable:
    rows = [
        (
            row["receiver"],
            f"{row['messages']:,}",
            f"{row['first']:,}",
            span_text(row["p50_ns"]),
            span_text(row["p99_ns"]),
            span_text(row["p999_ns"]),
            span_text(row["max_ns"]),
            span_text(row["bound_ns"]),
            f"{row['exceeding']:,}",
        )
        for row in report.sites
    ]
    text = (
        "How long after the first site each one released the same message, where nobody had a fault; 2ε is the bound."
    )
    headers = ("site", "messages", "was first", "p50", "p99", "p99.9", "max", "2ε", "beyond 2ε")
    return ReportTable("Release skew by site", headers, rows, text, picture)


def _worst(report: FairnessReport) -> ReportTable:
    rows = [
        (
            str(row["stripe"]),
            f"{row['sequence']:,}",
            f"{row['token']:,}",
            span_text(row["skew_ns"]),
            span_text(row["bound_ns"]),
            row["first_receiver"],
            row["last_receiver"],
            "fault" if row["faulted"] else "BEYOND 2ε" if row["exceeds"] else "within",
        )
        for row in report.worst
    ]
    headers = ("stripe", "sequence", "token", "skew", "2ε", "first", "last", "")
    text = (
        "Of each token the message whose releases lie furthest apart. A fault is counted below, and held to no bound."
    )
    return ReportTable("Messages furthest apart", headers, rows, text)


def _faults(report: FairnessReport) -> ReportTable:
    rows = [
        (
            row["receiver"],
            f"{row['messages']:,}",
            f"{row['late']:,}",
            f"{row['beyond_bound']:,}",
            f"{row['backlog']:,}",
            f"{row['tokens']:,}",
            span_text(row["worst_ns"]),
            f"{row['worst_sequence']:,}",
        )
        for row in report.faults
    ]
    headers = (
        "site",
        "messages",
        "late (> P)",
        "late (> 2ε)",
        "owed to an earlier ring",
        "tokens",
        "worst",
        "sequence",
    )
    text = (
        f"Messages that a site released later than P = {span_text(report.basis['late_after_ns'])} after the instant"
        " that all share, or, after a reformation, at a later instant than other sites: its customers had them late."
    )
    return ReportTable("Fairness faults by site", headers, rows, text)


def _worst_faults(report: FairnessReport) -> ReportTable:
    rows = [
        (
            str(row["stripe"]),
            f"{row['token']:,}",
            row["receiver"],
            f"{row['sequence']:,}",
            f"{row['messages']:,}",
            span_text(row["late_ns"]),
            span_text(row["backlog_ns"]),
        )
        for row in report.worst_faults
    ]
    headers = ("stripe", "token", "site", "from sequence", "messages", "late", "owed for")
    return ReportTable("Latest tokens", headers, rows)


def _entry(report: FairnessReport) -> ReportTable:
    rows = [
        (
            row["region"],
            f"{row['messages']:,}",
            f"{row['not_live']:,}",
            span_text(row["mean_ns"]),
            span_text(row["p50_ns"]),
            span_text(row["p99_ns"]),
            span_text(row["max_ns"]),
        )
        for row in report.entry
    ]
    text = (
        "From an event, by its floor's clock, to the instant of the token that ordered it. Regions differ by their"
        " distance to the owners; what that may not do is decide who is ordered first (next table). An event that is"
        " more than a minute old, or not past, is not live and in no figure."
    )
    headers = ("region", "messages", "not live", "mean", "p50", "p99", "max")
    return ReportTable("Entry delay by region", headers, rows, text)


def _order(report: FairnessReport) -> ReportTable:
    rows = [
        (
            row["one"],
            row["two"],
            f"{row['pairs']:,}",
            _share(row["one_earlier"]),
            _share(row["one_first"]),
            f"{row['inversions']:,}",
            f"± {1 / row['pairs'] ** 0.5:.3f}",
        )
        for row in report.order
    ]
    text = (
        f"Neighbours in time from two regions, less than {span_text(report.basis['within_ns'])} apart: 0.5 is fair,"
        " whatever their distances, give or take the chance in the last column (two standard deviations of a coin). In"
        " an inversion the later event was ordered first."
    )
    headers = ("region", "against", "pairs", "happened first", "was ordered first", "inversions", "chance")
    return ReportTable("Who is ordered first", headers, rows, text)


def _contests(report: FairnessReport) -> ReportTable:
    rows = [
        (
            row["rule"],
            row["first"],
            row["second"],
            f"{row['contests']:,}",
            f"{row['tokens']:,}",
            _share(row["share"]),
            "–" if row["standard_error"] is None else f"{row['standard_error']:.4f}",
            span_text(row["ahead_ns"]),
        )
        for row in report.contests
    ]
    out = report.left_out
    text = (
        "Orders of one id: how often that of the first region entered before that of the second; at one time counts"
        " half. The error is that of whole tokens, since contests of one token are not independent. Left out:"
        f" {out['alone']:,} orders that nobody competed with, {out['repeated']:,} of an id that a region used twice,"
        f" {out['apart']:,} contests decided too far apart."
        if rows
        else ""
    )
    headers = ("rule", "first", "second", "contests", "tokens", "share", "error", "decided ahead")
    return ReportTable("Orders that compete by id", headers, rows, text)


def _losses(report: FairnessReport) -> ReportTable:
    rows = [
        (
            _place(row, "node", "city"),
            f"{row['seconds']:,}",
            f"{row['tokens']:,}",
            f"{row['token_loss']:.2%}",
            f"{row['nacks_sent']:,}",
            f"{row['repairs_received']:,}",
            f"{row['repairs_per_data']:.2%}",
            f"{row['repairs_sent']:,}",
            f"{row['kernel_drops']:,}",
        )
        for row in report.losses
    ]
    headers = (
        "place", "seconds", "tokens", "tokens lost", "requests", "repairs got", "per DATA", "repairs sent",
        "kernel drops",
    )  # fmt: skip
    text = "Tokens lost: those of others that a place never heard, and had to ask for."
    return ReportTable("Losses and repairs by place", headers, rows, " ".join(filter(None, [text, _unread(report)])))


def _unread(report: FairnessReport) -> str:
    said = {"broken": "lines are no measurements", "newer": "lines are of a newer version"}
    told = "; ".join(f"{count:,} {said[reason]} and were left out" for reason, count in report.unread.items())
    return f"{told}." if told else ""


def _place(row: MeasurementRow, node: str, city: str) -> str:
    name, place = str(row[node]), str(row[city] or "")
    return f"{name} ({place})" if place and place.casefold().replace(" ", "-") != name.casefold() else name


def _correlation(report: FairnessReport) -> ReportTable:
    rows = [
        (
            _place(row, "one", "one_city"),
            _place(row, "two", "two_city"),
            f"{row['seconds']:,}",
            _share(row["correlation"]),
            f"{row['both']:,}",
            _share(row["lift"]),
        )
        for row in report.correlation[:_PAIRS_SHOWN]
    ]
    text = (
        "Losses beyond each place's own mean, over the seconds in which both had DATA: places that lose together hang"
        " on one branch. A correlation of 0 and a lift of 1 are chance."
    )
    headers = ("place", "and", "seconds", "correlation", "both lost", "lift")
    return ReportTable("Places that lose together", headers, rows, text)


def _delays(report: FairnessReport, picture: Path | None) -> ReportTable:
    rows = [
        (
            _place(row, "node", "city"),
            f"{row['tokens']:,}",
            span_text(row["p50_ns"]),
            span_text(row["p99_ns"]),
            span_text(row["wanted_ns"]),
            span_text(row["max_ns"]),
        )
        for row in report.delays
    ]
    headers = ("place", "tokens heard", "p50", "p99", "wanted fraction", "max")
    text = (
        "From the scheduled instant of a token, by its owner's clock, until a place heard it, by its own: distance,"
        " queues and both clocks."
    )
    return ReportTable("Tokens after their instant", headers, rows, text, picture)


def _advice(advice: Advice) -> ReportTable:
    rows = [
        (symbol, name, span_text(present), span_text(wanted), f"{wanted / present:.2f}")
        for symbol, name, present, wanted in advice.rows
    ]
    parts = [
        f"For {advice.fraction:g} of {advice.tokens:,} tokens heard in time; {advice.slowest} decides.",
        f"{advice.token_loss:.2%} of tokens had to be asked for, which no δ_N changes.",
        f"All {advice.wanted.retries_max} requests for one fail with probability {advice.give_up:.1e}.",
    ]
    if advice.below_ns:
        slowest = max(advice.below_ns, key=lambda node: (advice.below_ns[node], node))
        parts.append(
            f"Secondary receivers may wait for δ_N+2ε+δ_S = {span_text(advice.below_allowed_ns)}; {slowest} needs"
            f" {span_text(advice.below_ns[slowest])}."
        )
        if advice.below_short:
            parts.append(f"TOO SHORT for {', '.join(advice.below_short)}: raise secondary_detect.")
    if not advice.enough:
        least = 1 / (1 - advice.fraction) if advice.fraction < 1 else float("inf")
        parts.append(
            f"TOO FEW TOKENS: every receiver must hear {least:,.0f} to tell this fraction; it is the largest so far."
        )
    headers = ("", "key of [timing]", "now", f"for {advice.fraction:g}", "factor")
    return ReportTable("Recommended times", headers, rows, " ".join(parts))
