"""What a program hears of several stripes: merged into one sequence, or each as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

from isocast.hierarchy.customer_settings import Grade
from isocast.runtime.client.received import ReceivedBatch, batch_of
from isocast.runtime.client.stripe_seat import StripeSeat
from isocast.striping.cut import Cut
from isocast.striping.merging import StripeMerge
from isocast.striping.routing import heard_once
from isocast.terms.errors import IsocastError
from isocast.terms.instants import SECOND
from isocast.terms.timing import Timing

__all__ = ["HeardStripes"]

_PATIENCE_S = 2.0
_PATIENCE_PERIODS = 4
"""A stripe that holds the others back for longer than these is named."""


class HeardStripes:
    """Reads the inboxes of some seats in the order that is wanted."""

    def __init__(
        self, seats: Sequence[StripeSeat], timing: Timing, *, merged: bool, told: Callable[[str], None]
    ) -> None:
        """Merged are complete services of more than one stripe only: the newest price waits for nobody."""
        self._seats = {seat.plan.stripe: seat for seat in seats}
        complete = all(seat.host.grade is Grade.COMPLETE for seat in seats)
        several = len(seats) > 1
        self._merge = StripeMerge(self._seats, timing.token_period_ns) if merged and several and complete else None
        self._delay_ns = timing.release_delay_ns
        self._told = told
        self._patience_s = max(_PATIENCE_S, _PATIENCE_PERIODS * timing.token_period_ns / SECOND)
        self._waits_since: float | None = None
        self._named: tuple[int, ...] = ()
        self._disordered = 0
        self._came = 0
        self._turn = list(self._seats)

    @property
    def is_merged(self) -> bool:
        """Whether all stripes come as one sequence."""
        return self._merge is not None

    def cut(self, instant: int) -> Cut | None:
        """What existed at an instant; None while a stripe has not passed it. Only of merged stripes."""
        if self._merge is None:
            raise IsocastError("a time cut is of merged stripes: listen to two or more of them, completely")
        return self._merge.cut(instant)

    def next(self) -> ReceivedBatch | None:
        """The next batch; None while there is none that may be shown."""
        if self._merge is not None:
            return self._next_merged(self._merge)
        for stripe in self._turn:
            seat = self._seats[stripe]
            if seat.inbox:
                # The others have their turn first the next time.
                self._turn.remove(stripe)
                self._turn.append(stripe)
                batch = seat.inbox.pop()
                seat.catch_up()
                return self._once(batch)
        return None

    def _next_merged(self, merge: StripeMerge) -> ReceivedBatch | None:
        for stripe, seat in self._seats.items():
            while merge.wants(stripe):
                popped = seat.inbox.pop_messages()
                if popped is not None:
                    packets, self._came = popped
                    merge.take(stripe, packets)
                    seat.catch_up()
                elif seat.inbox:
                    return seat.inbox.pop()  # A snapshot, which what follows continues.
                else:
                    passed, seat.inbox.passed = seat.inbox.passed, None
                    if passed is not None:
                        merge.passed(stripe, passed.instant, passed.next_sequence)
                    break
        run = merge.ready()
        if merge.disordered > self._disordered:
            self._disordered = merge.disordered
            self._told("a line told of its tokens what is not so: the merged sequence may differ from others'")
        if run is None:
            return None
        self._goes_on()
        return self._once(batch_of(run.packets, self._delay_ns, self._came))

    def _once(self, batch: ReceivedBatch) -> ReceivedBatch:
        """Without copies of what another stripe that is heard has too."""
        kept = heard_once(batch.events, batch.stripe, self._seats.keys())
        if kept is None:
            return batch
        return replace(batch, events=batch.events[kept], sequences=batch.sequences[kept], instants=batch.instants[kept])

    # A stripe that is late ----------------------------------------------------------------------

    async def wait(self, news: asyncio.Event) -> None:
        """Until something comes; names the stripe for which the others have waited too long."""
        awaited = self._merge.awaited if self._merge is not None else ()
        if not awaited or self._named == awaited:
            await news.wait()
            return
        self._waits_since = monotonic() if self._waits_since is None else self._waits_since
        left = self._waits_since + self._patience_s - monotonic()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                await news.wait()
        except TimeoutError:
            self._named = awaited
            names = ", ".join(map(str, awaited))
            self._told(
                f"stripe {names} is late by {self._patience_s:.1f} s: what the other stripes have waits for it"
                " (listen unmerged to have it as it comes)"
            )

    def _goes_on(self) -> None:
        if self._named:
            names = ", ".join(map(str, self._named))
            self._told(f"stripe {names} is back after {monotonic() - (self._waits_since or monotonic()):.1f} s")
        self._waits_since, self._named = None, ()
