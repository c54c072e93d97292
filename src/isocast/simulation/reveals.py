"""Seals of a simulated market whose sources disclose their keys: the product's own, with secrets from the seed."""

from __future__ import annotations

from hashlib import blake2b

from isocast.ring.disclosures import links
from isocast.ring.source import OutboxState
from isocast.security.chains import ChainOpener, ChainSealer
from isocast.security.keys import KEY_BYTES, SecretKey
from isocast.security.sealing import SALT_BYTES
from isocast.terms.ids import NodeId
from isocast.wire.packets import Disclosure

__all__ = ["SimulatedSeals"]

_WALKS_KEPT = 1_024
_INCARNATION_BITS = 32


class _ReusedChain(ChainSealer):
    """Begins with its first link again, as if it had never sent."""

    skipped = 0

    def _link(self, number: int, salt: bytes) -> bytes:
        return super()._link(max(number - self.skipped, 1), salt)


class SimulatedSeals:
    """Makes the sealers of sources, start after start, and judges links for receivers and checkers."""

    def __init__(self, seed: int, sources: int, *, same_chain: bool) -> None:
        """`same_chain`: a source that starts again hangs its first message on its first link (a mutant's mistake)."""
        self._seed = seed
        self._same_chain = same_chain
        self._starts: dict[NodeId, int] = {}
        self._sealers: dict[NodeId, ChainSealer] = {}
        self._walks: dict[tuple[NodeId, int, bytes], dict[int, bytes]] = {}
        self._secrets = {number: SecretKey(self._drawn(number, "key", KEY_BYTES)) for number in range(1, sources + 1)}
        self._opener = ChainOpener(self._secrets, 0)

    def _drawn(self, name: object, purpose: str, size: int) -> bytes:
        return blake2b(f"{self._seed}/{name}/{purpose}".encode(), digest_size=size).digest()

    def sealer(self, source: NodeId, outbox: OutboxState) -> ChainSealer:
        """Of a source that starts with this outbox."""
        start = self._starts[source] = self._starts.get(source, 0) + 1
        secret = self._secrets[source >> _INCARNATION_BITS]
        seed, salt = self._drawn(source, "seed", KEY_BYTES), self._drawn(f"{source}/{start}", "salt", SALT_BYTES)
        sealed = {number: payload for number, (_, payload) in outbox.messages.items()}
        sealer = ChainSealer(secret, seed, source, 0, salt, sealed)
        if self._same_chain:
            sealer = reused = _ReusedChain(secret, seed, source, 0, self._drawn(source, "salt", SALT_BYTES), sealed)
            reused.skipped = outbox.next_number - 1
        self._sealers[source] = sealer
        return sealer

    def link(self, source: NodeId, number: int) -> bytes:
        """What opens a message that a source has just sealed."""
        return self._sealers[source].links(number, number)[0][1]

    def fits(self, label: tuple[NodeId, int], link: bytes, sealed: bytes) -> bool:
        """Whether a link opens a message."""
        return self._opener.fits(label, link, sealed)

    def opens(self, message: tuple[NodeId, int], shown: tuple[int, bytes], sealed: bytes) -> bool:
        """Whether a link that was shown with a later number leads to one that opens a message."""
        source, number = message
        key = (source, *shown)
        walk = self._walks.get(key)
        if walk is None:
            walk = self._walks[key] = links(Disclosure(source, *shown), 1)
            if len(self._walks) > _WALKS_KEPT:
                del self._walks[next(iter(self._walks))]
        link = walk.get(number)
        return link is not None and self._opener.fits(message, link, sealed)
