"""A small market as a transition system: states are numbers, and every step is one of the real machines' own.

A node knows nothing but its own state, so what an event does to it is computed once, by running the machine, and
looked up ever after: a state of the market is a tuple of the nodes' states, and what is in flight is the union of what
they have sent. That is why millions of interleavings are explored with some ten thousand steps of a machine.

The reduction: a receipt that is of use arrives at once. It only ever raises what its receiver knows to be certified,
which opens its gate and closes nothing; it changes no vote, no log and no token. A market where receipts arrive later
releases later, or never, and so shows no more to any customer: see docs/explanation/model-checking.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TypeAlias

from isocast.simulation.build import PRODUCT, Build
from isocast.simulation.exploration.bounds import Bounds
from isocast.simulation.exploration.driver import Driver
from isocast.simulation.exploration.founding import founded
from isocast.simulation.exploration.freezing import Freezer
from isocast.simulation.exploration.mail import Mail
from isocast.simulation.exploration.node import Local
from isocast.simulation.exploration.places import Places
from isocast.simulation.exploration.properties import Properties
from isocast.terms.ids import NodeId, server_id, source_id

__all__ = ["Market", "Move"]

BITS = 24
"""Of a market's state for each node: at most sixteen million states of one node."""
_MASK = (1 << BITS) - 1
_EVENT_BITS = 40

Move: TypeAlias = tuple[int, int]
"""(what happened, the state after it)."""


class Market:
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
        self.driver = Driver(bounds, build, self.mail)
        self.properties = Properties(bounds, self.driver.chain, stories_only=stories_only)
        freezer = Freezer()
        self.places = [
            Places(self.driver, freezer, self.properties, self.limits, local) for local in founded(self.driver)
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
        """The nodes in a state, for whoever explains it."""
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
        """Requests arrive before the receipts of who asks: nobody answers whoever has said that it needs nothing."""
        reached: list[int] = []
        while reached != places:
            reached, places = places, list(places)
            for site, sender in permutations(self.sites, 2):
                said = self.places[sender].sent[places[sender]] & self.mail.addressed[site]
                for kind in (self.mail.requests, self.mail.receipts):
                    places[site] = self.places[site].receipted(places[site], said & kind)
        return places
