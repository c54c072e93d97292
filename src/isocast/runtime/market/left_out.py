"""The sites that an operator's force left out of U: their numbers are never given a vote again.

Whoever was left out may have promised things, and told customers a story, that nobody here knows of. A number in this
file is refused; the node comes back under another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from isocast.terms.errors import StoreError
from isocast.terms.ids import NodeId

__all__ = ["LeftOut"]

_NAME = "left-out"


class LeftOut:
    """A receiver's memory of them: one number in each line of a small file."""

    def __init__(self, directory: Path) -> None:
        """Read what there is."""
        self._path = directory / _NAME
        self.sites: tuple[NodeId, ...] = self._read()

    def _read(self) -> tuple[NodeId, ...]:
        try:
            return tuple([int(line) for line in self._path.read_text(encoding="ascii").split()])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as reason:
            rule = "must list the numbers that a forced change left out, one in each line"
            raise StoreError(str(self._path), rule) from reason

    def note(self, sites: Iterable[NodeId]) -> None:
        """More of them, on the disk when this returns."""
        known = tuple(sorted({*self.sites, *sites}))
        if known == self.sites:
            return
        draft = self._path.with_suffix(".new")
        try:
            with draft.open("w", encoding="ascii") as file:
                file.write("".join([f"{site}\n" for site in known]))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as reason:
            raise StoreError(str(self._path), f"cannot be written: {reason.strerror}") from reason
        self.sites = known
