"""The packets of suspicion and reformation (protocol §5), as values: SUSPECT, INVITE, REFUSE, JOIN and NEWRING."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from isocast.terms.ids import Epoch, NodeId

__all__ = ["Invite", "Join", "NewRing", "NextNumber", "Refuse", "Suspect", "Suspicion"]


class Suspicion(StrEnum):
    """Why a site asks for attention."""

    UNRECOVERED = "unrecovered"
    """k_r requests for a token or its messages stayed unanswered."""
    NO_RECEIPTS = "no-receipts"
    """A member sent no receipt for two tokens."""
    BEHIND = "behind"
    """The sender is the owner, and does not hold everything before its token."""
    LATE = "late"
    """The sender is the owner, and its clock is past T_t+P."""
    CLOCK = "clock"
    """A token came before its instant: somebody's clock is out of its bound."""
    SEALED = "sealed"
    """The sender promised a ballot whose server went silent."""
    OUTSIDE = "outside"
    """The sender is healthy, complete, of U, and not on the ring."""
    LOST = "lost"
    """The sender knows no ring that is alive."""
    STRANDED = "stranded"
    """The sender knows the new ring, and nobody gives it what the ring begins with."""
    LEAVING = "leaving"
    """The suspect is on the ring and shall not be: it drains, or U has it no more."""


class Suspect(NamedTuple):
    """SUSPECT: informs the reformation servers; nobody seals because of it."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    suspect: NodeId
    reason: Suspicion
    promised: Epoch


class Invite(NamedTuple):
    """INVITE: a server's ballot. At the current epoch it is a probe, answered by REFUSE."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch


class Refuse(NamedTuple):
    """REFUSE: the sender has promised `promised` already; `held` lets a probe see that it is alive and how far."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    promised: Epoch
    held: int


class NextNumber(NamedTuple):
    """nextM of one source."""

    source: NodeId
    number: int


class Join(NamedTuple):
    """JOIN: a promise for `ballot`, and what the member brings.

    (`epoch`, `held`) is (e_acc, h); `instant` and `next_sequence` belong to token h; `now` is what the sender's clock
    shows; `universe` is U as of h; `next_numbers` covers the sources of the tokens that are not stable yet. Who is
    `leaving` votes, and wants no place on the ring.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    held: int
    digest: bytes
    instant: int
    next_sequence: int
    now: int
    heard: tuple[NodeId, ...]
    commit: bytes
    universe: tuple[NodeId, ...]
    next_numbers: tuple[NextNumber, ...]
    leaving: bool = False


class NewRing(NamedTuple):
    """NEWRING: the ring of epoch `ballot`, from token `first_token` at instant `start` on.

    cut = (`cut_epoch`, `cut_token`, `cut_digest`); `holders` hold the cut; `commits` belong to `ring`
    position by position. A source that `next_numbers` does not name resends all it holds. An `uncertified` ring was
    started without a majority of U, as the policy `availability` allows; a `forced` one by an operator's word, and
    `universe` is U from its first token on.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    ring: tuple[NodeId, ...]
    first_token: int
    first_sequence: int
    start: int
    cut_epoch: Epoch
    cut_token: int
    cut_digest: bytes
    holders: tuple[NodeId, ...]
    commits: tuple[bytes, ...]
    universe: tuple[NodeId, ...]
    next_numbers: tuple[NextNumber, ...]
    uncertified: bool = False
    forced: bool = False
