"""What a file is, by its first bytes: a name may say anything."""

from __future__ import annotations

import re

from isocast.feeds.cells import BOM
from isocast.feeds.itch_layout import LENGTH_OF_TYPE, PREFIX_BYTES
from isocast.wire.events import are_events
from isocast.wire.limits import EVENT_BYTES

__all__ = ["begins_like_events", "begins_like_itch", "begins_like_lobster", "is_text", "is_wide_text"]

_UNKNOWN = 0xFF
_MESSAGES = 5
"""So many messages in a row are no chance."""
_CONTROLS = bytes(code for code in range(0x20) if code not in b"\t\r\n\x1f") + b"\x7f"
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_LOBSTER = re.compile(rb"\s*\d+(?:\.\d+)?,[1-7],-?\d+,\d+,-?\d+,-?1\s*")


def is_text(head: bytes) -> bool:
    """Text in any encoding of which ASCII is a part."""
    return not head.translate(None, bytes(range(256)).translate(None, _CONTROLS))


def is_wide_text(head: bytes) -> bool:
    """Text of two bytes for each character, as some spreadsheets write it."""
    return head.startswith(_WIDE) and b"\0" in head


def begins_like_itch(head: bytes) -> bool:
    """Whether messages of ITCH 5.0 follow each other, each with its length before it, or with a zero there."""
    at = 0
    for count in range(_MESSAGES):
        if at + PREFIX_BYTES >= len(head):
            return count > 0
        length, known = int.from_bytes(head[at : at + PREFIX_BYTES]), LENGTH_OF_TYPE[head[at + PREFIX_BYTES]]
        if known == _UNKNOWN or length not in (0, known):
            return False
        at += PREFIX_BYTES + known
    return True


def begins_like_events(head: bytes) -> bool:
    """Whether these are records of our own."""
    whole = len(head) - len(head) % EVENT_BYTES
    return whole > 0 and are_events(head[:whole])


def begins_like_lobster(head: bytes) -> bool:
    """Whether the first lines are LOBSTER's: time, type 1 to 7, order, size, price, direction."""
    lines = [line for line in head.removeprefix(BOM).split(b"\n")[:_MESSAGES] if line.strip()]
    whole = lines[:-1] if len(lines) > 1 else lines
    return bool(whole) and all(_LOBSTER.fullmatch(line) for line in whole)
