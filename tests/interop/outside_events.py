"""Events out of the messages that `outside_layouts` read: the second opinion on CTS, CQS, UTP and NYSE captures.

What a message becomes is what the reference says (docs/reference/feeds.md); where its values stand is the tables'
word alone. Rows are in the order of an event's fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.interop.outside_layouts import PRICE_DECIMALS, UTP, Family, Fields, Packet, fields_of

from isocast.terms.conditions import TAPE_CONDITIONS, quote_condition
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side

__all__ = ["FLOORS", "Expected", "nyse_events", "tape_events"]

Row = tuple[int, int, int, bytes, bytes, int, int, int, int, int]

_BILLION = 10**9
_SHARES_FROM = 1_762_128_000 * _BILLION
"""The third of November 2025, UTC: sizes of quotes were round lots before."""
_MILLIONTHS = {"T": "TR TH TE TO", "Q": "", "": "TM TN TO TP"}
_LETTERS = "ABCDFGHIJKLMNPQTUVWXYZ"
_CODES = "XASE XBOS XCIS XADF TXSE 24EQ EPRL XISX EDGA EDGX LTSE XCHI XNYS ARCX XNAS XNAS MEMX IEXG CBSX XPSX BATY BATS"
FLOORS = dict(zip(_LETTERS, _CODES.split(), strict=True))
_MARKETS = {1: "XNYS", 3: "ARCX", 9: "XASE", 10: "XCIS", 11: "XCHI"}
_HALTS = {"1": MarketStatus.HALTED, "2": MarketStatus.HALTED, "3": MarketStatus.TRADING, "4": MarketStatus.CLOSED}
_ACTIONS = dict(zip("HPQT", list(MarketStatus)[1:], strict=True))
_TRADING = dict.fromkeys("5EOL", MarketStatus.TRADING)
_STATES = _TRADING | {"3": MarketStatus.HALTED, "4": MarketStatus.HALTED, "6": MarketStatus.CLOSED}
_STATES |= {"P": MarketStatus.QUOTING, "X": MarketStatus.CLOSED}


@dataclass
class Expected:
    """What both readers must say."""

    rows: list[Row] = field(default_factory=list)
    types: Counter[str] = field(default_factory=Counter)
    conditions: Counter[str] = field(default_factory=Counter)
    quote_conditions: Counter[str] = field(default_factory=Counter)

    def put(self, kind: EventKind, place: tuple[str, str], time: int, **more: int) -> None:
        side, flags, price, size, reference, number = (
            int(more.get(name, 0)) for name in ("side", "flags", "price", "size", "reference", "id")
        )
        floor, symbol = (text.encode() for text in place)
        self.rows.append((int(kind), side, flags, floor, symbol, price, size, reference, time, number))

    def sale(self, letters: str) -> int:
        """Flags of the conditions in these letters; each is counted."""
        found = {}
        for letter in letters.replace(" ", "") or "@":
            name, flags = TAPE_CONDITIONS.get(letter, (f"unknown {letter!r}", EventFlag(0)))
            found[name] = flags
        self.conditions.update(found.keys())
        together = EventFlag(0)
        for each in found.values():
            together |= each
        return int(together)


def _whole(value: int, decimals: int) -> int | None:
    """In units of 10^-4; None if that is not a whole number."""
    scaled, rest = divmod(value * 10**4, 10**decimals)
    return None if rest else scaled


def _widths(family: Family, kind: str) -> dict[str, int]:
    return {name: width for name, width, _ in fields_of(family.layouts[kind])}


def _placed(message: Fields, floor: str) -> tuple[str, str] | None:
    symbol = str(message.get("symbol", ""))
    return (floor, symbol) if floor and 0 < len(symbol) <= len("EIGHTLTR") else None


# --- the consolidated tapes ------------------------------------------------------------------------------------------


def tape_events(family: Family, packets: list[Packet]) -> Expected:
    """Of CTS and CQS, or of the UTP."""
    out = Expected()
    for top, messages in packets:
        feed = str(top.get("feed", ""))
        for kind, message in messages:
            code = kind.removeprefix(feed)
            out.types[f"{'UTP' if family is UTP else 'CTA'} {code}"] += 1
            place = _placed(message, FLOORS.get(str(message["participant"]), ""))
            time = int(message["time"]) or int(message["sent"] if family is UTP else top["sent"])
            if place and message["participant"] not in ("S", "E"):
                _tape(out, feed, code, message, _widths(family, kind), place, time)
    return out


def _tape(
    out: Expected,
    feed: str,
    code: str,
    message: Fields,
    widths: Mapping[str, int],
    place: tuple[str, str],
    time: int,
) -> None:
    fractional = code in _MILLIONTHS[feed].split()
    trades, corrections, cancels, quotes = (
        ("TL TR TT TH", "TC TO", "TX TE", "QL QQ") if feed else ("TA TW TM TN", "TY TP", "TZ TO", "QE QF QC QD")
    )
    if code in cancels.split() and feed != "Q":
        out.put(EventKind.TRADE_CANCEL, place, time, id=int(message["original"]))
    elif code in f"{trades} {corrections}".split() and feed != "Q":
        price = _whole(int(message["price"]), PRICE_DECIMALS[widths["price"]])
        size = int(message["volume"]) // (10**6 if fractional else 1)
        if price is None or not 0 < size < 1 << 32:
            return
        revised = code in corrections.split()
        number = message["original"] if revised else message["trade" if "trade" in message else "reference"]
        flags = out.sale(str(message["conditions" if "conditions" in message else "condition"]))
        what = EventKind.CORRECTION if revised else EventKind.TRADE
        out.put(what, place, time, price=price, size=size, flags=flags, id=int(number))
    elif code in quotes.split() and feed != "T" and message.get("security", " ") not in ("0", "9", "G"):
        _quote(out, message, PRICE_DECIMALS[widths["bid"]], place, time)
    elif (feed, code) in (("T", "TS"), ("", "AH")):
        state = _HALTS.get(str(message.get("status"))) or _ACTIONS.get(str(message.get("action")))
        if state is MarketStatus.HALTED and message.get("reason") == "M":
            state = MarketStatus.PAUSED
        if state:
            out.put(EventKind.STATUS, place, time, reference=state)


def _quote(out: Expected, message: Fields, decimals: int, place: tuple[str, str], time: int) -> None:
    lot = 1 if time >= _SHARES_FROM else 100
    sides = []
    for side, name in ((Side.BUY, "bid"), (Side.SELL, "offer")):
        price = _whole(int(message[name]), decimals)
        size = int(message[f"{name}_size"]) * lot if price else 0
        if price is None or size >= 1 << 32:
            return
        sides.append((side, price, size))
    for side, price, size in sides:
        flags = EventFlag.LINKED if side is Side.BUY else 0
        out.put(EventKind.QUOTE, place, time, side=side, flags=flags, price=price, size=size)
    out.quote_conditions[quote_condition(str(message.get("condition", "R")))] += 1


# --- NYSE ------------------------------------------------------------------------------------------------------------


def nyse_events(packets: list[Packet]) -> Expected:
    """Of XDP or Pillar: nanoseconds count from the second that the system of a symbol announced, else the packet's."""
    out = Expected()
    known: dict[int, Fields] = {}
    sides: dict[tuple[int, int], int] = {}
    seconds: dict[int, int] = {}
    for top, messages in packets:
        sent = int(top["sent"])
        for kind, message in messages:
            out.types[f"NYSE {kind}"] += 1
            if kind == "2":
                seconds[int(message["system"])] = int(message["second"])
            if kind == "3":
                _mapped(out, known, message, sent)
            elif (about := known.get(int(message.get("index", -1)))) is not None:
                before = sent // _BILLION - (int(message["ns"]) > sent % _BILLION)
                second = int(message.get("second", seconds.get(int(about["system"]), before)))
                _traded(out, kind, message, about, sides, second * _BILLION + int(message["ns"]))
    return out


def _mapped(out: Expected, known: dict[int, Fields], message: Fields, sent: int) -> None:
    floor = _MARKETS.get(int(message["market"])) or FLOORS.get(str(message["listing"]), "")
    place = _placed(message, floor)
    if place is None or int(message["scale"]) > 8:
        return
    index = int(message["index"])
    known[index] = {**message, "floor": floor}
    step = _whole(int(message["step"]), int(message["scale"])) or 0
    out.put(EventKind.DIRECTORY, place, sent, price=step, size=int(message["lot"]), id=index)


def _traded(
    out: Expected, kind: str, message: Fields, about: Fields, sides: dict[tuple[int, int], int], time: int
) -> None:
    place, index = (str(about["floor"]), str(about["symbol"])), int(about["index"])
    price = _whole(int(message.get("price", 0)), int(about["scale"]))
    size, order = int(message.get("volume", 0)), (index, int(message.get("order", 0)))
    unprinted = message.get("printed") == 0
    flags = out.sale(str(message["conditions"])) if "conditions" in message else 0
    flags = int(EventFlag.UNPRINTED) if unprinted else flags
    if price is None:
        return
    own = {"side": sides.get(order, 0), "price": price, "size": size, "id": order[1]}
    match kind:
        case "34" if state := _STATES.get(str(message["status"])):
            paused = state is MarketStatus.HALTED and message["halt"] == "M"
            out.put(EventKind.STATUS, place, time, reference=MarketStatus.PAUSED if paused else state)
        case "100" if message["side"] in ("B", "S"):
            sides[order] = int(Side.BUY if message["side"] == "B" else Side.SELL)
            out.put(EventKind.ORDER, place, time, **own | {"side": sides[order]})
        case "101":
            out.put(EventKind.REPLACE, place, time, **own)
        case "102":
            sides.pop(order, None)
            out.put(EventKind.CANCEL, place, time, id=order[1])
        case "103":
            out.put(EventKind.EXECUTION, place, time, **own, flags=flags, reference=int(message["trade"]))
        case "104" if order in sides:
            sides[index, int(message["new"])] = sides.pop(order)
            out.put(EventKind.CANCEL, place, time, id=order[1], flags=EventFlag.LINKED)
            out.put(EventKind.ORDER, place, time, **own | {"id": int(message["new"])})
        case "110" if size:
            out.put(EventKind.TRADE, place, time, price=price, size=size, flags=flags, id=int(message["trade"]))
        case "111" if size:
            cross = str(message["cross"])
            auction = {"6": EventFlag.CLOSING} | dict.fromkeys("EO5", EventFlag.OPENING)
            flags = int(EventFlag.AUCTION | auction.get(cross, EventFlag(0)))
            number = int(message["trade"])
            out.put(EventKind.TRADE, place, time, price=price, size=size, flags=flags, id=number, reference=ord(cross))
        case "112":
            out.put(EventKind.TRADE_CANCEL, place, time, id=int(message["trade"]))
        case _:
            pass
