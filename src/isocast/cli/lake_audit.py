"""`isocast lake audit`: whether all receivers hold the same sequence, whole, and nothing was early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from isocast.cli.options import Flag, MarketFile, Rosters
from isocast.cli.render import line, note, show_json, show_table, working

if TYPE_CHECKING:
    from isocast.lake.audit import RunWork
    from isocast.lake.audit_terms import AuditReport

__all__ = ["audit"]

_SHOWN = 40

_EXAMPLES = """Examples:

    isocast lake audit --journals data

    isocast lake audit --config market.toml --report audit.html

    isocast lake audit --journals data --live --plain --json

    isocast lake audit --journals data --roster keys/roster.bin

Exit code: 0 clean, 1 something is wrong, could not be read or could not be judged, 2 bad input.
"""

audit = App(name="audit", help_epilogue=_EXAMPLES)


@audit.default
def _audit(  # noqa: PLR0913  one argument for each option
    *,
    journals: Path | None = None,
    config: MarketFile = None,
    live: Flag = False,
    block: int = 4_096,
    roster: Rosters = (),
    report: Path | None = None,
    json: Flag = False,
    plain: Flag = False,
    master: str | None = None,
) -> int:
    """Compare the journals of all receivers: same sequence, no gap, no duplicate, nothing forged, nothing early.

    Every byte is read. The first difference is named by stripe, sequence, event, field, receivers, file and byte.

    Parameters
    ----------
    journals
        A folder with the journals of one market, one below it for each node: a market's data directory.
    config
        The market's file: its data directory is audited, releases are held to its Δ_A and not to that which journals
        record, and receivers without a journal are named.
    live
        The market runs: journals that end at different messages, or within a block, are no findings.
    block
        Messages that share a digest.
    roster
        Prove by this roster that a majority of the sites signed what their journals hold (S17), and each source what is
        in its name (S21). Repeat it where they were signed under several.
    report
        Write the report to this file, .html or .md.
    json
        Print one JSON object instead of tables.
    plain
        Read in this process, without Spark.
    master
        Spark's master: local[2], spark://HOST:7077; every core of this machine if it is left out.
    """
    from isocast.lake import audit as audits
    from isocast.lake.audit_proof import plan_proofs
    from isocast.lake.audit_terms import Verdict
    from isocast.lake.audit_walk import find_journals
    from isocast.lake.report import audit_page, write_page

    where, delay_ns, expected = _place(journals, config)
    plan_proofs(find_journals(where), roster)  # Before Spark takes its seconds to start.
    with _runner(master, plain=plain) as run, working("Reading journals", quiet=json):
        found = audits.audit(
            where,
            run,
            block_messages=block,
            release_delay_ns=delay_ns,
            live=live,
            expected=expected,
            rosters=roster,
        )
    if report is not None:
        write_page(audit_page(found), report)
        note(f"Written: {report}")
    if json:
        show_json(found.as_json())
    else:
        _show(found)
    return 0 if found.verdict is Verdict.CLEAN else 1


def _place(journals: Path | None, config: Path | None) -> tuple[Path, int | None, tuple[tuple[int, int, str], ...]]:
    """What to audit, Δ_A where it is known, and the receivers that keep a journal."""
    from isocast.runtime.market.finding import known_market
    from isocast.terms.errors import ConfigurationError

    config = known_market(config) if journals is None else config
    if config is not None:
        from isocast.runtime.market.file import load_market

        market = load_market(config)
        started = [plan for plan in market.receivers if plan.start]
        keepers = tuple((stripe, plan.node, plan.name) for plan in started for stripe in plan.stripes)
        return journals or market.data_directory, market.timing.release_delay_ns, keepers
    if journals is None:
        raise ConfigurationError("command line", "--journals", "is missing: a folder of journals, or --config FILE")
    return journals, None, ()


@contextmanager
def _runner(master: str | None, *, plain: bool) -> Iterator[RunWork]:
    from isocast.lake.audit import run_here

    if plain:
        yield run_here
        return
    from isocast.cli.lake_tables import lake_session

    with lake_session("isocast audit", master) as spark:
        from isocast.lake.audit import run_on

        yield run_on(spark)


def _show(found: AuditReport) -> None:
    from isocast.lake.report import (
        FINDING_HEADERS,
        JOURNAL_HEADERS,
        UNJUDGED_HEADERS,
        finding_rows,
        journal_rows,
        unjudged_rows,
    )

    show_table("Journals", JOURNAL_HEADERS, journal_rows(found))
    if found.findings:
        show_table("Findings", FINDING_HEADERS, finding_rows(found, _SHOWN))
    if len(found.findings) > _SHOWN:
        line(f"… and {len(found.findings) - _SHOWN:,} more: --report FILE.html or --json has them.")
    if found.unjudged:
        show_table("Not judged", UNJUDGED_HEADERS, unjudged_rows(found))
    for code in dict.fromkeys(told.code for told in found.notes):
        notes = [told for told in found.notes if told.code == code]
        least, most = min(told.count for told in notes), max(told.count for told in notes)
        count = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        line(f"Note: at {len(notes)} of {len(found.covers)} journals, {count} {notes[0].text}.")
    line(found.sentence)
