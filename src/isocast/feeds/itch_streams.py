"""ITCH 5.0 without the framing of files: messages back to back, and the recorded bytes of a SoupBinTCP session.

    unframed        type | message                            the type says how long it is
    SoupBinTCP      length u16 | packet type | payload        sequenced data (S) carry one message each

A SoupBinTCP login (A) says the session and the number of its next message. A later login that goes back repeats
messages, which are taken once; one that goes ahead is a gap. Where bytes are neither, reading goes on where five
messages or packets follow each other exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from isocast.feeds.itch_layout import LENGTH_OF_TYPE, PREFIX_BYTES
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.wire.events import EventArray

__all__ = ["ItchStream", "SoupPackets", "UnframedMessages", "begins_like_soup", "begins_like_unframed"]

_UNKNOWN = 0xFF
_SURE = 5
"""So many messages in a row are no chance."""
_CLOCK_AT, _CLOCK_TOP = 5, 0x4E
"""86,400 s are 0x4E94914F0000 ns: the first byte of a clock is not above that."""
_LENGTH_BYTES = 2
_PACKET_AT = _LENGTH_BYTES + 1
_PACKET_MAX = 1 << 12
"""Debug text is the longest thing in such a session."""
_ACCEPTED_BYTES, _SESSION_BYTES = 30, 10
_PACKETS = {
    ord("S"): "sequenced data",
    ord("U"): "unsequenced data",
    ord("A"): "login accepted",
    ord("J"): "login rejected",
    ord("L"): "login request",
    ord("H"): "server heartbeat",
    ord("R"): "client heartbeat",
    ord("Z"): "end of session",
    ord("O"): "logout request",
    ord("+"): "debug",
}
_SIZES = {ord("A"): 31, ord("J"): 2, ord("L"): 47, ord("H"): 1, ord("R"): 1, ord("Z"): 1, ord("O"): 1}
_SEQUENCED, _ACCEPTED = ord("S"), ord("A")


class _Framing(Protocol):
    """How messages stand in the bytes."""

    name: str
    least: int
    """Bytes that are needed to tell how long the next one is."""

    def size(self, raw: bytes, at: int) -> int:
        """How long the next one is; 0 if nothing that is known begins here."""

    def message(self, raw: bytes, at: int, where: int) -> int:
        """Where the message in it begins; -1 if there is none to take."""


class UnframedMessages:
    """Nothing between messages."""

    name = "messages"
    least = _CLOCK_AT + 1

    def size(self, raw: bytes, at: int) -> int:
        """By its type; its clock must be one of a day."""
        known = LENGTH_OF_TYPE[raw[at]]
        return 0 if known == _UNKNOWN or raw[at + _CLOCK_AT] > _CLOCK_TOP else known

    def message(self, raw: bytes, at: int, where: int) -> int:  # noqa: ARG002 - it is all message
        """All of it."""
        return at


class SoupPackets:
    """Packets of one direction of a SoupBinTCP session, or of both as they were recorded."""

    name = "packets"
    least = _PACKET_AT

    def __init__(self, log: FeedLog) -> None:
        """No login was seen."""
        self._log = log
        self._next = 0
        """The number of the message that comes next; 0 while nobody has said."""
        self._expected = 0
        """The number behind the highest that was taken."""

    def size(self, raw: bytes, at: int) -> int:
        """By the length before it."""
        length, code = int.from_bytes(raw[at : at + _LENGTH_BYTES]), raw[at + _LENGTH_BYTES]
        right = code in _PACKETS and 0 < length <= _PACKET_MAX and _SIZES.get(code, length) == length
        return _LENGTH_BYTES + length if right else 0

    def message(self, raw: bytes, at: int, where: int) -> int:
        """The message of sequenced data that was not taken before."""
        code = raw[at + _LENGTH_BYTES]
        if code != _SEQUENCED:
            self._log.skip(f"SoupBinTCP {chr(code)} {_PACKETS[code]}")
            if code == _ACCEPTED:
                self._log_in(raw[at + _PACKET_AT : at + _PACKET_AT + _ACCEPTED_BYTES], where)
            return -1
        if self._next:
            self._next += 1
            if self._next <= self._expected:
                self._log.skip("messages that came twice")
                return -1
            self._expected = self._next
        return self._judged(raw, at, where)

    def _judged(self, raw: bytes, at: int, where: int) -> int:
        length = int.from_bytes(raw[at : at + _LENGTH_BYTES]) - 1
        if not length:
            self._log.skip("SoupBinTCP S without a message: the end of the session")
            return -1
        code = raw[at + _PACKET_AT]
        known = LENGTH_OF_TYPE[code]
        if length == known:
            return at + _PACKET_AT
        kind = FeedFault.UNKNOWN_TYPE if known == _UNKNOWN else FeedFault.BAD_LENGTH
        shown = repr(chr(code)) if 0x20 < code < 0x7F else f"0x{code:02x}"  # noqa: PLR2004
        self._log.fault(kind, where, f"a message of type {shown} has {length} bytes")
        return -1

    def _log_in(self, payload: bytes, where: int) -> None:
        session = payload[:_SESSION_BYTES].decode("ascii", "replace").strip()
        text = payload[_SESSION_BYTES:].strip()
        if not text.isdigit():
            self._log.fault(FeedFault.BAD_VALUE, where, "a login that is accepted without a number")
            return
        number = int(text)
        note = f"SoupBinTCP session {session} begins at message {number:,}"
        if note not in self._log.notes:
            self._log.notes.append(note)
        if self._expected and number > self._expected:
            missing = number - self._expected
            what = f"messages {self._expected} to {number - 1} are missing: the next login is behind them"
            self._log.fault(FeedFault.GAP, where, what, missing)
        self._next = number
        self._expected = max(self._expected, number)


class ItchStream:
    """Reads one file. Messages are found one by one, and decoded by blocks."""

    def __init__(self, decoder: ItchDecoder, framing: _Framing) -> None:
        """The decoder's log has all counts."""
        self._decoder = decoder
        self._framing = framing
        self._log = decoder.log

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every symbol that was announced or met."""
        return self._decoder.directory

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """The events, a block for each chunk."""
        source = iter(chunks)
        rest, offset, is_last = b"", 0, False
        while not is_last:
            chunk = next(source, b"")
            is_last = not chunk
            self._log.bytes_read += len(chunk)
            whole = rest + chunk
            found, done = self._walk(whole, offset, last=is_last)
            places = np.array(found, np.int64)
            padded = np.frombuffer(bytes(PREFIX_BYTES) + whole, np.uint8)  # The decoder steps over a prefix.
            events = self._decoder.decode(padded, places, places + offset)
            rest, offset = whole[done:], offset + done
            if len(events):
                yield events

    def _walk(self, raw: bytes, offset: int, *, last: bool) -> tuple[list[int], int]:
        """Where messages begin, and how many bytes are done with."""
        size_of, message_of, least = self._framing.size, self._framing.message, self._framing.least
        found: list[int] = []
        at, end = 0, len(raw)
        while at + least <= end:
            size = size_of(raw, at)
            if not size:
                after = self._resume(raw, at, last=last)
                if after is None:
                    return found, at
                what = f"{after - at} bytes that are no {self._framing.name}"
                self._log.fault(FeedFault.GARBAGE, offset + at, what)
                at = after
                continue
            if at + size > end:
                break
            place = message_of(raw, at, offset + at)
            if place >= 0:
                found.append(place)
            at += size
        if last and at < end:
            self._log.fault(FeedFault.TRUNCATED, offset + at, f"the feed ends {end - at} bytes into a message")
            at = end
        return found, at

    def _resume(self, raw: bytes, at: int, *, last: bool) -> int | None:
        """The next place where several follow each other, or the end; None if more bytes must be seen first."""
        for place in range(at + 1, len(raw)):
            count, after = _follow(self._framing, raw, place)
            if count >= _SURE or (count and last and after == len(raw)):
                return place
            if count < 0 and not last:
                return None if place - at < _PACKET_MAX else place
        return len(raw) if last else None


def _follow(framing: _Framing, raw: bytes, at: int) -> tuple[int, int]:
    """How many follow each other from here, at most as many as make sure; -1 if the bytes end before that is known."""
    for count in range(_SURE):
        if at == len(raw) and count:
            return count, at
        if at + framing.least > len(raw):
            return -1, at
        size = framing.size(raw, at)
        if not size:
            return 0, at
        at += size
    return _SURE, at


def _begins(framing: _Framing, head: bytes) -> bool:
    """Whether everything that the beginning of a file shows is so framed."""
    at, count = 0, 0
    while count < _SURE and at + framing.least <= len(head):
        size = framing.size(head, at)
        if not size:
            return False
        at, count = at + size, count + 1
    return count == _SURE or (count > 0 and at >= len(head))


def begins_like_unframed(head: bytes) -> bool:
    """Whether messages of ITCH 5.0 follow each other with nothing between them."""
    return _begins(UnframedMessages(), head)


def begins_like_soup(head: bytes) -> bool:
    """Whether packets of SoupBinTCP follow each other; the messages of sequenced ones must be of known lengths."""
    packets = SoupPackets(FeedLog(""))
    if not _begins(packets, head):
        return False
    at = 0
    while at + _PACKET_AT < len(head) and (size := packets.size(head, at)):
        if head[at + _LENGTH_BYTES] == _SEQUENCED and size > _PACKET_AT:
            return LENGTH_OF_TYPE[head[at + _PACKET_AT]] == size - _PACKET_AT
        at += size
    return True
