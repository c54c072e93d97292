"""What the figures must be, derived by hand: loss p for each packet and destination, independent.

Of a message that its token's owner lacks (one in 1/p), the source sends a second copy, and the next token
acknowledges it. Most receivers then had two chances, but the first owner has missed one for certain, and sometimes
there is no second copy in time. For p ≤ 0.05 and m ≤ 10, with a source for each message of a token, the two sides
cancel to less than a hundredth: a receiver lacks each item with p. Larger rings lack less, by up to p: the first owner
is then one of many.
"""

from __future__ import annotations

from functools import cache
from math import comb, exp

from isocast.terms.topology import City, city, delay_ns

__all__ = [
    "arrival_share",
    "attempts",
    "binomial",
    "cities",
    "exchange_share",
    "false_reformation",
    "original_control",
    "repairs",
    "shuffle_share",
]


def binomial(n: int, p: float) -> list[float]:
    """P(j of n), j = 0..n."""
    return [comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(n + 1)]


def original_control(rate: float, delay_s: float, token_ack_s: float) -> float:
    """1+(1-λd)e^(-λT_a), to first order in λd the 1+e^(-λ(d+T_a)) of the figures.

    A TOKACK needs an empty queue after an acknowledgement and silence for T_a. The passes are an M/D/1 queue with
    service time d: after a service it is empty with probability 1-λd.
    """
    return 1 + (1 - rate * delay_s) * exp(-rate * token_ack_s)


@cache
def _attempts_for(lacking: int, p: float, left: int) -> float:
    """Expected requests of a receiver that lacks so many items: request and repairs get lost, each by itself."""
    if not lacking or not left:
        return 0.0
    after = sum(
        share * _attempts_for(still, p, left - 1) for still, share in enumerate(binomial(lacking, p)) if share > 1e-15
    )
    return 1 + p * _attempts_for(lacking, p, left - 1) + (1 - p) * after


def attempts(m: int, k: int, p: float, retries: int) -> float:
    """NACKs per token: each of m-1 receivers asks until it lacks nothing, at most k_r times."""
    lacking = enumerate(binomial(k + 1, p))
    return (m - 1) * sum(share * _attempts_for(j, p, retries) for j, share in lacking if share > 1e-15)


def repairs(m: int, k: int, p: float) -> float:
    """Repairs per token: every lacking item once for each transmission until it arrives."""
    return (m - 1) * (k + 1) * p / (1 - p)


def false_reformation(m: int, k: int, p: float, retries: int) -> float:
    """P(some of m-1 receivers still lacks something after k_r requests).

    If n of the requests arrive, an item is lacking when its first copy and n repairs are lost.
    """
    each = sum(
        chance * (1 - (1 - p ** (arrived + 1)) ** (k + 1)) for arrived, chance in enumerate(binomial(retries, 1 - p))
    )
    return 1 - (1 - each) ** (m - 1)


def cities(*names: str) -> tuple[City, ...]:
    """Cities by name."""
    found = tuple(place for name in names if (place := city(name)))
    assert len(found) == len(names)
    return found


def exchange_share(exchange: City, first: City, second: City, jitter_s: float) -> float:
    """P(the nearer of two traders is first) at one exchange: 1-½e^(-(d_B-d_A)/j), jitter exponential with mean j."""
    ahead = (delay_ns(second, exchange) - delay_ns(first, exchange)) / 1e9
    share = 1 - exp(-abs(ahead) / jitter_s) / 2
    return share if ahead >= 0 else 1 - share


def arrival_share(ring: tuple[City, ...], first: City, second: City, period_s: float) -> float:
    """P(first trader before second) when each token keeps its owner's order of arrival.

    The instants at which a pair may be decided so that owner r's token settles it end when the nearer trader's
    packet just reaches r in time, min(d_A, d_B) before the token, and begin where the previous owner's end.
    """
    near = [min(delay_ns(first, owner), delay_ns(second, owner)) / 1e9 for owner in ring]
    won = 0.0
    for place, owner in enumerate(ring):
        if delay_ns(first, owner) < delay_ns(second, owner):
            won += period_s - near[place] + near[place - 1]
    return won / (len(ring) * period_s)


def shuffle_share(ring: tuple[City, ...], first: City, second: City, period_s: float) -> float:
    """½+mean(d_B-d_A)/(2τ_t): the nearer trader wins for certain only when the token falls between the two."""
    ahead = [(delay_ns(second, owner) - delay_ns(first, owner)) / 1e9 for owner in ring]
    return 0.5 + sum(ahead) / len(ring) / (2 * period_s)
