"""A group is a group, by multicast or by a copy to each."""

import socket
from contextlib import ExitStack

import pytest
from tests.runtime.net.loopback import BUDGET, NoAggregates, frames_of, free_port, gather

from isocast.runtime.market.model import NetworkMode
from isocast.runtime.net.sockets import Endpoint, Inlet, Outlet, open_group_inlet, open_group_outlet

GROUP = "239.255.77.51"
ADDRESSES = ("127.0.0.51", "127.0.0.52", "127.0.0.53", "127.0.0.54")

Nodes = dict[str, tuple[Inlet, Outlet]]


def open_nodes(stack: ExitStack, mode: NetworkMode, sources: tuple[str, ...], kind: type[socket.socket]) -> Nodes:
    """Four members, each with its inlet and its outlet."""
    port = free_port()
    members = [Endpoint(address, port) for address in ADDRESSES]
    nodes: Nodes = {}
    for own in members:
        inlet = open_group_inlet(mode, GROUP, port, interface=own.address, own=own, sources=sources, kind=kind)
        stack.enter_context(inlet)
        outlet = open_group_outlet(mode, GROUP, port, interface=own.address, members=members)
        nodes[own.address] = (inlet, stack.enter_context(outlet))
    return nodes


def said_by(place: int) -> list[bytes]:
    return [bytes([place]) + frame for frame in frames_of(*[1000] * 70, 30, 500, 500, 20)]


@pytest.mark.parametrize("kind", [socket.socket, NoAggregates])
@pytest.mark.parametrize("mode", NetworkMode)
def test_each_member_hears_all_the_others_in_their_order_and_not_itself(
    mode: NetworkMode, kind: type[socket.socket]
) -> None:
    with ExitStack() as stack:
        nodes = open_nodes(stack, mode, (), kind)
        for place, (_, outlet) in enumerate(nodes.values()):
            outlet.send(said_by(place))
        for own, (inlet, _) in enumerate(nodes.values()):
            others = [frame for place in range(len(nodes)) if place != own for frame in said_by(place)]
            heard = gather(inlet, len(others))
            # One sender after the other spoke, so even their order is known.
            assert heard == others
            assert inlet.read(BUDGET) == []


@pytest.mark.parametrize("mode", NetworkMode)
def test_with_sources_only_they_are_heard(mode: NetworkMode) -> None:
    speakers = ADDRESSES[:2]
    with ExitStack() as stack:
        nodes = open_nodes(stack, mode, speakers, socket.socket)
        for place, address in reversed(list(enumerate(ADDRESSES))):
            nodes[address][1].send(said_by(place))
        for own, (inlet, _) in nodes.items():
            wanted = [frame for place in (1, 0) if ADDRESSES[place] != own for frame in said_by(place)]
            assert gather(inlet, len(wanted)) == wanted
            assert inlet.read(BUDGET) == []


def test_multicast_sends_once_and_fanout_once_for_each_other_member() -> None:
    for mode, copies in ((NetworkMode.MULTICAST, 1), (NetworkMode.FANOUT, 3)):
        with ExitStack() as stack:
            outlet = open_nodes(stack, mode, (), socket.socket)[ADDRESSES[0]][1]
            outlet.send([b"x"] * 10)
            assert outlet.sent.datagrams == 10 * copies


def test_a_group_of_oneself_is_silent() -> None:
    members = [Endpoint(ADDRESSES[0], 9)]
    with open_group_outlet(NetworkMode.FANOUT, "", 9, interface=ADDRESSES[0], members=members) as outlet:
        outlet.send([b"x"])
        assert outlet.sent.datagrams == outlet.unsent == 0
