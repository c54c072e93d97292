"""Replays: always cut at the same places, in one time, and once, wherever they are interrupted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.client.test_publisher import Source
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client import publisher, replay_messages
from isocast.runtime.client.feed_files import FeedFile
from isocast.runtime.client.message_cutter import FULL, GATHER_NS, cut_messages
from isocast.runtime.client.replay import Replay, ReplayReport, progress_directory
from isocast.runtime.client.replay_messages import FloorFeed, gathering
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import EventFlag
from isocast.wire.door import Publish
from isocast.wire.events import EVENT_DTYPE, EventArray, events_view

START = 1_700_000_000_000_000_000
NODES = {**{name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}, "other": {"role": "primary-source"}}


def day(count: int, first_id: int = 1, *, step_ns: int = GATHER_NS + 1, offset: int = 0) -> EventArray:
    """Trades so far apart that each is a message of its own, unless told otherwise."""
    events = trades(count, first_id)
    events["time"] = START + offset + step_ns * np.arange(count, dtype=np.uint64)
    return events


def feed(path: Path, *parts: EventArray, source: str = "floor", name_of_run: str = "") -> FloorFeed:
    files = []
    for number, events in enumerate(parts):
        file = path / f"{source}-{number}.events"
        file.write_bytes(events.tobytes())
        files.append(FeedFile(file))
    return FloorFeed(source, tuple(files), name_of_run)


# ---- where messages end


rows = st.lists(
    st.tuples(st.sampled_from([0, 1, GATHER_NS // 3, GATHER_NS, GATHER_NS + 1, 10 * GATHER_NS]), st.booleans()),
    max_size=60,
)


@given(rows, st.lists(st.integers(0, 60), max_size=6), st.integers(1, 9))
def test_messages_end_at_the_same_places_however_the_feed_is_cut(
    steps: list[tuple[int, bool]], cuts: list[int], per_message: int
) -> None:
    events = trades(len(steps))
    events["time"] = START + np.cumsum([step for step, _ in steps], dtype=np.uint64) if steps else 0
    events["flags"] = [EventFlag.LINKED if linked else 0 for _, linked in steps]
    whole = [message for _, message in cut_messages([events], per_message)]
    blocks = np.split(events, sorted(min(cut, len(events)) for cut in cuts))
    assert [message.tobytes() for _, message in cut_messages(blocks, per_message)] == [
        message.tobytes() for message in whole
    ]
    assert np.concatenate([*whole, np.empty(0, EVENT_DTYPE)]).tobytes() == events.tobytes()
    for message in whole:
        assert 0 < len(message) <= per_message
        assert message["time"][-1] - message["time"][0] <= GATHER_NS
    full = [message for _, message in cut_messages([events], per_message, FULL)]
    assert [message.tobytes() for _, message in cut_messages(blocks, per_message, FULL)] == [
        message.tobytes() for message in full
    ]
    assert len(full) <= len(whole)


def test_at_full_speed_messages_are_full_however_far_apart_events_are() -> None:
    hours_apart = day(100, step_ns=3_600 * 10**9)
    assert [len(message) for _, message in cut_messages([hours_apart], 27, gathering(None))] == [27, 27, 27, 19]
    assert [len(message) for _, message in cut_messages([hours_apart], 27, gathering(1.0))] == [1] * 100


def test_a_faster_replay_gathers_as_long_in_its_own_time() -> None:
    assert [gathering(speed) for speed in (0.5, 1.0, 60.0)] == [GATHER_NS, GATHER_NS, 60 * GATHER_NS]


def test_times_at_the_end_of_the_clock_do_not_wrap() -> None:
    events = day(3, step_ns=0)
    events["time"] = [START, 2**64 - 2, 2**64 - 1]
    for gather_ns in (GATHER_NS, FULL):
        assert sum(len(message) for _, message in cut_messages([events], 2, gather_ns)) == 3


def test_linked_events_stay_together() -> None:
    events = day(8, step_ns=0)
    events["flags"][[2, 5]] = EventFlag.LINKED
    assert [len(message) for _, message in cut_messages([events], 3)] == [2, 3, 3]
    events["flags"] = EventFlag.LINKED
    assert [len(message) for _, message in cut_messages([events], 3)] == [3, 3, 2], "a chain without end is cut anyway"


def test_the_last_times_that_64_bits_count_are_cut_like_any_other() -> None:
    events = day(5)
    events["time"] = np.uint64((1 << 64) - 1) - np.arange(5, dtype=np.uint64)[::-1]
    assert [len(part) for _, part in cut_messages([events], 2)] == [2, 2, 1]


def test_a_clock_that_steps_back_keeps_the_order() -> None:
    events = day(4, step_ns=0)
    events["time"] = [START + 5, START + 2, START + 7, START]
    assert [(due, message["id"].tolist()) for due, message in cut_messages([events], 2)] == [
        (START + 5, [1, 2]),
        (START + 7, [3, 4]),
    ]


# ---- at a door that remembers what it was asked


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    monkeypatch.setattr(publisher, "_FIRST_PAUSE_S", 0.002)
    return load_market(market_file(tmp_path, NODES))


def published(source: Source) -> list[int]:
    return [int(number) for payload in source.payloads for number in events_view(payload)["id"]]


async def with_source(market: Market, *replays: Replay) -> Source:
    source = Source(market)
    await source.open()
    try:
        for replay in replays:
            await replay.run()
    finally:
        await source.close()
    return source


def test_files_of_one_floor_are_merged_in_the_order_of_time(market: Market, tmp_path: Path) -> None:
    parts = day(30, 1, step_ns=10), day(30, 101, step_ns=10, offset=5)
    source = run(with_source(market, Replay(market, [feed(tmp_path, *parts)])))
    wanted = [number for pair in zip(range(1, 31), range(101, 131), strict=True) for number in pair]
    assert published(source) == wanted


def test_a_repeat_asks_for_nothing_even_when_the_source_has_forgotten(market: Market, tmp_path: Path) -> None:
    """A source remembers 65,536 keys; what is complete is known from the file of progress."""

    async def work() -> None:
        first = await with_source(market, Replay(market, [feed(tmp_path, day(40))]))
        assert published(first) == list(range(1, 41))
        for speed in (None, 1.0):
            again = Replay(market, [feed(tmp_path, day(40))], speed=speed)
            assert published(await with_source(market, again)) == []
            assert again.report.known_messages == again.report.messages == len(first.payloads)
            assert again.report.floors[0].digest.hex == digest_of(day(40))
        other = await with_source(market, Replay(market, [feed(tmp_path, day(40), name_of_run="once more")]))
        assert published(other) == list(range(1, 41))
        changed = await with_source(market, Replay(market, [feed(tmp_path, day(41))]))
        assert published(changed) == list(range(1, 42)), "another file is another replay"

    run(work())


async def interrupted(task: asyncio.Task[ReplayReport]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=90)
    assert task.cancelled(), "it ends when it is told to"


def digest_of(events: EventArray) -> str:
    digest = TapeDigest()
    digest.update(events)
    return digest.hex


@pytest.mark.parametrize("keeps_progress", [True, False])
def test_an_interrupted_replay_goes_on(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps_progress: bool
) -> None:
    """By the file of progress, or by what the source remembers."""

    async def work() -> None:
        source = Source(market)
        await source.open()
        far_apart = day(300, step_ns=20 * GATHER_NS + 1)
        replay = Replay(market, [feed(tmp_path, far_apart)], speed=5.0)
        task = asyncio.create_task(replay.run())
        await eventually(lambda: len(source.taken) >= 40)
        await interrupted(task)
        assert 40 <= len(source.taken) < 300
        if not keeps_progress:
            for file in progress_directory(market).iterdir():
                file.unlink()
        source.asked.clear()
        # The note says how messages were cut; without it the same speed does.
        second = Replay(market, [feed(tmp_path, far_apart)], speed=None if keeps_progress else 5.0)
        monkeypatch.setattr(Replay, "_until", no_pause)
        report = await second.run()
        await source.close()
        assert published(source) == list(range(1, 301))
        assert report.events == report.messages == 300
        told = sum(len(message.batches) for message in source.asked)
        assert told < 300 if keeps_progress else told == 300

    run(work())


async def no_pause(*_: object) -> None:
    """No time passes."""


def test_a_file_that_was_changed_since_is_found_out(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size and all samples are the same; the events are not."""
    monkeypatch.setattr(replay_messages, "_SAMPLE_BYTES", 48)
    events = day(1_000, step_ns=1)
    first = feed(tmp_path, events)
    identity = first.identity()
    run(with_source(market, Replay(market, [first])))
    second = feed(tmp_path, altered(events, 5))
    assert second.identity() == identity
    with pytest.raises(ConfigurationError, match="not those that were published before"):
        run(with_source(market, Replay(market, [second])))


def altered(events: EventArray, place: int) -> EventArray:
    other = events.copy()
    other["quantity"][place] += 1
    return other


def test_a_replay_says_how_far_it_is_before_anything_is_accepted(market: Market, tmp_path: Path) -> None:
    """A source whose window is closed must not look like a file that is being read."""

    async def work() -> None:
        source = Source(market)
        told: list[float] = []
        await source.open()
        source.hold.clear()
        replay = Replay(market, [feed(tmp_path, day(5_000, step_ns=1))], told=lambda report: told.append(report.part))
        task = asyncio.create_task(replay.run())
        await eventually(lambda: len(told) >= 3 and told[-1] == 1.0)
        await interrupted(task)
        await source.close()

    run(work())


def test_what_a_source_knows_does_not_wait_for_its_time(market: Market, tmp_path: Path) -> None:
    """Three days between messages: a repeat in real time is through at once where everything is known."""

    async def work() -> None:
        far_apart = day(100, step_ns=3 * 86_400 * 10**9)
        source = Source(market)
        await source.open()
        source_counts_repeats(source)
        await Replay(market, [feed(tmp_path, far_apart)]).run()
        for file in progress_directory(market).iterdir():
            noted = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps(noted | {"messages": 0}), encoding="utf-8")
        await asyncio.wait_for(Replay(market, [feed(tmp_path, far_apart)], speed=1.0).run(), 90)
        await source.close()
        assert published(source) == list(range(1, 101))

    run(work())


def source_counts_repeats(source: Source) -> None:
    accept = source.accept

    def counting(message: Publish) -> object:
        known = sum(key in source.taken for key, _ in message.batches)
        return accept(message)._replace(repeated=known)

    source.accept = counting  # type: ignore[method-assign, assignment]


def test_the_pace_is_that_of_the_events(market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments asked for, not measured: message i is due i·(step/speed) after the first."""
    waits: list[float] = []
    began: list[float] = []

    async def until(_: Replay, due: float) -> None:
        began[:] = began or [due]
        waits.append(due - began[0])

    monkeypatch.setattr(Replay, "_until", until)
    step_ns = 10**9
    run(with_source(market, Replay(market, [feed(tmp_path, day(5, step_ns=step_ns))], speed=4.0)))
    assert waits == pytest.approx([0.0, 0.25, 0.5, 0.75])


def test_a_floor_twice_and_damaged_progress_are_refused(market: Market, tmp_path: Path) -> None:
    one = feed(tmp_path, day(1))
    with pytest.raises(ConfigurationError, match="occurs twice"):
        Replay(market, [one, one])
    with pytest.raises(ConfigurationError, match="is not a source"):
        Replay(market, [FloorFeed("nobody", one.files)])
    directory = progress_directory(market)
    directory.mkdir(parents=True)
    for content in ("{", "[]", '{"messages": 3}'):
        (directory / f"floor-{one.identity().hex()}.json").write_text(content, encoding="utf-8")
        with pytest.raises(ConfigurationError, match="progress"):
            Replay(market, [one])


# ---- through a market


def of_floor(world: World, code: bytes) -> Sequence[int]:
    events = np.concatenate([events_view(payload) for _, payload in world.released("a")])
    found: list[int] = events["id"][events["floor"] == code].tolist()
    return found


def test_two_floors_through_a_market_interrupted_and_repeated(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start()
            lists = day(400, 1, step_ns=GATHER_NS // 4), day(400, 10_001, step_ns=GATHER_NS // 4, offset=7)
            lists[1]["floor"] = b"XLON"
            feeds = [feed(tmp_path, lists[0]), feed(tmp_path, lists[1], source="other")]
            first = Replay(world.market, feeds, speed=0.2)
            task = asyncio.create_task(first.run())
            await eventually(lambda: min(floor.messages for floor in first.report.floors) >= 5)
            await interrupted(task)
            feeds = [feed(tmp_path, lists[0]), feed(tmp_path, lists[1], source="other")]
            report = await Replay(world.market, feeds).run()
            assert report.events == 800
            await eventually(lambda: world.count("a") >= 800)
            assert of_floor(world, b"XNYS") == list(range(1, 401))
            assert of_floor(world, b"XLON") == list(range(10_001, 10_401))
            assert [floor.digest.hex for floor in report.floors] == [digest_of(events) for events in lists]

    run(work())
