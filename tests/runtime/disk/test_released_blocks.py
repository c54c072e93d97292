"""REL packets to blocks and back: nothing is lost that a line carries."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.disk.disks import quick_directory

from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import UNKNOWN_SOURCE, block_bodies, blocks_of, packets_of, read_blocks
from isocast.runtime.disk.journal_verify import verify
from isocast.terms.ids import Epoch
from isocast.wire.journal_blocks import view_block
from isocast.wire.packets import ReleasedPacket

CUSTOMER = 131_080
SENDER = 3
EVENT = bytes([1, 0, 0, 0]) + b"XNYS" + bytes(40)


def released(sequence: int, token: int, payload: bytes, epoch: int = 1) -> ReleasedPacket:
    instant = token * 1_000
    key = bytes([token] * 16)
    return ReleasedPacket(
        0, Epoch(epoch, 65_537), SENDER, token, sequence, instant, 0, sequence, 1, payload, b"", shuffle_key=key
    )


@st.composite
def runs(draw: st.DrawFn) -> list[list[ReleasedPacket]]:
    """Consecutive messages of some tokens, cut into deliveries anywhere."""
    sequence, token, found = draw(st.integers(1, 50)), draw(st.integers(1, 9)), []
    for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)):
        uncertified = draw(st.booleans())
        for _ in range(size):
            payload = draw(st.sampled_from([b"", EVENT, EVENT * 3, b"opaque"]))
            found.append(released(sequence, token, payload)._replace(uncertified=uncertified))
            sequence += 1
        token += draw(st.integers(1, 3))
    cuts = sorted(draw(st.sets(st.integers(1, len(found)))))
    return [found[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(found)], strict=True) if start < stop]


@given(runs())
def test_what_was_delivered_in_pieces_is_read_back_whole(deliveries: list[list[ReleasedPacket]]) -> None:
    with quick_directory() as folder, Journal.open(Path(folder), 0, CUSTOMER) as journal:
        for now, packets in enumerate(deliveries, 1):
            for block in blocks_of(packets, journal.position, 1_000_000 + now, 500, 7):
                journal.append(block)
        whole = [packet for packets in deliveries for packet in packets]
        assert list(packets_of(read_blocks(Path(folder)), 0, SENDER, 1)) == whole
        report = verify(Path(folder))
        assert report.is_sound, report.faults
        first, last = whole[len(whole) // 3].sequence, whole[len(whole) // 2].sequence
        some = list(packets_of(read_blocks(Path(folder), first, last), 0, SENDER, first, last))
        assert [packet.sequence for packet in some] == list(range(first, last + 1))


def test_a_block_says_what_a_customer_knows_and_leaves_the_rest_open() -> None:
    packets = [released(7, 2, EVENT)]
    with quick_directory() as folder, Journal.open(Path(folder), 0, CUSTOMER) as journal:
        (block,) = blocks_of(packets, journal.position, 9_000, 500, 7)
    assert (block.instant, block.due, block.released_at, block.clock_bound_ns) == (2_000, 2_500, 9_000, 7)
    assert block.messages[0][:2] == (UNKNOWN_SOURCE, 7)
    (early,) = blocks_of(packets, journal.position, 2_100, 500, 7)
    assert early.due == 2_100, "a customer's clock proves nothing about releases"


def test_blocks_at_a_door_are_short_enough_for_one_message() -> None:
    packets = [released(sequence, 1 + sequence // 700, bytes(8_000)) for sequence in range(1, 1_601)]
    bodies = list(block_bodies(packets, 1))
    assert max(map(len, bodies)) < 16 << 20
    again = [packet for body in bodies for packet in packets_of([view_block(body)], 0, SENDER, 1)]
    assert again == packets
