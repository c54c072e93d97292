"""Colours of the coverage map, the same in SVG and PNG."""

from __future__ import annotations

from colorsys import hsv_to_rgb
from typing import TypeAlias

__all__ = ["BORDER", "LAND", "LINE_OPACITY", "RECEIVER", "SCOPE_OPACITY", "SEA", "SHORT", "Colour", "of_address"]

Colour: TypeAlias = tuple[int, int, int]

SEA: Colour = (16, 22, 34)
LAND: Colour = (52, 60, 72)
BORDER: Colour = (84, 94, 108)
RECEIVER: Colour = (244, 246, 250)
SHORT: Colour = (255, 48, 48)
SCOPE_OPACITY = 0.28
LINE_OPACITY = 0.9

_FIRST: tuple[Colour, ...] = (
    (86, 180, 233), (230, 159, 0), (0, 178, 130), (240, 228, 66), (204, 121, 167), (213, 94, 0), (120, 130, 255),
    (160, 220, 120),
)  # fmt: skip
_TURN = 0.618034
"""Of the colour wheel: successive colours are far apart, however many there are."""


def of_address(address: int) -> Colour:
    """A colour for each address; the first few are told apart by colour-blind eyes too."""
    if address < len(_FIRST):
        return _FIRST[address]
    red, green, blue = hsv_to_rgb(address * _TURN % 1.0, 0.65, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)
