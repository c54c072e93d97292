"""Receivers on the planet: their network, who lacks what of each token, when each releases, and many tokens added up.

Times are nanoseconds after the token's instant T_t, by true time; a receiver's own clock is ahead by its error. The
rules are the protocol's (§3, §7, §8): one aggregated request names everything that is missing, at T_t+δ_N+2ε and then
every τ_r, k_r times, of the token's owner; a secondary receiver asks its parent on a grid of its own, and is told
PENDING while the parent asks itself. With NACK sets the ring takes turns, and repairs are multicast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from isocast.reformation.scopes.world import Floats, Ints, Surface
from isocast.studies.planet.settings import OFFSETS, Bins, CoreSettings, StreamPurpose, generator, lost_places

__all__ = [
    "COMPLETIONS",
    "CoreNet",
    "CorePart",
    "CoreTally",
    "CoreWorld",
    "Pairs",
    "RingTally",
    "TokenFigures",
    "TreeLevel",
    "joined",
    "run_token",
    "run_tokens",
    "with_sets",
]


# The network between trusted receivers: who stands where, below whom, and behind which edges of the tree.


Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TreeLevel:
    """Edges of one level of the multicast tree: the edge of each receiver."""

    edge_of: Ints

    @cached_property
    def edges(self) -> int:
        """How many there are."""
        return int(self.edge_of.max()) + 1 if len(self.edge_of) else 0

    @cached_property
    def _members(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.edge_of, kind="stable")
        return order, np.searchsorted(self.edge_of[order], np.arange(self.edges + 1))

    def behind(self, edges: Ints) -> tuple[Ints, Ints]:
        """Everybody behind these edges: for each the place in `edges`, and the receiver."""
        order, starts = self._members
        counts = starts[edges + 1] - starts[edges]
        place = np.repeat(np.arange(len(edges)), counts)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, order[starts[edges][place] + offset]


@dataclass(frozen=True, eq=False)
class Pairs:
    """What is missing where: receiver and item, row by row; item 0 is the token itself."""

    receiver: Ints
    item: Ints

    def __len__(self) -> int:
        return len(self.receiver)

    def of(self, chosen: Flags) -> Pairs:
        """Some rows."""
        return Pairs(self.receiver[chosen], self.item[chosen])


@dataclass(frozen=True, eq=False)
class CoreNet:
    """Receivers 0 to n-1 as points of space; the ring names its members by these numbers."""

    points: Floats
    ring: Ints
    parent: Ints
    """The primary receiver that each asks; a primary one is its own."""
    levels: tuple[TreeLevel, ...]
    """From the root of the tree to the leaves, which are no level of their own."""
    ns_per_km: float
    base_ns: float
    """Of any path, however short."""
    below_ns: float = 0.0
    """On top of the way to a receiver below the ring, for worlds whose delays are told and not measured."""

    @property
    def size(self) -> int:
        """N."""
        return len(self.points)

    @cached_property
    def primary(self) -> Flags:
        """Who is on the ring."""
        flags = np.zeros(self.size, dtype=np.bool_)
        flags[self.ring] = True
        return flags

    @cached_property
    def ring_place(self) -> Ints:
        """Of each receiver; -1 below the ring."""
        place = np.full(self.size, -1, dtype=np.int64)
        place[self.ring] = np.arange(len(self.ring))
        return place

    @cached_property
    def parent_ns(self) -> Floats:
        """One way between a receiver and its parent."""
        arc = Surface.EARTH.to_arc(np.linalg.norm(self.points - self.points[self.parent], axis=1))
        return np.where(self.primary, 0.0, arc * self.ns_per_km + (self.below_ns or self.base_ns))

    def delay_ns(self, sender: int) -> Floats:
        """One way from a primary receiver to everybody."""
        arc = Surface.EARTH.to_arc(np.linalg.norm(self.points - self.points[sender], axis=1))
        return arc * self.ns_per_km + self.base_ns + np.where(self.primary, 0.0, self.below_ns)

    # Losses -------------------------------------------------------------------------------------

    def edge_loss(self, loss: float, *, tree: bool) -> float:
        """Of each edge on the way, so that every receiver still loses `loss` in all."""
        return float(1 - (1 - loss) ** (1 / (len(self.levels) + 1))) if tree else loss

    def losses(self, random: np.random.Generator, items: int, loss: float, owner: int, *, tree: bool) -> Pairs:
        """What of a token and its messages does not arrive, each pair once; item 0 is the token itself.

        Messages that the owner lacks are not in its token: what is in it passed every edge that leads to the owner.
        """
        each = self.edge_loss(loss, tree=tree)
        flat = [lost_places(random, items * self.size, each)]
        for level in self.levels if tree else ():
            item, edge = np.divmod(lost_places(random, items * level.edges, each), level.edges)
            possible = (item == 0) | (edge != level.edge_of[owner])
            item, edge = item[possible], edge[possible]
            place, receiver = level.behind(edge)
            flat.append(item[place] * self.size + receiver)
        all_lost = np.unique(np.concatenate(flat)) if len(flat) > 1 else flat[0]
        item, receiver = np.divmod(all_lost, self.size)
        return Pairs(receiver, item).of(receiver != owner)

    def copies_passed(
        self, random: np.random.Generator, receiver: Ints, copy: Ints, copies: int, loss: float, *, tree: bool
    ) -> Flags:
        """Whether each of some multicast copies reaches a receiver; rows of one copy share its edges."""
        each = self.edge_loss(loss, tree=tree)
        passed = random.random(len(receiver)) >= each
        for level in self.levels if tree else ():
            lost = random.random((copies, level.edges)) < each
            passed &= ~lost[copy, level.edge_of[receiver]]
        return passed


@dataclass(frozen=True, eq=False)
class TokenFigures:
    """What one token took."""

    owner: int
    ring_nacks: int
    ring_repairs: int
    wave: int
    """The most NACKs of the ring that one attempt brought to the owner at once."""
    lower_nacks: int
    """Of secondary receivers, to their parents."""
    lower_repairs: int
    asked: Ints
    """NACKs that each receiver was sent, as owner or as parent."""
    gave_up: int
    """Primary receivers that were not complete after k_r requests."""
    unfinished: int
    """Secondary receivers that were not complete when they had to be."""
    lost: int
    """Packets that somebody on the ring lacked."""
    per_lost: Ints
    """NACKs of the ring that named each of these packets."""
    complete_ns: Floats
    """When each receiver held all of it; infinite where it did not recover."""
    release_ns: Floats
    """When each releases, after T_t; infinite where it does not."""
    punctual: Flags
    """Who was complete at its own instant of release; everybody else is a fairness fault."""


def with_sets(settings: CoreSettings, sets: int) -> CoreSettings:
    """The same world with another k_p, and the Δ_A that goes with it."""
    return replace(settings, timing=replace(settings.timing, nack_sets=sets, release_delay_ns=0))


def run_token(net: CoreNet, settings: CoreSettings, run: int, number: int, batch: int | None = None) -> TokenFigures:
    """Token `number` of a run: a function of these arguments alone."""
    random = generator(run, StreamPurpose.TOKEN, number)
    return _Token(net, settings, number, settings.batch if batch is None else batch, random).outcome()


class _Token:
    """The state of one token's recovery: for each missing pair, when it arrives after all."""

    def __init__(
        self, net: CoreNet, settings: CoreSettings, number: int, batch: int, random: np.random.Generator
    ) -> None:
        self.net = net
        self.settings = settings
        self.timing = settings.timing
        self.random = random
        self.items = batch + 1
        self.owner = int(net.ring[number % len(net.ring)])
        bound = self.timing.clock_error_ns
        self.error = random.uniform(-bound, bound, net.size) if bound else np.zeros(net.size)
        self.away = net.delay_ns(self.owner)
        self.token_at = self.away + self._jitter(net.size) - self.error[self.owner]
        self.token_at[self.owner] = -self.error[self.owner]
        pairs = net.losses(random, self.items, settings.loss, self.owner, tree=settings.tree)
        self.pairs, self.when = self._with_late_tokens(pairs)
        self.asked = np.zeros(net.size, dtype=np.int64)
        self.named = np.zeros(self.items, dtype=np.int64)
        self.ring_nacks = self.ring_repairs = self.wave = self.lower_nacks = self.lower_repairs = 0

    def _jitter(self, count: int) -> Floats:
        mean = self.settings.jitter_ns
        return self.random.exponential(mean, count) if mean else np.zeros(count)

    def _with_late_tokens(self, pairs: Pairs) -> tuple[Pairs, Floats]:
        """A token that is on its way when it should be there is missing, and comes."""
        lacks = np.zeros(self.net.size, dtype=np.bool_)
        lacks[pairs.receiver[pairs.item == 0]] = True
        late = np.flatnonzero((self.token_at > self.timing.late_ns - self.error) & ~lacks)
        receiver = np.concatenate((pairs.receiver, late))
        item = np.concatenate((pairs.item, np.zeros(len(late), dtype=np.int64)))
        when = np.concatenate((np.full(len(pairs), np.inf), self.token_at[late]))
        return Pairs(receiver, item), when

    # The ring -----------------------------------------------------------------------------------

    def outcome(self) -> TokenFigures:
        net, timing = self.net, self.timing
        on_ring = net.primary[self.pairs.receiver]
        lost = np.unique(self.pairs.item[on_ring])
        for turn, attempt in self._attempts():
            mine = on_ring if timing.nack_sets == 1 else on_ring & (self._turns()[self.pairs.receiver] == turn)
            at = turn * timing.token_period_ns + timing.late_ns + attempt * timing.retry_ns
            self._ask_owner(mine, at, multicast=timing.nack_sets > 1)
        given_up = timing.completion_ns - self.error
        complete = self._complete()
        gave_up = int((complete > given_up)[net.ring].sum())
        self._lower_layer(complete)
        complete = self._complete()
        limit = timing.completion_ns + timing.secondary_ns - self.error
        unfinished = int(((complete > limit) & ~net.primary).sum())
        due = self._due()
        return TokenFigures(
            self.owner,
            self.ring_nacks,
            self.ring_repairs,
            self.wave,
            self.lower_nacks,
            self.lower_repairs,
            self.asked,
            gave_up,
            unfinished,
            len(lost),
            self.named[lost],
            complete,
            np.maximum(due, complete),
            complete <= due,
        )

    def _attempts(self) -> Iterator[tuple[int, int]]:
        for turn in range(self.timing.nack_sets):
            for attempt in range(self.timing.retries_max):
                yield turn, attempt

    def _turns(self) -> Ints:
        """The set that each receiver belongs to for this owner (§8)."""
        places = self.net.ring_place
        turns: Ints = (places - places[self.owner] - 1) % len(self.net.ring) % self.timing.nack_sets
        return turns

    def _complete(self) -> Floats:
        """When each has the token and everything in it."""
        complete: Floats = self.token_at.copy()
        complete[self.pairs.receiver[self.pairs.item == 0]] = -np.inf
        np.maximum.at(complete, self.pairs.receiver, self.when)
        return complete

    def _ask_owner(self, mine: Flags, at: float, *, multicast: bool) -> None:
        """One attempt of some receivers: a NACK of each that lacks something, and the repairs that come of it."""
        net, loss = self.net, self.settings.loss
        asking = np.flatnonzero(mine & (self.when > at - self.error[self.pairs.receiver]))
        if not len(asking):
            return
        sites, row = np.unique(self.pairs.receiver[asking], return_inverse=True)
        self.ring_nacks += len(sites)
        self.wave = max(self.wave, len(sites))
        self.asked[self.owner] += len(sites)
        np.add.at(self.named, self.pairs.item[asking], 1)
        heard = self.random.random(len(sites)) >= loss
        reached = at - self.error[sites] + self.away[sites] + self._jitter(len(sites))
        answered = asking[heard[row]]
        self.ring_repairs += len(answered)
        sent = reached[row[heard[row]]]
        if multicast:
            self._multicast_repairs(self.pairs.item[answered], sent)
            return
        passed = self.random.random(len(answered)) >= loss
        receiver = self.pairs.receiver[answered]
        arrival = sent + net.delay_ns(self.owner)[receiver] + self._jitter(len(answered))
        self.when[answered] = np.minimum(self.when[answered], np.where(passed, arrival, np.inf))

    def _multicast_repairs(self, items: Ints, sent: Floats) -> None:
        """Every repair is multicast: each receiver that lacks the item may get it, not only the one that asked."""
        if not len(items):
            return
        order = np.argsort(self.pairs.item, kind="stable")
        sorted_items = self.pairs.item[order]
        first, last = np.searchsorted(sorted_items, items, "left"), np.searchsorted(sorted_items, items, "right")
        counts = last - first
        copy = np.repeat(np.arange(len(items)), counts)
        offset = np.arange(len(copy)) - np.repeat(np.cumsum(counts) - counts, counts)
        row = order[first[copy] + offset]
        receiver = self.pairs.receiver[row]
        settings = self.settings
        passed = self.net.copies_passed(
            self.random, receiver, copy, len(items), settings.loss, tree=settings.tree
        )  # fmt: skip
        arrival = sent[copy] + self.away[receiver] + self._jitter(len(row))
        np.minimum.at(self.when, row[passed], arrival[passed])

    # Below the ring -----------------------------------------------------------------------------

    def _lower_layer(self, parents_complete: Floats) -> None:
        """Attempts on the grid that ends where a secondary receiver must be complete (§7)."""
        net, timing = self.net, self.timing
        below = ~net.primary[self.pairs.receiver]
        step = timing.secondary_retry_ns or timing.retry_ns
        limit = timing.completion_ns + timing.secondary_ns
        first = timing.late_ns + timing.secondary_detect_ns
        at = first + (limit - first) % step
        while at < limit and below.any():
            self._ask_parents(below, at, parents_complete)
            at += step

    def _ask_parents(self, below: Flags, at: float, parents_complete: Floats) -> None:
        net, loss = self.net, self.settings.loss
        asking = np.flatnonzero(below & (self.when > at - self.error[self.pairs.receiver]))
        if not len(asking):
            return
        sites, row = np.unique(self.pairs.receiver[asking], return_inverse=True)
        self.lower_nacks += len(sites)
        parents = net.parent[sites]
        np.add.at(self.asked, parents, 1)
        reached = at - self.error[sites] + net.parent_ns[sites] + self._jitter(len(sites))
        helped = (self.random.random(len(sites)) >= loss) & (parents_complete[parents] <= reached)
        answered = asking[helped[row]]
        self.lower_repairs += len(answered)
        passed = self.random.random(len(answered)) >= loss
        receiver = self.pairs.receiver[answered]
        arrival = reached[row[helped[row]]] + net.parent_ns[receiver] + self._jitter(len(answered))
        self.when[answered] = np.minimum(self.when[answered], np.where(passed, arrival, np.inf))

    # Release ------------------------------------------------------------------------------------

    def _due(self) -> Floats:
        """T_t+Δ_A by each receiver's clock, and a little later where timers fire late."""
        due = self.timing.release_delay_ns - self.error
        lateness = self.settings.wake_lateness_ns
        return due + self.random.exponential(lateness, self.net.size) if lateness else due


# Many tokens: counted in parts, each a function of its tokens' numbers, and added up in whole numbers.


COMPLETIONS = Bins(low=0.0, step=5e6, count=4_000)
"""When receivers are complete after a token's instant: steps of 5 ms up to 20 s."""


@dataclass(frozen=True, eq=False)
class CoreWorld:
    """All that the computation of tokens needs."""

    net: CoreNet
    settings: CoreSettings
    run: int
    kept: int = 0
    """Tokens whose releases are kept, receiver by receiver: those that customers follow."""
    reduced: bool = True
    """Whether every token is also run with NACK sets."""
    batches: Ints | None = None
    """Messages of each token, where they differ."""


@dataclass(frozen=True, slots=True)
class CorePart:
    """Tokens `first` to `last`-1."""

    first: int
    last: int


@dataclass(eq=False)
class RingTally:
    """What the ring's recovery took."""

    nacks: int
    repairs: int
    gave_up: int
    """Tokens on which some primary receiver gave up."""
    wave_max: int
    per_lost: Ints
    """How many packets that somebody lacked were named in so many NACKs."""

    def add(self, other: RingTally) -> RingTally:
        """Both together."""
        return RingTally(
            self.nacks + other.nacks,
            self.repairs + other.repairs,
            self.gave_up + other.gave_up,
            max(self.wave_max, other.wave_max),
            _longer(self.per_lost, other.per_lost),
        )

    def per_lost_quantile(self, share: float) -> int:
        """NACKs per lost packet that a share of these packets do not exceed."""
        total = int(self.per_lost.sum())
        return int(np.searchsorted(np.cumsum(self.per_lost), max(np.ceil(share * total), 1))) if total else 0


@dataclass(eq=False)
class CoreTally:
    """What the tokens took."""

    tokens: int
    messages: int
    ring: RingTally
    reduced: RingTally | None
    """The same tokens with NACK sets."""
    lower_nacks: int
    lower_repairs: int
    unfinished: int
    late: int
    """Releases after the common instant: fairness faults."""
    asked: Ints
    """NACKs that each receiver was sent."""
    skews: Ints
    """The widest spread of the releases of each token, in ns, late ones apart."""
    offsets: Ints
    completions: Ints
    releases_ns: Floats
    """For each token that is kept: releases after the common instant."""

    def add(self, other: CoreTally) -> CoreTally:
        """Both together; `other` has the later tokens."""
        reduced = self.reduced
        if reduced is not None and other.reduced is not None:
            reduced = reduced.add(other.reduced)
        return CoreTally(
            self.tokens + other.tokens,
            self.messages + other.messages,
            self.ring.add(other.ring),
            reduced,
            self.lower_nacks + other.lower_nacks,
            self.lower_repairs + other.lower_repairs,
            self.unfinished + other.unfinished,
            self.late + other.late,
            self.asked + other.asked,
            np.concatenate((self.skews, other.skews)),
            self.offsets + other.offsets,
            self.completions + other.completions,
            np.concatenate((self.releases_ns, other.releases_ns)),
        )


def joined(parts: list[CoreTally]) -> CoreTally:
    """All parts, in the order of their tokens."""
    return reduce(CoreTally.add, parts)


def _longer(one: Ints, other: Ints) -> Ints:
    total = np.zeros(max(len(one), len(other)), dtype=np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total


def run_tokens(world: CoreWorld, part: CorePart) -> CoreTally:
    """The counts of some tokens."""
    return reduce(CoreTally.add, (_one(world, number) for number in range(part.first, part.last)))


def _one(world: CoreWorld, number: int) -> CoreTally:
    net, settings = world.net, world.settings
    batch = settings.batch if world.batches is None else int(world.batches[number])
    outcome = run_token(net, settings, world.run, number, batch)
    sets = settings.reduction_sets
    reduced = None
    if world.reduced and sets > 1:
        reduced = _ring(run_token(net, with_sets(settings, sets), world.run, number, batch))
    due = settings.timing.release_delay_ns
    after = outcome.release_ns - due
    spread = after[outcome.punctual]
    return CoreTally(
        1,
        batch,
        _ring(outcome),
        reduced,
        outcome.lower_nacks,
        outcome.lower_repairs,
        outcome.unfinished,
        int((~outcome.punctual).sum()),
        outcome.asked,
        np.array([round(float(spread.max() - spread.min())) if len(spread) else 0], dtype=np.int64),
        OFFSETS.tally(spread),
        COMPLETIONS.tally(np.where(np.isfinite(outcome.complete_ns), outcome.complete_ns, 1e18)),
        after[None, :] if number < world.kept else np.zeros((0, net.size)),
    )


def _ring(outcome: TokenFigures) -> RingTally:
    return RingTally(
        outcome.ring_nacks,
        outcome.ring_repairs,
        int(outcome.gave_up > 0),
        outcome.wave,
        np.bincount(outcome.per_lost, minlength=1),
    )
