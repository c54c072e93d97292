"""§4.4 on the real network: narrow stripes of receivers, within the rates of a modem and of a primary rate line."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, time_ns

import pytest
from tests.interop.narrow import (
    MODEM,
    OURS,
    RECEIVERS,
    Customer,
    archived,
    narrow_market,
    peak_by_due,
    plan_of,
    start,
    tape,
    until_edges,
)
from tests.interop.pcap import needs_tshark, tshark_json, write_pcap
from tests.runtime.worlds import PATIENCE_S, World, eventually, run

from isocast.feeds.mold import parse_packet, request
from isocast.runtime.edge.narrow.choosing import choose
from isocast.runtime.edge.narrow.listener import StripeListener
from isocast.runtime.edge.narrow.places import request_endpoint
from isocast.runtime.edge.narrow.plan_change import PlanChange
from isocast.runtime.market.model import Market
from isocast.security.keys import SecretKey
from isocast.security.repairs import RepairRequest, write_repair_request
from isocast.striping.plan import StripePlan
from isocast.striping.rates import budget_bytes
from isocast.terms.instants import MILLISECOND

PRIMARY_RATE = 1_500_000
SYMBOLS = [f"S{number:02}" for number in range(1, 29)]
WIDE = plan_of(1, {number: (symbol,) for number, symbol in enumerate(SYMBOLS, 1)})
MOVED = plan_of(2, {1: ("S02",), 2: ("S01",), **{number: (f"S{number:02}",) for number in range(3, 29)}})


def customer(market: Market, name: str, plan: StripePlan, **wanted: object) -> Customer:
    seat = market.node(name)
    return Customer(StripeListener(market, seat, choose(market, seat, plan, **wanted)))  # type: ignore[arg-type]


async def offer(world: World, batches: int, first_id: int) -> int:
    """More than every stripe can carry, over some tokens; the next id."""
    for _ in range(batches):
        await world.publish("floor", tape(SYMBOLS, 40 * len(SYMBOLS), first_id))
        first_id += 40 * len(SYMBOLS)
        await asyncio.sleep(0.1)
    return first_id


async def until_equal(market: Market) -> dict[bytes, list[tuple[int, bytes]]]:
    """Wait until all receivers have made the same, which must be the case once nothing more comes."""
    found: list[dict[bytes, list[tuple[int, bytes]]]] = []

    def equal() -> bool:
        found[:] = [archived(market, name) for name in RECEIVERS]
        return found[0] == found[1] == found[2]

    await eventually(equal)
    return found[0]


def check_archive(rows: dict[bytes, list[tuple[int, bytes]]], market: Market) -> None:
    """Numbers from one on without a hole, and no token period above the rate, by scheduled time."""
    period = market.timing.token_period_ns
    for own in rows.values():
        following = 1
        for _, raw in own:
            packet = parse_packet(raw)
            assert packet.sequence == following
            following += packet.count
        assert peak_by_due(own, period) <= budget_bytes(MODEM, period)


def check_cuts(instant: int, rows: dict[bytes, list[tuple[int, bytes]]], *customers: Customer) -> None:
    """What existed at an instant is the same at all, and what the receivers' edges scheduled up to then."""
    for who in customers:
        cut = who.listener.cut(instant)
        assert cut is not None
        for stripe, last in cut.last:
            own = next(own for session, own in rows.items() if int(session[6:], 36) == stripe)
            packets = [parse_packet(raw) for due, raw in own if due // MILLISECOND <= instant // MILLISECOND]
            assert last == packets[-1].sequence + packets[-1].count - 1


def check_tshark(path: Path, who: Customer, port: int) -> None:
    """Session, number and count of each packet that a customer heard, and no complaint."""
    heard = [one for one in who.heard if not one.raw.startswith(OURS)]
    write_pcap(path, [(one.at, "239.1.1.1", port, one.raw) for one in heard])
    shown = tshark_json(path, "-d", f"udp.port=={port},moldudp64", layer="moldudp64")
    assert "invalid" not in str(shown).lower()
    assert len(shown) == len(heard)
    for fields, one in zip(shown, heard, strict=True):
        packet = parse_packet(one.raw)
        assert fields["moldudp64.session"].encode() == packet.session
        assert (int(fields["moldudp64.sequence"]), int(fields["moldudp64.count"])) == (packet.sequence, packet.count)


def check_itchfeed(who: Customer) -> None:
    """A public parser reads every trade that ours read."""
    itchfeed = pytest.importorskip("itch.parser", reason="itchfeed is not installed: pip install itchfeed")
    messages = list(itchfeed.MessageParser().parse_file(io.BytesIO(b"".join(one.body for one in who.packets))))
    trades = {one.match_number for one in messages if one.message_type == b"P"}
    assert trades == set(who.trades)
    assert {one.message_type for one in messages} == {b"L", b"R", b"P"}


@needs_tshark
def test_a_modem_on_one_stripe_and_a_primary_rate_line_on_26(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither exceeds its rate over any token period: offered too much, across a new plan and a killed edge."""

    async def work() -> None:
        async with World(narrow_market(tmp_path, WIDE, patience=1)) as world:
            market = world.market
            period = market.timing.token_period_ns
            await start(world)
            modem = customer(market, "modem", WIDE, rate=MODEM)
            trunk = customer(market, "trunk", WIDE, rate=PRIMARY_RATE, lines=["b"])
            assert (len(modem.listener.chosen.stripes), len(trunk.listener.chosen.stripes)) == (1, 26)
            async with modem.listening(), trunk.listening():
                following = await offer(world, 12, 1)
                killed = (await until_edges(world))["a"]["pid"]
                os.kill(killed, signal.SIGKILL)
                following = await offer(world, 3, following)
                await PlanChange(market).apply(MOVED)
                await offer(world, 6, following)
                instant = time_ns()
                rows = await until_equal(market)
                views = await until_edges(world, plan=2, waiting=0)
                assert views["a"]["pid"] != killed
                check_archive(await until_equal(market), market)
                assert len(rows) == 29 - 1, "nobody spoke on the spare stripe"
                for who, rate in ((modem, MODEM), (trunk, PRIMARY_RATE)):
                    budget = budget_bytes(rate, period)
                    counts = who.listener.counts
                    assert 0.5 * budget < who.listener.peak <= budget, "as the kernel got them"
                    with capsys.disabled():
                        told = f"{len(who.listener.chosen.stripes)} stripes, {counts.total.messages} messages"
                        peak = f"{who.listener.peak} of {budget} bytes in {period / 1e6:g} ms"
                        print(f"\n{rate} b/s: {told}, peak {peak}", end="")  # noqa: T201 - a figure that is asked for
                assert sum(views["b"]["conflated"].values()) > 1_000, "so much was offered"
                assert trunk.listener.counts.total.lost == 0
                # Introductions tell it, once they are proven.
                await eventually(lambda: trunk.listener.plan_version == 2)
                assert modem.listener.counts.total.asked == trunk.listener.counts.total.asked == 0
                same = {packet.sequence: packet for packet in modem.packets}
                mine = {
                    packet.sequence: packet for packet in trunk.packets if packet.session == modem.packets[0].session
                }
                both = same.keys() & mine.keys()
                assert both
                assert all(same[number] == mine[number] for number in both), "lines of a and b"
                await eventually(lambda: modem.listener.cut(instant) and trunk.listener.cut(instant))
                check_cuts(instant, await until_equal(market), modem, trunk)
                check_tshark(tmp_path / "trunk.pcap", trunk, market.edge.port)  # type: ignore[union-attr]
                check_itchfeed(trunk)

    run(work())


FEW = plan_of(1, {1: ("S01",), 2: ("S02",)})


async def asked(where: tuple[str, int], *datagrams: bytes) -> list[bytes]:
    """Answers to requests of a stranger; all of them, once one has come."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
        client.settimeout(0)
        client.connect(where)
        for raw in datagrams:
            client.send(raw)
        answers: list[bytes] = []

        def answered() -> bool:
            with suppress(BlockingIOError):
                while True:
                    answers.append(client.recv(9_000))
            return bool(answers)

        await eventually(answered)
        await asyncio.sleep(0.1)
        answered()
        return answers


def test_repairs_are_multicast_once_for_many_and_only_to_who_has_the_key(tmp_path: Path) -> None:
    """§7.1: retransmissions are multicast, under another key; who only wants the newest never asks."""

    async def work() -> None:
        async with World(narrow_market(tmp_path, FEW, request_rate=10, repair_window="1s")) as world:
            market = world.market
            await start(world)
            desk = customer(market, "desk", FEW, complete=True, lines=["b", "c"])
            trunk = customer(market, "trunk", FEW, complete=True)
            modem = customer(market, "modem", FEW, rate=MODEM)
            desk.losing = set(range(3, 12))
            trunk.losing = modem.losing = {2, 3, 5}
            async with desk.listening(), trunk.listening(), modem.listening():
                await eventually(lambda: all(one.heard for one in (desk, trunk, modem)))
                for place in range(12):
                    await world.publish("floor", tape(["S01", "S02"], 8, 1 + 8 * place))
                    await asyncio.sleep(0.25)
                await eventually(lambda: len(desk.trades) == len(trunk.trades) == 96)
                assert sorted(desk.trades) == sorted(trunk.trades) == list(range(1, 97))
                await eventually(lambda: modem.listener.counts.total.lost)
            server = world.nodes["archive"].host.stripes.repairer  # type: ignore[union-attr]
            lost = [who.listener.counts.total for who in (desk, trunk, modem)]
            assert lost[0].repaired + lost[1].repaired > 0
            assert [one.lost for one in lost[:2]] == [0, 0]
            assert lost[0].repeated > 0, "two lines"
            assert lost[2].asked == 0
            assert server.counts.conflicts == 0
            assert server.counts.repairs > 0
            assert server.counts.coalesced > 0, "once for both"
            await check_strangers(market, modem, server)
            await check_a_small_ring(world)

    run(work())


async def check_a_small_ring(world: World) -> None:
    """Of two members each forgets an empty token in the step that releases it: its plan is followed all the same."""
    await world.kill("c")
    change = PlanChange(world.market)
    await change.apply(plan_of(2, {1: ("S02",), 2: ("S01",)}))
    wanted = {"a": 2, "b": 2}
    async with asyncio.timeout(PATIENCE_S):
        while {name: view["plan"] for name, view in (await change.views()).items()} != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def check_strangers(market: Market, modem: Customer, server: object) -> None:
    """A standard request is answered with the original bytes, within a share; another key is nobody's."""
    counts = server.counts  # type: ignore[attr-defined]
    where = request_endpoint(market, market.node("archive"))
    original = modem.packets[0]
    wanted = request(original.session, original.sequence, original.count)
    (answer,) = await asked(where, wanted)
    assert parse_packet(answer) == original
    desk, began = server.desk.counts, monotonic()  # type: ignore[attr-defined]
    requests, refused = desk.requests, desk.refused
    answered = len(await asked(where, *[wanted] * 100))
    await eventually(lambda: desk.requests >= requests + 100)
    share = 10 * (2 + monotonic() - began)
    assert answered <= share, "ten a second"
    assert desk.refused - refused >= 100 - share
    forged = write_repair_request(SecretKey(bytes(32)), RepairRequest(1 << 17, original.session, 1, 100))
    before, repairs = counts.forged, counts.repairs
    await asked(request_endpoint(market, market.node("a")), wanted)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
        client.sendto(forged, where)
        await eventually(lambda: counts.forged > before)
    assert counts.repairs == repairs
