"""Sale conditions of the US tapes, and which of a consolidated tape's figures a trade with them may change.

A trade without a condition changes all: volume, last, high and low. A condition takes something away, and several take
away what any of them does. Three rules come out, each a flag of the event (`market.EventFlag`):

    UNPRINTED        it is no trade of its own: volume has it already, or it is a price that a floor declares official
    NOT_HIGH_LOW     its price is not the market's at its time: neither high, low nor last
    NOT_LAST         it is late, or priced by something else: it may be high or low, and last only while there is none

The letters are those of the participants' specifications of both tapes (CTA, UTP). B is an average price there on one
tape and a bunched trade on the other; the first is taken, as the second has gone out of use.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from isocast.terms.market import EventFlag

__all__ = [
    "LEAN_CONDITIONS",
    "LEFT_OUT",
    "QUOTE_CONDITIONS",
    "TAPE_CONDITIONS",
    "SaleCondition",
    "conditions_of",
    "left_out_reason",
    "quote_condition",
]

_ALL = EventFlag(0)
_VOLUME_ONLY = EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW
_OPENING = EventFlag.OPENING | EventFlag.AUCTION
_CLOSING = EventFlag.CLOSING | EventFlag.AUCTION
_LATE = EventFlag.NOT_LAST | EventFlag.LATE
_EXTENDED = _VOLUME_ONLY | EventFlag.EXTENDED
_OFFICIAL_OPEN = EventFlag.UNPRINTED | _VOLUME_ONLY | EventFlag.OPENING
_OFFICIAL_CLOSE = EventFlag.UNPRINTED | _VOLUME_ONLY | EventFlag.CLOSING


class SaleCondition(NamedTuple):
    """What a condition is called, and the flags of a trade that has it."""

    name: str
    flags: EventFlag = _ALL


TAPE_CONDITIONS: Mapping[str, SaleCondition] = MappingProxyType(
    {
        "@": SaleCondition("regular"),
        "A": SaleCondition("acquisition"),
        "B": SaleCondition("average price", _VOLUME_ONLY),
        "C": SaleCondition("cash sale", _VOLUME_ONLY),
        "D": SaleCondition("distribution"),
        "E": SaleCondition("automatic execution"),
        "F": SaleCondition("intermarket sweep"),
        "G": SaleCondition("bunched sold trade", _LATE),
        "H": SaleCondition("price variation", _VOLUME_ONLY),
        "I": SaleCondition("odd lot", _VOLUME_ONLY | EventFlag.ODD_LOT),
        "K": SaleCondition("rule 127 or 155"),
        "L": SaleCondition("sold last", _LATE),
        "M": SaleCondition("official close", _OFFICIAL_CLOSE),
        "N": SaleCondition("next day", _VOLUME_ONLY),
        "O": SaleCondition("opening print", _OPENING),
        "P": SaleCondition("prior reference price", _LATE),
        "Q": SaleCondition("official open", _OFFICIAL_OPEN),
        "R": SaleCondition("seller", _VOLUME_ONLY),
        "S": SaleCondition("split trade"),
        "T": SaleCondition("extended hours", _EXTENDED),
        "U": SaleCondition("extended hours, out of sequence", _EXTENDED | EventFlag.LATE),
        "V": SaleCondition("contingent", _VOLUME_ONLY),
        "W": SaleCondition("average price", _VOLUME_ONLY),
        "X": SaleCondition("cross"),
        "Y": SaleCondition("yellow flag"),
        "Z": SaleCondition("out of sequence", _LATE),
        "1": SaleCondition("stopped stock"),
        "4": SaleCondition("derivatively priced", EventFlag.NOT_LAST),
        "5": SaleCondition("reopening print", _OPENING),
        "6": SaleCondition("closing print", _CLOSING),
        "7": SaleCondition("qualified contingent", _VOLUME_ONLY),
        "8": SaleCondition("trade-through exempt"),
        "9": SaleCondition("corrected close", _OFFICIAL_CLOSE),
    }
)
"""By the letter of the tapes. A corrected close declares a price: it is carried as an official close."""


def conditions_of(text: str) -> list[SaleCondition]:
    """The conditions that these letters name, with blanks or commas where a place has none; none at all is regular."""
    letters = text.replace(" ", "").replace(",", "") or "@"
    return [TAPE_CONDITIONS.get(letter) or SaleCondition(f"unknown {letter!r}") for letter in letters]


LEAN_CONDITIONS: Mapping[int, SaleCondition] = MappingProxyType(
    {
        1 << bit: TAPE_CONDITIONS[letter]
        for bit, letter in enumerate("@CNRYFO654TL1TZSA8V@WXHKMPQ@E8@I")  # One for each bit, from the lowest.
    }
    | {1 << 17: SaleCondition("bunched trade"), 1 << 19: TAPE_CONDITIONS["D"], 1 << 27: SaleCondition("cap election")}
)
"""By the bit of the number that QuantConnect's Lean keeps for each tick."""


QUOTE_CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "A": "slow on the offer",
        "B": "slow on the bid",
        "C": "closing",
        "E": "slow on the bid, gap",
        "F": "fast trading; slow on the offer, gap",
        "H": "slow on both sides",
        "I": "order imbalance",
        "L": "closed",
        "N": "non-firm",
        "O": "opening",
        "R": "regular",
        "U": "slow on both sides, gap or non-firm",
        "W": "slow on both sides, set slow",
        "X": "order influx",
        "Y": "one-sided",
        "Z": "no open, no resume",
        "4": "intraday auction",
    }
)
"""Of quotes, by the letter of both tapes: F is fast trading on the UTP's, and slow on the CTA's. They take
nothing away from a quote: they are counted."""


def quote_condition(letter: str) -> str:
    """The name of a quote's condition; one that is not known is named as it stands there."""
    return QUOTE_CONDITIONS.get(letter, f"unknown {letter!r}") if letter.strip() else "regular"


LEFT_OUT: Mapping[EventFlag, str] = MappingProxyType(
    {
        EventFlag.UNPRINTED | EventFlag.OPENING: "official open",
        EventFlag.UNPRINTED | EventFlag.CLOSING: "official close",
        EventFlag.UNPRINTED: "not printed",
        EventFlag.TENTATIVE: "not confirmed",
        EventFlag.EXTENDED: "extended hours",
        EventFlag.ODD_LOT: "odd lot",
        EventFlag.LATE: "late or out of sequence",
        EventFlag.NOT_HIGH_LOW: "special price or settlement",
        EventFlag.NOT_LAST: "derivatively priced",
    }
)
"""Why a trade does not change all figures: the first of these whose flags it has."""


def left_out_reason(flags: int) -> str:
    """The reason of these flags, in a few words; "" if a trade that has them changes all figures."""
    return next((text for mask, text in LEFT_OUT.items() if flags & mask == mask), "")
