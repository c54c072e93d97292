"""The core key in a roster: sealed to each node that may have it, so that a new one travels with the roster (§6).

Whoever makes a roster draws a core key and an ephemeral key (X25519) and forgets both. The roster carries the public
half of the ephemeral key and, for each member that has a place in the core, the core key sealed with what the
ephemeral key and the member's exchange key agree on (HKDF-SHA-256, ChaCha20-Poly1305). Market, node and identity are
bound to it: a part that was moved to another member opens nothing. A member reads its own part with its private key.

A roster that lists the same nodes with the same keys as the one before repeats its parts; any other has a new core key.
So whoever is no longer listed, or was revoked, has no part in what comes after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from isocast.security.identities import Identity
from isocast.security.keys import KEY_BYTES, SecretKey
from isocast.security.roster import Roster, RosterMember, RosterRole
from isocast.terms.errors import LocalProtocolError, RosterError
from isocast.terms.ids import NodeId

__all__ = ["has_core_key", "keeps_core_key", "open_core_key", "seal_core_key"]

_CORE_ROLES: Final = (
    RosterRole.PRIMARY_RECEIVER,
    RosterRole.SECONDARY_RECEIVER,
    RosterRole.PRIMARY_SOURCE,
    RosterRole.REFORMATION_SERVER,
)
_CONTEXT: Final = b"isocast core key"
_NONCE: Final = bytes(12)
"""Each sealing key seals once: no two rosters that draw a core key share an ephemeral key."""


def seal_core_key(roster: Roster, core: bytes, ephemeral: bytes) -> Roster:
    """The roster with this core key for each member that may have it; `core` and `ephemeral`: 32 random bytes each."""
    if len(core) != KEY_BYTES or len(ephemeral) != KEY_BYTES:
        raise LocalProtocolError(f"a core key and an ephemeral key have {KEY_BYTES} bytes")
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    public = private.public_key().public_bytes_raw()
    dead = frozenset(roster.revoked)
    parts: dict[NodeId, bytes] = {}
    for member in roster.members:
        if has_core_key(member) and member.public not in dead:
            try:
                shared = private.exchange(X25519PublicKey.from_public_bytes(member.exchange))
            except ValueError:
                raise LocalProtocolError(f"the exchange key of {member.name} is none") from None
            sealing = _cipher(shared, public, member)
            parts[member.node] = sealing.encrypt(_NONCE, core, _place(roster.market, member))
    return _with_parts(roster, public, parts)


def keeps_core_key(roster: Roster, before: Roster) -> Roster:
    """The roster with the core key that the one before brought, if the same nodes may have it; else without."""
    if not before.ephemeral or _holders(roster) != _holders(before):
        return _with_parts(roster, b"", {})
    return _with_parts(roster, before.ephemeral, {member.node: member.sealed_core for member in before.members})


def has_core_key(member: RosterMember) -> bool:
    """Whether a member has a place in the core."""
    return member.role in _CORE_ROLES


def open_core_key(roster: Roster, identity: Identity) -> SecretKey | None:
    """The core key of a roster; None where it seals none for this identity. RosterError for a part that does not open.

    The identity may be one that an earlier roster lists.
    """
    member = next((one for one in roster.members if one.public == identity.public), None)
    if member is None or not roster.ephemeral or not member.sealed_core:
        return None
    try:
        sealing = _cipher(identity.agree(roster.ephemeral), roster.ephemeral, member)
        return SecretKey(sealing.decrypt(_NONCE, member.sealed_core, _place(roster.market, member)))
    except (InvalidTag, ValueError):
        rule = "whoever made that roster had another exchange key of it; make the next with isocast keys rotate"
        raise RosterError(f"the core key in roster {roster.serial} does not open for {member.name}: {rule}") from None


def _holders(roster: Roster) -> list[tuple[NodeId, bytes, bytes]]:
    """Who may have the core key."""
    dead = frozenset(roster.revoked)
    return [
        (one.node, one.public, one.exchange) for one in roster.members if has_core_key(one) and one.public not in dead
    ]


def _with_parts(roster: Roster, ephemeral: bytes, parts: Mapping[NodeId, bytes]) -> Roster:
    members = [replace(member, sealed_core=parts.get(member.node, b"")) for member in roster.members]
    return replace(roster, ephemeral=ephemeral, members=tuple(members))


def _cipher(shared: bytes, ephemeral: bytes, member: RosterMember) -> ChaCha20Poly1305:
    made = HKDF(SHA256(), KEY_BYTES, salt=ephemeral + member.exchange, info=_CONTEXT)
    return ChaCha20Poly1305(made.derive(shared))


def _place(market: bytes, member: RosterMember) -> bytes:
    """Where a part stands: associated data."""
    return market + member.node.to_bytes(8, "big") + member.public
