"""A time cut across stripes: what existed at an instant, the same for all who ask (§4.4).

A message exists from the instant of its token on. Instants are scheduled, and shared by all receivers, so the last
sequence of a stripe at T is a fact that two receivers never see differently. It is known once the stripe's tokens have
passed T: the token after the last one that was released comes at least a token period later, in any epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import LocalProtocolError
from isocast.wire.packets import digest_of

__all__ = ["MARKS_MAX", "Cut", "StripeClocks"]

MARKS_MAX = 1 << 20
"""Bounds: tokens with messages that are remembered for each stripe; twelve days of one a second."""

_NEVER = -(1 << 63)
_POSITION = Struct("<IQ")
_INSTANT = Struct("<q")


@dataclass(frozen=True, slots=True)
class Cut:
    """The last sequence of every stripe that existed at an instant; 0 for none."""

    instant: int
    last: tuple[tuple[int, int], ...]
    """(stripe, sequence), in the order of the stripes."""

    @property
    def digest(self) -> bytes:
        """16 bytes: two who compare cuts compare these."""
        return digest_of(_INSTANT.pack(self.instant), *[_POSITION.pack(*row) for row in self.last])

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
        """Somebody who joins late knows a stripe from here on: what came before is not told."""
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

    def at(self, instant: int) -> Cut | None:
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
        return Cut(instant, tuple(rows))

    @staticmethod
    def _last(marks: _Marks, instant: int) -> int:
        place = bisect_right(marks.instants, instant)
        return marks.sequences[place - 1] if place else 0
