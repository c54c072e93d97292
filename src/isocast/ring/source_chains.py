"""Signed statements of sources, as a receiver hears them (§6): few verifications, whatever is sent and however often.

A statement decides nothing here, and no release waits for it: it goes into the journal. Each covers all before it, so
not every one has to be verified:

1. Of one source one statement is taken in a token period; where there are many sources, in so long that all of them
   together take a twentieth of a processor, but in no more than 16 token periods. A source repeats its newest as often.
2. Whoever holds a source's tag key, as every receiver does, can send statements that cost a verification each. In that
   time at most four are verified for a source; the rest is dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ring.notary import Notary
from isocast.ring.source import REPEATS_MAX
from isocast.terms.ids import NodeId, is_source, without_incarnation
from isocast.wire.limits import MAX_NEXT_NUMBERS
from isocast.wire.packets import SourceChain
from isocast.wire.signing import SignedKind

__all__ = ["CHAINS_VERIFIED", "SourceChains"]

CHAINS_VERIFIED = 4
"""Until one is genuine."""
_SHARE_NS = 2_500_000
"""For each source: 20 times what a verification takes."""


@dataclass(slots=True)
class _Turn:
    """A source's share of the time."""

    begins: int
    tries: int = 0
    is_over: bool = False
    """Whether its statement was taken."""


class SourceChains:
    """The newest statement of each source, in its newest incarnation."""

    def __init__(self, notary: Notary, token_period_ns: int) -> None:
        """Nothing was heard."""
        self._notary = notary
        self._period_ns = token_period_ns
        self._newest: dict[NodeId, SourceChain] = {}
        """Of sources that have a key, as all of these are signed."""
        self._turns: dict[NodeId, _Turn] = {}

    def is_news(self, said: SourceChain, now: int) -> bool:
        """Whether a source signed this, nothing of as much was heard of it before, and it is its turn."""
        source = without_incarnation(said.sender)
        if not self._notary.verifies or not is_source(said.sender):
            return False
        known = self._newest.get(source)
        if known is not None and (said.sender, said.number) <= (known.sender, known.number):
            return False
        turn = self._turn(source, now)
        if turn.is_over:
            return False
        if turn.tries >= CHAINS_VERIFIED:
            self._notary.refuse(SignedKind.SOURCE_CHAIN)
            return False
        turn.tries += 1
        if not self._notary.is_genuine(said):
            return False
        turn.is_over = True
        self._newest[source] = said
        return True

    def _turn(self, source: NodeId, now: int) -> _Turn:
        turn = self._turns.get(source)
        # A little shorter than a token period, as packets come a little sooner or later; a clock may be set back.
        length = max(self._period_ns * 3 // 4, min(len(self._newest) * _SHARE_NS, REPEATS_MAX * self._period_ns))
        if turn is None or not turn.begins <= now < turn.begins + length:
            self._turns.pop(source, None)
            turn = self._turns[source] = _Turn(now)
            if len(self._turns) > MAX_NEXT_NUMBERS:
                # Only in a network without tags do strangers come so far.
                del self._turns[next(iter(self._turns))]
        return turn
