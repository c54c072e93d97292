"""A gateway counts exactly what it multicast and what not; late is sent, history is not; it answers once it can."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from tests.runtime.edge.test_feed import NOON, message
from tests.runtime.worlds import eventually, run

from isocast.feeds.mold import parse_packet, parse_request, request
from isocast.runtime.client.received import BatchKind, ReceivedBatch, batch_of
from isocast.runtime.edge import gateway as edge_gateway
from isocast.runtime.edge.feed import EdgeFeed
from isocast.runtime.edge.gateway import ItchGateway
from isocast.runtime.net.sockets import Endpoint
from isocast.terms.ids import NO_EPOCH
from isocast.wire.events import EventArray
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import ReleasedPacket

SECOND = 10**9


class Wire:
    """What a group would hear."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.unsent = 0
        self.refuses = False

    def send(self, frames: Sequence[bytes]) -> None:
        if self.refuses:
            self.unsent += len(frames)
        else:
            self.packets += frames

    @property
    def numbers(self) -> list[int]:
        parsed = [parse_packet(raw) for raw in self.packets]
        return [number for one in parsed for number in range(one.sequence, one.sequence + one.count)]


class Stage:
    """A gateway whose clock stands where it is put, and whose listener gives what it is given."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: int = NOON) -> None:
        self.now = started
        self.told: list[str] = []
        self.wire = Wire()
        monkeypatch.setattr(edge_gateway, "time_ns", lambda: self.now)
        self.feed = EdgeFeed(tmp_path)
        self.gateway = ItchGateway(
            self.feed,
            lambda _: None,  # type: ignore[arg-type, return-value]
            {},
            Endpoint("127.0.0.1", 0),
            interface="127.0.0.1",
            told=self.told.append,
        )
        self.gateway._outlets[0] = self.wire  # type: ignore[assignment] # noqa: SLF001

    def give(self, *messages: tuple[int, int, EventArray]) -> None:
        """Messages of the sequence, as one batch."""
        self.gateway.receive(self.batch(*messages))

    @staticmethod
    def batch(*messages: tuple[int, int, EventArray]) -> ReceivedBatch:
        events = np.concatenate([events for _, _, events in messages])
        sequences = np.repeat([number for number, _, _ in messages], [len(events) for _, _, events in messages])
        instants = np.repeat([release for _, release, _ in messages], [len(events) for _, _, events in messages])
        first, last = messages[0][0], messages[-1][0]
        return ReceivedBatch(
            BatchKind.MESSAGES, first, last, events, sequences.astype(np.uint64), instants.astype(np.int64), 0, 0
        )

    def adds_up(self) -> bool:
        counts = self.gateway.counts
        return (
            counts.itch_messages == counts.sent_live + counts.sent_late + counts.not_sent
            and counts.not_sent == sum(counts.not_sent_why.values())
            and len(self.wire.numbers) == counts.sent_live + counts.sent_late
        )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_what_load_alone_made_late_is_multicast_and_counted_as_late(stage: Stage) -> None:
    """It was released while this gateway ran: nobody else need tell, and everybody waits for it."""
    stage.now = NOON + 5 * SECOND
    stage.give(message(1, release=NOON + 5 * SECOND - 1))
    stage.now = NOON + 40 * SECOND
    stage.give(message(2, release=NOON + 6 * SECOND), message(3, release=NOON + 40 * SECOND - 1))
    counts = stage.gateway.counts
    assert counts.not_sent == 0
    assert counts.sent_late > 0
    assert counts.sent_live > 0
    assert counts.latest_ns == 34 * SECOND
    assert stage.wire.numbers == list(range(1, counts.itch_messages + 1))
    assert stage.adds_up()


def test_opaque_messages_are_left_out_and_counted(stage: Stage) -> None:
    [payload] = cut_opaque([OpaqueMessage("quiz", b"one"), OpaqueMessage("quiz", b"two")], 1_296)
    packets = [
        ReleasedPacket(0, NO_EPOCH, 1, 1, sequence, NOON, 0, sequence, 1, raw, b"")
        for sequence, raw in enumerate([payload, b"\xf0 strange"], 1)
    ]
    stage.gateway.receive(batch_of(packets, 0, NOON))
    stage.give(message(3))
    counts = stage.gateway.counts
    assert (counts.messages, counts.opaque, counts.unreadable) == (3, 2, 1)
    assert counts.itch_messages > 0
    assert stage.adds_up()


def test_what_was_released_before_it_was_started_is_history_and_not_counted_as_sent(stage: Stage) -> None:
    stage.give(message(1, release=NOON - 3_600 * SECOND), message(2, release=NOON - 1))
    counts = stage.gateway.counts
    assert counts.not_sent > 0
    assert stage.adds_up()
    [(reason, count)] = counts.not_sent_why.items()
    assert "before this gateway was started" in reason
    assert stage.wire.numbers[0] == count + 1, "the first packet shows the gap"
    [(_, session, _)] = stage.feed.running
    answer = stage.feed.answer(parse_request(request(session.encode(), 1, 1)))
    assert parse_packet(answer).sequence == 1, "and whoever asks gets it"
    stage.feed.close()


def test_a_quiet_session_shows_its_history_by_heartbeats(stage: Stage) -> None:
    stage.give(message(1, release=NOON - 3_600 * SECOND))
    stage.gateway.beat()
    assert parse_packet(stage.wire.packets[-1]).sequence == stage.gateway.counts.itch_messages + 1
    stage.feed.close()


def test_a_gateway_that_stood_still_for_an_hour_does_not_flood_its_group_with_it(stage: Stage) -> None:
    stage.now = NOON + 3_600 * SECOND
    stage.give(message(1, release=NOON + SECOND), message(2, release=stage.now - 1))
    counts = stage.gateway.counts
    assert counts.not_sent > 0
    assert any("minutes late" in reason for reason in counts.not_sent_why)
    assert stage.adds_up()


def test_what_the_network_does_not_take_is_not_counted_as_sent(stage: Stage) -> None:
    stage.wire.refuses = True
    stage.give(message(1, release=NOON - 1))
    assert stage.gateway.counts.not_sent == stage.gateway.counts.itch_messages > 0
    assert stage.adds_up()


def test_that_it_falls_behind_and_is_up_to_date_again_is_told_once(stage: Stage) -> None:
    stage.now = NOON + 100 * SECOND
    stage.give(*[message(number, release=NOON + number * SECOND) for number in range(1, 50)])
    stage.give(message(50, release=stage.now))
    stage.give(message(51, release=stage.now))
    assert len(stage.told) == 2
    assert "99.0 s behind" in stage.told[0]
    assert "up to date" in stage.told[1]


def test_what_is_late_goes_out_in_bursts_with_pauses_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catch-up of thousands of packets at once would overflow every customer's socket."""
    monkeypatch.setattr(edge_gateway, "LATE_BURST", 5)
    stage = Stage(tmp_path, monkeypatch)
    stage.now = NOON + 60 * SECOND
    late = stage.batch(*[message(number, release=NOON + SECOND) for number in range(1, 101)])

    class Once(silent):
        """One batch."""

        left = [late]  # noqa: RUF012

        async def __anext__(self) -> ReceivedBatch:
            return self.left.pop() if self.left else await super().__anext__()

    async def work() -> list[int]:
        stage.gateway._listening = Once  # type: ignore[assignment] # noqa: SLF001
        task = asyncio.create_task(stage.gateway._forward())  # noqa: SLF001
        seen = [0]
        while stage.gateway.counts.messages < 100:
            await asyncio.sleep(0)
            seen.append(len(stage.wire.packets))
        task.cancel()
        await asyncio.wait([task])
        return np.diff(seen).tolist()

    steps = run(work())
    assert max(steps) <= 5
    assert stage.adds_up()
    stage.feed.close()


def test_the_port_is_not_bound_before_it_can_answer_and_restoring_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request during the restart is refused by the kernel, not left without an answer."""
    stage = Stage(tmp_path, monkeypatch)
    stage.give(*[message(number, release=NOON + number) for number in range(1, 200)])
    stage.feed.close()
    monkeypatch.setattr(edge_gateway, "TELL_S", 0.0)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.bind(("127.0.0.1", 0))
        where = Endpoint(*probe.getsockname())
    free: list[bool] = []
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as other:
            try:
                other.bind(where)
                free.append(True)
            except OSError:
                free.append(False)

    async def work() -> None:
        feed = EdgeFeed(tmp_path)
        gateway = ItchGateway(feed, silent, {}, where, interface="127.0.0.1", told=tell)  # type: ignore[arg-type]
        task = asyncio.create_task(gateway.run())
        await eventually(gateway.ready.is_set)
        task.cancel()
        await asyncio.wait([task])

    run(work())
    assert any("199 messages" in text for text in told)
    assert free == [True] * len(free)


class silent:  # noqa: N801 - stands for a function
    """A listener of a market in which nothing happens."""

    def __init__(self, _: object) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedBatch:
        await asyncio.Event().wait()
        raise StopAsyncIteration
