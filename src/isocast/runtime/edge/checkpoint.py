"""A gateway's checkpoints: from which message on a restart has to write its sessions again, and with what state.

A checkpoint is one file of a day, replaced as a whole: a digest, then arrays of numpy, none of them objects. It is
behind what the archive counts, never before it. One that is damaged, or of another day's archive, is none: then the
whole day is written again, which takes longer and gives the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import FeedError

__all__ = ["EdgeCheckpoint", "SessionState", "read_checkpoint", "write_checkpoint"]

_MAGIC = b"ISOEDGE1"
_DIGEST_BYTES = 16


class SessionState(NamedTuple):
    """Where a session stands, and what its next messages depend on."""

    at: int
    """Bytes of its file."""
    next_number: int
    skipped: Mapping[str, int]
    writer: Mapping[str, npt.NDArray[Any]]


class EdgeCheckpoint(NamedTuple):
    """The state of a day behind so many messages of the sequence."""

    messages: int
    next_sequence: int
    sessions: Mapping[int, SessionState]
    """By edge stripe."""


def write_checkpoint(path: Path, checkpoint: EdgeCheckpoint) -> None:
    """All of it or nothing."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    rows: dict[str, object] = {}
    for stripe, state in checkpoint.sessions.items():
        rows[str(stripe)] = [state.at, state.next_number, dict(state.skipped)]
        arrays |= {f"{stripe}.{name}": array for name, array in state.writer.items()}
    head = {"messages": checkpoint.messages, "next_sequence": checkpoint.next_sequence, "sessions": rows}
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    packed = BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]  # its stub takes the names for its own options
    content = packed.getvalue()
    draft = path.with_suffix(".new")
    draft.write_bytes(_MAGIC + blake2b(content, digest_size=_DIGEST_BYTES).digest() + content)
    draft.replace(path)


def read_checkpoint(path: Path) -> EdgeCheckpoint | None:
    """What was written there; None if there is nothing, FeedError if it is damaged."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    content = raw[start:]
    if raw[:start] != _MAGIC + blake2b(content, digest_size=_DIGEST_BYTES).digest():
        raise FeedError(str(path), "is damaged")
    try:
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            return _checkpoint({name: arrays[name] for name in arrays.files})
    except (BadZipFile, ValueError, KeyError, TypeError) as reason:
        raise FeedError(str(path), f"cannot be understood: {reason}") from None


def _checkpoint(arrays: Mapping[str, npt.NDArray[Any]]) -> EdgeCheckpoint:
    head = json.loads(arrays["head"].tobytes())
    sessions = {}
    for text, (at, next_number, skipped) in head["sessions"].items():
        own = f"{text}."
        writer = {name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}
        sessions[int(text)] = SessionState(at, next_number, skipped, writer)
    return EdgeCheckpoint(head["messages"], head["next_sequence"], sessions)
