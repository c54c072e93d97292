"""An interpreter of classic BPF, as far as the filters use it, after the rules of the kernel's documentation."""

from __future__ import annotations

from struct import unpack_from

from isocast.runtime.net.filters import Filter

__all__ = ["datagram", "passes"]

_NETWORK_HEADER = 0xFFF0_0000
_IP_BYTES = 20


def datagram(payload: bytes, sender: int) -> bytes:
    """A datagram from its IP header on; what the filters do not look at is zero."""
    return bytes(12) + sender.to_bytes(4, "big") + bytes(4) + bytes(8) + payload


def passes(program: Filter, packet: bytes) -> bool:
    """Whether a program lets a datagram through. A load beyond its end drops it; a program must end in a return."""
    accumulator, at = 0, 0
    for _ in range(len(program) + 1):
        code, if_true, if_false, constant = program[at]
        at += 1
        match code:
            case 0x20 | 0x28:
                size = 4 if code == 0x20 else 2
                start = constant - _NETWORK_HEADER if constant >= _NETWORK_HEADER else constant + _IP_BYTES
                if start + size > len(packet):
                    return False
                accumulator = unpack_from(">I" if size == 4 else ">H", packet, start)[0]
            case 0x80:
                accumulator = len(packet) - _IP_BYTES
            case 0x54:
                accumulator &= constant
            case 0x15:
                at += if_true if accumulator == constant else if_false
            case 0x35:
                at += if_true if accumulator >= constant else if_false
            case 0x05:
                at += constant
            case 0x06:
                return constant > 0
            case _:
                raise AssertionError(f"instruction {code:#x} is not of these programs")
    raise AssertionError("the program does not end")
