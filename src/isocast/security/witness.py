"""Who signed what, checked long afterwards: by rosters alone, without any secret.

A signature names the serial of the roster under which it was made, and counts by the key that this roster lists. A key
that any of the given rosters revokes counts for nothing: who has stolen it could have signed yesterday's words today.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.security.roster import Roster, RosterRole
from isocast.security.sealing import seal_with
from isocast.security.signing import RosterVerifier
from isocast.terms.errors import RosterError
from isocast.terms.ids import Label, NodeId
from isocast.wire.journal_proofs import MessageSeal

__all__ = ["RosterWitness", "resealed"]

_SERIAL_BYTES = 8


class _RostersListing:
    """Whose key is whose, under each of some rosters."""

    def __init__(self, rosters: Sequence[Roster]) -> None:
        self._by_serial = {roster.serial: roster for roster in rosters}
        self._revoked = frozenset(key for roster in rosters for key in roster.revoked)

    def key_of(
        self,
        node: NodeId,
        serial: int,
        token_number: int | None = None,  # noqa: ARG002
        stripe: int | None = None,
        *,
        settled: bool = False,  # noqa: ARG002
    ) -> bytes | None:
        """As the roster of that serial lists it."""
        roster = self._by_serial.get(serial)
        public = None if roster is None else roster.public_of(node, stripe)
        return None if public in self._revoked else public

    def serial_of(self, public: bytes, token_number: int | None = None) -> int:  # noqa: ARG002
        """The newest: nobody signs here."""
        return max(self._by_serial)

    def is_revoked(self, public: bytes) -> bool:
        """Whether any of the rosters takes a key away."""
        return public in self._revoked

    def knows(self, node: NodeId, serial: int) -> bool:
        """Whether a roster is here, and does not list the node with a revoked key."""
        roster = self._by_serial.get(serial)
        member = None if roster is None else roster.member(node)
        return roster is not None and (member is None or member.public not in self._revoked)


class RosterWitness(RosterVerifier):
    """Judges signatures by the rosters of one market."""

    def __init__(self, rosters: Sequence[Roster]) -> None:
        """Rosters whose own signatures are right, in any order; RosterError if they are of several markets."""
        if len({roster.market for roster in rosters}) != 1:
            raise RosterError("the rosters are of several markets, or there is none: give those of one")
        self.rosters = tuple(sorted(rosters, key=lambda roster: roster.serial))
        self._rosters = _RostersListing(self.rosters)
        super().__init__(self.rosters[0].market, self._rosters)

    def voters(self, stripe: int) -> tuple[NodeId, ...]:
        """The sites of a stripe whose majority decides, as the oldest of the rosters lists them."""
        return tuple(
            member.node
            for member in self.rosters[0].members
            if member.role is RosterRole.PRIMARY_RECEIVER and stripe in member.stripes
        )

    def lists(self, node: NodeId, stripe: int) -> bool:
        """Whether a roster gives a node an identity in a stripe; a key that was revoked since is one, too."""
        members = [roster.member(node) for roster in self.rosters]
        return any(member is not None and stripe in member.stripes for member in members)

    def knows(self, node: NodeId, signature: bytes) -> bool:
        """Whether the roster under which a node signed is here, and its key was not revoked."""
        return self._rosters.knows(node, int.from_bytes(signature[:_SERIAL_BYTES], "little"))


def resealed(seal: MessageSeal, stripe: int, label: tuple[NodeId, int], payload: bytes) -> bytes:
    """A payload as it travelled, made again with the seal key that a journal keeps."""
    return seal_with(seal.key, seal.salt, stripe, Label(*label), payload)
