"""The options that many commands have, each with the values that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

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
