"""Publishing at a door that is shut, dies, refuses or answers something else: each batch once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import time_ns

import numpy as np
import pytest
from tests.runtime.doorways import doorway
from tests.runtime.worlds import eventually, market_file, trades

from isocast.runtime.client import publisher as module
from isocast.runtime.client.publisher import Batch, Publisher, PublishRefusedError
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import load_source_key
from isocast.runtime.market.model import Market
from isocast.runtime.net.door import Door, DoorError, Visit, visit_node
from isocast.security.keys import Purpose
from isocast.terms.errors import ConfigurationError, IsocastError, LocalProtocolError
from isocast.terms.ids import Label, source_id
from isocast.wire.door import MAX_BATCH, Accepted, DoorMessage, Publish, Refused
from isocast.wire.events import EVENT_DTYPE

SOURCE = source_id(1, 7)
Script = Sequence["Callable[[Publish], DoorMessage | None]"]


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.002)
    return load_market(market_file(tmp_path))


class Source:
    """A source's door that keeps what it took by key, as an outbox does. A script says what goes wrong first."""

    def __init__(self, market: Market, script: Script = ()) -> None:
        self.taken: dict[bytes, bytes] = {}
        self.asked: list[Publish] = []
        self.visits = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self._script = list(script)
        plan = market.node("floor")
        self._place = plan.address, plan.tcp_port
        self._key = load_source_key(market, plan).derive(Purpose.DOOR, plan.node)
        way = doorway(market, "floor", "floor")
        self._door = Door({"source/floor": self._key}.get, self._serve, doorway=way)

    async def open(self) -> None:
        await self._door.open(*self._place)

    async def close(self) -> None:
        await self._door.close()

    @property
    def payloads(self) -> list[bytes]:
        return list(self.taken.values())

    def accept(self, message: Publish) -> Accepted:
        for key, payload in message.batches:
            self.taken.setdefault(key, payload)
        numbers = {key: number for number, key in enumerate(self.taken, 1)}
        return Accepted(tuple(Label(SOURCE, numbers[key]) for key, _ in message.batches))

    async def _serve(self, guest: Visit) -> None:
        self.visits += 1
        while (message := await guest.receive()) is not None:
            assert isinstance(message, Publish)
            self.asked.append(message)
            answer = self._script.pop(0)(message) if self._script else self.accept(message)
            await self.hold.wait()
            if answer is None:
                return
            await guest.send(answer)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 120)

    asyncio.run(bounded())


def with_source(
    market: Market,
    work: Callable[[Source, Publisher], Awaitable[None]],
    script: Callable[[Source], Script] | None = None,
) -> Source:
    async def both() -> Source:
        source = Source(market)
        if script is not None:
            source._script = list(script(source))  # noqa: SLF001
        await source.open()
        try:
            async with Publisher(market, "floor", patience_s=60) as publisher:
                await asyncio.wait_for(work(source, publisher), 120)
        finally:
            await source.close()
        return source

    return asyncio.run(both())


# ---- what is published


def test_arrays_and_bytes_arrive_as_the_same_events(market: Market) -> None:
    events = trades(3)
    forms: list[Batch] = [events, events.tobytes(), bytearray(events.tobytes()), memoryview(events.tobytes())]

    async def work(source: Source, publisher: Publisher) -> None:
        for place, batch in enumerate(forms, 1):
            assert await publisher.publish(batch) == (Label(SOURCE, place),)
        assert source.payloads == [events.tobytes()] * len(forms)

    with_source(market, work)


def test_an_event_without_a_time_happened_now(market: Market) -> None:
    events = trades(2)
    events["time"] = [0, 5]

    async def work(source: Source, publisher: Publisher) -> None:
        before = time_ns()
        for batch in (events, events.tobytes()):
            await publisher.publish(batch)
        for payload in source.payloads:
            now, given = np.frombuffer(payload, EVENT_DTYPE)["time"].tolist()
            assert before <= now <= time_ns()
            assert given == 5

    with_source(market, work)
    assert events["time"].tolist() == [0, 5]  # The caller's array is its own.


def test_a_view_with_gaps_is_published_as_it_reads(market: Market) -> None:
    async def work(source: Source, publisher: Publisher) -> None:
        await publisher.publish(trades(9)[::-2])
        assert np.frombuffer(source.payloads[0], EVENT_DTYPE)["id"].tolist() == [9, 7, 5, 3, 1]

    with_source(market, work)


def test_many_events_are_many_messages_in_order_over_as_many_requests_as_it_takes(market: Market) -> None:
    async def work(source: Source, publisher: Publisher) -> None:
        each = publisher.events_per_message
        events = trades(each * MAX_BATCH + each + 1)
        labels = await publisher.publish(events)
        assert labels == tuple(Label(SOURCE, number) for number in range(1, MAX_BATCH + 3))
        assert [len(message.batches) for message in source.asked] == [MAX_BATCH, 2]
        assert b"".join(source.payloads) == events.tobytes()
        assert {len(payload) // EVENT_DTYPE.itemsize for payload in source.payloads[:-1]} == {each}

    with_source(market, work)


def test_nothing_to_publish_is_nothing(market: Market) -> None:
    async def work(_: Source, publisher: Publisher) -> None:
        assert await publisher.publish(trades(0)) == ()
        assert await publisher.publish(b"") == ()

    assert with_source(market, work).asked == []


@pytest.mark.parametrize(
    "batch, text",
    [
        (np.zeros(3, EVENT_DTYPE), "unknown kind"),
        (trades(2).tobytes()[:-1], "not a number of events"),
        (np.zeros(3), "not a row of events"),
        (trades(4).reshape(2, 2), "not a row of events"),
        ("events", "str is neither an array of events nor"),
    ],
    ids=["kinds", "cut", "numbers", "a square", "text"],
)
def test_bad_events_are_refused_before_anything_is_sent(market: Market, batch: object, text: str) -> None:
    async def work(_: Source, publisher: Publisher) -> None:
        with pytest.raises(LocalProtocolError, match=text):
            await publisher.publish(batch)  # type: ignore[arg-type]

    assert with_source(market, work).asked == []


@pytest.mark.parametrize("key", [b"", bytes(61)])
def test_a_key_that_fits_no_message_is_refused(market: Market, key: bytes) -> None:
    async def work(_: Source, publisher: Publisher) -> None:
        with pytest.raises(LocalProtocolError, match="1 to 60"):
            await publisher.publish(trades(1), key)
        await publisher.publish(trades(1), bytes(60))

    assert len(with_source(market, work).taken) == 1


def test_the_same_key_publishes_once_and_without_one_each_call_counts(market: Market) -> None:
    async def work(source: Source, publisher: Publisher) -> None:
        first = await publisher.publish(trades(60), b"order 1")
        assert await publisher.publish(trades(60), b"order 1") == first
        assert len(source.taken) == len(first) == 3
        await publisher.publish(trades(1))
        await publisher.publish(trades(1))
        assert len(source.taken) == 5

    with_source(market, work)


# ---- sources that fail


def test_a_source_that_is_down_is_waited_for(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def counted(*where: object) -> Visit:
        nonlocal attempts
        attempts += 1
        return await visit_node(*where)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "visit_node", counted)

    async def work() -> None:
        source = Source(market)
        publishing = asyncio.create_task(_publish_once(market))
        await eventually(lambda: attempts >= 3)
        await source.open()
        assert await publishing == (Label(SOURCE, 1),)
        await source.close()

    run(work)


async def _publish_once(market: Market) -> tuple[Label, ...]:
    async with Publisher(market, "floor", patience_s=20) as publisher:
        return await publisher.publish(trades(1))


def test_a_source_that_dies_between_taking_and_answering_is_told_again_under_the_same_keys(market: Market) -> None:
    def forget(source: Source) -> Script:
        def die(message: Publish) -> None:
            source.accept(message)

        return [die, lambda _: None, die]

    async def work(source: Source, publisher: Publisher) -> None:
        labels = await publisher.publish(trades(60))
        assert labels == tuple(Label(SOURCE, number) for number in (1, 2, 3))
        assert len(source.asked) == 4
        assert len(set(source.asked)) == 1
        assert await publisher.publish(trades(1)) == (Label(SOURCE, 4),)
        assert b"".join(source.payloads) == trades(60).tobytes() + trades(1).tobytes()

    assert with_source(market, work, forget).visits == 4


def test_an_answer_to_something_else_is_not_believed(market: Market) -> None:
    def confused(_: Source) -> Script:
        return [lambda _: Accepted(()), lambda message: message]

    async def work(source: Source, publisher: Publisher) -> None:
        assert await publisher.publish(trades(1)) == (Label(SOURCE, 1),)
        assert len(source.asked) == 3

    with_source(market, work, confused)


def test_what_a_source_refuses_is_raised_once_and_the_next_batch_goes_on(market: Market) -> None:
    def refuse(_: Source) -> Script:
        return [lambda _: Refused("a batch of 9,999 bytes: at most 1,296 fit")]

    async def work(source: Source, publisher: Publisher) -> None:
        with pytest.raises(PublishRefusedError, match=r"^floor: a batch of 9,999 bytes"):
            await publisher.publish(trades(1))
        await publisher.publish(trades(1))
        assert len(source.asked) == 2

    assert with_source(market, work, refuse).visits == 1


def test_patience_ends_with_the_reason(market: Market) -> None:
    async def work() -> None:
        with pytest.raises(DoorError, match=r"^floor: no connection to .*gave up after 0 s"):
            async with Publisher(market, "floor", patience_s=0.02):
                pass

    run(work)


def test_a_wrong_key_is_no_matter_of_patience(market: Market) -> None:
    async def work() -> None:
        source = Source(market)
        await source.open()
        path = market.keys_directory / "source-floor.key"
        path.write_text(f"{'5a' * 32}\n", encoding="ascii")
        with pytest.raises(PublishRefusedError, match="unknown name or wrong key"):
            async with Publisher(market, "floor", patience_s=20):
                pass
        await source.close()

    run(work)


# ---- several callers


def test_two_calls_at_once_keep_their_batches_apart(market: Market) -> None:
    async def work(source: Source, publisher: Publisher) -> None:
        each = publisher.events_per_message
        first, second = trades(each * MAX_BATCH * 2), trades(each * 3, first_id=10_000_000)
        one, two = await asyncio.gather(publisher.publish(first), publisher.publish(second))
        assert b"".join(source.payloads) == first.tobytes() + second.tobytes()
        assert [label.number for label in (*one, *two)] == list(range(1, len(source.taken) + 1))

    with_source(market, work)


def test_a_call_that_was_cancelled_leaves_its_answer_to_nobody(market: Market) -> None:
    """The next call must not take the late answer for its own and believe itself published."""

    async def work(source: Source, publisher: Publisher) -> None:
        source.hold.clear()
        waiting = asyncio.create_task(publisher.publish(trades(1)))
        await eventually(lambda: source.asked)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        source.hold.set()
        (label,) = await publisher.publish(trades(1, first_id=77))
        assert list(source.taken.values())[label.number - 1] == trades(1, first_id=77).tobytes()

    assert with_source(market, work).visits == 2


# ---- several requests under way


def numbered(*numbers: int) -> list[tuple[bytes, bytes]]:
    return [(b"key %d" % number, b"message %d" % number) for number in numbers]


def test_what_is_said_ahead_is_at_the_door_before_the_first_is_answered(market: Market) -> None:
    async def work(source: Source, publisher: Publisher) -> None:
        lane = publisher.lanes[0]
        for number in (1, 2, 3):
            await lane.say(numbered(number))
        assert [await lane.answer() for _ in range(3)] == [0, 0, 0]
        assert source.payloads == [b"message 1", b"message 2", b"message 3"]
        assert source.visits == 1

    with_source(market, work)


@pytest.mark.parametrize("taken", [True, False])
def test_a_source_that_dies_with_several_under_way_has_each_once_and_in_order(market: Market, *, taken: bool) -> None:
    """It took the second and did not say so, or did not take it."""

    def script(source: Source) -> Script:
        def dies(message: Publish) -> None:
            if taken:
                source.accept(message)

        return [source.accept, dies]

    async def work(source: Source, publisher: Publisher) -> None:
        lane = publisher.lanes[0]
        for number in (1, 3, 5):
            await lane.say(numbered(number, number + 1))
        for _ in range(3):
            await lane.answer()
        assert source.payloads == [b"message %d" % number for number in range(1, 7)]
        assert lane.repeated == 0, "what was said twice is no repeat of somebody before us"

    with_source(market, work, script)


def test_a_caller_that_is_cancelled_leaves_nothing_under_way(market: Market) -> None:
    async def work(source: Source, publisher: Publisher) -> None:
        lane = publisher.lanes[0]
        source.hold.clear()
        await lane.say(numbered(1))
        waiting = asyncio.create_task(lane.answer())
        await eventually(lambda: len(source.asked) == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        source.hold.set()
        assert await lane.publish_messages(numbered(2)) == (Label(SOURCE, 2),)

    with_source(market, work)


def test_after_closing_the_next_batch_opens_the_door_again(market: Market) -> None:
    async def work(_: Source, publisher: Publisher) -> None:
        await publisher.publish(trades(1))
        await publisher.close()
        await publisher.close()
        await publisher.publish(trades(1))

    assert with_source(market, work).visits == 2


# ---- whom one may publish at


@pytest.mark.parametrize("name, rule", [("a", "is not a source; there are floor"), ("nobody", "is not a source")])
def test_only_a_source_is_published_at(market: Market, name: str, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        Publisher(market, name)


def test_a_source_without_a_door_is_named(tmp_path: Path) -> None:
    nodes: dict[str, dict[str, object]] = {
        "a": {"role": "primary-receiver"},
        "b": {"role": "primary-receiver"},
        "x": {"role": "reformation-server"},
        "floor": {"role": "primary-source", "tcp_port": 0},
    }
    with pytest.raises(ConfigurationError, match=r"nodes\.floor\.tcp_port: is 0: this source has no door"):
        Publisher(market_file(tmp_path, nodes), "floor")


def test_a_missing_key_says_how_to_make_it(market: Market) -> None:
    (market.keys_directory / "source-floor.key").unlink()
    with pytest.raises(IsocastError, match=r"source-floor\.key: file: is missing: isocast keys init makes it"):
        Publisher(market, "floor")
