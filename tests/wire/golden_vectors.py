"""The bytes of every sample, as files that a change of format must change on purpose.

    python -m tests.wire.golden_vectors        (from the root of the repository)

writes the files again. Do that only together with a new VERSION in `isocast.wire.frame`, for what is said at doors
in `isocast.wire.door`, a line in the changelog and the page docs/reference/wire.md.
"""

from __future__ import annotations

from pathlib import Path

from tests.wire.door_samples import DOOR_SAMPLES, tagged_messages
from tests.wire.samples import DISCLOSING, EVENT, FORCED_RING, KEYS, MARKET, ORDERED_TOKEN, SAMPLES, TOKEN

from isocast.wire.codec import encode
from isocast.wire.door import DoorKind, encode_message
from isocast.wire.events import build_events, pack_events
from isocast.wire.token_body import token_bytes

__all__ = ["FOLDER", "door_name", "read_vector", "vectors", "write_vectors"]

FOLDER = Path(__file__).parent / "golden"
_LINE = 16


def vectors() -> dict[str, bytes]:
    """What this version writes."""
    frames = {kind.name.lower(): encode(packet, KEYS, MARKET) for kind, packet in SAMPLES.items()}
    doors = {door_name(kind): encode_message(message) for kind, message in DOOR_SAMPLES.items()}
    parts = {
        "token_body": token_bytes(TOKEN),
        "token_body_ordered": token_bytes(ORDERED_TOKEN),
        "token_disclosing": token_bytes(DISCLOSING),
        "event_record": pack_events(build_events([EVENT])),
        "newring_forced": encode(FORCED_RING, KEYS, MARKET),
    }
    return {**frames, **doors, **parts, "door_tagged": b"".join(tagged_messages())}


def door_name(kind: DoorKind) -> str:
    """What the file of a message is called."""
    return f"door_{kind.name.lower()}"


def read_vector(name: str) -> bytes:
    """What was written when the file was made."""
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))


def write_vectors() -> None:
    """Replace every file."""
    FOLDER.mkdir(exist_ok=True)
    for name, raw in vectors().items():
        lines = [raw[at : at + _LINE].hex(" ") for at in range(0, len(raw), _LINE)]
        (FOLDER / f"{name}.hex").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    write_vectors()
