"""Packets of narrow stripes as a function of the sequence: the same bytes from everybody, day after day."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.edge.narrow.edge_worlds import NOON, PLAN, PLAN_2, numbers_of, trades_of

from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import SessionEnd, parse_packet
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.release_stamps import read_milliseconds
from isocast.striping.edge import EdgeSettings
from isocast.striping.engine import StripeEngine, StripePacket, read_engine_state
from isocast.striping.plan import plan_entry
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.striping.sizes import FEED_SIZES
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind, Mic

PERIOD = SECOND
DELAY = 20 * MILLISECOND
SETTINGS = EdgeSettings(PERIOD, PERIOD, sizes=FEED_SIZES, introduce_ns=60 * SECOND)
DAY = 86_400 * SECOND


def engine() -> StripeEngine:
    made = StripeEngine(PLAN, 0, SETTINGS, DELAY)
    made.striper.learn(PLAN_2)
    return made


def token(number: int, symbols: str, *, at: int | None = None, control: bool = False) -> ReleasedPart:
    """One message with trades of symbols, named by letters."""
    instant = NOON + number * PERIOD if at is None else at
    events = trades_of(symbols, 100 * number, instant)
    entries = (plan_entry(PLAN_2),) if control else ()
    return ReleasedPart(number, instant, 1, 0, number, events, np.array([len(events)], np.int64), entries)


def packets(made: list[StripePacket | SessionEnd]) -> list[StripePacket]:
    return [one for one in made if isinstance(one, StripePacket)]


STREAM = [token(number, "ABCX" * (number % 7) or "A", control=number == 11) for number in range(1, 26)]


def test_numbers_are_contiguous_in_each_session_also_over_a_new_plan() -> None:
    one = engine()
    made = packets([packet for part in STREAM for packet in one.step(part)])
    for numbers in numbers_of(made).values():
        assert numbers == list(range(1, len(numbers) + 1))
    assert {packet.session for packet in made} == {b"2410040001", b"2410040002", b"2410040009"}
    for packet in made:
        parsed = parse_packet(packet.raw)
        assert (parsed.session, parsed.sequence, parsed.count) == (packet.session, packet.number, packet.count)
        for start in parsed.places:
            assert read_milliseconds(parsed.body[start:], NOON + 20 * SECOND) == packet.due // 10**6, "each by itself"


def test_no_token_period_has_more_bytes_than_the_rate() -> None:
    one = engine()
    made = packets([packet for number in range(1, 60) for packet in one.step(token(number, "ABCX" * 200))])
    budget = budget_bytes(56_000, PERIOD)
    assert {packet.budget for packet in made} == {budget}
    for stripe in (1, 2, 9):
        own = [(packet.due, 28 + len(packet.raw)) for packet in made if packet.stripe == stripe]
        for due, _ in own:
            assert sum(size for at, size in own if due <= at < due + PERIOD) <= budget - 48
    assert sum(sum(by.values()) for by in one.striper.conflated.values()) > 1_000


@settings(max_examples=8, deadline=None)
@given(st.sets(st.integers(0, len(STREAM) - 1), max_size=8))
def test_who_goes_on_from_a_snapshot_makes_the_same_bytes(places: set[int]) -> None:
    whole, other = engine(), engine()
    expected = [packet for part in STREAM for packet in whole.step(part)]
    got: list[StripePacket | SessionEnd] = []
    for place, part in enumerate(STREAM):
        if place in places:
            frozen = read_engine_state(other.snapshot())
            assert frozen.next_sequence == part.first_sequence
            other = engine()
            other.restore(frozen)
        got += other.step(part)
    assert got == expected


def test_a_day_ends_for_every_stripe_with_the_first_packet_of_the_next() -> None:
    one = engine()
    late = NOON + DAY // 2 - 5 * SECOND
    before = one.step(token(1, "ABC", at=late))
    made = one.step(token(2, "A", at=late + 10 * SECOND))
    ends = [end for end in made if isinstance(end, SessionEnd)]
    assert ends == [SessionEnd(1, "2410040001", 9), SessionEnd(2, "2410040002", 5)]
    (packet,) = packets(made)
    assert (packet.session, packet.number) == (b"2410050001", 1)
    assert numbers_of(packets(before))[b"2410040001"] == list(range(1, 9))
    frozen = read_engine_state(one.snapshot())
    again = engine()
    again.restore(frozen)
    part = token(3, "A", at=late + 12 * SECOND)
    assert again.step(part) == one.step(part)


def test_any_decoder_reads_a_stripe_from_its_beginning() -> None:
    one = engine()
    made = packets([packet for part in STREAM for packet in one.step(part)])
    midnight = NOON - DAY // 2
    seen = []
    for session in (b"2410040001", b"2410040002", b"2410040009"):
        decoder = ItchDecoder(Mic("XXXX"), midnight, FeedLog("test", strict=True))
        bodies = [parse_packet(packet.raw).body for packet in made if packet.session == session]
        seen += [event for block in decoder.blocks(bodies) for event in block.tolist()]
    trades = {event[-1] for event in seen if event[0] == EventKind.TRADE}
    ids = {int(number) for part in STREAM for number in part.events["id"]}
    assert trades == ids
    assert date(2024, 10, 4).toordinal() == read_engine_state(one.snapshot()).sessions[1][0]


@pytest.mark.parametrize("damage", ["magic", "head", "sessions", "striper"])
def test_a_damaged_snapshot_is_refused(damage: str) -> None:
    raw = engine().snapshot()
    broken = {
        "magic": b"XXXX" + raw[4:],
        "head": raw[:4] + (1 << 30).to_bytes(4) + raw[8:],
        "sessions": raw.replace(b'"sessions"', b'"secessio"'),
        "striper": raw[:-1] + bytes([raw[-1] ^ 1]),
    }[damage]
    with pytest.raises(RemoteProtocolError):
        read_engine_state(broken)


@pytest.mark.parametrize(
    "session",
    ["[3652059, 1, 2]", "[739163, 0, 2]", "[739163, 5, 4]", '["739163", 1, 2]', "[739163.5, 1, 2]", "[" * 9_999],
    ids=["last day", "no number", "backwards", "text", "half a day", "nested"],
)
def test_sessions_that_make_no_sense_are_refused(session: str) -> None:
    raw = engine().snapshot()
    striper = raw[8 + int.from_bytes(raw[4:8]) :]
    head = b'{"delay": 20000000, "sessions": {"1": %s}}' % session.encode()
    with pytest.raises(RemoteProtocolError, match="make no sense"):
        read_engine_state(raw[:4] + len(head).to_bytes(4) + head + striper)


def test_a_snapshot_of_other_settings_is_refused() -> None:
    frozen = read_engine_state(engine().snapshot())
    with pytest.raises(LocalProtocolError, match="delay of 20000000 ns"):
        StripeEngine(PLAN, 0, SETTINGS).restore(frozen)
    with pytest.raises(LocalProtocolError, match="other settings"):
        StripeEngine(PLAN, 0, replace(SETTINGS, patience=5), DELAY).restore(frozen)
