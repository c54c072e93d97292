"""What traders say to a gateway, what they hear, and the one interface behind every way in.

FIX, HTTPS and Python clients translate to and from these; none of them knows the books, the database or the market, so
that one order means the same on all of them. Prices are whole price units (10⁻⁴ of the currency), quantities whole
units of a symbol, instants nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from isocast.orders.needs import Side

__all__ = [
    "CLIENT_ID_MAX",
    "BalanceLine",
    "BidRequest",
    "CancelRequest",
    "Desk",
    "GatewayStatus",
    "Lifetime",
    "Login",
    "LotKind",
    "LotLine",
    "LotRequest",
    "NewOrder",
    "OfferLine",
    "OrderKind",
    "OrderStatus",
    "Reason",
    "ReplaceRequest",
    "ReportKind",
    "RevealRequest",
    "Scope",
    "SealedBidRequest",
    "SymbolTerms",
    "TakeRequest",
    "Taken",
    "TradeReport",
    "TradingRequest",
    "Unchanged",
]

CLIENT_ID_MAX = 64
"""Printable ASCII characters of a trader's own id."""


class OrderKind(StrEnum):
    """How an order finds its price."""

    LIMIT = "limit"
    MARKET = "market"
    STOP = "stop"
    """Becomes a market order when a trade reaches its trigger."""
    STOP_LIMIT = "stop-limit"
    OFFER = "offer"
    """Open to all, in no book: for the first who takes it."""
    TAKE = "take"
    """Of an open offer, at its price."""
    LOT = "lot"
    """A sale by auction."""
    SEALED_BID = "sealed bid"
    """For a lot at the second price."""
    BID = "bid"
    """For a lot on a Dutch clock."""


class LotKind(StrEnum):
    """How a lot is sold."""

    SECOND_PRICE = "second-price"
    DUTCH = "dutch"


class Lifetime(StrEnum):
    """How long an order lives (FIX: TimeInForce)."""

    DAY = "day"
    UNTIL_CANCELLED = "gtc"
    UNTIL_DATE = "gtd"
    IMMEDIATE = "ioc"
    ALL_OR_NOTHING = "fok"
    OPENING = "open"
    CLOSING = "close"


class NewOrder(NamedTuple):
    """Buy or sell."""

    client_id: str
    """The trader's own, used once and never again by this account, for orders, cancels and replaces alike."""
    symbol: str
    side: Side
    quantity: int
    kind: OrderKind = OrderKind.LIMIT
    price: int | None = None
    """The limit; None for a market order and a stop."""
    trigger: int | None = None
    lifetime: Lifetime = Lifetime.DAY
    until: int | None = None
    """With `Lifetime.UNTIL_DATE`."""
    is_post_only: bool = False
    display: int = 0
    """An iceberg shows so much at a time; 0: all."""
    is_open_offer: bool = False
    """Open to all exchanges, in no book."""
    owner: int = 0
    """A broker's customer, who never trades with himself; 0 for a trader of one's own."""


class Unchanged(NamedTuple):
    """What a change says of its order, or a TAKE of itself, and does not choose: FIX messages say it."""

    symbol: str
    side: Side
    kind: OrderKind | None = None
    lifetime: Lifetime | None = None
    """None, for either: it says nothing of it."""


class CancelRequest(NamedTuple):
    """An order shrinks by `quantity`, or goes when that is 0."""

    client_id: str
    original_id: str
    """The client id of the order, or of the last replace that changed it."""
    quantity: int = 0
    unchanged: Unchanged | None = None


class ReplaceRequest(NamedTuple):
    """An order gets another total, price or trigger; None: as it is."""

    client_id: str
    original_id: str
    quantity: int | None = None
    """The new total, what is filled included."""
    price: int | None = None
    trigger: int | None = None
    unchanged: Unchanged | None = None
    """Where the order is not so, the replace is refused. No part of what is asked: a repeat may leave it out."""


class TakeRequest(NamedTuple):
    """Take an open offer of somebody else, or a part of it: at its price, at once, what is left of it at most."""

    client_id: str
    offer: int
    """Its id in the sequence: an order's."""
    quantity: int
    unchanged: Unchanged | None = None
    """What the offer makes of the TAKE. Where it is another, the TAKE is refused. No part of what is asked."""


class LotRequest(NamedTuple):
    """Open a lot for sale: sealed bids and the second price, or a Dutch clock."""

    client_id: str
    symbol: str
    auction: LotKind
    quantity: int
    reserve: int
    """The lowest price of a unit."""
    closes_at: int = 0
    """Second price: bids count before it, and are revealed from it on."""
    window_ns: int = 0
    """Second price: how long they may be revealed."""
    forfeit: int = 0
    """Second price: money that a bid loses to the seller if it is not revealed."""
    start: int = 0
    """Dutch: the first price."""
    step: int = 0
    """Dutch: by how much it falls with every token."""


class SealedBidRequest(NamedTuple):
    """Bid for a lot without saying the price: a hash of it, and a ceiling at which the money is reserved.

    A second bid of an account takes the place of its first.
    """

    client_id: str
    lot: int
    ceiling: int
    commitment: str
    """BLAKE2b-256 of price, nonce, account and lot, in hexadecimal."""


class RevealRequest(NamedTuple):
    """Open a sealed bid, once its lot is closed."""

    client_id: str
    original_id: str
    """The client id of the bid."""
    price: int
    nonce: str
    """16 bytes in hexadecimal."""


class BidRequest(NamedTuple):
    """Call at a Dutch clock: so much, if the price is not above the ceiling."""

    client_id: str
    lot: int
    quantity: int
    ceiling: int


TradingRequest: TypeAlias = (
    NewOrder | CancelRequest | ReplaceRequest | TakeRequest | LotRequest | SealedBidRequest | RevealRequest | BidRequest
)


class OrderStatus(StrEnum):
    """Where an order is in its life."""

    PENDING = "pending"
    """Reserved and published; not in the released sequence yet."""
    WORKING = "working"
    PART_FILLED = "part filled"
    FILLED = "filled"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REFUSED = "refused"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to it any more."""
        return self in _FINAL


_FINAL: Final = frozenset((OrderStatus.FILLED, OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUSED))


class ReportKind(StrEnum):
    """Why a trader hears of an order."""

    ACCEPTED = "accepted"
    """Reserved, durable, and on its way into the sequence."""
    WORKING = "working"
    """The released sequence has it, and the floor took it."""
    REFUSED = "refused"
    """By the gateway or by the floor: `reason` says why."""
    TRADED = "traded"
    """Tentative: the receivers agree, and not all of them are known to have it."""
    CONFIRMED = "confirmed"
    """A trade that was tentative is final, and is settled."""
    BUSTED = "busted"
    """A tentative trade is void: the sequence lost the token that made it. The order is as it was before, and what it
    needs stays reserved until the sequence decides it again."""
    CORRECTED = "corrected"
    """Two operators have corrected a confirmed trade, and it is settled so: `last_quantity` and `last_price` are the
    right ones, 0 where the trade is void. The order is as it was."""
    RESTORED = "restored"
    """The same for an order that had not traded in what was lost."""
    CANCEL_PENDING = "cancel pending"
    REPLACE_PENDING = "replace pending"
    REVEAL_PENDING = "reveal pending"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    REVEALED = "revealed"
    """A sealed bid is open, and counts."""
    EXPIRED = "expired"
    CHANGE_REFUSED = "change refused"
    """A cancel or a replace is refused; the order is as it was."""
    STATUS = "status"
    """Nothing has changed: somebody asked."""


class Reason(StrEnum):
    """Why something is refused. The gateway's own first, in the order in which they are tested; then the floor's."""

    MALFORMED = "malformed"
    """A field is missing, contradicts another, or is out of range; the text names it."""
    CLIENT_ID_USED = "client id used"
    """The same id was used for something else."""
    UNKNOWN_SYMBOL = "unknown symbol"
    UNKNOWN_ORDER = "unknown order"
    """There is none of that id, or it has ended, or it is somebody else's."""
    QUANTITY = "quantity"
    """Beyond the largest of one order, or not above zero."""
    VALUE = "value"
    COLLAR = "collar"
    RATE = "rate"
    """Too many messages a second."""
    OPEN_ORDERS = "open orders"
    BLOCKED = "blocked"
    """The kill switch of the account, its broker or the gateway, or a frozen account."""
    REFERENCE = "reference"
    """A market order while the symbol has no reference price."""
    FUNDS = "funds"
    SHARES = "shares"
    UNAVAILABLE = "unavailable"
    """The gateway cannot reserve or publish now; the same request may be sent again."""
    DUPLICATE_ID = "duplicate id"
    FLAGS = "flags"
    WRONG_PHASE = "wrong phase"
    LOT = "lot"
    TICK = "tick"
    WOULD_TRADE = "would trade"
    OWN = "own"
    TOO_LATE = "too late"
    PRICE = "price"


class TradeReport(NamedTuple):
    """One step of an order's life, told once, in order, also after a reconnect (FIX: ExecutionReport)."""

    number: int
    """From 1, without gaps, for each account: where a client goes on after it was away. 0: an answer that no reconnect
    repeats (`ReportKind.STATUS`, and refusals that left no trace)."""
    account: int
    kind: ReportKind
    status: OrderStatus
    client_id: str
    """Of the request that is answered; of the order where nobody asked."""
    original_id: str
    """Of a cancel or a replace: the order that it meant."""
    order: int
    """The order's id in the sequence: account · 2³² + a number that rises; 0 for one that never got there."""
    symbol: str
    side: Side
    kind_of_order: OrderKind
    lifetime: Lifetime
    quantity: int
    """Of the whole order."""
    filled: int
    filled_value: int
    """The sum of price · quantity of what is filled."""
    left: int
    price: int | None
    trigger: int | None
    at: int
    """T_t of the token that made it so; of the gateway's own answers its clock."""
    sequence: int = 0
    """Of the message of the sequence that made it so; 0: none."""
    trade: int = 0
    """The floor's number of a trade."""
    last_quantity: int = 0
    last_price: int = 0
    reason: Reason | None = None
    text: str = ""


class Scope(StrEnum):
    """What a login or an API token may do."""

    READ = "read"
    TRADE = "trade"


class Login(NamedTuple):
    """Who came in."""

    account: int
    name: str
    scopes: frozenset[Scope]
    session: str
    """Names this session: with cancel on disconnect its orders end with it."""


class BalanceLine(NamedTuple):
    """What an account has of an asset."""

    asset: str
    available: int
    reserved: int


class SymbolTerms(NamedTuple):
    """What a trader has to know of a symbol."""

    symbol: str
    currency: str
    tick: int
    lot: int
    phase: str
    reference: int | None


class Taken(NamedTuple):
    """A part of an open offer that somebody took."""

    account: int
    quantity: int
    trade: int


class OfferLine(NamedTuple):
    """An open offer, as everybody sees it."""

    offer: int
    account: int
    symbol: str
    side: Side
    """Of the offerer: who takes an offer to sell buys."""
    price: int
    quantity: int
    left: int
    taken: tuple[Taken, ...]
    """By whom, in the order of the sequence."""


class LotLine(NamedTuple):
    """A lot that is for sale, as everybody sees it."""

    lot: int
    account: int
    symbol: str
    auction: LotKind
    quantity: int
    left: int
    reserve: int
    closes_at: int
    window_ns: int
    forfeit: int
    bids: int
    """Sealed bids so far."""
    price: int | None
    """On a Dutch clock, with the newest token that the gateway has heard."""
    step: int


class GatewayStatus(NamedTuple):
    """How a gateway is, for whoever trades there or looks after it."""

    floor: str
    token: int
    """Of the sequence, up to which everything is in its books."""
    confirmed: int
    """All trades up to this number are confirmed."""
    busted: int
    """Trades of its accounts that became void since it started."""
    alarms: tuple[str, ...]
    """What somebody should look at; empty: nothing."""


class Desk(Protocol):
    """A gateway, as its ways in see it. Every method that is async may wait for the disk or the market."""

    async def log_in(self, name: str, password: str, address: str) -> Login | None:
        """Who this is; None, after the same time, for an unknown name and for a wrong password, or too many tries.

        LedgerError, here and below, while the books cannot be asked.
        """

    async def log_in_by_token(self, token: str, address: str) -> Login | None:
        """The same for an API token or a session token; LedgerError while the database cannot be asked."""

    async def log_out(self, login: Login, *, cancels: bool) -> None:
        """A session ends; with `cancels` all live orders that it entered are cancelled after its grace."""

    async def submit(self, login: Login, request: TradingRequest) -> TradeReport:
        """The answer, once the order is reserved, durable and published; or why it is refused.

        The same request again gets the same answer again (idempotent by client id).
        """

    async def submit_many(self, login: Login, requests: Sequence[TradingRequest]) -> Sequence[TradeReport]:
        """The answer to each request, in their order: each is judged by itself, and refuses no other.

        Sent again as a whole or in part, each gets its first answer again.
        """

    async def cancel_all(self, login: Login, client_id: str, symbol: str | None = None) -> int:
        """Cancel all live orders of the account, or those of a symbol: how many.

        Those asked for before are among them, and those asked for behind are not. The same id again cancels no
        others, and gets the same number.
        """

    async def order(self, login: Login, client_id: str) -> TradeReport | None:
        """An order of the account as it is now (`ReportKind.STATUS`), also one that was asked for just before."""

    async def is_replace(self, login: Login, client_id: str) -> bool:
        """Whether a request of the account was a replace; not, where it was something else, or there was none."""

    async def orders(self, login: Login, *, live: bool = True, limit: int = 1000) -> Sequence[TradeReport]:
        """The account's orders as they are now, newest last."""

    async def reports(self, login: Login, after: int, limit: int = 1000) -> Sequence[TradeReport]:
        """What the account was told after the report of this number, in order."""

    async def newest_report(self, login: Login) -> int:
        """The number of the last report that the account was told; 0: none yet."""

    def watch(self, login: Login, after: int) -> AsyncIterator[TradeReport]:
        """All reports after this number, those to come too, until the iterator is closed; a slow reader loses none."""

    async def balances(self, login: Login) -> Sequence[BalanceLine]:
        """What the account has."""

    async def symbols(self) -> Sequence[SymbolTerms]:
        """What can be traded."""

    async def offers(self) -> Sequence[OfferLine]:
        """Open offers of all gateways that somebody can take."""

    async def lots(self) -> Sequence[LotLine]:
        """Lots of all gateways that are for sale."""

    async def status(self) -> GatewayStatus:
        """How the gateway is."""
