"""The roster: who is who in a market, signed by its root, and revocations (§6).

A roster lists every node that signs: its id, role, stripes, public keys and how long they count. Each has the serial
after the one before and names that one's digest, so that rosters are a chain with one end. A revocation takes one
public key away at once, signed by the root or by a key that can do nothing else.

    roster      "ICRO" | version 1 | length of the body 4 | body | signature of the root 64, or nothing: not signed yet
    body        root 32 | serial 8 | digest of the one before 32 | revoke key 32 | name | pins of the CA
                | ephemeral key, and behind it the core keys before, sealed | how many members 4 | members, by id
                | how many revoked keys 4 | revoked keys 32 each, ascending
    member      id 8 | role 1 | from 8 | until 8 | public key 32 | exchange key 32 | name | pins
                | sealed core key | how many stripes 1 | stripes 2 each, ascending
    revocation  "ICRV" | version 1 | market 32 | id 8 | public key 32 | time 8 | by 1 | signature 64

A control entry puts a roster into force: its subject is the serial, its body the digest 32 | effective token 8,
little-endian as all of a packet.

Integers are big-endian; a name, pins, an ephemeral key with what follows it and a sealed key have their length before
them, in one byte. A pin is
the SHA-256 of a certificate; two are together while a certificate is renewed, the newest first. Every roster has one
spelling. Sources are listed without their incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from struct import Struct, error
from typing import Final, NamedTuple

from isocast.security.identities import (
    ED25519_BYTES,
    IDENTITY_BYTES,
    Identity,
    is_signed,
    market_of,
    statement,
)
from isocast.terms.errors import LocalProtocolError, RosterError
from isocast.terms.ids import NodeId, without_incarnation
from isocast.wire.packets import ControlEntry, ControlKind
from isocast.wire.signing import SignedKind

__all__ = [
    "FORMER_MAX",
    "MEMBERS_MAX",
    "NAME_MAX",
    "NO_ROSTER",
    "PINS_MAX",
    "ROSTER_BYTES_MAX",
    "Revocation",
    "Revoker",
    "Roster",
    "RosterBook",
    "RosterMember",
    "RosterNotice",
    "RosterRole",
    "read_revocation",
    "read_roster",
    "read_roster_entry",
    "read_unsigned",
    "roster_entry",
    "sign_revocation",
    "sign_roster",
    "unsigned",
]

MEMBERS_MAX: Final = 10_000
"""As many as a market file can name."""
REVOKED_MAX: Final = 10_000
NAME_MAX: Final = 200
PINS_MAX: Final = 2
"""Of one node, or of the CA: the newest certificate, and the one before while it is still shown."""
STRIPES_MAX: Final = 255
ROSTER_BYTES_MAX: Final = 10 << 20
"""10,000 members of at most 900 bytes and as many revoked keys; what is longer is not even looked at."""
FORMER_MAX: Final = 6
"""Core keys before its own that a roster hands on: with the ephemeral key as many as one length of a byte can say."""
NO_ROSTER: Final = bytes(32)
"""What the first roster names as the one before."""

_VERSION = 1
_ROSTER_MAGIC = b"ICRO"
_REVOCATION_MAGIC = b"ICRV"
_DIGEST_BYTES = 32
_SEALED_CORE_BYTES = 48
_FORMER_LENGTHS = (0, *(16 + 32 * count for count in range(FORMER_MAX + 1)))
_FRAME = Struct(">4sBI")
_HEAD = Struct(">32sQ32s32s")
_MEMBER = Struct(">QBQQ32s32s")
_COUNT = Struct(">I")
_STRIPE = Struct(">H")
_REVOCATION = Struct(">4sB32sQ32sQB")
_ENTRY = Struct("<32sQ")
_BOOK_MAX = 16
"""Rosters that a book remembers: tokens of older ones are settled long ago."""


class RosterRole(IntEnum):
    """What a member is listed as. Numbers are never used again for something else."""

    PRIMARY_RECEIVER = 1
    SECONDARY_RECEIVER = 2
    PRIMARY_SOURCE = 3
    SECONDARY_SOURCE = 4
    RETRANSMIT_SERVER = 5
    REFORMATION_SERVER = 6
    OPERATOR = 7
    BOX_OFFICE = 8

    @property
    def label(self) -> str:
        """As the market's file and people write it."""
        return self.name.lower().replace("_", "-")


class Revoker(IntEnum):
    """Whose key signed a revocation."""

    ROOT = 1
    REVOKE_KEY = 2


@dataclass(frozen=True, slots=True)
class RosterMember:
    """One node and its public keys."""

    node: NodeId
    """Of a source with incarnation 0."""
    name: str
    role: RosterRole
    public: bytes
    exchange: bytes
    """The X25519 public key by which secrets are sent to it."""
    not_before_ns: int
    not_after_ns: int
    stripes: tuple[int, ...] = (0,)
    """Of the core, in which it has a process; it has one identity for all of them."""
    certificates: tuple[bytes, ...] = ()
    """SHA-256 of each TLS certificate that it may show, the newest first; empty: none is pinned."""
    sealed_core: bytes = b""
    """The core key, for it alone; empty: it has none."""

    def covers(self, now_ns: int) -> bool:
        """Whether its keys count at an instant."""
        return self.not_before_ns <= now_ns < self.not_after_ns


@dataclass(frozen=True)
class Roster:
    """Who is who, as of one serial."""

    name: str
    """Of the market."""
    root: bytes
    """The root's public key."""
    serial: int
    members: tuple[RosterMember, ...]
    """By id, ascending."""
    revoke_key: bytes
    """The public key of whoever may revoke and do nothing else."""
    previous: bytes = NO_ROSTER
    """Digest of the roster before."""
    revoked: tuple[bytes, ...] = ()
    """Public keys that never count again, ascending."""
    authorities: tuple[bytes, ...] = ()
    """SHA-256 of each certificate of the market's CA, the newest first; empty: none is pinned."""
    ephemeral: bytes = b""
    """The public key that sealed the core key to the members; empty: it is not sealed here."""
    former: bytes = b""
    """The core keys before this one, sealed under it, the newest first; empty: none are handed on."""

    def __post_init__(self) -> None:
        """LocalProtocolError for a roster that nobody could read back."""
        fault = _fault(self)
        if fault:
            raise LocalProtocolError(fault)

    @cached_property
    def market(self) -> bytes:
        """What signatures name as their market."""
        return market_of(self.name, self.root)

    @cached_property
    def body(self) -> bytes:
        """The one spelling of this roster: what is signed, and what its digest is of."""
        return b"".join(
            (
                _HEAD.pack(self.root, self.serial, self.previous, self.revoke_key),
                *(
                    _counted(field)
                    for field in (self.name.encode(), b"".join(self.authorities), self.ephemeral + self.former)
                ),
                _COUNT.pack(len(self.members)),
                *map(_member_bytes, self.members),
                _COUNT.pack(len(self.revoked)),
                *self.revoked,
            )
        )

    @cached_property
    def digest(self) -> bytes:
        """What a control entry and the next roster name it by."""
        return sha256(self.body).digest()

    @cached_property
    def _by_node(self) -> dict[NodeId, RosterMember]:
        return {member.node: member for member in self.members}

    @cached_property
    def _dead(self) -> frozenset[bytes]:
        return frozenset(self.revoked)

    def member(self, node: NodeId) -> RosterMember | None:
        """Who has this id, whatever a source's incarnation, revoked or not; None for a stranger."""
        return self._by_node.get(node) or self._by_node.get(without_incarnation(node))

    def by_name(self, name: str) -> RosterMember | None:
        """Who has this name."""
        return next((member for member in self.members if member.name == name), None)

    def lists(self, public: bytes) -> bool:
        """Whether somebody is listed with this key."""
        return public in self._publics

    @cached_property
    def _publics(self) -> frozenset[bytes]:
        return frozenset(member.public for member in self.members)

    @cached_property
    def pins(self) -> bool:
        """Whether it says which certificates count at all."""
        return bool(self.authorities) or any(member.certificates for member in self.members)

    def is_revoked(self, public: bytes) -> bool:
        """Whether this roster takes a key away."""
        return public in self._dead

    def public_of(self, node: NodeId, stripe: int | None = None, now_ns: int | None = None) -> bytes | None:
        """The public key of an id.

        None for a stranger and for a revoked key; and if a stripe or an instant is given, for whoever is not of that
        stripe, or whose key does not count at that time.
        """
        member = self.member(node)
        if member is None or member.public in self._dead:
            return None
        if stripe is not None and stripe not in member.stripes:
            return None
        return member.public if now_ns is None or member.covers(now_ns) else None

    def follows(self, previous: Roster) -> bool:
        """Whether it is the next in the chain: same market, next serial, right digest, no revoked key forgotten."""
        return (
            self.market == previous.market
            and self.serial == previous.serial + 1
            and self.previous == previous.digest
            and previous._dead <= self._dead
        )


# ---- rules


def _fault(roster: Roster) -> str:
    """What is wrong with a roster; empty: nothing."""
    keys = ("root", roster.root), ("revoke key", roster.revoke_key)
    for what, key in keys:
        if len(key) != IDENTITY_BYTES:
            return f"the {what} has {IDENTITY_BYTES} bytes, not {len(key)}"
    if not 0 < roster.serial < 1 << 64:
        return f"a serial is from 1 to 2^64-1, not {roster.serial}"
    if len(roster.previous) != _DIGEST_BYTES or (roster.serial == 1) != (roster.previous == NO_ROSTER):
        return "every roster but the first names the digest of the one before"
    if not 0 < len(roster.name.encode()) <= NAME_MAX:
        return f"a market's name has 1 to {NAME_MAX} bytes"
    if not _are_pins(roster.authorities):
        return f"the CA has up to {PINS_MAX} pins of 32 bytes, each once"
    if len(roster.ephemeral) not in (0, IDENTITY_BYTES):
        return "an ephemeral key has 32 bytes, or none"
    if len(roster.former) not in _FORMER_LENGTHS or (roster.former and not roster.ephemeral):
        return f"up to {FORMER_MAX} core keys are handed on, behind an ephemeral key"
    if len(roster.members) > MEMBERS_MAX or len(roster.revoked) > REVOKED_MAX:
        return f"a roster has at most {MEMBERS_MAX:,} members and {REVOKED_MAX:,} revoked keys"
    if any(len(key) != IDENTITY_BYTES for key in roster.revoked) or not _ascends(roster.revoked):
        return "revoked keys have 32 bytes each, ascending"
    return _members_fault(roster)


def _members_fault(roster: Roster) -> str:
    members = roster.members
    if not _ascends([member.node for member in members]):
        return "members stand by id, each once"
    if len({member.name for member in members}) != len(members):
        return "two members have the same name"
    publics = [roster.root, roster.revoke_key, *(member.public for member in members)]
    if len(set(publics)) != len(publics):
        return "two members have the same key, or that of the root"
    return next((fault for fault in map(_member_fault, members) if fault), "")


def _member_fault(member: RosterMember) -> str:
    who = f'member "{member.name}"'
    if not 0 < member.node < 1 << 64 or without_incarnation(member.node) != member.node:
        return f"{who} has an id from 1, a source's without incarnation"
    if not 0 < len(member.name.encode()) <= NAME_MAX:
        return f"{who}: a name has 1 to {NAME_MAX} bytes"
    if len(member.public) != IDENTITY_BYTES or len(member.exchange) != IDENTITY_BYTES:
        return f"{who}: public keys have {IDENTITY_BYTES} bytes"
    if not 0 <= member.not_before_ns < member.not_after_ns < 1 << 64:
        return f"{who} counts from an instant until a later one"
    if not _are_pins(member.certificates):
        return f"{who} has up to {PINS_MAX} pins of 32 bytes, each once"
    if len(member.sealed_core) not in (0, _SEALED_CORE_BYTES):
        return f"{who}: a sealed key has 48 bytes, or none"
    stripes = member.stripes
    if len(stripes) > STRIPES_MAX or not _ascends(stripes) or any(not 0 <= stripe < 1 << 16 for stripe in stripes):
        return f"{who} has up to {STRIPES_MAX} stripes, ascending"
    return ""


def _are_pins(pins: tuple[bytes, ...]) -> bool:
    return len(set(pins)) == len(pins) <= PINS_MAX and all(len(pin) == _DIGEST_BYTES for pin in pins)


def _ascends(values: Iterable[int] | Iterable[bytes]) -> bool:
    found = list(values)
    return all(a < b for a, b in pairwise(found))  # type: ignore[operator]


# ---- bytes


def _counted(field: bytes) -> bytes:
    return bytes((len(field),)) + field


def _member_bytes(member: RosterMember) -> bytes:
    head = _MEMBER.pack(
        member.node, member.role, member.not_before_ns, member.not_after_ns, member.public, member.exchange
    )
    fields = (member.name.encode(), b"".join(member.certificates), member.sealed_core)
    stripes = b"".join(_STRIPE.pack(stripe) for stripe in member.stripes)
    return head + b"".join(map(_counted, fields)) + bytes((len(member.stripes),)) + stripes


class _Reader:
    """Takes fields off a body; struct.error and IndexError beyond its end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, form: Struct) -> tuple[int | bytes, ...]:
        found = form.unpack_from(self._raw, self._at)
        self._at += form.size
        return found

    def count(self) -> int:
        """A number of four bytes."""
        (found,) = _COUNT.unpack_from(self._raw, self._at)
        self._at += _COUNT.size
        return int(found)

    def bytes_of(self, length: int) -> bytes:
        found = self._raw[self._at : self._at + length]
        if len(found) != length:
            raise IndexError("it is cut")
        self._at += length
        return found

    def counted(self) -> bytes:
        return self.bytes_of(self.bytes_of(1)[0])

    def pins(self) -> tuple[bytes, ...]:
        """What is left over makes a pin that is too short, and no roster."""
        whole = self.counted()
        return tuple([whole[at : at + _DIGEST_BYTES] for at in range(0, len(whole), _DIGEST_BYTES)])

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._raw)


def _read_member(reader: _Reader) -> RosterMember:
    node, role, not_before, not_after, public, exchange = reader.take(_MEMBER)
    name, certificates, sealed = reader.counted(), reader.pins(), reader.counted()
    stripes = [reader.take(_STRIPE)[0] for _ in range(reader.bytes_of(1)[0])]
    return RosterMember(
        node=int(node),
        name=name.decode(),
        role=RosterRole(int(role)),
        public=bytes(public),
        exchange=bytes(exchange),
        not_before_ns=int(not_before),
        not_after_ns=int(not_after),
        stripes=tuple(map(int, stripes)),
        certificates=certificates,
        sealed_core=sealed,
    )


def _read_body(body: bytes) -> Roster:
    """RosterError for anything that `Roster.body` does not write."""
    reader = _Reader(body)
    try:
        root, serial, previous, revoke_key = reader.take(_HEAD)
        name, authorities, keys = reader.counted(), reader.pins(), reader.counted()
        count = reader.count()
        if count > MEMBERS_MAX:
            raise RosterError(f"this is no roster: {count:,} members, and {MEMBERS_MAX:,} are the most")
        members = tuple([_read_member(reader) for _ in range(count)])
        count = reader.count()
        if count > REVOKED_MAX:
            raise RosterError(f"this is no roster: {count:,} revoked keys, and {REVOKED_MAX:,} are the most")
        revoked = tuple([reader.bytes_of(IDENTITY_BYTES) for _ in range(count)])
        roster = Roster(
            name=name.decode(),
            root=bytes(root),
            serial=int(serial),
            members=members,
            revoke_key=bytes(revoke_key),
            previous=bytes(previous),
            revoked=revoked,
            authorities=authorities,
            ephemeral=keys[:IDENTITY_BYTES],
            former=keys[IDENTITY_BYTES:],
        )
    except (error, IndexError, ValueError, LocalProtocolError) as reason:
        raise RosterError(f"this is no roster: {reason}; copy it again from where it was signed") from None
    if not reader.is_at_end:
        raise RosterError("this is no roster: bytes follow it; copy it again from where it was signed")
    return roster


def _framed(raw: bytes) -> tuple[bytes, bytes]:
    """Body and signature of a file."""
    if len(raw) > ROSTER_BYTES_MAX:
        raise RosterError(f"this is no roster: it has {len(raw):,} bytes, and {ROSTER_BYTES_MAX:,} are the most")
    if len(raw) < _FRAME.size or not raw.startswith(_ROSTER_MAGIC):
        raise RosterError("this is no roster: it begins otherwise; copy it again from where it was signed")
    _, version, length = _FRAME.unpack_from(raw)
    if version != _VERSION:
        raise RosterError(f"a roster of version {version}, and this program reads version {_VERSION}: update the older")
    body, signature = raw[_FRAME.size : _FRAME.size + length], raw[_FRAME.size + length :]
    if len(body) != length or len(signature) not in (0, ED25519_BYTES):
        raise RosterError("this is no roster: it is cut, or bytes follow it; copy it again from where it was signed")
    return body, signature


def unsigned(roster: Roster) -> bytes:
    """The file of a roster that the root has yet to sign."""
    return _FRAME.pack(_ROSTER_MAGIC, _VERSION, len(roster.body)) + roster.body


def read_unsigned(raw: bytes) -> Roster:
    """A roster to be signed, or one whose signature does not matter; RosterError for anything else."""
    body, _ = _framed(raw)
    return _read_body(body)


def sign_roster(roster: Roster, root: Identity) -> bytes:
    """The file of a roster; LocalProtocolError for another root's."""
    if root.public != roster.root:
        raise LocalProtocolError(f"the roster names another root than {root.fingerprint}")
    return unsigned(roster) + root.sign(_said(roster))


def _said(roster: Roster) -> bytes:
    return statement(SignedKind.ROSTER, roster.market, roster.body, serial=roster.serial)


def read_roster(
    raw: bytes, *, name: str = "", root: bytes = b"", previous: Roster | None = None, now_ns: int | None = None
) -> Roster:
    """A signed roster; RosterError, which says what to do, for one that does not count.

    `name` and `root` of the market, where they are known; `previous`: the roster in force, which it must be or follow;
    `now_ns`: refuse one of which nobody's key counts now.
    """
    body, signature = _framed(raw)
    roster = _read_body(body)
    if previous is not None:
        name, root = previous.name, previous.root
    if (name and roster.name != name) or (root and roster.root != root):
        mine = f'"{name}"' if name and roster.name != name else "this market, whose root has another key"
        raise RosterError(f'a roster of the market "{roster.name}", not of {mine}: take the right one')
    if not signature:
        raise RosterError(f"roster {roster.serial} is not signed: isocast keys sign signs it, where root.key is")
    if not is_signed(roster.root, signature, _said(roster)):
        rule = "it was changed, copy it again from where it was signed"
        raise RosterError(f"roster {roster.serial} has a wrong signature: {rule}")
    if previous is not None and roster.digest != previous.digest:
        _insist_on_chain(roster, previous)
    if now_ns is not None:
        _insist_on_time(roster, now_ns)
    return roster


def _insist_on_chain(roster: Roster, previous: Roster) -> None:
    have, new = previous.serial, roster.serial
    if new < have:
        raise RosterError(f"roster {new} is older than {have}, which is in force: take the newest")
    if new == have:
        rule = f"the root signed two with one serial; make number {new + 1} from the one in force"
        raise RosterError(f"another roster {new} is in force: {rule}")
    if new > have + 1:
        raise RosterError(f"roster {new} does not follow {have}: bring those between into force first")
    if not roster.follows(previous):
        raise RosterError(f"roster {new} does not continue roster {have}: make it again from the one in force")


def _insist_on_time(roster: Roster, now_ns: int) -> None:
    if not roster.members or any(member.covers(now_ns) for member in roster.members):
        return
    if all(now_ns < member.not_before_ns for member in roster.members):
        raise RosterError(f"roster {roster.serial} does not count yet: this machine's clock is behind, set it")
    raise RosterError(f"all keys of roster {roster.serial} have expired: isocast keys roster --extend prolongs them")


# ---- revocations


@dataclass(frozen=True, slots=True)
class Revocation:
    """A public key counts no more, from the moment on that somebody sees this."""

    market: bytes
    node: NodeId
    """Whose it was, for people."""
    public: bytes
    time_ns: int
    by: Revoker
    signature: bytes = b""

    def counts(self, roster: Roster) -> bool:
        """Whether the root of this roster, or the holder of its revoke key, said so."""
        key = roster.root if self.by is Revoker.ROOT else roster.revoke_key
        return self.market == roster.market and is_signed(key, self.signature, _revoked_said(self))

    @property
    def encoded(self) -> bytes:
        """Its bytes, in a file and at a door."""
        return _revocation_body(self) + self.signature


def _revocation_body(revocation: Revocation) -> bytes:
    return _REVOCATION.pack(
        _REVOCATION_MAGIC,
        _VERSION,
        revocation.market,
        revocation.node,
        revocation.public,
        revocation.time_ns,
        revocation.by,
    )


def _revoked_said(revocation: Revocation) -> bytes:
    return statement(SignedKind.REVOCATION, revocation.market, _revocation_body(revocation))


def sign_revocation(roster: Roster, member: RosterMember, key: Identity, now_ns: int) -> Revocation:
    """Take a member's key away; LocalProtocolError for a key that is neither the root's nor the one for revoking."""
    if key.public not in (roster.root, roster.revoke_key):
        raise LocalProtocolError(f"{key.fingerprint} is neither the root of the roster nor its revoke key")
    by = Revoker.ROOT if key.public == roster.root else Revoker.REVOKE_KEY
    said = Revocation(roster.market, member.node, member.public, now_ns, by)
    return replace(said, signature=key.sign(_revoked_said(said)))


def read_revocation(raw: bytes, roster: Roster) -> Revocation:
    """A revocation that counts under a roster; RosterError, which says why, for any other bytes."""
    if len(raw) != _REVOCATION.size + ED25519_BYTES or not raw.startswith(_REVOCATION_MAGIC):
        raise RosterError("this is no revocation: copy it again from where it was made")
    _, version, market, node, public, time_ns, by = _REVOCATION.unpack_from(raw)
    if version != _VERSION or by not in tuple(Revoker):
        raise RosterError(f"a revocation of version {version}, and this program reads version {_VERSION}")
    found = Revocation(market, node, public, time_ns, Revoker(by), raw[_REVOCATION.size :])
    if found.market != roster.market:
        raise RosterError("a revocation of another market: take one of this market")
    if not found.counts(roster):
        rule = "it was changed, or the revoke key was replaced; make it again with isocast keys revoke"
        raise RosterError(f"a revocation with a wrong signature: {rule}")
    return found


# ---- rosters while the market runs


class RosterNotice(NamedTuple):
    """What a control entry says of a roster: which, and from which token on it counts."""

    serial: int
    digest: bytes
    effective: int


def roster_entry(roster: Roster, effective: int) -> ControlEntry:
    """The entry that puts a roster into force from a token on. The roster itself travels by other ways."""
    return ControlEntry(ControlKind.ROSTER, roster.serial, _ENTRY.pack(roster.digest, effective))


def read_roster_entry(entry: ControlEntry, token_number: int) -> RosterNotice:
    """What an entry of this token says; RosterError for one of another form.

    A roster counts at the earliest behind the token that announces it, so that whoever holds the log up to a token
    knows which counts at it.
    """
    if entry.kind is not ControlKind.ROSTER or len(entry.body) != _ENTRY.size or not entry.subject:
        raise RosterError(f"an entry of {len(entry.body)} bytes that announces no roster")
    digest, effective = _ENTRY.unpack(entry.body)
    return RosterNotice(entry.subject, digest, max(effective, token_number + 1))


def _chain_before(first: Roster, past: Sequence[Roster]) -> list[Roster]:
    """Those of the past that lead to a roster without a gap, ascending and bounded."""
    chain: list[Roster] = []
    later = first
    for roster in sorted(past, key=lambda one: -one.serial):
        if roster.serial == later.serial - 1 and later.follows(roster) and len(chain) < _BOOK_MAX:
            chain.append(roster)
            later = roster
    return chain[::-1]


class RosterBook:
    """Which roster counts at which token, and which keys were revoked meanwhile.

    A roster that was offered is known: what is signed under it is believed. From its effective token on it is the one
    under which everybody signs, and what is signed under older ones is refused. Truncation withdraws that again. A
    revocation counts at once and for every token.
    """

    def __init__(self, first: Roster, effective: int = 0, past: Sequence[Roster] = ()) -> None:
        """`first` counts from a token on, and for all before it that are still asked for.

        `past` are rosters before it, for tokens of their time: until `restore` says which, they count for every token.
        """
        self._entries: list[tuple[int, Roster]] = [(effective, first)]
        self._past = _chain_before(first, past)
        self._offered: list[Roster] = []
        self._revocations: dict[bytes, Revocation] = {}
        self._dead: frozenset[bytes] = frozenset()

    # What is known ------------------------------------------------------------------------------

    @property
    def newest(self) -> Roster:
        """The last of the chain, whether it counts already or not."""
        return self._offered[-1] if self._offered else self._entries[-1][1]

    @property
    def entries(self) -> tuple[tuple[int, Roster], ...]:
        """(effective token, roster), ascending; without those that were only offered."""
        return tuple(self._entries)

    @property
    def revocations(self) -> tuple[Revocation, ...]:
        """Those that count under the newest roster, in the order in which they came."""
        return tuple([said for key, said in self._revocations.items() if key in self._dead])

    def at(self, token_number: int) -> Roster:
        """The roster that counts at a token."""
        for effective, roster in reversed(self._entries):
            if effective <= token_number:
                return roster
        return self._entries[0][1]

    def of_serial(self, serial: int) -> Roster | None:
        """The roster of a serial, if it is known."""
        known = (*self._past, *(roster for _, roster in self._entries), *self._offered)
        return next((roster for roster in known if roster.serial == serial), None)

    # Whose key is whose -------------------------------------------------------------------------

    def public_of(
        self, node: NodeId, token_number: int, stripe: int | None = None, now_ns: int | None = None
    ) -> bytes | None:
        """The public key of an id at a token; None as `Roster.public_of` has it, and for what was revoked since."""
        return self._alive(self.at(token_number).public_of(node, stripe, now_ns))

    def key_of(
        self,
        node: NodeId,
        serial: int,
        token_number: int | None = None,
        stripe: int | None = None,
        now_ns: int | None = None,
        *,
        settled: bool = False,
    ) -> bytes | None:
        """The public key of an id under the serial that its signature names.

        At a token: None for an unknown serial, and for one that is older than what counts there. A node that does not
        know since when its first roster counts believes at any token those of the past too, and the keys of the first
        for the one before. Without a token, for ballots: only the newest counts, so that a server believes no vote that
        a member would refuse.
        """
        roster = self.of_serial(serial)
        if token_number is None:
            return self._alive(roster.public_of(node, stripe, now_ns)) if roster is self.newest else None
        counting = self.at(token_number)
        if serial < counting.serial:
            if counting is not self._entries[0][1]:
                return None
            roster = roster or (counting if serial == counting.serial - 1 else None)
        if roster is None:
            return None
        public = roster.public_of(node, stripe, now_ns)
        return public if settled else self._alive(public)

    def serial_of(self, public: bytes, token_number: int | None = None) -> int:
        """Under which serial the owner of a key signs.

        At a token: under the one that counts, or the first later one that lists the key. Whoever does not follow the
        sequence gives no token, and signs under the newest that lists the key.
        """
        known = [*(roster for _, roster in self._entries), *self._offered]
        if token_number is None:
            known.reverse()
        else:
            counting = self.at(token_number)
            known = known[known.index(counting) :]
        return next((roster for roster in known if roster.lists(public)), known[0]).serial

    def is_revoked(self, public: bytes) -> bool:
        """Whether a key was taken away, by a revocation or by the newest roster."""
        return public in self._dead or self.newest.is_revoked(public)

    def _alive(self, public: bytes | None) -> bytes | None:
        return None if public is None or self.is_revoked(public) else public

    # Changes ------------------------------------------------------------------------------------

    def restore(self, effective: Mapping[int, int]) -> None:
        """Know again since which token each serial counts; later ones of the chain were only offered."""
        chain = [*self._past, *(roster for _, roster in self._entries), *self._offered]
        counted = [roster for roster in chain if roster.serial in effective]
        if counted:
            self._entries = [(effective[roster.serial], roster) for roster in counted]
            self._past = [roster for roster in chain if roster.serial < counted[0].serial]
            self._offered = [roster for roster in chain if roster.serial > counted[-1].serial]
            self._judge_revocations()

    def offer(self, roster: Roster) -> bool:
        """Know the next roster, before the sequence says when it counts; False for one that does not follow."""
        if len(self._offered) >= _BOOK_MAX or not roster.follows(self.newest):
            return False
        self._offered.append(roster)
        self._judge_revocations()
        return True

    def schedule(self, roster: Roster, effective: int) -> bool:
        """Let the next roster count from a token on; False for one that does not follow, or not later."""
        last, counting = self._entries[-1]
        if effective < last or not roster.follows(counting):
            return False
        if self._offered and self._offered[0].digest == roster.digest:
            del self._offered[0]
        else:
            self._offered.clear()
        self._entries.append((effective, roster))
        del self._entries[:-_BOOK_MAX]
        self._judge_revocations()
        return True

    def withdraw(self, token_number: int) -> None:
        """Let no roster count that would from this token on or later; they stay known. The first stays as it is."""
        kept = [entry for entry in self._entries[1:] if entry[0] < token_number]
        gone = [roster for effective, roster in self._entries[1:] if effective >= token_number]
        self._entries = [self._entries[0], *kept]
        self._offered = [*gone, *self._offered][:_BOOK_MAX]
        self._judge_revocations()

    def revoke(self, revocation: Revocation) -> bool:
        """Take a key away at once; False where it is no news, or not rightly signed. Bounded by who is listed."""
        known = self.is_revoked(revocation.public)
        rosters = (*self._past, *(roster for _, roster in self._entries), *self._offered)
        listed = any(roster.lists(revocation.public) for roster in rosters)
        if known or not listed or not revocation.counts(self.newest):
            return False
        self._revocations[revocation.public] = revocation
        self._dead |= {revocation.public}
        return True

    def _judge_revocations(self) -> None:
        """A revocation lapses with the revoke key that signed it, unless the root has made it its own."""
        self._dead = frozenset(key for key, said in self._revocations.items() if said.counts(self.newest))
