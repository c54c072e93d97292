"""What a source could not read, and what becomes of it: an error, or a row of the quarantine.

A fault in one receiver's journal that another receiver makes good costs nobody a row, and stops nothing. What nobody
makes good is an error that names the range, unless `onError` says `quarantine`: then it is left out, and written down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from isocast.lake.schemas import QUARANTINE_SCHEMA
from isocast.terms.errors import JournalError

__all__ = ["SourceFault", "SourceFaults", "quarantine_rows", "write_faults"]


@dataclass(frozen=True, slots=True)
class SourceFault:
    """One row of the quarantine; `schemas.QUARANTINE_SCHEMA` explains the fields."""

    path: str
    reason: str
    """torn, damage, version, gap, overlap, foreign, feed, text, or opaque: bytes that are no opaque messages."""
    rule: str
    count: int = 1
    stripe: int | None = None
    receiver: int | None = None
    offset: int | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None

    def error(self) -> JournalError:
        """The same as an error."""
        return JournalError(self.path, self.rule, self.offset)


class SourceFaults:
    """Collects what goes wrong while one piece is read."""

    def __init__(self, *, is_strict: bool) -> None:
        """Strict: a fault that no other journal makes good is raised."""
        self.is_strict = is_strict
        self.found: list[SourceFault] = []

    def note(self, fault: SourceFault) -> None:
        """Something cannot be read here; another receiver may have it."""
        if fault not in self.found:
            self.found.append(fault)

    def lost(self, fault: SourceFault) -> None:
        """No journal has these messages: an error if strict, else noted."""
        if not self.is_strict:
            self.note(fault)
            return
        causes = [noted for noted in self.found if noted.reason not in {"torn", "gap", "opaque"}]
        if causes:
            cause = causes[-1]
            raise JournalError(cause.path, f"{cause.rule}; {fault.rule}", cause.offset)
        raise fault.error()

    def insist(self) -> None:
        """Nobody else is asked: what was noted is lost, if it is more than an unfinished end or a stranger's bytes."""
        if self.is_strict:
            for fault in self.found:
                if fault.reason not in {"torn", "opaque"}:
                    raise fault.error()


def quarantine_rows(faults: Iterable[SourceFault]) -> pa.RecordBatch:
    """Faults as rows."""
    rows = [asdict(fault) for fault in faults]
    return pa.RecordBatch.from_pylist(rows, schema=QUARANTINE_SCHEMA)


def write_faults(directory: Path, faults: Iterable[SourceFault]) -> None:
    """One JSON file for each fault, named by what it says: a task that is repeated writes the same file again."""
    for fault in faults:
        line = json.dumps(asdict(fault), sort_keys=True) + "\n"
        name = f"{fault.reason}-{blake2b(line.encode(), digest_size=12).hexdigest()}.json"
        if (directory / name).exists():
            continue
        try:
            directory.mkdir(parents=True, exist_ok=True)
            part = directory / f".{name}.{os.getpid()}"
            part.write_text(line, encoding="utf-8")
            part.replace(directory / name)
        except OSError as reason:
            raise JournalError(str(directory), f"the quarantine cannot be written: {reason.strerror}") from reason
