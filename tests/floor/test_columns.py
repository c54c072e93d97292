"""Columns are the same events: what the bytes of a token are, and what a floor does with them, singly or at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.keys import KEY
from tests.floor.test_arrays import Parts, parts
from tests.floor.test_following import TOPIC, sequences

from isocast.floor import following
from isocast.floor.codec import encode_event
from isocast.floor.columns import read_columns
from isocast.floor.events import Cancel, Cancelled, Directory, Event, Order, Phase, Replace, Trade
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep, read_token
from isocast.floor.state import state_hash

Tokens = list[tuple[int, int, list[FloorMessage]]]
PLAIN: tuple[Event, ...] = (
    order(1, BUY, 4, 6),
    order(2, SELL, 4, 6, account=2, is_day=True, deadline=7),
    order(3, BUY, 4, 6, owner=9, is_immediate=True),
    Order(4, 4, "LONGER.NAME", SELL, 1, 2, deadline=-1),
    order(5, BUY, -4, 0, trigger=5, until=9),
    order(6, BUY, 4, 6, display=2),
    Cancel(1, 1),
    Cancel(2, 2, 3),
    Replace(1, 1, 8),
    Replace(1, 1, -1, -1),
    Replace(2, 2, None, 7),
    Replace(2, 2, None, None, 3),
)


@contextmanager
def columns_from(many: int) -> Iterator[None]:
    with mock.patch.object(following, "MANY", many):
        yield


def told(tokens: Tokens, many: int) -> list[tuple[FloorStep | None, bytes]]:
    """Steps and states, where columns are used from so many events on."""
    follower, found = FloorFollower("XISO"), []
    with columns_from(many):
        for token, instant, messages in tokens:
            step = follower.follow(token, instant, messages)
            found.append((step, state_hash(follower.floor)))
    assert [step.trades for step, _ in found if step is not None] == [
        tuple([one.report for one in step.reports if isinstance(one.report, Trade)])
        for step, _ in found
        if step is not None
    ]
    return found


@given(sequences())
def test_a_step_by_columns_is_the_same_step(tokens: Tokens) -> None:
    assert told(tokens, 1) == told(tokens, 1 << 30)


@given(parts(), st.binary(min_size=16, max_size=16))
def test_of_orders_cancels_and_replaces_too_and_of_deadlines(flow: Parts, key: bytes) -> None:
    key = key if any(key) else KEY
    tokens: Tokens = []
    for number, (before, plain) in enumerate(flow.tokens, 1):
        late = [
            one._replace(deadline=number - one.id % 3) if isinstance(one, Order) and one.id % 2 else one
            for one in plain
        ]
        payloads = []
        for event in (*before, *late):
            with suppress(Exception):  # An array of events holds more than bytes do.
                payloads.append(encode_event(event))
        messages = [FloorMessage(100 * number + place, TOPIC, payload, key) for place, payload in enumerate(payloads)]
        # Those that columns do not take come in a token of their own, so that they do.
        own = len(before) if any(not isinstance(one, Order) for one in before) else 0
        for part, some in enumerate((messages[:own], messages[own:])):
            tokens.append((2 * number + part, number, some))
    assert told(tokens, 1) == told(tokens, 1 << 30)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(PLAIN).map(encode_event),
            st.tuples(st.sampled_from(PLAIN).map(encode_event), st.integers(0, 60), st.integers(0, 255)).map(
                lambda one: one[0][: one[1]] + bytes([one[2]]) + one[0][one[1] + 1 :]
            ),
            st.tuples(st.sampled_from(PLAIN).map(encode_event), st.integers(0, 60)).map(lambda one: one[0][: one[1]]),
            st.binary(max_size=50),
        ),
        max_size=8,
    )
)
@example([encode_event(order(1, BUY, 4, 6))[:-2] + b"A\0"])
@example([encode_event(order(1, BUY, 4, 6, deadline=5))[:-9] + b"\0" * 8])
def test_bytes_are_events_in_columns_exactly_where_they_are_events(payloads: list[bytes]) -> None:
    messages = [FloorMessage(place, TOPIC, payload, KEY) for place, payload in enumerate(payloads)]
    expected, strange = read_token(messages)
    found = read_columns(payloads, KEY)
    if found is None:
        assert any(not isinstance(one.event, Order | Cancel | Replace) for one in expected)
        return
    assert found.strange == strange
    assert [found.event(index) for index in range(len(expected))] == [one.event for one in expected]
    assert found.places == [one.place for one in expected]
    told_by = found.of_events([message.sequence for message in messages])
    assert [told_by[place] for place in found.places] == [one.sequence for one in expected]


def test_a_replace_that_says_minus_one_is_none_that_says_nothing() -> None:
    opening: list[Event] = [Directory(SYMBOL, phase=Phase.OPEN), order(1, BUY, 8, 6)]
    for wanted in ((-1, 6), (4, -1), (-1, -1), (0, 0), (None, 5), (4, None), (None, None)):
        tokens = [
            (number, number, [FloorMessage(number, TOPIC, encode_event(event), KEY)])
            for number, event in enumerate([*opening, Replace(1, 1, *wanted)], 1)
        ]
        assert told(tokens, 1) == told(tokens, 1 << 30)


def test_events_of_other_kinds_are_left_to_those_who_decode() -> None:
    assert read_columns([encode_event(order(1, BUY, 4, 6)), encode_event(Directory(SYMBOL))], KEY) is None


def test_two_floors_at_the_same_token_share_its_columns() -> None:
    def opened() -> FloorFollower:
        follower = FloorFollower("XISO")
        follower.follow(1, 1, [FloorMessage(1, TOPIC, encode_event(Directory(SYMBOL, phase=Phase.OPEN)), KEY)])
        return follower

    messages = [
        FloorMessage(place, TOPIC, encode_event(order(place, side, 2, 100)), KEY)
        for place, side in enumerate((BUY, SELL) * 40, 2)
    ]
    one, other = opened(), opened()
    step = one.follow(2, 2, messages)
    assert step is not None
    assert step.columns is not None
    with mock.patch.object(following, "read_columns", side_effect=AssertionError):
        assert other.follow(2, 2, messages, step.columns) == step
    assert (other.snapshot(), other.undecodable) == (one.snapshot(), 0)
    assert len(step.trades) > 0


def test_an_offer_and_its_cancel_come_in_one_token() -> None:
    some = [order(number, BUY, 2, 6) for number in range(1, 60)]
    offer = order(100, SELL, 4, 6, is_offer=True)
    events: list[list[Event]] = [[Directory(SYMBOL, phase=Phase.OPEN)], [*some, offer, Cancel(100, 100)]]
    tokens = [
        (number, number, [FloorMessage(9, TOPIC, encode_event(one), KEY) for one in found])
        for number, found in enumerate(events, 1)
    ]
    by_column = told(tokens, following.MANY)
    assert by_column == told(tokens, 1 << 30)
    step = by_column[-1][0]
    assert step is not None
    assert step.columns is not None
    assert [one.report for one in step.reports] == [Cancelled(100, 4)]
