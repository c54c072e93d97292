from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.floor.codec import account_of, decode_event, encode_event
from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Commit,
    Crossing,
    Directory,
    Event,
    Lot,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Replace,
    Reveal,
    Share,
    Status,
    Take,
)
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import Side

IDS = st.integers(0, 2**64 - 1)
ACCOUNTS = st.integers(0, 2**32 - 1)
WHOLE = st.integers(-(2**63), 2**63 - 1)
POINTS = st.integers(0, 2**32 - 1)
SYMBOLS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)
MAYBE = st.none() | WHOLE
FLAG = st.booleans()
POSITIVE = st.integers(1, 2**63 - 1)

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Directory,
        SYMBOLS,
        POSITIVE,
        POSITIVE,
        st.sampled_from(MarketKind),
        st.sampled_from(PriceRule),
        st.sampled_from(OwnRule),
        st.sampled_from(Share),
        POINTS,
        POINTS,
        st.integers(0, 2**63 - 1),
        MAYBE,
        st.sampled_from(Phase),
    ),
    st.builds(Status, st.none() | SYMBOLS, st.sampled_from(Phase)),
    st.builds(
        Order,
        id=IDS,
        account=ACCOUNTS,
        symbol=SYMBOLS,
        side=st.sampled_from(Side),
        quantity=WHOLE,
        price=WHOLE,
        owner=ACCOUNTS,
        is_market=FLAG,
        is_immediate=FLAG,
        is_all=FLAG,
        is_post_only=FLAG,
        is_day=FLAG,
        is_offer=FLAG,
        trigger=MAYBE,
        deadline=MAYBE,
        until=MAYBE,
        at=st.none() | st.sampled_from(Crossing),
        display=WHOLE,
    ),
    st.builds(Cancel, IDS, ACCOUNTS, WHOLE),
    st.builds(Replace, IDS, ACCOUNTS, MAYBE, MAYBE, MAYBE),
    st.builds(
        Lot, IDS, ACCOUNTS, SYMBOLS, st.sampled_from(AuctionKind), WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE
    ),
    st.builds(Commit, IDS, ACCOUNTS, IDS, WHOLE, st.binary(min_size=32, max_size=32)),
    st.builds(Reveal, IDS, ACCOUNTS, WHOLE, st.binary(min_size=16, max_size=16)),
    st.builds(Bid, IDS, ACCOUNTS, IDS, WHOLE, WHOLE),
    st.builds(Take, IDS, ACCOUNTS, IDS, WHOLE),
)


@dataclass(frozen=True)
class Damage:
    at: int
    byte: int


@given(EVENTS)
def test_every_event_comes_back(event: Event) -> None:
    found = decode_event(encode_event(event))
    assert found == event
    assert type(found) is type(event)


@given(st.binary(max_size=120))
def test_whatever_is_read_has_one_spelling(data: bytes) -> None:
    try:
        event = decode_event(data)
    except RemoteProtocolError:
        return
    assert encode_event(event) == data


@given(EVENTS, st.builds(Damage, st.integers(0, 200), st.integers(0, 255)))
def test_damaged_bytes_are_refused_or_another_event(event: Event, damage: Damage) -> None:
    data = bytearray(encode_event(event))
    data[damage.at % len(data)] = damage.byte
    try:
        found = decode_event(bytes(data))
    except RemoteProtocolError:
        return
    assert encode_event(found) == bytes(data)


@given(EVENTS)
def test_nothing_may_be_missing_or_follow(event: Event) -> None:
    data = encode_event(event)
    for cut in (data[:-1], data + b"\0", b""):
        with pytest.raises(RemoteProtocolError):
            decode_event(cut)


def test_what_does_not_fit_is_refused_by_the_sender() -> None:
    for event in (
        Cancel(1 << 64, 1),
        Order(1, 1, "A SYMBOL", Side.BUY, 1),
        Status("TOOLONGASYMBOL", Phase.OPEN),
        Commit(1, 1, 1, 1, b"short"),
    ):
        with pytest.raises(LocalProtocolError):
            encode_event(event)


@given(EVENTS)
def test_the_first_bytes_of_an_event_say_whose_it_is(event: Event) -> None:
    data = encode_event(event)
    assert account_of(data) == (None if isinstance(event, Lot) else getattr(event, "account", None))
    assert account_of(data[:12]) is None
