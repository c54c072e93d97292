"""Delay, jitter and loss that a demo injects between socket and machine, so that one computer looks like a world.

Pure: the driver gives frames and the time, and asks for what is due. Each sender has a lane of its own, with its own
random streams, and a lane never reorders; so what happens to one sender's frames is a function of the seed, the place
and that sender's traffic, whoever else talks. The sender is read from the frame before anybody has authenticated it:
strangers, and frames too short to name anybody, share one lane without delay, and memory has a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from math import log1p
from random import Random

from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId, is_source, source_id
from isocast.terms.instants import NEVER
from isocast.wire.frame import SENDER_AT

__all__ = ["HELD_BYTES_MAX", "ImpairedLane", "InboundImpairment", "lane_id"]


HELD_BYTES_MAX = 256 << 20
"""Under way at once: 250 MB/s over the longest delay on Earth, 1 s with all jitter. More is lost, as in a router."""

_LANES_MAX = 4_096
"""Lanes, and spellings of senders, that are remembered: hostile frames may claim 2^64 of them."""
_STRANGERS: NodeId = 0
_SOURCE_SHIFT = 32


def lane_id(sender: NodeId) -> NodeId:
    """The sender without its incarnation: a restarted source keeps its lane."""
    return source_id(sender >> _SOURCE_SHIFT) if is_source(sender) else sender


class ImpairedLane:
    """What lies between one sender and this place."""

    __slots__ = ("_gaps", "_jitter", "_log_keep", "_until_loss", "delay_ns", "last_due", "lost", "passed")

    def __init__(self, delay_ns: int, loss: float, gaps: Random, jitter: Random) -> None:
        """Draw how many frames pass before the first is lost."""
        if delay_ns < 0:
            raise LocalProtocolError(f"a delay of {delay_ns} ns is negative")
        self.delay_ns = delay_ns
        self.lost = 0
        self.passed = 0
        self.last_due = -NEVER
        self._gaps = gaps
        self._jitter = jitter
        self._log_keep = log1p(-loss) if loss < 1 else 0.0
        self._until_loss = self._gap() if loss > 0 else NEVER

    def _gap(self) -> int:
        """Frames that pass between two losses: geometric, so that frames that pass cost no draw."""
        if not self._log_keep:
            return 0
        return int(min(log1p(-self._gaps.random()) / self._log_keep, NEVER))

    def survivors(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        """What of a run passes."""
        count = len(frames)
        if self._until_loss >= count:
            self._until_loss -= count
            self.passed += count
            return frames
        kept: list[bytes] = []
        at = 0
        while at + self._until_loss < count:
            kept += frames[at : at + self._until_loss]
            at += self._until_loss + 1
            self._until_loss = self._gap()
        kept += frames[at:]
        self._until_loss -= count - at
        self.passed += len(kept)
        self.lost += count - len(kept)
        return kept

    def due(self, now: int, mean_jitter_ns: int) -> int:
        """When a frame that arrives now may be seen: never before the one in front of it."""
        instant = now + self.delay_ns
        if mean_jitter_ns:
            instant += round(self._jitter.expovariate(1 / mean_jitter_ns))
        self.last_due = max(instant, self.last_due)
        return self.last_due


class InboundImpairment:
    """Holds frames back, or drops them, on the way into one place."""

    def __init__(
        self,
        delays: Mapping[NodeId, int] | Callable[[NodeId], int | None],
        *,
        jitter_ns: int = 0,
        loss: float = 0.0,
        seed: int = 1,
        place: str = "",
    ) -> None:
        """`delays` gives ns for a sender in its first incarnation; None, or no entry, makes it a stranger.

        `jitter_ns` is the mean of an exponential delay on top, `loss` the share of frames that vanish, and `place`
        names who listens: two places of one seed lose different frames.
        """
        if not 0 <= loss <= 1:
            raise LocalProtocolError(f"a loss of {loss} is not a share between 0 and 1")
        if jitter_ns < 0:
            raise LocalProtocolError(f"a jitter of {jitter_ns} ns is negative")
        if isinstance(delays, Mapping):
            delays = {lane_id(sender): delay for sender, delay in delays.items()}.get
        self._delays: Callable[[NodeId], int | None] = delays
        self._jitter_ns = jitter_ns
        self._loss = loss
        self._seed = seed
        self._place = place
        self.overflowed = 0
        """Frames lost because too much was under way."""
        self.held_bytes = 0
        self.lanes: dict[NodeId, ImpairedLane] = {}
        """By sender, in its first incarnation; 0 stands for all strangers."""
        self._spelled: dict[bytes, ImpairedLane] = {}
        self._cut: frozenset[NodeId] = frozenset()
        self._deaf = ImpairedLane(0, 1.0, self._stream(_STRANGERS, "cut"), self._stream(_STRANGERS, "cut"))
        self._waiting: list[tuple[int, int, Sequence[bytes], int]] = []
        self._admitted = 0
        self._now = -NEVER

    @property
    def lost(self) -> int:
        """Frames dropped on purpose, over all senders."""
        return self._deaf.lost + sum([lane.lost for lane in self.lanes.values()])

    @property
    def losses(self) -> dict[NodeId, int]:
        """The same for each sender."""
        return {sender: lane.lost for sender, lane in self.lanes.items()}

    def cut(self, senders: Collection[NodeId]) -> None:
        """Hear nothing more of these senders, and again of all others; what is under way arrives."""
        self._cut = frozenset(map(lane_id, senders))
        self._spelled.clear()

    def admit(self, frames: Sequence[bytes], now: int) -> None:
        """Frames that the socket gave just now, in its order."""
        self._follow(now)
        senders = [frame[SENDER_AT] for frame in frames]
        at, total = 0, len(frames)
        while at < total:
            sender = senders[at]
            end = at + 1
            while end < total and senders[end] == sender:
                end += 1
            lane = self._spelled.get(sender) or self._lane(sender)
            run = lane.survivors(frames[at:end])
            if not self._jitter_ns:
                self._hold(run, lane.due(now, 0))
            else:
                for frame in run:
                    self._hold((frame,), lane.due(now, self._jitter_ns))
            at = end

    def due(self, now: int) -> list[bytes]:
        """What may be seen by now, in the order of its instants."""
        self._follow(now)
        waiting = self._waiting
        frames: list[bytes] = []
        while waiting and waiting[0][0] <= now:
            _, _, run, size = heappop(waiting)
            self.held_bytes -= size
            frames += run
        return frames

    def next_deadline(self) -> int:
        """When `due` has something next, or NEVER."""
        return self._waiting[0][0] if self._waiting else NEVER

    def _hold(self, run: Sequence[bytes], instant: int) -> None:
        size = sum(map(len, run))
        if not run:
            return
        if self.held_bytes + size > HELD_BYTES_MAX:
            self.overflowed += len(run)
            return
        self.held_bytes += size
        self._admitted += 1
        heappush(self._waiting, (instant, self._admitted, run, size))

    def _follow(self, now: int) -> None:
        """A clock that is set back takes along what is under way; nothing waits for the old time to come again."""
        back = self._now - now
        self._now = now
        if back > 0:
            self._waiting = [(instant - back, place, run, size) for instant, place, run, size in self._waiting]
            for lane in self.lanes.values():
                lane.last_due -= back

    def _lane(self, spelled: bytes) -> ImpairedLane:
        """The lane of a sender as it stands in a frame; remembered by its spelling, for the next frame."""
        whole = len(spelled) == SENDER_AT.stop - SENDER_AT.start
        sender = lane_id(int.from_bytes(spelled, "little")) if whole else _STRANGERS
        if sender in self._cut:
            return self._deaf
        delay_ns = self._delays(sender) if sender != _STRANGERS else None
        if delay_ns is None or (sender not in self.lanes and len(self.lanes) >= _LANES_MAX):
            sender, delay_ns = _STRANGERS, 0
        lane = self.lanes.get(sender)
        if lane is None:
            lane = ImpairedLane(delay_ns, self._loss, self._stream(sender, "loss"), self._stream(sender, "jitter"))
            self.lanes[sender] = lane
        if len(self._spelled) >= _LANES_MAX:
            self._spelled.clear()
        self._spelled[spelled] = lane
        return lane

    def _stream(self, sender: NodeId, purpose: str) -> Random:
        """A generator that depends on seed, place, sender and purpose alone, in every process alike."""
        text = "\x1f".join((str(self._seed), self._place, str(sender), purpose))
        # Reproducible draws are the point; nothing here is a secret.
        return Random(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))  # noqa: S311
