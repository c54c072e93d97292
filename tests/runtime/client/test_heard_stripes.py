"""Inboxes of several stripes as one: merged, late, back, lied to, or each as it comes."""

import asyncio
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tests.runtime.worlds import run, trades

from isocast.hierarchy.edge import Deliver, DeliverLatest, DeliverSnapshot, TokensPassed
from isocast.hierarchy.latest import LatestTable
from isocast.runtime.client import listener as heard_stripes
from isocast.runtime.client.listener import HeardStripes, StripeSeat
from isocast.runtime.client.received import BatchKind, Inbox
from isocast.terms.errors import IsocastError
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import MILLISECOND
from isocast.terms.market import EventFlag, Grade
from isocast.terms.timing import PROFILES
from isocast.wire.packets import ReleasedPacket

TIMING = PROFILES["lan"].timing(3)
PERIOD = TIMING.token_period_ns


class Stripes:
    """Two inboxes, and what reads them."""

    def __init__(self, *, merged: bool = True, grade: Grade = Grade.COMPLETE) -> None:
        self.news = asyncio.Event()
        self.inboxes = [Inbox(100, TIMING.release_delay_ns, stripe, self.news) for stripe in (0, 1)]
        self.told: list[str] = []
        seats = [
            SimpleNamespace(
                plan=SimpleNamespace(stripe=inbox.stripe),
                host=SimpleNamespace(grade=grade),
                inbox=inbox,
                catch_up=lambda: None,
            )
            for inbox in self.inboxes
        ]
        self.heard = HeardStripes(cast("list[StripeSeat]", seats), TIMING, merged=merged, told=self.told.append)

    def put(self, stripe: int, sequence: int, instant: int, payload: bytes = b"") -> None:
        packet = ReleasedPacket(stripe, NO_EPOCH, 1, 1, sequence, instant, stripe, sequence, 1, payload, b"")
        assert self.inboxes[stripe].take(Deliver((packet,)), instant)

    def passed(self, stripe: int, instant: int, next_sequence: int) -> None:
        assert self.inboxes[stripe].take(TokensPassed(instant, next_sequence), instant)

    def all(self) -> list[tuple[int, int, int]]:
        found = []
        while (batch := self.heard.next()) is not None:
            found.append((batch.stripe, batch.first_sequence, batch.last_sequence))
        return found


def test_what_a_stripe_says_of_itself_counts_once_everything_before_was_read() -> None:
    stripes = Stripes()
    assert stripes.heard.is_merged
    stripes.put(0, 1, 100)
    stripes.put(1, 1, 90)
    stripes.passed(1, 90 + PERIOD, 2)
    assert stripes.all() == [(1, 1, 1), (0, 1, 1)]


def test_tokens_of_one_stripe_come_together_as_far_as_the_other_is() -> None:
    stripes = Stripes()
    packets = [ReleasedPacket(0, NO_EPOCH, 1, 1, n, n * PERIOD, 0, n, 1, b"", b"") for n in range(1, 5)]
    assert stripes.inboxes[0].take(Deliver(tuple(packets)), 1)
    stripes.passed(1, 2 * PERIOD, 1)
    assert stripes.all() == [(0, 1, 3)], "the next token of the other is not before the third"
    stripes.passed(1, 3 * PERIOD, 1)
    assert stripes.all() == [(0, 4, 4)]


def test_unmerged_each_comes_at_once_and_in_turn() -> None:
    stripes = Stripes(merged=False)
    stripes.put(0, 1, 100)
    stripes.put(0, 2, 100)
    stripes.put(1, 1, 90)
    assert stripes.all() == [(0, 1, 1), (1, 1, 1), (0, 2, 2)]
    with pytest.raises(IsocastError, match="needs merged stripes"):
        stripes.heard.cut(1)


def test_the_newest_waits_for_nobody() -> None:
    stripes = Stripes(grade=Grade.LATEST)
    assert not stripes.heard.is_merged
    stripes.inboxes[1].take(DeliverLatest(7, trades(1).tobytes()), 1)
    assert stripes.all() == [(1, 7, 7)]


def test_a_snapshot_comes_before_what_continues_it() -> None:
    stripes = Stripes()
    table = LatestTable()
    table.apply([4], [trades(1).tobytes()])
    stripes.inboxes[0].take(DeliverSnapshot(table.snapshot()), 1)
    stripes.put(0, 5, 100)
    first = stripes.heard.next()
    assert first is not None
    assert (first.kind, first.stripe) == (BatchKind.SNAPSHOT, 0)
    assert stripes.all() == []
    stripes.passed(1, 100, 9)
    assert stripes.all() == [(0, 5, 5)]


def test_copies_are_left_out() -> None:
    stripes = Stripes(merged=False)
    events = trades(2)
    events["symbol"][0], events["flags"][0] = b"", EventFlag.COPIED
    stripes.put(1, 1, 100, events.tobytes())
    batch = stripes.heard.next()
    assert batch is not None
    assert batch.events["id"].tolist() == [2]
    assert len(batch.sequences) == len(batch.instants) == 1
    assert np.array_equal(batch.sequences, [1])


def test_a_stripe_that_is_late_is_named_once_and_told_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard_stripes, "_PATIENCE_S", 0.05)

    async def work() -> None:
        stripes = Stripes()
        stripes.put(0, 1, 100 * MILLISECOND)
        assert stripes.all() == []
        stripes.news.clear()
        await stripes.heard.wait(stripes.news)
        assert len(stripes.told) == 1
        assert "stripe 1 is late" in stripes.told[0]
        assert stripes.all() == []
        waiting = asyncio.create_task(stripes.heard.wait(stripes.news))
        await asyncio.sleep(0)
        stripes.passed(1, 100 * MILLISECOND, 1)
        await asyncio.wait_for(waiting, 60)
        assert stripes.all() == [(0, 1, 1)]
        assert len(stripes.told) == 2
        assert "stripe 1 is back" in stripes.told[1]

    run(work())


def test_a_lie_is_told() -> None:
    stripes = Stripes()
    stripes.put(0, 1, 100)
    stripes.passed(1, 10 * PERIOD, 1)
    assert stripes.all() == [(0, 1, 1)]
    stripes.put(1, 1, 50)
    stripes.put(1, 2, 60)
    stripes.put(0, 2, 20 * PERIOD)
    stripes.all()
    assert any("announced wrong tokens" in text for text in stripes.told)
