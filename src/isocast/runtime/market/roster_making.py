"""Who must have an identity, and the next roster that says so: made from the market's file, requests and revocations.

Private keys are made on their own machines. What travels from there to the root is a request: the public half, and a
proof that whoever asks has the other one.

    request     "ICID" | version 1 | public key 32 | exchange key 32 | length of the name 1 | name | signature 64
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes
from struct import Struct
from time import time_ns
from typing import Final

from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.market.roster_files import (
    REVOKE,
    ROOT,
    ROSTER,
    has_roster,
    identity_file,
    load_book,
    load_identity,
    load_roster,
    next_identity_file,
    save_roster,
)
from isocast.runtime.market.secret_files import create_secret, read_secret, replace_file
from isocast.runtime.market.tls_files import CA, certificate_digests, certificate_paths
from isocast.security.group_keys import awaits_core_key, keeps_core_key, seal_core_key, wants_core_key
from isocast.security.identities import (
    ED25519_BYTES,
    IDENTITY_BYTES,
    Identity,
    is_signed,
    statement,
)
from isocast.security.roster import (
    NAME_MAX,
    PINS_MAX,
    Revocation,
    Roster,
    RosterMember,
    RosterRole,
    sign_revocation,
    sign_roster,
)
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RosterError
from isocast.terms.ids import BOX_OFFICE, OPERATOR, NodeId, operator_id
from isocast.terms.instants import SECOND
from isocast.terms.quantities import suggestion
from isocast.wire.signing import SignedKind

__all__ = [
    "VALID_NS",
    "IdentityRequest",
    "RosterSigner",
    "RosterWish",
    "certified",
    "certify",
    "lists_everybody",
    "load_root",
    "make_identities",
    "make_request",
    "make_root",
    "next_roster",
    "pins_everybody",
    "read_request",
    "renew_roster",
    "replace_revoke_key",
    "revocation_of",
    "rotate_identity",
    "signers",
]

DAY_NS: Final = 86_400 * SECOND
VALID_NS: Final = 730 * DAY_NS
"""How long a key counts unless the operator says otherwise: two years."""

_REQUEST = Struct(">4sB32s32sB")
_REQUEST_MAGIC = b"ICID"
_VERSION = 1
_NAMED = 6
"""Nodes that a sentence names."""


@dataclass(frozen=True, slots=True)
class RosterSigner:
    """Who must have an identity."""

    name: str
    node: NodeId
    role: RosterRole
    stripes: tuple[int, ...]


_PEOPLE = (
    RosterSigner("operator", OPERATOR, RosterRole.OPERATOR, ()),
    RosterSigner("box-office", BOX_OFFICE, RosterRole.BOX_OFFICE, ()),
)


def signers(market: Market) -> tuple[RosterSigner, ...]:
    """Every node of the market but its customers, its operators and the box office; by id."""
    whole = market.whole or market
    people = {person.name: person for person in _PEOPLE}
    for name in [name for floor in whole.floors for name in floor.correctors]:
        people.setdefault(name, RosterSigner(name, operator_id(name), RosterRole.OPERATOR, ()))
    found = dict(people)
    for plan in whole.nodes:
        if plan.role is NodeRole.CUSTOMER:
            continue
        if plan.origin in people:
            rule = f"{plan.origin} is the name of somebody who signs and is no node: give the node another"
            raise ConfigurationError(market.file, f"nodes.{plan.origin}", rule)
        stripes = tuple([process.stripe for process in whole.processes_of(plan.origin)])
        found[plan.origin] = RosterSigner(plan.origin, plan.node, RosterRole[plan.role.name], stripes)
    return tuple(sorted(found.values(), key=lambda signer: signer.node))


# ---- identities


def make_identities(market: Market) -> tuple[str, ...]:
    """Make the private keys that are missing; those of nodes that the roster lists are on other machines."""
    listed = load_roster(market).members if has_roster(market) else ()
    elsewhere = {member.name for member in listed}
    names = [identity_file(signer.name) for signer in signers(market) if signer.name not in elsewhere]
    made = [name for name in names if _make_secret(market, name)]
    return tuple(made) if listed else (*made, *make_root(market))


def make_root(market: Market) -> tuple[str, ...]:
    """Make the root and the revoke key where they are missing; a market with a roster has its root already."""
    return () if has_roster(market) else tuple([name for name in (ROOT, REVOKE) if _make_secret(market, name)])


def _make_secret(market: Market, name: str) -> bool:
    path = market.keys_directory / name
    if path.exists():
        return False
    create_secret(path, f"{name} of the isocast market {market.name}: {_purpose(name)}.")
    return True


def _purpose(name: str) -> str:
    if name == ROOT:
        return "whoever has it decides who is who. Keep it offline"
    if name == REVOKE:
        return "whoever has it can take every key away, and do nothing else. Keep it secret"
    return "whoever has it can speak for this one. Keep it secret, on its own machine"


def rotate_identity(market: Market, name: str) -> Identity:
    """The key that is to follow a node's: made on this machine, or found where it is not listed yet.

    A node that has none gets its first one.
    """
    _insist_on_signer(market, name)
    own, follower = market.keys_directory / identity_file(name), market.keys_directory / next_identity_file(name)
    listed = load_roster(market).by_name(name) if has_roster(market) else None
    if not own.exists():
        _make_secret(market, own.name)
        return load_identity(market, name)
    if listed is None:
        return load_identity(market, name)
    if follower.exists() and Identity(read_secret(follower)).public == listed.public:
        follower.replace(own)  # The last rotation is over.
    identity = Identity(read_secret(own))
    if identity.public != listed.public:
        return identity  # Made before, and not listed yet.
    _make_secret(market, follower.name)
    return Identity(read_secret(follower))


def _insist_on_signer(market: Market, name: str) -> RosterSigner:
    known = {signer.name: signer for signer in signers(market)}
    if name not in known:
        rule = f'nobody who signs in {market.file} has the name "{name}"{suggestion(name, known)}'
        raise ConfigurationError("command line", "node", rule)
    return known[name]


# ---- requests


@dataclass(frozen=True, slots=True)
class IdentityRequest:
    """The public half of an identity, on its way to the root."""

    name: str
    public: bytes
    exchange: bytes


def make_request(name: str, identity: Identity) -> bytes:
    """The file that a node's machine sends to the maker of the roster."""
    text = name.encode()
    body = _REQUEST.pack(_REQUEST_MAGIC, _VERSION, identity.public, identity.exchange, len(text)) + text
    return body + identity.sign(_asked(body))


def _asked(body: bytes) -> bytes:
    # Serial 0, which no roster has: a request is never a roster, nor the other way round.
    return statement(SignedKind.ROSTER, sha256(_REQUEST_MAGIC).digest(), body, serial=0)


def read_request(raw: bytes) -> IdentityRequest:
    """RosterError, which says what to do, for anything else than `make_request` writes."""
    body, signature = raw[:-ED25519_BYTES], raw[-ED25519_BYTES:]
    if len(raw) > _REQUEST.size + NAME_MAX + ED25519_BYTES or len(body) < _REQUEST.size:
        raise RosterError("this is no request of an identity: isocast keys rotate makes one")
    magic, version, public, exchange, length = _REQUEST.unpack_from(body)
    name = body[_REQUEST.size :]
    if magic != _REQUEST_MAGIC or version != _VERSION or len(name) != length:
        raise RosterError("this is no request of an identity: isocast keys rotate makes one")
    if not is_signed(public, signature, _asked(body)):
        raise RosterError("a request with a wrong signature: it was changed, copy it again from where it was made")
    try:
        return IdentityRequest(name.decode(), public, exchange)
    except UnicodeDecodeError:
        raise RosterError("this is no request of an identity: isocast keys rotate makes one") from None


# ---- the next roster


@dataclass(frozen=True, slots=True)
class RosterWish:
    """What the next roster shall change, beside following the market's file and the revocations."""

    requests: tuple[IdentityRequest, ...] = ()
    extend: tuple[str, ...] = ()
    """Whose keys shall count anew from now."""
    valid_ns: int = VALID_NS
    revoke_key: bytes = b""
    """Another public key for revoking; empty: the same."""
    keep_revocations: bool = True
    """Whether what was revoked meanwhile stays so; not after the revoke key was stolen."""
    new_core_key: bool = False
    """Whether it brings another core key, though the same nodes may have it."""
    pin: tuple[str, ...] = ()
    """Whose certificate, as it is here, shall be pinned beside the one that was; with it, that of the authority."""
    pin_only: bool = False
    """Whether the one that was counts no more: everybody has seen the new one, or the old one was stolen."""
    unpin: bool = False
    """Whether nothing shall be pinned any more."""


def next_roster(market: Market, wish: RosterWish, now_ns: int, root: bytes = b"") -> Roster | None:
    """The roster after the one that is there, not signed yet; None if it would say the same.

    Where it is to bring another core key, the root draws it (`certify`). `root` and `wish.revoke_key` are needed for
    the first.
    """
    book = load_book(market) if has_roster(market) else None
    before = None if book is None else book.newest
    known = {} if before is None else {member.name: member for member in before.members}
    asked = {request.name: request for request in wish.requests}
    for name in (*asked, *wish.extend, *wish.pin):
        _insist_on_signer(market, name)
    pinning = _Pinning(market, wish, before)
    members = tuple([pinning.pinned(one) for one in _members(market, wish, asked, known, now_ns)])
    try:
        if before is None or book is None:
            return Roster(market.name, root, 1, members, wish.revoke_key, authorities=pinning.authorities())
        revoked = {said.public for said in book.revocations} if wish.keep_revocations else set()
        roster = replace(
            before,
            serial=before.serial + 1,
            previous=before.digest,
            members=members,
            revoke_key=wish.revoke_key or before.revoke_key,
            revoked=tuple(sorted({*before.revoked, *revoked})),
            authorities=pinning.authorities(),
        )
        roster = keeps_core_key(roster, before)
        same = replace(roster, serial=before.serial, previous=before.previous) == before
        if same and not wish.new_core_key:
            return None
        return wants_core_key(roster, before) if wish.new_core_key else roster
    except LocalProtocolError as error:
        raise ConfigurationError(str(market.keys_directory / ROSTER), "roster", str(error)) from None


def certify(roster: Roster, root: Identity, *, new_core_key: bool = False) -> bytes:
    """The signed file of a roster, with the core key that the root draws for it where it awaits one.

    LocalProtocolError for another root's. `new_core_key`: the first roster of a market brings one too.
    """
    if awaits_core_key(roster) or new_core_key:
        roster = seal_core_key(roster, root, token_bytes(IDENTITY_BYTES))
    return sign_roster(roster, root)


def _members(
    market: Market,
    wish: RosterWish,
    asked: Mapping[str, IdentityRequest],
    known: Mapping[str, RosterMember],
    now_ns: int,
) -> tuple[RosterMember, ...]:
    found, missing = [], []
    for signer in signers(market):
        member = known.get(signer.name)
        request = asked.get(signer.name)
        if request is None and member is None:
            request = _own_request(market, signer.name)
        if request is None and member is None:
            missing.append(signer.name)
            continue
        found.append(_member(signer, member, request, wish, now_ns))
    if missing:
        names = ", ".join(missing[:_NAMED])
        rule = f"no key of {names} is here: isocast keys rotate NODE makes a request on its machine; add it with --add"
        raise ConfigurationError(str(market.keys_directory / ROSTER), "roster", rule)
    return tuple(found)


def _own_request(market: Market, name: str) -> IdentityRequest | None:
    if not (market.keys_directory / identity_file(name)).exists():
        return None
    identity = load_identity(market, name)
    return IdentityRequest(name, identity.public, identity.exchange)


def _member(
    signer: RosterSigner, known: RosterMember | None, request: IdentityRequest | None, wish: RosterWish, now_ns: int
) -> RosterMember:
    if known is not None and (request is None or request.public == known.public):
        same = replace(known, node=signer.node, role=signer.role, stripes=signer.stripes)
        return replace(same, not_after_ns=now_ns + wish.valid_ns) if signer.name in wish.extend else same
    if request is None:
        raise LocalProtocolError(f"{signer.name} has no key")
    return RosterMember(
        node=signer.node,
        name=signer.name,
        role=signer.role,
        public=request.public,
        exchange=request.exchange,
        not_before_ns=now_ns,
        not_after_ns=now_ns + wish.valid_ns,
        stripes=signer.stripes,
        certificates=() if known is None else known.certificates,
    )


class _Pinning:
    """Which certificates a roster pins.

    What the one before pinned stays; a wish adds the certificates that are here. The first roster, and whoever is new
    in one that pins, needs no wish.
    """

    def __init__(self, market: Market, wish: RosterWish, before: Roster | None) -> None:
        """`before`: the roster until now; None: this is the first."""
        self._market = market
        self._wish = wish
        self._known = () if before is None else before.authorities
        self._adds = before is None or before.pins

    def pinned(self, member: RosterMember) -> RosterMember:
        """With the pins that it is to have; ConfigurationError where a wish asks for a certificate that is not here."""
        if self._wish.unpin:
            return replace(member, certificates=())
        if member.name in self._wish.pin:
            found = self._found(member.name)[:1]
            if not found:
                path, _ = certificate_paths(self._market, member.name)
                rule = f"is needed to pin it: copy the certificate of {member.name} here, without its key"
                raise ConfigurationError(str(path), "certificate", rule)
            return replace(member, certificates=self._together(found, member.certificates))
        if self._adds and not member.certificates:
            return replace(member, certificates=self._found(member.name)[:1])
        return member

    def authorities(self) -> tuple[bytes, ...]:
        """The pins of the CA."""
        if self._wish.unpin:
            return ()
        if self._wish.pin or (self._adds and not self._known):
            return self._together(self._found(CA), self._known)
        return self._known

    def _together(self, found: tuple[bytes, ...], known: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if self._wish.pin_only and found:
            return found[:PINS_MAX]
        return tuple(dict.fromkeys((*found, *known)))[:PINS_MAX]

    def _found(self, name: str) -> tuple[bytes, ...]:
        """Of the certificates in a file; none where there is no file."""
        path, _ = certificate_paths(self._market, name)
        try:
            return certificate_digests(path) if path.exists() else ()
        except (OSError, ValueError):
            rule = "is not a certificate: copy it again, or remove it"
            raise ConfigurationError(str(path), "certificate", rule) from None


def certified(market: Market) -> tuple[str, ...]:
    """Members to be listed that have a certificate here; ConfigurationError where there is none."""
    found = [signer.name for signer in signers(market) if certificate_paths(market, signer.name)[0].exists()]
    if not found:
        folder = certificate_paths(market, CA)[0].parent
        rule = "no certificate is here to pin: isocast certs init makes them, or copy the .crt files from there"
        raise ConfigurationError(str(folder), "certificates", rule)
    return tuple(found)


def pins_everybody(market: Market) -> bool:
    """Whether nobody who is listed has a certificate here and no pin, in a market that pins."""
    roster = load_roster(market)
    return not roster.pins or all(
        member.certificates or not certificate_paths(market, member.name)[0].exists() for member in roster.members
    )


def lists_everybody(market: Market) -> bool:
    """Whether the roster that is there lists whom the market's file has, and nobody else."""
    if not has_roster(market):
        return False
    members = load_roster(market).members
    return [RosterSigner(one.name, one.node, one.role, one.stripes) for one in members] == list(signers(market))


def load_root(path: Path, roster: Roster | None) -> Identity:
    """The root; ConfigurationError where it is not here, or another's."""
    if not path.exists():
        rule = "is not here, and the roster has to change: bring it for this command, or use --unsigned FILE"
        raise ConfigurationError(str(path), "root", rule)
    root = Identity(read_secret(path))
    if roster is not None and root.public != roster.root:
        raise ConfigurationError(str(path), "root", f"is not the root of the market {roster.name}: bring the right one")
    return root


def renew_roster(market: Market, wish: RosterWish | None = None) -> Roster | None:
    """Sign and keep the roster that the market's file and a wish ask for; None if it would say the same."""
    now, wish = time_ns(), wish or RosterWish()
    if not has_roster(market):
        root = load_root(market.keys_directory / ROOT, None)
        revoke = Identity(read_secret(market.keys_directory / REVOKE))
        roster = next_roster(market, replace(wish, revoke_key=revoke.public), now, root.public)
    else:
        roster = next_roster(market, wish, now)
        if roster is None:
            return None
        root = load_root(market.keys_directory / ROOT, roster)
    if roster is None:
        return None
    return save_roster(market, certify(roster, root, new_core_key=wish.new_core_key))


def replace_revoke_key(market: Market) -> Identity:
    """Another revoke key in the place of the one that was stolen or lost."""
    comment = f"# {REVOKE} of the isocast market {market.name}: {_purpose(REVOKE)}.\n"
    replace_file(market.keys_directory / REVOKE, f"{comment}{token_bytes(IDENTITY_BYTES).hex()}\n".encode())
    return Identity(read_secret(market.keys_directory / REVOKE))


def revocation_of(market: Market, name: str, key: Path | None = None) -> Revocation:
    """The word of the revoke key, or of the root, that a node's listed key counts no more."""
    roster = load_roster(market)
    member = roster.by_name(name)
    if member is None:
        known = [other.name for other in roster.members]
        rule = f'roster {roster.serial} lists nobody with the name "{name}"{suggestion(name, known)}'
        raise ConfigurationError("command line", "node", rule)
    path = key or market.keys_directory / REVOKE
    identity = Identity(read_secret(path))
    try:
        return sign_revocation(roster, member, identity, time_ns())
    except LocalProtocolError as error:
        raise ConfigurationError(str(path), "key", f"{error}: bring the right one") from None
