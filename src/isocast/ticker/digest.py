"""Whether two tapes are the same: by the events that they were given, or by what they say.

`TapeDigest` is over the canonical records of 48 bytes, in order, of the whole sequence and of each floor: cutting
events into messages and blocks leaves it alone, and inputs, customers and journals can be compared.
`state_digest` is over everything that a tape knows: somebody who joined late, from a snapshot, has it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from isocast.feeds.tape_digest import DIGEST_BYTES, TapeDigest
from isocast.ticker.tape import Tape
from isocast.wire.events import EventArray

__all__ = ["Comparison", "TapeDigest", "compare", "digest_of", "state_digest"]


class Comparison(NamedTuple):
    """How two sequences of events agree."""

    is_same: bool
    """The same events in the same order."""
    carries_same: bool
    """The same events, each floor's in its own order; floors may be interleaved in another way."""
    differing_floors: tuple[str, ...]
    """Floors whose events differ, or are missing on one side."""


def digest_of(blocks: Iterable[EventArray]) -> TapeDigest:
    """Of a whole sequence."""
    digest = TapeDigest()
    for block in blocks:
        digest.update(block)
    return digest


def compare(one: TapeDigest, other: TapeDigest) -> Comparison:
    """Tapes of customers are the same; a tape carries the same as the inputs of its floors, merged in any way."""
    left, right = one.floors, other.floors
    differing = tuple(sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name)))
    return Comparison(one.hex == other.hex and one.events == other.events, not differing, differing)


def state_digest(tape: Tape) -> str:
    """Of everything that a tape knows: sequence, trades as they stand, quotes, status, directory and faults."""
    return sha256(tape.snapshot()).digest()[:DIGEST_BYTES].hex()
