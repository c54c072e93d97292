"""The operator's hand: signs orders with the operator's key, where that is, or brings one that was signed elsewhere.

An order is not secret: it may travel by any way to the machine whose door carries it. In a file it is its stripe, its
kind, and what it says and is signed for, in one line of text:

    isocast-order STRIPE KIND SUBJECT HEX-OF-THE-ENTRY HEX-OF-THE-ORDER
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple

from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import has_roster, identity_file, load_book, load_identity
from isocast.runtime.market.secret_files import OTHERS_WRITE, read_file
from isocast.security.identities import Identity, statement
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import OPERATOR, Epoch
from isocast.terms.instants import SECOND
from isocast.wire.limits import MAX_CONTROL_BODY, ORDER_BYTES
from isocast.wire.orders import order_number, with_order
from isocast.wire.packets import ControlEntry, ControlKind
from isocast.wire.signing import SERIAL_BYTES, SignedKind

__all__ = ["ORDER_LASTS_NS", "BroughtOrder", "OperatorHand", "order_text", "read_order"]

ORDER_LASTS_NS: Final = 600 * SECOND
"""How long an order counts that is carried out at once."""
_WORD = "isocast-order"
_TEXT_MAX = 2 * (MAX_CONTROL_BODY + ORDER_BYTES) + 200


class BroughtOrder(NamedTuple):
    """An order that was signed elsewhere."""

    stripe: int
    entry: ControlEntry


def order_text(brought: BroughtOrder) -> str:
    """An order as one line."""
    kind, subject, body, order = brought.entry
    return f"{_WORD} {brought.stripe} {int(kind)} {subject} {body.hex() or '-'} {order.hex()}\n"


def read_order(path: Path) -> BroughtOrder:
    """An order from its file; ConfigurationError for one that is none. Whether it counts, the market says."""
    text = read_file(path, _TEXT_MAX, OTHERS_WRITE)
    brought = None
    with suppress(ValueError):
        brought = _parsed(text.decode("ascii").split())
    if brought is None:
        rule = "is no order: isocast ring order writes one, where the operator's key is"
        raise ConfigurationError(str(path), "order", rule)
    return brought


def _parsed(fields: list[str]) -> BroughtOrder | None:
    """None or ValueError for what `order_text` does not write."""
    word, stripe, kind, subject, body, order = fields
    raw = b"" if body == "-" else bytes.fromhex(body)
    entry = ControlEntry(ControlKind(int(kind)), int(subject), raw, bytes.fromhex(order))
    if word != _WORD or len(entry.order) != ORDER_BYTES or not 0 <= entry.subject < 1 << 64:
        return None
    return BroughtOrder(int(stripe), entry)


class _OrderSigner:
    """Signs under one roster."""

    def __init__(self, identity: Identity, market: bytes, serial: int) -> None:
        self._identity = identity
        self._market = market
        self._serial = serial

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:
        """Serial and signature."""
        said = statement(kind, self._market, body, stripe=stripe, epoch=epoch, serial=self._serial)
        return self._serial.to_bytes(SERIAL_BYTES, "little") + self._identity.sign(said)


class OperatorHand:
    """Signs for the rings of one market; a market without a roster needs no signatures."""

    def __init__(self, market: Market, brought: BroughtOrder | None = None) -> None:
        """`brought`: sign nothing, use this one."""
        self._market = market
        self._brought = brought

    @property
    def is_needed(self) -> bool:
        """Whether the market asks for orders."""
        return has_roster(self._market)

    def insist(self) -> None:
        """ConfigurationError, which says what to do, where orders are needed and cannot be signed here."""
        if self.is_needed and self._brought is None:
            self._signer(0)

    def sign(
        self, entry: ControlEntry, stripe: int, last: int = 0, roster: int = 0, lasts_ns: int = ORDER_LASTS_NS
    ) -> ControlEntry:
        """An entry with its order, above order `last`, under a roster in force, if it lists the key; else the newest.

        ConfigurationError, which says what to do, without the key.
        """
        if not self.is_needed:
            return entry
        if self._brought is not None:
            return self._bring(entry, stripe, last)
        now = time_ns()
        return with_order(entry, self._signer(roster), stripe, max(now, last + 1), now + lasts_ns)

    def _signer(self, serial: int) -> _OrderSigner:
        market = self._market
        path = market.keys_directory / identity_file("operator")
        if not path.exists():
            rule = "is not here: run this where it is, or bring its order: isocast ring order, then --order FILE"
            raise ConfigurationError(str(path), "operator", rule)
        book = load_book(market)
        member = book.newest.member(OPERATOR)
        identity = load_identity(market, "operator", b"" if member is None else member.public)
        if member is None or identity.public != member.public:
            rule = f"is not the key that roster {book.newest.serial} lists for the operator: bring that one"
            raise ConfigurationError(str(path), "operator", rule)
        if book.newest.is_revoked(identity.public) or identity.public in [said.public for said in book.revocations]:
            rule = "was revoked, and orders nothing: isocast keys rotate operator makes another"
            raise ConfigurationError(str(path), "operator", rule)
        if not member.covers(time_ns()):
            rule = "does not count now: set this clock, or prolong the key with isocast keys roster --extend operator"
            raise ConfigurationError(str(path), "operator", rule)
        counting = book.of_serial(serial)
        listed = counting is not None and counting.public_of(OPERATOR) == identity.public
        return _OrderSigner(identity, book.newest.market, serial if listed else book.newest.serial)

    def _bring(self, entry: ControlEntry, stripe: int, last: int) -> ControlEntry:
        brought = self._brought
        if brought is None or brought.stripe != stripe or brought.entry._replace(order=b"") != entry:
            raise ConfigurationError("command line", "--order", "is for something else: name what it orders")
        if order_number(brought.entry) <= last:
            rule = "was carried out already, or a newer one was: sign another with isocast ring order"
            raise ConfigurationError("command line", "--order", rule)
        return brought.entry
