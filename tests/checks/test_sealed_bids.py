"""T7 under attack: whoever has all that a receiver has cannot read a sealed bid before the close."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from secrets import token_bytes

from tests.floor.keys import KEY
from tests.runtime.worlds import market_file

from isocast.floor.arbiter import Arbiter, TokenReleased
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import AuctionKind, Commit, Directory, Event, Lot, Phase
from isocast.floor.following import FloorMessage
from isocast.floor.rules.second_price import NONCE_BYTES, commitment

CODE = "XISO"
BIDDER, LOT, CEILING, PRICE = 7, 1 << 32 | 1, 12, 9
CLOSES_AT = 1_000


def events(digest: bytes) -> list[list[Event]]:
    return [
        [Directory("ISO", phase=Phase.OPEN)],
        [Lot(LOT, 1, "ISO", AuctionKind.SECOND_PRICE, 3, reserve=2, closes_at=CLOSES_AT, window_ns=50)],
        [Commit(BIDDER << 32 | 1, BIDDER, LOT, CEILING, digest)],
    ]


def held_by_a_receiver(folder: Path, digest: bytes) -> list[bytes]:
    """Every file of the market, the keys of all nodes among them; the sequence, opened; the floor's state."""
    market_file(folder)
    arbiter = Arbiter(CODE, 1)
    payloads = []
    for token, one in enumerate(events(digest), 1):
        messages = tuple([FloorMessage(token, floor_topic(CODE), encode_event(event), KEY) for event in one])
        payloads += [message.payload for message in messages]
        arbiter.step(TokenReleased(token, token, token - 1, 3, (1, 2, 3), messages, is_own=True))
    files = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    assert list(folder.rglob("*.key"))
    return [*files, *payloads, arbiter.snapshot()]


def windows(held: Iterable[bytes]) -> set[bytes]:
    """Whatever could be a nonce: every 16 bytes in a row, as they are and as hexadecimal digits tell them."""
    found: set[bytes] = {bytes(NONCE_BYTES)}
    for data in held:
        texts = [data]
        digits = bytes(byte for byte in data if byte in b"0123456789abcdef")
        texts += [bytes.fromhex(digits[start : len(digits) - (len(digits) - start) % 2].decode()) for start in (0, 1)]
        for text in texts:
            found |= {text[at : at + NONCE_BYTES] for at in range(len(text) - NONCE_BYTES + 1)}
    return found


def read(digest: bytes, nonces: Iterable[bytes]) -> list[int]:
    """The prices that a commitment may stand for."""
    return [
        price for nonce in nonces for price in range(1, CEILING + 1) if commitment(price, nonce, BIDDER, LOT) == digest
    ]


def test_no_receiver_can_read_a_sealed_bid_before_the_close(tmp_path: Path) -> None:
    nonce = token_bytes(NONCE_BYTES)
    digest = commitment(PRICE, nonce, BIDDER, LOT)
    held = windows(held_by_a_receiver(tmp_path, digest))
    assert len(held) > 1_000
    assert read(digest, held) == []
    # The same attack succeeds as soon as the nonce is among what it looks through.
    assert read(digest, windows([b"somewhere" + nonce + b"else"])) == [PRICE]


def test_what_is_published_of_two_prices_differs_in_the_commitment_alone() -> None:
    """Length, ceiling and deposit are the same, and so is everything that the floor keeps."""
    nonce = token_bytes(NONCE_BYTES)
    one, other = (commitment(price, nonce, BIDDER, LOT) for price in (1, CEILING))
    sent = [b"".join(encode_event(event) for token in events(digest) for event in token) for digest in (one, other)]
    assert one != other
    assert sent[0].replace(one, b"") == sent[1].replace(other, b"")
