"""The options that many commands have, each with the values that it takes, and how those are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import parse_duration

__all__ = [
    "AS_THE_FILES_SAY",
    "Config",
    "ConfigAtRest",
    "Count",
    "FeedChoice",
    "Flag",
    "MarketFile",
    "Port",
    "Rosters",
    "Seconds",
    "Seed",
    "duration_of",
    "rate_of",
    "token_period_of",
]

Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
"""Given or not; there is no `--no-…`."""
MarketFile: TypeAlias = Annotated[Path | None, Parameter(name=["--config", "-c"])]
"""The market's file, where a command has more to say of it than the next two."""
_FILE = "The market's file; if left out, that of ISOCAST_MARKET"
Config: TypeAlias = Annotated[MarketFile, Parameter(help=f"{_FILE}, ./market.toml, or the only market that runs here.")]
ConfigAtRest: TypeAlias = Annotated[MarketFile, Parameter(help=f"{_FILE} or ./market.toml.")]
"""Of commands that are for markets which do not run yet."""
Count: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1))]
Port: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lt=65_536))]
Rosters: TypeAlias = Annotated[tuple[Path, ...], Parameter(negative="")]
"""Files of rosters, each with the option before it."""
Seconds: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0))]
Seed: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]

_HOUR_NS = 3_600 * SECOND
_PERIODS = "1s or 50ms, at most an hour"


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class FeedChoice:
    """What files of feeds do not say themselves."""

    day: str | None = None
    """The day of the feed, such as 2019-01-30, if its name does not say."""
    symbol: str | None = None
    """The symbol of a table that has no column for it."""
    mapping: str | None = None
    """The columns of a table: us-tape-trades, us-tape-quotes, taq-trades, taq-quotes, or a TOML file."""
    format: str | None = None
    """itch, itch-unframed, soupbintcp, capture, table, parquet, lobster, dbn or events, if the file does not tell."""
    port: Port | None = None
    """Of a capture: only datagrams to this UDP port."""
    zone: str = "America/New_York"
    """Where it is midnight when the clock of an ITCH feed starts."""
    strict: Flag = False
    """Stop at the first fault, with its place and what to do."""


AS_THE_FILES_SAY = FeedChoice()


# ---- texts that are quantities; ConfigurationError names the option, and shows how it is written


def duration_of(text: str, option: str, such_as: str = "2ms") -> int:
    """Nanoseconds of a time with its unit."""
    try:
        return parse_duration(text)
    except ValueError:
        rule = f'must be a time with its unit, such as {such_as}, not "{text}"'
        raise ConfigurationError("command line", option, rule) from None


def token_period_of(text: str) -> int:
    """Nanoseconds of `--token-period`."""
    period_ns = duration_of(text, "--token-period", _PERIODS)
    if not 0 < period_ns <= _HOUR_NS:
        raise ConfigurationError("command line", "--token-period", f'must be a time such as {_PERIODS}, not "{text}"')
    return period_ns


def rate_of(text: str) -> int:
    """Bits per second of `--rate`."""
    from isocast.striping.rates import parse_rate

    try:
        return parse_rate(text)
    except ValueError:
        rule = f'must be a bit-rate such as 56k, 1.5M or 56000, not "{text}"'
        raise ConfigurationError("command line", "--rate", rule) from None
