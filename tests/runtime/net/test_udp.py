"""Real sockets on loopback: what goes in comes out, what cannot is counted."""

# ruff: noqa: ANN401 - fakes pass on whatever a socket takes

import errno
import os
import socket
from typing import Any

import pytest
from tests.runtime.net.loopback import BUDGET, NoAggregates, frames_of, free_port, gather

from isocast.runtime.net.sockets import (
    Endpoint,
    Outlet,
    Traffic,
    fanout_outlet,
    multicast_inlet,
    multicast_outlet,
    unicast_inlet,
    unicast_outlet,
)
from isocast.terms.errors import LocalProtocolError, TransportError

GROUP = "239.255.77.41"
HERE = "127.0.0.41"
THERE = "127.0.0.42"
ELSEWHERE = "127.0.0.43"
MIXED = (1400, 1400, 1400, 200, 1400, 9000, 9000, 40, 41, 0, 1, 1, 65_507, 1400, *[100] * 200, 99)


class Scripted(socket.socket):
    """A kernel that answers sends with errors, in turn, before it obeys."""

    script: list[int]
    calls: list[str]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.script = []
        self.calls = []

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if self.script:
            code = self.script.pop(0)
            if code:
                raise OSError(code, os.strerror(code))

    def sendmsg(self, *arguments: Any) -> int:
        self._answer("burst")
        return super().sendmsg(*arguments)

    def sendto(self, *arguments: Any) -> int:
        self._answer("single")
        return super().sendto(*arguments)


def scripted_outlet(destination: Endpoint, *errors: int) -> tuple[Outlet, Scripted]:
    sender = Scripted(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind((HERE, 0))
    sender.script = list(errors)
    return Outlet(sender, (destination,), patience_ns=1_000_000), sender


# ---- the same datagrams, in order


@pytest.mark.parametrize("kind", [socket.socket, NoAggregates])
def test_a_burst_of_mixed_lengths_arrives_as_the_same_datagrams_in_order(kind: type[socket.socket]) -> None:
    frames = frames_of(*MIXED)
    with unicast_inlet(THERE, 0, kind=kind) as inlet, unicast_outlet(HERE) as outlet:
        outlet.send_to(inlet.endpoint, frames)
        assert gather(inlet, len(frames)) == frames
        assert inlet.received == outlet.sent == Traffic(len(frames), sum(MIXED))
        assert inlet.aggregates == (kind is socket.socket)
        assert (inlet.drops, outlet.unsent, outlet.segmentation.state) == (0, 0, "on")


@pytest.mark.parametrize("kind", [socket.socket, NoAggregates])
def test_every_listener_of_a_group_hears_the_same(kind: type[socket.socket]) -> None:
    port, frames = free_port(), frames_of(*[1400] * 150, 700)
    with (
        multicast_inlet(GROUP, port, THERE, kind=kind) as one,
        multicast_inlet(GROUP, port, ELSEWHERE) as two,
        multicast_outlet(GROUP, port, HERE) as outlet,
    ):
        outlet.send(frames)
        assert gather(one, len(frames)) == frames
        assert gather(two, len(frames)) == frames
        assert outlet.endpoint.address == HERE


def test_equal_frames_share_a_system_call() -> None:
    with unicast_inlet(THERE, 0) as inlet:
        outlet, kernel = scripted_outlet(inlet.endpoint)
        with outlet:
            outlet.send(frames_of(*[1000] * 129, 10))
            assert kernel.calls == ["burst"] * 3
            assert len(gather(inlet, 130)) == 130


def test_a_budget_bounds_what_one_read_returns() -> None:
    frames = frames_of(*[1000] * 60)
    with unicast_inlet(THERE, 0, kind=NoAggregates) as inlet, unicast_outlet(HERE) as outlet:
        for frame in frames:
            outlet.send_to(inlet.endpoint, [frame])
        got: list[bytes] = []
        while len(got) < len(frames):
            part = inlet.read(5 * 1028)
            assert len(part) <= 5
            got += part
        assert got == frames
        assert inlet.read(0) == []


def test_empty_datagrams_use_up_a_budget_too() -> None:
    with unicast_inlet(THERE, 0) as inlet, unicast_outlet(HERE) as outlet:
        outlet.send_to(inlet.endpoint, [b""] * 100)
        assert inlet.read(512 * 10) == [b""] * 10
        assert gather(inlet, 90) == [b""] * 90
        assert inlet.received == Traffic(100, 0)


def test_an_idle_inlet_returns_at_once() -> None:
    with unicast_inlet(THERE, 0) as inlet:
        assert inlet.read(BUDGET) == []


# ---- who is heard


def test_own_datagrams_are_not_heard_and_are_no_drops() -> None:
    port = free_port()
    with (
        multicast_inlet(GROUP, port, HERE, deaf_to=HERE) as own,
        multicast_inlet(GROUP, port, HERE) as curious,
        multicast_outlet(GROUP, port, HERE) as mine,
        multicast_outlet(GROUP, port, THERE) as other,
    ):
        mine.send([b"mine"] * 70)
        other.send([b"other"])
        assert gather(curious, 71) == [b"mine"] * 70 + [b"other"]
        assert gather(own, 1) == [b"other"]
        assert own.read(BUDGET) == []
        assert own.drops == 0


def test_a_source_specific_listener_hears_nobody_else() -> None:
    port = free_port()
    with (
        multicast_inlet(GROUP, port, HERE, sources=[THERE, HERE], deaf_to=HERE) as inlet,
        multicast_inlet(GROUP, port, HERE) as everybody,
        multicast_outlet(GROUP, port, HERE) as own,
        multicast_outlet(GROUP, port, THERE) as wanted,
        multicast_outlet(GROUP, port, ELSEWHERE) as stranger,
    ):
        own.send([b"own"])
        stranger.send([b"stranger"] * 3)
        wanted.send([b"wanted"] * 2)
        assert len(gather(everybody, 6)) == 6
        assert gather(inlet, 2) == [b"wanted"] * 2
        assert inlet.read(BUDGET) == []


@pytest.mark.parametrize("kind", [socket.socket, NoAggregates])
def test_a_unicast_listener_tells_strangers_by_their_address(kind: type[socket.socket]) -> None:
    with (
        unicast_inlet(THERE, 0, sources=[HERE], kind=kind) as inlet,
        unicast_outlet(HERE) as wanted,
        unicast_outlet(ELSEWHERE) as stranger,
    ):
        stranger.send_to(inlet.endpoint, [b"stranger"] * 5)
        wanted.send_to(inlet.endpoint, [b"wanted"] * 3)
        assert gather(inlet, 3) == [b"wanted"] * 3
        assert inlet.foreign == 5
        assert inlet.received == Traffic(3, 18)


def test_a_group_is_not_heard_by_unicast() -> None:
    port = free_port()
    with (
        multicast_inlet(GROUP, port, HERE) as inlet,
        unicast_outlet(THERE) as direct,
        multicast_outlet(GROUP, port, THERE) as proper,
    ):
        direct.send_to(Endpoint(HERE, port), [b"by the back door"])
        proper.send([b"to us"])
        assert gather(inlet, 1) == [b"to us"]


def test_another_group_on_the_same_port_is_not_heard() -> None:
    port = free_port()
    with (
        multicast_inlet(GROUP, port, HERE) as inlet,
        multicast_inlet("239.255.77.42", port, HERE) as neighbour,
        multicast_outlet("239.255.77.42", port, THERE) as outlet,
        multicast_outlet(GROUP, port, THERE) as proper,
    ):
        outlet.send([b"to the neighbour"])
        proper.send([b"to us"])
        assert gather(neighbour, 1) == [b"to the neighbour"]
        assert gather(inlet, 1) == [b"to us"]


# ---- what the kernel drops


def test_drops_of_single_datagrams_are_counted_exactly() -> None:
    sent = 3_000
    with unicast_inlet(THERE, 0, buffer_bytes=1 << 16, kind=NoAggregates) as inlet, unicast_outlet(HERE) as outlet:
        for _ in range(sent):
            outlet.send_to(inlet.endpoint, [bytes(1000)])
        received = len(gather(inlet, 1)) + len(inlet.read(BUDGET))
        assert 0 < received < sent
        assert received + inlet.drops == sent
        assert inlet.received.datagrams == received


def test_drops_of_aggregates_are_counted_one_for_up_to_64() -> None:
    sent = 6_400
    with unicast_inlet(THERE, 0, buffer_bytes=1 << 16) as inlet, unicast_outlet(HERE) as outlet:
        outlet.send_to(inlet.endpoint, [bytes(100)] * sent)
        received = len(gather(inlet, 1)) + len(inlet.read(BUDGET))
        assert 0 < received < sent
        assert inlet.drops <= sent - received <= 64 * inlet.drops


def test_drops_stay_readable_after_closing() -> None:
    with unicast_inlet(THERE, 0, buffer_bytes=1 << 12, kind=NoAggregates) as inlet, unicast_outlet(HERE) as outlet:
        outlet.send_to(inlet.endpoint, [bytes(1000)] * 100)
        gather(inlet, 1)
        before = inlet.drops
    assert inlet.drops == before > 0
    assert inlet.fileno() == -1


def test_the_drop_counter_survives_its_32_bits() -> None:
    class Overflowing(socket.socket):
        counts = iter((0xFFFF_FFF0, 5, 5))

        def getsockopt(self, level: int, name: int, *size: Any) -> Any:
            if name == 55:
                return (0).to_bytes(32) + next(self.counts).to_bytes(4, "little")
            return super().getsockopt(level, name, *size)

    inlet = unicast_inlet(THERE, 0, kind=Overflowing)
    assert inlet.drops == 0xFFFF_FFF0
    assert inlet.drops == 0xFFFF_FFF0 + 21
    inlet.close()


class Unprivileged(socket.socket):
    """Nobody may exceed the system's limit, here 64 KiB."""

    def setsockopt(self, level: int, name: int, *rest: Any) -> None:
        if name == 33:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if name == socket.SO_RCVBUF:
            rest = (min(rest[0], 1 << 16),)
        super().setsockopt(level, name, *rest)


def test_a_refused_buffer_is_reported() -> None:
    with unicast_inlet(THERE, 0, buffer_bytes=1 << 20, kind=Unprivileged) as inlet:
        assert inlet.buffer_bytes == 1 << 16
    with unicast_inlet(THERE, 0, buffer_bytes=1 << 15) as inlet:
        assert inlet.buffer_bytes >= 1 << 15


# ---- kernels that refuse, queues that are full, peers that are dead


def test_without_segmentation_frames_go_one_by_one_and_it_is_not_tried_again() -> None:
    frames = frames_of(*[500] * 5)
    with unicast_inlet(THERE, 0) as inlet:
        outlet, kernel = scripted_outlet(inlet.endpoint, errno.EIO)
        with outlet:
            outlet.send(frames)
            outlet.send(frames)
            assert kernel.calls == ["burst"] + ["single"] * 10
            assert gather(inlet, 10) == frames * 2
            assert outlet.segmentation.state.startswith("off: ")
            assert outlet.sent.datagrams == 10


def test_segments_beyond_the_mtu_go_one_by_one_and_shorter_ones_still_together() -> None:
    with unicast_inlet(THERE, 0) as inlet:
        outlet, kernel = scripted_outlet(inlet.endpoint, errno.EMSGSIZE)
        with outlet:
            for length in (2000, 2000, 1999):
                outlet.send(frames_of(length, length))
            assert kernel.calls == ["burst", "single", "single", "single", "single", "burst"]
            assert [len(frame) for frame in gather(inlet, 6)] == [2000] * 4 + [1999] * 2
            assert outlet.segmentation.state.startswith("on, up to 1999 bytes: ")


def test_a_full_queue_is_waited_for() -> None:
    with unicast_inlet(THERE, 0) as inlet:
        outlet, kernel = scripted_outlet(inlet.endpoint, errno.EAGAIN, 0, errno.EAGAIN)
        with outlet:
            outlet.send(frames_of(9, 9, 20))
            assert kernel.calls == ["burst", "burst", "single", "single"]
            assert gather(inlet, 3) == frames_of(9, 9, 20)
            assert outlet.unsent == 0


class Full(Scripted):
    """A send buffer that never empties."""

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_a_queue_that_stays_full_costs_datagrams_not_time_without_end() -> None:
    with Outlet(Full(socket.AF_INET, socket.SOCK_DGRAM), (Endpoint(THERE, 9),), patience_ns=100_000) as outlet:
        outlet.send(frames_of(9, 9, 9, 20))
        assert outlet.unsent == 4
        assert outlet.failures == {"EAGAIN": 4}
        assert outlet.sent == Traffic(0, 0)


@pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.ENOBUFS, errno.ENETUNREACH, errno.EPERM])
def test_the_network_never_raises(code: int) -> None:
    with unicast_inlet(THERE, 0) as inlet:
        outlet, _ = scripted_outlet(inlet.endpoint, code, code)
        with outlet:
            outlet.send(frames_of(9, 9, 20))
            outlet.send([b"still here"])
            assert outlet.failures == {errno.errorcode[code]: 3}
            assert outlet.unsent == 3
            assert gather(inlet, 1) == [b"still here"]


def test_a_dead_peer_is_nobodys_business() -> None:
    with unicast_outlet(HERE) as outlet:
        port = free_port()
        for _ in range(3):
            outlet.send_to(Endpoint(THERE, port), frames_of(9, 9))
        assert outlet.unsent == 0


def test_a_failing_read_is_counted_and_leaves_the_loop_alive() -> None:
    class Failing(socket.socket):
        def recvmsg_into(self, *_: Any) -> Any:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

        def recvfrom(self, *_: Any) -> Any:
            raise OSError(errno.ENETDOWN, "Network is down")

    class FailingSingles(Failing, NoAggregates):
        pass

    for kind in (Failing, FailingSingles):
        with unicast_inlet(THERE, 0, kind=kind) as inlet:
            assert inlet.read(BUDGET) == []
            assert inlet.failures == 1


# ---- our own mistakes


def test_an_oversize_frame_names_the_limit_and_nothing_is_sent() -> None:
    with unicast_inlet(THERE, 0) as inlet, unicast_outlet(HERE) as outlet:
        with pytest.raises(LocalProtocolError, match="at most 65507"):
            outlet.send_to(inlet.endpoint, [b"first", bytes(65_508)])
        with pytest.raises(LocalProtocolError, match="at most 65507"):
            outlet.send_to(inlet.endpoint, [bytes(65_508)])
        assert inlet.read(BUDGET) == []


@pytest.mark.parametrize(
    "endpoint", [Endpoint("localhost", 9), Endpoint("::1", 9), Endpoint(HERE, 0), Endpoint(HERE, 65_536)]
)
def test_an_endpoint_is_an_address_and_a_port(endpoint: Endpoint) -> None:
    with unicast_outlet(HERE) as outlet, pytest.raises(LocalProtocolError):
        outlet.send_to(endpoint, [b"x"])
    with pytest.raises(LocalProtocolError):
        fanout_outlet(HERE, [endpoint])


def test_closed_sockets_are_our_own_mistake() -> None:
    with unicast_inlet(THERE, 0) as inlet, unicast_outlet(HERE) as outlet:
        endpoint = inlet.endpoint
    with pytest.raises(LocalProtocolError, match="closed inlet"):
        inlet.read(BUDGET)
    with pytest.raises(LocalProtocolError, match="closed outlet"):
        outlet.send_to(endpoint, [b"x"])


def test_a_taken_port_says_so() -> None:
    with (
        unicast_inlet(THERE, 0) as inlet,
        pytest.raises(TransportError, match=r"cannot listen on 127.*another process"),
    ):
        unicast_inlet(THERE, inlet.endpoint.port)


def test_an_address_of_another_machine_says_so() -> None:
    with pytest.raises(TransportError, match=r"cannot send from 192\.0\.2\.77: .*does not have that address"):
        unicast_outlet("192.0.2.77")
    with pytest.raises(TransportError, match="no interface of this machine"):
        multicast_inlet(GROUP, free_port(), "192.0.2.77")


def test_too_many_sources_name_the_setting() -> None:
    sources = [f"127.0.1.{place}" for place in range(1, 251)]
    with pytest.raises(TransportError, match=r"with 250 sources: .*net\.ipv4\.igmp_max_msf"):
        multicast_inlet(GROUP, free_port(), HERE, sources=sources)


@pytest.mark.parametrize(
    "group, port, interface, told",
    [
        ("10.0.0.1", 9, HERE, "not a multicast group"),
        ("example", 9, HERE, "not an IPv4 address"),
        (GROUP, 9, "eth0", "not an IPv4 address"),
        (GROUP, 65_536, HERE, "a port is in"),
    ],
)
def test_bad_settings_are_told_in_words(group: str, port: int, interface: str, told: str) -> None:
    with pytest.raises(TransportError, match=told):
        multicast_inlet(group, port, interface)
    with pytest.raises(TransportError, match=told):
        multicast_outlet(group, port, interface)


def test_a_ttl_is_a_byte() -> None:
    with pytest.raises(TransportError, match="TTL of 256"):
        multicast_outlet(GROUP, 9, HERE, ttl=256)


def test_listening_only_to_oneself_is_refused() -> None:
    with pytest.raises(TransportError, match="this node itself"):
        multicast_inlet(GROUP, free_port(), HERE, sources=[HERE], deaf_to=HERE)
