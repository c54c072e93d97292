"""T4, T6, T7 and T8 from a transcript: what floors do is right, and what one of them should not do is told."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from tests.floor.test_fast import common_flows, flows

from isocast.checks.floor_acts import FloorTranscript, FloorWrong
from isocast.checks.order_paths import OrderPaths
from isocast.checks.price_time import PriceTime
from isocast.floor.events import Event
from isocast.floor.fast import FastFloor
from isocast.floor.following import Applied
from isocast.floor.machine import Floor
from isocast.floor.transcripts import transcript_of


def transcripts(floor: Floor, tokens: Iterable[Iterable[Event]]) -> list[FloorTranscript]:
    found = []
    for number, token in enumerate(tokens, 1):
        applied = [Applied(None, tuple(floor.begin(number, number)))]
        applied += [Applied(event, tuple(floor.apply(event))) for event in token]
        applied.append(Applied(None, tuple(floor.end())))
        found.append(transcript_of(number, number, applied))
    return found


def judged(found: Iterable[FloorTranscript]) -> list[FloorWrong]:
    judges = (PriceTime(), OrderPaths())
    return [wrong for one in found for judge in judges for wrong in judge.step(one)]


@given(flows())
def test_whatever_enters_price_time_and_paths_hold(tokens: list[list[Event]]) -> None:
    assert judged(transcripts(Floor(), tokens)) == []


@given(common_flows())
def test_the_fast_floor_too(tokens: list[list[Event]]) -> None:
    assert judged(transcripts(FastFloor(), tokens)) == []
