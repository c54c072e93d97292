"""A market and Kafka: records of a topic are published at a source, and released events are copied to a topic.

Both go on where they stopped, and do nothing twice, whatever dies on the way:

    in    a record is published under a key made of topic, partition, offset and content, which the source takes once;
          the group's offset is committed behind that
    out   an event's record says its place in the sequence (header `isocast`: stripe:sequence:index); whoever starts
          again reads the last record of each partition and goes on behind it. One copy of a topic at a time.

A stripe of the market is a partition of the topic, so that the topic has each stripe's sequence in its order. The key
of a record is the event's symbol. Its value is a JSON object, as `isocast listen --json` has it, or the record of 48
bytes. An opaque message is a record too, with its own key, its payload as the value, or a JSON object of both, and its
topic in the header `isocast-topic`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import merge
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from isocast.runtime.client.listener import Listener, Start
from isocast.runtime.client.message_cutter import FULL, MessageCutter
from isocast.runtime.client.message_rows import message_fields
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.client.received import ReceivedBatch
from isocast.runtime.client.rows import events_of, fields_of
from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError
from isocast.terms.quantities import counted
from isocast.wire.events import EventArray, are_events, events_view
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.opaque import OpaqueMessage

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

__all__ = ["PLACE_HEADER", "TOPIC_HEADER", "KafkaCounts", "KafkaIn", "KafkaOut", "KafkaPlace", "insist_on_kafka"]

PLACE_HEADER = "isocast"
TOPIC_HEADER = "isocast-topic"
"""Of an opaque message: its topic in the market."""
WAIT_S = 15.0
"""For a broker to answer."""
_LOOK_S = 0.2
_PATIENCE_S = 2.0
"""What takes longer is said."""
_TELL_EVERY_S = 10.0
_AT_ONCE = 1_000
"""Records that are read, or events that are written, together."""
_MS = 1_000_000

Told = Callable[[str], None]


def insist_on_kafka() -> None:
    """Raise ConfigurationError if the package is not there."""
    try:
        import confluent_kafka  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        rule = "needs the package confluent-kafka: pip install isocast[kafka]"
        raise ConfigurationError("command line", "kafka", rule) from None


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """A topic, and how to get there."""

    brokers: str
    topic: str
    options: Mapping[str, str]
    """Further settings of librdkafka, such as security.protocol."""

    def settings(self, told: Told, **own: object) -> dict[str, Any]:
        """For a client of librdkafka; what a user sets wins, except what keeps the promises above.

        Its own log has twenty lines a second while a broker is away: `told` hears of it instead, now and then.
        """
        return {"bootstrap.servers": self.brokers, "error_cb": _Trouble(told), "log_level": 0, **self.options, **own}


class _Trouble:
    """A broker that is away comes back; calls that wait for it say when they give up."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._quiet_until = 0.0

    def __call__(self, error: KafkaError) -> None:
        if monotonic() >= self._quiet_until:
            self._quiet_until = monotonic() + _TELL_EVERY_S
            self._told(f"Kafka: {error.str()}; it is tried again")


@dataclass(slots=True)
class KafkaCounts:
    """What was done."""

    records: int = 0
    """Of the topic, read or written."""
    events: int = 0
    known: int = 0
    """Messages that the source had already, or events that the topic had."""
    bad: int = 0
    """Records that are no events, and were passed over."""
    opaque: int = 0
    """Opaque messages that were copied."""


# ---- in


class KafkaIn:
    """Feeds a source from a topic."""

    def __init__(
        self,
        place: KafkaPlace,
        market: Market,
        source: str,
        *,
        group: str,
        skips_bad: bool = False,
        told: Told = lambda _: None,
    ) -> None:
        """`group` is the consumer group whose offsets are kept."""
        insist_on_kafka()
        self.counts = KafkaCounts()
        self._place = place
        self._publisher = Publisher(market, source)
        self._group = group
        self._skips_bad = skips_bad
        self._told = told
        self._identity = blake2b(place.topic.encode(), digest_size=8).digest()

    async def run(self, *, count: int | None = None, until_end: bool = False) -> None:
        """Publish what is there and what comes; ends after `count` records, or with the topic if `until_end`."""
        from confluent_kafka import OFFSET_STORED, Consumer, TopicPartition  # noqa: PLC0415 - an extra

        own: dict[str, object] = {"group.id": self._group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        own |= {"isolation.level": "read_committed", "enable.partition.eof": until_end}
        consumer = Consumer(self._place.settings(self._told, **own))
        try:
            partitions = await asyncio.to_thread(_insist_on_topic, consumer, self._place, self._told)
            open_ = set(range(partitions)) if until_end else None
            # One feeder reads all partitions: a group that shares them would only change the order.
            consumer.assign([TopicPartition(self._place.topic, part, OFFSET_STORED) for part in range(partitions)])
            async with self._publisher:
                await self._work(consumer, count, open_)
        finally:
            await asyncio.to_thread(consumer.close)

    async def _work(self, consumer: Consumer, count: int | None, unread: set[int] | None) -> None:
        """`unread` are partitions whose end was not met yet; None if nobody waits for it."""
        while (count is None or self.counts.records < count) and unread != set():
            left = _AT_ONCE if count is None else min(_AT_ONCE, count - self.counts.records)
            records = await asyncio.to_thread(consumer.consume, left, _LOOK_S)
            good = [record for record in records if not _failed(record, unread)]
            messages = [message for record in good for message in self._messages(record)]
            before = self._publisher.repeated
            if messages:
                await self._publisher.publish_messages(messages)
            self.counts.known += self._publisher.repeated - before
            self.counts.records += len(good)
            if good:
                await asyncio.to_thread(consumer.commit, offsets=_behind(good), asynchronous=False)

    def _messages(self, record: Message) -> list[tuple[bytes, bytes]]:
        """The messages of a record, each with its key."""
        value = record.value() or b""
        partition, offset = int(record.partition() or 0), int(record.offset() or 0)
        try:
            events = read_events(value)
        except IsocastError as reason:
            where = f"{self._place.topic} partition {partition} offset {offset}"
            if not self._skips_bad:
                raise ConfigurationError(where, "record", f"{reason}; --skip-bad passes over such records") from None
            self.counts.bad += 1
            self._told(f"{where}: {reason}: passed over")
            return []
        self.counts.events += len(events)
        # The record's own time, not ours: a repeat must be the same message.
        events["time"][events["time"] == 0] = max(record.timestamp()[1], 1) * _MS
        key = self._identity + partition.to_bytes(4) + offset.to_bytes(8) + blake2b(value, digest_size=16).digest()
        cutter = MessageCutter(self._publisher.events_per_message, FULL)
        cutter.put(events)
        return [(key + place.to_bytes(4), payload) for place, (_, payload) in enumerate(cutter.cut(None))]


def read_events(value: bytes) -> EventArray:
    """The events of a record: JSON, an object or a list, or records of 48 bytes; IsocastError if it is neither."""
    if value[:1] in (b"{", b"["):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            raise IsocastError("this is not JSON") from None
        return events_of(found if isinstance(found, list) else [found]).copy()
    if value and len(value) % EVENT_BYTES == 0 and are_events(value):
        return events_view(value).copy()
    raise IsocastError(f"{len(value)} bytes are neither JSON nor event records")


def _failed(record: Message, unread: set[int] | None) -> bool:
    """Whether this is no record but an error, or the end of a partition; errors that stay are raised."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - an extra

    error = record.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF and unread is not None:  # noqa: SLF001 - its public name
        unread.discard(int(record.partition() or 0))
    if error.fatal() or error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        raise TransportError(f"Kafka: {error.str()}")
    return True


def _behind(records: Sequence[Message]) -> list[TopicPartition]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

    last = {(str(record.topic()), int(record.partition() or 0)): int(record.offset() or 0) for record in records}
    return [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in last.items()]


# ---- out


class _Record(NamedTuple):
    """An event or an opaque message on its way to a topic."""

    place: tuple[int, int]
    """Sequence and index."""
    release_ns: int
    key: bytes
    value: bytes
    topic: str | None = None
    """Of an opaque message, in the market."""


class KafkaOut:
    """Copies what a market releases to a topic."""

    def __init__(
        self,
        place: KafkaPlace,
        market: Market,
        name: str | None,
        *,
        as_json: bool = True,
        start: Start | None = None,
        told: Told = lambda _: None,
    ) -> None:
        """`name` is the customer to be; `start` is where a topic begins that has no events yet."""
        insist_on_kafka()
        self.counts = KafkaCounts()
        self._place = place
        self._market = market
        self._name = name
        self._as_json = as_json
        self._start = start
        self._told = told
        self._error: str | None = None

    async def run(self, *, count: int | None = None) -> None:
        """Copy what was released and what comes; ends after so many records, all of them safe at the brokers."""
        from confluent_kafka import Producer  # noqa: PLC0415 - an extra

        places = await asyncio.to_thread(self._last_places)
        known = {stripe: place[0] for stripe, place in places.items() if place[0]}
        start: Start = known if len(known) == len(places) else self._start or "beginning"
        own = {"enable.idempotence": True, "acks": "all", "linger.ms": 5}
        producer = Producer(self._place.settings(self._told, **own))
        listener = Listener(
            self._market,
            self._name,
            latest=False,
            start=_plain(start),
            told=self._told,
            stripes=list(places),
            merged=False,
        )
        try:
            async with listener:
                async for batch in listener:
                    await self._copy(producer, batch, places, count)
                    if count is not None and self.counts.records >= count:
                        break
        finally:
            left = await asyncio.to_thread(producer.flush, WAIT_S)
        self._insist_on_delivery()
        if left:
            rule = f"Kafka confirmed {counted(left, 'record')} too few in {WAIT_S:g} s: start again, and they follow"
            raise TransportError(rule)

    def _last_places(self) -> dict[int, tuple[int, int]]:
        """The place of the last event of each stripe in the topic; (0, 0) if there is none."""
        from confluent_kafka import Consumer  # noqa: PLC0415 - an extra

        own = {"group.id": "isocast-places", "enable.auto.commit": False}
        consumer = Consumer(self._place.settings(self._told, **own))
        try:
            partitions = _insist_on_topic(consumer, self._place, self._told)
            found = {}
            for stripe in self._market.stripes:
                if stripe >= partitions:
                    rule = f"has {partitions} partitions: stripe {stripe} needs partition {stripe}"
                    raise ConfigurationError("Kafka", self._place.topic, rule)
                found[stripe] = _last_place(consumer, self._place.topic, stripe)
            return found
        finally:
            consumer.close()

    async def _copy(
        self, producer: Producer, batch: ReceivedBatch, places: dict[int, tuple[int, int]], count: int | None
    ) -> None:
        stripe = batch.stripe
        sequence, index = places[stripe]
        if sequence and batch.first_sequence > sequence + 1:
            rule = (
                f"sequences {sequence + 1:,} to {batch.first_sequence - 1:,} of stripe {stripe} are not kept any more"
            )
            raise ConfigurationError("Kafka", self._place.topic, f"{rule}: it would have a gap; copy to a new topic")
        for done, record in enumerate(merge(self._events(batch), self._messages(batch), key=lambda one: one.place)):
            if sequence and record.place <= (sequence, index):
                self.counts.known += 1
                continue
            if count is not None and self.counts.records >= count:
                return
            self._send(producer, stripe, record)
            places[stripe] = record.place
            if done % _AT_ONCE == 0:
                await asyncio.sleep(0)
        # Empty messages have no record: the next batch follows them all the same.
        if batch.last_sequence > places[stripe][0]:
            places[stripe] = batch.last_sequence, 0
        self._insist_on_delivery()

    def _events(self, batch: ReceivedBatch) -> Iterator[_Record]:
        """The events of a batch, in sequence."""
        index, before = 0, -1
        for number, release, event in zip(batch.sequences.tolist(), batch.releases.tolist(), batch.events, strict=True):
            index = index + 1 if number == before else 0
            before = number
            row: Any = event.item()  # A tuple, which numpy's types do not say.
            value = json.dumps(fields_of(row)).encode() if self._as_json else event.tobytes()
            yield _Record((number, index), release, bytes(event["symbol"]), value)

    def _messages(self, batch: ReceivedBatch) -> Iterator[_Record]:
        """The opaque messages of a batch, in sequence."""
        for one in batch.opaque:
            said = message_fields(OpaqueMessage(one.topic, one.payload, one.key, one.sent_ns))
            value = json.dumps(said).encode() if self._as_json else one.payload
            yield _Record((one.sequence, one.index), one.release_ns, one.key, value, one.topic)

    def _send(self, producer: Producer, stripe: int, record: _Record) -> None:
        sequence, index = record.place
        headers: list[tuple[str, str | bytes | None]] = [(PLACE_HEADER, f"{stripe}:{sequence}:{index}".encode())]
        if record.topic is not None:
            headers.append((TOPIC_HEADER, record.topic.encode("ascii")))
        while True:
            try:
                producer.produce(
                    self._place.topic,
                    record.value,
                    key=record.key or None,
                    partition=stripe,
                    headers=headers,
                    timestamp=record.release_ns // _MS,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                producer.poll(_LOOK_S)
        producer.poll(0)
        self.counts.records += 1
        if record.topic is None:
            self.counts.events += 1
        else:
            self.counts.opaque += 1

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._error is None:
            self._error = error.str()

    def _insist_on_delivery(self) -> None:
        if self._error is not None:
            raise TransportError(f"Kafka took a record not: {self._error}; start again, it goes on where it stopped")


def _plain(start: Start) -> Start:
    """A single stripe's sequence as a number."""
    return next(iter(start.values())) if isinstance(start, Mapping) and len(start) == 1 else start


def _insist_on_topic(client: Consumer, place: KafkaPlace, told: Told) -> int:
    """How many partitions the topic has; TransportError if no broker answers, ConfigurationError if there is none."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

    try:
        try:
            listed = client.list_topics(place.topic, timeout=_PATIENCE_S)
        except KafkaException:
            told(f"no broker of {place.brokers} answers yet: waiting for {WAIT_S:g} s")
            listed = client.list_topics(place.topic, timeout=WAIT_S)
        found = listed.topics.get(place.topic)
    except KafkaException as reason:
        raise TransportError(f"no broker of {place.brokers} answers: {reason.args[0].str()}") from None
    if found is None or found.error is not None or not found.partitions:
        raise ConfigurationError("Kafka", place.topic, "there is no such topic: create it, a partition for each stripe")
    return len(found.partitions)


def _last_place(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
    if high <= low:
        return 0, 0
    consumer.assign([TopicPartition(topic, partition, high - 1)])
    record = consumer.poll(WAIT_S)
    headers = dict(record.headers() or []) if record is not None and record.error() is None else {}
    try:
        place = headers[PLACE_HEADER]
        stripe, sequence, index = map(int, (place if isinstance(place, bytes) else b"").split(b":"))
    except (KeyError, ValueError):
        rule = (
            f"its last record, offset {high - 1} of partition {partition}, is not of a market: use a topic of its own"
        )
        raise ConfigurationError("Kafka", topic, rule) from None
    if stripe != partition:
        raise ConfigurationError("Kafka", topic, f"partition {partition} has events of stripe {stripe}")
    return sequence, index
