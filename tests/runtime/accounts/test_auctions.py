"""Offers, lots and bids from Python through HTTPS to a real desk: what the how-to of auctions shows, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.runtime.accounts.sequence import IBM, LISTED, MS, ROUND, USD, MemorySequence, sqlite_place
from tests.runtime.accounts.traders import LIMIT_S, on_stage

from isocast.orders.accounts import UNITS
from isocast.orders.desk import Scope
from isocast.orders.json_forms import instant_text
from isocast.orders.ledger import deposit
from isocast.runtime.accounts.audit import audit, clearing_of_all
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.logins import Logins
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
from isocast.runtime.client.sealed_bids import KeptBid, kept_bids
from isocast.runtime.client.trader import Trader
from isocast.terms.errors import ConfigurationError, TraderRefusedError

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
NAMES = ("Ada", "Bob", "Cid")


class Hall:
    """A gateway on a sequence in memory, with traders who come by HTTPS; time is what the test says."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.market = MemorySequence(LISTED, clock=self.clock)
        self.database = AccountsDatabase(sqlite_place(folder, "books"))
        AccountBook.create(self.database, 1)
        book = AccountBook(self.database)
        self.accounts = {name: book.open(name).number for name in NAMES}
        for name, asset, amount in (("Ada", USD, 5_000 * UNITS), ("Cid", USD, 5_000 * UNITS), ("Bob", IBM, 100)):
            book.post(deposit(name, self.accounts[name], asset, amount))
        logins = Logins(self.database, self.clock)
        self.tokens = {
            name: logins.make_token(account, "test", list(Scope), START * 2) for name, account in self.accounts.items()
        }
        books = TradingBooks(self.database, DeskSettings(stable_tokens=ROUND))
        pace = DeskPace(group_s=0.0, look_s=0.05)
        self.desk = GatewayDesk(self.database, books, self.market.send, logins=logins, pace=pace, clock=self.clock)
        self.heard = 0

    def clock(self) -> int:
        self.now += MS // 1_000
        return self.now

    async def token(self, count: int = 1) -> None:
        """So many tokens, with all that was published."""
        for _ in range(count):
            self.market.tick()
        for token, instant, messages in self.market.tokens[self.heard :]:
            for message in messages:
                await self.desk.take(token, instant, message.sequence, message.topic, message.payload)
            await self.desk.end_token(token)
        self.heard = len(self.market.tokens)
        await self.desk.until_taken()

    async def settle(self) -> None:
        self.market.confirm()
        await self.token(ROUND)
        found = audit(self.database)
        assert found.is_sound, found.findings
        assert clearing_of_all([found]) == {}


@asynccontextmanager
async def hall_of(folder: Path) -> AsyncIterator[tuple[Hall, Trader, Trader, Trader]]:
    hall = Hall(folder)
    async with asyncio.timeout(LIMIT_S), hall.desk, on_stage(folder, hall.desk) as stage:
        await hall.token()
        ada, bob, cid = (Trader(stage.url, token=hall.tokens[name], ca=stage.ca) for name in NAMES)
        async with ada, bob, cid:
            yield hall, ada, bob, cid
    hall.database.close()


async def has(trader: Trader) -> dict[str, tuple[str, str]]:
    return {one.asset: (str(one.available), str(one.reserved)) for one in await trader.balances()}


def test_an_open_offer_is_taken_in_parts_and_everybody_sees_by_whom(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_of(tmp_path) as (hall, ada, bob, cid):
            await bob.sell("IBM", 100, "10.00", open_offer=True)
            await hall.token()
            [offer] = await ada.offers()
            assert (offer.side, offer.symbol, str(offer.price), offer.left) == ("sell", "IBM", "10.00", 100)
            first = await ada.take(offer, 60)
            await hall.token()
            assert (await first.ended()).filled == 60
            [offer] = await cid.offers()
            assert (offer.left, offer.taken) == (40, ((hall.accounts["Ada"], 60),))
            second = await cid.take(offer.offer, 60)
            await hall.token()
            assert ((await second.ended()).status, second.report.filled) == ("cancelled", 40)
            assert await ada.offers() == []
            with pytest.raises(TraderRefusedError, match="no such offer"):
                await ada.take(offer, 1)
            await hall.settle()
            assert await has(bob) == {"USD": ("1000.00", "0.00"), "IBM": ("0", "0")}
            assert await has(cid) == {"USD": ("4600.00", "0.00"), "IBM": ("40", "0")}

    asyncio.run(story())


def test_a_sealed_sale_from_opening_to_settlement(tmp_path: Path) -> None:
    """A bidder whose program was ended reveals from its file; nobody could read the price before the close."""
    keep = tmp_path / "bids"

    async def story() -> None:
        async with hall_of(tmp_path) as (hall, ada, bob, cid):
            closes, until = START + 60 * SECOND, START + 120 * SECOND
            await bob.open_lot(
                "IBM", 10, "50.00", closes_at=instant_text(closes), reveal_until=instant_text(until), forfeit="5"
            )
            await hall.token()
            [lot] = await ada.lots()
            assert (lot.auction, lot.closes_at, lot.reveal_until, lot.bids) == ("second-price", closes, until, 0)
            with pytest.raises(TraderRefusedError, match="ceiling"):
                await ada.bid_sealed(lot, "80.00", ceiling="70.00", keep=keep)
            bid = await ada.bid_sealed(lot, "80.00", ceiling="200.00", keep=keep, client_id="mine")
            assert await ada.bid_sealed(lot, "80.00", ceiling="200.00", keep=keep, client_id="mine") == bid
            file = bid.file_in(keep)
            assert file.stat().st_mode & 0o777 == 0o600
            assert bid.nonce not in repr(bid)
            other = await cid.bid_sealed(lot, "60.00", ceiling="100.00", keep=tmp_path / "others")
            await hall.token()
            assert (await has(ada))["USD"] == ("3000.00", "2000.00")
            secret = (80 * UNITS).to_bytes(8, "little")
            assert not any(secret in payload for payload in hall.market.published)
            early = asyncio.create_task(ada.reveal(bid, clock=lambda: closes))  # A clock that goes fast.
            late = asyncio.create_task(cid.reveal(other, clock=lambda: closes))
            while not any(one.reason == "wrong phase" for one in await ada.past_reports()):  # noqa: ASYNC110 - it asks
                await asyncio.sleep(0.01)
            assert not any(secret in payload for payload in hall.market.published)
            early.cancel()
            await asyncio.gather(early, return_exceptions=True)
            hall.now = closes
            await hall.token()
            again = asyncio.create_task(ada.reveal_kept(keep))
            while not (again.done() and late.done()):
                await hall.token()
                await asyncio.sleep(0.01)
            assert [one.kind for one in (*again.result(), late.result())] == ["revealed", "revealed"]
            assert kept_bids(keep) == []
            hall.now = until
            while await ada.lots():  # The floor is quiet: the gateway itself makes the token that decides.
                await asyncio.sleep(0.01)
                await hall.token()
            await hall.settle()
            assert await has(ada) == {"USD": ("4400.00", "0.00"), "IBM": ("10", "0")}  # 10 at 60.00.
            assert await has(cid) == {"USD": ("5000.00", "0.00")}
            assert await has(bob) == {"USD": ("600.00", "0.00"), "IBM": ("90", "0")}
            assert await ada.lots() == []

    asyncio.run(story())


def test_a_dutch_clock_from_opening_to_settlement(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_of(tmp_path) as (hall, ada, bob, _):
            await bob.open_clock("IBM", 30, "70.00", start="100.00", step="5.00")
            await hall.token()
            [lot] = await ada.lots()
            assert (lot.auction, lot.left, str(lot.price)) == ("dutch", 30, "100.00")
            bid = await ada.bid(lot, 10, "95.00")
            await hall.token()
            assert (await bid.ended()).average_price == 95
            await hall.settle()
            assert (await has(ada))["IBM"] == ("10", "0")

    asyncio.run(story())


def test_a_kept_bid_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    bid = KeptBid.new("a/b", 7, 9, 100, 1, 2)
    assert bid.keep(tmp_path) == bid
    file = bid.file_in(tmp_path)
    assert file.parent == tmp_path
    assert KeptBid.read(file) == bid
    with pytest.raises(ConfigurationError, match="another bid"):
        KeptBid.new("a/b", 7, 9, 101, 1, 2).keep(tmp_path)
    file.chmod(0o644)
    with pytest.raises(ConfigurationError):
        KeptBid.read(file)
    file.write_text("{}")
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="no sealed bid"):
        kept_bids(tmp_path)
