"""Faults by the operator's door: what they do, and that nobody has them who is not playing."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.hosts.contexts import new_market, run
from tests.runtime.worlds import eventually
from tests.wire.samples import SAMPLES

from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.market.model import Market
from isocast.runtime.net.faults import FaultyChannels, allows_faults
from isocast.runtime.operate.operator_door import OperatorError, ask
from isocast.terms.instants import SECOND
from isocast.wire.codec import PacketKind
from isocast.wire.packets import Invite, Token

NODES: dict[str, dict[str, object]] = {
    "a": {"role": "primary-receiver"},
    "b": {"role": "primary-receiver"},
    "x": {"role": "reformation-server"},
    "floor": {"role": "primary-source"},
}
OPERATIONS: list[tuple[str, dict[str, object]]] = [
    ("cut", {"from": ["b"]}),
    ("heal", {}),
    ("step-clock", {"ns": 1}),
    ("crash-after", {"packet": "token"}),
]


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path, NODES, {"impairment": {"enabled": True}})


def with_node(market: Market, name: str, work: Callable[[NodeProcess], Awaitable[None]]) -> None:
    async def whole() -> None:
        node = NodeProcess(market, market.node(name))
        await node.start()
        try:
            await work(node)
        finally:
            await node.stop()

    run(whole)


def channels_of(node: NodeProcess) -> FaultyChannels:
    assert node.host is not None
    channels = node.host.driver.channels
    assert isinstance(channels, FaultyChannels)
    return channels


# ---- who has them


@pytest.mark.parametrize("do, arguments", OPERATIONS)
def test_a_market_that_is_not_for_drills_knows_none_of_them(
    tmp_path: Path, do: str, arguments: dict[str, object]
) -> None:
    market = new_market(tmp_path, NODES)

    async def work(_: NodeProcess) -> None:
        with pytest.raises(OperatorError, match=f'this node cannot "{do}"'):
            await ask(market.directory_of("a"), do, seconds=60, **arguments)

    with_node(market, "a", work)


def test_a_market_beyond_loopback_allows_none(market: Market) -> None:
    assert allows_faults(market)
    far = replace(market, nodes=(replace(market.nodes[0], address="10.1.2.3"), *market.nodes[1:]))
    assert not allows_faults(far)


@pytest.mark.parametrize("do, arguments", OPERATIONS)
def test_a_market_for_drills_knows_all_of_them(market: Market, do: str, arguments: dict[str, object]) -> None:
    async def work(_: NodeProcess) -> None:
        assert (await ask(market.directory_of("a"), do, seconds=60, **arguments))["ok"]

    with_node(market, "a", work)


@pytest.mark.parametrize(
    "do, arguments, why",
    [
        ("cut", {"from": "b"}, '"from" is a list of nodes'),
        ("cut", {"from": ["bb"]}, "there is no bb"),
        ("cut", {}, '"from" is a list of nodes'),
        ("step-clock", {"ns": 1.5}, '"ns" is a whole number'),
        ("step-clock", {"ns": 10**18}, "an hour at most"),
        ("crash-after", {"packet": "word"}, '"packet" is one of token, invite'),
    ],
)
def test_a_bad_request_is_refused_in_words(market: Market, do: str, arguments: dict[str, object], why: str) -> None:
    async def work(_: NodeProcess) -> None:
        with pytest.raises(OperatorError, match=why):
            await ask(market.directory_of("a"), do, seconds=60, **arguments)

    with_node(market, "a", work)


# ---- what they do


def test_whoever_is_cut_off_is_not_heard_on_any_channel_until_it_heals(market: Market) -> None:
    """The server hears of both sites while they ask to come in; then of one; then of both again."""

    async def heard(server: NodeProcess, least: int) -> None:
        before = sum(server.counters.packets_received)
        await eventually(lambda: sum(server.counters.packets_received) >= before + least)

    async def work(server: NodeProcess) -> None:
        site = NodeProcess(market, market.node("a"))
        await site.start()
        try:
            await heard(server, 3)
            await ask(market.directory_of("x"), "cut", seconds=60, **{"from": ["a"]})
            lost = injected(server)
            before = sum(server.counters.packets_received)
            await eventually(lambda: injected(server) >= lost + 3)
            assert sum(server.counters.packets_received) == before
            await ask(market.directory_of("x"), "heal", seconds=60)
            await heard(server, 3)
        finally:
            await site.stop()

    def injected(server: NodeProcess) -> int:
        channels_of(server).collect()
        return server.counters.injected_losses

    with_node(market, "x", work)


@pytest.mark.parametrize("when", ["once it is sent", "before it is sent"])
def test_a_process_dies_of_its_next_token_once_it_is_sent_or_just_before(
    market: Market, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    killed: list[tuple[int, bool]] = []
    unheard = when == "before it is sent"
    token = SAMPLES[PacketKind.TOKEN]
    assert isinstance(token, Token)
    assert token.runs

    async def work(node: NodeProcess) -> None:
        channels = channels_of(node)
        own = replace(token, sender=market.node("a").node)
        tokens_before = 0

        def kill(_: int, number: int) -> None:
            killed.append((number, tokens() > tokens_before))

        def tokens() -> int:
            return sum(count for slot, count in enumerate(node.counters.packets_sent) if slot & 31 == PacketKind.TOKEN)

        monkeypatch.setattr("isocast.runtime.net.faults.os.kill", kill)
        await ask(market.directory_of("a"), "crash-after", seconds=60, packet="token", unheard=unheard)
        channels.multicast(replace(own, runs=(), interleave=()))
        channels.flush()
        assert killed == [], "an empty token acknowledges nothing"
        tokens_before = tokens()
        channels.multicast(own)
        channels.flush()

    with_node(market, "a", work)
    assert killed[0] == (signal.SIGKILL, not unheard)


def test_a_server_dies_of_its_invitation(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    async def work(node: NodeProcess) -> None:
        monkeypatch.setattr("isocast.runtime.net.faults.os.kill", lambda _, number: killed.append(number))
        channels_of(node).crash_after(Invite, unheard=False)
        await eventually(lambda: bool(killed))

    with_node(market, "x", work)
    assert killed[0] == signal.SIGKILL


def test_a_clock_that_was_set_is_noticed_and_right_again_when_it_is_set_back(market: Market) -> None:
    async def work(node: NodeProcess) -> None:
        assert node.host is not None
        clock = node.host.driver.clock
        before = clock.now()
        await ask(market.directory_of("a"), "step-clock", seconds=60, ns=5 * SECOND)
        assert clock.now() >= before + 5 * SECOND
        assert not clock.status.trusted
        await ask(market.directory_of("a"), "step-clock", seconds=60, ns=-5 * SECOND)
        assert clock.status.trusted

    with_node(market, "a", work)
