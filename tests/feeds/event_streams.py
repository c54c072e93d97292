"""Streams of events that make sense: orders are entered before anything happens to them."""

from __future__ import annotations

from hypothesis import strategies as st

from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.wire.events import EventArray, MarketEvent, build_events

__all__ = ["MIDNIGHT", "itch_streams"]

MIDNIGHT = 1_548_824_400_000_000_000
FLOOR = Mic("XNAS")
SYMBOLS = [Symbol("ISO"), Symbol("CAST"), Symbol("BRK.A"), Symbol("LONGNAME")]
_U32 = (1 << 32) - 1
_PRICES = st.integers(0, _U32)
_SHARES = st.integers(1, _U32)
_OWNERS = st.sampled_from([0, int.from_bytes(b"NITE"), int.from_bytes(b"GS  ")])


@st.composite
def itch_streams(draw: st.DrawFn) -> EventArray:
    """Everything that ITCH can carry without loss, in a sound order; the directory first."""
    time = MIDNIGHT + draw(st.integers(0, 10**9))
    rows: list[MarketEvent] = []
    for symbol in SYMBOLS:
        lot = draw(st.integers(0, _U32))
        rows.append(
            MarketEvent(EventKind.DIRECTORY, FLOOR, symbol, price=100, quantity=lot, time=time, id=len(rows) + 1)
        )
    standing: dict[int, MarketEvent] = {}
    next_order = draw(st.integers(1, 1 << 60))
    for _ in range(draw(st.integers(0, 40))):
        time += draw(st.integers(0, 10**9))
        what = draw(st.sampled_from(["order", "trade", "cross", "status", "mark", "break", "of order", "of order"]))
        symbol = draw(st.sampled_from(SYMBOLS))
        match what:
            case "order":
                order = MarketEvent(
                    EventKind.ORDER,
                    FLOOR,
                    symbol,
                    draw(st.sampled_from([Side.BUY, Side.SELL])),
                    draw(_PRICES),
                    draw(_SHARES),
                    time,
                    next_order,
                    draw(_OWNERS),
                )
                standing[next_order] = order
                next_order += draw(st.integers(1, 1000))
                rows.append(order)
            case "of order":
                if standing:
                    rows += _happens(draw, standing, time, next_order)
                    next_order += 1
            case "trade":
                rows.append(
                    MarketEvent(EventKind.TRADE, FLOOR, symbol, Side.NONE, draw(_PRICES), draw(_SHARES), time, 7)
                )
            case "cross":
                letter = ord(draw(st.sampled_from("OCHI")))
                rows.append(
                    MarketEvent(
                        EventKind.TRADE,
                        FLOOR,
                        symbol,
                        Side.NONE,
                        draw(_PRICES),
                        draw(_SHARES),
                        time,
                        8,
                        letter,
                        EventFlag.AUCTION,
                    )
                )
            case "status":
                status = draw(st.sampled_from(MarketStatus))
                rows.append(MarketEvent(EventKind.STATUS, FLOOR, symbol, time=time, reference=status))
            case "mark":
                letter = draw(st.sampled_from([*b"OSQMEC", 0x5731, 0x5733]))
                rows.append(MarketEvent(EventKind.MARK, FLOOR, time=time, reference=letter))
            case _:
                number = draw(st.integers(0, (1 << 64) - 1))
                rows.append(MarketEvent(EventKind.TRADE_CANCEL, FLOOR, symbol, time=time, id=number))
    return build_events(rows)


def _happens(draw: st.DrawFn, standing: dict[int, MarketEvent], time: int, next_order: int) -> list[MarketEvent]:
    """Something happens to an order that stands."""
    number = draw(st.sampled_from(sorted(standing)))
    order = standing[number]
    base = MarketEvent(EventKind.CANCEL, FLOOR, order.symbol, time=time, id=number, reference=order.reference)
    match draw(st.sampled_from(["shrink", "delete", "replace", "execute", "execute"])):
        case "shrink" if order.quantity > 1:
            gone = draw(st.integers(1, order.quantity - 1))
            standing[number] = order._replace(quantity=order.quantity - gone)
            return [base._replace(quantity=gone)]
        case "replace":
            del standing[number]
            new = order._replace(price=draw(_PRICES), quantity=draw(_SHARES), time=time, id=next_order)
            standing[next_order] = new
            return [base._replace(flags=EventFlag.LINKED), new]
        case "execute":
            shares = draw(st.integers(1, order.quantity))
            if shares == order.quantity:
                del standing[number]
            else:
                standing[number] = order._replace(quantity=order.quantity - shares)
            price = draw(st.sampled_from([order.price, order.price // 2]))
            flags = draw(st.sampled_from([EventFlag(0), EventFlag.UNPRINTED]))
            return [
                base._replace(
                    kind=EventKind.EXECUTION,
                    side=order.side,
                    price=price,
                    quantity=shares,
                    reference=draw(st.integers(0, _U32)),
                    flags=flags,
                )
            ]
        case _:
            del standing[number]
            return [base]
