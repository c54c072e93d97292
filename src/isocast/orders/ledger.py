"""Double entry: every entry sums to zero for each asset, and no account goes below its limit.

What an account has of an asset is *available*, or *reserved* for orders that live and trades that are not confirmed.
A gateway's own accounts stand on the other side: `world`, where deposits come from, `clearing`, which is zero over all
gateways once everything is settled, and `fees`. Each leg of a trade is posted by the gateway whose account it is,
against `clearing`, also where both accounts are its own (settlement 20).

Example: A has 5,000.00, B at another gateway has 100 shares, and A buys them at 10.00. Before, 1,000.00 of A's money
and B's shares are reserved. Settled, A has 4,000.00 and the shares, B has 1,000.00; clearing is +1,000.00 at A's
gateway, -1,000.00 at B's, and the other way round for the shares: zero over both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from isocast.orders.accounts import (
    AMOUNT_MAX,
    CLEARING,
    FEES,
    WORLD,
    account_number,
    amount_text,
    gateway_of,
    is_house,
)
from isocast.orders.needs import Side
from isocast.terms.errors import LedgerError, LedgerFault

__all__ = [
    "Balance",
    "Entry",
    "EntryKind",
    "Fill",
    "Ledger",
    "Leg",
    "Move",
    "Pot",
    "Reservation",
    "check_same",
    "deposit",
    "forfeit_gained",
    "forfeit_paid",
    "free",
    "reserve",
    "reversal",
    "settle_buy",
    "settle_corrected",
    "settle_sell",
    "settled_fill",
    "withdraw",
]


class Pot(StrEnum):
    """Where an account has something."""

    AVAILABLE = "available"
    RESERVED = "reserved"


class EntryKind(StrEnum):
    """Why something is posted."""

    DEPOSIT = "deposit"
    WITHDRAWAL = "withdrawal"
    RESERVATION = "reservation"
    RELEASE = "release"
    TRADE = "trade"
    FORFEIT = "forfeit"
    CORRECTION = "correction"
    """Undoes a confirmed trade, or settles it as operators have corrected it. It is binding: an account may owe what it
    has spent meanwhile."""


class Leg(NamedTuple):
    """What one account gets, or gives where the amount is negative."""

    account: int
    asset: str
    pot: Pot
    amount: int


class Balance(NamedTuple):
    """What an account has of one asset."""

    available: int
    reserved: int


_NOTHING: Final = Balance(0, 0)


class Fill(NamedTuple):
    """One trade, as one of its two accounts sees it."""

    quantity: int
    price: int
    """Of one share, in price units."""
    fee: int = 0

    @property
    def value(self) -> int:
        """Without the fee."""
        return self.quantity * self.price


@dataclass(frozen=True, slots=True)
class Entry:
    """Legs that are posted together or not at all; LedgerError unless they sum to zero for each asset."""

    key: str
    """Posted once, however often it is given: a deposit's reference, an order, a floor and its trade."""
    kind: EntryKind
    legs: tuple[Leg, ...]
    memo: str = ""
    holder: str = ""
    """Whose reservation it makes, ends or spends: an order. What one order has bound, no other can spend."""

    def __post_init__(self) -> None:
        """Refuse what does not balance: no error of a caller may make or destroy money."""
        sums: dict[str, int] = {}
        for _, asset, pot, amount in self.legs:
            sums[asset] = sums.get(asset, 0) + amount
            if not amount or not -AMOUNT_MAX < amount < AMOUNT_MAX:
                raise LedgerError(LedgerFault.AMOUNT, f"{amount_text(asset, amount)} cannot be posted")
            if pot is Pot.RESERVED and not self.holder:
                raise LedgerError(
                    LedgerFault.UNRESERVED, f"entry {self.key} does not say which order's reservation it is"
                )
        if any(sums.values()) or not self.legs:
            raise LedgerError(LedgerFault.UNBALANCED, f"entry {self.key}: its legs do not sum to zero")


# What can be posted ---------------------------------------------------------------------------------


def _positive(asset: str, amount: int) -> int:
    if not 0 < amount < AMOUNT_MAX:
        raise LedgerError(
            LedgerFault.AMOUNT, f"{amount_text(asset, amount)}: an amount must be positive and below 2^62"
        )
    return amount


def _house(account: int, which: int) -> int:
    return account_number(gateway_of(account), which)


def deposit(key: str, account: int, asset: str, amount: int, memo: str = "") -> Entry:
    """From the world into an account: money, or shares."""
    _positive(asset, amount)
    legs = (
        Leg(_house(account, WORLD), asset, Pot.AVAILABLE, -amount),
        Leg(account, asset, Pot.AVAILABLE, amount),
    )
    return Entry(key, EntryKind.DEPOSIT, legs, memo)


def withdraw(key: str, account: int, asset: str, amount: int, memo: str = "") -> Entry:
    """From an account back into the world."""
    _positive(asset, amount)
    legs = (
        Leg(account, asset, Pot.AVAILABLE, -amount),
        Leg(_house(account, WORLD), asset, Pot.AVAILABLE, amount),
    )
    return Entry(key, EntryKind.WITHDRAWAL, legs, memo)


def reserve(key: str, holder: str, account: int, asset: str, amount: int) -> Entry:
    """Bind what an order needs."""
    legs = _move(account, asset, _positive(asset, amount))
    return Entry(key, EntryKind.RESERVATION, legs, holder=holder)


def free(key: str, holder: str, account: int, asset: str, amount: int) -> Entry:
    """Give back what an order no longer needs."""
    legs = _move(account, asset, -_positive(asset, amount))
    return Entry(key, EntryKind.RELEASE, legs, holder=holder)


def _move(account: int, asset: str, amount: int) -> tuple[Leg, ...]:
    return Leg(account, asset, Pot.AVAILABLE, -amount), Leg(account, asset, Pot.RESERVED, amount)


def settle_buy(key: str, holder: str, account: int, currency: str, symbol: str, fill: Fill, released: int) -> Entry:
    """A confirmed trade, at its buyer: `released` of his reservation ends; what it did not cost comes back at once."""
    _checked(currency, symbol, fill)
    clearing = _house(account, CLEARING)
    legs = (
        Leg(account, currency, Pot.RESERVED, -released),
        Leg(clearing, currency, Pot.AVAILABLE, fill.value),
        Leg(_house(account, FEES), currency, Pot.AVAILABLE, fill.fee),
        Leg(account, currency, Pot.AVAILABLE, released - fill.value - fill.fee),
        Leg(clearing, symbol, Pot.AVAILABLE, -fill.quantity),
        Leg(account, symbol, Pot.AVAILABLE, fill.quantity),
    )
    return Entry(key, EntryKind.TRADE, _without_zeros(legs), holder=holder)


def settle_sell(key: str, holder: str, account: int, currency: str, symbol: str, fill: Fill) -> Entry:
    """A confirmed trade, at its seller: his reserved shares go, and their value comes without the fee."""
    _checked(currency, symbol, fill)
    clearing = _house(account, CLEARING)
    legs = (
        Leg(account, symbol, Pot.RESERVED, -fill.quantity),
        Leg(clearing, symbol, Pot.AVAILABLE, fill.quantity),
        Leg(clearing, currency, Pot.AVAILABLE, -fill.value),
        Leg(_house(account, FEES), currency, Pot.AVAILABLE, fill.fee),
        Leg(account, currency, Pot.AVAILABLE, fill.value - fill.fee),
    )
    return Entry(key, EntryKind.TRADE, _without_zeros(legs), holder=holder)


def forfeit_paid(key: str, holder: str, account: int, currency: str, money: int) -> Entry:
    """A sealed bid was not revealed: money of its deposit goes to the seller, through clearing."""
    _positive(currency, money)
    legs = (
        Leg(account, currency, Pot.RESERVED, -money),
        Leg(_house(account, CLEARING), currency, Pot.AVAILABLE, money),
    )
    return Entry(key, EntryKind.FORFEIT, legs, holder=holder)


def forfeit_gained(key: str, account: int, currency: str, money: int) -> Entry:
    """The same, at the seller of the lot."""
    _positive(currency, money)
    legs = (
        Leg(_house(account, CLEARING), currency, Pot.AVAILABLE, -money),
        Leg(account, currency, Pot.AVAILABLE, money),
    )
    return Entry(key, EntryKind.FORFEIT, legs)


def reversal(key: str, legs: Iterable[Leg], memo: str = "") -> Entry:
    """Undo what some legs did, all of it available: what was reserved then is not bound again."""
    sums: Counter[tuple[int, str]] = Counter()
    for leg in legs:
        sums[leg.account, leg.asset] -= leg.amount
    undone = [Leg(account, asset, Pot.AVAILABLE, amount) for (account, asset), amount in sums.items()]
    return Entry(key, EntryKind.CORRECTION, _without_zeros(undone), memo)


def settle_corrected(
    key: str, side: Side, account: int, currency: str, symbol: str, fill: Fill, memo: str = ""
) -> Entry:
    """A trade as it was corrected, at one of its accounts, behind the reversal of what it was."""
    _checked(currency, symbol, fill)
    sign = 1 if side is Side.BUY else -1
    clearing = _house(account, CLEARING)
    legs = (
        Leg(account, currency, Pot.AVAILABLE, -sign * fill.value - fill.fee),
        Leg(clearing, currency, Pot.AVAILABLE, sign * fill.value),
        Leg(_house(account, FEES), currency, Pot.AVAILABLE, fill.fee),
        Leg(clearing, symbol, Pot.AVAILABLE, -sign * fill.quantity),
        Leg(account, symbol, Pot.AVAILABLE, sign * fill.quantity),
    )
    return Entry(key, EntryKind.CORRECTION, _without_zeros(legs), memo)


def settled_fill(legs: Iterable[Leg], currency: str, symbol: str) -> tuple[int, int, int]:
    """Quantity, value and fee of a trade, from what settled it at one of its accounts."""
    quantity = value = fee = 0
    for leg in legs:
        if leg.account == _house(leg.account, CLEARING):
            quantity += abs(leg.amount) * (leg.asset == symbol)
            value += abs(leg.amount) * (leg.asset == currency)
        elif leg.account == _house(leg.account, FEES):
            fee += leg.amount
    return quantity, value, fee


def _checked(currency: str, symbol: str, fill: Fill) -> None:
    _positive(symbol, fill.quantity)
    if fill.value:  # A lot may go for nothing.
        _positive(currency, fill.value)
    if not 0 <= fill.fee <= fill.value:
        fee, value = amount_text(currency, fill.fee), amount_text(currency, fill.value)
        raise LedgerError(LedgerFault.AMOUNT, f"a fee of {fee} for a trade of {value} cannot be posted")


def _without_zeros(legs: Iterable[Leg]) -> tuple[Leg, ...]:
    return tuple([leg for leg in legs if leg.amount])


# Balances -------------------------------------------------------------------------------------------


class Reservation(NamedTuple):
    """What one order has bound."""

    account: int
    asset: str
    amount: int


class Move(NamedTuple):
    """What a new order binds, from available to reserved: an entry under its holder's name."""

    holder: str
    account: int
    asset: str
    amount: int

    def entry(self) -> Entry:
        """The same with its legs; LedgerError for an amount that nobody can have."""
        return reserve(self.holder, self.holder, self.account, self.asset, self.amount)


class Ledger:
    """Balances and reservations, and the rules by which entries change them.

    It knows what it was given: a database gives it what some entries touch, and takes back what changed; a test or a
    simulator gives it nothing and keeps all.
    """

    def __init__(
        self,
        balances: Mapping[tuple[int, str], Balance] | None = None,
        reservations: Mapping[str, Reservation] | None = None,
        limits: Mapping[tuple[int, str], int] | None = None,
        frozen: Iterable[int] = (),
    ) -> None:
        """`limits`: how far below zero an account may go: credit of a currency, short sales of a symbol."""
        self.balances = dict(balances or {})
        self.reservations = dict(reservations or {})
        """Of each order that has one."""
        self._limits = dict(limits or {})
        self._frozen = dict.fromkeys(frozen)
        self._posted: dict[str, Entry | Move] = {}

    def balance(self, account: int, asset: str) -> Balance:
        """What an account has of an asset."""
        return self.balances.get((account, asset), _NOTHING)

    def posted(self, key: str) -> Entry | None:
        """What this one has posted under a key."""
        found = self._posted.get(key)
        return found.entry() if isinstance(found, Move) else found

    def learn(self, other: Ledger) -> None:
        """Take over what another knows of accounts of which this one knows nothing."""
        for place, balance in other.balances.items():
            self.balances.setdefault(place, balance)
        for holder, bound in other.reservations.items():
            self.reservations.setdefault(holder, bound)
        for place, limit in other._limits.items():
            self._limits.setdefault(place, limit)
        self._frozen |= other._frozen

    def begin(self) -> None:
        """A transaction begins: balances, limits and freezes stay known, reservations and keys of the last one go."""
        self.reservations.clear()
        self._posted.clear()

    def bind(self, move: Move) -> bool:
        """Bind what a new order needs; False where that is not plain: `post` the same as an entry, which says why.

        It decides as `post` would, without the legs: nothing is done more often.
        """
        holder, account, asset, amount = move
        place = account, asset
        available, reserved = self.balances.get(place, _NOTHING)
        if (
            not 0 < amount <= available
            or not -AMOUNT_MAX < reserved < AMOUNT_MAX - amount
            or account in self._frozen
            or holder in self.reservations
            or holder in self._posted
            or is_house(account)
        ):
            return False
        self.balances[place] = Balance(available - amount, reserved + amount)
        self.reservations[holder] = Reservation(account, asset, amount)
        self._posted[holder] = move
        return True

    def post(self, entry: Entry) -> bool:
        """Post an entry, or raise LedgerError and change nothing; False for one that was posted already."""
        known = self._posted.get(entry.key)
        if known is not None:
            known = known.entry() if isinstance(known, Move) else known
            check_same(entry, known.kind, known.legs)
            return False
        after: dict[tuple[int, str], Balance] = {}
        for account, asset, pot, amount in entry.legs:
            place = account, asset
            available, reserved = after.get(place) or self.balances.get(place, _NOTHING)
            if pot is Pot.AVAILABLE:
                after[place] = Balance(available + amount, reserved)
            else:
                after[place] = Balance(available, reserved + amount)
        for (account, asset), balance in after.items():
            self._check(entry, account, asset, balance)
        reservation = self._bound_after(entry)
        self._posted[entry.key] = entry
        self.balances.update(after)
        if reservation is not None and reservation.amount:
            self.reservations[entry.holder] = reservation
        elif reservation is not None:
            self.reservations.pop(entry.holder, None)
        return True

    def _bound_after(self, entry: Entry) -> Reservation | None:
        """What an entry's order has bound afterwards; None where the entry is about no reservation."""
        legs = [leg for leg in entry.legs if leg.pot is Pot.RESERVED]
        if not legs:
            return None
        known = self.reservations.get(entry.holder)
        account, asset, bound = known if known is not None else (*legs[0][:2], 0)
        if any(leg[:2] != (account, asset) for leg in legs):
            raise LedgerError(LedgerFault.UNRESERVED, f"{entry.holder} has bound {asset} of account {account} alone")
        amount = sum([leg.amount for leg in legs])
        if bound + amount < 0:
            has, wanted = amount_text(asset, bound), amount_text(asset, -amount)
            raise LedgerError(LedgerFault.UNRESERVED, f"{entry.holder} has bound {has}, not {wanted}")
        return Reservation(account, asset, bound + amount)

    def _check(self, entry: Entry, account: int, asset: str, balance: Balance) -> None:
        available, reserved = balance
        if not (-AMOUNT_MAX < available < AMOUNT_MAX and -AMOUNT_MAX < reserved < AMOUNT_MAX):
            raise LedgerError(LedgerFault.AMOUNT, f"account {account} would have more {asset} than can be counted")
        if is_house(account):
            return
        if account in self._frozen and entry.kind in (EntryKind.WITHDRAWAL, EntryKind.RESERVATION):
            raise LedgerError(
                LedgerFault.FROZEN, f"account {account} is frozen: isocast accounts freeze --lift ends it"
            )
        before = self.balance(account, asset)
        least = -self._limits.get((account, asset), 0)
        is_binding = entry.kind is EntryKind.CORRECTION
        if not is_binding and available < least and available < before.available:
            has = amount_text(asset, max(0, before.available - least))
            wanted = amount_text(asset, before.available - available)
            raise LedgerError(LedgerFault.SHORT, f"account {account} can spend {has}, not {wanted}")


def check_same(entry: Entry, kind: str, legs: Iterable[tuple[int, str, str, int]]) -> None:
    """LedgerError where a key was used before for something else."""
    if (entry.kind, tuple(entry.legs)) != (kind, tuple(legs)):
        raise LedgerError(LedgerFault.KEY_USED, f"{entry.key} was posted before with other contents: take another key")
