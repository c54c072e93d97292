"""Lines on sockets: a receiver speaks where its plan says, a listener hears whoever reaches it, and both move."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from random import SystemRandom

import pytest
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import Nodes

from isocast.hierarchy.edge import LinesPlanned
from isocast.reformation.scopes.line_keeper import KeepLines, LinesSettled, LineState
from isocast.runtime.disk.server_store import LineStore
from isocast.runtime.hosts.line_following import LineFollowing
from isocast.runtime.hosts.lines import LineSpeaking
from isocast.runtime.market.model import Market
from isocast.runtime.net.channels import Channels, NodeKeys
from isocast.terms.ids import Epoch, server_id
from isocast.terms.instants import SECOND
from isocast.terms.topology import City
from isocast.wire.packets import NO_ADDRESS, LineRest, Lines, LineScope, Packet, PlanVersion, ReleasedPacket

NODES: Nodes = {
    "a": {"role": "primary-receiver", "city": "London"},
    "b": {"role": "primary-receiver", "city": "Tokyo"},
    "floor": {"role": "primary-source"},
    "x": {"role": "reformation-server"},
    "bank": {"role": "customer", "city": "Paris", "lines": ["b"]},
}
DRAIN_S = 10
A, B = 1, 2


def market_in(folder: Path, mode: str) -> Market:
    first = SystemRandom().randrange(16, 240)
    coverage = {
        "enabled": True,
        "groups": f"238.{first}.7.0",
        "notices": f"238.{first}.6.0",
        "addresses": 16,
        "drain": f"{DRAIN_S}s",
        "lines": 1,
    }
    return new_market(folder, NODES, settings={"network": {"mode": mode}, "coverage": coverage})


def plan(market: Market, number: int, a: int, b: int, rests: tuple[tuple[int, int, int], ...] = ()) -> Lines:
    """Address n for each receiver, 600 km around it; NO_ADDRESS is silence. Rests are (site, address, free at)."""
    epoch = Epoch(number, server_id(1))
    places = {site: market.node(name).place for site, name in ((A, "a"), (B, "b"))}

    def of(site: int, address: int) -> LineScope:
        place = places[site] or City("", "", 0.0, 0.0)
        radius = 0 if address == NO_ADDRESS else 600_000
        return LineScope(site, place.latitude, place.longitude, radius, radius, address)

    return Lines(
        0,
        epoch,
        A,
        PlanVersion(epoch, 1, epoch.server),
        0,
        int(IPv4Address(market.coverage.groups)),
        1,
        (of(A, a), of(B, b)),
        tuple([LineRest(*of(site, address), free_at) for site, address, free_at in rests]),
    )


class StubDriver:
    """Takes what a listener tells its machine, and changes sockets at once."""

    running = True

    def __init__(self) -> None:
        self.fed: list[object] = []

    def feed(self, *events: object) -> None:
        self.fed += events

    def retune(self, change: Callable[[], None]) -> None:
        change()


class Town:
    """Two receivers and a customer, with their sockets."""

    def __init__(self, market: Market, stack: ExitStack) -> None:
        self.market = market
        self.driver = StubDriver()
        self.around = {name: Surroundings(market, name) for name in ("a", "b", "bank")}
        self.channels: dict[str, Channels] = {}
        self.speaking: dict[str, LineSpeaking] = {}
        for name in ("a", "b", "bank"):
            context = self.around[name].context()
            keys = NodeKeys(context.keys.core_ring() if name != "bank" else None, context.keys.edge_ring())
            self.channels[name] = context.channels(context.plan.node, keys)
            stack.callback(self.channels[name].close)
            if name != "bank":
                self.speaking[name] = LineSpeaking(context, self.channels[name])
        self.lines: list[tuple[int, ...]] = []
        self.context = self.around["bank"].context()
        self.following = LineFollowing(
            self.context,
            self.channels["bank"],
            self.driver,  # type: ignore[arg-type]
            self.lines.append,
        )
        self.following.start()

    def settle(self, lines: Lines, now: int, *names: str) -> None:
        """A majority holds a plan: these follow it, as their machines would tell them."""
        for name in names or ("a", "b"):
            keeper = self.speaking[name].keeper
            assert keeper is not None
            keeper.state = LineState(lines.version, lines, lines)
            self.speaking[name].perform(KeepLines(keeper.state), now)
            self.speaking[name].perform(LinesSettled(lines), now)

    def say(self, name: str, sequence: int) -> None:
        node = self.market.node(name).node
        self.channels[name].to_line(
            [ReleasedPacket(0, Epoch(1, 65_537), node, 1, sequence, 0, 0, sequence, 1, b"x", b"")]
        )
        self.channels[name].flush()

    def heard(self) -> list[tuple[int, int]]:
        """(sender, sequence) of everything that came to the bank; plans go to whoever follows them."""
        packets: list[Packet] = self.channels["bank"].receive(0)
        return [(packet.sender, packet.sequence) for packet in packets if isinstance(packet, ReleasedPacket)]


async def _news(town: Town) -> None:
    """Let a listener take the plan that it has heard."""
    town.heard()
    await sleep(0)


@pytest.mark.parametrize("mode", ["multicast", "fanout"])
def test_a_listener_follows_a_line_from_group_to_group_and_hears_nobody_out_of_reach(tmp_path: Path, mode: str) -> None:
    async def work() -> None:
        with ExitStack() as stack:
            town = Town(market_in(tmp_path, mode), stack)
            now = town.context.clock.now()
            town.say("a", 1)
            town.say("b", 2)
            assert town.heard() == [(B, 2)], "without a plan it hears the line of its file"
            # London and Tokyo share a group: they do not overlap.
            town.settle(plan(town.market, 1, 3, 3), now)
            await _news(town)
            assert town.lines == [(A,)]
            assert town.driver.fed == [LinesPlanned((A,))]
            town.say("a", 3)
            for speaking in town.speaking.values():
                speaking.tick(now + (DRAIN_S // 2 + 1) * SECOND)
            town.say("b", 4)
            assert town.heard() == [(A, 3)]
            if mode == "multicast":
                assert town.around["bank"].counters.out_of_reach == 1
            # London moves: for half a drain time it is heard in both groups, once each.
            free_at = now + DRAIN_S * SECOND
            town.settle(plan(town.market, 2, 5, 3, ((A, 3, free_at),)), now, "a")
            town.say("a", 6)
            assert (A, 6) in town.heard(), "who has not heard of it yet hears it where it was"
            await _news(town)
            town.say("a", 7)
            assert town.heard() == [(A, 7)] * (2 if mode == "multicast" else 1)
            later = now + (DRAIN_S // 2 + 1) * SECOND
            town.speaking["a"].tick(later)
            town.following.tick(later)
            town.say("a", 8)
            assert town.heard() == [(A, 8)]
            assert LineStore(town.context.directory).read().version == plan(town.market, 2, 5, 3).version

    run(work)


def test_a_silent_receiver_says_nothing_and_a_listener_without_a_line_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        with ExitStack() as stack:
            town = Town(market_in(tmp_path, "multicast"), stack)
            town.settle(plan(town.market, 1, NO_ADDRESS, 3), town.context.clock.now())
            await _news(town)
            later = town.context.clock.now() + (DRAIN_S // 2 + 1) * SECOND
            town.speaking["a"].tick(later)
            town.say("a", 1)
            assert town.heard() == []
            assert "coverage-short" in town.around["bank"].codes
            assert town.lines == [], "who has no line by the plan keeps those that it has"

    run(work)


def test_receivers_and_listeners_begin_with_the_plan_of_their_disks(tmp_path: Path) -> None:
    async def work() -> None:
        market = market_in(tmp_path, "multicast")
        lines = plan(market, 4, 2, 3)
        for name in ("a", "bank"):
            LineStore(market.directory_of(name)).keep(LineState(lines.version, lines, lines))
        with ExitStack() as stack:
            town = Town(market, stack)
            town.say("a", 1)
            assert town.heard() == [(A, 1)]
            # The first plan that is heard counts, even below that of the disk: the market may have begun anew.
            town.settle(plan(market, 1, 6, 3), town.context.clock.now(), "a")
            await _news(town)
            town.say("a", 2)
            assert town.heard() == [(A, 2)]
            town.settle(plan(market, 0, 7, 3), town.context.clock.now(), "a")
            await _news(town)
            assert town.following.lines is not None
            assert town.following.lines.version.ballot.number == 1

    run(work)
