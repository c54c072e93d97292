"""Releases of a run as its view measures them: skew between cities, and latency against the formula."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from isocast.checks.facts import Released, Submitted
from isocast.simulation.scenario import Scenario
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import MILLISECOND
from isocast.terms.topology import delay_ns
from isocast.wire.packets import NewRing

__all__ = ["Chunk", "Releases"]

_CHUNKS_MAX = 128


@dataclass(slots=True)
class Chunk:
    """Messages of one token that are due at one instant, and when the cities released them."""

    token_number: int
    latency_ns: int
    """Mean of its messages, submit to first release."""
    unbroken: bool
    """Acknowledged and released by one ring, on its timetable."""
    first: int
    last: int
    sites: int = 0

    @property
    def skew_ns(self) -> int:
        """Between the first and the last city that released at the common instant."""
        return self.last - self.first


class Releases:
    """Counts what goes out, and when."""

    def __init__(self, scenario: Scenario) -> None:
        """Nothing is out."""
        self._timing = scenario.timing
        self._scenario = scenario
        self.chunks: deque[Chunk] = deque(maxlen=_CHUNKS_MAX)
        self.messages = 0
        """In the sequence."""
        self.punctual = 0
        """Releases at the common instant, messages summed over cities."""
        self.late = 0
        """Releases after it, of cities that were down or caught up."""
        self.skew_ns = 0
        """The largest between cities that released at the common instant."""
        self._by_first: dict[int, Chunk] = {}
        self._submitted_at: dict[tuple[NodeId, int], int] = {}
        self._first_tokens: dict[Epoch, int] = {}
        self._all = [0.0, 0.0]
        self._unbroken = [0.0, 0.0, 0.0]
        self._one_way_ns = _mean_delay_ns(scenario)
        # A clock within its bound is at most ε off; a wake-up may be late besides.
        self._punctual_ns = self._timing.clock_error_ns + scenario.wake_lateness_ns * 30 + MILLISECOND // 1000

    def formula_ns(self, loss: float) -> float:
        """The mean latency that the formula promises a ring in peace."""
        return self._timing.latency_ns(self._one_way_ns, loss)

    @property
    def latency_ns(self) -> float:
        """Mean over all messages, to the first release."""
        return self._all[1] / max(self._all[0], 1)

    @property
    def unbroken_latency_ns(self) -> float:
        """Mean over the messages that no reformation held up."""
        return self._unbroken[1] / max(self._unbroken[0], 1)

    @property
    def unbroken_formula_ns(self) -> float:
        """What the formula says of the same messages, each at the loss of its time."""
        return self._unbroken[2] / max(self._unbroken[0], 1)

    def submitted(self, fact: Submitted) -> None:
        """A source took a message."""
        self._submitted_at[fact.source, fact.number] = fact.at

    def ring_formed(self, ring: NewRing) -> None:
        """The first token of a ring carries what waited for it; later ones are as in peace."""
        self._first_tokens[ring.ballot] = ring.first_token

    def released(self, fact: Released, loss: float) -> None:
        """A city released a chunk."""
        count = len(fact.messages)
        chunk = self._by_first.get(fact.first_sequence)
        if chunk is None and fact.first_sequence > self.messages:
            chunk = self._begin(fact, loss)
        # What a new ring owes from an old one goes out at the new ring's start: in order, and late.
        owed = fact.due >= fact.instant + self._timing.release_delay_ns + self._timing.token_period_ns
        if chunk is None or owed or abs(fact.at - fact.due) > self._punctual_ns:
            self.late += count
            return
        self.punctual += count
        chunk.first = min(chunk.first, fact.at) if chunk.sites else fact.at
        chunk.last = max(chunk.last, fact.at) if chunk.sites else fact.at
        chunk.sites += 1
        self.skew_ns = max(self.skew_ns, chunk.skew_ns)

    def _begin(self, fact: Released, loss: float) -> Chunk:
        count = len(fact.messages)
        waited = 0
        for message in fact.messages:
            waited += fact.at - self._submitted_at.pop((message.sender, message.number), fact.at)
        on_timetable = fact.due == fact.instant + self._timing.release_delay_ns or bool(self._scenario.release_rate)
        first_token = self._first_tokens.get(fact.epoch, fact.token_number)
        unbroken = on_timetable and fact.token_number > first_token and count > 0
        chunk = Chunk(fact.token_number, waited // max(count, 1), unbroken, fact.at, fact.at)
        self._by_first[fact.first_sequence] = chunk
        if len(self._by_first) > _CHUNKS_MAX:
            del self._by_first[next(iter(self._by_first))]
        self.chunks.append(chunk)
        self.messages += count
        self._all[0] += count
        self._all[1] += waited
        if unbroken:
            self._unbroken[0] += count
            self._unbroken[1] += waited
            self._unbroken[2] += count * self.formula_ns(loss)
        return chunk


def _mean_delay_ns(scenario: Scenario) -> int:
    """d: from a source to an owner, mean over all pairs of cities that talk so."""
    ring = scenario.ring
    if not ring:
        return scenario.one_way_delay_ns + scenario.jitter_ns
    origins = scenario.traders or ring
    total = sum([delay_ns(a, b) for a in origins for b in ring])
    return total // (len(origins) * len(ring)) + scenario.jitter_ns
