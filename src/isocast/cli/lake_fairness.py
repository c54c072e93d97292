"""`isocast lake fairness`: who released when, who came in first, who lost what, and which times would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.render import line, note, show_json, show_table, working

if TYPE_CHECKING:
    from isocast.lake.fairness import FairnessReport, FairnessSettings
    from isocast.runtime.market import Market

__all__ = ["fairness"]

_EXAMPLES = """Examples:

    isocast lake fairness --config market.toml

    isocast lake fairness --config market.toml --fraction 0.9999 --pictures pictures --report fairness.html

    isocast lake fairness --journals data --json

Exit code: 0 the report is made, 1 with --strict something is beyond 2ε without a fault, 2 bad input.
"""

fairness = App(name="fairness", help_epilogue=_EXAMPLES)


@fairness.default
def _fairness(  # noqa: PLR0913 - where, what to hold it against, and what to write
    *,
    journals: Path | None = None,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    fraction: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.999,
    worst: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 10,
    pictures: Path | None = None,
    report: Path | None = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    master: str | None = None,
) -> int:
    """Show release skew against the clocks' bound, entry fairness, faults, losses by place, delays, and better times.

    Parameters
    ----------
    journals
        A market's data directory: journals, and beside them what nodes measured.
    config
        The market's file: its data directory, places, P, and the present times to hold the recommended ones against.
    fraction
        Of tokens that should be heard within δ_N.
    worst
        Rows of the tables of worst messages and tokens.
    pictures
        Draw the distributions into this directory, as SVG and PNG.
    report
        Write the report to this file, .html or .md; its pictures are drawn beside it.
    strict
        Exit with 1 if a message without a fault is beyond 2ε.
    json
        Print one JSON object instead of tables.
    master
        Spark's master: local[2], spark://HOST:7077; every core of this machine if it is left out.
    """
    from isocast.cli.lake_parts import insist_on_spark
    from isocast.terms.errors import ConfigurationError

    market = None
    if config is not None:
        from isocast.runtime.market_file import load_market

        market = load_market(config)
    where = journals or (None if market is None else market.data_directory)
    if where is None:
        raise ConfigurationError("command line", "--journals", "is missing: a data directory, or --config FILE")
    if not where.is_dir():
        raise ConfigurationError(str(where), "--journals", "no such folder")
    insist_on_spark()
    drawing = pictures or (None if report is None else report.parent)
    found = _found(where, _settings(market, fraction, worst, curves=drawing is not None), master, quiet=json)
    drawn = {} if drawing is None else _draw(found, drawing)
    if report is not None:
        from isocast.lake.report import write_page
        from isocast.lake.report_fairness import fairness_page

        write_page(fairness_page(found, f"Fairness of {where}", drawn), report)
        note(f"Written: {report}")
    if json:
        show_json(found.as_json())
    else:
        _show(found)
    return 1 if strict and found.exceeding else 0


def _settings(market: Market | None, fraction: float, worst: int, *, curves: bool) -> FairnessSettings:
    from isocast.lake.fairness import FairnessSettings

    if market is None:
        return FairnessSettings(fraction=fraction, worst=worst, curves=curves)
    return FairnessSettings(
        fraction=fraction,
        late_after_ns=market.timing.process_ns,
        within_ns=market.timing.token_period_ns,
        worst=worst,
        names={plan.node: plan.name for plan in market.receivers},
        places={
            plan.number: plan.place.name for plan in market.nodes if plan.role.is_source and plan.place is not None
        },
        timing=market.timing,
        curves=curves,
    )


def _found(where: Path, settings: FairnessSettings, master: str | None, *, quiet: bool) -> FairnessReport:
    from isocast.cli.lake_parts import lake_session

    with lake_session("isocast fairness", master) as spark, working("Reading journals", quiet=quiet):
        import pyarrow as pa

        from isocast.lake.fairness import fairness as fairness_of
        from isocast.lake.measurement_lines import measurement_files, read_measurements
        from isocast.lake.schemas import RELEASED_SCHEMA, ddl_of
        from isocast.lake.transforms.skew import MESSAGE_COLUMNS

        columns = ddl_of(pa.schema([RELEASED_SCHEMA.field(name) for name in MESSAGE_COLUMNS]))
        released = spark.read.format("isocast").schema(columns).option("receiver", "all").load(str(where))
        if not measurement_files(where):
            note("isocast: no measurements are here: losses and delays are left out (measurements.keep_bytes)")
            return fairness_of(released, None, settings)
        lines, unread = read_measurements(spark, where)
        return fairness_of(released, lines, settings, unread)


def _draw(found: FairnessReport, directory: Path) -> dict[str, Path]:
    from isocast.lake.pictures import draw_delays, draw_skew

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
