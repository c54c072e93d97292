"""What the traders came to: journals and books that agree are believed, and everything that can be wrong is named."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.accounts.sequence import MS
from tests.trials.demo.canned_trading import CannedTrading, Token, finished, seat_of, trading_market

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Order
from isocast.floor.reporting import decode_report, encode_report, report_topic
from isocast.orders.accounts import UNITS, cash, shares
from isocast.orders.desk import ReportKind
from isocast.orders.needs import Side
from isocast.runtime.accounts.posting import execute
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.terms.market import Side as FloorSide
from isocast.trials.demo.books import GatewayBooks, has_settled, read_books
from isocast.trials.demo.trading import GATEWAYS
from isocast.trials.demo.trading_summary import (
    FloorProof,
    SharedFloorState,
    TradingSummary,
    judge_trading,
    read_floor_proof,
    sum_up_trading,
)

USD, ISO = cash("USD"), shares("ISO")
LONDON, TOKYO = (gateway.name for gateway in GATEWAYS)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys and books are made once."""
    folder = tmp_path_factory.mktemp("trading")
    trading_market(folder)
    return folder


@pytest.fixture
def market(template: Path, tmp_path: Path) -> Market:
    return load_market(shutil.copytree(template, tmp_path / "market") / "market.toml")


@pytest.fixture
def trading(market: Market) -> Iterator[CannedTrading]:
    """Two trades, tentative."""
    made = CannedTrading(market)
    made.trade()
    yield made
    made.close()


def confirm(trading: CannedTrading, *names: str) -> None:
    """The trades are final, and these gateways, or all, hear it."""
    trading.sequence.confirm()
    trading.follow(*names)


def judged(market: Market, *, is_complete: bool = True) -> TradingSummary:
    return finished(judge_trading(market, is_complete=is_complete))


def read(market: Market) -> tuple[FloorProof, list[GatewayBooks]]:
    proof = finished(read_floor_proof(market, market.floors[0]))
    return proof, [read_books(market, gateway) for gateway in GATEWAYS]


def summed_up(proof: FloorProof, books: Sequence[GatewayBooks], *, is_complete: bool = True) -> TradingSummary:
    return sum_up_trading(proof, books, "USD", is_complete=is_complete)


# ---- nothing is wrong


def test_confirmed_trades_are_settled_and_everything_adds_up(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    found = judged(market)
    assert found.faults == ()
    assert (found.orders, found.sequenced, found.trades, found.confirmed, found.busted) == (3, 3, 2, 2, 0)
    assert [(line.city, line.orders, line.trades, line.confirmed, line.quantity) for line in found.traders] == [
        ("London", 1, 2, 2, 100),
        ("New York", 1, 1, 1, 40),
        ("Tokyo", 1, 1, 1, 60),
    ]
    assert (found.settled, found.unsettled, found.clearing, found.reserved) == (4, 0, {}, {})
    assert found.value == 100 * 100 * UNITS
    assert (found.agreeing, found.receivers) == (7, 7)
    assert set(found.agreed) == {"new-york", "london", "mumbai", "hong-kong", "tokyo"}
    assert min(found.agreed.values()) > 0
    # Made by tokens 3 and 4; tokens 5 and 6 say that they are final.
    assert (found.tokens_to_confirmed, found.to_confirmed.max_ns) == (2, 2 * MS)
    assert found.to_tentative.count == 2


def test_what_is_not_final_at_the_end_is_counted_and_no_fault(trading: CannedTrading, market: Market) -> None:
    trading.write()
    found = judged(market)
    assert found.faults == ()
    assert (found.trades, found.confirmed, found.settled, found.unsettled) == (2, 0, 0, 0)
    # A taker's fee is reserved, too: a basis point of 4,040.00 and of 6,000.00.
    assert found.reserved == {USD: (4_040 + 6_000) * UNITS * 10_001 // 10_000, ISO: 100}


def test_a_gateway_that_had_no_time_is_counted_and_one_that_had_is_wrong(
    trading: CannedTrading, market: Market
) -> None:
    """London has settled and Tokyo has not: what passed between them is exactly that."""
    confirm(trading, LONDON)
    trading.write()
    found = judged(market, is_complete=False)
    assert found.faults == ()
    assert (found.confirmed, found.settled, found.unsettled) == (2, 3, 1)
    assert found.clearing == {USD: -6_000 * UNITS, ISO: 60}
    assert judged(market).faults == (f"{TOKYO}: trade 2 is confirmed, and it has not settled it (T2)",)


def test_a_show_without_an_order_says_so(market: Market) -> None:
    made = CannedTrading(market)
    made.write()
    made.close()
    found = judged(market)
    assert (found.faults, found.orders, found.trades) == ((), 0, 0)


def test_books_know_when_nothing_is_to_come(trading: CannedTrading, market: Market) -> None:
    files = [gateway.database(market) for gateway in GATEWAYS]
    assert not any(has_settled(file) for file in files)
    confirm(trading)
    assert all(has_settled(file) for file in files)


# ---- the floor is wrong


def with_another_order(tokens: Sequence[Token]) -> Sequence[Token]:
    """Token 2 has an order of another size."""
    number, instant, messages = tokens[1]
    seat = seat_of("London")
    order = Order(seat.account << 32 | 1, seat.account, "ISO", FloorSide.SELL, 90, 100 * UNITS)
    return [tokens[0], (number, instant, [messages[0]._replace(payload=encode_event(order))]), *tokens[2:]]


def with_a_lie(tokens: Sequence[Token]) -> Sequence[Token]:
    """An arbiter reports another quantity."""
    found = []
    for number, instant, messages in tokens:
        changed = []
        for message in messages:
            if message.topic == report_topic("XISO") and (report := decode_report(message.payload)).trades:
                trades = (report.trades[0]._replace(quantity=7), *report.trades[1:])
                message = message._replace(payload=encode_report(report._replace(trades=trades)))  # noqa: PLW2901
            changed.append(message)
        found.append((number, instant, changed))
    return found


def test_a_journal_that_gives_another_floor_is_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write({"tokyo": with_another_order})
    found = judged(market)
    assert "tokyo: its journal gives another state of XISO after token 4 (T1)" in found.faults
    assert any(fault.startswith("tokyo: trade 2 of token 4: a report says") for fault in found.faults)
    assert (found.agreeing, found.receivers) == (6, 7)


def test_an_arbiter_that_lies_is_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write(change_all=with_a_lie)
    faults = judged(market).faults
    assert any("london: trade 1 of token 3: a report says" in fault and fault.endswith("(T1)") for fault in faults)


def test_a_receiver_whose_own_floor_differed_is_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    proof, books = read(market)
    proof.sites["mumbai"] = SharedFloorState(proof.sites["mumbai"].token, "ff" * 32)
    token = proof.sites["mumbai"].token
    rule = f"mumbai: its floor XISO had another state after token {token} than the sequence gives (T1)"
    assert summed_up(proof, books).faults == (rule,)


def test_what_cannot_be_read_is_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    (market.directory_of("london") / "floor-XISO.state").write_bytes(b"junk")
    GATEWAYS[1].database(market).unlink()
    faults = judged(market).faults
    assert any(fault.startswith("london: floor-XISO.state cannot be read") for fault in faults)
    assert any(fault.startswith(f"{TOKYO}: its books cannot be read") for fault in faults)


def test_an_alarm_of_a_receiver_is_a_fault(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    told = ["tokyo: the floor XISO stops here at token 4"]
    assert finished(judge_trading(market, is_complete=True, alarms=told)).faults == tuple(told)


# ---- orders are wrong


def test_an_accepted_order_that_is_nowhere_is_found(trading: CannedTrading, market: Market) -> None:
    trading.order("Tokyo", Side.BUY, 10, 99, publish=False)
    confirm(trading)
    trading.write()
    number = seat_of("Tokyo").account << 32 | 2
    assert judged(market).faults == (f"{TOKYO}: order {number} accepted and in no journal (T5)",)
    assert judged(market, is_complete=False).faults == (), "it may be on its way"


def test_an_order_that_is_there_twice_or_is_nobodys_is_found(trading: CannedTrading, market: Market) -> None:
    seat = seat_of("New York")
    twice = trading.sequence.tokens[2][2][0].payload
    strange = encode_event(Order(seat.account << 32 | 9, seat.account, "ISO", FloorSide.BUY, 10, UNITS))
    trading.sequence._next += [(floor_topic("XISO"), twice), (floor_topic("XISO"), strange)]  # noqa: SLF001
    trading.sequence.step()
    confirm(trading)
    trading.write()
    assert judged(market).faults == (
        f"{LONDON}: order {seat.account << 32 | 1} more than once in the sequence (T5)",
        f"{LONDON}: order {seat.account << 32 | 9} in the sequence, and not in its books (T5)",
    )


# ---- books are wrong


def test_a_settlement_that_nobody_confirmed_is_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write(change_all=lambda tokens: tokens[:4])  # Before the words that the trades are final.
    faults = judged(market).faults
    assert f"{LONDON}: it settled XISO/1/buy, which no journal confirms as its own (T2)" in faults
    assert f"{TOKYO}: it settled XISO/2/buy, which no journal confirms as its own (T2)" in faults


def test_money_from_nowhere_is_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    with trading.gateways[TOKYO].database.writing() as connection:
        execute(connection, "UPDATE balances SET available = available + 10000 WHERE asset = ?", (USD,))
    faults = judged(market).faults
    assert any(fault.startswith(f"{TOKYO}: account ") and "its entries add up to" in fault for fault in faults)
    assert f"{TOKYO}: its clearing has 6,001.00 USD; the trades that it settled give 6,000.00 USD (T3)" in faults


def test_accounts_that_have_more_than_came_in_are_found(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    proof, (london, tokyo) = read(market)
    london.holdings[ISO] += 1
    assert summed_up(proof, [london, tokyo]).faults == (
        "accounts of all gateways have 300,001 ISO, and 300,000 ISO came in (T3)",
    )


def test_a_busted_trade_is_wrong_where_a_majority_decides(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    proof, (london, tokyo) = read(market)
    london.reports[seat_of("London").account, ReportKind.BUSTED] += 1
    found = summed_up(proof, [london, tokyo])
    assert found.faults == (f"{LONDON}: 1 trade busted, which a majority never allows (T2)",)
    assert found.busted == 1


def test_a_summary_is_for_programs_too(trading: CannedTrading, market: Market) -> None:
    confirm(trading)
    trading.write()
    told = judged(market).as_json()
    assert (told["trades"], told["confirmed"], told["faults"]) == (2, 2, [])
    assert told["to_confirmed"] == {"count": 2, "p50_s": 0.002, "p99_s": 0.002, "max_s": 0.002}
    assert replace(judged(market), faults=("x",)).as_json()["faults"] == ["x"]
