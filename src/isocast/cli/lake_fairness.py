"""`isocast lake fairness`: who released when, who came in first, who lost what, and which times would do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag, MarketFile, duration_of
from isocast.cli.render import line, note, show_json, show_table, working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from isocast.lake.fairness import FairnessReport, FairnessSettings
    from isocast.runtime.market.model import Market

__all__ = ["fairness"]

_EXAMPLES = """Examples:

    isocast lake fairness --config market.toml

    isocast lake fairness --config market.toml --fraction 0.9999 --pictures pictures --report fairness.html

    isocast lake fairness --journals data --json

    isocast lake fairness --lake lake --config market.toml

Exit code: 0 the report is made, 1 with --strict something is beyond 2ε without a fault, or nothing could be compared,
2 bad input.
"""

fairness = App(name="fairness", help_epilogue=_EXAMPLES)


@fairness.default
def _fairness(  # noqa: PLR0913 - where, what to hold it against, and what to write
    *,
    journals: Path | None = None,
    lake: Path | None = None,
    config: MarketFile = None,
    fraction: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.999,
    worst: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 10,
    together: str = "10ms",
    pictures: Path | None = None,
    report: Path | None = None,
    strict: Flag = False,
    json: Flag = False,
    master: str | None = None,
) -> int:
    """Show release skew against the clocks' bound, entry fairness, faults, losses by place, delays, and better times.

    Parameters
    ----------
    journals
        A market's data directory: journals, and beside them what nodes measured.
    lake
        Tables that `isocast lake run` made, instead of journals. They keep one receiver of each stripe: entry fairness,
        and how late that receiver was; skew between receivers needs their journals.
    config
        The market's file: its data directory, places, P, and the present times to hold the recommended ones against.
    fraction
        Of tokens that should be heard within δ_N.
    worst
        Rows of the tables of worst messages and tokens.
    together
        Orders of one id compete if they were decided within this time, by the clocks of those who sent them.
    pictures
        Draw the distributions into this directory, as SVG and PNG.
    report
        Write the report to this file, .html or .md; its pictures are drawn beside it.
    strict
        Exit with 1 if a message without a fault is beyond 2ε, or if no message was released by two receivers.
    json
        Print one JSON object instead of tables.
    master
        Spark's master: local[2], spark://HOST:7077; every core of this machine if it is left out.
    """
    from isocast.cli.lake_tables import insist_on_spark
    from isocast.runtime.market.finding import known_market

    market = None
    config = known_market(config) if journals is None and lake is None else config
    if config is not None:
        from isocast.runtime.market.file import load_market

        market = load_market(config)
    insist_on_spark()
    where = _place(journals, lake, market)
    drawing = pictures or (None if report is None else report.parent)
    settings = replace(
        _settings(market, fraction, worst, curves=drawing is not None), together_ns=duration_of(together, "--together")
    )
    found = _found(where, settings, master, quiet=json)
    drawn = {} if drawing is None else _draw(found, drawing)
    if report is not None:
        from isocast.lake.report import write_page
        from isocast.lake.report_fairness import fairness_page

        write_page(fairness_page(found, f"Fairness of {where.released}", drawn), report)
        note(f"Written: {report}")
    if json:
        show_json(found.as_json())
    else:
        _show(found)
    return 1 if strict and (found.exceeding or not found.messages) else 0


class _Where(NamedTuple):
    """Where releases and measurements are read."""

    released: Path
    is_lake: bool
    measured: Path | None


def _place(journals: Path | None, lake: Path | None, market: Market | None) -> _Where:
    """What was asked for, looked at before Spark takes its seconds to start."""
    from isocast.lake.source.catalog import find_journals
    from isocast.terms.errors import ConfigurationError

    own = None if market is None else market.data_directory
    if journals is not None and lake is not None:
        raise ConfigurationError("command line", "--journals", "give either --journals DIR or --lake DIR")
    if lake is not None:
        from isocast.lake.tables import Lake

        if not Lake.open(lake).released.snapshot().files:
            raise ConfigurationError(str(lake), "--lake", "has no released messages yet: run `isocast lake run`")
        return _Where(lake, is_lake=True, measured=own if own is not None and own.is_dir() else None)
    where = journals or own
    if where is None:
        rule = "is missing: a data directory, or --lake DIR, or --config FILE"
        raise ConfigurationError("command line", "--journals", rule)
    if not where.is_dir():
        raise ConfigurationError(str(where), "--journals", "no such folder")
    find_journals(str(where))
    return _Where(where, is_lake=False, measured=where)


def _settings(market: Market | None, fraction: float, worst: int, *, curves: bool) -> FairnessSettings:
    from isocast.lake.fairness import FairnessSettings
    from isocast.runtime.market.model import NodeRole

    if market is None:
        return FairnessSettings(fraction=fraction, worst=worst, curves=curves)
    return FairnessSettings(
        fraction=fraction,
        late_after_ns=market.timing.process_ns,
        within_ns=market.timing.token_period_ns,
        worst=worst,
        # A site has the same number in every stripe, and its releases of all stripes are told together.
        names={plan.node: plan.origin for plan in market.receivers},
        places={
            plan.number: plan.place.name for plan in market.nodes if plan.role.is_source and plan.place is not None
        },
        owners=len(market.by_role(NodeRole.PRIMARY_RECEIVER)),
        timing=market.timing,
        curves=curves,
    )


def _found(where: _Where, settings: FairnessSettings, master: str | None, *, quiet: bool) -> FairnessReport:
    from isocast.cli.lake_tables import lake_session

    with lake_session("isocast fairness", master) as spark, working("Reading releases", quiet=quiet):
        from isocast.lake.fairness import fairness as fairness_of
        from isocast.lake.fairness import measurement_files, read_measurements

        released = _released(spark, where)
        if where.measured is None or not measurement_files(where.measured):
            note("isocast: no measurements are here: losses and delays are left out (measurements.keep_bytes)")
            return fairness_of(released, None, settings)
        lines, unread = read_measurements(spark, where.measured)
        return fairness_of(released, lines, settings, unread)


def _released(spark: SparkSession, where: _Where) -> DataFrame:
    """Of all receivers whose journals are there; of a lake what its bronze table has."""
    from isocast.lake.transforms.entry import ORDER_COLUMNS
    from isocast.lake.transforms.skew import MESSAGE_COLUMNS

    columns = tuple(dict.fromkeys((*MESSAGE_COLUMNS, *ORDER_COLUMNS)))
    if not where.is_lake:
        reader = spark.read.format("isocast").options(columns=",".join(columns), receiver="all")
        return reader.load(str(where.released))
    from isocast.lake.tables import Lake
    from isocast.terms.errors import ConfigurationError

    released = Lake.open(where.released).released.read(spark)
    if released is None:
        raise ConfigurationError(str(where.released), "--lake", "has no released messages yet: run `isocast lake run`")
    return released.select(*columns)


def _draw(found: FairnessReport, directory: Path) -> dict[str, Path]:
    from isocast.lake.report import draw_delays, draw_skew

    directory.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Path] = {}
    for suffix in (".png", ".svg"):
        if found.skew_curves:
            drawn["skew"] = directory / f"skew{suffix}"
            draw_skew(found.skew_curves, max(row["bound_ns"] for row in found.sites), drawn["skew"])
        if found.delay_curves:
            drawn["delays"] = directory / f"delays{suffix}"
            draw_delays(found.delay_curves, found.advice, drawn["delays"])
    for path in drawn.values():
        note(f"Drawn: {path} (and .png)")
    return drawn


def _show(found: FairnessReport) -> None:
    from isocast.lake.report_fairness import fairness_tables

    for table in fairness_tables(found):
        if table.rows:
            show_table(table.title, table.headers, table.rows)
            if table.text:
                line(table.text)
                line()
    line(found.sentence)
