"""The processes of a drill's market: killed, stopped, held down, or given a disk on which nothing more fits."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from isocast.runtime.market.model import Market
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.supervisor import Child, Life
from isocast.trials.demo.staging import DemoStage

__all__ = ["DrillStage", "flip_bit"]


class DrillStage(DemoStage):
    """A stage on which anything may happen to a process."""

    def __init__(self, market: Market, told: Callable[[Child], None], nursery: Nursery) -> None:
        """The nursery serves one drill after the other."""
        super().__init__(market, told, nursery=nursery)
        self._full: dict[str, int] = {}

    def signal(self, name: str, number: signal.Signals) -> None:
        """To one node; one that it ends by is started again, unless it is held."""
        self._supervisor.kill(name, number)

    def start_again(self, name: str) -> None:
        """Start a node again that refused its disk, once the disk is repaired."""
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
