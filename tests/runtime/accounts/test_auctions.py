"""Offers, lots and bids from Python through HTTPS to a real desk: what the how-to of auctions shows, step by step."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

import pytest
from tests.runtime.accounts.sequence import IBM, LISTED, MS, ROUND, USD, MemorySequence, sqlite_place
from tests.runtime.accounts.traders import LIMIT_S, on_stage

import isocast
from isocast.cli.main import main
from isocast.cli.order import CA, TOKEN_FILE, URL
from isocast.floor.events import Directory
from isocast.floor.rules.second_price import SealedLot
from isocast.orders.accounts import UNITS, shares
from isocast.orders.desk import Scope
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
from isocast.terms.instants import instant_text

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
NAMES = ("Ada", "Bob", "Cid")


class Hall:
    """A gateway on a sequence in memory, with traders who come by HTTPS; time is what the test says."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        sold = [Directory(symbol, tick=100) for symbol in ("VASE", "TULIP")]
        self.market = MemorySequence(LISTED, *sold, clock=self.clock)
        self.database = AccountsDatabase(sqlite_place(folder, "books"))
        AccountBook.create(self.database, 1)
        book = AccountBook(self.database)
        self.accounts = {name: book.open(name).number for name in NAMES}
        for name, asset, amount in (
            ("Ada", USD, 5_000 * UNITS),
            ("Cid", USD, 5_000 * UNITS),
            ("Bob", IBM, 100),
            ("Bob", shares("VASE"), 20),
            ("Bob", shares("TULIP"), 30),
        ):
            book.post(deposit(f"{name} {asset}", self.accounts[name], asset, amount))
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
                await self.desk.take(token, instant, message)
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
            assert isinstance(offer, isocast.OpenOffer)
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
            assert (await has(bob))["USD"] == ("1000.00", "0.00")
            assert (await has(bob))["IBM"] == ("0", "0")
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
            assert isinstance(lot, isocast.OpenLot)
            assert (lot.auction, lot.closes_at, lot.reveal_until, lot.bids) == ("second-price", closes, until, 0)
            with pytest.raises(TraderRefusedError, match="ceiling"):
                await ada.bid_sealed(lot, "80.00", ceiling="70.00", keep=keep)
            bid = await ada.bid_sealed(lot, "80.00", ceiling="200.00", keep=keep, client_id="mine")
            assert await ada.bid_sealed(lot, "80.00", ceiling="200.00", keep=keep, client_id="mine") == bid
            assert isinstance(bid, isocast.KeptBid)
            assert any(bytes.fromhex(bid.commitment) in payload for payload in hall.market.published)
            file = bid.file_in(keep)
            assert file.stat().st_mode & 0o777 == 0o600
            assert bid.nonce not in repr(bid)
            other = await cid.bid_sealed(lot, "60.00", ceiling="100.00", keep=tmp_path / "others")
            await hall.token()
            assert (await has(ada))["USD"] == ("3000.00", "2000.00")
            secret = (80 * UNITS).to_bytes(8, "little")
            assert not any(secret in payload for payload in hall.market.published)
            early = asyncio.create_task(ada.reveal(bid))  # Whose clock is years ahead.
            late = asyncio.create_task(cid.reveal(other))
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
            assert (await has(bob))["USD"] == ("600.00", "0.00")
            assert (await has(bob))["IBM"] == ("90", "0")
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


# ---- the page


class Sale:
    """A gateway in a thread of its own, whose time goes on as soon as the sale is ready for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ready, self.ending = Event(), Event()
        self.thread = Thread(target=asyncio.run, args=(self._whole(),))

    async def _whole(self) -> None:
        self.hall = Hall(self.folder)
        async with self.hall.desk, on_stage(self.folder, self.hall.desk) as stage:
            self.stage = stage
            await self.hall.token()
            self.ready.set()
            while not self.ending.is_set():
                await self._go_on()
                await asyncio.sleep(0.02)
            await self.hall.settle()
        self.hall.database.close()

    async def _go_on(self) -> None:
        hall = self.hall
        await hall.token()
        for lot in hall.desk.books.view.floor.lots.values():
            if isinstance(lot, SealedLot) and lot.bids:
                revealed = all(bid.price is not None for bid in lot.bids.values())
                hall.now = max(hall.now, lot.decided_at if revealed else lot.lot.closes_at)


def commands_of_page() -> list[list[str]]:
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "auctions.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Hold the sale at a gateway")
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith("isocast")]


def test_the_sales_of_the_page_run_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = commands_of_page()
    assert [" ".join(words[:2]) for words in found] == [
        "floor open-lot", "floor lots", "floor bid", "floor open-lot", "floor bid", "order offer", "order offers",
        "order take",
    ]  # fmt: skip
    sale = Sale(tmp_path)
    sale.thread.start()
    try:
        assert sale.ready.wait(LIMIT_S)
        files = {name: tmp_path / f"{name}.token" for name in NAMES}
        for name, file in files.items():
            file.touch(mode=0o600)
            file.write_text(sale.hall.tokens[name])
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(URL, sale.stage.url)
        monkeypatch.setenv(CA, str(sale.stage.ca))
        # The page's instants are years away, and its numbers another market's.
        instants = {"2030-03-31T16:00:00Z": START + 3_600 * SECOND, "2030-03-31T17:00:00Z": START + 7_200 * SECOND}
        made = ""
        for words in found:
            said = [instant_text(instants[word]) if word in instants else word for word in words]
            said = [made if re.fullmatch("[0-9]{16}", word) else word for word in said]
            is_sellers = words[1] in ("open-lot", "offer")
            monkeypatch.setenv(TOKEN_FILE, str(files["Bob" if is_sellers else "Ada"]))
            assert main([*said, "--json"]) == 0, capsys.readouterr()
            answer = json.loads(capsys.readouterr().out)
            if is_sellers:
                made = answer["order"]
                view = sale.hall.desk.books.view
                wait_until(lambda: int(made) in {*view.floor.lots, *view.floor.offers})  # noqa: B023 - at once
    finally:
        sale.ending.set()
        sale.thread.join(LIMIT_S)
    database = AccountsDatabase(sqlite_place(tmp_path, "books"))
    book = AccountBook(database)
    held = {one.asset: one.balance.available for one in book.holdings(sale.hall.accounts["Ada"])}
    database.close()
    assert held[shares("VASE")] == 14  # The lot of ten at its reserve, because nobody else bid, and four of the offer.
    assert held[shares("TULIP")] in (0, 10)  # Whether the clock was below 95.00 when the call came.


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + LIMIT_S
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)
