"""Each rule of the wire, seen failing: the writer does not write it, and the reader refuses it.

`Layout` asks one `fault` for both directions. To see the reader refuse what the writer would not write, the
body is made by the layout's own `write`, past the check.
"""

from struct import pack
from typing import Any

import pytest
from tests.wire.hostile import framed, resealed
from tests.wire.samples import KEY, KEYS, SAMPLES, SITE, TOKEN

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.wire.ballot_bodies import BALLOTS, REASONS
from isocast.wire.codec import LINE_PLANS, NACKS, TRAFFIC, PacketKind, decode, encode
from isocast.wire.limits import (
    JUMBO_DATAGRAM,
    MAX_DATAGRAM,
    MAX_HOLDING_BITS,
    MAX_HOLDINGS,
    MAX_LINE_RESTS,
    MAX_LINE_SCOPES,
    MAX_NEXT_NUMBERS,
    MAX_NUMBER,
    MAX_PART_BODY,
    MAX_PARTS,
    MAX_PAYLOAD,
    MAX_PROOF,
    MAX_RING,
)
from isocast.wire.packets import Data, Holding, LineRest, LineScope, NextNumber, Packet, Range, Repair, Suspicion, Token

LAYOUTS = {
    layout.kind: layout for layout in (*TRAFFIC.values(), *NACKS.values(), *BALLOTS.values(), *LINE_PLANS.values())
}


def altered(kind: PacketKind, **changes: Any) -> Packet:  # noqa: ANN401  any field of any packet
    packet = SAMPLES[kind]
    assert isinstance(packet, tuple)
    return packet._replace(**changes)


BROKEN: dict[str, tuple[PacketKind, dict[str, Any]]] = {
    "a part beyond the end": (PacketKind.TOKENPART, {"part": 3, "parts": 3}),
    "no parts": (PacketKind.TOKENPART, {"part": 0, "parts": 0}),
    "too many parts": (PacketKind.TOKENPART, {"parts": MAX_PARTS + 1}),
    "an empty part": (PacketKind.TOKENPART, {"body": b""}),
    "too long a part": (PacketKind.TOKENPART, {"body": bytes(MAX_PART_BODY + 1)}),
    "too long a payload": (PacketKind.REL, {"payload": bytes(MAX_PAYLOAD + 1), "proof": b""}),
    "too long a proof": (PacketKind.REL, {"proof": bytes(MAX_PROOF + 1)}),
    "too long a payload with a proof": (
        PacketKind.REL,
        {"payload": bytes(MAX_PAYLOAD - 64), "proof": bytes(MAX_PROOF)},
    ),
    "a chain that goes nowhere": (PacketKind.SRCCHAIN, {"since": 7, "number": 7}),
    "a chain that goes back": (PacketKind.SRCCHAIN, {"since": 8, "number": 7}),
    "a proof of nothing": (PacketKind.PROOF, {"digests": ()}),
    "a proof of too much": (PacketKind.PROOF, {"digests": (bytes(16),) * 81}),
    "a proof beyond all numbers": (PacketKind.PROOF, {"first": (1 << 64) - 1}),
    "a part of a proof that is none": (PacketKind.PROOF, {"part": 2}),
    "a digest of another length": (PacketKind.PROOF, {"digests": (bytes(15),)}),
    "a signature of another length": (PacketKind.PROOF, {"signature": bytes(71)}),
    "a range that ends before it begins": (PacketKind.RXREQ, {"first": 2, "last": 1}),
    "parts beyond the limit": (PacketKind.NACK, {"parts_held": 1 << MAX_PARTS}),
    "a bitmap beyond the limit": (PacketKind.NACK, {"listed": (Holding(1, 0, 1 << MAX_HOLDING_BITS),)}),
    "too many holdings": (PacketKind.NACK, {"listed": (Holding(1, 0, 0),) * (MAX_HOLDINGS + 1)}),
    "numbers beyond 64 bits": (PacketKind.NACK, {"listed": (Holding(1, MAX_NUMBER, 1),)}),
    "heard a site twice": (PacketKind.JOIN, {"heard": (1, 1)}),
    "heard too many": (PacketKind.JOIN, {"heard": tuple(range(MAX_RING + 1))}),
    "U with a site twice": (PacketKind.JOIN, {"universe": (1, 2, 1)}),
    "a source twice": (PacketKind.JOIN, {"next_numbers": (NextNumber(9, 1), NextNumber(9, 2))}),
    "too many sources": (
        PacketKind.JOIN,
        {"next_numbers": tuple(NextNumber(i, 1) for i in range(MAX_NEXT_NUMBERS + 1))},
    ),
    "a ring of nobody": (PacketKind.NEWRING, {"ring": (), "commits": ()}),
    "a ring with a site twice": (PacketKind.NEWRING, {"ring": (2, 2)}),
    "too large a ring": (
        PacketKind.NEWRING,
        {"ring": tuple(range(MAX_RING + 1)), "commits": (bytes(16),) * (MAX_RING + 1)},
    ),
    "holders twice": (PacketKind.NEWRING, {"holders": (2, 2)}),
    "too large a U": (PacketKind.NEWRING, {"universe": tuple(range(MAX_RING + 1))}),
    "a source's number twice": (PacketKind.NEWRING, {"next_numbers": (NextNumber(9, 1), NextNumber(9, 2))}),
    "fewer commits than members": (PacketKind.NEWRING, {"commits": (bytes(16),)}),
    "more commits than members": (PacketKind.NEWRING, {"commits": (bytes(16),) * 3}),
    "a scope of one site twice": (PacketKind.LINES, {"scopes": (LineScope(1, 0.0, 0.0, 5, 5, 0),) * 2}),
    "too many scopes": (
        PacketKind.LINES,
        {"scopes": tuple(LineScope(n, 0.0, 0.0, 5, 5, 0) for n in range(MAX_LINE_SCOPES + 1))},
    ),
    "too many that rest": (PacketKind.LINES, {"rests": (LineRest(1, 0.0, 0.0, 5, 5, 0, 9),) * (MAX_LINE_RESTS + 1)}),
    "a silent scope with an address": (PacketKind.LINES, {"scopes": (LineScope(1, 0.0, 0.0, 0, 0, 3),)}),
    "a scope without an address": (PacketKind.LINES, {"scopes": (LineScope(1, 0.0, 0.0, 5, 5, 0xFFFF),)}),
    "nothing that rests": (PacketKind.LINES, {"rests": (LineRest(1, 0.0, 0.0, 5, 5, 0xFFFF, 9),)}),
    "a place beyond the pole": (PacketKind.LINES, {"scopes": (LineScope(1, 90.5, 0.0, 5, 5, 0),)}),
    "a place that is no number": (PacketKind.LINES, {"scopes": (LineScope(1, 0.0, float("nan"), 5, 5, 0),)}),
    "an address without groups": (PacketKind.LINES, {"stripes": 0}),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_what_breaks_a_rule_is_not_written(rule: str) -> None:
    kind, changes = BROKEN[rule]
    with pytest.raises(LocalProtocolError):
        encode(altered(kind, **changes))


@pytest.mark.parametrize("rule", BROKEN)
def test_what_breaks_a_rule_is_refused(rule: str) -> None:
    kind, changes = BROKEN[rule]
    body = LAYOUTS[kind].write(altered(kind, **changes))
    with pytest.raises(RemoteProtocolError):
        decode(framed(kind, body))


@pytest.mark.parametrize(
    "kind, field",
    [
        (PacketKind.RECEIPT, "digest"),
        (PacketKind.SRCCHAIN, "before"),
        (PacketKind.SRCCHAIN, "digest"),
        (PacketKind.JOIN, "digest"),
        (PacketKind.JOIN, "commit"),
        (PacketKind.NEWRING, "cut_digest"),
    ],
)
@pytest.mark.parametrize("length", [0, 15, 17, 31, 33])
def test_a_digest_of_another_length_is_not_written(kind: PacketKind, field: str, length: int) -> None:
    """The struct module would pad or cut it in silence."""
    with pytest.raises(LocalProtocolError, match=r"digest|nonce"):
        encode(altered(kind, **{field: bytes(length)}))


@pytest.mark.parametrize("changes", [{"parts_held": -1}, {"listed": (Holding(1, 0, -1),)}])
def test_a_negative_bitmap_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        encode(altered(PacketKind.NACK, **changes))


def test_a_nack_within_its_counts_but_too_long_is_not_written() -> None:
    full = Holding(1, 0, (1 << MAX_HOLDING_BITS) - 1)
    with pytest.raises(LocalProtocolError, match="at most 65507"):
        encode(altered(PacketKind.NACK, listed=(full,) * 200))


@pytest.mark.parametrize(
    "kind, limit",
    [(PacketKind.RECEIPT, MAX_DATAGRAM), (PacketKind.TOKEN, MAX_DATAGRAM), (PacketKind.REPAIR, JUMBO_DATAGRAM)],
)
def test_what_is_longer_than_its_datagram_is_refused_before_it_is_authenticated(kind: PacketKind, limit: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"at most {limit}"):
        decode(encode(SAMPLES[kind])[:44] + bytes(limit - 43))
    with pytest.raises(RemoteProtocolError, match="tag"):
        decode(encode(SAMPLES[kind])[:44] + bytes(limit - 44))


def test_a_nack_longer_than_a_datagram_can_be_is_refused() -> None:
    full = Holding(1, 0, (1 << MAX_HOLDING_BITS) - 1)
    body = LAYOUTS[PacketKind.NACK].write(altered(PacketKind.NACK, listed=(full,) * 200))
    with pytest.raises(RemoteProtocolError, match="at most 65507"):
        decode(framed(PacketKind.NACK, body))


def test_a_node_of_a_ring_has_four_bytes() -> None:
    with pytest.raises(LocalProtocolError):
        encode(altered(PacketKind.NEWRING, ring=(1, 1 << 32)))


def test_unknown_flags_of_a_nack_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="flags"):
        decode(framed(PacketKind.NACK, pack("<QHHH", 1, 2, 0, 0)))


@pytest.mark.parametrize(
    "body",
    [
        pack("<QHHH", 1, 0, 1, 0) + b"\0",
        pack("<QHHH", 1, 0, 2, 0) + b"\1\0",
        pack("<QHHH", 1, 0, 0, 1) + pack("<QQH", 1, 1, 2) + b"\1\0",
    ],
)
def test_a_padded_bitmap_is_refused(body: bytes) -> None:
    """Every packet has one spelling."""
    with pytest.raises(RemoteProtocolError, match="padded"):
        decode(framed(PacketKind.NACK, body))


def test_counts_are_believed_only_as_far_as_there_are_bytes() -> None:
    for body in (pack("<QHHH", 1, 0, 0, 65_535), pack("<QHHH", 1, 0, 65_535, 0)):
        with pytest.raises(RemoteProtocolError):
            decode(framed(PacketKind.NACK, body))
    join = LAYOUTS[PacketKind.JOIN].write(SAMPLES[PacketKind.JOIN])
    for counts in ((65_535, 0, 0), (0, 65_535, 0), (0, 0, 65_535)):
        with pytest.raises(RemoteProtocolError):
            decode(framed(PacketKind.JOIN, join[:88] + pack("<HHH", *counts) + join[94:]))


@pytest.mark.parametrize("code", [0, len(REASONS) + 1, 65_535])
def test_an_unknown_suspicion_is_refused(code: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"reason {code}"):
        decode(framed(PacketKind.SUSPECT, pack("<QQHII", 1, 2, code, 3, 4)))


def test_every_suspicion_has_its_number() -> None:
    assert set(REASONS) == set(Suspicion)
    assert len(set(REASONS.values())) == len(REASONS)


@pytest.mark.parametrize("unit", [0, len(Range) + 1, 65_535])
def test_an_unknown_unit_of_a_range_is_refused(unit: int) -> None:
    for kind, numbers in ((PacketKind.RXREQ, 2), (PacketKind.RXREP, 3)):
        with pytest.raises(RemoteProtocolError):
            decode(framed(kind, pack("<H", unit) + bytes(8 * numbers)))


def test_lengths_of_a_release_must_add_up() -> None:
    body = LAYOUTS[PacketKind.REL].write(SAMPLES[PacketKind.REL])
    with pytest.raises(RemoteProtocolError, match="expected"):
        decode(framed(PacketKind.REL, body + b"\0"))
    with pytest.raises(RemoteProtocolError, match="expected"):
        decode(framed(PacketKind.REL, body[:-1]))


def test_too_long_a_payload_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="DATA of"):
        decode(framed(PacketKind.DATA, bytes(16 + MAX_PAYLOAD + 1)))


# ---- TOKEN in its frame


def test_a_token_must_agree_with_its_frame() -> None:
    frame = encode(TOKEN)
    for at in (12, 16, 20):
        other = bytearray(frame)
        other[at] ^= 1
        with pytest.raises(RemoteProtocolError, match="different senders or epochs"):
            decode(resealed(bytes(other)))


# ---- REPAIR


@pytest.mark.parametrize(
    "kind",
    sorted(set(PacketKind) - {PacketKind.DATA, PacketKind.TOKEN, PacketKind.TOKENPART}),
    ids=lambda kind: kind.name,
)
def test_only_data_and_tokens_are_repaired(kind: PacketKind) -> None:
    """That includes REPAIR itself: one level of nesting, so no frame can make the reader dig."""
    inner = encode(SAMPLES[kind])
    with pytest.raises(RemoteProtocolError, match="not repaired"):
        decode(framed(PacketKind.REPAIR, inner, inner[8:10] + inner[12:28]))
    item: Any = SAMPLES[kind]
    with pytest.raises(LocalProtocolError, match="nothing that is repaired"):
        encode(Repair(item.stripe, item.epoch, SITE, item))


def test_a_repair_keeps_the_stripe() -> None:
    data = SAMPLES[PacketKind.DATA]
    assert isinstance(data, Data)
    with pytest.raises(LocalProtocolError, match="another stripe"):
        encode(Repair(data.stripe + 1, data.epoch, SITE, data))
    with pytest.raises(RemoteProtocolError, match="another stripe"):
        decode(framed(PacketKind.REPAIR, encode(data)))


def test_the_item_of_a_repair_has_a_tag_of_its_own() -> None:
    """A repairer cannot put words into a source's mouth since sources have keys of their own."""
    repair = SAMPLES[PacketKind.REPAIR]
    frame = bytearray(encode(repair, KEYS))
    frame[28 + 44] ^= 1
    with pytest.raises(RemoteProtocolError, match="tag"):
        decode(resealed(bytes(frame), KEY), KEYS)


def test_a_token_too_long_for_a_repair_travels_in_parts() -> None:
    runs = tuple(TOKEN.runs[0]._replace(source=1_000 + index) for index in range(40))
    token = Token(
        *(TOKEN.stripe, TOKEN.epoch, TOKEN.sender, 1, 1, 1, runs, (), ()),
        *(TOKEN.commit, TOKEN.reveal, 1, 1, (), TOKEN.prev_digest),
    )
    with pytest.raises(LocalProtocolError, match="in parts"):
        encode(token)
