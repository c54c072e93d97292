"""FIX at a gateway's own desk, on a sequence in memory: changes and their chains, ids, drop copies, wrong passwords."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tests.runtime.accounts.fix.transcripts import LIMIT_S, OURS, PATIENT, Client, VirtualTime, framed
from tests.runtime.accounts.sequence import sqlite_place
from tests.runtime.accounts.test_desk import PASSWORD, QUICK, Hall, hall_at

from isocast.orders.desk import (
    CancelRequest,
    Login,
    ReplaceRequest,
    ReportKind,
    Scope,
    TradeReport,
    TradingRequest,
)
from isocast.runtime.accounts.fix.connection import FixBounds
from isocast.runtime.accounts.fix.orders_door import OrdersDoor
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.store import SessionStore
from isocast.runtime.accounts.logins import LoginDelays, Logins

TIME = "60=20231114-22:13:20"
IBM = f"55=IBM|{TIME}"
ORDER = f"38=100|40=2|44=10|54=1|{IBM}"


class House:
    """A gateway's desk with a FIX door."""

    def __init__(self, hall: Hall, folder: Path, bounds: FixBounds) -> None:
        self.hall = hall
        self.times = VirtualTime()
        self.store = SessionStore(folder / "fix.db", is_new=True)
        self.wakes = asyncio.Event()
        """Sessions ask whether their tokens are still good."""
        door = OrdersDoor(hall.desk, self.times.now, sleep=lambda _: self.wakes.wait())
        self.server = FixServer(OURS, door, self.store, times=self.times, bounds=bounds)
        self.clients: list[Client] = []

    async def logon(self, comp_id: str = "ADA", name: str = "ada", secret: str = PASSWORD) -> Trader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self.clients.append(Client(reader, writer, self.times))
        trader = Trader(self.clients[-1], self.hall)
        await trader.send(f"35=A|49={comp_id}|98=0|108=0|553={name}|554={secret}")
        return trader

    async def close(self) -> None:
        for client in self.clients:
            await client.gone()
        await self.server.cut()
        await self.store.close()


class Trader:
    """One session, which numbers what it sends."""

    def __init__(self, client: Client, hall: Hall) -> None:
        self.client, self._hall = client, hall
        self._number = 0

    async def send(self, body: str) -> None:
        self._number += 1
        kind, _, rest = body.partition("|")
        await self.client.send(f"{kind}|34={self._number}|{rest}")

    async def next(self) -> dict[int, str]:
        return dict(await self.client.next())

    async def heard(self, count: int) -> list[tuple[str, str, str]]:
        """ClOrdID, ExecType and OrdStatus of so many reports."""
        found = [await self.next() for _ in range(count)]
        return [(fields[11], fields.get(150, fields[35]), fields[39]) for fields in found]

    async def ordered(self, body: str) -> None:
        """An order that rests."""
        await self.send(body)
        assert (await self.next())[150] == "A"
        await self._hall.token()
        assert (await self.next())[150] == "0"


def in_house(folder: Path, story: Callable[[House], Awaitable[None]], bounds: FixBounds = PATIENT) -> None:
    async def run() -> None:
        async with hall_at(sqlite_place(folder, "gateway")) as hall, asyncio.timeout(LIMIT_S):
            Logins(hall.database, hall.clock, QUICK).set_password("bob", hall.bob.account, PASSWORD)
            house = House(hall, folder, bounds)
            await house.server.start("127.0.0.1", 0)
            try:
                await story(house)
            finally:
                await house.close()

    asyncio.run(run())


async def traded(house: House) -> Trader:
    """Ada, who is logged on and has an order o1 for 100 at 10."""
    ada = await house.logon()
    assert (await ada.next())[35] == "A"
    await ada.ordered(f"35=D|11=o1|{ORDER}")
    return ada


def test_a_replace_that_says_what_its_order_is_not_is_refused(tmp_path: Path) -> None:
    """A limit order that silently stays one is not the market order that its trader asked for."""

    async def story(house: House) -> None:
        ada = await traded(house)
        wrong = {
            "kind": f"38=90|40=1|54=1|{IBM}",
            "side": f"38=90|40=2|44=10|54=2|{IBM}",
            "lifetime": f"38=90|40=2|44=10|54=1|59=3|{IBM}",
            "symbol": f"38=90|40=2|44=10|54=1|55=OTHER|{TIME}",
        }
        for name, body in wrong.items():
            await ada.send(f"35=G|11={name}|41=o1|{body}")
            refused = await ada.next()
            assert (refused[35], refused[39], refused[102], refused[434]) == ("9", "0", "99", "2")
            assert refused[58].startswith(f"{name}: the order's is ")
        await ada.send(f"35=G|11=right|41=o1|38=90|40=2|44=10|54=1|59=0|{IBM}")
        assert (await ada.next())[150] == "E"

    in_house(tmp_path, story)


def test_a_cancel_of_another_symbol_or_side_than_its_order_s_is_refused(tmp_path: Path) -> None:
    """FIX 4.4 has both in the request so that the wrong order is not cancelled; a status shows what they are."""

    async def story(house: House) -> None:
        ada = await traded(house)
        wrong = {"symbol": f"54=1|55=OTHER|{TIME}", "side": f"54=2|{IBM}"}
        for name, body in wrong.items():
            await ada.send(f"35=F|11={name}|41=o1|{body}")
            refused = await ada.next()
            assert (refused[35], refused[39], refused[41], refused[102], refused[434]) == ("9", "0", "o1", "99", "1")
            assert refused[58].startswith(f"{name}: the order's is ")
        await ada.send(f"35=F|11=short|41=o1|54=5|{IBM}")
        assert (await ada.next())[58] == "tag 54 = 5 is not supported here"
        await ada.send("35=H|11=o1|54=2|55=OTHER")
        status = await ada.next()
        assert (status[39], status[54], status[55]) == ("0", "1", "IBM")
        await ada.send(f"35=F|11=right|41=o1|54=1|{IBM}")
        assert (await ada.next())[150] == "6"
        await ada.send(f"35=F|11=right|41=o1|54=1|{IBM}")
        assert (await ada.next())[150] == "I", "the same again"

    in_house(tmp_path, story)


def test_an_order_repeated_right_behind_the_logon_is_answered(tmp_path: Path) -> None:
    """Whoever is not sure of an order sends it again first of all: in a session that heard of it, and in a new one."""

    async def story(house: House) -> None:
        ada = await traded(house)
        await ada.send("35=5|58=bye")
        assert (await ada.next())[35] == "5"
        await ada.client.closed()
        for comp_id, number in (("ADA", 3), ("ADA2", 0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.server.port)
            client = Client(reader, writer, house.times)
            house.clients.append(client)
            client.sender = comp_id
            logon = f"35=A|34={number + 1}|49={comp_id}|98=0|108=0|553=ada|554={PASSWORD}"
            order = f"35=D|34={number + 2}|49={comp_id}|11=o1|{ORDER}"
            both = [framed(body, sender=comp_id, now=house.times.now()) for body in (logon, order)]
            await client.raw(b"".join(both))
            assert dict(await client.next())[35] == "A"
            status = dict(await client.next())
            assert (status[11], status[150], status[39]) == ("o1", "I", "0")

    in_house(tmp_path, story)


def test_changes_refused_at_another_door_are_told_as_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that did not send them has nothing to remember them by, and does not read all that was ever told."""

    async def story(house: House) -> None:
        ada, desk = await traded(house), house.hall.desk

        reports, begun = desk.reports, []

        async def counted(login: Login, after: int, limit: int = 1_000) -> Sequence[TradeReport]:
            begun.append(after)
            return await reports(login, after, limit)

        monkeypatch.setattr(desk, "reports", counted)
        asked: tuple[TradingRequest, ...] = (
            ReplaceRequest("r1", "nobody's", quantity=5),
            CancelRequest("c1", "nobody's"),
            ReplaceRequest("r2", "o1", quantity=0),
        )
        for request in asked:
            assert (await desk.submit(house.hall.ada, request)).kind is ReportKind.CHANGE_REFUSED
            refused = await ada.next()
            assert (refused[35], refused[11]) == ("9", request.client_id)
            assert refused[434] == ("2" if isinstance(request, ReplaceRequest) else "1")
        assert 0 not in begun, "what was told is not read again from its beginning"
        assert await desk.order(house.hall.ada, "r2") is None, "a refused id is no name of its order"

    in_house(tmp_path, story)


def test_a_new_session_hears_what_comes_and_its_exec_ids_say_what_was_before(tmp_path: Path) -> None:
    """A resend is of a session's own messages: for a new CompID it fills a gap, and tells nothing of the past."""

    async def story(house: House) -> None:
        ada = await traded(house)
        other = await house.logon("ADA2")
        assert (await other.next())[35] == "A"
        await other.send("35=2|7=1|16=0")
        filled = await other.next()
        assert (filled[35], filled[123], filled[36]) == ("4", "Y", "2"), "there was nothing but the Logon"
        await ada.send(f"35=F|11=c1|41=o1|54=1|{IBM}")
        account, _, number = (await other.next())[17].partition("-")
        assert (account, number) == (str(house.hall.ada.account), "3"), "two reports were told before"
        before = await house.hall.desk.reports(house.hall.ada, 0, 2)
        assert [(report.number, report.kind) for report in before] == [(1, "accepted"), (2, "working")]

    in_house(tmp_path, story)


def test_a_chain_of_changes_under_way_ends_as_it_was_asked(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ada = await traded(house)
        await ada.send(f"35=G|11=r1|41=o1|38=90|40=2|44=10|54=1|{IBM}")
        await ada.send(f"35=G|11=r2|41=r1|38=80|40=2|44=10|54=1|{IBM}")
        await ada.send(f"35=F|11=c1|41=r2|54=1|{IBM}")
        await ada.send(f"35=F|11=c2|41=r2|54=1|{IBM}")
        assert await ada.heard(4) == [("r1", "E", "E"), ("r2", "E", "E"), ("c1", "6", "6"), ("c2", "6", "6")]
        await house.hall.token()
        assert await ada.heard(4) == [("r1", "5", "0"), ("r2", "5", "0"), ("c1", "4", "4"), ("c2", "9", "4")]
        for name in ("o1", "r1", "r2", "c1"):  # Every id of the chain is one of the order.
            await ada.send(f"35=H|11={name}|54=1|55=IBM")
            status = await ada.next()
            assert (status[11], status[38], status[39]) == ("r2", "80", "4")

    in_house(tmp_path, story)


def test_a_total_below_what_is_filled_ends_the_order_and_a_filled_one_is_not_cancelled(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ada = await traded(house)
        bob = await house.logon("BOB", "bob")
        await bob.send(f"35=D|11=b1|38=40|40=2|44=10|54=2|{IBM}")
        await house.hall.desk.until_taken()
        assert [(await bob.next())[35] for _ in range(2)] == ["A", "8"]
        await house.hall.token()
        assert await ada.heard(1) == [("o1", "F", "1")]
        await ada.send(f"35=G|11=r1|41=o1|38=10|40=2|44=10|54=1|{IBM}")
        assert await ada.heard(1) == [("r1", "E", "E")]
        await house.hall.token()
        ended = await ada.next()
        assert (ended[150], ended[39], ended[38], ended[14], ended[151]) == ("5", "2", "40", "40", "0")
        await ada.send(f"35=F|11=c1|41=o1|54=1|{IBM}")
        refused = await ada.next()
        assert (refused[35], refused[39], refused[102]) == ("9", "2", "1")

    in_house(tmp_path, story)


def test_a_mass_cancel_is_done_once_and_refused_under_an_id_of_something_else(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ada = await traded(house)
        await ada.send(f"35=q|11=o1|530=7|{TIME}")
        refused = await ada.next()
        assert (refused[35], refused[531], refused[532]) == ("r", "0", "99")
        assert "used for something else" in refused[58]
        for _ in range(2):
            await ada.send(f"35=q|11=m1|530=7|{TIME}")
            done = await ada.next()
            assert (done[35], done[531], done[533]) == ("r", "7", "1")
        await house.hall.token()
        assert await ada.heard(1) == [("o1", "4", "4")]
        await ada.send("35=1|112=NOTHING ELSE")
        assert (await ada.next())[112] == "NOTHING ELSE"

    in_house(tmp_path, story)


def test_an_offer_that_is_open_to_all_is_taken_in_parts_at_its_price(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        bob, ada = await house.logon("BOB", "bob"), await house.logon()
        assert ((await bob.next())[35], (await ada.next())[35]) == ("A", "A")
        await bob.send(f"35=D|11=b1|38=50|40=2|44=10|54=2|{IBM}|100=XOFF")
        offer = (await bob.next())[37]
        await house.hall.token()
        assert await bob.heard(1) == [("b1", "0", "0")]
        wrong = {
            "a1": (f"38=30|54=2|{IBM}|117={offer}", "8", "who takes this offer makes a buy of IBM"),
            "a2": (f"38=30|54=1|{IBM}|117=7", "8", "there is no such offer"),
            "a3": (f"38=30|54=1|{IBM}|117=mine", "8", "the OrderID (37) of the offer"),
            "a4": (f"38=30|44=9|54=1|{IBM}|117={offer}", "8", "tag 44 contradicts"),
            "a5": (f"38=30|54=1|{IBM}", "j", "QuoteID (117) is needed"),
        }
        for name, (body, kind, text) in wrong.items():
            await ada.send(f"35=D|11={name}|40=D|{body}")
            refused = await ada.next()
            assert refused[35] == kind
            assert refused.get(55, "IBM") == "IBM"
            assert text in refused[58]
        await ada.send(f"35=D|11=a6|38=30|40=D|54=1|{IBM}|117={offer}")
        accepted = await ada.next()
        assert (accepted[150], accepted[40], accepted[59]) == ("A", "D", "3")
        await house.hall.token()
        fills = [[fields async for fields in _until_filled(trader)][-1] for trader in (ada, bob)]
        assert [(fill[31], fill[32], fill[39]) for fill in fills] == [("10", "30", "2"), ("10", "30", "1")]

    in_house(tmp_path, story)


async def _until_filled(trader: Trader) -> AsyncIterator[dict[int, str]]:
    """What is heard up to the next trade."""
    while True:
        fields = await trader.next()
        yield fields
        if fields.get(150) == "F":
            return


def test_a_drop_copy_is_the_session_of_a_token_that_may_only_read(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        hall = house.hall
        make = Logins(hall.database, hall.clock, QUICK).make_token
        reads, trades = (make(hall.ada.account, "", [scope], 1 << 60) for scope in (Scope.READ, Scope.TRADE))
        ada = await traded(house)
        copy = await house.logon("COPY", "Ada", reads)
        assert (await copy.next())[35] == "A"
        await ada.send(f"35=F|11=c1|41=o1|54=1|{IBM}")
        assert await ada.heard(1) == await copy.heard(1) == [("c1", "6", "6")]
        await copy.send(f"35=D|11=o2|{ORDER}")
        refused = await copy.next()
        assert (refused[35], refused[380]) == ("j", "6")
        # A token of another account's name, one that may not read, and that of a session are none.
        session = await hall.desk.log_in("ada", PASSWORD, "127.0.0.1")
        assert session is not None
        for name, secret in (("Bob", reads), ("Ada", trades), ("ada", session.session)):
            await (await house.logon("ELSE", name, secret)).client.closed()

    in_house(tmp_path, story)


def test_a_session_ends_with_the_token_that_let_it_in(tmp_path: Path) -> None:
    """A token that was stolen and is revoked must not trade on in a session that is never closed."""

    async def story(house: House) -> None:
        hall = house.hall
        logins = Logins(hall.database, hall.clock, QUICK)
        stolen = logins.make_token(hall.ada.account, "bot", list(Scope), 1 << 60)
        kept = logins.make_token(hall.ada.account, "desk", list(Scope), 1 << 60)
        ada = await traded(house)
        thief, owner = await house.logon("THIEF", "Ada", stolen), await house.logon("OWNER", "Ada", kept)
        assert [(await one.next())[35] for one in (thief, owner)] == ["A", "A"]
        assert logins.revoke_tokens(hall.ada.account, "bot") == 1
        house.wakes.set()
        farewell = await thief.next()
        assert farewell[35] == "5"
        assert "revoked" in farewell[58]
        await thief.send(f"35=D|11=o2|{ORDER}")
        await thief.send("35=5|58=bye")
        await thief.client.closed()
        await (await house.logon("THIEF", "Ada", stolen)).client.closed()
        assert await hall.desk.order(hall.ada, "o2") is None
        for one in (ada, owner):
            await one.send("35=1|112=here")
            assert (await one.next())[112] == "here"
        assert logins.revoke_tokens(hall.ada.account) == 1

    in_house(tmp_path, story)


def test_a_right_password_after_many_wrong_ones_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait of one who guesses is longer than a Logon may take to come: its owner must not be locked out by it."""

    async def story(house: House) -> None:
        for _ in range(12):
            await (await house.logon(secret="wrong")).client.closed()  # noqa: S106 - of a test
        assert house.hall.slept[-1] == LoginDelays.LONGEST_S
        waiting = asyncio.Event()
        monkeypatch.setattr(house.hall.desk, "_sleep", lambda _: waiting.wait())
        ada, bob = await house.logon(), await house.logon("BOB", "bob")
        assert (await bob.next())[35] == "A"  # From the same address, and he waits for nobody.
        await asyncio.sleep(2.1)  # Longer than the bound of the Logon.
        waiting.set()
        assert (await ada.next())[35] == "A"

    in_house(tmp_path, story, FixBounds(logon_seconds=2.0, write_seconds=LIMIT_S))
