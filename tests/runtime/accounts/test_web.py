"""The trading service over real connections on loopback: what it answers, what it refuses, and whom it outlasts."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference_pages import page, rows
from tests.runtime.accounts.memory_desk import ADA, ALL_SCOPES, MemoryDesk
from tests.runtime.accounts.traders import API_TOKEN, LIMIT_S, Stage, on_stage
from tests.runtime.worlds import eventually as until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from isocast.orders.desk import (
    CancelRequest,
    Lifetime,
    Login,
    NewOrder,
    OrderKind,
    Reason,
    ReplaceRequest,
    Scope,
    TradeReport,
)
from isocast.orders.json_forms import report_fields
from isocast.orders.needs import Side
from isocast.runtime.accounts import web
from isocast.runtime.accounts.web import ROUTES, TradingService, Who, openapi, serve_traders
from isocast.runtime.accounts.web_faults import STATUSES, Fault
from isocast.runtime.accounts.web_forms import REPORT_SCHEMA
from isocast.runtime.net.http import Answer, Request
from isocast.terms.errors import ConfigurationError, LedgerError, LedgerFault, LocalProtocolError

BOBS = "token-" + "Bob"
Story = Callable[[Stage], Awaitable[None]]


def run(folder: Path, story: Story, desk: MemoryDesk | None = None, ping_s: float = 20.0, take_s: float = 20.0) -> None:
    async def whole() -> None:
        async with asyncio.timeout(4 * LIMIT_S), on_stage(folder, desk, ping_s=ping_s, take_s=take_s) as stage:
            await story(stage)

    asyncio.run(whole())


class Asked:
    """A service without sockets, for what needs thousands of requests or another clock."""

    def __init__(self, desk: MemoryDesk | None = None) -> None:
        self.now = 0.0
        self.desk = desk or MemoryDesk()
        self.service = TradingService(self.desk, lambda: self.now)

    async def __call__(
        self, method: str, path: str, body: object = None, token: str = API_TOKEN, address: str = "192.0.2.1"
    ) -> tuple[int, Any]:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        path, _, query = path.partition("?")
        heads = {"authorization": f"Bearer {token}"} if token else {}
        answer = await self.service.respond(Request(method, path, query, heads, raw, address))
        assert isinstance(answer, Answer)
        return answer.status.value, json.loads(answer.body)


ORDER = {"client_id": "a-1", "symbol": "ISO", "side": "buy", "quantity": 100, "price": "10.05"}


# ---- what is answered


def test_a_trader_logs_in_buys_and_sees_what_became_of_it(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        status, session = await stage.ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, token="")
        assert (status, session["account"], session["scopes"]) == (200, ADA, ["read", "trade"])
        token = session["token"]
        status, accepted = await stage.order("a-1", token)
        assert (status, accepted["kind"], accepted["number"], accepted["price"]) == (200, "accepted", 1, "10.05")
        assert re.fullmatch(r"2023-11-14T22:13:20\.\d{9}Z", accepted["at"])
        assert accepted["order"] == str(ADA << 32 | 1)
        assert (await stage.order("b-1", "token-Bob", side="sell", quantity=60, price="10.00"))[0] == 200
        _, shown = await stage.ask("GET", "/v1/orders/a-1", token=token)
        assert (shown["status"], shown["filled"], shown["left"]) == ("part filled", 60, 40)
        assert shown["filled_value"] == "603.00"
        _, told = await stage.ask("GET", "/v1/reports?after=2", token=token)
        assert [one["kind"] for one in told["reports"]] == ["traded", "confirmed"]
        assert told["last"] == 4
        _, live = await stage.ask("GET", "/v1/orders", token=token)
        assert [one["client_id"] for one in live["orders"]] == ["a-1"]
        cancel = {"client_id": "a-2", "original_id": "a-1"}
        assert (await stage.ask("POST", "/v1/orders/cancel", cancel, token))[1]["kind"] == "cancel pending"
        assert (await stage.ask("GET", "/v1/orders", token=token))[1] == {"orders": []}
        assert len((await stage.ask("GET", "/v1/orders?live=false", token=token))[1]["orders"]) == 1
        assert (await stage.ask("POST", "/v1/logout", {}, token))[0] == 200
        assert (await stage.ask("GET", "/v1/orders", token=token))[0] == 401
        assert stage.desk.logged_out == [("session 1", False)]

    run(tmp_path, story)


def test_one_bad_order_of_a_batch_is_refused_alone_with_its_index_and_the_rest_stands() -> None:
    async def story() -> None:
        ask = Asked()
        batch = {
            "orders": [
                ORDER,
                {**ORDER, "client_id": "a-2", "price": 10.05},
                {**ORDER, "client_id": "a-3", "symbol": "NIX"},
                "no order",
                {**ORDER, "client_id": "a-4", "side": "sell", "price": "11.00"},
            ]
        }
        status, said = await ask("POST", "/v1/orders/batch", batch)
        assert (status, said["refused"]) == (200, 3)
        assert [one["index"] for one in said["results"]] == [0, 1, 2, 3, 4]
        faults = [one.get("error", {}) for one in said["results"]]
        assert [(one.get("reason"), one.get("field")) for one in faults] == [
            (None, None),
            ("malformed", "price"),
            ("unknown symbol", "symbol"),
            ("malformed", None),
            (None, None),
        ]
        assert [said["results"][place]["report"]["client_id"] for place in (0, 4)] == ["a-1", "a-4"]
        assert [one.request.client_id for one in ask.desk.entered] == ["a-1", "a-4"]
        assert (await ask("POST", "/v1/orders/batch", batch)) == (200, said)
        assert len(ask.desk.entered) == 2

    asyncio.run(story())


@pytest.mark.parametrize("orders", [None, [], {}, "x", [ORDER] * 257])
def test_a_batch_that_is_none_or_too_large_is_refused_as_a_whole(orders: object) -> None:
    async def story() -> None:
        ask = Asked()
        status, said = await ask("POST", "/v1/orders/batch", {"orders": orders})
        assert (status, said["error"]["field"], ask.desk.submitted) == (400, "orders", [])
        assert "1 to 256 orders" in said["error"]["message"]
        assert (await ask("POST", "/v1/orders/batch", {"orders": [ORDER]}, "reads-Ada"))[0] == 403
        assert not ask.desk.submitted

    asyncio.run(story())


def test_sums_are_exact_texts_and_quantities_whole_numbers(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        _, said = await stage.ask("GET", "/v1/balances")
        assert said["balances"] == [
            {"asset": "USD", "kind": "cash", "available": "1250.50", "reserved": "0.00"},
            {"asset": "ISO", "kind": "shares", "available": 300, "reserved": 100},
        ]
        _, said = await stage.ask("GET", "/v1/symbols")
        assert said["symbols"][0] == {
            "symbol": "ISO", "currency": "USD", "tick": "0.01", "lot": 1, "phase": "open", "reference": "10.00"
        }  # fmt: skip
        assert said["symbols"][1]["tick"] == "0.0001"

    run(tmp_path, story)


def test_what_is_asked_is_what_the_desk_hears() -> None:
    async def story() -> None:
        ask = Asked()
        full = {
            "client_id": "x-1", "symbol": "VOD", "side": "sell", "quantity": 30, "kind": "stop-limit",
            "price": "9.9999", "trigger": "10", "lifetime": "gtd", "until": "2030-01-02T03:04:05.000000006+01:00",
            "post_only": True, "display": 10, "open_offer": True, "owner": 7,
        }  # fmt: skip
        await ask("POST", "/v1/orders", full)
        await ask("POST", "/v1/orders/cancel", {"client_id": "x-2", "original_id": "x-1", "quantity": 10})
        await ask("POST", "/v1/orders/replace", {"client_id": "x-3", "original_id": "x-1", "quantity": 0, "price": "1"})
        assert ask.desk.submitted == [
            NewOrder(
                "x-1", "VOD", Side.SELL, 30, OrderKind.STOP_LIMIT, 99_999, 100_000, Lifetime.UNTIL_DATE,
                1_893_549_845_000_000_006, is_post_only=True, display=10, is_open_offer=True, owner=7,
            ),
            CancelRequest("x-2", "x-1", 10),
            ReplaceRequest("x-3", "x-1", 0, 10_000),
        ]  # fmt: skip

    asyncio.run(story())


def test_the_same_request_again_is_done_once_and_answered_the_same(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.order("a-1")
        assert await stage.order("a-1") == first
        assert len(stage.desk.entered) == 1
        status, said = await stage.order("a-1", quantity=101)
        assert (status, said["error"]["reason"]) == (409, "client id used")

    run(tmp_path, story)


def test_an_order_goes_on_when_its_connection_breaks(tmp_path: Path) -> None:
    """The desk was asked, and nobody waits any more: the order is entered all the same, and a repeat finds it."""

    async def story(stage: Stage) -> None:
        stage.desk.gate.clear()
        raw = json.dumps(ORDER).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", stage.port, ssl=stage.client_tls)
        writer.write(b"POST /v1/orders HTTP/1.1\r\nAuthorization: Bearer token-Ada\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
        await writer.drain()
        await until(lambda: bool(stage.service._works))  # noqa: SLF001 - that it was asked
        writer.transport.abort()
        stage.desk.gate.set()
        status, said = await stage.ask("POST", "/v1/orders", ORDER)
        assert (status, said["number"], len(stage.desk.entered)) == (200, 1, 1)

    run(tmp_path, story)


# ---- what is refused


def test_refusals_have_one_shape_a_status_a_reason_and_a_field() -> None:
    def but(**fields: object) -> dict[str, object]:
        return {name: value for name, value in {**ORDER, **fields}.items() if value != "gone"}

    cases: list[tuple[object, int, str, str | None, str]] = [
        (but(price=10.05), 400, "malformed", "price", "give prices as strings"),
        (but(price=10), 400, "malformed", "price", "give prices as strings"),
        (but(price="10.00001"), 400, "malformed", "price", "finer than 0.0001"),
        (but(price="1e3"), 400, "malformed", "price", "a price such as 10.05"),
        (but(price="-1"), 400, "malformed", "price", "a price such as 10.05"),
        (but(price="NaN"), 400, "malformed", "price", "a price such as 10.05"),
        (but(price="١٠"), 400, "malformed", "price", "a price such as 10.05"),
        (but(price="9" * 400), 400, "malformed", "price", "a price such as 10.05"),
        (but(quantity="100"), 400, "malformed", "quantity", "a whole number"),
        (but(quantity=100.0), 400, "malformed", "quantity", "a whole number"),
        (but(quantity=True), 400, "malformed", "quantity", "a whole number"),
        (but(quantity=0), 400, "malformed", "quantity", "from 1"),
        (but(quantity=2**53), 400, "malformed", "quantity", "whole number"),
        (but(quantity="gone"), 400, "malformed", "quantity", "is missing"),
        (but(side="byu"), 400, "malformed", "side", 'did you mean "buy"?'),
        (but(lifetime="goc"), 400, "malformed", "lifetime", "did you mean"),
        (but(until="2030-01-01"), 400, "malformed", "until", "with its offset"),
        (but(until="9" * 30 + "Z"), 400, "malformed", "until", "with its offset"),
        (but(client_id=""), 400, "malformed", "client_id", "1 to 64 printable"),
        (but(client_id="x" * 65), 400, "malformed", "client_id", "1 to 64 printable"),
        (but(client_id="a\nb"), 400, "malformed", "client_id", "1 to 64 printable"),
        (but(client_id=None), 400, "malformed", "client_id", "1 to 64 printable"),
        (but(quantitty=1), 400, "malformed", "quantitty", 'did you mean "quantity"?'),
        (but(post_only="yes"), 400, "malformed", "post_only", "true or false"),
        (b'{"client_id": "a", "client_id": "b"}', 400, "malformed", "client_id", "twice"),
        (b'{"price": NaN}', 400, "malformed", None, "no JSON object"),
        (b"[" * 4_000, 400, "malformed", None, "no JSON object"),
        (json.dumps(ORDER).encode().replace(b"100", b"9" * 3_000), 400, "malformed", "quantity", "whole number"),
        (b'"\xff"', 400, "malformed", None, "no JSON object"),
        (b"[]", 400, "malformed", None, "no JSON object"),
        (but(client_id="d-1", symbol="NIX"), 404, "unknown symbol", "symbol", "there is no NIX"),
        (but(client_id="d-2", kind="market"), 400, "malformed", "price", "a limit has one"),
        (but(client_id="d-3", quantity=1_000_001), 422, "quantity", "quantity", "at most 1,000,000"),
    ]

    async def story() -> None:
        ask = Asked()
        for body, status, reason, field, text in cases:
            got, said = await ask("POST", "/v1/orders", body)
            assert set(said) == {"error"}, body
            assert set(said["error"]) == {"reason", "message", "field"}
            assert (got, said["error"]["reason"], said["error"]["field"]) == (status, reason, field), (body, said)
            assert text in said["error"]["message"], (body, said)
        assert not ask.desk.entered

    asyncio.run(story())


@pytest.mark.parametrize(
    "method, path, token, status, reason",
    [
        ("GET", "/v1/nothing", "token-Ada", 404, "unknown path"),
        ("GET", "/v1/orders/cancel/x", "token-Ada", 404, "unknown order"),
        ("GET", "/v1/login", "", 405, "method"),
        ("GET", "/v1/orders", "", 401, "unauthorised"),
        ("GET", "/v1/orders", "nobody's", 401, "unauthorised"),
        ("GET", "/v1/orders", "trades-Ada", 403, "forbidden"),
        ("POST", "/v1/orders", "reads-Ada", 403, "forbidden"),
        ("POST", "/v1/orders/cancel", "reads-Ada", 403, "forbidden"),
        ("POST", "/v1/orders/cancel-all", "reads-Ada", 403, "forbidden"),
        ("GET", "/v1/orders/none", "token-Ada", 404, "unknown order"),
        ("GET", "/v1/orders?life=true", "token-Ada", 400, "malformed"),
        ("GET", "/v1/orders?live=perhaps", "token-Ada", 400, "malformed"),
        ("GET", "/v1/reports?after=-1", "token-Ada", 400, "malformed"),
        ("GET", "/v1/reports?after=1&after=2", "token-Ada", 400, "malformed"),
        ("GET", "/v1/reports?after=99999999999999999999", "token-Ada", 400, "malformed"),
        ("GET", "/v1/reports?limit=1001", "token-Ada", 400, "malformed"),
        ("GET", "/v1/watch", "token-Ada", 400, "http"),
        ("POST", "/v1/logout", "token-Ada", 400, "malformed"),
    ],
)
def test_what_a_token_may_and_where_nothing_is(method: str, path: str, token: str, status: int, reason: str) -> None:
    async def story() -> None:
        got, said = await Asked()(method, path, {} if method == "POST" else None, token)
        assert (got, said["error"]["reason"]) == (status, reason), said

    asyncio.run(story())


def test_a_login_is_refused_in_one_way_whoever_it_is_and_limited_by_name_and_address() -> None:
    async def story() -> None:
        ask = Asked()
        wrong = await ask("POST", "/v1/login", {"name": "Ada", "password": "x"}, "")
        assert wrong == await ask("POST", "/v1/login", {"name": "Nobody", "password": "x"}, "")
        assert (await ask("POST", "/v1/login", {"name": "Ada"}, ""))[0] == 400
        assert (await ask("POST", "/v1/login", {"name": "A", "password": "b", "token": "c"}, ""))[0] == 400
        for _ in range(10):
            assert (await ask("POST", "/v1/login", {"name": "Ada", "password": "x"}, "", "192.0.2.98"))[0] == 401
        right = {"name": "Ada", "password": "pw Ada"}
        assert (await ask("POST", "/v1/login", right, "", "192.0.2.98"))[0] == 429
        assert (await ask("POST", "/v1/login", right, "", "192.0.2.99"))[0] == 200, "who guesses keeps nobody else out"
        ask.now += 60
        assert (await ask("POST", "/v1/login", right, "", "192.0.2.98"))[0] == 200
        for name in range(30):
            await ask("POST", "/v1/login", {"name": f"N{name}", "password": "x"}, "", "192.0.2.7")
        assert (await ask("POST", "/v1/login", {"name": "Z", "password": "x"}, "", "192.0.2.7"))[0] == 429

    asyncio.run(story())


def test_logins_that_wait_at_one_address_keep_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each guess waits for its delay: a stranger with eight of them must not close the door to all."""

    async def story() -> None:
        ask, waits = Asked(), asyncio.Event()
        log_in = ask.desk.log_in

        async def late(name: str, password: str, address: str) -> Login | None:
            if password == "x":  # noqa: S105 - of a test
                await waits.wait()
            return await log_in(name, password, address)

        monkeypatch.setattr(ask.desk, "log_in", late)
        guesses = [
            asyncio.create_task(ask("POST", "/v1/login", {"name": f"N{number}", "password": "x"}, "", "192.0.2.7"))
            for number in range(8)
        ]
        await asyncio.sleep(0)
        right = {"name": "Ada", "password": "pw Ada"}
        assert (await ask("POST", "/v1/login", right, "", "192.0.2.7"))[0] == 503
        assert (await ask("POST", "/v1/login", right, "", "192.0.2.8"))[0] == 200
        waits.set()
        assert [status for status, _ in await asyncio.gather(*guesses)] == [401] * 8
        assert (await ask("POST", "/v1/login", right, "", "192.0.2.7"))[0] == 200

    asyncio.run(story())


def test_an_api_token_can_begin_a_session_which_ends_in_time() -> None:
    async def story() -> None:
        ask = Asked()
        _, session = await ask("POST", "/v1/login", {"token": "reads-Ada"}, "")
        assert session["scopes"] == ["read"]
        assert (await ask("GET", "/v1/orders", token=session["token"]))[0] == 200
        ask.now += web.SESSION_S
        assert (await ask("GET", "/v1/orders", token=session["token"]))[0] == 401
        assert ask.desk.logged_out == [("session 1", False)]

    asyncio.run(story())


def test_the_oldest_session_of_an_account_gives_way() -> None:
    async def story() -> None:
        ask = Asked()
        tokens = []
        for place in range(33):
            _, said = await ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, "", f"192.0.2.{place}")
            tokens.append(said["token"])
        assert len(set(tokens)) == 33
        assert (await ask("GET", "/v1/orders", token=tokens[0]))[0] == 401
        assert (await ask("GET", "/v1/orders", token=tokens[1]))[0] == 200

    asyncio.run(story())


def test_a_revoked_api_token_is_believed_for_seconds_only() -> None:
    async def story() -> None:
        ask = Asked()
        assert (await ask("GET", "/v1/orders"))[0] == (await ask("GET", "/v1/orders"))[0] == 200
        assert ask.desk.asked_tokens == 1
        del ask.desk.tokens["token-Ada"]
        ask.now += 5
        assert (await ask("GET", "/v1/orders"))[0] == 401

    asyncio.run(story())


def test_a_session_lives_as_long_as_the_desk_agrees() -> None:
    async def story() -> None:
        ask = Asked()
        _, by_name = await ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, "")
        _, by_token = await ask("POST", "/v1/login", {"token": "reads-Ada"}, "")
        both = by_name["token"], by_token["token"]
        ask.now += 6
        assert [(await ask("GET", "/v1/orders", token=one))[0] for one in both] == [200, 200]
        ask.desk.sessions.clear()
        del ask.desk.tokens["reads-Ada"]
        assert [(await ask("GET", "/v1/orders", token=one))[0] for one in both] == [200, 200]
        ask.now += 6
        assert [(await ask("GET", "/v1/orders", token=one))[0] for one in both] == [401, 401]
        assert len(ask.desk.logged_out) == 2

    asyncio.run(story())


def test_unknown_tokens_are_limited_by_address_and_known_ones_are_not_kept_out() -> None:
    async def story() -> None:
        ask = Asked()
        _, session = await ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, "")
        assert (await ask("GET", "/v1/orders"))[0] == 200
        statuses = [(await ask("GET", "/v1/orders", token=f"guess-{place}"))[0] for place in range(61)]
        assert statuses == [401] * 59 + [429] * 2  # The good one was unknown at first.
        assert (await ask("GET", "/v1/orders", token=session["token"]))[0] == 200
        ask.now += 6  # It is asked about again.
        asked = ask.desk.asked_tokens
        assert (await ask("POST", "/v1/orders/cancel-all", {"client_id": "a-1"}))[0] == 200
        assert ask.desk.asked_tokens == asked + 1
        assert (await ask("GET", "/v1/orders", token="guess-" + "again"))[0] == 429

    asyncio.run(story())


class AwayDesk(MemoryDesk):
    """One whose database can be away."""

    is_away = False

    async def log_in_by_token(self, token: str, address: str) -> Login | None:
        self._ask()
        return await super().log_in_by_token(token, address)

    async def orders(self, login: Login, *, live: bool = True, limit: int = 1000) -> Sequence[TradeReport]:
        self._ask()
        return await super().orders(login, live=live, limit=limit)

    def _ask(self) -> None:
        if self.is_away:
            raise LedgerError(LedgerFault.UNAVAILABLE, "the database is away")


def test_while_the_books_are_away_whoever_was_in_stays_in_and_is_told_to_come_again() -> None:
    async def story() -> None:
        ask = Asked(desk := AwayDesk())
        _, session = await ask("POST", "/v1/login", {"token": API_TOKEN}, "")
        both = API_TOKEN, session["token"]
        assert [(await ask("GET", "/v1/orders", token=one))[0] for one in both] == [200, 200]
        desk.is_away = True
        told = [await ask("GET", "/v1/orders", token=one) for one in both]
        ask.now += 6  # The tokens are asked about again.
        told += [await ask("GET", "/v1/orders", token=one) for one in both * 61]
        told.append(await ask("POST", "/v1/login", {"token": API_TOKEN}, ""))
        assert {(status, said["error"]["reason"]) for status, said in told} == {(503, "unavailable")}
        desk.is_away = False
        assert [(await ask("GET", "/v1/orders", token=one))[0] for one in both] == [200, 200]

    asyncio.run(story())


@pytest.mark.parametrize(
    "said",
    [
        {"name": None, "password": "x", "token": None},
        {"name": "Ada", "token": API_TOKEN},
        {"password": "pw Ada", "token": API_TOKEN},
        {"name": "Ada", "password": "pw Ada", "token": ""},
        {},
    ],
)
def test_a_login_is_a_name_with_its_password_or_a_token_alone(said: dict[str, str | None]) -> None:
    async def story() -> None:
        status, answer = await Asked()("POST", "/v1/login", said, "")
        assert (status, answer["error"]["reason"]) == (400, "malformed")

    asyncio.run(story())


class StrictDesk(MemoryDesk):
    """One that takes no password of nobody, and no id twice."""

    async def log_in(self, name: str, password: str, address: str) -> Login | None:
        assert isinstance(name, str)
        return await super().log_in(name, password, address)

    async def cancel_all(self, login: Login, client_id: str, symbol: str | None = None) -> int:  # noqa: ARG002 - of the desk
        raise LocalProtocolError(f"client id {client_id} was used for something else: take another")


def test_an_empty_token_is_nobodys() -> None:
    async def story() -> None:
        assert (await Asked(StrictDesk())("POST", "/v1/login", {"token": ""}, ""))[0] == 401

    asyncio.run(story())


def test_a_cancel_of_all_under_an_id_of_something_else_is_refused() -> None:
    async def story() -> None:
        status, said = await Asked(StrictDesk())("POST", "/v1/orders/cancel-all", {"client_id": "a-1"})
        assert (status, said["error"]["reason"], said["error"]["field"]) == (409, "client id used", "client_id")

    asyncio.run(story())


def test_too_many_requests_are_refused_and_cancels_never_are() -> None:
    """Settlement 23: cancels are never refused by rate."""

    async def story() -> None:
        ask = Asked()
        await ask("POST", "/v1/orders", ORDER)
        statuses = {(await ask("GET", "/v1/orders"))[0] for _ in range(2_999)}
        assert statuses == {200}
        assert (await ask("GET", "/v1/orders"))[0] == 429
        assert (await ask("GET", "/v1/orders", token=BOBS))[0] == 200
        statuses = {(await ask("GET", "/v1/orders", token=BOBS))[0] for _ in range(2_999)}
        assert statuses == {200, 429}
        assert (await ask("GET", "/v1/symbols", token="reads-" + "Ada", address="192.0.2.2"))[0] == 429
        cancel = {"client_id": "a-2", "original_id": "a-1"}
        assert (await ask("POST", "/v1/orders/cancel", cancel))[0] == 200
        assert (await ask("POST", "/v1/orders/cancel-all", {"client_id": "a-3"}))[0] == 200

    asyncio.run(story())


def test_a_desk_that_does_not_answer_is_unavailable_and_does_its_work_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_ANSWER_S", 0.01)

    async def story() -> None:
        ask = Asked()
        ask.desk.gate.clear()
        status, said = await ask("POST", "/v1/orders", ORDER)
        assert (status, said["error"]["reason"]) == (503, "unavailable")
        ask.desk.gate.set()
        await ask.service.close()
        assert len(ask.desk.entered) == 1

    asyncio.run(story())


def test_bytes_that_are_no_request_get_the_same_shape_of_error(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        for raw, status in (
            (b"NONSENSE\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\nA: " + b"x" * 9_000 + b"\r\n\r\n", b"431"),
            (b"PUT /v1/orders HTTP/1.1\r\n\r\n", b"405"),
            (b"POST /v1/orders HTTP/1.1\r\nContent-Length: 70000\r\n\r\n", b"413"),
            (b"POST /v1/orders HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        ):
            head, _, body = (await stage.exchange(raw)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + status), raw[:40]
            assert json.loads(body)["error"]["reason"] == "http"

    run(tmp_path, story)


class Broken(MemoryDesk):
    """A desk with a fault of its own."""

    async def orders(self, login: Login, *, live: bool = True, limit: int = 1000) -> Any:  # noqa: ANN401, ARG002
        raise RuntimeError("secret detail")


async def answered(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(row[15:]) for row in head.split(b"\r\n") if row.startswith(b"Content-Length:"))
    await reader.readexactly(size)
    return head


def test_a_connection_serves_requests_one_after_the_other_until_somebody_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "BOUNDS", replace(web.BOUNDS, idle_seconds=0.2))
    plain = b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n"

    async def story(stage: Stage) -> None:
        async def visit() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", stage.port, ssl=stage.client_tls)

        reader, writer = await visit()
        writer.write(2 * (plain + b"\r\n"))  # The second may come before the first is answered.
        for _ in range(2):
            assert b"\r\nConnection: keep-alive\r\n" in await answered(reader)
        assert await reader.read() == b"", "a connection that waits too long ends without a word"
        writer.transport.abort()
        for last in (plain + b"Connection: Close\r\n\r\n", plain.replace(b"1.1", b"1.0") + b"\r\n", b"?\r\n\r\n"):
            reader, writer = await visit()
            writer.write(last)
            assert b"\r\nConnection: close\r\n" in await answered(reader)
            assert await reader.read() == b""
            writer.transport.abort()

    run(tmp_path, story)


def test_a_fault_of_the_desk_says_nothing_of_itself(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        status, said = await stage.ask("GET", "/v1/orders")
        assert (status, said["error"]["reason"]) == (500, "failed")
        assert "secret" not in json.dumps(said)
        assert (await stage.ask("GET", "/v1/balances"))[0] == 200

    run(tmp_path, story, Broken())


def test_without_tls_it_serves_this_machine_alone() -> None:
    with pytest.raises(ConfigurationError, match="passwords travel here"):
        asyncio.run(serve_traders(TradingService(MemoryDesk()), None, "0.0.0.0", 0))  # noqa: S104


# ---- hostile bodies

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["10.05", "buy", "ISO"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_POSTS = [route for route in ROUTES if route.method == "POST" and route.path.startswith("/v1/orders")]


@st.composite
def _posts(draw: st.DrawFn) -> tuple[str, bytes]:
    """A route, and a body that is near to what it wants, or bytes."""
    route = draw(st.sampled_from(_POSTS))
    if draw(st.booleans()):
        return route.path, draw(st.binary(max_size=200))
    names = st.sampled_from([*(route.body or {}), "unknown"])
    body = {**draw(st.sampled_from([{}, ORDER])), **draw(st.dictionaries(names, _JSON, max_size=5))}
    return route.path, json.dumps(body).encode()


@settings(max_examples=400)
@given(_posts())
def test_whatever_a_body_says_it_is_answered_in_json_and_the_desk_hears_only_sound_requests(
    asked: tuple[str, bytes],
) -> None:
    async def story() -> None:
        ask = Asked()
        path, body = asked
        status, said = await ask("POST", path, body)
        assert status in {200, *STATUSES.values()}
        assert status != 500
        if status != 200:
            assert set(said["error"]) == {"reason", "message", "field"}
            assert said["error"]["message"]
        for request in ask.desk.submitted:
            assert 1 <= len(request.client_id) <= 64
            if not isinstance(request, NewOrder | CancelRequest | ReplaceRequest):
                continue
            assert isinstance(request.quantity, int | None)
            assert request.quantity is None or 0 <= request.quantity < 2**53
            if not isinstance(request, CancelRequest):
                assert all(
                    isinstance(one, int) and one >= 0 for one in (request.price, request.trigger) if one is not None
                )

    asyncio.run(story())


def test_half_a_character_in_a_name_is_refused_and_says_so() -> None:
    """JSON's escapes can say it, UTF-8 cannot: the answer has the same escape, and other orders of a batch stand."""

    async def story() -> None:
        ask = Asked()
        status, said = await ask("POST", "/v1/orders", b'{"\\ud800": 1}')
        assert (status, said["error"]["field"]) == (400, "\ud800")
        batch = {"orders": [ORDER, {**ORDER, "client_id": "a-2", "\ud800": 1}]}
        status, said = await ask("POST", "/v1/orders/batch", batch)
        assert (status, said["refused"]) == (200, 1)
        assert said["results"][0]["report"]["client_id"] == ORDER["client_id"]

    asyncio.run(story())


# ---- what is described


def test_openapi_describes_every_route_and_a_report_is_as_described(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        status, said = await stage.ask("GET", "/v1/openapi.json", token="")
        assert (status, said) == (200, json.loads(json.dumps(openapi())))
        described = {(method.upper(), path) for path, methods in said["paths"].items() for method in methods}
        assert described == {(route.method, route.path) for route in ROUTES}
        body = said["paths"]["/v1/orders"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["required"] == ["client_id", "symbol", "side", "quantity"]
        assert body["properties"]["price"]["type"] == ["string", "null"]
        assert said["paths"]["/v1/orders"]["post"]["security"] == [{"token": []}]
        assert "security" not in said["paths"]["/v1/login"]["post"]
        _, report = await stage.order("a-1")
        assert list(report) == list(REPORT_SCHEMA["properties"])

    run(tmp_path, story)


def test_the_page_for_people_names_every_route_and_takes_nothing_from_elsewhere(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        raw = await stage.exchange(b"GET / HTTP/1.1\r\n\r\n")
        head, _, body = raw.partition(b"\r\n\r\n")
        text = body.decode()
        for route in ROUTES:
            assert f"<code>{route.method} {route.path}</code>" in text
        assert not re.search(r"<script|<link|<img|src=|@import|url\(", text)
        assert re.findall(r'href="([^"]*)"', text) == ["/v1/openapi.json"]
        assert b"default-src 'none'" in head

    run(tmp_path, story)


def test_the_reference_page_has_every_route_and_every_reason() -> None:
    text = page("trading-api")
    assert [(cells[0].strip("`"), cells[1]) for cells in rows(text, "route")] == [
        (f"{route.method} {route.path}", route.who.value) for route in ROUTES
    ]
    reasons = {cells[0].strip("`"): int(cells[1]) for cells in rows(text, "reason")}
    assert reasons == {one.value: STATUSES[one].value for one in [*Reason, *Fault]}
    assert {one.value for one in Who} == {"anyone", *[one.value for one in Scope]}


# ---- reports by WebSocket


def watching(stage: Stage, token: str = API_TOKEN, query: str = "after=0") -> connect:
    return connect(
        f"wss://127.0.0.1:{stage.port}/v1/watch?{query}",
        ssl=stage.client_tls,
        additional_headers={"Authorization": f"Bearer {token}"},
        proxy=None,
        compression=None,
        open_timeout=LIMIT_S,
        ping_interval=None,
    )


async def heard(connection: Any, many: int) -> list[dict[str, Any]]:  # noqa: ANN401 - of a library
    async with asyncio.timeout(LIMIT_S):
        return [json.loads(await connection.recv()) for _ in range(many)]


def test_every_report_is_sent_once_and_in_order_past_ones_first(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.order("a-1")
        async with watching(stage) as connection:
            assert [one["number"] for one in await heard(connection, 2)] == [1, 2]
            await stage.order("b-1", "token-Bob", side="sell")
            got = await heard(connection, 2)
            assert [one["kind"] for one in got] == ["traded", "confirmed"]
            assert got == [report_fields(one) for one in await stage.desk.reports(Login(ADA, "", ALL_SCOPES, ""), 2)]
        await until(lambda: stage.service.watchers == stage.desk.watching == 0)

    run(tmp_path, story)


def test_a_reader_that_was_away_goes_on_without_loss_or_duplicate(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.order("a-1")
        numbers: list[int] = []
        for turn in range(4):
            async with watching(stage, query=f"after={len(numbers)}") as connection:
                numbers += [one["number"] for one in await heard(connection, 2)]
                if turn % 2:
                    connection.transport.abort()
            await stage.order(f"a-{turn + 2}", price=f"9.{turn}")
        assert numbers == list(range(1, 9))

    run(tmp_path, story)


def test_a_reader_that_takes_nothing_is_cut_off_and_loses_nothing(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.order("a-1")
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        small.settimeout(0)
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", stage.port))
        reader, writer = await asyncio.open_connection(
            sock=small, ssl=stage.client_tls, server_hostname="127.0.0.1", limit=1_024
        )
        writer.write(
            b"GET /v1/watch?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-Ada\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        many = 20_000
        await stage.desk.tell_many(ADA, many)
        await until(lambda: stage.service.watchers == stage.desk.watching == 0, LIMIT_S)
        assert stage.desk.watched < many  # The rest waited at the desk, and nowhere on the way.
        writer.transport.abort()
        got: list[int] = []
        while len(got) < many + 2:  # On a machine that stalls this reader may be cut off, too.
            async with watching(stage, query=f"after={len(got)}") as connection:
                with suppress(ConnectionClosed):
                    async for text in connection:
                        got.append(json.loads(text)["number"])
                        if len(got) == many + 2:
                            break
        assert got == list(range(1, many + 3))

    run(tmp_path, story, take_s=0.2, ping_s=LIMIT_S)


def test_a_reader_that_answers_no_ping_is_cut_off(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, ssl=stage.client_tls)
        writer.write(
            b"GET /v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-Ada\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        async with asyncio.timeout(LIMIT_S):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.read() == b"\x89\x00"  # One ping, and the end.
        writer.transport.abort()

    run(tmp_path, story, ping_s=0.5)


def test_a_reader_that_answers_pings_stays_until_its_token_is_revoked(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with watching(stage) as connection:
            del stage.desk.tokens["token-Ada"]
            stage.service._known.clear()  # noqa: SLF001 - as after five seconds
            with pytest.raises(ConnectionClosed, match="log in again"):
                await heard(connection, 1)

    run(tmp_path, story, ping_s=0.5)


def test_a_session_that_logs_out_watches_no_longer(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        _, session = await stage.ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, token="")
        async with watching(stage, session["token"]) as connection:
            await stage.ask("POST", "/v1/logout", {"cancel_orders": True}, session["token"])
            with pytest.raises(ConnectionClosed, match="session has ended"):
                await heard(connection, 1)
        assert stage.desk.logged_out == [("session 1", True)]

    run(tmp_path, story)


def test_cancel_on_disconnect_ends_the_session_and_its_orders(tmp_path: Path) -> None:
    """Settlement 25: all live orders entered by that session."""

    async def story(stage: Stage) -> None:
        _, session = await stage.ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, token="")
        await stage.order("other")
        query = "after=0&cancel_on_disconnect=true"
        with pytest.raises(InvalidStatus):
            async with watching(stage, query=query):
                pass
        async with watching(stage, session["token"], query) as connection:
            await stage.order("mine", session["token"])
            await heard(connection, 4)
            connection.transport.abort()
        await until(lambda: stage.desk.logged_out == [("session 1", True)])
        _, live = await stage.ask("GET", "/v1/orders")
        assert [one["client_id"] for one in live["orders"]] == ["other"]
        assert (await stage.ask("GET", "/v1/orders", token=session["token"]))[0] == 401

    run(tmp_path, story)


def test_who_talks_on_the_websocket_is_told_where_orders_go(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with watching(stage) as connection:
            await connection.send('{"buy": 1}')
            with pytest.raises(ConnectionClosed, match="POST /v1/orders"):
                await heard(connection, 1)

    run(tmp_path, story)


@pytest.mark.parametrize("token, status", [("nobody's", 401), ("trades-Ada", 403)])
def test_a_websocket_needs_a_token_that_may_read(tmp_path: Path, token: str, status: int) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(InvalidStatus) as refused:
            async with watching(stage, token):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["error"]["message"]

    run(tmp_path, story)


def test_an_account_has_so_many_watchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_WATCHERS_OF_ACCOUNT_MAX", 1)

    async def story(stage: Stage) -> None:
        async with watching(stage), watching(stage, "token-Bob"):
            with pytest.raises(InvalidStatus) as refused:
                async with watching(stage):
                    pass
            assert refused.value.response.status_code == 429

    run(tmp_path, story)


def test_the_end_of_the_service_ends_watchers_and_cancels_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        desk = MemoryDesk()
        async with on_stage(tmp_path, desk) as stage:
            _, session = await stage.ask("POST", "/v1/login", {"name": "Ada", "password": "pw Ada"}, token="")
            connection = await watching(stage, session["token"], "cancel_on_disconnect=true")
        with pytest.raises(ConnectionClosed):
            await heard(connection, 1)
        assert desk.logged_out == []
        assert desk.watching == 0

    asyncio.run(story())
