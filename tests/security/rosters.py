"""Rosters for tests: one root, a revoke key, and a few nodes."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from isocast.security.identities import Identity
from isocast.security.roster import Roster, RosterMember, RosterRole
from isocast.terms.ids import OPERATOR, other_id, server_id, source_id

__all__ = ["NAME", "REVOKE", "ROOT", "a_roster", "identity", "member", "next_roster"]

NAME = "demo"


def identity(name: str) -> Identity:
    """The same for the same name."""
    return Identity(sha256(name.encode()).digest())


ROOT, REVOKE = identity("root"), identity("revoke")

_MEMBERS = (
    (1, "london", RosterRole.PRIMARY_RECEIVER, (0, 1)),
    (2, "tokyo", RosterRole.PRIMARY_RECEIVER, (0,)),
    (server_id(1), "reformer", RosterRole.REFORMATION_SERVER, (0, 1)),
    (OPERATOR, "operator", RosterRole.OPERATOR, ()),
    (other_id(1), "archive", RosterRole.RETRANSMIT_SERVER, (0,)),
    (source_id(1, 0), "floor", RosterRole.PRIMARY_SOURCE, (0,)),
)


def member(node: int, name: str, role: RosterRole, stripes: tuple[int, ...] = (0,), **others: object) -> RosterMember:
    who = identity(name)
    fields: dict[str, Any] = {"public": who.public, "exchange": who.exchange, "not_before_ns": 100}
    return RosterMember(node, name, role, **{**fields, "not_after_ns": 1_000, **others}, stripes=stripes)


def a_roster(**others: object) -> Roster:
    """The first of its chain."""
    members = tuple([member(*row) for row in _MEMBERS])
    fields: dict[str, Any] = {"name": NAME, "root": ROOT.public, "serial": 1, "members": members}
    return Roster(**{**fields, "revoke_key": REVOKE.public, **others})


def next_roster(roster: Roster, revoked: Sequence[bytes] = (), **others: object) -> Roster:
    """The one after it."""
    dead = tuple(sorted({*roster.revoked, *revoked}))
    changes: dict[str, Any] = {"serial": roster.serial + 1, "previous": roster.digest, "revoked": dead}
    return replace(roster, **{**changes, **others})
