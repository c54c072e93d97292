"""Seals whose keys their source discloses itself, after the gate (§6): `reveal = "chain"`.

Payloads look as under `sealing`, and the journal proves them in the same way; only the seal key is made otherwise:

    last link      BLAKE2b-256 keyed with the seed: salt 16 | source id 8 | stripe 2 | chain 8
    link           the hash of the next number's link (`ring.disclosures`)
    seal key       BLAKE2b-256 keyed with the link: base key 32 | salt 16 | source id 8 | number 8

The seed is the source's alone and lies beside its outbox, so that a restart can still disclose what was sent before.
The salt is drawn at each start and travels in the payload: every start begins chains of its own. A source that was set
back to an earlier moment, and so gives a number again, hangs it on a link that nobody has seen.

The base key is that of `sealing`, and of the generation that the salt names: a disclosed link travels in the clear, and
opens nothing for whoever is no receiver, or is none any more. Another generation is another salt, and so another chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from hashlib import blake2b
from struct import Struct
from typing import NoReturn

from isocast.ring.disclosures import CHAIN_LENGTH, chain_of, link_before
from isocast.security.keys import KEY_BYTES, SecretKey
from isocast.security.sealing import (
    CHANGES_REPAIRED,
    SALT_BYTES,
    Generations,
    Opened,
    is_committed,
    open_with,
    seal_with,
)
from isocast.terms.errors import ForgeryError, LocalProtocolError, StrangerError
from isocast.terms.ids import Label, NodeId

__all__ = ["ChainOpener", "ChainSealer"]

_ROOT = Struct(">16sQHQ")
_KEYED = Struct(">32s16sQQ")
_INCARNATION_BITS = 32
_CHAINS_KEPT = 16
"""Chains whose links are remembered: those in use, and what a restart or a late disclosure needs; 32 KiB each."""
_SALTS_KEPT = 1_024
"""Of which an opener remembers the base keys: a source could draw a salt for each message."""
_NONE_BROUGHT = Generations()


def _seal_key(link: bytes, base: bytes, salt: bytes, label: tuple[NodeId, int]) -> bytes:
    return blake2b(_KEYED.pack(base, salt, *label), digest_size=KEY_BYTES, key=link).digest()


class ChainSealer:
    """Seals the payloads of one incarnation of a source in one stripe, and has the links that open them."""

    def __init__(
        self,
        secret: SecretKey,
        seed: bytes,
        source: NodeId,
        stripe: int,
        salt: bytes,
        sealed: Mapping[int, bytes],
        generations: Generations | None = None,
    ) -> None:
        """`seed`: the source's own; `salt`: random, new at each start; `sealed`: what its outbox holds, by number.

        `generations`: what is sealed is of the one that is current then; None: there are none, and none is named.
        """
        if len(salt) != SALT_BYTES or len(seed) != KEY_BYTES:
            raise LocalProtocolError(f"a salt has {SALT_BYTES} bytes and a seed {KEY_BYTES}")
        self._seed = seed
        self._secret = secret
        self._generations = generations
        self._generation = b""
        """Of which the next two are."""
        self._sealing, self._base = salt, b""
        self._source = source
        self._stripe = stripe
        self._drawn = salt
        self._last = 0
        self._firsts: list[int] = []
        """Where another salt begins, and which: the outbox of each start before this one, and this one."""
        self._salts: list[bytes] = []
        self._chains: dict[tuple[bytes, int], list[bytes]] = {}
        for number in sorted(sealed):
            self._note(number, sealed[number][:SALT_BYTES])

    def _note(self, number: int, salt: bytes) -> None:
        if not self._salts or self._salts[-1] != salt:
            self._firsts.append(number)
            self._salts.append(salt)
        self._last = number

    def seal(self, stripe: int, label: Label, payload: bytes) -> bytes:
        """The sealed payload of this label; LocalProtocolError for another source's, or one already sealed."""
        source, number = label
        if (stripe, source) != (self._stripe, self._source):
            raise LocalProtocolError(f"source {self._source} does not seal for source {source} in stripe {stripe}")
        if number <= self._last:
            raise LocalProtocolError(f"message {number} comes after {self._last}: a seal is made once")
        generations = self._generations or _NONE_BROUGHT
        if self._generation != generations.current:
            self._turn(generations)
        salt = self._sealing
        self._note(number, salt)
        return seal_with(_seal_key(self._link(number, salt), self._base, salt, label), salt, stripe, label, payload)

    def _turn(self, generations: Generations) -> None:
        """Seal by what is current: at the start, and when a roster brought another core key."""
        self._generation = generations.current
        self._sealing = self._drawn if self._generations is None else generations.salt(self._drawn)
        self._base = generations.base_key(self._secret, self._source >> _INCARNATION_BITS, self._stripe, self._sealing)

    def links(self, first: int, last: int) -> list[tuple[int, bytes]]:
        """The fewest links that open every message from `first` to `last`, as far as their salts are known."""
        found: list[tuple[int, bytes]] = []
        number = min(last, self._last)
        while number >= first:
            place = bisect_right(self._firsts, number) - 1
            if place < 0:
                break  # Of a start that this outbox has nothing of any more.
            found.append((number, self._link(number, self._salts[place])))
            number = max(self._firsts[place], chain_of(number) * CHAIN_LENGTH + 1) - 1
        return found[::-1]

    def _link(self, number: int, salt: bytes) -> bytes:
        which = chain_of(number)
        chain = self._chains.get((salt, which))
        if chain is None:
            link = blake2b(
                _ROOT.pack(salt, self._source, self._stripe, which), digest_size=KEY_BYTES, key=self._seed
            ).digest()
            chain = [link]
            for _ in range(CHAIN_LENGTH - 1):
                link = link_before(link)
                chain.append(link)
            self._chains[salt, which] = chain
            if len(self._chains) > _CHAINS_KEPT:
                del self._chains[next(iter(self._chains))]
        return chain[(which + 1) * CHAIN_LENGTH - number]

    def __repr__(self) -> str:
        return f"ChainSealer(source {self._source}, stripe {self._stripe})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied: its copy would seal a number again")


class ChainOpener:
    """Opens payloads of all sources by the links that these disclosed: before that, not even a trusted receiver can."""

    def __init__(self, sources: Mapping[int, SecretKey], stripe: int, generations: Generations | None = None) -> None:
        """Keys by source number, and the generations that are known; None: nobody names any."""
        self._sources = dict(sources)
        self._stripe = stripe
        self._are_named = generations is not None
        self._generations = generations or _NONE_BROUGHT
        self._known = self._generations.known
        self._bases: dict[tuple[int, bytes], bytes] = {}

    def knows(self, _: int, __: tuple[NodeId, int], sealed: bytes, changes: int = CHANGES_REPAIRED) -> bool:
        """Whether a payload is of a generation that is heard here, so many changes of the core key later at the most.

        No other is to be heard.
        """
        return not self._are_named or self._generations.names(sealed, changes)

    def lacks(self, _: int, __: tuple[NodeId, int], sealed: bytes) -> bool:
        """Whether what does not open here may open elsewhere: its generation was never known here."""
        return self._are_named and self._generations.lacks(sealed)

    def _key(self, label: tuple[NodeId, int], link: bytes, sealed: bytes) -> bytes:
        number, salt = label[0] >> _INCARNATION_BITS, sealed[:SALT_BYTES]
        if self._known is not self._generations.known or len(self._bases) >= _SALTS_KEPT:
            self._known = self._generations.known
            self._bases.clear()
        base = self._bases.get((number, salt))
        if base is None:
            secret = self._sources.get(number)
            if secret is None:
                raise StrangerError(f"no key of source {number}")
            base = self._generations.base_key(secret, number, self._stripe, salt)
            self._bases[number, salt] = base
        return _seal_key(link, base, salt, label)

    def fits(self, label: tuple[NodeId, int], link: bytes, sealed: bytes) -> bool:
        """Whether a link opens a sealed payload, by what that commits to."""
        try:
            return is_committed(self._key(label, link, sealed), sealed)
        except StrangerError:
            return False

    def open(self, label: tuple[NodeId, int], link: bytes, sealed: bytes) -> Opened:
        """What was sealed under this label; ForgeryError without the link, or if the payload was made wrongly."""
        if not link:
            raise ForgeryError(f"message {label[1]} of source {label[0]} is void: no key was disclosed in time")
        return open_with(self._key(label, link, sealed), self._stripe, label, sealed)

    def __repr__(self) -> str:
        return f"ChainOpener({len(self._sources)} sources)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")
