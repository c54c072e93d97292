"""Proofs that a site broke a promise, one file each, beside a node's log: `NODE/evidence/*.proof`.

    "ISOPROOF" | version 2 | stripe 2 | kind 1 | zero 1 | length 4, packet | length 4, packet | CRC-32 4

Kind 1 is two tokens, body and signature; kind 2 two RECEIPT frames. Integers are little-endian. A proof is written
once and never changed; whoever has the roster can check it anywhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct, error
from typing import Final
from zlib import crc32

from isocast.ring.court import Evidence
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.codec import decode, encode
from isocast.wire.limits import MAX_TOKEN_BODY, SIGNATURE_BYTES
from isocast.wire.packets import Receipt, Token
from isocast.wire.token_body import decode_token_body, token_bytes

__all__ = ["FOLDER", "evidence_bytes", "keep_evidence", "kept_evidence", "read_evidence"]

FOLDER: Final = "evidence"
_SUFFIX: Final = ".proof"
_MAGIC: Final = b"ISOPROOF"
_VERSION: Final = 1
_HEAD: Final = Struct("<8sHHBB")
_LENGTH: Final = Struct("<I")
_TOKENS, _RECEIPTS = 1, 2
_FILES_MAX: Final = 1_024
"""Files that are looked at: a site is convicted once."""
_BYTES_MAX: Final = 2 * (MAX_TOKEN_BODY + SIGNATURE_BYTES) + 64


def evidence_bytes(evidence: Evidence) -> bytes:
    """The bytes of a proof."""
    kind = _TOKENS if isinstance(evidence.first, Token) else _RECEIPTS
    raw = _HEAD.pack(_MAGIC, _VERSION, evidence.stripe, kind, 0)
    for packet in (evidence.first, evidence.second):
        spelled = token_bytes(packet) if isinstance(packet, Token) else encode(packet)
        raw += _LENGTH.pack(len(spelled)) + spelled
    return raw + _LENGTH.pack(crc32(raw))


def read_evidence(raw: bytes) -> Evidence:
    """The proof in some bytes, whether it proves anything or not; RemoteProtocolError for what is none."""
    try:
        magic, version, stripe, kind, zero = _HEAD.unpack_from(raw)
        if magic != _MAGIC or crc32(raw[: -_LENGTH.size]) != _LENGTH.unpack(raw[-_LENGTH.size :])[0]:
            raise RemoteProtocolError("no proof, or a damaged one")
        if version != _VERSION or zero or kind not in (_TOKENS, _RECEIPTS):
            raise RemoteProtocolError(f"a proof of version {version} and kind {kind}; this program reads version 1")
        packets, at = [], _HEAD.size
        for _ in range(2):
            (length,) = _LENGTH.unpack_from(raw, at)
            at += _LENGTH.size
            packets.append(_packet(kind, stripe, raw[at : at + length]))
            at += length
    except error as reason:
        raise RemoteProtocolError(f"a proof that cannot be understood: {reason}") from reason
    if at != len(raw) - _LENGTH.size:
        raise RemoteProtocolError("a proof with bytes left over")
    return Evidence(*packets)


def _packet(kind: int, stripe: int, spelled: bytes) -> Token | Receipt:
    if kind == _TOKENS:
        return decode_token_body(stripe, spelled)
    packet = decode(spelled)
    if not isinstance(packet, Receipt) or packet.stripe != stripe:
        raise RemoteProtocolError("a proof whose packets are no receipts of its stripe")
    return packet


def keep_evidence(directory: Path, evidence: Evidence) -> Path:
    """Write a proof below a node's directory, unless it is there."""
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    kind = "token" if isinstance(evidence.first, Token) else "receipt"
    epoch = evidence.epoch
    name = f"site{evidence.author:05}-s{evidence.stripe:04}-e{epoch.number}.{epoch.server}-{kind}{evidence.number}"
    path = folder / f"{name}{_SUFFIX}"
    if not path.exists():
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(evidence_bytes(evidence))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    return path


def kept_evidence(directory: Path) -> list[tuple[Path, Evidence | None]]:
    """The proofs below a node's directory, by name; None for a file that is none."""
    found: list[tuple[Path, Evidence | None]] = []
    for path in sorted((directory / FOLDER).glob(f"*{_SUFFIX}"))[:_FILES_MAX]:
        try:
            found.append((path, read_evidence(path.read_bytes()) if path.stat().st_size <= _BYTES_MAX else None))
        except (OSError, RemoteProtocolError):
            found.append((path, None))
    return found
