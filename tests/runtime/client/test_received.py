"""Batches as a program gets them, and the inbox that is never larger than it should be."""

import numpy as np
import pyarrow as pa
import pytest
from tests.runtime.worlds import trades

from isocast.hierarchy.edge import Deliver, DeliverLatest, DeliverSnapshot
from isocast.hierarchy.latest import LatestSnapshot
from isocast.runtime.client.received import BatchKind, Inbox
from isocast.terms.ids import Epoch
from isocast.wire.packets import ReleasedPacket

DELAY = 500


def message(sequence: int, payload: bytes, token: int = 2) -> ReleasedPacket:
    return ReleasedPacket(0, Epoch(1, 65_537), 3, token, sequence, token * 1_000, 0, sequence, 1, payload, b"")


def deliver(first: int, *payloads: bytes) -> Deliver:
    return Deliver(tuple([message(sequence, payload) for sequence, payload in enumerate(payloads, first)]))


def test_a_batch_of_messages_has_a_sequence_and_an_instant_for_each_event() -> None:
    inbox = Inbox(100, DELAY)
    one, two = trades(2), trades(1, 3)
    packets = (message(7, one.tobytes(), 2), message(8, two.tobytes(), 3))
    assert inbox.take(Deliver(packets), 99)
    batch = inbox.pop()
    assert batch.kind is BatchKind.MESSAGES
    assert (batch.first_sequence, batch.last_sequence, batch.received_at) == (7, 8, 99)
    assert batch.events.tolist() == np.concatenate([one, two]).tolist()
    assert batch.sequences.tolist() == [7, 7, 8]
    assert batch.instants.tolist() == [2_000, 2_000, 3_000]
    assert batch.releases.tolist() == [2_500, 2_500, 3_500]
    assert (batch.instant, len(batch), batch.unreadable) == (3_000, 3, 0)
    assert not inbox


def test_messages_that_are_no_events_keep_their_place() -> None:
    inbox = Inbox(100, DELAY)
    inbox.take(deliver(1, b"opaque", trades(1).tobytes(), b""), 1)
    batch = inbox.pop()
    assert (batch.first_sequence, batch.last_sequence, len(batch), batch.unreadable) == (1, 3, 1, 2)
    assert batch.sequences.tolist() == [2]
    inbox.take(deliver(4, b"opaque"), 1)
    empty = inbox.pop()
    assert (empty.first_sequence, len(empty), empty.instant) == (4, 0, 0)


def test_as_arrow_with_sequence_and_instant() -> None:
    inbox = Inbox(100, DELAY)
    inbox.take(deliver(7, trades(3).tobytes()), 1)
    table = inbox.pop().to_arrow()
    assert isinstance(table, pa.RecordBatch)
    assert table.column("sequence").to_pylist() == [7, 7, 7]
    assert table.column("id").to_pylist() == [1, 2, 3]
    assert str(table.schema.field("instant").type) == "timestamp[ns, tz=UTC]"


def test_the_arrays_of_a_batch_are_read_only() -> None:
    inbox = Inbox(100, DELAY)
    inbox.take(deliver(1, trades(1).tobytes()), 1)
    with pytest.raises(ValueError, match="read-only"):
        inbox.pop().events["price"] = 1


def test_a_full_inbox_refuses_messages_until_it_is_half_empty() -> None:
    inbox = Inbox(4, DELAY)
    payload = trades(1).tobytes()
    assert inbox.take(deliver(1, *[payload] * 9), 1), "whatever comes to an empty one is taken"
    assert not inbox.take(deliver(10, payload), 1)
    assert not inbox.has_room
    inbox.pop()
    assert inbox.has_room
    assert inbox.take(deliver(10, payload), 1)
    assert inbox.take(deliver(11, payload, payload), 1)
    assert not inbox.has_room
    assert inbox.take(deliver(13, payload), 1)
    assert not inbox.take(deliver(14, payload), 1)


def test_prices_that_nobody_reads_are_conflated() -> None:
    inbox = Inbox(4, DELAY)
    symbols = (b"ISO", b"CAST")
    for newest in range(1, 30_001, 100):
        assert inbox.take(DeliverLatest(newest, trades(100, newest, symbols).tobytes()), newest)
        assert inbox._latest_events <= 8_192 + 100  # noqa: SLF001 - the bound is the claim
    batch = inbox.pop()
    assert batch.kind is BatchKind.LATEST
    assert batch.last_sequence == 29_901
    assert sorted(batch.events["id"].tolist()) == [29_999, 30_000]
    assert batch.instants.tolist() == batch.releases.tolist() == [0, 0]
    assert not inbox


def test_conflated_prices_keep_the_release_of_the_message_that_brought_them() -> None:
    inbox = Inbox(4, DELAY)
    inbox.take(DeliverLatest(7, trades(2, 1, (b"ISO", b"CAST")).tobytes(), (6, 7), (0, 500)), 1)
    inbox.take(DeliverLatest(9, trades(1, 3, (b"ISO",)).tobytes(), (9,), (900,)), 2)
    batch = inbox.pop()
    assert batch.events["id"].tolist() == [2, 3]
    assert batch.sequences.tolist() == [7, 9]
    assert batch.releases.tolist() == [500 + DELAY, 900 + DELAY]


def test_prices_that_are_read_at_once_come_as_they_happened() -> None:
    inbox = Inbox(4, DELAY)
    events = trades(3, symbols=(b"C", b"B", b"A"))
    inbox.take(DeliverLatest(9, events.tobytes()), 1)
    assert inbox.pop().events["id"].tolist() == [1, 2, 3]


def test_a_snapshot_stands_for_everything_before_the_next_sequence() -> None:
    inbox = Inbox(4, DELAY)
    inbox.take(DeliverSnapshot(LatestSnapshot(0, 51, 51, 0, trades(2).tobytes())), 1)
    batch = inbox.pop()
    assert (batch.kind, batch.first_sequence, batch.last_sequence, len(batch)) == (BatchKind.SNAPSHOT, 50, 50, 2)
