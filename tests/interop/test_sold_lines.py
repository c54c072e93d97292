"""A market that sells its lines, attacked on real sockets: each attack succeeds without its defence, and fails with it.

The attacker listens on the groups, and may have paid: then it has every key that a customer has.

| attack | build without | what names it |
|---|---|---|
| listening without a package | a market that sells nothing | nobody notices a listener |
| keys of a period that is over, for those of today | periods | authentication_failures, at the listener |
| another's package, with a secret of one's own | secrets of packages | one sentence, at the finder |
| a message before or behind the genuine one, a repair, a heartbeat, in a line's name | proofs | forged, an alarm |
| a repair that was changed on its way | proofs and seals of lines | authentication_failures |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes
from time import time_ns

import pytest
from tests.interop.ears import Ear
from tests.interop.packages import Given, sold, write_package
from tests.interop.weakened import without
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.client.listener import Listener
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import SubscriptionTable
from isocast.runtime.market.subscription import Subscription, secret_of_file
from isocast.runtime.net.sockets import multicast_outlet
from isocast.security.line_seals import BoughtKeys, LineSealer
from isocast.security.packages import write_secret
from isocast.security.subscriptions import BASE, HISTORY, REPAIR, period_of
from isocast.terms.errors import IsocastError, PackageError
from isocast.terms.ids import Epoch, server_id
from isocast.terms.instants import SECOND
from isocast.wire.codec import line_parts
from isocast.wire.limits import TAG_BYTES
from isocast.wire.packets import ReleasedPacket

NODES = {name: node for name, node in SMALL.items() if name != "bank"}
SELLS = {"subscriptions": {"enabled": True, "period": "1h"}}
LATER = Epoch(1, server_id(1))
MARK = b"ISOCASTX"


def selling(tmp_path: Path, period_ns: int = 3_600 * SECOND) -> World:
    """A market of sealed lines, with periods as short as a test wants them."""
    world = World(market_file(tmp_path, NODES, settings=SELLS))
    world.market = replace(world.market, subscriptions=SubscriptionTable(enabled=True, period_ns=period_ns))
    return world


def bought(world: World, *services: str) -> Given:
    return Given(sold(world.market, *(services or (BASE, REPAIR))))


class Paying(BoughtKeys):
    """The keys of a customer that uses them to send."""

    length_ns = 0


def forger(world: World, name: str, service: str = BASE) -> LineSealer:
    """Seals in the name of a line's owner, with no more than what any customer has."""
    market = world.market
    keys = Paying(sold(market, service))
    keys.length_ns = market.subscriptions.period_ns
    roster = load_keys(market, market.node("a")).roster
    assert roster is not None
    delay_ns = market.timing.release_delay_ns
    return LineSealer(keys, roster.market, market.node(name).node, service, delay_ns, token_bytes(4), time_ns())  # type: ignore[arg-type]


def send(world: World, name: str, frame: bytes) -> None:
    """From the address of the line's owner, as who can forge addresses does: filters of addresses let it through."""
    plan = world.market.node(name)
    outlet = multicast_outlet(world.market.line_group(name), world.market.network.port, plan.address)
    try:
        outlet.send([frame])
    finally:
        outlet.close()


def forge(world: World, listener: Listener, sequence: int, service: str = BASE, count: int = 1) -> None:
    """A message, or a heartbeat, in the name of the owner of one of the listener's lines."""
    name = "archive" if service == REPAIR else listener.plan.lines[0]
    node, now = world.market.node(name).node, time_ns()
    payload = trades(1, 666).tobytes() if count else b""
    packet = ReleasedPacket(0, LATER, node, 1, sequence, now, 0, sequence, count, payload, b"")
    send(world, name, forger(world, name, service).seal(packet, world.market.id))


class Heard:
    """A listener whose ids are collected as they come."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.ids: list[int] = []
        self.error: Exception | None = None

    async def collect(self) -> None:
        try:
            async for batch in self.listener:
                self.ids += [int(number) for number in batch.events["id"]]
        except IsocastError as reason:
            self.error = reason


def ear(world: World, frames: list[bytes], *names: str) -> Ear:
    """Whoever is on the network: every frame of some lines."""
    market = world.market
    groups = [market.line_group(name) for name in names]
    return Ear(market, market.node("c").address, groups, lambda _, frame: frames.append(frame))


def alarms(listener: Listener) -> list[str]:
    return [alarm.code for alarm in listener.alarms.list()]


def story(
    tmp_path: Path, attack: Callable[[World, Heard], object], *, period_ns: int = 3_600 * SECOND, start: str = "now"
) -> None:
    """A market that sells, a customer that paid, and what happens then."""

    async def work() -> None:
        async with selling(tmp_path, period_ns) as world:
            await world.start()
            async with Listener(world.market, subscription=bought(world), start=start) as listener:
                heard = Heard(listener)
                task = asyncio.create_task(heard.collect())
                await eventually(lambda: listener.silence() is None and listener.snapshot().joined)
                await attack(world, heard)  # type: ignore[misc]
            await task

    run(work())


# ---- who may receive


def test_who_paid_hears_everything_and_who_listens_in_nothing(tmp_path: Path) -> None:
    async def listen(world: World, heard: Heard) -> None:
        frames: list[bytes] = []
        with ear(world, frames, "a", "b", "c"):
            await world.publish("floor", trades(54, symbols=(MARK,)))
            await eventually(lambda: len(heard.ids) == 54)
        assert heard.ids == list(range(1, 55))
        assert len(frames) > 10
        assert not [frame for frame in frames if MARK in frame]
        assert heard.listener.counters.unpaid == 0

    story(tmp_path, listen)


def test_in_a_market_that_sells_nothing_the_same_ear_reads_along(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start()
            frames: list[bytes] = []
            with ear(world, frames, "a", "b", "c"):
                await world.publish("floor", trades(54, symbols=(MARK,)))
                await eventually(lambda: [frame for frame in frames if MARK in frame])

    run(work())


def test_without_a_package_nobody_listens_and_is_told_what_to_do(tmp_path: Path) -> None:
    async def work() -> None:
        async with selling(tmp_path) as world:
            with pytest.raises(IsocastError, match="sells its lines: give the package that isocast subscribe fetched"):
                async with Listener(world.market):
                    pass
            with pytest.raises(IsocastError, match="has no repairs, and every message is wanted: buy repair"):
                async with Listener(world.market, subscription=bought(world, BASE)):
                    pass

    run(work())


async def overheard(world: World, package: Subscription) -> Heard:
    """Whatever a listener with these keys makes of 27 messages."""
    async with Listener(world.market, subscription=package) as listener:
        heard = Heard(listener)
        task = asyncio.create_task(heard.collect())
        heard_of = listener.counters
        await world.publish("floor", trades(27))
        await eventually(lambda: heard.ids[-1:] == [27] or heard_of.authentication_failures >= 27)
    await task
    return heard


@pytest.mark.parametrize("defence", ["periods", ""])
def test_keys_of_a_period_that_is_over_open_nothing_of_this_one(tmp_path: Path, defence: str) -> None:
    """Who was a customer nine hours ago says that its keys are today's."""

    async def work() -> None:
        async with selling(tmp_path) as world:
            await world.start()
            now = period_of(time_ns(), 3_600 * SECOND)
            old = {key.service: key.key for key in sold(world.market, BASE, REPAIR, periods=(now - 9,))}
            today = sold(world.market, BASE, REPAIR, periods=(now, now + 1))
            heard = await overheard(world, Given([key._replace(key=old[key.service]) for key in today]))
            assert heard.ids == (list(range(1, 28)) if defence else [])

    with without(defence) if defence else nullcontext():
        run(work())


@pytest.mark.parametrize("defence", ["secrets of packages", ""])
def test_a_found_package_is_no_use_without_its_secret(tmp_path: Path, defence: str) -> None:
    """Whoever found it may have paid for something too: the secret is that of another package."""

    async def work() -> None:
        async with selling(tmp_path) as world:
            await world.start()
            market = world.market
            found, secret = write_package(tmp_path, market, "desk", sold(market, BASE, REPAIR))
            secret.write_text(write_secret(token_bytes(16)), encoding="utf-8")
            if not defence:
                with pytest.raises(PackageError, match="the secret does not open the package of desk"):
                    Subscription(market, found, secret_of_file(secret))
                return
            heard = await overheard(world, Subscription(market, found, secret_of_file(secret)))
            assert heard.ids == list(range(1, 28))

    with without(defence) if defence else nullcontext():
        run(work())


def test_base_alone_gets_no_repairs(tmp_path: Path) -> None:
    async def work() -> None:
        async with selling(tmp_path) as world:
            await world.start()
            async with Listener(world.market, subscription=bought(world, BASE), latest=True) as listener:
                heard = Heard(listener)
                task = asyncio.create_task(heard.collect())
                await eventually(lambda: listener.silence() is None)
                await world.publish("floor", trades(3))
                await eventually(lambda: heard.ids[-1:] == [3])
                assert listener.snapshot().counters.fetches == 0
                await eventually(lambda: listener.counters.unpaid > 0)
            await task

    run(work())


def test_who_does_not_renew_reads_nothing_after_the_period_and_is_told_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with selling(tmp_path, 6 * SECOND) as world:
            await world.start()
            package = Given(sold(world.market, BASE, REPAIR))
            last = 0

            def renewed() -> bool:
                """Paid for this period and the next, as long as somebody asks."""
                nonlocal last
                now = period_of(time_ns(), 6 * SECOND)
                if last <= now:
                    last = now + 1
                    package.keys.add(sold(world.market, BASE, REPAIR, periods=(now, last)))
                return True

            async with Listener(world.market, subscription=package) as listener:
                heard = Heard(listener)
                task = asyncio.create_task(heard.collect())
                await eventually(lambda: renewed() and listener.silence() is None and listener.snapshot().joined)
                await world.publish("floor", trades(3))
                await eventually(lambda: renewed() and heard.ids == [1, 2, 3])
                await eventually(lambda: time_ns() > (last + 1) * 6 * SECOND)
                await world.publish("floor", trades(3, 4))
                await task
            assert heard.ids == [1, 2, 3]
            assert "the subscription of desk was paid until" in str(heard.error)
            assert listener.counters.unpaid > 0
            assert "unpaid" in alarms(listener)

    run(work())


def test_who_renews_sees_no_gap(tmp_path: Path) -> None:
    async def work() -> None:
        async with selling(tmp_path, 4 * SECOND) as world:
            await world.start()
            period = period_of(time_ns(), 4 * SECOND)
            package = Given(sold(world.market, BASE, REPAIR, periods=range(period, period + 3)))
            async with Listener(world.market, subscription=package) as listener:
                heard = Heard(listener)
                task = asyncio.create_task(heard.collect())
                await eventually(lambda: listener.silence() is None and listener.snapshot().joined)
                begun = package.keys.oldest(BASE)
                assert begun is not None
                host = listener._running[0].host  # noqa: SLF001
                host._watch_subscription(begun.begins + 1)  # noqa: SLF001 - as it would be at that instant
                assert not host.unpaid, "a package that has just begun is not over"
                unpaid, number = listener.counters.unpaid, 0
                while (now := period_of(time_ns(), 4 * SECOND)) < period + 4:  # Beyond what was bought at first.
                    number += 1
                    await world.publish("floor", trades(1, number))
                    package.keys.add(sold(world.market, BASE, REPAIR, periods=range(now, now + 9)))
                    await asyncio.sleep(0.1)
                await eventually(lambda: len(heard.ids) >= number)
            await task
            assert heard.ids == list(range(1, number + 1))
            assert listener.counters.unpaid == unpaid

    run(work())


def test_a_late_joiner_catches_up_with_its_package_alone(tmp_path: Path) -> None:
    """It has no edge key: what it paid for lets it in at the door."""

    async def work() -> None:
        async with selling(tmp_path) as world:
            await world.start()
            await world.publish("floor", trades(108))
            await world.until_journals_have(range(1, 109), "archive")
            package = bought(world)
            edge = world.market.keys_directory / "edge.key"
            edge.rename(edge.with_suffix(".away"))
            async with Listener(world.market, subscription=package, start="beginning") as listener:
                heard = Heard(listener)
                task = asyncio.create_task(heard.collect())
                await eventually(lambda: len(heard.ids) == 108)
            await task
            assert heard.ids == list(range(1, 109))

    run(work())


def test_history_is_given_within_what_was_bought(tmp_path: Path) -> None:
    async def work() -> None:
        async with selling(tmp_path, 3 * SECOND) as world:
            await world.start()
            await world.publish("floor", trades(3))
            await world.until_journals_have(range(1, 4), "archive")
            period = period_of(time_ns(), 3 * SECOND)
            await eventually(lambda: period_of(time_ns(), 3 * SECOND) > period + 1)
            await world.publish("floor", trades(3, 4))
            await world.until_journals_have(range(1, 7), "archive")
            now = period_of(time_ns(), 3 * SECOND)
            live = sold(world.market, BASE, REPAIR, periods=range(period + 2, now + 60))
            past = sold(world.market, HISTORY, periods=range(period - 60, period + 2))
            for keys, expected in ((live, [4, 5, 6]), ([*live, *past], [1, 2, 3, 4, 5, 6])):
                async with Listener(world.market, subscription=Given(keys), start="beginning") as listener:
                    heard = Heard(listener)
                    task = asyncio.create_task(heard.collect())
                    await eventually(lambda: heard.ids[-1:] == [6])  # noqa: B023 - within the loop's turn
                await task
                assert heard.ids == expected

    run(work())


def test_a_package_opens_with_its_secret_alone(tmp_path: Path) -> None:
    world = selling(tmp_path)
    market = world.market
    package, shown = write_package(tmp_path, market, "desk", sold(market, BASE, REPAIR))
    found = Subscription(market, package, secret_of_file(shown))
    assert found.buyer == "desk"
    assert found.keys.has(BASE)
    assert not found.is_replaced
    shown.write_text(write_secret(token_bytes(16)), encoding="utf-8")
    with pytest.raises(PackageError) as refusal:
        Subscription(market, package, secret_of_file(shown))
    assert "\n" not in str(refusal.value)
    shown.chmod(0o644)
    with pytest.raises(IsocastError, match="chmod 600"):
        Subscription(market, package, secret_of_file(shown))


# ---- who may add


async def forged_before(world: World, heard: Heard) -> None:
    forge(world, heard.listener, 1)
    await world.publish("floor", trades(27))
    await eventually(lambda: heard.ids[-1:] == [27])


async def forged_after(world: World, heard: Heard) -> None:
    await world.publish("floor", trades(27))
    await eventually(lambda: heard.ids[-1:] == [27])
    forge(world, heard.listener, 1)
    await eventually(lambda: {"forged", "conflict"} & {code.split("-")[0] for code in alarms(heard.listener)})


async def forged_repair(world: World, heard: Heard) -> None:
    forge(world, heard.listener, 1, REPAIR)
    await world.publish("floor", trades(27))
    await eventually(lambda: heard.ids[-1:] == [27])


@pytest.mark.parametrize("service", [BASE, REPAIR])
def test_without_proofs_a_paying_customer_adds_to_the_sequence(tmp_path: Path, service: str) -> None:
    async def check(world: World, heard: Heard) -> None:
        forge(world, heard.listener, 1, service)
        await eventually(lambda: heard.ids == [666])

    with without("proofs"):
        story(tmp_path, check)


def test_without_proofs_a_forgery_behind_the_genuine_copy_makes_both_suspect(tmp_path: Path) -> None:
    async def check(world: World, heard: Heard) -> None:
        await forged_after(world, heard)
        assert heard.listener.snapshot().counters.conflicts == 1
        assert not [code for code in alarms(heard.listener) if code.startswith("forged")], "nobody knows which is true"

    with without("proofs"):
        story(tmp_path, check)


@pytest.mark.parametrize("attack", [forged_before, forged_after, forged_repair])
def test_with_proofs_a_forgery_is_dropped_counted_and_named(
    tmp_path: Path, attack: Callable[[World, Heard], object]
) -> None:
    async def check(world: World, heard: Heard) -> None:
        await attack(world, heard)  # type: ignore[misc]
        assert heard.ids == list(range(1, 28))
        name = "archive" if attack is forged_repair else heard.listener.plan.lines[0]
        await eventually(lambda: f"forged-{name}" in alarms(heard.listener))
        assert heard.listener.snapshot().counters.forged == 1
        assert heard.listener.snapshot().counters.conflicts == 0

    story(tmp_path, check)


def test_without_proofs_a_forged_heartbeat_announces_what_was_never_sent(tmp_path: Path) -> None:
    async def check(world: World, heard: Heard) -> None:
        forge(world, heard.listener, 500, count=0)
        await eventually(lambda: heard.listener.snapshot().newest == 499)

    with without("proofs"):
        story(tmp_path, check)


def test_with_proofs_a_forged_heartbeat_is_dropped_counted_and_named(tmp_path: Path) -> None:
    async def check(world: World, heard: Heard) -> None:
        forge(world, heard.listener, 500, count=0)
        name = heard.listener.plan.lines[0]
        await eventually(lambda: f"forged-{name}" in alarms(heard.listener))
        assert heard.listener.snapshot().newest == 0

    story(tmp_path, check)


# ---- a repair that somebody changes who has no key


def tampered(world: World, number: int) -> bytes:
    """A repair as archive sealed it, made the one behind it and another trade by whoever knows what it says."""
    market = world.market
    node, now = market.node("archive").node, time_ns()

    def repair(sequence: int, trade: int) -> ReleasedPacket:
        return ReleasedPacket(0, LATER, node, 1, sequence, now, 0, sequence, 1, trades(1, trade).tobytes(), b"")

    genuine, wanted = repair(number, number), repair(number + 1, 666)
    frame = forger(world, "archive", REPAIR).seal(genuine, market.id)
    (_, is_now, _), (_, will_be, _) = line_parts(genuine, market.id, 0), line_parts(wanted, market.id, 0)
    at = len(frame) - len(is_now) - TAG_BYTES
    change = bytes(at) + bytes(one ^ other for one, other in zip(is_now, will_be, strict=True)) + bytes(TAG_BYTES)
    return bytes(one ^ other for one, other in zip(frame, change, strict=True))


@pytest.mark.parametrize("defence", [("proofs", "seals of lines"), ("proofs",), ()])
def test_a_tampered_repair_is_refused_whatever_else_is_checked(tmp_path: Path, defence: tuple[str, ...]) -> None:
    async def check(world: World, heard: Heard) -> None:
        await world.publish("floor", trades(1, 1))
        await eventually(lambda: heard.ids == [1])
        before = heard.listener.counters.authentication_failures
        send(world, "archive", tampered(world, 1))
        if "seals of lines" in defence:
            await eventually(lambda: heard.ids == [1, 666])
            return
        await eventually(lambda: heard.listener.counters.authentication_failures > before)
        await world.publish("floor", trades(1, 2))
        await eventually(lambda: heard.ids[1:])
        assert heard.ids == [1, 2]

    with without(*defence):
        story(tmp_path, check)


def test_a_packet_that_was_changed_on_the_way_is_refused(tmp_path: Path) -> None:
    async def check(world: World, heard: Heard) -> None:
        name = heard.listener.plan.lines[0]
        frames: list[bytes] = []
        with ear(world, frames, name):
            await eventually(lambda: frames)
        changed = bytearray(frames[0])
        changed[-20] ^= 1
        before = heard.listener.counters.authentication_failures
        send(world, name, bytes(changed))
        await eventually(lambda: heard.listener.counters.authentication_failures > before)

    story(tmp_path, check)
