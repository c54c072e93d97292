"""What a token acknowledges, and in which order (§5; protocol §2 and §3).

A token's runs name, per source, a contiguous prefix of what waits. Their order is either that of arrival at
the owner, spelled out in `interleave`, or a shuffle by a key that depends on two owners' nonces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from isocast.ring.settings import OrderRule
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.limits import MAX_GRANTS
from isocast.wire.packets import Data, Grant, Run, Token, TokenPart, digest_of, short_digest_of
from isocast.wire.token_body import join_parts

__all__ = [
    "PartStore",
    "choose",
    "fair_shares",
    "grants",
    "label_order",
    "nonce",
    "run_digest",
    "runs_of",
    "shuffle_key",
]


def choose(waiting: Mapping[tuple[NodeId, int], Data], next_number: Mapping[NodeId, int], batch_max: int) -> list[Data]:
    """Each source's contiguous prefix from its next number, at most `batch_max` in all, in order of arrival.

    A message that overtook its predecessor takes its place right behind it. If there is too much, every
    source gets a max-min fair share.
    """
    expected: dict[NodeId, int] = {}
    early: set[tuple[NodeId, int]] = set()
    chosen: list[Data] = []
    for label, message in waiting.items():
        source, number = label
        due = expected.get(source)
        if due is None:
            due = next_number.get(source, 1)
        if number != due:
            early.add(label)
            continue
        chosen.append(message)
        due += 1
        while (source, due) in early:
            chosen.append(waiting[source, due])
            due += 1
        expected[source] = due
    if len(chosen) <= batch_max:
        return chosen
    return _share(chosen, batch_max)


def _share(chosen: list[Data], batch_max: int) -> list[Data]:
    demand: dict[NodeId, int] = {}
    for message in chosen:
        demand[message.sender] = demand.get(message.sender, 0) + 1
    left = fair_shares(demand, batch_max)
    kept = []
    for message in chosen:
        if left[message.sender] > 0:
            left[message.sender] -= 1
            kept.append(message)
    return kept


def fair_shares(demand: Mapping[NodeId, int], capacity: int) -> dict[NodeId, int]:
    """Max-min fair: nobody gets more than it asks for, and nobody could get more without a poorer one losing."""
    shares: dict[NodeId, int] = {}
    left = capacity
    waiting = sorted(demand.items(), key=lambda item: (item[1], item[0]))
    for place, (source, wanted) in enumerate(waiting):
        shares[source] = min(wanted, left // (len(waiting) - place))
        left -= shares[source]
    return shares


def grants(demand: Mapping[NodeId, int], batch_max: int) -> tuple[Grant, ...]:
    """Windows for sources that together offer more than a token can take; nobody is named while all fits."""
    if sum(demand.values()) <= batch_max:
        return ()
    shares = fair_shares(demand, batch_max)
    # A token carries only so many: the source that offers most is held back first.
    named = sorted(shares, key=lambda source: (shares[source] - demand[source], source))[:MAX_GRANTS]
    return tuple([Grant(source, max(shares[source], 1)) for source in sorted(named) if shares[source] < demand[source]])


def run_digest(messages: Sequence[Data]) -> bytes:
    """Over the payload digests of one run, in the order of their numbers."""
    return digest_of(*[message.digest for message in messages])


def runs_of(chosen: Sequence[Data]) -> tuple[tuple[Run, ...], tuple[tuple[int, int], ...]]:
    """The runs of a batch, sources in order of first appearance, and the interleaving that restores it."""
    by_source: dict[NodeId, list[Data]] = {}
    index: dict[NodeId, int] = {}
    steps: list[list[int]] = []
    for message in chosen:
        source = message.sender
        messages = by_source.get(source)
        if messages is None:
            messages = by_source[source] = []
            index[source] = len(index)
        messages.append(message)
        place = index[source]
        if steps and steps[-1][0] == place:
            steps[-1][1] += 1
        else:
            steps.append([place, 1])
    runs = tuple([Run(source, m[0].number, len(m), run_digest(m)) for source, m in by_source.items()])
    if len(steps) == len(runs):
        return runs, ()
    return runs, tuple([(place, count) for place, count in steps])


def nonce(secret: bytes, *parts: object) -> bytes:
    """A site's nonce for one of its tokens: secret until revealed, the same after a restart."""
    return short_digest_of(secret, "/".join(map(str, parts)).encode())


def shuffle_key(token: Token, previous_reveal: bytes) -> bytes:
    """From the nonces revealed in t and t-1: neither owner alone chose it, and anybody can check it."""
    return short_digest_of(token.reveal, previous_reveal)


def label_order(token: Token, rule: OrderRule, key: bytes) -> list[tuple[NodeId, int]]:
    """(source, number) of every message of a token, in sequence order."""
    if rule is OrderRule.SHUFFLE:
        return _shuffled(token.runs, key)
    runs = token.labels
    if not token.interleave:
        return [label for labels in runs for label in labels]
    ordered: list[tuple[NodeId, int]] = []
    following = [0] * len(runs)
    for place, count in token.interleave:
        first = following[place]
        following[place] = first + count
        ordered.extend(runs[place][first : first + count])
    return ordered


def _shuffled(runs: Sequence[Run], key: bytes) -> list[tuple[NodeId, int]]:
    """Sort by keyed hash; then let each source's numbers take its places in ascending order."""
    keyed = blake2b(key=key, digest_size=8)
    places: list[tuple[bytes, NodeId]] = []
    for run in runs:
        for number in range(run.first, run.first + run.count):
            state = keyed.copy()
            state.update(run.source.to_bytes(8) + number.to_bytes(8))
            places.append((state.digest(), run.source))
    places.sort()
    following = {run.source: run.first for run in runs}
    labels = []
    for _, source in places:
        labels.append((source, following[source]))
        following[source] += 1
    return labels


# Putting a token together again whose parts come one by one, in any order.


TOKENS_MAX = 8
"""Tokens under way at once: one is in recovery, one is new; the rest is room for reordering."""


class PartStore:
    """Parts by token; a complete set becomes the token, a set that contradicts itself is dropped."""

    def __init__(self, *, newest_first: bool = False) -> None:
        """No parts yet. A receiver needs the oldest token first; a source cares for the newest."""
        self._newest_first = newest_first
        self.refused = 0
        """Sets of parts that did not make a token."""
        self._parts: dict[int, dict[int, TokenPart]] = {}

    def add(self, part: TokenPart) -> Token | None:
        """Keep a part; the token once all are here."""
        parts = self._parts.setdefault(part.token_number, {})
        if any(other.parts != part.parts or other.epoch != part.epoch for other in parts.values()):
            parts.clear()
        parts[part.part] = part
        if len(self._parts) > TOKENS_MAX:
            del self._parts[min(self._parts) if self._newest_first else max(self._parts)]
        if len(parts) < part.parts:
            return None
        self._parts.pop(part.token_number, None)
        try:
            return join_parts([parts[place] for place in range(part.parts)])
        except RemoteProtocolError:
            self.refused += 1
            return None

    def held(self, token_number: int) -> int:
        """A bitmap of the parts of a token that are here."""
        bitmap = 0
        for place in self._parts.get(token_number, {}):
            bitmap |= 1 << place
        return bitmap

    def forget(self, token_number: int) -> None:
        """Drop the parts of tokens up to a number."""
        for number in [number for number in self._parts if number <= token_number]:
            del self._parts[number]

    def clear(self) -> None:
        """Drop everything: a new epoch."""
        self._parts.clear()
