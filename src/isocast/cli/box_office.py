"""`isocast box-office`: sell subscriptions, as packages of keys that only their buyers can open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.certs import CertificateDays, certify
from isocast.cli.databases import BooksUrl, address_of, needing_extra
from isocast.cli.options import Config, Count, Flag, Seconds, duration_of
from isocast.cli.render import line, note, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import minute_text
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.box_office.office import BoxOffice, Enrolment, OfficeOrder
    from isocast.runtime.market.model import Market

__all__ = ["app"]

app = App(
    name="box-office",
    help="Sell subscriptions to a market: plans, subscribers, orders, renewals, and packages of keys.",
    help_epilogue="Start with:\n\n    isocast box-office init --config market.toml\n",
)

DATABASE = "ISOCAST_OFFICE_DATABASE"
"""Of the environment: a URL that may have a password in it."""
_WRONG = 1
_PRICE = re.compile(r"([0-9]{1,9})(?:\.([0-9]{2}))? ?([A-Z]{3})")
_TOKEN_DAYS = 90


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Books:
    """Whose books, and where they are."""

    config: Config = None
    database: BooksUrl = None

    def market(self) -> Market:
        """Whose they are."""
        from isocast.runtime.market.file import open_market

        return open_market(self.config)

    def url(self, market: Market) -> str:
        """Where they are; ConfigurationError for a password that everybody could see."""
        from isocast.runtime.box_office.running import database_url

        return database_url(market, address_of(self.database, DATABASE))

    @contextmanager
    def open(self) -> Iterator[BoxOffice]:
        """The box office that keeps them."""
        with needing_extra("box-office"):
            from isocast.runtime.box_office.running import open_office
        market = self.market()
        office = open_office(market, self.url(market))
        try:
            yield office
        finally:
            office.close()


_BOOKS = Books()


@app.command(
    help_epilogue="""Examples:

    isocast box-office init --config market.toml

    isocast box-office init --config market.toml --lead 2h

    isocast box-office init --config market.toml --database postgresql://office@db.example/office

A password of the database belongs into ISOCAST_OFFICE_DATABASE or ~/.pgpass, never into a command. Exit code: 0 made,
or there already; 2 bad input.
"""
)
def init(
    *,
    books: Books = _BOOKS,
    lead: str | None = None,
    json: Flag = False,
) -> int:
    """Make the box office of a market: its key and its tables. What exists is never touched.

    It needs `identity-box-office.key` and `region.key` of the keys directory; `isocast keys init` makes them where
    the market's file says `subscriptions.enabled = true`. A period is `subscriptions.period` of that file.

    Parameters
    ----------
    lead
        How long before a period its keys are given out, such as 2h; a quarter of a period if left out, and at most
        half.
    json
        Print one JSON object instead of lines.
    """
    with needing_extra("box-office"):
        from isocast.runtime.box_office.database import OfficeDatabase
        from isocast.runtime.box_office.office import BoxOffice
        from isocast.runtime.box_office.running import load_office_keys
    market = books.market()
    length = market.subscriptions.period_ns
    before = length // 4 if lead is None else duration_of(lead, "--lead", "6h or 15min")
    kept = OfficeDatabase(books.url(market))
    try:
        made = BoxOffice.create(kept, load_office_keys(market, make=True), length, before)
    finally:
        kept.close()
    if json:
        show_json({"database": kept.place, "made": made})
    else:
        line(f"The box office of {market.name} is in {kept.place}: {'made' if made else 'kept, it exists'}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office plan --config market.toml

    isocast box-office plan basic --services base,repair --price 12.50EUR --config market.toml

    isocast box-office plan basic --withdraw --config market.toml
"""
)
def plan(
    name: str | None = None,
    *,
    books: Books = _BOOKS,
    services: str | None = None,
    price: str | None = None,
    title: str | None = None,
    withdraw: Flag = False,
    json: Flag = False,
) -> int:
    """Put a plan on sale, change it, or take it off sale; without a name, list all plans.

    Parameters
    ----------
    name
        By which customers order it.
    services
        What it is for: base (the lines), repair, stripe:N (a narrow stripe), history (the past at the doors); commas
        between them.
    price
        Of one period, such as 12.50EUR.
    title
        What people read.
    withdraw
        Sell it no longer; what was sold stays sold.
    json
        Print one JSON object instead of a table.
    """
    with books.open() as office:
        from isocast.runtime.box_office.office import OfficePlan
        from isocast.runtime.box_office.pages import price_text

        if name is not None:
            old = next((known for known in office.plans() if known.name == name), None)
            if old is None and (services is None or price is None):
                raise ConfigurationError(
                    "command line", "--services", f"a new plan {name} needs --services and --price"
                )
            base = old or OfficePlan(name, name, (), 0, "")
            amount, currency = (base.price, base.currency) if price is None else _amount(price)
            listed = base.services if services is None else tuple(filter(None, services.split(",")))
            office.set_plan(OfficePlan(name, title or base.title, listed, amount, currency, not withdraw))
        plans = office.plans()
        if json:
            show_json([known._asdict() for known in plans])
            return 0
        rows = [
            (
                known.name,
                known.title,
                ", ".join(known.services),
                price_text(known.price, known.currency),
                "on sale" if known.on_sale else "withdrawn",
            )
            for known in plans
        ]
        show_table(f"Plans of {office.market_name}", ("plan", "title", "services", "price of a period", ""), rows)
        return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office subscriber Ada --config market.toml

    isocast box-office subscriber Ada --reset --config market.toml

Password and secret are shown once and kept nowhere: hand them over by two ways. Exit code: 0 done, 2 bad input.
"""
)
def subscriber(
    name: str,
    *,
    books: Books = _BOOKS,
    reset: Flag = False,
    demonstrate_card: Flag = False,
    json: Flag = False,
) -> int:
    """Enrol a subscriber, with a password to log in and a secret that opens packages.

    Parameters
    ----------
    name
        Which packages will name in the clear.
    reset
        New password and secret for a subscriber who lost one; sessions end, and packages are to be fetched again.
    demonstrate_card
        Mask packages with a test card's number, which is asked for, as the paper has it. It deters, no more: with
        the last four digits known some 10^5 guesses remain. Real numbers are refused.
    json
        Print one JSON object instead of lines.
    """
    with books.open() as office:
        card = _asked("Test card number: ") if demonstrate_card else None
        made = office.reset(name, card=card) if reset else office.enrol(name, card=card)
        _show_enrolment(made, as_json=json)
        return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office sell Ada basic --config market.toml --out ada.package

    isocast box-office sell Ada basic --periods 30 --renews --config market.toml
"""
)
def sell(  # noqa: PLR0913 - to whom, what, for how long, where
    name: str,
    plan: str,
    *,
    books: Books = _BOOKS,
    periods: Count = 1,
    renews: Flag = False,
    pay_by: str = "",
    idempotency_key: str | None = None,
    out: Path | None = None,
    json: Flag = False,
) -> int:
    """Sell periods of a plan to a subscriber.

    Parameters
    ----------
    name
        Who buys.
    plan
        Which plan.
    periods
        How many, from now or from the end of what is bought.
    renews
        Renew the plan before it ends, from then on.
    pay_by
        The payment provider's token; left out, the one used last, or test:accepted.
    idempotency_key
        Names this purchase: repeated with the same key, it is made once.
    out
        Write the package there, too.
    json
        Print one JSON object instead of lines.
    """
    from secrets import token_urlsafe

    from isocast.runtime.box_office.client import write_package

    with books.open() as office:
        from isocast.runtime.box_office.office import OPERATOR
        from isocast.runtime.box_office.payments import TEST_ACCEPTED

        instrument = pay_by or ("" if office.orders(name) else TEST_ACCEPTED)
        key = idempotency_key or f"sale/{token_urlsafe(12)}"
        order = office.buy(name, plan, key=key, instrument=instrument, periods=periods, renews=renews, actor=OPERATOR)
        if out is not None:
            write_package(out, office.package(name))
        if json:
            show_json(order._asdict())
        else:
            package = "" if out is None else f"; package in {out}"
            line(f"{name} has {order.plan} until {minute_text(order.ends_ns)}{package}.")
        return 0


@app.command(help_epilogue="Example:\n\n    isocast box-office renew --config market.toml\n")
def renew(*, books: Books = _BOOKS, json: Flag = False) -> int:
    """Renew what is due, and settle what a crash left open; `run` does so by itself.

    Parameters
    ----------
    json
        Print one JSON object instead of a table.
    """
    with books.open() as office:
        settled = office.settle()
        renewals = office.renew_due()
        if json:
            show_json(
                {
                    "settled": [order._asdict() for order in settled],
                    "renewed": [renewal._asdict() for renewal in renewals],
                }
            )
            return 0
        rows = [(renewal.subscriber, renewal.plan, renewal.state, minute_text(renewal.ends_ns)) for renewal in renewals]
        show_table("Renewals", ("subscriber", "plan", "", "until"), rows)
        line(f"{counted(len(renewals), 'renewal')}, {counted(len(settled), 'order')} settled.")
        return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office revoke Ada --reason "did not pay" --config market.toml

    isocast box-office revoke Ada --undo --config market.toml

Keys that were given out open to the end of their period: a short period limits that.
"""
)
def revoke(
    name: str,
    *,
    books: Books = _BOOKS,
    reason: str = "",
    undo: Flag = False,
    json: Flag = False,
) -> int:
    """Give a subscriber no further package, and renew nothing for him.

    Parameters
    ----------
    name
        Whose subscription ends.
    reason
        For the books.
    undo
        Take it back.
    json
        Print one JSON object instead of a line.
    """
    with books.open() as office:
        who = office.revoke(name, reason, undo=undo)
        if json:
            show_json(who._asdict())
        else:
            line(f"{name} may buy and fetch again." if undo else f"{name} gets no further package.")
        return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office show --config market.toml

    isocast box-office show Ada --config market.toml
"""
)
def show(name: str | None = None, *, books: Books = _BOOKS, json: Flag = False) -> int:
    """List subscribers, or the orders and invoices of one.

    Parameters
    ----------
    name
        Of whom.
    json
        Print one JSON object instead of tables.
    """
    with books.open() as office:
        if name is not None:
            return _show_one(office, name, as_json=json)
        found = [(who, _paid_until(office.orders(who.name))) for who in office.subscribers()]
        if json:
            show_json([{**who._asdict(), "paid_until_ns": until} for who, until in found])
            return 0
        rows = [
            (
                who.name,
                minute_text(until) if until else "–",
                "" if who.revoked_ns is None else f"revoked {minute_text(who.revoked_ns)}",
            )
            for who, until in found
        ]
        show_table(f"Subscribers of {office.market_name}", ("name", "paid until", ""), rows)
        return 0


def _show_one(office: BoxOffice, name: str, *, as_json: bool) -> int:
    from isocast.runtime.box_office.pages import price_text

    who, orders, invoices = office.subscriber(name), office.orders(name), office.invoices(name)
    if as_json:
        lists = {"orders": [order._asdict() for order in orders], "invoices": [bill._asdict() for bill in invoices]}
        show_json({**who._asdict(), "renewed_plans": office.standing(name), **lists})
        return 0
    rows = [
        (
            str(order.id),
            order.plan,
            f"{minute_text(order.begins_ns)} to {minute_text(order.ends_ns)}",
            price_text(order.amount, order.currency),
            order.state,
        )
        for order in orders
    ]
    show_table(f"Orders of {name}", ("order", "plan", "time", "amount", ""), rows)
    show_table("Invoices", ("number", "issued"), [(str(bill.number), minute_text(bill.issued_ns)) for bill in invoices])
    line(f"Renewed: {', '.join(office.standing(name)) or 'nothing'}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office audit --config market.toml

    isocast box-office audit --config market.toml --after 1200 --json

Note the last link down elsewhere now and then: a log put back to an earlier day does not have it. Exit code: 0 the log
is whole, 1 it is not.
"""
)
def audit(
    *,
    books: Books = _BOOKS,
    after: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    json: Flag = False,
) -> int:
    """Print the audit log, and check that nobody changed it.

    Parameters
    ----------
    after
        Only entries after this number.
    json
        Print one JSON object instead of a table.
    """
    with books.open() as office:
        entries, fault = office.audit(after), office.audit_fault()
        if json:
            show_json({"fault": fault, "entries": [entry._asdict() for entry in entries]})
            return _WRONG if fault else 0
        rows = [
            (str(entry.number), minute_text(entry.at_ns), entry.actor, entry.act, entry.subject, entry.detail)
            for entry in entries
        ]
        show_table("Audit log", ("entry", "time", "who", "did", "to", "detail"), rows)
        last = entries[-1].link if entries else "–"
        line(f"The log is not whole: {fault}." if fault else f"The log is whole; its last link is {last}.")
        return _WRONG if fault else 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office token --config market.toml --out operator.token

    curl -H "Authorization: Bearer $(cat operator.token)" http://127.0.0.1:8443/v1/subscribers
"""
)
def token(
    *,
    books: Books = _BOOKS,
    out: Path,
    days: Annotated[int, Parameter(validator=Number(gte=1, lte=3_650))] = _TOKEN_DAYS,
    json: Flag = False,
) -> int:
    """Write a token for programs that use the operator's part of the JSON API.

    Parameters
    ----------
    out
        The file, for its owner alone; it must not exist.
    days
        How long it counts.
    json
        Print one JSON object instead of a line.
    """
    from isocast.runtime.market.secret_files import create_file
    from isocast.terms.instants import SECOND

    with books.open() as office:
        text, ends = office.operator_token(days * 86_400 * SECOND)
        try:
            create_file(out, f"{text}\n".encode())
        except OSError as error:
            raise ConfigurationError(str(out), "--out", f"cannot be written: {error.strerror}") from None
        if json:
            show_json({"file": str(out), "ends_ns": ends})
        else:
            line(f"{out} counts until {minute_text(ends)}.")
        return 0


@app.command(
    help_epilogue="""Examples:

    isocast box-office certificate office.example --config market.toml

    isocast box-office certificate office.example 192.0.2.7 --config market.toml

Run it where tls/ca.key is, and copy tls/box-office.crt and .key to where the office runs. Customers get tls/ca.crt.
"""
)
def certificate(
    *hosts: str,
    config: Config = None,
    days: CertificateDays = 825,
    json: Flag = False,
) -> int:
    """Make the certificate of the box office by the market's own authority (`isocast certs init` makes that).

    Parameters
    ----------
    hosts
        Names and addresses by which customers reach the office.
    json
        Print one JSON object instead of a line.
    """
    from isocast.runtime.market.tls_files import OFFICE

    return certify(OFFICE, "office", hosts, Books(config).market(), days, as_json=json)


@app.command(
    help_epilogue="""Examples:

    isocast box-office run --config market.toml

    isocast box-office run --config market.toml --address 0.0.0.0

    isocast box-office run --config market.toml --address 0.0.0.0 --certificate office.pem --private-key office.key

Without a certificate it listens on this machine alone. Exit code: 0 it was stopped, 2 bad input, 3 the machine refused
an address or a port.
"""
)
def run(
    *,
    books: Books = _BOOKS,
    address: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=Number(gte=0, lt=65_536))] = 8_443,
    certificate: Path | None = None,
    private_key: Path | None = None,
    seconds: Seconds | None = None,
) -> int:
    """Serve the box office: a page for people, a JSON API for programs, and renewals before they are due.

    Parameters
    ----------
    address
        The address to listen on.
    port
        The TCP port; 0 takes a free one.
    certificate
        Of TLS, in PEM, with those between it and its CA; left out, the one that `certificate` made, if it is here.
    private_key
        The file of its private key.
    seconds
        End after so long.
    """
    import asyncio
    from contextlib import suppress

    from isocast.runtime.net.kernel import forbid_dumps

    market = books.market()
    if not market.dumpable:
        forbid_dumps()  # Before a key is read.
    with books.open() as office:
        from isocast.runtime.box_office.running import serve_office
        from isocast.runtime.market.tls_files import OFFICE
        from isocast.runtime.net.tls import service_tls
        from isocast.runtime.watch.logs import LogLevel, configure_logs

        tls = service_tls(market, OFFICE, address, certificate, private_key)
        configure_logs(level=LogLevel.WARNING)

        def ready(taken: int) -> None:
            note(
                f"isocast: the box office of {office.market_name} is at {'http' if tls is None else 'https'}://{address}:{taken}"
            )

        async def serve() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await serve_office(office, tls, address, port, ready)

        shutdown.run(serve())
        return 0


# ---- what commands share


def _amount(text: str) -> tuple[int, str]:
    from isocast.runtime.box_office.pages import WITHOUT_MINOR

    found = _PRICE.fullmatch(text.strip())
    if found is None or (found[3] in WITHOUT_MINOR and found[2]):
        raise ConfigurationError("command line", "--price", "write a price such as 12.50EUR or 900JPY")
    return (int(found[1]) if found[3] in WITHOUT_MINOR else int(found[1]) * 100 + int(found[2] or 0)), found[3]


def _asked(prompt: str) -> str:
    """What must not be in a command: typed unseen, or from standard input."""
    import sys
    from getpass import getpass

    return getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().strip()


def _paid_until(orders: list[OfficeOrder]) -> int:
    return max((order.ends_ns for order in orders if order.state == "paid"), default=0)


def _show_enrolment(made: Enrolment, *, as_json: bool) -> None:
    if as_json:
        show_json({"name": made.name, "password": made.password, "secret": made.secret})
        return
    line(f"{made.name} is a subscriber. This is shown once:")
    line(f"  password  {made.password}")
    line(f"  secret    {made.secret or 'the test card number that was typed'}")
    if not made.secret:
        line("A card number deters, no more: who knows its last four digits has some 10^5 to try.")
