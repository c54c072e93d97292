"""What gateways owe each other: every trade between two of them, added up to one sum for each pair and asset.

Each leg of a trade is posted by its own gateway against `clearing` (settlement 20). A gateway with a surplus of a trade
there holds what belongs to the one with the deficit. Netted, a thousand trades are one payment.

>>> netting = Netting()
>>> netting.add({1: {"cash:USD": 1_000, "shares:IBM": -100}, 2: {"cash:USD": -1_000, "shares:IBM": 100}})
>>> netting.add({1: {"cash:USD": -400}, 2: {"cash:USD": 400}})
>>> netting.debts()
[Debt(debtor=1, creditor=2, asset='cash:USD', amount=600), Debt(debtor=2, creditor=1, asset='shares:IBM', amount=100)]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Debt", "Netting"]


class Debt(NamedTuple):
    """What one gateway owes another, of one asset."""

    debtor: int
    creditor: int
    asset: str
    amount: int


class Netting:
    """Sums over trades, one after the other."""

    def __init__(self) -> None:
        """Nothing is owed."""
        self._owed: Counter[tuple[int, int, str]] = Counter()
        """By the pair with the lower number first: what that owes; negative: what it is owed."""
        self.unmatched: Counter[tuple[int, str]] = Counter()
        """Of a gateway: what it has cleared of trades whose other side is in none of the books."""

    def add(self, clearing: Mapping[int, Mapping[str, int]]) -> None:
        """One trade: what it left in the clearing of each gateway, by asset."""
        assets = dict.fromkeys(asset for sums in clearing.values() for asset in sums)
        for asset in assets:
            sides = {gateway: sums[asset] for gateway, sums in clearing.items() if sums.get(asset)}
            if sum(sides.values()):
                self.unmatched.update({(gateway, asset): amount for gateway, amount in sides.items()})
                continue
            for debtor, surplus in sides.items():
                for creditor, deficit in sides.items():
                    if surplus > 0 > deficit:
                        self._owe(debtor, creditor, asset, min(surplus, -deficit))

    def _owe(self, debtor: int, creditor: int, asset: str, amount: int) -> None:
        if debtor < creditor:
            self._owed[debtor, creditor, asset] += amount
        else:
            self._owed[creditor, debtor, asset] -= amount

    def debts(self) -> list[Debt]:
        """What is left of it all, pair by pair."""
        return [
            Debt(first, second, asset, amount) if amount > 0 else Debt(second, first, asset, -amount)
            for (first, second, asset), amount in sorted(self._owed.items())
            if amount
        ]
