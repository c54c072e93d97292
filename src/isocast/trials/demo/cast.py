"""Who takes part in the show, at which place of loopback, on what times; and what happens in it, in words.

Five primary receivers round the world, none farther from another than 65 ms of fibre; δ_N leaves 15 ms for jitter and
for processes that wait for their turn. A busy machine runs a timer some milliseconds late; P allows fifty. With three
requests that makes a token every 0.72 s and a release 1.1 s after it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.terms.errors import TransportError
from isocast.terms.market import Grade
from isocast.trials.demo.trading import FLOOR_CODE, FLOOR_TABLE, GATEWAYS, SYMBOLS

__all__ = [
    "JITTER_MS",
    "DemoNetwork",
    "LogNote",
    "Tone",
    "actors",
    "kind_of",
    "market_text",
    "own_place",
    "process_count",
    "table",
]


# A place of its own for each market on loopback: addresses and groups that no other market of this machine uses.
#
# The place is 127.a.b.0/24 for nodes and 239.a.b.0/24 for groups, chosen by the number of our process. Whoever uses one
# holds a port of its last address; that is how others see it.


CLAIM_PORT = 7_654
"""Bound on the last address of a place while it is in use."""
_USED_PORT = 7_780
"""Where the nodes of a market that was started by hand answer."""
_FIRST, _LAST = 16, 254
"""127.1 to 127.4 are what a market file takes by itself."""
_TRIES = 32
_NODES = 32


@dataclass(frozen=True, slots=True)
class DemoNetwork:
    """127.a.b.0/24 and 239.a.b.0/24."""

    first: int
    second: int

    def address(self, number: int) -> str:
        """Of a node."""
        return f"127.{self.first}.{self.second}.{number}"

    def group(self, number: int) -> str:
        """For multicast."""
        return f"239.{self.first}.{self.second}.{number}"


@contextmanager
def own_place(number: int | None = None) -> Iterator[DemoNetwork]:
    """The place of our process, or the next that is free, until the block ends."""
    number = os.getpid() if number is None else number
    for attempt in range(_TRIES):
        spread = number + attempt * 257
        place = DemoNetwork(_FIRST + (spread >> 8) % (_LAST - _FIRST), spread & 255)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind((place.address(254), CLAIM_PORT))
            except OSError:
                continue
            if _has_nodes(place):
                continue
            yield place
            return
    raise TransportError(
        f"no free addresses for a market on loopback: {_TRIES} places from 127.{_FIRST}.0.0/16 on are in use"
        f" (a process holds UDP port {CLAIM_PORT} of their last address, or nodes answer at TCP port {_USED_PORT});"
        " end other demos and markets, or try again"
    )


def _has_nodes(place: DemoNetwork) -> bool:
    """Whether a market without a claim is running there."""
    for number in range(1, _NODES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((place.address(number), _USED_PORT))
            continue
        return True
    return False


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

_DESKS: dict[str, dict[str, object]] = {gateway.source: {"city": gateway.city} for gateway in GATEWAYS}
_GATEWAY_SEATS: dict[str, dict[str, object]] = {
    gateway.name: {"city": gateway.city, "lines": list(gateway.lines), **_COMPLETE, "start": False}
    for gateway in GATEWAYS
}
_TRADING_CAST = (
    ("Gateways publish the orders of their traders here.", NodeRole.PRIMARY_SOURCE, _DESKS),
    ("As these the gateways hear the sequence; they are processes of their own.", NodeRole.CUSTOMER, _GATEWAY_SEATS),
)


def actors(market: Market, *roles: NodeRole) -> tuple[NodePlan, ...]:
    """Who is started, of these roles or of all; other places are kept for visitors."""
    return tuple([plan for plan in market.nodes if plan.start and (not roles or plan.role in roles)])


def process_count(market: Market) -> int:
    """Nodes, and the gateways of a floor."""
    return len(actors(market)) + (len(GATEWAYS) if market.floors else 0)


def market_text(place: DemoNetwork, *, loss: float, seed: int, traders: bool = False) -> str:
    """The file of the show's market, with a floor and gateways or without."""
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
        *_nodes(place, (*_CAST, *(_TRADING_CAST if traders else ()))),
        *(_floor() if traders else ()),
    ]
    return "\n".join(parts)


def _floor() -> Iterable[str]:
    comment = "A floor without an exchange in the middle: every primary receiver runs it (§7.3)."
    yield table(f"floor.{FLOOR_CODE}", comment, {**FLOOR_TABLE, "sources": list(_SOURCES)})
    for symbol in SYMBOLS:
        yield table(f"[floor.{FLOOR_CODE}.symbols]", "", symbol)


def _nodes(
    place: DemoNetwork, cast: Iterable[tuple[str, NodeRole, Mapping[str, Mapping[str, object]]]]
) -> Iterable[str]:
    """Numbers are written down, since they are what others remember a node by."""
    numbers: dict[str, int] = {}
    address = 0
    for text, role, members in cast:
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


# What happens in a show, in words.


class Tone(Enum):
    """What a line of the log is about."""

    TOKEN = auto()
    REPAIR = auto()
    TROUBLE = auto()
    RING = auto()


@dataclass(frozen=True, slots=True)
class LogNote:
    """One line of the log."""

    at: int
    """Nanoseconds since the show began."""
    tone: Tone
    text: str
