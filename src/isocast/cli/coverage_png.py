"""The coverage map as PNG: the same picture as the SVG, in pixels, written by hand."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.cli import coverage_colours as colours
from isocast.cli.coverage_canvas import Canvas, canvas_for
from isocast.reformation.scopes.plan import Scope
from isocast.reformation.scopes.surface import Surface
from isocast.studies.coverage.land import on_land
from isocast.studies.coverage.report import Report
from isocast.terms.topology import EARTH_RADIUS_KM

__all__ = ["coverage_png"]

_Pixels: TypeAlias = npt.NDArray[np.uint8]
_Span: TypeAlias = tuple[int, int, int]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def coverage_png(report: Report, width: int) -> bytes:
    """One picture, as the bytes of a file."""
    canvas = canvas_for(report.world, width)
    pixels = _ground(canvas)
    for scope in report.plan.scopes:
        if scope.address is not None:
            _fill(pixels, scope, canvas, colours.of_address(scope.address))
    dot = max(round(width / 1000), 1)
    _marks(pixels, canvas.points(report.world.receivers.where), dot - 1, colours.RECEIVER)
    wanting = np.flatnonzero(report.coverage.lines_of < report.plan.lines)
    _marks(pixels, canvas.points(report.world.customers.where[wanting]), dot, colours.SHORT)
    return _png(pixels)


def _ground(canvas: Canvas) -> _Pixels:
    pixels = np.empty((canvas.height, canvas.width, 3), dtype=np.uint8)
    pixels[:] = colours.SEA
    if canvas.surface is Surface.EARTH:
        north = canvas.north - (np.arange(canvas.height) + 0.5) / canvas.per_unit
        east = canvas.west + (np.arange(canvas.width) + 0.5) / canvas.per_unit
        places = np.column_stack((np.repeat(north, canvas.width), np.tile(east, canvas.height)))
        pixels[on_land(places).reshape(canvas.height, canvas.width)] = colours.LAND
    return pixels


def _fill(pixels: _Pixels, scope: Scope, canvas: Canvas, colour: colours.Colour) -> None:
    """A transparent disc with a solid rim."""
    tint = np.array(colour, dtype=np.float64)
    for row, first, last in _spans(scope, canvas):
        part = pixels[row, first:last]
        part[:] = part * (1 - colours.SCOPE_OPACITY) + tint * colours.SCOPE_OPACITY
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


def _marks(pixels: _Pixels, points: npt.NDArray[np.float64], size: int, colour: colours.Colour) -> None:
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
