"""U as the checkers see it: what the control entries of a log add up to, token by token.

Written anew instead of borrowed from the machines. A change counts from the token after it: that token and all before
are certified by a majority of the U before it or of the U after it, any two of which share a site. A forced change
settles everything before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from struct import unpack_from
from typing import NamedTuple, TypeAlias

from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_DIGEST, ControlEntry, ControlKind

__all__ = ["Chain", "Chains", "UniverseChange", "spans", "universe_after"]

_CHAINS_MAX = 4_096
_SMALLEST = 2
_NO_END = 1 << 62


class UniverseChange(NamedTuple):
    """U from behind a token on."""

    token_number: int
    universe: tuple[NodeId, ...]
    forced: bool = False


Chain: TypeAlias = tuple[UniverseChange, ...]
"""All changes of a log, the first of them what was configured."""


def universe_after(universe: tuple[NodeId, ...], control: Sequence[ControlEntry]) -> tuple[NodeId, ...]:
    """U behind a token with these control entries."""
    for kind, subject, body, _ in control:
        if kind is ControlKind.ADD_SITE:
            universe = tuple(sorted({*universe, subject}))
        elif kind is ControlKind.REMOVE_SITE and len(universe) > _SMALLEST:
            universe = tuple(sorted({*universe} - {subject}))
        elif kind is ControlKind.FORCE_UNIVERSE:
            universe = unpack_from(f"<{len(body) // 4}I", body)
    return universe


class Chains:
    """The chain of every log that anybody has had, by the digest of its last token."""

    def __init__(self, universe: tuple[NodeId, ...]) -> None:
        """Nobody has changed anything."""
        self.first: Chain = (UniverseChange(0, universe),)
        self._known: dict[bytes, Chain] = {NO_DIGEST: self.first}

    def at(self, digest: bytes) -> Chain:
        """The chain of a log; that of the start if it is not remembered."""
        return self._known.get(digest, self.first)

    def grow(self, chain: Chain, number: int, digest: bytes, control: Sequence[ControlEntry]) -> Chain:
        """The chain of a log that is a token longer."""
        before = chain[-1].universe if chain else ()
        universe = universe_after(before, control)
        forced = any(entry.kind is ControlKind.FORCE_UNIVERSE for entry in control)
        if universe != before or forced:
            chain = (*chain, UniverseChange(number, universe, forced))
        self._known[digest] = chain
        if len(self._known) > 2 * _CHAINS_MAX:
            for old in list(islice(self._known, 1, _CHAINS_MAX)):
                del self._known[old]
        return chain


def spans(chain: Chain, settled: int) -> list[tuple[int, tuple[NodeId, ...]]]:
    """(last token, the U that certifies up to there), in order; changes up to `settled` are certified already.

    So is every change that another one follows: that none is issued before it is judged when it is issued.
    """
    start = max(len(chain) - 2, 0)
    for place, change in enumerate(chain):
        if change.forced or change.token_number <= settled:
            start = max(start, place)
    ends = [change.token_number for change in chain[start + 1 :]] + [_NO_END]
    return [(end, change.universe) for end, change in zip(ends, chain[start:], strict=True)]
