"""A confirmed trade put right: two operators sign it, the sequence carries it, everybody takes it at the same token.

A correction is a message of a topic of its own. It changes no book and no order: what was filled stays filled. It says
what the trade becomes, another price or a smaller quantity, or nothing at all; gateways settle the difference by
entries that reverse the old ones.

    | trade | version | until | price | quantity | new price | new quantity | buy | sell | bits |
    | symbol | reason | signers |

Little-endian, without padding; text is a length and ASCII. Each signer is an id and an Ed25519 signature over the
market, the floor and everything before the signers. A trade has version 0 when it is made, and each correction names
the version that it makes: the first that the sequence has counts, so that nothing is corrected twice by one paper.

Who signed is judged where the source is known, at release (`floor.rights`): what two operators have not signed is void.
Here it is judged by the sequence alone, and alike by all who have it:

    unknown     the floor has made no trade of that number
    tentative   no arbiter has said in an earlier token that it is confirmed
    version     another correction came first, or this very one did
    differs     it does not describe the trade as the correction before left it
    void        the correction before made the trade void, which is final
    late        the token's instant is after the correction's limit
    terms       not whole ticks or lots, or more than was traded
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from struct import Struct, error
from typing import Any, Final, NamedTuple

from isocast.floor.codec import SYMBOL_MAX
from isocast.floor.events import Trade
from isocast.floor.machine import Floor
from isocast.security.identities import ED25519_BYTES, is_signed
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId

__all__ = [
    "REASON_MAX",
    "Correction",
    "CorrectionFault",
    "Corrections",
    "Judged",
    "Signature",
    "correction_said",
    "correction_topic",
    "decode_correction",
    "encode_correction",
    "signature_fault",
]

REASON_MAX: Final = 120
"""ASCII characters that say why."""
SIGNERS: Final = 2
CORRECTED_MAX: Final = 100_000
"""Corrected trades that are remembered. Of the oldest beyond them no further version is taken."""

_CONTEXT: Final = b"isocast floor correction 1"
_HEAD: Final = Struct("<QHqqqqqQQB")
_SIGNER: Final = Struct(f"<Q{ED25519_BYTES}s")
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_SYMBOL: Final = bytes(range(0x21, 0x7F))
_OWN, _AUCTION, _OFF_BOOK = 1, 2, 4
_ALL_BITS: Final = _OWN | _AUCTION | _OFF_BOOK


class Signature(NamedTuple):
    """Who signed, and how."""

    signer: NodeId
    value: bytes


class Correction(NamedTuple):
    """What a confirmed trade becomes."""

    trade: Trade
    """As it stands: as it was made, or as the correction before left it."""
    version: int
    """That it makes, from 1."""
    price: int
    """The right one; 0 with a quantity of 0."""
    quantity: int
    """The right one, not above that of the trade; 0: the trade is void."""
    until: int
    """In a token of a later T_t it does not count."""
    reason: str = ""
    signatures: tuple[Signature, ...] = ()

    @property
    def is_void(self) -> bool:
        """Whether nothing is left of the trade."""
        return not self.quantity

    @property
    def corrected(self) -> Trade:
        """The trade as it is then; of quantity 0 where it is void."""
        return self.trade._replace(price=self.price, quantity=self.quantity)


def correction_topic(floor: str) -> str:
    """The topic of a floor's corrections."""
    return f"floor/{floor}/correction"


# Bytes -------------------------------------------------------------------------------------------------------------


def _body(correction: Correction) -> bytes:
    trade = correction.trade
    bits = trade.is_own * _OWN | trade.is_auction * _AUCTION | trade.is_off_book * _OFF_BOOK
    head = _HEAD.pack(
        trade.number,
        correction.version,
        correction.until,
        trade.price,
        trade.quantity,
        correction.price,
        correction.quantity,
        trade.buy,
        trade.sell,
        bits,
    )
    return head + _text(trade.symbol, SYMBOL_MAX, _SYMBOL) + _text(correction.reason, REASON_MAX, _PRINTABLE)


def _text(text: str, most: int, characters: bytes) -> bytes:
    raw = text.encode("ascii")
    if len(raw) > most or raw.translate(None, characters):
        raise LocalProtocolError(f"{text!r}: at most {most} printable ASCII characters are allowed")
    return bytes([len(raw)]) + raw


def encode_correction(correction: Correction) -> bytes:
    """The bytes of a correction, with as many signatures as it has; LocalProtocolError for one that does not fit."""
    try:
        body = _body(correction)
        signers = b"".join([_SIGNER.pack(*one) for one in correction.signatures])
    except (error, UnicodeEncodeError) as reason:
        raise LocalProtocolError(f"a correction that does not fit: {correction}") from reason
    _insist(correction, LocalProtocolError)
    return body + bytes([len(correction.signatures)]) + signers


def decode_correction(data: bytes) -> Correction:
    """The correction; RemoteProtocolError for anything that `encode_correction` would not have made."""
    try:
        number, version, until, price, quantity, new_price, new_quantity, buy, sell, bits = _HEAD.unpack_from(data)
        symbol, at = _read_text(data, _HEAD.size, SYMBOL_MAX, _SYMBOL)
        reason, at = _read_text(data, at, REASON_MAX, _PRINTABLE)
        count = data[at]
        places = range(at + 1, at + 1 + count * _SIGNER.size, _SIGNER.size)
        signatures = tuple([Signature(*_SIGNER.unpack_from(data, place)) for place in places])
    except (error, IndexError) as fault:
        raise RemoteProtocolError(f"no correction of a trade: {len(data)} bytes") from fault
    if len(data) != at + 1 + count * _SIGNER.size or bits > _ALL_BITS:
        raise RemoteProtocolError(f"no correction of a trade: {len(data)} bytes, bits {bits}")
    flags = [bool(bits & bit) for bit in (_OWN, _AUCTION, _OFF_BOOK)]
    trade = Trade(number, symbol, price, quantity, buy, sell, *flags)
    found = Correction(trade, version, new_price, new_quantity, until, reason, signatures)
    _insist(found, RemoteProtocolError)
    return found


def _read_text(data: bytes, at: int, most: int, characters: bytes) -> tuple[str, int]:
    end = at + 1 + data[at]
    raw = data[at + 1 : end]
    if end > len(data) or len(raw) > most or raw.translate(None, characters):
        raise RemoteProtocolError(f"a correction with the text {raw!r}")
    return raw.decode("ascii"), end


def _insist(correction: Correction, refusal: type[LocalProtocolError | RemoteProtocolError]) -> None:
    trade, signers = correction.trade, [one.signer for one in correction.signatures]
    if not (trade.number and trade.symbol and trade.quantity > 0 and correction.version):
        raise refusal("a correction of no trade, or without a version")
    if correction.quantity < 0 or (correction.is_void and correction.price):
        raise refusal("a correction with a negative quantity, or with the price of a void trade")
    if len(signers) > SIGNERS or len(set(signers)) != len(signers):
        raise refusal("a correction with the same signer twice, or with more than two")


# Who signed --------------------------------------------------------------------------------------------------------


def correction_said(market: bytes, floor: str, correction: Correction) -> bytes:
    """What an operator signs: for one market and floor, everything but the signatures.

    `market` is what a roster names its market by. No other statement of a market begins like this one.
    """
    code = floor.encode("ascii")
    return _CONTEXT + market + bytes([len(code)]) + code + _body(correction)


def signature_fault(correction: Correction, floor: str, market: bytes, key_of: Callable[[NodeId], bytes | None]) -> str:
    """Why a correction is not signed as it must be, in a few words; empty: two different operators signed it.

    `key_of` gives the public key of an operator who may, None for anybody else.
    """
    if len(correction.signatures) != SIGNERS:
        count = len(correction.signatures)
        return f"{count or 'no'} signature{'s' * (count != 1)}, and two operators must sign"
    keys = [key_of(one.signer) for one in correction.signatures]
    if None in keys:
        return "the signature of somebody whom the market does not list as one who may correct trades"
    if len(set(keys)) != SIGNERS:
        return "two signatures of one operator, and two operators must sign"
    said = correction_said(market, floor, correction)
    for key, one in zip(keys, correction.signatures, strict=True):
        if key is None or not is_signed(key, one.value, said):
            return "a signature that does not fit what it stands under"
    return ""


# What the sequence makes of it -------------------------------------------------------------------------------------


class CorrectionFault(StrEnum):
    """Why a correction changes nothing."""

    UNKNOWN = "there is no such trade"
    TENTATIVE = "the trade is not confirmed: wait until it is"
    VERSION = "the trade was corrected meanwhile, or by this very paper: propose again from how it stands now"
    DIFFERS = "it describes another trade than stands under that number: propose again from how it stands now"
    VOID = "the trade is void already, which is final"
    LATE = "its time is over: propose it again"
    TERMS = "not of whole ticks and lots, or more than was traded"


class Judged(NamedTuple):
    """A correction of the sequence, and why it changes nothing; None: it counts."""

    correction: Correction
    fault: CorrectionFault | None


class Corrections:
    """What became of the trades of one floor that were corrected."""

    def __init__(self) -> None:
        """None was."""
        self.standing: dict[int, Correction] = {}
        """By number, the newest correction of each, without its signatures; the least recently corrected first."""
        self.forgotten = 0
        """Trades up to this number are not corrected: of some of them it is not known any more how they stand."""

    def fault(self, correction: Correction, floor: Floor, confirmed: int, instant: int) -> CorrectionFault | None:
        """Why a correction in a token of this instant would change nothing; None: it counts.

        `floor` as it was before the token, and all trades up to `confirmed` were confirmed then.
        """
        trade, known = correction.trade, self.standing.get(correction.trade.number)
        if trade.number >= floor.next_trade or trade.symbol not in floor.symbols:
            return CorrectionFault.UNKNOWN
        if trade.number > confirmed:
            return CorrectionFault.TENTATIVE
        if instant > correction.until:
            return CorrectionFault.LATE
        if correction.version != (1 if known is None else known.version + 1) or (
            known is None and trade.number <= self.forgotten
        ):
            return CorrectionFault.VERSION
        if known is not None and known.is_void:
            return CorrectionFault.VOID
        if known is not None and known.corrected != trade:
            return CorrectionFault.DIFFERS
        return None if _fits(correction, floor) else CorrectionFault.TERMS

    def hear(self, payload: bytes, floor: Floor, confirmed: int, instant: int) -> Judged | None:
        """The next message of the topic, judged, and taken where it counts; None for bytes that are no correction."""
        try:
            correction = decode_correction(payload)
        except RemoteProtocolError:
            return None
        fault = self.fault(correction, floor, confirmed, instant)
        if fault is None:
            self.take(correction)
        return Judged(correction, fault)

    def take(self, correction: Correction) -> None:
        """A correction counts."""
        number = correction.trade.number
        self.standing.pop(number, None)
        self.standing[number] = correction._replace(signatures=())
        if len(self.standing) > CORRECTED_MAX:
            oldest = next(iter(self.standing))
            self.forgotten = max(self.forgotten, oldest)
            del self.standing[oldest]

    def of(self, trade: Trade) -> Trade:
        """A trade as it stands now; of quantity 0 where it is void."""
        known = self.standing.get(trade.number)
        return trade if known is None else known.corrected

    # Restart ---------------------------------------------------------------------------------------------------

    def rows(self) -> list[Any]:
        """All that it goes on from."""
        return [self.forgotten, [encode_correction(one).hex() for one in self.standing.values()]]

    @classmethod
    def from_rows(cls, rows: list[Any]) -> Corrections:
        """As it was; ValueError or RemoteProtocolError for rows that are none."""
        found = cls()
        found.forgotten, kept = rows
        every = [decode_correction(bytes.fromhex(one)) for one in kept]
        found.standing = {one.trade.number: one for one in every}
        return found


def _fits(correction: Correction, floor: Floor) -> bool:
    """Whole ticks and lots of the symbol, and something else than what stands."""
    if correction.is_void:
        return True
    terms, trade = floor.symbols[correction.trade.symbol].terms, correction.trade
    price_fits = correction.price > 0 and not correction.price % terms.tick
    quantity_fits = correction.quantity <= trade.quantity and not correction.quantity % terms.lot
    return price_fits and quantity_fits and correction.corrected != trade
