"""All that a floor goes on from, as canonical bytes: a restart is a snapshot and the tokens after it.

A first line names the format and the digest of what follows; the rest is JSON without spaces, rows in the order in
which the floor keeps them. Equal floors have equal bytes, whatever they went through. More than the state's hash covers
is in it: when orders end that have gone before.

A floor is kept between two tokens; `following` keeps the messages of a token that has begun.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final

from isocast.floor.book import Book, WorkingOrder
from isocast.floor.events import AuctionKind, Crossing, Directory, Lot, MarketKind, OwnRule, Phase, PriceRule, Share
from isocast.floor.machine import Floor, SymbolState
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.rules.second_price import SealedBid, SealedLot
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import Side

__all__ = ["floor_of", "fold", "rows_of", "unfold"]

_HEAD: Final = b"isocast floor snapshot 3 "
_DIGEST_BYTES: Final = 32


# Rows and bytes -----------------------------------------------------------------------------------------------------


def fold(rows: dict[str, Any]) -> bytes:
    """Rows as the bytes of a snapshot."""
    body = json.dumps(rows, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return b"%b%b\n%b" % (_HEAD, _digest(body), body)


def unfold(data: bytes) -> dict[str, Any]:
    """The rows of a snapshot; RemoteProtocolError for bytes that `fold` has not made, or that were changed since."""
    head, _, body = data.partition(b"\n")
    if not head.startswith(_HEAD):
        raise RemoteProtocolError("no snapshot of a floor: replay the sequence, or take a snapshot of another site")
    if not compare_digest(head[len(_HEAD) :], _digest(body)):
        raise RemoteProtocolError("a damaged snapshot of a floor: replay the sequence, or take another site's")
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as reason:
        raise RemoteProtocolError("a snapshot of a floor that cannot be read") from reason
    if not isinstance(rows, dict):
        raise RemoteProtocolError("a snapshot of a floor that is no object")
    return rows


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest().encode("ascii")


# A floor as rows ----------------------------------------------------------------------------------------------------


def rows_of(floor: Floor) -> dict[str, Any]:
    """A floor between two tokens."""
    return {
        "token": floor.token,
        "at": floor.at,
        "next_trade": floor.next_trade,
        "places": floor.places,
        "symbols": [_symbol(state) for state in floor.symbols.values()],
        "offers": [[floor.offered[offer.id], *_order(offer)] for offer in floor.offers.values()],
        "lots": [_lot(lot) for lot in floor.lots.values()],
        "highest": [[account, floor.highest[account]] for account in sorted(floor.highest)],
        "dated": sorted(floor.dated),
        **({"schedule": [list(change) for change in floor.schedule]} if floor.schedule else {}),
    }


def _symbol(state: SymbolState) -> dict[str, Any]:
    return {
        "terms": list(state.terms),
        "phase": state.phase,
        "reference": state.reference,
        "reopens_at": state.reopens_at,
        "orders": [_order(order) for order in state.book],
        "stops": [_order(stop) for stop in state.stops.values()],
        "for_close": [_order(order) for order in state.for_close.values()],
    }


def _order(order: WorkingOrder) -> list[Any]:
    return [
        order.id,
        order.account,
        order.owner,
        int(order.side),
        order.price,
        order.total,
        order.filled,
        order.token,
        order.place,
        order.is_market,
        order.is_immediate,
        order.is_all,
        order.is_post_only,
        order.is_day,
        order.trigger,
        order.until,
        order.at,
        order.display,
        order.part,
    ]


def _lot(lot: SealedLot | DutchLot) -> dict[str, Any]:
    if isinstance(lot, DutchLot):
        return {"lot": list(lot.lot), "place": lot.place, "opened": lot.opened, "left": lot.left}
    bids = [[bid.id, bid.account, bid.ceiling, bid.digest.hex(), bid.place, bid.price] for bid in lot.bids.values()]
    return {"lot": list(lot.lot), "place": lot.place, "bids": bids}


# Rows as a floor ----------------------------------------------------------------------------------------------------


def floor_of(rows: dict[str, Any], floor_class: type[Floor] = Floor) -> Floor:
    """The floor of these rows; RemoteProtocolError for rows that are none."""
    try:
        return _filled(floor_class(), rows)
    except (KeyError, TypeError, ValueError, AttributeError) as reason:
        raise RemoteProtocolError("a snapshot of a floor with rows of another version") from reason


def _filled(floor: Floor, rows: dict[str, Any]) -> Floor:
    floor.token, floor.at, floor.next_trade = rows["token"], rows["at"], rows["next_trade"]
    floor.places = rows["places"]
    floor.dated = [(instant, place, number) for instant, place, number in rows["dated"]]  # Sorted, hence a heap.
    floor.highest = dict(rows["highest"])
    floor.schedule = tuple([(at, Phase(phase)) for at, phase in rows.get("schedule", ())])
    for row in rows["symbols"]:
        floor.take_over(_read_symbol(row, floor.new_book()))
    for symbol, *row in rows["offers"]:
        offer = _read_order(row)
        floor.offers[offer.id] = offer
        floor.offered[offer.id] = symbol
    for row in rows["lots"]:
        floor.take_over_lot(_read_lot(row))
    return floor


def _read_symbol(row: dict[str, Any], book: Book) -> SymbolState:
    terms = Directory(*row["terms"])
    terms = terms._replace(
        market=MarketKind(terms.market),
        price_rule=PriceRule(terms.price_rule),
        own_rule=OwnRule(terms.own_rule),
        share=Share(terms.share),
        phase=Phase(terms.phase),
    )
    state = SymbolState(terms, Phase(row["phase"]), row["reference"], row["reopens_at"], book)
    for order in map(_read_order, row["orders"]):
        state.book.side(order.side).add(order)
    state.stops = {order.id: order for order in map(_read_order, row["stops"])}
    state.for_close = {order.id: order for order in map(_read_order, row["for_close"])}
    return state


def _read_order(row: list[Any]) -> WorkingOrder:
    order = WorkingOrder(*row)
    order.side = Side(order.side)
    order.at = None if order.at is None else Crossing(order.at)
    return order


def _read_lot(row: dict[str, Any]) -> SealedLot | DutchLot:
    lot = Lot(*row["lot"])
    lot = lot._replace(auction=AuctionKind(lot.auction))
    if lot.auction is AuctionKind.DUTCH:
        return DutchLot(lot, row["opened"], row["left"], row["place"])
    bids = [SealedBid(number, who, most, bytes.fromhex(seal), *rest) for number, who, most, seal, *rest in row["bids"]]
    return SealedLot(lot, row["place"], {bid.account: bid for bid in bids})
