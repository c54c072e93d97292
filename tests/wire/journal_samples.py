"""Released blocks for the tests of journals: small and readable, or as many as wanted."""

from __future__ import annotations

from collections.abc import Sequence

from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.market import EventKind, Mic, Side, Symbol
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal import SegmentHeader, pack_segment_header
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock, encode_block
from isocast.wire.packets import digest_of, short_digest_of

__all__ = ["DELAY", "PERIOD", "SITE", "STRIPE", "block", "blocks", "events_payload", "message", "segment"]

STRIPE = 3
SITE = 7
PERIOD = 1_000_000_000
DELAY = 250_000_000
SOURCES = 3


def events_payload(number: int, count: int = 2) -> bytes:
    """Trades that tell whose they are."""
    row = MarketEvent(EventKind.TRADE, Mic("XLON"), Symbol("ISO"), Side.BUY, price=10_000 + number, quantity=5)
    return pack_events(build_events([row._replace(id=number * 1_000 + place) for place in range(count)]))


def message(sequence: int, payload: bytes | None = None) -> JournalMessage:
    """The message at a sequence: sources take turns, so that each one's numbers follow one another."""
    payload = events_payload(sequence) if payload is None else payload
    source, number = (sequence - 1) % SOURCES + 1, (sequence - 1) // SOURCES + 1
    return source_id(source), number, digest_of(payload), payload


def block(
    token: int, first: int, payloads: Sequence[bytes | None] = (None,), *, place: int = 0, count: int | None = None
) -> ReleasedBlock:
    """Some messages of a token, by default all; None stands for the payload that is usual at its sequence."""
    instant = token * PERIOD
    return ReleasedBlock(
        epoch=Epoch(2, server_id(1)),
        token_number=token,
        token_count=place + len(payloads) if count is None else count,
        place=place,
        first_sequence=first,
        instant=instant,
        due=instant + DELAY + place * 1_000_000,
        released_at=instant + DELAY + place * 1_000_000 + 41_000 + token,
        clock_bound_ns=100_000,
        shuffle_key=short_digest_of(token.to_bytes(8, "little")),
        messages=[message(first + at, payload) for at, payload in enumerate(payloads)],
    )


def blocks(count: int, size: int = 2, first_token: int = 1, first_sequence: int = 1) -> list[ReleasedBlock]:
    """One token after the other, each released at once."""
    return [block(first_token + at, first_sequence + at * size, (None,) * size) for at in range(count)]


def segment(released: Sequence[ReleasedBlock]) -> bytes:
    """The file that a writer makes of them."""
    header = SegmentHeader(STRIPE, SITE, released[0].released_at, released[0].first_sequence)
    return pack_segment_header(header) + b"".join([b"".join(encode_block(one).pieces) for one in released])
