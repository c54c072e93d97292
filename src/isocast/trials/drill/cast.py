"""The market of a drill: five sites, and two of everything else, so that each half of it could be a market.

A cut runs between the halves: whatever one node needs of another by TCP, a customer of its retransmit server, lies on
its own side of it. So deafening sockets for UDP is all that a partition takes, and nobody needs privilege.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import NodeRole
from isocast.terms.timing import PROFILES
from isocast.trials.demo.cast import DemoNetwork, kind_of, table

__all__ = ["HERE", "SITES", "THERE", "TIMINGS", "DrillSettings", "market_text"]

SITES = ("london", "frankfurt", "chicago", "tokyo", "sydney")
HERE = ("london", "frankfurt", "chicago", "xray", "nyse", "archive", "bank")
"""The half with three of the five sites."""
THERE = ("tokyo", "sydney", "yoke", "tse", "vault", "fund")

_OTHERS: tuple[tuple[str, NodeRole, dict[str, object]], ...] = (
    ("xray", NodeRole.REFORMATION_SERVER, {}),
    ("yoke", NodeRole.REFORMATION_SERVER, {}),
    ("nyse", NodeRole.PRIMARY_SOURCE, {}),
    ("tse", NodeRole.PRIMARY_SOURCE, {}),
    ("archive", NodeRole.RETRANSMIT_SERVER, {"lines": ["london", "frankfurt"]}),
    ("vault", NodeRole.RETRANSMIT_SERVER, {"lines": ["tokyo", "sydney"]}),
    ("bank", NodeRole.CUSTOMER, {"lines": ["london", "frankfurt"], "retransmit": ["archive"]}),
    ("fund", NodeRole.CUSTOMER, {"lines": ["tokyo", "sydney"], "retransmit": ["vault"]}),
)

TIMINGS: dict[str, dict[str, object]] = {
    "quick": {"profile": "lan", "detect": "20ms", "process": "40ms", "retries_max": 3},
    **{name: {"profile": name} for name in PROFILES},
}
"""By name; `quick` is for a machine with more processes than cores: a token every quarter of a second."""


@dataclass(frozen=True, slots=True)
class DrillSettings:
    """The options of a run of drills."""

    profile: str = "quick"
    policy: StartPolicy = StartPolicy.MAJORITY
    seconds: float | None = None
    """How long a fault stays that does not end by itself; None: as long as each drill says."""


def market_text(place: DemoNetwork, settings: DrillSettings, sites: Iterable[str] = SITES) -> str:
    """The market's file."""
    ring = {} if settings.policy is StartPolicy.MAJORITY else {"policy": settings.policy.value}
    parts = [
        '# The market of a drill; `isocast config keys` explains every key.\n\nname = "drill"\n',
        '# Drills kill processes, not machines.\ndurability = "process"\n',
        table("timing", "", TIMINGS[settings.profile]),
        table("ring", "", ring),
        table("network", "", {"groups": place.group(0), "lines": place.group(16), "repairs": place.group(96)}),
        table("clock", "One machine has one clock.", {"source": "configured", "realtime": False}),
        table("impairment", "Nothing is lost by chance; faults come by the operator's doors.", {"enabled": True}),
    ]
    numbers: dict[str, int] = {}
    cast = [*[(name, NodeRole.PRIMARY_RECEIVER, {}) for name in sites], *_OTHERS]
    for place_number, (name, role, values) in enumerate(cast, 1):
        kind = kind_of(role)
        numbers[kind] = numbers.get(kind, 0) + 1
        own = {"role": role.value, "number": numbers[kind], "address": place.address(place_number)}
        parts.append(table(f"nodes.{name}", "", {**own, **values}))
    return "\n".join(parts)
