"""A lab that runs by itself until its time is up or a command ends it, and its control socket."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isocast.runtime.operate import shutdown
from isocast.runtime.operate.operator_door import NobodyListensError, Operation, OperatorDoor, OperatorError, ask
from isocast.terms.errors import ConfigurationError
from isocast.trials.lab.lab import Lab, RunDirectory
from isocast.trials.lab.nodes import LabNode, LabNodes, LabNodeStatus
from isocast.trials.lab.report import LabReport
from isocast.trials.lab.world import LabWorld, LinkChange

__all__ = ["LabSession", "SessionReport", "ask_lab", "run_session"]


_ANSWER_S = 60.0


def ask_lab(directory: Path, command: str, **parts: object) -> Any:  # noqa: ANN401  # JSON
    """One command to the lab that runs in a directory; its own errors are raised here."""
    try:
        reply = asyncio.run(ask(directory, command, seconds=_ANSWER_S, **parts))
    except NobodyListensError:
        rule = f"no lab runs in {directory} (`isocast lab up` and `isocast lab run` say where theirs does)"
        raise ConfigurationError("command line", "--run", rule) from None
    if "wrong" in reply:
        raise ConfigurationError(*reply["wrong"])
    return reply["answer"]


_LOOK_S = 0.1
"""How often a session looks whether nodes have ended."""
_GRACE_S = 10.0
"""From SIGTERM to SIGKILL at the end."""
_STOP_S = 120.0
"""From a signal to a forced end: the last messages are released, all nodes stop, the world is removed."""


@dataclass(frozen=True, slots=True)
class SessionReport:
    """How it went: the lab's own account, and how each node ended."""

    lab: LabReport
    nodes: tuple[LabNodeStatus, ...]
    seconds: float
    exit_code: int | None = None
    """Of the command in the foreground, if there was one."""

    @property
    def failed(self) -> tuple[LabNodeStatus, ...]:
        """Nodes that ended badly, though nobody wanted that."""
        return tuple(node for node in self.nodes if node.failed)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"lab": self.lab.as_json()}


class LabSession:
    """An open lab with its nodes, and what the control socket can ask of it."""

    def __init__(self, lab: Lab, nodes: LabNodes) -> None:
        """Nothing is started by this."""
        self.lab = lab
        self.nodes = nodes
        self.ended = asyncio.Event()
        """Whether somebody wants it to end."""
        self._began = time.monotonic()
        commands: Mapping[str, Callable[[_ControlRequest], object]] = {
            "status": self._status,
            "lateness": lambda request: self.lab.lateness(reset=request.flag("reset")).as_json(),
            "cut": lambda request: self.lab.cut(*self._ends(request), one_way=request.flag("one_way")),
            "heal": self._heal,
            "change": self._change,
            "start": lambda request: self.nodes.start(request.text("node")),
            "kill": lambda request: self.nodes.kill(request.text("node")),
            "stop": lambda request: self.nodes.stop(request.text("node")),
            "continue": lambda request: self.nodes.resume(request.text("node")),
            "enter": lambda request: self.lab.command(self._site(request.text("site")), ()),
            "down": lambda _: self.ended.set(),
        }
        self.operations = {name: _operation(command) for name, command in commands.items()}

    @property
    def seconds(self) -> float:
        """How long it has been there."""
        return time.monotonic() - self._began

    # ---- commands

    def _site(self, name: str) -> str:
        """A site by its name, its city's, or that of a node in it."""
        return self.nodes.site_of(name) or self.lab.world.sites[self.lab.world.place_of(name)].name

    def _ends(self, request: _ControlRequest) -> tuple[str, str]:
        return self._site(request.text("here")), self._site(request.text("there"))

    def _heal(self, request: _ControlRequest) -> None:
        if request.flag("all"):
            self.lab.heal_all()
        else:
            self.lab.heal(*self._ends(request), one_way=request.flag("one_way"))

    def _change(self, request: _ControlRequest) -> None:
        delay, jitter = request.nanoseconds("delay_ns"), request.nanoseconds("jitter_ns")
        loss, one_way = request.share("loss"), request.flag("one_way")
        self.lab.change(LinkChange(*self._ends(request), delay, jitter, loss, one_way))

    def _status(self, request: _ControlRequest) -> dict[str, object]:
        links = self.lab.links() if request.flag("links") else []
        return {
            "seconds": round(self.seconds, 3),
            "sites": [
                {"name": site.name, "city": site.place.name if site.place else "", "addresses": site.addresses}
                for site in self.lab.world.sites
            ],
            "nodes": [asdict(status) for status in self.nodes.statuses()],
            "links": [asdict(link) for link in links],
        }


def _operation(command: Callable[[_ControlRequest], object]) -> Operation:
    """A command as the control socket takes it; bad input is told in its three parts, for `ask_lab` to raise."""

    async def answer(request: Mapping[str, Any]) -> dict[str, object]:
        try:
            return {"answer": command(_ControlRequest(request))}
        except ConfigurationError as error:
            return {"wrong": [error.file, error.key, error.rule]}
        except OSError as error:
            raise OperatorError(str(error)) from error

    return answer


class _ControlRequest:
    """A request's parts, each checked when it is asked for."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = parts

    def text(self, key: str) -> str:
        value = self._parts.get(key)
        if not isinstance(value, str):
            raise _bad(key, "must be a name")
        return value

    def flag(self, key: str) -> bool:
        value = self._parts.get(key, False)
        if not isinstance(value, bool):
            raise _bad(key, "must be true or false")
        return value

    def nanoseconds(self, key: str) -> int | None:
        value = self._parts.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise _bad(key, "must be whole nanoseconds")
        return value

    def share(self, key: str) -> float | None:
        value = self._parts.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise _bad(key, "must be a number")
        return value


def _bad(key: str, rule: str) -> ConfigurationError:
    return ConfigurationError("control socket", key, rule)


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """A signal ends the session, not the process: there is a world to remove and a report to give."""
    noted: list[int] = []
    with shutdown.stopping(lambda: noted.append(shutdown.cause()), seconds=_STOP_S, waits_for="the lab is removed"):
        yield noted


def run_session(
    world: LabWorld,
    nodes: Sequence[LabNode],
    directory: Path,
    *,
    seconds: float | None = None,
    foreground: tuple[str, Sequence[str]] | None = None,
    began: Callable[[LabSession], None] | None = None,
    ending: Callable[[LabSession], None] | None = None,
    user_namespace: bool | None = None,
) -> SessionReport:
    """Build a world, run nodes in it and obey the control socket; remove everything and report.

    It ends after `seconds`, by command, by SIGINT or SIGTERM, when the command in the `foreground` (site, command)
    has ended, or when all nodes have ended by themselves. `ending` is called while all of it still runs.
    """
    with ExitStack() as stack:
        names = [f"{node.name}.notify" for node in nodes]
        run = stack.enter_context(RunDirectory(directory, longest_name=max(names, key=len, default="")))
        signals = stack.enter_context(_noted_signals())
        lab = stack.enter_context(Lab.of(world, user_namespace=user_namespace))
        supervised = LabNodes(lab, nodes, run.path)
        stack.callback(supervised.close)
        session = LabSession(lab, supervised)
        front = asyncio.run(_obey(session, run.path, signals, seconds=seconds, foreground=foreground, began=began))
        lasted = session.seconds
        if front is not None and front.poll() is None:
            front.terminate()
        if ending is not None:
            ending(session)
        supervised.end_all(_GRACE_S)
        return SessionReport(
            lab.lateness(), tuple(supervised.statuses()), round(lasted, 3), None if front is None else _wait(front)
        )


async def _obey(
    session: LabSession,
    directory: Path,
    signals: Sequence[int],
    *,
    seconds: float | None,
    foreground: tuple[str, Sequence[str]] | None,
    began: Callable[[LabSession], None] | None,
) -> subprocess.Popen[bytes] | None:
    """Start the nodes and obey the control socket until the session is over; the command in the foreground."""
    nodes, lab, loop = session.nodes, session.lab, asyncio.get_running_loop()
    door = OperatorDoor(directory, session.operations, owner="lab")
    await door.open()
    try:
        nodes.start_all()
        for ear in nodes.ears():
            loop.add_reader(ear, nodes.hear)
        if began is not None:
            began(session)
        front = lab.spawn(*foreground, stdin=None, own_session=False) if foreground else None
        until = None if seconds is None else time.monotonic() + seconds
        while not session.ended.is_set() and not signals and (until is None or time.monotonic() < until):
            over = len(nodes) > 0 and nodes.all_over() if front is None else front.poll() is not None
            if over:
                break
            lab.check()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())):
                    await session.ended.wait()
        return front
    finally:
        await door.close()


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that was asked to end."""
    try:
        return process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
