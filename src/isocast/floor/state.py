"""All that a floor is, as canonical lines, and their hash: equal at every site after every token.

A line is a kind and its fields, separated by blanks, in ASCII. Each stands for itself: it names the symbol or the lot
that it belongs to, and where an order of things matters (orders, stops, lots, bids, offers) its place in time, which
the floor counts; so the state is a set of lines, and in whatever way a book is kept its lines are the same. Nothing in
it is local, and nothing can be computed from the rest.

The hash is BLAKE2b-256 of the first line (token, instant, the next numbers, and what the day still brings) and of the
sum of all others, which `floor.set_hash` explains. A floor remembers what it has touched since it was last hashed, so a
hash costs what changed and not what is there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from hashlib import blake2b

from isocast.floor.book import WorkingOrder
from isocast.floor.machine import Floor, SymbolState
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.rules.second_price import SealedBid, SealedLot
from isocast.floor.set_hash import SetHash

__all__ = ["STATE_HASH_BYTES", "state_hash", "state_lines"]

STATE_HASH_BYTES = 32
_PERSON = b"isocast floor 2"
"""Changes with whatever changes a line: hashes of two versions never agree by accident."""


def state_hash(floor: Floor) -> bytes:
    """The hash of the state; the floor keeps what makes the next one cheap."""
    hashed = floor.hashed
    if hashed is None:
        hashed = SetHash()
        for key, line in _keyed(floor):
            hashed.put(key, line)
    else:
        for number in floor.touched:
            hashed.put(number, _of_id(floor, number))
        for account in floor.touched_accounts:
            hashed.put(("highest", account), _highest(floor, account))
        for account, number in floor.touched_bids:
            hashed.put(("bid", account, number), _of_bid(floor, account, number))
        for name in floor.touched_symbols:
            hashed.put(("symbol", name), _symbol(floor.symbols[name]))
    floor.remember(hashed)
    text = f"{_head(floor)}\n".encode()
    return blake2b(text + hashed.digest(), digest_size=STATE_HASH_BYTES, person=_PERSON).digest()


def state_lines(floor: Floor) -> Iterator[str]:
    """The state, line by line, in an order for people who look for a difference."""
    yield _head(floor)
    for _, line in _keyed(floor):
        yield line


def _keyed(floor: Floor) -> Iterator[tuple[Hashable, str]]:
    """Every line but the first, with what it is known by."""
    for name, state in floor.symbols.items():
        yield ("symbol", name), _symbol(state)
        for order in state.book:
            yield order.id, _order("order", name, order)
        for stop in state.stops.values():
            yield stop.id, _order("stop", name, stop)
        for order in state.for_close.values():
            yield order.id, _order("close", name, order)
    for lot in floor.lots.values():
        yield lot.lot.id, _lot(lot)
        for bid in lot.bids.values() if isinstance(lot, SealedLot) else ():
            yield ("bid", bid.account, bid.id), _bid(lot.lot.id, bid)
    for offer in floor.offers.values():
        yield offer.id, _order("offer", floor.offered[offer.id], offer)
    for account in sorted(floor.highest):
        yield ("highest", account), _fields("highest", account, floor.highest[account])


# What is touched ----------------------------------------------------------------------------------------------------


def _of_id(floor: Floor, number: int) -> str | None:
    """The line of the order, offer or lot of an id; None: it is gone."""
    found = floor.peek(number)
    if found is not None:
        state, order = found
        waits = "close" if number in state.for_close else "order"
        return _order(waits if order.trigger is None else "stop", state.terms.symbol, order)
    offer = floor.offers.get(number)
    if offer is not None:
        return _order("offer", floor.offered[number], offer)
    lot = floor.lots.get(number)
    return None if lot is None else _lot(lot)


def _of_bid(floor: Floor, account: int, number: int) -> str | None:
    found = floor.bid_of(number, account)
    return None if found is None else _bid(found[0].lot.id, found[1])


def _highest(floor: Floor, account: int) -> str | None:
    number = floor.highest.get(account)
    return None if number is None else _fields("highest", account, number)


# Lines --------------------------------------------------------------------------------------------------------------


def _head(floor: Floor) -> str:
    head = f"token {floor.token} {floor.at} next {floor.next_trade} {floor.places}"
    schedule = [part for change in floor.schedule for part in change]
    return _fields(head, "schedule", *schedule) if schedule else head


def _symbol(state: SymbolState) -> str:
    return _fields("symbol", state.place, *state.terms, state.phase, state.reopens_at, state.reference)


def _lot(lot: SealedLot | DutchLot) -> str:
    clock = ("clock", lot.opened, lot.left) if isinstance(lot, DutchLot) else ()
    return _fields("lot", lot.place, *lot.lot, *clock)


def _bid(lot: int, bid: SealedBid) -> str:
    return _fields("bid", lot, bid.place, bid.id, bid.account, bid.ceiling, bid.digest.hex(), bid.price)


def _order(kind: str, symbol: str, order: WorkingOrder) -> str:
    flags = "".join(
        letter
        for letter, is_set in (
            ("M", order.is_market),
            ("I", order.is_immediate),
            ("A", order.is_all),
            ("P", order.is_post_only),
            ("D", order.is_day),
        )
        if is_set
    )
    plain = (
        f"{kind} {symbol} {order.id} {order.account} {order.owner} {order.side.name} {order.price} {flags or '-'}"
        f" {order.total} {order.filled} {order.token} {order.place}"
    )
    more: list[object] = []
    if order.trigger is not None:
        more += ["trigger", order.trigger]
    if order.until is not None:
        more += ["until", order.until]
    if order.at is not None:
        more += ["at", order.at]
    if order.display:
        more += ["shows", order.display, order.shown]
    return _fields(plain, *more) if more else plain


def _fields(kind: str, *values: object) -> str:
    return " ".join([kind, *("-" if value is None else str(value) for value in values)])
