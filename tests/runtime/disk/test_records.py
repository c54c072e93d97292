"""Records come back from their bytes as they went in, and no others do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ring.makers import S1, Chain, message
from tests.wire.strategies import EPOCHS, I64, PACKETS, U16, U64

from isocast.reformation.forming import ServerState
from isocast.ring.effects import (
    BallotChosen,
    EntryAppended,
    OutboxAppended,
    OutboxFreed,
    PromiseMade,
    RingDecided,
    RingInstalled,
)
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.settings import OrderRule
from isocast.runtime.disk.records import (
    RecordKind,
    entry_number,
    outgoing_frame,
    read_ballot,
    read_decided,
    read_entry,
    read_freed,
    read_installed,
    read_outgoing,
    read_promise,
    record_frames,
)
from isocast.runtime.disk.snapshots import (
    OutboxSnapshot,
    SiteSnapshot,
    outbox_snapshot,
    read_outbox_snapshot,
    read_server_snapshot,
    read_site_snapshot,
    server_snapshot,
    site_snapshot,
)
from isocast.runtime.disk.store_segments import Frame
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch, source_id
from isocast.wire.packets import DIGEST_BYTES, SHORT_DIGEST_BYTES, Data, NewRing

RINGS = PACKETS[NewRing]
DIGESTS = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
NONCES = st.binary(min_size=SHORT_DIGEST_BYTES, max_size=SHORT_DIGEST_BYTES)


@st.composite
def entries(draw: st.DrawFn) -> LogEntry:
    """The first token of a log with any messages: every source's numbers follow one another."""
    order = draw(st.sampled_from(OrderRule))
    counts = draw(st.lists(st.integers(1, 4), max_size=4))
    stripes, epochs = st.just(0), st.just(Epoch(1, 65_537))
    if draw(st.booleans()):
        stripes, epochs = U16, EPOCHS
    messages = [
        Data(draw(stripes), draw(epochs), source_id(place + 1), number, draw(U64), draw(st.binary(max_size=60)))
        for place, count in enumerate(counts)
        for number in range(1, count + 1)
    ]
    arrival = draw(st.permutations(range(len(messages))))
    sources = [messages[place].sender for place in arrival]
    by_source = {source: [m for m in messages if m.sender == source] for source in sources}
    return Chain(order=order).add(*[by_source[source].pop(0) for source in sources])


def loose(frame: Frame) -> bytes:
    assert sum(map(len, frame.loose)) == frame.loose_bytes
    return b"".join(frame.loose)


@given(entries())
def test_an_entry_comes_back_as_it_was(entry: LogEntry) -> None:
    (frame,) = record_frames(EntryAppended(entry))
    assert (frame.kind, frame.more, entry_number(frame.checked)) == (RecordKind.ENTRY, False, entry.token.token_number)
    assert read_entry(frame.checked, loose(frame)) == entry


def test_payloads_are_handed_over_as_they_are() -> None:
    """The fast path: not one of them is copied or joined."""
    entry = Chain().add(*[message(number) for number in range(1, 9)])
    (frame,) = record_frames(EntryAppended(entry))
    assert all(ours is theirs.payload for ours, theirs in zip(frame.loose, entry.messages, strict=True))


@given(entries(), st.data())
def test_a_bit_that_flips_in_a_payload_is_found(entry: LogEntry, data: st.DataObject) -> None:
    (frame,) = record_frames(EntryAppended(entry))
    payloads = bytearray(loose(frame))
    if not payloads:
        return
    bit = data.draw(st.integers(0, 8 * len(payloads) - 1))
    payloads[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="is damaged"):
        read_entry(frame.checked, bytes(payloads))


@given(entries(), st.binary(max_size=40), st.data())
def test_other_bytes_are_refused_or_are_another_entry(entry: LogEntry, other: bytes, data: st.DataObject) -> None:
    (frame,) = record_frames(EntryAppended(entry))
    at = data.draw(st.integers(0, len(frame.checked)))
    for checked in (frame.checked[:at], frame.checked[:at] + other, other):
        if checked == frame.checked:
            continue
        try:
            found = read_entry(checked, loose(frame))
        except ValueError:
            continue
        # Where an epoch stands any epoch may stand: the frame's checksum, not the entry, tells them apart.
        assert found != entry


def test_messages_that_are_not_the_tokens_are_refused() -> None:
    one, other = message(1), message(1, base=2)
    entry = Chain().add(one)
    stranger = Data(0, one.epoch, source_id(7), 1, 1, one.payload)
    with pytest.raises(LocalProtocolError, match="token 1 with 2 messages of 1"):
        record_frames(EntryAppended(replace(entry, messages=(one, other))))
    (frame,) = record_frames(EntryAppended(replace(entry, messages=(stranger,))))
    with pytest.raises(ValueError, match=f"messages of source {S1} are not those of token 1"):
        read_entry(frame.checked, loose(frame))


@given(RINGS, U64, st.lists(st.integers(0, 3), max_size=3))
def test_a_ring_comes_back_with_its_suffix_before_it(ring: NewRing, keep: int, suffix: list[int]) -> None:
    chain = Chain()
    for count in suffix:
        following = chain.head.next_number.get(S1, 1)
        chain.add(*[message(number) for number in range(following, following + count)])
    *before, last = record_frames(RingInstalled(ring, keep, tuple(chain.entries)))
    assert [frame.more for frame in (*before, last)] == [True] * len(suffix) + [False]
    assert [frame.kind for frame in before] == [RecordKind.SUFFIX] * len(suffix)
    assert [read_entry(frame.checked, loose(frame)) for frame in before] == chain.entries
    assert (last.kind, read_installed(last.checked)) == (RecordKind.RING, (ring, keep, len(suffix)))


@given(EPOCHS, RINGS, U64)
def test_small_records_come_back(ballot: Epoch, ring: NewRing, base: int) -> None:
    (promise,) = record_frames(PromiseMade(ballot))
    (chosen,) = record_frames(BallotChosen(ballot))
    (decided,) = record_frames(RingDecided(ring))
    (freed,) = record_frames(OutboxFreed(base, b"chain" * 6 + b"32"))
    assert (promise.kind, read_promise(promise.checked)) == (RecordKind.PROMISE, PromiseMade(ballot))
    assert (chosen.kind, read_ballot(chosen.checked)) == (RecordKind.BALLOT, BallotChosen(ballot))
    assert (decided.kind, read_decided(decided.checked)) == (RecordKind.DECIDED, RingDecided(ring))
    assert (freed.kind, read_freed(freed.checked)) == (RecordKind.FREED, OutboxFreed(base, b"chain" * 6 + b"32"))


@given(st.integers(0, 1 << 60), st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=90)), min_size=1))
def test_an_outboxs_messages_come_back_together(first: int, contents: list[tuple[bytes, bytes]]) -> None:
    records = [OutboxAppended(key, first + place, payload) for place, (key, payload) in enumerate(contents)]
    frame = outgoing_frame(records)
    assert read_outgoing(frame.checked) == records
    for checked in (frame.checked[:-1], frame.checked + b"x", frame.checked[:5]):
        with pytest.raises(ValueError, match="messages"):
            read_outgoing(checked)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="message 1"):
        record_frames(OutboxAppended(bytes(70_000), 1, b""))


@given(EPOCHS, st.one_of(st.none(), RINGS), U64, st.data())
def test_snapshots_come_back(promised: Epoch, ring: NewRing | None, held: int, data: st.DataObject) -> None:
    draw = data.draw
    checkpoint = Checkpoint(
        draw(U64),
        draw(EPOCHS),
        draw(DIGESTS),
        draw(I64),
        draw(U64),
        draw(NONCES),
        tuple(draw(st.lists(U64, max_size=5))),
        draw(st.dictionaries(U64, U64, max_size=5)),
    )
    site = SiteSnapshot(checkpoint, promised, ring, held)
    assert read_site_snapshot(site_snapshot(site).checked) == site
    outbox = OutboxSnapshot(
        7,
        held,
        3,
        draw(st.binary(min_size=32, max_size=32)),
        draw(st.dictionaries(st.binary(max_size=9), U64, max_size=9)),
    )
    found = read_outbox_snapshot(outbox_snapshot(outbox).checked)
    assert found == outbox
    assert list(found.keys) == list(outbox.keys)
    server = ServerState(promised, ring)
    assert read_server_snapshot(server_snapshot(server).checked) == server
    for read, frame in (
        (read_site_snapshot, site_snapshot(site)),
        (read_outbox_snapshot, outbox_snapshot(outbox)),
        (read_server_snapshot, server_snapshot(server)),
    ):
        for checked in (frame.checked[:-1], frame.checked + b"\0", b""):
            with pytest.raises(ValueError, match="snapshot"):
                read(checked)


@pytest.mark.parametrize("read", [read_promise, read_ballot, read_decided, read_freed, read_installed, entry_number])
def test_records_that_are_cut_short_are_refused(read: object) -> None:
    assert callable(read)
    with pytest.raises(ValueError):  # noqa: PT011  Each says in its own words what it lacks.
        read(b"abc")
