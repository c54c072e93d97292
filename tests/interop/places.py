"""A place of its own for each market of real processes: loopback addresses and groups that nobody else uses."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from random import SystemRandom

from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import found_market
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.model import Market

__all__ = ["CALM", "QUICK", "QUICKEST", "Place", "new_market", "own_place"]

_CLAIM_PORT = 7_654
"""Bound on the place's last address while it is in use: how other tests, in other processes too, see that it is."""
_FIRST_NET = 16
"""127.1 to 127.4 are the market file's own defaults."""

QUICKEST: dict[str, object] = {"profile": "ci", "detect": "15ms", "process": "40ms", "retries_max": 2}
"""τ_t of about a fifth of a second, for who waits for many tokens: on a busy machine the ring re-forms at times."""
QUICK: dict[str, object] = {"profile": "ci", "detect": "30ms", "process": "80ms", "retries_max": 3}
"""τ_t of about half a second: a process that waits 80 ms for its turn is still in time."""
CALM: dict[str, object] = {"profile": "ci", "detect": "150ms", "process": "400ms", "retries_max": 2}
"""τ_t of about a second and a half: nobody is suspected because two cores have a dozen things to do."""


@dataclass(frozen=True)
class Place:
    """127.a.b.0/24 and 239.a.b.0/24."""

    first: int
    second: int

    def address(self, number: int) -> str:
        return f"127.{self.first}.{self.second}.{number}"

    def group(self, number: int) -> str:
        return f"239.{self.first}.{self.second}.{number}"


@contextmanager
def own_place() -> Iterator[Place]:
    """A place that nobody else has until the block ends."""
    draw = SystemRandom()
    while True:
        place = Place(draw.randrange(_FIRST_NET, 255), draw.randrange(256))
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((place.address(254), _CLAIM_PORT))
        except OSError:
            claim.close()
            continue
        with claim:
            yield place
        return


def new_market(  # noqa: PLR0913 (one for each table of the file)
    folder: Path,
    place: Place,
    nodes: Mapping[str, Mapping[str, object]],
    *,
    timing: Mapping[str, object] = QUICK,
    ring: Mapping[str, object] = {},
    network: Mapping[str, object] = {},
    clock: Mapping[str, object] = {},
    log: Mapping[str, object] = {},
    security: Mapping[str, object] = {},
    durability: str = "process",
    more: str = "",
) -> Market:
    """A market file with these nodes in a place, its keys made and every node declared new; `more` ends the file."""
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Mapping[str, object]] = {
        "timing": timing,
        "ring": ring,
        "network": {"groups": place.group(0), "lines": place.group(16), "repairs": place.group(96), **network},
        "clock": {"bound": "1ms", "source": "configured", **clock},
        "log": log,
        "security": security,
    }
    for number, (name, values) in enumerate(nodes.items(), 1):
        tables[f"nodes.{name}"] = {"address": place.address(number), **values}
    text = f'name = "interop"\ndurability = "{durability}"\n' + "".join(
        _table(name, values) for name, values in tables.items()
    )
    file = folder / "market.toml"
    file.write_text(text + more, encoding="utf-8")
    market = load_market(file)
    init_keys(market)
    found_market(market)
    return market


def _table(name: str, values: Mapping[str, object]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value: object) -> str:
    """TOML and JSON spell texts, numbers, flags and lists of them alike."""
    return dumps(list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value)
