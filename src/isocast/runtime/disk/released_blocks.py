"""Released messages between their two forms: REL packets on a line, blocks of a journal on disk and at doors.

A receiver's block knows the labels, the place of each message in its token and the instant of its release. A line
carries none of these, so whoever writes down what a line brought leaves them open:

    source        0, and as number the edge stripe's own, which has no holes either
    digest        of the payload as it came, opened
    token_count   the most that a token can have, as nobody said how many it had
    place         messages of the token that this journal had before
    shuffle_key   zeros
    due           the token's instant plus Δ_A, but not later than the arrival: clocks of customers are their own affair
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from isocast.runtime.disk.journal import Position
from isocast.terms.ids import NodeId
from isocast.wire.journal_blocks import BlockView, Message, ReleasedBlock, encode_block
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN
from isocast.wire.packets import DIGEST_BYTES, Released, payload_digest

__all__ = ["UNKNOWN_SOURCE", "block_bodies", "blocks_of", "packets_of"]

UNKNOWN_SOURCE: NodeId = 0
"""Who published is not told to customers."""

_NO_KEY = bytes(DIGEST_BYTES)
_SLICE = 512
"""Messages of one block at a door: 512 of 8,824 bytes are 4.5 MB, and a message there has at most 16."""

_token_of = attrgetter("epoch", "token_number", "instant", "uncertified")


def blocks_of(
    packets: Sequence[Released], position: Position, received_at: int, release_delay_ns: int, clock_bound_ns: int
) -> Iterator[ReleasedBlock]:
    """Consecutive messages as blocks, one for each token, to be appended to a journal that stands at `position`."""
    token_number, place = position.token_number, position.offset
    for (epoch, number, instant, uncertified), group in groupby(packets, key=_token_of):
        if number != token_number:
            token_number, place = number, 0
        released = list(group)
        yield ReleasedBlock(
            epoch=epoch,
            token_number=number,
            token_count=MAX_MESSAGES_PER_TOKEN,
            place=place,
            first_sequence=released[0].sequence,
            instant=instant,
            due=min(instant + release_delay_ns, received_at),
            released_at=received_at,
            clock_bound_ns=clock_bound_ns,
            shuffle_key=_NO_KEY,
            messages=[_message(packet) for packet in released],
            uncertified=uncertified,
        )
        place += len(released)


def _message(packet: Released) -> Message:
    return UNKNOWN_SOURCE, packet.number, payload_digest(packet.payload), packet.payload


def packets_of(
    blocks: Iterable[BlockView], stripe: int, sender: NodeId, first: int, last: int | None = None
) -> Iterator[Released]:
    """The messages of a range, both ends included, as `sender` would have sent them on its line."""
    for block in blocks:
        header = block.header
        epoch, token, instant, marked = header.epoch, header.token_number, header.instant, header.uncertified
        sequence = max(first, header.first_sequence)
        for _, _, _, payload in block.messages(first, last):
            yield Released(stripe, epoch, sender, token, sequence, instant, stripe, sequence, 1, payload, b"", marked)
            sequence += 1


def block_bodies(packets: Sequence[Released], received_at: int) -> Iterator[bytes]:
    """Consecutive messages as blocks for a door, none too long for one message there."""
    for start in range(0, len(packets), _SLICE):
        for block in blocks_of(packets[start : start + _SLICE], Position(), received_at, 0, 0):
            yield b"".join(encode_block(block).pieces)
