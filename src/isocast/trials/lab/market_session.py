"""A market in the lab from its floors to the verdict: what `isocast lab up` adds to a session.

Floors publish at every primary source, if that is wanted. At the end they stop first; then everything that sources have
accepted is waited for, so that no journal ends in the middle, before the nodes are asked to end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np

from isocast.runtime.disk.journal_reader import JournalCursor
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.ids import Label, NodeId
from isocast.terms.instants import SECOND
from isocast.trials.evidence import is_follower, journal_of
from isocast.trials.lab.floor import accepted_labels, floor_command
from isocast.trials.lab.nodes import LabNode, NodeState
from isocast.trials.lab.report import LabReport
from isocast.trials.lab.session import LabSession
from isocast.trials.lab.verdict import LabVerdict, judge

__all__ = ["MarketSession"]

_GRACE_S = 5.0
"""For a floor to have its last answer; for followers to fetch what they missed."""
_LOOK_S = 0.05
_UP = (NodeState.RUNNING, NodeState.READY)


class MarketSession:
    """One run of a market; `settle` is for the end of its session, `verdict` for after it."""

    def __init__(
        self, market: Market, config: Path, nodes: Sequence[LabNode], *, events_per_s: float = 0.0, seed: int = 1
    ) -> None:
        """`nodes` are the market's, as they are placed; about `events_per_s` are published at each primary source."""
        self._market = market
        self._since_ns = time.time_ns()
        self._promised: list[Label] = []
        self._running: set[str] = set()
        site_of = {node.name: node.site for node in nodes}
        self.floors = tuple(
            LabNode(f"{plan.name}.floor", site_of[plan.name], floor_command(config, plan.name, events_per_s, seed))
            for plan in market.by_role(NodeRole.PRIMARY_SOURCE)
            if plan.tcp_port and plan.name in site_of and events_per_s > 0
        )

    def settle(self, session: LabSession) -> None:
        """Stop the floors, and wait until all that they were promised is in the journals of all who run."""
        if not self.floors:
            return
        session.nodes.end([floor.name for floor in self.floors], _GRACE_S)
        self._promised = [label for floor in self.floors for label in accepted_labels(session.nodes.log_of(floor.name))]
        self._running = {status.name for status in session.nodes.statuses() if status.state in _UP}
        timing = self._market.timing
        deadline = time.monotonic() + 2 * (timing.token_period_ns + timing.release_delay_ns) / SECOND + _GRACE_S
        with _Progress(self._market, self._running) as progress:
            while not progress.has_reached(self._promised) and time.monotonic() < deadline:
                session.lab.check()
                session.nodes.hear()
                time.sleep(_LOOK_S)

    def verdict(self, report: LabReport, logs: Path) -> LabVerdict:
        """What journals and logs say, once all have ended."""
        return judge(
            self._market,
            report,
            logs,
            since_ns=self._since_ns,
            promised=self._promised,
            waited_for=self._running,
        )


class _Progress:
    """How far the journals have come while they are written."""

    def __init__(self, market: Market, running: Collection[str]) -> None:
        self._opened = ExitStack()
        self._sites = [self._cursor(market, plan.name) for plan in market.receivers if plan.name in running]
        self._followers = [
            self._cursor(market, plan.name) for plan in market.nodes if is_follower(plan) and plan.name in running
        ]
        self._numbers: list[dict[NodeId, int]] = [{} for _ in self._sites]
        """For each site, the highest number of each source."""

    def _cursor(self, market: Market, name: str) -> JournalCursor:
        return self._opened.enter_context(JournalCursor(journal_of(market, name), check=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def has_reached(self, promised: Sequence[Label]) -> bool:
        """Whether every site has released these messages, and every follower has got as far as the sites."""
        for cursor, numbers in zip(self._sites, self._numbers, strict=True):
            while blocks := cursor.read():
                for block in blocks:
                    _note(numbers, block.directory["source"], block.directory["number"])
        for cursor in self._followers:
            while cursor.read():
                pass
        # A source's messages are released in its order, so its last one speaks for all.
        last = {label.source: label.number for label in promised}
        released = all(numbers.get(source, 0) >= number for numbers in self._numbers for source, number in last.items())
        newest = max([cursor.next_sequence for cursor in self._sites], default=0)
        return released and all(cursor.next_sequence >= newest for cursor in self._followers)


def _note(numbers: dict[NodeId, int], sources: np.ndarray, found: np.ndarray) -> None:
    for source in np.unique(sources):
        highest = int(found[sources == source].max())
        numbers[int(source)] = max(numbers.get(int(source), 0), highest)
