"""The show's trading floor as its journals tell it: orders, trades tentative and confirmed, best prices, its state.

Whoever has the sequence computes the floor, so nobody is asked. The live view and the summary read the same record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from isocast.floor.codec import decode_event, floor_topic
from isocast.floor.confirming import ConfirmationFollower, Confirmed, Corrected, News, ReportDiffers, Tentative
from isocast.floor.events import Cancel, Order, Phase, Refused, Trade
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.machine import SymbolState
from isocast.floor.reporting import report_topic
from isocast.floor.state import state_hash
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.journal_blocks import BlockView
from isocast.wire.opaque import is_opaque, read_opaque_or_none

__all__ = ["FloorRecord", "SymbolPrices", "TradeLife"]


@dataclass(slots=True)
class TradeLife:
    """A trade, from the token that made it to the one that says that it is final."""

    trade: Trade
    token: int
    due: int
    """When the receivers released that token, and so computed the trade."""
    confirmed_token: int = 0
    """That carries the report; 0: the trade is tentative."""
    confirmed_due: int = 0

    @property
    def is_confirmed(self) -> bool:
        """Whether it can no longer be lost."""
        return bool(self.confirmed_token)


class SymbolPrices(NamedTuple):
    """A symbol at a moment; prices in price units, None: there is none."""

    symbol: str
    phase: Phase
    bid: int | None
    ask: int | None
    last: Trade | None


class FloorRecord:
    """Takes the blocks of journals, of several receivers too: what it had before it passes over."""

    def __init__(self, code: str) -> None:
        """Of a floor of which nothing is known."""
        self.code = code
        self.orders: Counter[int] = Counter()
        """By id, how often each is in the sequence."""
        self.cancels = 0
        self.refused = 0
        """Events that the floor refused."""
        self.trades: dict[int, TradeLife] = {}
        """By number."""
        self.confirmed = 0
        self.differing = 0
        """Reports that say something else than the sequence gives; 0 is right."""
        self.states: dict[int, str] = {}
        """The hash of the floor's state after each of its tokens."""
        self._topics = frozenset({floor_topic(code), report_topic(code)})
        self._follower = ConfirmationFollower(FloorFollower(code))
        self._next_sequence = 1
        self._last: dict[str, Trade] = {}
        self._due: dict[int, int] = {}

    # Asked of it ----------------------------------------------------------------------------------

    @property
    def symbols(self) -> dict[str, SymbolState]:
        """What trades there."""
        return self._follower.follower.floor.symbols

    @property
    def resting(self) -> int:
        """Orders that live."""
        return len(self._follower.follower.floor.orders)

    @property
    def is_open(self) -> bool:
        """Whether anything can be traded."""
        return any(state.phase is not Phase.CLOSED for state in self.symbols.values())

    @property
    def last(self) -> Trade | None:
        """The newest trade of all."""
        return next(reversed(self.trades.values())).trade if self.trades else None

    def prices(self) -> list[SymbolPrices]:
        """Every symbol as it is now."""
        found = []
        for name, state in self.symbols.items():
            buy, sell = state.book.buys.best, state.book.sells.best
            bid, ask = None if buy is None else buy.price, None if sell is None else sell.price
            found.append(SymbolPrices(name, state.phase, bid, ask, self._last.get(name)))
        return found

    # Told to it -----------------------------------------------------------------------------------

    def take(self, block: BlockView) -> None:
        """A block that a receiver released; one behind a gap is ignored until what is before it has come."""
        header = block.header
        if header.next_sequence <= self._next_sequence or header.first_sequence > self._next_sequence:
            return
        token = header.token_number
        for sequence, (_, _, _, payload) in zip(block.sequences, block.messages(), strict=True):
            if sequence < self._next_sequence or not is_opaque(payload):
                continue
            for message in read_opaque_or_none(payload) or ():
                if message.topic in self._topics:
                    self._due[token] = header.due
                    self._count(message.topic, message.payload)
                    heard = FloorMessage(sequence, message.topic, message.payload, header.shuffle_key)
                    self._note(self._follower.hear(token, header.instant, heard), header.due)
        self._next_sequence = header.next_sequence
        if header.ends_token:
            self._note(self._follower.finish(), header.due)

    def _count(self, topic: str, payload: bytes) -> None:
        if topic != floor_topic(self.code):
            return
        try:
            event = decode_event(payload)
        except RemoteProtocolError:
            return
        if isinstance(event, Order):
            self.orders[event.id] += 1
        elif isinstance(event, Cancel):
            self.cancels += 1

    def _note(self, news: list[News], due: int) -> None:
        for one in news:
            match one:
                case Tentative(step):
                    self.states[step.token] = state_hash(self._follower.follower.floor).hex()
                    made = self._due.pop(step.token, due)
                    self.refused += sum([isinstance(told.report, Refused) for told in step.reports])
                    for trade in step.trades:
                        self.trades[trade.number] = TradeLife(trade, step.token, made)
                        self._last[trade.symbol] = trade
                case Confirmed(trades, token):
                    self.confirmed += len(trades)
                    for trade in trades:
                        life = self.trades[trade.number]
                        life.confirmed_token, life.confirmed_due = token, due
                case ReportDiffers():
                    self.differing += 1
                case Corrected():
                    pass  # A demonstration has no operators who would.
