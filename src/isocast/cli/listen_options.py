"""What a user writes to listen: --stripes 0,1, --symbols ISO, --topics quiz, --from 0:17,1:4, --package FILE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.terms.errors import ConfigurationError, IsocastError, LocalProtocolError
from isocast.terms.market import Symbol
from isocast.wire.opaque import check_topic

if TYPE_CHECKING:
    from isocast.runtime.client.listener import Start
    from isocast.runtime.client.received import ReceivedBatch
    from isocast.runtime.market.model import Market
    from isocast.runtime.market.subscription import Subscription

__all__ = ["StripeChoice", "package_given", "read_choice", "read_start"]


@dataclass(frozen=True, slots=True)
class StripeChoice:
    """Which stripes to hear, and which symbols and topics to show."""

    stripes: tuple[int, ...] | None = None
    symbols: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None

    def part(self, batch: ReceivedBatch) -> ReceivedBatch:
        """The events of the symbols that are wanted, those of no symbol, and the opaque messages of the topics."""
        return batch.only(self.symbols, self.topics)


def read_choice(stripes: str | None, symbols: str | None, topics: str | None = None) -> StripeChoice:
    """As a user writes it; ConfigurationError for what is no list of them."""
    numbers = None
    if stripes is not None:
        parts = [part.strip() for part in stripes.split(",") if part.strip()]
        if not parts or not all(part.isascii() and part.isdigit() for part in parts):
            raise ConfigurationError("command line", "--stripes", f'"{stripes}" is not a list of stripes such as 0,1')
        numbers = tuple(dict.fromkeys(int(part) for part in parts))
    return StripeChoice(numbers, _names("--symbols", symbols, Symbol), _names("--topics", topics, check_topic))


def _names(option: str, text: str | None, check: Callable[[str], str]) -> tuple[str, ...] | None:
    try:
        return tuple([check(name.strip()) for name in (text or "").split(",") if name.strip()]) or None
    except LocalProtocolError as reason:
        raise ConfigurationError("command line", option, str(reason)) from None


def read_start(text: str | None) -> Start | None:
    """Where to begin: a word, a sequence, or one for each stripe."""
    if text is None or not text.isascii():
        return text
    if text.isdigit():
        return int(text)
    pairs = [part.partition(":") for part in text.split(",")]
    if all(stripe.isdigit() and first.isdigit() for stripe, _, first in pairs):
        return {int(stripe): int(first) for stripe, _, first in pairs}
    return text


def package_given(market: Market, package: Path | None, secret_file: Path | None) -> Subscription | None:
    """The package with its secret, which is asked for on the terminal or read from a file; None if none is given."""
    from isocast.runtime.market.subscription import Subscription, secret_of_file

    if package is None:
        if secret_file is not None:
            raise IsocastError("--secret-file is for --package: give the package, too")
        return None
    ask = secret_of_file(secret_file) if secret_file else lambda: getpass(f"The secret of {package.name}: ")
    return Subscription(market, package, ask)
