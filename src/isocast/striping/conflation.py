"""Which events of an overfull stripe may be left out: older prices of what has a newer one. Never anything else.

Quotes of one side and last sales are conflated, each by symbol and floor, and sales that may not be last by their
conditions apart from those that may. Auctions, official prices, statuses, corrections, cancels, marks, directories and
everything about orders stay, all of them. The newest takes the place of the oldest of its kind that was waiting, so
that a busy symbol is not pushed back for ever; but it never overtakes an event of its symbol, or of a whole floor,
that is not a price: a quote behind a halt stays behind the halt.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EventArray

__all__ = ["are_prices", "conflate"]

_LINKED = np.uint16(0xFFFF & ~EventFlag.LINKED)

_OF_AUCTIONS = int(EventFlag.AUCTION | EventFlag.OPENING | EventFlag.CLOSING)
_NO_LAST = int(EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW | EventFlag.UNPRINTED)

Places = npt.NDArray[np.intp]


def are_prices(events: EventArray) -> npt.NDArray[np.bool_]:
    """Which events a newer one of the same kind makes superfluous."""
    kinds = events["kind"]
    auction = (events["flags"] & _OF_AUCTIONS) > 0
    prices: npt.NDArray[np.bool_] = (kinds == EventKind.QUOTE) | ((kinds == EventKind.TRADE) & ~auction)
    return prices


def conflate(events: EventArray) -> tuple[Places, EventArray]:
    """Where the events that stay stood, in their new order; and they themselves, links that are broken undone."""
    prices = are_prices(events)
    places = np.flatnonzero(prices)
    newest, oldest = _newest_of_each(events, prices, places)
    others = np.flatnonzero(~prices)
    kept = np.concatenate([newest, others])
    order = np.argsort(np.concatenate([oldest, others]), kind="stable")
    kept = kept[order]
    result = events[kept]
    follows = np.append(kept[1:] == kept[:-1] + 1, np.False_)
    result["flags"][~follows] &= _LINKED
    return kept, result


def _newest_of_each(events: EventArray, prices: npt.NDArray[np.bool_], places: Places) -> tuple[Places, Places]:
    """For each key its newest event, and the place that this one takes."""
    if not len(places):
        return places, places
    symbols = np.ascontiguousarray(events["symbol"]).view("<u8")
    section = _sections(symbols, prices)[places]
    symbol = symbols[places]
    floor = np.ascontiguousarray(events["floor"][places]).view("<u4").astype(np.uint64)
    kind, side = events["kind"][places].astype(np.uint64), events["side"][places].astype(np.uint64)
    no_last = ((events["flags"][places] & _NO_LAST) > 0).astype(np.uint64)
    head = floor << np.uint64(16) | kind << np.uint64(8) | np.where(kind == EventKind.QUOTE, side, no_last)
    order = np.lexsort((section, head, symbol))
    symbol, head, section = symbol[order], head[order], section[order]
    key_ends = np.append((symbol[1:] != symbol[:-1]) | (head[1:] != head[:-1]), np.True_)
    group_begins = np.append(np.True_, key_ends[:-1] | (section[1:] != section[:-1]))
    begins = np.flatnonzero(group_begins)
    ends = np.flatnonzero(key_ends)
    firsts = begins[np.searchsorted(begins, ends, side="right") - 1]
    return places[order[ends]], places[order[firsts]]


def _sections(symbols: npt.NDArray[np.uint64], prices: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """A number that grows, for events of one symbol, at each event of it or of a floor that is no price."""
    order = np.argsort(symbols, kind="stable")
    own = np.empty(len(symbols), np.int64)
    own[order] = np.cumsum(~prices[order])
    own += np.cumsum(~prices & (symbols == 0))
    return own
