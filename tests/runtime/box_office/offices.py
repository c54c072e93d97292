"""Box offices for tests: a market's keys, a clock that is set by hand, and databases of both kinds."""

from __future__ import annotations

from pathlib import Path

from tests.security.package_samples import CHEAP, DAY, MARKET, OFFICE, REGION

from isocast.runtime.box_office.database import OfficeDatabase
from isocast.runtime.box_office.office import BoxOffice, OfficeKeys, OfficePlan
from isocast.runtime.box_office.payments import TEST_ACCEPTED, PaymentProvider, TestPayments
from isocast.runtime.disk.database import sqlite_url
from isocast.security.keys import SecretKey
from isocast.security.packages import Package, open_package, read_secret

__all__ = [
    "BASIC",
    "HOUR",
    "KEYS",
    "LEAD",
    "START",
    "Clock",
    "bought",
    "close_all",
    "office_at",
    "opened",
    "sqlite_in",
]

KEYS = OfficeKeys("demo", MARKET, OFFICE, REGION, SecretKey(bytes(range(3, 35))))
HOUR = 3_600 * 10**9
START = 20_000 * DAY + 10 * HOUR
LEAD = 6 * HOUR
BASIC = OfficePlan("basic", "Lines and repairs", ("base", "repair"), 1_250, "EUR")


class Clock:
    """Stands still until it is set."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def office_at(
    url: str, folder: Path, clock: Clock, payments: PaymentProvider | None = None, *, lead: int = LEAD
) -> BoxOffice:
    """A box office that sells BASIC, new or as it was left."""
    database = OfficeDatabase(url)
    _made.append(database)
    new = BoxOffice.create(database, KEYS, DAY, lead)
    provider = payments or TestPayments(folder / "charges.jsonl")
    office = BoxOffice(database, KEYS, provider, clock=clock, stretching=CHEAP, passwords=CHEAP)
    if new:
        office.set_plan(BASIC)
    return office


_made: list[OfficeDatabase] = []


def close_all() -> None:
    """Close the databases of all offices that a test made."""
    while _made:
        _made.pop().close()


def bought(office: BoxOffice, name: str = "Ada", *, key: str = "k1", renews: bool = False, periods: int = 1) -> str:
    """Somebody who has enrolled and bought; his secret."""
    enrolment = office.enrol(name)
    office.buy(name, "basic", key=key, instrument=TEST_ACCEPTED, renews=renews, periods=periods)
    return enrolment.secret


def opened(raw: bytes, secret: str, now: int) -> Package:
    return open_package(raw, read_secret(secret), MARKET, OFFICE.public, now, least=CHEAP)


def sqlite_in(folder: Path) -> str:
    return sqlite_url(folder / "office.db")
