"""A primary source, S_P (§4.2): enters messages into the ring."""

from __future__ import annotations

from isocast.ring.source import OutboxState, Source, SourceSnapshot

__all__ = ["OutboxState", "PrimarySource", "PrimarySourceSnapshot"]

PrimarySource = Source
PrimarySourceSnapshot = SourceSnapshot
