"""Several stripes as one sequence, ordered by (token instant, stripe, sequence): the same for everybody who hears them.

A message is handed on once nothing can come before it any more. Of a stripe that has something waiting, that is what
waits first. Of one that has not, it is told by its clock: a token of instant P that was released whole means that
everything up to P is here, and that the next token is at least a token period later. So nothing of an instant T is
shown before every stripe has passed T, and what was shown until then is the time cut at T.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import LocalProtocolError
from isocast.wire.packets import ReleasedPacket, short_digest_of

__all__ = ["MARKS_MAX", "MergedRun", "StripeClocks", "StripeCut", "StripeMerge"]


# A time cut across stripes: what existed at an instant, the same for all who ask (§4.4).
#
# A message exists from the instant of its token on. Instants are scheduled, and shared by all receivers, so the last
# sequence of a stripe at T is a fact that two receivers never see differently. It is known once the stripe's tokens
# have passed T: the token after the last one that was released comes at least a token period later, in any epoch.


MARKS_MAX = 1 << 20
"""Bounds: tokens with messages that are remembered for each stripe; twelve days of one a second."""

_NEVER = -(1 << 63)
_POSITION = Struct("<IQ")
_INSTANT = Struct("<q")


@dataclass(frozen=True, slots=True)
class StripeCut:
    """The last sequence of every stripe that existed at an instant; 0 for none."""

    instant: int
    last: tuple[tuple[int, int], ...]
    """(stripe, sequence), in the order of the stripes."""

    @property
    def digest(self) -> bytes:
        """16 bytes: two who compare cuts compare these."""
        return short_digest_of(_INSTANT.pack(self.instant), *[_POSITION.pack(*row) for row in self.last])

    def of(self, stripe: int) -> int:
        """The last sequence of one stripe."""
        return dict(self.last)[stripe]

    def existed(self, stripe: int, sequences: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Of some messages of a stripe, such as those of a narrow one's packets: which existed."""
        existed: npt.NDArray[np.bool_] = sequences <= np.uint64(self.of(stripe))
        return existed


@dataclass(slots=True)
class _Marks:
    instants: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    passed: int | None = None
    """The instant of the newest token."""
    whole: int = _NEVER
    """Everything up to this instant is known, whatever tokens were told of."""
    forgotten: bool = False


class StripeClocks:
    """The token instants of some stripes, as far as they are known."""

    def __init__(self, stripes: Iterable[int], token_period_ns: int, marks_max: int = MARKS_MAX) -> None:
        """Nothing is known; `token_period_ns` is the least distance of two tokens."""
        self._marks = {stripe: _Marks() for stripe in sorted(stripes)}
        self._period_ns = token_period_ns
        self._marks_max = marks_max

    def begin(self, stripe: int, next_sequence: int, instant: int) -> None:
        """A late joiner knows a stripe from here on: what came before is not told."""
        marks = self._marks[stripe]
        marks.instants, marks.sequences = [instant], [next_sequence - 1]
        marks.passed, marks.forgotten = instant, True

    def passed(self, stripe: int, instant: int, last_sequence: int) -> None:
        """A token was released whole: of this instant, and with this the stripe's last sequence; also an empty one."""
        marks = self._marks[stripe]
        if marks.passed is not None and instant <= marks.passed:
            if last_sequence != self._last(marks, instant):
                raise LocalProtocolError(f"stripe {stripe}: another sequence at the instant {instant} than before")
            return
        if marks.sequences and last_sequence < marks.sequences[-1]:
            raise LocalProtocolError(f"stripe {stripe}: sequence {last_sequence} after {marks.sequences[-1]}")
        marks.passed = instant
        if last_sequence > (marks.sequences[-1] if marks.sequences else 0):
            marks.instants.append(instant)
            marks.sequences.append(last_sequence)
            if len(marks.instants) > self._marks_max:
                half = len(marks.instants) // 2
                del marks.instants[:half], marks.sequences[:half]
                marks.forgotten = True

    def whole(self, stripe: int, instant: int) -> None:
        """Every token up to an instant was told of: the next one that is known of is later."""
        marks = self._marks[stripe]
        marks.whole = max(marks.whole, instant)

    def at(self, instant: int) -> StripeCut | None:
        """What existed at an instant; None while a stripe has not passed it yet.

        LocalProtocolError for an instant from before what is remembered.
        """
        rows = []
        for stripe, marks in self._marks.items():
            known = _NEVER if marks.passed is None else marks.passed + self._period_ns - 1
            if max(known, marks.whole) < instant:
                return None
            if marks.forgotten and instant < marks.instants[0]:
                raise LocalProtocolError(f"stripe {stripe}: nothing is remembered from before {marks.instants[0]}")
            rows.append((stripe, self._last(marks, instant)))
        return StripeCut(instant, tuple(rows))

    @staticmethod
    def _last(marks: _Marks, instant: int) -> int:
        place = bisect_right(marks.instants, instant)
        return marks.sequences[place - 1] if place else 0


_NEVER_PASSED = -(1 << 63)


class MergedRun(NamedTuple):
    """Consecutive messages of one stripe, at their place in the merged sequence."""

    stripe: int
    packets: tuple[ReleasedPacket, ...]


class StripeMerge:
    """What waits of each stripe, and how far each is."""

    def __init__(self, stripes: Iterable[int], token_period_ns: int) -> None:
        """Nothing has come; `token_period_ns` is the least distance of two tokens of a stripe."""
        self._waiting: dict[int, deque[ReleasedPacket]] = {stripe: deque() for stripe in sorted(stripes)}
        self._whole = dict.fromkeys(self._waiting, _NEVER_PASSED)
        """Of each stripe: everything up to this instant has come."""
        self._last: dict[int, ReleasedPacket] = {}
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

    def take(self, stripe: int, packets: Sequence[ReleasedPacket]) -> None:
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

    def cut(self, instant: int) -> StripeCut | None:
        """What existed at an instant; None while a stripe has not passed it."""
        return self._clocks.at(instant)
