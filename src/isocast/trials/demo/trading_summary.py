"""What the traders of a show came to, from journals and books alone, not from what processes say.

The floor is computed again from every receiver's journal and compared with what its arbiters reported; each gateway's
books are added up; and both are compared with each other: an accepted order is in the sequence once (T5), a confirmed
trade is posted once at each of its two gateways and no other trade is (T2), and what passed between them is zero (T3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import NamedTuple

from isocast.checks.skew import Quantiles
from isocast.floor.arbiter import Arbiter
from isocast.floor.state import state_hash
from isocast.orders.accounts import amount_text, cash, gateway_of, shares
from isocast.orders.desk import ReportKind
from isocast.runtime.disk.floor_journal import FloorVerdict, JournalFloor
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.floors import FloorTable, floor_state_file
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.errors import IsocastError, JournalError, RemoteProtocolError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.trials.demo.books import GatewayBooks, read_books
from isocast.trials.demo.floor_record import FloorRecord, TradeLife
from isocast.trials.demo.trading import GATEWAYS
from isocast.trials.evidence import journal_of

__all__ = ["FloorProof", "TraderLine", "TradingSummary", "judge_trading", "read_floor_proof", "sum_up_trading"]

_TOLD_MAX = 3
"""Faults of one kind that are told; the others are like them."""


# What is read -------------------------------------------------------------------------------------


class SharedFloorState(NamedTuple):
    """The last state of the floor that a receiver knows all others to have."""

    token: int
    state: str


@dataclass(slots=True)
class FloorProof:
    """The floor as all journals give it."""

    record: FloorRecord
    """From the longest journal."""
    verdicts: dict[str, FloorVerdict]
    """Of each receiver's journal."""
    sites: dict[str, SharedFloorState]
    """What each primary receiver kept beside its journal."""
    faults: list[str]
    """What could not be read."""


def read_floor_proof(market: Market, table: FloorTable) -> Generator[None, None, FloorProof]:
    """Compute the floor from every receiver's journal, and read what each receiver kept of it, journal by journal."""
    proof = FloorProof(FloorRecord(table.code), {}, {}, [])
    longest = 0
    for plan in market.receivers:
        yield
        try:
            journal = JournalFloor(journal_of(market, plan.name), table.code)
            proof.verdicts[plan.name] = journal.verify()
            if journal.next_sequence > longest:
                longest, proof.record = journal.next_sequence, _record(market, plan.name, table.code)
        except JournalError as reason:
            proof.faults.append(f"{plan.name}: the floor {table.code} cannot be computed: {reason}")
    for plan in market.by_role(NodeRole.PRIMARY_RECEIVER):
        file = floor_state_file(market.directory_of(plan.name), table.code)
        try:
            floor = Arbiter(table.code, plan.node, file.read_bytes()).floor.floor
            proof.sites[plan.name] = SharedFloorState(floor.token, state_hash(floor).hex())
        except FileNotFoundError:
            continue  # It has agreed on nothing yet.
        except (OSError, RemoteProtocolError) as reason:
            proof.faults.append(f"{plan.name}: {file.name} cannot be read: {reason}")
    return proof


def _record(market: Market, name: str, code: str) -> FloorRecord:
    record = FloorRecord(code)
    for block in read_blocks(journal_of(market, name)):
        record.take(block)
    return record


# What it comes to ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TraderLine:
    """One trader at the end."""

    city: str
    gateway: str
    orders: int
    """That its gateway took."""
    refused: int
    """Requests that its gateway or the floor refused."""
    trades: int
    """In which it was buyer or seller."""
    confirmed: int
    """Of those, final and settled."""
    quantity: int
    """Shares that changed hands in them."""


@dataclass(frozen=True, slots=True)
class TradingSummary:
    """Everything, for people and programs."""

    floor: str
    traders: tuple[TraderLine, ...]
    orders: int
    """That gateways took."""
    sequenced: int
    """That are in the sequence."""
    cancels: int
    trades: int
    confirmed: int
    busted: int
    value: int
    """Of all trades, in price units of the currency."""
    currency: str
    to_tentative: Quantiles
    """From the moment when the gateway took the order that came to one that rested, to the release of the token that
    has it: there the receivers compute the trade."""
    to_confirmed: Quantiles
    """From that release to the release of the token which says that every receiver holds the report."""
    tokens_to_confirmed: float
    """The same in tokens, the median."""
    settled: int
    """Legs of trades that gateways have posted."""
    unsettled: int
    """Legs of confirmed trades that they have not."""
    clearing: dict[str, int]
    """Over all gateways, where it is not zero."""
    reserved: dict[str, int]
    """What accounts have bound at the end."""
    agreeing: int
    """Receivers whose journal gives the same state, and every report that their arbiters made."""
    receivers: int
    state: str
    agreed: dict[str, int]
    """For each primary receiver, the last token whose state it knew to be everybody's."""
    faults: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """For programs."""
        values = asdict(self) | {"traders": [asdict(line) for line in self.traders], "faults": list(self.faults)}
        for name in ("to_tentative", "to_confirmed"):
            found: Quantiles = getattr(self, name)
            values[name] = {
                "count": found.count,
                "p50_s": round(found.p50_ns / SECOND, 6),
                "p99_s": round(found.p99_ns / SECOND, 6),
                "max_s": round(found.max_ns / SECOND, 6),
            }
        return values


def judge_trading(
    market: Market, *, is_complete: bool, alarms: Sequence[str] = ()
) -> Generator[None, None, TradingSummary]:
    """Read journals and books, one after the other, so that an event loop gets its turn between two of them.

    `is_complete`: everybody had time to settle. `alarms` are what receivers raised.
    """
    table = market.floors[0]
    proof = yield from read_floor_proof(market, table)
    books = []
    for gateway in GATEWAYS:
        yield
        try:
            books.append(read_books(market, gateway))
        except IsocastError as reason:
            proof.faults.append(f"{gateway.name}: its books cannot be read: {reason}")
    proof.faults += alarms
    return sum_up_trading(proof, books, table.currency, is_complete=is_complete)


def sum_up_trading(
    proof: FloorProof, books: Sequence[GatewayBooks], currency: str, *, is_complete: bool
) -> TradingSummary:
    """Put everything together, and say what is wrong."""
    record = proof.record
    trades = list(record.trades.values())
    confirmed = [life for life in trades if life.is_confirmed]
    legs = _Legs(record.code, books, currency)
    agreeing = [name for name, verdict in proof.verdicts.items() if _agrees(record, verdict)]
    entered = {order.id: order.entered_ns for one in books for order in one.orders}
    clearing: Counter[str] = Counter()
    for one in books:
        clearing.update(one.audit.clearing)
    faults = [
        *proof.faults,
        *_floor_faults(proof),
        *_order_faults(record, books, is_complete=is_complete),
        *legs.faults(record, is_complete=is_complete),
        *_books_faults(books, is_settled=not legs.missing(confirmed)),
    ]
    return TradingSummary(
        floor=record.code,
        traders=_lines(trades, books),
        orders=sum([len(one.orders) for one in books]),
        sequenced=len(record.orders),
        cancels=record.cancels,
        trades=len(trades),
        confirmed=len(confirmed),
        busted=sum([one.told(ReportKind.BUSTED) for one in books]),
        value=sum([life.trade.price * life.trade.quantity for life in trades]),
        currency=currency,
        to_tentative=Quantiles.of(_waits(trades, entered)),
        to_confirmed=Quantiles.of([life.confirmed_due - life.due for life in confirmed]),
        tokens_to_confirmed=median([life.confirmed_token - life.token for life in confirmed]) if confirmed else 0.0,
        settled=sum([len(one.settled) for one in books]),
        unsettled=len(legs.missing(confirmed)),
        clearing={asset: amount for asset, amount in sorted(clearing.items()) if amount},
        reserved=_sums([one.reserved for one in books]),
        agreeing=len(agreeing),
        receivers=len(proof.verdicts),
        state=next(reversed(record.states.values())) if record.states else "",
        agreed={name: site.token for name, site in proof.sites.items()},
        faults=tuple(faults),
    )


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return {asset: amount for asset, amount in sorted(total.items()) if amount}


def _waits(trades: Iterable[TradeLife], entered: Mapping[int, int]) -> list[int]:
    """From the later of both orders to the release."""
    sides = [(life, entered.get(life.trade.buy, 0), entered.get(life.trade.sell, 0)) for life in trades]
    return [life.due - max(buy, sell) for life, buy, sell in sides if buy and sell]


def _lines(trades: Sequence[TradeLife], books: Sequence[GatewayBooks]) -> tuple[TraderLine, ...]:
    made: Counter[int] = Counter([order.account for one in books for order in one.orders])
    legs: Counter[int] = Counter()
    quantity: Counter[int] = Counter()
    for life in trades:
        for order in (life.trade.buy, life.trade.sell):
            legs[order >> 32] += 1
            quantity[order >> 32] += life.trade.quantity
    return tuple(
        [
            TraderLine(
                city,
                one.name,
                made[account],
                one.told(ReportKind.REFUSED, account) + one.told(ReportKind.CHANGE_REFUSED, account),
                legs[account],
                one.told(ReportKind.CONFIRMED, account),
                quantity[account],
            )
            for one in books
            for account, city in one.cities.items()
        ]
    )


# What is wrong ------------------------------------------------------------------------------------


def _agrees(record: FloorRecord, verdict: FloorVerdict) -> bool:
    return verdict.is_equal and record.states.get(verdict.token, "") == (verdict.state if verdict.steps else "")


def _floor_faults(proof: FloorProof) -> Iterator[str]:
    """Every journal gives the same floor, every report says so, and every receiver had it (T1)."""
    states = proof.record.states
    for name, verdict in proof.verdicts.items():
        for one in verdict.differences[:_TOLD_MAX]:
            said = f"a report says {one.reported}, its sequence gives {one.here}"
            yield f"{name}: {one.what} of token {one.token}: {said} (T1)"
        if verdict.steps and states.get(verdict.token) != verdict.state:
            yield f"{name}: its journal gives another state of {verdict.floor} after token {verdict.token} (T1)"
    for name, site in proof.sites.items():
        if site.token and states.get(site.token) != site.state:
            code = proof.record.code
            yield f"{name}: its floor {code} had another state after token {site.token} than the sequence gives (T1)"


def _order_faults(record: FloorRecord, books: Sequence[GatewayBooks], *, is_complete: bool) -> Iterator[str]:
    """An accepted order is in the sequence once, and nothing else is there (T5)."""
    for one in books:
        accepted = {order.id for order in one.orders}
        absent = sorted(accepted - set(record.orders))
        if absent and is_complete:
            yield f"{one.name}: {_some(absent)} accepted and in no journal (T5)"
        again = sorted([order for order in accepted if record.orders[order] > 1])
        if again:
            yield f"{one.name}: {_some(again)} more than once in the sequence (T5)"
        own = {gateway_of(account) for account in one.cities}
        strange = sorted([order for order in record.orders if gateway_of(order >> 32) in own and order not in accepted])
        if strange:
            yield f"{one.name}: {_some(strange)} in the sequence, and not in its books (T5)"


def _some(orders: Sequence[int]) -> str:
    more = f" and {len(orders) - 1} more" if len(orders) > 1 else ""
    return f"order {orders[0]}{more}"


def _books_faults(books: Sequence[GatewayBooks], *, is_settled: bool) -> Iterator[str]:
    """Each adds up by itself; all together have what came in (T3)."""
    for one in books:
        yield from [f"{one.name}: {finding}" for finding in one.audit.findings[:_TOLD_MAX]]
        if busted := one.told(ReportKind.BUSTED):
            yield f"{one.name}: {counted(busted, 'trade')} busted, which a majority never allows (T2)"
    if not is_settled:
        return
    given = _sums([one.deposits for one in books])
    has = _sums([one.holdings for one in books])
    for asset in sorted({*given, *has}):
        if given.get(asset, 0) != has.get(asset, 0):
            held, paid = amount_text(asset, has.get(asset, 0)), amount_text(asset, given.get(asset, 0))
            yield f"accounts of all gateways have {held}, and {paid} came in (T3)"


class _Legs:
    """The two sides of each trade, each of which one gateway posts against its `clearing`."""

    def __init__(self, code: str, books: Sequence[GatewayBooks], currency: str) -> None:
        self._code = code
        self._books = books
        self._currency = cash(currency)
        self._by_gateway = {gateway_of(account): one for one in books for account in one.cities}
        self._posted = {one.name: set(one.settled) for one in books}

    def missing(self, confirmed: Iterable[TradeLife]) -> list[tuple[str, int]]:
        """Legs of confirmed trades that nobody has posted: gateway, trade."""
        return [
            (one.name, life.trade.number)
            for life in confirmed
            for side, order in (("buy", life.trade.buy), ("sell", life.trade.sell))
            if (one := self._by_gateway.get(gateway_of(order >> 32))) is not None
            and self._key(life, side) not in self._posted[one.name]
        ]

    def faults(self, record: FloorRecord, *, is_complete: bool) -> Iterator[str]:
        """What is posted is what the sequence confirmed, and passed through clearing as it should."""
        confirmed = [life for life in record.trades.values() if life.is_confirmed]
        for name, number in self.missing(confirmed)[:_TOLD_MAX] if is_complete else ():
            yield f"{name}: trade {number} is confirmed, and it has not settled it (T2)"
        for one in self._books:
            expected, known = self._expected(one, confirmed)
            strange = [key for key in one.settled if key not in known]
            if strange:
                yield f"{one.name}: it settled {strange[0]}, which no journal confirms as its own (T2)"
            has = {asset: amount for asset, amount in one.audit.clearing.items() if amount}
            for asset in sorted({*expected, *has}):
                if expected.get(asset, 0) != has.get(asset, 0):
                    found, right = amount_text(asset, has.get(asset, 0)), amount_text(asset, expected.get(asset, 0))
                    yield f"{one.name}: its clearing has {found}; the trades that it settled give {right} (T3)"

    def _expected(self, one: GatewayBooks, confirmed: Iterable[TradeLife]) -> tuple[dict[str, int], set[str]]:
        """What a gateway's clearing must have after the legs that it posted, and which legs are its own."""
        sums: Counter[str] = Counter()
        known: set[str] = set()
        for life in confirmed:
            trade = life.trade
            for side, order, sign in (("buy", trade.buy, 1), ("sell", trade.sell, -1)):
                key = self._key(life, side)
                if self._by_gateway.get(gateway_of(order >> 32)) is not one:
                    continue
                known.add(key)
                if key in self._posted[one.name]:
                    sums[self._currency] += sign * trade.price * trade.quantity
                    sums[shares(trade.symbol)] -= sign * trade.quantity
        return {asset: amount for asset, amount in sums.items() if amount}, known

    def _key(self, life: TradeLife, side: str) -> str:
        return f"{self._code}/{life.trade.number}/{side}"
