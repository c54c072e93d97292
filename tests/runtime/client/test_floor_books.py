"""The books of a market's floors among what is heard: the same events at the same places, however batches are cut."""

import io
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.floor.keys import KEY
from tests.floor.test_market_data import CODE, DAY, SECOND, START, flow
from tests.runtime.worlds import trades

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Directory, Event, Order, Phase, Status
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.market_data import INDICATIVE
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.floor.state import state_hash
from isocast.runtime.client import floor_books
from isocast.runtime.client.floor_books import FloorBooks
from isocast.runtime.client.listener import Listener
from isocast.runtime.client.live_tape import take_batch
from isocast.runtime.client.received import ReceivedBatch, batch_of, received_messages
from isocast.runtime.edge.feed import EdgeBlock, EdgeFeed
from isocast.runtime.market.file import market_from_mapping
from isocast.terms.ids import Epoch
from isocast.terms.market import EventKind, Side
from isocast.ticker.tape import Tape
from isocast.ticker.views import depth_views
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import ReleasedPacket

DELAY = SECOND // 2


def sequence(seed: int, tokens: int = 60, most: int = DAY) -> list[ReleasedPacket]:
    """Tokens with messages of the floor, of other topics and of other floors, in every order."""
    random, at = Random(seed), START
    found: list[ReleasedPacket] = []
    for token, (events, later) in enumerate(flow(seed, tokens), 1):
        at += min(later, most)
        said = [OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in events]
        payloads = cut_opaque(said, 400)
        payloads.insert(random.randint(0, len(payloads)), trades(2, 10 * token).tobytes())
        payloads.insert(random.randint(0, len(payloads)), cut_opaque([OpaqueMessage("news", b"x")], 400)[0])
        for payload in payloads:
            number = len(found) + 1
            where = 0, Epoch(1, 65_537), 3, token, number, at, 0, number, 1, payload, b""
            found.append(ReleasedPacket(*where, shuffle_key=bytes([token] * 16)))
    return found


def heard(packets: list[ReleasedPacket], cuts: list[int]) -> list[ReceivedBatch]:
    books = FloorBooks([CODE], DELAY)
    bounds = [0, *cuts, len(packets)]
    parts = [packets[start:stop] for start, stop in pairwise(bounds) if start < stop]
    return [books.add(batch_of(part, DELAY, 0)) for part in parts]


def together(batches: list[ReceivedBatch]) -> list[tuple[Any, int, int]]:
    events = np.concatenate([batch.events for batch in batches]).tolist()
    sequences, instants = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("sequences", "instants")
    )
    return list(zip(events, sequences.tolist(), instants.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_everybody_has_the_same_events_under_the_same_sequences(seed: int) -> None:
    packets, random = sequence(seed), Random(seed)
    whole = together(heard(packets, []))
    assert len(whole) > 2 * 61 + 100
    one_by_one = together(heard(packets, list(range(1, len(packets)))))
    some = together(heard(packets, sorted(random.sample(range(1, len(packets)), 20))))
    assert one_by_one == some == whole
    assert [row[1] for row in whole] == sorted(row[1] for row in whole)
    own = [row for row in whole if row[0][3] == b"XNYS"]
    assert len(own) == 2 * 61, "what was published is there as it was"


def test_whoever_has_not_heard_the_beginning_or_misses_something_shows_nothing() -> None:
    packets = sequence(1)
    for lacking in (0, 5, 90):
        books = FloorBooks([CODE], DELAY)
        if lacking:
            assert (books.add(batch_of(packets[:lacking], DELAY, 0)).events["floor"] == CODE.encode()).any()
        behind = batch_of(packets[lacking + 1 :], DELAY, 0)
        assert books.add(behind) is behind
        assert books.is_lost


def reported(seed: int, tokens: int, *, lies: bool = False) -> list[ReleasedPacket]:
    """The same with the reports of an arbiter, each at the beginning of a later token."""
    follower = FloorFollower(CODE)
    found: list[ReleasedPacket] = []
    due: list[FloorReport] = []
    for packet in sequence(seed, tokens):
        if not found or found[-1].token_number < packet.token_number:
            said = [OpaqueMessage(report_topic(CODE), encode_report(report)) for report in due]
            found += [packet._replace(payload=payload) for payload in cut_opaque(said, 400)]
            due = []
        found.append(packet)
        for one in received_messages(packet, DELAY) or []:
            message = FloorMessage(packet.sequence, one.topic, one.payload, one.shuffle_key)
            step = follower.hear(packet.token_number, packet.instant, message)
            if step is not None and step.is_reported:
                due.append(FloorReport(step.token, bytes(32) if lies else step.state_hash(), 0))
    return [packet._replace(sequence=number, number=number) for number, packet in enumerate(found, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_from_a_state_that_a_report_names_all_goes_on_as_from_the_beginning(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floor_books, "KEEP_EVERY", 40)
    packets = reported(seed, 80)
    whole, told, begun = FloorBooks([CODE], DELAY, folder=tmp_path), [], {1: 1}
    again: dict[int, FloorBooks] = {}
    for place, packet in enumerate(packets, 1):
        told.append(whole.add(batch_of([packet], DELAY, 0)))
        one = FloorBooks([CODE], DELAY, folder=tmp_path, before=place)
        if one.begins_with not in begun:
            begun[one.begins_with], again[one.begins_with] = place, one
    assert len(again) > 2, "states were kept while it went on"
    every = together(told)
    for begins, one in again.items():
        assert begins < begun[begins]
        rest = together([one.add(batch_of([packet], DELAY, 0)) for packet in packets[begins - 1 :]])
        assert not one.is_lost
        told_at = min(row[1] for row in every if row[1] >= begins and row[0][3] == CODE.encode())
        assert told_at < begun[begins]
        # All behind what was kept is the same, with the numbers of orders and the sequences.
        assert [row for row in rest if row[1] > told_at] == [row for row in every if row[1] > told_at]
        assert state_hash(one._data[0].follower.floor) == state_hash(whole._data[0].follower.floor)  # noqa: SLF001


def test_nothing_is_kept_that_no_report_names_and_nothing_used_that_is_of_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floor_books, "KEEP_EVERY", 40)
    packets: list[ReleasedPacket] = []
    for name, lies in (("lies", True), ("right", False)):
        folder = tmp_path / name
        folder.mkdir()
        books = FloorBooks([CODE], DELAY, folder=folder)
        packets = reported(1, 80, lies=lies)
        for packet in packets:
            books.add(batch_of([packet], DELAY, 0))
        begins = [
            FloorBooks([CODE], DELAY, folder=folder, before=len(packets)).begins_with,
            FloorBooks([CODE], DELAY, "Asia/Tokyo", folder=folder, before=len(packets)).begins_with,
            FloorBooks([CODE], DELAY, folder=folder, before=2).begins_with,
            FloorBooks([CODE, "XOTH"], DELAY, folder=folder, before=len(packets)).begins_with,
        ]
        assert (begins[0] > 1) is not lies
        assert begins[1:] == [1, 1, 1]
    (file,) = (tmp_path / "right").iterdir()
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    assert FloorBooks([CODE], DELAY, folder=tmp_path / "right", before=len(packets)).begins_with == 1
    assert list((tmp_path / "lies").iterdir()) == []


def test_a_listener_begins_where_the_books_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor_books, "KEEP_EVERY", 40)
    nodes: dict[str, object] = {name: {"role": "primary-receiver"} for name in ("a", "b", "c")}
    nodes |= {"floor": {"role": "primary-source"}, "x": {"role": "reformation-server"}}
    nodes |= {"archive": {"role": "retransmit-server", "lines": ["a", "b"]}}
    nodes |= {"bank": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"]}}
    floor = {CODE: {"sources": ["floor"], "symbols": [{"symbol": "ISO"}]}}
    reading = market_from_mapping({"nodes": nodes, "timing": {"profile": "lan"}, "floor": floor})
    assert reading.market is not None, reading.faults
    packets, delay = reported(1, 80), reading.market.timing.release_delay_ns
    books = FloorBooks([CODE], delay, folder=tmp_path)
    for packet in packets:
        books.add(batch_of([packet], delay, 0))
    kept = FloorBooks([CODE], delay, folder=tmp_path, before=len(packets)).begins_with
    assert kept > 1
    for before, begins in ((len(packets), kept), (1, "beginning")):
        listener = Listener(reading.market, "bank", start="beginning")
        listener.show_books(folder=tmp_path, before=before)
        assert listener._start == begins  # noqa: SLF001 - opening it would take a market that runs


def test_best_prices_and_depth_are_on_the_tape() -> None:
    events: list[list[Event]] = [
        [Directory("ISO", phase=Phase.OPEN)],
        [
            Order(1, 1, "ISO", Side.BUY, 5, 99),
            Order(2, 2, "ISO", Side.SELL, 7, 101),
            Order(3, 3, "ISO", Side.SELL, 2, 102),
        ],
        [Order(4, 4, "ISO", Side.BUY, 3, 101)],
        [Status(None, Phase.OPEN)],
    ]
    packets = [
        ReleasedPacket(0, Epoch(1, 65_537), 3, token, token, START + token, 0, token, 1, payload, b"", shuffle_key=KEY)
        for token, some in enumerate(events, 1)
        for payload in cut_opaque([OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in some], 1_200)
    ]
    tape = Tape()
    for batch in heard(packets, [1, 2, 3]):
        take_batch(tape, batch, len(batch), several=False)
    (depth,) = depth_views(tape, 5)
    assert [(one.price, one.size) for one in depth.bids] == [(99, 5)]
    assert [(one.price, one.size) for one in depth.asks] == [(101, 4), (102, 2)]
    assert not depth.incomplete
    assert not tape.faults.counts


# ---- on the edge, read by somebody else


def test_another_reader_of_itch_has_the_same_orders_and_indicative_prices(tmp_path: Path) -> None:
    itchfeed = pytest.importorskip("itch.parser", reason="itchfeed is not installed: pip install itchfeed")
    packets = sequence(2, 150, SECOND)
    (batch,) = heard(packets, [])
    feed, made = EdgeFeed(tmp_path, floors=[CODE]), []
    for number in range(1, len(packets) + 1):
        chosen = batch.sequences == number
        if chosen.any():
            release = int(batch.releases[np.flatnonzero(chosen)[0]])
            made += [one for one in feed.take(number, release, batch.events[chosen]) if isinstance(one, EdgeBlock)]
        else:
            feed.pass_over(number)
    feed.close()
    read: list[Any] = list(itchfeed.MessageParser().parse_file(io.BytesIO(b"".join(one.framed for one in made))))
    ours = batch.events[batch.events["floor"] == CODE.encode()]
    locates = {one.stock_locate for one in read if one.message_type == b"R" and one.stock.strip() != b"ISO"}
    assert locates, "CAST and BATCH are the floor's alone"
    marks = ours[(ours["kind"] == EventKind.MARK) & (ours["reference"] == INDICATIVE)]
    told = [one for one in read if one.message_type == b"I"]
    assert len(marks) > 5
    assert [(one.stock.rstrip(), one.near_price, one.paired_shares, one.imbalance_shares) for one in told] == [
        (bytes(one["symbol"]), int(one["price"]), int(one["quantity"]), int(one["id"])) for one in marks
    ]
    letters = {0: b"N", 1: b"B", 2: b"S"}
    for one, mark in zip(told, marks, strict=True):
        assert one.imbalance_direction == (letters[int(mark["side"])] if mark["price"] else b"O")
    kinds = [one.message_type for one in read]
    entered = int(np.count_nonzero(ours["kind"] == EventKind.ORDER))
    assert kinds.count(b"A") + kinds.count(b"U") == entered
    gone = ours[ours["kind"] == EventKind.CANCEL]
    assert kinds.count(b"D") + kinds.count(b"U") == int(np.count_nonzero(gone["quantity"] == 0))
    assert kinds.count(b"X") == int(np.count_nonzero(gone["quantity"] > 0))
    executed = [one for one in read if one.message_type == b"C"]
    assert len(executed) == int(np.count_nonzero(ours["kind"] == EventKind.EXECUTION)) > 10
    assert {one.printable for one in executed} == {b"N"}, "the trade is printed once it is confirmed"
