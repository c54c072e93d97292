"""Proofs on disk: kept once, read as they were written, and nothing else is taken for one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ring.test_court import ONE, OTHER, signed_receipt
from tests.ring.test_notary import signed_by

from isocast.ring.court import Evidence
from isocast.runtime.disk.evidence_store import FOLDER, evidence_bytes, keep_evidence, kept_evidence, read_evidence
from isocast.terms.errors import RemoteProtocolError

TOKENS = Evidence(signed_by(1, ONE), signed_by(1, OTHER))
RECEIPTS = Evidence(signed_receipt(2, bytes(32)), signed_receipt(2, b"x" * 32))


@pytest.mark.parametrize("evidence", [TOKENS, RECEIPTS], ids=["tokens", "receipts"])
def test_a_proof_comes_back_and_is_written_once(tmp_path: Path, evidence: Evidence) -> None:
    path = keep_evidence(tmp_path, evidence)
    written = path.stat().st_mtime_ns
    assert keep_evidence(tmp_path, evidence) == path
    assert path.stat().st_mtime_ns == written
    assert kept_evidence(tmp_path) == [(path, evidence)]


def test_two_proofs_lie_side_by_side_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    paths = [keep_evidence(tmp_path, evidence) for evidence in (TOKENS, RECEIPTS)]
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    assert sorted(kept_evidence(tmp_path)) == [(paths[0], None), (paths[1], RECEIPTS)]
    assert kept_evidence(tmp_path / "nowhere") == []
    assert [path.name for path in (tmp_path / FOLDER).iterdir() if path.suffix != ".proof"] == []


@given(at=st.integers(0, len(evidence_bytes(TOKENS)) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_seen(at: int, bit: int) -> None:
    raw = bytearray(evidence_bytes(TOKENS))
    raw[at] ^= 1 << bit
    with pytest.raises(RemoteProtocolError):
        read_evidence(bytes(raw))


@given(st.binary(max_size=300))
def test_hostile_bytes_are_no_proof(raw: bytes) -> None:
    for hostile in (raw, evidence_bytes(RECEIPTS)[:14] + raw):
        with pytest.raises(RemoteProtocolError):
            read_evidence(hostile)
