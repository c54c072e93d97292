"""The bytes of one segment, as a file that a change of format must change on purpose.

    python -m tests.wire.journal_vector        (from the root of the repository)

writes the file again. Do that only together with a new JOURNAL_VERSION in `isocast.wire.journal`, a line in the
changelog and the page docs/reference/journal.md.
"""

from __future__ import annotations

from pathlib import Path

from tests.wire.journal_samples import block, segment

from isocast.wire.journal_blocks import ReleasedBlock

__all__ = ["FILE", "RELEASED", "read_vector", "write_vector"]

FILE = Path(__file__).parent / "golden_journal" / "segment.hex"
_LINE = 16

RELEASED: tuple[ReleasedBlock, ...] = (
    block(8, 41, (None, b"ten bytes!", None, b""), count=6),
    block(8, 45, (None, b"\0" * 48), place=4, count=6),
    block(11, 47),
)
"""A token in two steps, with payloads that are not events; then one event message after two empty tokens."""


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
