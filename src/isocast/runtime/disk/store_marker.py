"""Whose a store is and what its past was like (`identity.json`: first start or lost disk?); how stores write and count.

A directory without it has never been a store, or is one no longer: whoever starts the node says which. With it, the
store knows whether its end can be trusted. What was written without fdatasync survives the end of the process,
because the kernel has it, but not that of the machine, which shows in another boot id.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any
from zlib import crc32

from isocast.runtime.market.model import Durability
from isocast.terms.errors import StoreError, StoreFull
from isocast.terms.ids import NodeId

__all__ = [
    "LOCK_NAME",
    "MARKER_NAME",
    "NO_BOOT",
    "Marker",
    "Past",
    "StoreCounters",
    "StoreIdentity",
    "StoreRole",
    "boot_id",
    "disk_error",
    "locked",
    "read_marker",
    "sync_directory",
]


MARKER_NAME = "identity.json"
LOCK_NAME = "lock"
NO_BOOT = ""
"""The boot id of a machine that tells none: never the same as any."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FORMAT = 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreRole(StrEnum):
    """Whose state a store holds."""

    SITE = "site"
    OUTBOX = "outbox"
    SERVER = "server"

    @property
    def code(self) -> int:
        """Its number in a segment's first bytes."""
        return list(StoreRole).index(self) + 1

    @property
    def advice(self) -> str:
        """What to do about a store that cannot be read."""
        if self is StoreRole.OUTBOX:
            return "move the directory away: the source starts a new incarnation, and what is in it stays in doubt"
        again = "move the directory away and bring it back under a new id"
        if self is StoreRole.SITE:
            again += (
                ": another name and number in the market's file, isocast node --join, then isocast ring remove OLD and"
                " isocast ring add NEW (how-to 'operate')"
            )
        return f"what it promised is not known any more: {again}"

    @property
    def advice_when_gone(self) -> str:
        """What follows when a store vanishes under a running node."""
        if self is StoreRole.OUTBOX:
            return (
                "nothing more is accepted, and the source stops once what it had accepted is safe elsewhere; if the"
                " data cannot be brought back, start it again: it begins a new incarnation"
            )
        return (
            "this node stops, because what it promised is not on disk any more. Bring exactly these files back before"
            f" it is started again. Otherwise {self.advice}"
        )


class Past(Enum):
    """What a directory says about the time before."""

    NONE = "none"
    """It has never been a store, or is one no longer."""
    WHOLE = "whole"
    """Everything that was acknowledged is there."""
    DOUBTFUL = "doubtful"
    """The machine went down before everything had reached the disk: the end may be missing."""
    SHORT = "short"
    """Something that was acknowledged is missing: no crash of ours explains it."""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Who keeps a store; a source's id is that of its incarnation 0."""

    market: str
    name: str
    node: NodeId


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of `identity.json`."""

    role: StoreRole
    market: str
    name: str
    node: NodeId
    created: str
    boot: str
    """The boot id of the machine when the store was last opened."""
    durability: Durability
    """Under which it was last opened."""
    begun: bool = False
    """Whether its first segment was complete: without, nothing was ever acknowledged."""
    forgot: bool = False
    """Whether the node may have forgotten promises; that never ends. A source's new incarnation ends it."""
    why: str = ""
    """What was lost, if it is known."""
    incarnation: int = 0
    end_segment: int = 0
    """The newest segment when the store was closed; 0 while it is open."""
    end_bytes: int = 0
    """And its length then."""
    high_water: bool = False
    """Whether a mark beside the segments says how much was acknowledged."""

    @property
    def identity(self) -> StoreIdentity:
        """Whose it is."""
        return StoreIdentity(self.market, self.name, self.node)

    @property
    def closed(self) -> bool:
        """Whether it was closed in order, everything on the disk."""
        return self.end_segment > 0

    def past(self, boot: str) -> Past:
        """Whether all that was acknowledged is still there, now that the machine's boot id is `boot`."""
        same = boot == self.boot != NO_BOOT
        kept = same or self.closed or not self.begun or self.durability is Durability.POWER
        return Past.WHOLE if kept else Past.DOUBTFUL

    def write(self, directory: Path) -> None:
        """Replace the file at once and for good: what follows may rest on it even when the power fails."""
        fields: dict[str, Any] = {"format": _FORMAT, **asdict(self)}
        fields["check"] = _check(fields)
        temporary = directory / f"{MARKER_NAME}.new"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(fields, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(directory / MARKER_NAME)
            sync_directory(directory)
        except OSError as reason:
            raise disk_error(temporary, "cannot be written", reason) from reason


def disk_error(path: Path, trouble: str, reason: OSError) -> StoreError | StoreFull:
    """What the kernel's refusal means: a disk that takes no more is told apart, since room can be made."""
    if reason.errno in _FULL:
        return StoreFull(str(path), f"the disk takes no more ({reason.strerror}): make room, then start again")
    return StoreError(str(path), f"{trouble}: {reason.strerror}")


def boot_id() -> str:
    """A name for the time since this machine was started."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return NO_BOOT


def sync_directory(directory: Path) -> None:
    """Make names durable: what was created, renamed and removed."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_marker(directory: Path, role: StoreRole) -> Marker | None:
    """What the directory's file says; None without one."""
    path = directory / MARKER_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as reason:
        raise StoreError(str(path), f"cannot be read ({reason}): {role.advice}") from reason
    try:
        fields = json.loads(text)
        check, version = fields.pop("check"), fields.pop("format")
        if version != _FORMAT:
            raise StoreError(str(path), f"format version {version}; this program reads version {_FORMAT}")
        if check != _check({"format": version, **fields}):
            raise StoreError(str(path), f"the checksum is wrong: {role.advice}")
        return Marker(**{**fields, "role": StoreRole(fields["role"]), "durability": Durability(fields["durability"])})
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise StoreError(str(path), f"cannot be understood ({reason}): {role.advice}") from reason


def _check(fields: dict[str, Any]) -> str:
    """A checksum over everything else in the file: a flipped bit must not become another incarnation."""
    return f"{crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def locked(directory: Path) -> int:
    """The descriptor that holds the directory's lock for as long as it is open."""
    path = directory / LOCK_NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as reason:
        raise disk_error(path, "cannot be opened", reason) from reason
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as reason:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise StoreError(str(path), f"process {holder or 'unknown'} has this store open") from reason
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


# How a store writes and what it counts.


@dataclass(slots=True)
class StoreCounters:
    """What a store did since it was opened; `torn_bytes` at its opening."""

    records: int = 0
    bytes: int = 0
    syncs: int = 0
    segments_begun: int = 0
    segments_removed: int = 0
    torn_bytes: int = 0
    """Cut off the end: a write that the last process did not come to finish."""
    entries_read: int = 0
