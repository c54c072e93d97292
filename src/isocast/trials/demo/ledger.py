"""What the nodes of a market say of themselves, over all their lives: a process that dies takes its counts along."""

from __future__ import annotations

from collections.abc import Iterable

from isocast.runtime.watch.status import NodeStatus

__all__ = ["StatusLedger"]


class StatusLedger:
    """The newest status of every process."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self._lives: dict[str, dict[int, NodeStatus]] = {}

    def enter(self, status: NodeStatus) -> None:
        """A node has answered."""
        self._lives.setdefault(status.name, {})[status.pid] = status

    def newest(self, name: str) -> NodeStatus | None:
        """What the present process of a node said last, or the last one that there was."""
        lives = self._lives.get(name)
        return None if not lives else max(lives.values(), key=lambda status: status.at_ns)

    def alarms(self, prefix: str) -> list[tuple[str, str]]:
        """Alarms whose code begins so, over all lives: by whom, and what; each once."""
        found = [
            (status.name, alarm.text)
            for lives in self._lives.values()
            for status in lives.values()
            for alarm in status.alarms
            if alarm.code.startswith(prefix)
        ]
        return list(dict.fromkeys(found))

    def total(self, counter: str, names: Iterable[str] | None = None) -> int:
        """A counter of some nodes, all if none are named, summed over their lives."""
        chosen = self._lives if names is None else names
        found = [status for name in chosen for status in self._lives.get(name, {}).values()]
        return round(sum([status.totals.get(counter, 0) for status in found]))
