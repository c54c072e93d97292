"""The box office for people: a page to log in, see what is bought, buy, renew and fetch the package.

Forms only, no script, nothing from elsewhere. A session is a cookie that other sites' pages do not send; every form
carries a mark that only its own session's page has, and what comes from another origin is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from html import escape
from http import HTTPStatus
from secrets import token_urlsafe
from urllib.parse import parse_qs, quote

from isocast.runtime.box_office.office import OfficePlan, Subscriber
from isocast.runtime.box_office.payments import TEST_ACCEPTED, TEST_DECLINED
from isocast.runtime.box_office.service import STATUSES, OfficeService
from isocast.runtime.net.http import Answer, Request
from isocast.terms.errors import OfficeError, OfficeFault, PackageError
from isocast.terms.instants import minute_text

__all__ = ["WITHOUT_MINOR", "OfficePages", "price_text"]

_COOKIE = "isocast-office"
_SECURE_COOKIE = "__Host-isocast-office"
"""A browser takes a cookie of this name only over TLS, and from this host alone."""
_POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
_HEADERS = (f"Content-Security-Policy: {_POLICY}", "Referrer-Policy: no-referrer")
_STRICT = "Strict-Transport-Security: max-age=31536000"
_PERIODS_DIGITS = 3
WITHOUT_MINOR = ("JPY", "KRW", "CLP", "ISK")
"""Currencies whose minor unit is the unit itself."""
_STYLE = b"""body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ccc; }
label { display: block; margin: .5rem 0; }
form { margin: 0 0 1rem; }
td form { margin: 0; }
.note { color: #555; }
.fault { border-left: 4px solid #b00; padding: .3rem .8rem; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #eee; } .note { color: #aaa; } }
"""


class OfficePages:
    """Answers browsers."""

    def __init__(self, service: OfficeService, *, secure: bool) -> None:
        """`secure`: whether it is served over TLS."""
        self._service = service
        self._cookie = _SECURE_COOKIE if secure else _COOKIE
        self._attributes = "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
        self._headers = (*_HEADERS, _STRICT) if secure else _HEADERS
        self._scheme = "https" if secure else "http"

    async def respond(self, request: Request) -> Answer:
        """The page that a browser asks for; what is wrong is a page, too."""
        if request.path == "/style.css":
            return Answer(_STYLE, "text/css; charset=utf-8", headers=self._headers)
        try:
            self._service.limit(request)
            return await (self._shown(request) if request.method == "GET" else self._done(request))
        except (OfficeError, PackageError) as error:
            fault = error.fault if isinstance(error, OfficeError) else OfficeFault.BAD_REQUEST
            body = f'<p class="fault" role="alert">{escape(str(error))}</p><p><a href="/">To the beginning</a></p>'
            return self._page("Not done", body, STATUSES[fault])

    # ---- what is shown

    async def _shown(self, request: Request) -> Answer:
        office, token = self._service.office, self._token(request)
        if request.path == "/":
            plans = await self._service.in_thread(lambda: office.plans(on_sale=True))
            return self._page(f"Box office of {office.market_name}", _plans_table(plans) + _LOGIN_FORM)
        if request.path not in ("/account", "/package"):
            raise OfficeError(OfficeFault.UNKNOWN, "there is no such page")
        who = await self._subscriber(token)
        if request.path == "/package":
            raw = await self._service.in_thread(lambda: office.package(who.name))
            name = f"attachment; filename*=UTF-8''{quote(who.name, safe='')}.package"
            return Answer(raw, "application/octet-stream", headers=(*self._headers, f"Content-Disposition: {name}"))
        account = await self._service.in_thread(lambda: self._service.account(who.name))
        plans = await self._service.in_thread(lambda: office.plans(on_sale=True))
        return self._page(who.name, _account_page(account, plans, _mark(token)))

    async def _subscriber(self, token: str) -> Subscriber:
        who = await self._service.in_thread(lambda: self._service.office.whose(token))
        if who is None:
            raise OfficeError(OfficeFault.FORBIDDEN, "an operator's token has no account: isocast box-office show")
        return who

    # ---- what is done

    async def _done(self, request: Request) -> Answer:
        self._insist_on_origin(request)
        form, token = _form(request), self._token(request)
        service, office = self._service, self._service.office
        if request.path == "/login":
            name, password = form.get("name", ""), form.get("password", "")
            token, _ = await service.slowly(lambda: service.log_in(name, password, request.address))
            return self._elsewhere("/account", f"{self._cookie}={token}; {self._attributes}; Max-Age=43200")
        who = await self._subscriber(token)
        if not compare_digest(form.get("mark", "").encode(), _mark(token).encode()):
            raise OfficeError(OfficeFault.FORBIDDEN, "this form is not of this session: open the page again")
        acts: Mapping[str, Callable[[], object]] = {
            "/buy": lambda: service.buy(
                who.name,
                form.get("plan", ""),
                key=form.get("key", ""),
                instrument=form.get("instrument", ""),
                periods=_number(form.get("periods", "1")),
                renews=form.get("renews") == "yes",
            ),
            "/renewals": lambda: office.stand(who.name, form.get("plan", ""), renews=form.get("renews") == "yes"),
            "/logout": lambda: office.log_out(token),
        }
        if request.path not in acts:
            raise OfficeError(OfficeFault.UNKNOWN, "there is no such page")
        await service.in_thread(acts[request.path])
        if request.path == "/logout":
            return self._elsewhere("/", f"{self._cookie}=; {self._attributes}; Max-Age=0")
        return self._elsewhere("/account")

    def _insist_on_origin(self, request: Request) -> None:
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin is not None and origin != f"{self._scheme}://{host}":
            raise OfficeError(OfficeFault.FORBIDDEN, "this form is another site's: open the page itself")

    def _token(self, request: Request) -> str:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._cookie:
                return value
        return ""

    def _page(self, title: str, body: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
        text = (
            "<!doctype html><html lang=en><meta charset=utf-8>"
            '<meta name=viewport content="width=device-width"><link rel=stylesheet href="/style.css">'
            f"<title>{escape(title)}</title><h1>{escape(title)}</h1>{body}</html>\n"
        )
        return Answer(text.encode(), "text/html; charset=utf-8", status, self._headers)

    def _elsewhere(self, path: str, cookie: str = "") -> Answer:
        further = (f"Set-Cookie: {cookie}",) if cookie else ()
        headers = (*self._headers, f"Location: {path}", *further)
        return Answer(b"", "text/plain; charset=utf-8", HTTPStatus.SEE_OTHER, headers)


_LOGIN_FORM = """<h2>Log in</h2>
<form method=post action="/login">
<label>Name <input name=name required autocomplete=username></label>
<label>Password <input name=password type=password required autocomplete=current-password></label>
<button>Log in</button></form>
<p class=note>Whoever sells you a subscription gives you name, password and the secret that opens your packages.
The office never asks for the secret, and never for a card number.</p>"""


def _mark(token: str) -> str:
    """What a form of this session carries."""
    return blake2b(token.encode(errors="replace"), digest_size=16, person=b"isocast form").hexdigest()


def _form(request: Request) -> dict[str, str]:
    try:
        found = parse_qs(request.body.decode("ascii"), keep_blank_values=True, max_num_fields=16, errors="strict")
    except ValueError:
        raise OfficeError(OfficeFault.BAD_REQUEST, "this is no form") from None
    if any("\0" in value for values in found.values() for value in values):
        raise OfficeError(OfficeFault.BAD_REQUEST, "this is no form")
    return {name: values[0] for name, values in found.items()}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _PERIODS_DIGITS else 0


def price_text(amount: int, currency: str) -> str:
    """An amount of minor units as people write it."""
    if currency in WITHOUT_MINOR:
        return f"{amount:,} {currency}"
    return f"{amount // 100:,}.{amount % 100:02} {currency}"


def _table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Cells are HTML."""
    head = "".join(f"<th>{header}" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _plans_table(plans: list[OfficePlan]) -> str:
    if not plans:
        return "<p>Nothing is on sale now.</p>"
    rows = [
        (escape(plan.title), escape(", ".join(plan.services)), price_text(plan.price, plan.currency)) for plan in plans
    ]
    return "<h2>Plans</h2>" + _table(("plan", "services", "price of a period"), rows)


def _account_page(account: Mapping[str, object], plans: list[OfficePlan], mark: str) -> str:
    orders: list[dict[str, object]] = account["orders"]  # type: ignore[assignment]
    standing: list[str] = account["renewed_plans"]  # type: ignore[assignment]
    until = int(str(account["paid_until_ns"]))
    hidden = f'<input type=hidden name=mark value="{mark}">'
    state = f"Paid until {minute_text(until)}." if until else "Nothing is bought yet."
    if account["revoked"]:
        state = "This subscription was revoked: ask the operator."
    parts = [f"<p>{state}</p>", '<p><a href="/package" download>Fetch the package</a></p>' if until else ""]
    parts += [_buying(plan, hidden) for plan in plans]
    for plan in standing:
        parts.append(
            f'<form method=post action="/renewals">{hidden}<input type=hidden name=plan value="{escape(plan)}">'
            f"<input type=hidden name=renews value=no>{escape(plan)} is renewed before it ends. "
            "<button>Do not renew</button></form>"
        )
    rows = [
        (
            escape(str(order["plan"])),
            f"{minute_text(int(str(order['begins_ns'])))} to {minute_text(int(str(order['ends_ns'])))}",
            price_text(int(str(order["amount"])), str(order["currency"])),
            escape(str(order["state"])),
        )
        for order in orders
    ]
    parts.append("<h2>Orders</h2>" + _table(("plan", "time", "amount", ""), rows) if rows else "")
    parts.append(f'<form method=post action="/logout">{hidden}<button>Log out</button></form>')
    return "".join(parts)


def _buying(plan: OfficePlan, hidden: str) -> str:
    # The key is of this page: sent twice, by a second click or a reload, the form buys once.
    key = f"page/{token_urlsafe(12)}"
    return (
        f'<form method=post action="/buy">{hidden}<input type=hidden name=plan value="{escape(plan.name)}">'
        f'<input type=hidden name=key value="{key}"><strong>{escape(plan.title)}</strong>, '
        f"{price_text(plan.price, plan.currency)} a period "
        "<label>Periods <input name=periods type=number min=1 max=366 value=1></label>"
        f"<label>Pay by <select name=instrument><option value={TEST_ACCEPTED}>test provider, accepts</option>"
        f"<option value={TEST_DECLINED}>test provider, declines</option></select></label>"
        "<label><input type=checkbox name=renews value=yes checked> Renew before it ends</label>"
        "<button>Buy</button></form>"
    )
