"""The core key in a roster: sealed to each node that may have it, so that a new one travels with the roster (§6).

The root draws an ephemeral key (X25519) when it signs, and forgets its private half. The core key is derived from what
the root and the ephemeral key agree on (HKDF-SHA-256): the root alone makes it again, from the roster. The roster
carries the public half and, for each member that has a place in the core, the core key sealed with what the ephemeral
key and the member's exchange key agree on (HKDF-SHA-256, ChaCha20-Poly1305). Market, node and identity are bound to it:
a part that was moved to another member opens nothing. A member reads its own part with its private key.

A roster that lists the same nodes with the same keys as the one before repeats its parts; any other has a new core key.
So whoever is no longer listed, or was revoked, has no part in what comes after. Who is new has a part in what was
before: the roster hands on the core keys before its own, sealed under its own (ChaCha20-Poly1305), since payloads that
were sealed under them may still wait for their release (`sealing`).
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
from isocast.security.keys import KEY_BYTES, Purpose, SecretKey
from isocast.security.roster import FORMER_MAX, Roster, RosterMember, RosterRole
from isocast.terms.errors import LocalProtocolError, RosterError
from isocast.terms.ids import NodeId

__all__ = [
    "awaits_core_key",
    "former_core_keys",
    "has_core_key",
    "keeps_core_key",
    "open_core_key",
    "seal_core_key",
    "wants_core_key",
]

_CORE_ROLES: Final = (
    RosterRole.PRIMARY_RECEIVER,
    RosterRole.SECONDARY_RECEIVER,
    RosterRole.PRIMARY_SOURCE,
    RosterRole.REFORMATION_SERVER,
)
_CONTEXT: Final = b"isocast core key"
_DRAWN: Final = b"isocast core key of the root"
_NONCE: Final = bytes(12)
"""Each sealing key seals once: no two rosters that draw a core key share an ephemeral key."""


def seal_core_key(roster: Roster, root: Identity, ephemeral: bytes) -> Roster:
    """The roster with another core key for each member that may have it; `ephemeral`: 32 random bytes, used once.

    Until then it has the ephemeral key of the roster before, and what that handed on.
    """
    if root.public != roster.root or len(ephemeral) != KEY_BYTES:
        raise LocalProtocolError(f"the root of the roster draws its core key, from {KEY_BYTES} random bytes")
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    public = private.public_key().public_bytes_raw()
    core = _drawn(roster.market, root, public)
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
    handed = _handing(SecretKey(core)).encrypt(_NONCE, _before(roster, root), roster.market + public)
    return _with_parts(roster, public, handed, parts)


def keeps_core_key(roster: Roster, before: Roster) -> Roster:
    """The roster with the core key that the one before brought, if the same nodes may have it; else it awaits one."""
    if not before.ephemeral or _holders(roster) != _holders(before):
        return wants_core_key(roster, before)
    parts = {member.node: member.sealed_core for member in before.members}
    return _with_parts(roster, before.ephemeral, before.former, parts)


def wants_core_key(roster: Roster, before: Roster) -> Roster:
    """The roster as it goes to the root: with what that needs to draw a core key and hand on those before."""
    return _with_parts(roster, before.ephemeral, before.former, {})


def awaits_core_key(roster: Roster) -> bool:
    """Whether the root has yet to draw a core key for it; the first roster of a market has none."""
    return roster.serial > 1 and not any(member.sealed_core for member in roster.members)


def _drawn(market: bytes, root: Identity, ephemeral: bytes) -> bytes:
    """The core key that a root drew with an ephemeral key."""
    return HKDF(SHA256(), KEY_BYTES, salt=market + ephemeral, info=_DRAWN).derive(root.agree(ephemeral))


def _handing(core: SecretKey) -> ChaCha20Poly1305:
    """What hands on the keys before a core key."""
    return ChaCha20Poly1305(core.derive(Purpose.FORMER, 0))


def _before(roster: Roster, root: Identity) -> bytes:
    """The core keys before, the newest first; none where the last was drawn by nobody who could make it again."""
    if not roster.former:
        return b""
    try:
        last = _drawn(roster.market, root, roster.ephemeral)
        older = _handing(SecretKey(last)).decrypt(_NONCE, roster.former, roster.market + roster.ephemeral)
    except (InvalidTag, ValueError):  # ValueError: the ephemeral key is none, with which everybody agrees on zeros.
        raise LocalProtocolError("the roster before hands on core keys that its root did not draw") from None
    return (last + older)[: FORMER_MAX * KEY_BYTES]


def former_core_keys(roster: Roster, core: SecretKey) -> tuple[SecretKey, ...]:
    """The core keys before that of a roster, the newest first; RosterError where they do not open by it."""
    if not roster.former:
        return ()
    try:
        older = _handing(core).decrypt(_NONCE, roster.former, roster.market + roster.ephemeral)
    except InvalidTag:
        rule = "make the next with isocast keys roster --new-core-key"
        raise RosterError(f"the core keys that roster {roster.serial} hands on do not open: {rule}") from None
    return tuple([SecretKey(older[at : at + KEY_BYTES]) for at in range(0, len(older), KEY_BYTES)])


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


def _with_parts(roster: Roster, ephemeral: bytes, former: bytes, parts: Mapping[NodeId, bytes]) -> Roster:
    members = [replace(member, sealed_core=parts.get(member.node, b"")) for member in roster.members]
    return replace(roster, ephemeral=ephemeral, former=former, members=tuple(members))


def _cipher(shared: bytes, ephemeral: bytes, member: RosterMember) -> ChaCha20Poly1305:
    made = HKDF(SHA256(), KEY_BYTES, salt=ephemeral + member.exchange, info=_CONTEXT)
    return ChaCha20Poly1305(made.derive(shared))


def _place(market: bytes, member: RosterMember) -> bytes:
    """Where a part stands: associated data."""
    return market + member.node.to_bytes(8, "big") + member.public
