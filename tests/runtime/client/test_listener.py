"""Listening from a program: every batch once, wherever one begins, however slowly one reads, and nothing left open."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

import isocast
from isocast.runtime.client.listener import Listener
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import init_keys
from isocast.terms.errors import ConfigurationError, IsocastError, JournalFull, TransportError

SEATS = {
    **SMALL,
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    "wall": {
        "role": "customer",
        "lines": ["c", "b"],
        "retransmit": ["archive"],
        "grade": "latest",
        "start": False,
    },
}


async def gather(events: int, *where: object, **options: object) -> list[isocast.ReceivedBatch]:
    """Batches until so many events have come."""
    batches: list[isocast.ReceivedBatch] = []
    async with Listener(*where, **options) as listening:  # type: ignore[arg-type]
        async for batch in listening:
            batches.append(batch)
            if sum(map(len, batches)) >= events:
                break
    return batches


def ids(batches: list[isocast.ReceivedBatch]) -> list[int]:
    return [int(number) for batch in batches for number in batch.events["id"]]


def test_importing_the_package_loads_nothing_of_it() -> None:
    look = "import isocast, sys; print([n for n in sys.modules if n.startswith('isocast.') or n == 'numpy'])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "[]\n"


def test_the_public_names_are_there_and_no_others() -> None:
    assert set(isocast.__all__) <= set(dir(isocast))
    for name in isocast.__all__:
        assert getattr(isocast, name) is not None
    assert "PublishRefusedError" in isocast.__all__
    assert issubclass(isocast.PublishRefusedError, isocast.IsocastError)
    with pytest.raises(AttributeError, match="nonsense"):
        isocast.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_every_place_to_begin(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SEATS, loss=0.02)) as world:
            await world.start()
            await world.publish("floor", trades(100, symbols=(b"ISO", b"CAST")))
            await world.until_journals_have(range(1, 101), "archive")
            beginning = await gather(100, world.path, start="beginning")
            assert ids(beginning) == list(range(1, 101))
            assert beginning[0].first_sequence == 1
            from_two = await gather(73, world.path, "desk", start=2)
            assert ids(from_two) == list(range(28, 101))
            (snapshot,) = await gather(2, world.path, start="snapshot", customer="desk")
            assert snapshot.kind is isocast.BatchKind.SNAPSHOT
            assert sorted(ids([snapshot])) == [99, 100]
            (latest,) = await gather(2, world.path, "wall")
            assert (latest.kind, sorted(ids([latest]))) == (isocast.BatchKind.LATEST, [99, 100])
            async with Listener(world.path, "desk") as listener:
                await eventually(lambda: listener.snapshot().joined)
                await world.publish("floor", trades(50, 101))
                now = [await anext(listener)]
                while now[-1].last_sequence < 6:
                    now.append(await anext(listener))
                assert ids(now) == list(range(101, 151))
                assert listener.grade == "complete"

    run(work())


def test_a_time_to_begin_is_the_first_message_that_was_released_then(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SEATS)) as world:
            await world.start()
            for first in (1, 101, 201):
                await world.publish("floor", trades(100, first))
                await world.until_journals_have(range(1, first + 100), "archive", "a", "b")
            whole = await gather(300, world.path, start="beginning")
            releases = {
                int(number): int(at)
                for batch in whole
                for number, at in zip(batch.sequences, batch.releases, strict=True)
            }
            instants = sorted(set(releases.values()))
            assert len(instants) > 2
            for at in instants[1:]:
                first = min(number for number, release in releases.items() if release >= at)
                moment = datetime.fromtimestamp(at // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{at % 10**9:09}Z"
                (batch, *_) = await gather(1, world.path, "desk", start=moment)
                assert batch.first_sequence == first
            (batch, *_) = await gather(1, world.path, "desk", start=datetime(2020, 1, 1, tzinfo=UTC))
            assert batch.first_sequence == 1
            await world.stop("archive")  # Then the doors of receivers tell.
            (batch, *_) = await gather(1, world.path, "desk", start="2020-01-01")
            assert batch.first_sequence == 1

    run(work())


def test_a_wrong_edge_key_is_not_called_a_market_that_is_down(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SEATS)) as world:
            await world.start("a", "b", "c", "x")
            elsewhere = replace(world.market, keys_directory=tmp_path / "other keys")
            init_keys(elsewhere)
            async with Listener(elsewhere, "desk") as listener:
                await eventually(lambda: listener.counters.authentication_failures)
                assert "that edge.key did not make" in (listener.silence() or "")
            async with Listener(world.market, "desk") as listener:
                said = listener.silence()
                assert said is None or "is the market up?" in said
                await eventually(lambda: listener.silence() is None)

    run(work())


def test_a_slow_reader_falls_behind_alone_and_misses_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SEATS)) as world:
            await world.start()
            told: list[str] = []
            async with Listener(world.path, "desk", inbox_messages=8, told=told.append) as listener:
                await eventually(lambda: listener.snapshot().joined)
                for first in range(1, 2_161, 540):
                    await world.publish("floor", trades(540, first))
                    await world.until_journals_end_with(first + 539, "bank")
                await eventually(lambda: any("does not keep up" in text for text in told))
                batches = [await anext(listener)]
                while batches[-1].last_sequence < 80:
                    batches.append(await anext(listener))
                assert ids(batches) == list(range(1, 2_161))
                sequences = [batch.first_sequence for batch in batches[1:]]
                assert sequences == [batch.last_sequence + 1 for batch in batches[:-1]]
                assert listener.counters.messages_received == 80
            # On a busy machine a line may be late, or a node; what must not be is that anybody else reads too slowly.
            assert not [code for name in ("bank", "archive") for code in world.alarms(name) if code == "slow-reader"]

    run(work())


def test_leaving_the_loop_frees_the_place(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SEATS)) as world:
            await world.start("a", "b", "c", "x", "floor", "archive")
            await world.publish("floor", trades(1))
            await world.until_journals_have([1], "archive")
            for _ in range(3):
                await gather(1, world.path, "desk", start="beginning")
            task = asyncio.create_task(gather(1_000, world.path, "desk"))
            await eventually(lambda: _is_taken(world))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await gather(1, world.path, "desk", start="beginning")

    run(work())


def _is_taken(world: World) -> bool:
    """Whether somebody has the desk's ports."""
    from isocast.runtime.net.sockets import unicast_inlet  # noqa: PLC0415

    desk = world.market.node("desk")
    try:
        unicast_inlet(desk.address, desk.port).close()
    except TransportError:
        return True
    return False


def test_without_a_name_one_is_a_guest_and_any_number_are(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, SEATS))

    async def work() -> None:
        async with Listener(market) as one, Listener(market) as two, Listener(market, "desk") as seated:
            assert one.plan.name == two.plan.name == "guest@127.0.0.1"
            assert (len(one.plan.lines), one.plan.retransmit) == (2, ("archive",))
            assert one.plan.node != two.plan.node, "what no packet carries is still nobody else's"
            assert seated.plan.name == "desk"

    run(work())


def test_without_guests_places_are_taken_in_turn_those_for_programs_first(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, SEATS, settings={"guests": {"allowed": False}}))

    async def work() -> None:
        async with Listener(market) as one, Listener(market) as two, Listener(market) as three:
            assert [one.plan.name, two.plan.name, three.plan.name] == ["desk", "wall", "bank"]
            with pytest.raises(ConfigurationError, match=r"every customer is in use \(desk, wall, bank\)"):
                await Listener(market).open()
            with pytest.raises(TransportError, match="desk is in use"):
                await Listener(market, "desk").open()

    run(work())


@pytest.mark.parametrize(
    "customer, options, rule",
    [
        ("dseks", {}, r"nodes\.dseks: is not a customer; did you mean \"desk\"\?; there are bank, desk, wall"),
        ("archive", {}, r"nodes\.archive: is not a customer"),
        ("desk", {"start": "yesterday"}, "'yesterday' is neither now, beginning, snapshot nor a sequence"),
        ("desk", {"start": 0}, "0 is neither"),
        ("desk", {"start": "2999-01-01T00:00:00Z"}, "is in the future: nothing has been released up to then"),
        ("wall", {"start": "2020-01-01T00:00:00Z"}, "grade latest never asks for the past"),
        ("wall", {"start": "beginning"}, "grade latest never asks for the past"),
        ("desk", {"start": 5, "latest": True}, "grade latest never asks for the past"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_opened(
    tmp_path: Path, customer: str, options: dict[str, object], rule: str
) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        Listener(market_file(tmp_path, SEATS), customer, **options)  # type: ignore[arg-type]


def test_a_failure_inside_ends_the_loop_with_its_reason(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, SEATS))

    async def work() -> None:
        async with Listener(market, "desk") as listener:
            waiting = asyncio.ensure_future(anext(listener))
            await asyncio.sleep(0)
            host = listener._seats[0].host  # noqa: SLF001 - no test can fill a disk politely
            assert host is not None
            assert host.driver.failed is not None
            host.driver.failed(JournalFull("somewhere", "no room"))
            with pytest.raises(IsocastError, match="listening ended: somewhere: no room"):
                await waiting

    run(work())


def test_a_listener_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(IsocastError, match="async with"):
        Listener(market_file(tmp_path, SEATS)).snapshot()
