"""Who submits what, and when: Poisson or even arrivals, bursts, and pairs of traders that decide at one instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocast.simulation.randomness import stream
from isocast.terms.instants import SECOND

if TYPE_CHECKING:
    from isocast.simulation.world import World
    from isocast.wire.packets import Data

__all__ = ["Arrivals", "PairCounter"]


class Arrivals:
    """Feeds a world's sources from the start of its first ring on, until all messages are submitted."""

    def __init__(self, world: World) -> None:
        """Nothing is submitted yet."""
        self.world = world
        self.waiting = True
        """Until the first ring is formed."""
        self.left = world.scenario.messages
        self.finished_at: int | None = None
        self._random = stream(world.seed, "arrivals")
        self._turn = 0
        self._key = 0
        scenario = world.scenario
        self._together = 2 if scenario.traders else scenario.burst
        self._mean_gap_ns = self._together * SECOND / scenario.arrival_rate
        self._steps = 0
        self._start = 0

    def begin(self, instant: int) -> None:
        """The first ring is formed: its first token is due at `instant`."""
        self._start = instant
        self.waiting = False
        self._plan()

    def _plan(self) -> None:
        if self.left <= 0:
            self.finished_at = self.world.agenda.now
            return
        self._steps += 1
        if self.world.scenario.even_arrivals:
            at = self._start + round((self._steps - 0.5) * self._mean_gap_ns)
        else:
            since = max(self.world.agenda.now, self._start)
            at = since + round(self._random.expovariate(1 / self._mean_gap_ns))
        if self.world.scenario.duration_ns and at > self._start + self.world.scenario.duration_ns:
            self.finished_at = self.world.agenda.now
            return
        self.world.agenda.put(at, self._submit, None)

    def _submit(self, _: object) -> None:
        world = self.world
        sources = world.sources
        if world.scenario.traders:
            # Odd numbers stand at the first trader, even ones at the second: two neighbours are a pair.
            for place in (self._turn, self._turn + 1):
                world.submit(sources[place % len(sources)], [self._payload()])
            self._turn += 2
            self.left -= 2
        else:
            count = min(self._together, self.left)
            world.submit(sources[self._turn % len(sources)], [self._payload() for _ in range(count)])
            self._turn += 1
            self.left -= count
        self._plan()

    def once_more(self) -> None:
        """Submit one message at each source, whatever the rate."""
        for source in self.world.sources:
            self.world.submit(source, [self._payload()])

    def _payload(self) -> tuple[bytes, bytes]:
        self._key += 1
        key = self._key.to_bytes(8)
        return key, key.ljust(self.world.scenario.payload_bytes, b"\0")


class PairCounter:
    """Of two orders submitted at one instant, which came first in the sequence."""

    def __init__(self, cities: tuple[str, ...]) -> None:
        """Nobody has won."""
        self.cities = cities
        self.wins = dict.fromkeys(cities, 0)
        self._open: dict[int, None] = {}

    def sequenced(self, message: Data, _: int) -> None:
        """The payload's key tells the pair: 1 and 2, 3 and 4, and so on."""
        key = int.from_bytes(message.payload[:8]) - 1
        pair, trader = divmod(key, 2)
        if pair in self._open:
            del self._open[pair]
        else:
            self._open[pair] = None
            self.wins[self.cities[trader]] += 1

    def shares(self) -> dict[str, float]:
        """Share of the pairs won, by trader's city."""
        total = sum(self.wins.values())
        return {city: wins / total if total else 0.0 for city, wins in self.wins.items()}
