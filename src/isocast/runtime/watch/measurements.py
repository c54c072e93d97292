"""What a node saw of its network, second by second, on its own disk: what journals do not say.

    DATA/NAME/measurements/m-00000000001767623400000000000.jsonl

Each line is one JSON object about the time since the line before: counters that moved, how late releases were, and for
every token when it was heard after its instant, and from whom. A file is a sixteenth of what may be kept; the oldest
go; a node without room on its disk loses lines and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.metrics import NodeIdentity
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND
from isocast.wire.frame import PacketKind
from isocast.wire.packets import Token

__all__ = ["COUNTERS", "FOLDER", "MEASUREMENT_VERSION", "Measurements", "TokenEar"]

FOLDER = "measurements"
"""Of a node's data directory."""
MEASUREMENT_VERSION = 1
"""Raised whenever the meaning of a field changes; readers know one version."""
COUNTERS: Mapping[str, Callable[[NodeCounters], int]] = {
    "data_received": lambda counters: counters.received_of(PacketKind.DATA),
    "nacks_sent": lambda counters: counters.sent_of(PacketKind.NACK),
    "nacks_received": lambda counters: counters.received_of(PacketKind.NACK),
    "repairs_sent": lambda counters: counters.sent_of(PacketKind.REPAIR),
    "repairs_received": lambda counters: counters.received_of(PacketKind.REPAIR),
    "kernel_drops": lambda counters: sum(counters.kernel_drops),
    "injected_losses": lambda counters: counters.injected_losses,
    "unsent": lambda counters: counters.unsent,
    "tokens_sent": lambda counters: counters.tokens_sent,
    "tokens_accepted": lambda counters: counters.tokens_accepted,
    "messages_released": lambda counters: counters.messages_released,
    "late_releases": lambda counters: counters.late_releases,
    "fairness_faults": lambda counters: counters.fairness_faults,
    "suspicions": lambda counters: sum(counters.suspicions.values()),
    "reformations": lambda counters: counters.reformations,
    "messages_received": lambda counters: counters.messages_received,
    "duplicates": lambda counters: counters.duplicates,
    "gaps_seen": lambda counters: counters.gaps_seen,
    "gaps_repaired": lambda counters: counters.gaps_repaired,
}
"""What a line may count; those that did not move are left out of it."""

_FILES = 16
_EVERY_NS = 9 * SECOND // 10
_TOKENS_MAX = 256
"""Heard in one second: more are counted and not listed."""


class TokenEar:
    """Hears when each token comes: the first time, by the way that all tokens come."""

    def __init__(self) -> None:
        """Nothing was heard."""
        self.heard: list[tuple[NodeId, int, int]] = []
        """Owner, token and nanoseconds after its instant, since the last line."""
        self.unlisted = 0
        self._newest = 0

    def hear(self, packets: Sequence[object], now: int) -> None:
        """Packets that came; what a repair brings is another packet, and no token."""
        for packet in packets:
            if type(packet) is Token and packet.token_number > self._newest:
                self._newest = packet.token_number
                if len(self.heard) < _TOKENS_MAX:
                    self.heard.append((packet.sender, packet.token_number, now - packet.instant))
                else:
                    self.unlisted += 1


class Measurements:
    """The measurements of one node; `tick` costs one line a second."""

    def __init__(
        self,
        directory: Path,
        identity: NodeIdentity,
        counters: NodeCounters,
        keep_bytes: int,
        ear: TokenEar | None = None,
    ) -> None:
        """`directory` is the node's; nothing is written before the first line."""
        self._folder = directory / FOLDER
        self._counters = counters
        self._file_bytes = max(keep_bytes // _FILES, 1)
        self._keep_bytes = keep_bytes
        self._ear = ear
        self._who = {
            "v": MEASUREMENT_VERSION,
            "node": identity.name,
            "id": identity.node_id,
            "role": identity.role.value,
            "stripe": identity.stripe,
            "city": identity.city,
        }
        self._fd = -1
        self._size = 0
        self._before = {name: read(counters) for name, read in COUNTERS.items()}
        self._lateness = list(counters.release_lateness.counts)
        self._told_at: int | None = None
        self.lost = 0
        """Lines that the disk did not take."""

    def tick(self, now: int) -> bool:
        """Write a line if a second has passed since the last; whether it did."""
        if self._told_at is None:
            self._told_at = now
            return False
        over_ns = now - self._told_at
        if 0 <= over_ns < _EVERY_NS:
            return False
        self._told_at = now
        self._write(json.dumps(self._line(now, over_ns), separators=(",", ":")).encode("ascii") + b"\n", now)
        return True

    def _line(self, now: int, over_ns: int) -> dict[str, object]:
        counters, before = self._counters, self._before
        totals = {name: read(counters) for name, read in COUNTERS.items()}
        moved = {name: total - before[name] for name, total in totals.items() if total != before[name]}
        self._before = totals
        histogram = counters.release_lateness
        late = [
            (
                histogram.bounds_ns[place] if place < len(histogram.bounds_ns) else 2 * histogram.bounds_ns[-1],
                here - there,
            )
            for place, (here, there) in enumerate(zip(histogram.counts, self._lateness, strict=True))
            if here != there
        ]
        self._lateness = list(histogram.counts)
        line = {**self._who, "at_ns": now, "over_ns": over_ns, "counts": moved, "lateness": late}
        if self._ear is not None:
            line["tokens"], line["tokens_unlisted"] = self._ear.heard, self._ear.unlisted
            self._ear.heard, self._ear.unlisted = [], 0
        return line

    # The disk -----------------------------------------------------------------------------------

    def _write(self, line: bytes, now: int) -> None:
        try:
            if self._fd < 0 or self._size + len(line) > self._file_bytes:
                self._begin(now)
            written = os.write(self._fd, line)
            self._size += written
            if written < len(line):
                # The rest would be read as part of the next line.
                os.ftruncate(self._fd, self._size - written)
                self._size -= written
                self.lost += 1
        except OSError:
            self.lost += 1

    def _begin(self, now: int) -> None:
        self.close()
        self._folder.mkdir(mode=0o755, exist_ok=True)
        path = self._folder / f"m-{max(now, 0):023}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size
        self._prune()

    def _prune(self) -> None:
        """The oldest files go, so that there is room for the one that begins."""
        files = sorted(self._folder.glob("m-*.jsonl"))
        sizes = [path.stat().st_size for path in files]
        for path, size in zip(files[:-1], sizes, strict=False):
            if sum(sizes) <= self._keep_bytes - self._file_bytes:
                return
            with suppress(OSError):
                path.unlink()
            sizes.remove(size)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
