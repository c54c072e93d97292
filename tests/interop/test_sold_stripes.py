"""Narrow stripes that are signed, and sold: who reads them, and what whoever can write to their groups achieves."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from secrets import token_bytes
from time import time_ns

import pytest
from tests.interop.narrow import Customer, archived, narrow_market, plan_of, start, tape
from tests.interop.packages import Given, sold, write_package
from tests.runtime.edge.narrow.edge_worlds import block
from tests.runtime.worlds import World, eventually, run
from tests.striping.edge_streams import part_of_payloads

from isocast.feeds.mold import end_of_session, heartbeat, packet_of, parse_packet
from isocast.runtime.disk.journal import Journal
from isocast.runtime.edge.narrow.choosing import choose
from isocast.runtime.edge.narrow.ears import Heard
from isocast.runtime.edge.narrow.listener import StripeListener
from isocast.runtime.edge.narrow.places import groups_of, proof_groups_of, repair_groups_of
from isocast.runtime.edge.narrow.service import EdgeService, TokenPassed, edge_settings
from isocast.runtime.edge.narrow.stripe_keys import period_instant
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, SubscriptionTable
from isocast.runtime.market.roster_files import load_roster
from isocast.runtime.net.sockets import multicast_inlet
from isocast.security.line_seals import BoughtKeys
from isocast.security.stripe_seals import StripeSealer
from isocast.security.subscriptions import BASE, period_of, stripe_service
from isocast.striping.engine import StripeEngine, StripePacket
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

FEW = plan_of(1, {1: ("S01",), 2: ("S02",)})
SELLS = {"subscriptions": {"enabled": True, "period": "1h"}}
HOUR = 3_600 * SECOND
FALSE = 666_666
"""The number of a trade that nobody made."""


def keys_now(market: Market, *services: str) -> Given:
    """Paid for the hour that was, is, and comes."""
    now = period_of(time_ns(), market.subscriptions.period_ns)
    return Given(sold(market, *services, periods=(now - 1, now, now + 1)))


def customer(
    market: Market,
    name: str,
    package: Given | None = None,
    *,
    told: list[str] | None = None,
    symbols: Iterable[str] = ("S01",),
    **wanted: object,
) -> Customer:
    seat = market.node(name)
    chosen = choose(market, seat, FEW, symbols=symbols, **wanted)  # type: ignore[arg-type]
    said = [] if told is None else told
    return Customer(StripeListener(market, seat, chosen, subscription=package, told=said.append))


async def offer(world: World, trades: int, first: int = 1) -> None:
    """So many trades of each symbol, over some tokens."""
    for number in range(first, first + 2 * trades, 2):
        await world.publish("floor", tape(["S01", "S02"], 2, number))
        await asyncio.sleep(0.05)


# ---- who may receive


def eavesdropped(market: Market) -> list[socket.socket]:
    """Every group of the stripes, of their proofs and of their repairs."""
    edge, interface = market.edge, market.node("trunk").address
    assert edge is not None
    line, server = market.node("a"), market.node("archive")
    groups = [*groups_of(market, line, FEW.stripes), *proof_groups_of(market, line, FEW.stripes)]
    groups += repair_groups_of(market, server, FEW.stripes)
    return [multicast_inlet(group, edge.port, interface) for group in groups]  # type: ignore[misc]


async def command(config: Path, *options: str) -> tuple[int, list[dict[str, object]], str]:
    """`isocast edge listen` as a person starts it: its exit code, what it printed, and what it said."""
    words = ("edge", "listen", "--config", str(config), "--name", "modem", "--symbols", "S01", "--json", *options)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "isocast", *words, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return process.returncode or 0, [json.loads(line) for line in out.splitlines()], err.decode()


async def check_command(world: World, folder: Path) -> None:
    """With a package it prints trades; with one of other services, or none, it says what to do."""
    market = world.market
    package, secret = write_package(folder, market, "buyer", keys_now(market, "stripe:1").keys._keys.values())  # noqa: SLF001
    given = ("--package", str(package), "--secret-file", str(secret))
    listening = asyncio.create_task(command(world.path, *given, "--seconds", "30", "--count", "6"))
    following = 10_001
    while not listening.done():
        await offer(world, 2, following)
        following += 4
    code, rows, said = await listening
    assert code == 0, said
    events, counts = rows[:-1], rows[-1]["counts"]
    assert {row["stripe"] for row in events} == {1}
    assert any(row["symbol"] == "S01" for row in events)
    assert isinstance(counts, dict)
    assert (counts["forged"], counts["unpaid"]) == (0, 0)
    package, secret = write_package(folder, market, "other", keys_now(market, BASE, "stripe:2").keys._keys.values())  # noqa: SLF001
    code, rows, said = await command(world.path, "--package", str(package), "--secret-file", str(secret))
    assert (code, rows) == (2, [])
    assert "has none of stripe:1: buy one of them" in said
    code, rows, said = await command(world.path)
    assert (code, rows) == (2, [])
    assert "isocast subscribe fetches a package" in said


def lose(who: Customer, places: set[int]) -> None:
    """Some datagrams, packets or proofs, do not come."""
    came = count()

    def dropped(heard: Heard) -> bool:
        if next(came) in places:
            return True
        who.heard.append(heard)
        return False

    who.listener._drop = dropped  # noqa: SLF001 - a network that loses is not part of it


def test_who_bought_a_stripe_reads_it_and_its_repairs_and_nobody_else_anything(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(narrow_market(tmp_path, FEW, SELLS, seal="sold", prove_every="200ms")) as world:
            market = world.market
            await start(world)
            desk = customer(market, "desk", keys_now(market, "stripe:1"), complete=True)
            past = Given(sold(market, "stripe:1", periods=(period_of(time_ns(), HOUR) - 9,)))
            told: list[str] = []
            trunk = customer(market, "trunk", past, told=told)
            lose(desk, {9, 17, 18})
            ears = eavesdropped(market)
            async with desk.listening(), trunk.listening():
                await eventually(lambda: desk.heard)
                await offer(world, 40)
                await eventually(lambda: len(desk.trades) == 40)
                await eventually(lambda: trunk.listener.counts.unpaid > 10)
            assert desk.trades == list(range(1, 81, 2))
            assert (desk.listener.counts.unpaid, desk.listener.counts.forged) == (0, 0)
            assert (trunk.batches, trunk.listener.counts.total.messages) == ([], 0)
            assert [text for text in told if "stripe 1 was paid for until" in text]
            frames = [frame for ear in ears for frame in ear.read(1 << 22)]  # type: ignore[attr-defined]
            for ear in ears:
                ear.close()
            assert len(frames) > 40
            assert all(frame.startswith(b"ICSS") for frame in frames)
            assert not [frame for frame in frames if b"S01" in frame or b"XNYS" in frame]
            await check_command(world, tmp_path)

    run(work())


def test_without_the_keys_of_a_stripe_nobody_begins(tmp_path: Path) -> None:
    market = load_market(narrow_market(tmp_path, FEW, SELLS, seal="sold"))
    told: list[str] = []

    async def work() -> None:
        with pytest.raises(ConfigurationError, match="isocast subscribe fetches a package"):
            customer(market, "desk")
        other = customer(market, "desk", keys_now(market, BASE, "stripe:2"))
        with pytest.raises(ConfigurationError, match="has none of stripe:1: buy one of them"):
            async with other.listening():
                pass
        both = customer(market, "desk", keys_now(market, "stripe:2"), told=told, symbols=("S01", "S02"))
        async with both.listening():
            assert [stripe.number for stripe in both.listener.chosen.stripes] == [2]
        assert told == ["desk.package has no stripe:1: only the others are heard"]

    run(work())


# ---- periods


PERIOD = 4 * SECOND


class Edge:
    """Receiver a's edge in this process, with a journal that a test writes: periods may be shorter than a file's."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.alarms: list[tuple[str, str, str]] = []
        self.service = EdgeService(market, market.node("a"), time_ns, lambda *said: self.alarms.append(said))
        self.token = 0

    async def tell(self, until: int) -> None:
        """A trade of each symbol in each token, when it is released."""
        timing, first = self.market.timing, time_ns()
        with Journal.open(self.market.directory_of("a") / "journal", 0, 1) as journal:
            while (instant := first + self.token * timing.token_period_ns) < until:
                wait = instant + timing.release_delay_ns - time_ns()
                await asyncio.sleep(max(wait, 0) / SECOND)
                self.token += 1
                events = tape(["S01", "S02"], 2, 2 * self.token - 1)
                journal.append(block(self.token, self.token, events, instant))
                self.service.wake(TokenPassed(self.token, instant, self.token + 1))

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.service.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            self.service.close()


def numbers_by_period(market: Market) -> dict[int, list[int]]:
    """Of stripe 1: what is of which period."""
    found: dict[int, list[int]] = {}
    for session, rows in archived(market, "a").items():
        for due, raw in rows if int(session[6:], 36) == 1 else ():
            packet = parse_packet(raw)
            own = found.setdefault(period_of(period_instant(market, due), PERIOD), [])
            own += range(packet.sequence, packet.sequence + packet.count)
    return found


def numbers_of(who: Customer) -> list[int]:
    return [number for batch in who.batches for number in range(batch.first, batch.last + 1)]


@pytest.mark.parametrize("prove_every", ["100ms", "1s"])
def test_who_renews_sees_no_gap_and_who_does_not_reads_to_the_end_of_its_period_and_nothing_after(
    tmp_path: Path, prove_every: str
) -> None:
    async def work() -> None:
        file = load_market(narrow_market(tmp_path, FEW, SELLS, seal="sold", prove_every=prove_every))
        market = replace(file, subscriptions=SubscriptionTable(enabled=True, period_ns=PERIOD))
        edge = Edge(market)
        # The first whole period to come.
        first = period_of(time_ns(), PERIOD) + 1
        renews = Given(sold(market, "stripe:1", periods=(first - 1, first)))
        told: list[str] = []
        staying = customer(market, "desk", renews)
        leaving = customer(market, "trunk", Given(sold(market, "stripe:1", periods=(first - 1, first))), told=told)
        coming = customer(market, "modem", Given(sold(market, "stripe:1", periods=(first + 1, first + 2))))
        async with edge.sending(), staying.listening(), leaving.listening(), coming.listening():
            telling = asyncio.create_task(edge.tell((first + 2) * PERIOD + SECOND))
            await eventually(lambda: period_of(time_ns(), PERIOD) > first - 1)
            # What is renewed before it is over has no gap.
            renews.keys.add(sold(market, "stripe:1", periods=(first + 1, first + 2)))
            await telling
            await eventually(lambda: edge.token * 2 - 1 in staying.trades)
        made = numbers_by_period(market)
        assert set(made) >= {first, first + 1, first + 2}
        every = [number for period in sorted(made) for number in made[period]]
        assert numbers_of(staying) == every
        assert (staying.listener.counts.unpaid, staying.listener.counts.total.lost) == (0, 0)
        assert numbers_of(leaving) == [number for number in every if number <= made[first][-1]]
        assert numbers_of(coming) == [number for number in every if number >= made[first + 1][0]]
        assert leaving.listener.counts.unpaid > 0
        assert coming.listener.counts.unpaid > 0
        assert len([text for text in told if "stripe 1 was paid for until" in text]) == 1
        for who in (staying, leaving, coming):
            assert (who.listener.counts.forged, who.listener.counts.unproven) == (0, 0)
        assert edge.alarms == []

    run(work())


# ---- who may add


class Paying(BoughtKeys):
    """The keys of a customer that uses them to send."""

    length_ns = HOUR


class Forger:
    """Whoever can write to a stripe's group from the address of its sender; it has what a customer has."""

    def __init__(self, market: Market) -> None:
        self._market, self._node = market, market.node("a")
        self._sealer: StripeSealer | None = None
        if market.seals_stripes:
            keys = Paying(keys_now(market, "stripe:1").keys._keys.values())  # noqa: SLF001
            named = load_roster(market).market
            self._sealer = StripeSealer(keys, named, self._node.node, token_bytes(4), time_ns())  # type: ignore[arg-type]

    def send(self, *datagrams: bytes, address: str = "", sealed: bool = True) -> None:
        edge = self._market.edge
        assert edge is not None
        where = edge.group(self._node.number, 1), edge.port
        sender = address or self._node.address
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as out:
            out.bind((sender, 0))
            out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sender))
            for raw in datagrams:
                own = self._sealer if sealed else None
                out.sendto(raw if own is None else own.seal(1, time_ns(), raw), where)

    def trade(self, session: bytes, number: int) -> bytes:
        """A trade that nobody made, as the edge would have packed it."""
        engine = StripeEngine(FEW, 0, edge_settings(self._market))
        payload = tape(["S01"], 1, FALSE).tobytes()
        made = engine.step(part_of_payloads(1, time_ns(), 1, 0, 1, [payload]))
        packet = next(one for one in made if isinstance(one, StripePacket))
        parsed = parse_packet(packet.raw)
        return packet_of(session, number, parsed.count, parsed.body)


def session_of(market: Market) -> bytes:
    return next(name for name in archived(market, "a") if int(name[6:], 36) == 1)


async def forge(world: World, desk: Customer, forger: Forger) -> None:
    """Contents under the numbers that come, before and behind the genuine ones, heartbeats and ends of sessions."""
    await offer(world, 3)
    await eventually(lambda: desk.trades)
    name = session_of(world.market)
    for _ in range(8):
        top = max(parse_packet(raw).sequence for _, raw in archived(world.market, "a")[name])
        forger.send(*[forger.trade(name, number) for number in range(max(top - 3, 1), top + 12)])
        forger.send(heartbeat(name, top + 900), end_of_session(name, top))
        await offer(world, 2, 1 + 2 * 3 + 4 * _)


@pytest.mark.parametrize("seal", [pytest.param("never", marks=pytest.mark.long), "sold"])
def test_a_forger_on_the_group_of_a_stripe_is_dropped_packet_by_packet_counted_and_named(
    tmp_path: Path, seal: str
) -> None:
    async def work() -> None:
        settings = SELLS if seal == "sold" else {}
        async with World(narrow_market(tmp_path, FEW, settings, seal=seal, prove_every="200ms")) as world:
            market = world.market
            await start(world)
            told: list[str] = []
            bought = keys_now(market, stripe_service(1)) if market.seals_stripes else None
            desk, forger = customer(market, "desk", bought, told=told), Forger(market)
            async with desk.listening():
                await eventually(lambda: desk.heard)
                await forge(world, desk, forger)
                await eventually(lambda: len(desk.trades) == 19)
                counts = desk.listener.counts
                await eventually(lambda: counts.forged >= 19)
                assert desk.trades == list(range(1, 39, 2)), "nothing else, and nothing twice"
                assert counts.total.lost == 0, "no heartbeat announced what nobody made"
                assert [text for text in told if "in the name of a is forged: it is dropped" in text]
                check_strangers(market, desk, forger)

    run(work())


def check_strangers(market: Market, desk: Customer, forger: Forger) -> None:
    """From another address the kernel drops it; without the seal, where there is one, it is strange, or filtered."""
    counts, listener = desk.listener.counts, desk.listener
    listener.collect()
    before = counts.filtered
    forger.send(*[forger.trade(b"2611160001", number) for number in range(50)], address=market.node("trunk").address)
    listener.collect()
    assert counts.filtered >= before + 50
    if market.seals_stripes:
        forger.send(*[heartbeat(b"2611160001", 1)] * 50, sealed=False)
        listener.collect()
        assert counts.filtered >= before + 100, "it has another magic"


def test_without_proofs_the_same_forger_adds_trades_and_announces_what_nobody_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocast.runtime.edge.narrow.listener.proof_check", lambda *_: None)

    async def work() -> None:
        async with World(narrow_market(tmp_path, FEW, prove_every="200ms")) as world:
            await start(world)
            desk, forger = customer(world.market, "desk"), Forger(world.market)
            async with desk.listening():
                await eventually(lambda: desk.heard)
                await forge(world, desk, forger)
                await eventually(lambda: FALSE in desk.trades and desk.listener.counts.total.lost > 100)

    run(work())
