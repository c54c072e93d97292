"""A second reader of CTS, CQS, UTP and NYSE packets, written from what is public of their layouts, not from ours.

It knows tables and nothing of markets: for each type of message its fields in order, as name, width and form,
and which rows or best quotes follow them. `read` and `write` walk a table byte by byte, so the tests make their
messages from the same tables. The layouts are those of

* Consolidated Tape System, Multicast Output Binary Specification, versions 1.91, 2.9, 2.10 and 2.11b;
* Consolidated Quotation System, Multicast Output Binary Specification, versions 1.91 and 2.10a;
* UTP Quotation and Trade Data Feeds (UQDF, UTDF), Binary Output Specification, versions 1.5 and 3.0c, in MoldUDP64;
* NYSE XDP Common and Integrated Feed Client Specifications, versions 2.1g (XDP) and 2.5a (Pillar).

Forms: `u` a number, `t` seconds and nanoseconds of four bytes each, `a` text as it stands, `s` text without the
blanks or zeros after it, `-` bytes without a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "CTA",
    "CTA_WIDE",
    "PILLAR",
    "PRICE_DECIMALS",
    "UTP",
    "XDP",
    "Family",
    "Fields",
    "Packet",
    "fields_of",
    "write",
]

Fields = dict[str, int | str]

PRICE_DECIMALS = {2: 2, 8: 6}
"""By the width of a price of the consolidated feeds: cents in two bytes, millionths in eight."""

_BILLION = 10**9


class Packet(NamedTuple):
    """What one datagram holds."""

    top: Fields
    messages: list[tuple[str, Fields]]
    """The type of each message, and its fields by name."""


def fields_of(layout: str) -> Iterator[tuple[str, int, str]]:
    """Name, width and form of each field: `name/11s` is text of 11 bytes."""
    for word in layout.split():
        name, _, shape = word.partition("/")
        yield name, int(shape[:-1]), shape[-1]


def width_of(layout: str) -> int:
    return sum(width for _, width, _ in fields_of(layout))


def read(layout: str, body: bytes, *, big: bool) -> Fields:
    """The fields at the start of a body."""
    found: Fields = {}
    at = 0
    for name, width, form in fields_of(layout):
        piece = body[at : at + width]
        assert len(piece) == width, f"{name} has {len(piece)} of {width} bytes"
        at += width
        match form:
            case "u":
                found[name] = _number(piece, big=big)
            case "t":
                found[name] = _number(piece[:4], big=big) * _BILLION + _number(piece[4:], big=big)
            case "a":
                found[name] = piece.decode("latin-1")
            case "s":
                found[name] = piece.decode("latin-1").rstrip(" \0")
            case _:
                assert form == "-", f"{name} has no form {form}"
    return found


def write(layout: str, values: Mapping[str, int | str], *, big: bool) -> bytes:
    """The bytes that `read` takes these values from; zero or blanks for what is not among them."""
    pieces = []
    for name, width, form in fields_of(layout):
        value = values.get(name, "" if form in "as" else 0)
        if isinstance(value, str):
            piece = value.encode("latin-1").ljust(width, b" " if big else b"\0")
        elif form == "t":
            piece = b"".join(_bytes(half, 4, big=big) for half in divmod(value, _BILLION))
        else:
            piece = _bytes(value, width, big=big)
        assert len(piece) == width, f"{value!r} is not a {name}"
        pieces.append(piece)
    return b"".join(pieces)


def _number(piece: bytes, *, big: bool) -> int:
    return sum(byte << 8 * place for place, byte in enumerate(reversed(piece) if big else piece))


def _bytes(value: int, width: int, *, big: bool) -> bytes:
    assert 0 <= value < 1 << 8 * width, f"{value} is not of {width} bytes"
    little = bytes(value >> 8 * place & 255 for place in range(width))
    return little[::-1] if big else little


class Family(NamedTuple):
    """A framing, and the messages in it."""

    big: bool
    """The order of bytes in a number."""
    header: str
    head: str
    """What is before the body of each message."""
    uncounted: int
    """So many bytes of `head` are not in its `length`."""
    padded: bool
    """A block of an odd number of bytes has one more."""
    layouts: Mapping[str, str]
    rows: Mapping[str, str]
    """What is repeated after the fixed fields, as often as the field `rows` says."""

    def packet(self, payload: bytes) -> Packet:
        """All of a datagram; fails where lengths and counts do not add up."""
        top = read(self.header, payload, big=self.big)
        assert top.get("size", len(payload)) == len(payload), "the size in the header is not that of the datagram"
        at, messages = width_of(self.header), []
        for _ in range(int(top["count"])):
            head = read(self.head, payload[at:], big=self.big)
            end = at + int(head["length"]) + self.uncounted
            body = payload[at + width_of(self.head) : end]
            kind = f"{top.get('feed', '')}{head.get('category', '')}{head['type']}"
            found = read(self.layouts[kind], body, big=self.big)
            spare = len(body) - width_of(self.layouts[kind]) - self.appended(kind, found)
            assert spare == 0, f"{spare} bytes more than {kind} has"
            messages.append((kind, found))
            at = end
        assert payload[at:] == (b"\0" if self.padded and at % 2 else b""), "bytes after the last message"
        return Packet(top, messages)

    def appended(self, kind: str, found: Mapping[str, int | str]) -> int:
        """How many bytes follow the fixed fields of a message."""
        rows = int(found["rows"]) * width_of(self.rows[kind]) if kind in self.rows else 0
        quotes = sum(width for key, widths in _BEST.items() for width in widths.get(str(found.get(key, " ")), ()))
        return rows + quotes

    def body(self, kind: str, values: Mapping[str, int | str]) -> bytes:
        """The body of a message with zeros for what follows its fixed fields."""
        return write(self.layouts[kind], values, big=self.big) + bytes(self.appended(kind, values))

    def datagram(self, top: Mapping[str, int | str], messages: Sequence[tuple[str, bytes]]) -> bytes:
        """A datagram of bodies with their types."""
        bodies = b""
        for kind, body in messages:
            named: Fields = {"type": int(kind)} if kind.isdigit() else {"category": kind[-2], "type": kind[-1]}
            length = width_of(self.head) - self.uncounted + len(body)
            bodies += write(self.head, {"version": "1", "length": length, **named}, big=self.big) + body
        bodies += bytes(len(bodies) % 2 if self.padded else 0)
        size = width_of(self.header) + len(bodies)
        return write(self.header, {"size": size, "count": len(messages), **top}, big=self.big) + bodies


_BEST: dict[str, dict[str, tuple[int, ...]]] = {
    "national": dict.fromkeys("CHMPRV", (5,)) | dict.fromkeys("DINQSW", (18,)) | {"T": (5, 5), "U": (18, 18)},
    "best": {"2": (11,), "3": (27,)},
    "makers": {"2": (8,)},
}
"""The best quotes of all markets that an indicator announces (CQS: national; UTP: best, and makers of the ADF)."""

# --- the consolidated tape and quotation systems ---------------------------------------------------------------------

_CTA = "participant/1a time/8t message/1u transaction/4u reference/8u"
_STOCK = f"{_CTA} symbol/11s instrument/1a"
_STATE = "restriction/1a listing/1a financial/1a"


def _sale(volume: int, prefix: str = "") -> str:
    words = f"conditions/4a price/8u volume/{volume}u days/1u stop/1a exempt/1a"
    return " ".join(prefix + word for word in words.split())


def _totals(volume: int) -> str:
    of_all = f"closed/4u last_at/1a last/8u high/8u low/8u total/{volume}u tick/1a"
    return f"{of_all} own_closed/4u own_last/8u own_high/8u own_low/8u own_open/8u own_total/{volume}u own_tick/1a"


def _tape(volume: int) -> tuple[str, str, str, str, str]:
    """Long trade, cancel or error, correction, trade of a prior day, cancel of one: volumes of four or eight bytes."""
    trade = f"{_STOCK} {_sale(volume)} facility/1a time2/8t {_STATE} held/1a consolidated/1a own/1a"
    broken = f"{_STOCK} {_sale(volume)} facility/1a original/8u time2/8t action/1a {_STATE} {_totals(volume)}"
    right, wrong = f"{_sale(volume)} restriction/1a", f"{_sale(volume, 'wrong_')} wrong_restriction/1a"
    corrected = f"{_STOCK} {right} facility/1a time2/8t original/8u {wrong} listing/1a financial/1a {_totals(volume)}"
    prior = f"{_STOCK} {_sale(volume)} restriction/1a facility/1a traded/8t"
    return trade, broken, corrected, prior, f"{prior} action/1a"


def _short(volume: int) -> str:
    return f"{_CTA} symbol/5s condition/1a category/1a price/2u volume/{volume}u listing/1a consolidated/1a own/1a"


_CLOSE = "closer/1a closed/4u"
_CONTROL = dict.fromkeys(("AA", "AB", "AC", "AD", "CA", "CC", "CL", "CM", "CN", "CO", "CP", "CT", "CZ"), _CTA)
_REFERENCE = (
    f"{_CTA} symbol/11s old/11s listing/1a close/8u all_close/8u lot/2u step/1a tier/1a leverage/4u test/1a ipo/1a "
    "financial/1a restriction/1a reason/1a instrument/1a spare/130-"
)
_BREAKERS = {
    "MK": f"{_CTA} level1/8u level2/8u level3/8u spare/1-",
    "ML": f"{_CTA} level/1a spare/1-",
}
_COLLARS = f"{_STOCK} collar/8u upper/8u lower/8u extensions/1u {_STATE} spare/62-"
_QUOTE = (
    f"{_STOCK} condition/1a security/1a bid/8u bid_size/4u offer/8u offer_size/4u retail/1a settlement/1a market/1a"
)
_QUOTE_END = f"time2/8t {_STATE} made/1a band/1a national_band/1a national/1a"
_FINRA = "{0}_condition/1a {0}_price/8u {0}_size/4u {0}_maker/4a"

_CTS = {
    **_CONTROL,
    **_BREAKERS,
    "AS": _REFERENCE,
    "II": f"{_CTA} symbol/11s value/8u",
    "IQ": f"{_CTA} symbol/11s bid/8u offer/8u",
    "MN": f"{_CTA} rows/1u",
    "MO": f"{_CTA} trades/4u dollars/8u",
    "MP": f"{_CTA} first/8u dollars/8u second/8u",
    "MV": f"{_CTA} rows/1u",
    "SA": f"{_STOCK} {_CLOSE} close/8u {_STATE} markets/1u",
    "SB": f"{_STOCK} {_CLOSE} close/8u",
    **dict.fromkeys(("SC", "ST"), f"{_STOCK} {_CLOSE} last/8u high/8u low/8u total/8u {_STATE} markets/1u"),
    **dict.fromkeys(("SD", "SP"), f"{_STOCK} {_CLOSE} last/8u high/8u low/8u open/8u total/8u tick/1a"),
    "TA": _COLLARS,
    "TS": f"{_STOCK} last/8u high/8u low/8u buy/4u sell/4u status/1a reason/1a {_STATE} band/1a",
    "TT": _short(2),
    "TH": _short(4),
    **dict(zip(("TL", "TX", "TC", "PT", "PX"), _tape(4), strict=True)),
    **dict(zip(("TR", "TE", "TO", "PR", "PE"), _tape(8), strict=True)),
}
_CQS = {
    **_CONTROL,
    **_BREAKERS,
    "AS": _REFERENCE,
    "QA": _COLLARS,
    "QL": f"{_QUOTE} maker/4a finra/1a {_QUOTE_END}",
    "QQ": f"{_CTA} symbol/5s bid/2u bid_size/2u offer/2u offer_size/2u listing/1a national/1a",
    "QS": f"{_QUOTE} maker/4a {_FINRA.format('finra_bid')} {_FINRA.format('finra_offer')} {_QUOTE_END}",
}

CTA = Family(
    big=True,
    header="version/1u size/2u feed/1a resent/1a sequence/4u count/1u sent/8t checksum/2u",
    head="length/2u category/1a type/1a",
    uncounted=0,
    padded=True,
    layouts={"T" + kind: layout for kind, layout in _CTS.items()} | {"Q" + kind: _CQS[kind] for kind in _CQS},
    rows=dict.fromkeys(("TMN", "TMV"), "participant/1a volume/8u"),
)
"""A block of CTS (feed T) or CQS (feed Q), CQS 1.91 to 2.9. Volumes of TE, TH, TO, TR, PE, PR, SP, ST
and MV are in millionths."""

CTA_WIDE = CTA._replace(layouts={**CTA.layouts, "QQQ": CTA.layouts["QQQ"].replace("symbol/5s", "symbol/11s")})
"""CQS 2.10a, whose short quotes have the long form of a symbol."""

# --- the feeds of the UTP plan ---------------------------------------------------------------------------------------

_UTP = "participant/1a facility/1a sent/8u time/8u token/8u"
_REPORT = "conditions/4a exempt/1a"
_BEST_END = "condition/1a made/1a band/1a retail/1a best/1a national_band/1a"
_ACTION = f"{_UTP} symbol/11s action/1a"


def _old(volume: int) -> str:
    return f"original/8u wrong_price/8u wrong_volume/{volume}u wrong_conditions/4a wrong_exempt/1a wrong_days/2u"


def _new(volume: int) -> str:
    return f"trade/8u price/8u volume/{volume}u conditions/4a exempt/1a days/2u"


_DAY = "high/8u low/8u last/8u total/8u change/1a market/1a own_high/8u own_low/8u own_last/8u own_total/8u"
_SIDES = "bid/8u bid_size/4u offer/8u offer_size/4u"
_SHORT_QUOTE = f"{_UTP} symbol/5s bid/2u bid_size/2u offer/2u offer_size/2u {_BEST_END}"
_LONG_QUOTE = f"{_UTP} finra/8u symbol/11s {_SIDES} {_BEST_END} makers/1a"
_ODD = "odd/1a odd_kind/1a odd_count/2u"
_DEALT = f"{_UTP} finra/8u symbol/11s"

UTP = Family(
    big=True,
    header="session/10a sequence/8u count/2u",
    head="length/2u version/1a category/1a type/1a",
    uncounted=2,
    padded=False,
    layouts={
        **dict.fromkeys(("CC", "CI", "CJ", "CO", "CP", "CS", "CX", "CZ"), _UTP),
        "AA": f"{_UTP} rows/2u",
        "AB": f"{_UTP} symbol/11s old/11s name/30a kind/1a subtype/2a tier/1a real/1a threshold/1a lot/2u financial/1a",
        "AC": f"{_UTP} level1/8u level2/8u level3/8u",
        "AD": f"{_UTP} level/1a",
        "AE": f"{_UTP} symbol/11s number/4u collar/8u upper/8u lower/8u extensions/1a",
        "AH": f"{_ACTION} number/4u at/8u reason/6a",
        "AK": f"{_ACTION} at/8u market/1a",
        "AP": f"{_UTP} symbol/11s band/1a at/8u lower/8u upper/8u",
        "QC": f"{_SHORT_QUOTE} {_ODD}",
        "QD": f"{_LONG_QUOTE} {_ODD}",
        "QE": _SHORT_QUOTE,
        "QF": _LONG_QUOTE,
        "QM": f"{_DEALT} {_SIDES} condition/1a maker/4a",
        "TA": f"{_UTP} finra/8u symbol/5s trade/8u price/2u volume/2u {_REPORT} consolidated/1a own/1a",
        "TM": f"{_UTP} finra/8u symbol/5s trade/8u price/2u volume/8u {_REPORT} consolidated/1a own/1a",
        "TW": f"{_DEALT} {_new(4)} consolidated/1a own/1a",
        "TN": f"{_DEALT} {_new(8)} consolidated/1a own/1a",
        "TH": f"{_DEALT} {_new(4)} action/1a traded/8u",
        "TQ": f"{_DEALT} {_new(8)} action/1a traded/8u",
        "TY": f"{_DEALT} {_old(4)} {_new(4)} {_DAY}",
        "TP": f"{_DEALT} {_old(8)} {_new(8)} {_DAY}",
        "TZ": f"{_DEALT} kind/1a {_old(4)} {_DAY}",
        "TO": f"{_DEALT} kind/1a {_old(8)} {_DAY}",
    },
    rows={"AA": "text/1a"},
)
"""UQDF (quotes) and UTDF (trades): one table, their letters do not meet. C and D (quotes with odd lots) and M to Q
(volumes in millionths) came with version 3.0."""

# --- the feeds of the NYSE exchanges ---------------------------------------------------------------------------------

_ORDER = "ns/4u index/4u seq/4u order/8u"
_DEAL = "ns/4u index/4u seq/4u trade/4u"
_STAMPED = "second/4u ns/4u index/4u seq/4u"
_AUCTION = (
    f"{_STAMPED} reference/4u paired/4u imbalance/4u market_imbalance/4u at/2u auction/1a side/1a "
    "book/4u closing/4u filing/4u match/4u upper/4u lower/4u state/1u freeze/1u extensions/1u"
)

XDP = Family(
    big=False,
    header="size/2u flag/1u count/1u sequence/4u sent/8t",
    head="length/2u type/2u",
    uncounted=0,
    padded=False,
    layouts={
        "1": "second/4u ns/4u product/1u channel/1u",
        "2": "system/4u seq/4u second/4u",
        "3": (
            "index/4u symbol/11s gap/1- market/2u system/1u listing/1a scale/1u kind/1a lot/2u close/4u volume/4u "
            "resolution/1u round/1a step/2u unit/2u spare/2-"
        ),
        "32": "second/4u ns/4u index/4u next/4u",
        "34": (
            f"{_STAMPED} status/1a halt/1a spare/4- price1/4u price2/4u trigger/1a trigger_volume/4u at/4u "
            "restriction/1a market/1a session/1a"
        ),
        "100": f"{_ORDER} price/4u volume/4u side/1a firm/5a splits/1u",
        "101": f"{_ORDER} price/4u volume/4u moved/1u splits/1u new_splits/1u",
        "102": f"{_ORDER} splits/1u",
        "103": f"{_ORDER} trade/4u price/4u volume/4u printed/1u splits/1u execution/4u",
        "104": f"{_ORDER} new/8u price/4u volume/4u splits/1u new_splits/1u",
        "105": _AUCTION,
        "106": f"second/4u {_ORDER} price/4u volume/4u side/1a firm/5a splits/1u",
        "110": f"{_DEAL} price/4u volume/4u printed/1u execution/4u",
        "111": f"{_DEAL} price/4u volume/4u cross/1a",
        "112": _DEAL,
        "113": f"{_DEAL} volume/4u",
        "114": "ns/4u index/4u seq/4u retail/1a",
        "223": "second/4u ns/4u index/4u high/4u low/4u open/4u close/4u total/4u",
    },
    rows={},
)
"""Version 2.1: prices have as many decimals as the `scale` of their symbol says; `ns` counts from the `second` that
the `system` of the symbol announced last."""

PILLAR = XDP._replace(
    layouts={
        **XDP.layouts,
        "101": f"{_ORDER} price/4u volume/4u moved/1u side/1a spare/1-",
        "103": f"{_ORDER} trade/4u price/4u volume/4u printed/1u spare/1- conditions/4a",
        "105": f"{_AUCTION} unpaired/4u unpaired_side/1a significant/1a",
        "110": f"{_DEAL} price/4u volume/4u printed/1u conditions/4a",
    }
)
"""Version 2.5: sale conditions where 2.1 had a number of the execution."""
