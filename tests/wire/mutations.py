"""Bytes that nobody wrote, for every decoder alike: seeds with numbers at their limits put in, and the verdict."""

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random

from isocast.terms.errors import RemoteProtocolError

__all__ = ["accepts", "miscast", "mutated"]

_EDGES = (b"\0", b"\xff", b"\1", b"\x7f", b"\x80", b"\xff\xff", b"\0\1", b"\xff" * 4, b"\0" * 8, b"\xff" * 8)
_OTHER_KINDS: tuple[object, ...] = (
    5, -1, 1 << 64, 10**400, 1e999, 0.5, None, True, "x", "", [], [5], ["x"], [[]], [{}], {}, {"x": 5},
)  # fmt: skip
"""Whatever JSON has, so that for every value one of another kind is among them."""


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


def miscast(text: bytes) -> Iterator[bytes]:
    """JSON with each of its values, the whole included, in turn replaced by values of other kinds; without its keys."""
    for other in _replaced(json.loads(text)):
        yield json.dumps(other).encode()


def _replaced(value: object) -> Iterator[object]:
    yield from _OTHER_KINDS
    if isinstance(value, dict):
        for key in value:
            yield {name: part for name, part in value.items() if name != key}
            yield from [value | {key: other} for other in _replaced(value[key])]
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from [[*value[:place], other, *value[place + 1 :]] for other in _replaced(part)]
