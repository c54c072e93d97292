"""A journal's own account, in a small file beside its segments: where it begins and why, and what Δ_A was.

    s0000-site00001.record.json

A journal whose first segments are gone looks like one that began later. Retention therefore writes down what it
removes before it removes it, and a journal that begins behind sequence 1 says so when it begins: whatever else is
missing was removed by somebody else. The file's digest finds damage; it is no protection against somebody who wants to
deceive, as nothing in a journal is.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from isocast.terms.errors import JournalError
from isocast.terms.ids import NodeId

__all__ = ["Beginning", "JournalRecord", "missing_beginning", "read_record", "record_path", "write_record"]

_VERSION = 1
_NEW = ".new"
_DELAYS_MAX = 1_024
"""Changes of Δ_A that are remembered: one for each change of a market's file."""


class Beginning(StrEnum):
    """Why a journal begins where it does."""

    FIRST = "first"
    """With the first sequence of the market."""
    RETENTION = "retention"
    """Older segments were removed by the market's own settings."""
    BEGUN = "begun"
    """The node joined there."""
    ABSENT = "absent"
    """The node wanted what lies before, and no archive had it any more."""

    @property
    def text(self) -> str:
        """In words, behind `messages before it`."""
        return {
            Beginning.FIRST: "are none",
            Beginning.RETENTION: "were removed by retention",
            Beginning.BEGUN: "came before the node joined",
            Beginning.ABSENT: "were in no archive any more when the node joined",
        }[self]


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """What a journal says of itself."""

    first_sequence: int = 1
    """Nothing before it belongs to the journal; everything from it on does."""
    why: Beginning = Beginning.FIRST
    delays: tuple[tuple[int, int], ...] = ()
    """From which sequence on which Δ_A, in nanoseconds; ascending."""

    def beginning(self, first_sequence: int, why: Beginning) -> JournalRecord:
        """The same journal, which begins elsewhere now."""
        later = [delay for delay in self.delays if delay[0] > first_sequence]
        before = [delay for delay in self.delays if delay[0] <= first_sequence]
        return replace(self, first_sequence=first_sequence, why=why, delays=(*before[-1:], *later))

    def released_with(self, delay_ns: int, sequence: int) -> JournalRecord:
        """The same journal, with this Δ_A from a sequence on."""
        if self.delays and self.delays[-1][1] == delay_ns:
            return self
        kept = tuple(delay for delay in self.delays if delay[0] < sequence)
        return replace(self, delays=(*kept, (sequence, delay_ns))[-_DELAYS_MAX:])

    def delay_at(self, sequence: int) -> int | None:
        """Δ_A of a message, where it is known."""
        place = bisect_right(self.delays, sequence, key=lambda delay: delay[0])
        return self.delays[place - 1][1] if place else None


def missing_beginning(record: JournalRecord | None, first_sequence: int) -> str | None:
    """What is wrong with where a journal begins, if anything is."""
    known = record or JournalRecord()
    if first_sequence <= known.first_sequence:
        return None
    span = f"sequences {known.first_sequence} to {first_sequence - 1} are missing"
    if record is None:
        return f"{span}: the journal begins after them, and no record says why"
    return f"{span}: by its own record the journal begins with {known.first_sequence} ({known.why})"


def record_path(directory: Path, stripe: int, site: NodeId) -> Path:
    """The file beside the segments of a journal."""
    return directory / f"s{stripe:04}-site{site:05}.record.json"


def read_record(directory: Path, stripe: int, site: NodeId) -> JournalRecord | None:
    """What a journal says of itself; None if it says nothing, JournalError if that is damaged."""
    path = record_path(directory, stripe, site)
    try:
        content = json.loads(path.read_bytes())
        fields = {name: content[name] for name in ("version", "stripe", "site", "first_sequence", "why", "delays")}
        if content["digest"] != _digest(fields) or (fields["stripe"], fields["site"]) != (stripe, site):
            raise ValueError("its digest is wrong")  # noqa: TRY301 - told like every other reason
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']}; this program reads version {_VERSION}")  # noqa: TRY301
        delays = tuple((int(first), int(delay_ns)) for first, delay_ns in fields["delays"])
        found = JournalRecord(int(fields["first_sequence"]), Beginning(fields["why"]), delays)
        if found.first_sequence < 1 or list(delays) != sorted(dict(delays).items()):
            raise ValueError("its sequences are not ascending from 1 on")  # noqa: TRY301
        return found  # noqa: TRY300 - what is wrong with it is told below
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise JournalError(str(path), f"cannot be read: {reason.strerror}") from reason
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as reason:
        raise JournalError(str(path), f"the journal's record is damaged: {reason}") from reason


def write_record(directory: Path, stripe: int, site: NodeId, record: JournalRecord, *, sync: bool) -> None:
    """All of it or nothing; with `sync` it is on the disk when this returns. OSError if it cannot be written."""
    path = record_path(directory, stripe, site)
    fields = {
        "version": _VERSION,
        "stripe": stripe,
        "site": site,
        "first_sequence": record.first_sequence,
        "why": record.why.value,
        "delays": [list(delay) for delay in record.delays],
    }
    new = path.with_name(path.name + _NEW)
    with new.open("w", encoding="utf-8") as out:
        out.write(json.dumps({**fields, "digest": _digest(fields)}) + "\n")
        out.flush()
        if sync:
            os.fsync(out.fileno())
    new.replace(path)
    if sync:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _digest(fields: dict[str, Any]) -> str:
    return blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=16).hexdigest()
