"""When what a site lacks is gone, and how it comes by a checkpoint instead (protocol §5, §6).

A site that was away for longer than the others' logs reach back, or that was added later, cannot fetch token after
token. Whoever is asked for what it has let go says so (RXREP with `low_water` above the request). When all have said
it, or one of them for as long as k_r requests take, the driver is asked for a checkpoint of a log at a stable token.
What comes is believed only when the chain confirms it: the digest that the next token continues must be its own.

Why a site may vote with a log that it took over. A checkpoint is another site's `Ledger.floor`: released there, hence
certified, and held by every member of its ring. Any site may let everything up to its floor go, and votes with (e_acc,
h) all the same. After taking the checkpoint over, this site is in a state in which such a site could be, if three
things hold, and the machines see to them:

1. Its promise does not go back. `LogReplaced` raises it, or leaves it alone.
2. (e_acc, h) names a log that it holds. Either the checkpoint lies in the epoch that the site is in (e = e_acc = prom,
   so nothing was promised since), is linked to a token of that epoch, and is ahead of h. Or it is part of installing
   the ring of a ballot that the site has not promised against, in the same record as that ring: a crash leaves the
   old (e_acc, h) with the old log or the new pair with the new log, never one with the other.
3. What it receipted in an epoch it holds for as long as it is there: within an epoch h only rises.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.ring.effects import FetchCheckpoint
from isocast.ring.ledger import Checkpoint
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing
from isocast.wire.packets import Range, RangeReply, Token

__all__ = ["Rejoin", "continues"]


def continues(token: Token, checkpoint: Checkpoint) -> bool:
    """Whether a token is the one that follows a checkpoint: number, chain, sequence and each source's next number."""
    numbers = checkpoint.next_number
    return (
        token.token_number == checkpoint.token_number + 1
        and token.prev_digest == checkpoint.digest
        and token.first_sequence == checkpoint.next_sequence
        and all(run.first == numbers.get(run.source, 1) for run in token.runs)
    )


class Rejoin:
    """One site's search for a checkpoint: idle, wanting one, or waiting for the token that proves it."""

    def __init__(self, timing: Timing) -> None:
        """Nothing is gone."""
        self.wanting = False
        self.checkpoint: Checkpoint | None = None
        """What was fetched, while the chain has not confirmed it."""
        self.giver: NodeId = 0
        self.refused = 0
        """Checkpoints that were not believed."""
        self.next_at = NEVER
        self._retry_ns = timing.retry_ns
        self._attempts_max = timing.retries_max
        self._patience_ns = timing.retries_max * timing.retry_ns
        self._lacking = -1
        self._since = 0
        self._gone: dict[NodeId, None] = {}
        self._turn = 0
        self._attempts = 0

    @property
    def active(self) -> bool:
        """Whether ranges need not be asked for."""
        return self.wanting or self.checkpoint is not None

    def reset(self) -> None:
        """Something else helped, or a new ring begins."""
        self.wanting, self.checkpoint, self.next_at = False, None, NEVER
        self._gone.clear()

    def set_back(self, span_ns: int) -> None:
        """The clock was set back, and what waits goes with it."""
        self._since -= span_ns
        if self.next_at < NEVER:
            self.next_at -= span_ns

    def progressed(self, held: int) -> None:
        """The site holds everything up to here: perhaps it needs no checkpoint any more."""
        if (self.wanting and held >= self._lacking) or (
            self.checkpoint is not None and held >= self.checkpoint.token_number
        ):
            self.reset()

    def gone(self, reply: RangeReply, token_number: int, others: Sequence[NodeId], now: int) -> bool:
        """Note that a site no longer keeps a token; False if the answer does not say so."""
        if reply.kind is Range.SEQUENCES or not reply.first == token_number < reply.low_water:
            return False
        if token_number != self._lacking:
            self._lacking, self._since = token_number, now
            self._gone.clear()
        self._gone[reply.sender] = None
        late = not self._since <= now < self._since + self._patience_ns
        if not self.active and (late or all(site in self._gone for site in others)):
            self.want(now)
        return True

    def want(self, now: int) -> None:
        """Ask the driver, at once and then again and again."""
        self.wanting, self.checkpoint, self.next_at = True, None, now

    def due(self, candidates: Sequence[NodeId], above: int, now: int) -> FetchCheckpoint | None:
        """The wish, when it is time for it; each time another one is to be asked first."""
        if not self.wanting or now < self.next_at <= now + self._patience_ns or not candidates:
            return None
        self.next_at = now + self._patience_ns
        first = self._turn % len(candidates)
        self._turn += 1
        return FetchCheckpoint((*candidates[first:], *candidates[:first]), above)

    def consider(self, checkpoint: Checkpoint, giver: NodeId, now: int) -> None:
        """Wait for the token that follows the checkpoint."""
        self.wanting, self.checkpoint, self.giver = False, checkpoint, giver
        self._attempts, self.next_at = 0, now

    def ask_for_proof(self, now: int) -> bool:
        """Whether to ask for the token that follows now; a checkpoint that nobody continues is given up."""
        if self.checkpoint is None or now < self.next_at <= now + self._retry_ns:
            return False
        if self._attempts == self._attempts_max:
            self.refuse(now)
            return False
        self._attempts += 1
        self.next_at = now + self._retry_ns
        return True

    def refuse(self, now: int) -> None:
        """The chain does not confirm the checkpoint: ask another site for one, after a while."""
        self.refused += 1
        self.want(now + self._retry_ns)
