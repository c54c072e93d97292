"""PROOF of a narrow stripe as bytes: read is what was written, a path proves one leaf, and rubbish is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.errors import RemoteProtocolError
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.stripe_proofs import (
    STRIPE_PROOF_MAGIC,
    ProvenBlock,
    StripeProof,
    block_digest,
    paths_of,
    proof_leaf,
    proof_root,
    read_stripe_proof,
    root_statement,
    stripe_proof_bytes,
    write_stripe_proof,
)

GOLDEN = StripeProof(
    signer=65_537,
    session=b"2611160001",
    instant=1_700_000_000_000_000_000,
    following=12,
    first=9,
    ended=False,
    salt=bytes(range(8)),
    blocks=(ProvenBlock(1, bytes([1]) * 16), ProvenBlock(2, bytes([2]) * 16)),
    place=1,
    path=(bytes([3]) * 16,),
    signature=bytes([4]) * SIGNATURE_BYTES,
)

digests = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**64 - 1)
blocks = st.lists(st.builds(ProvenBlock, st.integers(1, 65_534), digests), max_size=70)
proofs = st.builds(
    StripeProof,
    signer=numbers,
    session=st.binary(min_size=10, max_size=10),
    instant=st.integers(0, 2**63 - 1),
    following=numbers,
    first=st.integers(1, 2**64 - 1),
    ended=st.booleans(),
    salt=st.binary(min_size=8, max_size=8),
    blocks=blocks.map(tuple),
    place=st.just(0),
    path=st.lists(digests, max_size=16).map(tuple),
    signature=st.binary(min_size=SIGNATURE_BYTES, max_size=SIGNATURE_BYTES),
)


def test_golden_bytes() -> None:
    raw = write_stripe_proof(GOLDEN)
    parts = (
        "49435356", "0000000000010001", "32363131313630303031", "17979cfe362a0000", "000000000000000c",
        "0000000000000009", "0001020304050607", "00", "01", "0001",
        "0001", "01" * 16, "0002", "02" * 16, "03" * 16, "04" * 72,
    )  # fmt: skip
    assert raw.hex() == "".join(parts)
    assert len(raw) == stripe_proof_bytes(2, 1)
    assert root_statement(1, 2, bytes(16)).hex() == "4e" + "0000000000000001" + "0000000000000002" + "00" * 16


@given(proofs)
def test_what_is_read_is_what_was_written(proof: StripeProof) -> None:
    raw = write_stripe_proof(proof)
    assert read_stripe_proof(raw) == proof
    assert len(raw) == stripe_proof_bytes(len(proof.blocks), len(proof.path))


@given(st.binary(max_size=400) | st.binary(max_size=400).map(lambda raw: STRIPE_PROOF_MAGIC + raw))
def test_rubbish_is_refused_with_one_error_or_read_whole(raw: bytes) -> None:
    try:
        proof = read_stripe_proof(raw)
    except RemoteProtocolError:
        return
    assert write_stripe_proof(proof) == raw


@given(st.lists(digests, min_size=1, max_size=40), st.data())
def test_a_path_leads_to_the_root_from_its_own_leaf_and_place_alone(seeds: list[bytes], data: st.DataObject) -> None:
    parts = [GOLDEN._replace(blocks=(ProvenBlock(1, seed),), first=place + 1) for place, seed in enumerate(seeds)]
    root, paths = paths_of([proof_leaf(part) for part in parts])
    whole = [part._replace(place=place, path=paths[place]) for place, part in enumerate(parts)]
    assert {proof_root(part) for part in whole} == {root}
    one = data.draw(st.sampled_from(whole))
    assert proof_root(one._replace(session=b"2611160002")) != root
    assert proof_root(one._replace(blocks=(ProvenBlock(2, one.blocks[0].digest),))) != root
    if one.path:
        assert proof_root(one._replace(place=one.place ^ 1)) != root
        assert proof_root(one._replace(path=one.path[:-1])) != root


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        write_stripe_proof(GOLDEN)[:-1],
        write_stripe_proof(GOLDEN._replace(place=2)),
        write_stripe_proof(GOLDEN._replace(path=(bytes(16),) * 17, place=0)),
        write_stripe_proof(GOLDEN._replace(first=0)),
        write_stripe_proof(GOLDEN._replace(blocks=(ProvenBlock(0, bytes(16)),))),
        write_stripe_proof(GOLDEN._replace(instant=-1)),
    ],
)
def test_a_proof_that_cannot_be_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_stripe_proof(raw)


def test_a_digest_is_of_the_market_the_salt_and_every_byte_of_the_packet() -> None:
    known = block_digest(bytes(32), bytes(8), b"packet")
    assert known != block_digest(bytes(31) + b"1", bytes(8), b"packet")
    assert known != block_digest(bytes(32), bytes(7) + b"1", b"packet")
    assert known != block_digest(bytes(32), bytes(8), b"packeT")
