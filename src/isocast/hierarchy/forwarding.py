"""A secondary source, S_S (§4.2): takes messages of its own region and hands them to the primary source that trusts it.

It promises what a primary source promises: a batch that was accepted is on its disk, and will be in the sequence, once.
Whatever dies in between, the oldest batches are offered to the parent again, for ever, under the same keys, and a
source takes a key once. A batch leaves the disk when the parent has it on its own.

A key at the parent is made of this source and its client's key. Two secondary sources whose clients count alike do not
meet there, and a client that repeats itself after this source lost its disk is still recognised.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import TypeAlias, assert_never

from isocast.ring.effects import OutboxAppended, OutboxFreed, Persist, PublishAccepted, PublishRejected
from isocast.ring.inputs import ClockJudged, DriverInput, PacketsArrived, PublishRequested, TimerFired
from isocast.ring.source import OutboxState
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Label, NodeId
from isocast.terms.instants import MILLISECOND, NEVER, SECOND

__all__ = [
    "Forward",
    "ForwardAccepted",
    "ForwardEffect",
    "ForwardFailed",
    "ForwardHostEffect",
    "ForwardSettings",
    "ParentBack",
    "ParentSilent",
    "SecondarySource",
    "SecondarySourceSnapshot",
    "parent_key",
]

_KEY_BYTES = 32
_NODE_BYTES = 8
_INCARNATION_BITS = 32


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """One secondary source."""

    payload_max: int
    """Bytes of one message, without the seal that its parent adds."""
    held_max: int = 65_536
    """Messages that may wait for the parent. Bounds: of 8,824 bytes they take 580 MB, in memory and on disk."""
    batch_max: int = 256
    """Messages offered at once: 350 kB, so that an answer that is lost costs little."""
    first_pause_ns: int = 50 * MILLISECOND
    """After the first failure; each next one doubles it."""
    longest_pause_ns: int = 2 * SECOND

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if min(self.payload_max, self.held_max, self.batch_max, self.first_pause_ns, self.longest_pause_ns) < 1:
            raise LocalProtocolError("every span and every bound of a secondary source must be positive")


@dataclass(frozen=True, slots=True)
class ForwardAccepted:
    """The parent has all that `Forward` offered, up to this number, on its own disk."""

    last: int


@dataclass(frozen=True, slots=True)
class ForwardFailed:
    """The parent did not answer, broke off or refused."""

    reason: str


@dataclass(frozen=True, slots=True)
class Forward:
    """Offer these (key, payload) to the parent, in this order; answer with `ForwardAccepted` or `ForwardFailed`."""

    first: int
    batches: tuple[tuple[bytes, bytes], ...]

    @property
    def last(self) -> int:
        """The number of the last of them."""
        return self.first + len(self.batches) - 1


@dataclass(frozen=True, slots=True)
class ParentSilent:
    """The parent does not take anything, told at the first failure and at each that doubles the pause."""

    failures: int
    held: int
    reason: str


@dataclass(frozen=True, slots=True)
class ParentBack:
    """It does again."""

    failures: int


SecondarySourceInput: TypeAlias = DriverInput | PublishRequested | ForwardAccepted | ForwardFailed
ForwardHostEffect: TypeAlias = PublishAccepted | PublishRejected | Forward | ParentSilent | ParentBack
ForwardEffect: TypeAlias = Persist | ForwardHostEffect


@dataclass(frozen=True, slots=True)
class SecondarySourceSnapshot:
    """A secondary source's state for checkers and console."""

    source: NodeId
    next_number: int
    base: int
    held: int
    failures: int
    """Since the parent last took something."""
    held_max: int


def parent_key(source: NodeId, key: bytes) -> bytes:
    """The key under which a client's batch is offered to the parent, the same in every incarnation of the source."""
    number = (source >> _INCARNATION_BITS).to_bytes(_NODE_BYTES)
    return blake2b(key, digest_size=_KEY_BYTES, salt=number, person=b"isocast forward").digest()


class SecondarySource:
    """The machine of one secondary source."""

    def __init__(self, source: NodeId, settings: ForwardSettings, state: OutboxState | None = None) -> None:
        """Start, or go on with what the disk says."""
        state = state or OutboxState()
        self.source = source
        self._settings = settings
        self._next_number = state.next_number
        self._keys = OrderedDict(state.keys)
        self._keys_max = state.keys_max
        self._held = dict(sorted(state.messages.items()))
        self._base = min(self._held, default=self._next_number)
        self._offered: Forward | None = None
        self._failures = 0
        self._retry_at = -NEVER
        self._out: list[ForwardEffect] = []

    # The contract -------------------------------------------------------------------------------

    def step(self, event: SecondarySourceInput, now: int) -> tuple[ForwardEffect, ...]:
        """Take one input at local time `now`."""
        match event:
            case PublishRequested(key, payload):
                self._publish(key, payload)
            case ForwardAccepted(last):
                self._accepted(last)
            case ForwardFailed(reason):
                self._failed(reason, now)
            case TimerFired():
                # A clock that was set back must not make a message wait for the difference.
                self._retry_at = min(self._retry_at, now + self._settings.longest_pause_ns)
            case PacketsArrived() | ClockJudged():
                # It speaks to its parent through a door, and promises nothing by its clock.
                pass
            case _:
                assert_never(event)
        self._offer(now)
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the parent is tried again."""
        return self._retry_at if self._held and self._offered is None else NEVER

    def snapshot(self) -> SecondarySourceSnapshot:
        """The state, for checkers and status pages."""
        return SecondarySourceSnapshot(
            self.source, self._next_number, self._base, len(self._held), self._failures, self._settings.held_max
        )

    # From clients -------------------------------------------------------------------------------

    def _publish(self, key: bytes, payload: bytes) -> None:
        """Take a batch once per key; refuse what does not fit."""
        known = self._keys.get(key)
        if known is not None:
            self._out.append(PublishAccepted(key, Label(self.source, known)))
            return
        if len(payload) > self._settings.payload_max:
            rule = f"payload of {len(payload)} bytes: at most {self._settings.payload_max} fit a packet"
            self._out.append(PublishRejected(key, rule))
            return
        if len(self._held) >= self._settings.held_max:
            self._out.append(PublishRejected(key, f"{len(self._held)} messages wait for the parent: try again later"))
            return
        number = self._next_number
        self._next_number += 1
        self._keys[key] = number
        if len(self._keys) > self._keys_max:
            self._keys.popitem(last=False)
        self._held[number] = (key, payload)
        self._out.append(Persist(OutboxAppended(key, number, payload)))
        self._out.append(PublishAccepted(key, Label(self.source, number)))

    # To the parent ------------------------------------------------------------------------------

    def _offer(self, now: int) -> None:
        """The oldest, one batch at a time: so their order is kept, and a key is never offered twice at once."""
        if self._offered is not None or not self._held or now < self._retry_at:
            return
        oldest = islice(self._held.values(), self._settings.batch_max)
        batches = tuple([(parent_key(self.source, key), payload) for key, payload in oldest])
        self._offered = Forward(self._base, batches)
        self._out.append(self._offered)

    def _accepted(self, last: int) -> None:
        offered, self._offered = self._offered, None
        if offered is None or last != offered.last:
            return
        for number in range(offered.first, last + 1):
            del self._held[number]
        self._base = last + 1
        self._out.append(Persist(OutboxFreed(self._base)))
        if self._failures:
            self._out.append(ParentBack(self._failures))
        self._failures = 0
        self._retry_at = -NEVER

    def _failed(self, reason: str, now: int) -> None:
        self._offered = None
        pause_ns = self._settings.first_pause_ns << min(self._failures, 32)
        if pause_ns <= self._settings.longest_pause_ns:
            self._out.append(ParentSilent(self._failures + 1, len(self._held), reason))
        self._failures += 1
        self._retry_at = now + min(pause_ns, self._settings.longest_pause_ns)
