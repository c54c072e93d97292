"""What `isocast up` says while it runs: sentences for people, or a line of JSON for each thing that happens.

Nobody has to read it: output that went away stops nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market
    from isocast.runtime.operate.supervisor import Child

__all__ = ["UpReport", "ending", "next_steps"]


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
        """Somebody will not wait."""
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
    """To whoever still reads."""
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
    file = shlex.quote(str(config))
    steps = [f"isocast top --config {file}"]
    plans = [plan for plan in market.nodes if plan.name in names]
    source = next((plan.name for plan in plans if plan.role.is_source and plan.tcp_port), None)
    if source is not None:
        steps.append(f"echo '{_TRADE}' | isocast publish --config {file} --source {source}")
    receiver = next((plan.name for plan in plans if plan.role.is_receiver), None)
    if any(plan.role.value == "customer" and plan.name not in names for plan in market.nodes):
        steps.append(f"isocast listen --config {file}")
    elif receiver is not None:
        # Every customer of the file has a process: nobody is left to listen as.
        steps.append(f"isocast journal cat {shlex.quote(str(market.directory_of(receiver) / 'journal'))}")
    return steps
