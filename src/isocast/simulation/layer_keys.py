"""The keys of a scenario file that speak of secondary receivers (§4.1)."""

from __future__ import annotations

from isocast.simulation.key import Key, Kind
from isocast.wire.limits import MAX_RING

__all__ = ["LAYERS_MAX", "LAYER_KEYS"]

LAYERS_MAX = 3
"""Bounds: two suffice for ten thousand receivers (§4.1)."""
_STALL_MAX = 100_000
"""Bounds: a day of tokens at one a second."""

_N, _S = Kind.COUNT, Kind.SECONDS

LAYER_KEYS: tuple[Key, ...] = (
    Key(
        "secondaries",
        "R_S",
        _N,
        "0",
        "Secondary receivers below each receiver that is not in the lowest layer. They are numbered after the primary"
        " ones: first the children of site 1, then those of site 2, and so on.",
        "§4.1",
        maximum=MAX_RING,
    ),
    Key(
        "layers",
        "",
        _N,
        "2 with `secondaries`",
        "Layers of receivers, the primary ring included: 2 or 3.",
        "§4.1",
        minimum=2,
        maximum=LAYERS_MAX,
    ),
    Key(
        "secondary_delay",
        "",
        _S,
        "0.005",
        "Delay between a secondary receiver and its parent; to everybody else it is the parent's and this.",
        "§4.1",
    ),
    Key(
        "secondary_detect",
        "δ_S",
        _S,
        "δ_N",
        "How much later than a primary receiver a secondary one takes a token for lost.",
        "§4.1",
    ),
    Key(
        "secondary_retry",
        "τ_{r,S}",
        _S,
        "2δ_S+X+P",
        "Between two requests of a secondary receiver to its parent. At least the default.",
        "§4.1",
        minimum=1,
    ),
    Key(
        "stall_tokens",
        "G",
        _N,
        "64",
        "Tokens after which a secondary receiver whose secondary token is overdue no longer holds memory up.",
        "§4.1",
        minimum=1,
        maximum=_STALL_MAX,
    ),
)
"""In the order of the reference page."""
