"""A central exchange instead of a ring: whoever's packet arrives first is first (§7.2's comparison)."""

from __future__ import annotations

from hashlib import blake2b

from isocast.simulation.randomness import stream
from isocast.simulation.scenario import Scenario
from isocast.terms.instants import SECOND
from isocast.terms.topology import delay_ns

__all__ = ["ExchangeResult", "run_exchange"]


class ExchangeResult:
    """How often each trader was first, and how long an order took."""

    def __init__(self, cities: tuple[str, ...]) -> None:
        """No orders yet."""
        self.wins = dict.fromkeys(cities, 0)
        self.pairs = 0
        self.messages = 0
        self.latency_ns = 0
        self.trace_digest = ""


def run_exchange(scenario: Scenario, seed: int) -> ExchangeResult:
    """Pairs of orders decided at one instant, each on its own way to the exchange.

    A lost order is sent again after the source's resend time, which is the second disadvantage of distance
    that §7.2 names; a tie goes to the first-named trader.
    """
    if scenario.exchange is None:
        raise ValueError("not a scenario with a central exchange")
    result = ExchangeResult(tuple([trader.name for trader in scenario.traders]))
    ways = [
        (trader.name, delay_ns(trader, scenario.exchange), stream(seed, trader.name, "way"))
        for trader in scenario.traders
    ]
    arrivals = stream(seed, "arrivals")
    digest = blake2b(digest_size=16)
    now = 0
    for _ in range(scenario.messages // 2):
        now += round(arrivals.expovariate(scenario.arrival_rate / 2 / SECOND))
        if scenario.duration_ns and now > scenario.duration_ns:
            break
        best: tuple[int, str] | None = None
        for name, delay, random in ways:
            taken = delay + (round(random.expovariate(1 / scenario.jitter_ns)) if scenario.jitter_ns else 0)
            while scenario.loss and random.random() < scenario.loss:
                taken += scenario.source_resend_ns
            result.latency_ns += taken
            digest.update(b"%d %d" % (now, taken))
            if best is None or taken < best[0]:
                best = (taken, name)
        if best is not None:
            result.wins[best[1]] += 1
        result.pairs += 1
    result.messages = 2 * result.pairs
    result.trace_digest = digest.hexdigest()
    return result
