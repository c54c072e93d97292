"""Trades to ITCH by the short way: most messages of a market are nothing else, and small.

`ItchWriter` takes whole blocks of any events; for a few dozen trades of stocks that it has numbered already, one array
of records does. The bytes are the same.
"""

from __future__ import annotations

import numpy as np

from isocast.feeds.itch_layout import LENGTHS, framed
from isocast.feeds.itch_writer import ItchWriter
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EventArray

__all__ = ["TRADE_BYTES", "plain_trades"]

_FRAMED = framed("P")
TRADE_BYTES = _FRAMED.itemsize
"""With the length before it."""
_LENGTH = LENGTHS["P"]
_U32 = (1 << 32) - 1
_CLOCK_BITS = 48
_OTHERWISE = int(EventFlag.AUCTION | EventFlag.LINKED)
_BLANK = np.uint8(0x20)


def plain_trades(writer: ItchWriter, events: EventArray) -> bytes | None:
    """What `writer.write` would give; None unless all are ordinary trades of stocks that have their numbers."""
    if (events["kind"] != EventKind.TRADE).any() or (events["flags"] & _OTHERWISE).any():
        return None
    price = events["price"]
    if price.min() < 0 or price.max() > _U32:
        return None
    known = writer.locates.numbers.get
    numbers = [known(pair, 0) for pair in zip(events["floor"].tolist(), events["symbol"].tolist(), strict=True)]
    symbols = np.ascontiguousarray(events["symbol"]).view(np.uint8).reshape(-1, 8)
    if not all(numbers) or not symbols[:, 0].all():
        return None
    clock = writer.counted_clock(events)
    if clock.min() < 0 or int(clock.max()) >> _CLOCK_BITS:
        return None
    records = np.zeros(len(events), _FRAMED)
    records["length"], records["type"], records["side"] = _LENGTH, b"P", ord("B")
    records["locate"] = numbers
    records["clock_high"], records["clock_low"] = clock >> 32, clock & _U32
    records["shares"], records["price"], records["match"] = events["quantity"], price, events["id"]
    records["stock"] = np.where(symbols, symbols, _BLANK).reshape(-1).view("S8")
    writer.log.took("P", len(records))
    return records.tobytes()
