"""A market and Kafka, against librdkafka's own mock cluster: once, in order, and on from where it stopped."""

from __future__ import annotations

import asyncio
import builtins
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

import isocast
from isocast.cli.main import main
from isocast.runtime.client.kafka import PLACE_HEADER, TOPIC_HEADER, KafkaIn, KafkaOut, KafkaPlace, read_events
from isocast.runtime.market.file import load_market
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError
from isocast.wire.events import EventArray, events_view
from isocast.wire.opaque import is_opaque

kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install isocast[kafka]")

NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive", "floor")},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
}
ROW = {"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100, "id": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(market_file(tmp_path_factory.mktemp("market"), NODES)) as found:
        yield found


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """A cluster in this process; it lives as long as the client that has made it."""
    owner = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    (broker,) = owner.list_topics(timeout=20).brokers.values()
    yield f"{broker.host}:{broker.port}"
    owner.flush(5)


def fill(brokers: str, topic: str, *values: bytes) -> None:
    producer = kafka.Producer({"bootstrap.servers": brokers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def make(brokers: str, *topics: str) -> None:
    """The mock cluster makes a topic when a producer asks for it."""
    producer = kafka.Producer({"bootstrap.servers": brokers})
    for topic in topics:
        wait_until(lambda topic=topic: not producer.list_topics(topic, timeout=20).topics[topic].error)  # type: ignore[misc]


def content(brokers: str, topic: str, count: int) -> list[Any]:
    """So many records of the first partition."""
    consumer = kafka.Consumer({"bootstrap.servers": brokers, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < count:
        found += [record for record in consumer.consume(count - len(found), 20) if not record.error()]
    assert consumer.poll(0.5) is None, "there are more"
    consumer.close()
    return found


def released(world: World, symbol: bytes) -> EventArray:
    payloads = [payload for _, payload in world.released("archive") if not is_opaque(payload)]
    events = np.concatenate([events_view(payload) for payload in payloads])
    found: EventArray = events[events["symbol"] == symbol]
    return found


def feed(brokers: str, topic: str, world: World, group: str, **more: Any) -> KafkaIn:  # noqa: ANN401
    place = KafkaPlace(brokers, topic, {})
    return KafkaIn(place, load_market(world.path), "floor", group=group, **more)


def test_records_are_published_once_and_in_order_however_often_a_group_begins_anew(world: World, brokers: str) -> None:
    many = trades(100, symbols=(b"BYTES",))
    rows = [{**ROW, "symbol": "KAFKA", "id": number} for number in range(1, 30)]
    fill(brokers, "orders", *(json.dumps(row).encode() for row in rows), many.tobytes(), json.dumps(rows[:2]).encode())
    first = feed(brokers, "orders", world, "one")
    asyncio.run(first.run(count=10))
    assert (first.counts.records, first.counts.known) == (10, 0)
    second = feed(brokers, "orders", world, "one")
    asyncio.run(second.run(until_end=True))
    assert (second.counts.records, second.counts.known, second.counts.events) == (21, 0, 19 + 100 + 2)
    wait_until(lambda: len(released(world, b"BYTES")) == 100)
    # A group that has lost its offsets reads all of it again: the source knows every message.
    again = feed(brokers, "orders", world, "two")
    asyncio.run(again.run(until_end=True))
    assert again.counts.records == 31
    fill(brokers, "orders", json.dumps({**ROW, "symbol": "END"}).encode())
    asyncio.run(feed(brokers, "orders", world, "two").run(until_end=True))
    wait_until(lambda: len(released(world, b"END")) == 1)
    assert released(world, b"KAFKA")["id"].tolist() == [*range(1, 30), 1, 2]
    assert released(world, b"BYTES")["id"].tolist() == many["id"].tolist()


def test_a_record_that_is_no_event_is_named_or_passed_over_and_counted(world: World, brokers: str) -> None:
    fill(brokers, "broken", json.dumps({**ROW, "symbol": "SKIP"}).encode(), b"hello", b'{"kind": "trad"}')
    with pytest.raises(ConfigurationError, match="broken partition 0 offset 1"):
        asyncio.run(feed(brokers, "broken", world, "strict").run(until_end=True))
    told: list[str] = []
    lenient = feed(brokers, "broken", world, "lenient", skips_bad=True, told=told.append)
    asyncio.run(lenient.run(until_end=True))
    assert (lenient.counts.records, lenient.counts.bad, lenient.counts.events) == (3, 2, 1)
    assert len(told) == 2
    wait_until(lambda: len(released(world, b"SKIP")) == 1)


def test_a_topic_has_the_sequence_once_and_in_its_order_though_the_copy_was_stopped(
    world: World, brokers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publishing = [trades(40, first, symbols=(b"COPY",)) for first in (1, 41)]
    fill(brokers, "source", *(some.tobytes() for some in publishing))
    asyncio.run(feed(brokers, "source", world, "out").run(until_end=True))
    wait_until(lambda: world.holds("COPY", 80))
    whole = np.concatenate([events_view(payload) for _, payload in world.released("archive")])

    place = KafkaPlace(brokers, "tape", {})
    with pytest.raises(ConfigurationError, match="no such topic"):
        asyncio.run(KafkaOut(place, load_market(world.path), "desk").run(count=1))
    make(brokers, "tape", "rows")
    for count in (5, 30, len(whole) - 35):
        copy = KafkaOut(place, load_market(world.path), "desk", as_json=False)
        asyncio.run(copy.run(count=count))
        assert copy.counts.events == count
    records = content(brokers, "tape", len(whole))
    assert b"".join(record.value() for record in records) == whole.tobytes()
    assert [record.key() or b"" for record in records] == whole["symbol"].tolist()
    places = [tuple(map(int, dict(record.headers())[PLACE_HEADER].split(b":"))) for record in records]
    assert places == sorted(set(places)), "each place once, and rising"

    words = ["kafka", "out", "--brokers", brokers, "--topic", "rows", "--config", str(world.path), "--json"]
    assert main([*words, "--count", str(len(whole))]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == len(whole)
    rows = [record.value() for record in content(brokers, "rows", len(whole))]
    assert np.concatenate([read_events(row) for row in rows]).tobytes() == whole.tobytes(), "JSON comes back as it was"


def test_opaque_messages_are_records_between_the_events(world: World, brokers: str) -> None:
    row = {**ROW, "symbol": "BETWEEN"}
    with isocast.connect(world.path) as market:
        begin = market.publish([{**row, "id": 1}, {**row, "id": 2}])
        market.send_many([("quiz", b"\x00\xff", "table 7"), ("quiz", "late")])
        market.publish({**row, "id": 3})
    wait_until(lambda: world.holds("BETWEEN", 3))
    first = next(number for number, raw in world.released("a") if not is_opaque(raw) and b"BETWEEN" in raw)
    assert begin.messages == 1
    make(brokers, "both", "plain")
    for topic, as_json in (("both", True), ("plain", False)):
        for count in (3, 2):  # Stopped between two messages of one sequence.
            copy = KafkaOut(
                KafkaPlace(brokers, topic, {}), load_market(world.path), "desk", as_json=as_json, start=first
            )
            asyncio.run(copy.run(count=count))
            assert copy.counts.records == count
    records = content(brokers, "both", 5)
    said = [json.loads(record.value()) for record in records]
    assert [(one["kind"], one.get("id"), one.get("payload", one.get("payload_base64"))) for one in said] == [
        ("trade", 1, None), ("trade", 2, None), ("opaque", None, "AP8="), ("opaque", None, "late"), ("trade", 3, None),
    ]  # fmt: skip
    plain = content(brokers, "plain", 5)
    assert [record.value() for record in plain[2:4]] == [b"\x00\xff", b"late"]
    assert [record.key() for record in plain[2:4]] == [b"table 7", None]
    assert [dict(record.headers()).get(TOPIC_HEADER) for record in plain] == [None, None, b"quiz", b"quiz", None]


def test_a_topic_that_others_write_is_not_taken_for_a_copy(world: World, brokers: str) -> None:
    fill(brokers, "others", b"hello")
    with pytest.raises(ConfigurationError, match="not of a market"):
        asyncio.run(KafkaOut(KafkaPlace(brokers, "others", {}), load_market(world.path), "desk").run(count=1))


@pytest.mark.parametrize("value", [b"", b"hello", b"{", b"[]{", b'{"kind": "trade"}', b"\xff" * 48])
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(IsocastError):
        read_events(value)


def test_brokers_that_are_away_are_told_in_words_and_not_by_the_library(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], world: World
) -> None:
    monkeypatch.setattr("isocast.runtime.client.kafka.WAIT_S", 0.5)
    monkeypatch.setattr("isocast.runtime.client.kafka._PATIENCE_S", 0.2)
    told: list[str] = []
    with pytest.raises(TransportError, match=r"no broker of .* answers"):
        asyncio.run(feed("127.0.0.1:1", "orders", world, "away", told=told.append).run())
    assert told[0] == "no broker of 127.0.0.1:1 answers yet: waiting for 0.5 s"
    assert len(told) <= 2, "and why, once"
    told.clear()
    assert capfd.readouterr().err == ""
    place = KafkaPlace("127.0.0.1:1", "orders", {})
    trouble = place.settings(told.append)["error_cb"]
    for _ in range(3):
        trouble(kafka.KafkaError(kafka.KafkaError._ALL_BROKERS_DOWN))  # noqa: SLF001 - its public name
    assert len(told) == 1, "an outage is told once, and then now and then"
    assert told[0].endswith("; it is tried again")


def test_without_the_package_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: World
) -> None:
    plain = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - as Python has it
        if name == "confluent_kafka":
            raise ModuleNotFoundError(name)
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    words = ["kafka", "out", "--brokers", "localhost:1", "--topic", "t", "--config", str(world.path)]
    assert main(words) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("needs the package confluent-kafka: pip install isocast[kafka]")
    )
