"""What votes prove: that a NEWRING may be installed, and whose clock is right (§6; protocol §5, step 3).

A server proposes and members vote, so a server that lies, or somebody who stole its key, must not make a ring that no
majority voted for. NEWRING repeats the votes of a bare majority of U, each with its voter's signature: a site that is
to enter the ring checks that they are genuine, that they are enough, and that the cut is the greatest (e_acc, h) among
them. Two majorities share a site, so what a majority certified before is at or below that cut.

A ring that forces U shows the operator's order besides: only the sites that it names are asked for votes.

What the votes do not show of the log, U and the sequence after the cut, the log itself shows once it is complete
(`Reconciliation`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from isocast.ring.notary import Notary
from isocast.ring.orders import is_force_ordered
from isocast.ring.release import majority
from isocast.ring.settings import StartPolicy
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.wire.packets import Join, NewRing, Vote
from isocast.wire.signing import SignedKind
from isocast.wire.statements import vote_of

__all__ = ["Span", "VotedClocks", "is_voted", "shown_votes"]


def shown_votes(best: Join, voters: list[Join], ring: tuple[NodeId, ...], count: int) -> tuple[Vote, ...]:
    """What a NEWRING repeats: the greatest vote, and so many of those with a place on the ring, then of others.

    Whoever members know to lie has no place, since they do not hear it: its vote is not among those that count.
    """
    placed = sorted(voters, key=lambda vote: vote.sender not in ring)
    chosen = {vote.sender: vote for vote in (*placed[:count], best)}
    return tuple([vote_of(vote) for vote in chosen.values()])


def is_voted(ring: NewRing, notary: Notary, policy: StartPolicy, convicted: Container[NodeId] = ()) -> bool:
    """Whether its server made this ring, and the votes that it shows allow it; counted if not.

    Votes of the `convicted` count for nothing.
    """
    if not notary.verifies:
        return True
    if ring.sender != ring.ballot.server or not _adds_up(ring, policy, convicted):
        notary.refuse(SignedKind.NEWRING)
        return False
    voted = notary.is_genuine(ring) and all(notary.is_vote(vote, ring.ballot, ring.stripe) for vote in ring.votes)
    return voted and is_force_ordered(ring, notary)


def _adds_up(ring: NewRing, policy: StartPolicy, convicted: Container[NodeId]) -> bool:
    """What needs no key to see: enough votes of U, and the cut and the first token that follow from them."""
    universe = frozenset(ring.universe)
    votes = [vote for vote in ring.votes if vote.site not in convicted]
    if ring.uncertified and policy is not StartPolicy.AVAILABILITY:
        return False
    needed = 1 if ring.uncertified else majority(ring.universe)
    if len(votes) < needed or any(vote.site not in universe for vote in ring.votes):
        return False
    greatest = max([(vote.epoch, vote.held) for vote in ring.votes])
    cut = (ring.cut_epoch, ring.cut_token, ring.cut_digest)
    shown = [(vote.epoch, vote.held, vote.digest) for vote in ring.votes]
    return cut in shown and (ring.cut_epoch, ring.cut_token) == greatest and ring.first_token == ring.cut_token + 1


# Whose clock is right, as far as the votes of one ballot tell (protocol §5, step 3).
#
# Nobody's clock decides alone when a ring begins: neither the server's nor any member's. A vote says what its sender's
# clock showed. It was cast after the server's first invitation, s0, and before it came, s1, so a clock that showed v is
# ahead of the server's by v-s1 at least and by v-s0 at most, however long packets travelled. Of all voters the median
# of the lower bounds and that of the upper bounds enclose the truth, within ε, as long as most of the voters' clocks
# do; whatever lies outside by more than 2ε is wrong, be it a voter's clock or the server's own.


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
