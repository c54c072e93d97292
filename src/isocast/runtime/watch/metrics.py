"""The metrics of a process: one registry that reads plain counters at the moment of a scrape.

`metric_table.METRICS` says which there are; `metrics_page()` is that table as docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from isocast.runtime.watch.counters import Channel, Histogram, NodeCounters, NodeGauges, gauges_from, packet_slot
from isocast.runtime.watch.metric_table import METRICS, PREFIX, Identity, Metric, MetricType, Reading, Value
from isocast.terms.instants import SECOND

__all__ = [
    "CONTENT_TYPE",
    "LABELS",
    "Channel",
    "Histogram",
    "Identity",
    "Metrics",
    "NodeCounters",
    "NodeGauges",
    "Reading",
    "gauges_from",
    "metrics_page",
    "packet_slot",
    "series_names",
    "totals_of",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABELS = ("node", "role", "stripe")
_ROWS_AT_ONCE = 8
"""Some 100 µs: no release waits longer for a scrape."""

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Mapping[MetricType, type[_Family]] = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.HISTOGRAM: HistogramMetricFamily,
}


class _TableCollector(Collector):
    """Some rows of the table, for every node of the process."""

    def __init__(self, rows: Sequence[Metric], read: Callable[[], Sequence[Reading]]) -> None:
        self._rows = rows
        self._read = read

    def describe(self) -> Iterable[_Family]:
        """Names alone: registering must not read a node that is not there yet."""
        return [_family(row) for row in self._rows]

    def collect(self) -> Iterator[_Family]:
        """Read every node once; a row that applies to none of them is left out."""
        readings = [
            ((who.name, who.role, str(who.stripe)), reading) for reading in self._read() for who in (reading.identity,)
        ]
        for row in self._rows:
            family = _family(row)
            for labels, reading in readings:
                if reading.identity.role in row.roles:
                    _add(family, labels, row.read(reading))
            if family.samples:
                yield family


def _family(row: Metric) -> _Family:
    return _FAMILIES[row.type](row.full_name, row.meaning, labels=(*LABELS, *row.split_by))


def _add(family: _Family, labels: tuple[str, ...], value: Value) -> None:
    match value:
        case None:
            return
        case Histogram() if isinstance(family, HistogramMetricFamily):
            bounds = [*(repr(bound_ns / SECOND) for bound_ns in value.bounds_ns), "+Inf"]
            family.add_metric(labels, list(zip(bounds, value.cumulative(), strict=True)), value.total_ns / SECOND)
        case Mapping():
            for more, part in value.items():
                family.add_metric((*labels, *more), part)  # type: ignore[arg-type, call-arg]
        case _:
            family.add_metric(labels, value)  # type: ignore[arg-type, call-arg]


class Metrics:
    """The one registry of a process, and its two pages."""

    def __init__(self, read: Callable[[], Sequence[Reading]]) -> None:
        """`read` gives every node of the process; it is called once for each collector or page."""
        self.registry = CollectorRegistry()
        self.registry.register(_TableCollector(METRICS, read))
        self._read = read

    def parts(self, *, detailed: bool) -> Iterator[bytes]:
        """/metrics, or /metrics/detail, piece by piece: between two of them others may run."""
        readings = self._read()
        rows = [row for row in METRICS if detailed or not row.detailed]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield generate_latest(_TableCollector(rows[start : start + _ROWS_AT_ONCE], lambda: readings))

    def page(self) -> bytes:
        """Few series: /metrics."""
        return b"".join(self.parts(detailed=False))

    def detailed_page(self) -> bytes:
        """All of them: /metrics/detail."""
        return b"".join(self.parts(detailed=True))


def totals_of(reading: Reading) -> dict[str, float]:
    """Every everyday counter by its name without the prefix, for /statusz."""
    totals: dict[str, float] = {}
    for row in METRICS:
        if row.type is MetricType.COUNTER and not row.detailed and reading.identity.role in row.roles:
            value = row.read(reading)
            if isinstance(value, (int, float)):
                totals[row.name] = value
    return totals


def series_names() -> frozenset[str]:
    """Every name that a query may use, those of histograms' parts included."""
    names: set[str] = set()
    for row in METRICS:
        parts = ("_bucket", "_sum", "_count") if row.type is MetricType.HISTOGRAM else ("",)
        names.update(row.full_name + part for part in parts)
    return frozenset(names)


# The reference page -------------------------------------------------------------------------------

_HEAD = f"""# Metrics

Every process serves these at `/metrics`, in the text format of Prometheus, beside `/healthz`, `/readyz` and `/statusz`;
[Monitor a market](../how-to/monitor.md) shows how to use them. Names begin with `{PREFIX}`, times are in seconds and
sizes in bytes. Every series has the labels `node`, `role` and `stripe`. A metric that does not apply to a role, or is
not known yet, is absent there.

This page is made from the table in `isocast.runtime.watch.metric_table`.
"""

_DETAIL = """## In detail

`/metrics/detail` has all of the above, and these, whose further labels take values from closed sets only.
"""

_ZERO = """## What must be zero

| metric | if it is not |
| --- | --- |
| `isocast_late_releases_total` | the machine is too slow or too loaded for its timing profile: `isocast doctor` |
| `isocast_early_releases_total` | a mistake of the program: report it with the log |
| `isocast_sequence_gaps` | a customer waits for a repair: look at its retransmit server |
| `isocast_ring_members_configured` - `isocast_ring_members` | a receiver is down or cut off: its row in `isocast top` |
| `isocast_kernel_drops_total` | receive buffers are too small: `isocast doctor` prints the line to change |
| `isocast_journal_alarms_total`, `isocast_store_alarms_total` | a disk is full or failing: releases stopped there |
"""


def metrics_page() -> str:
    """The whole of docs/reference/metrics.md."""
    everyday = [
        (f"`{row.full_name}`", row.type.value, row.roles_text, row.meaning) for row in METRICS if not row.detailed
    ]
    detailed = [
        (f"`{row.full_name}`", ", ".join(f"`{label}`" for label in row.split_by), row.meaning)
        for row in METRICS
        if row.detailed
    ]
    return "\n".join(
        [
            _HEAD,
            "## Every day\n",
            _table(("metric", "type", "roles", "meaning"), everyday),
            _DETAIL,
            _table(("metric", "further labels", "meaning"), detailed),
            _ZERO,
        ]
    )


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines)
