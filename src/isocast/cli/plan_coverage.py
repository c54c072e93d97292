"""The plan behind `isocast plan coverage`: files in; tables, JSON and maps as SVG or PNG out."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from isocast.cli import sheet
from isocast.cli.plan import CoverageOptions
from isocast.cli.render import figure, line, note, show_json, show_table, working
from isocast.cli.shipped import shipped
from isocast.reformation.scopes.adjustment import adjust, plan_scopes
from isocast.reformation.scopes.plan import KM_PER_MILE, Plan, Scope, ScopeChange, What, changes
from isocast.reformation.scopes.world import CoverageWorld, Floats, Surface
from isocast.studies.coverage.land import LAKES, LAND, Corner, on_land
from isocast.studies.coverage.report import CoverageReport, change_counts, report
from isocast.studies.coverage.world_file import load_world
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, from_seconds, to_seconds
from isocast.terms.quantities import suggestion
from isocast.terms.topology import EARTH_RADIUS_KM

__all__ = ["Canvas", "CoverageRun", "canvas_for", "coverage_png", "coverage_svg", "run_coverage", "show", "write_files"]


# ---- Where a place is on the coverage map: the whole earth as degrees, or the plane as it is.


@dataclass(frozen=True, slots=True)
class Canvas:
    """Pixels, and the corner and scale that bring places to them."""

    surface: Surface
    width: int
    height: int
    west: float
    north: float
    per_unit: float
    """Pixels for a degree, or for a km."""

    def x(self, east: Floats) -> Floats:
        """Pixels from the left."""
        return (east - self.west) * self.per_unit

    def y(self, north: Floats) -> Floats:
        """Pixels from the top."""
        return (self.north - north) * self.per_unit

    def points(self, places: Floats) -> Floats:
        """Pixels of places: from the left, and from the top."""
        if self.surface is Surface.EARTH:
            return np.column_stack((self.x(places[:, 1]), self.y(places[:, 0])))
        return np.column_stack((self.x(places[:, 0]), self.y(places[:, 1])))


def canvas_for(world: CoverageWorld, width: int) -> Canvas:
    """The whole earth, or all places of a plane with some room around them."""
    if world.surface is Surface.EARTH:
        return Canvas(world.surface, width, width // 2, -180.0, 90.0, width / 360)
    places = np.vstack((world.receivers.where, world.customers.where))
    low, high = places.min(axis=0), places.max(axis=0)
    size = np.maximum(high - low, 1.0)
    room = 0.05 * float(size.max())
    per_unit = width / float(size[0] + 2 * room)
    height = max(min(round(float(size[1] + 2 * room) * per_unit), 8 * width), 1)
    return Canvas(world.surface, width, height, float(low[0]) - room, float(high[1]) + room, per_unit)


# ---- The coverage map as PNG: the same picture as the SVG, in pixels, written by hand.


_Pixels: TypeAlias = npt.NDArray[np.uint8]
_Span: TypeAlias = tuple[int, int, int]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def coverage_png(report: CoverageReport, width: int) -> bytes:
    """One picture, as the bytes of a file."""
    canvas = canvas_for(report.world, width)
    pixels = _ground(canvas)
    for scope in report.plan.scopes:
        if scope.address is not None:
            _fill(pixels, scope, canvas, sheet.of_address(scope.address))
    dot = max(round(width / 1000), 1)
    _marks(pixels, canvas.points(report.world.receivers.where), dot - 1, sheet.RECEIVER)
    wanting = np.flatnonzero(report.coverage.lines_of < report.plan.lines)
    _marks(pixels, canvas.points(report.world.customers.where[wanting]), dot, sheet.SHORT)
    return _png(pixels)


def _ground(canvas: Canvas) -> _Pixels:
    pixels = np.empty((canvas.height, canvas.width, 3), dtype=np.uint8)
    pixels[:] = sheet.SEA
    if canvas.surface is Surface.EARTH:
        north = canvas.north - (np.arange(canvas.height) + 0.5) / canvas.per_unit
        east = canvas.west + (np.arange(canvas.width) + 0.5) / canvas.per_unit
        places = np.column_stack((np.repeat(north, canvas.width), np.tile(east, canvas.height)))
        pixels[on_land(places).reshape(canvas.height, canvas.width)] = sheet.LAND
    return pixels


def _fill(pixels: _Pixels, scope: Scope, canvas: Canvas, colour: sheet.Colour) -> None:
    """A transparent disc with a solid rim."""
    tint = np.array(colour, dtype=np.float64)
    for row, first, last in _spans(scope, canvas):
        part = pixels[row, first:last]
        part[:] = part * (1 - sheet.SCOPE_OPACITY) + tint * sheet.SCOPE_OPACITY
    for row, first, last in _rim(scope, canvas):
        pixels[row, first:last] = colour


def _spans(scope: Scope, canvas: Canvas) -> Iterator[_Span]:
    """Row by row the pixels inside a scope: two spans where it crosses the date line."""
    for row, middle, half in _chords(scope, canvas):
        yield from _wrapped(row, middle - half, middle + half, canvas)


def _rim(scope: Scope, canvas: Canvas) -> Iterator[_Span]:
    """The ends of each row, as wide as the next row is narrower."""
    chords = list(_chords(scope, canvas))
    for place, (row, middle, half) in enumerate(chords):
        other = min([chords[near][2] for near in (place - 1, place + 1) if 0 <= near < len(chords)], default=0.0)
        inner = 0.0 if place in (0, len(chords) - 1) else min(other, half - 1)
        if half * 2 >= canvas.width:  # All round a pole: only the last row has a rim.
            continue
        yield from _wrapped(row, middle - half, middle - max(inner, 0.0), canvas)
        yield from _wrapped(row, middle + max(inner, 0.0), middle + half, canvas)


def _chords(scope: Scope, canvas: Canvas) -> Iterator[tuple[int, float, float]]:
    """For each row of a scope its middle and half its width, in pixels."""
    if canvas.surface is Surface.PLANE:
        x, y = scope.place
        away, reach = y, scope.radius_km
    else:
        y, x = scope.place
        away, reach = y, float(np.degrees(scope.radius_km / EARTH_RADIUS_KM))
    middle = float(canvas.x(np.array(x)))
    first = max(int(np.floor(canvas.y(np.array(away + reach)))), 0)
    last = min(int(np.ceil(canvas.y(np.array(away - reach)))), canvas.height)
    for row in range(first, last):
        north = canvas.north - (row + 0.5) / canvas.per_unit
        half = _half(north, y, scope.radius_km, canvas.surface)
        if half > 0:
            yield row, middle, half * canvas.per_unit


def _half(north: float, middle: float, radius: float, surface: Surface) -> float:
    """Half the width of a disc at this height, in the map's units; 0 outside."""
    if surface is Surface.PLANE:
        return float(np.sqrt(max(radius**2 - (north - middle) ** 2, 0.0)))
    here, centre = np.radians(north), np.radians(middle)
    flat = np.cos(here) * np.cos(centre)
    cosine = (np.cos(radius / EARTH_RADIUS_KM) - np.sin(here) * np.sin(centre)) / max(flat, 1e-12)
    return float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))


def _wrapped(row: int, west: float, east: float, canvas: Canvas) -> Iterator[_Span]:
    first, last = int(np.floor(west)), max(int(np.ceil(east)), int(np.floor(west)) + 1)
    if canvas.surface is Surface.PLANE:
        yield row, max(first, 0), max(min(last, canvas.width), 0)
        return
    if last - first >= canvas.width:
        yield row, 0, canvas.width
        return
    first, last = first % canvas.width, first % canvas.width + last - first
    yield row, first, min(last, canvas.width)
    if last > canvas.width:
        yield row, 0, last - canvas.width


def _marks(pixels: _Pixels, points: npt.NDArray[np.float64], size: int, colour: sheet.Colour) -> None:
    height, width = pixels.shape[:2]
    for x, y in np.floor(points).astype(np.int64).tolist():
        pixels[max(y - size, 0) : min(y + size + 1, height), max(x - size, 0) : min(x + size + 1, width)] = colour


def _png(pixels: _Pixels) -> bytes:
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # The first byte of a row: no filter.
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, red, green and blue
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join([_chunk(kind, data) for kind, data in chunks])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# ---- The coverage map as SVG: land, scopes coloured by address, receivers, and customers who hear too little.


_NAMES_MAX = 60
"""Receivers up to which each has its name beside it."""
_CORNERS, _CORNERS_OF_MANY, _MANY = 64, 20, 2_000
"""Of a circle; of many circles, so that the file stays small."""


def coverage_svg(report: CoverageReport, title: str, width: int) -> str:
    """One picture, whole in itself."""
    canvas = canvas_for(report.world, width)
    dot = max(width / 900, 0.6) if len(report.plan.scopes) > _MANY else max(width / 500, 1.2)
    size = f'viewBox="0 0 {canvas.width} {canvas.height}" width="{canvas.width}" height="{canvas.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<title>{_text(title or 'Coverage')}</title>",
        f'<rect width="100%" height="100%" fill="{sheet.colour_hex(sheet.SEA)}"/>',
        *_land(canvas),
        *_scopes(report, canvas, dot),
        *_receivers(report, canvas, dot),
        *_short(report, canvas, dot),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """What XML allows of it."""
    return escape("".join([letter if letter.isprintable() else "?" for letter in text]))


def _polygon(points: Floats) -> str:
    return " ".join([f"{x:.1f},{y:.1f}" for x, y in points.tolist()])


def _land(canvas: Canvas) -> list[str]:
    if canvas.surface is not Surface.EARTH:
        return []

    def outline(corners: tuple[Corner, ...]) -> str:
        return _polygon(canvas.points(np.array(corners)[:, ::-1]))

    land = f'<g fill="{sheet.colour_hex(sheet.LAND)}" stroke="{sheet.colour_hex(sheet.BORDER)}" stroke-width="0.5">'
    water = f'<g fill="{sheet.colour_hex(sheet.SEA)}" stroke="{sheet.colour_hex(sheet.BORDER)}" stroke-width="0.5">'
    return [
        land,
        *[f'<polygon points="{outline(corners)}"/>' for corners in LAND],
        "</g>",
        water,
        *[f'<polygon points="{outline(corners)}"/>' for corners in LAKES],
        "</g>",
    ]


def _scopes(report: CoverageReport, canvas: Canvas, dot: float) -> list[str]:
    by_address: dict[int, list[Scope]] = {}
    for scope in report.plan.scopes:
        if scope.address is not None:
            by_address.setdefault(scope.address, []).append(scope)
    corners = _CORNERS_OF_MANY if len(report.plan.scopes) > _MANY else _CORNERS
    lines = []
    for address, scopes in sorted(by_address.items()):
        colour = sheet.colour_hex(sheet.of_address(address))
        lines.append(
            f'<g fill="{colour}" fill-opacity="{sheet.SCOPE_OPACITY}" stroke="{colour}" '
            f'stroke-opacity="{sheet.LINE_OPACITY}" stroke-width="{dot / 3:.2f}">'
            f"<title>{report.plan.group(address)}</title>"
        )
        for scope in scopes:
            lines += [f'<polygon points="{_polygon(points)}"/>' for points in _circle(scope, canvas, corners)]
        lines.append("</g>")
    return lines


def _circle(scope: Scope, canvas: Canvas, corners: int) -> list[Floats]:
    """The rim in pixels: once, twice over the date line, or along the edge of the map around a pole."""
    turn = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    if canvas.surface is Surface.PLANE:
        x, y = scope.place
        rim = np.column_stack((x + scope.radius_km * np.cos(turn), y + scope.radius_km * np.sin(turn)))
        return [canvas.points(rim)]
    latitude, longitude = scope.place
    arc, middle = scope.radius_km / EARTH_RADIUS_KM, np.radians(latitude)
    sine = np.clip(np.sin(middle) * np.cos(arc) + np.cos(middle) * np.sin(arc) * np.cos(turn), -1, 1)
    east = np.arctan2(np.sin(turn) * np.sin(arc) * np.cos(middle), np.cos(arc) - np.sin(middle) * sine)
    north = np.degrees(np.arcsin(sine))
    away = np.degrees(arc)
    if abs(latitude) + away >= 90:  # noqa: PLR2004  # a pole is inside
        return [canvas.points(_cap(north, longitude + np.degrees(east), 90.0 if latitude > 0 else -90.0))]
    rim = np.column_stack((north, longitude + np.degrees(east)))
    shifts = [0.0, *([-360.0] if rim[:, 1].max() > 180 else []), *([360.0] if rim[:, 1].min() < -180 else [])]  # noqa: PLR2004
    return [canvas.points(rim + np.array([0.0, shift])) for shift in shifts]


def _cap(north: Floats, east: Floats, pole: float) -> Floats:
    """The rim from edge to edge of the map, closed along the pole."""
    around = (east + 180) % 360 - 180
    order = np.argsort(around)
    level = float(north[order[[0, -1]]].mean())
    ends = [(level, 180.0), (pole, 180.0), (pole, -180.0), (level, -180.0)]
    return np.vstack((np.column_stack((north[order], around[order])), np.array(ends)))


def _receivers(report: CoverageReport, canvas: Canvas, dot: float) -> list[str]:
    points = canvas.points(report.world.receivers.where)
    lines = [f'<g fill="{sheet.colour_hex(sheet.RECEIVER)}">']
    lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{dot:.2f}"/>' for x, y in points.tolist()]
    if len(points) <= _NAMES_MAX:
        size = max(canvas.width / 110, 8)
        lines += [
            f'<text x="{x + 2 * dot:.1f}" y="{y - dot:.1f}" font-family="sans-serif" font-size="{size:.0f}">'
            f"{_text(name)}</text>"
            for (x, y), name in zip(points.tolist(), report.world.receivers.names, strict=True)
        ]
    return [*lines, "</g>"]


def _short(report: CoverageReport, canvas: Canvas, dot: float) -> list[str]:
    """A cross for each customer who hears fewer than k sources."""
    wanting = np.flatnonzero(report.coverage.lines_of < report.plan.lines)
    points = canvas.points(report.world.customers.where[wanting])
    arm = 1.5 * dot
    path = "".join(
        [
            f"M{x - arm:.1f} {y - arm:.1f}l{2 * arm:.1f} {2 * arm:.1f}m0 {-2 * arm:.1f}l{-2 * arm:.1f} {2 * arm:.1f}"
            for x, y in points.tolist()
        ]
    )
    return (
        [f'<path d="{path}" stroke="{sheet.colour_hex(sheet.SHORT)}" stroke-width="{dot:.2f}" fill="none"/>']
        if path
        else []
    )


_PLAN_BYTES_MAX = 256 << 20
"""Bounds: a plan of a million receivers."""
_SHORT_ROWS = 20
"""Customers without lines that a table names; JSON names all."""


@dataclass(frozen=True, eq=False)
class CoverageRun:
    """A plan, judged, and what it changed."""

    title: str
    seed: int
    report: CoverageReport
    before: Plan | None
    now_ns: int

    @property
    def changed(self) -> tuple[ScopeChange, ...]:
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
        loaded = load_world(shipped(file))
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


def _without(world: CoverageWorld, names: tuple[str, ...]) -> CoverageWorld:
    for name in names:
        if name not in world.receivers.names:
            rule = f'the world has no receiver "{name}"{suggestion(name, world.receivers.names[:1000])}'
            raise ConfigurationError("command line", "--without", rule)
    if len(set(names)) == len(world.receivers):
        raise ConfigurationError("command line", "--without", "must leave at least one receiver")
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


def _lines_by_customer(judged: CoverageReport) -> dict[str, list[str]]:
    """The receivers that each customer hears."""
    heard: dict[str, list[str]] = {name: [] for name in judged.world.customers.names}
    names, receivers = judged.world.customers.names, judged.world.receivers.names
    for receiver, customer in zip(judged.coverage.receiver.tolist(), judged.coverage.customer.tolist(), strict=True):
        heard[names[customer]].append(receivers[receiver])
    return heard


def _ttl(judged: CoverageReport, scope: Scope) -> int:
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


def _show_scopes(judged: CoverageReport, rows: int) -> None:
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


def _show_customers(judged: CoverageReport) -> None:
    table = [(figure(lines), figure(count)) for lines, count in judged.coverage.by_lines().items()]
    show_table("Customers by the sources they hear", ("sources", "customers"), table)
    short = judged.coverage.short
    if short:
        rows = [(entry.customer, figure(entry.lines), entry.reason) for entry in short[:_SHORT_ROWS]]
        title = _title(f"Customers with fewer than {judged.plan.lines} sources", len(rows), len(short))
        show_table(title, ("customer", "sources", "the nearest that cannot serve"), rows)


def _show_lines(judged: CoverageReport, rows: int) -> None:
    heard = list(_lines_by_customer(judged).items())
    table = [(name, ", ".join(receivers) or "–") for name, receivers in heard[:rows]]
    show_table(_title("Who hears whom", len(table), len(heard)), ("customer", "sources"), table)


def _show_bounds(judged: CoverageReport) -> None:
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
