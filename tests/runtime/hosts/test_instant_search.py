"""Where in the sequence an instant is, as doors tell: of every market, whatever they keep."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.hierarchy.edge import FetchRange, RangeArrived, RangeContinued
from isocast.runtime.hosts import instant_search
from isocast.runtime.hosts.instant_search import first_released_at
from isocast.runtime.net.door import DoorError
from isocast.terms.errors import IsocastError
from isocast.terms.ids import NodeId

DELAY = 1_000
DOORS = (NodeId(1), NodeId(2), NodeId(3))
CONTEXT = SimpleNamespace(
    market=SimpleNamespace(timing=SimpleNamespace(release_delay_ns=DELAY), name_of=lambda door: f"door {door}")
)


class Doors:
    """Each door keeps the messages from one to another, and gives those of a token together."""

    def __init__(self, instants: list[int], kept: dict[NodeId, tuple[int, int] | None]) -> None:
        self.instants = instants
        self.kept = kept
        self.asked = 0

    def fetcher(self, _context: object, feed: Callable[[object], None]) -> Doors:
        self.feed = feed
        return self

    async def close(self) -> None: ...

    async def range_of(self, wanted: FetchRange) -> RangeArrived:
        self.asked += 1
        span = self.kept[wanted.server]
        if span is None:
            raise DoorError("nobody is there")
        low, newest = span
        first = max(low, wanted.first)
        token = self.instants[first - 1] if first <= newest else None
        packets = [
            SimpleNamespace(sequence=number, instant=self.instants[number - 1])
            for number in range(first, newest + 1)
            if wanted.last >= first and self.instants[number - 1] == token
        ]
        self.feed(RangeContinued(wanted.server, packets[:1]))  # type: ignore[arg-type]
        return RangeArrived(wanted.server, packets[1:], low, newest)  # type: ignore[arg-type]


def found(doors: Doors, instant: int) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instant_search, "Fetcher", doors.fetcher)
        return asyncio.run(first_released_at(CONTEXT, DOORS, instant))  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60).map(sorted),
    st.integers(0, 45),
    st.integers(1, 60),
    st.tuples(st.booleans(), st.booleans()),
    st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_it_is_the_first_message_that_is_late_enough_and_kept(
    instants: list[int], instant: int, low: int, dead: tuple[bool, bool], newest: tuple[int, int]
) -> None:
    low = min(low, len(instants))
    spans = [
        None if gone else (low, max(low - 1, min(last, len(instants)))) for gone, last in zip(dead, newest, strict=True)
    ]
    doors = Doors(instants, dict(zip(DOORS, [*spans, (low, len(instants))], strict=True)))
    assert found(doors, instant + DELAY) == max(low, bisect_left(instants, instant) + 1)


def test_a_million_messages_take_some_twenty_questions() -> None:
    doors = Doors(list(range(1_000_000)), dict.fromkeys(DOORS, (1, 1_000_000)))
    assert found(doors, 654_321 + DELAY) == 654_322
    assert doors.asked < 25


def test_if_no_door_answers_it_is_said_why() -> None:
    with pytest.raises(
        IsocastError, match=r"released then: door 1: nobody is there \(and 2 more doors\): is the market up\?"
    ):
        found(Doors([1], dict.fromkeys(DOORS)), 5)
