"""The table of latest events, and its snapshots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hierarchy.edge_makers import quote

from isocast.hierarchy.latest import LatestSnapshot, LatestTable, News, read_snapshot, write_snapshot
from isocast.terms.conditions import TAPE_CONDITIONS
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol
from isocast.wire.events import MarketEvent, build_events, events_view


def prices(news: News | LatestSnapshot) -> list[tuple[str, int]]:
    events = events_view(news.payload)
    return [(str(symbol, "ascii"), int(price)) for symbol, price in zip(events["symbol"], events["price"], strict=True)]


def test_a_burst_leaves_the_last_event_of_each_key() -> None:
    table = LatestTable()
    news = table.apply([1, 2, 3], [quote(1), quote(2, symbol="MSFT"), quote(3)])
    assert prices(news) == [("MSFT", 2), ("IBM", 3)]
    assert news.sequences == (2, 3)
    assert (len(table), table.next_sequence) == (2, 4)


def test_floor_symbol_kind_and_side_make_a_key() -> None:
    rows = [
        MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("IBM"), Side.BUY, price=1),
        MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("IBM"), Side.SELL, price=2),
        MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("IBM"), price=3),
        MarketEvent(EventKind.QUOTE, Mic("XLON"), Symbol("IBM"), Side.BUY, price=4),
        MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("IBM2"), Side.BUY, price=5),
        MarketEvent(EventKind.STATUS, Mic("XNYS"), price=6),
    ]
    table = LatestTable()
    assert prices(table.apply([1], [build_events(rows).tobytes()])) == [
        ("IBM", 1), ("IBM", 2), ("IBM", 3), ("IBM", 4), ("IBM2", 5), ("", 6)
    ]  # fmt: skip


def test_flags_are_no_part_of_a_key_and_a_link_does_not_outlive_conflation() -> None:
    rows = [
        MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("IBM"), Side.BUY, flags=EventFlag.LINKED | EventFlag.AUCTION),
        MarketEvent(EventKind.QUOTE, Mic("XNYS"), Symbol("IBM"), Side.SELL),
    ]
    table = LatestTable()
    table.apply([1], [quote(1)])
    news = events_view(table.apply([2], [build_events(rows).tobytes()]).payload)
    assert news["flags"].tolist() == [EventFlag.AUCTION, 0]
    assert len(table) == 2


def test_a_trade_that_may_not_be_last_does_not_displace_the_last_price() -> None:
    trade = MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("IBM"), price=100)
    rows = [trade, trade._replace(price=7, flags=TAPE_CONDITIONS["I"].flags)]
    table = LatestTable()
    table.apply([1], [build_events(rows).tobytes()])
    events = table.snapshot().events
    assert sorted(events["price"].tolist()) == [7, 100]


def test_a_late_message_counts_only_for_keys_that_nothing_newer_has_touched() -> None:
    table = LatestTable()
    table.apply([5], [quote(5)])
    assert prices(table.apply([4], [quote(4) + quote(4, symbol="MSFT")])) == [("MSFT", 4)]
    assert prices(table.snapshot()) == [("IBM", 5), ("MSFT", 4)]
    assert not table.apply([4], [quote(4)])
    assert table.next_sequence == 6


def test_what_is_no_event_leaves_the_table_as_it_was() -> None:
    table = LatestTable()
    table.apply([1], [quote(1)])
    before = table.snapshot()
    for payloads in ([b"x"], [quote(2), b"garbage"], [quote(2)[:24], quote(2)[24:]]):
        with pytest.raises(RemoteProtocolError):
            table.apply(list(range(2, 2 + len(payloads))), payloads)
    assert table.snapshot() == before


def test_readable_messages_of_a_burst_count_all_the_same() -> None:
    table = LatestTable()
    news, unreadable = table.apply_readable([1, 2, 3], [quote(1), b"garbage", quote(3, symbol="MSFT")])
    assert (prices(news), unreadable) == ([("IBM", 1), ("MSFT", 3)], 1)
    assert table.apply_readable([4], [b"garbage"]) == (News(), 1)
    assert table.next_sequence == 5


def test_an_empty_message_only_moves_on() -> None:
    table = LatestTable()
    assert not table.apply([1], [b""])
    assert table.snapshot() == LatestSnapshot(0, 2, 2, 0, b"")


def test_a_full_table_turns_new_keys_away_and_keeps_the_old_ones_current() -> None:
    table = LatestTable(keys_max=2)
    news = table.apply([1], [quote(1, symbol="A") + quote(1, symbol="B") + quote(1, symbol="C")])
    assert prices(news) == [("A", 1), ("B", 1)]
    assert prices(table.apply([2], [quote(2, symbol="C") + quote(2, symbol="B")])) == [("B", 2)]
    assert (len(table), table.refused) == (2, 2)


def test_a_table_grows_beyond_its_first_room() -> None:
    table = LatestTable()
    payload = b"".join([quote(1, symbol=f"S{number}") for number in range(1_000)])
    assert len(events_view(table.apply([1], [payload]).payload)) == 1_000
    assert len(events_view(table.apply([2], [payload.replace(b"XNYS", b"XLON")]).payload)) == 1_000
    assert len(table) == 2_000


messages = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(Side)), max_size=5), min_size=1, max_size=20
)  # fmt: skip


def payload_of(sequence: int, events: list[tuple[int, Side]]) -> bytes:
    return b"".join([quote(sequence, symbol=f"S{symbol}", side=side) for symbol, side in events])


@given(messages, st.lists(st.booleans(), min_size=20, max_size=20), st.integers(1, 8))
def test_snapshots_are_equal_however_the_sequence_was_cut_into_bursts(
    contents: list[list[tuple[int, Side]]], cuts: list[bool], keys_max: int
) -> None:
    """Two servers' snapshots compare equal, full tables included."""
    payloads = [payload_of(sequence, events) for sequence, events in enumerate(contents, 1)]
    single, bursts = LatestTable(keys_max=keys_max), LatestTable(keys_max=keys_max)
    burst: list[int] = []
    for sequence, payload in enumerate(payloads, 1):
        single.apply([sequence], [payload])
        burst.append(sequence)
        if cuts[sequence - 1] or sequence == len(payloads):
            bursts.apply(burst, [payloads[place - 1] for place in burst])
            burst = []
    assert single.snapshot() == bursts.snapshot()
    assert single.snapshot().digest == bursts.snapshot().digest


@given(messages, st.integers(0, 20), st.randoms(use_true_random=False))
def test_a_late_joiner_ends_with_the_same_table(
    contents: list[list[tuple[int, Side]]],
    cut: int,
    random: st.randoms,  # type: ignore[valid-type]
) -> None:
    """A snapshot as of s and everything after it, in any order, is everything."""
    payloads = [payload_of(sequence, events) for sequence, events in enumerate(contents, 1)]
    cut = min(cut, len(payloads))
    server, joiner = LatestTable(), LatestTable()
    for sequence, payload in enumerate(payloads[:cut], 1):
        server.apply([sequence], [payload])
    rest = list(enumerate(payloads[cut:], cut + 1))
    random.shuffle(rest)  # type: ignore[attr-defined]
    rest.insert(len(rest) // 2, (0, b""))
    for sequence, payload in rest:
        if sequence:
            joiner.apply([sequence], [payload])
        else:
            joiner.restore(server.snapshot())
    for sequence, payload in enumerate(payloads[cut:], cut + 1):
        server.apply([sequence], [payload])
    assert joiner.snapshot().payload == server.snapshot().payload


def test_a_restored_table_goes_on_after_the_snapshot() -> None:
    table, other = LatestTable(stripe=3), LatestTable(stripe=3)
    table.apply([1, 2], [quote(1), quote(2, symbol="MSFT")])
    other.apply([5], [quote(5)])
    assert prices(other.restore(table.snapshot())) == [("MSFT", 2)]
    assert other.next_sequence == 6
    fresh = LatestTable(stripe=3)
    fresh.restore(table.snapshot())
    assert fresh.snapshot() == table.snapshot()


def test_what_a_snapshot_tells_again_is_no_news() -> None:
    table, other = LatestTable(), LatestTable()
    table.apply([1, 2, 3], [quote(1), quote(2, symbol="MSFT"), b""])
    other.apply([1], [quote(1)])
    assert prices(other.restore(table.snapshot())) == [("MSFT", 2)]
    assert not other.restore(table.snapshot())
    assert other.snapshot() == table.snapshot()


def test_a_snapshot_survives_the_door() -> None:
    table = LatestTable(stripe=3)
    table.apply([1, 2], [quote(1), quote(2, symbol="MSFT")])
    snapshot = table.snapshot()
    assert read_snapshot(write_snapshot(snapshot)) == snapshot
    assert np.array_equal(snapshot.events["price"], [1, 2])


def test_a_snapshot_of_anything_else_is_refused() -> None:
    raw = write_snapshot(replace(LatestTable().snapshot(), payload=quote(1)))
    flipped = bytearray(raw)
    flipped[40] ^= 1
    broken = LatestTable().snapshot()
    garbage = write_snapshot(replace(broken, payload=bytes(48)))
    for wrong in (b"", raw[:-1], raw + b"x", b"XXXX" + raw[4:], bytes(flipped), garbage):
        with pytest.raises(RemoteProtocolError):
            read_snapshot(wrong)
    with pytest.raises(RemoteProtocolError, match="keys"):
        read_snapshot(raw, keys_max=0)
