"""Services as hostile bytes meet them, without sockets: a stream that was read to its end, and nobody who listens.

Each way in raises RemoteProtocolError for what it refuses, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.runtime.accounts.memory_desk import MemoryDesk
from tests.security.rosters import a_roster
from tests.wire.door_samples import DOOR_SAMPLES

from isocast.orders.desk import Login as TraderLogin
from isocast.orders.desk import Scope, SymbolTerms, TradeReport, TradingRequest
from isocast.orders.json_forms import report_of
from isocast.runtime.accounts import web
from isocast.runtime.box_office.pages import OfficePages
from isocast.runtime.box_office.running import BOUNDS
from isocast.runtime.box_office.service import OfficeService, Who
from isocast.runtime.net import door
from isocast.runtime.net.door import Door, Doorway, Visit
from isocast.runtime.net.http import HEAD_BYTES_MAX, Answer, HttpServer, Request
from isocast.runtime.net.lobby import Lobby
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.http import StatusServer
from isocast.security.door_identities import DoorHand, DoorWord, EphemeralKey, encode_word
from isocast.security.roster import RosterBook
from isocast.terms.errors import OfficeError, OfficeFault, RemoteProtocolError
from isocast.wire.door import LENGTH, NO_CHANNEL, NONCE_BYTES, DoorKind, Login, Session, encode_message, proof

__all__ = [
    "DOOR_WAYS",
    "HTTP_WAYS",
    "OFFICE_WAYS",
    "TLS_WAYS",
    "TRADING_WAYS",
    "door_seeds",
    "http_seeds",
    "lobby",
    "office_seeds",
    "tls_seeds",
    "trading_seeds",
]

AsyncWay = Callable[[bytes], Awaitable[None]]


def _stream(data: bytes, limit: int = 1 << 20) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=limit)
    reader.feed_data(data)
    reader.feed_eof()
    return reader


class _Nobody(asyncio.StreamWriter):
    """Takes everything that is written."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __del__(self) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 7) if name == "peername" else default


# Doors --------------------------------------------------------------------------------------------

_KEY = bytes(range(32))
_NONCE = bytes(NONCE_BYTES)
_NAME = "edge/tokyo"
_PROVEN = _NONCE, _NONCE, NO_CHANNEL
_LOGIN = encode_message(Login(_NAME, _NONCE, proof(_KEY, b"client", *_PROVEN)))


def _fixed_nonce(size: int) -> bytes:
    return bytes(size)


class _Host:
    """One door that lives as long as the fuzzer: what it keeps of visitors must not grow."""

    def __init__(self, doorway: Doorway | None = None) -> None:
        self.heard = 0
        self.complaint = ""
        self.door = Door({_NAME: _KEY}.get, self._serve, self._complain, doorway=doorway)

    async def _serve(self, guest: Visit) -> None:
        while (message := await guest.receive()) is not None:
            self.heard += 1
            await guest.send(message)

    def _complain(self, name: str, text: str) -> None:
        assert (name + text).isprintable() or "\n" not in name, "a log line is one line"
        self.complaint = text

    async def enter(self, data: bytes) -> None:
        self.complaint = ""
        with patch.object(door, "token_bytes", _fixed_nonce):
            await self.door._enter(_stream(data), _Nobody())  # noqa: SLF001
        assert self.door.visitors == self.door.lobby.waiting == 0
        if self.complaint:
            raise RemoteProtocolError(self.complaint)


@cache
def _host() -> _Host:
    return _Host()


async def _stranger(data: bytes) -> None:
    """Whatever a stranger says first."""
    await _host().enter(data)


async def _visitor(data: bytes) -> None:
    """Somebody who has the key, and says anything: pieces of up to 255 bytes, each with its right tag."""
    session, said, at = Session(_KEY, b"client", *_PROVEN), [LENGTH.pack(len(_LOGIN)) + _LOGIN], 0
    while at < len(data):
        size = max(data[at], 1)
        sealed = session.sealed(data[at + 1 : at + 1 + size])
        said.append(LENGTH.pack(len(sealed)) + sealed)
        at += 1 + size
    await _host().enter(b"".join(said))


@cache
def _asking_host() -> _Host:
    """A door that asks for identities; its visitor is not listed, so that what follows is reached."""
    return _Host(Doorway(DoorHand(bytes(32), RosterBook(a_roster())), 1, 0))


async def _unknown(data: bytes) -> None:
    """Somebody who has the key, and says anything of itself; what follows has the wrong tag, mostly."""
    await _asking_host().enter(LENGTH.pack(len(_LOGIN)) + _LOGIN + data)


async def _identified(data: bytes) -> None:
    """Somebody who has the key and an ephemeral key, and says anything with the right tag."""
    own = EphemeralKey(_KEY)
    word = encode_word(DoorWord(own.public))
    key = own.agree(EphemeralKey(bytes(32)).public, _KEY)  # The door draws zeros.
    sealed = Session(key, b"client", *_PROVEN).sealed(data)
    said = [_LOGIN, word, sealed]
    await _asking_host().enter(b"".join([LENGTH.pack(len(one)) + one for one in said]))


DOOR_WAYS: tuple[AsyncWay, ...] = (_stranger, _visitor, _unknown, _identified)


def door_seeds() -> list[bytes]:
    """Inputs that are accepted."""
    said = {kind: encode_message(message) for kind, message in DOOR_SAMPLES.items()}
    pieces = b"".join([bytes((len(one),)) + one for one in said.values() if len(one) < 256])
    found = [b"\0" + LENGTH.pack(len(_LOGIN)) + _LOGIN, b"\1" + pieces]
    single = [b"\1" + bytes((len(one),)) + one for one in said.values() if len(one) < 256]
    word = encode_word(DoorWord(EphemeralKey(_KEY).public))
    wanted = said[DoorKind.RANGE]
    return [*found, *single, b"\2" + LENGTH.pack(len(word)) + word, b"\3" + wanted]


# TLS ----------------------------------------------------------------------------------------------


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's as a door has it, and a visitor's who trusts anybody."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "door")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    certificate = made.sign(key, hashes.SHA256())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    server.num_tickets = 0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "both.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        server.load_cert_chain(path)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


@cache
def _hello() -> bytes:
    said = ssl.MemoryBIO()
    visitor = _contexts()[1].wrap_bio(ssl.MemoryBIO(), said)
    try:
        visitor.do_handshake()
    except ssl.SSLWantReadError:
        return said.read()
    raise AssertionError("nobody answered")


def _tls(data: bytes) -> None:
    """The first flight of a visitor: the handshake goes on waiting, or ends in an ssl.SSLError, which is an OSError."""
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = _contexts()[0].wrap_bio(heard, said, server_side=True)
    heard.write(data)
    try:
        here.do_handshake()
    except ssl.SSLWantReadError:
        return
    except ssl.SSLError as reason:
        raise RemoteProtocolError(str(reason)) from reason
    raise AssertionError("a handshake without a key exchange")


TLS_WAYS: tuple[Callable[[bytes], None], ...] = (_tls,)


def tls_seeds() -> list[bytes]:
    """A client's first words."""
    return [b"\0" + _hello()]


# Who has not said who it is -----------------------------------------------------------------------


class _Task:
    """What a lobby knows of a connection."""

    def __init__(self) -> None:
        self.ended = False

    def cancel(self) -> None:
        assert not self.ended
        self.ended = True


def lobby(data: bytes) -> bool:
    """Comings and goings, one for each byte: never more than there is room for, and nobody ends twice."""
    most = 1 + (data[0] if data else 0) % 8
    here, inside = Lobby(most), dict[_Task, str]()
    for byte in data[1:]:
        if byte & 1 or not inside:
            task, address = _Task(), str(byte >> 4)
            ended = here.enter(task, address)  # type: ignore[arg-type]
            if ended is not None:
                del inside[ended]  # type: ignore[arg-type]
                assert ended.ended  # type: ignore[attr-defined]
            inside[task] = address
        else:
            gone = list(inside)[(byte >> 1) % len(inside)]
            del inside[gone]
            here.leave(gone)  # type: ignore[arg-type]
        assert here.waiting == len(inside) <= most
        assert len(here.ended) <= 16
    return True


# Pages of a node ----------------------------------------------------------------------------------


@cache
def _status_server(token: str) -> StatusServer:
    pages = {"/": lambda: Answer(b"index"), "/healthz": lambda: Answer(b"healthy")}
    return StatusServer(pages, NodeCounters(), token=token)


async def _page(data: bytes) -> None:
    await _asked("", data)


async def _page_with_token(data: bytes) -> None:
    await _asked("a token of a status page", data)


async def _asked(token: str, data: bytes) -> None:
    await _served(_status_server(token)._server, data)  # noqa: SLF001


async def _served(server: HttpServer, data: bytes) -> None:
    """What a server answers to a connection: some error, never one of its own."""
    reply = await server._answer(_stream(data, HEAD_BYTES_MAX), "192.0.2.1")  # noqa: SLF001
    answer = reply.what
    assert isinstance(answer, bytes)
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert head.isascii()
    assert b"\n" not in head.replace(b"\r\n", b""), "no header is smuggled in"
    if not answer.startswith(b"HTTP/1.1 200 "):
        assert not answer.startswith(b"HTTP/1.1 500 ")
        raise RemoteProtocolError("refused")


HTTP_WAYS: tuple[AsyncWay, ...] = (_page, _page_with_token)


def http_seeds() -> list[bytes]:
    """Requests that are answered."""
    plain = b"GET /healthz?x=1 HTTP/1.1\r\nHost: london\r\nAccept: */*\r\n\r\n"
    shown = (
        b"GET / HTTP/1.1\r\nHost: london\r\nAuthorization: Bearer a token of a status page\r\nContent-Length: 0\r\n\r\n"
    )
    return [b"\0" + plain, b"\1" + shown]


# The box office -----------------------------------------------------------------------------------


class _Office:
    """Stands for the database: a token says who shows it, and every act is declined after its words are read."""

    market_name, length_ns, lead_ns = "demo", 86_400 * 10**9, 6 * 3_600 * 10**9

    def whose(self, token: str) -> object:
        """A subscriber, the operator, or nobody."""
        assert isinstance(token, str)
        match token:
            case "operator":
                return None
            case "subscriber":
                return _Ada
            case _:
                raise OfficeError(OfficeFault.UNAUTHORISED, "log in first")

    def __getattr__(self, name: str) -> Callable[..., object]:
        def act(*said: object, **named: object) -> object:
            for one in (*said, *named.values()):
                if isinstance(one, str):
                    assert "\0" not in one, "a database does not take it"
                    one.encode()
            raise OfficeError(OfficeFault.DECLINED, f"no {name} today")

        return act


class _Ada:
    name = "Ada"


class _Service(OfficeService):
    async def in_thread(self, work: Callable[[], object]) -> object:  # type: ignore[override]
        """At once."""
        return work()


@cache
def _office() -> tuple[_Service, OfficePages]:
    service = _Service(_Office(), _Ages())  # type: ignore[arg-type]
    return service, OfficePages(service, secure=True)


class _Ages:
    """A clock by which an hour goes by between two requests: limits are tested elsewhere, here all is to be read."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 3_600
        return self._now


async def _request(data: bytes) -> None:
    """A whole request, to the API or to a page as its path says."""
    await _served(_office_server(), data)


@cache
def _office_server() -> HttpServer:
    return HttpServer(_answered, BOUNDS)


async def _answered(request: Request) -> Answer:
    service, pages = _office()
    return await (service if request.path.startswith("/v1/") else pages).respond(request)


async def _said(data: bytes) -> None:
    """A body of JSON, to the route that its first byte chooses."""
    path, who = _BODIES[(data[0] if data else 0) % len(_BODIES)]
    headers: Mapping[str, str] = {"authorization": f"Bearer {who}", "idempotency-key": "k1"}
    answer = await _answered(Request("POST", path, "", headers, data[1:], "192.0.2.1"))
    assert answer.status is not HTTPStatus.INTERNAL_SERVER_ERROR
    if answer.status is not HTTPStatus.OK:
        raise RemoteProtocolError(str(answer.status))


_BODIES: tuple[tuple[str, str], ...] = (
    ("/v1/login", Who.SUBSCRIBER.value),
    ("/v1/orders", Who.SUBSCRIBER.value),
    ("/v1/renewals", Who.SUBSCRIBER.value),
    ("/v1/subscribers", Who.OPERATOR.value),
    ("/v1/subscribers/Ada/revoke", Who.OPERATOR.value),
    ("/v1/subscribers/Ada/orders", Who.OPERATOR.value),
    ("/v1/plans", Who.OPERATOR.value),
)

OFFICE_WAYS: tuple[AsyncWay, ...] = (_request, _said)


def office_seeds() -> list[bytes]:
    """Requests that are understood."""
    head = b"POST /v1/orders?x=%41 HTTP/1.1\r\nHost: office.example\r\nAuthorization: Bearer subscriber\r\n"
    order = b'{"plan": "basic", "periods": 2, "instrument": "test:ok", "renews": true}'
    form = b"plan=basic&mark=x&periods=1&renews=yes&key=%41"
    cookie = b"Cookie: a=b; __Host-session=subscriber\r\n"
    whole = [
        b"GET /v1/openapi.json HTTP/1.1\r\nHost: office.example\r\n\r\n",
        b"GET /v1/office HTTP/1.0\r\n\r\n",
        b"GET /style.css HTTP/1.1\r\nHost: office.example\r\n" + cookie + b"\r\n",
        b"GET /v1/audit?after=12 HTTP/1.1\r\nAuthorization: Bearer operator\r\n\r\n",
        head + b"Idempotency-Key: k1\r\nContent-Length: %d\r\n\r\n" % len(order) + order,
        b"POST /buy HTTP/1.1\r\nHost: o\r\nOrigin: https://o\r\n"
        + cookie
        + b"Content-Length: %d\r\n\r\n" % len(form)
        + form,
        b"POST /login HTTP/1.1\r\nHost: o\r\nContent-Length: 17\r\n\r\nname=a&password=b",
    ]
    bodies = (
        b'{"name": "Ada", "password": "x"}', order, b'{"plan": "basic", "renews": false}', b'{"name": "\\u00d6land"}',
        b'{"reason": "late", "undo": false}', order,
        b'{"name": "p", "title":"P", "services":["base", "stripe:3"], "price": 5, "currency": "EUR", "on_sale": true}',
    )  # fmt: skip
    return [*[b"\0" + one for one in whole], *[b"\1" + bytes((place,)) + body for place, body in enumerate(bodies)]]


# The trading service ------------------------------------------------------------------------------


class _Desk(MemoryDesk):
    """Forgets every request: what a service keeps of them must not grow."""

    async def log_in(self, name: str, password: str, address: str) -> TraderLogin | None:
        """Nobody gets a session: it would be kept."""
        assert isinstance(name, str), address
        assert isinstance(password, str)
        return None

    async def submit(self, login: TraderLogin, request: TradingRequest) -> TradeReport:
        """As the first request of the day."""
        assert Scope.TRADE in login.scopes
        return await MemoryDesk().submit(login, request)

    async def symbols(self) -> list[SymbolTerms]:
        """None."""
        return []


@cache
def _trading() -> HttpServer:
    service = web.TradingService(_Desk(), _Ages())
    return HttpServer(service.respond, web.BOUNDS, refuse=web._refused)  # noqa: SLF001


async def _traded(data: bytes) -> None:
    """A whole request of a trader."""
    await _served(_trading(), data)


async def _order(data: bytes) -> None:
    """A body of JSON, to the route that its first byte chooses, with a token that may trade."""
    path = _ORDERS[(data[0] if data else 0) % len(_ORDERS)]
    head = f"POST {path} HTTP/1.1\r\nAuthorization: Bearer token-Ada\r\nContent-Length: {len(data[1:])}\r\n\r\n"
    await _served(_trading(), head.encode() + data[1:])


async def _heard(data: bytes) -> None:
    """What a service tells a client."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as reason:
        raise RemoteProtocolError("no JSON") from reason
    if not isinstance(said, dict):
        raise RemoteProtocolError("no object")
    assert isinstance(report_of(said).number, int)


_ORDERS = ("/v1/orders", "/v1/orders/cancel", "/v1/orders/replace", "/v1/orders/cancel-all")
TRADING_WAYS: tuple[AsyncWay, ...] = (_traded, _order, _heard)


def trading_seeds() -> list[bytes]:
    """Requests that are understood, and a report."""
    order = b'{"client_id": "a-1", "symbol": "ISO", "side": "buy", "quantity": 100, "price": "10.05"}'
    token = b"Authorization: Bearer token-Ada\r\n"
    report = (
        b'{"number":1,"account":1,"kind":"accepted","status":"pending","client_id":"a","original_id":"","order":"1",'
        b'"symbol":"ISO","side":"buy","order_kind":"limit","lifetime":"day","quantity":1,"filled":0,"filled_value":'
        b'"0.00","left":1,"price":"10.05","trigger":null,"at":"2026-01-01T00:00:00.000000000Z","sequence":0,"trade":0,'
        b'"last_quantity":0,"last_price":"0.00","reason":null,"text":""}'
    )
    return [
        b"\0GET / HTTP/1.1\r\n\r\n",
        b"\0GET /v1/reports?after=3&limit=5 HTTP/1.1\r\n" + token + b"\r\n",
        b"\0GET /v1/orders?live=false HTTP/1.1\r\n" + token + b"\r\n",
        b"\0POST /v1/orders HTTP/1.1\r\n" + token + b"Content-Length: %d\r\n\r\n" % len(order) + order,
        b"\1\0" + order,
        b'\1\3{"client_id": "a-2", "symbol": "ISO"}',
        b"\2" + report,
    ]
