"""A small market as a transition system: states are numbers, and every step is one of the real machines' own.

A node knows nothing but its own state, so what an event does to it is computed once, by running the machine, and
looked up ever after: a state of the market is a tuple of the nodes' states, and what is in flight is the union of what
they have sent. That is why millions of interleavings are explored with some ten thousand steps of a machine.

The reduction: a receipt that is of use arrives at once. It only ever raises what its receiver knows to be certified,
which opens its gate and closes nothing; it changes no vote, no log and no token. A market where receipts arrive later
releases later, or never, and so shows no more to any customer: see docs/explanation/model-checking.md.
"""

from __future__ import annotations

from typing import TypeAlias

from isocast.simulation.build import PRODUCT, Build
from isocast.simulation.exploration.bounds import Bounds
from isocast.simulation.exploration.driver import Driver, Event
from isocast.simulation.exploration.founding import founded
from isocast.simulation.exploration.freezing import Freezer
from isocast.simulation.exploration.mail import Mail, numbers_in
from isocast.simulation.exploration.node import Local
from isocast.simulation.exploration.properties import Properties
from isocast.terms.ids import NodeId, server_id, source_id

__all__ = ["Market", "Move"]

BITS = 24
"""Of a market's state for each node: at most sixteen million states of one node."""
_MASK = (1 << BITS) - 1
_EVENT_BITS = 40

Move: TypeAlias = tuple[int, int]
"""(what happened, the state after it)."""


class _Table:
    """Everything known about the states of one node."""

    def __init__(self, local: Local, digest: bytes) -> None:
        self.states = [local]
        self.numbers = {digest: 0}
        self.sent = [local.sent]
        self.tried = [0]
        """Letters whose arrival in a state is known."""
        self.idle = [0]
        """Of those, the ones that change nothing."""
        self.arrivals: list[dict[int, int]] = [{}]
        """Of the others, which state they lead to."""
        self.decisions: list[dict[int, list[tuple[int, int]]]] = [{}]
        """Of a server: which states the votes under way to it may lead to."""
        self.others: list[list[tuple[int, int, int | None]] | None] = [None]
        """(event, next state, for a restart its kind: 0 plain, 1 with a shorter log, 2 without its disk)."""
        self.memories = [0]
        self.spent: list[tuple[int, int, int] | None] = [None]
        """Restarts of each kind; None without any."""


class Market:
    """The transition system of one configuration."""

    def __init__(self, bounds: Bounds, build: Build = PRODUCT, *, stories_only: bool = False) -> None:
        """Run the market up to its first ring; `stories_only`: of the properties, judge agreement alone."""
        self.bounds = bounds
        sites = tuple(range(1, bounds.sites + 1))
        servers = tuple([server_id(number) for number in range(1, bounds.servers + 1)])
        sources = tuple([source_id(number) for number in (1, 2)])
        self.nodes: tuple[NodeId, ...] = (*sites, *servers, *sources)
        self.mail = Mail(self.nodes, bounds)
        self.driver = Driver(bounds, build, self.mail)
        self.properties = Properties(bounds, self.driver.chain, stories_only=stories_only)
        self.steps = 0
        """Steps of a real machine."""
        self._limits = (bounds.restarts, bounds.shorter_logs, bounds.lost_disks)
        self._freezer = Freezer()
        self._sites = range(bounds.sites)
        self._servers = range(bounds.sites, bounds.sites + bounds.servers)
        locals_ = founded(self.driver)
        self._tables = [_Table(local, local.digest(self._freezer)) for local in locals_]
        for table, local in zip(self._tables, locals_, strict=True):
            table.memories[0] = self.properties.number(local.memory)

    # The contract of a search -------------------------------------------------------------------

    def start(self) -> int:
        """The state from which everything is explored."""
        return self._settled([0] * len(self.nodes))

    def moves(self, state: int) -> list[Move]:
        """Everything that can happen in a state."""
        tables, nodes = self._tables, range(len(self.nodes))
        places = [state >> BITS * node & _MASK for node in nodes]
        flying = 0
        spent = [0, 0, 0]
        for node in nodes:
            table, place = tables[node], places[node]
            flying |= table.sent[place]
            used = table.spent[place]
            if used is not None:
                spent = [sum(pair) for pair in zip(spent, used, strict=True)]
        left = [limit - gone for limit, gone in zip(self._limits, spent, strict=True)]
        found: list[Move] = []
        gathered = self.bounds.gathered_votes
        for node in nodes:
            table, place = tables[node], places[node]
            here = flying & self.mail.addressed[node]
            if gathered and node in self._servers:
                reached = list(self._decisions(node, place, here))
                here = 0
            else:
                reached = []
            unknown = here & ~table.tried[place]
            if unknown:
                self._try(node, place, unknown)
            events = table.others[place]
            if events is None:
                events = self._try_others(node, place)
            reached += [(event, after) for event, after, kind in events if kind is None or left[kind]]
            arrivals = table.arrivals[place]
            if arrivals:
                reached += [(Event.LETTER + number, after) for number, after in arrivals.items() if here >> number & 1]
            for event, after in reached:
                places[node] = after
                found.append((node << _EVENT_BITS | event, self._settled(places)))
            places[node] = place
        return found

    def broken(self, state: int) -> tuple[str, str] | None:
        """The property that a state breaks, and how."""
        memories = tuple([table.memories[state >> BITS * node & _MASK] for node, table in enumerate(self._tables)])
        return self.properties.broken(memories)

    def parts(self, state: int) -> list[Local]:
        """The nodes in a state, for whoever explains it."""
        return [table.states[state >> BITS * node & _MASK] for node, table in enumerate(self._tables)]

    @staticmethod
    def named(move: int) -> tuple[int, int]:
        """(node, event) of what happened."""
        return move >> _EVENT_BITS, move & (1 << _EVENT_BITS) - 1

    @property
    def local_states(self) -> int:
        """States of single nodes that occurred."""
        return sum([len(table.states) for table in self._tables])

    # Single nodes -------------------------------------------------------------------------------

    def _decisions(self, node: int, place: int, votes: int) -> list[tuple[int, int]]:
        """What a server may decide, from any of the votes that are under way to it."""
        table = self._tables[node]
        known = table.decisions[place]
        found = known.get(votes)
        if found is None:
            found = known[votes] = []
            for some in self._ballots(votes):
                event = Event.VOTES + self.mail.choice(some)
                after = self._after(node, place, event)
                if after is not None and after != place:
                    found.append((event, after))
        return found

    def _ballots(self, votes: int) -> list[int]:
        """Sets of these votes with at most one from each site."""
        sets = [(0, 0)]
        by_sender: dict[NodeId, list[int]] = {}
        for number in numbers_in(votes):
            by_sender.setdefault(self.mail.letters[number].packet.sender, []).append(1 << number)
        for cast in by_sender.values():
            sets += [(chosen | vote, size + 1) for chosen, size in sets for vote in cast]
        most = self.bounds.sites if self.bounds.more_votes else self.bounds.sites // 2 + 1
        return [chosen for chosen, size in sets if 0 < size <= most]

    def _try(self, node: int, place: int, letters: int) -> None:
        """Let letters arrive whose effect in this state is unknown."""
        table = self._tables[node]
        table.tried[place] |= letters
        while letters:
            low = letters & -letters
            letters ^= low
            number = low.bit_length() - 1
            after = self._after(node, place, Event.LETTER + number)
            if after is None or after == place:
                table.idle[place] |= low
            else:
                table.arrivals[place][number] = after

    def _try_others(self, node: int, place: int) -> list[tuple[int, int, int | None]]:
        found: list[tuple[int, int, int | None]] = []
        for event in (Event.BALLOT, Event.TIME, Event.RESTART, Event.SHORTER, Event.BLANK):
            kind = event - Event.RESTART if event >= Event.RESTART else None
            if kind is not None and not self._limits[kind]:
                continue
            after = self._after(node, place, event)
            if after is not None and after != place:
                found.append((event, after, kind))
        self._tables[node].others[place] = found
        return found

    def _after(self, node: int, place: int, event: int) -> int | None:
        """Run the machine."""
        table = self._tables[node]
        self.steps += 1
        local = self.driver.after(table.states[place], event)
        return None if local is None else self._number(table, local)

    def _number(self, table: _Table, local: Local) -> int:
        digest = local.digest(self._freezer)
        known = table.numbers.get(digest)
        if known is not None:
            return known
        number = table.numbers[digest] = len(table.states)
        table.states.append(local)
        table.sent.append(local.sent)
        table.tried.append(0)
        table.idle.append(0)
        table.arrivals.append({})
        table.decisions.append({})
        table.others.append(None)
        table.memories.append(self.properties.number(local.memory))
        memory = local.memory
        spent = (memory.restarts, memory.shorter_logs, memory.lost_disks)
        table.spent.append(spent if any(spent) else None)
        return number

    def _settled(self, places: list[int]) -> int:
        """The number of a state, after the receipts that arrive at once."""
        if self.bounds.eager:
            places = self._receipted(places)
            for node in self._servers:
                events = self._tables[node].others[places[node]]
                if events is None:
                    events = self._try_others(node, places[node])
                if events and events[0][0] == Event.BALLOT:
                    places = [*places]
                    places[node] = events[0][1]
        state = 0
        for node, place in enumerate(places):
            state |= place << BITS * node
        return state

    def _receipted(self, places: list[int]) -> list[int]:
        tables, sites = self._tables, self._sites
        addressed = self.mail.addressed
        flying = 0
        for site in sites:
            flying |= tables[site].sent[places[site]]
        flying &= self.mail.harmless
        reached = None
        again = True
        while again:
            again = False
            for site in sites:
                table = tables[site]
                place = places[site] if reached is None else reached[site]
                here = flying & addressed[site] & ~table.idle[place]
                if not here:
                    continue
                unknown = here & ~table.tried[place]
                if unknown:
                    self._try(site, place, unknown)
                    here &= ~table.idle[place]
                if here:
                    if reached is None:
                        reached = list(places)
                    number = (here & -here).bit_length() - 1
                    reached[site] = table.arrivals[place][number]
                    flying |= table.sent[reached[site]] & self.mail.harmless
                    again = True
        return places if reached is None else reached
