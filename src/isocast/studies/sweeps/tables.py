"""The rows of a sweep as a table on disk: CSV, or Parquet where pyarrow is."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from isocast.studies.sweeps.running import SweepResult
from isocast.terms.errors import ConfigurationError

__all__ = ["check_table", "columns", "write_table"]

_KINDS = (".csv", ".parquet")


def check_table(path: Path) -> None:
    """ConfigurationError for a table that could not be written, before anything runs."""
    if path.suffix not in _KINDS:
        raise ConfigurationError("command line", "--out", f"must end in {' or '.join(_KINDS)}, not {path.name}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ConfigurationError("command line", "--out", "Parquet needs pyarrow: pip install 'isocast[arrow]'")
    if not path.parent.is_dir():
        raise ConfigurationError("command line", "--out", f"there is no directory {path.parent}")


def columns(result: SweepResult) -> dict[str, list[object]]:
    """Names and values: the keys that vary, then seed, status, reason and digest, then every figure."""
    rows = result.rows
    found: dict[str, list[object]] = {
        key: [row.point[place] for row in rows] for place, key in enumerate(result.sweep.vary)
    }
    found["seed"] = [row.seed for row in rows]
    found["status"] = [row.status.value for row in rows]
    found["reason"] = [row.reason for row in rows]
    found["trace_digest"] = [row.digest for row in rows]
    for name in result.figures:
        # "messages" may vary and be measured: what was asked for keeps the name.
        found[name if name not in found else f"{name}_measured"] = [row.figures.get(name) for row in rows]
    return found


def write_table(result: SweepResult, path: Path) -> None:
    """One row for each run."""
    table = columns(result)
    if path.suffix == ".parquet":
        _write_parquet(table, path)
        return
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    path.write_text(text.getvalue(), encoding="utf-8")


def _write_parquet(table: dict[str, list[object]], path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 (an extra)
    import pyarrow.parquet as pq  # noqa: PLC0415

    mixed = [name for name, values in table.items() if len({type(value) for value in values if value is not None}) > 1]
    # Values of one key may be 0 and 0.5: numbers become floats, anything else text.
    for name in mixed:
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in table[name])
        table[name] = [float(str(value)) if numbers else str(value) for value in table[name]]
    pq.write_table(pa.table(table), path)
