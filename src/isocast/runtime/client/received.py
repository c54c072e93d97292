"""What a program that listens gets: batches of events with their sequences and instants, and the inbox they wait in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.hierarchy.edge import Deliver, DeliverLatest, DeliverSnapshot, TokensPassed
from isocast.hierarchy.latest import last_of_each_key
from isocast.runtime.client.arrow import import_pandas, import_polars, readable
from isocast.runtime.client.message_rows import message_fields
from isocast.runtime.client.rows import fields_of, flag_names
from isocast.runtime.hosts.customer import Delivery
from isocast.terms.instruments import scale_of
from isocast.terms.quantities import counted
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.names import InstrumentNames, decimals_of
from isocast.wire.opaque import OpaqueMessage, is_opaque, read_opaque_or_none
from isocast.wire.packets import NO_SHUFFLE_KEY, ReleasedPacket

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["BatchKind", "Inbox", "ReceivedBatch", "ReceivedMessage"]

_SYMBOL_AT, _PRICE_AT, _QUANTITY_AT = map(list(EVENT_DTYPE.names or ()).index, ("symbol", "price", "quantity"))
_CONFLATE_EVENTS = 8_192
"""Unread events of grade latest before they are conflated: 400 kB."""


class BatchKind(StrEnum):
    """What a batch is."""

    MESSAGES = "messages"
    """Whole messages in sequence, each of them once."""
    LATEST = "latest"
    """The newest event of each key that changed since the batch before."""
    SNAPSHOT = "snapshot"
    """The newest event of every key, as of `last_sequence`; the batches after it continue from there."""


class ReceivedMessage(NamedTuple):
    """An opaque message as it was released: everybody has it at the same place, at the same instant."""

    topic: str
    key: bytes
    payload: bytes
    stripe: int
    """Of the core: sequences are its own."""
    sequence: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    """Of the messages that share a sequence, which one it is."""
    instant_ns: int
    """T_t, of the token that ordered it; 0 where not known."""
    release_ns: int
    """The scheduled instant of its release; 0 where not known."""
    sent_ns: int
    """When it was sent, by the sender's clock, which nobody checks."""
    token: int = 0
    """The token that ordered it: messages of one token share its number; 0 where not known."""
    shuffle_key: bytes = NO_SHUFFLE_KEY
    """Of that token: no single site chose it, so a program may shuffle by it. Zeros where not known."""

    def fields(self) -> dict[str, object]:
        """What JSON can carry: bytes that are UTF-8 as text, others as key_base64 and payload_base64."""
        return {
            "stripe": self.stripe,
            "sequence": self.sequence,
            "index": self.index,
            "instant_ns": self.instant_ns or None,
            "release_ns": self.release_ns or None,
            **message_fields(OpaqueMessage(self.topic, self.payload, self.key, self.sent_ns)),
        }


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """Events that arrived together. Arrays are views where that is possible, and read-only."""

    kind: BatchKind
    first_sequence: int
    """Of the messages; in a batch of another kind the same as the last."""
    last_sequence: int
    """The newest message that the batch takes account of."""
    events: EventArray
    """An array of EVENT_DTYPE: `batch.events["price"]` is a column."""
    sequences: npt.NDArray[np.uint64]
    """For each event the sequence of its message; of a snapshot `last_sequence` for all."""
    instants: npt.NDArray[np.int64]
    """For each event T_t, the instant of the token that ordered it, in nanoseconds since 1970; 0 where not known."""
    release_delay_ns: int
    """Δ_A: every receiver of the market released a message at its instant plus this, or a little later if paced."""
    received_at: int
    """By this machine's clock."""
    unreadable: int = 0
    """Messages that are neither market events nor opaque messages: they have their place in the sequence only."""
    stripe: int = 0
    """Of the core: sequences are its own."""
    opaque: tuple[ReceivedMessage, ...] = ()
    """Payloads of programs, in sequence; `messages` gives those of some topics."""
    names: InstrumentNames | None = field(default=None, compare=False)
    """Full names of instruments, as far as they are known."""

    def __len__(self) -> int:
        """How many events there are."""
        return len(self.events)

    @property
    def instant(self) -> int:
        """The instant of the newest token in it; 0 where not known."""
        return int(self.instants[-1]) if len(self.instants) else 0

    @property
    def releases(self) -> npt.NDArray[np.int64]:
        """For each event the scheduled instant of its release; 0 where not known."""
        return np.where(self.instants > 0, self.instants + self.release_delay_ns, 0)

    def __repr__(self) -> str:
        span = f"sequences {self.first_sequence:,} to {self.last_sequence:,}"
        if self.first_sequence == self.last_sequence:
            span = f"sequence {self.last_sequence:,}"
        where = f" of stripe {self.stripe}" if self.stripe else ""
        also = f" and {counted(len(self.opaque), 'opaque message')}" if self.opaque else ""
        return f"<{type(self).__name__} of {counted(len(self), 'event')}{also}, {self.kind}, {span}{where}>"

    def messages(self, topics: str | Iterable[str] | None = None) -> list[ReceivedMessage]:
        """The opaque messages, or those of some topics, in sequence; `pd.DataFrame(batch.messages())` is a table."""
        if topics is None:
            return list(self.opaque)
        wanted = {topics} if isinstance(topics, str) else set(topics)
        return [message for message in self.opaque if message.topic in wanted]

    def only(self, symbols: Iterable[str] | None, topics: Iterable[str] | None) -> ReceivedBatch:
        """Events of some symbols and opaque messages of some topics; where one of them alone is named, only those."""
        if symbols is None and topics is None:
            return self
        opaque = () if topics is None else tuple(self.messages(topics))
        part = self.of_symbols(symbols) if symbols is not None else self.part(np.empty(0, np.intp))
        return replace(part, opaque=opaque)

    def of_symbols(self, symbols: Iterable[str]) -> ReceivedBatch:
        """The events of some symbols, and those of a whole floor."""
        names = np.array([b"", *[symbol.encode("ascii") for symbol in symbols]], self.events["symbol"].dtype)
        return self.part(np.isin(self.events["symbol"], names))

    def part(self, kept: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> ReceivedBatch:
        """Some of the events, by a mask or by their places."""
        return replace(self, events=self.events[kept], sequences=self.sequences[kept], instants=self.instants[kept])

    def rows(self) -> list[dict[str, Any]]:
        """The events as dicts, each with its `sequence` and `instant_ns`; a price is a Decimal in units.

        A quantity is an int, or a Decimal in units where the instrument has fractions.
        """
        scales = {symbol: scale_of(symbol.decode("ascii")) for symbol in np.unique(self.events["symbol"]).tolist()}
        return [
            {
                **fields_of(event, self.names),
                "price": scales[event[_SYMBOL_AT]].to_price(event[_PRICE_AT]),
                "quantity": scales[event[_SYMBOL_AT]].to_quantity(event[_QUANTITY_AT]),
                "sequence": sequence,
                "instant_ns": instant,
            }
            for event, sequence, instant in zip(
                self.events.tolist(), self.sequences.tolist(), self.instants.tolist(), strict=True
            )
        ]

    def to_arrow(self) -> pa.RecordBatch:
        """The events as an Arrow record batch, each with its `sequence` and `instant`; prices are decimals in units.

        Prices have 4 decimals and quantities are whole; where an instrument has a scale of its own, they have 18 and 9.
        """
        return readable(
            self.events,
            lambda flags: " ".join(flag_names(flags)),
            self.names,
            sequence=self.sequences,
            instant=self.instants.view("datetime64[ns]"),
        )

    def to_pandas(self) -> pd.DataFrame:
        """The same as a DataFrame of pandas; prices and fractional quantities are floats in units, the nearest ones."""
        import_pandas()
        frame = self.to_arrow().to_pandas()
        prices, quantities = decimals_of(self.events["symbol"])
        frame["price"] = self.events["price"] / 10.0**prices
        if quantities.any():
            frame["quantity"] = self.events["quantity"] / 10.0**quantities
        return frame

    def to_polars(self) -> pl.DataFrame:
        """The same as a DataFrame of polars; prices are decimals in units."""
        frame: pl.DataFrame = import_polars().from_arrow(self.to_arrow())
        return frame


def batch_of(packets: Sequence[ReleasedPacket], release_delay_ns: int, now: int) -> ReceivedBatch:
    """Consecutive messages of one stripe as a batch."""
    readable, payload = packets, b"".join([packet.payload for packet in packets])
    opaque: list[ReceivedMessage] = []
    others = 0
    if any(len(packet.payload) % EVENT_BYTES for packet in packets) or not are_events(payload):
        readable = [packet for packet in packets if are_events(packet.payload)]
        payload = b"".join([packet.payload for packet in readable])
        for packet in packets:
            found = received_messages(packet, release_delay_ns) if is_opaque(packet.payload) else None
            if found is not None:
                opaque += found
                others += 1
    counts = [len(packet.payload) // EVENT_BYTES for packet in readable]
    return ReceivedBatch(
        BatchKind.MESSAGES,
        packets[0].sequence,
        packets[-1].sequence,
        _events(payload),
        np.repeat(np.array([packet.sequence for packet in readable], np.uint64), counts),
        np.repeat(np.array([packet.instant for packet in readable], np.int64), counts),
        release_delay_ns,
        now,
        len(packets) - len([packet for packet in readable if packet.payload]) - others,
        packets[0].stripe,
        tuple(opaque),
    )


def received_messages(packet: ReleasedPacket, release_delay_ns: int) -> list[ReceivedMessage] | None:
    """The opaque messages of a packet; None if its bytes are none."""
    found = read_opaque_or_none(packet.payload)
    if found is None:
        return None
    release = packet.instant + release_delay_ns if packet.instant else 0
    return [
        ReceivedMessage(
            one.topic,
            one.key,
            one.payload,
            packet.stripe,
            packet.sequence,
            index,
            packet.instant,
            release,
            one.sent,
            packet.token_number,
            packet.shuffle_key,
        )
        for index, one in enumerate(found)
    ]


def _state(kind: BatchKind, state: DeliverLatest, release_delay_ns: int, now: int, stripe: int) -> ReceivedBatch:
    """The newest of some keys as a batch."""
    events = _events(state.payload)
    sequences = np.array(state.sequences or [state.newest] * len(events), np.uint64)
    instants = np.array(state.instants or [0] * len(events), np.int64)
    return ReceivedBatch(
        kind, state.newest, state.newest, events, sequences, instants, release_delay_ns, now, stripe=stripe
    )


def _events(payload: bytes) -> EventArray:
    return np.frombuffer(payload, EVENT_DTYPE)


class Inbox:
    """What has arrived and was not read yet. Bounded: messages are refused when it is full, prices conflated."""

    def __init__(self, room: int, release_delay_ns: int, stripe: int = 0, news: asyncio.Event | None = None) -> None:
        """`room` is for so many messages; what comes to an empty inbox is taken whatever its size."""
        self.stripe = stripe
        self.passed: TokensPassed | None = None
        """Once everything before was read: how far the stripe is."""
        self.news = news or asyncio.Event()
        """Set while there is something to read, or something to tell whoever waits."""
        self._room = room
        self._release_delay_ns = release_delay_ns
        self._waiting: deque[tuple[Deliver | DeliverSnapshot, int]] = deque()
        self._messages = 0
        self._latest: list[DeliverLatest] = []
        self._latest_events = 0
        self._latest_at = 0

    def __bool__(self) -> bool:
        """Whether there is something to read."""
        return bool(self._waiting or self._latest)

    @property
    def has_room(self) -> bool:
        """Whether it is half empty again: only then is it worth fetching."""
        return 2 * self._messages <= self._room

    def take(self, delivery: Delivery, now: int) -> bool:
        """Keep it; False when there is no room."""
        match delivery:
            case Deliver(packets):
                if self._messages and self._messages + len(packets) > self._room:
                    return False
                self._waiting.append((delivery, now))
                self._messages += len(packets)
            case DeliverSnapshot():
                self._waiting.append((delivery, now))
            case TokensPassed():
                self.passed = delivery
            case DeliverLatest(_, payload):
                self._latest.append(delivery)
                self._latest_events += len(payload) // EVENT_BYTES
                self._latest_at = now
                if self._latest_events > _CONFLATE_EVENTS:
                    self._conflate()
        self.news.set()
        return True

    def pop(self) -> ReceivedBatch:
        """The oldest that was not read; of prices everything at once."""
        if self._latest:
            self._conflate()
            newest, self._latest_events = self._latest.pop(), 0
            return _state(BatchKind.LATEST, newest, self._release_delay_ns, self._latest_at, self.stripe)
        delivery, now = self._popped()
        if isinstance(delivery, Deliver):
            return batch_of(delivery.packets, self._release_delay_ns, now)
        state = DeliverLatest(delivery.snapshot.next_sequence - 1, delivery.snapshot.payload)
        return _state(BatchKind.SNAPSHOT, state, self._release_delay_ns, now, self.stripe)

    def pop_messages(self) -> tuple[Sequence[ReleasedPacket], int] | None:
        """The oldest messages that were not read, and when they came; None if something else comes first."""
        if not self._waiting or not isinstance(self._waiting[0][0], Deliver):
            return None
        delivery, now = self._popped()
        assert isinstance(delivery, Deliver)  # noqa: S101 - as was just seen
        return delivery.packets, now

    def _popped(self) -> tuple[Deliver | DeliverSnapshot, int]:
        delivery, now = self._waiting.popleft()
        if isinstance(delivery, Deliver):
            self._messages -= len(delivery.packets)
        return delivery, now

    def _conflate(self) -> None:
        """Of what was not read yet, the newest of each key."""
        if len(self._latest) < 2:  # noqa: PLR2004 - one delivery has each key once
            return
        states = [_state(BatchKind.LATEST, one, 0, 0, self.stripe) for one in self._latest]
        payload = b"".join([one.payload for one in self._latest])
        kept = last_of_each_key(payload)
        sequences = np.concatenate([one.sequences for one in states])[kept]
        instants = np.concatenate([one.instants for one in states])[kept]
        newest = self._latest[-1].newest
        events = _events(payload)[kept].tobytes()
        self._latest = [DeliverLatest(newest, events, tuple(sequences.tolist()), tuple(instants.tolist()))]
        self._latest_events = len(kept)
