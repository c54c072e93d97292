"""Each rule against what it promises, for any events."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, SYMBOL, Case, order, trades

from isocast.floor.book import Book, WorkingOrder
from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Cancelled,
    Commit,
    Crossing,
    Event,
    Expired,
    Lot,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Refused,
    Replace,
    Replaced,
    Report,
    Reveal,
    Share,
    Status,
    Trade,
)
from isocast.floor.rules.second_price import commitment
from isocast.floor.rules.sharing import by_batch, by_proportion, by_time, portions
from isocast.floor.rules.uniform_price import Auction, uniform_price
from isocast.floor.state import state_hash
from isocast.terms.market import Side

pytestmark = pytest.mark.usefixtures("both_floors")

PRICES = st.integers(1, 12)
QUANTITIES = st.integers(1, 9)
SIDES = st.sampled_from((BUY, SELL))
TERMS = st.fixed_dictionaries(
    {
        "market": st.sampled_from(MarketKind),
        "price_rule": st.sampled_from(PriceRule),
        "own_rule": st.sampled_from(OwnRule),
        "share": st.sampled_from(Share),
        "collar_bp": st.sampled_from((0, 3000)),
        "band_bp": st.sampled_from((0, 2000)),
        "pause_ns": st.integers(0, 3),
        "reference": st.none() | PRICES,
        "phase": st.sampled_from(Phase),
    }
)


@st.composite
def events(draw: st.DrawFn) -> list[list[Event]]:
    """Tokens of one symbol: orders of four accounts, cancels and replaces of theirs, phases."""
    tokens: list[list[Event]] = []
    known: list[tuple[int, int]] = []
    number = 0
    for _ in range(draw(st.integers(1, 8))):
        token: list[Event] = []
        for kind in draw(st.lists(st.sampled_from("oooooocrs"), max_size=8)):
            if kind == "s":
                token.append(Status(SYMBOL, draw(st.sampled_from([one for one in Phase if one is not Phase.PAUSE]))))
            elif kind == "o" or not known:
                number += 1
                account = draw(st.integers(1, 4))
                known.append((number, account))
                token.append(draw(_orders(number, account)))
            else:
                old, account = draw(st.sampled_from(known))
                if kind == "c":
                    token.append(Cancel(old, account, draw(st.integers(0, 5))))
                else:
                    token.append(Replace(old, account, draw(QUANTITIES), draw(st.none() | PRICES)))
        tokens.append(token)
    return tokens


@st.composite
def _orders(draw: st.DrawFn, number: int, account: int) -> Order:
    flags: dict[str, Any] = draw(
        st.sampled_from(
            (
                {},
                {},
                {},
                {"is_market": True},
                {"is_immediate": True},
                {"is_immediate": True, "is_all": True},
                {"is_post_only": True},
                {"is_day": True},
                {"display": draw(QUANTITIES)},
                {"display": draw(QUANTITIES), "is_post_only": True},
                {"until": draw(st.integers(1, 9))},
                {"at": draw(st.sampled_from(Crossing))},
                {"at": draw(st.sampled_from(Crossing)), "is_market": True},
                {"is_market": True, "trigger": draw(PRICES)},
                {"trigger": draw(PRICES)},
            )
        )
    )
    price = draw(PRICES) if "is_market" not in flags else draw(st.just(0) | PRICES)
    return order(number, draw(SIDES), draw(QUANTITIES), price, account=account, **flags)


def run(terms: dict[str, Any], tokens: list[list[Event]]) -> tuple[Case, list[Report]]:
    case = Case(**terms)
    reports: list[Report] = []
    for token in tokens:
        reports += case.token(*token)
        check_book(case)
    return case, reports


def check_book(case: Case) -> None:
    """A symbol that trades continuously is not crossed; levels are in order, and nothing in them is done."""
    state = case.state
    best_buy, best_sell = state.book.buys.best, state.book.sells.best
    is_continuous = state.phase is Phase.OPEN and state.terms.market is MarketKind.CONTINUOUS
    if is_continuous and best_buy is not None and best_sell is not None:
        assert not best_buy.is_within(best_sell.price) or not best_sell.is_within(best_buy.price)
    for side in (state.book.buys, state.book.sells):
        found = list(side)
        assert [one.rank for one in found] == sorted(one.rank for one in found)
        assert all(one.left > 0 for one in found)
        assert all(earlier.place < later.place for earlier, later in pairwise(found) if earlier.rank == later.rank)
    resting = {one.id for one in state.book} | set(state.stops) | set(state.for_close)
    assert all(0 < one.shown <= one.left for one in state.book)
    assert all(one.until is None or one.until > case.now for _, one in case.floor.orders.values())
    assert state.phase in (Phase.PRE_OPEN, Phase.HALTED) or all(one.at is not Crossing.OPEN for one in state.book)
    assert state.phase is Phase.CLOSING or all(one.at is not Crossing.CLOSE for one in state.book)
    assert resting == set(case.floor.orders)


@given(TERMS, events())
def test_no_book_is_crossed_and_every_share_is_accounted_for(terms: dict[str, Any], tokens: list[list[Event]]) -> None:
    case, reports = run(terms, tokens)
    entered = {one.id: one for token in tokens for one in token if isinstance(one, Order)}
    refused = {one.id for one in reports if isinstance(one, Refused)}
    filled: Counter[int] = Counter()
    for one in reports:
        if isinstance(one, Trade):
            filled[one.buy] += one.quantity
            filled[one.sell] += one.quantity
            assert entered[one.buy].side is BUY
            assert entered[one.sell].side is SELL
    gone: Counter[int] = Counter()
    for one in reports:
        if isinstance(one, Cancelled | Expired):
            gone[one.id] += one.quantity
    replaced = {one.id for one in reports if isinstance(one, Replaced)}
    for number, first in entered.items():
        live = case.floor.orders.get(number)
        if live is not None:
            assert live[1].filled == filled[number]
        elif number not in refused and number not in replaced:
            assert filled[number] + gone[number] == first.quantity
    numbers = [one.number for one in reports if isinstance(one, Trade)]
    assert numbers == list(range(1, len(numbers) + 1))


@given(TERMS, events())
def test_all_or_nothing_is_all_or_nothing(terms: dict[str, Any], tokens: list[list[Event]]) -> None:
    _, reports = run(terms, tokens)
    wanted = {one.id: one.quantity for token in tokens for one in token if isinstance(one, Order) and one.is_all}
    filled: Counter[int] = Counter()
    for one in (one for one in reports if isinstance(one, Trade)):
        filled[one.buy] += one.quantity
        filled[one.sell] += one.quantity
    assert all(filled[number] in (0, quantity) for number, quantity in wanted.items())


@given(TERMS, events())
def test_nobody_trades_beyond_his_limit(terms: dict[str, Any], tokens: list[list[Event]]) -> None:
    limits: dict[int, tuple[Side, set[int]]] = {}
    for one in (event for token in tokens for event in token):
        if isinstance(one, Order):
            limits[one.id] = (one.side, {one.price} if one.price else set())
        elif isinstance(one, Replace) and one.price is not None and limits[one.id][1]:
            limits[one.id][1].add(one.price)
    _, reports = run(terms, tokens)
    for trade in (one for one in reports if isinstance(one, Trade)):
        assert trade.price <= max(limits[trade.buy][1], default=trade.price)
        assert trade.price >= min(limits[trade.sell][1], default=trade.price)


@given(TERMS, events())
def test_the_same_tokens_give_the_same_floor(terms: dict[str, Any], tokens: list[list[Event]]) -> None:
    (one, told), (other, again) = run(terms, tokens), run(terms, tokens)
    assert told == again
    assert state_hash(one.floor) == state_hash(other.floor)


@given(st.lists(st.tuples(SIDES, QUANTITIES, PRICES), max_size=20))
def test_continuous_trading_is_price_then_time(rows: list[tuple[Side, int, int]]) -> None:
    """Against the plainest book there is: a list, searched from the start for every share."""
    case, found = Case(), []
    resting: list[list[int]] = []  # number, side, price, left
    expected: list[tuple[int, int, int, int]] = []
    for number, (side, quantity, price) in enumerate(rows, 1):
        found += trades(case.token(order(number, side, quantity, price)))
        left = quantity
        while left:
            facing = [one for one in resting if one[1] != side and one[3]]
            fitting = [one for one in facing if (one[2] <= price if side is BUY else one[2] >= price)]
            if not fitting:
                break
            best = min(fitting, key=lambda one: (one[2] if one[1] == SELL else -one[2], one[0]))
            part = min(left, best[3])
            best[3] -= part
            left -= part
            pair = (number, best[0]) if side is BUY else (best[0], number)
            expected.append((best[2], part, *pair))
        resting.append([number, side, price, left])
    assert found == expected


def resting(
    number: int, side: Side, price: int, quantity: int, *, market: bool = False, token: int = 1
) -> WorkingOrder:
    return WorkingOrder(number, number, 0, side, price, quantity, 0, token, number, is_market=market)


@given(
    st.lists(st.tuples(SIDES, st.integers(0, 12), QUANTITIES, st.booleans()), max_size=12),
    st.none() | PRICES,
    st.sampled_from((1, 2)),
)
def test_the_uniform_price_is_the_best_there_is(
    rows: list[tuple[Side, int, int, bool]], reference: int | None, tick: int
) -> None:
    """Against a search over every price, by the definition of volume and surplus."""
    book, wanted = Book(), []
    for number, (side, raw, quantity, market) in enumerate(rows, 1):
        price = raw * tick
        if price or market:
            one = resting(number, side, price, quantity, market=market)
            book.side(side).add(one)
            wanted.append(one)

    def at(price: int) -> Auction:
        bought = sum(one.left for one in wanted if one.side is BUY and one.is_within(price))
        sold = sum(one.left for one in wanted if one.side is SELL and one.is_within(price))
        return Auction(price, min(bought, sold), bought - sold)

    found = uniform_price(book, reference, tick)
    candidates = {one.price for one in wanted if not one.is_market} | ({reference} if reference is not None else set())
    best = max((at(price).volume for price in candidates), default=0)
    if found is None:
        assert best == 0
        return
    assert found == at(found.price)
    assert found.volume == best
    least = min(abs(at(price).surplus) for price in candidates if at(price).volume == best)
    assert abs(found.surplus) <= least
    remaining = sorted(p for p in candidates if at(p).volume == best and abs(at(p).surplus) == least)
    assert remaining[0] <= found.price <= remaining[-1]
    if all(at(price).surplus > 0 for price in remaining):
        assert found.price == remaining[-1]
    elif all(at(price).surplus < 0 for price in remaining):
        assert found.price == remaining[0]
    elif reference is not None:
        assert found.price == sorted((remaining[0], reference, remaining[-1]))[1]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=8), st.data())
def test_sharing_gives_out_exactly_what_there_is_and_nobody_more_than_he_wants(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    lot = data.draw(st.sampled_from((1, 5)))
    level = [
        resting(number, BUY, 10, quantity * lot, token=token)
        for number, (quantity, token) in enumerate(sorted(rows, key=lambda row: row[1]), 1)
    ]
    wanted = sum(one.left for one in level)
    volume = data.draw(st.integers(0, wanted // lot)) * lot
    for sharing in (by_time, by_proportion, by_batch):
        given_out = portions([level], volume, lot, sharing)
        assert sum(one.quantity for one in given_out) == volume
        assert all(0 < one.quantity <= one.order.left and not one.quantity % lot for one in given_out)
    shares = {one.order.id: one.quantity for one in portions([level], volume, lot, by_batch)}
    for earlier, later in product(level, level):
        if earlier.token < later.token and shares.get(later.id):
            assert shares.get(earlier.id) == earlier.left


def second_price(values: list[int], bids: list[int], reserve: int) -> list[int]:
    """What each bidder gains: his value less the price, if he wins."""
    case, nonce = Case(), bytes(16)
    sale = Lot(1, 1, SYMBOL, AuctionKind.SECOND_PRICE, 1, reserve=reserve, closes_at=100, window_ns=50)
    commits = [Commit(10 + k, 10 + k, 1, 99, commitment(bid, nonce, 10 + k, 1)) for k, bid in enumerate(bids)]
    case.token(sale, *commits)
    case.token(*(Reveal(10 + k, 10 + k, bid, nonce) for k, bid in enumerate(bids)), at=100)
    won = trades(case.token(at=150))
    assert not case.floor.lots
    return [sum(value - price for price, _, buyer, _ in won if buyer == 10 + k) for k, value in enumerate(values)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 9))
def test_no_bidder_gains_by_bidding_anything_but_his_value(values: list[int], reserve: int) -> None:
    honest = second_price(values, values, reserve)
    for bidder, other in product(range(len(values)), range(1, 10)):
        bids = [other if place == bidder else value for place, value in enumerate(values)]
        assert second_price(values, bids, reserve)[bidder] <= honest[bidder]


@given(st.lists(st.tuples(st.integers(0, 6), QUANTITIES, st.integers(60, 110)), max_size=10))
def test_a_dutch_clock_sells_in_the_order_of_the_sequence_at_falling_prices(rows: list[tuple[int, int, int]]) -> None:
    case = Case()
    found = trades(case.token(Lot(1, 1, SYMBOL, AuctionKind.DUTCH, 20, reserve=80, start=100, step=5)))
    for token in range(7):
        bids = [Bid(10 + k, 10 + k, 1, size, most) for k, (when, size, most) in enumerate(rows) if when == token]
        found += trades(case.token(*bids))
    prices = [price for price, *_ in found]
    assert prices == sorted(prices, reverse=True)
    assert sum(quantity for _, quantity, _, _ in found) <= 20
    assert all(80 <= price <= rows[buyer - 10][2] for price, _, buyer, _ in found)
    assert not case.floor.lots
