"""A source's host: what its window does not allow waits in order, at a pace, and nothing that was answered is lost."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ring.makers import EPOCH, Chain
from tests.runtime.doorways import enter
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import SMALL, World, eventually, market_file, trades

from isocast.ring.effects import OutboxAppended
from isocast.ring.inputs import PacketsArrived
from isocast.runtime.client.publisher import Publisher, PublishRefusedError
from isocast.runtime.disk import outbox_store
from isocast.runtime.disk.store_marker import StoreRole, read_marker
from isocast.runtime.hosts import source as module
from isocast.runtime.hosts.publish_door import PublishError, SourceStopsError
from isocast.runtime.hosts.source import SourceHost
from isocast.runtime.market.key_files import load_source_key
from isocast.runtime.market.model import Market
from isocast.runtime.net.door import DoorError, Visit, visit
from isocast.security.keys import Purpose
from isocast.terms.errors import StoreError, StoreFull, StoreGone, TransportError
from isocast.terms.ids import NO_EPOCH, Label
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.wire.door import Accepted, Publish, RangeWanted, Refused
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import Data, Standing

WINDOW = 4
RING = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}
Batches = list[tuple[bytes, bytes]]


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path, settings={"ring": {"window": WINDOW}, "security": {"signatures": False}})


def batches(*numbers: int) -> Batches:
    return [(f"key {number}".encode(), trades(1, first_id=number).tobytes()) for number in numbers]


class Ring:
    """Stands in for the network: hears what a source sends, and acknowledges by tokens."""

    def __init__(self, host: SourceHost) -> None:
        self.host = host
        self.sent: list[Data] = []
        self._chain = Chain()
        host._channels.multicast = self._hear  # type: ignore[method-assign]  # noqa: SLF001

    def _hear(self, packet: object) -> None:
        assert isinstance(packet, Data)
        self.sent.append(packet)

    @property
    def numbers(self) -> list[int]:
        """As sent, each once."""
        return list(dict.fromkeys(message.number for message in self.sent))

    def acknowledge(self, count: int) -> None:
        """The next token takes so many messages more."""
        first = self._chain.head.next_number.get(self.host.machine.source, 1)
        by_number = {message.number: message for message in self.sent}
        taken = [replace(by_number[number], epoch=EPOCH) for number in range(first, first + count)]
        self.host.driver.feed(PacketsArrived([self._chain.add(*taken).token]))
        self.host._after_step(0)  # noqa: SLF001

    def free(self) -> None:
        """A token says that everything is at every member."""
        token = self._chain.add().token
        self.host.driver.feed(PacketsArrived([replace(token, stable=token.token_number)]))

    async def acknowledge_everything(self, tasks: Iterable[asyncio.Task[object]]) -> None:
        """Until nobody waits any more."""
        waiting = list(tasks)
        while not all(task.done() for task in waiting):
            await asyncio.sleep(0)
            snapshot = self.host.machine.snapshot()
            self.acknowledge(min(snapshot.unacknowledged, WINDOW))
            if self.host.next_deadline() < NEVER:
                await asyncio.sleep(0.001)
                self.host.wake(0)


async def started(around: Surroundings) -> SourceHost:
    host = SourceHost(around.context())
    await host.start()
    return host


def numbers_of(labels: Iterable[Label]) -> list[int]:
    return [label.number for label in labels]


# ---- the window


def test_what_fits_the_window_is_answered_at_once_and_is_on_disk(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        labels = await host.publish(batches(1, 2, 3))
        assert numbers_of(labels) == [1, 2, 3] == ring.numbers
        assert {label.source for label in labels} == {host.store.source}
        assert [key for key, _ in host.store.state.messages.values()] == [b"key 1", b"key 2", b"key 3"]
        await host.stop()

    run(work)


def test_what_does_not_waits_for_tokens_in_order(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        publishing = asyncio.create_task(host.publish(batches(*range(1, 11))))
        await asyncio.sleep(0)
        assert (ring.numbers, publishing.done()) == ([1, 2, 3, 4], False)
        ring.acknowledge(2)
        await asyncio.sleep(0)
        assert ring.numbers == [1, 2, 3, 4, 5, 6]
        await ring.acknowledge_everything([publishing])
        assert numbers_of(await publishing) == list(range(1, 11))
        await host.stop()

    run(work)


def test_many_callers_are_served_in_the_order_of_their_coming(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        calls = [list(range(first, first + size)) for first, size in ((1, 3), (4, 1), (5, 9), (14, 2), (16, 7))]
        tasks = [asyncio.create_task(host.publish(batches(*call))) for call in calls]
        await asyncio.sleep(0)
        await ring.acknowledge_everything(tasks)
        assert [numbers_of(await task) for task in tasks] == calls
        sealed_once = {message.number: message.payload for message in ring.sent}
        assert all(sealed_once[message.number] == message.payload for message in ring.sent)
        await host.stop()

    run(work)


def test_the_same_key_again_is_the_same_message_even_among_those_that_wait(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        tasks = [asyncio.create_task(host.publish(batches(*range(1, 7)))) for _ in range(2)]
        await asyncio.sleep(0)
        await ring.acknowledge_everything(tasks)
        assert numbers_of(await tasks[0]) == numbers_of(await tasks[1]) == [1, 2, 3, 4, 5, 6]
        assert ring.numbers == [1, 2, 3, 4, 5, 6]
        await host.stop()

    run(work)


def test_nothing_to_publish_is_answered_and_blocks_nobody(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        assert await host.publish([]) == ()
        assert numbers_of(await host.publish(batches(1))) == [1]
        await host.stop()

    run(work)


def test_a_batch_that_fits_no_packet_is_refused_whole(market: Market) -> None:
    limit = market.events_per_payload * EVENT_BYTES

    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        with pytest.raises(PublishError, match=f"a batch of {limit + 1} bytes: at most {limit} fit"):
            await host.publish([*batches(1), (b"large", bytes(limit + 1))])
        assert numbers_of(await host.publish([(b"full", bytes(limit))])) == [1]
        await host.stop()

    run(work)


def test_a_caller_that_gives_up_does_not_block_those_behind_it(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        leaves = asyncio.create_task(host.publish(batches(*range(1, 9))))
        await asyncio.sleep(0)
        stays = asyncio.create_task(host.publish(batches(20, 21)))
        await asyncio.sleep(0)
        leaves.cancel()
        await ring.acknowledge_everything([stays])
        labels = await stays
        keys = {label.number: host.store.state.messages[label.number][0] for label in labels}
        assert list(keys.values()) == [b"key 20", b"key 21"]
        assert leaves.cancelled()
        assert ring.numbers == list(range(1, max(keys) + 1))
        await host.stop()

    run(work)


# ---- the pace


def test_a_burst_goes_out_each_millisecond_whoever_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    market = new_market(tmp_path)
    monkeypatch.setattr(SourceHost, "_burst_size", lambda _: 10)

    async def work() -> None:
        around = Surroundings(market, "floor")
        host = await started(around)
        ring = Ring(host)
        now = 1_000 * SECOND
        monkeypatch.setattr(host._clock, "now", lambda: now)  # noqa: SLF001
        monkeypatch.setattr(host.driver, "rearm", lambda: None)
        tasks = [asyncio.create_task(host.publish(batches(*range(at, at + 4)))) for at in range(1, 33, 4)]
        await asyncio.sleep(0)
        assert len(ring.numbers) == 10
        assert host.next_deadline() == now + MILLISECOND
        host._pump()  # noqa: SLF001
        assert len(ring.numbers) == 10
        now += MILLISECOND
        host.wake(now)
        assert (len(ring.numbers), host.next_deadline()) == (20, now + MILLISECOND)
        now -= 3_600 * SECOND  # A clock that was set back: the driver wakes the role.
        host.wake(now)
        assert (len(ring.numbers), host.next_deadline()) == (30, now + MILLISECOND)
        now += MILLISECOND
        host.wake(now)
        assert (len(ring.numbers), host.next_deadline()) == (32, NEVER)
        assert [number for task in tasks for number in numbers_of(await task)] == list(range(1, 33))
        await host.stop()

    run(work)


def test_bursts_of_all_sources_fit_a_receiver_s_buffer(tmp_path: Path) -> None:
    """n·burst·P datagrams of the market's MTU are at most what a socket holds."""
    market = new_market(tmp_path, settings={"network": {"receive_buffer": "8MiB"}})

    async def work() -> int:
        host = SourceHost(Surroundings(market, "floor").context())
        await host.stop()
        return host._burst  # noqa: SLF001

    burst = run(work)
    milliseconds = market.timing.process_ns // MILLISECOND
    assert burst * milliseconds * market.network.mtu <= 8 << 20
    assert (burst + 1) * milliseconds * market.network.mtu > 8 << 20


# ---- the door


async def floor_visit(market: Market) -> Visit:
    plan = market.node("floor")
    key = load_source_key(market, plan).derive(Purpose.DOOR, plan.node)
    return await enter(market, "floor", "source/floor", key, by="floor")


def test_a_visitor_publishes_and_is_told_what_is_refused(market: Market) -> None:
    around = Surroundings(market, "floor")

    async def work() -> None:
        host = await started(around)
        guest = await floor_visit(market)
        await guest.send(Publish(tuple(batches(1, 2))))
        assert numbers_of((await guest.expect(Accepted)).labels) == [1, 2]
        await guest.send(Publish(()))
        assert await guest.expect(Accepted) == Accepted(())
        await guest.send(Publish(((b"large", bytes(5_000)),)))
        assert "at most" in (await guest.expect(Refused)).reason
        await guest.send(RangeWanted(1, 2))
        assert "ask a retransmit server" in (await guest.expect(Refused)).reason
        assert host.gauges().clients == 1
        await guest.close()
        await eventually(lambda: host.door.visitors == 0)
        await host.stop()

    run(work)
    assert around.counters.events_published == around.counters.publishes_accepted == 2
    assert around.alarms == []


def test_a_source_that_stops_hangs_up_and_refuses_nothing(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is final, and the next life takes the batch."""

    async def stops(_: object) -> tuple[Label, ...]:
        raise SourceStopsError("the source stops")

    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        monkeypatch.setattr(host.door, "_publish", stops)
        guest = await floor_visit(market)
        await guest.send(Publish(tuple(batches(1))))
        assert await guest.receive() is None
        await guest.close()
        await host.stop()

    run(work)


def test_a_visitor_that_leaves_while_it_waits_blocks_nobody(market: Market) -> None:
    """What it sent is taken all the same: nobody knows what it saw of the answer."""

    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        guest = await floor_visit(market)
        await guest.send(Publish(tuple(batches(*range(1, 8)))))
        await eventually(lambda: len(ring.numbers) == WINDOW)
        await guest.close()
        other = asyncio.create_task(host.publish(batches(50)))
        await asyncio.sleep(0)
        await ring.acknowledge_everything([other])
        assert numbers_of(await other) == [8]
        await eventually(lambda: host.door.visitors == 0)
        await host.stop()

    run(work)


def test_a_door_that_has_too_much_waiting_reads_no_more_until_some_is_out(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 6)

    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        guests = [await floor_visit(market) for _ in range(3)]
        for place, guest in enumerate(guests):
            await guest.send(Publish(tuple(batches(*range(10 * place, 10 * place + 10)))))
        await eventually(lambda: host.door.visitors == 3 and host._waiting_batches == 6)  # noqa: SLF001
        for _ in range(20):
            await asyncio.sleep(0)
        assert host._waiting_batches == 6  # noqa: SLF001
        answers = [asyncio.create_task(guest.expect(Accepted)) for guest in guests]
        await ring.acknowledge_everything(answers)
        taken = [numbers_of((await answer).labels) for answer in answers]
        assert sorted(number for numbers in taken for number in numbers) == list(range(1, 31))
        assert all(numbers == list(range(numbers[0], numbers[0] + 10)) for numbers in taken)
        for guest in guests:
            await guest.close()
        await host.stop()

    run(work)


def test_strangers_are_named_by_their_address_however_often_they_knock(market: Market) -> None:
    around = Surroundings(market, "floor")

    async def work() -> None:
        host = await started(around)
        plan = market.node("floor")
        for _ in range(5):
            with pytest.raises(DoorError, match="unknown name or wrong key"):
                await visit(plan.address, plan.tcp_port, "source/floor", bytes(32))
        await host.stop()

    run(work)
    assert set(around.codes) == {"visitor-a stranger at 127.0.0.1"}


# ---- the disk, and the end


def test_what_was_answered_survives_and_what_waits_was_never_answered(market: Market) -> None:
    async def first_life() -> None:
        host = await started(Surroundings(market, "floor"))
        await host.publish(batches(1, 2, 3))
        waiting = asyncio.create_task(host.publish(batches(4, 5, 6)))
        await asyncio.sleep(0)
        await host.stop()
        with pytest.raises(PublishError, match="the source stops"):
            await waiting

    async def second_life() -> None:
        host = await started(Surroundings(market, "floor"))
        ring = Ring(host)
        again = asyncio.create_task(host.publish(batches(1, 2, 3, 4, 5, 6)))
        await asyncio.sleep(0)
        await eventually(lambda: len(ring.numbers) == WINDOW)
        await ring.acknowledge_everything([again])
        assert numbers_of(await again) == [1, 2, 3, 4, 5, 6]
        await host.stop()

    run(first_life)
    run(second_life)


def test_a_full_disk_is_told_and_nothing_is_answered_or_sent(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException] = []

    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        host.driver.failed = failures.append
        ring = Ring(host)

        def full(_: object) -> None:
            raise StoreFull("outbox", "no space left")

        monkeypatch.setattr(host.store, "append_many", full)
        waiting = asyncio.create_task(host.publish(batches(1)))
        await asyncio.sleep(0)
        assert [type(failure) for failure in failures] == [StoreFull]
        assert (ring.sent, waiting.done()) == ([], False)
        host._pump()  # noqa: SLF001
        assert ring.sent == []
        await host.stop()
        with pytest.raises(PublishError):
            await waiting

    run(work)


def test_after_a_power_failure_what_is_in_doubt_is_named(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(market, "floor")

    async def first_life() -> int:
        host = await started(around)
        await host.publish(batches(1, 2))
        host.driver.stop()
        await host.door.close()
        host._channels.close()  # noqa: SLF001
        host.store.abandon()
        return host.store.incarnation

    async def second_life() -> int:
        host = await started(around)
        labels = await host.publish(batches(9))
        assert numbers_of(labels) == [1]
        await host.stop()
        return host.store.incarnation

    before = run(first_life)
    assert around.alarms == []
    monkeypatch.setattr(outbox_store, "boot_id", lambda: "the machine was started again")
    assert run(second_life) > before
    assert around.codes == ["in-doubt"]
    assert "with 2 messages in the outbox" in around.alarms[0][1]


def cut_outbox(market: Market) -> None:
    (segment,) = (market.directory_of("floor") / "outbox").glob("segment-*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 1)


def test_an_outbox_that_lost_accepted_messages_is_named_and_numbers_nothing_again(market: Market) -> None:
    around = Surroundings(market, "floor")

    async def life(number: int, *, ends: bool) -> Label:
        host = await started(around)
        (label,) = await host.publish(batches(number))
        if ends:
            await host.stop()
        else:
            host.driver.stop()
            await host.door.close()
            host._channels.close()  # noqa: SLF001
            host.store.abandon()
        return label

    before = run(lambda: life(1, ends=False))
    cut_outbox(market)
    after = run(lambda: life(2, ends=True))
    assert after.source > before.source
    assert around.codes == ["outbox-short"]
    assert "had been acknowledged" in around.alarms[0][1]


def test_a_source_whose_outbox_is_older_than_the_ring_stops_and_comes_back_as_another(market: Market) -> None:
    """Somebody put last week's copy in its place, mark and all."""
    failures: list[BaseException] = []
    around = Surroundings(market, "floor")

    async def first_life() -> int:
        host = await started(around)
        host.driver.failed = failures.append
        source = host.machine.source
        host.driver.feed(PacketsArrived([Standing(0, NO_EPOCH, 1, source, 6, 9)]))
        waiting = asyncio.create_task(host.publish(batches(1)))
        await asyncio.sleep(0)
        await host.stop()
        with pytest.raises(PublishError):
            await waiting
        return source

    async def second_life() -> int:
        host = await started(around)
        await host.stop()
        return host.machine.source

    before = run(first_life)
    (failure,) = failures
    assert "the ring has messages 1 to 5 of this source" in str(failure)
    assert run(second_life) > before
    assert around.codes == ["forged-name", "outbox-short"]


def test_a_source_whose_outbox_is_removed_takes_nothing_more_and_saves_what_it_took(market: Market) -> None:
    around = Surroundings(market, "floor")

    async def work() -> None:
        host = await started(around)
        ring = Ring(host)
        await host.publish(batches(1, 2))
        waiting = asyncio.create_task(host.publish(batches(*range(3, 20))))
        await asyncio.sleep(0)
        host.tick(0)
        shutil.rmtree(market.directory_of("floor"))
        host.tick(SECOND)
        assert around.codes == ["disk-gone"]
        with pytest.raises(PublishError, match=r"accepts no batches: .* was removed, or moved away"):
            await waiting
        with pytest.raises(PublishError, match="accepts no batches"):
            await host.publish(batches(99))
        accepted = host.machine.snapshot().unstable
        host.tick(2 * SECOND)
        ring.acknowledge(accepted)
        ring.free()
        assert host.driver.running
        with pytest.raises(StoreGone, match="was removed"):
            host.tick(3 * SECOND)
        await host.stop()

    run(work)


def test_what_nobody_takes_from_a_source_without_its_outbox_is_named_as_lost(market: Market) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        Ring(host)
        await host.publish(batches(1, 2))
        shutil.rmtree(market.directory_of("floor"))
        host.tick(0)
        host.tick(29 * SECOND)
        with pytest.raises(StoreGone, match="2 accepted messages are lost"):
            host.tick(31 * SECOND)
        await host.stop()

    run(work)


def test_what_cannot_be_opened_whole_leaves_nothing_open(market: Market) -> None:
    plan = market.node("floor")

    async def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((plan.address, plan.port))
            with pytest.raises(TransportError, match="another process listens there"):
                SourceHost(Surroundings(market, "floor").context())
        host = SourceHost(Surroundings(market, "floor").context())
        with pytest.raises(StoreError, match="has this store open"):
            SourceHost(Surroundings(market, "floor").context())
        await host.stop()

    run(work)
    marker = read_marker(market.directory_of("floor") / "outbox", StoreRole.OUTBOX)
    assert marker is not None
    assert marker.closed


def test_records_of_a_burst_are_written_once(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        host = await started(Surroundings(market, "floor"))
        written: list[int] = []
        append = host.store.append_many

        def counted(records: list[OutboxAppended]) -> None:
            written.append(len(records))
            append(records)

        monkeypatch.setattr(host.store, "append_many", counted)
        await host.publish(batches(1, 2, 3, 4))
        assert written == [4]
        await host.stop()

    run(work)


# ---- in a ring


def test_publishers_at_once_through_a_small_window_are_all_released_in_their_own_order(tmp_path: Path) -> None:
    async def work() -> None:
        path = market_file(tmp_path, RING, settings={"ring": {"window": 8}})
        async with World(path) as world:
            await world.start()
            doors = [Publisher(world.market, "floor") for _ in range(3)]
            each = doors[0].events_per_message
            first = [1 + place * 1_000 for place in range(3)]
            await asyncio.gather(
                *[door.publish(trades(each * 10, first_id=start)) for door, start in zip(doors, first, strict=True)]
            )
            await eventually(lambda: all(len(world.ids(name)) == 30 * each for name in "abc"))
            released = world.ids("a")
            for start in first:
                assert [number for number in released if start <= number < start + 1_000] == list(
                    range(start, start + 10 * each)
                )
            with pytest.raises(PublishRefusedError, match="at most"):
                await doors[0].publish_messages([(b"large", bytes(5_000))])
            for door in doors:
                await door.close()

    run(work)
