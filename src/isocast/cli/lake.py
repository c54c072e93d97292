"""`isocast lake`: journals into tables by Spark, in batches or as a stream, and what the tables answer."""

from __future__ import annotations

from cyclopts import App

__all__ = ["app"]

app = App(
    name="lake",
    help="Tables of everything that was released, by Spark: tape, quotes, bars, and what they say.",
    help_epilogue=(
        "Start with:\n\n    isocast lake run --journals data --lake lake\n\n"
        "    isocast lake bars --lake lake --interval 5m\n"
    ),
)
for _name, _place in {
    "run": "lake_tables:run",
    "stream": "lake_tables:stream",
    "bars": "lake_bars:bars",
    "audit": "lake_audit:audit",
    "fairness": "lake_fairness:fairness",
    "stripes": "lake_stripes:stripes",
    "prepare": "lake_prepare:prepare",
}.items():
    # By name: what an audit needs is not what a table needs.
    app.command(f"isocast.cli.{_place}", name=_name)
