"""What proves a block has one spelling, and hostile bytes raise one error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.journal_proofs import (
    NO_SEAL,
    BlockProof,
    MessageSeal,
    Statement,
    decode_proof,
    encode_proof,
)

LABELS = [(1, 7), (2, 1), (1, 8), (2, 2)]
KEYS = st.binary(min_size=32, max_size=32).filter(any)
SEALS = st.one_of(st.just(NO_SEAL), st.builds(MessageSeal, st.sampled_from([b"a" * 16, b"b" * 16]), KEYS))
U32 = st.integers(0, (1 << 32) - 1)
STATEMENTS = st.builds(
    Statement,
    st.integers(0, 99),
    st.builds(Epoch, U32, U32),
    st.integers(0, (1 << 64) - 1),
    st.sampled_from([b"", bytes(range(72))]),
    st.binary(max_size=40),
)
PROOFS = st.builds(
    BlockProof,
    st.one_of(st.just(()), st.tuples(*[SEALS] * len(LABELS))),
    st.lists(STATEMENTS, max_size=3).map(tuple),
)


@given(PROOFS)
def test_what_is_written_is_read(proof: BlockProof) -> None:
    raw = encode_proof(proof, LABELS)
    assert len(raw) % 8 == 0
    assert decode_proof(raw, LABELS) == proof


def test_a_salt_is_kept_once_for_a_source() -> None:
    seals = [MessageSeal(bytes([source]) * 16, b"k" * 32) for source, _ in LABELS]
    assert len(encode_proof(BlockProof(tuple(seals)), LABELS)) == 8 + 4 * 32 + 2 * 32
    restarted = [*seals[:2], MessageSeal(b"n" * 16, b"k" * 32), seals[3]]
    assert len(encode_proof(BlockProof(tuple(restarted)), LABELS)) == 8 + 4 * 32 + 3 * 32


@given(st.binary(max_size=400))
def test_hostile_bytes_raise_one_error_or_are_what_a_writer_writes(raw: bytes) -> None:
    try:
        proof = decode_proof(raw, LABELS)
    except RemoteProtocolError:
        return
    assert encode_proof(proof, LABELS) == raw


@given(PROOFS, st.data())
def test_a_piece_is_not_the_whole(proof: BlockProof, data: st.DataObject) -> None:
    raw = encode_proof(proof, LABELS)
    cut = data.draw(st.integers(0, len(raw) - 1))
    try:
        found = decode_proof(raw[:cut], LABELS)
    except RemoteProtocolError:
        return
    assert found != proof


@pytest.mark.parametrize(
    "proof, rule",
    [
        (BlockProof((NO_SEAL,)), "1 seals of 4 messages"),
        (BlockProof((MessageSeal(b"a" * 16, bytes(32)), *[NO_SEAL] * 3)), "a key of 32 bytes"),
        (BlockProof((MessageSeal(b"a" * 15, b"k" * 32), *[NO_SEAL] * 3)), "a key of 32 bytes"),
        (BlockProof((), (Statement(3, Epoch(1, 1), 1, b"short", b""),)), "a signature of 5 bytes"),
        (BlockProof((), (Statement(1 << 16, Epoch(1, 1), 1, b"", b""),)), "does not fit"),
    ],
)
def test_what_a_reader_would_refuse_is_not_written(proof: BlockProof, rule: str) -> None:
    with pytest.raises(LocalProtocolError, match=rule):
        encode_proof(proof, LABELS)


def test_a_part_has_the_seals_of_its_messages_and_the_first_has_the_statements() -> None:
    seals = tuple(MessageSeal(b"a" * 16, bytes([place + 1]) * 32) for place in range(4))
    proof = BlockProof(seals, (Statement(3, Epoch(1, 1), 1, b"", b"x"),))
    assert proof.part(0, 3) == BlockProof(seals[:3], proof.statements)
    assert proof.part(3, 4) == BlockProof(seals[3:])
    assert BlockProof((), proof.statements).part(0, 1).seals == ()
