"""Events and reports of a floor as numpy arrays: orders, cancels and replaces in, what came of them out.

What can be known of events without the book is found for all of them at once: whether their symbols trade, their lots
and ticks are whole, and the ids of each account rise. The loop of `floor.fast` then does the book alone, over plain
numbers, and its lists become one array at the end. An event of which this cannot be said goes the readable way, and is
refused there, if it is; so no reason to refuse is decided here.

Prices and quantities are the floor's whole numbers; a symbol is its place in the directory, from 0. Of an array of
events only `kind` and `id` are needed: without accounts every order is its own account's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from isocast.floor.events import (
    Cancel,
    Cancelled,
    Event,
    Expired,
    Forfeited,
    Indicative,
    Order,
    Phase,
    Refusal,
    Refused,
    Replace,
    Replaced,
    Report,
    Trade,
    Unsold,
)
from isocast.floor.fast import AS_IT_IS, FastFloor, Kind, Told, Way
from isocast.floor.machine import TOTAL_MAX, Floor
from isocast.terms.market import Side

__all__ = [
    "EVENT_DTYPE",
    "REASONS",
    "REPORT_DTYPE",
    "REPORT_KINDS",
    "ArrayKind",
    "Events",
    "Reports",
    "as_array",
    "as_reports",
    "match",
    "run",
]

Events = npt.NDArray[Any]
Reports = npt.NDArray[Any]


class ArrayKind:
    """What an event of an array is."""

    ORDER: Final = 0
    CANCEL: Final = 1
    """By `quantity`; 0: of all that is left."""
    REPLACE: Final = 2
    """With the new total as `quantity`, and the new price; `AS_IT_IS`: as it is."""
    REOPEN: Final = 3
    """A replace with what shall be open as `quantity`, as feeds say it."""


EVENT_DTYPE: Final = np.dtype(
    [
        ("kind", "u1"),
        ("side", "u1"),
        ("immediate", "?"),
        ("day", "?"),
        ("symbol", "<u4"),
        ("id", "<u8"),
        ("account", "<u8"),
        ("owner", "<u8"),
        ("quantity", "<i8"),
        ("price", "<i8"),
    ]
)
"""Of limit orders, cancels and replaces."""
REPORT_DTYPE: Final = np.dtype(
    [
        ("kind", "u1"),
        ("reason", "u1"),
        ("is_own", "?"),
        ("is_auction", "?"),
        ("is_off_book", "?"),
        ("symbol", "<i4"),
        ("event", "<i8"),
        ("id", "<u8"),
        ("number", "<u8"),
        ("price", "<i8"),
        ("quantity", "<i8"),
        ("buy", "<u8"),
        ("sell", "<u8"),
        ("surplus", "<i8"),
    ]
)
"""Of everything that a floor says."""
REPORT_KINDS: Final[tuple[type[Report], ...]] = (
    Trade,
    Refused,
    Cancelled,
    Expired,
    Replaced,
    Unsold,
    Forfeited,
    Indicative,
)
"""By the number that is a report's `kind`."""
REASONS: Final = tuple(Refusal)
"""By the number that is a refusal's `reason`."""
_NO_SYMBOL: Final = -1
_NO_PRICE: Final = -1
_NO_EVENT: Final = -1
_BLOCK: Final = 1 << 16
"""So many events are plain numbers at a time: what they need beside the array does not grow with it."""
_PRICE_MAX: Final = 1 << 60
"""Twice a price, and one more, is a whole number of 64 bits."""
_KIND_OF: Final = {one: place for place, one in enumerate(REPORT_KINDS)}
_REASON_OF: Final = {one: place for place, one in enumerate(REASONS)}
_KINDS: Final = np.array([_KIND_OF[one] for one in (Trade, Cancelled, Replaced, Refused)] + [0], np.uint8)
"""By `fast.Kind`."""
_WAYS: Final = np.array([Way.REST, Way.CANCEL, Way.REPLACE, Way.REOPEN], np.int64)
"""By `ArrayKind`."""
_FIELDS: Final = tuple(name for name in EVENT_DTYPE.names or () if name not in {"kind", "id", "account"})


def run(floor: Floor, events: Events) -> Reports:
    """Events of this token in their order; what came of each, and of what it woke."""
    found = []
    for start in range(0, len(events), _BLOCK):
        columns = _Columns(floor, events[start : start + _BLOCK])
        if isinstance(floor, FastFloor):
            found.append(_run(floor, columns, start))
        else:
            found.append(_run_readably(floor, columns, start))
    return np.concatenate(found) if found else np.zeros(0, REPORT_DTYPE)


def _run_readably(floor: Floor, columns: _Columns, start: int) -> Reports:
    told = [floor.apply(columns.event(index)) for index in range(len(columns.id))]
    found = as_array([report for reports in told for report in reports], columns.names)
    found["event"] = np.repeat(np.arange(start, start + len(told)), [len(reports) for reports in told])
    return found


def match(floor: FastFloor, events: Events, event_of: Callable[[int], Event]) -> Told:
    """Events of this token in their order; what came of each. `event_of` gives what goes the readable way."""
    return _match(floor, _Columns(floor, events), event_of)


def _run(floor: FastFloor, columns: _Columns, start: int) -> Reports:
    return _reports(_match(floor, columns, columns.event), columns.id, columns.names, start)


def _match(floor: FastFloor, columns: _Columns, event_of: Callable[[int], Event]) -> Told:
    way, key = columns.ways()
    ids = columns.id.tolist()
    accounts = ids if columns.account is columns.id else columns.account.tolist()
    owners, symbols = (_plainly(each) for each in (columns.owner, columns.symbol))
    values = way.tolist(), ids, accounts, owners, symbols, key.tolist(), columns.quantity.tolist()
    told = Told()
    floor.match(zip(range(len(ids)), *values, strict=False), event_of, told)
    floor.tell()
    return told


def _plainly(column: npt.NDArray[Any]) -> Iterable[int]:
    """The values of a column; of one that is not given, as often as they are wanted."""
    return column.tolist() if column.strides[0] else repeat(0)


class _Columns:
    """Some events by column, and what is known of them without the book."""

    def __init__(self, floor: Any, events: Events) -> None:  # noqa: ANN401 - either floor; only the fast one has ways
        given = events.dtype.names or ()
        count = len(events)
        self._floor = floor
        self.names: Sequence[str] = list(floor.symbols)
        self.kind: npt.NDArray[Any] = events["kind"].astype(np.uint8, copy=False)
        self.id: npt.NDArray[Any] = events["id"].astype(np.uint64)
        self.account: npt.NDArray[Any] = events["account"].astype(np.uint64) if "account" in given else self.id
        nothing = {name: np.zeros(1, EVENT_DTYPE[name]) for name in _FIELDS}
        self.side, self.immediate, self.day, self.symbol, self.owner, self.quantity, self.price = (
            events[name].astype(zero.dtype, copy=False) if name in given else np.broadcast_to(zero, count)
            for name, zero in nothing.items()
        )

    def event(self, index: int) -> Event:
        """One of them as an object."""
        kind, number, account = int(self.kind[index]), int(self.id[index]), int(self.account[index])
        quantity, price = int(self.quantity[index]), int(self.price[index])
        if kind == ArrayKind.CANCEL:
            return Cancel(number, account, quantity)
        if kind != ArrayKind.ORDER:
            limit = None if price == AS_IT_IS else price
            if kind == ArrayKind.REOPEN:
                found = self._floor.peek(number)
                return Replace(number, account, quantity + (0 if found is None else found[1].filled), limit)
            return Replace(number, account, None if quantity == AS_IT_IS else quantity, limit)
        symbol = int(self.symbol[index])
        name = self.names[symbol] if symbol < len(self.names) else ""
        is_immediate, is_day = bool(self.immediate[index]), bool(self.day[index])
        order = Order(number, account, name, int(self.side[index]), quantity, price, int(self.owner[index]))  # type: ignore[arg-type]
        side = Side(order.side) if order.side in {1, 2} else order.side
        return order._replace(side=side, is_immediate=is_immediate, is_day=is_day)

    def ways(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Which way each goes, with its key; the ids of those that enter are used from here on."""
        is_order = self.kind == ArrayKind.ORDER
        is_sell = self.side == Side.SELL
        price, quantity = self.price, self.quantity
        is_replace = self.kind >= ArrayKind.REPLACE
        is_as_it_is = is_replace & (price == AS_IT_IS), (self.kind == ArrayKind.REPLACE) & (quantity == AS_IT_IS)
        is_priced = ((price > 0) & (price < _PRICE_MAX)) | is_as_it_is[0]
        is_sized = (quantity > 0) | is_as_it_is[1]
        is_sure = is_priced & is_sized
        is_sure[self.kind == ArrayKind.CANCEL] = (quantity == 0)[self.kind == ArrayKind.CANCEL]
        way = _WAYS[self.kind]
        way[self.immediate & is_order] = Way.IMMEDIATE
        orders = np.flatnonzero(is_order)
        if len(orders):
            is_plain, lot, tick = self._terms(orders)
            is_plain &= is_sell[orders] | (self.side[orders] == Side.BUY)
            is_plain &= (quantity[orders] % lot == 0) & (price[orders] % tick == 0)
            if self.day.any():
                way[orders] += (self.day & ~self.immediate)[orders] * Way.DAY
                is_plain &= ~(self.day & self.immediate)[orders]
            is_sure[orders] &= is_plain
            is_used = self._use(orders)
            way[orders] = np.where(is_used, np.where(is_sure[orders], way[orders], Way.USED), Way.ASIDE)
        way[~is_sure & ~is_order] = Way.ASIDE
        sell_key = 2 * np.where(is_sure, price, 0) + 1
        return way, np.where(is_order, np.where(is_sell, sell_key, 2 - sell_key), price)

    def _terms(self, orders: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.bool_], Any, Any]:
        """Of each order whether its symbol trades and its rules are the common ones, its lot and its tick."""
        floor, states = self._floor, self._floor.orders.states
        named = np.minimum(self.symbol[orders], len(states))  # All beyond the directory are one.
        last = int(named.max())
        is_plain = np.zeros(last + 1, np.bool_)
        lot, tick = np.ones((2, last + 1), np.int64)
        for symbol in (last,) if named.min() == last else np.unique(named).tolist():
            state = states[symbol] if symbol < len(states) else None
            if state is None or state.terms.symbol not in floor.plain or state.phase is not Phase.OPEN:
                continue
            if 0 < state.terms.lot < _PRICE_MAX and 0 < state.terms.tick < _PRICE_MAX:
                is_plain[symbol] = True
                lot[symbol], tick[symbol] = state.terms.lot, state.terms.tick
        if named.min() == last:
            return np.full(len(orders), is_plain[last]), lot[last], tick[last]
        return is_plain[named], lot[named], tick[named]

    def _use(self, orders: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Use the ids of all accounts whose ids rise and are new; whether that of each order is used now."""
        floor = self._floor
        highest, live = floor.highest, floor.orders
        others = live.rows, live.objects, floor.offers, floor.lots, floor.bids
        numbers = self.id[orders].tolist()
        is_own = self.account is self.id
        used = dict(zip(numbers, numbers if is_own else self.account[orders].tolist(), strict=True))
        if floor.hashed is not None:
            floor.touched.update(dict.fromkeys(numbers))
            floor.touched_accounts.update(dict.fromkeys(used.values()))
        is_new = len(used) == len(numbers) and all(ids.keys().isdisjoint(numbers) for ids in others)
        if is_new and is_own and highest.keys().isdisjoint(numbers):
            highest.update(used)
            return np.ones(len(orders), np.bool_)
        by_account = np.argsort(self.account[orders], kind="stable")
        account, number = self.account[orders][by_account], self.id[orders][by_account]
        is_first = np.ones(len(orders), np.bool_)
        is_first[1:] = account[1:] != account[:-1]
        firsts = np.flatnonzero(is_first)
        lasts = np.append(firsts[1:], len(orders)) - 1
        accounts = account[firsts].tolist()
        rises = np.ones(len(orders), np.bool_)
        rises[1:] = is_first[1:] | (number[1:] > number[:-1])
        before = [highest.get(one, -1) for one in accounts]
        rises[firsts] = [one > most for one, most in zip(number[firsts].tolist(), before, strict=True)]
        if not is_new:
            ids, count = np.unique(number, return_counts=True)
            rises &= np.isin(number, ids[count > 1], invert=True)
            rises &= [all(one not in known for known in others) for one in number.tolist()]
        rise = np.logical_and.reduceat(rises, firsts)
        highest.update(zip(account[firsts[rise]].tolist(), number[lasts[rise]].tolist(), strict=True))
        is_used = np.empty(len(orders), np.bool_)
        is_used[by_account] = np.repeat(rise, lasts - firsts + 1)
        return is_used


def _reports(told: Told, ids: npt.NDArray[Any], names: Sequence[str], start: int) -> Reports:
    """What the loop has said, as an array."""
    lines = np.array(told.lines, np.uint64).reshape(-1, 4)
    kind = lines[:, 1].astype(np.intp)
    index = lines[:, 0].astype(np.int64)
    found = np.zeros(len(lines), REPORT_DTYPE)
    found["symbol"] = _NO_SYMBOL
    others = np.flatnonzero(kind == Kind.OTHER)
    if len(others):
        found[others] = as_array(told.others, names)
    is_own_kind = kind != Kind.OTHER
    found["event"] = index + start
    found["kind"][is_own_kind] = _KINDS[kind[is_own_kind]]
    found["id"][is_own_kind] = lines[is_own_kind, 2]
    found["quantity"][is_own_kind] = lines[is_own_kind, 3]
    found["reason"][kind == Kind.UNKNOWN] = _REASON_OF[Refusal.UNKNOWN_ORDER]
    trades = np.flatnonzero(kind == Kind.TRADE)
    if len(trades):
        key, symbol = _whole(told.trades).reshape(-1, 2).T
        taker, maker = ids[index[trades]], lines[trades, 2]
        is_buy = key > 0
        found["id"][trades] = 0
        found["symbol"][trades] = symbol
        found["price"][trades] = abs(key >> 1)
        found["buy"][trades] = np.where(is_buy, taker, maker)
        found["sell"][trades] = np.where(is_buy, maker, taker)
        found["is_own"][trades[np.array(told.own, np.intp) >> 1]] = True
        numbered = np.flatnonzero(found["kind"] == _KIND_OF[Trade])
        found["number"][numbered] = np.arange(told.first_trade, told.first_trade + len(numbered), dtype=np.uint64)
    return found


def _whole(numbers: Sequence[int]) -> npt.NDArray[Any]:
    """Keys of levels fit into 64 bits, but for prices that only a whole order of its own has brought in."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array(numbers, object)


def as_array(reports: Sequence[Report], names: Sequence[str]) -> Reports:
    """Reports of no event of an array; `names` are the symbols in the order of their directory."""
    found = np.zeros(len(reports), REPORT_DTYPE)
    found["symbol"], found["event"] = _NO_SYMBOL, _NO_EVENT
    places = {name: place for place, name in enumerate(names)} if reports else {}
    for row, report in zip(found, reports, strict=True):
        row["kind"] = _KIND_OF[type(report)]
        match report:
            case Trade():
                row["symbol"] = places[report.symbol]
                for name in ("number", "price", "quantity", "buy", "sell", "is_own", "is_auction", "is_off_book"):
                    row[name] = getattr(report, name)
            case Refused():
                row["id"], row["reason"] = report.id, _REASON_OF[report.reason]
            case Indicative():
                row["symbol"], row["quantity"] = places[report.symbol], min(report.volume, TOTAL_MAX)
                row["surplus"] = max(-TOTAL_MAX, min(report.surplus, TOTAL_MAX))  # Sums have no bound.
                row["price"] = _NO_PRICE if report.price is None else report.price
            case _:
                row["id"], row["quantity"] = report
    return found


def as_reports(reports: Reports, names: Sequence[str]) -> list[Report]:
    """The same as objects; `names` are the symbols in the order of their directory."""
    fields: tuple[str, ...] = ("kind", "reason", "symbol", "id", "number", "price", "quantity", "buy", "sell")
    fields += ("is_own", "is_auction", "is_off_book", "surplus")
    found: list[Report] = []
    for row in zip(*(reports[name].tolist() for name in fields), strict=True):
        kind, reason, symbol, number, trade, price, quantity, buy, sell, is_own, is_auction, is_off_book, surplus = row
        one = REPORT_KINDS[kind]
        if one is Trade:
            found.append(Trade(trade, names[symbol], price, quantity, buy, sell, is_own, is_auction, is_off_book))
        elif one is Refused:
            found.append(Refused(number, REASONS[reason]))
        elif one is Indicative:
            found.append(Indicative(names[symbol], None if price == _NO_PRICE else price, quantity, surplus))
        else:
            found.append(one(number, quantity))
    return found
