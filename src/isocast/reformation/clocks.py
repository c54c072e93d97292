"""Whose clock is right, as far as the votes of one ballot tell (protocol §5, step 3).

Nobody's clock decides alone when a ring begins: neither the server's nor any member's. A vote says what its sender's
clock showed. It was cast after the server's first invitation, s0, and before it came, s1, so a clock that showed v is
ahead of the server's by v-s1 at least and by v-s0 at most, however long packets travelled. Of all voters the median of
the lower bounds and that of the upper bounds enclose the truth, within ε, as long as most of the voters' clocks do;
whatever lies outside by more than 2ε is wrong, be it a voter's clock or the server's own.
"""

from __future__ import annotations

from typing import NamedTuple

from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.wire.packets import Join

__all__ = ["Span", "VotedClocks"]


class Span(NamedTuple):
    """How far one clock is ahead of the server's, at least and at most."""

    low: int
    high: int


class VotedClocks:
    """What the votes of one ballot say of clocks."""

    def __init__(self, ballot: Epoch = NO_EPOCH, invited_at: int = 0, error_ns: int = 0) -> None:
        """Nobody has voted since the invitation, which nobody heard before `invited_at`; `error_ns` is ε."""
        self.ballot = ballot
        self._invited_at = invited_at
        self._slack_ns = 2 * error_ns
        self._spans: dict[NodeId, Span] = {}

    def hear(self, vote: Join, now: int) -> None:
        """A vote came; the first of a voter says most of how far it may be ahead, the quickest of how far it must."""
        found = Span(vote.now - now, vote.now - self._invited_at)
        known = self._spans.get(vote.sender, found)
        self._spans[vote.sender] = Span(max(found.low, known.low), min(found.high, known.high))

    def set_back(self, span_ns: int) -> None:
        """The server's clock was set back: everybody is ahead of it by so much more."""
        self._invited_at -= span_ns
        self._spans = {site: Span(low + span_ns, high + span_ns) for site, (low, high) in self._spans.items()}

    def most(self) -> Span:
        """Where the clocks of most voters are, 2ε allowed; everywhere while nobody has voted is where the server is."""
        spans = self._spans.values()
        if not spans:
            return Span(0, 0)
        low = sorted([span.low for span in spans])[(len(spans) - 1) // 2]
        high = sorted([span.high for span in spans])[len(spans) // 2]
        return Span(low - self._slack_ns, high + self._slack_ns)

    def ahead_ns(self) -> int:
        """By how much most voters' clocks are ahead of the server's; 0 if it may be one of them."""
        most = self.most()
        return max(most.low, min(most.high, 0))

    def wrong(self) -> tuple[NodeId, ...]:
        """Voters whose clocks cannot be right if most are."""
        most = self.most()
        return tuple([site for site, (low, high) in self._spans.items() if low > most.high or high < most.low])
