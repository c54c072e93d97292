"""The box office over real connections on loopback: what it answers, what it refuses, and whom it outlasts."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.runtime.box_office.certificates import make_certificates
from tests.runtime.box_office.offices import START, Clock, bought, close_all, office_at, opened, sqlite_in
from tests.runtime.worlds import eventually
from tests.security.rosters import ROOT, a_roster, member

from isocast.runtime.box_office.client import OfficeClient, write_package
from isocast.runtime.box_office.office import BoxOffice, Enrolment
from isocast.runtime.box_office.pages import OfficePages
from isocast.runtime.box_office.payments import TEST_ACCEPTED, TEST_DECLINED
from isocast.runtime.box_office.running import BOUNDS, serve_office
from isocast.runtime.box_office.service import ROUTES, STATUSES, OfficeService, Who, openapi
from isocast.runtime.market.tls_files import OFFICE, certificate_digests
from isocast.runtime.net.http import Answer, HttpServer, Request
from isocast.runtime.net.sign_in import AttemptLimit
from isocast.runtime.net.tls import service_tls
from isocast.security.roster import RosterRole, sign_roster
from isocast.terms.errors import ConfigurationError, OfficeError, OfficeFault, TransportError
from isocast.terms.ids import BOX_OFFICE

CARD = "4111111111111111"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[BoxOffice]:
    yield office_at(sqlite_in(tmp_path), tmp_path, Clock())
    close_all()


@pytest.fixture
def ada(office: BoxOffice) -> Enrolment:
    return office.enrol("Ada")


class Stage:
    """A service, asked without sockets."""

    def __init__(self, office: BoxOffice) -> None:
        self.office = office
        self.now = 0.0
        self.service = OfficeService(office, lambda: self.now)
        self.pages = OfficePages(self.service, secure=True)

    async def ask(
        self, method: str, path: str, body: object = None, token: str = "", address: str = "192.0.2.1", **headers: str
    ) -> tuple[int, Any]:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        heads = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            heads["authorization"] = f"Bearer {token}"
        path, _, query = path.partition("?")
        answer = await self.service.respond(Request(method, path, query, heads, raw, address))
        is_json = answer.content_type == "application/json"
        return answer.status.value, json.loads(answer.body) if is_json else answer.body

    async def token(self, who: Enrolment) -> str:
        status, said = await self.ask("POST", "/v1/login", {"name": who.name, "password": who.password})
        assert status == 200, said
        return str(said["token"])

    async def browse(self, method: str, path: str, cookie: str = "", form: str = "", **headers: str) -> Answer:
        heads = {"host": "office.example", **({"cookie": cookie} if cookie else {}), **headers}
        return await self.pages.respond(Request(method, path, "", heads, form.encode(), "192.0.2.1"))


def run(office: BoxOffice, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def whole() -> None:
        stage = Stage(office)
        try:
            await story(stage)
        finally:
            stage.service.close()

    asyncio.run(whole())


# ---- the API


def test_a_customer_buys_and_fetches(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        token = await stage.token(ada)
        order = {"plan": "basic", "periods": 2, "instrument": TEST_ACCEPTED}
        status, said = await stage.ask("POST", "/v1/orders", order, token, idempotency_key="k1")
        assert (status, said["state"], said["amount"]) == (200, "paid", 2_500)
        assert (await stage.ask("POST", "/v1/orders", order, token, idempotency_key="k1"))[1] == said
        status, raw = await stage.ask("GET", "/v1/package", token=token)
        assert opened(raw, ada.secret, START).buyer == "Ada"
        status, account = await stage.ask("GET", "/v1/account", token=token)
        assert len(account["invoices"]) == len(account["orders"]) == 1
        assert (await stage.ask("POST", "/v1/logout", token=token))[0] == 200
        assert (await stage.ask("GET", "/v1/account", token=token))[0] == 401

    run(office, story)


def test_refusals_have_a_status_a_word_and_one_sentence(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        token = await stage.token(ada)
        declined = {"plan": "basic", "instrument": TEST_DECLINED}
        gold = {"plan": "gold", "instrument": "x"}
        cases: list[tuple[Any, dict[str, str], int, str]] = [
            (("GET", "/v1/nothing"), {}, 404, "unknown"),
            (("GET", "/v1/login"), {}, 404, "unknown"),
            (("GET", "/v1/account"), {}, 401, "unauthorised"),
            (("GET", "/v1/package"), {"token": token}, 402, "declined"),
            (("POST", "/v1/orders", declined), {"token": token, "idempotency_key": "k"}, 402, "declined"),
            (("POST", "/v1/orders", declined), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", gold), {"token": token, "idempotency_key": "q"}, 404, "unknown"),
            (("POST", "/v1/orders", {}), {"token": token, "idempotency_key": "q"}, 400, "bad-request"),
            (("POST", "/v1/orders", b"{"), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", b"[" * 10_000), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", []), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", {"plan": 5}), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", {"plan": "a", "periods": True}), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", {"plan": "a\0b"}), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", {"plan": "\ud800"}), {"token": token}, 400, "bad-request"),
            (("POST", "/v1/orders", {"plan": "basic", "price": 1}), {"token": token}, 400, "bad-request"),
        ]  # fmt: skip
        for what, how, status, word in cases:
            got = await stage.ask(*what, **how)
            assert (got[0], got[1]["error"]) == (status, word), (what, got)
            assert got[1]["message"]

    run(office, story)


def test_a_subscriber_is_no_operator_nor_the_other_way_round(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        mine, operators = await stage.token(ada), office.operator_token(10**18)[0]
        for route in ROUTES:
            path = route.path.replace("{name}", "Ada")
            expected = {Who.ANYONE: (0, 0), Who.SUBSCRIBER: (0, 403), Who.OPERATOR: (403, 0)}[route.who]
            for token, status in zip((mine, operators), expected, strict=True):
                if status:
                    assert (await stage.ask(route.method, path, {}, token))[0] == status, path
            if route.who is not Who.ANYONE:
                assert (await stage.ask(route.method, path, {}))[0] == 401, path
                assert (await stage.ask(route.method, path, {}, "x" * 43))[0] == 401, path

    run(office, story)


def test_an_operators_program_does_all_that_the_commands_do(office: BoxOffice) -> None:
    async def story(stage: Stage) -> None:
        token = office.operator_token(10**18)[0]
        plan = {"name": "all", "title": "All", "services": ["base", "history"], "price": 5, "currency": "EUR"}
        assert (await stage.ask("POST", "/v1/plans", plan, token))[0] == 200
        status, made = await stage.ask("POST", "/v1/subscribers", {"name": "Zoë & Söhne/7"}, token)
        assert status == 200
        path = "/v1/subscribers/Zoë & Söhne/7"
        order = {"plan": "all", "instrument": TEST_ACCEPTED, "renews": True}
        assert (await stage.ask("POST", f"{path}/orders", order, token, idempotency_key="k"))[1]["state"] == "paid"
        assert (await stage.ask("GET", path, token=token))[1]["renewed_plans"] == ["all"]
        assert (await stage.ask("POST", f"{path}/reset", {}, token))[1]["secret"] != made["secret"]
        assert (await stage.ask("POST", f"{path}/revoke", {"reason": "x"}, token))[1]["reason"] == "x"
        assert (await stage.ask("POST", "/v1/renew", {}, token))[1] == []
        assert len((await stage.ask("GET", "/v1/invoices", token=token))[1]) == 1
        assert len((await stage.ask("GET", "/v1/subscribers", token=token))[1]) == 1
        status, log = await stage.ask("GET", "/v1/audit?after=2", token=token)
        assert (log["fault"], log["entries"][0]["number"]) == ("", 3)
        for after in ("x", "-1", "9" * 30):
            assert (await stage.ask("GET", f"/v1/audit?after={after}", token=token))[0] == 200

    run(office, story)


def test_the_api_describes_every_way_in(office: BoxOffice) -> None:
    async def story(stage: Stage) -> None:
        status, said = await stage.ask("GET", "/v1/openapi.json")
        assert (status, said) == (200, json.loads(json.dumps(openapi())))
        listed = {(method.upper(), path) for path, ways in said["paths"].items() for method in ways}
        assert listed == {(route.method, route.path) for route in ROUTES}

    run(office, story)


# ---- limits


def test_passwords_are_not_guessed_at_one_account_from_anywhere(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        async def guess(number: int, password: str) -> int:
            said = {"name": "Ada", "password": password}
            return (await stage.ask("POST", "/v1/login", said, address=f"192.0.2.{number}"))[0]

        assert [await guess(number, "wrong") for number in range(12)] == [401] * 10 + [429] * 2
        assert await guess(99, ada.password) == 429
        stage.now = 300.0
        assert await guess(99, ada.password) == 200
        assert await guess(99, "wrong") == 401

    run(office, story)


def test_one_address_does_not_try_many_accounts(office: BoxOffice) -> None:
    async def story(stage: Stage) -> None:
        said = [await stage.ask("POST", "/v1/login", {"name": f"n{n}", "password": "x"}) for n in range(32)]
        assert [status for status, _ in said] == [401] * 30 + [429] * 2
        other = await stage.ask("POST", "/v1/login", {"name": "n1", "password": "x"}, address="198.51.100.1")
        assert other[0] == 401

    run(office, story)


def test_an_address_that_floods_waits_and_others_do_not(office: BoxOffice) -> None:
    async def story(stage: Stage) -> None:
        said = [(await stage.ask("GET", "/v1/office"))[0] for _ in range(1_201)]
        assert said == [200] * 1_200 + [429]
        assert (await stage.ask("GET", "/v1/office", address="198.51.100.1"))[0] == 200

    run(office, story)


def test_an_account_does_not_fill_the_books(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        token = await stage.token(ada)
        order = {"plan": "basic", "instrument": TEST_DECLINED}
        said = [await stage.ask("POST", "/v1/orders", order, token, idempotency_key=f"k{n}") for n in range(61)]
        assert [status for status, _ in said] == [402] * 60 + [429]
        assert len(office.orders()) == 60

    run(office, story)


def test_limits_remember_a_bounded_number_of_names() -> None:
    limit = AttemptLimit(1, 10.0)
    assert all(limit.allows(str(number), 0.0) for number in range(10_000))
    assert len(limit._made) == 4_096  # noqa: SLF001
    assert not limit.allows("9999", 5.0)
    assert limit.allows("9999", 10.0)


# ---- pages for people


def test_a_person_logs_in_buys_fetches_and_leaves(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.browse("GET", "/")
        assert b"Lines and repairs" in first.body
        assert b"12.50 EUR" in first.body
        login = f"name=Ada&password={ada.password}"
        answer = await stage.browse("POST", "/login", form=login, origin="https://office.example")
        assert answer.status.value == 303
        cookie = next(line for line in answer.headers if line.startswith("Set-Cookie: ")).partition(": ")[2]
        assert all(part in cookie for part in ("__Host-", "Secure", "HttpOnly", "SameSite=Strict"))
        session = cookie.partition(";")[0]
        page = (await stage.browse("GET", "/account", session)).body.decode()
        mark, key = (re.search(f'name={name} value="([^"]+)"', page)[1] for name in ("mark", "key"))  # type: ignore[index]
        form = f"mark={mark}&key={key}&plan=basic&periods=1&instrument={TEST_ACCEPTED}&renews=yes"
        for _ in range(2):
            assert (await stage.browse("POST", "/buy", session, form)).status.value == 303
        assert len(office.invoices()) == 1
        assert office.standing("Ada") == ["basic"]
        assert opened((await stage.browse("GET", "/package", session)).body, ada.secret, START).keys
        page = (await stage.browse("GET", "/account", session)).body.decode()
        assert "Paid until" in page
        await stage.browse("POST", "/renewals", session, f"mark={mark}&plan=basic&renews=no")
        assert office.standing("Ada") == []
        assert (await stage.browse("POST", "/logout", session, f"mark={mark}")).status.value == 303
        assert (await stage.browse("GET", "/account", session)).status.value == 401

    run(office, story)


def test_a_form_of_another_site_does_nothing(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        session = f"__Host-isocast-office={await stage.token(ada)}"
        form = f"key=k&plan=basic&periods=1&instrument={TEST_ACCEPTED}"
        for body, headers in ((form, {}), (f"{form}&mark=x", {}), (form, {"origin": "https://evil.example"})):
            assert (await stage.browse("POST", "/buy", session, body, **headers)).status.value == 403
        assert (await stage.browse("POST", "/login", form="name=a", origin="null")).status.value == 403
        assert office.orders() == []

    run(office, story)


def test_what_people_call_themselves_is_text_on_the_page(office: BoxOffice) -> None:
    who = office.enrol("<script>alert(1)</script>")

    async def story(stage: Stage) -> None:
        session = f"__Host-isocast-office={await stage.token(who)}"
        answer = await stage.browse("GET", "/account", session)
        assert b"<script" not in answer.body
        assert any("default-src 'none'" in line for line in answer.headers)
        missing = await stage.browse("GET", "/<script>")
        assert missing.status.value == 404
        assert b"<script" not in missing.body

    run(office, story)


@pytest.mark.parametrize("form", ["%00", "name=%00", "\xff", "a=1&" * 50, "=", "name=%ff"])
def test_what_is_no_form_is_refused(office: BoxOffice, form: str) -> None:
    async def story(stage: Stage) -> None:
        assert (await stage.browse("POST", "/login", form=form)).status.value in (400, 401)

    run(office, story)


# ---- secrets


def test_no_card_number_or_secret_is_in_logs_or_files(office: BoxOffice, ada: Enrolment, tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        token = await stage.token(ada)
        for how in ({"instrument": CARD}, {"instrument": f"test:{CARD}"}):
            got = await stage.ask("POST", "/v1/orders", {"plan": "basic", **how}, token, idempotency_key=CARD)
            assert got[0] == 400
            assert CARD not in str(got)
        await stage.ask("POST", "/v1/login", {"name": "Ada", "password": "wrong-password"})
        await stage.ask(
            "POST", "/v1/orders", {"plan": "basic", "instrument": TEST_ACCEPTED}, token, idempotency_key=CARD
        )
        await stage.ask("GET", "/v1/package", token=token)
        secrets.append(token)

    secrets = [CARD, ada.password, ada.secret, "wrong-password"]
    with capture_logs() as logs:
        run(office, story)
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir()).decode("latin-1") + str(logs)
    assert [secret for secret in secrets if secret in kept] == []


# ---- over sockets


def tls_of(address: str, certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """In a market that has no certificate of its own."""
    market: Any = SimpleNamespace(keys_directory=Path("/nowhere"))
    return service_tls(market, OFFICE, address, certificate, key)


@asynccontextmanager
async def serving(office: BoxOffice, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_office(office, tls, "127.0.0.1", 0, ready.set_result))
    try:
        both: list[asyncio.Future[Any]] = [task, ready]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        yield ready.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_a_customer_over_tls_verifies_the_ca_and_writes_a_private_file(
    office: BoxOffice, ada: Enrolment, tmp_path: Path
) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    ca, certificate, key = make_certificates(folder)

    def pinning(authority: Path, pin: bytes) -> Path:
        """A roster that pins an authority, and a certificate as the office's."""
        seller = member(BOX_OFFICE, "box-office", RosterRole.BOX_OFFICE, ())
        listed = replace(seller, certificates=(pin,), not_after_ns=1 << 63)
        roster = a_roster(members=(listed,), authorities=certificate_digests(authority))
        path = tmp_path / "roster.bin"
        path.write_bytes(sign_roster(roster, ROOT))
        return path

    def customer(port: int) -> None:
        with pytest.raises(TransportError, match="give its CA by --ca"):
            OfficeClient(f"https://127.0.0.1:{port}").plans()
        place = f"https://127.0.0.1:{port}"
        with pytest.raises(TransportError, match="is not one that roster 1 pins for box-office"):
            OfficeClient(place, ca, pinning(ca, sha256(b"another").digest())).plans()
        with pytest.raises(ConfigurationError, match="is not the authority that roster 1 pins"):
            OfficeClient(place, ca, pinning(certificate, certificate_digests(certificate)[0]))
        client = OfficeClient(place, ca, pinning(ca, certificate_digests(certificate)[0]))
        assert [plan["name"] for plan in client.plans()] == ["basic"]
        client.log_in("Ada", ada.password)
        client.buy("basic", key="k1", periods=1, instrument=TEST_ACCEPTED, renews=True)
        file = tmp_path / "ada.package"
        for _ in range(2):
            assert write_package(file, client.package()).buyer == "Ada"
        assert file.stat().st_mode & 0o777 == 0o600
        assert opened(file.read_bytes(), ada.secret, START).keys
        client.stand("basic", renews=False)
        client.log_out()
        with pytest.raises(OfficeError, match="log in first"):
            client.account()

    async def story() -> None:
        async with serving(office, tls_of("0.0.0.0", certificate, key)) as port:  # noqa: S104
            await asyncio.to_thread(customer, port)

    asyncio.run(story())


def test_nothing_older_than_tls_1_3_is_spoken(office: BoxOffice, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    ca, certificate, key = make_certificates(folder)
    old = ssl.create_default_context(cafile=str(ca))
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    async def story() -> None:
        async with serving(office, tls_of("127.0.0.1", certificate, key)) as port:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port, ssl=old)

    asyncio.run(story())


def test_without_tls_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    for address in ("127.0.0.1", "::1", "localhost"):
        assert tls_of(address, None, None) is None
    for address in ("0.0.0.0", "192.0.2.1", "office.example", ""):  # noqa: S104
        with pytest.raises(ConfigurationError, match="box-office certificate makes what that needs"):
            tls_of(address, None, None)
    (tmp_path / "x").write_text("no certificate")
    with pytest.raises(ConfigurationError, match="no certificate in PEM"):
        tls_of("127.0.0.1", tmp_path / "x", tmp_path / "x")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        tls_of("127.0.0.1", tmp_path / "y", tmp_path / "y")
    with pytest.raises(ConfigurationError, match="needs its"):
        tls_of("127.0.0.1", tmp_path / "x", None)


@pytest.mark.parametrize(
    "url",
    ["", "office", "ftp://x", "http://office.example", "https://", "https://a:b@c", "https://x/y", "https://x:99999"],
)
def test_a_bad_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigurationError, match="command line: URL"):
        OfficeClient(url)


def test_whoever_answers_and_is_no_office_is_said_to_be_none() -> None:
    async def rude(_: Request) -> Answer:
        return Answer(b"\x1b[2Jhello")

    async def story() -> None:
        server = HttpServer(rude, BOUNDS)
        await server.start("127.0.0.1", 0)
        client = OfficeClient(f"http://127.0.0.1:{server.port}")
        with pytest.raises(OfficeError, match="is no box office"):
            await asyncio.to_thread(client.plans)
        await server.stop()
        with pytest.raises(TransportError, match="no box office answers"):
            await asyncio.to_thread(client.plans)

    asyncio.run(story())


async def raw(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        with suppress(ConnectionError):
            return await reader.read()
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "sent, status",
    [
        (b"\r\n\r\n", b"400"),
        (b"GET / HTTP/2\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /%ff HTTP/1.1\r\n\r\n", b"400"),
        (b"GET x HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 2_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"PUT / HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(99)) + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000, b"431"),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", b"400"),
        (b"POST /login HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /login HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /login HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BOUNDS.body_bytes_max + 1), b"413"),
        (b"POST /login HTTP/1.1\r\nContent-Length: " + b"9" * 4_000 + b"\r\n\r\n", b"413"),
        (b"GET /v1/office HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /style.css HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_each_bound_of_a_request_has_its_answer(office: BoxOffice, sent: bytes, status: bytes) -> None:
    async def story() -> None:
        async with serving(office) as port:
            assert (await raw(port, sent)).startswith(b"HTTP/1.1 " + status)

    asyncio.run(story())


@pytest.mark.parametrize("letter", [b"\0", b"\x1b", b"\x7f", b"\n", b"\r"])
def test_no_control_character_of_a_request_reaches_the_office(letter: bytes) -> None:
    """A NUL ends a database's text, and an escape moves somebody's cursor."""
    reached: list[Request] = []

    async def fine(request: Request) -> Answer:
        reached.append(request)
        return Answer()

    async def story() -> None:
        server = HttpServer(fine, BOUNDS)
        await server.start("127.0.0.1", 0)
        try:
            buy = b"POST /v1/orders HTTP/1.1\r\nIdempotency-Key: a%sb\r\n\r\n"
            refusal = await raw(server.port, buy % letter)
            assert refusal.startswith(b"HTTP/1.1 400")
            assert refusal.endswith(b"\r\n\r\na header has a control character: send printable ASCII\n")
            refusal = await raw(server.port, b"GET /v1/subscribers/a%%%02x HTTP/1.1\r\n\r\n" % ord(letter))
            assert refusal.endswith(b"\r\n\r\nthe address has a control character: leave it out\n")
            assert reached == []
            assert (await raw(server.port, buy % b"\t")).startswith(b"HTTP/1.1 200"), "a tab is white space"
        finally:
            await server.stop()

    asyncio.run(story())


def test_a_slow_loris_is_cut_off_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    """It opens, says half a request or nothing, and waits: with TLS and without."""
    folder = tmp_path / "tls"
    folder.mkdir()
    ca, certificate, key = make_certificates(folder)

    async def fine(_: Request) -> Answer:
        return Answer(b"fine")

    async def story(tls: ssl.SSLContext | None, theirs: ssl.SSLContext | None) -> None:
        bounds = replace(BOUNDS, request_seconds=3.0, connections_max=8, per_address_max=4)
        server = HttpServer(fine, bounds, tls)
        await server.start("127.0.0.1", 0)
        halves = [b"", b"GET / HTT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf", b"POST"]
        if tls is not None:
            halves = [b"", b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00"]
        loris = [socket.create_connection(("127.0.0.1", server.port)) for _ in halves]
        for connection, half in zip(loris, halves, strict=True):
            connection.sendall(half)
        # All places of this address are taken: the next one is sent away at once, not queued.
        await eventually(lambda: server.open == 4)
        assert await raw(server.port, b"GET / HTTP/1.1\r\n\r\n") == b""
        await eventually(lambda: server.open == 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=theirs)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"fine" in await reader.read()
        writer.close()
        for connection in loris:
            connection.close()
        await server.stop()

    asyncio.run(story(None, None))
    asyncio.run(story(tls_of("127.0.0.1", certificate, key), ssl.create_default_context(cafile=str(ca))))


def test_an_answer_that_fails_is_logged_and_the_service_goes_on() -> None:
    async def failing(_: Request) -> Answer:
        raise ZeroDivisionError

    async def story() -> None:
        server = HttpServer(failing, BOUNDS)
        await server.start("127.0.0.1", 0)
        for _ in range(2):
            answer = await raw(server.port, b"GET / HTTP/1.1\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 500")
            assert b"ZeroDivision" not in answer
        await server.stop()

    with capture_logs() as logs:
        asyncio.run(story())
    assert [entry["event"] for entry in logs] == ["a request failed"] * 2


def test_a_running_office_renews_by_itself(office: BoxOffice) -> None:
    bought(office, renews=True)
    clock: Any = office._clock  # noqa: SLF001
    clock.now = 20_001 * 86_400 * 10**9 - 1

    async def story() -> None:
        async with serving(office):
            await eventually(lambda: len(office.invoices()) == 2)

    asyncio.run(story())


def test_too_many_logins_at_once_are_sent_away(office: BoxOffice, ada: Enrolment) -> None:
    async def story(stage: Stage) -> None:
        stage.service._waiting = 16  # noqa: SLF001
        got = await stage.ask("POST", "/v1/login", {"name": "Ada", "password": ada.password})
        assert (got[0], got[1]["error"]) == (503, OfficeFault.UNAVAILABLE.value)

    run(office, story)


# ---- the reference


def test_the_reference_lists_every_way_in_and_every_error() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "box-office.md").read_text(encoding="utf-8")
    for route in ROUTES:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{route.method} {route.path}` |"))
        assert row.split(" | ")[1] == route.who.value
        assert re.findall("`([a-z_]+)`", row.split(" | ")[2]) == list(route.body or ())
    for fault, status in STATUSES.items():
        assert f"| `{fault.value}` | {status.value} |" in page
