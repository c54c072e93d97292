"""ITCH messages built by hand, byte by byte, so that decoder and writer are not checked against each other alone."""

from __future__ import annotations

from struct import pack

__all__ = ["DAY", "MIDNIGHT", "OPEN", "day", "frame", "message"]

DAY = "2019-01-30"
MIDNIGHT = 1_548_824_400_000_000_000
"""Of that day in New York."""
OPEN = 34_200_000_000_000


def message(kind: str, locate: int, clock: int, body: bytes) -> bytes:
    """One message with its header."""
    return kind.encode() + pack(">HH", locate, 7) + clock.to_bytes(6) + body


def frame(*messages: bytes) -> bytes:
    """As a file has them."""
    return b"".join(pack(">H", len(each)) + each for each in messages)


def stock(name: str) -> bytes:
    return name.encode().ljust(8)


def system(clock: int, event: str) -> bytes:
    return message("S", 0, clock, event.encode())


def directory(locate: int, clock: int, name: str, lot: int = 100) -> bytes:
    body = stock(name) + b"QN" + pack(">I", lot) + b"NCZ PN 1N" + pack(">I", 0) + b"N"
    return message("R", locate, clock, body)


def action(locate: int, clock: int, name: str, state: str, reason: str = "    ") -> bytes:
    return message("H", locate, clock, stock(name) + state.encode() + b" " + reason.encode())


def add(locate: int, clock: int, order: int, side: str, shares: int, name: str, price: int, owner: str = "") -> bytes:
    body = pack(">Q", order) + side.encode() + pack(">I", shares) + stock(name) + pack(">I", price)
    return message("F" if owner else "A", locate, clock, body + owner.encode())


def executed(locate: int, clock: int, order: int, shares: int, match: int) -> bytes:
    return message("E", locate, clock, pack(">QIQ", order, shares, match))


def executed_at(locate: int, clock: int, order: int, shares: int, match: int, printable: str, price: int) -> bytes:
    return message("C", locate, clock, pack(">QIQ", order, shares, match) + printable.encode() + pack(">I", price))


def cancel(locate: int, clock: int, order: int, shares: int) -> bytes:
    return message("X", locate, clock, pack(">QI", order, shares))


def delete(locate: int, clock: int, order: int) -> bytes:
    return message("D", locate, clock, pack(">Q", order))


def replace(locate: int, clock: int, order: int, new: int, shares: int, price: int) -> bytes:
    return message("U", locate, clock, pack(">QQII", order, new, shares, price))


def trade(locate: int, clock: int, shares: int, name: str, price: int, match: int, side: str = "B") -> bytes:
    body = pack(">Q", 0) + side.encode() + pack(">I", shares) + stock(name) + pack(">IQ", price, match)
    return message("P", locate, clock, body)


def cross(locate: int, clock: int, shares: int, name: str, price: int, match: int, kind: str) -> bytes:
    return message("Q", locate, clock, pack(">Q", shares) + stock(name) + pack(">IQ", price, match) + kind.encode())


def broken(locate: int, clock: int, match: int) -> bytes:
    return message("B", locate, clock, pack(">Q", match))


def imbalance(locate: int, clock: int, name: str) -> bytes:
    return message("I", locate, clock, pack(">QQ", 1, 2) + b"B" + stock(name) + pack(">III", 3, 4, 5) + b"O1")


def day() -> list[bytes]:
    """One of every kind that matters, in an order that makes sense."""
    clock = iter(range(OPEN, OPEN + 100))
    return [
        system(next(clock), "O"),
        directory(1, next(clock), "ISO"),
        directory(2, next(clock), "CAST", 10),
        action(1, next(clock), "ISO", "T"),
        system(next(clock), "Q"),
        add(1, next(clock), 11, "B", 500, "ISO", 1_000_000),
        add(2, next(clock), 12, "S", 300, "CAST", 55_500, "NITE"),
        executed(1, next(clock), 11, 100, 9_001),
        executed_at(1, next(clock), 11, 50, 9_002, "Y", 1_000_100),
        executed_at(1, next(clock), 11, 50, 9_003, "N", 999_900),
        cancel(1, next(clock), 11, 100),
        replace(2, next(clock), 12, 13, 250, 55_600),
        executed(2, next(clock), 13, 250, 9_004),
        delete(1, next(clock), 11),
        trade(1, next(clock), 75, "ISO", 1_000_050, 9_005),
        imbalance(1, next(clock), "ISO"),
        cross(1, next(clock), 10_000, "ISO", 1_000_200, 9_006, "C"),
        broken(1, next(clock), 9_005),
        message("W", 0, next(clock), b"1"),
        message("h", 2, next(clock), stock("CAST") + b"QH"),
        system(next(clock), "C"),
    ]
