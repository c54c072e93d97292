"""Repairs under a key of their own: read by who has it, and asked for by who has it."""

from __future__ import annotations

import pytest

from isocast.security.keys import SecretKey
from isocast.security.repairs import (
    REPAIR_OVERHEAD,
    REQUEST_BYTES,
    RepairOpener,
    RepairRequest,
    RepairSealer,
    read_repair_request,
    write_repair_request,
)
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError

KEY, OTHER = SecretKey(bytes(range(32))), SecretKey(bytes(32))
SERVER, CUSTOMER = 131_073, 131_074
PACKET = b"2410040001" + (7).to_bytes(8) + (1).to_bytes(2) + b"\0\x04wxyz"
REQUEST = RepairRequest(CUSTOMER, b"2410040001", 7, 3)


def sealed() -> bytes:
    return RepairSealer(KEY, SERVER, b"abcd", 1_000).seal(5, PACKET)


def test_who_has_the_key_reads_a_repair() -> None:
    raw = sealed()
    assert RepairOpener(KEY).open(raw) == (SERVER, 5, PACKET)
    assert len(raw) == len(PACKET) + REPAIR_OVERHEAD
    assert PACKET[-4:] not in raw, "who did not pay does not read it"


def test_no_two_repairs_share_a_nonce() -> None:
    sealer = RepairSealer(KEY, SERVER, b"abcd", 1_000)
    nonces = {sealer.seal(5, PACKET)[16:28] for _ in range(100)}
    nonces |= {RepairSealer(KEY, SERVER, b"efgh", 1_000).seal(5, PACKET)[16:28]}
    assert len(nonces) == 101
    with pytest.raises(LocalProtocolError):
        RepairSealer(KEY, SERVER, b"abc", 0)


@pytest.mark.parametrize("place", [4, 12, 16, 27, 30, -1])
def test_a_changed_byte_is_a_forgery(place: int) -> None:
    raw = bytearray(sealed())
    raw[place] ^= 1
    with pytest.raises(ForgeryError):
        RepairOpener(KEY).open(bytes(raw))


def test_another_key_opens_nothing() -> None:
    with pytest.raises(ForgeryError):
        RepairOpener(OTHER).open(sealed())
    for raw in (b"", b"ICRP", b"2410040001" + bytes(60)):
        with pytest.raises(RemoteProtocolError):
            RepairOpener(KEY).open(raw)


def test_a_request_is_the_customers_own() -> None:
    raw = write_repair_request(KEY, REQUEST)
    assert len(raw) == REQUEST_BYTES == 48
    assert read_repair_request(KEY, raw) == REQUEST
    with pytest.raises(ForgeryError):
        read_repair_request(OTHER, raw)
    for place in (5, 20, 31, 40):
        changed = bytearray(raw)
        changed[place] ^= 1
        with pytest.raises(ForgeryError):
            read_repair_request(KEY, bytes(changed))
    for bad in (raw[:-1], b"XXXX" + raw[4:], write_repair_request(KEY, REQUEST._replace(count=0))):
        with pytest.raises(RemoteProtocolError):
            read_repair_request(KEY, bad)
