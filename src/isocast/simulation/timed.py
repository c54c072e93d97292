"""A run of the timed protocol: who submits what, a phase with faults, a phase in which all comes right, rare events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isocast.checks.facts import Fact
from isocast.checks.suite import EndOfRun, Law, Suite
from isocast.checks.view import trim
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.settings import OrderRule
from isocast.ring.source import PrimarySource
from isocast.simulation.edge import EdgeWorld
from isocast.simulation.faults import FaultPlan, correct_sites
from isocast.simulation.floor import FloorWorld
from isocast.simulation.narrow import stripe_of_symbols
from isocast.simulation.network import stream
from isocast.simulation.recording import Recorder
from isocast.simulation.reveals import SimulatedSeals
from isocast.simulation.scenario import Scenario
from isocast.simulation.world import PRODUCT, Build, World
from isocast.terms.ids import Epoch, NodeId, source_id
from isocast.terms.instants import SECOND, to_seconds
from isocast.terms.timing import Gate
from isocast.wire.packets import Nack

if TYPE_CHECKING:
    from isocast.wire.packets import Data

__all__ = ["Arrivals", "Figures", "LastRequests", "PairCounter", "TimedRun"]


# Who submits what, and when: Poisson or even arrivals, bursts, and pairs of traders that decide at one instant.


class Arrivals:
    """Feeds a world's sources from the start of its first ring on, until all messages are submitted."""

    def __init__(self, world: World) -> None:
        """Nothing is submitted yet."""
        self.world = world
        self.waiting = True
        """Until the first ring is formed."""
        self.left = world.scenario.messages
        self.finished_at: int | None = None
        self._random = stream(world.seed, "arrivals")
        self._turn = 0
        self._key = 0
        scenario = world.scenario
        self._together = 2 if scenario.traders else scenario.burst
        self._mean_gap_ns = self._together * SECOND / scenario.arrival_rate
        self._steps = 0
        self._start = 0

    def begin(self, instant: int) -> None:
        """The first ring is formed: its first token is due at `instant`."""
        self._start = instant
        self.waiting = False
        self._plan()

    def _plan(self) -> None:
        if self.left <= 0:
            self.finished_at = self.world.agenda.now
            return
        self._steps += 1
        if self.world.scenario.even_arrivals:
            at = self._start + round((self._steps - 0.5) * self._mean_gap_ns)
        else:
            since = max(self.world.agenda.now, self._start)
            at = since + round(self._random.expovariate(1 / self._mean_gap_ns))
        if self.world.scenario.duration_ns and at > self._start + self.world.scenario.duration_ns:
            self.finished_at = self.world.agenda.now
            return
        self.world.agenda.put(at, self._submit, None)

    def _submit(self, _: object) -> None:
        world = self.world
        sources = self._sources()
        if world.scenario.traders:
            # Odd numbers stand at the first trader, even ones at the second: two neighbours are a pair.
            for turn in (self._turn, self._turn + 1):
                place = turn % len(sources)
                world.submit(sources[place], [self._payload(place)])
            self._turn += 2
            self.left -= 2
        else:
            count = min(self._together, self.left)
            place = self._turn % len(sources)
            world.submit(sources[place], [self._payload(place) for _ in range(count)])
            self._turn += 1
            self.left -= count
        self._plan()

    def once_more(self) -> None:
        """Submit one message at each source, beside the scenario's rate."""
        for place, source in enumerate(self._sources()):
            self.world.submit(source, [self._payload(place)])

    def _sources(self) -> tuple[NodeId, ...]:
        """Those that clients use; arbiters have their own behind them."""
        return self.world.sources[: self.world.scenario.sources]

    def _payload(self, place: int) -> tuple[bytes, bytes]:
        """A message for the source of this place."""
        self._key += 1
        key, edge, floor = self._key.to_bytes(8), self.world.edge, self.world.floor
        if floor is not None:
            return key, floor.payload(self._key, place)
        return key, edge.payload(self._key) if edge is not None else key.ljust(self.world.scenario.payload_bytes, b"\0")


class PairCounter:
    """Of two orders submitted at one instant, which came first in the sequence."""

    def __init__(self, cities: tuple[str, ...]) -> None:
        """Nobody has won."""
        self.cities = cities
        self.wins = dict.fromkeys(cities, 0)
        self._open: dict[int, None] = {}

    def sequenced(self, message: Data, _: int) -> None:
        """The payload's key tells the pair: 1 and 2, 3 and 4, and so on."""
        key = int.from_bytes(message.payload[:8]) - 1
        pair, trader = divmod(key, 2)
        if pair in self._open:
            del self._open[pair]
        else:
            self._open[pair] = None
            self.wins[self.cities[trader]] += 1

    def shares(self) -> dict[str, float]:
        """Share of the pairs won, by trader's city."""
        total = sum(self.wins.values())
        return {city: wins / total if total else 0.0 for city, wins in self.wins.items()}


# A rare event, weighed instead of awaited: how often a receiver's last request for a token is in vain (§5.1).
#
# After k_r requests a receiver gives up. The last of them fails if it is lost itself, or if anything is that answers
# it: with independent losses, with probability 1-(1-p)^(j+1) for j items that the receiver still lacks. In a ring of
# 100 there are some fifty last requests for each that fails, so that the sum of these chances is far steadier than a
# count.


_MADE_MAX = 65_536
"""Of the largest ring, the requests of a hundred tokens."""


class LastRequests:
    """Watches a world for primary receivers' k_r-th requests, and weighs each."""

    def __init__(self, world: World) -> None:
        """Nobody has asked."""
        self.count = 0
        self.failing = 0.0
        """The sum of their chances to fail."""
        self._world = world
        self._made: dict[tuple[NodeId, Epoch, int], int] = {}
        """How often each receiver asked for each token, of those that were asked for lately."""

    def asked(self, node: NodeId, request: Nack) -> None:
        """A node sends a request."""
        key = (node, request.epoch, request.token_number)
        made = self._made[key] = self._made.get(key, 0) + 1
        trim(self._made, _MADE_MAX)
        if made == self._world.scenario.timing.retries_max:
            receiver = self._receiver(node)
            if receiver is not None:
                self._weigh(receiver, request)

    def _weigh(self, receiver: Receiver, request: Nack) -> None:
        if receiver.schedule is None:
            return
        owner = self._receiver(receiver.schedule.owner(request.token_number))
        entry = None if owner is None else owner.ledger.entries.get(request.token_number)
        if entry is None or entry.token.epoch != request.epoch:
            # The ring was reformed before its owner sent it: there is nothing to lose on the way.
            return
        lacking = len(receiver.ledger.missing(entry.token)) + (not request.has_token)
        self.count += 1
        self.failing += 1 - (1 - self._world.scenario.loss) ** (lacking + 1)

    def _receiver(self, node: NodeId) -> Receiver | None:
        host = self._world.hosts.get(node)
        machine = None if host is None else host.machine
        return machine.receiver if isinstance(machine, PrimaryReceiver) else None


_PLANNED = ("drain", "add", "remove", "force")
STALLED_PERIODS = 400
"""Token periods without any token: forty rings of ten could have formed, one after the other."""
_PROBING = 256
"""Retry intervals: four of the longest between two questions of a customer that hears no line."""
LATENESS_CAP = 30
"""Wake-ups are exponential: beyond thirty times their mean comes one in 10^13."""


@dataclass(frozen=True)
class Figures:
    """Counters as they stood when the last message was submitted: no tail of idle tokens dilutes them."""

    submitted: int = 0
    tokens: int = 0
    false_reformations: int = 0
    sent: Counter[type] = field(default_factory=Counter)


class TimedRun:
    """Builds a world, lets it live, and judges it."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        build: Build = PRODUCT,
        transcript: Callable[[Fact], None] | None = None,
    ) -> None:
        """Nothing has happened yet."""
        self.scenario = scenario
        self.timing = scenario.timing
        self.seals: SimulatedSeals | None = None
        if scenario.reveal == "chain":
            self.seals = SimulatedSeals(seed, scenario.sources, same_chain=build.same_chain)
        self.suite = Suite(self._law())
        trusted = scenario.receivers + len(scenario.tree.secondary_sites)
        self.recorder = Recorder(self.suite, trusted, transcript=transcript)
        self.world = World(scenario, seed, self.recorder, build, self.seals)
        if scenario.edge:
            self.world.edge = EdgeWorld(self.world)
        if scenario.floor:
            self.world.floor = FloorWorld(self.world)
        self.world.network.lost_hook = self.recorder.losses.lost
        self.arrivals = Arrivals(self.world)
        self.faults = FaultPlan(self.world)
        self.figures = Figures()
        self._seen = (0, 0)
        self._seen_at = 0
        self.last_requests: LastRequests | None = None
        """Where losses are all that goes wrong, and every receiver asks for itself."""
        if not scenario.faults and self.timing.nack_sets == 1:
            self.last_requests = LastRequests(self.world)
            self.recorder.on_request = self.last_requests.asked
        self.pairs: PairCounter | None = None
        if scenario.traders:
            self.pairs = PairCounter(tuple([trader.name for trader in scenario.traders]))
            self.recorder.on_sequence = self.pairs.sequenced

    def _law(self) -> Law:
        scenario, timing = self.scenario, self.timing
        universe = tuple(range(1, scenario.receivers + 1))
        may_diverge, narrow = scenario.may_diverge, scenario.edge.narrow_nodes
        certain = timing.gate in {Gate.MAJORITY, Gate.TOTAL} or (
            timing.gate is Gate.NEXT and timing.next_tokens + 1 > len(universe) / 2
        )
        return Law(
            timing,
            universe,
            margin_ns=LATENESS_CAP * scenario.wake_lateness_ns + 1,
            agreement=(certain and not may_diverge) or not scenario.faults,
            may_diverge=may_diverge,
            faultless=not scenario.faults,
            backlog_bounded=scenario.arrival_rate * to_seconds(timing.token_period_ns) < scenario.batch_max,
            parents=scenario.tree.parents,
            opens=None if self.seals is None else self.seals.opens,
            hears=scenario.is_witnessed,
            batch_max=scenario.batch_max,
            shuffled=scenario.order_in_token == OrderRule.SHUFFLE,
            lies_alone=all(fault.kind == "lie" for fault in scenario.faults),
            liars=frozenset([site for fault in scenario.faults if fault.kind == "lie" for site in fault.sites]),
            byzantine=scenario.byzantine,
            slandered=self._slandered(),
            orders=scenario.signatures != "off",
            latest=frozenset(scenario.edge.latest_nodes),
            complete=frozenset((*scenario.edge.archive_nodes, *scenario.edge.complete_nodes)),
            forwarders=self._forwarders(),
            outboxes_kept=not any(source_id(number) in self._lost_disks() for number in range(1, scenario.sources + 1)),
            stripe_senders=frozenset(scenario.edge.stripe_sender_nodes),
            narrow_complete=frozenset([node for node in narrow if scenario.edge.wants_everything(node)]),
            stripes=stripe_of_symbols(scenario.edge.narrow_stripes),
            floor=scenario.floor,
        )

    def _slandered(self) -> bool:
        """Whether nothing happens but words that nobody signed."""
        scenario, kinds = self.scenario, {fault.kind for fault in self.scenario.faults}
        return kinds == {"slander"} and scenario.signatures == "receipts" and not scenario.loss

    def _lost_disks(self) -> frozenset[NodeId]:
        """Nodes that begin anew with a blank disk."""
        return frozenset([node for fault in self.scenario.faults if not fault.disk_kept for node in fault.sites])

    def _forwarders(self) -> frozenset[NodeId]:
        """Secondary sources whose parent never loses its outbox."""
        scenario, lost = self.scenario, self._lost_disks()
        nodes = scenario.edge.secondary_source_nodes(scenario.sources)
        parents = [source_id(scenario.edge.parent(place, scenario.sources)) for place in range(len(nodes))]
        return frozenset([node for node, parent in zip(nodes, parents, strict=True) if parent not in lost])

    # Phases -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases, to the verdict."""
        step = max(self.timing.token_period_ns // 4, 1)
        while not self._submitted() and not self._stalled():
            self.advance(step)
        self._note_figures()
        planned = bool(self.scenario.faults)
        if not self._settles(self._settling_ns(disturbed=planned), step) and not planned:
            # Losses are faults too: without them everything must come right, whatever they led to.
            self.world.network.set_loss(0.0, at_the_edge=True)
            self._settles(self._settling_ns(disturbed=True), step)
        if self.faults.lasting and self.settled():
            # What was released before it stopped proves nothing: whoever stays dead or wrong must not stop this either.
            self.arrivals.once_more()
            self._settles(self._settling_ns(disturbed=True), step)
        self.finish()

    def _settles(self, span_ns: int, step: int) -> bool:
        limit = self.world.agenda.now + span_ns
        while self.world.agenda.now < limit and not self.settled():
            self.advance(step)
        return self.settled()

    def advance(self, span_ns: int) -> None:
        """Let the world live for a while."""
        world = self.world
        world.agenda.run(world.agenda.now + span_ns)
        self.suite.tick(world.agenda.now)
        if world.rings and self.arrivals.waiting:
            self.arrivals.begin(world.rings[0].start)
            if world.edge is not None:
                world.edge.begin(world.rings[0].start)
        if self.arrivals.finished_at is not None and not self.figures.submitted:
            self._note_figures()

    def _stalled(self) -> bool:
        """Whether nothing has been ordered for so long that nothing ever will: the parameters do not allow a ring."""
        now, seen = self.world.agenda.now, (self.recorder.tokens, self.recorder.submitted)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now > self._seen_at + STALLED_PERIODS * self.timing.token_period_ns + self.faults.over_at

    def _submitted(self) -> bool:
        return self.arrivals.finished_at is not None and self.world.agenda.now >= self.faults.over_at

    def _note_figures(self) -> None:
        recorder = self.recorder
        if not self.figures.submitted:
            self.figures = Figures(
                recorder.submitted, recorder.tokens, recorder.false_reformations, Counter(recorder.sent)
            )

    def _settling_ns(self, *, disturbed: bool) -> int:
        """How long everything may take to come right: recoveries, and after faults suspicions and ballots."""
        timing = self.timing
        span = timing.release_delay_ns + 8 * timing.token_period_ns + 2 * timing.retry_ns
        # What windows let in before they closed goes out at K_max a token.
        span += 2 * self.unacknowledged() // self.scenario.batch_max * timing.token_period_ns
        cycle = (self.scenario.receivers + 2) * timing.token_period_ns
        if disturbed:
            span += 4 * cycle + 8 * timing.reformation_ns
            span += self._returning_tokens() * timing.token_period_ns
            changes = sum([len(fault.sites) for fault in self.scenario.faults if fault.kind in _PLANNED])
            span += changes * (8 * cycle + 8 * timing.reformation_ns)
        if self.world.edge is not None:
            # Customers whose lines are dead ask doors seldom, and one after the other.
            span += _PROBING * timing.retry_ns + 4 * timing.token_period_ns
            # What secondary sources hold enters a window at a time.
            span += self.world.edge.unforwarded() * (timing.release_delay_ns + cycle) // self.scenario.window
        if self.world.floor is not None:
            # A report, one that takes over for it, stability, the word that it is confirmed, one that takes over.
            span += 8 * cycle + 4 * timing.release_delay_ns
        return span

    def _returning_tokens(self) -> int:
        """How many tokens a secondary receiver may need until a head counts it again."""
        tree = self.scenario.tree
        if not tree.secondary_sites:
            return 0
        # A head that was given up returns when all below it have spoken, or are given up in their turn.
        stall = max(self.scenario.stall_tokens, 2 * (tree.secondaries + 1))
        return tree.layers * (stall + 8 * (tree.secondaries + 1))

    def settled(self) -> bool:
        """Whether all is released at every correct site, every site is on one ring, and counts where it should."""
        recorder = self.recorder
        released = recorder.last_sequence
        sites = correct_sites(self.world, self.faults)
        if self._wishes(sites) or self.unacknowledged():
            return False
        if any(released.get(site, 0) < self._last_sequence() for site in sites) or self._forgotten():
            return False
        if self.suite.uncounted(sites):
            return False
        edge = self.world.edge
        if edge is not None and not edge.settled(max(released.values(), default=0)):
            return False
        if self.world.floor is not None and not self.world.floor.settled(sites):
            return False
        standings = self._standings().values()
        return len({accepted for _, accepted, _ in standings}) <= 1 and not any(sealed for _, _, sealed in standings)

    def _wishes(self, correct: tuple[NodeId, ...]) -> tuple[str, ...]:
        """What is not as an operator wants it: U, and a ring with a majority as soon as there is one."""
        wishes = tuple(self.faults.operator.wishes)
        newest, universe = self.world.newest(), self.world.universe()
        if newest is None or not newest.receiver.may_lose:
            return wishes
        there = [site for site in universe if site in correct]
        return (*wishes, "a certified ring") if len(there) > len(universe) // 2 else wishes

    def _forgotten(self) -> bool:
        """Whether a source thinks that a message is in the log which the newest log does not have: its branch lost."""
        newest = self.world.newest()
        if not self.scenario.may_diverge or newest is None:
            return False
        machines = [self.world.hosts[source].machine for source in self.world.sources]
        states = [machine.snapshot() for machine in machines if isinstance(machine, PrimarySource)]
        numbers = newest.receiver.ledger.next_number
        return any(numbers.get(state.source, 1) < state.next_number for state in states)

    def _last_sequence(self) -> int:
        """How far a correct site must have released: everything, or what the newest log has.

        The latter where sites may part, and where messages were lost with their source's outbox.
        """
        newest = self.world.newest()
        if newest is None or not (self.scenario.may_diverge or self.faults.lost_outboxes):
            return self.recorder.submitted
        return newest.receiver.ledger.head.next_sequence - 1

    def finish(self) -> None:
        """The verdict on liveness."""
        world = self.world
        world.agenda.run(world.agenda.now)
        self.suite.finish(
            EndOfRun(
                now=world.agenda.now,
                correct=correct_sites(world, self.faults),
                submissions_due=world.agenda.now + 1,
                epochs=self._standings(),
                unacknowledged=self.unacknowledged(),
                wishes=self._wishes(correct_sites(world, self.faults)),
                lasting=self.faults.lasting,
                edge={} if world.edge is None else world.edge.correct(),
                floor={} if world.floor is None else world.floor.standing(correct_sites(world, self.faults)),
            )
        )

    def _standings(self) -> dict[NodeId, tuple[Epoch, Epoch, bool]]:
        standings: dict[NodeId, tuple[Epoch, Epoch, bool]] = {}
        for site in correct_sites(self.world, self.faults):
            machine = self.world.hosts[site].machine
            if isinstance(machine, PrimaryReceiver | SecondaryReceiver):
                receiver = machine.receiver
                standings[site] = (receiver.promised, receiver.accepted, receiver.mode is Mode.SEALED)
        return standings

    def unacknowledged(self) -> int:
        """Messages of all sources that wait for a token."""
        machines = [self.world.hosts[source].machine for source in self.world.sources]
        return sum([machine.snapshot().unacknowledged for machine in machines if isinstance(machine, PrimarySource)])

    # Verdict ------------------------------------------------------------------------------------

    def skew_ns(self) -> int:
        """The widest spread of one message's release instants; late releases are counted as fairness faults."""
        return self.suite.max_skew_ns

    def violations(self) -> list[str]:
        """One line each."""
        return [f"{violation.property}: {violation.text}" for violation in self.suite.violations]
