"""Orders that say what they react to, from a journal: who entered first, by every rule, and how sure that is.

Orders with the same `id` from different cities are one contest; `reference` is the account, as everywhere. Events of a
token stand in its journal as the ring ordered them, with the key of the token, so that one journal tells all rules of
`terms.entry`: the order of the sequence, the keyed shuffle over events, and the batch.

**What is independent.** Contests of one token are not: by arrival its owner decides them all alike, and a cut that
falls between two cities' arrivals parts every pair of that moment. A keyed shuffle draws disjoint pairs of accounts
independently, unless an account has several orders in the token, which keep their own order. Therefore the error is
that of clusters, a cluster being all contests that were decided in the time of one token; whatever they have in common
is in it. Owners take turns by rule, not by chance: the figure is the mean over the places of a turn, each place alike,
and the error is from tokens of the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.reformation.scopes.world import Floats, Ints
from isocast.studies.entry.stream import OrderStream, source_city
from isocast.terms.entry import EntryRule, entry_groups
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import EventFlag, EventKind
from isocast.terms.topology import City
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.journal_blocks import IS_EVENTS, BlockView

__all__ = ["LeftOutOrders", "PairEstimate", "ReactionWalk", "Reactions", "clustered_share"]

Bools: TypeAlias = npt.NDArray[np.bool_]

_SOURCE_BITS = 32
"""Below them a source's id has its incarnation, and a reference fits into as many."""
_OF_ACCOUNTS = (EventKind.ORDER, EventKind.CANCEL, EventKind.REPLACE)
"""Kinds whose reference says whose they are."""
_CLUSTERS_MIN = 2
"""Tokens at each place of a turn: one alone shows no variance."""


@dataclass(frozen=True, slots=True)
class LeftOutOrders:
    """What is in the journal and in no figure."""

    opaque_messages: int
    other_events: int
    """That are no orders."""
    alone: int
    """Orders that nobody in another city competed with: the machine let the other trader pass the instant over."""
    repeated: int
    """Orders of contests in which a city has two."""
    apart: int
    """Contests that the machine let the cities decide too far apart in time."""

    def as_json(self) -> dict[str, int]:
        """One object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PairEstimate:
    """How often the first of two cities entered before the second, and the standard error of that."""

    first: str
    second: str
    contests: int
    tokens: int
    """Clusters: tokens in whose time these contests were decided."""
    share: float
    standard_error: float | None
    """None with fewer than two tokens at a place of the turn."""
    ahead_ns: float
    """How much earlier the first decided, on average: what the machine gave it, not the rule."""

    def as_json(self) -> dict[str, object]:
        """One entry of a list."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Reactions:
    """Contests of one order for each of several cities."""

    stream: OrderStream
    ranks: Mapping[EntryRule, Ints]
    """Of each order: when it entered by that rule; equal ones at the same time."""
    tokens: Ints
    """Of each contest: the number of the first token with events at or after its first decision."""
    left_out: LeftOutOrders

    def estimate(self, rule: EntryRule, pair: tuple[str, str], ring: int) -> PairEstimate | None:
        """For a pair of cities and so many owners; None if the two never competed."""
        stream, ranks = self.stream, self.ranks[rule]
        entered = np.full((stream.contests, len(stream.names)), -1, np.int64)
        decided = entered.copy()
        entered[stream.contest, stream.city] = ranks
        decided[stream.contest, stream.city] = stream.instants
        one, two = (stream.names.index(name) for name in pair)
        both = (entered[:, one] >= 0) & (entered[:, two] >= 0)
        if not both.any():
            return None
        first, second = entered[both, one], entered[both, two]
        won = (first < second) + (first == second) / 2
        share, error = clustered_share(won, self.tokens[both], ring)
        ahead = float((decided[both, two] - decided[both, one]).mean())
        clusters = len(np.unique(self.tokens[both]))
        return PairEstimate(*pair, int(both.sum()), clusters, share, error, ahead)


def clustered_share(won: Floats, tokens: Ints, ring: int) -> tuple[float, float | None]:
    """The mean over the places of a turn, each alike, and its standard error from whole tokens.

    At one place: p = Σwon/n, and its variance c/(c-1)·Σ(Σ(won-p) of a token)²/n² over c tokens. The places are
    independent, so that their variances add.
    """
    shares, variance, enough = [], 0.0, True
    for place in np.unique(tokens % ring):
        here = tokens % ring == place
        share = float(won[here].mean())
        clusters = np.unique(tokens[here], return_inverse=True)[1]
        count = int(clusters.max()) + 1
        shares.append(share)
        enough &= count >= _CLUSTERS_MIN
        if enough:
            sums = np.bincount(clusters, won[here] - share)
            variance += count / (count - 1) * float((sums**2).sum()) / int(here.sum()) ** 2
    return float(np.mean(shares)), sqrt(variance) / len(shares) if enough else None


@dataclass(slots=True)
class _Token:
    instant: int
    key: bytes
    sources: list[Ints] = field(default_factory=list)
    events: list[EventArray] = field(default_factory=list)


class ReactionWalk:
    """Takes blocks of journals, each journal in order; what an earlier one had already is passed over."""

    def __init__(self) -> None:
        """Nothing is read."""
        self._next = 0
        self._tokens: dict[int, _Token] = {}
        self._opaque = 0

    def take(self, block: BlockView) -> None:
        """The next sound block."""
        header = block.header
        known = max(self._next - header.first_sequence, 0)
        if known >= header.messages:
            return
        self._next = header.next_sequence
        rows, earlier = block.directory[known:], int(block.directory["events"][:known].sum())
        self._opaque += int(((rows["flags"] & IS_EVENTS) == 0).sum())
        if earlier == header.events:
            return
        token = self._tokens.setdefault(header.token_number, _Token(header.instant, header.shuffle_key))
        token.sources.append(np.repeat(rows["source"].astype(np.int64), rows["events"].astype(np.int64)))
        token.events.append(block.events[earlier:].copy())

    def end(self, places: Mapping[int, City], within_ns: int) -> Reactions:
        """The contests; `places` are those of source numbers, and cities decide within this time of each other.

        ConfigurationError if no two cities have an order of one id.
        """
        numbers = sorted(self._tokens)
        read = [self._tokens[number] for number in numbers]
        events, sources = _joined([part for token in read for part in token.events]), _joined_sources(read)
        is_order = events["kind"] == EventKind.ORDER
        orders, source = events[is_order], sources[is_order]
        names, where, city = _cities(source, places)
        instants, contest = orders["time"].astype(np.int64), np.unique(orders["id"], return_inverse=True)[1]
        fates = _fates(contest, city, instants, within_ns, len(names))
        if not fates.kept.any():
            rule = "no two cities have an order of the same id, decided within --within: --by time compares instants"
            raise ConfigurationError("command line", "--by", rule)
        chosen = np.flatnonzero(fates.kept[contest])
        chosen = chosen[np.argsort(instants[chosen], kind="stable")]
        place_of = (np.cumsum(fates.kept) - 1).astype(np.int64)
        account = _accounts(orders, source)
        stream = OrderStream(names, where, instants[chosen], city[chosen], account[chosen], place_of[contest[chosen]])
        after = np.searchsorted([token.instant for token in read], fates.begin[fates.kept])
        tokens = np.array([*numbers, numbers[-1] + 1], np.int64)[after]
        left_out = LeftOutOrders(
            self._opaque,
            int((~is_order).sum()),
            int(fates.alone[contest].sum()),
            int(fates.repeated[contest].sum()),
            int(fates.apart.sum()),
        )
        return Reactions(stream, {rule: _ranks(read, rule)[is_order][chosen] for rule in EntryRule}, tokens, left_out)


class _Fates(NamedTuple):
    """Of each contest: when its first order was decided, and why it counts or not."""

    begin: Ints
    repeated: Bools
    alone: Bools
    apart: Bools

    @property
    def kept(self) -> Bools:
        return ~(self.repeated | self.alone | self.apart)


def _fates(contest: Ints, city: Ints, instants: Ints, within_ns: int, cities: int) -> _Fates:
    contests = int(contest.max(initial=-1)) + 1
    counts = np.zeros((contests, cities), np.int64)
    np.add.at(counts, (contest, city), 1)
    begin, end = np.full(contests, np.iinfo(np.int64).max), np.zeros(contests, np.int64)
    np.minimum.at(begin, contest, instants)
    np.maximum.at(end, contest, instants)
    repeated: Bools = np.max(counts, 1, initial=0) > 1
    alone = ~repeated & ((counts > 0).sum(1) == 1)
    return _Fates(begin, repeated, alone, ~repeated & ~alone & (end - begin > within_ns))


def _ranks(tokens: Sequence[_Token], rule: EntryRule) -> Ints:
    """Of all events of these tokens, in the order of the sequence: when they entered."""
    ranks: list[Ints] = []
    rank = 0
    for token in tokens:
        events, sources = _joined(token.events), _joined_sources([token])
        has_account = np.isin(events["kind"], _OF_ACCOUNTS).tolist()
        of = _accounts(events, sources).tolist()
        accounts = [one if has else None for one, has in zip(of, has_account, strict=True)]
        linked = ((events["flags"] & EventFlag.LINKED) != 0).tolist()
        found = np.zeros(len(events), np.int64)
        for group in entry_groups(accounts, token.key, rule, linked):
            found[group] = rank
            rank += 1
        ranks.append(found)
    return np.concatenate(ranks) if ranks else np.zeros(0, np.int64)


def _joined(parts: Sequence[EventArray]) -> EventArray:
    return np.concatenate([np.zeros(0, EVENT_DTYPE), *parts])


def _joined_sources(tokens: Sequence[_Token]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(part for token in tokens for part in token.sources)])


def _accounts(events: EventArray, sources: Ints) -> Ints:
    """A number of its own for each account of each source."""
    found: Ints = (sources >> _SOURCE_BITS << _SOURCE_BITS) | events["reference"].astype(np.int64)
    return found


def _cities(source: Ints, places: Mapping[int, City]) -> tuple[tuple[str, ...], tuple[City | None, ...], Ints]:
    """Names and places of cities, and of each source its index among them."""
    known: dict[str, City | None] = {}
    names = {}
    for one in np.unique(source).tolist():
        name, place = source_city(one, places)
        known[name] = place
        names[one] = list(known).index(name)
    return tuple(known), tuple(known.values()), np.array([names[one] for one in source.tolist()], np.int64)
