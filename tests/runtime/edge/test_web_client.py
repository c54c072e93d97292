"""What a WebSocket client is told: a snapshot, then every event of its symbols, or that some were left out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.runtime.worlds import trades

from isocast.hierarchy.latest import LatestTable
from isocast.runtime.client.rows import fields_of
from isocast.runtime.edge.web_gateway import SNAPSHOT_ROWS, SYMBOLS_MAX, WebClient, read_wish
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.events import EventArray


class Desk:
    """A table and a client, fed together as a gateway does."""

    def __init__(self, rows_max: int = 100) -> None:
        self.table = LatestTable()
        self.client = WebClient(fields_of, rows_max)
        self.sequence = 0

    def happen(self, events: EventArray) -> None:
        self.sequence += 1
        self.table.apply([self.sequence], [events.tobytes()])
        rows = [json.dumps(fields_of(event)) for event in events[self.client.chosen(events)].tolist()]
        self.client.add(self.sequence, self.sequence, rows)

    def told(self) -> list[dict[str, Any]]:
        texts = []
        while (text := self.client.next_text(self.table)) is not None:
            texts.append(json.loads(text))
        return texts


def ids(message: dict[str, Any]) -> list[int]:
    return [row["id"] for row in message["rows"]]


def test_a_snapshot_and_then_every_event_of_the_symbols() -> None:
    desk = Desk()
    desk.happen(trades(6, symbols=(b"AAA", b"BBB", b"CCC")))
    desk.client.wish('{"subscribe": ["AAA", "CCC"]}')
    (snapshot,) = desk.told()
    assert (snapshot["type"], snapshot["sequence"], snapshot["part"], snapshot["parts"]) == ("snapshot", 1, 1, 1)
    assert ids(snapshot) == [4, 6], "the newest of each"
    desk.happen(trades(6, 11, symbols=(b"AAA", b"BBB", b"CCC")))
    desk.happen(trades(1, 21, symbols=(b"AAA",)))
    (events,) = desk.told()
    assert (events["type"], events["first"], events["last"]) == ("events", 2, 3)
    assert ids(events) == [11, 13, 14, 16, 21]
    desk.client.wish('{"unsubscribe": ["AAA"]}')
    assert ids(desk.told()[0]) == [16]
    desk.client.wish('{"unsubscribe": "*"}')
    desk.happen(trades(1, 31, symbols=(b"CCC",)))
    assert desk.told() == []
    assert not desk.client.is_subscribed


def test_everything_and_what_is_of_a_whole_floor() -> None:
    desk = Desk()
    desk.client.wish('{"subscribe": ["AAA"]}')
    desk.told()
    events = trades(3, symbols=(b"AAA", b"BBB", b""))
    desk.happen(events)
    assert ids(desk.told()[0]) == [1, 3]
    desk.client.wish('{"subscribe": "*"}')
    assert sorted(ids(desk.told()[0])) == [1, 2, 3]
    desk.happen(events)
    assert ids(desk.told()[0]) == [1, 2, 3]


def test_a_client_that_does_not_keep_up_is_told_so_and_gets_a_snapshot() -> None:
    desk = Desk(rows_max=100)
    desk.client.wish('{"subscribe": "*"}')
    desk.told()
    for first in range(1, 1_001, 10):
        desk.happen(trades(10, first))
    notice, snapshot = desk.told()
    assert notice == {"type": "conflated", "first": 1, "last": 100, "rows": 1_000}
    assert (snapshot["type"], snapshot["sequence"], ids(snapshot)) == ("snapshot", 100, [1_000])
    assert desk.client.missed == 1_000
    desk.happen(trades(10, 2_000))
    assert ids(desk.told()[0]) == list(range(2_000, 2_010)), "then it follows again"


def test_memory_is_bounded_by_the_rows() -> None:
    desk = Desk(rows_max=50)
    desk.client.wish('{"subscribe": "*"}')
    desk.told()
    for first in range(1, 10_001, 25):
        desk.happen(trades(25, first))
        assert sum(len(waiting.rows) for waiting in desk.client._waiting) <= 50  # noqa: SLF001


def test_a_long_snapshot_comes_in_parts_with_what_happens_meanwhile_behind_it() -> None:
    desk = Desk(rows_max=10_000)
    symbols = [f"S{number}".encode() for number in range(2 * SNAPSHOT_ROWS + 1)]
    desk.happen(trades(len(symbols), symbols=symbols))
    desk.client.wish('{"subscribe": "*"}')
    first = json.loads(desk.client.next_text(desk.table) or "")
    desk.happen(trades(1, 90_000, symbols=(b"S0",)))
    rest = desk.told()
    parts = [first, *rest[:-1]]
    assert [(part["part"], part["parts"], part["sequence"]) for part in parts] == [(n, 3, 1) for n in (1, 2, 3)]
    assert sorted(number for part in parts for number in ids(part)) == list(range(1, len(symbols) + 1))
    assert (rest[-1]["type"], ids(rest[-1])) == ("events", [90_000])


def test_a_heartbeat_only_where_there_is_nothing_else() -> None:
    desk = Desk()
    desk.client.beat('{"type": "heartbeat"}')
    desk.client.beat('{"type": "heartbeat"}')
    assert desk.told() == [{"type": "heartbeat"}]
    desk.client.wish('{"subscribe": "*"}')
    desk.client.beat('{"type": "heartbeat"}')
    assert [message["type"] for message in desk.told()] == ["snapshot"]


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        "",
        "{",
        "[]",
        "{}",
        '{"buy": ["IBM"]}',
        '{"subscribe": "IBM"}',
        '{"subscribe": [7]}',
        '{"subscribe": ["much too long"]}',
        '{"subscribe": ["A B"]}',
        "[" * 100_000,
        json.dumps({"subscribe": ["A"] * (SYMBOLS_MAX + 1)}),
    ],
    ids=lambda raw: str(raw)[:20],
)
def test_anything_else_is_answered_and_changes_nothing(raw: str | bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_wish(raw)
    desk = Desk()
    desk.client.wish('{"subscribe": ["AAA"]}')
    desk.told()
    for _ in range(100):
        desk.client.wish(raw)
    told = desk.told()
    assert {message["type"] for message in told} == {"error"}
    assert len(told) <= 16
    desk.happen(trades(1, symbols=(b"AAA",)))
    assert ids(desk.told()[0]) == [1]


def test_more_symbols_than_anybody_names() -> None:
    desk = Desk()
    names = [f"S{number}" for number in range(SYMBOLS_MAX)]
    desk.client.wish(json.dumps({"subscribe": names}))
    desk.told()
    desk.client.wish('{"subscribe": ["ONE"]}')
    assert desk.told()[0]["type"] == "error"
    assert not desk.client.chosen(trades(1, symbols=(b"ONE",)))[0]
    assert np.all(desk.client.chosen(trades(2, symbols=(b"S1", b"S9"))))


def test_opaque_messages_come_by_topic_and_outlive_a_snapshot() -> None:
    desk = Desk(rows_max=4)
    desk.client.wish('{"topics": ["quiz", "auction"]}')
    assert desk.client.is_subscribed
    assert desk.told() == [], "no snapshot has any"
    assert [desk.client.wants_topic(topic) for topic in ("quiz", "other")] == [True, False]
    desk.happen(trades(1, symbols=(b"AAA",)))
    row = '{"kind": "opaque", "id": 1}'
    desk.client.add(2, 2, [row], [row])
    desk.client.wish('{"subscribe": ["AAA"]}')
    desk.client.add(3, 3, ["{}", row], [row])
    snapshot, events = desk.told()
    assert (snapshot["type"], ids(snapshot), ids(events)) == ("snapshot", [1], [1, 1])
    desk.client.add(4, 4, [row] * 5, [row] * 5)
    assert [message["type"] for message in desk.told()] == ["conflated", "snapshot"]
    desk.client.wish('{"topics": []}')
    assert not desk.client.wants_topic("quiz")
    desk.client.wish('{"topics": "*"}')
    assert desk.client.wants_topic("anything")
    for wrong in ('{"topics": ["two words"]}', '{"topics": [7]}', '{"topics": 7}'):
        desk.client.wish(wrong)
        assert [message["type"] for message in desk.told()] == ["error"]
