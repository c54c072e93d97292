"""The switch without its sockets: frames in, and the instant and port at which each comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush

from isocast.trials.lab.frames import MacTable
from isocast.trials.lab.links import Impairment, Link, random_stream

__all__ = ["Departure", "Fabric"]

_IN_FLIGHT_MAX = 400_000
"""Bounds memory at some 600 MB of full frames: 115,000 a second, the most that a switch here carries, for 3 s."""

Departure = tuple[int, int, int, bytes]
"""Instant, counter (so that equal instants leave in order), port, frame."""


class Fabric:
    """A link for each ordered pair of ports, and the frames on their way."""

    def __init__(self, impairments: Mapping[tuple[int, int], Impairment], ports: int, seed: int) -> None:
        """All links open; a pair without an impairment passes frames at once."""
        self._table = MacTable(ports)
        self._links = [
            [
                Link(impairments.get((here, there), Impairment()), random_stream(seed, here, there))
                for there in range(ports)
            ]
            for here in range(ports)
        ]
        self._on_the_way: list[Departure] = []
        self._counter = 0
        self.frames_in = 0
        self.frames_ignored = 0
        """Too short to be frames, or for the sender's own side."""
        self.frames_refused = 0
        """Beyond what may be on its way at once: the lab's own limit, not a loss of the world."""

    def __len__(self) -> int:
        return len(self._on_the_way)

    def enter(self, frame: bytes, port: int, now: int) -> None:
        """A frame came in by a port."""
        self.frames_in += 1
        destinations = self._table.destinations(frame, port)
        if not destinations:
            self.frames_ignored += 1
        links = self._links[port]
        for destination in destinations:
            leaves = links[destination].take(now)
            if leaves < 0:
                continue
            if len(self._on_the_way) >= _IN_FLIGHT_MAX:
                self.frames_refused += 1
                continue
            self._counter += 1
            heappush(self._on_the_way, (leaves, self._counter, destination, frame))

    def next_departure(self) -> int | None:
        """When the next frame is due."""
        return self._on_the_way[0][0] if self._on_the_way else None

    def leave(self, now: int) -> Departure | None:
        """The next frame, if it is due: never before its instant."""
        if not self._on_the_way or self._on_the_way[0][0] > now:
            return None
        return heappop(self._on_the_way)

    def links(self) -> Iterator[tuple[int, int, Link]]:
        """Every direction between two ports."""
        for here, row in enumerate(self._links):
            for there, link in enumerate(row):
                if here != there:
                    yield here, there, link

    def select(self, pairs: Iterable[tuple[int, int]]) -> list[Link]:
        """The directions of these pairs."""
        return [self._links[here][there] for here, there in pairs]

    @property
    def frames_lost(self) -> int:
        """Taken by chance, as the world says."""
        return sum(link.frames_lost for _, _, link in self.links())

    @property
    def frames_cut(self) -> int:
        """Sent into cut links."""
        return sum(link.frames_cut for _, _, link in self.links())
