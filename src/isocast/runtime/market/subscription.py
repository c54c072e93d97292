"""What a customer bought: the keys of its package, read again when a renewal replaces the file.

    NAME.package, NAME.secret    in the keys directory, of a customer that the market's file names; the secret of mode
                                 0600, as the box office showed it
    --package FILE               of a listener without a seat

The secret is asked for once. It never stands in an argument, a log or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import TypeAlias

from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.roster_files import load_roster
from isocast.runtime.market.secret_files import OTHERS, OTHERS_WRITE, read_file
from isocast.security.line_seals import BoughtKeys
from isocast.security.packages import PACKAGE_BYTES_MAX, open_package, read_secret
from isocast.security.roster import RosterRole
from isocast.terms.errors import ConfigurationError, IsocastError, PackageError
from isocast.terms.ids import is_guest

__all__ = ["SecretSource", "Subscription", "secret_of_file", "subscription_of"]

SecretSource: TypeAlias = Callable[[], str | bytes]
"""Gives the buyer's secret: as it was shown, or its bytes."""

_SECRET_BYTES_MAX = 256


class Subscription:
    """One package, and the keys of it."""

    def __init__(self, market: Market, path: str | Path, secret: SecretSource) -> None:
        """Open the package, which takes a second; one sentence says why it cannot be."""
        self.path = Path(path)
        self.keys = BoughtKeys()
        self.buyer = ""
        self._roster = load_roster(market)
        given = secret()
        self._secret = read_secret(given) if isinstance(given, str) else given
        self._seen: tuple[int, int, int] | None = None
        self.refresh()

    @property
    def is_replaced(self) -> bool:
        """Whether the file is another one than was read."""
        return self._look() not in (None, self._seen)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            info = self.path.stat()
        except OSError:
            return None  # In the middle of being replaced, or gone: what was read counts.
        return info.st_ino, info.st_size, info.st_mtime_ns

    def refresh(self) -> None:
        """Read the file again; PackageError for one that does not open. Takes a second: it is for a thread."""
        seen = self._look()
        raw = read_file(self.path, PACKAGE_BYTES_MAX + 1, OTHERS_WRITE)
        office = next((one.public for one in self._roster.members if one.role is RosterRole.BOX_OFFICE), b"")
        package = open_package(raw, self._secret, self._roster.market, office, time_ns())
        self._seen, self.buyer = seen, package.buyer
        self.keys.add(package.keys)

    def __repr__(self) -> str:
        return f"Subscription({self.path})"


def secret_of_file(path: str | Path) -> SecretSource:
    """The secret from a file that nobody else may read."""

    def read() -> str:
        text = read_file(Path(path), _SECRET_BYTES_MAX, OTHERS)
        try:
            return text.decode().strip()
        except UnicodeDecodeError:
            raise PackageError(f"{path} holds no secret: write it as it was shown, in one line") from None

    return read


def subscription_of(market: Market, plan: NodePlan) -> Subscription:
    """That of a customer which the market's file names; ConfigurationError if its files are not there."""
    if is_guest(plan.node):
        rule = f"{market.name} sells its lines: give the package that isocast subscribe fetched (--package FILE)"
        raise ConfigurationError(market.file, "subscriptions", rule)
    package = market.keys_directory / f"{plan.origin}.package"
    secret = market.keys_directory / f"{plan.origin}.secret"
    for path in (package, secret):
        if not path.exists():
            rule = f"is missing: {market.name} sells its lines; isocast subscribe fetches a package"
            raise ConfigurationError(str(path), "package", rule)
    try:
        return Subscription(market, package, secret_of_file(secret))
    except ConfigurationError:
        raise
    except IsocastError as reason:
        raise ConfigurationError(str(package), "package", str(reason)) from None
