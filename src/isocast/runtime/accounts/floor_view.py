"""The floor as a gateway sees it: the released sequence in, and what became of each event out.

A gateway runs the floor's function like any receiver (settlement 13). The messages of a token are kept until the token
is over; then it is applied as a whole, event by event in the order in which they enter, so that each report is known to
answer the event that made it.

An arbiter's report is believed where the state and the trades that it names are this view's own after the same token.
A correction is judged before the events and reports of its token (`floor.corrections`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from isocast.floor.codec import floor_topic
from isocast.floor.confirming import RESULTS_KEPT, Comparison, OwnResult, ReportParts
from isocast.floor.corrections import Correction, Corrections, correction_topic
from isocast.floor.events import Bid, Event, Report, Take, Trade
from isocast.floor.fast import FastFloor
from isocast.floor.following import REPORT_EVERY, Entering, FloorMessage, insist_on_key, read_token
from isocast.floor.machine import Floor, SymbolState
from isocast.floor.reporting import FloorReport, report_topic
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.snapshot import floor_of, fold, rows_of, unfold
from isocast.floor.state import state_hash
from isocast.orders.desk import LotKind, LotLine, OfferLine, Taken
from isocast.orders.needs import Side
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import Side as MarketSide

__all__ = ["EventOutcome", "FloorView", "TokenOutcome", "tick_topic"]

_DIGEST_BYTES: Final = 16


def tick_topic(floor: str) -> str:
    """Of messages that say no more than that the token before theirs is over."""
    return f"floor/{floor}/tick"


class EventOutcome(NamedTuple):
    """One event and what came of it."""

    sequence: int
    event: Event | None
    """None: the token itself made it due, at its beginning or its end."""
    reports: tuple[Report, ...]
    takers: dict[int, int]
    """Of each trade in a book, the order that came to one that rested; auctions and lots have none."""


class TokenOutcome(NamedTuple):
    """A token, applied."""

    token: int
    instant: int
    """T_t."""
    sequence: int
    """Of its last message: a restart goes on behind it."""
    steps: tuple[EventOutcome, ...]
    believed: tuple[FloorReport, ...]
    """Of arbiters, about earlier tokens."""
    corrections: tuple[Correction, ...] = ()
    """That count."""
    digest: str = ""
    """Of all that it carried for this floor: another one under the same number is another token."""


def _digest(instant: int, messages: list[FloorMessage]) -> str:
    found = blake2b(instant.to_bytes(8, signed=True), digest_size=_DIGEST_BYTES)
    for message in messages:
        for part in (message.topic.encode(), message.payload, message.shuffle_key):
            found.update(len(part).to_bytes(4))
            found.update(part)
    return found.hexdigest()


class FloorView:
    """One floor, followed."""

    def __init__(self, code: str) -> None:
        """A floor of this code of which nothing was heard."""
        self.code = code
        self.topics = floor_topic(code), report_topic(code), tick_topic(code), correction_topic(code)
        self.floor: Floor = FastFloor()
        self.unreadable = 0
        """Messages of the floor that are no event: everybody drops the same."""
        self.differing = 0
        """Arbiters' reports that name another state, or other trades: nothing in them is believed. And tokens of which
        lines told two keys. An alarm."""
        self.confirmed = 0
        """All trades up to this number are, by what arbiters have said here."""
        self.corrections = Corrections()
        self.refused_corrections = 0
        """Corrections of the sequence that change nothing; since this program started."""
        self._steps = 0
        self._parts = ReportParts()
        self.results: dict[int, OwnResult] = {}
        """Of tokens that arbiters report."""
        self._token: int | None = None
        self._instant = 0
        self.newest = 0
        """The last token that was applied, with an event of the floor or without."""
        self._kept: list[FloorMessage] = []
        self.taken: dict[int, list[Taken]] = {}
        """Of open offers: by whom, in the order of the sequence."""

    # The sequence -----------------------------------------------------------------------------------------------

    def hear(self, token: int, instant: int, message: FloorMessage) -> TokenOutcome | None:
        """The next message; the outcome of the token before, where this one says that it is over.

        LocalProtocolError for a message of a token that was over already, and for one without its token's key.
        """
        if token <= self.newest or (self._token is not None and token < self._token):
            raise LocalProtocolError(f"a message of token {token} after one of {self._token or self.newest}")
        if message.topic == self.topics[0]:
            insist_on_key(token, message)
            # Somebody's line lies. What comes of this token is undone when the sequence is heard again.
            self.differing += token == self._token and self._kept[0].shuffle_key != message.shuffle_key
        outcome = self.finish() if self._token is not None and token > self._token else None
        if message.topic in self.topics:
            self._token, self._instant = token, instant
            self._kept.append(message)
        return outcome

    @property
    def open_token(self) -> int | None:
        """The token whose messages are kept until it is over."""
        return self._token

    def finish(self) -> TokenOutcome | None:
        """The token that has begun is over: what came of it; None where none has begun."""
        if self._token is None:
            return None
        token, instant, kept = self._token, self._instant, self._kept
        self._token, self._kept, self.newest = None, [], token
        believed: list[FloorReport] = []
        corrections = self._corrected(instant, [one.payload for one in kept if one.topic == self.topics[3]])
        for message in kept:
            if message.topic == self.topics[1]:
                report = self._parts.take(message.payload, message.site)
                believed += [report] if report is not None and self._is_believed(report) else []
        ours = [message for message in kept if message.topic == self.topics[0]]
        events, strange = read_token(ours)
        self.unreadable += strange
        steps = self._applied(token, instant, events) if ours else ()
        highest = self.floor.next_trade - 1
        self.confirmed = max([self.confirmed, *(min(report.confirmed, highest) for report in believed)])
        digest = _digest(instant, kept)
        return TokenOutcome(token, instant, kept[-1].sequence, steps, tuple(believed), corrections, digest)

    def _corrected(self, instant: int, payloads: list[bytes]) -> tuple[Correction, ...]:
        heard = [self.corrections.hear(payload, self.floor, self.confirmed, instant) for payload in payloads]
        found = tuple([one.correction for one in heard if one is not None and one.fault is None])
        self.refused_corrections += len(payloads) - len(found)
        return found

    def _is_believed(self, report: FloorReport) -> bool:
        own = self.results.get(report.token)
        if own is None:
            oldest = next(iter(self.results), self.newest)
            self.differing += report.token >= oldest
            return False
        is_equal = own.compare(report) is not Comparison.DIFFERENT
        self.differing += not is_equal
        return is_equal

    def _applied(self, token: int, instant: int, events: list[Entering]) -> tuple[EventOutcome, ...]:
        steps = [self._step(0, None, self.floor.begin(token, instant))]
        steps += [self._step(sequence, event, self.floor.apply(event)) for _, sequence, event in events]
        for step in steps:
            self._note_taken(step)
        steps.append(self._step(0, None, self.floor.end()))
        self._steps += 1
        trades = tuple([report for step in steps for report in step.reports if isinstance(report, Trade)])
        if trades or not self._steps % REPORT_EVERY:
            self.results[token] = OwnResult(token, state_hash(self.floor), trades)
            if len(self.results) > RESULTS_KEPT:
                del self.results[next(iter(self.results))]
        return tuple([step for step in steps if step.event is not None or step.reports])

    def _step(self, sequence: int, event: Event | None, reports: list[Report]) -> EventOutcome:
        takers: dict[int, int] = {}
        woken, self.floor.woke = self.floor.woke, []
        incoming = 0 if isinstance(event, Bid) else getattr(event, "id", 0)  # A clock is an auction, too.
        for trade in [report for report in reports if isinstance(report, Trade) and not report.is_auction]:
            stops = [number for number in (trade.buy, trade.sell) if number in woken]
            # A stop that the event woke comes after it; of two the later meets the earlier.
            latest = max(stops, key=woken.index) if stops else incoming
            if latest in (trade.buy, trade.sell):
                takers[trade.number] = latest
        return EventOutcome(sequence, event, tuple(reports), takers)

    def _note_taken(self, step: EventOutcome) -> None:
        """Everybody may know who took what of an offer, for as long as the offer stands."""
        if isinstance(step.event, Take):
            for report in step.reports:
                if isinstance(report, Trade):
                    self.taken.setdefault(step.event.offer, []).append(
                        Taken(step.event.account, report.quantity, report.number)
                    )
        if self.taken.keys() - self.floor.offers.keys():
            self.taken = {offer: parts for offer, parts in self.taken.items() if offer in self.floor.offers}

    # What can be traded -----------------------------------------------------------------------------------------

    def symbol(self, name: str) -> SymbolState | None:
        """A symbol of the floor, as it is now."""
        return self.floor.symbols.get(name)

    def offer_lines(self) -> list[OfferLine]:
        """Open offers, oldest first."""
        return [
            OfferLine(
                number,
                offer.account,
                self.floor.offered[number],
                Side.BUY if offer.side is MarketSide.BUY else Side.SELL,
                offer.price,
                offer.total,
                offer.left,
                tuple(self.taken.get(number, ())),
            )
            for number, offer in self.floor.offers.items()
        ]

    def lot_lines(self) -> list[LotLine]:
        """Lots for sale, oldest first."""
        lines = []
        for number, one in self.floor.lots.items():
            lot, is_dutch = one.lot, isinstance(one, DutchLot)
            lines.append(
                LotLine(
                    number,
                    lot.account,
                    lot.symbol,
                    LotKind(lot.auction.value),
                    lot.quantity,
                    one.left if isinstance(one, DutchLot) else lot.quantity,
                    lot.reserve,
                    lot.closes_at,
                    lot.window_ns,
                    lot.forfeit,
                    0 if isinstance(one, DutchLot) else len(one.bids),
                    one.price(self.newest) if isinstance(one, DutchLot) else None,
                    lot.step if is_dutch else 0,
                )
            )
        return lines

    # Restart ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[bytes, bytes]:
        """The floor between two tokens, and the hash of its state."""
        results = [[one.token, one.state.hex(), [list(trade) for trade in one.trades]] for one in self.results.values()]
        rows = {
            "floor": rows_of(self.floor),
            "steps": self._steps,
            "results": results,
            "parts": self._parts.rows(),
            "taken": [[offer, [list(part) for part in parts]] for offer, parts in self.taken.items()],
            "confirmed": self.confirmed,
            "corrections": self.corrections.rows(),
        }
        return fold(rows), state_hash(self.floor)

    def restore(self, body: bytes, token: int, state: bytes) -> None:
        """Go on from a snapshot; RemoteProtocolError for one that gives another state."""
        rows = unfold(body)
        try:
            floor = floor_of(rows["floor"], FastFloor)
            self._steps, self._parts = rows["steps"], ReportParts.from_rows(rows["parts"])
            for at, digest, trades in rows["results"]:
                self.results[at] = OwnResult(at, bytes.fromhex(digest), tuple([Trade(*one) for one in trades]))
            self.taken = {offer: [Taken(*part) for part in parts] for offer, parts in rows.get("taken", ())}
            self.confirmed = rows.get("confirmed", 0)  # Without it, the next report says so.
            self.corrections = Corrections.from_rows(rows.get("corrections", [0, []]))
        except (KeyError, TypeError, ValueError) as reason:
            raise RemoteProtocolError("a snapshot of a floor with rows of another version") from reason
        if state_hash(floor) != state:
            raise RemoteProtocolError("a snapshot of the floor gives another state than was noted with it")
        self.floor, self.newest = floor, token
