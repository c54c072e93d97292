"""What a user writes of stripes: --stripes 0,1, --symbols ISO,CAST, --topics quiz, --from 0:17,1:4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import Symbol
from isocast.wire.opaque import check_topic

if TYPE_CHECKING:
    from isocast.runtime.client.listener import Start
    from isocast.runtime.client.received import ReceivedBatch

__all__ = ["StripeChoice", "read_choice", "read_start"]


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
