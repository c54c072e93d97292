"""What the facts so far add up to: every site's state and every epoch's schedule, as seen from outside.

Written anew instead of borrowed from the machines: a checker that shares their code shares their mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from typing import TypeVar

from isocast.checks.facts import (
    ClockStepped,
    Completed,
    Crashed,
    Installed,
    Law,
    Paused,
    Promised,
    Released,
    Replaced,
    Restarted,
    Resumed,
)
from isocast.checks.universe import Chain, Chains
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, is_site
from isocast.terms.instants import NEVER
from isocast.wire.packets import NewRing

__all__ = ["WINDOW_TOKENS", "Deadlines", "EpochView", "SiteView", "View", "trim"]

WINDOW_TOKENS = 4_096
"""Tokens that a checker remembers: a site further behind than this is no longer compared."""
_DIGESTS_MAX = 1_024
"""Digests of one site's log: rings of hundreds of sites look back a few cycles at most."""
_EPOCHS_MAX = 1_024

_K = TypeVar("_K")
_V = TypeVar("_V")


def trim(memory: dict[_K, _V], limit: int) -> None:
    """Keep at least the `limit` newest entries, and at most twice as many."""
    if len(memory) > 2 * limit:
        for key in list(islice(memory, len(memory) - limit)):
            del memory[key]


class EpochView:
    """T_t = T0+(t-t0)·τ_t, from owner ring[(t-t0) mod m]."""

    __slots__ = ("first_token", "left", "members", "period_ns", "ring", "size", "start", "universe")

    def __init__(self, ring: NewRing, period_ns: int) -> None:
        """The schedule of one epoch."""
        self.ring = ring
        self.members = ring.ring
        self.size = len(ring.ring)
        self.universe = ring.universe
        self.first_token = ring.first_token
        self.start = ring.start
        self.period_ns = period_ns
        self.left: dict[NodeId, int] = {}
        """What each site that has gone on to another epoch really held when it did."""

    def instant(self, token_number: int) -> int:
        """T_t."""
        return self.start + (token_number - self.first_token) * self.period_ns

    def owner(self, token_number: int) -> NodeId:
        """Who sends token t."""
        return self.members[(token_number - self.first_token) % self.size]


class SiteView:
    """One site, as far as the facts tell."""

    __slots__ = (
        "accepted",
        "chain",
        "clock_kept",
        "digests",
        "down_since",
        "entered_at",
        "forgot",
        "grew_at",
        "held",
        "hollow",
        "paused",
        "promised",
        "released",
        "site",
        "steady_since",
        "up",
    )

    def __init__(self, site: NodeId) -> None:
        """Up, with an empty log."""
        self.site = site
        self.up = True
        self.paused = False
        self.clock_kept = True
        self.forgot = False
        """It lost its disk, and with it its promises."""
        self.promised = NO_EPOCH
        self.accepted = NO_EPOCH
        self.entered_at = -NEVER
        self.held = 0
        """What the site thinks it holds."""
        self.hollow = NEVER
        """The first token of its log that lacks a message, is missing, or is not that of its ring."""
        self.grew_at = -NEVER
        """When it last completed a token."""
        self.digests: dict[int, bytes] = {}
        self.chain: Chain = ()
        """What its log says of U."""
        self.released = 0
        """The newest token of which it released something."""
        self.steady_since = -NEVER
        """Since then it is up, running, and its clock within its bound."""
        self.down_since = NEVER

    @property
    def real(self) -> int:
        """h: everything up to here is really there."""
        return min(self.held, self.hollow - 1)

    def takes_part(self, epoch: Epoch) -> bool:
        """Whether e = e_acc = prom."""
        return epoch == self.accepted == self.promised

    def steady(self, since: int) -> bool:
        """Whether it has run undisturbed since then."""
        return self.up and not self.paused and self.clock_kept and not self.forgot and self.steady_since <= since

    def shares(self, other: SiteView, token_number: int) -> bool:
        """Whether this site really holds the other's log up to a token."""
        if self.real < token_number:
            return False
        if self.accepted == other.accepted:
            return True
        # Equal numbers of different epochs may be different tokens; the chained digest tells, while we have it.
        mine, theirs = self.digests.get(token_number), other.digests.get(token_number)
        return mine is None or theirs is None or mine == theirs


class View:
    """All sites and epochs. Each `on_...` takes one fact."""

    def __init__(self, law: Law) -> None:
        """The sites of the law, before anything happened."""
        self.sites = {site: SiteView(site) for site in (*law.universe, *law.parents)}
        self.epochs: dict[Epoch, EpochView] = {}
        self.chains = Chains(law.universe)
        for site in self.sites.values():
            site.chain = self.chains.first
        self._period_ns = law.timing.token_period_ns

    def site(self, node: NodeId) -> SiteView:
        """A site's state; a stranger starts with an empty one."""
        known = self.sites.get(node)
        if known is None:
            known = self.sites[node] = SiteView(node)
        return known

    def may_lose(self, epoch: EpochView) -> bool:
        """Whether an epoch's log may lose to another's: no majority of U stands behind it, or an operator forced U."""
        later = [other.ring for other in self.epochs.values() if other.ring.ballot > epoch.ring.ballot]
        return epoch.ring.uncertified or any(ring.forced for ring in later)

    def on_completed(self, fact: Completed) -> None:
        """The log grew; a hole in it, or a token without its messages, makes it hollow from there on."""
        site, number = self.site(fact.site), fact.token_number
        if fact.messages != fact.expected:
            site.hollow = min(site.hollow, number)
        if number > site.held:
            if number > site.held + 1:
                site.hollow = min(site.hollow, site.held + 1)
            site.held = number
            site.grew_at = fact.at
        site.digests[number] = fact.digest
        trim(site.digests, _DIGESTS_MAX)
        site.chain = self.chains.grow(site.chain, number, fact.digest, fact.control)

    def on_released(self, fact: Released) -> None:
        """How far it has released."""
        site = self.site(fact.site)
        site.released = max(site.released, fact.token_number)

    def on_promised(self, fact: Promised) -> None:
        """Promises rise."""
        site = self.site(fact.site)
        site.promised = max(site.promised, fact.ballot)

    def on_installed(self, fact: Installed) -> None:
        """Now prom = e_acc = b, and the log is that of the cut."""
        site, ring = self.site(fact.site), fact.ring
        if ring.ballot not in self.epochs:
            self.epochs[ring.ballot] = EpochView(ring, self._period_ns)
            trim(self.epochs, _EPOCHS_MAX)
        before = self.epochs.get(site.accepted)
        if before is not None:
            before.left[fact.site] = site.real
        if fact.keep > site.held:
            site.hollow = min(site.hollow, site.held + 1)
        elif site.hollow > fact.keep:
            site.hollow = fact.keep if self._differs(site, ring, fact.keep) else NEVER
        for number in range(fact.keep + 1, site.held + 1):
            site.digests.pop(number, None)
        site.digests[ring.cut_token] = ring.cut_digest
        site.chain = tuple([change for change in site.chain if change.token_number <= fact.keep])
        site.held = ring.cut_token
        site.accepted = ring.ballot
        site.promised = max(site.promised, ring.ballot)
        site.entered_at = fact.at

    def on_replaced(self, fact: Replaced) -> None:
        """The log is what another site's was at that token, whole, if `tokens` finds no fault with it."""
        site = self.site(fact.site)
        site.held, site.hollow, site.grew_at = fact.token_number, NEVER, fact.at
        site.digests.clear()
        site.digests[fact.token_number] = fact.digest
        site.chain = self.chains.at(fact.digest)

    def _differs(self, site: SiteView, ring: NewRing, token_number: int) -> bool:
        """Whether what a site kept is not what a holder of the cut has under that number."""
        mine = site.digests.get(token_number)
        holders = [self.site(holder) for holder in ring.holders]
        theirs = [holder.digests.get(token_number) for holder in holders if holder.accepted <= ring.ballot]
        return mine is not None and any(other not in (None, mine) for other in theirs)

    def on_crashed(self, fact: Crashed) -> None:
        """Down."""
        if is_site(fact.node):
            site = self.site(fact.node)
            site.up, site.paused, site.down_since = False, False, fact.at

    def on_restarted(self, fact: Restarted) -> None:
        """Up again, with what the disk says."""
        if not is_site(fact.node):
            return
        site = self.site(fact.node)
        site.up, site.steady_since, site.down_since = True, fact.at, NEVER
        site.promised, site.accepted, site.held = fact.promised, fact.accepted, fact.held
        site.chain = tuple([change for change in site.chain if change.token_number <= fact.held])
        if site.hollow > site.held:
            site.hollow = NEVER
        if not fact.disk_kept:
            site.forgot = True
            site.digests.clear()

    def on_clock_stepped(self, fact: ClockStepped) -> None:
        """A clock jumped, out of its bound or back into it."""
        site = self.site(fact.site)
        site.clock_kept, site.steady_since = fact.kept, fact.at

    def on_paused(self, fact: Paused) -> None:
        """The process stands still."""
        self.site(fact.site).paused = True

    def on_resumed(self, fact: Resumed) -> None:
        """It runs again."""
        site = self.site(fact.site)
        site.paused, site.steady_since = False, fact.at


class Deadlines:
    """What must be judged at an instant to come; instants are run in order."""

    def __init__(self) -> None:
        """Nothing to judge."""
        self.next_at = NEVER
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0

    def put(self, at: int, judge: Callable[[int], None]) -> None:
        """Call `judge(at)` once everything up to `at` is known."""
        self._count += 1
        heappush(self._heap, (at, self._count, judge))
        self.next_at = self._heap[0][0]

    def run(self, now: int) -> None:
        """Judge all that lies before `now`."""
        heap = self._heap
        while heap and heap[0][0] < now:
            at, _, judge = heappop(heap)
            judge(at)
        self.next_at = heap[0][0] if heap else NEVER
