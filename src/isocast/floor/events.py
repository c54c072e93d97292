"""What enters a floor and what comes out of it: two closed unions.

Prices are whole price units, quantities whole units of a symbol, instants nanoseconds since 1970. An id names an order,
an offer, a lot or a bid; those of one account rise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from isocast.terms.market import Side

__all__ = [
    "AuctionKind",
    "Bid",
    "Cancel",
    "Cancelled",
    "Commit",
    "Crossing",
    "Directory",
    "Event",
    "Expired",
    "Forfeited",
    "Indicative",
    "Lot",
    "MarketKind",
    "Order",
    "OwnRule",
    "Phase",
    "PriceRule",
    "Refusal",
    "Refused",
    "Replace",
    "Replaced",
    "Report",
    "Reveal",
    "Schedule",
    "Share",
    "Status",
    "Take",
    "Trade",
    "Unsold",
    "Wake",
]


class Phase(StrEnum):
    """What a symbol allows."""

    CLOSED = "closed"
    """Cancels only."""
    PRE_OPEN = "pre-open"
    """A call: orders rest, nothing trades, and an auction follows."""
    OPEN = "open"
    """Trading: continuous, or an auction after every token."""
    CLOSING = "closing"
    """A call before the closing auction."""
    HALTED = "halted"
    """Cancels only, until a STATUS."""
    PAUSE = "pause"
    """A call after a trade would have left the band; it ends by itself."""

    @property
    def is_call(self) -> bool:
        """Whether orders are collected for an auction."""
        return self in (Phase.PRE_OPEN, Phase.CLOSING, Phase.PAUSE)

    @property
    def takes_orders(self) -> bool:
        """Whether anything but a cancel may enter."""
        return self is Phase.OPEN or self.is_call


class MarketKind(StrEnum):
    """How a symbol trades while it is open."""

    CONTINUOUS = "continuous"
    BATCH = "batch"


class PriceRule(StrEnum):
    """Whose price a trade gets (`rules.trade_price`)."""

    RESTING = "resting"
    BUYER = "buyer"
    SELLER = "seller"
    MIDPOINT = "midpoint"


class OwnRule(StrEnum):
    """What happens where an order meets one of its own owner's."""

    CANCEL_NEWEST = "cancel-newest"
    """What is left of the incoming order goes."""
    CANCEL_OLDEST = "cancel-oldest"
    """The waiting order goes, and the incoming one goes on."""
    BOTH = "both"
    """Both go."""
    NONE = "none"
    """They trade, and the trade says so."""


class Share(StrEnum):
    """Who fills at the last price level of an auction."""

    TIME = "time"
    PRO_RATA = "pro-rata"


class Crossing(StrEnum):
    """The auction of the day that an order is for, and for nothing else."""

    OPEN = "open"
    CLOSE = "close"


class AuctionKind(StrEnum):
    """How a lot is sold."""

    SECOND_PRICE = "second-price"
    DUTCH = "dutch"


class Refusal(StrEnum):
    """Why a floor refuses an event. An order is tested in the order of the first eight, and the first is given."""

    UNKNOWN_SYMBOL = "unknown symbol"
    DUPLICATE_ID = "duplicate id"
    """Ids of an account rise: this one has been used, or passed by."""
    FLAGS = "flags"
    """They exclude each other."""
    WRONG_PHASE = "wrong phase"
    LOT = "lot"
    """A quantity that is not above zero, or not of whole lots."""
    TICK = "tick"
    """A price or a trigger that is not above zero, or not of whole ticks."""
    COLLAR = "collar"
    """Too far on the aggressive side of the reference."""
    WOULD_TRADE = "would trade"
    """A post-only order that meets one."""
    UNKNOWN_ORDER = "unknown order"
    """There is none of that id, or it is somebody else's."""
    OWN = "own"
    """Nobody takes his own offer, or bids for his own lot."""
    TOO_LATE = "too late"
    """The order's own deadline for entering is over."""
    PRICE = "price"
    """A Dutch clock stands above the bid's ceiling."""
    COMMITMENT = "commitment"
    """What is revealed does not fit what was committed to, or exceeds its ceiling."""


# What enters --------------------------------------------------------------------------------------------------------


class Directory(NamedTuple):
    """A symbol exists, with its rules; for one that exists, its rules change and its phase stays."""

    symbol: str
    tick: int = 1
    lot: int = 1
    market: MarketKind = MarketKind.CONTINUOUS
    price_rule: PriceRule = PriceRule.RESTING
    own_rule: OwnRule = OwnRule.CANCEL_NEWEST
    share: Share = Share.TIME
    collar_bp: int = 0
    """How far from the reference a price may be on its aggressive side, in basis points; 0: anywhere."""
    band_bp: int = 0
    """How far from the reference a trade may be before the symbol pauses, in basis points; 0: anywhere."""
    pause_ns: int = 0
    reference: int | None = None
    """Until the first trade."""
    phase: Phase = Phase.CLOSED


class Status(NamedTuple):
    """A symbol, or without one the whole floor, goes into a phase."""

    symbol: str | None
    phase: Phase


class Schedule(NamedTuple):
    """The day's changes of phase, for all symbols: each at the first token with its T_t or a later one.

    It takes the place of the one before. What is due already happens at once, one change after the other. A symbol that
    is halted stays so.
    """

    changes: tuple[tuple[int, Phase], ...]
    """Instants, ascending, and phases."""


class Wake(NamedTuple):
    """Nothing but a token of the floor: what its instant makes due happens."""


class Order(NamedTuple):
    """An order is entered."""

    id: int
    account: int
    symbol: str
    side: Side
    quantity: int
    price: int = 0
    """The limit; of a market order its protection price, 0: none."""
    owner: int = 0
    """A broker's customer; own orders are those of one account and one owner."""
    is_market: bool = False
    is_immediate: bool = False
    """What does not trade at once is cancelled (IOC)."""
    is_all: bool = False
    """With `is_immediate`: all of it or nothing (FOK)."""
    is_post_only: bool = False
    is_day: bool = False
    """Expires when its symbol closes."""
    is_offer: bool = False
    """Open to all exchanges, for the first TAKE."""
    trigger: int | None = None
    """A stop waits for a trade at this price, or beyond it."""
    deadline: int | None = None
    """Of T_t: an order that enters later is refused."""
    until: int | None = None
    """Expires at the first token with this T_t or a later one."""
    at: Crossing | None = None
    """Only in the opening auction, or only in the closing one; what does not trade there expires."""
    display: int = 0
    """An iceberg shows so much at a time, and each further part goes behind what waits at its price; 0: all."""

    @property
    def is_stop(self) -> bool:
        """Whether it waits outside the book first."""
        return self.trigger is not None


class Cancel(NamedTuple):
    """An order, an offer, a lot or a bid shrinks by `quantity`, or goes when that is 0."""

    id: int
    account: int
    quantity: int = 0


class Replace(NamedTuple):
    """An order gets another total, price or trigger; None: as it is."""

    id: int
    account: int
    quantity: int | None = None
    """The new total, what is filled included: a replace that comes too late cannot overfill."""
    price: int | None = None
    trigger: int | None = None


class Lot(NamedTuple):
    """A seller opens a lot."""

    id: int
    account: int
    symbol: str
    auction: AuctionKind
    quantity: int
    reserve: int
    """The lowest price of a unit."""
    closes_at: int = 0
    """Second price: commitments count before it, reveals from it on."""
    window_ns: int = 0
    forfeit: int = 0
    """Money that an unrevealed bid loses to the seller."""
    start: int = 0
    """Dutch: the first price."""
    step: int = 0
    """Dutch: by how much the price falls with every token."""


class Commit(NamedTuple):
    """A sealed bid: nobody can read its price before it is revealed."""

    id: int
    account: int
    lot: int
    ceiling: int
    """In the clear, so that the deposit tells nobody the price."""
    digest: bytes


class Reveal(NamedTuple):
    """A sealed bid is opened."""

    id: int
    account: int
    price: int
    nonce: bytes


class Bid(NamedTuple):
    """Whoever calls first has it at the price on the Dutch clock."""

    id: int
    account: int
    lot: int
    quantity: int
    ceiling: int


class Take(NamedTuple):
    """An exchange takes an open offer, or what is left of it."""

    id: int
    account: int
    offer: int
    quantity: int


Event: TypeAlias = Directory | Status | Schedule | Wake | Order | Cancel | Replace | Lot | Commit | Reveal | Bid | Take


# What comes out -----------------------------------------------------------------------------------------------------


class Trade(NamedTuple):
    """Two have traded: tentative until all receivers have its report."""

    number: int
    """From 1, over all symbols of the floor."""
    symbol: str
    price: int
    quantity: int
    buy: int
    """Id of the order, bid, offer or TAKE that buys."""
    sell: int
    is_own: bool = False
    """Both are one owner's."""
    is_auction: bool = False
    """At the uniform price of an auction."""
    is_off_book: bool = False
    """Of a lot or an open offer: it moves no reference and wakes no stop."""


class Refused(NamedTuple):
    """An event changes nothing."""

    id: int
    reason: Refusal


class Cancelled(NamedTuple):
    """So much of an order goes without a trade."""

    id: int
    quantity: int


class Expired(NamedTuple):
    """The day, the date or the auction is over for what is left of an order."""

    id: int
    quantity: int


class Replaced(NamedTuple):
    """An order has a new total."""

    id: int
    total: int


class Unsold(NamedTuple):
    """A lot ends with so much of it left."""

    id: int
    quantity: int


class Forfeited(NamedTuple):
    """A sealed bid was not revealed: so much of its deposit goes to the seller."""

    id: int
    money: int


class Indicative(NamedTuple):
    """What an auction would do now; the price is None where nothing would trade."""

    symbol: str
    price: int | None
    volume: int
    surplus: int
    """Buys that would be left at that price; negative: sells."""


Report: TypeAlias = Trade | Refused | Cancelled | Expired | Replaced | Unsold | Forfeited | Indicative
