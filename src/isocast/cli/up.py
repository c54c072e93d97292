"""`isocast up`: all nodes of a market on this machine, watched and started again; for people or as lines of JSON."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.node_run import processes_of
from isocast.cli.options import ConfigAtRest, Flag
from isocast.cli.render import note
from isocast.runtime.operate import shutdown
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from asyncio import Event

    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.operate.nursery import Nursery
    from isocast.runtime.operate.supervisor import Child, Launch, Supervisor

__all__ = ["UpReport", "ending", "next_steps", "up"]


# ---- What `isocast up` says while it runs: sentences for people, or a line of JSON for each thing that happens.
#
# Nobody has to read it: output that went away stops nothing.


class UpReport:
    """Hears of every change, tells it, and remembers how the nodes stand."""

    def __init__(self, market: Market, config: Path, names: Sequence[str], *, as_json: bool) -> None:
        """Of these nodes."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change."""
        self._market = market
        self._config = config
        self._names = names
        self._total = len(names)
        self._as_json = as_json
        self._began = monotonic()
        self._states: dict[str, str] = {}
        self._is_ending = False

    # How they stand -----------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """How many nodes are ready."""
        return sum(state == "ready" for state in self._states.values())

    @property
    def is_ready(self) -> bool:
        """Whether all are."""
        return self.ready == self._total

    @property
    def refused(self) -> int:
        """How many nodes refused their input, and will not be started again."""
        return sum(state == "refused" for state in self._states.values())

    @property
    def is_over(self) -> bool:
        """Whether there is nobody left to watch."""
        return self.refused == self._total

    # What happens -------------------------------------------------------------------------------

    def founded(self) -> None:
        """All nodes begin with empty disks."""
        self._say(
            f"{self._market.name}: a new market, in {self._market.data_directory}",
            "founded",
            data=str(self._market.data_directory),
        )

    def starting(self) -> None:
        """Nodes are about to be started."""
        self._say(f"{self._market.name}: {counted(self._total, 'node')} to start", "begins", nodes=self._total)
        durability = self._market.durability
        self._say(f"durability {durability}: {durability.meaning}.", "durability", durability=durability.value)

    def told(self, child: Child) -> None:
        """A node's state has changed."""
        was = self._states.get(child.name)
        if not (self._is_ending and was == "refused"):
            self._states[child.name] = child.state.value
        match child.state.value:
            case "starting":
                text = f"{child.name} starts again" if child.starts > 1 else ""
                self._say(text, "starting", child, pid=child.pid, starts=child.starts)
            case "ready":
                self._say(f"{child.name} is ready ({self.ready} of {self._total})", "ready", child, pid=child.pid)
            case "pausing":
                text = f"{child.name} {ending(child)}; it starts again in {child.pause_s:g} s"
                self._say(text, "ended", child, exit_code=child.exit_code, why=_why(child), again_in_s=child.pause_s)
            case "refused":
                why = _why(child) or "its own words stand above"
                text = f"{child.name} cannot run like this, and is not started again: {why}"
                self._say(text, "refused", child, exit_code=child.exit_code, why=_why(child))
            case _:
                self._say(f"{child.name} has stopped", "stopped", child, exit_code=child.exit_code)
        self.on_change()

    def still_waiting(self, children: Iterable[Child]) -> None:
        """Some take their time."""
        for child in children:
            if child.state.value == "starting":
                why = child.status or "it has not said anything yet"
                self._say(f"{child.name} is not ready: {why}", "waiting", child, why=why)

    def all_ready(self) -> None:
        """The market runs."""
        seconds = monotonic() - self._began
        steps = next_steps(self._market, self._config, self._names)
        all_nodes = f"{self._market.name}: all {counted(self._total, 'node')}"
        text = f"{all_nodes} ready after {seconds:.1f} s. In another terminal:\n\n"
        text += "".join(f"    {step}\n" for step in steps) + "\nCtrl-C stops all of them."
        self._say(text, "all-ready", seconds=round(seconds, 3), next=steps)

    def stopping(self) -> None:
        """All shall stop."""
        self._is_ending = True
        self._say(f"{self._market.name}: stopping", "stopping")

    def hurried(self) -> None:
        """A second signal came: say that the rest is killed."""
        self._say(f"{self._market.name}: killing what is left", "killing")

    # Telling ------------------------------------------------------------------------------------

    def _say(self, text: str, event: str, child: Child | None = None, **more: object) -> None:
        if not self._as_json:
            if text:
                _write(sys.stderr, f"{text}\n")
            return
        fields: dict[str, object] = {"time": datetime.now(UTC).isoformat(), "event": event}
        if child is not None:
            fields["node"] = child.name
        _write(sys.stdout, json.dumps(fields | more, ensure_ascii=False) + "\n")


def _write(stream: TextIO, text: str) -> None:
    """Write and flush; a reader that has gone is no error."""
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        # What could not be written would be tried, and complained of, once more at the end.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def ending(child: Child) -> str:
    """How a process ended, in words."""
    code = child.exit_code or 0
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    why = _why(child)
    return f"ended with exit code {code}" + (f" ({why})" if why else "")


def _why(child: Child) -> str:
    """The last that was heard of it."""
    said = child.last_line() or child.status
    return said if child.exit_code is None or child.exit_code >= 0 else ""


_TRADE = '{"kind": "trade", "floor": "XLON", "symbol": "ISO", "price": "72.5", "quantity": 100}'


def next_steps(market: Market, config: Path, names: Sequence[str]) -> list[str]:
    """Commands that show what a market does of which these nodes run."""
    from isocast.runtime.market.guests import has_room_for_guests

    file = shlex.quote(str(config))
    steps = [f"isocast top --config {file}"]
    plans = [plan for plan in market.nodes if plan.name in names]
    source = next((plan.name for plan in plans if plan.role.is_source and plan.tcp_port), None)
    if source is not None:
        steps.append(f"echo '{_TRADE}' | isocast publish --config {file} --source {source}")
    receiver = next((plan.name for plan in plans if plan.role.is_receiver), None)
    if has_room_for_guests(market) or any(
        plan.role.value == "customer" and plan.name not in names for plan in market.nodes
    ):
        steps.append(f"isocast listen --config {file}")
    elif receiver is not None:
        # Every customer of the file has a process, and guests are not let in: nobody is left to listen as.
        steps.append(f"isocast journal cat {shlex.quote(str(market.directory_of(receiver) / 'journal'))}")
    return steps


_EXAMPLES = """Examples:

    isocast up --example

    isocast up --config market.toml

    isocast up --config market.toml --logs logs/ --json

    isocast up --config market.toml --only london tokyo --new

    isocast up --config market.toml --only dublin --join dublin

SIGTERM or Ctrl-C stops all of them in order, a second one at once. Exit code 1 means that a node refused its input.
"""

_NURSERY_FROM = 4
"""So many processes start sooner as forks of one that has imported everything."""
_MODULES = (
    "isocast.cli.main",
    "isocast.runtime.hosts.process",
    "isocast.runtime.market.file",
    "isocast.runtime.market.finding",
    *(
        f"isocast.runtime.hosts.{role}"
        for role in ("receiver", "source", "reformation", "retransmit", "customer", "secondary_source")
    ),
)
_NAMED = 3
"""Nodes that a sentence names before it counts."""
_LOOK_S = 10.0
"""Between two lines about those that are not ready yet."""
_STOP_S = 40.0
"""More than a supervisor and a nursery take to end, even whoever does not obey."""

up = App(name="up", help_epilogue=_EXAMPLES)


@up.default
def _up(
    *,
    config: ConfigAtRest = None,
    example: Flag = False,
    only: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    new: Annotated[bool, Parameter(name="--new", negative="")] = False,
    join: Annotated[list[str] | None, Parameter(name="--join", negative="", consume_multiple=True)] = None,
    seconds: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    logs: Path | None = None,
    json: Flag = False,
) -> int:
    """Start every node of a market on this machine, watch them, and start again what dies.

    A market of which nothing exists yet is founded: all its nodes begin with empty disks.

    Parameters
    ----------
    example
        Where there is no such file, make the example's first, with its keys: five cities, floors, customers.
    only
        Start these nodes alone: on each of several machines its own. NAME.s1 is a node's process in stripe 1 alone.
    new
        These nodes have never run before: let them begin with empty disks. Refused if one has.
    join
        These nodes have never run before, and the market has: let them take over what the others have.
    seconds
        Stop by itself after so long; 0 never.
    logs
        A directory with one log file for each node; without it, their warnings appear here.
    json
        Print a line of JSON for each thing that happens, instead of sentences.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market, is_running
    from isocast.runtime.watch.plain_structlog import import_structlog

    import_structlog()
    if example:
        config = _example(config)
    config = find_market(config, running=False)
    market = load_market(config)
    started = [plan for plan in market.nodes if plan.start]
    plans = started if only is None else _processes(market, only)
    report = UpReport(market, config, [plan.name for plan in plans], as_json=json)
    joining = [plan.name for plan in _processes(market, join or ())]
    _prepare(market, plans, report, whole=only is None, new=new, joining=joining)
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    with is_running(config) as end:
        shutdown.at_forced_end(end)
        return shutdown.run(_run(config, plans, seconds, logs, report))


def _example(config: Path | None) -> Path:
    """The market's file and its keys, made where they are not there yet."""
    from isocast.cli.config import write_new
    from isocast.runtime.market.example import example_text
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.market.key_files import init_keys
    from isocast.runtime.market.slots import free_slot
    from isocast.terms.errors import ConfigurationError

    try:
        file = find_market(config, running=False)
    except ConfigurationError:
        file = Path("market.toml")
    if not file.exists():
        write_new(file, example_text(slot=free_slot()), "--config")
        note(f"Wrote {file}, in which every key is explained.")
    made = [key for key in init_keys(load_market(file)) if key.made]
    if made:
        note(f"Made {counted(len(made), 'key file')}.")
    return file


def _processes(market: Market, names: Sequence[str]) -> list[NodePlan]:
    """Those of some nodes in all their stripes, each once."""
    found = {plan.name: plan for name in names for plan in processes_of(market, name)}
    return list(found.values())


def _prepare(
    market: Market, plans: list[NodePlan], report: UpReport, *, whole: bool, new: bool, joining: list[str]
) -> None:
    """What would stop every node is said once, before any is started."""
    from isocast.runtime.market.founding import found_market, found_node, insist_on_past, join_node
    from isocast.runtime.market.key_files import load_keys

    _insist_on_nobody(market, plans)
    if market.edge is not None:
        from isocast.runtime.edge.narrow.plan_change import check_edge

        check_edge(market)
    for plan in plans:
        load_keys(market, plan)
    for name in joining:
        join_node(market, name)
    if new:
        for plan in plans:
            if plan.name not in joining:
                found_node(market, plan.name)
    if new or (whole and found_market(market)):
        report.founded()
    for plan in plans:
        insist_on_past(market, plan)


def _insist_on_nobody(market: Market, plans: list[NodePlan]) -> None:
    """TransportError when nodes run already, or others are in their way: each node would only say that it cannot."""
    from isocast.runtime.market.slots import clashes, is_up, key_to_move, sharer
    from isocast.terms.errors import TransportError

    taken = clashes(plans)
    if taken and is_up(market):
        names = [clash.node for clash in taken]
        who = "every node" if len(names) == len(plans) else ", ".join(names[:_NAMED])
        more = f" and {len(names) - _NAMED} more" if who != "every node" and len(names) > _NAMED else ""
        verb = "run" if who != "every node" and len(names) > 1 else "runs"
        rule = f"by `isocast up` or `isocast node` of {market.file}: stop those first, or start the others with --only"
        raise TransportError(f"{who}{more} of {market.name} {verb} already, {rule}")
    if taken:
        first = taken[0]
        rest = f" ({counted(len(taken) - 1, 'other node')} cannot start either)" if len(taken) > 1 else ""
        rule = f"{first.where}, which {first.node} of {market.name} needs, is in use{rest}"
        way = key_to_move(market, market.node(first.node), first.key)
        raise TransportError(f"{rule}: stop who has it, start the others with --only, or set {way} in {market.file}")
    other = sharer(market)
    if other is not None:
        rule = f"{market.name} would send in the groups of {other}, which runs here"
        raise TransportError(f"{rule}: set {key_to_move(market)} in {market.file}")


async def _run(config: Path, plans: list[NodePlan], seconds: float, logs: Path | None, report: UpReport) -> int:
    import asyncio
    from contextlib import suppress

    from isocast.runtime.operate.nursery import Nursery
    from isocast.runtime.operate.supervisor import Supervisor, node_command
    from isocast.runtime.watch.logs import notify

    nursery = Nursery(_MODULES, config)
    supervisor = Supervisor(report.told, log_directory=logs, launch=_launch_by(nursery))
    asked, changed = asyncio.Event(), asyncio.Event()

    def kill() -> None:
        report.hurried()
        supervisor.kill_all()

    def follow() -> None:
        changed.set()
        if report.is_over:
            asked.set()

    report.on_change = follow
    report.starting()
    watching = asyncio.create_task(_watch(supervisor, report, changed))
    # The market goes on when nobody reads what is said of it.
    with shutdown.stopping(asked.set, kill, seconds=_STOP_S, unread=False):
        try:
            if len(plans) >= _NURSERY_FROM:
                await nursery.__aenter__()
            options = () if logs is not None else ("--quiet",)
            for plan in plans:
                await supervisor.start(plan.name, node_command(config, plan.name, *options))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds or None):
                    await asked.wait()
        finally:
            asked.set()
            watching.cancel()
            notify("STOPPING=1")
            report.stopping()
            await supervisor.stop_all()
            await nursery.close()
    return 1 if report.refused else 0


def _launch_by(nursery: Nursery) -> Launch:
    from isocast.runtime.operate.supervisor import Life, launch_anew
    from isocast.terms.errors import TransportError

    async def launch(command: Sequence[str], environment: Mapping[str, str], output: Path | None) -> Life:
        try:
            return await nursery.launch(command, environment, output)
        except TransportError:  # There is none: too few nodes, or it has ended.
            return await launch_anew(command, environment, output)

    return launch


async def _watch(supervisor: Supervisor, report: UpReport, changed: Event) -> None:
    """Say when all are ready, and now and then for whom one waits."""
    import asyncio

    from isocast.runtime.watch.logs import notify

    while not report.is_ready:
        changed.clear()
        try:
            async with asyncio.timeout(_LOOK_S):
                await changed.wait()
        except TimeoutError:
            report.still_waiting(supervisor.children.values())
    report.all_ready()
    notify("READY=1")
