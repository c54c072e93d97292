"""The plan behind `isocast plan coverage`: files in, tables, JSON and maps out."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from isocast.cli.coverage_options import CoverageOptions
from isocast.cli.coverage_png import coverage_png
from isocast.cli.coverage_svg import coverage_svg
from isocast.cli.render import figure, line, note, show_json, show_table, working
from isocast.reformation.scopes.adjustment import adjust
from isocast.reformation.scopes.bounds import KM_PER_MILE
from isocast.reformation.scopes.plan import Change, Plan, Scope, What, changes
from isocast.reformation.scopes.planning import plan_scopes
from isocast.reformation.scopes.world import World
from isocast.studies.coverage.report import Report, change_counts, report
from isocast.studies.coverage.world_file import load_world
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, from_seconds, to_seconds
from isocast.terms.suggestion import suggestion

__all__ = ["CoverageRun", "run_coverage", "show", "write_files"]

_PLAN_BYTES_MAX = 256 << 20
"""Bounds: a plan of a million receivers."""
_SHORT_ROWS = 20
"""Customers without lines that a table names; JSON names all."""


@dataclass(frozen=True, eq=False)
class CoverageRun:
    """A plan, judged, and what it changed."""

    title: str
    seed: int
    report: Report
    before: Plan | None
    now_ns: int

    @property
    def changed(self) -> tuple[Change, ...]:
        """What is not as it was; empty for a plan from nothing."""
        if self.before is None:
            return ()
        same = (What.KEPT, What.SILENT)
        return tuple([change for change in changes(self.before, self.report.plan) if change.what not in same])


def run_coverage(world_file: Path | None, options: CoverageOptions) -> CoverageRun:
    """Read, plan or adjust, and judge."""
    file, quiet = options.file(world_file), options.json
    now = time.time_ns() if options.now is None else from_seconds(options.now)
    with working("Reading the world", quiet=quiet):
        loaded = load_world(file)
        before = None if options.from_ is None else _load_plan(options.from_)
    world = _without(loaded.world, options.without)
    count = f"{len(world.receivers):,} receivers and {len(world.customers):,} customers"
    with working(f"Planning for {count}", quiet=quiet):
        plan = plan_scopes(world, now) if before is None else adjust(before, world, now)
    with working("Judging the plan", quiet=quiet):
        judged = report(world, plan)
    return CoverageRun(loaded.title, loaded.seed, judged, before, now)


def _load_plan(path: Path) -> Plan:
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(file, "file", f"cannot be read: {error.strerror}") from error
    if len(data) > _PLAN_BYTES_MAX:
        raise ConfigurationError(file, "file", f"is longer than {_PLAN_BYTES_MAX:,} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(file, "file", f"not valid JSON: {error}") from error
    return Plan.from_json(value["plan"] if isinstance(value, dict) and "plan" in value else value, file)


def _without(world: World, names: tuple[str, ...]) -> World:
    for name in names:
        if name not in world.receivers.names:
            rule = f'the world has no receiver "{name}"{suggestion(name, world.receivers.names[:1000])}'
            raise ConfigurationError("command line", "--without", rule)
    if len(set(names)) == len(world.receivers):
        raise ConfigurationError("command line", "--without", "somebody must be left")
    return world.without(names) if names else world


# ---- out


def write_files(run: CoverageRun, options: CoverageOptions) -> None:
    """The plan and its maps, where they were asked for."""
    out, svg, png = options.out, options.svg, options.png
    if out is not None:
        out.write_text(json.dumps(run.report.plan.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if svg is not None:
        svg.write_text(coverage_svg(run.report, run.title, options.width), encoding="utf-8")
    if png is not None:
        png.write_bytes(coverage_png(run.report, options.width))
    for path in (out, svg, png):
        if path is not None:
            note(f"Written: {path}")


def show(run: CoverageRun, options: CoverageOptions) -> None:
    """Tables for people, or one JSON object."""
    rows = options.rows
    if options.json:
        show_json(_json(run, customers=options.customers))
        return
    if run.title:
        line(run.title)
        line()
    if run.before is not None:
        _show_changes(run, rows)
    _show_scopes(run.report, rows)
    _show_customers(run.report)
    if options.customers:
        _show_lines(run.report, rows)
    _show_bounds(run.report)
    _show_summary(run)


def _json(run: CoverageRun, *, customers: bool) -> dict[str, object]:
    judged = run.report
    value: dict[str, object] = {
        "title": run.title,
        "seed": run.seed,
        "now_ns": run.now_ns,
        "summary": judged.as_json(),
        "scopes": [
            {
                "receiver": scope.receiver,
                "radius_km": scope.radius_km,
                "ttl": _ttl(judged, scope),
                "customers": count,
                "group": None if scope.address is None else str(judged.plan.group(scope.address)),
            }
            for scope, count in zip(judged.plan.scopes, judged.coverage.customers_of.tolist(), strict=True)
        ],
        "plan": judged.plan.to_json(),
    }
    if run.before is not None:
        value["changes"] = change_counts(run.before, judged.plan)
        value["changed"] = [
            {"receiver": change.receiver, "what": change.what.value, "before": _side(run.before, change.before),
             "after": _side(judged.plan, change.after)}
            for change in run.changed
        ]  # fmt: skip
    if customers:
        value["lines"] = _lines_by_customer(judged)
    return value


def _side(plan: Plan, scope: Scope | None) -> dict[str, object] | None:
    if scope is None or scope.address is None:
        return None
    return {"radius_km": scope.radius_km, "group": str(plan.group(scope.address))}


def _lines_by_customer(judged: Report) -> dict[str, list[str]]:
    """The receivers that each customer hears."""
    heard: dict[str, list[str]] = {name: [] for name in judged.world.customers.names}
    names, receivers = judged.world.customers.names, judged.world.receivers.names
    for receiver, customer in zip(judged.coverage.receiver.tolist(), judged.coverage.customer.tolist(), strict=True):
        heard[names[customer]].append(receivers[receiver])
    return heard


def _ttl(judged: Report, scope: Scope) -> int:
    return judged.world.paths.hops(scope.radius_km) if scope.address is not None else 0


def _show_changes(run: CoverageRun, rows: int) -> None:
    assert run.before is not None  # noqa: S101  # the caller asked
    counts = {what: count for what, count in change_counts(run.before, run.report.plan).items() if count}
    changed = run.changed
    table = [
        (change.receiver, change.what.value, _told(run.before, change.before), _told(run.report.plan, change.after))
        for change in changed[:rows]
    ]
    show_table(_title("Changes", len(table), len(changed)), ("receiver", "", "before", "after"), table)
    line(figure(counts))
    line()


def _told(plan: Plan, scope: Scope | None) -> str:
    if scope is None or scope.address is None:
        return "–"
    return f"{scope.radius_km:,.1f} km on {plan.group(scope.address)}"


def _title(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what}, {shown:,} of {total:,} (--rows shows more, --json all)"


def _show_scopes(judged: Report, rows: int) -> None:
    scopes, counts = judged.plan.scopes, judged.coverage.customers_of.tolist()
    widest = sorted(range(len(scopes)), key=lambda place: (-scopes[place].radius_km, place))[:rows]
    chosen = range(len(scopes)) if len(scopes) <= rows else widest
    paths = judged.world.paths
    table = []
    for place in chosen:
        scope = scopes[place]
        if scope.address is None:
            table.append((scope.receiver, "silent", "", "", "", ""))
            continue
        radius, delay = f"{scope.radius_km:,.1f} km", f"{paths.delay_ns(scope.radius_km) / MILLISECOND:.2f} ms"
        group = str(judged.plan.group(scope.address))
        table.append((scope.receiver, radius, delay, figure(_ttl(judged, scope)), figure(counts[place]), group))
    title = _title("Scopes" if len(scopes) <= rows else "The widest scopes", len(table), len(scopes))
    show_table(title, ("receiver", "radius", "delay", "TTL", "customers", "group"), table)


def _show_customers(judged: Report) -> None:
    table = [(figure(lines), figure(count)) for lines, count in judged.coverage.by_lines().items()]
    show_table("Customers by the sources they hear", ("sources", "customers"), table)
    short = judged.coverage.short
    if short:
        rows = [(entry.customer, figure(entry.lines), entry.reason) for entry in short[:_SHORT_ROWS]]
        title = _title(f"Customers with fewer than {judged.plan.lines} sources", len(rows), len(short))
        show_table(title, ("customer", "sources", "the nearest that cannot serve"), rows)


def _show_lines(judged: Report, rows: int) -> None:
    heard = list(_lines_by_customer(judged).items())
    table = [(name, ", ".join(receivers) or "–") for name, receivers in heard[:rows]]
    show_table(_title("Who hears whom", len(table), len(heard)), ("customer", "sources"), table)


def _show_bounds(judged: Report) -> None:
    bounds = judged.bounds
    if bounds is None:
        return
    grid = [
        ("nearest source, hexagonal grid", bounds.radius_km(1)),
        ("nearest source, square grid", bounds.square_radius_km),
        (f"{bounds.lines} sources, hexagonal grid", bounds.radius_km(bounds.lines)),
        (f"{bounds.lines} sources, hexagonal grid of {bounds.lines} at each place", bounds.grouped_radius_km),
    ]
    title = f"How far the farthest customer would be, {bounds.receivers:,} receivers on {bounds.area_km2:,.0f} km²"
    show_table(title, ("", "km", "miles"), [(what, f"{km:.1f}", f"{km / KM_PER_MILE:.1f}") for what, km in grid])
    rows = [
        (part.figure, f"{part.bound:.4g}", f"{part.achieved:.4g}", f"{part.ratio:.3f}") for part in judged.comparisons()
    ]
    show_table("Against the hexagonal grid", ("", "grid", "plan", "ratio"), rows)


def _show_summary(run: CoverageRun) -> None:
    judged, plan = run.report, run.report.plan
    silent = sum([scope.address is None for scope in plan.scopes])
    line(
        f"{len(plan.scopes):,} receivers, {silent:,} of them silent in reserve; {judged.overlapping:,} pairs of scopes "
        f"overlap, {judged.clashes:,} of them on one address; {plan.addresses:,} addresses, at least "
        f"{judged.clique:,} for these scopes."
    )
    if plan.draining:
        last = max([rest.free_at_ns for rest in plan.draining])
        rests = f"{len(plan.draining):,} address{'es rest' if len(plan.draining) > 1 else ' rests'} where it was"
        line(f"{rests} heard; the last is free in {to_seconds(last - run.now_ns):g} s.")
    short = len(judged.coverage.short)
    total = len(judged.world.customers)
    line(
        f"Every one of {total:,} customers hears at least {plan.lines}."
        if not short
        else f"{short:,} of {total:,} customers hear fewer than {plan.lines}."
    )
