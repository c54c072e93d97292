"""`isocast lake stripes`: a history of rates by Spark, for `isocast plan stripes`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag, rate_of, token_period_of
from isocast.cli.render import line, note, show_json, show_table, working
from isocast.runtime.disk.scratch import scratch_directory
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from isocast.cli.plan import StripeOptions
    from isocast.cli.plan_stripes import StripeRun

__all__ = ["stripes"]

_EXAMPLES = """Examples:

    isocast lake stripes --journals data --rate 56k --out history.csv

    isocast plan stripes history.csv --rate 56k --out stripes.toml

Both in one, with the picture of the plan:

    isocast lake stripes --lake lake --rate 56k --plan stripes.toml --png stripes.png

    isocast lake stripes --lake lake --token-period 720ms --sectors sectors.csv --out history.parquet

The history is exact for the token period that it was made with: give `isocast plan stripes` the same.
"""

stripes = App(name="stripes", help_epilogue=_EXAMPLES)

_COLUMNS = ("stripe", "kind", "symbol", "flags", "event_ns")


@stripes.default
def _stripes(  # noqa: PLR0913 - where from, what for, and what to write
    *,
    journals: Path | None = None,
    lake: Path | None = None,
    rate: str = "56k",
    token_period: str = "1s",  # noqa: S107 - a time, not a secret
    sectors: Path | None = None,
    out: Path | None = None,
    plan: Path | None = None,
    svg: Path | None = None,
    png: Path | None = None,
    rows: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 20,
    json: Flag = False,
    master: str | None = None,
) -> int:
    """Add up how busy each symbol is in any token period, and which symbols are busy together.

    Parameters
    ----------
    journals
        A folder of journals: a market's data directory.
    lake
        A lake that `isocast lake run` made.
    rate
        Bit-rate of a narrow stripe: symbols that are busier alone are named.
    token_period
        Of the ring, such as 1s or 50ms.
    sectors
        A table of text with the columns symbol and sector.
    out
        Write the history to this file, .csv or .parquet; `isocast plan stripes` reads it.
    plan
        Also make the plan, as `isocast plan stripes` does without further options, and write it to this file.
    svg
        Draw the plan into this file.
    png
        Draw the plan into this file.
    rows
        Rows of a table at most.
    json
        Print one JSON object instead of tables.
    master
        Spark's master: local[2], spark://HOST:7077; every core of this machine if it is left out.
    """
    from isocast.cli.lake_tables import lake_session
    from isocast.cli.plan import StripeOptions
    from isocast.cli.plan_stripes import load_sectors
    from isocast.terms.errors import ConfigurationError

    if (journals is None) == (lake is None):
        raise ConfigurationError("command line", "--journals", "give either --journals DIR or --lake DIR")
    period_ns, bits = token_period_of(token_period), rate_of(rate)
    known = load_sectors(sectors)
    wanted = StripeOptions(
        rate=rate, sectors=sectors, token_period=token_period, out=plan, svg=svg, png=png, rows=rows, json=json
    )
    _check(journals, lake, out, wanted)
    with ExitStack() as stack:
        with lake_session("isocast stripes", master) as spark, working("Adding up", quiet=json):
            from isocast.lake.stripe_history import symbol_slices, write_history

            slices = symbol_slices(_events(spark, journals, lake), period_ns).cache()
            found = _found(slices, period_ns, bits, known, rows)
            history = out
            if history is None and _planned(wanted):
                history = stack.enter_context(scratch_directory("stripes")) / "history.parquet"
            if history is not None:
                aside = stack.enter_context(scratch_directory("history", history.parent))
                write_history(slices, history, aside)
            if out is not None:
                note(f"Written: {out}")
        run = _plan(history, wanted) if history is not None and _planned(wanted) else None
    if json:
        from isocast.cli.plan_stripes import stripes_as_json

        show_json({**found, "plan": None if run is None else stripes_as_json(run)})
        return 0
    _show(found, rate, token_period, out if run is None else None)
    if run is not None:
        from isocast.cli.plan_stripes import show_stripes

        line()
        show_stripes(run, wanted)
    return 0


def _planned(options: StripeOptions) -> bool:
    return any(path is not None for path in (options.out, options.svg, options.png))


def _check(journals: Path | None, lake: Path | None, out: Path | None, options: StripeOptions) -> None:
    """Before Spark starts, which takes a while: there is something to read, and what is to be written can be."""
    from isocast.cli.lake_tables import insist_on_spark
    from isocast.cli.plan_stripes import check_outputs
    from isocast.terms.errors import ConfigurationError

    check_outputs(options, "--plan")
    if out is not None and not out.parent.is_dir():
        raise ConfigurationError("command line", "--out", f"there is no directory {out.parent}")
    insist_on_spark()
    from isocast.lake.source.catalog import find_journals
    from isocast.lake.stripe_history import check_history_name
    from isocast.lake.tables import Lake

    if out is not None:
        check_history_name(out)
    if journals is not None:
        find_journals(str(journals))
    if lake is not None:
        Lake.open(lake)


def _plan(history: Path, options: StripeOptions) -> StripeRun:
    from isocast.cli.plan_stripes import run_stripes, write_pictures, write_plan

    run = run_stripes([history], options)
    write_plan(run, options)
    with working("Drawing", quiet=options.json):
        write_pictures(run, options)
    return run


def _events(spark: SparkSession, journals: Path | None, lake: Path | None) -> DataFrame:
    """Symbol, kind and time of every event, whichever receiver released it, once."""
    from isocast.lake.source.catalog import find_journals
    from isocast.lake.transforms.copies import without_copies
    from isocast.terms.errors import ConfigurationError

    if journals is not None:
        events = spark.read.format("isocast").option("columns", ",".join(_COLUMNS)).load(str(journals))
        return without_copies(events, min(journal.stripe for journal in find_journals(str(journals))))
    from isocast.lake.tables import Lake

    table = None if lake is None else Lake.open(lake).released
    released = None if table is None else table.read(spark)
    if released is None or table is None:
        raise ConfigurationError(str(lake), "--lake", "has no released messages yet: run `isocast lake run`")
    lowest = min(int(file.partition["stripe"]) for file in table.snapshot().files)
    return without_copies(released.select(*_COLUMNS), lowest)


def _found(slices: DataFrame, period_ns: int, bits: int, sectors: dict[str, str], rows: int) -> dict[str, Any]:
    from isocast.lake.stripe_history import co_movement, sector_loads, symbol_peaks
    from isocast.striping.rates import budget_bytes

    peaks = symbol_peaks(slices, period_ns).cache()
    seconds = period_ns / 10**9
    busiest = [
        {**row.asDict(), "peak_rate": 8 * row.peak_bytes / seconds, "mean_rate": 8 * row.bytes * 1e9 / row.span_ns}
        for row in peaks.limit(rows).collect()
    ]
    over = [row.symbol for row in peaks.where(peaks.peak_bytes > budget_bytes(bits, period_ns)).collect()]
    pairs = [row.asDict() for row in co_movement(slices, period_ns, 4 * rows).limit(rows).collect()]
    loads = [row.asDict() for row in sector_loads(slices, sectors, period_ns).collect()] if sectors else []
    totals = slices.agg({"count": "sum", "*": "count"}).collect()[0]
    return {
        "symbols": peaks.count(),
        "events": totals["sum(count)"] or 0,
        "rows": totals["count(1)"],
        "token_period_ns": period_ns,
        "rate": bits,
        "busiest": busiest,
        "alone_above_the_rate": over,
        "busy_together": pairs,
        "sectors": [{**row, "peak_rate": 8 * row["peak_bytes"] / seconds} for row in loads],
    }


def _show(found: dict[str, Any], rate: str, token_period: str, out: Path | None) -> None:
    from isocast.striping.rates import rate_text

    table = [
        (row["symbol"], f"{row['events']:,}", rate_text(row["mean_rate"]), rate_text(row["peak_rate"]))
        for row in found["busiest"]
    ]
    show_table("Busiest symbols in any token period", ("symbol", "events", "mean", "peak"), table)
    pairs = [(row["one"], row["two"], _share(row["correlation"])) for row in found["busy_together"]]
    if pairs:
        show_table("Busy together, beyond what the market does", ("symbol", "and", "correlation"), pairs)
    if found["sectors"]:
        loads = [(row["sector"], f"{row['symbols']:,}", rate_text(row["peak_rate"])) for row in found["sectors"]]
        show_table("Sectors", ("sector", "symbols", "peak"), loads)
    if found["alone_above_the_rate"]:
        line(f"Alone above {rate}: {', '.join(found['alone_above_the_rate'])}.")
    events, symbols = counted(found["events"], "event"), counted(found["symbols"], "symbol")
    line(f"{events} of {symbols} in {counted(found['rows'], 'row')}.")
    if out is not None:
        line(f"Plan with: isocast plan stripes {out} --rate {rate} --token-period {token_period} --out stripes.toml")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
