"""Plans as files, and the durable note of which token put which into force.

A plan reaches receivers as a file and comes into force by an entry in a token, which names it by its digest. The
receiver notes entries of released tokens, before it journals anything of these tokens: so whoever reads the journal
finds the note, whenever he starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from isocast.runtime.market.model import EdgeTable
from isocast.runtime.market.routes import load_plan
from isocast.striping.plan import StripePlan
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.wire.packets import ControlEntry, ControlKind, short_digest_of

__all__ = ["PLAN_NOTES", "PlanFolder", "PlanNote", "PlanNotes", "plan_name"]

PLAN_NOTES = "stripe-plans"
"""In a receiver's directory."""
_SUFFIXES = (".toml", ".json")
_ROW = Struct("<QqQQH62s16s")
"""token 8, its instant 8, first sequence 8, version 8, length of body 2, body 62, digest of the row 16: 112."""
_BODY_MAX = 62
_DIGEST = 16


def plan_name(plan: StripePlan) -> str:
    """What a plan's file is called in the directory of plans."""
    return f"plan-{plan.version}-{plan.digest.hex()}.toml"


class PlanFolder:
    """The plans that are on this machine."""

    def __init__(self, edge: EdgeTable) -> None:
        """Nothing is read yet."""
        self._edge = edge
        self._known: dict[bytes, StripePlan] = {}
        self._looked_at: dict[Path, int] = {}

    def first(self) -> StripePlan:
        """The plan that the market began with."""
        plan = load_plan(self._edge.plan)
        self._known[plan.digest] = plan
        return plan

    def find(self, digest: bytes) -> StripePlan | None:
        """A plan by its digest; None while no file has it."""
        if digest not in self._known:
            for path in self._files():
                self._look_at(path)
        return self._known.get(digest)

    def all(self) -> list[StripePlan]:
        """Every plan here, the newest last; files that are no plans are passed over."""
        for path in [self._edge.plan, *self._files()]:
            self._look_at(path)
        return sorted(self._known.values(), key=lambda plan: plan.version)

    def _files(self) -> list[Path]:
        if not self._edge.plans.is_dir():
            return []
        return sorted([path for path in self._edge.plans.iterdir() if path.suffix in _SUFFIXES])

    def _look_at(self, path: Path) -> None:
        try:
            changed = path.stat().st_mtime_ns
            if self._looked_at.get(path) == changed:
                return
            self._looked_at[path] = changed
            plan = load_plan(path)
        except (OSError, ConfigurationError):
            return  # Perhaps somebody is writing it: it is looked at again when it has changed.
        self._known[plan.digest] = plan


class PlanNote(NamedTuple):
    """An entry of a token that announces a plan."""

    token_number: int
    instant: int
    first_sequence: int
    """Of the token; where it has no messages, of the next."""
    entry: ControlEntry


class PlanNotes:
    """The notes of one receiver, appended before anything rests on them."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist."""
        self._path = path
        self._read = 0
        self._last_token = 0

    @property
    def last_token(self) -> int:
        """Of the newest note that was read or written."""
        return self._last_token

    def append(self, note: PlanNote) -> None:
        """On the disk when this returns; a note that is there already is not written twice."""
        if note.token_number <= self._last_token:
            return
        body = note.entry.body
        row = _ROW.pack(
            note.token_number, note.instant, note.first_sequence, note.entry.subject,
            min(len(body), _BODY_MAX + 1), body[:_BODY_MAX], b"",
        )[:-_DIGEST]  # fmt: skip
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            whole = os.fstat(handle).st_size // _ROW.size * _ROW.size
            os.ftruncate(handle, whole)  # A row that a crash cut was never rested on.
            os.write(handle, row + short_digest_of(row))
            os.fsync(handle)
        finally:
            os.close(handle)
        self._last_token = note.token_number

    def read(self) -> Iterator[PlanNote]:
        """Notes that were not read yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                raw = file.read()
        except FileNotFoundError:
            return
        for at in range(0, len(raw) // _ROW.size * _ROW.size, _ROW.size):
            row = raw[at : at + _ROW.size]
            if short_digest_of(row[:-_DIGEST]) != row[-_DIGEST:]:
                raise JournalError(str(self._path), f"is damaged at byte {self._read}")
            token, instant, first, version, length, body, _ = _ROW.unpack(row)
            self._read += _ROW.size
            self._last_token = max(self._last_token, token)
            yield PlanNote(token, instant, first, ControlEntry(ControlKind.STRIPE_PLAN, version, body[:length]))
