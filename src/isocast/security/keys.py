"""Keys: what a market's few secrets become, one for each purpose and node.

Three kinds of secrets exist, each 32 random bytes in a file of its own:

    core      tags of the network's own packets; held by its trusted nodes and primary sources
    source    one for each source: the tags of its DATA and the seal of its payloads; shared with trusted receivers only
    edge      tags of REL and RXREQ and the customers' door; held by trusted receivers, retransmit servers and customers

Nothing is ever used as it is: `derive` makes one key for each purpose and node, so that a key found in one place
opens no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from hmac import compare_digest
from typing import Final, NoReturn

from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId

__all__ = ["KEY_BYTES", "CoreKeyring", "EdgeKeyring", "Purpose", "SecretKey", "derive"]

KEY_BYTES: Final = 32
"""256 bits: what AES-256 takes, and more than anybody can search."""
_INCARNATIONS_KEPT = 8
"""Of one source. Bounds: a forger may name 2^32 incarnations before the tag shows him up."""
_INCARNATION_BITS = 32
_NODE_BYTES = 8
_FINGERPRINT_BYTES = 4


class Purpose(Enum):
    """What a derived key is for; the value personalises the hash, so that no two purposes share a key."""

    TAG = b"isocast tag"
    """The tag of one sender's packets."""
    SEAL = b"isocast seal"
    """The AEAD of one source's payloads in one stripe."""
    DOOR = b"isocast door"
    """Who may come in by TCP."""
    PERIOD = b"isocast period"
    """What the keys of a period's services are derived from (`subscriptions`)."""
    GENERATION = b"isocast generati"
    """What a core key adds to the tag keys of sources: whoever lacks it cannot make them."""
    SEAL_GENERATION = b"isocast seal gen"
    """What a core key adds to the seals of sources, and the name of that generation."""
    FORMER = b"isocast former"
    """The AEAD by which a roster hands on the core keys before its own."""
    FINGERPRINT = b"isocast print"
    """What people compare to see that two files hold the same key."""


def derive(key: bytes, purpose: Purpose, node: NodeId, part: int = 0) -> bytes:
    """The key of one purpose and node, and of one part of it where there are several (the stripes of a seal).

    BLAKE2b keyed with the secret and personalised with the purpose: knowing one derived key says nothing of another.
    """
    name = node.to_bytes(_NODE_BYTES, "big") + part.to_bytes(_NODE_BYTES, "big")
    return blake2b(name, digest_size=KEY_BYTES, key=key, person=purpose.value).digest()


class SecretKey:
    """The 32 bytes of a key file. Shows itself by its fingerprint alone; is neither copied nor pickled."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        """LocalProtocolError for anything but 32 bytes."""
        if len(raw) != KEY_BYTES:
            raise LocalProtocolError(f"a key has {KEY_BYTES} bytes, not {len(raw)}")
        self._raw = raw

    def derive(self, purpose: Purpose, node: NodeId, part: int = 0) -> bytes:
        """The key of one purpose and node."""
        return derive(self._raw, purpose, node, part)

    @property
    def fingerprint(self) -> str:
        """Eight digits to compare two machines by; one of 2^32, and no way back to the key."""
        return derive(self._raw, Purpose.FINGERPRINT, 0)[:_FINGERPRINT_BYTES].hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretKey) and compare_digest(self._raw, other._raw)

    __hash__ = None  # type: ignore[assignment]  # A table of secrets by their value would compare them in variable time.

    def __repr__(self) -> str:
        return f"SecretKey({self.fingerprint})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a secret key is not pickled or copied")


class _Keyring(dict[NodeId, bytes]):
    """Tag keys by sender: `ring[sender]` is one look-up in a dictionary; whoever is not known is a KeyError."""

    def __init__(self, secret: SecretKey | None, members: Iterable[NodeId]) -> None:
        """One key for each member; without a secret there are none."""
        super().__init__(() if secret is None else ((node, secret.derive(Purpose.TAG, node)) for node in members))

    def get(self, node: NodeId, default: object = None) -> object:  # type: ignore[override]
        """As `ring[node]`, with a default for a stranger; dict's own would not derive."""
        try:
            return self[node]
        except KeyError:
            return default

    def __contains__(self, node: object) -> bool:
        return isinstance(node, int) and self.get(node) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} senders)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a keyring is not pickled or copied")


class EdgeKeyring(_Keyring):
    """Whom a customer may hear and a retransmit server may answer: REL, RXREQ, RXREP."""

    def __init__(self, edge: SecretKey | None, members: Iterable[NodeId]) -> None:
        """`members`: trusted receivers, retransmit servers and customers."""
        super().__init__(edge, members)


class CoreKeyring(_Keyring):
    """Whom the core may hear: its own nodes by the core key, each source by a key of its own.

    All incarnations of a source share its file; each has a tag key of its own, made when it is first heard of. A core
    key that a roster brought is the next generation of them all: both secrets are needed to make a source's tag, so a
    receiver that was removed, and kept the sources' keys, tags nothing any more.
    """

    def __init__(
        self,
        core: SecretKey | None,
        members: Iterable[NodeId],
        sources: Mapping[int, SecretKey],
        generation: SecretKey | None = None,
    ) -> None:
        """`members`: sites, servers and retransmit servers; `sources`: keys by source number.

        `generation`: the core key, where a roster brought it; None: the sources' keys are what the market began with.
        """
        super().__init__(core, members)
        self._sources = dict(sources)
        self._generation = generation
        self._heard: dict[int, list[NodeId]] = {}

    def turn_sources(self, generation: SecretKey | None) -> None:
        """From now on sources are known by the tag keys of this generation."""
        self._generation = generation
        for node in [node for heard in self._heard.values() for node in heard]:
            del self[node]
        self._heard.clear()

    def __missing__(self, node: NodeId) -> bytes:
        number = node >> _INCARNATION_BITS
        secret = self._sources[number]  # KeyError for a stranger; whoever is no source has number 0, and no key.
        heard = self._heard.setdefault(number, [])
        if len(heard) == _INCARNATIONS_KEPT:
            del self[heard.pop(0)]
        heard.append(node)
        key = secret.derive(Purpose.TAG, node)
        if self._generation is not None:
            added = self._generation.derive(Purpose.GENERATION, node)
            key = blake2b(key, digest_size=KEY_BYTES, key=added, person=Purpose.GENERATION.value).digest()
        self[node] = key
        return key
