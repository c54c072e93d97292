"""The run behind `isocast plan world`: a planet's file in, tables, JSON and pictures out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from isocast.cli.render import Progress, line, note, show_json, show_table, working
from isocast.cli.sheet import check_pictures
from isocast.cli.world_options import WorldOptions
from isocast.studies.planet.page_figures import page_figures
from isocast.studies.planet.report import Beside, PlanetReport, report
from isocast.studies.planet.study import run_planet
from isocast.studies.planet.tallies import Column
from isocast.studies.planet.world_file import load_planet, with_counts

__all__ = ["WorldRun", "run_world", "show_world", "write_pictures"]

_PAGE_TOKENS = 4_000


@dataclass(frozen=True, eq=False)
class WorldRun:
    """A judged run, and the design's own figures if they were asked for."""

    report: PlanetReport
    page: tuple[Beside, ...]

    @property
    def sound(self) -> bool:
        """Whether every figure is what its formula says."""
        return not self.report.disagreeing and all(row.agrees is not False for row in self.page)


def run_world(file: Path | None, options: WorldOptions) -> WorldRun:
    """Read, run and judge."""
    path, how = options.file(file), options.spreading
    check_pictures(options.svg, options.png)
    world = with_counts(
        load_planet(path),
        receivers=options.receivers,
        customers=options.customers,
        tokens=options.tokens,
        seed=options.seed,
    )
    with ExitStack() as stack:

        def stage(what: str, parts: int) -> Callable[[int], None]:
            stack.pop_all().close()
            if parts == 1:
                stack.enter_context(working("Placing receivers and customers", quiet=options.json))
                return lambda _: None
            return stack.enter_context(Progress(f"parts of the {what}", parts, quiet=options.json)).reach

        run = run_planet(world, how, stage)
    with working("The design's figures", quiet=options.json):
        page = page_figures(world.seed, how, _PAGE_TOKENS) if options.figures else []
    return WorldRun(report(run), tuple(page))


def write_pictures(run: WorldRun, options: WorldOptions) -> None:
    """Maps and plots, where they were asked for."""
    for path in (options.svg, options.png):
        if path is not None:
            from isocast.cli.world_picture import world_picture

            path.write_bytes(world_picture(run.report, "svg" if path is options.svg else "png", options.width))
            note(f"Written: {path}")


def show_world(run: WorldRun, options: WorldOptions) -> None:
    """Tables for people, or one JSON object."""
    judged = run.report
    if options.json:
        value = judged.as_json()
        if run.page:
            value["page"] = [{"figure": row.figure, "of": row.formula, "expected": row.expected, "got": row.got,
                              "agrees": row.agrees} for row in run.page]  # fmt: skip
        show_json(value)
        return
    world, edge = judged.run.world, judged.run.edge
    if world.title:
        line(world.title)
        line()
    _show_rows("The receivers, beside the formulas", judged.core)
    sets = world.core.reduction_sets
    reduction = [
        (name, f"{plain:.4g}", "–" if less is None else f"{less:.4g}") for name, plain, less in judged.reduction
    ]
    show_table(f"NACK reduction on the ring (§5.2), k_p = {sets}", ("", "all at once", "in sets"), reduction)
    _show_rows("Coverage", judged.coverage)
    _show_rows("The customers, beside the formulas", judged.edge)
    delays = [(share, f"{delay:.1f}") for share, delay in judged.delays_ms.items()]
    show_table("Delivery after the common instant", ("share", "ms"), delays)
    loads = [(name, *[f"{load[key]:,.4g}" for key in ("mean", "p99", "max")]) for name, load in judged.loads.items()]
    show_table("Load", ("", "mean", "99th percentile", "most"), loads)
    if run.page:
        _show_rows("The design's figures, by the same arrays", run.page)
    line(
        f"{world.receivers.count:,} receivers, {len(judged.run.ground.ring):,} of them on the ring; "
        f"{edge.total(Column.CUSTOMERS):,} customers; {judged.run.core.tokens:,} tokens, {world.edge.messages} "
        f"messages followed to every customer; seed {world.seed}."
    )
    if not run.sound:
        rows = [*judged.disagreeing, *[row for row in run.page if row.agrees is False]]
        line(f"NOT as the formulas say: {', '.join([row.figure for row in rows])}.")


def _show_rows(title: str, rows: Sequence[Beside]) -> None:
    table = [
        (
            row.figure,
            row.formula,
            "–" if row.expected is None else f"{row.expected:.4g}",
            "–" if row.got is None else f"{row.got:.4g}",
            "" if row.agrees is None else ("yes" if row.agrees else "NO"),
        )
        for row in rows
    ]
    show_table(title, ("", "formula", "expected", "here", "agrees"), table)
