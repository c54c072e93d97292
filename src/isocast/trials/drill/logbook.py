"""What the nodes of a market wrote into their logs, with its instants: followed while they run, read when they ended.

A log is a file of JSON lines for each node. Its times are the machine's, whatever a drill did to a node's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isocast.terms.instants import MICROSECOND, SECOND

__all__ = ["LogBook", "LogLine", "parse_line"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one node."""

    at: int
    """Of the machine's clock."""
    node: str
    event: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A value of it, or nothing."""
        return str(self.values.get(name, ""))


class LogBook:
    """The logs of a directory; `read` brings `lines` up to date."""

    def __init__(self, directory: Path) -> None:
        """Nothing is read yet."""
        self.lines: list[LogLine] = []
        """In the order of their instants."""
        self._directory = directory
        self._read: dict[Path, int] = {}

    def read(self) -> list[LogLine]:
        """What is new; a line that is not finished is left for the next time."""
        new = [line for path in sorted(self._directory.glob(f"*{_SUFFIX}")) for line in self._new_lines(path)]
        if new:
            self.lines = sorted([*self.lines, *new], key=lambda line: line.at)
        return new

    def since(self, instant: int, *events: str) -> list[LogLine]:
        """Lines from an instant on, with one of these events."""
        return [line for line in self.lines if line.at >= instant and line.event in events]

    def first(self, instant: int, true: Callable[[LogLine], bool]) -> LogLine | None:
        """The first line from an instant on that is so."""
        return next((line for line in self.lines if line.at >= instant and true(line)), None)

    def _new_lines(self, path: Path) -> Iterator[LogLine]:
        start = self._read.get(path, 0)
        with path.open("rb") as file:
            file.seek(start)
            whole, _, _ = file.read().rpartition(b"\n")
        if whole:
            self._read[path] = start + len(whole) + 1
            for raw in whole.splitlines():
                line = parse_line(raw, path.stem)
                if line is not None:
                    yield line


def parse_line(raw: bytes, node: str) -> LogLine | None:
    """A line of JSON with a time and an event; None for anything else, such as a traceback."""
    try:
        values = json.loads(raw)
        at = datetime.fromisoformat(values.pop("time")) - _EPOCH
        event = values.pop("event")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    whole = (at.days * 86_400 + at.seconds) * SECOND + at.microseconds * MICROSECOND
    return LogLine(whole, node, str(event), values)
