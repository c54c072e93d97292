"""What customers of a market that sells have bought, for tests: keys, opened packages, and packages in files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from secrets import token_bytes
from time import time_ns

from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import load_identity, load_roster
from isocast.runtime.market.subscription import Subscription
from isocast.security.line_seals import BoughtKeys
from isocast.security.packages import mask_of, seal_package, write_secret
from isocast.security.subscriptions import ServiceKey, period_of, service_key

__all__ = ["Given", "sold", "write_package"]


def sold(market: Market, *services: str, periods: Iterable[int] | None = None) -> list[ServiceKey]:
    region, length = load_keys(market, market.node("a")).region, market.subscriptions.period_ns
    assert region is not None
    now = period_of(time_ns(), length)
    wanted = (now, now + 1) if periods is None else tuple(periods)
    return [service_key(region, service, period, length) for service in services for period in wanted]


class Given(Subscription):
    """An opened package, without the second that opening takes."""

    def __init__(self, keys: Iterable[ServiceKey]) -> None:
        self.path, self.buyer, self.keys = Path("desk.package"), "desk", BoughtKeys(keys)

    @property
    def is_replaced(self) -> bool:
        return False


def write_package(folder: Path, market: Market, buyer: str, keys: Iterable[ServiceKey]) -> tuple[Path, Path]:
    """The files that the box office would have given: the package, and its secret."""
    secret = token_bytes(16)
    raw = seal_package(
        load_identity(market, "box-office"),
        mask_of(secret, token_bytes(16)),
        market=load_roster(market).market,
        market_name=market.name,
        buyer=buyer,
        keys=list(keys),
        number=1,
        issued=time_ns(),
        nonce=token_bytes(12),
    )
    package, shown = folder / f"{buyer}.package", folder / f"{buyer}.secret"
    package.write_bytes(raw)
    shown.write_text(write_secret(secret), encoding="utf-8")
    shown.chmod(0o600)
    return package, shown
