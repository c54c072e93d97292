"""Several stripes as one sequence, ordered by (token instant, stripe, sequence): the same for everybody who hears them.

A message is handed on once nothing can come before it any more. Of a stripe that has something waiting, that is what
waits first. Of one that has not, it is told by its clock: a token of instant P that was released whole means that
everything up to P is here, and that the next token is at least a token period later. So nothing of an instant T is
shown before every stripe has passed T, and what was shown until then is the time cut at T.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from isocast.striping.cut import Cut, StripeClocks
from isocast.terms.errors import LocalProtocolError
from isocast.wire.packets import Released

__all__ = ["MergedRun", "StripeMerge"]

_NEVER_PASSED = -(1 << 63)


class MergedRun(NamedTuple):
    """Consecutive messages of one stripe, at their place in the merged sequence."""

    stripe: int
    packets: tuple[Released, ...]


class StripeMerge:
    """What waits of each stripe, and how far each is."""

    def __init__(self, stripes: Iterable[int], token_period_ns: int) -> None:
        """Nothing has come; `token_period_ns` is the least distance of two tokens of a stripe."""
        self._waiting: dict[int, deque[Released]] = {stripe: deque() for stripe in sorted(stripes)}
        self._whole = dict.fromkeys(self._waiting, _NEVER_PASSED)
        """Of each stripe: everything up to this instant has come."""
        self._last: dict[int, Released] = {}
        self._shown = (_NEVER_PASSED, -1)
        self._period_ns = token_period_ns
        self._clocks = StripeClocks(self._waiting, token_period_ns)
        self.disordered = 0
        """Messages that came behind their place, because a line said of its tokens what was not so."""

    @property
    def stripes(self) -> tuple[int, ...]:
        """Which are merged."""
        return tuple(self._waiting)

    def wants(self, stripe: int) -> bool:
        """Whether more of a stripe is needed to go on."""
        return not self._waiting[stripe]

    def take(self, stripe: int, packets: Sequence[Released]) -> None:
        """The messages that follow those before."""
        if not packets:
            return
        self._waiting[stripe].extend(packets)
        before = self._last.get(stripe)
        if before is None and packets[0].sequence > 1:
            self._clocks.begin(stripe, packets[0].sequence, packets[0].instant - 1)
        for packet in packets:
            if before is not None and packet.instant > before.instant:
                self._note(stripe, before.instant, before.sequence)
            before = packet
        self._last[stripe] = packets[-1]
        self._whole[stripe] = max(self._whole[stripe], packets[-1].instant - 1)
        self._clocks.whole(stripe, packets[-1].instant - 1)

    def passed(self, stripe: int, instant: int, next_sequence: int) -> None:
        """Everything of tokens up to an instant was taken, which is all before `next_sequence`."""
        last = self._last.get(stripe)
        if last is not None and last.instant <= instant:
            # Its token is whole too, and it existed from that on.
            self._note(stripe, last.instant, last.sequence)
        self._note(stripe, instant, next_sequence - 1)
        self._whole[stripe] = max(self._whole[stripe], instant + self._period_ns - 1)

    def _note(self, stripe: int, instant: int, last_sequence: int) -> None:
        try:
            self._clocks.passed(stripe, instant, last_sequence)
        except LocalProtocolError:
            self.disordered += 1

    def ready(self) -> MergedRun | None:
        """The next messages of one stripe whose place is certain; None while a stripe must be waited for."""
        first = self._first()
        if first is None or not self._is_certain(*first):
            return None
        stripe = first[1]
        limit = self._limit(stripe)
        waiting, run = self._waiting[stripe], []
        while waiting and (waiting[0].instant, stripe) <= limit:
            run.append(waiting.popleft())
        if (run[0].instant, stripe) < self._shown:
            self.disordered += len(run)
        self._shown = max(self._shown, (run[-1].instant, stripe))
        return MergedRun(stripe, tuple(run))

    def _first(self) -> tuple[int, int] | None:
        return min([(waiting[0].instant, stripe) for stripe, waiting in self._waiting.items() if waiting], default=None)

    def _is_certain(self, instant: int, stripe: int) -> bool:
        return all(
            waiting or self._whole[other] >= instant - (other > stripe)
            for other, waiting in self._waiting.items()
            if other != stripe
        )

    def _limit(self, stripe: int) -> tuple[int, int]:
        """Up to which (instant, stripe) messages of a stripe come before everything of the others."""
        limits = []
        for other, waiting in self._waiting.items():
            if other != stripe:
                end = waiting[0].instant - (other < stripe) if waiting else self._whole[other] + (other > stripe)
                limits.append((end, stripe))
        return min(limits, default=(1 << 63, stripe))

    @property
    def awaited(self) -> tuple[int, ...]:
        """The stripes for which others wait; none while nothing waits."""
        first = self._first()
        if first is None:
            return ()
        instant, stripe = first
        return tuple(
            other
            for other, waiting in self._waiting.items()
            if other != stripe and not waiting and self._whole[other] < instant - (other > stripe)
        )

    def cut(self, instant: int) -> Cut | None:
        """What existed at an instant; None while a stripe has not passed it."""
        return self._clocks.at(instant)
