"""The reference of the metrics from their one table: `python -m tools.metrics` writes the page."""

from __future__ import annotations

import sys
from pathlib import Path

from isocast.cli.key_page import markdown_table
from isocast.runtime.watch.metrics import METRICS, PREFIX

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
_HEAD = f"""# Metrics

Every process serves these at `/metrics`, in the text format of Prometheus, beside `/healthz`, `/readyz` and `/statusz`;
[Monitor a market](../how-to/monitor.md) shows how to use them. Names begin with `{PREFIX}`, times are in seconds and
sizes in bytes. Every series has the labels `node`, `role` and `stripe`. A metric that does not apply to a role, or is
not known yet, is absent there.

This page is made from the table in `isocast.runtime.watch.metrics`.
"""

_DETAIL = """## In detail

`/metrics/detail` has all of the above, and these, whose further labels take values from closed sets, or a bounded
number of values.
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
| `isocast_journal_prune_failures_total` | old journal segments stay, the disk fills: `isocast journal verify` |
"""


def page() -> str:
    """The whole page."""
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
            markdown_table(("metric", "type", "roles", "meaning"), everyday),
            _DETAIL,
            markdown_table(("metric", "further labels", "meaning"), detailed),
            _ZERO,
        ]
    )


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
