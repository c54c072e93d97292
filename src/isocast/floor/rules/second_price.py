"""Sealed bids, and the winner pays the second price: so the best bid is what the lot is worth to the bidder.

A bid is a commitment, a hash of price, nonce, account and lot, with a ceiling in the clear at which its deposit is
reserved. Commitments count before the close, reveals from the close until the end of the window. The highest revealed
bid wins, of equal ones the earliest commitment; it pays the larger of the second highest and the reserve. Bids below
the reserve do not count. A bid that was not revealed is void, and its forfeit goes to the seller.

Examples, reserve 50:

    bids, in the order of their commitments         wins            pays
    80, 95, 95, 60                                  the first 95    95
    80, 60                                          80              60
    80                                              80              50
    95 (not revealed), 80, 60                       80              60, and the 95 forfeits
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from isocast.floor.events import Lot
from isocast.terms.market import MAX_TICKS

__all__ = ["NONCE_BYTES", "SealedBid", "SealedLot", "Sold", "commitment"]

NONCE_BYTES = 16
_DIGEST_BYTES = 32


def commitment(price: int, nonce: bytes, account: int, lot: int) -> bytes:
    """What a bidder publishes before the close."""
    fields = (
        price.to_bytes(8, "little", signed=True),
        nonce,
        account.to_bytes(4, "little"),
        lot.to_bytes(8, "little"),
    )
    return blake2b(b"".join(fields), digest_size=_DIGEST_BYTES).digest()


@dataclass(slots=True)
class SealedBid:
    """One bidder's commitment."""

    id: int
    account: int
    ceiling: int
    digest: bytes
    place: int
    """Of its commitment, in time."""
    price: int | None = None
    """Once it is revealed."""


class Sold(NamedTuple):
    """Who has won, at which price of a unit."""

    bid: SealedBid
    price: int


@dataclass(slots=True)
class SealedLot:
    """A lot and its bids, in the order of their commitments."""

    lot: Lot
    place: int
    """In time, among all that has one."""
    bids: dict[int, SealedBid] = field(default_factory=dict)
    """By account: each has one."""

    @property
    def decided_at(self) -> int:
        """The first token from this instant on decides."""
        return self.lot.closes_at + self.lot.window_ns

    def commit(self, bid: SealedBid) -> None:
        """A bid; a second one of an account takes the place of the first, and loses its time."""
        self.bids.pop(bid.account, None)
        self.bids[bid.account] = bid

    def reveal(self, account: int, price: int, nonce: bytes) -> bool:
        """Open an account's bid; False, and it may be tried again, where that is not what was committed to."""
        bid = self.bids[account]
        if len(nonce) != NONCE_BYTES or not 0 < price <= min(bid.ceiling, MAX_TICKS):
            return False
        if not compare_digest(bid.digest, commitment(price, nonce, account, self.lot.id)):
            return False
        bid.price = price
        return True

    def decide(self) -> Sold | None:
        """The highest of the revealed bids that reach the reserve."""
        reached = [
            (bid.price, bid) for bid in self.bids.values() if bid.price is not None and bid.price >= self.lot.reserve
        ]
        if not reached:
            return None
        ranked = sorted(reached, key=lambda one: -one[0])  # Stable: of equal bids the earliest commitment is first.
        return Sold(ranked[0][1], ranked[1][0] if len(ranked) > 1 else self.lot.reserve)

    def forfeits(self) -> list[tuple[SealedBid, int]]:
        """The bids that were not revealed, with what each loses: the lot's forfeit, as far as the deposit reaches."""
        return [
            (bid, min(self.lot.forfeit, bid.ceiling * self.lot.quantity))
            for bid in self.bids.values()
            if bid.price is None
        ]
