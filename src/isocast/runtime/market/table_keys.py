"""A key of a market file: its name, what it may be, what it means; and a table of keys."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from isocast.runtime.market.model import NodeRole

__all__ = ["MAX_PORT", "Key", "Kind", "Table"]

MAX_PORT = 65_535


class Kind(StrEnum):
    """What a value is; its name is how a message and the reference page call it."""

    TEXT = "text"
    FLAG = "true or false"
    COUNT = "whole number"
    COUNTS = "list of whole numbers"
    SHARE = "probability"
    DEGREES = "degrees"
    TIME = "time"
    SIZE = "size"
    CHOICE = "one of"
    ADDRESS = "IPv4 address"
    NAME = "name of a node"
    NAMES = "list of names of nodes"


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it is called, what it may be, and what happens when it is left out."""

    name: str
    kind: Kind
    explanation: str
    default: object = None
    """What the file would say to the same effect; None where there is no such value."""
    otherwise: str = ""
    """In place of a default: how the value comes about."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 2**63 - 1
    """Of counts, of sizes in bytes, of times in nanoseconds, of degrees on either side."""
    roles: tuple[NodeRole, ...] = ()
    """Of a node's key: whose it is; empty: everybody's."""

    @property
    def type_text(self) -> str:
        """The kind, with choices and limits spelled out."""
        if self.kind is Kind.CHOICE:
            return " | ".join(f'"{choice}"' for choice in self.choices)
        if self.kind is Kind.COUNT and self.maximum < 2**63 - 1:
            return f"{self.minimum:,} to {self.maximum:,}"
        return self.kind.value


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the file."""

    name: str
    """As it stands in brackets; empty for the top of the file."""
    explanation: str
    keys: tuple[Key, ...]
