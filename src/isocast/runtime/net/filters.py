"""Filters in the kernel: a socket drops datagrams that cannot be its market's before Python sees a byte of them.

A filter is a classic BPF program (SO_ATTACH_FILTER), generated from the market file. It sees a datagram from its UDP
header on, and lets it pass only with the right magic, version, market and stripe, long enough for a frame, and from an
address that may speak there. It decides nothing that the reader would not decide as well: tags are still checked.

Datagrams that the kernel received together (UDP_GRO) are of one sender and port, and judged by the first of them.

The kernel counts what a filter drops together with what a full buffer drops. `FullBuffers` tells them apart by the
count of the second that the kernel keeps for the whole network namespace.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import sys
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeAlias

from isocast.wire.frame import MAGIC, MARKET_AT, STRIPE_AT, VERSION
from isocast.wire.limits import FRAME_BYTES

__all__ = [
    "ADDRESSES_MAX",
    "Filter",
    "FullBuffers",
    "Instruction",
    "assembled",
    "attach",
    "frame_filter",
    "stripe_filter",
]

ADDRESSES_MAX = 1_000
"""Senders that a program names: the kernel's default memory for options (20 kB) holds some 2,400 instructions. A group
with more is filtered by its frames alone."""

# From linux/filter.h and linux/bpf_common.h.
_LD_W_ABS, _LD_H_ABS, _LD_LEN = 0x20, 0x28, 0x80
_AND_K = 0x54
_JUMP, _JEQ_K, _JGE_K = 0x05, 0x15, 0x35
_RET_K = 0x06
_SO_ATTACH_FILTER = 26
_NETWORK_HEADER = 0xFFF0_0000
"""SKF_NET_OFF: offsets from here count from the IP header."""
_SOURCE_ADDRESS_AT = _NETWORK_HEADER + 12
_UDP_HEADER_BYTES = 8
_MOLD_BYTES = 20
"""Of the shortest packet of a narrow stripe."""
_ALL = 0xFFFF_FFFF
_BLOCK = 250
"""Addresses between two exits: a jump is at most 255 instructions long."""

_INSTRUCTION = Struct("=HBBI")
_PROGRAM = Struct("@HP")
_WORD = Struct("<H")


class Instruction(NamedTuple):
    """One step of classic BPF: what to do, how far to jump if true or false, and a constant."""

    code: int
    if_true: int
    if_false: int
    constant: int


Filter: TypeAlias = tuple[Instruction, ...]

_DROP = Instruction(_RET_K, 0, 0, 0)
_PASS = Instruction(_RET_K, 0, 0, _ALL)


def frame_filter(market: bytes, stripe: int, senders: Iterable[str] = ()) -> Filter:
    """The program for a socket that takes frames of one market and stripe, from these addresses if any are named."""
    found = sorted({int(IPv4Address(sender)) for sender in senders})
    frame = _UDP_HEADER_BYTES
    program = [
        Instruction(_LD_LEN, 0, 0, 0),
        *_unless(_JGE_K, frame + FRAME_BYTES),
        Instruction(_LD_W_ABS, 0, 0, frame),
        Instruction(_AND_K, 0, 0, 0xFFFF_FF00),  # Without the kind.
        *_unless(_JEQ_K, int.from_bytes(MAGIC + bytes((VERSION, 0)), "big")),
        Instruction(_LD_W_ABS, 0, 0, frame + MARKET_AT),
        *_unless(_JEQ_K, int.from_bytes(market, "big")),
        Instruction(_LD_H_ABS, 0, 0, frame + STRIPE_AT),
        # Frames are little-endian, and the program reads big-endian.
        *_unless(_JEQ_K, int.from_bytes(_WORD.pack(stripe), "big")),
    ]
    return (*program, *_from_one_of(found))


def stripe_filter(senders: Iterable[str], magic: bytes = b"") -> Filter:
    """The program for a socket that takes narrow stripes, from these addresses if any are named.

    MoldUDP64 has no magic; `magic` is that of sealed stripes, four bytes.
    """
    found = sorted({int(IPv4Address(sender)) for sender in senders})
    program = [Instruction(_LD_LEN, 0, 0, 0), *_unless(_JGE_K, _UDP_HEADER_BYTES + _MOLD_BYTES)]
    if magic:
        program += [Instruction(_LD_W_ABS, 0, 0, _UDP_HEADER_BYTES), *_unless(_JEQ_K, int.from_bytes(magic, "big"))]
    return (*program, *_from_one_of(found))


def _from_one_of(addresses: Sequence[int]) -> list[Instruction]:
    """Pass what comes from one of these, or anything if there are none, or too many."""
    if not addresses or len(addresses) > ADDRESSES_MAX:
        return [_PASS]
    program = [Instruction(_LD_W_ABS, 0, 0, _SOURCE_ADDRESS_AT)]
    for start in range(0, len(addresses), _BLOCK):
        program += _one_of(addresses[start : start + _BLOCK])
    return [*program, _DROP]


def _unless(test: int, constant: int) -> tuple[Instruction, Instruction]:
    """Drop what does not pass a test."""
    return Instruction(test, 1, 0, constant), _DROP


def _one_of(addresses: Sequence[int]) -> list[Instruction]:
    """Pass what comes from one of these, and go on with anything else."""
    count = len(addresses)
    tests = [Instruction(_JEQ_K, count - place, 0, address) for place, address in enumerate(addresses)]
    return [*tests, Instruction(_JUMP, 0, 0, 1), _PASS]


def assembled(program: Filter) -> bytes:
    """The program as the kernel reads it."""
    return b"".join([_INSTRUCTION.pack(*step) for step in program])


def attach(receiver: socket.socket, program: Filter) -> str:
    """Let the kernel filter a socket, which is not yet bound; returns why it refuses, or nothing."""
    if sys.platform != "linux":
        return f"{sys.platform} has no filters of this kind"
    raw = ctypes.create_string_buffer(assembled(program))
    try:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(program), ctypes.addressof(raw)))
    except OSError as reason:
        if reason.errno == errno.ENOMEM:
            return "the program is larger than net.core.optmem_max allows"
        return reason.strerror or str(reason)
    return ""


class FullBuffers:
    """What the kernel dropped of a process's datagrams, split into full buffers and filters.

    Each socket has one count of both. The namespace has a count of full buffers alone, which includes other processes:
    so full buffers are counted rather too often than too rarely, and the rest was a filter.
    """

    def __init__(self, file: Path = Path("/proc/net/snmp")) -> None:
        """Start from what the namespace shows now."""
        self._file = file
        self._before = self._read()
        self._kept = 0

    def split(self, grown: Sequence[int]) -> tuple[list[int], int]:
        """Of each of these growths since the last call, what full buffers dropped; and what filters did, of all."""
        now = self._read()
        if now is None or self._before is None:
            self._before = now
            return list(grown), 0
        fresh = now - self._before
        self._before = now
        # A drop between the two readings shows up in the sockets' counts one call later.
        allowed = fresh + self._kept
        full = [min(count, allowed) for count in grown]
        self._kept = max(min(fresh, allowed - max(full, default=0)), 0)
        return full, sum(grown) - sum(full)

    def _read(self) -> int | None:
        """The namespace's RcvbufErrors of UDP; None where the kernel does not tell."""
        try:
            lines = self._file.read_text(encoding="ascii").splitlines()
            names, values = [line.split() for line in lines if line.startswith("Udp:")]
            return int(values[names.index("RcvbufErrors")])
        except (OSError, ValueError):
            return None
