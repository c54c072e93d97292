"""The plan behind `isocast plan stripes`: histories in; tables, JSON, a plan file and a picture out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from isocast.cli.feed_text import feed_options
from isocast.cli.options import FeedChoice, rate_of, token_period_of
from isocast.cli.plan import StripeOptions
from isocast.cli.render import Progress, figure, line, note, show_json, show_table, working
from isocast.cli.sheet import (
    ACCENT,
    BACKGROUND,
    BAD,
    GREY,
    GRID,
    OTHER,
    STYLE,
    TEXT,
    check_pictures,
    heat,
    plot_frame,
    saved,
)
from isocast.runtime.client.feed_files import FeedFile
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.routes import load_plan
from isocast.striping.comparing import HashComparison, Judgement, PlanWorth, StripeLoad, compare_with_hash, judge
from isocast.striping.history import (
    COUNT_COLUMNS,
    SIZE_COLUMNS,
    SLICES,
    History,
    HistoryMaker,
    add_count_rows,
    is_count_header,
    read_sectors,
)
from isocast.striping.making import Kinship, MadePlan, MakingSettings, adjust_plan, make_plan
from isocast.striping.plan import StripePlan, plan_as_json, plan_text
from isocast.striping.rates import rate_text, stripes_that_fit
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted, duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "StripeRun",
    "against_json",
    "check_outputs",
    "load_history",
    "load_sectors",
    "run_stripes",
    "show_against",
    "show_stripes",
    "stripe_picture",
    "stripes_as_json",
    "write_pictures",
    "write_plan",
]


# ---- What a plan is worth beside a hash of the symbols, for people and as JSON.


def show_against(found: HashComparison, rows: int) -> None:
    """Two tables: lines and listeners, and each sector where sectors are known."""
    needs = "more than symbols" if found.hashed_needs is None else figure(found.hashed_needs)
    both = [
        ("stripes", *_each(found, lambda worth: figure(worth.stripes))),
        ("stripes above their rate at the peak", *_each(found, lambda worth: figure(worth.too_busy))),
        ("stripes until none is above it", figure(found.planned.stripes) if not found.planned.too_busy else "", needs),
        ("peak of the busiest, of its rate", *_each(found, lambda worth: f"{worth.highest:.0%}")),
    ]
    if found.planned.kin_stripes:
        both += [
            ("joined for ten that move together, mean", *_each(found, lambda worth: f"{worth.kin_stripes:.1f}")),
            ("  of their traffic, on one stripe", *_each(found, lambda worth: f"{worth.kin_on_one:.0%}")),
            ("  of what these stripes carry, theirs", *_each(found, lambda worth: f"{worth.kin_wanted:.1%}")),
            ("joined for any ten, mean", *_each(found, lambda worth: f"{worth.any_stripes:.1f}")),
            ("  of their traffic, on one stripe", *_each(found, lambda worth: f"{worth.any_on_one:.0%}")),
            ("  of what these stripes carry, theirs", *_each(found, lambda worth: f"{worth.any_wanted:.1%}")),
        ]
    show_table("Beside a hash of the symbols", ("", "this plan", "hash"), both)
    if found.sectors:
        shown = sorted(found.sectors, key=lambda row: (-row.symbols, row.sector))[:rows]
        more = f", {len(shown)} of {len(found.sectors):,}" if len(shown) < len(found.sectors) else ""
        table = [
            (row.sector, figure(row.symbols), figure(row.stripes), f"{row.wanted:.0%}", figure(row.hashed_stripes),
             f"{row.hashed_wanted:.0%}")
            for row in shown
        ]  # fmt: skip
        headers = ("sector", "symbols", "stripes to join", "of it wanted", "by hash", "of it wanted")
        show_table(f"Customers of one sector{more}", headers, table)


def _each(found: HashComparison, text: Callable[[PlanWorth], str]) -> tuple[str, str]:
    return text(found.planned), text(found.hashed)


def against_json(found: HashComparison) -> dict[str, object]:
    """All of it; shares from 0 to 1."""
    return {
        "planned": _rounded(asdict(found.planned)),
        "hashed": _rounded(asdict(found.hashed)),
        "hashed_needs": found.hashed_needs,
        "sectors": [_rounded(asdict(row)) for row in found.sectors],
    }


def _rounded(values: dict[str, object]) -> dict[str, object]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


# ---- Histories for `isocast plan stripes`: feeds, journals and tables of counts, with progress.


_HEAD = 1_024


def load_history(
    paths: Sequence[Path], token_period_ns: int, mapping: str | None, day: str | None, *, quiet: bool
) -> History:
    """Everything in some files and directories."""
    options = feed_options(None, FeedChoice(day=day, mapping=mapping))
    maker = HistoryMaker(token_period_ns)
    for path in paths:
        before = maker.events
        if path.is_dir():
            with Progress("messages of the journal", 0, quiet=quiet) as progress:
                for block in read_blocks(path):
                    maker.add(block.events)
                    progress.reach(maker.events - before)
        elif _has_counts(path):
            with _text(path) as lines:
                add_count_rows(maker, lines, str(path))
        elif _has_sizes(path):
            _add_sizes(maker, path)
        else:
            feed = FeedFile(path, options)
            with Progress("bytes", feed.size, quiet=quiet) as progress:
                for events in feed.blocks():
                    maker.add(events)
                    progress.reach(feed.position)
            if feed.log.faults:
                note(f"isocast: {path}: {counted(feed.log.total_faults, 'fault')}; isocast feed show {path} names them")
        if maker.events == before:
            raise ConfigurationError(str(path), "events", "the file has no events")
    return maker.make()


def _has_counts(path: Path) -> bool:
    if path.name.lower().removesuffix(".gz").endswith((".csv", ".txt")):
        with _text(path) as lines:
            return is_count_header(lines.readline(_HEAD))
    return False


def _has_sizes(path: Path) -> bool:
    """Whether it is a Parquet table as `isocast lake stripes` writes it."""
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return False
    from pyarrow import ArrowInvalid, parquet

    try:
        return {*COUNT_COLUMNS, *SIZE_COLUMNS} <= set(parquet.read_schema(path).names)
    except (ArrowInvalid, OSError):
        return False  # Whoever reads feeds says what is wrong with it.


def _add_sizes(maker: HistoryMaker, path: Path) -> None:
    import numpy as np
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=[*COUNT_COLUMNS, *SIZE_COLUMNS]):
            names = np.array(batch.column("symbol").to_pylist(), "S8")
            numbers = [batch.column(name).to_numpy() for name in ("time", "count", *SIZE_COLUMNS)]
            maker.add_sizes(names, *numbers)


@contextmanager
def _text(path: Path) -> Iterator[IO[str]]:
    try:
        with path.open("rb") as raw:
            opened = gzip.open if raw.read(2) == b"\x1f\x8b" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else "it is not UTF-8 text, or damaged"
        raise ConfigurationError(str(path), "file", f"cannot be read: {why}") from None


def load_sectors(path: Path | None) -> dict[str, str]:
    """The sectors of symbols; none without a file."""
    if path is None:
        return {}
    with _text(path) as lines:
        return read_sectors(lines, str(path))


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
    against: HashComparison | None = None
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
    before = None if options.from_ is None else load_plan(options.from_)
    if not paths and before is None:
        rule = "is missing: name feeds, journals or tables of counts; isocast feed generate day.parquet makes a day"
        raise ConfigurationError("command line", "HISTORY", rule)
    if not paths and not options.check:
        raise ConfigurationError("command line", "--check", "is missing: --from alone needs a day to judge the plan by")
    period_ns = token_period_of(options.token_period) if before is None else before.token_period_ns
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
    rate = rate_of(options.rate)
    if not 0 <= options.patience <= _PATIENCE_MAX:
        rule = f"must be from 0 to {_PATIENCE_MAX:,}, not {options.patience}"
        raise ConfigurationError("command line", "--patience", rule)
    if options.rows < 1:
        raise ConfigurationError("command line", "--rows", f"must be at least 1, not {options.rows}")
    return MakingSettings(rate=rate, headroom=options.headroom, patience=options.patience, cores=options.core)


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
        from isocast.cli.plan_stripes import stripe_picture

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
        f"Plan {plan.version}: {counted(plan.symbols, 'symbol')} on {stripes}, "
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
    line(f"{counted(len(moves) - strangers, 'symbol')} moved, {figure(strangers)} new.")


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


# ---- A stripe plan as a picture: every stripe's peak against its rate, who moves with whom, and what a listener
# joins.


_INCHES = (15.0, 10.2)
_NARROW = 1_000
"""Pixels below which panels stand under each other, so that letters stay readable."""
_NARROW_INCHES = (7.0, 19.0)
_HEAD_INCHES = 1.05
_SYMBOLS_MAX = 240
"""Of the matrix: more cannot be told apart."""
_NAMED = 40
"""Stripes whose names fit below their bars."""
_KILO, _HOUR = 1_000, 3_600


def stripe_picture(
    plan: StripePlan, own: Judgement, against: HashComparison, history: History, kind: str, width: int
) -> bytes:
    """One sheet, as SVG or PNG; the same plan and history give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    narrow = width < _NARROW
    inches = _NARROW_INCHES if narrow else _INCHES
    with mpl.rc_context(dict[Any, Any](STYLE)):
        sheet = Figure(figsize=inches, dpi=width / inches[0], facecolor=BACKGROUND)
        # What heads the sheet keeps its height, however tall that is.
        top = 1 - _HEAD_INCHES / inches[1]
        sheet.set_layout_engine("constrained", rect=(0.012, 0.01, 0.976, top - 0.01), hspace=0.04, wspace=0.03)
        panels = [sheet.add_subplot(4 if narrow else 2, 1 if narrow else 2, place) for place in (1, 2, 3, 4)]
        _heading(sheet, plan, history, narrow=narrow)
        _peaks(panels[0], own, against)
        _fullest(panels[1], plan, own, history)
        _kin(panels[2], plan, history)
        _listeners(panels[3], against)
        return saved(sheet, kind)


def _heading(sheet: Figure, plan: StripePlan, history: History, *, narrow: bool) -> None:
    stripes = sum(not stripe.spare for stripe in plan.stripes)
    first = datetime.fromtimestamp(int(history.start_times[0]) / SECOND, UTC)
    height = float(sheet.get_figheight())
    sheet.text(0.02, 1 - 0.42 / height, f"Stripe plan {plan.version}", fontsize=16, fontweight="bold")
    told = (
        f"{counted(plan.symbols, 'symbol')} on {counted(stripes, 'stripe')} of {rate_text(plan.stripes[0].rate)}",
        f"token period {duration_text(plan.token_period_ns)}, history from {first:%Y-%m-%d %H:%M} UTC",
        f"digest {plan.digest.hex()[:8]}",
    )
    sheet.text(0.02, 1 - 0.52 / height, ("\n" if narrow else " · ").join(told), fontsize=10, va="top")


def _shown(judgement: Judgement) -> list[StripeLoad]:
    loads = [load for load in judgement.loads if not load.stripe.spare]
    return sorted(loads, key=lambda load: (-load.peak, load.stripe.number))


def _peaks(axes: Axes, own: Judgement, against: HashComparison) -> None:
    loads, hashed = _shown(own), _shown(against.hashed_judgement)
    over = sum(load.peak > load.stripe.rate and not load.stripe.conflated for load in loads)
    title = (
        "Every stripe's busiest token period is under its rate"
        if not over
        else f"{counted(over, 'stripe')} above the rate"
    )
    plot_frame(axes, title, "", "kb/s")
    at = np.arange(len(loads))
    axes.bar(at, [load.peak / _KILO for load in loads], width=0.8, color=ACCENT, label="peak, this plan")
    axes.bar(at, [load.mean / _KILO for load in loads], width=0.8, color=TEXT, label="mean while awake")
    axes.plot(at, [load.peak / _KILO for load in hashed], color=OTHER, marker="o", ms=4, lw=1.2,
              label="peak by a hash, busiest first")  # fmt: skip
    axes.step(np.append(at - 0.5, len(at) - 0.5), [load.stripe.rate / _KILO for load in [*loads, loads[-1]]],
              where="post", color=BAD, lw=1.4, ls="--", label="rate")  # fmt: skip
    axes.set_xlim(-0.6, len(loads) - 0.4)
    axes.set_ylim(bottom=0, top=1.3 * axes.get_ylim()[1])
    if len(loads) <= _NAMED:
        axes.set_xticks(at, [load.stripe.name for load in loads], rotation=35, ha="right", rotation_mode="anchor")
    else:
        axes.set_xlabel("stripes, the busiest first")
    axes.grid(visible=False, axis="x")
    axes.legend(frameon=False, labelcolor=TEXT, ncols=2, loc="upper right")


def _fullest(axes: Axes, plan: StripePlan, own: Judgement, history: History) -> None:
    """The stripe of most symbols through the history, token period by token period."""
    load = max(_shown(own), key=lambda each: (each.symbols, each.peak))
    mine = np.repeat(plan.stripes_of(history.names), np.diff(history.begins)) == load.stripe.number
    name = load.stripe.name
    plot_frame(axes, f"{name}, with most symbols ({load.symbols:,}), hour by hour",
               "hours, silences left out", "kb/s in a token period, without headers")  # fmt: skip
    per_second = 8 / (plan.token_period_ns / SECOND) / _KILO
    hours = np.arange(history.length // SLICES + 1) * plan.token_period_ns / SECOND / _HOUR
    highest = load.stripe.rate / _KILO
    for sums, colour, label in (
        (history.everything, GREY, "with announcements, which may wait"),
        (history.prices, ACCENT, "what may not wait"),
    ):
        rates = per_second * np.bincount(history.slices[mine] // SLICES, sums[mine], len(hours))
        some = rates > 0
        axes.vlines(hours[some], 0, rates[some], color=colour, lw=0.6, label=label, rasterized=True)
        highest = max(highest, float(rates.max()))
    axes.axhline(load.stripe.rate / _KILO, color=BAD, lw=1.4, ls="--", label="rate")
    axes.set_xlim(0, float(hours[-1]))
    axes.set_ylim(bottom=0, top=1.35 * highest)
    axes.legend(frameon=False, labelcolor=TEXT, loc="upper right")


def _kin(axes: Axes, plan: StripePlan, history: History) -> None:
    """The busiest symbols, stripe by stripe: how alike any two are."""
    busiest = np.sort(np.argsort(-history.totals, kind="stable")[:_SYMBOLS_MAX])
    numbers = plan.stripes_of(history.names[busiest])
    order = np.argsort(numbers, kind="stable")
    symbols, numbers = busiest[order], numbers[order]
    kinship = Kinship(history)
    matrix = np.stack([kinship.to(np.array([symbol]), symbols) for symbol in symbols.tolist()])
    np.fill_diagonal(matrix, np.nan)
    high = float(np.nanquantile(matrix, 0.99)) if len(symbols) > 1 else 1.0
    plot_frame(axes, f"Who moves with whom: {counted(len(symbols), 'symbol')}, by stripe", "", "")
    axes.grid(visible=False)
    picture = axes.imshow(matrix, cmap=heat(), vmin=0.0, vmax=max(high, 0.1), interpolation="nearest", aspect="auto")
    cuts = np.flatnonzero(np.diff(numbers.astype(np.int64))) + 1
    begins, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(symbols)]))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        axes.plot([begin - 0.5, end - 0.5, end - 0.5, begin - 0.5, begin - 0.5],
                  [begin - 0.5, begin - 0.5, end - 0.5, end - 0.5, begin - 0.5], color="white", lw=1.1)  # fmt: skip
    wide = [place for place in range(len(begins)) if ends[place] - begins[place] >= len(symbols) / 24]
    middles = [(begins[place] + ends[place] - 1) / 2 for place in wide]
    names = [plan.by_number[int(numbers[begins[place]])].name for place in wide]
    axes.set_xticks([])
    axes.set_yticks(middles, names)
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101 (these axes were made in one)
    bar = figure.colorbar(picture, ax=axes, fraction=0.04, pad=0.015, extend="both")
    bar.set_label("correlation of activity, less the market's")
    bar.outline.set_visible(False)


def _listeners(axes: Axes, against: HashComparison) -> None:
    """How many stripes a listener joins, with this plan and by a hash."""
    from matplotlib.ticker import MaxNLocator

    rows: list[tuple[str, float, float]] = [
        (f"all of {row.sector}", row.stripes, row.hashed_stripes)
        for row in sorted(against.sectors, key=lambda row: (-row.symbols, row.sector))[:12]
    ]
    if against.planned.kin_stripes:
        rows = [
            ("ten that move together", against.planned.kin_stripes, against.hashed.kin_stripes),
            ("any ten", against.planned.any_stripes, against.hashed.any_stripes),
            *rows,
        ]
    plot_frame(axes, "Stripes that a listener joins, fewer is better", "stripes", "")
    axes.grid(visible=False, axis="y")
    if not rows:
        axes.text(0.5, 0.5, "fewer than ten symbols: nothing to compare", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    at = np.arange(len(rows))[::-1]
    planned, hashed = [row[1] for row in rows], [row[2] for row in rows]
    axes.barh(at + 0.19, planned, height=0.36, color=ACCENT, label="this plan")
    axes.barh(at - 0.19, hashed, height=0.36, color=OTHER, label="by a hash")
    for place, values in zip(at.tolist(), zip(planned, hashed, strict=True), strict=True):
        for value, up in zip(values, (0.19, -0.19), strict=True):
            axes.text(value, place + up, f" {value:.3g}", va="center", fontsize=8)
    axes.set_yticks(at, [row[0] for row in rows])
    axes.set_xlim(right=1.12 * max(*planned, *hashed))
    axes.set_ylim(-0.6, len(rows) + 0.2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_color(GRID)
    axes.legend(frameon=False, labelcolor=TEXT, loc="upper right", ncols=2)
