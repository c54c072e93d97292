"""Opaque messages through a whole market: sent, heard, journalled, beside events and in one order with them."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

import isocast
from isocast.runtime.client.received import batch_of
from isocast.terms.ids import Epoch
from isocast.wire.opaque import OpaqueMessage, cut_opaque, is_opaque, read_opaque
from isocast.wire.packets import ReleasedPacket

NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive", "floor")},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    "desk-2": {"role": "customer", "lines": ["b", "c"], "retransmit": ["archive"], "start": False},
}
TRADE = {"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(market_file(tmp_path_factory.mktemp("market"), NODES)) as found:
        yield found


def test_messages_and_events_come_in_one_order(world: World) -> None:
    with isocast.connect(world.path) as market, market.listen(timeout_s=60) as listening:
        first = market.send("quiz.buzzer", b"\x00pressed", key="table 7")
        trade = market.publish(TRADE)
        last = market.send_many([("quiz.buzzer", "text", b"\xff"), isocast.OpaqueMessage("other", b"", b"", 17)])
        assert (first.opaque, first.events, first.messages) == (1, 0, 1)
        assert (last.opaque, last.messages) == (2, 1)
        assert repr(last) == "<Published 2 opaque messages in 1 message at floor>"
        numbers = [done.labels[0].number for done in (first, trade, last)]
        assert numbers == sorted(numbers)
        heard: list[isocast.ReceivedMessage] = []
        sequences: list[int] = []
        while len(heard) < 3:
            batch = next(listening)
            heard += batch.messages()
            sequences += batch.sequences.tolist()
            assert batch.unreadable == 0
    assert [(one.topic, one.key, one.payload) for one in heard] == [
        ("quiz.buzzer", b"table 7", b"\x00pressed"),
        ("quiz.buzzer", b"\xff", b"text"),
        ("other", b"", b""),
    ]
    assert heard[0].sequence < sequences[0] < heard[1].sequence == heard[2].sequence
    assert [one.index for one in heard] == [0, 0, 1]
    assert heard[2].sent_ns == 17
    assert all(one.release_ns > one.instant_ns > 1_600_000_000 * 10**9 for one in heard)

    def kept() -> list[bytes]:
        return [one.payload for _, raw in world.released("a") if is_opaque(raw) for one in read_opaque(raw)]

    wait_until(lambda: len(kept()) >= 3)
    assert kept()[:3] == [b"\x00pressed", b"text", b""]


def test_topics_and_symbols_choose(world: World) -> None:
    with isocast.connect(world.path) as market:
        market.send_many([("chosen", str(number)) for number in range(400)])
        market.send("unwanted", b"")
        market.publish({**TRADE, "symbol": "CHOSEN"})
        wait_until(lambda: world.holds("CHOSEN"))
        with market.listen(topics="chosen", start="beginning") as listening:
            heard, events = [], 0
            while (batch := listening.next_if_any()) is not None:
                heard += [int(one.payload) for one in batch.messages()]
                events += len(batch)
        assert (heard, events) == (list(range(400)), 0)
        with market.listen("CHOSEN", start="beginning") as listening:
            batches = []
            while (batch := listening.next_if_any()) is not None:
                batches.append(batch)
        assert sum(map(len, batches)) == 1
        assert not any(batch.opaque for batch in batches)
        with market.listen("CHOSEN", topics=["unwanted"], start="beginning") as listening:
            both = []
            while (batch := listening.next_if_any()) is not None:
                both.append(batch)
        assert (sum(map(len, both)), [one.topic for batch in both for one in batch.messages()]) == (1, ["unwanted"])


def test_what_is_too_large_is_refused_before_anything_is_sent(world: World) -> None:
    with isocast.connect(world.path) as market:
        with pytest.raises(isocast.IsocastError, match=r"a payload of 5,000 bytes: at most 1,273 fit"):
            market.send_many([("refused", b"small"), ("refused", bytes(5_000))])
        with pytest.raises(isocast.IsocastError, match="1 to 64 printable ASCII"):
            market.send("a topic", b"")
        with pytest.raises(isocast.IsocastError, match="message 0: payload and key are bytes or text, not int"):
            market.send("refused", 7)  # type: ignore[arg-type]
        with pytest.raises(isocast.ConfigurationError, match="no opaque messages"):
            market.listen(topics="refused", latest=True)
        assert market.send_many([]).messages == 0
        market.send("refused", b"end")
        with market.listen(topics="refused", start="beginning") as listening:
            assert [one.payload for one in next(listening).messages()] == [b"end"]


def test_a_repeated_send_with_an_idempotency_key_is_one(world: World) -> None:
    async def twice() -> list[bytes]:
        async with isocast.connect_async(world.path) as market:
            one = await market.send("once", b"only", idempotency_key="monday")
            two = await market.send("once", b"only", idempotency_key="monday")
            assert one.labels == two.labels
            await market.send("once", b"end")
            heard: list[bytes] = []
            async for batch in market.listen(topics=["once"], start="beginning"):
                heard += [message.payload for message in batch.messages("once")]
                if heard[-1:] == [b"end"]:
                    break
            return heard

    assert asyncio.run(twice()) == [b"only", b"end"]


def test_the_tape_and_a_snapshot_are_not_fooled(world: World) -> None:
    with isocast.connect(world.path) as market:
        market.publish({**TRADE, "symbol": "TAPE"})
        market.send("noise", b"\x01" * 48)
        market.publish({**TRADE, "symbol": "TAPE", "price": "73"})
        wait_until(lambda: world.holds("TAPE", 2))
        with market.tape() as tape:
            assert (tape["TAPE"].volume, str(tape["TAPE"].last)) == (200, "73.0000")
            before = tape.opaque
            assert before > 0
            market.send("noise", b"")
            market.publish({**TRADE, "symbol": "TAPE"})
            assert [row.symbol for row in next(tape)] == ["TAPE"], "a batch of opaque messages alone changes nothing"
            assert tape.opaque == before + 1
        assert "TAPE" in {row["symbol"] for row in market.snapshot().rows()}


def test_hostile_bytes_are_counted_and_dropped() -> None:
    good = cut_opaque([OpaqueMessage("t", b"good")], 1_296)[0]
    payloads = [good, good[:-1], b"\xf0", trades(1).tobytes(), b"\xf0\x01\xff\xff" + bytes(40), good]
    packets = [
        ReleasedPacket(2, Epoch(1, 65_537), 3, 9, sequence, 5_000, 0, sequence, 1, payload, b"")
        for sequence, payload in enumerate(payloads, 11)
    ]
    batch = batch_of(packets, 500, 1)
    assert (len(batch), batch.unreadable, batch.first_sequence, batch.last_sequence) == (1, 3, 11, 16)
    assert [(one.stripe, one.sequence, one.release_ns) for one in batch.opaque] == [(2, 11, 5_500), (2, 16, 5_500)]
    assert "1 event and 2 opaque messages" in repr(batch)
