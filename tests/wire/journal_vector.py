"""The bytes of one segment, as a file that a change of format must change on purpose.

    python -m tests.wire.journal_vector        (from the root of the repository)

writes the file again. Do that only together with a new JOURNAL_VERSION in `isocast.wire.journal`, a line in the
changelog and the page docs/reference/journal.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.wire.journal_samples import block, segment

from isocast.terms.ids import Epoch, server_id
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.journal_proofs import NO_SEAL, BlockProof, MessageSeal, Statement
from isocast.wire.signing import SignedKind

__all__ = ["FILE", "RELEASED", "read_vector", "write_vector"]

FILE = Path(__file__).parent / "golden_journal" / "segment.hex"
_LINE = 16

PROOF = BlockProof(
    (
        MessageSeal(b"salt of source 3", b"key of message 48 of a sequence!"),
        NO_SEAL,
        MessageSeal(b"salt of source 2", b"key of message 50 of a sequence!"),
        MessageSeal(b"another salt of3", b"key of message 51 of a sequence!"),
    ),
    (
        Statement(SignedKind.TOKEN, Epoch(2, server_id(1)), 7, b"", b"a body"),
        Statement(SignedKind.RECEIPT, Epoch(2, server_id(1)), 8, bytes(range(72)), b"held and digest"),
    ),
)

RELEASED: tuple[ReleasedBlock, ...] = (
    block(8, 41, (None, b"ten bytes!", None, b""), count=6),
    block(8, 45, (None, b"\0" * 48), place=4, count=6),
    block(11, 47),
    replace(block(12, 48, (None, b"opaque", None, None)), proof=PROOF),
)
"""A token in two steps, with payloads that are not events; then one event message after two empty tokens; then one with
a proof."""


def read_vector() -> bytes:
    """What was written when the file was made."""
    return bytes.fromhex(FILE.read_text(encoding="ascii"))


def write_vector() -> None:
    """Replace the file."""
    raw = segment(RELEASED)
    lines = [raw[at : at + _LINE].hex(" ") for at in range(0, len(raw), _LINE)]
    FILE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    write_vector()
