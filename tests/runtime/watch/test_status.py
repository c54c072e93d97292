"""What a node says of itself, in virtual time; and what is believed of what another says."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from isocast.runtime.market.model import NodeRole
from isocast.runtime.net.http import Answer
from isocast.runtime.watch.counters import Channel, NodeCounters, NodeGauges, ReleaseMark, packet_slot
from isocast.runtime.watch.http import StatusServer, monitor_pages
from isocast.runtime.watch.metrics import NodeIdentity
from isocast.runtime.watch.status import (
    Alarms,
    Monitor,
    NodeStatus,
    PeerStatus,
    StatusAnswer,
    Target,
    poll,
    reasons_not_ready,
    status_from_json,
)
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.wire.frame import PacketKind

HEALTHY = NodeGauges(epoch="2.1", epoch_number=2, mode="normal", token_age_ns=SECOND, clock_trusted=True)


class Node:
    """A monitor in virtual time."""

    def __init__(self, role: NodeRole = NodeRole.PRIMARY_RECEIVER) -> None:
        self.now_ns = 1_000 * SECOND
        self.counters = NodeCounters()
        self.gauges = replace(HEALTHY)
        self.monitor = Monitor(
            NodeIdentity("london", role, 3, stripe=1, city="London"),
            self.counters,
            lambda: self.gauges,
            read_peers=lambda: [PeerStatus("paris", 0.5, "127.1.0.2", "slow")],
            wall_ns=lambda: self.now_ns + 10**18,
            steady_ns=lambda: self.now_ns,
        )

    def pass_seconds(self, count: int, each: Callable[[], None] = lambda: None) -> None:
        for _ in range(count):
            each()
            self.now_ns += SECOND
            self.monitor.tick()


# ---- rates and quantiles


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    node = Node()

    def fast() -> None:
        node.counters.events_released += 500
        node.counters.packets_received[packet_slot(Channel.DATA, PacketKind.DATA)] += 20
        node.counters.bytes_sent[Channel.CONTROL] += 7

    node.pass_seconds(5, fast)
    rates = node.monitor.status().rates
    assert (rates.over_s, rates.events, rates.packets_received, rates.bytes_sent) == (5, 500, 20, 7)
    node.pass_seconds(5)
    assert node.monitor.status().rates.events == 250
    node.pass_seconds(10)
    assert node.monitor.status().rates.events == 0


def test_ticking_more_often_does_not_shorten_the_window() -> None:
    node = Node()
    for _ in range(100):
        node.now_ns += SECOND // 20
        node.monitor.tick()
    node.counters.events_released += 50
    assert node.monitor.status().rates.over_s == 5
    assert node.monitor.status().rates.events == 10


def test_a_status_before_any_time_has_passed_has_no_rates() -> None:
    assert Node().monitor.status().rates.events == 0


def test_lateness_forgets_what_is_older_than_the_window() -> None:
    node = Node()
    assert node.monitor.status().lateness is None
    node.counters.release_lateness.observe(400 * MILLISECOND, 99)
    node.pass_seconds(1)
    lateness = node.monitor.status().lateness
    assert lateness is not None
    assert (lateness.count, lateness.p50_s, lateness.p99_s) == (99, 0.5, 0.5)
    node.pass_seconds(10)
    node.counters.release_lateness.observe(15_000, 7)
    lateness = node.monitor.status().lateness
    assert lateness is not None
    assert (lateness.count, lateness.p99_s) == (7, 0.00002)


# ---- alive


def test_a_loop_that_stood_still_is_unhealthy_until_that_is_long_past() -> None:
    node = Node()
    node.pass_seconds(3)
    assert node.monitor.unhealthy() == ()
    node.now_ns += 6 * SECOND
    (reason,) = node.monitor.unhealthy()
    assert "did not run for 5.0 s" in reason, "the tick that should come after a second did not"
    node.monitor.tick(lag_ns=5 * SECOND)
    assert node.monitor.unhealthy(), "the lag is remembered"
    assert not node.monitor.status().healthy
    assert not node.monitor.status().ready
    node.pass_seconds(10)
    assert node.monitor.unhealthy()
    node.pass_seconds(1)
    assert node.monitor.unhealthy() == ()


def test_the_worst_lag_between_two_samples_counts() -> None:
    node = Node()
    node.monitor.tick(lag_ns=3 * MILLISECOND)
    node.monitor.tick(lag_ns=1 * MILLISECOND)
    assert node.monitor.status().loop_lag_s == 0.003


# ---- ready


@pytest.mark.parametrize(
    "role, gauges, words",
    [
        (NodeRole.PRIMARY_RECEIVER, HEALTHY, ()),
        (NodeRole.PRIMARY_RECEIVER, NodeGauges(), ("not on a ring yet",)),
        (NodeRole.PRIMARY_RECEIVER, NodeGauges(universe=()), ("joins a market and has received nothing from it",)),
        (NodeRole.PRIMARY_RECEIVER, replace(HEALTHY, mode="sealed"), ("sealed",)),
        (NodeRole.SECONDARY_RECEIVER, replace(HEALTHY, mode="catchup"), ("catching up",)),
        (NodeRole.PRIMARY_RECEIVER, replace(HEALTHY, clock_trusted=False), ("the clock is proven outside",)),
        (NodeRole.PRIMARY_RECEIVER, replace(HEALTHY, clock_synchronised=False), ()),
        (NodeRole.PRIMARY_RECEIVER, replace(HEALTHY, token_age_ns=11 * SECOND), ("no token for 11.0 s",)),
        (
            NodeRole.PRIMARY_RECEIVER,
            NodeGauges(clock_trusted=False),
            ("not on a ring yet", "the clock is proven outside"),
        ),
        (NodeRole.PRIMARY_RECEIVER, replace(HEALTHY, edge_waits="the process of its narrow"), ("the process of its",)),
        (NodeRole.PRIMARY_SOURCE, NodeGauges(token_age_ns=0), ()),
        (NodeRole.PRIMARY_SOURCE, NodeGauges(), ("no token has arrived yet",)),
        (NodeRole.PRIMARY_SOURCE, NodeGauges(token_age_ns=10 * SECOND + 1), ("no token for 10.0 s",)),
        (NodeRole.SECONDARY_SOURCE, NodeGauges(parent_answers=True), ()),
        (NodeRole.SECONDARY_SOURCE, NodeGauges(parent_answers=False), ("its parent does not answer",)),
        (NodeRole.REFORMATION_SERVER, NodeGauges(), ()),
        (NodeRole.RETRANSMIT_SERVER, NodeGauges(), ()),
        (NodeRole.CUSTOMER, NodeGauges(lines_heard=1), ()),
        (NodeRole.CUSTOMER, NodeGauges(lines_heard=0), ("no packets on any line",)),
        (NodeRole.CUSTOMER, NodeGauges(), ("no packets on any line",)),
    ],
)
def test_a_role_is_ready_when_it_can_do_its_work(role: NodeRole, gauges: NodeGauges, words: tuple[str, ...]) -> None:
    reasons = reasons_not_ready(role, gauges)
    assert len(reasons) == len(words)
    for reason, word in zip(reasons, words, strict=True):
        assert reason.startswith(word)


@pytest.mark.parametrize("role, key", [(NodeRole.CUSTOMER, "edge.key"), (NodeRole.PRIMARY_RECEIVER, "core.key")])
def test_whoever_hears_only_forgeries_is_told_to_look_at_its_key(role: NodeRole, key: str) -> None:
    first, *others = reasons_not_ready(role, NodeGauges(), forged=7)
    assert first.startswith(f"7 packets arrived with a tag that {key} did not make")
    assert others == list(reasons_not_ready(role, NodeGauges()))


def test_forgeries_do_not_keep_a_node_from_its_work() -> None:
    assert not reasons_not_ready(NodeRole.PRIMARY_RECEIVER, HEALTHY, forged=7)


def test_patience_with_the_token_is_the_markets() -> None:
    gauges = NodeGauges(token_age_ns=30 * SECOND)
    assert reasons_not_ready(NodeRole.PRIMARY_SOURCE, gauges)
    assert not reasons_not_ready(NodeRole.PRIMARY_SOURCE, gauges, patience_ns=60 * SECOND)


# ---- alarms


def test_alarms_are_distinct_and_remember_when() -> None:
    node = Node()
    assert node.monitor.alarm("disk-full", "the journal took no more", "make room")
    node.pass_seconds(2)
    assert not node.monitor.alarm("disk-full", "the journal took no more: 3 MB", "make room")
    node.pass_seconds(1)
    assert node.monitor.alarm("slow-customer", "tokyo-desk does not read", "look at it")
    slow, disk = node.monitor.status().alarms
    assert (slow.code, slow.count, slow.first_ns) == ("slow-customer", 1, slow.last_ns)
    assert (disk.count, disk.text, disk.last_ns - disk.first_ns) == (2, "the journal took no more: 3 MB", 2 * SECOND)
    assert node.monitor.reading().alarms == 3


def test_alarms_fill_no_memory() -> None:
    alarms = Alarms()
    for number in range(1_000):
        alarms.raise_alarm(f"code-{number}", "x", "y", number)
    assert [alarm.code for alarm in alarms.list()] == [f"code-{number}" for number in range(999, 935, -1)]
    assert alarms.total == 1_000


# ---- to JSON and back


def full_status() -> NodeStatus:
    node = Node()
    node.counters.packets_sent[packet_slot(Channel.DIRECT, PacketKind.NACK)] = 2
    node.counters.kernel_drops[Channel.DATA] = 4
    node.counters.release_lateness.observe(15_000, 3)
    node.counters.release_marks.append(ReleaseMark(7, 70, 123))
    node.gauges.ring = ("london", "paris")
    node.monitor.alarm("code", "text", "remedy")
    node.now_ns += SECOND
    return node.monitor.status()


def test_a_status_survives_its_journey() -> None:
    status = full_status()
    assert status_from_json(json.loads(json.dumps(status.as_json()))) == status
    assert status.packets_sent == {"direct NACK": 2}
    assert status.kernel_drops["data"] == 4
    assert status.totals["nacks_sent_total"] == 2
    assert status.peers[0].note == "slow"


def test_a_newer_or_older_node_is_understood() -> None:
    assert status_from_json({"name": "x", "role": "customer", "node_id": 1, "novelty": [1]}).name == "x"


@pytest.mark.parametrize(
    "change, where",
    [
        ({"name": None}, "status.name"),
        ({"node_id": "3"}, "status.node_id"),
        ({"node_id": True}, "status.node_id"),
        ({"node_id": 1 << 64}, "status.node_id"),
        ({"uptime_s": float("nan")}, "status.uptime_s"),
        ({"uptime_s": float("inf")}, "status.uptime_s"),
        ({"uptime_s": 10**400}, "status.uptime_s"),
        ({"ready": 1}, "status.ready"),
        ({"gauges": []}, "status.gauges"),
        ({"gauges": {"held_token": 1.5}}, "status.gauges.held_token"),
        ({"alarms": [{}]}, r"status.alarms\[0\].code"),
        ({"alarms": [0] * 5_000}, "status.alarms"),
        ({"totals": {"x": "y"}}, "status.totals.x"),
    ],
)
def test_a_status_of_the_wrong_shape_is_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"^{where}"):
        status_from_json(json.loads(json.dumps(full_status().as_json())) | change)


@pytest.mark.parametrize("value", [None, [], 3, "x", {}])
def test_what_is_no_status_is_refused(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^status"):
        status_from_json(value)


def test_a_name_commands_no_terminal() -> None:
    status = status_from_json({"name": "a\x1b[2Jb\r\n" + "c" * 1_000, "role": "customer", "node_id": 1})
    assert status.name.startswith("a�[2Jb��ccc")
    assert len(status.name) == 400


# ---- asking


def asked(pages: dict[str, Callable[[], Answer]], *, seconds: float = 20.0) -> StatusAnswer:
    async def play() -> StatusAnswer:
        server = StatusServer(pages, NodeCounters())
        await server.start()
        try:
            (answer,) = await poll([Target("127.0.0.1", server.port, "london")], seconds=seconds)
        finally:
            await server.stop()
        return answer

    return asyncio.run(play())


def test_a_node_answers() -> None:
    answer = asked(monitor_pages(Node().monitor))
    assert answer.status is not None
    assert answer.status.name == "london"
    assert answer.status.gauges == HEALTHY


@pytest.mark.parametrize(
    "page, trouble",
    [
        (lambda: Answer(b"[]"), "not a status: status"),
        (lambda: Answer(b"hello"), "not a status: Expecting value"),
        (lambda: Answer(b"[" * 200_000), "not a status: "),
        (lambda: Answer(b" " * (2 << 20)), "not a status: the answer is too long"),
        (lambda: Answer(b"\xff\xfe{"), "not a status: "),
    ],
)
def test_a_liar_is_no_node(page: Callable[[], Answer], trouble: str) -> None:
    answer = asked({"/statusz": page})
    assert answer.status is None
    assert answer.trouble.startswith(trouble)


def test_another_server_is_no_node() -> None:
    assert asked({}).trouble == "not a status: HTTP/1.1 404 Not Found"


def test_nobody_there_is_an_answer_too() -> None:
    (answer,) = asyncio.run(poll([Target("127.0.0.1", 1)]))
    assert (answer.status, answer.trouble, answer.target.title) == (None, "Connection refused", "127.0.0.1:1")


def test_somebody_who_never_answers_holds_up_nobody_else() -> None:
    async def play() -> list[StatusAnswer]:
        held: list[asyncio.StreamWriter] = []
        mute = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
        server = StatusServer(monitor_pages(Node().monitor), NodeCounters())
        await server.start()
        try:
            targets = [Target("127.0.0.1", mute.sockets[0].getsockname()[1]), Target("127.0.0.1", server.port)]
            return await poll(targets, seconds=2.0)
        finally:
            await server.stop()
            mute.close()
            for writer in held:
                writer.transport.abort()

    first, second = asyncio.run(play())
    assert first.trouble == "no answer within 2 s"
    assert second.status is not None
