"""The state of an edge striper, frozen and as bytes: for late joiners, and for a receiver that starts again.

    magic 4 | zlib of a body | digest 16

A snapshot is exact at any point of the sequence: from it on, a striper makes the packets that the one which gave it
makes.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from isocast.striping.directory import StripeDirectory
from isocast.striping.edge_queue import QueueState
from isocast.striping.plan import NUMBER_MAX, STRIPES_MAX, SYMBOLS_MAX, VERSION_MAX, PlanNotice
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.events import are_events
from isocast.wire.limits import EVENT_BYTES, MAX_NUMBER
from isocast.wire.packets import SHORT_DIGEST_BYTES, short_digest_of

__all__ = ["StriperSnapshot", "read_striper_snapshot", "write_striper_snapshot"]

_MAGIC = b"ICES"
_BODY_MAX = 256 << 20
"""Bounds: 65,536 stripes with 40 events waiting each."""
_INSTANT_MAX = (1 << 63) - 1
"""Follows: instants are signed, and 8 bytes."""


@dataclass(frozen=True, slots=True)
class StriperSnapshot:
    """Where a striper stands: its plan's version, its next numbers, what its buckets remember and what waits."""

    core: int
    plan_version: int
    plan_digest: bytes
    settings_digest: bytes
    """Of what all receivers agree on beside the plan: with other settings the packets would be others."""
    announced: PlanNotice | None
    """A plan that takes effect at the end of this token."""
    token_number: int
    place: int
    """Messages of this token that were taken."""
    token_ended: bool
    next_sequence: int
    clock: int
    step_due: int
    step_events: bytes
    """Due at `step_due`, and perhaps not all of it is here."""
    step_sequences: tuple[int, ...]
    queues: tuple[QueueState, ...]
    retired: tuple[tuple[int, int], ...]
    introduced: bytes = b""
    """Who was introduced on which stripe (`StripeDirectory.state`)."""

    @property
    def next_numbers(self) -> dict[int, int]:
        """For each stripe the number that comes next."""
        return {state.stripe: state.next_number for state in self.queues}


def write_striper_snapshot(snapshot: StriperSnapshot) -> bytes:
    """For a file or a door."""
    body = json.dumps(asdict(snapshot), default=_hex, separators=(",", ":")).encode()
    packed = zlib.compress(body, 1)
    return _MAGIC + packed + short_digest_of(_MAGIC, packed)


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(type(value))


def read_striper_snapshot(raw: bytes) -> StriperSnapshot:
    """What was written; RemoteProtocolError for anything else."""
    if len(raw) < len(_MAGIC) + SHORT_DIGEST_BYTES or not raw.startswith(_MAGIC):
        raise RemoteProtocolError("not a snapshot of an edge striper")
    packed, digest = raw[len(_MAGIC) : -SHORT_DIGEST_BYTES], raw[-SHORT_DIGEST_BYTES:]
    if short_digest_of(_MAGIC, packed) != digest:
        raise RemoteProtocolError("the digest of a striper's snapshot is wrong")
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(packed, _BODY_MAX)
        if not reader.eof:
            raise RemoteProtocolError("a striper's snapshot that is too long or cut off")
        return _snapshot(json.loads(body))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise RemoteProtocolError(f"a striper's snapshot that makes no sense: {reason}") from reason


def _snapshot(value: dict[str, Any]) -> StriperSnapshot:
    announced = _notice(value.pop("announced"))
    queues = [_queue(row) for row in value.pop("queues")]
    events, sequences = _waiting(value.pop("step_events"), value.pop("step_sequences"))
    retired = tuple(_pair(row) for row in value.pop("retired"))
    digest = bytes.fromhex(value.pop("plan_digest"))
    settings = bytes.fromhex(value.pop("settings_digest"))
    introduced = _directory(value.pop("introduced", ""))
    if (
        {len(digest), len(settings)} != {SHORT_DIGEST_BYTES}
        or len(queues) > STRIPES_MAX
        or not isinstance(value["token_ended"], bool)
    ):
        raise ValueError("figures out of range")
    _insist_on_numbers([number for key, number in value.items() if key != "token_ended"])
    _insist_on_instants([value["clock"], value["step_due"]])
    return StriperSnapshot(
        **value,
        plan_digest=digest,
        settings_digest=settings,
        announced=announced,
        queues=tuple(queues),
        step_events=events,
        step_sequences=sequences,
        retired=retired,
        introduced=introduced,
    )


def _notice(row: dict[str, Any] | None) -> PlanNotice | None:
    if row is None:
        return None
    notice = PlanNotice(**(row | {"digest": bytes.fromhex(row["digest"])}))
    _insist_on_numbers([notice.version, notice.stripes, notice.symbols])
    if (
        len(notice.digest) != SHORT_DIGEST_BYTES
        or not 1 <= notice.version <= VERSION_MAX
        or not 1 <= notice.stripes <= STRIPES_MAX
        or notice.symbols > SYMBOLS_MAX
    ):
        raise ValueError("a notice with invalid figures")
    return notice


def _directory(text: str) -> bytes:
    raw = bytes.fromhex(text)
    # Now, not when a striper has taken over half of the rest.
    StripeDirectory(0).restore(raw, 0)
    return raw


def _queue(row: dict[str, Any]) -> QueueState:
    sent = tuple(_pair(entry) for entry in row.pop("sent"))
    events, sequences = _waiting(row.pop("events"), row.pop("sequences"))
    _insist_on_numbers(list(row.values()))
    _insist_on_instants([row["clock"], *[instant for instant, _ in sent]])
    if not 1 <= row["stripe"] <= NUMBER_MAX:
        raise ValueError("a stripe's number")
    return QueueState(**row, sent=sent, events=events, sequences=sequences)


def _waiting(events: str, sequences: list[int]) -> tuple[bytes, tuple[int, ...]]:
    raw = bytes.fromhex(events)
    _insist_on_numbers(sequences)
    if len(raw) != len(sequences) * EVENT_BYTES or not are_events(raw):
        raise ValueError("events that wait")
    return raw, tuple(sequences)


def _pair(row: list[int]) -> tuple[int, int]:
    first, second = row
    _insist_on_numbers([first, second])
    return first, second


def _insist_on_numbers(values: list[Any]) -> None:
    if not all(type(value) is int and 0 <= value <= MAX_NUMBER for value in values):
        raise ValueError("a number out of range")


def _insist_on_instants(values: list[int]) -> None:
    if max(values) > _INSTANT_MAX:
        raise ValueError("an instant that no clock shows")
