"""Whoever follows the sequence has the same floor, however its messages come."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.keys import KEY
from tests.floor.test_rules import TERMS, events

from isocast.floor.codec import decode_event, encode_event
from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Commit,
    Directory,
    Event,
    Lot,
    Phase,
    Reveal,
    Status,
    Take,
    Trade,
    Wake,
)
from isocast.floor.following import REPORT_EVERY, FloorFollower, FloorMessage, FloorStep
from isocast.floor.machine import Floor
from isocast.floor.rules.second_price import commitment
from isocast.floor.state import state_hash
from isocast.terms.entry import EntryRule, entry_order
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

TOPIC = "floor/XISO"
NONCE = bytes(16)

OTHERS: tuple[Event, ...] = (
    Lot(1001, 101, SYMBOL, AuctionKind.SECOND_PRICE, 3, reserve=2, closes_at=4, window_ns=2, forfeit=5),
    Commit(1002, 102, 1001, 9, commitment(7, NONCE, 102, 1001)),
    Commit(1003, 103, 1001, 9, commitment(5, NONCE, 103, 1001)),
    Reveal(1002, 102, 7, NONCE),
    Cancel(1003, 103),
    Lot(1004, 104, SYMBOL, AuctionKind.DUTCH, 9, reserve=2, start=9, step=2),
    Bid(1005, 105, 1004, 4, 8),
    Bid(1006, 106, 1004, 4, 3),
    order(1007, SELL, 6, 5, is_offer=True),
    Take(1008, 108, 1007, 4),
    Take(1009, 109, 1007, 4),
)
"""Lots, bids and offers: in any order, so that some are refused."""


@st.composite
def sequences(draw: st.DrawFn) -> list[tuple[int, int, list[FloorMessage]]]:
    """Tokens with their instants and messages: the floor's, others', and what is no event."""
    terms: dict[str, Any] = draw(TERMS)
    tokens: list[list[Event]] = [[Directory(SYMBOL, **terms)], *draw(events())]
    found, number, sequence = [], 0, 0
    for given_events in tokens:
        number += draw(st.integers(1, 3))
        wanted = [*given_events, *draw(st.lists(st.sampled_from(OTHERS), max_size=3))]
        messages: list[FloorMessage] = []
        for event in wanted:
            sequence += draw(st.integers(0, 2)) or not messages
            messages.append(FloorMessage(sequence, TOPIC, encode_event(event), KEY))
        for strange in draw(
            st.lists(st.sampled_from((("news", b"x"), (TOPIC, b"no event"), (TOPIC, b""))), max_size=1)
        ):
            sequence += 1
            messages.append(FloorMessage(sequence, *strange, KEY))
        found.append((number, number, messages))
    return found


def heard(follower: FloorFollower, tokens: list[tuple[int, int, list[FloorMessage]]]) -> list[tuple[FloorStep, bytes]]:
    """Message after message, as a customer hears them; nothing says that a token is over but the next."""
    found = []
    for token, instant, messages in tokens:
        for message in messages:
            step = follower.hear(token, instant, message)
            if step is not None:
                found.append((step, step.state_hash()))
    return found


def followed(
    follower: FloorFollower, tokens: list[tuple[int, int, list[FloorMessage]]]
) -> list[tuple[FloorStep, bytes]]:
    """Token after token, as a receiver releases them."""
    steps = [follower.follow(token, instant, messages) for token, instant, messages in tokens]
    return [(step, b"") for step in steps if step is not None]


@given(sequences(), st.data())
def test_a_restart_at_any_message_gives_the_same_hashes_and_reports(
    tokens: list[tuple[int, int, list[FloorMessage]]], data: st.DataObject
) -> None:
    flat = [(token, instant, [message]) for token, instant, messages in tokens for message in messages]
    cut = data.draw(st.integers(0, len(flat)))
    through = FloorFollower("XISO")
    before = heard(through, flat[:cut])
    snapshot = through.snapshot()
    after = heard(through, flat[cut:])
    again = FloorFollower.restored(snapshot)
    assert again.snapshot() == snapshot
    assert state_hash(again.floor) == state_hash(FloorFollower.restored(snapshot).floor)
    assert heard(again, flat[cut:]) == after
    assert again.snapshot() == through.snapshot()
    assert (again.finish(), state_hash(again.floor)) == (through.finish(), state_hash(through.floor))
    assert len(before) + len(after) <= len(tokens)


@given(sequences())
def test_a_token_in_pieces_and_a_token_at_once_are_the_same(
    tokens: list[tuple[int, int, list[FloorMessage]]],
) -> None:
    pieces, whole = FloorFollower("XISO"), FloorFollower("XISO")
    in_pieces = [step for step, _ in heard(pieces, tokens)]
    last = pieces.finish()
    assert [*in_pieces, *([last] if last else [])] == [step for step, _ in followed(whole, tokens)]
    assert pieces.snapshot() == whole.snapshot()
    assert pieces.undecodable == whole.undecodable


@given(sequences())
def test_a_step_is_what_the_floor_does_with_the_events_of_the_token(
    tokens: list[tuple[int, int, list[FloorMessage]]],
) -> None:
    follower, floor = FloorFollower("XISO"), Floor()
    for token, instant, messages in tokens:
        step = follower.follow(token, instant, messages)
        of_floor = [message for message in messages if message.topic == TOPIC]
        assert (step is None) == (not of_floor)
        if step is None:
            continue
        readable = []
        for message in of_floor:
            with suppress(RemoteProtocolError):
                readable.append(decode_event(message.payload))
        accounts = [getattr(event, "account", None) for event in readable]
        readable = [readable[place] for place in entry_order(accounts, KEY, EntryRule.SHUFFLE)]
        reports = floor.step(token, instant, readable)
        assert [told.report for told in step.reports] == reports
        assert step.trades == tuple(one for one in reports if isinstance(one, Trade))
        assert step.state_hash() == state_hash(floor)


def opened() -> FloorFollower:
    follower = FloorFollower("XISO")
    follower.follow(1, 10, [FloorMessage(1, TOPIC, encode_event(Directory(SYMBOL, phase=Phase.OPEN)), KEY)])
    return follower


def test_reports_name_the_message_that_made_them() -> None:
    follower = opened()
    sell, buy = (encode_event(order(number, side, 5, 100)) for number, side in ((1, SELL), (2, BUY)))
    step = follower.follow(2, 20, [FloorMessage(7, TOPIC, sell, KEY), FloorMessage(9, TOPIC, buy, KEY)])
    assert step is not None
    assert [(told.sequence, told.report) for told in step.reports] == [(9, Trade(1, SYMBOL, 100, 5, 2, 1))]
    assert (step.number, step.is_reported, follower.sequence) == (2, True, 9)


def test_a_report_is_due_for_trades_and_for_every_hundredth_step() -> None:
    follower = opened()
    found = [follower.follow(2 * n, n, [FloorMessage(n, TOPIC, b"", KEY)]) for n in range(2, 2 * REPORT_EVERY + 2)]
    assert [step.number for step in found if step is not None and step.is_reported] == [REPORT_EVERY, 2 * REPORT_EVERY]


def test_what_is_no_event_is_counted_and_changes_nothing_but_the_token() -> None:
    follower = opened()
    step = follower.follow(
        2, 20, [FloorMessage(2, TOPIC, b"\xff", KEY), FloorMessage(3, "floor/XISO/report", b"\xff", KEY)]
    )
    assert step is not None
    assert (step.reports, follower.undecodable, follower.sequence) == ((), 1, 2)


def test_a_message_of_a_token_that_is_over_is_refused() -> None:
    follower = opened()
    for token in (0, 1):
        with pytest.raises(LocalProtocolError, match="the floor is at 1"):
            follower.hear(token, 20, FloorMessage(2, TOPIC, b"", KEY))
    follower.hear(3, 20, FloorMessage(2, TOPIC, b"", KEY))
    with pytest.raises(LocalProtocolError, match="the floor is at 3"):
        follower.hear(2, 20, FloorMessage(2, TOPIC, b"", KEY))
    with pytest.raises(LocalProtocolError, match="token 3 is not over"):
        follower.follow(4, 20, [])


def test_a_state_that_is_gone_has_no_hash() -> None:
    follower = opened()
    step = follower.follow(2, 20, [FloorMessage(2, TOPIC, b"", KEY)])
    assert step is not None
    assert step.state_hash() == state_hash(follower.floor)
    follower.follow(3, 20, [FloorMessage(3, TOPIC, b"", KEY)])
    with pytest.raises(LocalProtocolError, match="token 3 followed"):
        step.state_hash()


# Who enters first ---------------------------------------------------------------------------------------------------


def entered(step: FloorStep | None) -> list[Event]:
    assert step is not None
    return [one.event for one in step.applied if one.event is not None]


@given(st.data(), st.binary(min_size=16, max_size=16).filter(any))
def test_two_gateways_orders_of_a_token_enter_by_its_key_whatever_the_order_of_arrival(
    data: st.DataObject, key: bytes
) -> None:
    """Each account's own order is kept, which is all that a gateway decides."""
    sent: list[list[Event]] = [
        [order(account << 32 | n, SELL if account % 2 else BUY, 1 + n, 100, account=account) for n in range(1, 4)]
        for account in (1, 2, 3)
    ]
    outcomes = []
    for _ in range(2):
        turns = data.draw(st.permutations([0, 0, 0, 1, 1, 1, 2, 2, 2]))
        waiting = [iter(one) for one in sent]
        arrived = [next(waiting[turn]) for turn in turns]
        follower = opened()
        messages = [FloorMessage(5 + n, TOPIC, encode_event(event), key) for n, event in enumerate(arrived)]
        events = entered(follower.follow(2, 20, messages))
        for one in sent:
            assert [event for event in events if event in one] == one
        outcomes.append((events, state_hash(follower.floor)))
    assert outcomes[0] == outcomes[1]


def test_keys_decide_who_is_first() -> None:
    first, second = order(1, SELL, 1, 100, account=1), order(2, SELL, 1, 100, account=2)
    found = []
    for key in range(1, 201):
        messages = [FloorMessage(2, TOPIC, encode_event(one), key.to_bytes(16)) for one in (first, second)]
        found.append(entered(opened().follow(2, 20, messages))[0])
    assert 60 < found.count(first) < 140, "an even chance for both"


def test_events_without_an_account_enter_first() -> None:
    """What an operator says at the end of a token counts for all of it."""
    sell, halt = order(1, SELL, 1, 100), Status(None, Phase.HALTED)
    step = opened().follow(2, 20, [FloorMessage(2, TOPIC, encode_event(one), KEY) for one in (sell, halt, Wake())])
    assert entered(step) == [halt, Wake(), sell]


def test_messages_that_are_no_event_take_no_part_in_the_shuffle() -> None:
    sells = [FloorMessage(2, TOPIC, encode_event(order(n, SELL, 1, 100, account=n)), KEY) for n in range(1, 6)]
    strange = FloorMessage(2, TOPIC, b"no event", KEY)
    alone = entered(opened().follow(2, 20, sells))
    assert entered(opened().follow(2, 20, [strange, *sells[:3], strange, *sells[3:], strange])) == alone


def test_a_restart_in_the_middle_of_a_token_keeps_its_key() -> None:
    sells = [FloorMessage(2, TOPIC, encode_event(order(n, SELL, 1, 100, account=n)), KEY) for n in range(1, 6)]
    through = opened()
    for message in sells[:2]:
        through.hear(2, 20, message)
    again = FloorFollower.restored(through.snapshot())
    for message in sells[2:]:
        through.hear(2, 20, message)
        again.hear(2, 20, message)
    assert entered(through.finish()) == entered(again.finish())
    assert state_hash(through.floor) == state_hash(again.floor)
    with pytest.raises(LocalProtocolError, match="token 3 has two shuffle keys"):
        again.follow(3, 30, [sells[0], sells[1]._replace(shuffle_key=KEY[::-1])])


def test_without_its_key_a_token_is_not_applied() -> None:
    """A follower that fell back to the sequence would differ from the others, and both would be content."""
    follower = opened()
    before = follower.snapshot()
    with pytest.raises(LocalProtocolError, match=r"token 2 has no shuffle key.*sequence 7 and what follows"):
        follower.hear(2, 20, FloorMessage(7, TOPIC, encode_event(order(1, SELL, 1, 100)), bytes(16)))
    assert follower.snapshot() == before
    assert follower.hear(2, 20, FloorMessage(7, "news", b"", bytes(16))) is None, "others' messages need none"
