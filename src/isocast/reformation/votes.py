"""What a NEWRING must prove before anybody installs it (§6; protocol §5, step 3).

A server proposes and members vote, so a server that lies, or somebody who stole its key, must not make a ring that no
majority voted for. NEWRING repeats the votes of a bare majority of U, each with its voter's signature: whoever is to
enter the ring checks that they are genuine, that they are enough, and that the cut is the greatest (e_acc, h) among
them. Two majorities share a site, so what a majority certified before is at or below that cut.

A ring that forces U shows the operator's order besides: nobody's votes but those of whom it names are asked for.

What the votes do not show of the log, U and the sequence after the cut, the log itself shows once it is complete
(`Reconciliation`).
"""

from __future__ import annotations

from collections.abc import Container

from isocast.ring.notary import Notary
from isocast.ring.orders import is_force_ordered
from isocast.ring.release import majority
from isocast.ring.settings import StartPolicy
from isocast.terms.ids import NodeId
from isocast.wire.packets import Join, NewRing, Vote
from isocast.wire.signing import SignedKind
from isocast.wire.statements import vote_of

__all__ = ["is_voted", "shown_votes"]


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
