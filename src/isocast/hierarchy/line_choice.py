"""Which line a customer follows, and whether anything can come by it (§4.1; protocol §7).

Every line is heard all the time and the first copy of a message counts, so nothing has to be done when a line fails.
But people want to know on whom they rely: the followed line is the first of the customer's own list that speaks and is
not late.

A quiet market and a dead one sound alike, but for the heartbeats. They say which token a receiver holds: while the ring
turns, tokens come whether or not anybody publishes. If heartbeats come and tokens do not, the ring is being re-formed;
if no heartbeat comes, nobody is there, or nothing arrives here.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.hierarchy.customer_settings import CustomerSettings
from isocast.hierarchy.edge import CustomerEffect, LineSwitched, MarketGoesOn, MarketWaits, Waiting
from isocast.hierarchy.lines import Line
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER

__all__ = ["LineChoice"]


class LineChoice:
    """Looks at the lines once for each heartbeat."""

    def __init__(self, settings: CustomerSettings, main: Sequence[Line]) -> None:
        """Nobody was heard yet; `main` are the receivers' lines, the preferred first."""
        self.followed: NodeId | None = None
        self.switches = 0
        """Times that another line was followed than before, the first choice apart."""
        self.waiting: Waiting | None = None
        self.waiting_since = 0
        self._main = main
        self._ring_ns = settings.ring_ns
        self._newest: tuple[Epoch, int] = (NO_EPOCH, 0)
        self._moved_at: int | None = None
        self._last: NodeId | None = None

    def tick(self, now: int) -> list[CustomerEffect]:
        """What has changed; after the lines have been looked at."""
        if self._moved_at is None or now < self._moved_at:
            self._moved_at = now
        speaking = [line for line in self._main if line.heard_at > -NEVER and not line.silent]
        told = self._choose(speaking)
        newest = max([line.held for line in self._main])
        if newest > self._newest:
            self._newest, self._moved_at = newest, now
        if all(line.silent for line in self._main):
            heard_at = max([min(line.heard_at, now) for line in self._main])
            self._wait(Waiting.SILENT, max(heard_at, 0), told)
        elif self._newest > (NO_EPOCH, 0) and now - self._moved_at > self._ring_ns:
            self._wait(Waiting.REFORMING, self._moved_at, told)
        elif speaking and self.waiting is not None:
            told.append(MarketGoesOn(self.waiting, max(now - self.waiting_since, 0) if self.waiting_since else 0))
            self.waiting, self.waiting_since = None, 0
        return told

    def slept(self, now: int) -> None:
        """The reader did not run until now: that no token came meanwhile says nothing of the ring."""
        self._moved_at = now

    def _choose(self, speaking: Sequence[Line]) -> list[CustomerEffect]:
        timely = [line for line in speaking if not line.late] or speaking
        chosen = timely[0].owner if timely else None
        if chosen == self.followed:
            return []
        self.followed = chosen
        if chosen is None or chosen == self._last:
            # Nobody speaks, or the same one does again: there is nobody else to follow.
            return []
        before, self._last = self._last, chosen
        self.switches += before is not None
        return [LineSwitched(chosen, before)]

    def _wait(self, reason: Waiting, since: int, told: list[CustomerEffect]) -> None:
        if reason is not self.waiting:
            self.waiting, self.waiting_since = reason, since
            told.append(MarketWaits(reason, since))
