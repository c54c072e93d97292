"""A place of its own for each market on loopback: addresses and groups that no other market of this machine uses.

The place is 127.a.b.0/24 for nodes and 239.a.b.0/24 for groups, chosen by the number of our process. Whoever uses one
holds a port of its last address; that is how others see it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from isocast.terms.errors import TransportError

__all__ = ["Place", "own_place"]

CLAIM_PORT = 7_654
"""Bound on the last address of a place while it is in use."""
_USED_PORT = 7_780
"""Where the nodes of a market that was started by hand answer."""
_FIRST, _LAST = 16, 254
"""127.1 to 127.4 are what a market file takes by itself."""
_TRIES = 32
_NODES = 32


@dataclass(frozen=True, slots=True)
class Place:
    """127.a.b.0/24 and 239.a.b.0/24."""

    first: int
    second: int

    def address(self, number: int) -> str:
        """Of a node."""
        return f"127.{self.first}.{self.second}.{number}"

    def group(self, number: int) -> str:
        """For multicast."""
        return f"239.{self.first}.{self.second}.{number}"


@contextmanager
def own_place(number: int | None = None) -> Iterator[Place]:
    """The place of our process, or the next that is free, until the block ends."""
    number = os.getpid() if number is None else number
    for attempt in range(_TRIES):
        spread = number + attempt * 257
        place = Place(_FIRST + (spread >> 8) % (_LAST - _FIRST), spread & 255)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind((place.address(254), CLAIM_PORT))
            except OSError:
                continue
            if _has_nodes(place):
                continue
            yield place
            return
    raise TransportError(
        f"no free addresses for a market on loopback: {_TRIES} places from 127.{_FIRST}.0.0/16 on are in use"
        f" (somebody holds UDP port {CLAIM_PORT} of their last address, or nodes answer at TCP port {_USED_PORT});"
        " end other demos and markets, or try again"
    )


def _has_nodes(place: Place) -> bool:
    """Whether a market without a claim is running there."""
    for number in range(1, _NODES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((place.address(number), _USED_PORT))
            continue
        return True
    return False
