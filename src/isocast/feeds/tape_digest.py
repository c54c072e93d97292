"""Digests of event records, so that tapes can be compared: of the whole sequence, and of each floor's own.

Networks keep the order of each floor and interleave floors as they arrive. Two tapes carry the same when the digests
of every floor agree; they are the same when the digest of the whole agrees.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from isocast.wire.events import EventArray

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["DIGEST_BYTES", "TapeDigest"]

DIGEST_BYTES = 16


class TapeDigest:
    """Fed with blocks, in order; how they are cut makes no difference."""

    def __init__(self) -> None:
        """Nothing was fed."""
        self.events = 0
        self._whole = sha256()
        self._floors: dict[str, tuple[_Hash, int]] = {}

    def update(self, events: EventArray) -> None:
        """Some events more."""
        self.events += len(events)
        raw = np.ascontiguousarray(events)
        self._whole.update(raw.tobytes())
        codes, which = np.unique(np.ascontiguousarray(raw["floor"]).view(np.uint32), return_inverse=True)
        for place, name in enumerate(codes.view("S4").tolist()):
            own = raw if len(codes) == 1 else raw[which == place]
            digest, count = self._floors.setdefault(name.decode("ascii"), (sha256(), 0))
            digest.update(own.tobytes())
            self._floors[name.decode("ascii")] = digest, count + len(own)

    @property
    def hex(self) -> str:
        """Of the whole sequence."""
        return self._whole.digest()[:DIGEST_BYTES].hex()

    @property
    def floors(self) -> dict[str, tuple[int, str]]:
        """For each floor: its events, and the digest of its own sequence."""
        return {
            name: (count, digest.digest()[:DIGEST_BYTES].hex())
            for name, (digest, count) in sorted(self._floors.items())
        }
