"""The processes of a drill's market: killed, stopped, held down, or given a disk on which nothing more fits."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.supervisor import Child, Life
from isocast.terms.timing import PROFILES
from isocast.trials.demo.cast import Place, kind_of, table
from isocast.trials.demo.staging import Stage

__all__ = ["HERE", "SITES", "THERE", "TIMINGS", "DrillSettings", "DrillStage", "flip_bit", "market_text"]


class DrillStage(Stage):
    """A stage on which anything may happen to a process."""

    def __init__(self, market: Market, told: Callable[[Child], None], nursery: Nursery) -> None:
        """The nursery serves one drill after the other."""
        super().__init__(market, told, nursery=nursery)
        self._full: dict[str, int] = {}

    def signal(self, name: str, number: signal.Signals) -> None:
        """To one node; one that it ends by is started again, unless it is held."""
        self._supervisor.kill(name, number)

    def start_again(self, name: str) -> None:
        """A node that refused its disk, once somebody has seen to it."""
        self._supervisor.start_again(name)

    def fill_disk(self, name: str, length: int) -> None:
        """No file of a node may become longer than this, in this life and the next ones: the kernel refuses (EFBIG).

        It is what an unprivileged process can do to another; stores and journals treat it as a disk without room.
        """
        self._full[name] = length
        _limit_files(self.children[name].pid, length)

    def make_room(self, name: str) -> None:
        """The disk takes everything again."""
        self._full.pop(name, None)
        _limit_files(self.children[name].pid, resource.RLIM_INFINITY)

    async def _launch(self, command: Sequence[str], environment: Mapping[str, str], output: Path | None) -> Life:
        life = await super()._launch(command, environment, output)
        full = self._full.get(command[command.index("--name") + 1])
        if full is not None:
            _limit_files(life.pid, full)
        return life


def _limit_files(pid: int | None, length: int) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))


def flip_bit(path: Path, offset: int) -> None:
    """One bit of one byte, as a disk that lies would have it."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        (byte,) = os.pread(handle, 1, offset)
        os.pwrite(handle, bytes([byte ^ 0x10]), offset)
    finally:
        os.close(handle)


# ---- The market of a drill: five sites, and two of everything else, so that each half of it could be a market.
#
# A cut runs between the halves: whatever one node needs of another by TCP, a customer of its retransmit server, lies on
# its own side of it. So deafening sockets for UDP is all that a partition takes, and nobody needs privilege.


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
    """What whoever runs the drills chose."""

    profile: str = "quick"
    policy: StartPolicy = StartPolicy.MAJORITY
    seconds: float | None = None
    """How long a fault stays that does not end by itself; None: as long as each drill says."""


def market_text(place: Place, settings: DrillSettings, sites: Iterable[str] = SITES) -> str:
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
