"""Bytes that nobody wrote, for every decoder alike: seeds with numbers at their limits put in, and the verdict."""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from isocast.terms.errors import RemoteProtocolError

__all__ = ["accepts", "mutated"]

_EDGES = (b"\0", b"\xff", b"\1", b"\x7f", b"\x80", b"\xff\xff", b"\0\1", b"\xff" * 4, b"\0" * 8, b"\xff" * 8)


def accepts(ways: Sequence[Callable[[bytes], object]], data: bytes) -> bool:
    """Send the bytes into the decoder that the first one chooses; True when it accepted them.

    A way asserts that what is accepted is what the encoder writes: everything has one spelling.
    """
    way = ways[data[0] % len(ways)] if data else ways[0]
    try:
        way(data[1:])
    except RemoteProtocolError:
        return False
    return True


def mutated(seeds: Sequence[bytes], number: int, seed: int) -> Iterator[bytes]:
    """So many seeds with one to three places changed, drawn from `seed`."""
    random = Random(seed)
    for _ in range(number):
        raw = bytearray(random.choice(seeds))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(1, len(raw) + 1)
            edge = random.choice(_EDGES)
            raw[at : at + random.choice((0, len(edge), len(edge), random.randrange(20)))] = edge
        yield bytes(raw)
