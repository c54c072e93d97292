"""U, the sites whose majority decides, as a function of the log: tokens change it, one site at a time (protocol §5).

A forced change replaces U on an operator's word alone: a majority of the U before will never come back, so nobody waits
for its certificate, and what was uncertified before the change is certified by the new U.
"""

from __future__ import annotations

from struct import iter_unpack, pack

from isocast.terms.ids import NodeId
from isocast.wire.packets import ControlEntry, ControlKind, Token

__all__ = ["CHANGES", "UNIVERSE_MIN", "force_entry", "forced_universe", "universe_after"]

UNIVERSE_MIN = 2
"""A ring of one orders nothing that anybody else could vouch for."""
CHANGES = (ControlKind.ADD_SITE, ControlKind.REMOVE_SITE)
"""What an operator may ask of a site. A forced change is asked of a server."""


def force_entry(server: NodeId, universe: tuple[NodeId, ...]) -> ControlEntry:
    """What the first token of a forced ring says, for ever, of who forced U and to what."""
    return ControlEntry(ControlKind.FORCE_UNIVERSE, server, pack(f"<{len(universe)}I", *universe))


def forced_universe(token: Token) -> tuple[NodeId, ...] | None:
    """U as a token forces it; None for a token that forces nothing."""
    for entry in token.control:
        if entry.kind is ControlKind.FORCE_UNIVERSE:
            whole = len(entry.body) // 4 * 4
            return tuple([site for (site,) in iter_unpack("<I", entry.body[:whole])])
    return None


def universe_after(universe: tuple[NodeId, ...], token: Token) -> tuple[NodeId, ...]:
    """U after the token's control entries."""
    for entry in token.control:
        if entry.kind is ControlKind.ADD_SITE and entry.subject not in universe:
            universe = tuple(sorted([*universe, entry.subject]))
        elif entry.kind is ControlKind.REMOVE_SITE and len(universe) > UNIVERSE_MIN:
            universe = tuple([site for site in universe if site != entry.subject])
        elif entry.kind is ControlKind.FORCE_UNIVERSE:
            universe = forced_universe(token) or universe
    return universe
