"""A gateway's way in for programs over HTTPS: orders as JSON, and reports by WebSocket.

Every way in is one row of `ROUTES`: who may, what is asked, what is answered. The service translates, and decides
nothing about an order: that is the `Desk`'s. An order that was taken goes on when its connection breaks, and the same
request again gets the same answer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from http import HTTPStatus
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from isocast.orders.desk import (
    CLIENT_ID_MAX,
    Desk,
    Login,
    Reason,
    Scope,
    TradingRequest,
)
from isocast.orders.json_forms import (
    balance_fields,
    bid_of,
    cancel_of,
    lot_fields,
    lot_of,
    offer_fields,
    order_of,
    replace_of,
    report_fields,
    reveal_of,
    sealed_bid_of,
    status_fields,
    symbol_fields,
    take_of,
)
from isocast.runtime.accounts.web_faults import Fault, ServiceError, refusal_of
from isocast.runtime.accounts.web_forms import (
    ACCOUNT,
    BALANCES,
    BATCH,
    BID,
    CANCEL,
    CANCEL_ALL,
    CANCELLED,
    LIVE,
    LOGIN,
    LOGOUT,
    LOT,
    LOTS,
    OFFERS,
    ORDER,
    ORDERS,
    PAST,
    REPLACE,
    REPORT,
    REPORT_SCHEMA,
    REPORTS,
    RESULTS,
    REVEAL,
    SEALED_BID,
    SESSION,
    STATUS,
    SYMBOLS,
    TAKE,
    WATCH,
)
from isocast.runtime.net.http import Answer, HttpBounds, HttpServer, RefusedRequestError, Request, Takeover
from isocast.runtime.net.json_service import (
    ANYONE,
    BadRequestError,
    NoRouteError,
    Route,
    bearer_token,
    described,
    find_route,
    json_answer,
    page_for_people,
    read_body,
    read_fields,
    read_query,
)
from isocast.runtime.net.sign_in import AttemptLimit
from isocast.runtime.net.tls import is_this_machine
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import ConfigurationError, LedgerError, LedgerFault, LocalProtocolError

if TYPE_CHECKING:
    from isocast.runtime.accounts.watching import Watcher

__all__ = [
    "BOUNDS",
    "ROUTES",
    "SESSION_S",
    "TradingService",
    "Who",
    "openapi",
    "serve_traders",
]

BOUNDS: Final = HttpBounds(
    request_seconds=10.0,
    answer_seconds=20.0,
    connections_max=256,
    per_address_max=64,
    body_bytes_max=1 << 16,  # Of a batch; an order has some two hundred bytes.
    methods=("GET", "POST"),
    idle_seconds=60.0,  # One handshake for many orders.
)
"""Of requests of traders."""
SESSION_S: Final = 12 * 3_600.0
_SESSIONS_MAX = 10_000
_SESSIONS_OF_ACCOUNT_MAX = 32
"""The oldest ends."""
_KNOWN_S = 5.0
"""For which a token is believed without asking again: how long one that was revoked may live on."""
_KNOWN_MAX = 1_024
_WINDOW_S = 60.0
_REQUESTS_BY_ADDRESS = 6_000
_REQUESTS_BY_ACCOUNT = 3_000
"""Within a minute. A cancel is never refused by them (settlement 23)."""
_STRANGERS_BY_ADDRESS = 60
"""Tokens that nobody knows, within a minute."""
_LOGINS_BY_ADDRESS = 30
_LOGINS_BY_NAME = 10
"""From an address within a minute; the desk's own delays come on top, and are a name's wherever it is tried."""
_LOGINS_AT_ONCE = 8
"""From one address: others' guesses wait up to 30 s each, and must keep nobody else out."""
_ANSWER_S = 30.0
"""For which the desk may think; its work goes on."""
_WATCHERS_MAX = 512
_WATCHERS_OF_ACCOUNT_MAX = 16

ResultT = TypeVar("ResultT")


class Who(StrEnum):
    """Who may ask: anyone, or a token of this scope."""

    ANYONE = ANYONE
    READ = "read"
    TRADE = "trade"


@dataclass(frozen=True, slots=True)
class _Session:
    """A login that has a token of ours, or an API token that was believed."""

    login: Login
    ends: float
    believed: float
    """Until when without asking again."""
    proof: str = field(default="", repr=False)
    """By which the desk is asked again whether it still holds: its own name for it, or the API token behind it."""


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks, and for what."""

    request: Request
    body: Mapping[str, Any]
    query: Mapping[str, Any]
    name: str
    """In the path."""
    key: bytes
    """The hash of the token."""
    own: Login | None

    @property
    def login(self) -> Login:
        """On a route that needs a token."""
        if self.own is None:
            raise ServiceError(Fault.UNAUTHORISED, "log in first")
        return self.own


_Act: TypeAlias = Callable[["TradingService", _Caller], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _TradingRoute(Route[_Act, Who]):
    """One way in."""

    is_cancel: bool = False
    """Never refused by a limit."""


class TradingService:
    """Answers traders for one desk."""

    def __init__(
        self, desk: Desk, now: Callable[[], float] = time.monotonic, *, ping_s: float = 20.0, take_s: float = 20.0
    ) -> None:
        """`now` in seconds, for limits and sessions; `ping_s` and `take_s` are those of watchers."""
        self.desk = desk
        self._now = now
        self._timing = {"ping_s": ping_s, "take_s": take_s}
        self._by_address = AttemptLimit(_REQUESTS_BY_ADDRESS, _WINDOW_S)
        self._by_account = AttemptLimit(_REQUESTS_BY_ACCOUNT, _WINDOW_S)
        self._strangers = AttemptLimit(_STRANGERS_BY_ADDRESS, _WINDOW_S)
        self._logins_by_address = AttemptLimit(_LOGINS_BY_ADDRESS, _WINDOW_S)
        self._logins_by_name = AttemptLimit(_LOGINS_BY_NAME, _WINDOW_S)
        self._logging_in: Counter[str] = Counter()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        """By the hash of the token, the oldest first."""
        self._known: OrderedDict[bytes, _Session] = OrderedDict()
        """API tokens that were believed, until when without asking again; the oldest are forgotten."""
        self._watchers: dict[Watcher, tuple[bytes, int]] = {}
        """With the hash of the token and the account."""
        self._works: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Wait for what the desk was asked to do."""
        await asyncio.gather(*self._works, return_exceptions=True)

    @property
    def watchers(self) -> int:
        """Readers of reports at this moment."""
        return len(self._watchers)

    async def respond(self, request: Request) -> Answer | Takeover:
        """What a request gets; whatever is wrong with it is said in JSON."""
        try:
            if request.path == "/" and request.method == "GET":
                return _PAGE
            return await self._answered(request)
        except ServiceError as error:
            return error.answer()
        except BadRequestError as error:
            return ServiceError(Reason.MALFORMED, str(error), error.field).answer()
        except LedgerError as error:
            if error.fault is not LedgerFault.UNAVAILABLE:
                raise
            return ServiceError(Reason.UNAVAILABLE, "the gateway cannot do this now: send the same again").answer()
        except NoRouteError as error:
            if not error.methods:
                return ServiceError(Fault.UNKNOWN_PATH, str(error)).answer()
            return ServiceError(Fault.METHOD, str(error), "", f"Allow: {', '.join(error.methods)}").answer()

    async def _answered(self, request: Request) -> Answer | Takeover:
        route, name = find_route(ROUTES, request)
        if not route.is_cancel and not self._by_address.allows(request.address, self._now()):
            raise ServiceError(Fault.LIMITED, "too many requests of this address: wait a minute")
        login, key = None, b""
        if route.needs_token:
            login, key = await self._authorised(request, route)
        body, query = read_body(request.body, route.body), read_query(request.query, route.query)
        result = await route.act(self, _Caller(request, body, query, name, key, login))
        return result if isinstance(result, Answer | Takeover) else json_answer(result)

    # ---- who asks

    async def _authorised(self, request: Request, route: _TradingRoute) -> tuple[Login, bytes]:
        token = bearer_token(request)
        if not token:
            message = "say who you are, by the header Authorization: Bearer TOKEN; POST /v1/login gives one"
            raise ServiceError(Fault.UNAUTHORISED, message, "", "WWW-Authenticate: Bearer")
        key = sha256(token.encode()).digest()
        login = await self._login_of(token, key, request.address)
        if login is None:
            message = "nobody knows this token any more: log in again, or have a new API token made"
            raise ServiceError(Fault.UNAUTHORISED, message, "", "WWW-Authenticate: Bearer")
        if Scope(route.who.value) not in login.scopes:
            raise ServiceError(Fault.FORBIDDEN, f"this needs a token with the scope {route.who.value!r}")
        if not route.is_cancel and not self._by_account.allows(str(login.account), self._now()):
            raise ServiceError(Fault.LIMITED, "too many requests of this account: wait a minute; cancels still pass")
        return login, key

    async def _login_of(self, token: str, key: bytes, address: str) -> Login | None:
        """Whose token it is: a session of ours, or an API token that the desk knows."""
        now = self._now()
        session = self._sessions.get(key)
        if session is not None:
            return await self._still(session, key, address)
        known = self._known.get(key)
        if known is not None and now < known.believed:
            return known.login
        # A token that was good some time ago is asked about whatever others try from its address: cancels must pass.
        if known is None and not self._strangers.allows(address, now):
            raise ServiceError(Fault.LIMITED, "too many unknown tokens from this address: wait a minute")
        login = await self.desk.log_in_by_token(token, address)
        self._known.pop(key, None)
        if login is not None:
            self._known[key] = _Session(login, now + _KNOWN_S, now + _KNOWN_S)
            if len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return login

    async def _still(self, session: _Session, key: bytes, address: str) -> Login | None:
        """Who has a session, as long as the desk agrees; what it revoked ends within seconds."""
        now = self._now()
        if now < session.believed and now < session.ends:
            return session.login
        fresh = await self.desk.log_in_by_token(session.proof, address) if now < session.ends else None
        if fresh is None:
            await self._end_session(key, cancels=False)
            return None
        login = session.login._replace(scopes=fresh.scopes)
        if key in self._sessions:
            self._sessions[key] = replace(session, login=login, believed=now + _KNOWN_S)
        return login

    async def log_in(self, said: Mapping[str, Any], address: str) -> dict[str, object]:
        """A session by a name and its password, or by an API token."""
        name, password, token = said["name"], said["password"], said["token"]
        is_by_token = token is not None
        if is_by_token is not (name is None) or is_by_token is not (password is None):
            raise ServiceError(Reason.MALFORMED, "give 'name' and 'password', or 'token' alone", "name")
        now = self._now()
        tried = f"{address} {(name or '')[:64]}"
        allowed = self._logins_by_address.allows(address, now)
        if (name is not None and not self._logins_by_name.allows(tried, now)) or not allowed:
            raise ServiceError(Fault.LIMITED, "too many attempts to log in: wait a minute")
        if self._logging_in[address] >= _LOGINS_AT_ONCE:
            raise ServiceError(Reason.UNAVAILABLE, "too many log in at this moment: try again in a second")
        self._logging_in[address] += 1
        try:
            login = await (
                self.desk.log_in_by_token(token, address) if is_by_token else self.desk.log_in(name, password, address)
            )
        finally:
            self._logging_in[address] -= 1
            self._logging_in += Counter()  # Those at zero are forgotten.
        if login is None:
            raise ServiceError(Fault.UNAUTHORISED, "name, password or token is wrong, or there were too many attempts")
        if name is not None:
            self._logins_by_name.forgive(tried)
        get_log().info("a trader logged in", account=login.account, address=address)
        return await self._begin_session(login, token or login.session)

    async def _begin_session(self, login: Login, proof: str) -> dict[str, object]:
        now = self._now()
        own = [key for key, one in self._sessions.items() if one.login.account == login.account]
        late = [key for key, one in self._sessions.items() if one.ends <= now]
        late += own[: max(0, len(own) + 1 - _SESSIONS_OF_ACCOUNT_MAX)]
        if len(self._sessions) >= _SESSIONS_MAX:
            late.append(next(iter(self._sessions)))
        for key in dict.fromkeys(late):
            await self._end_session(key, cancels=False)
        token = token_urlsafe(32)
        self._sessions[sha256(token.encode()).digest()] = _Session(login, now + SESSION_S, now + _KNOWN_S, proof)
        return {
            "token": token,
            "account": login.account,
            "name": login.name,
            "scopes": sorted(scope.value for scope in login.scopes),
            "seconds": int(SESSION_S),
        }

    async def end_session(self, caller: _Caller, *, cancels: bool) -> None:
        """Log out; an API token stays what it is."""
        if caller.key not in self._sessions:
            message = "an API token has no session to end: have it revoked instead"
            raise ServiceError(Reason.MALFORMED, message)
        await self._end_session(caller.key, cancels=cancels)

    async def _end_session(self, key: bytes, *, cancels: bool) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        for watcher, (whose, _) in self._watchers.items():
            if whose == key:
                watcher.end("this session has ended: log in again")
        await self.finished(self.desk.log_out(session.login, cancels=cancels))

    # ---- what is done

    async def finished(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """What comes of something that must not be cut off with its connection."""
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await asyncio.shield(task)
        except TimeoutError:
            message = "no answer yet: send the same request again, under the same client_id, and it is done once"
            raise ServiceError(Reason.UNAVAILABLE, message) from None

    async def submit(self, caller: _Caller, request: TradingRequest) -> dict[str, Any]:
        """The report of a request that was accepted; ServiceError for one that is refused."""
        report = await self.finished(self.desk.submit(caller.login, request))
        if (refusal := refusal_of(report)) is not None:
            raise refusal
        return report_fields(report)

    async def submit_batch(self, caller: _Caller, given: list[object]) -> dict[str, Any]:
        """What became of each of some orders, in their order; what is wrong with one refuses that one alone."""
        found: list[ServiceError | None] = []
        orders: list[TradingRequest] = []
        for one in given:
            try:
                orders.append(order_of(read_fields(one, ORDER)))
                found.append(None)
            except BadRequestError as error:
                found.append(ServiceError(Reason.MALFORMED, str(error), error.field))
        answers = iter(await self.finished(self.desk.submit_many(caller.login, orders)) if orders else ())
        results: list[dict[str, Any]] = []
        for index, fault in enumerate(found):
            if fault is not None:
                results.append({"index": index, "error": fault.problem()})
                continue
            report = next(answers)
            refusal = refusal_of(report)
            said = {"report": report_fields(report)} if refusal is None else {"error": refusal.problem()}
            results.append({"index": index, **said})
        return {"results": results, "refused": sum(["error" in one for one in results])}

    async def watch(self, caller: _Caller) -> Answer | Takeover:
        """A WebSocket on which every report is told."""
        try:
            from isocast.runtime.accounts.watching import Watcher  # noqa: PLC0415 - of an extra
        except ImportError:
            message = "this gateway was installed without isocast[websocket]: ask GET /v1/reports now and then"
            raise ServiceError(Fault.UNSUPPORTED, message) from None
        login, ties = caller.login, caller.query["cancel_on_disconnect"]
        if ties and caller.key not in self._sessions:
            message = "orders are cancelled with a session: log in, by POST /v1/login, and watch with its token"
            raise ServiceError(Reason.MALFORMED, message, "cancel_on_disconnect")
        if ties and Scope.TRADE not in login.scopes:
            raise ServiceError(Fault.FORBIDDEN, "this needs a token with the scope 'trade'")
        own = sum(account == login.account for _, account in self._watchers.values())
        if own >= _WATCHERS_OF_ACCOUNT_MAX or len(self._watchers) >= _WATCHERS_MAX:
            raise ServiceError(Fault.LIMITED, "too many watch already: close one of them")
        watcher = Watcher(**self._timing)
        if not watcher.accepts(caller.request):
            message = "this is a WebSocket: connect to it by wss://"
            raise ServiceError(Fault.HTTP, message, "", "Upgrade: websocket")
        self._watchers[watcher] = caller.key, login.account

        async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                reports = self.desk.watch(login, caller.query["after"])
                await watcher.attend(reader, writer, reports, lambda: self._may_stay(caller))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a reader must not end the service.
                get_log().error("a reader of reports was cut off", exc_info=error)
            finally:
                del self._watchers[watcher]
            if ties:
                await self._end_session(caller.key, cancels=True)

        return Takeover(attend)

    async def _may_stay(self, caller: _Caller) -> bool:
        """Whether a token is still believed."""
        try:
            login = await self._login_of(bearer_token(caller.request), caller.key, caller.request.address)
        except ServiceError:
            return True  # Somebody else at this address tries tokens.
        return login is not None and Scope.READ in login.scopes


# ---- the ways in


async def _described(_: TradingService, __: _Caller) -> object:
    return openapi()


async def _log_in(service: TradingService, caller: _Caller) -> object:
    return await service.log_in(caller.body, caller.request.address)


async def _log_out(service: TradingService, caller: _Caller) -> object:
    await service.end_session(caller, cancels=caller.body["cancel_orders"])
    return {}


def _submitting(read: Callable[[Mapping[str, Any]], TradingRequest]) -> _Act:
    """Submit what a body asks for."""

    async def act(service: TradingService, caller: _Caller) -> object:
        return await service.submit(caller, read(caller.body))

    return act


async def _submit_batch(service: TradingService, caller: _Caller) -> object:
    return await service.submit_batch(caller, caller.body["orders"])


async def _offers(service: TradingService, _: _Caller) -> object:
    return {"offers": [offer_fields(one) for one in await service.desk.offers()]}


async def _lots(service: TradingService, _: _Caller) -> object:
    return {"lots": [lot_fields(one) for one in await service.desk.lots()]}


async def _account(_: TradingService, caller: _Caller) -> object:
    login = caller.login
    return {"account": login.account, "name": login.name, "scopes": sorted(scope.value for scope in login.scopes)}


async def _cancel_all(service: TradingService, caller: _Caller) -> object:
    body = caller.body
    work = service.desk.cancel_all(caller.login, body["client_id"], body["symbol"])
    try:
        return {"cancelled": await service.finished(work)}
    except LocalProtocolError as error:  # A form has judged the id: it was used for something else.
        raise ServiceError(Reason.CLIENT_ID_USED, str(error), "client_id") from None


async def _orders(service: TradingService, caller: _Caller) -> object:
    found = await service.desk.orders(caller.login, live=caller.query["live"], limit=caller.query["limit"])
    return {"orders": [report_fields(one) for one in found]}


async def _order(service: TradingService, caller: _Caller) -> object:
    found = await service.desk.order(caller.login, caller.name) if len(caller.name) <= CLIENT_ID_MAX else None
    if found is None:
        raise ServiceError(Reason.UNKNOWN_ORDER, f"you have no order {caller.name[:CLIENT_ID_MAX]!r}", "client_id")
    return report_fields(found)


async def _reports(service: TradingService, caller: _Caller) -> object:
    after = caller.query["after"]
    found = await service.desk.reports(caller.login, after, caller.query["limit"])
    return {"reports": [report_fields(one) for one in found], "last": max([after, *[one.number for one in found]])}


async def _watch(service: TradingService, caller: _Caller) -> object:
    return await service.watch(caller)


async def _balances(service: TradingService, caller: _Caller) -> object:
    return {"balances": [balance_fields(line) for line in await service.desk.balances(caller.login)]}


async def _status(service: TradingService, _: _Caller) -> object:
    return status_fields(await service.desk.status())


async def _symbols(service: TradingService, _: _Caller) -> object:
    return {"symbols": [symbol_fields(one) for one in await service.desk.symbols()]}


ROUTES: Final = (
    _TradingRoute("GET", "/v1/openapi.json", Who.ANYONE, "This description.", _described),
    _TradingRoute("POST", "/v1/login", Who.ANYONE, "A session's token, for 12 hours.", _log_in, LOGIN, answer=SESSION),
    _TradingRoute("POST", "/v1/logout", Who.READ, "End this session, and what it watches.", _log_out, LOGOUT),
    _TradingRoute(
        "POST",
        "/v1/orders",
        Who.TRADE,
        "Buy or sell. The answer comes once the order is reserved, durable and on its way into the sequence.",
        _submitting(order_of),
        ORDER,
        answer=REPORT,
    ),
    _TradingRoute(
        "POST",
        "/v1/orders/batch",
        Who.TRADE,
        "Many orders in one request: one that is refused refuses no other, and repeated, each is entered once.",
        _submit_batch,
        BATCH,
        answer=RESULTS,
    ),
    _TradingRoute(
        "POST",
        "/v1/orders/cancel",
        Who.TRADE,
        "Cancel an order, or a part of it; never refused by a limit.",
        _submitting(cancel_of),
        CANCEL,
        answer=REPORT,
        is_cancel=True,
    ),
    _TradingRoute(
        "POST",
        "/v1/orders/replace",
        Who.TRADE,
        "Give an order another total, price or trigger; smaller at the same price keeps its priority.",
        _submitting(replace_of),
        REPLACE,
        answer=REPORT,
    ),
    _TradingRoute(
        "POST",
        "/v1/orders/cancel-all",
        Who.TRADE,
        "Cancel all live orders of the account, or those of a symbol; never refused by a limit.",
        _cancel_all,
        CANCEL_ALL,
        answer=CANCELLED,
        is_cancel=True,
    ),
    _TradingRoute(
        "GET",
        "/v1/orders",
        Who.READ,
        "Orders as they are now, newest last.",
        _orders,
        query=LIVE,
        answer=ORDERS,
    ),
    _TradingRoute("GET", "/v1/orders/{client_id}", Who.READ, "One order as it is now.", _order, answer=REPORT),
    _TradingRoute(
        "GET",
        "/v1/reports",
        Who.READ,
        "What the account was told after a report, in order; ask on after `last`.",
        _reports,
        query=PAST,
        answer=REPORTS,
    ),
    _TradingRoute(
        "GET",
        "/v1/watch",
        Who.READ,
        "A WebSocket that sends each report as one message, those to come too; a slow reader is cut off and resumes.",
        _watch,
        query=WATCH,
        answer=REPORT,
    ),
    _TradingRoute(
        "GET",
        "/v1/balances",
        Who.READ,
        "What the account has, and what of it is reserved.",
        _balances,
        answer=BALANCES,
    ),
    _TradingRoute(
        "GET",
        "/v1/symbols",
        Who.READ,
        "What can be traded: tick, lot, phase and reference price.",
        _symbols,
        answer=SYMBOLS,
    ),
    _TradingRoute(
        "GET",
        "/v1/offers",
        Who.READ,
        "Open offers that somebody can take, and who took what of them.",
        _offers,
        answer=OFFERS,
    ),
    _TradingRoute(
        "POST",
        "/v1/offers/take",
        Who.TRADE,
        "Take an open offer, or a part of it, at its price; the first to enter has it.",
        _submitting(take_of),
        TAKE,
        answer=REPORT,
    ),
    _TradingRoute("GET", "/v1/lots", Who.READ, "Lots that are for sale.", _lots, answer=LOTS),
    _TradingRoute(
        "POST",
        "/v1/lots",
        Who.TRADE,
        "Open a lot: sealed bids and the second price, or a Dutch clock.",
        _submitting(lot_of),
        LOT,
        answer=REPORT,
    ),
    _TradingRoute(
        "POST",
        "/v1/lots/commit",
        Who.TRADE,
        "A sealed bid for a lot; a second one takes the place of the first. Reveal it when the lot is closed.",
        _submitting(sealed_bid_of),
        SEALED_BID,
        answer=REPORT,
    ),
    _TradingRoute(
        "POST",
        "/v1/lots/reveal",
        Who.TRADE,
        "Open a sealed bid, once its lot is closed: before, it is refused and told to nobody.",
        _submitting(reveal_of),
        REVEAL,
        answer=REPORT,
    ),
    _TradingRoute("POST", "/v1/lots/bid", Who.TRADE, "Call at a Dutch clock.", _submitting(bid_of), BID, answer=REPORT),
    _TradingRoute("GET", "/v1/account", Who.READ, "Who you are here.", _account, answer=ACCOUNT),
    _TradingRoute(
        "GET",
        "/v1/status",
        Who.READ,
        "How far the gateway has heard the sequence, and what its operator should look at.",
        _status,
        answer=STATUS,
    ),
)

_PROBLEM = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "enum": [*[one.value for one in Reason], *[one.value for one in Fault]]},
                "message": {"type": "string", "description": "What is wrong, and what to do."},
                "field": {"type": ["string", "null"], "description": "The field that is meant."},
            },
        }
    },
}


TITLE: Final = "Isocast trading service"
INTRODUCTION: Final = (
    "Prices and sums are texts with up to four decimals, quantities whole numbers, instants ISO 8601 in UTC. A token"
    " goes into the header Authorization: Bearer TOKEN. Whatever is refused is"
    ' {"error": {"reason": …, "message": …, "field": …}}. Every request has a client_id of your own: sent again under'
    " the same id after a lost connection, it is done once."
)
EXAMPLE: Final = """curl --cacert market-ca.pem https://127.0.0.1:8443/v1/orders \\
  -H "Authorization: Bearer $(cat trader.token)" \\
  -d '{"client_id": "a-1", "symbol": "ISO", "side": "buy", "quantity": 100, "price": "10.05"}'"""
_PAGE: Final = page_for_people(TITLE, INTRODUCTION, ROUTES, EXAMPLE)


def openapi() -> dict[str, Any]:
    """All ways in, as OpenAPI 3.1."""
    return described(TITLE, ROUTES, _PROBLEM, {"Report": REPORT_SCHEMA})


# ---- the service as a server


async def serve_traders(
    service: TradingService,
    tls: ssl.SSLContext | None,
    address: str,
    port: int,
    ready: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until cancelled; `ready` is told the port. Without TLS on loopback alone: passwords travel here."""
    if tls is None and not is_this_machine(address):
        rule = f"{address} is reached from elsewhere, and passwords travel here: give a certificate, or use 127.0.0.1"
        raise ConfigurationError("trading service", "address", rule)
    server = HttpServer(service.respond, BOUNDS, tls, refuse=_refused, serves="traders")
    await server.start(address, port)
    try:
        ready(server.port)
        await asyncio.get_running_loop().create_future()
    finally:
        await server.stop()
        await service.close()


def _refused(error: RefusedRequestError) -> Answer:
    """What cannot be read as a request, in the one shape of errors."""
    fault = Fault.FAILED if error.status is HTTPStatus.INTERNAL_SERVER_ERROR else Fault.HTTP
    return ServiceError(fault, str(error), "", *error.headers).answer(error.status)
