"""All that a floor is, as canonical bytes, and their hash: equal at every site after every token.

Each line is a kind and its fields, separated by blanks, in ASCII; symbols in the order of their directory, orders in
the order in which they fill, stops, lots, bids and offers in their sequence, accounts by number. Nothing depends on how
a book is kept, and nothing in it is local.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from isocast.floor.book import WorkingOrder
from isocast.floor.machine import Floor, SymbolState
from isocast.floor.rules.dutch_clock import DutchLot

__all__ = ["STATE_HASH_BYTES", "state_hash", "state_lines"]

STATE_HASH_BYTES = 32


def state_hash(floor: Floor) -> bytes:
    """BLAKE2b-256 of the state's lines, each ended by a newline."""
    text = "".join(f"{line}\n" for line in state_lines(floor))
    return blake2b(text.encode("ascii"), digest_size=STATE_HASH_BYTES, person=b"isocast floor").digest()


def state_lines(floor: Floor) -> Iterator[str]:
    """The state, line by line: for people who look for a difference, too."""
    yield f"token {floor.token} {floor.at}"
    if floor.schedule:
        yield _fields("schedule", *[part for change in floor.schedule for part in change])
    for state in floor.symbols.values():
        yield from _symbol(state)
    for lot in floor.lots.values():
        yield _fields("lot", *lot.lot)
        if isinstance(lot, DutchLot):
            yield _fields("clock", lot.opened, lot.left)
        else:
            for bid in lot.bids.values():
                yield _fields("bid", bid.id, bid.account, bid.ceiling, bid.digest.hex(), bid.price)
    for offer in floor.offers.values():
        yield _fields("offer", floor.offered[offer.id], *_order(offer))
    for account in sorted(floor.highest):
        yield _fields("highest", account, floor.highest[account])
    yield f"next {floor.next_trade}"


def _symbol(state: SymbolState) -> Iterator[str]:
    yield _fields("symbol", *state.terms)
    yield _fields("phase", state.phase, state.reopens_at, state.reference)
    for order in state.book:
        yield _fields("order", *_order(order))
    for stop in state.stops.values():
        yield _fields("stop", *_order(stop), stop.trigger)
    for order in state.for_close.values():
        yield _fields("close", *_order(order))


def _order(order: WorkingOrder) -> tuple[object, ...]:
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
    return (
        order.id,
        order.account,
        order.owner,
        order.side.name,
        order.price,
        flags or None,
        order.total,
        order.filled,
        order.token,
        *(["until", order.until] if order.until is not None else []),
        *(["at", order.at] if order.at is not None else []),
        *(["shows", order.display, order.shown] if order.display else []),
    )


def _fields(kind: str, *values: object) -> str:
    return " ".join([kind, *("-" if value is None else str(value) for value in values)])
