"""A box office as a process: its files, its service, and renewals before they are due."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from typing import Final

from isocast.runtime.box_office.database import OfficeDatabase
from isocast.runtime.box_office.office import BoxOffice, OfficeKeys
from isocast.runtime.box_office.pages import OfficePages
from isocast.runtime.box_office.payments import TestPayments
from isocast.runtime.box_office.service import OfficeService
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.market.key_files import REGION
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import identity_file, load_identity, load_roster
from isocast.runtime.market.secret_files import create_secret, read_secret
from isocast.runtime.net.http import Answer, HttpBounds, HttpServer, Request
from isocast.runtime.watch.logs import get_log
from isocast.security.keys import SecretKey
from isocast.security.roster import RosterRole
from isocast.terms.errors import ConfigurationError, OfficeError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import duration_text

__all__ = ["BOUNDS", "OFFICE_KEY", "database_url", "load_office_keys", "open_office", "serve_office"]

OFFICE_KEY: Final = "office.key"
"""The box office's own: seals and chains what is in its database."""
BOUNDS: Final = HttpBounds(
    request_seconds=10.0,
    answer_seconds=20.0,
    connections_max=128,
    per_address_max=32,
    body_bytes_max=16_384,  # A form or an order has some hundreds of bytes.
    methods=("GET", "POST"),
)
"""Of requests at a box office."""
_NAME = "box-office"
_LOOK_S = 60.0
"""Between two looks at what is due; a lead has hours."""


def load_office_keys(market: Market, *, make: bool = False) -> OfficeKeys:
    """The secrets of a box office; ConfigurationError, which says what to do, for one that is missing or not listed.

    `make`: make the one that nobody but the office has.
    """
    if not market.subscriptions.enabled:
        rule = "is false: nothing of this market is sealed, and there is nothing to sell; set it to true"
        raise ConfigurationError(market.file, "subscriptions.enabled", rule)
    roster = load_roster(market, time_ns())
    member = next((member for member in roster.members if member.role is RosterRole.BOX_OFFICE), None)
    identity = load_identity(market, _NAME, b"" if member is None else member.public)
    if member is None or member.public != identity.public or roster.is_revoked(identity.public):
        rule = f"roster {roster.serial} does not list this key as the box office's: copy the newest roster here"
        raise ConfigurationError(str(market.keys_directory / identity_file(_NAME)), "identity", rule)
    own = market.keys_directory / OFFICE_KEY
    if make and not own.exists():
        create_secret(own, f"{OFFICE_KEY} of the isocast market {market.name}: seals what the box office keeps.")
    region, vault = SecretKey(read_secret(market.keys_directory / REGION)), SecretKey(read_secret(own))
    return OfficeKeys(market.name, roster.market, identity, region, vault)


def database_url(market: Market, given: str | None) -> str:
    """Where the office keeps its books: what is given, or a file of the market's data directory."""
    return given or sqlite_url(market.directory_of(_NAME) / "office.db")


def open_office(market: Market, url: str) -> BoxOffice:
    """The box office of a market, as `isocast box-office init` made it."""
    folder = market.directory_of(_NAME)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(str(folder), "data", f"cannot be written: {error.strerror}") from None
    database, keys = OfficeDatabase(url), load_office_keys(market)
    office = BoxOffice(database, keys, TestPayments(folder / "test-charges.jsonl"))
    if office.length_ns != market.subscriptions.period_ns:
        office.close()
        was = duration_text(office.length_ns)
        rule = f"is not {was}, which the box office sells: put it back, or make a new office with another --database"
        raise ConfigurationError(market.file, "subscriptions.period", rule)
    return office


async def serve_office(
    office: BoxOffice,
    tls: ssl.SSLContext | None,
    address: str,
    port: int,
    ready: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until cancelled; `ready` is told the port."""
    service = OfficeService(office)
    pages = OfficePages(service, secure=tls is not None)

    async def respond(request: Request) -> Answer:
        return await (service if request.path.startswith("/v1/") else pages).respond(request)

    server = HttpServer(respond, BOUNDS, tls)
    await server.start(address, port)
    try:
        ready(server.port)
        await _keep_renewed(service)
    finally:
        await server.stop()
        service.close()


async def _keep_renewed(service: OfficeService) -> None:
    """Settle what a crash left open, and renew what is due, now and then for ever."""
    while True:
        with suppress(OSError):  # The provider is silent: orders wait.
            try:
                await service.in_thread(service.office.settle)
                for renewal in await service.in_thread(service.office.renew_due):
                    get_log().info("renewal", subscriber=renewal.subscriber, plan=renewal.plan, state=renewal.state)
            except OfficeError as error:
                get_log().error("renewals wait", reason=str(error))
        await asyncio.sleep(min(_LOOK_S, service.office.lead_ns / SECOND / 4))
