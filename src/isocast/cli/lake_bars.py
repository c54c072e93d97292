"""`isocast lake bars`: bars of any interval, from the tape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from isocast.cli.lake_tables import chosen_calendar, insist_on_spark, lake_session
from isocast.cli.options import Flag
from isocast.cli.render import line, note, show_json, show_table, working
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["bars"]

_PRICES = ("open", "high", "low", "close", "vwap")
_FORMATS = (".parquet", ".csv")

_EXAMPLES = """Examples:

    isocast lake bars --lake lake --interval 5m --symbols AAA,AAB

Days of New York's session, as one Parquet file:

    isocast lake bars --lake lake --interval 1d --zone America/New_York --session 09:30-16:00 --out days.parquet

    isocast lake bars --lake lake --interval 1h --rows 1000 --json
"""


bars = App(name="bars", help_epilogue=_EXAMPLES)


@bars.default
def _bars(  # noqa: PLR0913 - options of a command
    *,
    lake: Path,
    interval: str = "1m",
    symbols: str | None = None,
    zone: str = "",
    session: str = "",
    days: str = "",
    calendar: str = "",
    by_floor: Flag = False,
    out: Path | None = None,
    rows: int = 40,
    master: str | None = None,
    json: Flag = False,
) -> int:
    """Make bars of any interval: open, high, low, close, volume, trades, VWAP.

    Parameters
    ----------
    lake
        The directory of the tables.
    interval
        Length of a bar: 500ms, 1s, 1m, 5m, 1h, 1d, 1w from Monday, 1mo.
    symbols
        Only these, with commas between them.
    zone
        By whose clock bars begin; UTC if left out.
    session
        Hours of trading there, such as 09:30-16:00; the last moment belongs to them.
    days
        Days of trading there, such as mon-fri or sun-thu; all of them if left out.
    calendar
        An exchange instead of all three, with its holidays and half days: XNYS, XLON, XTKS.
    by_floor
        Of each floor for itself.
    out
        Write all of them to this file, .parquet or .csv; prices in ticks of 10^-4.
    rows
        Rows that are shown at most.
    master
        Spark's master; all cores of this machine if left out.
    json
        Print JSON instead of a table; prices in ticks of 10^-4.
    """
    if out is not None and out.suffix not in _FORMATS:
        raise ConfigurationError("command line", "--out", f"{out} is neither .parquet nor .csv")
    if rows < 1:
        raise ConfigurationError("command line", "--rows", "must be at least 1")
    insist_on_spark()
    if not lake.is_dir():  # Before Spark starts, which takes seconds.
        raise ConfigurationError(str(lake), "--lake", "no such folder: `isocast lake run` makes a lake")
    with lake_session("isocast lake bars", master) as spark:
        from pyspark.sql.functions import col

        from isocast.lake.tables import Lake
        from isocast.lake.transforms import bars as making
        from isocast.lake.transforms.bars import read_interval

        opened = Lake.open(lake)
        length, hours = read_interval(interval), chosen_calendar(calendar, zone, session, days)
        tape = opened.tape.read(spark)
        if tape is None:
            raise ConfigurationError(
                str(lake), "silver/tape", "is empty: nothing was traded, or `lake run` has not run"
            )
        if symbols is not None:
            tape = tape.where(col("symbol").isin([name.strip() for name in symbols.split(",")]))
        made = making.bars(tape, length, hours, by_floor=by_floor)
        with working(f"bars of {interval}", quiet=json):
            if out is not None:
                _write(made, out, quiet=json)
            else:
                _show(made, rows, by_floor=by_floor, json=json)
            _note_left_out(tape)
    return 0


def _note_left_out(tape: DataFrame) -> None:
    """One line: trades that sale conditions keep out of prices, or of everything."""
    from isocast.lake.transforms.bars import left_out

    reasons = left_out(tape).groupBy("reason").sum("trades").orderBy("reason").collect()
    if reasons:
        told = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        note(f"Trades that do not count in every figure, by sale condition: {told}.")


def _write(made: DataFrame, out: Path, *, quiet: bool) -> None:
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    table = made.orderBy("symbol", "start_ns").toArrow()
    try:
        pq.write_table(table, out) if out.suffix == ".parquet" else pc.write_csv(table, out)
    except OSError as error:
        raise ConfigurationError("command line", "--out", f"cannot write {out}: {error.strerror or error}") from None
    if not quiet:
        note(f"{counted(len(table), 'bar')} in {out}")


def _show(made: DataFrame, count: int, *, by_floor: bool, json: bool) -> None:
    ordered = made.orderBy("start_ns", "symbol", *(["floor"] if by_floor else []))
    found = [row.asDict() for row in ordered.limit(count + 1).collect()]
    if json:
        show_json([{name: _as_json(value) for name, value in row.items()} for row in found[:count]])
        return
    names = ["symbol", *(["floor"] if by_floor else []), "start", "open", "high", "low", "close", "volume", "trades"]
    table = [[_cell(name, row) for name in [*names, "vwap"]] for row in found[:count]]
    show_table("Bars", [*names, "vwap"], table)
    if len(found) > count:
        line(f"… and more: --rows {count * 10}, or --out bars.parquet")


def _as_json(value: Any) -> Any:  # noqa: ANN401 - what JSON takes
    from decimal import Decimal

    return str(value) if isinstance(value, Decimal) else value


def _cell(name: str, row: dict[str, Any]) -> str:
    from datetime import UTC, datetime, timedelta
    from decimal import Decimal

    from isocast.terms.instruments import scale_of

    if name == "start":
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["start_ns"] // 1_000)
        return moment.isoformat().replace("+00:00", "Z")
    value = row[name]
    if name in _PRICES and value is not None:
        decimals = scale_of(row["symbol"]).price
        return f"{Decimal(value).scaleb(-decimals):.{decimals}f}"
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
