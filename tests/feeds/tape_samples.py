"""Packets of the consolidated tapes and of NYSE's integrated feed, built by hand after their published layouts."""

from __future__ import annotations

from struct import pack

__all__ = ["NOON", "block", "capture", "cta", "nyse", "nyse_add", "nyse_mapping", "nyse_packet", "utp", "utp_packet"]

NOON = 1_704_196_800
"""2024-01-02, 12:00 UTC, in seconds."""


def cta(kind: str, body: bytes, participant: str = "N", ns: int = 5, reference: int = 77, seconds: int = NOON) -> bytes:
    """One message of CTS or CQS."""
    head = kind.encode() + participant.encode() + pack(">II", seconds, ns) + b"\1" + pack(">IQ", 9, reference)
    return pack(">H", 2 + len(head) + len(body)) + head + body


def long_trade(price: int, size: int, conditions: str = "    ", symbol: str = "IBM", *, wide: bool = False) -> bytes:
    """Price in units of 10^-6; with `wide`, the size too."""
    head = symbol.encode().ljust(11) + b"0" + conditions.encode() + pack(">Q", price)
    return head + pack(">Q" if wide else ">I", size) + b"\x0000 " + bytes(8) + b" N0 AA"


def cancelled(price: int, size: int, original: int) -> bytes:
    body = b"IBM".ljust(11) + b"0    " + pack(">QI", price, size) + b"\x0000 " + pack(">Q", original)
    return body + bytes(8) + b"1 N0" + bytes(76)


def corrected(price: int, size: int, original: int) -> bytes:
    body = b"IBM".ljust(11) + b"0    " + pack(">QI", price, size) + b"\x0000 N" + bytes(8) + pack(">Q", original)
    return body + bytes(90)


def status(code: str, reason: str = " ") -> bytes:
    return b"IBM".ljust(11) + b"0" + bytes(32) + code.encode() + reason.encode() + b" N0 "


def long_quote(bid: tuple[int, int], ask: tuple[int, int]) -> bytes:
    return b"IBM".ljust(11) + b"0R " + pack(">QIQI", *bid, *ask) + bytes(25)


def block(number: int, *messages: bytes, feed: str = "T", seconds: int = NOON) -> bytes:
    body = b"".join(messages)
    head = pack(">BH", 2, 20 + len(body)) + feed.encode() + b"O" + pack(">IB", number, len(messages))
    return head + pack(">IIH", seconds, 1, 0) + body


def utp(kind: str, body: bytes, participant: str = "Q") -> bytes:
    """One message of UTDF or UQDF."""
    return (
        b"1" + kind.encode() + participant.encode() + b" " + pack(">QQQ", NOON * 10**9 + 9, NOON * 10**9 + 5, 0) + body
    )


def utp_packet(number: int, *messages: bytes) -> bytes:
    framed = b"".join(pack(">H", len(each)) + each for each in messages)
    return b"UTPSESSION" + pack(">QH", number, len(messages)) + framed


def nyse(kind: int, body: bytes) -> bytes:
    return pack("<HH", 4 + len(body), kind) + body


def nyse_mapping(index: int, symbol: str, scale: int = 4) -> bytes:
    body = pack("<I", index) + symbol.encode().ljust(11, b"\0") + b"\0" + pack("<HBcBcH", 1, 7, b"N", scale, b"A", 100)
    return nyse(3, body + pack("<IIBcHH2x", 0, 0, 0, b"N", 100, 1))


def nyse_add(index: int, order: int, price: int, size: int, side: str = "B", ns: int = 4) -> bytes:
    return nyse(100, pack("<IIIQII", ns, index, 1, order, price, size) + side.encode() + b"     \0")


def nyse_packet(number: int, *messages: bytes, delivery: int = 11, ns: int = 10) -> bytes:
    body = b"".join(messages)
    return pack("<HBBIII", 16 + len(body), delivery, len(messages), number, NOON, ns) + body


def capture() -> list[bytes]:
    """A packet of every feed, each sound."""
    quote = b"AKAM " + pack(">HHHH", 5_123, 1, 5_124, 1) + b"R   0A"
    return [
        block(1, cta("TL", long_trade(27_100_000, 100)), cta("TX", cancelled(27_100_000, 100, 77))),
        block(1, cta("QL", long_quote((1_000_000, 1), (2_000_000, 3))), feed="Q"),
        utp_packet(1, utp("QE", quote)),
        nyse_packet(1, nyse_mapping(5, "ABG"), nyse_add(5, 71, 10_000, 30)),
    ]
