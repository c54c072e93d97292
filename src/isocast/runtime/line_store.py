"""What a node must not forget of plans of lines: one small file, written whole and brought to the disk (§4.3)."""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct

from isocast.reformation.scopes.line_effects import LineState
from isocast.terms.errors import RemoteProtocolError, StoreError
from isocast.terms.ids import NO_EPOCH
from isocast.wire.codec import decode, encode
from isocast.wire.line_packets import NO_VERSION
from isocast.wire.packets import LineAck, Lines

__all__ = ["LineStore"]

_LENGTH = Struct("<I")
_NAME = "lines"
_FRAMES_MAX = 3


class LineStore:
    """The file of one node."""

    def __init__(self, directory: Path) -> None:
        """Nothing is opened."""
        self.path = directory / _NAME

    def read(self) -> LineState:
        """What was kept; nothing where there is no file. StoreError if it is damaged: it may have promised anything."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return LineState()
        except OSError as reason:
            raise StoreError(str(self.path), f"cannot be read: {reason.strerror}") from reason
        try:
            ack, *plans = [decode(frame) for frame in _frames(content)]
        except (RemoteProtocolError, ValueError) as reason:
            raise self._damaged() from reason
        by_version = {lines.version: lines for lines in plans if isinstance(lines, Lines)}
        if not isinstance(ack, LineAck) or len(plans) > _FRAMES_MAX - 1 or len(by_version) != len(plans):
            raise self._damaged()
        held = by_version.pop(ack.held, None)
        if held is None and (ack.held != NO_VERSION or plans):
            raise self._damaged()
        settled = held if ack.settled else next(iter(by_version.values()), None)
        return LineState(ack.promised, held, settled)

    def keep(self, state: LineState) -> None:
        """All of it or nothing, and on the disk when this returns."""
        held, settled = state.held, state.settled
        same = held is not None and settled is not None and held.version == settled.version
        packets: list[LineAck | Lines] = [LineAck(0, NO_EPOCH, 0, state.promised, state.version, settled=same)]
        packets += [lines for lines in (held, None if same else settled) if lines is not None]
        draft = self.path.with_suffix(".new")
        try:
            with draft.open("wb") as file:
                for frame in map(encode, packets):
                    file.write(_LENGTH.pack(len(frame)) + frame)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as reason:
            raise StoreError(str(self.path), f"cannot be written: {reason.strerror}") from reason

    def _damaged(self) -> StoreError:
        return StoreError(str(self.path), "is damaged: take this node off the market as if its disk were lost")


def _frames(content: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(content):
        if at + _LENGTH.size > len(content):
            raise ValueError("ends within a length")
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if at + length > len(content):
            raise ValueError("ends within a frame")
        frames.append(content[at : at + length])
        at += length
    return frames
