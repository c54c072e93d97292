"""Who takes part in the show, where, and on what times: a market file in words and numbers.

Five primary receivers round the world, none farther from another than 65 ms of fibre; δ_N leaves 15 ms for jitter and
for processes that wait for their turn. A busy machine runs a timer some milliseconds late; P allows fifty. With three
requests that makes a token every 0.72 s and a release 1.1 s after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from isocast.runtime.market.model import Grade, Market, NodePlan, NodeRole
from isocast.trials.demo.place import Place

__all__ = ["JITTER_MS", "actors", "kind_of", "market_text", "table"]

JITTER_MS = 1

_TIMING = {
    "profile": "world",
    "detect": "80ms",
    "process": "50ms",
    "retries_max": 3,
    "secondary_detect": "25ms",
}
_CLOCK = {"bound": "5ms", "source": "configured"}

_RECEIVERS: dict[str, dict[str, object]] = {
    "new-york": {"city": "New York"},
    "london": {"city": "London"},
    "mumbai": {"city": "Mumbai"},
    "hong-kong": {"city": "Hong Kong"},
    "tokyo": {"city": "Tokyo"},
}
_SECONDARIES: dict[str, dict[str, object]] = {
    "seoul": {"city": "Seoul", "parent": "tokyo", "backup": "hong-kong"},
    "singapore": {"city": "Singapore", "parent": "hong-kong", "backup": "mumbai"},
}
_SOURCES: dict[str, dict[str, object]] = {
    "new-york-floor": {"city": "New York"},
    "london-floor": {"city": "London"},
    "tokyo-floor": {"city": "Tokyo"},
}
_BROKERS: dict[str, dict[str, object]] = {
    "frankfurt-broker": {"city": "Frankfurt", "parent": "london-floor"},
}
_SERVERS: dict[str, dict[str, object]] = {
    "reformer-frankfurt": {"city": "Frankfurt"},
    "reformer-dubai": {"city": "Dubai"},
}
_ARCHIVES: dict[str, dict[str, object]] = {
    "archive": {"city": "London", "lines": ["london", "new-york"]},
}
_COMPLETE = {"retransmit": ["archive"], "grade": Grade.COMPLETE.value}
_CUSTOMERS: dict[str, dict[str, object]] = {
    "bank": {"city": "Chicago", "lines": ["new-york", "london"], **_COMPLETE},
    "fund": {"city": "Sydney", "lines": ["singapore", "tokyo"], **_COMPLETE},
    "ticker": {"city": "São Paulo", "lines": ["new-york"], "grade": Grade.LATEST.value},
}

_SEATS: dict[str, dict[str, object]] = {
    "visitor": {"city": "Paris", "lines": ["london", "new-york"], **_COMPLETE, "start": False},
}

_CAST = (
    ("The ring: five cities, with the delay of light in fibre between them.", NodeRole.PRIMARY_RECEIVER, _RECEIVERS),
    ("A second layer: as trusted, and released at the same instant.", NodeRole.SECONDARY_RECEIVER, _SECONDARIES),
    ("Floors publish here.", NodeRole.PRIMARY_SOURCE, _SOURCES),
    ("A floor that publishes through a primary source.", NodeRole.SECONDARY_SOURCE, _BROKERS),
    ("They form the ring, and form it again when it breaks.", NodeRole.REFORMATION_SERVER, _SERVERS),
    ("Keeps what was released, and repairs what customers missed.", NodeRole.RETRANSMIT_SERVER, _ARCHIVES),
    ("Everything in order by two lines, or by one line what is newest.", NodeRole.CUSTOMER, _CUSTOMERS),
    ("A place for `isocast listen`, or for a program of yours.", NodeRole.CUSTOMER, _SEATS),
)


def actors(market: Market, *roles: NodeRole) -> tuple[NodePlan, ...]:
    """Who is started, of these roles or of all; other places are kept for visitors."""
    return tuple([plan for plan in market.nodes if plan.start and (not roles or plan.role in roles)])


def market_text(place: Place, *, loss: float, seed: int) -> str:
    """The file of the show's market."""
    parts = [
        '# The market of `isocast demo`; `isocast config keys` explains every key.\n\nname = "demo"\n',
        '# A show ends with its machine: what kill -9 cannot take is enough here.\ndurability = "process"\n',
        table("timing", "", _TIMING),
        table("ring", "The order inside a token is a shuffle by a key that no site chooses.", {"order": "shuffle"}),
        table(
            "network",
            "A place of its own on loopback, so that several markets do not meet.",
            {"groups": place.group(0), "lines": place.group(16), "repairs": place.group(96)},
        ),
        table("clock", "One machine has one clock; this is the bound that is shown to be kept.", _CLOCK),
        table(
            "impairment",
            "What makes one machine a world.",
            {"enabled": True, "loss": loss, "jitter": f"{JITTER_MS}ms", "delay": "cities", "seed": seed},
        ),
        *_nodes(place),
    ]
    return "\n".join(parts)


def _nodes(place: Place) -> Iterable[str]:
    """Numbers are written down, since they are what others remember a node by."""
    numbers: dict[str, int] = {}
    address = 0
    for text, role, members in _CAST:
        comment = text
        for name, values in members.items():
            address += 1
            kind = kind_of(role)
            numbers[kind] = numbers.get(kind, 0) + 1
            own = {"role": role.value, "number": numbers[kind], "address": place.address(address)}
            yield table(f"nodes.{name}", comment, {**own, **values})
            comment = ""


def kind_of(role: NodeRole) -> str:
    """Whose numbers it shares: receivers', sources', reformation servers', or all others'."""
    if role.is_receiver:
        return "receiver"
    if role.is_source:
        return "source"
    return "server" if role is NodeRole.REFORMATION_SERVER else "other"


def table(name: str, comment: str, values: Mapping[str, object]) -> str:
    """A table of a market file, below its comment: texts, numbers, flags and lists look alike in JSON and TOML."""
    lines = [f"# {comment}"] if comment else []
    lines += [f"[{name}]", *[f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]]
    return "\n".join(lines) + "\n"
