"""A token with its messages: the unit of the log, of the journal and of release."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.wire.packets import Data, Token

__all__ = ["LogEntry"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Token t and its messages in release order, from its first sequence on."""

    token: Token
    messages: tuple[Data, ...]
    shuffle_key: bytes
    """Derived from the nonces of t and t-1; travels with the release."""
