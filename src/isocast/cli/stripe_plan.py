"""The plan behind `isocast plan stripes`: files in, tables, JSON and a plan file out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from isocast.cli.render import Progress, figure, line, note, show_json, show_table, working
from isocast.cli.sheet import check_pictures
from isocast.cli.stripe_against import against_json, show_against
from isocast.cli.stripe_history import load_history, load_sectors
from isocast.cli.stripe_options import StripeOptions
from isocast.striping.comparing import Comparison, compare_with_hash
from isocast.striping.history import History
from isocast.striping.judging import Judgement, StripeLoad, judge
from isocast.striping.making import MadePlan, MakingSettings, make_plan
from isocast.striping.plan import StripePlan
from isocast.striping.plan_text import plan_as_json, plan_text, read_plan
from isocast.striping.rates import parse_rate, rate_text, stripes_that_fit
from isocast.striping.remaking import adjust_plan
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import duration_text, parse_duration

__all__ = [
    "StripeRun",
    "check_outputs",
    "run_stripes",
    "show_stripes",
    "stripes_as_json",
    "write_pictures",
    "write_plan",
]

_PATIENCE_MAX = 1_000
_NARROWEST, _WIDEST = 600, 8_000
_LINES = (56_000, 1_500_000, 45_000_000)
"""The paper's customers: a modem, a primary rate line, a broker."""
_HEADERS = ("stripe", "name", "core", "symbols", "mean", "peak", "rate", "head-room", "wait", "")


@dataclass(frozen=True, slots=True)
class StripeRun:
    """A plan, judged."""

    made: MadePlan
    before: StripePlan | None
    own: Judgement | None
    """On the history that it was made from."""
    checks: tuple[tuple[str, Judgement], ...]
    against: Comparison | None = None
    """Beside a hash, on that history."""
    history: History | None = None

    @property
    def holds(self) -> bool:
        """Whether it holds on every day of --check."""
        return all(judgement.holds for _, judgement in self.checks)


def run_stripes(paths: Sequence[Path], options: StripeOptions) -> StripeRun:
    """Read, plan or adjust, and judge."""
    settings = _settings(options)
    check_outputs(options)
    if not paths and (options.svg is not None or options.png is not None):
        raise ConfigurationError("command line", "HISTORY", "is missing: a picture shows a plan on its history")
    before = None if options.from_ is None else _load_plan(options.from_)
    if not paths and before is None:
        rule = "is missing: name feeds, journals or tables of counts; isocast feed generate day.parquet makes a day"
        raise ConfigurationError("command line", "HISTORY", rule)
    if not paths and not options.check:
        raise ConfigurationError("command line", "--check", "is missing: --from alone needs a day to judge the plan by")
    period_ns = _period(options) if before is None else before.token_period_ns
    own, against, history = None, None, None
    sectors = load_sectors(options.sectors)
    if paths:
        history = _history(paths, period_ns, options)
        with Progress("symbols placed", len(history.names), quiet=options.json) as progress:
            made = (
                make_plan(history, settings, sectors, progress.reach)
                if before is None
                else adjust_plan(before, history, settings, sectors, progress.reach)
            )
        own = judge(made.plan, history, options.patience)
        with working("Comparing with a hash", quiet=options.json):
            against = compare_with_hash(made.plan, own, history, sectors, patience=settings.patience)
    elif before is not None:
        made = MadePlan(before)
    else:
        raise AssertionError(paths)
    checks = tuple(
        (str(path), judge(made.plan, _history([path], period_ns, options), options.patience)) for path in options.check
    )
    return StripeRun(made, before, own, checks, against, history)


def check_outputs(options: StripeOptions, out: str = "--out") -> None:
    """Before anything is computed: what is to be written can be."""
    check_pictures(options.svg, options.png)
    if not _NARROWEST <= options.width <= _WIDEST:
        rule = f"must be from {_NARROWEST:,} to {_WIDEST:,}, not {options.width:,}"
        raise ConfigurationError("command line", "--width", rule)
    if options.out is not None and not options.out.parent.is_dir():
        raise ConfigurationError("command line", out, f"there is no directory {options.out.parent}")


def _history(paths: Sequence[Path], period_ns: int, options: StripeOptions) -> History:
    return load_history(paths, period_ns, options.mapping, options.day, quiet=options.json)


def _settings(options: StripeOptions) -> MakingSettings:
    try:
        rate = parse_rate(options.rate)
    except ValueError:
        rule = f'must be a bit-rate such as 56k, 1.5M or 56000, not "{options.rate}"'
        raise ConfigurationError("command line", "--rate", rule) from None
    if not 0 <= options.patience <= _PATIENCE_MAX:
        rule = f"must be from 0 to {_PATIENCE_MAX:,}, not {options.patience}"
        raise ConfigurationError("command line", "--patience", rule)
    if options.rows < 1:
        raise ConfigurationError("command line", "--rows", f"must be at least 1, not {options.rows}")
    return MakingSettings(rate=rate, headroom=options.headroom, patience=options.patience, cores=options.core)


def _period(options: StripeOptions) -> int:
    try:
        period_ns = parse_duration(options.token_period)
    except ValueError:
        period_ns = 0
    if not 0 < period_ns <= 3_600 * SECOND:
        rule = f'must be a time such as 1s or 50ms, at most an hour, not "{options.token_period}"'
        raise ConfigurationError("command line", "--token-period", rule)
    return period_ns


def _load_plan(path: Path) -> StripePlan:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(str(path), "file", f"cannot be read: {why}") from None
    return read_plan(text, str(path))


# ---- out


def write_plan(run: StripeRun, options: StripeOptions) -> None:
    """The plan, where it was asked for."""
    out, plan = options.out, run.made.plan
    if out is not None:
        as_json = out.suffix.lower() == ".json"
        text = json.dumps(plan_as_json(plan), indent=1) + "\n" if as_json else plan_text(plan)
        out.write_text(text, encoding="utf-8")
        note(f"Written: {out}")


def write_pictures(run: StripeRun, options: StripeOptions) -> None:
    """The plan on its history, where a picture was asked for."""
    for path, kind in ((options.svg, "svg"), (options.png, "png")):
        if path is None or run.own is None or run.against is None or run.history is None:
            continue
        from isocast.cli.stripe_picture import stripe_picture

        path.write_bytes(stripe_picture(run.made.plan, run.own, run.against, run.history, kind, options.width))
        note(f"Written: {path}")


def show_stripes(run: StripeRun, options: StripeOptions) -> None:
    """Tables for people, or one JSON object."""
    if options.json:
        show_json(stripes_as_json(run))
        return
    plan = run.made.plan
    if run.own is not None:
        _show_loads("Stripes on the history", run.own, options.rows)
    if run.against is not None:
        show_against(run.against, options.rows)
    for name, judgement in run.checks:
        _show_loads(f"Stripes on {name}", judgement, options.rows)
    if run.before is not None and run.own is not None:
        _show_moves(run, options.rows)
    if run.made.oversized:
        listed = ", ".join(run.made.oversized)
        line(f"Alone above the rate, on stripes of their own that are conflated when needed: {listed}.")
    count = len([stripe for stripe in plan.stripes if not stripe.spare])
    stripes = f"{figure(count)} stripe{'s' * (count != 1)} and {len(plan.cores)} spare"
    line(
        f"Plan {plan.version}: {figure(plan.symbols)} symbols on {stripes}, "
        f"token period {duration_text(plan.token_period_ns)}, digest {plan.digest.hex()}."
    )
    rate = plan.stripes[0].rate
    takes = [f"{rate_text(each)} takes {min(stripes_that_fit(each, rate), count)}" for each in _LINES if each >= rate]
    if takes:
        line(f"A line of {', of '.join(takes)} of them.")
    for name, judgement in run.checks:
        failing = [load.stripe.name for load in judgement.failing]
        verdict = f"DOES NOT HOLD: {', '.join(failing[:10])} would be conflated" if failing else "holds"
        worst = max(load.wait for load in judgement.loads)
        line(f"On {name} it {verdict}; the longest wait is {worst:.2g} token periods.")


def _show_loads(title: str, judgement: Judgement, rows: int) -> None:
    loads = sorted(judgement.loads, key=lambda load: (-load.peak, load.stripe.number))[:rows]
    more = f", the busiest {len(loads)} of {len(judgement.loads):,}" if len(loads) < len(judgement.loads) else ""
    show_table(title + more, _HEADERS, [_row(load) for load in loads])


def _row(load: StripeLoad) -> tuple[str, ...]:
    stripe = load.stripe
    remark = "spare" if stripe.spare else "alone above the rate" if stripe.conflated else ""
    if not load.holds and not stripe.conflated:
        remark = "TOO BUSY"
    return (
        figure(stripe.number),
        stripe.name,
        figure(stripe.core),
        figure(load.symbols),
        rate_text(load.mean),
        rate_text(load.peak),
        rate_text(stripe.rate),
        f"{load.headroom:.0%}" if load.peak else "–",
        f"{load.wait:.1f}",
        remark,
    )


def _show_moves(run: StripeRun, rows: int) -> None:
    by_number = run.made.plan.by_number
    moves = run.made.moves
    table = [
        (move.symbol, "new" if move.before is None else by_number[move.before].name, by_number[move.after].name)
        for move in moves[:rows]
    ]
    more = f", {len(table)} of {len(moves):,}" if len(table) < len(moves) else ""
    show_table(f"Moves{more}", ("symbol", "from", "to"), table)
    strangers = sum(move.before is None for move in moves)
    line(f"{figure(len(moves) - strangers)} symbols move, {figure(strangers)} are new.")


def stripes_as_json(run: StripeRun) -> dict[str, object]:
    """All of it as one object."""
    plan = run.made.plan
    value: dict[str, object] = {
        "digest": plan.digest.hex(),
        "symbols": plan.symbols,
        "oversized": list(run.made.oversized),
        "stripes": [] if run.own is None else [_load_json(load) for load in run.own.loads],
        "checks": [
            {"day": name, "holds": judgement.holds, "stripes": [_load_json(load) for load in judgement.loads]}
            for name, judgement in run.checks
        ],
        "against_hash": None if run.against is None else against_json(run.against),
        "plan": plan_as_json(plan),
    }
    if run.before is not None:
        value["moves"] = [{"symbol": move.symbol, "from": move.before, "to": move.after} for move in run.made.moves]
    return value


def _load_json(load: StripeLoad) -> dict[str, object]:
    stripe = load.stripe
    peak_at = datetime.fromtimestamp(load.peak_at / SECOND, UTC).isoformat(timespec="seconds")
    return {
        "number": stripe.number,
        "name": stripe.name,
        "core": stripe.core,
        "symbols": load.symbols,
        "rate": stripe.rate,
        "mean": round(load.mean, 1),
        "peak": round(load.peak, 1),
        "peak_at": peak_at if load.peak else None,
        "headroom": round(load.headroom, 4) if load.peak else None,
        "over": load.over,
        "wait": round(load.wait, 3),
        "conflated": stripe.conflated,
        "spare": stripe.spare,
        "holds": load.holds,
    }
