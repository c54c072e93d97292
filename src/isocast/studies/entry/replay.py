"""The same stream of orders under every rule: in which order the orders enter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from isocast.reformation.scopes.world import Floats, Ints
from isocast.studies.entry.stream import OrderStream
from isocast.terms.entry import EntryRule, entry_groups
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.topology import City, delay_ns

__all__ = ["EntryReplay", "ReplayRule", "ReplaySettings"]


class ReplayRule(Enum):
    """By what rule the first is first."""

    EXCHANGE = "exchange"
    """One exchange in one city; orders enter as they arrive there."""
    ARRIVAL = "arrival"
    """A ring; inside a token the order of arrival at its owner."""
    SHUFFLE = "shuffle"
    """A ring; inside a token the keyed shuffle over events."""
    BATCH = "batch"
    """A ring; all orders of a token have one time."""
    HOLD = "hold"
    """One exchange that holds every order until its timestamp is so old that earlier ones have arrived (CloudEx)."""
    CHANCE = "chance"
    """A die for each contest."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Where orders go, and what becomes of them on the way; the figures of protocol §11 are the defaults."""

    ring: tuple[City, ...]
    """Owners of tokens, in turn."""
    exchange: City
    token_period_ns: int = 3 * SECOND
    ring_jitter_ns: float = 0.0
    """Mean of an exponential delay on the way to the ring."""
    jitter_ns: float = 20.0 * MILLISECOND
    """Mean of an exponential delay on the way to the one exchange."""
    clock_error_ns: float = 0.1 * MILLISECOND
    """ε of the clocks that stamp orders: each error is anywhere in ±ε alike, drawn anew for each order."""
    hold_ns: float = 200.0 * MILLISECOND
    """How long after its timestamp the exchange with a hold lets an order in, if it has arrived."""


_Ranks: TypeAlias = Ints | Floats


class EntryReplay:
    """One stream on its way; every rule sees the same orders, and both ring rules the same arrivals."""

    def __init__(self, stream: OrderStream, settings: ReplaySettings, seed: int) -> None:
        """ConfigurationError for a city that nobody knows the place of."""
        self.stream = stream
        self.settings = settings
        self._seed = seed
        self._places = _known(stream)
        self._token: Ints | None = None
        self._at_owner: Floats = np.zeros(0)

    def ranks(self, rule: ReplayRule) -> _Ranks:
        """Of each order a number: the lower one enters first, equal ones at the same time."""
        made: Mapping[ReplayRule, Callable[[], _Ranks]] = {
            ReplayRule.EXCHANGE: self._at_exchange,
            ReplayRule.ARRIVAL: self._by_arrival,
            ReplayRule.SHUFFLE: lambda: self._in_tokens(EntryRule.SHUFFLE),
            ReplayRule.BATCH: lambda: self._in_tokens(EntryRule.BATCH),
            ReplayRule.HOLD: self._held,
            ReplayRule.CHANCE: self._by_chance,
        }
        return made[rule]()

    def _random(self, rule: ReplayRule) -> np.random.Generator:
        """A stream of draws for each rule, so that one more rule leaves the others' draws alone."""
        return np.random.default_rng([self._seed, list(ReplayRule).index(rule)])

    # One exchange -------------------------------------------------------------------------------

    def _arrivals(self, random: np.random.Generator) -> Floats:
        delays = _delays(self._places, [self.settings.exchange])[:, 0]
        jitter = random.exponential(self.settings.jitter_ns, self.stream.orders)
        return self.stream.instants + delays[self.stream.city] + jitter

    def _at_exchange(self) -> Ints:
        return _ranked(self._arrivals(self._random(ReplayRule.EXCHANGE)))

    def _held(self) -> Ints:
        """An order enters at its timestamp + h, in the order of timestamps; one that comes later, when it comes."""
        random, error = self._random(ReplayRule.HOLD), self.settings.clock_error_ns
        stamps = self.stream.instants + random.uniform(-error, error, self.stream.orders)
        enters = np.maximum(self._arrivals(random), stamps + self.settings.hold_ns)
        return _ranked(enters, stamps)

    # A ring -------------------------------------------------------------------------------------

    def _tokens(self) -> Ints:
        """The number of each order's token: the first whose owner has the order when it is due."""
        if self._token is not None:
            return self._token
        stream, period, size = self.stream, self.settings.token_period_ns, len(self.settings.ring)
        random = self._random(ReplayRule.ARRIVAL)
        delays = _delays(self._places, self.settings.ring)
        token = -(-stream.instants // period)
        arrives = np.zeros(stream.orders)
        waiting = np.arange(stream.orders)
        while len(waiting):
            jitter = (
                random.exponential(self.settings.ring_jitter_ns, len(waiting)) if self.settings.ring_jitter_ns else 0.0
            )
            arrives[waiting] = stream.instants[waiting] + delays[stream.city[waiting], token[waiting] % size] + jitter
            waiting = waiting[arrives[waiting] > token[waiting] * period]
            token[waiting] += 1
        self._token, self._at_owner = token, arrives
        return token

    def _by_arrival(self) -> Ints:
        return _ranked(self._tokens(), self._at_owner)

    def _in_tokens(self, rule: EntryRule) -> Ints:
        """Token after token, by the rule for its events and a key that stands for its owners' nonces."""
        token, account = self._tokens(), self.stream.account.tolist()
        order = np.lexsort((self._at_owner, token))
        bounds = np.flatnonzero(np.diff(token[order], prepend=-1)).tolist()
        rank, ranks = 0, np.empty(len(order), np.int64)
        for begin, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
            events = order[begin:end].tolist()
            key = blake2b(b"%d %d" % (self._seed, token[events[0]]), digest_size=16).digest()
            for group in entry_groups([account[event] for event in events], key, rule):
                ranks[[events[place] for place in group]] = rank
                rank += 1
        return ranks

    def _by_chance(self) -> Ints:
        return _ranked(self.stream.contest, self._random(ReplayRule.CHANCE).random(self.stream.orders))


def _ranked(*keys: _Ranks) -> Ints:
    """Ranks by the first of these keys, then by the second."""
    ranks = np.empty(len(keys[0]), np.int64)
    ranks[np.lexsort(keys[::-1])] = np.arange(len(ranks))
    return ranks


def _delays(places: Sequence[City], others: Sequence[City]) -> Floats:
    return np.array([[float(delay_ns(here, there)) for there in others] for here in places])


def _known(stream: OrderStream) -> tuple[City, ...]:
    found = []
    for name, place in zip(stream.names, stream.places, strict=True):
        if place is None:
            rule = "its place is not known, so that its orders cannot be replayed under other rules"
            raise ConfigurationError("orders", name, rule)
        found.append(place)
    return tuple(found)
