"""The coverage map as SVG: land, scopes coloured by address, receivers, and customers who hear too little."""

from __future__ import annotations

from xml.sax.saxutils import escape

import numpy as np

from isocast.cli import coverage_colours as colours
from isocast.cli.coverage_canvas import Canvas, canvas_for
from isocast.reformation.scopes.plan import Scope
from isocast.reformation.scopes.surface import Floats, Surface
from isocast.studies.coverage.land_outlines import LAKES, LAND, Corner
from isocast.studies.coverage.report import Report
from isocast.terms.topology import EARTH_RADIUS_KM

__all__ = ["coverage_svg"]

_NAMES_MAX = 60
"""Receivers up to which each has its name beside it."""
_CORNERS, _CORNERS_OF_MANY, _MANY = 64, 20, 2_000
"""Of a circle; of many circles, so that the file stays small."""


def coverage_svg(report: Report, title: str, width: int) -> str:
    """One picture, whole in itself."""
    canvas = canvas_for(report.world, width)
    dot = max(width / 900, 0.6) if len(report.plan.scopes) > _MANY else max(width / 500, 1.2)
    size = f'viewBox="0 0 {canvas.width} {canvas.height}" width="{canvas.width}" height="{canvas.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<title>{_text(title or 'Coverage')}</title>",
        f'<rect width="100%" height="100%" fill="{_hex(colours.SEA)}"/>',
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


def _hex(colour: colours.Colour) -> str:
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"


def _polygon(points: Floats) -> str:
    return " ".join([f"{x:.1f},{y:.1f}" for x, y in points.tolist()])


def _land(canvas: Canvas) -> list[str]:
    if canvas.surface is not Surface.EARTH:
        return []

    def outline(corners: tuple[Corner, ...]) -> str:
        return _polygon(canvas.points(np.array(corners)[:, ::-1]))

    land = f'<g fill="{_hex(colours.LAND)}" stroke="{_hex(colours.BORDER)}" stroke-width="0.5">'
    water = f'<g fill="{_hex(colours.SEA)}" stroke="{_hex(colours.BORDER)}" stroke-width="0.5">'
    return [
        land,
        *[f'<polygon points="{outline(corners)}"/>' for corners in LAND],
        "</g>",
        water,
        *[f'<polygon points="{outline(corners)}"/>' for corners in LAKES],
        "</g>",
    ]


def _scopes(report: Report, canvas: Canvas, dot: float) -> list[str]:
    by_address: dict[int, list[Scope]] = {}
    for scope in report.plan.scopes:
        if scope.address is not None:
            by_address.setdefault(scope.address, []).append(scope)
    corners = _CORNERS_OF_MANY if len(report.plan.scopes) > _MANY else _CORNERS
    lines = []
    for address, scopes in sorted(by_address.items()):
        colour = _hex(colours.of_address(address))
        lines.append(
            f'<g fill="{colour}" fill-opacity="{colours.SCOPE_OPACITY}" stroke="{colour}" '
            f'stroke-opacity="{colours.LINE_OPACITY}" stroke-width="{dot / 3:.2f}">'
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


def _receivers(report: Report, canvas: Canvas, dot: float) -> list[str]:
    points = canvas.points(report.world.receivers.where)
    lines = [f'<g fill="{_hex(colours.RECEIVER)}">']
    lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{dot:.2f}"/>' for x, y in points.tolist()]
    if len(points) <= _NAMES_MAX:
        size = max(canvas.width / 110, 8)
        lines += [
            f'<text x="{x + 2 * dot:.1f}" y="{y - dot:.1f}" font-family="sans-serif" font-size="{size:.0f}">'
            f"{_text(name)}</text>"
            for (x, y), name in zip(points.tolist(), report.world.receivers.names, strict=True)
        ]
    return [*lines, "</g>"]


def _short(report: Report, canvas: Canvas, dot: float) -> list[str]:
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
    return [f'<path d="{path}" stroke="{_hex(colours.SHORT)}" stroke-width="{dot:.2f}" fill="none"/>'] if path else []
