"""One token on the planet: who lacks what, who asks whom, when each is complete, and when it releases.

Times are nanoseconds after the token's instant T_t, by true time; a receiver's own clock is ahead by its error. The
rules are the protocol's (§3, §7, §8): one aggregated request names everything that is missing, at T_t+δ_N+2ε and then
every τ_r, k_r times, of the token's owner; a secondary receiver asks its parent on a grid of its own, and is told
PENDING while the parent asks itself. With NACK sets the ring takes turns, and repairs are multicast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints
from isocast.studies.planet.core_net import CoreNet, Flags, Pairs
from isocast.studies.planet.draws import Purpose, generator
from isocast.studies.planet.settings import CoreSettings

__all__ = ["TokenOutcome", "run_token", "with_sets"]


@dataclass(frozen=True, eq=False)
class TokenOutcome:
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


def run_token(net: CoreNet, settings: CoreSettings, run: int, number: int, batch: int | None = None) -> TokenOutcome:
    """Token `number` of a run: a function of these arguments alone."""
    random = generator(run, Purpose.TOKEN, number)
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

    def outcome(self) -> TokenOutcome:
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
        return TokenOutcome(
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
        """Every repair goes to all: whoever lacks the item may get it, whoever asked."""
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
