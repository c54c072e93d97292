"""The clock of Amsterdam's flower auctions: the price falls until somebody calls.

p(t) = max(reserve, start - step * (t - t_open)) in token t. Whoever bids first in the sequence takes at p(t) while
there is anything left and p(t) is not above the bid's ceiling; what is left of the bid is cancelled, and the clock goes
on for what is left of the lot. It ends when all is sold, or with the first token after the opening that stood at the
reserve.

Example: start 100, step 5, reserve 70, a lot of 30, opened in token 10. In token 12 the price is 90: A takes 10, and B,
who wants 25 with the ceiling 85, is refused. In token 13 it is 85: B asks for 25 again and gets the 20 that are left.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.floor.events import Lot

__all__ = ["DutchLot"]


@dataclass(slots=True)
class DutchLot:
    """A lot and its clock."""

    lot: Lot
    opened: int
    """In which token."""
    left: int
    place: int
    """In time, among all that has one."""

    def price(self, token: int) -> int:
        """What a unit costs in a token."""
        return max(self.lot.reserve, self.lot.start - self.lot.step * (token - self.opened))

    def has_ended(self, token: int) -> bool:
        """Whether the clock stops at the end of a token, whatever is left."""
        return token > self.opened and self.price(token) == self.lot.reserve
