"""Runs drills one after the other: a place and a directory for their markets, progress, and the verdict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from isocast.cli.demo_run import COMMANDS, kept_directory
from isocast.cli.drill_view import bound_lines, outcome_lines, show_outcomes
from isocast.cli.render import line, note, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.suggestion import suggestion
from isocast.trials.demo.place import Place, own_place
from isocast.trials.demo.staging import new_nursery
from isocast.trials.drill.cast import DrillSettings
from isocast.trials.drill.drills import DRILLS, Drill
from isocast.trials.drill.report import Outcome
from isocast.trials.drill.run import run_drill

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["DrillOptions", "list_drills", "run_drills"]


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """What the command line says."""

    names: Sequence[str]
    settings: DrillSettings
    keep: Path | None = None
    as_json: bool = False


def list_drills(*, as_json: bool) -> int:
    """Their names, and what they do."""
    if as_json:
        show_json([{"drill": drill.name, "what": drill.what} for drill in DRILLS])
    else:
        show_table("", ("drill", "what it does"), [(drill.name, drill.what) for drill in DRILLS])
    return 0


def run_drills(options: DrillOptions) -> int:
    """All that were named; 1 if one did not pass."""
    drills = _chosen(options.names)
    with kept_directory(options.keep, "drill") as directory, own_place() as place:
        outcomes = shutdown.run(_run(drills, options, directory, place))
    if options.as_json:
        show_json([outcome.as_json() for outcome in outcomes])
    else:
        show_outcomes(outcomes)
        for text in bound_lines(outcomes, options.settings):
            line(text)
        if options.keep is not None:
            line(f"Every market is in {options.keep}: its file, its journals, its logs, and the ledger of its load.")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _chosen(names: Sequence[str]) -> list[Drill]:
    known = {drill.name: drill for drill in DRILLS}
    for name in names:
        if name not in known:
            hint = suggestion(name, known) or f"; there are {', '.join(known)}"
            raise ConfigurationError("command line", "NAME", f"there is no drill {name}{hint}")
    return [drill for drill in DRILLS if not names or drill.name in names]


async def _run(drills: Sequence[Drill], options: DrillOptions, directory: Path, place: Place) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with _Steps(options) as steps:
        async with new_nursery(COMMANDS) as nursery:
            for place_number, drill in enumerate(drills, 1):
                steps.begin(f"{place_number} of {len(drills)}: {drill.name}")
                where = directory / drill.name
                where.mkdir()
                outcome = await run_drill(drill, where, place, options.settings, nursery, steps.tell)
                outcomes.append(outcome)
                steps.end(drill, outcome)
    return outcomes


class _Steps:
    """What is going on: a spinner on a terminal, lines elsewhere; to programs nothing but the end is said."""

    def __init__(self, options: DrillOptions) -> None:
        self._quiet = options.as_json
        self._status: Status | None = None
        self._name = ""
        self._began = monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, name: str) -> None:
        """The next drill."""
        self._name, self._began = name, monotonic()
        if not self._quiet and self._status is None:
            note(name)

    def tell(self, step: str) -> None:
        """Where it is."""
        if self._status is not None:
            self._status.update(f"{self._name}, {monotonic() - self._began:.0f} s: {step}")

    def end(self, drill: Drill, outcome: Outcome) -> None:
        """What it showed, with its picture."""
        if self._quiet:
            return
        if self._status is not None:
            self._status.stop()
        for text in outcome_lines(drill, outcome):
            line(text)
        with suppress(OSError):
            sys.stdout.flush()
        if self._status is not None:
            self._status.start()
