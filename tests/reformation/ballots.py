"""Votes and invitations as members and servers would send them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.ring.makers import EPOCH, NEXT_EPOCH, SERVER, T

from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.wire.packets import NO_DIGEST, Invite, Join, Packet, Refuse, Suspect, Suspicion, digest_of, short_digest_of

__all__ = ["cast", "invite", "join", "refuse", "suspect", "votes"]


def invite(ballot: Epoch = NEXT_EPOCH, *, epoch: Epoch = EPOCH) -> Invite:
    """A ballot of its server."""
    return Invite(0, epoch, ballot.server or SERVER, ballot)


def join(
    site: NodeId,
    held: int,
    epoch: Epoch = EPOCH,
    *,
    ballot: Epoch = NEXT_EPOCH,
    heard: tuple[NodeId, ...] | None = None,
    universe: tuple[NodeId, ...] = (1, 2, 3),
    now: int = 0,
) -> Join:
    """A vote of a site that holds so much in an epoch and, unless told otherwise, hears everybody.

    Without `now`, `cast` says what its sender's clock shows: the same as the server's.
    """
    others = tuple([other for other in universe if other != site]) if heard is None else heard
    digest = digest_of(f"{epoch} {held}".encode()) if held else NO_DIGEST
    instant = T(held) if held else 0
    return Join(
        0, epoch if held else NO_EPOCH, site, ballot, held, digest, instant, held + 1, now, others,
        short_digest_of(b"commit", site.to_bytes(8)), universe, (),
    )  # fmt: skip


def cast(packets: Sequence[Packet], now: int) -> list[Packet]:
    """Packets as they come; a vote that does not say otherwise was cast just now."""
    return [packet._replace(now=now) if isinstance(packet, Join) and not packet.now else packet for packet in packets]


def votes(*cast: Join) -> dict[NodeId, Join]:
    """Votes by site."""
    return {vote.sender: vote for vote in cast}


def refuse(site: NodeId, ballot: Epoch, promised: Epoch, held: int = 0) -> Refuse:
    """A member's answer to an invitation that comes too late, or to a probe."""
    return Refuse(0, promised, site, ballot, promised, held)


def suspect(
    reason: Suspicion,
    who: NodeId = 1,
    *,
    by: NodeId = 2,
    token: int = 5,
    epoch: Epoch = EPOCH,
    promised: Epoch | None = None,
) -> Suspect:
    """A complaint."""
    return Suspect(0, epoch, by, token, who, reason, promised or epoch)
