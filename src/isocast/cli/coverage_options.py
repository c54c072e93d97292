"""What `isocast plan coverage` may be asked, and a world to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from isocast.terms.errors import ConfigurationError

__all__ = ["EXAMPLE", "CoverageOptions"]

_LATEST_S = 4_000_000_000
_NARROWEST, _WIDEST = 100, 8_000

EXAMPLE = """# A world for `isocast plan coverage`: who receives, who listens, and what a plan must keep.
title = "Five cities"
seed = 7

[scopes]
lines = 2             # every customer hears two sources
delay_max = "30ms"    # within what a packet travels in this time
loss_max = 0.02

[addresses]
first = "239.192.0.0"
count = 64
drain = "30s"         # how long an address rests before it is used again nearby

[[receiver]]
city = "New York"

[[receiver]]
city = "Chicago"

[[receiver]]
city = "London"

[[receiver]]
city = "Frankfurt"

[[receiver]]
name = "madrid"
latitude = 40.42
longitude = -3.70

[customers]
pattern = "cities"    # or "land", "even"; or list them as [[customer]]
cities = ["New York", "Toronto", "London", "Paris", "Zurich"]
count = 500
spread = 150          # km
"""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class CoverageOptions:
    """Of one run."""

    example: Annotated[bool, Parameter(negative="")] = False
    """Print a world file to start from, and do nothing else."""
    from_: Annotated[Path | None, Parameter(name="--from")] = None
    """The plan in force, as --out wrote it: adjust it with few changes instead of planning anew."""
    without: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """A receiver that has failed; may be repeated."""
    now: float | None = None
    """The instant of the plan, in seconds since 1970, from which addresses drain; this moment if left out."""
    out: Path | None = None
    """Write the plan to this JSON file."""
    svg: Path | None = None
    """Draw the map into this file."""
    png: Path | None = None
    """Draw the map into this file."""
    width: int = 1600
    """Of the map, in pixels, 100 to 8,000."""
    rows: int = 40
    """Rows of a table at most."""
    customers: Annotated[bool, Parameter(negative="")] = False
    """Also list which sources each customer hears."""
    strict: Annotated[bool, Parameter(negative="")] = False
    """Exit with 1 if a customer hears fewer sources than the world asks for."""
    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object instead of tables."""

    def file(self, world: Path | None) -> Path:
        """The world file, once all options are judged; ConfigurationError for what no plan can be made with."""
        if world is None:
            raise ConfigurationError("command line", "WORLD", "is missing: name a world file; --example prints one")
        if self.now is not None and not 0 <= self.now < _LATEST_S:
            raise ConfigurationError("command line", "--now", f"must be from 0 to {_LATEST_S:,} s, not {self.now:g}")
        if not _NARROWEST <= self.width <= _WIDEST:
            rule = f"must be from {_NARROWEST} to {_WIDEST:,} pixels, not {self.width}"
            raise ConfigurationError("command line", "--width", rule)
        if self.rows < 1:
            raise ConfigurationError("command line", "--rows", f"must be at least 1, not {self.rows}")
        return world
