"""What a user gives of what it bought: --package FILE, --secret-file FILE."""

from __future__ import annotations

from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.terms.errors import IsocastError

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market
    from isocast.runtime.market.subscription import Subscription

__all__ = ["package_given"]


def package_given(market: Market, package: Path | None, secret_file: Path | None) -> Subscription | None:
    """The package with its secret, which is asked for on the terminal or read from a file; None if none is given."""
    from isocast.runtime.market.subscription import Subscription, secret_of_file

    if package is None:
        if secret_file is not None:
            raise IsocastError("--secret-file is for --package: give the package, too")
        return None
    ask = secret_of_file(secret_file) if secret_file else lambda: getpass(f"The secret of {package.name}: ")
    return Subscription(market, package, ask)
