"""A floor for tests: short events, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isocast.floor.events import Cancel, Directory, Event, Order, Phase, Refusal, Refused, Replace, Report, Trade
from isocast.floor.machine import Floor
from isocast.terms.market import Side

SYMBOL = "ISO"
BUY, SELL = Side.BUY, Side.SELL


def order(number: int, side: Side, quantity: int, price: int = 0, **more: Any) -> Order:  # noqa: ANN401 - fields of Order
    """An order of an account of its own, unless one is named."""
    more.setdefault("account", number)
    return Order(number, symbol=SYMBOL, side=side, quantity=quantity, price=price, **more)


def cancel(number: int, quantity: int = 0, account: int | None = None) -> Cancel:
    return Cancel(number, number if account is None else account, quantity)


def replace(number: int, quantity: int | None = None, account: int | None = None, **more: int) -> Replace:
    return Replace(number, number if account is None else account, quantity, **more)


class Case:
    """One symbol that is open, one token after the other."""

    new_floor: type[Floor] = Floor
    """Which of the two floors; `both_floors` changes it."""

    def __init__(self, **terms: Any) -> None:  # noqa: ANN401 - fields of Directory
        self.floor = self.new_floor()
        self.now = 0
        terms.setdefault("phase", Phase.OPEN)
        self.token(Directory(SYMBOL, **terms))

    def token(self, *events: Event, at: int | None = None) -> list[Report]:
        """The next token."""
        self.now = self.now + 1 if at is None else at
        return self.floor.step(self.floor.token + 1, self.now, events)

    @property
    def state(self) -> Any:  # noqa: ANN401 - of the one symbol
        return self.floor.symbols[SYMBOL]

    def waiting(self, side: Side) -> list[tuple[int, int, int]]:
        """Orders of one side: id, price, what is left."""
        return [(one.id, one.price, one.left) for one in self.state.book.side(side)]


def trades(reports: Iterable[Report]) -> list[tuple[int, int, int, int]]:
    """Price, quantity, buy and sell of each trade."""
    return [(one.price, one.quantity, one.buy, one.sell) for one in reports if isinstance(one, Trade)]


def refusals(reports: Iterable[Report]) -> dict[int, Refusal]:
    """Why each event was refused."""
    return {one.id: one.reason for one in reports if isinstance(one, Refused)}
