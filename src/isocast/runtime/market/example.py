"""A market file to start from: every key with its explanation, and a small world that runs on one machine as it is."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from isocast.runtime.market.keys import GROUP_PORT, NARROW_PORT, SETTINGS
from isocast.runtime.market.model import Durability, NodeRole
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import Grade
from isocast.terms.quantities import duration_text, suggestion
from isocast.terms.timing import PROFILES, Timing
from isocast.terms.toml_files import Table
from isocast.terms.topology import CITIES, City, city, delay_ns

__all__ = ["EXAMPLE_CITIES", "example_text"]

EXAMPLE_CITIES = ("London", "New York", "Tokyo", "Singapore", "São Paulo")
_WIDTH = 116
_TIMES = (
    "detect",
    "transmit",
    "process",
    "retry",
    "token_period",
    "release_delay",
    "secondary_detect",
    "secondary_retry",
)
_SOURCES = 3
_SECONDARIES = 2
_FEWEST = 2
_MOST = len(CITIES) - _SECONDARIES

_HEAD = """\
# A market for isocast. Every process reads this one file:
#
#     isocast config check FILE              what follows from it
#     isocast keys init --config FILE        its keys, once
#     isocast up --config FILE               all of it on this machine
#     isocast node --config FILE --name NAME one process of it
#
# Without addresses all nodes are on loopback, each with an address of its own. To use several machines, give every node
# its address and port, and remove [impairment]. A key that starts with # has the value that it would have anyway.
"""


def example_text(
    cities: Sequence[str] = EXAMPLE_CITIES, *, name: str = "example", loss: float = 0.0, seed: int = 1, slot: int = 0
) -> str:
    """The file: a primary receiver in each city, and two layers, sources, servers and customers around them.

    `slot` is its own among the markets of the machine.
    """
    places = _places(cities)
    settings: dict[str, dict[str, object]] = {
        "": {"name": name, "durability": Durability.POWER.value},
        "timing": {"profile": _profile(places)},
        "ring": {"order": "shuffle"},
        "network": {"slot": slot},
        "impairment": {"enabled": True, "loss": loss, "delay": "cities", "seed": seed},
    }
    derived = {
        **_derived(PROFILES[_profile(places)].timing(len(places), layers=2)),
        "network.port": GROUP_PORT + slot,
        "edge.port": NARROW_PORT + slot,
    }
    parts = [_HEAD]
    parts += [_settings(table, settings.get(table.name, {}), derived) for table in SETTINGS]
    parts += _nodes(places)
    return "\n".join(parts)


def _places(names: Sequence[str]) -> list[City]:
    if not _FEWEST <= len(names) <= _MOST:
        rule = f"must be {_FEWEST} to {_MOST} cities, each with a primary receiver, not {len(names)}"
        raise ConfigurationError("command line", "--cities", rule)
    places: list[City] = []
    for name in names:
        place = city(name)
        if place is None:
            hint = suggestion(name, [known.name for known in CITIES] + [known.code for known in CITIES])
            raise ConfigurationError("command line", "--cities", f'unknown city "{name}"{hint}')
        if place in places:
            raise ConfigurationError("command line", "--cities", f"{place.name} is named twice")
        places.append(place)
    return places


def _profile(places: Iterable[City]) -> str:
    """The fastest profile for networks whose δ_N leaves the slowest packet half as much again for jitter."""
    places = list(places)
    slowest = max(delay_ns(a, b) for a in places for b in places)
    return "continent" if slowest * 3 // 2 <= PROFILES["continent"].detect_ns else "world"


# ---- settings


def _derived(timing: Timing) -> Mapping[str, object]:
    """What keys without a default come to, as the file would say it."""
    times = {name: duration_text(getattr(timing, f"{name}_ns")) for name in _TIMES}
    return {
        **times,
        "retries_max": timing.retries_max,
        "bound": duration_text(timing.clock_error_ns),
        "start_wait": duration_text(2 * timing.reformation_ns),
    }


def _settings(table: Table, given: Mapping[str, object], derived: Mapping[str, object]) -> str:
    lines = [f"[{table.name}]"] if table.name else []
    lines = [*_comment(table.explanation), *lines] if table.name else lines
    for key in table.keys:
        lines += ["", *_comment(key.explanation)] if lines else _comment(key.explanation)
        if key.name in given:
            lines.append(_entry(key.name, given[key.name]))
        elif key.default is not None:
            lines.append(f"#{_entry(key.name, key.default)}")
        else:
            value = derived.get(f"{table.name}.{key.name}", derived.get(key.name))
            lines.append(f"#{_entry(key.name, value)}  # {key.otherwise}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _WIDTH)]


def _entry(name: str, value: object) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


# ---- nodes


def _slug(place: City) -> str:
    plain = unicodedata.normalize("NFKD", place.name).encode("ascii", "ignore").decode()
    return plain.lower().replace(" ", "-")


def _node(name: str, role: NodeRole, number: int, place: City, **more: object) -> str:
    entries = {"role": role.value, "number": number, "city": place.name, **more}
    return "\n".join([f"[nodes.{name}]", *(_entry(key, value) for key, value in entries.items()), ""])


def _block(text: str, nodes: Sequence[str]) -> list[str]:
    return ["\n".join([*_comment(text), nodes[0]]), *nodes[1:]]


def _nodes(places: Sequence[City]) -> list[str]:
    """Who there is, role by role; numbers are written down, since they are what others remember a node by."""
    names = [_slug(place) for place in places]
    primary = [
        _node(name, NodeRole.PRIMARY_RECEIVER, number, place)
        for number, (name, place) in enumerate(zip(names, places, strict=True), 1)
    ]
    near = _secondaries(places)
    secondary = [
        _node(
            _slug(place),
            NodeRole.SECONDARY_RECEIVER,
            len(places) + number,
            place,
            parent=names[parent],
            backup=_slug(_nearest(place, [other for other in places if other is not places[parent]])),
        )
        for number, (parent, place) in enumerate(near, 1)
    ]
    floors = [
        _node(f"{names[at]}-floor", NodeRole.PRIMARY_SOURCE, at + 1, places[at])
        for at in range(min(_SOURCES, len(places)))
    ]
    last = len(floors) + 1
    broker = _node(f"{names[0]}-broker", NodeRole.SECONDARY_SOURCE, last, places[0], parent=f"{names[0]}-floor")
    servers = [
        _node(f"reformer-{number}", NodeRole.REFORMATION_SERVER, number, places[number - 1]) for number in (1, 2)
    ]
    return [
        *_block("Primary receivers: the ring. A majority of them must be up.", primary),
        *_block(
            "Secondary receivers: as trusted, in a ring below their parent; they release at the same instant.",
            secondary,
        ),
        *_block("Primary sources: the floors that publish.", floors),
        *_block("A secondary source publishes through a primary one, which trusts it.", [broker]),
        *_block("Reformation servers: they form the ring, and form it again when it breaks.", servers),
        *_customers(places, names, [_slug(place) for _, place in near]),
    ]


def _secondaries(places: Sequence[City]) -> list[tuple[int, City]]:
    """For the first few primary receivers the nearest city that is not taken."""
    found: list[tuple[int, City]] = []
    for parent, place in enumerate(places[:_SECONDARIES]):
        taken = [*places, *(other for _, other in found)]
        free = [other for other in CITIES if other not in taken]
        if free:
            found.append((parent, _nearest(place, free)))
    return found


def _nearest(here: City, places: Sequence[City]) -> City:
    return min(places, key=lambda place: delay_ns(here, place))


def _customers(places: Sequence[City], names: Sequence[str], lower: Sequence[str]) -> list[str]:
    """A retransmit server, and customers of both grades."""
    archive = _node("archive", NodeRole.RETRANSMIT_SERVER, 1, places[0], lines=[names[0], names[1]])
    first = [*lower, *names][:2]
    customers = [
        _node(
            "bank",
            NodeRole.CUSTOMER,
            2,
            places[0],
            lines=first,
            retransmit=["archive"],
            grade=Grade.COMPLETE.value,
        ),
        _node(
            "ticker",
            NodeRole.CUSTOMER,
            3,
            places[-1],
            lines=[names[-1], names[0]],
            retransmit=["archive"],
            grade=Grade.LATEST.value,
        ),
    ]
    desk = _node(
        "desk",
        NodeRole.CUSTOMER,
        4,
        places[0],
        http_port=0,
        lines=[names[0], names[1]],
        retransmit=["archive"],
        start=False,
    )
    return [
        *_block("Retransmit servers keep what was released and repair what customers missed.", [archive]),
        *_block(
            "Customers hear two or more lines. Complete: every message. Latest: the newest, without waiting.", customers
        ),
        *_block(
            "A seat with a share of its own, for isocast listen --as desk or a program of yours: isocast up does not"
            " start it. Without a name everybody who has the edge key listens as a guest.",
            [desk],
        ),
    ]
