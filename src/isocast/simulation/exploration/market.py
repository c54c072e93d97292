"""A small market as a transition system: numbered states of real machines, where a search begins, every step.

A node knows nothing but its own state, so what an event does to it is computed once, by running the machine, and
looked up ever after: a state of the market is a tuple of the nodes' states, and what is in flight is the union of what
they have sent. That is why millions of interleavings are explored with some ten thousand steps of a machine.

The reduction: a receipt that is of use arrives at once. It only ever raises what its receiver knows to be certified,
which opens its gate and closes nothing; it changes no vote, no log and no token. A market where receipts arrive later
releases later, or never, and so shows no more to any customer: see docs/explanation/model-checking.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import permutations
from typing import TypeAlias

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.ring.effects import Effect, Multicast, Unicast
from isocast.ring.inputs import PublishRequested, TimerFired
from isocast.ring.source import PrimarySource
from isocast.simulation.exploration.driver import Event, StateDriver
from isocast.simulation.exploration.freezing import Freezer
from isocast.simulation.exploration.mail import Mail, numbers_in
from isocast.simulation.exploration.node import Local
from isocast.simulation.exploration.properties import Bounds, Properties
from isocast.simulation.world import PRODUCT, Build
from isocast.terms.ids import NodeId, is_site, is_source, server_id, source_id
from isocast.wire.packets import Packet

__all__ = ["Change", "Move", "NodeStates", "TransitionSystem", "founded"]


# Where every search begins: all sites on a first ring, before its first token, and two messages to order.


def founded(driver: StateDriver) -> list[Local]:
    """The nodes of a market whose first ring was just formed, in the order of its mail."""
    nodes = [driver.blank(node) for node in driver.mail.nodes]
    sources = [local for local in nodes if is_source(local.node)]
    for source in sources:
        if isinstance(source.machine, PrimarySource):
            request = PublishRequested(b"key", b"payload %d" % source.node)
            driver.perform(source, source.machine.step(request, source.now))
    messages = [source.sent for source in sources]
    if not driver.bounds.flying:
        for place, site in enumerate([local for local in nodes if is_site(local.node)]):
            # Everybody has both messages, every other site in another order.
            letters = messages[place % 2 :] + messages[: place % 2]
            driver.messages[site.node] = [packet for some in letters for packet in _packets(driver.mail, some, place)]
            driver.refill(site)
    _exchange(driver, nodes)
    for local in nodes:
        # What was said so far has arrived.
        local.sent = 0
        local.memory.ballots = 0
        local.memory.rings = ()
        driver.relax(local)
    if driver.bounds.flying:
        for source, own in zip(sources, messages, strict=True):
            source.sent = own
    return nodes


def _exchange(driver: StateDriver, nodes: list[Local]) -> None:
    """Let everything that sites and servers say reach all of them at once, until all are on one ring."""
    said: deque[tuple[NodeId, Packet]] = deque()

    def hear(local: Local, effect: Effect) -> None:
        if isinstance(effect, Multicast | Unicast):
            said.append((local.node, effect.packet))

    driver.observe = hear
    sites = [local for local in nodes if is_site(local.node)]
    listeners = [local for local in nodes if not is_source(local.node)]
    founder = nodes[len(sites)]
    driver.step(founder, TimerFired())
    driver.step(founder, TimerFired())
    while said or not all(_on_a_ring(site) for site in sites):
        if said:
            sender, packet = said.popleft()
            for local in listeners:
                if local.node != sender:
                    driver.receive(local, packet)
            continue
        for local in sites:
            local.now = max(local.now, local.machine.next_deadline())
            driver.step(local, TimerFired())
    driver.observe = None


def _on_a_ring(site: Local) -> bool:
    return isinstance(site.machine, PrimaryReceiver) and site.machine.receiver.ring is not None


def _packets(mail: Mail, letters: int, to: int) -> list[Packet]:
    found = [mail.letters[number] for number in numbers_in(letters)]
    return [letter.packet for letter in found if letter.to == to]


# The states of one node, numbered, and what every event makes of each of them.
#
# A state (a place) is a body and the letters that the node ever sent. The body is all the rest: machine, disk, clock
# and what the observer remembers. A machine does not know what became of its letters, so an event is run once for each
# body, and holds for all places that share it.


Change: TypeAlias = tuple[int, int, int | None]
"""(event, next place, for a restart its kind: 0 plain, 1 with a shorter log, 2 without its disk)."""

_OTHERS = (Event.BALLOT, Event.TIME, Event.RESTART, Event.SHORTER, Event.BLANK)


class NodeStates:
    """Everything known about the states of one node."""

    def __init__(
        self, driver: StateDriver, freezer: Freezer, properties: Properties, limits: Sequence[int], local: Local
    ) -> None:
        """`limits`: restarts of each kind that the bounds allow; the node's first state is place 0."""
        self._driver = driver
        self._freezer = freezer
        self._properties = properties
        self._limits = limits
        self.steps = 0
        """Steps of the real machine."""
        self.states: list[Local] = []
        self.sent: list[int] = []
        self.memories: list[int] = []
        self.spent: list[tuple[int, int, int]] = []
        """Restarts of each kind."""
        self.idle: list[int] = []
        """Letters that are known to change nothing."""
        self._arrivals: list[dict[int, int]] = []
        """Of other letters, which place they lead to."""
        self._tried: list[int] = []
        self._others: list[list[Change] | None] = []
        self._decisions: list[dict[int, list[tuple[int, int]]]] = []
        self._bodies: list[Local] = []
        """With nothing sent."""
        self._body_numbers: dict[bytes, int] = {}
        self._body_of: list[int] = []
        self._place_numbers: dict[tuple[int, int], int] = {}
        self._changes: dict[tuple[int, int], tuple[int, int, bool] | None] = {}
        """Of a body and an event: the body after it, what was sent, and whether anything durable came of it."""
        self._copy: tuple[int, Local | None] = (-1, None)
        """A body, and a copy of it that nobody has changed yet."""
        self._place(self._body(local), local.sent)

    def __len__(self) -> int:
        """Places that occurred."""
        return len(self.states)

    # What happens -------------------------------------------------------------------------------

    def arrivals(self, place: int, letters: int) -> list[tuple[int, int]]:
        """(event, place after it) for each of these letters that changes anything."""
        unknown = letters & ~self._tried[place]
        if unknown:
            self._try(place, unknown)
        found = self._arrivals[place]
        return [(Event.LETTER + number, found[number]) for number in numbers_in(letters & ~self.idle[place])]

    def receipted(self, place: int, letters: int) -> int:
        """The place after all of these letters arrived, the first of them that is of use each time."""
        while True:
            unknown = letters & ~self._tried[place]
            if unknown:
                self._try(place, unknown)
            useful = letters & ~self.idle[place]
            if not useful:
                return place
            place = self._arrivals[place][(useful & -useful).bit_length() - 1]

    def others(self, place: int) -> list[Change]:
        """What may happen without any letter."""
        found = self._others[place]
        if found is None:
            found = self._others[place] = []
            for event in _OTHERS:
                kind = event - Event.RESTART if event >= Event.RESTART else None
                if kind is not None and self.spent[place][kind] >= self._limits[kind]:
                    continue
                after = self.after(place, event)
                if after is not None and after != place:
                    found.append((event, after, kind))
                    if event == Event.TIME:
                        found += self._later(place, after)
        return found

    def _later(self, place: int, after: int) -> list[Change]:
        """Where time leads that does not stop at a vote: whether the vote is new must not matter to a reduction."""
        found: list[Change] = []
        while True:
            fresh = self.sent[after] & ~self.sent[place]
            if not fresh or fresh & ~self._driver.mail.votes:
                return found
            place = self._place(self._body_of[place], self.sent[place] | fresh)
            later = self._after_time(place)
            if later is None or later == place:
                return found
            found.append((Event.LATER, later, None))
            after = later

    def closed(self, place: int) -> bool:
        """Whether a server will never count a vote again: it holds no ballot, and by itself begins none."""
        machine = self.states[place].machine
        if not isinstance(machine, ReformationServer) or any(kind is None for _, _, kind in self.others(place)):
            return False
        return getattr(machine, "_ballot") is None  # noqa: B009 (a field of another room)

    def heeds(self, place: int, letters: int) -> bool:
        """Whether one of these letters changes a closed server, or anything else makes it count votes again.

        That it answers with a ring which it had sent to everybody changes nothing.
        """
        changed = [after for _, after in self.arrivals(place, letters) if self._body_of[after] != self._body_of[place]]
        return bool(changed) or not all(self.closed(after) for _, after, _ in self.others(place))

    def ballot(self, place: int) -> int:
        """The place after a ballot that may begin here, or the same place."""
        events = self.others(place)
        return events[0][1] if events and events[0][0] == Event.BALLOT else place

    def decisions(self, place: int, votes: int) -> list[tuple[int, int]]:
        """What a server may decide, from any of the votes that are under way to it."""
        known = self._decisions[place]
        found = known.get(votes)
        if found is None:
            found = known[votes] = []
            for some in self._ballots(votes):
                event = Event.VOTES + self._driver.mail.choice(some)
                after = self.after(place, event)
                if after is not None and after != place:
                    found.append((event, after))
        return found

    def after(self, place: int, event: int) -> int | None:
        """The place after an event; None if it cannot happen."""
        if event == Event.TIME:
            return self._after_time(place)
        if event >= Event.VOTES or event == Event.BALLOT:
            return self._run(place, event)
        change = self._change(self._body_of[place], event)
        return None if change is None else self._place(change[0], self.sent[place] | change[1])

    # Single steps -------------------------------------------------------------------------------

    def _ballots(self, votes: int) -> list[int]:
        """Sets of these votes with at most one from each site."""
        bounds, letters = self._driver.bounds, self._driver.mail.letters
        sets = [(0, 0)]
        by_sender: dict[NodeId, list[int]] = {}
        for number in numbers_in(votes):
            by_sender.setdefault(letters[number].packet.sender, []).append(1 << number)
        for cast in by_sender.values():
            sets += [(chosen | vote, size + 1) for chosen, size in sets for vote in cast]
        most = bounds.sites if bounds.more_votes else bounds.sites // 2 + 1
        return [chosen for chosen, size in sets if 0 < size <= most]

    def _try(self, place: int, letters: int) -> None:
        """Let letters arrive whose effect in this place is unknown."""
        self._tried[place] |= letters
        for number in numbers_in(letters):
            after = self.after(place, Event.LETTER + number)
            if after is None or after == place:
                self.idle[place] |= 1 << number
            else:
                self._arrivals[place][number] = after

    def _after_time(self, place: int) -> int | None:
        """Time goes on until something is durable or new: whether a letter is new depends on what was sent."""
        change = self._change(self._body_of[place], Event.TIME)
        if change is None:
            return None
        body, sent, durable = change
        if durable or sent & ~self.sent[place]:
            return self._place(body, self.sent[place] | sent)
        return self._run(place, Event.TIME)

    def but(self, place: int, letters: int) -> tuple[int, int]:
        """One value for all places that differ in nothing but these letters that they sent."""
        return self._body_of[place], self.sent[place] & ~letters

    def _run(self, place: int, event: int) -> int | None:
        self.steps += 1
        local = self._driver.after(self.states[place], event)
        return None if local is None else self._place(self._body(local), local.sent)

    def _change(self, body: int, event: int) -> tuple[int, int, bool] | None:
        key = (body, event)
        try:
            return self._changes[key]
        except KeyError:
            self.steps += 1
            at_hand, copy = self._copy
            local = self._driver.after(self._bodies[body], event, copy if at_hand == body else None)
            change = None if local is None else (self._body(local), local.sent, self._driver.durable)
            self._changes[key] = change
            self._copy = (-1, None)
            if local is not None and change is not None and change[0] == body:
                # Most letters change nothing: the copy that was made for this one will do for the next.
                local.sent = 0
                self._copy = (body, local)
            return change

    def _body(self, local: Local) -> int:
        digest = local.digest(self._freezer)
        known = self._body_numbers.get(digest)
        if known is None:
            known = self._body_numbers[digest] = len(self._bodies)
            self._bodies.append(Local(local.node, local.machine, local.disk, local.now, 0, local.memory))
        return known

    def _place(self, body: int, sent: int) -> int:
        known = self._place_numbers.get((body, sent))
        if known is not None:
            return known
        number = self._place_numbers[body, sent] = len(self.states)
        local = self._bodies[body]
        memory = local.memory
        self.states.append(Local(local.node, local.machine, local.disk, local.now, sent, memory))
        self.sent.append(sent)
        self.memories.append(self._properties.number(memory))
        self.spent.append((memory.restarts, memory.shorter_logs, memory.lost_disks))
        self.idle.append(0)
        self._arrivals.append({})
        self._tried.append(0)
        self._others.append(None)
        self._decisions.append({})
        self._body_of.append(body)
        return number


BITS = 24
"""Of a market's state for each node: at most sixteen million states of one node."""
_MASK = (1 << BITS) - 1
_EVENT_BITS = 40

Move: TypeAlias = tuple[int, int]
"""(what happened, the state after it)."""


class TransitionSystem:
    """The transition system of one configuration."""

    def __init__(self, bounds: Bounds, build: Build = PRODUCT, *, stories_only: bool = False) -> None:
        """Run the market up to its first ring; `stories_only`: of the properties, judge agreement alone."""
        self.bounds = bounds
        sites = tuple(range(1, bounds.sites + 1))
        servers = tuple([server_id(number) for number in range(1, bounds.servers + 1)])
        sources = tuple([source_id(number) for number in (1, 2)])
        self.nodes: tuple[NodeId, ...] = (*sites, *servers, *sources)
        self.sites = range(bounds.sites)
        """Their places among the nodes."""
        self.servers = range(bounds.sites, bounds.sites + bounds.servers)
        self.limits = (bounds.restarts, bounds.shorter_logs, bounds.lost_disks)
        self.mail = Mail(self.nodes, bounds)
        self.driver = StateDriver(bounds, build, self.mail)
        self.properties = Properties(bounds, self.driver.chain, stories_only=stories_only)
        freezer = Freezer()
        self.places = [
            NodeStates(self.driver, freezer, self.properties, self.limits, local) for local in founded(self.driver)
        ]

    # The contract of a search -------------------------------------------------------------------

    def start(self) -> int:
        """The state from which everything is explored."""
        first = [table.ballot(0) if node in self.servers else 0 for node, table in enumerate(self.places)]
        return self._settled(first if self.bounds.eager else [0] * len(self.nodes), None)

    def moves(self, state: int) -> list[Move]:
        """Everything that can happen in a state."""
        places = self.unpacked(state)
        flying = 0
        left = list(self.limits)
        for table, place in zip(self.places, places, strict=True):
            flying |= table.sent[place]
            left = [limit - spent for limit, spent in zip(left, table.spent[place], strict=True)]
        found: list[Move] = []
        for node, (table, place) in enumerate(zip(self.places, places, strict=True)):
            here = flying & self.mail.addressed[node]
            if self.bounds.gathered_votes and node in self.servers:
                reached = list(table.decisions(place, here))
                here = 0
            else:
                reached = []
            reached += [(event, after) for event, after, kind in table.others(place) if kind is None or left[kind]]
            reached += table.arrivals(place, here)
            for event, after in reached:
                places[node] = after
                found.append((node << _EVENT_BITS | event, self._settled(places, node)))
            places[node] = place
        return found

    def broken(self, state: int) -> tuple[str, str] | None:
        """The property that a state breaks, and how."""
        memories = [table.memories[place] for table, place in zip(self.places, self.unpacked(state), strict=True)]
        return self.properties.broken(tuple(memories))

    def parts(self, state: int) -> list[Local]:
        """The nodes in a state, for an explanation of it."""
        return [table.states[place] for table, place in zip(self.places, self.unpacked(state), strict=True)]

    @staticmethod
    def named(move: int) -> tuple[int, int]:
        """(node, event) of what happened."""
        return move >> _EVENT_BITS, move & (1 << _EVENT_BITS) - 1

    def unpacked(self, state: int) -> list[int]:
        """The place of each node in a state."""
        return [state >> BITS * node & _MASK for node in range(len(self.nodes))]

    @staticmethod
    def packed(places: Sequence[int]) -> int:
        """The state in which the nodes are in these places."""
        return sum([place << BITS * node for node, place in enumerate(places)])

    @property
    def steps(self) -> int:
        """Steps of a real machine."""
        return sum([table.steps for table in self.places])

    @property
    def local_states(self) -> int:
        """States of single nodes that occurred."""
        return sum(map(len, self.places))

    # What happens at once -----------------------------------------------------------------------

    def _settled(self, places: list[int], moved: int | None) -> int:
        """The number of a state, after what arrives at once; a server that decided begins its next ballot at once."""
        if self.bounds.eager:
            places = self._receipted(list(places))
            if moved is not None and moved in self.servers:
                places[moved] = self.places[moved].ballot(places[moved])
        return self.packed(places)

    def _receipted(self, places: list[int]) -> list[int]:
        """Let requests arrive before the receipts of the same site: after its receipt a site is not answered."""
        reached: list[int] = []
        while reached != places:
            reached, places = places, list(places)
            for site, sender in permutations(self.sites, 2):
                said = self.places[sender].sent[places[sender]] & self.mail.addressed[site]
                for kind in (self.mail.requests, self.mail.receipts):
                    places[site] = self.places[site].receipted(places[site], said & kind)
        return places
