"""The box office on the web: a JSON API for programs, described by itself as OpenAPI.

Every way in is one row of `ROUTES`: who may, what is asked, what is answered. The database and slow hashes work in
threads; logins are limited for each address and each account, and hashes to two at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

from isocast.runtime.box_office.office import OPERATOR, BoxOffice, OfficeOrder, OfficePlan, Subscriber
from isocast.runtime.net.http import Answer, Request
from isocast.runtime.net.json_service import (
    ANYONE,
    FLAG,
    TEXT,
    TEXTS,
    WHOLE,
    BadRequestError,
    Field,
    Fields,
    NoRouteError,
    Route,
    bearer_token,
    described,
    find_route,
    json_answer,
    read_body,
)
from isocast.runtime.net.sign_in import AttemptLimit
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import OfficeError, OfficeFault, PackageError

__all__ = ["ROUTES", "STATUSES", "Caller", "OfficeService", "Who", "openapi"]

STATUSES: Final = {
    OfficeFault.BAD_REQUEST: HTTPStatus.BAD_REQUEST,
    OfficeFault.UNAUTHORISED: HTTPStatus.UNAUTHORIZED,
    OfficeFault.FORBIDDEN: HTTPStatus.FORBIDDEN,
    OfficeFault.UNKNOWN: HTTPStatus.NOT_FOUND,
    OfficeFault.CONFLICT: HTTPStatus.CONFLICT,
    OfficeFault.DECLINED: HTTPStatus.PAYMENT_REQUIRED,
    OfficeFault.LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    OfficeFault.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
_WINDOW_S = 300.0
_LOGINS_BY_ADDRESS = 30
_LOGINS_BY_ACCOUNT = 10
"""Within five minutes. A password has 120 random bits; this is against those who would try other people's."""
_REQUESTS_BY_ADDRESS = 1_200
"""Within five minutes: four a second."""
_ORDERS_BY_ACCOUNT = 60
"""Within five minutes: a declined one costs a row, too."""
_SLOW_AT_ONCE = 2
_SLOW_WAITING_MAX = 16
"""Hashes of passwords: 64 MiB each while they work; who comes when so many wait is sent away."""
_THREADS = 4
_ENTRIES_MAX = 1_000
"""Of the audit log in one answer."""

ResultT = TypeVar("ResultT")


class Who(StrEnum):
    """Who may ask."""

    ANYONE = ANYONE
    SUBSCRIBER = "subscriber"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and for what."""

    request: Request
    body: Mapping[str, Any]
    subscriber: Subscriber | None
    """None for the operator and for anyone."""
    name: str
    """In the path, where a route has one."""
    token: str = ""

    @property
    def own_name(self) -> str:
        """Of the subscriber who asks."""
        return self.subscriber.name if self.subscriber else ""


@dataclass(frozen=True, slots=True)
class OfficeRoute(Route[Callable[["OfficeService", Caller], object], Who]):
    """One way in."""

    slow: bool = False
    """Whether it hashes a password or a secret."""


class OfficeService:
    """Answers requests for one box office."""

    def __init__(self, office: BoxOffice, now: Callable[[], float] = time.monotonic) -> None:
        """`now` in seconds, for limits."""
        self.office = office
        self._now = now
        self._by_address = AttemptLimit(_REQUESTS_BY_ADDRESS, _WINDOW_S)
        self._logins_by_address = AttemptLimit(_LOGINS_BY_ADDRESS, _WINDOW_S)
        self._logins_by_account = AttemptLimit(_LOGINS_BY_ACCOUNT, _WINDOW_S)
        self._orders_by_account = AttemptLimit(_ORDERS_BY_ACCOUNT, _WINDOW_S)
        self._pool = ThreadPoolExecutor(_THREADS, "office")
        self._slow = asyncio.Semaphore(_SLOW_AT_ONCE)
        self._waiting = 0

    def close(self) -> None:
        """Wait for what is being written."""
        self._pool.shutdown()

    async def respond(self, request: Request) -> Answer:
        """What a request of the API gets; whatever is wrong with it is said in JSON."""
        try:
            self.limit(request)
            return await self._answered(request)
        except (OfficeError, PackageError) as error:
            fault = error.fault if isinstance(error, OfficeError) else OfficeFault.BAD_REQUEST
            return _refused(fault, error)
        except BadRequestError as error:
            return _refused(OfficeFault.BAD_REQUEST, error)
        except NoRouteError as error:
            return _refused(OfficeFault.UNKNOWN, error)

    def limit(self, request: Request) -> None:
        """OfficeError for an address that asks too much."""
        if not self._by_address.allows(request.address, self._now()):
            raise OfficeError(OfficeFault.LIMITED, "too many requests: wait some minutes")

    async def _answered(self, request: Request) -> Answer:
        route, name = find_route(ROUTES, request)
        token = bearer_token(request)
        subscriber = None
        if route.who is not Who.ANYONE:
            subscriber = await self.in_thread(lambda: self.office.whose(token))
            if (subscriber is None) is not (route.who is Who.OPERATOR):
                raise OfficeError(OfficeFault.FORBIDDEN, f"this is for a {route.who.value} to ask")
        caller = Caller(request, read_body(request.body, route.body), subscriber, name, token)
        result = await self.perform(route, caller)
        get_log().info("answered", method=route.method, path=route.path)
        if isinstance(result, bytes):
            return Answer(result, "application/octet-stream")
        return json_answer(result)

    async def perform(self, route: OfficeRoute, caller: Caller) -> object:
        """Do what a route does, in a thread."""
        return await (self.slowly if route.slow else self.in_thread)(lambda: route.act(self, caller))

    async def slowly(self, work: Callable[[], ResultT]) -> ResultT:
        """The result of something that hashes a password: at most two at a time; OfficeError where too many wait."""
        if self._waiting >= _SLOW_WAITING_MAX:
            raise OfficeError(OfficeFault.UNAVAILABLE, "the office is busy: try again in a minute")
        self._waiting += 1
        try:
            async with self._slow:
                return await self.in_thread(work)
        finally:
            self._waiting -= 1

    async def in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """The result of something that waits for the database."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # ---- what is done

    def log_in(self, name: str, password: str, address: str) -> tuple[str, int]:
        """A session; OfficeError of kind LIMITED for an address or an account that tries too often."""
        now = self._now()
        allowed = self._logins_by_address.allows(address, now)
        if not self._logins_by_account.allows(name[:64], now) or not allowed:
            raise OfficeError(OfficeFault.LIMITED, "too many attempts to log in: wait five minutes")
        token = self.office.log_in(name, password)
        self._logins_by_account.forgive(name[:64])
        return token

    def buy(self, name: str, plan: str, *, key: str, periods: int, instrument: str, renews: bool) -> OfficeOrder:
        """A purchase by a subscriber; OfficeError of kind LIMITED for one that tries too often."""
        if not self._orders_by_account.allows(name, self._now()):
            raise OfficeError(OfficeFault.LIMITED, "too many orders: wait five minutes")
        return self.office.buy(name, plan, key=key, periods=periods, instrument=instrument, renews=renews)

    def account(self, name: str) -> dict[str, object]:
        """Everything that a subscriber may know about himself."""
        office = self.office
        who, orders = office.subscriber(name), office.orders(name)
        paid = [order.ends_ns for order in orders if order.state == "paid"]
        return {
            "name": who.name,
            "revoked": who.revoked_ns is not None,
            "paid_until_ns": max(paid, default=0),
            "renewed_plans": office.standing(name),
            "orders": [_order(order) for order in orders],
            "invoices": [invoice._asdict() for invoice in office.invoices(name)],
        }


def _refused(fault: OfficeFault, error: Exception) -> Answer:
    return json_answer({"error": fault.value, "message": str(error)}, STATUSES[fault])


def _order(order: OfficeOrder) -> dict[str, object]:
    return {name: value for name, value in order._asdict().items() if name != "subscriber"}


# ---- the ways in


def _office(service: OfficeService, _: Caller) -> object:
    office = service.office
    return {"market": office.market_name, "period_ns": office.length_ns, "lead_ns": office.lead_ns}


def _plans(service: OfficeService, _: Caller) -> object:
    return [plan._asdict() for plan in service.office.plans(on_sale=True)]


def _log_in(service: OfficeService, caller: Caller) -> object:
    token, ends = service.log_in(caller.body["name"], caller.body["password"], caller.request.address)
    return {"token": token, "ends_ns": ends}


def _log_out(service: OfficeService, caller: Caller) -> object:
    service.office.log_out(caller.token)
    return {}


def _account(service: OfficeService, caller: Caller) -> object:
    return service.account(caller.own_name)


def _buy(service: OfficeService, caller: Caller) -> object:
    key = caller.request.headers.get("idempotency-key", "")
    return _order(service.buy(caller.own_name, key=key, **caller.body))


def _stand(service: OfficeService, caller: Caller) -> object:
    service.office.stand(caller.own_name, **caller.body)
    return {"renewed_plans": service.office.standing(caller.own_name)}


def _package(service: OfficeService, caller: Caller) -> object:
    return service.office.package(caller.own_name)


def _subscribers(service: OfficeService, _: Caller) -> object:
    return [who._asdict() for who in service.office.subscribers()]


def _enrol(service: OfficeService, caller: Caller) -> object:
    made = service.office.enrol(caller.body["name"])
    return {"name": made.name, "password": made.password, "secret": made.secret}


def _reset(service: OfficeService, caller: Caller) -> object:
    made = service.office.reset(caller.name)
    return {"name": made.name, "password": made.password, "secret": made.secret}


def _revoke(service: OfficeService, caller: Caller) -> object:
    return service.office.revoke(caller.name, **caller.body)._asdict()


def _set_plan(service: OfficeService, caller: Caller) -> object:
    said = {**caller.body, "services": tuple(caller.body["services"])}
    return service.office.set_plan(OfficePlan(**said))._asdict()


def _account_of(service: OfficeService, caller: Caller) -> object:
    return service.account(caller.name)


def _sell(service: OfficeService, caller: Caller) -> object:
    key = caller.request.headers.get("idempotency-key", "")
    return _order(service.office.buy(caller.name, key=key, actor=OPERATOR, **caller.body))


def _invoices(service: OfficeService, _: Caller) -> object:
    return [invoice._asdict() for invoice in service.office.invoices()]


def _renew(service: OfficeService, _: Caller) -> object:
    service.office.settle()
    return [renewal._asdict() for renewal in service.office.renew_due()]


def _audit(service: OfficeService, caller: Caller) -> object:
    text = parse_qs(caller.request.query).get("after", ["0"])[0]
    after = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004 - of 64 bits
    entries = service.office.audit(after)[:_ENTRIES_MAX]
    return {"fault": service.office.audit_fault(), "entries": [entry._asdict() for entry in entries]}


def _described(_: OfficeService, __: Caller) -> object:
    return openapi()


_LOGIN: Fields = {"name": Field(TEXT), "password": Field(TEXT)}
_ORDER: Fields = {
    "plan": Field(TEXT),
    "periods": Field(WHOLE, 1),
    "instrument": Field(TEXT, ""),
    "renews": Field(FLAG, default=False),
}
_PLAN: Fields = {
    "name": Field(TEXT),
    "title": Field(TEXT),
    "services": Field(TEXTS),
    "price": Field(WHOLE),
    "currency": Field(TEXT),
    "on_sale": Field(FLAG, default=True),
}
_REVOCATION: Fields = {"reason": Field(TEXT, ""), "undo": Field(FLAG, default=False)}
_KEYED: Fields = {"Idempotency-Key": Field(TEXT)}

ROUTES: Final = (
    OfficeRoute("GET", "/v1/openapi.json", Who.ANYONE, "This description.", _described),
    OfficeRoute("GET", "/v1/office", Who.ANYONE, "Which market this is, and how long its periods are.", _office),
    OfficeRoute("GET", "/v1/plans", Who.ANYONE, "The plans on sale; prices are of one period, in minor units.", _plans),
    OfficeRoute("POST", "/v1/login", Who.ANYONE, "A session's token, for 12 hours.", _log_in, _LOGIN, slow=True),
    OfficeRoute("POST", "/v1/logout", Who.SUBSCRIBER, "End this session.", _log_out),
    OfficeRoute("GET", "/v1/account", Who.SUBSCRIBER, "Orders, invoices and renewals of whoever asks.", _account),
    OfficeRoute(
        "POST",
        "/v1/orders",
        Who.SUBSCRIBER,
        "Buy periods of a plan. The header Idempotency-Key names the purchase: repeated, it is made once.",
        _buy,
        _ORDER,
        headers=_KEYED,
    ),
    OfficeRoute(
        "POST",
        "/v1/renewals",
        Who.SUBSCRIBER,
        "Renew a plan that was bought before it ends, or no longer.",
        _stand,
        {"plan": Field(TEXT), "renews": Field(FLAG)},
    ),
    OfficeRoute(
        "GET",
        "/v1/package",
        Who.SUBSCRIBER,
        "The package: keys of what is paid for, now and next.",
        _package,
        content_type="application/octet-stream",
    ),
    OfficeRoute("GET", "/v1/subscribers", Who.OPERATOR, "All subscribers.", _subscribers),
    OfficeRoute(
        "POST",
        "/v1/subscribers",
        Who.OPERATOR,
        "Enrol somebody; password and secret are in this answer and nowhere else.",
        _enrol,
        {"name": Field(TEXT)},
        slow=True,
    ),
    OfficeRoute(
        "POST",
        "/v1/subscribers/{name}/reset",
        Who.OPERATOR,
        "New password and secret for a subscriber; his sessions end.",
        _reset,
        {},
        slow=True,
    ),
    OfficeRoute(
        "POST",
        "/v1/subscribers/{name}/revoke",
        Who.OPERATOR,
        "Give a subscriber no further package; `undo` takes it back.",
        _revoke,
        _REVOCATION,
    ),
    OfficeRoute(
        "POST", "/v1/subscribers/{name}/orders", Who.OPERATOR, "Buy for a subscriber.", _sell, _ORDER, headers=_KEYED
    ),
    OfficeRoute("GET", "/v1/subscribers/{name}", Who.OPERATOR, "The account of a subscriber.", _account_of),
    OfficeRoute(
        "POST", "/v1/plans", Who.OPERATOR, "Put a plan on sale, change it, or take it off sale.", _set_plan, _PLAN
    ),
    OfficeRoute("GET", "/v1/invoices", Who.OPERATOR, "All invoices, the newest first.", _invoices),
    OfficeRoute("POST", "/v1/renew", Who.OPERATOR, "Renew what is due; the office does so by itself, too.", _renew, {}),
    OfficeRoute("GET", "/v1/audit", Who.OPERATOR, "The audit log `after` an entry, and whether it is whole.", _audit),
)


def openapi() -> dict[str, object]:
    """All ways in, as OpenAPI 3.1."""
    problem = {"type": "object", "properties": {"error": {"type": "string"}, "message": {"type": "string"}}}
    return described("Isocast box office", ROUTES, problem)
