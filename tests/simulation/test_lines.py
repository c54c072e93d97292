"""The plan of lines under the simulator: rings break and form, and every plan that is followed keeps its word.

The machines are those of the real network, beside the simulator's receivers and servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

import numpy as np
import pytest
from tests.reformation.scopes.line_promises import check_plans
from tests.simulation.worlds import run

from isocast.nodes.accompanied import Accompanied
from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.reformation.scopes.line_keeper import KeepLines, LineKeeper, LinesSettled, LineState, PlanFailed, PlanMade
from isocast.reformation.scopes.line_planner import LinePlanner
from isocast.reformation.scopes.world import AddressPool, CoverageWorld, Places, ScopeRules, Surface
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.notary import Notary
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.simulation.chaos import chaos
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import Build
from isocast.terms.ids import NodeId, server_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.topology import CITIES, City
from isocast.wire.packets import Lines, NewRing, PlanVersion

DRAIN_NS = 2 * SECOND
CUSTOMERS = (*CITIES[2:6], CITIES[13], CITIES[18])
SERVERS = tuple([server_id(number) for number in range(1, 5)])
_OURS = (KeepLines, LinesSettled, PlanMade, PlanFailed)


def place_of(site: NodeId) -> City:
    return CITIES[site % len(CITIES)]


def world_of(sites: tuple[NodeId, ...]) -> CoverageWorld:
    def places(names: Sequence[str], where: Sequence[City]) -> Places:
        return Places(tuple(names), np.array([(city.latitude, city.longitude) for city in where]).reshape(-1, 2))

    return CoverageWorld(
        Surface.EARTH,
        places([str(site) for site in sorted(sites)], [place_of(site) for site in sorted(sites)]),
        places([city.name for city in CUSTOMERS], CUSTOMERS),
        rules=ScopeRules(delay_max_ns=200 * MILLISECOND),
        pool=AddressPool(IPv4Address("239.224.1.0"), count=64, drain_ns=DRAIN_NS),
    )


@dataclass
class Book:
    """What disks keep of plans, and what was followed, in one run."""

    disks: dict[NodeId, LineState] = field(default_factory=dict)
    followed: dict[PlanVersion, Lines] = field(default_factory=dict)
    by_site: dict[NodeId, PlanVersion] = field(default_factory=dict)
    rings: dict[NodeId, NewRing] = field(default_factory=dict)
    authors: set[NodeId] = field(default_factory=set)

    def take(self, node: NodeId, effects: Sequence[object], ring: NewRing | None) -> tuple[object, ...]:
        if ring is not None:
            self.rings[node] = ring
        for effect in effects:
            match effect:
                case KeepLines(state):
                    self.disks[node] = state
                case LinesSettled(lines):
                    self.followed[lines.version] = lines
                    self.by_site[node] = lines.version
                    self.authors.add(lines.version.author)
                case _:
                    pass
        return tuple([effect for effect in effects if not isinstance(effect, _OURS)])


class _Inner:
    def __init__(self, step: Any, deadline: Any) -> None:  # noqa: ANN401
        self.step, self.next_deadline = step, deadline


def build_of(book: Book) -> Build:
    """The product's receivers and servers, each with its part in the plan."""

    class Receiver(PrimaryReceiver):
        def __init__(
            self,
            site: NodeId,
            settings: RingSettings,
            secret: bytes,
            state: SiteState,
            *,
            forgot: bool = False,
            **more: Any,  # noqa: ANN401 - as `PrimaryReceiver` has it
        ) -> None:
            super().__init__(site, settings, secret, state, forgot=forgot, **more)
            self._site = site
            keeper = LineKeeper(site, settings.stripe, settings.timing.retry_ns, book.disks.get(site))
            inner = _Inner(super().step, super().next_deadline)
            self._both = None if forgot else Accompanied(inner, keeper, lambda: self.receiver.ring)

        def step(self, event: PrimaryReceiverInput, now: int) -> tuple[Any, ...]:
            if self._both is None:
                return super().step(event, now)
            return book.take(self._site, self._both.step(event, now), self.receiver.ring)

        def next_deadline(self) -> int:
            return super().next_deadline() if self._both is None else self._both.next_deadline()

    class Server(ReformationServer):
        def __init__(
            self,
            server: NodeId,
            settings: RingSettings,
            rank: int,
            regions: Mapping[NodeId, str],
            state: ServerState | None = None,
            servers: tuple[NodeId, ...] = (),
            notary: Notary | None = None,
        ) -> None:
            super().__init__(server, settings, rank, regions, state, servers, notary)
            known = tuple(sorted({*SERVERS, server}))
            planner = LinePlanner(server, known, settings.stripe, settings.timing, world_of, book.disks.get(server))
            self._both = Accompanied(_Inner(super().step, super().next_deadline), planner, lambda: self.ring)

        def step(self, event: object, now: int) -> tuple[Any, ...]:
            return book.take(self.server, self._both.step(event, now), None)

        def next_deadline(self) -> int:
            return self._both.next_deadline()

    return Build(receiver=Receiver, server=Server)


def test_a_ring_that_loses_a_site_has_a_new_plan_for_the_others() -> None:
    book = Book()
    crash = {"kind": "crash", "at": 1.0, "sites": [3]}
    done = run(crash, build=build_of(book), receivers=5, servers=2, messages=150)
    assert done.violations() == []
    check_plans(book.followed.values(), CUSTOMERS, DRAIN_NS)
    newest = max(book.followed.values(), key=lambda lines: lines.version)
    assert 3 not in [scope.site for scope in newest.scopes]
    assert {book.by_site[site] for site in (1, 2, 4, 5)} == {newest.version}


@pytest.mark.parametrize("seed", [3, 8, 21, 34, 55, 89])
def test_whatever_happens_to_rings_no_plan_that_was_followed_breaks_its_word(seed: int) -> None:
    book, world = Book(), chaos(seed)
    assert world.get("policy") != "availability", "its halves may plan apart, as they may release apart"
    done = TimedRun(scenario_from_mapping(world, f"seed {seed}"), seed, build_of(book))
    done.run()
    assert done.violations() == []
    assert book.followed
    check_plans([lines for lines in book.followed.values() if len(lines.scopes) > 1], CUSTOMERS, DRAIN_NS)
