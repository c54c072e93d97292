"""Many datagrams in one system call: how bursts are put together for UDP_SEGMENT and taken apart after UDP_GRO.

The kernel cuts one long buffer into datagrams of equal length, of which the last may be shorter, and hands datagrams
of one flow that it received together to the reader in the same form. Per datagram that costs a twentieth of a call.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

from isocast.terms.errors import LocalProtocolError
from isocast.wire.limits import MAX_UDP

__all__ = [
    "MAX_SEGMENTS",
    "SOL_UDP",
    "UDP_GRO",
    "UDP_SEGMENT",
    "Burst",
    "Segmentation",
    "bursts_of",
    "cut",
    "segment_control",
    "segment_of",
]

SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
"""From linux/udp.h; the module `socket` names none of them."""

MAX_SEGMENTS = 64
"""Datagrams in one call: the limit of kernels before 6.9; later ones take 128."""

_CUTTERS = 512
"""Shapes of aggregates that are remembered; a forgotten one costs half a microsecond, which bounds hostile variety."""

Ancillary: TypeAlias = tuple[tuple[int, int, bytes], ...]

_U16 = Struct("=H")
_I32 = Struct("=i")


class Burst(NamedTuple):
    """Consecutive frames that one call can send: all of `segment` bytes, the last perhaps shorter."""

    frames: Sequence[bytes]
    segment: int


def bursts_of(frames: Sequence[bytes], most: int = MAX_SEGMENTS) -> list[Burst]:
    """Cut frames, in their order, into the longest bursts that UDP_SEGMENT allows."""
    bursts: list[Burst] = []
    lengths = list(map(len, frames))
    total = len(lengths)
    at = 0
    while at < total:
        segment = lengths[at]
        if segment > MAX_UDP:
            raise LocalProtocolError(f"a frame of {segment} bytes; a UDP datagram has at most {MAX_UDP}")
        end = min(at + min(most, MAX_UDP // segment), total) if segment else at + 1
        # Counting is fast, and nearly every run is even; the search for the first odd length is the exception.
        if lengths[at:end].count(segment) != end - at:
            odd = next(place for place in range(at, end) if lengths[place] != segment)
            end = odd + (0 < lengths[odd] < segment)
        bursts.append(Burst(frames[at:end], segment))
        at = end
    return bursts


@lru_cache(maxsize=256)
def segment_control(segment: int) -> Ancillary:
    """The control message that asks the kernel to cut a buffer into datagrams of `segment` bytes."""
    return ((SOL_UDP, UDP_SEGMENT, _U16.pack(segment)),)


def segment_of(control: Sequence[tuple[int, int, bytes]], length: int) -> int:
    """How long the datagrams of a received buffer are; its whole length when the kernel put none together."""
    for level, kind, value in control:
        if level == SOL_UDP and kind == UDP_GRO and len(value) >= _I32.size:
            segment: int = _I32.unpack_from(value)[0]
            return segment if 0 < segment < length else length
    return length


def cut(buffer: bytearray, length: int, segment: int) -> tuple[bytes, ...]:
    """The datagrams in the first `length` bytes of a buffer, each copied once."""
    return _cutter(length, segment).unpack_from(buffer)


@lru_cache(maxsize=_CUTTERS)
def _cutter(length: int, segment: int) -> Struct:
    """A struct with one field for each datagram: its one call replaces a loop of slices."""
    if not length:
        return Struct("0s")
    whole, rest = divmod(length, segment)
    return Struct(f"{segment}s" * whole + (f"{rest}s" if rest else ""))


class Segmentation:
    """Whether the kernel cuts bursts for a socket, learnt from what it refuses."""

    __slots__ = ("limit", "refusal")

    def __init__(self) -> None:
        """Believe that it does."""
        self.limit = MAX_UDP
        """The longest segment worth trying; 0 when the kernel has refused for good."""
        self.refusal = ""
        """What it said, in words."""

    @property
    def state(self) -> str:
        """One line for a person."""
        if not self.limit:
            return f"off: {self.refusal}"
        return f"on, up to {self.limit} bytes: {self.refusal}" if self.refusal else "on"

    def refused(self, reason: OSError, segment: int) -> bool:
        """Whether this error is about segmentation at all; if so, never try again what failed."""
        match reason.errno:
            case errno.EIO | errno.ENOPROTOOPT | errno.EOPNOTSUPP:
                # No checksum offload on the way out, or a kernel without the option: no length will pass.
                self.limit = 0
            case errno.EINVAL | errno.EMSGSIZE:
                # The segment exceeds the path's MTU. Shorter ones still pass; this one IP fragments, sent alone.
                self.limit = min(self.limit, segment - 1)
            case _:
                return False
        self.refusal = f"{reason.strerror or reason} for segments of {segment} bytes"
        return True
