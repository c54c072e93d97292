"""When messages of the edge feed were released, told where other decoders see nothing new.

An ITCH message has a tracking number of 16 bits that means something to its sender alone. Here it is a part of the
instant R of its release; which part, its MoldUDP64 number says:

    even number     milliseconds of R, modulo 65,536
    odd number      nanoseconds of R behind the millisecond, over 16

All messages of a packet have the same R. Two of them give it to 16 ns, modulo 65 s.

On narrow stripes a packet is often one message, and a repair a part of one. There every message has the milliseconds.
"""

from __future__ import annotations

import numpy as np

from isocast.feeds.mold import message_places

__all__ = ["STAMP_STEP_NS", "read_milliseconds", "read_release", "stamp_milliseconds", "stamp_release"]

STAMP_STEP_NS = 16
"""A million nanoseconds in steps of 16 are 62,500: they fit 16 bits."""
_MILLISECOND = 1_000_000
_ROUND = 1 << 16
_TRACKING_AT = 5
"""Behind length 2, type 1 and stock locate 2."""


def stamp_release(framed: bytes, first_number: int, release: int, size: int = 0) -> bytes:
    """Length-prefixed messages with their tracking numbers set; the first has this MoldUDP64 number.

    `size` is that of each of them with its length, where all have the same.
    """
    starts = np.arange(0, len(framed), size) if size else message_places(framed)[:-1]
    places = starts + _TRACKING_AT
    if not len(places):
        return framed
    milliseconds, rest = divmod(release, _MILLISECOND)
    parts = np.array([milliseconds % _ROUND, rest // STAMP_STEP_NS], np.uint16)
    stamps = parts[(first_number % 2 + np.arange(len(places))) % 2]
    raw = np.frombuffer(framed, np.uint8).copy()
    raw[places] = stamps >> 8
    raw[places + 1] = stamps & 0xFF
    return raw.tobytes()


def stamp_milliseconds(framed: bytes, release: int) -> bytes:
    """Length-prefixed messages of a narrow stripe: each with the milliseconds of its release."""
    places = message_places(framed)[:-1] + _TRACKING_AT
    milliseconds = release // _MILLISECOND % _ROUND
    raw = np.frombuffer(framed, np.uint8).copy()
    raw[places] = milliseconds >> 8
    raw[places + 1] = milliseconds & 0xFF
    return raw.tobytes()


def read_milliseconds(message: bytes, near: int) -> int:
    """The millisecond of a narrow stripe's message with its length: of those possible, the nearest to `near`."""
    told = int.from_bytes(message[_TRACKING_AT : _TRACKING_AT + 2])
    return _nearest(near // _MILLISECOND, told, _ROUND)


def read_release(body: bytes, first_number: int, near: int) -> tuple[int, int]:
    """(R, how exactly it is known in nanoseconds) from the messages of a packet: of those possible, nearest to `near`.

    With an odd number alone only the place within a millisecond is known.
    """
    places = (message_places(body)[:-1] + _TRACKING_AT).tolist()
    parts: list[int | None] = [None, None]
    for offset, place in enumerate(places):
        parts[(first_number + offset) % 2] = int.from_bytes(body[place : place + 2])
    milliseconds, steps = parts
    rest = 0 if steps is None else steps * STAMP_STEP_NS
    if milliseconds is None:
        return _nearest(near, rest, _MILLISECOND), STAMP_STEP_NS
    wanted = milliseconds * _MILLISECOND + rest
    return _nearest(near, wanted, _ROUND * _MILLISECOND), _MILLISECOND if steps is None else STAMP_STEP_NS


def _nearest(near: int, wanted: int, period: int) -> int:
    """The instant that is `wanted` modulo `period` and nearest to `near`."""
    offset = (wanted - near) % period
    return near + (offset if offset < period - offset else offset - period)
