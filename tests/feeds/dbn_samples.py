"""DBN files built by hand, byte by byte, after Databento's published layouts."""

from __future__ import annotations

from struct import pack

__all__ = ["NOON", "SCHEMAS", "day", "deep", "file", "mapping", "metadata", "ohlcv", "order", "quote", "trade"]

NOON = 1_704_196_800_000_000_000
"""2024-01-02, 12:00 UTC."""
SCHEMAS = {"mbo": 0, "mbp-1": 1, "mbp-10": 2, "tbbo": 3, "trades": 4, "ohlcv-1m": 6, "mixed": 0xFFFF}
NO_PRICE = (1 << 63) - 1

Names = dict[str, int]
NAMES: Names = {"AAPL": 5, "BRK.B": 6}


def metadata(
    schema: str = "trades",
    names: Names = NAMES,
    *,
    version: int = 3,
    days: tuple[int, int] = (20240101, 20240104),
    sent_time: bool = False,
) -> bytes:
    """The metadata of a file that was asked for by symbols."""
    size = 22 if version == 1 else 71

    def text(name: str) -> bytes:
        return name.encode().ljust(size, b"\0")

    head = b"XNAS.ITCH".ljust(16, b"\0") + pack("<HQQQ", SCHEMAS[schema], NOON, (1 << 64) - 1, 0)
    head += pack("<Q", 0) if version == 1 else b""
    head += bytes([1, 0, sent_time]) + (b"" if version == 1 else pack("<H", size))
    body = head.ljust(100, b"\0") + pack("<I", 0)
    body += pack("<I", len(names)) + b"".join(map(text, names)) + pack("<II", 0, 0) + pack("<I", len(names))
    for name, number in names.items():
        body += text(name) + pack("<III", 1, *days) + text(str(number))
    return b"DBN" + bytes([version]) + pack("<I", len(body)) + body


def _header(kind: int, size: int, instrument: int, time: int, publisher: int = 2) -> bytes:
    return pack("<BBHIQ", size // 4, kind, publisher, instrument, time)


def trade(  # noqa: PLR0913 - a field each
    instrument: int,
    time: int,
    price: int,
    size: int,
    side: str = "B",
    sequence: int = 0,
    *,
    action: str = "T",
    publisher: int = 2,
    kind: int = 0,
    length: int = 48,
    flags: int = 0,
) -> bytes:
    """Prices are in units of 10^-9."""
    head = _header(kind, length, instrument, time, publisher)
    codes = bytes([ord(action), ord(side), flags, 0])
    return head + pack("<qI", price, size) + codes + pack("<QiI", time + 100, 1, sequence)


def quote(
    instrument: int, time: int, bid: tuple[int, int], ask: tuple[int, int], action: str = "A", price: int = 0
) -> bytes:
    """The best of both sides, price and size of each."""
    head = trade(instrument, time, price, 10, "A", 9, action=action, kind=1, length=80)
    return head + pack("<qqIIII", bid[0], ask[0], bid[1], ask[1], 1, 1)


def deep(instrument: int, time: int, bid: tuple[int, int], ask: tuple[int, int]) -> bytes:
    """Ten levels, all alike."""
    head = trade(instrument, time, 0, 10, "A", 9, action="A", kind=10, length=368)
    return head + 10 * pack("<qqIIII", bid[0], ask[0], bid[1], ask[1], 1, 1)


def order(  # noqa: PLR0913 - a field each
    action: str,
    time: int,
    number: int,
    price: int,
    size: int,
    side: str = "B",
    sequence: int = 0,
    *,
    instrument: int = 5,
    flags: int = 0,
) -> bytes:
    head = _header(0xA0, 56, instrument, time)
    codes = bytes([flags, 0, ord(action), ord(side)])
    return head + pack("<QqI", number, price, size) + codes + pack("<QiI", time + 100, 1, sequence)


def mapping(instrument: int, name: str, time: int = NOON) -> bytes:
    """What a live session says about an instrument."""
    text = name.encode().ljust(71, b"\0")
    return _header(0x16, 176, instrument, time) + b"\1" + text + b"\1" + text + pack("<QQ", 0, 0)


def ohlcv(instrument: int, time: int) -> bytes:
    return _header(0x21, 56, instrument, time) + pack("<qqqqQ", 1, 2, 1, 2, 3)


def file(schema: str, *records: bytes, version: int = 3) -> bytes:
    return metadata(schema, version=version) + b"".join(records)


def day() -> bytes:
    """Records of every type that is read."""
    unit = 10**9
    return metadata("mixed") + b"".join(
        [
            mapping(9, "LIVE"),
            trade(5, NOON, unit, 100),
            quote(6, NOON + 1, (unit, 5), (2 * unit, 6), "T", 2 * unit),
            deep(9, NOON + 2, (unit, 5), (NO_PRICE, 0)),
            order("A", NOON + 3, 71, unit, 30),
            order("T", NOON + 4, 0, unit, 10, "A", 3),
            order("F", NOON + 4, 71, unit, 10, "B", 3),
            order("C", NOON + 4, 71, unit, 10, "B", 3),
            order("M", NOON + 5, 71, 2 * unit, 10),
            ohlcv(5, NOON + 6),
        ]
    )
