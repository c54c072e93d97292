"""Watches a market from outside: asks every node for its status, follows every journal, and tells what is new.

It knows nothing that another machine could not know: what is served at /statusz and what is in the journals.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from isocast.runtime.disk.journal_reader import JournalCursor
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.watch.status import NodeStatus, StatusAnswer, node_target, poll
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.trials.demo.cast import Tone, actors
from isocast.trials.demo.floor_record import FloorRecord
from isocast.trials.demo.releases import Chunk, Releases
from isocast.trials.evidence import journal_of

__all__ = ["MarketWatch", "StatusLedger", "WatchedRing"]

_CHUNKS_SHOWN = 128
_REPAIRS_KEPT = 32
_SUSPICION = re.compile(r"(\S+) is suspected \((.+)\) at token (\d+)")
_NAMES_MOST = 2
_ANSWER_S = 1.5


@dataclass(frozen=True, slots=True)
class WatchedRing:
    """The newest ring that anybody told of, and its timetable."""

    epoch: str
    members: tuple[str, ...]
    first_token: int
    start: int
    period_ns: int

    @property
    def number(self) -> tuple[int, ...]:
        """Epochs compare by number, then by server."""
        return tuple([int(part) for part in self.epoch.split(".")])

    def token_at(self, now: int) -> int:
        """The newest token that is due; one less than the first before the ring begins."""
        return self.first_token + max((now - self.start) // self.period_ns, -1)

    def owner(self, token_number: int) -> str:
        """Who sends it."""
        return self.members[(token_number - self.first_token) % len(self.members)]

    def instant(self, token_number: int) -> int:
        """When it is due."""
        return self.start + (token_number - self.first_token) * self.period_ns


class MarketWatch:
    """What is known of a running market; `look` brings it up to date. To be used in a `with` block."""

    def __init__(self, market: Market, note: Callable[[Tone, str], None]) -> None:
        """`note` hears what is worth a line."""
        self.market = market
        self.ledger = StatusLedger()
        self.answers: dict[str, StatusAnswer] = {}
        self.rings: dict[str, WatchedRing] = {}
        """Every ring that was seen, by its epoch."""
        self.releases = Releases(market)
        self.floor = FloorRecord(market.floors[0].code) if market.floors else None
        """The market's trading floor, if it has one."""
        self.recent: deque[Chunk] = deque(maxlen=_CHUNKS_SHOWN)
        """The newest tokens that every place has released."""
        self.losses: dict[str, int] = {}
        """When somebody was last seen to have lost packets, by the system clock."""
        self.repairs: deque[tuple[int, str, str]] = deque(maxlen=_REPAIRS_KEPT)
        """Lately: when repairs were seen, from whom and to whom."""
        self._note = note
        self._targets = [node_target(market, plan) for plan in actors(market) if plan.http_port]
        self._cursors: dict[str, JournalCursor] = {}
        self._stack = ExitStack()
        self._told: dict[object, None] = {}
        self._repaired = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # Asked of it ----------------------------------------------------------------------------------

    @property
    def ring(self) -> WatchedRing | None:
        """The newest."""
        return max(self.rings.values(), key=lambda ring: ring.number, default=None)

    def status(self, name: str) -> NodeStatus | None:
        """What a node says now; None when it does not answer."""
        answer = self.answers.get(name)
        return None if answer is None else answer.status

    def next_sequence(self, plan: NodePlan) -> int | None:
        """How far a node has come in the sequence, if it says so."""
        status = self.status(plan.name)
        return None if status is None else status.gauges.next_sequence

    def is_whole(self) -> bool:
        """Whether every primary receiver is ready and on one ring with all others."""
        names = {plan.name for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER)}
        found = [self.status(name) for name in names]
        rings = {(s.gauges.epoch, s.gauges.ring) for s in found if s is not None and s.ready}
        return all(s is not None and s.ready for s in found) and len(rings) == 1 and set(rings.pop()[1] or ()) == names

    def title(self, name: str) -> str:
        """A node as people call it: by its city if it is a receiver."""
        plan = self.market.by_name.get(name)
        return plan.place.name if plan is not None and plan.role.is_receiver and plan.place else name

    # Looking --------------------------------------------------------------------------------------

    async def look(self, seconds: float = _ANSWER_S) -> None:
        """Ask everybody and read what was appended to the journals."""
        for answer in await poll(self._targets, seconds=seconds):
            self.answers[answer.target.name] = answer
            if answer.status is not None:
                self._see_packets(answer.status)
                self.ledger.enter(answer.status)
                self._see_ring(answer.status)
                self._see_alarms(answer.status)
        self._see_repairs()
        self.follow_journals()

    def follow_journals(self) -> None:
        """Read what the receivers have released since the last look."""
        for plan in self.market.receivers:
            cursor = self._cursor(plan.name, journal_of(self.market, plan.name))
            for block in cursor.read():
                chunk = self.releases.add(plan.name, block)
                if self.floor is not None:
                    self.floor.take(block)
                if len(chunk.released) == len(self.market.receivers):
                    self._see_release(chunk)

    def _cursor(self, name: str, where: Path) -> JournalCursor:
        cursor = self._cursors.get(name)
        if cursor is None:
            cursor = self._cursors[name] = self._stack.enter_context(JournalCursor(where))
        return cursor

    def _see_ring(self, status: NodeStatus) -> None:
        gauges = status.gauges
        if not (gauges.epoch and gauges.ring and gauges.ring_start_ns) or gauges.epoch in self.rings:
            return
        ring = WatchedRing(
            gauges.epoch,
            gauges.ring,
            gauges.ring_first_token or 0,
            gauges.ring_start_ns,
            self.market.timing.token_period_ns,
        )
        first = not self.rings
        newest = self.ring
        self.rings[ring.epoch] = ring
        if newest is not None and ring.number < newest.number:
            return
        primaries = [plan.name for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER)]
        away = [self.title(name) for name in primaries if name not in ring.members]
        missing = " and ".join(away) if len(away) <= _NAMES_MOST else f"{len(away)} of them"
        who = f"{len(ring.members)} without {missing}" if away else f"all {len(ring.members)} cities"
        self._note(Tone.RING, f"The ring {'forms' if first else 're-forms'}, epoch {ring.epoch}: {who}")

    def _see_packets(self, status: NodeStatus) -> None:
        """Losses and repairs since the last look; who is asked is always the owner, or a secondary's parent."""
        before = self.ledger.newest(status.name)
        if before is None or before.pid != status.pid:
            return
        if status.totals.get("injected_losses_total", 0) > before.totals.get("injected_losses_total", 0):
            self.losses[status.name] = status.at_ns
        ring, plan = self.ring, self.market.by_name.get(status.name)
        if ring is None or plan is None or not plan.role.is_receiver:
            return
        if status.totals.get("repairs_received_total", 0) > before.totals.get("repairs_received_total", 0):
            giver = plan.parent or ring.owner(ring.token_at(status.at_ns))
            self.repairs.append((status.at_ns, giver, status.name))

    def _see_alarms(self, status: NodeStatus) -> None:
        for alarm in status.alarms:
            said = (alarm.code, alarm.text) if alarm.code.startswith("suspect-") else (status.name, alarm.code)
            if said not in self._told:
                self._told[said] = None
                self._note(Tone.TROUBLE, self._alarm_text(status.name, alarm.text))

    def _alarm_text(self, name: str, text: str) -> str:
        """Suspicions in fewer words than a log needs."""
        found = _SUSPICION.fullmatch(text)
        if found is None:
            return f"{self.title(name)}: {text}"
        suspect, reason, token = found.groups()
        if suspect == name:
            return f"{self.title(name)} cannot send token {token}: {reason}"
        return f"{self.title(name)} suspects {self.title(suspect)}: token {token} {reason}"

    def _see_repairs(self) -> None:
        lost, repairs = self.ledger.total("injected_losses_total"), self.ledger.total("repairs_received_total")
        if repairs > self._repaired[1]:
            news = f"{counted(lost - self._repaired[0], 'packet')} lost, {repairs - self._repaired[1]} repaired"
            self._note(Tone.REPAIR, news)
            self._repaired = (lost, repairs)

    def _see_release(self, chunk: Chunk) -> None:
        self.recent.append(chunk)
        text = f"Token {chunk.token_number}: {counted(chunk.messages, 'message')} out in {len(chunk.released)} cities"
        self._note(Tone.TOKEN, f"{text} within {_span(chunk.skew_ns)}")


def _span(span_ns: int) -> str:
    return f"{span_ns / 1e6:.1f} ms" if span_ns < SECOND else f"{span_ns / SECOND:.1f} s"


# ---- what nodes say of themselves, over all their lives


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
