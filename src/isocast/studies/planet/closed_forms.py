"""What must come out, by formula: loss p for each packet and destination (protocol §11).

A tree changes who loses together, not how often anybody loses: without NACK sets the mean figures are the same, but
for those who share edges with the owner, which has what it acknowledges.
"""

from __future__ import annotations

from functools import lru_cache
from math import expm1, log1p

import numpy as np

from isocast.reformation.scopes.world import Floats

__all__ = ["expected_skew_ns", "false_reformation", "nacks_of_one", "repairs_of_one", "some_missing"]

_NEGLIGIBLE = 1e-16


def _binomial(count: int, chance: float) -> Floats:
    """P(j of `count`), as far as it matters."""
    shares = np.zeros(count + 1)
    if chance <= 0 or chance >= 1:
        shares[0 if chance <= 0 else count] = 1.0
        return shares
    ratio = chance / (1 - chance)
    logs = count * log1p(-chance) + np.concatenate(
        ([0.0], np.cumsum(np.log((count - np.arange(count)) / (np.arange(count) + 1) * ratio)))
    )
    shares[:] = np.exp(logs)
    shares[shares < _NEGLIGIBLE] = 0.0
    return shares


def some_missing(items: int, loss: float) -> float:
    """P(a receiver lacks at least one of the items)."""
    return -expm1(items * log1p(-loss))


@lru_cache(maxsize=4096)
def _requests(lacking: int, loss: float, left: int) -> float:
    """Expected requests of one receiver that lacks so many: request and repairs are lost each by itself."""
    if not lacking or not left:
        return 0.0
    shares: list[float] = _binomial(lacking, loss).tolist()
    after = sum([share * _requests(still, loss, left - 1) for still, share in enumerate(shares) if share])
    return 1 + loss * _requests(lacking, loss, left - 1) + (1 - loss) * after


def nacks_of_one(batch: int, loss: float, retries: int, message_loss: float | None = None) -> float:
    """NACKs of one receiver for a token with so many messages: it asks until it lacks nothing, k_r times at most.

    `message_loss` is another loss of the messages' first copies: of those who share edges of the tree with the owner.
    """
    first = loss if message_loss is None else message_loss
    shares: list[float] = np.convolve(_binomial(1, loss), _binomial(batch, first)).tolist()
    return sum([share * _requests(lacking, loss, retries) for lacking, share in enumerate(shares) if share])


def repairs_of_one(batch: int, loss: float, message_loss: float | None = None) -> float:
    """Repairs that one receiver is sent for a token: each missing item until a copy arrives."""
    first = loss if message_loss is None else message_loss
    return (loss + batch * first) / (1 - loss)


def false_reformation(receivers: int, items: int, loss: float, retries: int) -> float:
    """P(one of so many receivers still lacks something after k_r requests)."""
    each = sum(
        [
            share * some_missing(items, loss ** (arrived + 1))
            for arrived, share in enumerate(_binomial(retries, 1 - loss).tolist())
        ]
    )
    return -expm1(receivers * log1p(-each))


def expected_skew_ns(receivers: int, clock_error_ns: float) -> float:
    """The mean of the widest spread of n clocks, each anywhere within ±ε: 2ε·(n-1)/(n+1), below the bound 2ε."""
    return 2 * clock_error_ns * (receivers - 1) / (receivers + 1)
