"""The edge striper: the same packets from everybody, never above the rate, and nothing but old prices left out."""

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.striping.edge_streams import (
    DELAY,
    PERIOD,
    PLAN,
    RATE,
    SETTINGS,
    SYMBOLS,
    by_stripe,
    cut,
    insist_on_contiguous_numbers,
    insist_on_rate,
    part_of_payloads,
    plan_of,
    random_tokens,
    run,
    told,
)
from tests.wire.journal_samples import blocks

from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket, conflate
from isocast.striping.edge_snapshot import read_striper_snapshot, write_striper_snapshot
from isocast.striping.plan import plan_entry
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart, part_of_block
from isocast.striping.sizes import ITCH_SIZES, PACKET_BYTES
from isocast.terms.conditions import TAPE_CONDITIONS
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.wire.events import EventArray, MarketEvent, build_events, pack_events
from isocast.wire.journal_blocks import encode_block, view_block
from isocast.wire.packets import ControlEntry, ControlKind

BUDGET = budget_bytes(RATE, PERIOD)
STREAMS = st.builds(random_tokens, st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([2.0, 10.0, 40.0, 150.0]))
PACES = st.sampled_from([0, 1, 3])
FEW = settings(max_examples=40, deadline=None)
T0 = 10**18


def token(number: int, events: EventArray, sequence: int, control: tuple[ControlEntry, ...] = ()) -> ReleasedPart:
    """A token of one message."""
    counts = np.array([len(events)], np.int64)
    return ReleasedPart(number, T0 + number * PERIOD, 1, 0, sequence, events, counts, control)


def quotes(symbol: str, prices: list[int]) -> EventArray:
    return build_events(
        [MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol(symbol), Side.BUY, price, 100) for price in prices]
    )


@FEW
@given(STREAMS, PACES)
def test_numbers_have_no_holes_and_no_token_period_exceeds_the_rate(stream: list[ReleasedPart], pace: int) -> None:
    packets = run(EdgeStriper(PLAN, 0, replace(SETTINGS, release_rate=pace)), stream)
    insist_on_contiguous_numbers(packets)
    # What is kept free for a heartbeat is not used either.
    insist_on_rate(packets, BUDGET - PACKET_BYTES)


@FEW
@given(STREAMS, PACES, st.data())
def test_it_makes_no_difference_how_releases_are_cut_nor_who_starts_again(
    stream: list[ReleasedPart], pace: int, data: st.DataObject
) -> None:
    chosen = replace(SETTINGS, release_rate=pace)
    whole = run(EdgeStriper(PLAN, 0, chosen), stream)
    packets: list[EdgePacket] = []
    striper = EdgeStriper(PLAN, 0, chosen)
    for part in stream:
        for piece in cut(part, data.draw(st.lists(st.integers(0, 60), max_size=3))):
            packets += striper.step(piece)
            if data.draw(st.booleans()):
                frozen = read_striper_snapshot(write_striper_snapshot(striper.snapshot()))
                assert frozen == striper.snapshot()
                striper = EdgeStriper(PLAN, 0, chosen)
                striper.restore(frozen)
    assert told(packets) == told(whole)


@FEW
@given(STREAMS)
def test_empty_tokens_only_make_it_known_sooner(stream: list[ReleasedPart]) -> None:
    with_empty = run(EdgeStriper(PLAN, 0, SETTINGS), stream)
    without = run(EdgeStriper(PLAN, 0, SETTINGS), [part for part in stream if part.token_count] or stream)
    assert Counter(told(without)) <= Counter(told(with_empty))


def prices(events: EventArray) -> npt.NDArray[np.bool_]:
    """Quotes and last sales; an auction is neither."""
    sale = (events["kind"] == EventKind.TRADE) & (events["flags"] & int(EventFlag.AUCTION) == 0)
    return np.asarray((events["kind"] == EventKind.QUOTE) | sale, np.bool_)


def test_a_trade_that_may_not_be_last_does_not_displace_the_last_price() -> None:
    trade = MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("S1"), price=100, quantity=1)
    rows = [trade._replace(price=90), trade, trade._replace(price=7, flags=TAPE_CONDITIONS["I"].flags)]
    rows += [trade._replace(price=100, flags=TAPE_CONDITIONS["M"].flags)] * 2
    _, kept = conflate(build_events(rows))
    assert kept["price"].tolist() == [100, 7, 100, 100], "official prices are no last sales: all stay"


def key_of(event: np.void) -> tuple[object, ...]:
    side = int(event["side"]) if event["kind"] == EventKind.QUOTE else 0
    return event["symbol"], event["floor"], int(event["kind"]), side


@FEW
@given(STREAMS)
def test_nothing_but_a_price_with_a_newer_one_is_left_out(stream: list[ReleasedPart]) -> None:
    striper = EdgeStriper(PLAN, 0, replace(SETTINGS, patience=0))
    # A year later everything that waited has left.
    late = replace(stream[-1], token_number=10**6, instant=T0 + 10**17, place=0, token_count=0, control=())
    end = replace(late, events=late.events[:0], counts=late.counts[:0], first_sequence=0)
    packets = run(striper, stream)
    for queue_end in range(2):
        parting = replace(end, token_number=10**6 + queue_end, instant=end.instant + queue_end * 10**16)
        packets += striper.step(replace(parting, first_sequence=striper.next_sequence))
    given_events = np.concatenate([part.events for part in stream])
    for number, own in by_stripe(packets).items():
        sent = np.concatenate([packet.events for packet in own])
        here = PLAN.stripes_of(given_events["symbol"], 0) == number
        wanted = given_events[here | (given_events["symbol"] == b"")]
        firm = ~prices(wanted)
        assert Counter(wanted[firm].tolist()) == Counter(sent[~prices(sent)].tolist())
        newest = {key_of(event): event["price"] for event in wanted[~firm]}
        last_sent = {key_of(event): event["price"] for event in sent[prices(sent)]}
        assert last_sent == newest
        assert len(wanted) - len(sent) == sum(striper.conflated[number].values())
    assert not striper.waiting


@FEW
@given(STREAMS, PACES)
def test_nothing_leaves_before_it_is_due(stream: list[ReleasedPart], pace: int) -> None:
    due: dict[int, int] = {}
    for part in stream:
        for place in range(len(part.counts)):
            step = place // pace * MILLISECOND if pace else 0
            due[part.first_sequence + place] = part.instant + DELAY + step
    for packet in run(EdgeStriper(PLAN, 0, replace(SETTINGS, release_rate=pace)), stream):
        assert packet.due >= max(due[sequence] for sequence in packet.sequences.tolist())


def test_what_fits_leaves_at_its_instant_complete_and_in_order() -> None:
    packets = run(EdgeStriper(PLAN, 0, SETTINGS), [token(1, quotes("S1", list(range(1, 11))), 1)])
    assert [packet.due for packet in packets] == [T0 + PERIOD + DELAY]
    assert packets[0].events["price"].tolist() == list(range(1, 11))
    assert packets[0].ip_bytes == PACKET_BYTES + 10 * 50


def test_a_short_burst_waits_and_a_long_one_is_conflated_to_the_newest() -> None:
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    waited = run(striper, [token(1, quotes("S1", list(range(1, 31))), 1)])
    assert sum(len(packet.events) for packet in waited) == 14
    assert striper.waiting == {1: 16}
    assert striper.conflated[1][EventKind.QUOTE] == 0
    packets = run(striper, [token(2, quotes("S1", list(range(31, 100))), 2)])
    assert packets[-1].events["price"].tolist() == [99]
    assert striper.conflated[1][EventKind.QUOTE] == 99 - 14 - 1 - sum(len(p.events) for p in packets[:-1])


def test_a_quote_behind_a_halt_stays_behind_the_halt() -> None:
    halt = build_events([MarketEvent(EventKind.STATUS, Mic("XNYS"), Symbol("S1"), reference=int(MarketStatus.HALTED))])
    events = np.concatenate([quotes("S1", [1, 2]), quotes("S2", [5]), halt, quotes("S1", [3, 4])])
    striper = EdgeStriper(PLAN, 0, replace(SETTINGS, patience=0))
    filler = quotes("S3", list(range(100, 200)))
    sent = np.concatenate([p.events for p in run(striper, [token(1, np.concatenate([events, filler]), 1)])])
    kinds = [(event["symbol"].decode(), int(event["kind"]), int(event["price"])) for event in sent]
    assert kinds == [("S2", 2, 5), ("S1", 9, 0), ("S1", 2, 4), ("S3", 2, 199)]


def test_a_busy_symbol_is_not_pushed_back_for_ever() -> None:
    """Three times more symbols than fit, all of them quoted in every token, always in the same order."""
    symbols = [f"B{number}" for number in range(45)]
    plan = plan_of(1, symbols)
    striper = EdgeStriper(plan, 0, replace(SETTINGS, patience=0))
    seen: Counter[bytes] = Counter()
    for number in range(1, 31):
        events = np.concatenate([quotes(symbol, [number]) for symbol in symbols])
        for packet in striper.step(token(number, events, number)):
            seen.update(packet.events["symbol"].tolist())
    assert len(seen) == 45
    assert max(seen.values()) <= 2 * min(seen.values())


def test_both_sides_of_a_quote_stay_linked_or_the_link_goes() -> None:
    pair = build_events(
        [
            MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("S1"), Side.BUY, 1, 1, flags=EventFlag.LINKED),
            MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("S1"), Side.SELL, 2, 1),
        ]
    )
    lonely = build_events(
        [MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("S1"), Side.BUY, 3, 1, flags=EventFlag.LINKED)]
    )
    other = build_events([MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("S6"), Side.SELL, 4, 1)])
    (packet,) = run(EdgeStriper(PLAN, 0, SETTINGS), [token(1, pair, 1)])
    assert packet.events["flags"].tolist() == [EventFlag.LINKED, 0]
    packets = run(EdgeStriper(PLAN, 0, SETTINGS), [token(1, np.concatenate([lonely, other]), 1)])
    assert [packet.events["flags"].tolist() for packet in packets] == [[0], [0]]


def test_what_concerns_a_whole_floor_is_on_every_stripe() -> None:
    mark = build_events([MarketEvent(EventKind.MARK, Mic("XNYS"), reference=ord("Q"))])
    packets = run(EdgeStriper(PLAN, 0, SETTINGS), [token(1, np.concatenate([quotes("S1", [1]), mark]), 1)])
    assert {packet.stripe: packet.events["kind"].tolist() for packet in packets} == {1: [2, 11], 2: [11], 99: [11]}


# ---- plans


NEXT = plan_of(2, (*SYMBOLS[:3], SYMBOLS[6]), SYMBOLS[3:6], SYMBOLS[7:], first=2)
"""Stripe 1 goes, 3 and 4 are new, S9 to S11 are named."""


@FEW
@given(STREAMS, st.data())
def test_a_plan_takes_effect_behind_its_token_also_for_who_starts_again_across_it(
    stream: list[ReleasedPart], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] = replace(stream[at], control=(plan_entry(NEXT),))
    steady, restarting = EdgeStriper(PLAN, 0, SETTINGS), EdgeStriper(PLAN, 0, SETTINGS)
    steady.learn(NEXT)
    restarting.learn(NEXT)
    packets: list[EdgePacket] = []
    for place, part in enumerate(stream):
        for piece in cut(part, data.draw(st.lists(st.integers(0, 60), max_size=2))):
            packets += restarting.step(piece)
            if place in (at - 1, at, at + 1):
                frozen = write_striper_snapshot(restarting.snapshot())
                # It may come back with the new plan in its hand, or with the old one.
                restarting = EdgeStriper(data.draw(st.sampled_from([PLAN, NEXT])), 0, SETTINGS)
                restarting.learn(PLAN)
                restarting.learn(NEXT)
                restarting.restore(read_striper_snapshot(frozen))
    expected = run(steady, stream)
    assert told(packets) == told(expected)
    insist_on_contiguous_numbers(expected)
    insist_on_rate(expected, BUDGET - PACKET_BYTES)
    assert steady.plan == NEXT
    for packet in expected:
        old = packet.due < stream[at].instant + DELAY + PERIOD
        own = packet.events[packet.events["symbol"] != b""]
        plan = PLAN if old else NEXT
        assert set(plan.stripes_of(own["symbol"], 0).tolist()) <= {packet.stripe}


def test_numbers_go_on_when_a_stripe_comes_back() -> None:
    third = replace(plan_of(3, SYMBOLS[:5], SYMBOLS[5:9]))
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    for plan in (NEXT, third):
        striper.learn(plan)
    packets = run(
        striper,
        [
            token(1, quotes("S1", [1]), 1, (plan_entry(NEXT),)),
            token(2, quotes("S1", [2]), 2, (plan_entry(third),)),
            token(3, quotes("S1", [3]), 3),
        ],
    )
    assert [(packet.stripe, packet.number) for packet in packets] == [(1, 1), (2, 1), (1, 2)]


def test_a_plan_that_is_not_here_stops_the_striper_until_it_is_learned() -> None:
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    part = token(1, quotes("S1", [1]), 1, (plan_entry(NEXT),))
    with pytest.raises(LocalProtocolError, match="announces stripe plan 2"):
        striper.step(part)
    assert striper.next_sequence == 1
    striper.learn(NEXT)
    assert len(striper.step(part)) == 1
    assert striper.plan == NEXT


def test_an_old_plan_announced_again_changes_nothing() -> None:
    striper = EdgeStriper(NEXT, 0, SETTINGS)
    striper.step(token(1, quotes("S1", [1]), 1, (plan_entry(PLAN), ControlEntry(ControlKind.MARK, 1, b""))))
    assert striper.plan == NEXT


def test_a_malformed_entry_is_refused_before_anything_changes() -> None:
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    with pytest.raises(RemoteProtocolError):
        striper.step(token(1, quotes("S1", [1]), 1, (ControlEntry(ControlKind.STRIPE_PLAN, 2, b"short"),)))
    assert striper.next_sequence == 1


# ---- limits


def test_a_part_that_does_not_continue_the_sequence_is_refused() -> None:
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    striper.step(token(1, quotes("S1", [1]), 1))
    for wrong in (token(1, quotes("S1", [1]), 2), token(2, quotes("S1", [1]), 3), token(2, quotes("S1", [1]), 1)):
        with pytest.raises(LocalProtocolError, match="does not follow"):
            striper.step(wrong)
    with pytest.raises(LocalProtocolError, match="contradicts"):
        striper.step(replace(token(2, quotes("S1", [1]), 2), counts=np.array([2], np.int64)))


def test_a_stripe_too_narrow_for_one_packet_is_bad_configuration() -> None:
    with pytest.raises(ConfigurationError, match="70 bytes in a token period of 10 ms"):
        EdgeStriper(plan_of(1, SYMBOLS, rate=56_000), 0, EdgeSettings(10 * MILLISECOND, SECOND))


def test_kinds_that_stripes_do_not_carry_are_counted() -> None:
    zero = tuple(0 if kind == EventKind.QUOTE else size for kind, size in enumerate(ITCH_SIZES.kind_bytes))
    none = tuple(0 if kind == EventKind.QUOTE else 1 if kind else 0 for kind in range(len(zero)))
    sizes = replace(ITCH_SIZES, kind_bytes=zero, kind_numbers=none)
    striper = EdgeStriper(PLAN, 0, replace(SETTINGS, sizes=sizes))
    assert striper.step(token(1, quotes("S1", [1, 2]), 1)) == ()
    assert striper.not_carried == 2


def test_a_payload_that_is_no_events_has_its_place_and_no_packet() -> None:
    part = part_of_payloads(1, T0, 2, 0, 1, [b"not events", pack_events(quotes("S1", [7]))])
    (packet,) = EdgeStriper(PLAN, 0, SETTINGS).step(part)
    assert packet.sequences.tolist() == [2]


def test_a_journal_gives_what_the_release_gave() -> None:
    released = blocks(4)
    from_payloads, from_blocks = EdgeStriper(PLAN, 0, SETTINGS), EdgeStriper(PLAN, 0, SETTINGS)
    for one in released:
        payloads = [message[3] for message in one.messages]
        figures = (one.token_number, one.instant, one.token_count, one.place, one.first_sequence)
        view = view_block(b"".join(encode_block(one).pieces))
        assert told(from_blocks.step(part_of_block(view))) == told(
            from_payloads.step(part_of_payloads(*figures, payloads))
        )
    assert from_blocks.next_numbers == from_payloads.next_numbers
    assert from_blocks.next_numbers[99] > 1


@pytest.mark.parametrize("damage", ["flip", "cut", "magic", "body"])
def test_a_damaged_snapshot_is_refused(damage: str) -> None:
    raw = write_striper_snapshot(EdgeStriper(PLAN, 0, SETTINGS).snapshot())
    broken = {
        "flip": raw[:10] + bytes([raw[10] ^ 1]) + raw[11:],
        "cut": raw[:-3],
        "magic": b"XXXX" + raw[4:],
        "body": b"",
    }[damage]
    with pytest.raises(RemoteProtocolError):
        read_striper_snapshot(broken)


def test_a_snapshot_of_another_plan_is_refused() -> None:
    frozen = EdgeStriper(NEXT, 0, SETTINGS).snapshot()
    with pytest.raises(LocalProtocolError, match="stripe plan 2, which is not here"):
        EdgeStriper(PLAN, 0, SETTINGS).restore(frozen)
    with pytest.raises(LocalProtocolError, match="other settings"):
        EdgeStriper(NEXT, 0, replace(SETTINGS, patience=5)).restore(frozen)


def test_who_starts_again_within_the_token_of_the_entry_follows_it_too() -> None:
    halves = cut(
        ReleasedPart(1, T0, 2, 0, 1, quotes("S1", [1, 2]), np.array([1, 1], np.int64), (plan_entry(NEXT),)), [1]
    )
    before = EdgeStriper(PLAN, 0, SETTINGS)
    before.learn(NEXT)
    before.step(halves[0])
    after = EdgeStriper(PLAN, 0, SETTINGS)
    after.learn(NEXT)
    after.restore(before.snapshot())
    assert told(after.step(halves[1])) == told(before.step(halves[1]))
    assert after.plan == before.plan == NEXT
