"""Trading from Python over real connections on loopback: the same order as by HTTP, once, whatever breaks."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.runtime.accounts.memory_desk import ADA, MemoryDesk
from tests.runtime.accounts.traders import API_TOKEN, LIMIT_S, Stage, on_stage, server_context
from tests.runtime.box_office.certificates import make_certificates
from tests.runtime.worlds import eventually

import isocast
from isocast.orders.desk import CancelRequest, Login, NewOrder, Reason, ReportKind, TradeReport, TradingRequest
from isocast.runtime.client import trading_http
from isocast.runtime.client.trading_http import TradingHttp
from isocast.terms.errors import ConfigurationError, RemoteProtocolError, TransportError

ROOT = Path(__file__).parents[3]
BOBS = "token-" + "Bob"
Story = Callable[[Stage, isocast.Trader], Awaitable[None]]


def trader(stage: Stage, token: str = API_TOKEN, patience_s: float = LIMIT_S) -> isocast.Trader:
    return isocast.Trader(stage.url, token=token, ca=stage.ca, patience_s=patience_s)


def run(folder: Path, story: Story) -> None:
    async def whole() -> None:
        async with asyncio.timeout(4 * LIMIT_S), on_stage(folder) as stage, trader(stage) as ada:
            await story(stage, ada)

    asyncio.run(whole())


# ---- orders


def test_an_order_is_bought_filled_and_confirmed(tmp_path: Path) -> None:
    async def story(stage: Stage, ada: isocast.Trader) -> None:
        order = await ada.buy("ISO", 100, "10.05")
        assert isinstance(order, isocast.TraderOrder)
        assert (order.status, order.report.price, order.report.left) == ("pending", Decimal("10.05"), 100)
        async with trader(stage, BOBS) as bob:
            waiting = asyncio.create_task(order.filled(timeout_s=LIMIT_S))
            await bob.sell("ISO", 40, "10.00")
            await bob.sell("ISO", 60, 10)
            report = await waiting
        assert isinstance(report, isocast.OrderReport)
        assert (report.status, report.filled, report.average_price) == ("filled", 100, Decimal("10.05"))
        assert report.is_final
        await order.confirmed(timeout_s=LIMIT_S)
        assert repr(order) == f"<TraderOrder {order.client_id}: buy 100 ISO, filled>"

    run(tmp_path, story)


def test_orders_share_a_connection_and_go_on_when_it_has_ended(tmp_path: Path) -> None:
    async def story(stage: Stage, ada: isocast.Trader) -> None:
        async with between(stage) as middle:
            url = f"https://127.0.0.1:{middle.port}"
            async with isocast.Trader(url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as eve:
                for _ in range(3):
                    await eve.buy("ISO", 1, "10.05")
                assert middle.connections == 1
                middle.cut()  # As when a gateway is started anew.
                await eve.buy("ISO", 1, "10.05")
                assert middle.connections == 2
        assert len(await ada.orders()) == 4

    run(tmp_path, story)


def test_filled_is_tentative_and_confirmed_is_final(tmp_path: Path) -> None:
    async def story(stage: Stage, ada: isocast.Trader) -> None:
        stage.desk.confirms = False
        order = await ada.buy("ISO", 100, "10.05")
        async with trader(stage, BOBS) as bob:
            await bob.sell("ISO", 100, "10.05")
        assert (await order.filled(timeout_s=LIMIT_S)).kind == "traded"
        waiting = asyncio.create_task(order.confirmed(timeout_s=LIMIT_S))
        with pytest.raises(TimeoutError):
            await order.confirmed(timeout_s=0.05)
        assert not waiting.done()
        await stage.desk.confirm()
        assert (await waiting).kind == "confirmed"

    run(tmp_path, story)


def test_filled_says_how_an_order_ended_otherwise(tmp_path: Path) -> None:
    async def story(_: Stage, ada: isocast.Trader) -> None:
        order = await ada.buy("ISO", 100, "10.05", lifetime="ioc")
        with pytest.raises(isocast.TraderRefusedError, match="was cancelled, with 0 of 100 filled") as ended:
            await order.filled()
        assert ended.value.reason == "cancelled"
        assert (await order.ended()).left == 0
        live = await ada.buy("ISO", 100, "10.05")
        with pytest.raises(TimeoutError):
            await live.filled(timeout_s=0.05)

    run(tmp_path, story)


def test_orders_are_cancelled_replaced_listed_and_found_again(tmp_path: Path) -> None:
    async def story(stage: Stage, ada: isocast.Trader) -> None:
        order = await ada.sell("ISO", 100, "10.05", client_id="a/1 ?%")
        assert (await ada.replace(order, quantity=80, price="10.10")).kind == "replace pending"
        found = await ada.order("a/1 ?%")
        assert (found.report.quantity, found.report.price, found.report.kind) == (80, Decimal("10.10"), "status")
        assert (await order.cancel(30)).kind == "cancel pending"
        assert [(one.client_id, one.quantity) for one in await ada.orders()] == [("a/1 ?%", 50)]
        await ada.cancel(order)
        assert (await found.ended()).status == (await order.ended()).status == "cancelled"
        assert await ada.orders() == []
        assert len(await ada.orders(live=False)) == 1
        with pytest.raises(isocast.TraderRefusedError, match="there is no live") as refused:
            await ada.cancel(order)
        assert refused.value.reason == "unknown order"
        await ada.buy("ISO", 1, "1")
        await ada.buy("VOD", 1, "1")
        assert (await ada.cancel_all("VOD"), await ada.cancel_all()) == (1, 1)
        with pytest.raises(isocast.TraderRefusedError, match="you have no order 'none'"):
            await ada.order("none")
        assert stage.desk.entered[0].request.client_id == "a/1 ?%"

    run(tmp_path, story)


def test_an_order_found_again_hears_what_was_told_before(tmp_path: Path) -> None:
    """Its trade is known as confirmed only when the report that says so has been read."""

    async def story(stage: Stage, ada: isocast.Trader) -> None:
        await ada.buy("ISO", 100, "10.05", client_id="old")
        async with trader(stage, BOBS) as bob:
            await bob.sell("ISO", 100, "10.05")
        report = await (await ada.order("old")).confirmed(timeout_s=LIMIT_S)
        assert (report.kind, report.trade) == ("confirmed", 1)
        live = await ada.buy("ISO", 1, "1")
        with pytest.raises(TimeoutError):
            await live.ended(timeout_s=0.05)  # It follows by now.
        again = await ada.buy("ISO", 100, "10.05", client_id="old")
        assert (await again.filled(timeout_s=LIMIT_S)).filled == 100
        assert len(stage.desk.entered) == 3

    run(tmp_path, story)


def test_balances_and_symbols_are_exact(tmp_path: Path) -> None:
    async def story(_: Stage, ada: isocast.Trader) -> None:
        assert await ada.balances() == [
            isocast.Balance("USD", "cash", Decimal("1250.50"), Decimal(0)),
            isocast.Balance("ISO", "shares", Decimal(300), Decimal(100)),
        ]
        iso, vod = await ada.symbols()
        assert iso == isocast.TradedSymbol("ISO", "USD", Decimal("0.01"), 1, "open", Decimal(10))
        assert (vod.lot, vod.reference) == (10, None)

    run(tmp_path, story)


SOME_DAY = datetime(2030, 1, 1, tzinfo=UTC)
SOME_DAY_TEXT = "2030-01-01T00:00:00Z"
PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"price": "10.05"}, {"price": "10.05"}),
    ({"price": Decimal("10.05")}, {"price": "10.05"}),
    ({"price": 10}, {"price": "10"}),
    ({"price": 10.05}, {"price": "10.05"}),
    ({"price": "0.0001", "lifetime": "gtc"}, {"price": "0.0001", "lifetime": "gtc"}),
    ({"market": True}, {"kind": "market"}),
    ({"market": True, "lifetime": "fok"}, {"kind": "market", "lifetime": "fok"}),
    ({"price": "9", "lifetime": "ioc"}, {"price": "9", "lifetime": "ioc"}),
    ({"stop": "9.5"}, {"kind": "stop", "trigger": "9.5"}),
    ({"stop": "9.5", "price": "9.4"}, {"kind": "stop-limit", "trigger": "9.5", "price": "9.4"}),
    ({"price": "9", "until": SOME_DAY}, {"price": "9", "lifetime": "gtd", "until": SOME_DAY_TEXT}),
    ({"price": "9", "until": "2030-01-01T01:00:00+01:00"}, {"price": "9", "lifetime": "gtd", "until": SOME_DAY_TEXT}),
    ({"price": "9", "post_only": True}, {"price": "9", "post_only": True}),
    ({"price": "9", "show": 10}, {"price": "9", "display": 10}),
    ({"price": "9", "owner": 7, "open_offer": True}, {"price": "9", "owner": 7, "open_offer": True}),
]  # fmt: skip


def test_the_same_order_by_http_and_python_is_the_same_to_the_desk(tmp_path: Path) -> None:
    async def story(stage: Stage, ada: isocast.Trader) -> None:
        for place, (python, http) in enumerate(PAIRS):
            buys = place % 2
            common: dict[str, Any] = {"client_id": f"pair-{place}", "symbol": "ISO", "quantity": 100 + place}
            await (ada.buy if buys else ada.sell)(**common, **python)
            body = {**common, "side": "buy" if buys else "sell", **http}
            assert (await stage.ask("POST", "/v1/orders", body))[0] == 200
            one, other = stage.desk.submitted[-2:]
            assert isinstance(one, NewOrder)
            assert one == other, python
        assert len(stage.desk.entered) == len(PAIRS)

    run(tmp_path, story)


@pytest.mark.parametrize(
    "said, field, text",
    [
        ({"price": 0.1 + 0.2}, "price", "0.30000000000000004 is not an exact price"),
        ({"price": float("nan")}, "price", "nan is not an exact price"),
        ({"price": "ten"}, "price", "not 'ten'"),
        ({"price": Decimal("10.00001")}, "price", "finer than 0.0001"),
        ({"price": -1}, "price", "-1 is no price"),
        ({"price": True}, "price", "True is no price"),
        ({"price": "1", "stop": "1e5"}, "stop", "not '1e5'"),
        ({}, "price", "give a price, or say market=True"),
        ({"price": 1, "market": True}, "price", "a market order has none"),
        ({"price": 1, "quantity": 1.0}, "quantity", "a whole number from 1"),
        ({"price": 1, "quantity": 0}, "quantity", "a whole number from 1"),
        ({"price": 1, "lifetime": "goc"}, "lifetime", "'goc' is not one of day"),
        ({"price": 1, "until": "2030-01-01"}, "until", "with its offset"),
        ({"price": 1, "until": datetime(2030, 1, 1)}, "until", "with its offset"),  # noqa: DTZ001
        ({"price": 1, "until": SOME_DAY, "lifetime": "ioc"}, "until", "lives ioc"),
        ({"price": 1, "client_id": "ä"}, "client_id", "printable ASCII"),
    ],
)
def test_what_is_wrong_is_refused_before_it_is_sent(said: dict[str, Any], field: str, text: str) -> None:
    async def story() -> None:
        async with isocast.Trader("http://127.0.0.1:1", token="x-y") as ada:  # noqa: S106 - nobody listens there
            with pytest.raises(isocast.TraderRefusedError) as refused:
                await ada.buy(**{"symbol": "ISO", "quantity": 1, **said})
        assert (refused.value.reason, refused.value.field) == ("malformed", field)
        assert text in str(refused.value)

    asyncio.run(story())


# ---- what breaks


class Between:
    """Stands between a trader and the service, and breaks connections after so many bytes of an answer."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.passes: list[int | None] = []
        """For each further connection how many bytes of the answer pass, before it breaks; None: all."""
        self.connections = 0
        self._behind = port
        self._open: set[asyncio.StreamWriter] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        most = self.passes.pop(0) if self.passes else None
        there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        self._open |= {writer, back}
        works = [asyncio.create_task(_pour(reader, back, None)), asyncio.create_task(_pour(there, writer, most))]
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for one in (writer, back):
            one.transport.abort()
        self._open -= {writer, back}

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._open:
            writer.transport.abort()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536 if most is None else most):
            writer.write(data)
            await writer.drain()
            most = None if most is None else most - len(data)
            if most is not None and most <= 0:
                return


@asynccontextmanager
async def between(stage: Stage) -> AsyncIterator[Between]:
    one = Between(stage.port)
    server = await asyncio.start_server(one, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        one.cut()


def test_after_a_lost_answer_the_same_request_goes_again_under_the_same_id(tmp_path: Path) -> None:
    """However many bytes of the handshake or the answer arrive: one order, and one answer."""

    async def story(stage: Stage, _: isocast.Trader) -> None:
        async with between(stage) as middle:
            url = f"https://127.0.0.1:{middle.port}"
            for place, broken in enumerate([[1], [1_500], [2_000, 2_100], [2_200], [1, 2_300]]):
                middle.passes[:] = broken
                before = middle.connections
                async with isocast.Trader(url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as ada:
                    order = await ada.buy("ISO", 100, f"1.0{place}")
                assert middle.connections > before
                assert order.report.kind == "accepted"
                assert len(stage.desk.entered) == place + 1
            assert max(len(stage.desk.submitted), middle.connections) > len(stage.desk.entered)
            assert {one.client_id for one in stage.desk.submitted} == {
                one.request.client_id for one in stage.desk.entered
            }

    run(tmp_path, story)


def test_an_order_whose_answer_was_lost_is_entered_once(tmp_path: Path) -> None:
    """The desk was asked and the connection broke: the repeat finds what became of it."""

    async def story(stage: Stage, _: isocast.Trader) -> None:
        async with between(stage) as middle:
            url = f"https://127.0.0.1:{middle.port}"
            async with isocast.Trader(url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as ada:
                stage.desk.gate.clear()
                buying = asyncio.create_task(ada.buy("ISO", 100, "10.05"))
                await eventually(lambda: bool(stage.service._works), LIMIT_S)  # noqa: SLF001 - that it was asked
                middle.cut()
                await eventually(lambda: len(stage.service._works) > 1, LIMIT_S)  # noqa: SLF001
                stage.desk.gate.set()
                order = await buying
        assert (len(stage.desk.submitted), len(stage.desk.entered)) == (2, 1)
        assert order.report.number == 1

    run(tmp_path, story)


def test_when_patience_ends_the_error_names_the_id_to_ask_again_with(tmp_path: Path) -> None:
    async def story(stage: Stage, _: isocast.Trader) -> None:
        stage.desk.gate.clear()
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            url = f"https://127.0.0.1:{nobody.getsockname()[1]}"
            nobody.close()
            async with isocast.Trader(url, token=API_TOKEN, ca=stage.ca, patience_s=0.1) as ada:
                with pytest.raises(isocast.TraderLostError, match="ask again under the client id mine") as lost:
                    await ada.buy("ISO", 100, "10.05", client_id="mine")
                assert lost.value.client_id == "mine"
                with pytest.raises(TransportError) as other:
                    await ada.balances()
                assert not isinstance(other.value, isocast.TraderLostError)
        assert API_TOKEN not in str(lost.value)

    run(tmp_path, story)


def test_a_service_that_is_busy_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isocast.runtime.accounts import web  # noqa: PLC0415 - patched here alone

    monkeypatch.setattr(web, "_ANSWER_S", 0.05)

    async def story(stage: Stage, ada: isocast.Trader) -> None:
        stage.desk.gate.clear()
        buying = asyncio.create_task(ada.buy("ISO", 100, "10.05"))
        await eventually(lambda: len(stage.service._works) > 1, LIMIT_S)  # noqa: SLF001 - it was asked twice
        stage.desk.gate.set()
        assert (await buying).report.number == 1
        assert len(stage.desk.entered) == 1

    run(tmp_path, story)


def test_reports_go_on_after_every_break_without_loss_or_duplicate(tmp_path: Path) -> None:
    async def story(stage: Stage, ada: isocast.Trader) -> None:
        await ada.buy("ISO", 100, "10.05")
        numbers: list[int] = []
        async with between(stage) as middle:
            url = f"https://127.0.0.1:{middle.port}"
            async with isocast.Trader(url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as other:
                async for report in other.reports():
                    numbers.append(report.number)
                    if len(numbers) % 7 == 0:
                        middle.cut()
                    if len(numbers) == 60:
                        break
                    if len(numbers) % 2 == 0:
                        await ada.buy("ISO", 1, f"1.{len(numbers):02}")
            assert middle.connections > 7
        assert numbers == list(range(1, 61))
        assert [one.number for one in await ada.past_reports(58, 5)] == [59, 60]

    run(tmp_path, story)


def test_who_waits_for_an_order_waits_through_a_break(tmp_path: Path) -> None:
    async def story(stage: Stage, _: isocast.Trader) -> None:
        async with between(stage) as middle:
            url = f"https://127.0.0.1:{middle.port}"
            async with isocast.Trader(url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as ada:
                order = await ada.buy("ISO", 100, "10.05")
                waiting = asyncio.create_task(order.confirmed())
                await eventually(lambda: stage.desk.watching == 1, LIMIT_S)
                middle.cut()
                async with trader(stage, BOBS) as bob:
                    await bob.sell("ISO", 100, "10.05")
                assert (await waiting).filled == 100

    run(tmp_path, story)


def test_who_waits_hears_that_reports_cannot_be_had(tmp_path: Path) -> None:
    async def story(stage: Stage, _: isocast.Trader) -> None:
        async with trader(stage, "trades-" + "Ada") as blind:
            order = await blind.buy("ISO", 100, "10.05")
            with pytest.raises(isocast.TraderRefusedError, match="scope 'read'"):
                await order.filled()

    run(tmp_path, story)


def test_a_report_that_was_left_out_is_an_error_and_not_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def skipping(_: object, after: int, *__: object) -> AsyncIterator[dict[str, Any]]:
        yield {"number": after + 2}

    monkeypatch.setattr(TradingHttp, "_stream", skipping)

    async def story(_: Stage, ada: isocast.Trader) -> None:
        with pytest.raises(RemoteProtocolError, match="left out report 6"):
            await anext(ada.reports(5))

    run(tmp_path, story)


def test_a_report_that_comes_twice_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"number": number} for number in (4, 5, 6, 6, 5, 7)]

    async def repeating(*_: object) -> AsyncIterator[dict[str, Any]]:
        for one in told:
            yield one

    monkeypatch.setattr(TradingHttp, "_stream", repeating)

    async def story(_: Stage, ada: isocast.Trader) -> None:
        async with aclosing(ada._http.watch(5)) as stream:  # noqa: SLF001 - what reports are made of
            assert [(await anext(stream))["number"] for _ in range(2)] == [6, 7]

    run(tmp_path, story)


# ---- who


def test_a_name_and_a_password_begin_a_session_that_is_renewed_and_ended(tmp_path: Path) -> None:
    async def story() -> None:
        desk = MemoryDesk()
        async with on_stage(tmp_path, desk) as stage:
            ada = isocast.Trader(stage.url, name="Ada", password="pw Ada", ca=stage.ca, patience_s=LIMIT_S)  # noqa: S106
            await ada.buy("ISO", 1, "1", client_id="first")
            port = stage.port
        async with on_stage(tmp_path, desk, port) as stage:  # Sessions are gone with the service.
            await asyncio.gather(*[ada.buy("ISO", 1, "1", client_id=f"again {place}") for place in range(5)])
            assert (await anext(ada.reports())).number == 1
            assert "pw Ada" not in repr(ada)
            await ada.close()
            assert len(desk.logged_out) == 1
        assert [order.session for order in desk.entered] == ["session 1", *["session 2"] * 5]

    # The certificate is made anew with the second service: both must be believed.
    asyncio.run(_same_certificate(story, tmp_path))


async def _same_certificate(story: Callable[[], Awaitable[None]], folder: Path) -> None:
    made = make_certificates(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.runtime.accounts.traders.make_certificates", lambda _: made)
        async with asyncio.timeout(4 * LIMIT_S):
            await story()


def test_a_wrong_password_or_token_is_refused_at_once(tmp_path: Path) -> None:
    async def story(stage: Stage, _: isocast.Trader) -> None:
        strangers: list[dict[str, Any]] = [{"name": "Ada", "password": "wrong"}, {"token": "wrong"}]
        for who in strangers:
            async with isocast.Trader(stage.url, ca=stage.ca, **who) as nobody:
                with pytest.raises(isocast.TraderRefusedError) as refused:
                    await nobody.balances()
                assert refused.value.reason == "unauthorised"
                with pytest.raises(isocast.TraderRefusedError):
                    await anext(nobody.reports())

    run(tmp_path, story)


def test_a_certificate_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    async def story(stage: Stage, _: isocast.Trader) -> None:
        (tmp_path / "other").mkdir()
        other, _context = server_context(tmp_path / "other")
        async with isocast.Trader(stage.url, token=API_TOKEN, ca=other) as ada:
            with pytest.raises(TransportError, match="no certificate that is believed"):
                await ada.buy("ISO", 1, "1")
            with pytest.raises(TransportError, match="no certificate that is believed"):
                await anext(ada.reports())
        assert not stage.desk.submitted

    run(tmp_path, story)


@pytest.mark.parametrize(
    "url, who, text",
    [
        ("ftp://x", {"token": "t"}, "must be https://HOST"),
        ("https://x/path", {"token": "t"}, "must be https://HOST"),
        ("https://a:b@x", {"token": "t"}, "must not have a password in it"),
        ("http://192.0.2.1", {"token": "t"}, "over https only"),
        ("https://x", {}, "give a token, or a name and a password"),
        ("https://x", {"name": "Ada"}, "give a token, or a name and a password"),
        ("https://x", {"token": "t", "name": "Ada", "password": "p"}, "give a token, or a name and a password"),
        ("https://x", {"token": "a\r\nb"}, "printable ASCII"),
    ],
)
def test_a_place_or_a_person_that_makes_no_sense_is_refused(url: str, who: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        isocast.Trader(url, **who)  # type: ignore[arg-type]


def test_a_plain_with_block_is_told_which_trader_it_wants() -> None:
    with pytest.raises(TypeError, match=r"use `async with`, or isocast\.BlockingTrader"):  # noqa: SIM117
        with isocast.Trader("https://127.0.0.1:8443", token="t"):  # noqa: S106
            pass


def test_errors_pass_from_a_worker_process_whole() -> None:
    import pickle  # noqa: PLC0415

    refused = pickle.loads(pickle.dumps(isocast.TraderRefusedError("funds", "too little", "price")))  # noqa: S301
    assert (refused.reason, refused.field, str(refused)) == ("funds", "price", "too little")
    lost = pickle.loads(pickle.dumps(isocast.TraderLostError("a-1", "nobody answers")))  # noqa: S301
    assert (lost.client_id, str(lost)) == ("a-1", "nobody answers")


# ---- what a hostile service says


@pytest.mark.parametrize(
    "answer",
    [
        b"\x1b[2J\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b"[" * 15,
        b"A" * 40_000,
    ],
)
def test_an_answer_that_is_none_is_one_error(answer: bytes) -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            await reader.read()
        writer.transport.abort()
        served.append(True)

    served: list[bool] = []

    async def story() -> None:
        server = await asyncio.start_server(answering, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with isocast.Trader(url, token=API_TOKEN) as ada:
            with pytest.raises(RemoteProtocolError):
                await ada.buy("ISO", 1, "1")
        await eventually(lambda: served, LIMIT_S)
        server.close()
        await asyncio.sleep(0)

    asyncio.run(story())


def test_what_a_service_says_does_not_command_a_terminal() -> None:
    said = {"error": {"reason": "\x1b[2J", "message": "a\nb\x07", "field": None}}
    for raw in (json.dumps(said).encode(), b"\x1b[2J", b"", b"[[", b'{"error": 5}'):
        refused = trading_http._refusal(raw)  # noqa: SLF001 - of hostile bytes
        assert str(refused).isprintable()
        assert refused.reason.isprintable()


# ---- without an event loop


def blocking(folder: Path, story: Callable[[Stage], None]) -> None:
    """A service in this thread's loop, and a program without one in another thread."""

    async def whole() -> None:
        async with asyncio.timeout(4 * LIMIT_S), on_stage(folder) as stage:
            await asyncio.to_thread(story, stage)

    asyncio.run(whole())


def test_a_program_without_an_event_loop_trades_the_same_way(tmp_path: Path) -> None:
    def story(stage: Stage) -> None:
        with (
            isocast.BlockingTrader(stage.url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as ada,
            isocast.BlockingTrader(stage.url, name="Bob", password="pw Bob", ca=stage.ca) as bob,  # noqa: S106
        ):
            order = ada.buy("ISO", 100, "10.05")
            assert isinstance(order, isocast.BlockingOrder)
            assert repr(order) == f"<BlockingOrder {order.client_id}: buy 100 ISO, pending>"
            assert repr(ada) == f"<BlockingTrader at 127.0.0.1:{stage.port}>"
            assert (order.status, order.report.quantity) == ("pending", 100)
            selling = Thread(target=lambda: bob.sell("ISO", 100, "10.05"))
            selling.start()
            assert order.filled(timeout_s=LIMIT_S).filled == 100
            selling.join()
            assert order.confirmed(timeout_s=LIMIT_S).trade == 1
            assert order.ended().status == "filled"
            stream = ada.reports(after=1)
            assert [next(stream).kind for _ in range(3)] == ["working", "traded", "confirmed"]
            stream.close()  # type: ignore[attr-defined]
            other = ada.buy("ISO", 10, "1", client_id="other")
            assert ada.order("other").report.left == 10
            ada.replace(other, price="1.01")
            assert [one.price for one in ada.orders()] == [Decimal("1.01")]
            assert other.cancel(5).kind == ada.cancel("other").kind == "cancel pending"
            assert ada.cancel_all() == 0
            assert ada.past_reports(4)[0].number == 5
            assert len(ada.balances()) == len(ada.symbols()) == 2
        with pytest.raises(isocast.IsocastError, match="closed"):
            ada.balances()
        assert len(stage.desk.logged_out) == 1
        assert stage.desk.submitted[0].client_id == order.client_id
        assert isinstance(stage.desk.submitted[-1], CancelRequest)
        assert {one.account for one in stage.desk.entered} == {ADA, ADA + 1}

    blocking(tmp_path, story)


def test_many_orders_are_sent_together_and_each_is_answered_for_itself(tmp_path: Path) -> None:
    def story(stage: Stage) -> None:
        with isocast.BlockingTrader(stage.url, token=API_TOKEN, ca=stage.ca, patience_s=LIMIT_S) as ada:
            some = [
                {"side": "buy", "symbol": "ISO", "quantity": 1, "price": "1.00", "client_id": f"n-{number}"}
                for number in range(250)
            ]
            some[1]["symbol"] = some[220]["symbol"] = "NIX"
            found = ada.send_many(some)
            refused = {place: one for place, one in enumerate(found) if isinstance(one, isocast.TraderRefusedError)}
            assert {place: one.reason for place, one in refused.items()} == dict.fromkeys((1, 220), "unknown symbol")
            taken = [one for one in found if isinstance(one, isocast.BlockingOrder)]
            assert [one.client_id for one in taken] == [f"n-{n}" for n in range(250) if n not in refused]
            assert taken[0].report.quantity == 1
            again = ada.send_many(some)
            assert [getattr(one, "client_id", "") for one in again] == [getattr(one, "client_id", "") for one in found]
            assert len(stage.desk.entered) == 248
            with pytest.raises(isocast.TraderRefusedError, match="pice: is not known here"):
                ada.send_many([{"side": "buy", "symbol": "ISO", "quantity": 1, "pice": "1"}])
            with pytest.raises(isocast.TraderRefusedError, match="a side is buy or sell"):
                ada.send_many([{"symbol": "ISO", "quantity": 1, "price": "1"}])

    blocking(tmp_path, story)


def test_of_many_orders_those_that_cannot_be_taken_now_are_sent_again_under_their_ids(tmp_path: Path) -> None:
    """The gateway gave up waiting for the market, which had the orders after all: none is in doubt, or doubled."""

    async def story(stage: Stage, ada: isocast.Trader) -> None:
        inner, asked = stage.desk.submit_many, list[list[str]]()

        async def hasty(login: Login, requests: Sequence[TradingRequest]) -> list[TradeReport]:
            told: list[TradeReport] = await inner(login, requests)
            asked.append([request.client_id for request in requests])
            if len(asked) <= times:
                middle = len(told) // 2
                told[middle] = told[middle]._replace(kind=ReportKind.REFUSED, number=0, reason=Reason.UNAVAILABLE)
            return told

        stage.desk.submit_many = hasty
        some = [{"side": "buy", "symbol": "ISO", "quantity": 1, "price": f"1.0{place}"} for place in range(3)]
        times = 1
        found = [one for one in await ada.send_many(some) if isinstance(one, isocast.TraderOrder)]
        assert [str(one.report.price) for one in found] == ["1.0000", "1.0100", "1.0200"]
        assert asked == [[one.client_id for one in found], [found[1].client_id]]
        assert len(stage.desk.entered) == 3
        times = 1_000
        named = [{**one, "client_id": f"d{place}"} for place, one in enumerate(some)]
        async with isocast.Trader(stage.url, token=API_TOKEN, ca=stage.ca, patience_s=0.0) as hurried:
            _, doubtful, _ = await hurried.send_many(named)
        assert isinstance(doubtful, isocast.TraderRefusedError)
        assert (doubtful.reason, "the client id d1" in str(doubtful)) == ("unavailable", True)

    run(tmp_path, story)


def test_both_faces_of_a_trader_have_the_same_methods_with_the_same_arguments() -> None:
    for one, other in ((isocast.BlockingTrader, isocast.Trader), (isocast.BlockingOrder, isocast.TraderOrder)):
        for name, method in vars(other).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                mine, twin = inspect.signature(getattr(one, name)), inspect.signature(method)
                wanted = str(twin).partition(" -> ")[0].replace("TraderOrder", "BlockingOrder")
                assert str(mine).partition(" -> ")[0] == wanted, name


# ---- what the pages show


async def said(stage: Stage, folder: Path, *words: str) -> str:
    """What a program of its own prints, with the gateway's place in its environment."""
    token = folder / "trader.token"
    token.write_text(API_TOKEN)
    place = {
        "ISOCAST_TRADER_URL": stage.url,
        "ISOCAST_TRADER_CA": str(stage.ca),
        "ISOCAST_TRADER_TOKEN_FILE": str(token),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", *words,
        env={**os.environ, **place}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


def test_the_programs_of_the_how_to_run_as_they_stand(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "trade-from-python.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)

    async def story(stage: Stage, _: isocast.Trader) -> None:
        with_loop, without, many = [await said(stage, tmp_path, "-c", program) for program in programs]
        assert re.fullmatch(r"<TraderOrder \S+: buy 100 ISO, pending>\ncancelled\n", with_loop)
        assert without.splitlines()[0] == "cancelled"
        assert without.splitlines()[-1].endswith("cancelled cancelled")
        assert many == "pending\nunknown symbol\npending\n"

    run(tmp_path, story)


def test_the_example_runs(tmp_path: Path) -> None:
    async def story(stage: Stage, _: isocast.Trader) -> None:
        async with trader(stage, BOBS) as bob:
            await bob.sell("ISO", 100, "10.00")
        got = await said(stage, tmp_path, str(ROOT / "examples" / "trader.py"))
        assert got.splitlines()[0] == "filled: 100 of 100 at 10.0000"
        assert "USD: 1250.50 available, 0.00 reserved" in got

    run(tmp_path, story)
