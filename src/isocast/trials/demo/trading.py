"""Who trades in the show: a floor that the receivers run, two gateways, and traders in three cities.

Each gateway has a source of its own, books of its own and a door for traders on loopback; its traders have accounts
there. What they do is in `traders`, what the books say in `books`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from isocast.orders.accounts import FIRST_TRADER, account_number
from isocast.runtime.market.model import Market

__all__ = [
    "CURRENCY",
    "DEPOSIT",
    "FLOOR_CODE",
    "FLOOR_TABLE",
    "GATEWAYS",
    "SHARES",
    "SYMBOLS",
    "TRADERS",
    "DemoGateway",
    "TraderSeat",
    "city_of",
    "gateway_url",
    "missing_packages",
    "token_file",
]

FLOOR_CODE: Final = "XISO"
CURRENCY: Final = "USD"
FLOOR_TABLE: Final[dict[str, object]] = {"currency": CURRENCY, "taker_fee_bp": 1}
SYMBOLS: Final[tuple[dict[str, object], ...]] = (
    {"symbol": "ISO", "tick": "0.01", "lot": 10, "reference": "100.00", "collar_bp": 500},
    {"symbol": "CAST", "tick": "0.01", "lot": 10, "reference": "25.00", "collar_bp": 500},
    {"symbol": "RING", "tick": "0.05", "lot": 10, "reference": "240.00", "collar_bp": 500},
)
DEPOSIT: Final = "5000000.00 USD"
"""What each trader begins with, beside `SHARES` of every symbol: more than they can spend in an hour."""
SHARES: Final = 100_000
_PORT: Final = 8_444
_PACKAGES: Final = ("alembic", "sqlalchemy", "websockets")


@dataclass(frozen=True, slots=True)
class TraderSeat:
    """Somebody who trades: a city, which is the name of the account, too."""

    city: str
    gateway: str
    account: int


@dataclass(frozen=True, slots=True)
class DemoGateway:
    """A gateway of the show; it hears the sequence as the customer of its own name."""

    name: str
    number: int
    city: str
    lines: tuple[str, str]
    cities: tuple[str, ...]
    """Of its traders."""

    @property
    def source(self) -> str:
        """At whose door it publishes."""
        return self.name.replace("gateway", "orders")

    @property
    def traders(self) -> tuple[TraderSeat, ...]:
        """Accounts are numbered in the order in which they are opened."""
        return tuple(
            [
                TraderSeat(city, self.name, account_number(self.number, FIRST_TRADER + place))
                for place, city in enumerate(self.cities)
            ]
        )

    def folder(self, market: Market) -> Path:
        """Where its books are, and the tokens of its traders."""
        return market.directory_of(self.name)

    def database(self, market: Market) -> Path:
        """Its books."""
        return self.folder(market) / "accounts.db"


GATEWAYS: Final = (
    DemoGateway("london-gateway", 1, "London", ("london", "new-york"), ("London", "New York")),
    DemoGateway("tokyo-gateway", 2, "Tokyo", ("tokyo", "hong-kong"), ("Tokyo",)),
)
TRADERS: Final = tuple([seat for gateway in GATEWAYS for seat in gateway.traders])
_CITIES: Final = {seat.account: seat.city for seat in TRADERS}


def city_of(account: int) -> str:
    """The city of an account; its number, if it is of no trader of this show."""
    return _CITIES.get(account, str(account))


def gateway_url(market: Market, name: str) -> str:
    """Where a gateway's traders come in: on loopback, at an address that no other market has."""
    return f"http://{market.node(name).address}:{_PORT}"


def token_file(market: Market, seat: TraderSeat) -> Path:
    """What lets a trader in; nobody but the owner may read it."""
    return market.directory_of(seat.gateway) / f"{seat.city.lower().replace(' ', '-')}.token"


def missing_packages() -> tuple[str, ...]:
    """Packages without which nobody can trade: they belong to extras."""
    return tuple([name for name in _PACKAGES if find_spec(name) is None])
