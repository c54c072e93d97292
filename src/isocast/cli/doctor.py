"""`isocast doctor`: whether this machine can run a market, and what to change."""

from __future__ import annotations

from cyclopts import App

from isocast.cli.options import Flag, MarketFile
from isocast.cli.render import line, show_json, show_table
from isocast.terms.quantities import counted

__all__ = ["doctor"]

_EXAMPLES = """Examples:

    isocast doctor

    isocast doctor --config market.toml

    isocast doctor --config market.toml --json

Exit code: 0 nothing failed, 1 something did.
"""

_MARKS = {"ok": "✔ ok", "warn": "! warn", "fail": "✖ fail"}

doctor = App(name="doctor", help_epilogue=_EXAMPLES)


@doctor.default
def _doctor(
    *,
    config: MarketFile = None,
    json: Flag = False,
) -> int:
    """Check this machine: clock, multicast, buffers, timers, ports, disk, keys, and what the lab needs.

    Nothing is changed: some datagrams are sent on the market's interfaces, and ports are opened for a moment. Each
    check says what was found, and what to change unless all is well.

    Parameters
    ----------
    config
        The market's file: its nodes, ports, buffers, disk and keys are checked too. If left out, that of
        ISOCAST_MARKET, ./market.toml, or the only market that runs here; without any, the machine alone.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.finding import known_market
    from isocast.runtime.watch.doctor import CheckOutcome, Wants, examine, wants_of

    wants = Wants()
    config = known_market(config)
    if config is not None:
        from isocast.runtime.market.file import load_market

        wants = wants_of(load_market(config))
    findings = list(examine(wants))
    failed = [finding for finding in findings if finding.outcome is CheckOutcome.FAIL]
    if json:
        show_json(
            {
                "failed": len(failed),
                "checks": [
                    {"check": one.check, "outcome": one.outcome.value, "found": one.found, "change": one.change or None}
                    for one in findings
                ],
            }
        )
        return int(bool(failed))
    rows = [(_MARKS[finding.outcome.value], finding.check, finding.found) for finding in findings]
    show_table("This machine", ("", "check", "found"), rows)
    for finding in findings:
        if finding.change:
            line(f"{finding.check}: {finding.change}")
    warned = sum(finding.outcome is CheckOutcome.WARN for finding in findings)
    line(f"{counted(len(findings), 'check')}, {len(failed)} failed, {warned} with a warning.")
    return int(bool(failed))
