"""Hostile bytes for every decoder: shared by the fuzz target and by the tests that run without one.

A random body never gets past the authentication tag. So most ways in build the frame around the bytes,
tag included, as a member of the ring that went mad would.

Journals have ways in of their own (`hostile_journal.py`), and so have feeds (`tests/feeds/hostile_feeds.py`).
"""

from __future__ import annotations

from struct import unpack_from

from tests.wire.golden_vectors import vectors
from tests.wire.hostile_messages import MESSAGE_WAYS, Way, message_seeds
from tests.wire.hostile_states import STATE_WAYS, state_seeds
from tests.wire.mutations import accepts
from tests.wire.samples import SAMPLES, TOKEN

from isocast.terms.ids import Epoch
from isocast.wire.codec import PacketKind, decode, encode
from isocast.wire.events import events_view, pack_events
from isocast.wire.frame import NO_KEY, NO_MARKET, prefix, tag_of
from isocast.wire.limits import DATA_BYTES, EVENT_BYTES, HEADER_BYTES, RELEASED_BYTES, SIGNATURE_BYTES, TAG_BYTES
from isocast.wire.packets import SHORT_DIGEST_BYTES, TokenPart, payload_digest
from isocast.wire.token_body import decode_token_body, join_parts, split_token, token_body, token_bytes

__all__ = ["WAYS_IN", "examine", "framed", "resealed", "seeds"]

_PLACE = 24
"""Bytes of a token's body that say which token it is: epoch 8, sender 8, number 8."""


def resealed(frame: bytes, key: bytes = NO_KEY) -> bytes:
    """The frame with the tag that its bytes should have."""
    return frame[:-TAG_BYTES] + right_tag(frame[:-TAG_BYTES], key)


def right_tag(signed: bytes, key: bytes = NO_KEY) -> bytes:
    """The tag of header and body; those of DATA and REL are over the payload's digest."""
    if signed[:4] == prefix(PacketKind.DATA):
        at = HEADER_BYTES + DATA_BYTES
        return tag_of(signed[:at] + payload_digest(signed[at:]), key)
    at = HEADER_BYTES + RELEASED_BYTES
    if signed[:4] == prefix(PacketKind.REL) and len(signed) >= at:
        length_at = at - SHORT_DIGEST_BYTES - 4
        proof_at = at + int.from_bytes(signed[length_at : length_at + 2], "little")
        return tag_of(signed[:at] + payload_digest(signed[at:proof_at]) + signed[proof_at:], key)
    return tag_of(signed, key)


def framed(kind: int, body: bytes, header: bytes = bytes(18), reserved: bytes = b"\0\0", key: bytes = NO_KEY) -> bytes:
    """A frame with a right tag around any body; `header` is stripe, epoch and sender."""
    signed = prefix(PacketKind.DATA)[:3] + bytes((kind,)) + NO_MARKET + header[:2] + reserved + header[2:] + body
    return signed + right_tag(signed, key)


def examine(data: bytes) -> bool:
    """Send the bytes into the decoder that the first one chooses; True when it accepted them.

    What is accepted must be what the encoder writes: every packet has one spelling.
    """
    return accepts(WAYS_IN, data)


def _raw(data: bytes) -> None:
    assert encode(decode(memoryview(data))) == data


def _sealed(data: bytes) -> None:
    frame = framed(data[0] if data else 0, data[19:], data[1:19].ljust(18, b"\0"))
    assert encode(decode(frame)) == frame


def _repair(data: bytes) -> None:
    inner = framed(data[0] if data else 0, data[19:], data[1:19].ljust(18, b"\0"))
    frame = framed(PacketKind.REPAIR, inner, data[1:19].ljust(18, b"\0"))
    assert encode(decode(frame)) == frame


def _token(data: bytes) -> None:
    token = decode_token_body(1, data)
    token._body = None  # noqa: SLF001  so that the writer has to spell it again
    assert token_bytes(token) == data


def _parts(data: bytes) -> None:
    """The first two bytes damage the parts, the rest is cut into them."""
    damage, size, body = data[:1], max(data[1:2] or b"\1"), data[2:]
    size = max(size, len(body) // 64, 1)
    number, server, sender, token_number = unpack_from("<IIQQ", body.ljust(_PLACE, b"\0"))
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    parts = [
        TokenPart(1, Epoch(number, server), sender, token_number, place, len(pieces), piece)
        for place, piece in enumerate(pieces)
    ]
    if damage == b"\1":
        parts.reverse()
    elif damage == b"\2":
        parts = parts[1:]
    elif damage == b"\3":
        parts += parts[:1]
    elif damage == b"\4" and parts:
        parts[-1] = parts[-1]._replace(part=len(parts))
    elif damage == b"\5" and parts:
        parts[0] = parts[0]._replace(token_number=0)
    token = join_parts(parts)
    assert b"".join([part.body for part in split_token(token)]) == body


def _events(data: bytes) -> None:
    events = events_view(data)
    assert len(events) * EVENT_BYTES == len(data)
    for start in range(0, len(events), 20):
        chunk = events[start : start + 20]
        assert pack_events(chunk) == data[start * EVENT_BYTES : (start + 20) * EVENT_BYTES]


WAYS_IN: tuple[Way, ...] = (_raw, _sealed, _repair, _token, _parts, _events, *MESSAGE_WAYS, *STATE_WAYS)


def seeds() -> list[bytes]:
    """Inputs that are accepted, for a fuzzer to start from."""
    found: list[bytes] = []
    for kind, packet in SAMPLES.items():
        frame = encode(packet)
        rest = bytes((kind,)) + frame[8:10] + frame[12:HEADER_BYTES] + frame[HEADER_BYTES:-TAG_BYTES]
        found += [b"\0" + frame, b"\1" + rest]
        if kind in (PacketKind.DATA, PacketKind.TOKEN, PacketKind.TOKENPART):
            found.append(b"\2" + rest)
    body = token_body(TOKEN)
    found += [b"\3" + body, b"\3" + body + bytes(SIGNATURE_BYTES), b"\4\0\50" + body, b"\4\1\50" + body]
    found.append(b"\5" + vectors()["event_record"] * 3)
    others = (*message_seeds(), *state_seeds())
    return found + [bytes((WAYS_IN.index(way),)) + data for way, data in others]
