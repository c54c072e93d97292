"""A node's sockets on loopback: who hears what, by multicast, by source-specific multicast and by fan-out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.worlds import LAYERED, market_file
from tests.wire.samples import DATA, SAMPLES

from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.net.channels import Channels, NodeKeys
from isocast.runtime.net.impairment import InboundImpairment
from isocast.runtime.net.sockets import Endpoint, unicast_outlet
from isocast.runtime.watch.counters import Channel, NodeCounters
from isocast.terms.errors import TransportError
from isocast.terms.ids import NO_EPOCH, Epoch, server_id, source_id
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.codec import PacketKind
from isocast.wire.frame import AUDIENCE, MAGIC, VERSION, Role
from isocast.wire.limits import LINK_BYTES
from isocast.wire.packets import (
    DIGEST_BYTES,
    Data,
    Disclose,
    Invite,
    Packet,
    Pending,
    Receipt,
    ReleasedPacket,
    Repair,
    SourceChain,
    Token,
)

MODES: dict[str, dict[str, object]] = {
    "multicast": {},
    "source-specific": {"source_specific": True},
    "fanout": {"mode": "fanout"},
    "fanout from named senders": {"mode": "fanout", "source_specific": True},
}
CORE_ROLES = {
    NodeRole.PRIMARY_RECEIVER: Role.RECEIVER,
    NodeRole.SECONDARY_RECEIVER: Role.RECEIVER,
    NodeRole.PRIMARY_SOURCE: Role.SOURCE,
    NodeRole.REFORMATION_SERVER: Role.SERVER,
}


class Town:
    """The channels of every node of one market, each with its own counters and keys."""

    def __init__(self, market: Market, stack: ExitStack) -> None:
        self.market = market
        self.counters = {plan.name: NodeCounters() for plan in market.nodes}
        self.channels: dict[str, Channels] = {}
        for plan in market.nodes:
            self.channels[plan.name] = self.open(plan.name)
            stack.callback(self.channels[plan.name].close)

    def open(self, name: str, **more: Any) -> Channels:  # noqa: ANN401
        plan = self.market.node(name)
        keys = load_keys(self.market, plan)
        core = keys.core_ring() if plan.role in CORE_ROLES else None
        return Channels(self.market, plan, plan.node, NodeKeys(core, keys.edge_ring()), self.counters[name], **more)

    def say(self, name: str, *packets: Packet) -> None:
        """Multicast as this node, and let everything out."""
        for packet in packets:
            self.channels[name].multicast(packet)
        self.channels[name].flush()

    def heard(self) -> dict[str, list[Packet]]:
        """What everybody who heard something heard. On loopback a datagram has arrived when it was sent."""
        found = {name: channels.receive(0) for name, channels in self.channels.items()}
        return {name: packets for name, packets in found.items() if packets}

    def refusals(self) -> dict[str, int]:
        """Whoever had to refuse something."""
        sums = {
            name: each.authentication_failures + each.malformed + each.unknown_senders
            for name, each in self.counters.items()
        }
        return {name: count for name, count in sums.items() if count}

    def listeners(self, kind: type[Packet], sender: str) -> list[str]:
        """Who should hear a multicast packet: those of its roles, without the sender."""
        wanted = AUDIENCE[kind]
        return [plan.name for plan in self.market.nodes if CORE_ROLES.get(plan.role) in wanted and plan.name != sender]


def town_of(tmp_path: Path, network: dict[str, object], stack: ExitStack) -> Town:
    return Town(load_market(market_file(tmp_path, LAYERED, settings={"network": network})), stack)


@pytest.fixture(params=list(MODES.values()), ids=list(MODES))
def town(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield town_of(tmp_path, request.param, stack)


@pytest.fixture
def quiet_town(tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield town_of(tmp_path, {}, stack)


def sent_by(packet: Packet, sender: int) -> Packet:
    """The same in stripe 0, from this sender; what it repairs is a message of source 1."""
    if isinstance(packet, Data | Token):
        return replace(packet, stripe=0, sender=sender)
    if isinstance(packet, Repair):
        return packet._replace(stripe=0, sender=sender, item=replace(DATA, stripe=0, sender=source_id(1)))
    return packet._replace(stripe=0, sender=sender)


def receipt(sender: int, number: int) -> Receipt:
    return Receipt(0, Epoch(1, server_id(1)), sender, number, bytes(DIGEST_BYTES))


def released(sender: int, sequence: int) -> ReleasedPacket:
    return ReleasedPacket(0, NO_EPOCH, sender, 1, sequence, 7, 0, sequence, 1, b"payload", b"")


# ---- groups


def test_a_control_packet_is_heard_by_the_roles_it_is_for_and_by_nobody_else(town: Town) -> None:
    for kind in AUDIENCE:
        if kind not in (Data, Disclose, SourceChain):
            sender = "x" if kind is Invite else "b"
            sample = next(packet for packet in SAMPLES.values() if type(packet) is kind)
            packet = sent_by(sample, town.market.node(sender).node)
            town.say(sender, packet)
            assert town.heard() == {name: [packet] for name in town.listeners(kind, sender)}
    assert town.refusals() == {}


def test_messages_are_heard_by_all_receivers_and_nobody_else(town: Town) -> None:
    floor = town.market.node("floor").node
    messages = [Data(0, NO_EPOCH, floor, number, 1, bytes(700)) for number in range(1, 101)]
    town.say("floor", *messages)
    assert town.heard() == dict.fromkeys(["a", "b", "c", "a2"], messages)
    assert town.refusals() == {}


def test_disclosures_and_what_they_wait_for_are_heard_where_keys_are_disclosed(tmp_path: Path) -> None:
    for discloses in (False, True):
        folder = tmp_path / str(discloses)
        folder.mkdir()
        path = market_file(folder, LAYERED)
        if discloses:
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("durability", 'reveal = "chain"\ndurability', 1), encoding="utf-8")
        with ExitStack() as stack:
            town = Town(load_market(path), stack)
            shown = Disclose(0, NO_EPOCH, town.market.node("floor").node, ((1, bytes(LINK_BYTES)),))
            town.say("floor", shown)
            assert town.heard() == ({name: [shown] for name in ("a", "b", "c", "a2")} if discloses else {})
            told = receipt(town.market.node("b").node, 1)
            town.say("b", told)
            assert ("floor" in town.heard()) == discloses
            assert town.refusals() == {}


def test_everybody_hears_everybody_once_and_not_himself(town: Town) -> None:
    for name in ("a", "b", "c", "x"):
        town.say(name, sent_by(SAMPLES[PacketKind.NEWRING], town.market.node(name).node))
    senders = {name: {packet.sender for packet in packets} for name, packets in town.heard().items()}
    own = {name: town.market.node(name).node for name in senders}
    all_four = {town.market.node(name).node for name in ("a", "b", "c", "x")}
    assert senders == {name: all_four - {own[name]} for name in ("a", "b", "c", "a2", "floor", "x")}
    assert sum(each.unaddressed for each in town.counters.values()) == 0


def test_a_line_reaches_those_who_listen_to_it(town: Town) -> None:
    for line, listeners in (
        ("a", {"archive", "fund", "ticker"}),
        ("a2", {"fund"}),
        ("archive", {"bank", "fund", "ticker"}),
    ):
        packets = [released(town.market.node(line).node, sequence) for sequence in range(1, 40)]
        town.channels[line].to_line(packets)
        town.channels[line].flush()
        assert town.heard() == dict.fromkeys(listeners, packets)
    assert town.refusals() == {}


def test_a_node_without_a_line_sends_nothing_to_it(tmp_path: Path) -> None:
    nodes = {**LAYERED, "x": {"role": "reformation-server"}}
    with ExitStack() as stack:
        town = Town(load_market(market_file(tmp_path, nodes)), stack)
        town.channels["x"].to_line([released(1, 1)])
        town.channels["x"].flush()
        assert town.heard() == {}


# ---- one to one


def test_a_direct_packet_reaches_one_node(town: Town) -> None:
    for sender, to, kind in (
        ("a", "b", PacketKind.NACK),
        ("b", "a", PacketKind.REPAIR),
        ("a", "a2", PacketKind.PENDING),
        ("a2", "a", PacketKind.RXREQ),
        ("a", "floor", PacketKind.STANDING),
        ("a", "x", PacketKind.JOIN),
        ("x", "a", PacketKind.INVITE),
        ("bank", "archive", PacketKind.RXREQ),
        ("archive", "bank", PacketKind.RXREP),
    ):
        packet = sent_by(SAMPLES[kind], town.market.node(sender).node)
        town.channels[sender].unicast(town.market.node(to).node, packet)
        town.channels[sender].flush()
        assert town.heard() == {to: [packet]}


def test_a_source_is_found_whatever_its_incarnation(quiet_town: Town) -> None:
    packet = sent_by(SAMPLES[PacketKind.STANDING], quiet_town.market.node("a").node)
    quiet_town.channels["a"].unicast(quiet_town.market.node("floor").node | 12_345, packet)
    quiet_town.channels["a"].flush()
    assert quiet_town.heard() == {"floor": [packet]}


def test_nobody_is_told_what_is_for_nobody_and_it_is_counted(quiet_town: Town) -> None:
    channels, counters = quiet_town.channels["a"], quiet_town.counters["a"]
    for _ in range(3):
        channels.unicast(999, receipt(1, 1))
    channels.flush()
    channels.collect()
    assert quiet_town.heard() == {}
    assert counters.unsent == 3


def test_the_edge_does_not_believe_what_the_core_says_and_the_other_way_round(quiet_town: Town) -> None:
    """A customer has the edge's key alone: it can neither read nor write the core's packets."""
    bank, archive = quiet_town.market.node("bank").node, quiet_town.market.node("archive").node
    quiet_town.channels["bank"].unicast(quiet_town.market.node("a").node, sent_by(SAMPLES[PacketKind.RXREQ], bank))
    quiet_town.channels["bank"].flush()
    quiet_town.channels["a"].unicast(archive, sent_by(SAMPLES[PacketKind.RXREQ], quiet_town.market.node("a").node))
    quiet_town.channels["a"].flush()
    assert quiet_town.heard() == {}
    assert quiet_town.refusals() == {"a": 1, "archive": 1}


# ---- the order of things


def test_control_is_read_before_data(town: Town) -> None:
    floor, b = town.market.node("floor").node, town.market.node("b").node
    messages = [Data(0, NO_EPOCH, floor, number, 1, bytes(900)) for number in range(1, 31)]
    direct, token = sent_by(SAMPLES[PacketKind.NACK], b), receipt(b, 9)
    town.say("floor", *messages)
    town.channels["b"].unicast(town.market.node("a").node, direct)
    town.say("b", token)
    assert town.channels["a"].receive(0) == [token, direct, *messages]


def test_control_leaves_first_then_what_is_for_one_then_the_line(
    quiet_town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, a = quiet_town.channels["a"], quiet_town.market.node("a").node
    left: list[Channel] = []
    monkeypatch.setattr(channels, "_count", lambda channel, _: left.append(channel))
    channels.to_line([released(a, 1)])
    channels.unicast(quiet_town.market.node("b").node, sent_by(SAMPLES[PacketKind.NACK], a))
    channels.multicast(receipt(a, 1))
    channels.flush()
    assert left == [Channel.CONTROL, Channel.DIRECT, Channel.LINE]


def test_what_is_queued_leaves_together_in_order(quiet_town: Town) -> None:
    b = quiet_town.market.node("b").node
    for number in range(1, 200):
        quiet_town.channels["b"].multicast(receipt(b, number))
    assert quiet_town.heard() == {}
    quiet_town.channels["b"].flush()
    heard = quiet_town.heard()["a"]
    assert [packet.held for packet in heard if isinstance(packet, Receipt)] == list(range(1, 200))
    quiet_town.channels["b"].flush()
    assert quiet_town.heard() == {}


def test_packets_and_bytes_are_counted_where_they_leave_and_arrive(quiet_town: Town) -> None:
    b = quiet_town.market.node("b").node
    quiet_town.say("b", receipt(b, 1), receipt(b, 2))
    quiet_town.heard()
    sent, got = quiet_town.counters["b"], quiet_town.counters["a"]
    assert sent.sent_of(PacketKind.RECEIPT) == got.received_of(PacketKind.RECEIPT) == 2
    assert sent.bytes_sent[Channel.CONTROL] == got.bytes_received[Channel.CONTROL] > 0


# ---- what the kernel and the demo lose


def test_what_a_demo_delays_is_due_later(quiet_town: Town) -> None:
    b = quiet_town.market.node("b").node
    quiet_town.channels["a"].close()
    with ExitStack() as stack:
        delayed = quiet_town.open("a", impairment=lambda place: InboundImpairment({b: 5 * MILLISECOND}, place=place))
        stack.callback(delayed.close)
        assert delayed.next_deadline() == NEVER
        quiet_town.say("b", receipt(b, 1))
        assert delayed.receive(1_000) == []
        assert delayed.next_deadline() == 1_000 + 5 * MILLISECOND
        assert delayed.due(delayed.next_deadline() - 1) == []
        assert delayed.due(delayed.next_deadline()) == [receipt(b, 1)]
        assert delayed.next_deadline() == NEVER


def test_what_a_demo_loses_is_counted_apart(quiet_town: Town) -> None:
    b = quiet_town.market.node("b").node
    quiet_town.channels["a"].close()
    with ExitStack() as stack:
        lossy = quiet_town.open("a", impairment=lambda place: InboundImpairment({b: 0}, loss=1.0, place=place))
        stack.callback(lossy.close)
        quiet_town.say("b", *[receipt(b, number) for number in range(1, 11)])
        assert lossy.receive(1_000) == []
        lossy.collect()
    assert quiet_town.counters["a"].injected_losses == 10
    assert quiet_town.refusals() == {}


def test_what_found_no_room_is_counted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        town = town_of(tmp_path, {"receive_buffer": "64KiB"}, stack)
        floor = town.market.node("floor").node
        for first in range(1, 2_001, 100):
            town.say("floor", *[Data(0, NO_EPOCH, floor, first + at, 1, bytes(1_300)) for at in range(100)])
        heard = len(town.channels["a"].receive(0))
        town.channels["a"].collect()
        assert 0 < heard < 2_000
        assert town.counters["a"].kernel_drops[Channel.DATA] > 0


# ---- opening and closing


def test_a_port_that_is_taken_is_an_error_in_words_and_leaves_nothing_open(quiet_town: Town) -> None:
    plan = quiet_town.market.node("a")
    with pytest.raises(TransportError, match=f"cannot listen on {plan.address}:{plan.port}: .*another process"):
        quiet_town.open("a")
    quiet_town.channels["a"].close()
    quiet_town.open("a").close()  # Nothing of the failed attempt holds a port.


def test_nodes_that_share_an_address_hear_each_other(tmp_path: Path) -> None:
    """One machine, one address, three nodes: told apart by their ports and ids."""
    for name, network in MODES.items():
        first, second = tmp_path / name / "first", tmp_path / name / "second"
        first.mkdir(parents=True)
        second.mkdir()
        path = market_file(first, LAYERED, settings={"network": network})
        shared = load_market(path).node("a").address
        nodes = {node: dict(values) for node, values in LAYERED.items()}
        for place, node in enumerate(("a", "b", "x")):
            nodes[node] |= {"address": shared, "port": 7_710 + 4 * place}
        nodes["b"]["tcp_port"] = 7_800
        path = market_file(second, nodes, settings={"network": network})
        with ExitStack() as stack:
            town = Town(load_market(path), stack)
            packet = sent_by(SAMPLES[PacketKind.TOKEN], town.market.node("a").node)
            town.say("a", packet)
            assert town.heard() == {each: [packet] for each in town.listeners(Token, "a")}, name
            assert town.refusals() == {}


# ---- what never was this market's


def hostile(town: Town, name: str, frames: list[bytes], sender: str) -> None:
    plan = town.market.node(name)
    with unicast_outlet(sender) as outlet:
        outlet.send_to(Endpoint(plan.address, plan.port), frames)


@pytest.mark.parametrize("mode, filtered, malformed", [("addresses", 50, 0), ("frames", 40, 10), ("off", 0, 50)])
def test_the_kernel_drops_strangers_and_the_reader_what_is_left(
    tmp_path: Path, mode: str, filtered: int, malformed: int
) -> None:
    with ExitStack() as stack:
        town = Town(load_market(market_file(tmp_path, settings={"network": {"filter": mode}})), stack)
        right = town.market.id + bytes(2)
        # Forty are no frames at all; ten begin like this market's.
        frames = [bytes(60)] * 40 + [MAGIC + bytes((VERSION, 99)) + right + bytes(60)] * 10
        for frame in frames:
            hostile(town, "a", [frame], "127.0.0.99")
        assert town.heard() == {}
        town.channels["a"].collect()
        counters = town.counters["a"]
        # What other programs of this machine overflow may be taken for ours.
        assert (counters.filtered + sum(counters.kernel_drops), counters.malformed) == (filtered, malformed)
        assert counters.refused_by_address == ({("127.0.0.99",): malformed} if malformed else {})


def test_a_flooded_socket_is_read_in_small_portions_until_it_is_sound_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        town = Town(load_market(market_file(tmp_path, settings={"network": {"filter": "off"}})), stack)
        channels = town.channels["a"]
        ear = next(ear for ear in channels._ears if ear.channel is Channel.DIRECT)  # noqa: SLF001
        usual = ear.budget
        for _ in range(10):
            hostile(town, "a", [bytes(60)] * 50, "127.0.0.99")
            channels.receive(0)
        assert ear.budget == usual // 32
        hostile(town, "a", [bytes(60)] * 2_000, "127.0.0.99")
        before = town.counters["a"].malformed
        channels.receive(0)
        portion = town.counters["a"].malformed - before
        assert 0 < portion < 300
        while channels.receive(0) or town.counters["a"].malformed < before + 2_000:
            pass
        site = town.market.node("b").node
        for _ in range(10):
            town.channels["b"].unicast(town.market.node("a").node, Pending(0, Epoch(1, 1), site, 1))
            town.channels["b"].flush()
            assert len(channels.receive(0)) == 1
        assert ear.budget == usual
