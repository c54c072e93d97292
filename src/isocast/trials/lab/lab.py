"""A lab: namespaces joined by a switch, the processes in them, and the directory where it is found.

>>> with Lab({"ny": "New York", "ldn": "London"}, loss=0.01, seed=1) as lab:  # doctest: +SKIP
...     listener = lab.spawn("ldn", ["isocast", "listen"])
...     lab.cut("ny", "ldn")
...     print(lab.lateness().forwards.p99_ns)
"""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Self

from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.topology import City
from isocast.trials.lab.fabric import evict, holders, namespace_number, residents
from isocast.trials.lab.report import LabReport, LinkState
from isocast.trials.lab.switch_process import SwitchProcess
from isocast.trials.lab.world import LabWorld, LinkChange, WorldSettings, make_world

__all__ = ["Lab", "RunDirectory", "default_run_directory"]


_ENTER = Path(__file__).with_name("enter.py")
_EVICTION_S = 5.0

Stream = int | IO[bytes] | None
"""As `subprocess` takes them."""


class Lab:
    """A world of network namespaces; a context manager that leaves nothing behind."""

    def __init__(
        self,
        cities: Mapping[str, City | str | None],
        *,
        loss: float = 0.0,
        jitter_ns: int = 0,
        seed: int = 1,
        scale: float = 1.0,
        mtu: int = 1500,
        addresses: Mapping[str, Sequence[str]] | None = None,
        user_namespace: bool | None = None,
    ) -> None:
        """Describe it: sites by name, each in a city. `user_namespace=True` does without root even as root."""
        settings = WorldSettings(loss, jitter_ns, scale, seed, mtu)
        self.world = make_world(cities, settings, addresses)
        self._user_namespace = user_namespace
        self._switch: SwitchProcess | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    @classmethod
    def of(cls, world: LabWorld, *, user_namespace: bool | None = None) -> Self:
        """A lab of a world that is described already."""
        lab = cls({site.name: site.place for site in world.sites}, user_namespace=user_namespace)
        lab.world = world
        return lab

    # ---- life

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Build it: OSError says what the machine refused."""
        if self._switch is not None:
            raise LocalProtocolError("the lab is open already")
        self._switch = SwitchProcess(self.world, user_namespace=self._user_namespace)

    def close(self) -> None:
        """Kill what runs in it, remove it, and prove that nothing is left: OSError names what is."""
        if self._switch is None:
            return
        switch, self._switch = self._switch, None
        numbers = {namespace_number(fd) for fd in switch.namespaces}
        try:
            for process in self._processes:
                process.kill()  # Perhaps it has not entered yet, and would not be found inside.
            switch.end()
            evict(numbers, _EVICTION_S)  # As the switch did, unless it was killed.
            for process in self._processes:
                _finish(process)
            left = leftovers(numbers)
        finally:
            switch.close()
        if left:
            raise ChildProcessError(f"the lab is closed, but {', '.join(left)}")

    @property
    def is_open(self) -> bool:
        """Whether it is there."""
        return self._switch is not None

    @property
    def _running(self) -> SwitchProcess:
        if self._switch is None:
            raise LocalProtocolError("the lab is not open")
        return self._switch

    # ---- sites and processes

    def address(self, site: str, number: int = 1) -> str:
        """The site's address of that number, from 1."""
        addresses = self.world.sites[self.world.place_of(site)].addresses
        if not 1 <= number <= len(addresses):
            raise ConfigurationError("lab", site, f"has addresses 1 to {len(addresses)}, not {number}")
        return addresses[number - 1]

    def delay_ns(self, here: str, there: str) -> int:
        """The delay that was described from one site to another, before any change by command."""
        return self.world.impairments[self.world.pairs(here, there)[0]].delay_ns

    def command(self, site: str, command: Sequence[str]) -> list[str]:
        """The command that runs another one inside a site, for processes that are not started by `spawn`.

        It works for this user as long as the lab is open, and becomes the other one: same process, same signals.
        """
        switch = self._running
        network = switch.namespaces[self.world.place_of(site)]
        user = "-" if switch.user_namespace is None else _file(switch.user_namespace)
        return [sys.executable, "-I", "-S", str(_ENTER), user, _file(network), *command]

    def spawn(
        self,
        site: str,
        command: Sequence[str],
        *,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        own_session: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Run a command inside a site. When the lab closes it is killed with all its children, its pipes closed."""
        process = subprocess.Popen(  # noqa: S603  # the caller's command, without a shell
            self.command(site, command),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=own_session,
        )
        self._processes.append(process)
        return process

    def residents(self) -> list[int]:
        """All processes in it, also those that it did not start."""
        return residents({namespace_number(fd) for fd in self._running.namespaces})

    # ---- links

    def cut(self, here: str, there: str, *, one_way: bool = False) -> None:
        """Nothing passes from here to there any more, nor back unless `one_way`; what is on its way arrives."""
        pairs = self.world.pairs(here, there, one_way=one_way)
        self._running.ask("cut", pairs=pairs)

    def heal(self, here: str, there: str, *, one_way: bool = False) -> None:
        """Let frames pass again."""
        pairs = self.world.pairs(here, there, one_way=one_way)
        self._running.ask("heal", pairs=pairs)

    def heal_all(self) -> None:
        """Let frames pass everywhere."""
        self._running.ask("heal", pairs=list(self.world.impairments))

    def change(self, change: LinkChange) -> None:
        """Set delay, jitter or loss between two sites, for frames that are sent from now on."""
        change.check("lab")
        pairs = self.world.pairs(change.here, change.there, one_way=change.one_way)
        self._running.ask("change", pairs=pairs, change=asdict(change))

    def links(self) -> list[LinkState]:
        """Every direction as it is now."""
        return [LinkState(**state) for state in self._running.ask("links")]

    # ---- what it says about itself

    def lateness(self, *, reset: bool = False) -> LabReport:
        """How late the switch was, and what it forwarded; `reset` begins the lateness anew."""
        return LabReport.from_json(self._running.ask("report", reset=reset))

    def check(self) -> None:
        """ChildProcessError if the switch is no longer there."""
        if self._running.process.poll() is not None:
            raise ChildProcessError("the lab's switch has ended by itself")


def _file(fd: int) -> str:
    """A path by which others open what we have open."""
    return f"/proc/{os.getpid()}/fd/{fd}"


def _finish(process: subprocess.Popen[bytes]) -> None:
    """Take note that a killed process is gone."""
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):  # What was still to be written has no reader any more.
                stream.close()


def leftovers(numbers: set[int]) -> list[str]:
    """What still keeps these namespaces alive, apart from ourselves; nothing, if all is well."""
    left = [f"process {process} still runs in it" for process in residents(numbers)]
    return left + [f"process {process} still holds it open" for process in holders(numbers)]


# Where a running lab is found: a directory of its user alone, with its control socket and its nodes' output.


_PATH_MAX = 107
"""Bytes of a path that a socket can be bound to: 108 with the zero at its end."""


def default_run_directory() -> Path:
    """One for each user, so that commands find the lab without being told where it is."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"isocast-lab-{os.getuid()}"


class RunDirectory:
    """Ours while we have it open; what nodes printed stays when we leave."""

    def __init__(self, path: Path, *, longest_name: str = "") -> None:
        """Claim it: ConfigurationError if another lab has it, or another user.

        `longest_name` is that of the nodes' sockets in it.
        """
        self.path = path.absolute()
        needed = len(os.fsencode(self.path / longest_name))
        if needed > _PATH_MAX:
            raise ConfigurationError("command line", "--run", f"is {needed - _PATH_MAX} bytes too long for a socket")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError("command line", "--run", f"{self.path}: {error.strerror}") from error
        try:
            self._claim()
        except BaseException:
            os.close(self._fd)
            raise

    def _claim(self) -> None:
        state = os.fstat(self._fd)
        if state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
            # Attack: whoever can write here can command the lab, and nodes write their output here.
            raise ConfigurationError("command line", "--run", f"{self.path} must be yours alone (mode 0700)")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            rule = f"a lab runs in {self.path} already; choose another directory"
            raise ConfigurationError("command line", "--run", rule) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
