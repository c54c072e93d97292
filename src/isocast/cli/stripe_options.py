"""What `isocast plan stripes` may be asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

__all__ = ["StripeOptions"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class StripeOptions:
    """Of one run."""

    rate: str = "56k"
    """Bit-rate of a narrow stripe over any token period, IP headers included: 56k, 1.5M, 45M."""
    core: int = 1
    """How many core stripes there are; sectors are divided among them. With --from, the plan's own."""
    sectors: Path | None = None
    """A table of text with the columns symbol and sector, gzip too: what is related."""
    headroom: float = 0.5
    """How much busier than the history a day may be: 0.5 is half as busy again."""
    patience: int = 4
    """Token periods that a stripe may fall behind before it is conflated, 0 to 1,000."""
    token_period: str = "1s"  # noqa: S105 - a time, not a secret
    """Of the ring, such as 1s or 50ms; with --from, the plan's own."""
    from_: Annotated[Path | None, Parameter(name="--from")] = None
    """The plan in force: adjust it with few moves; without a history, only judge it by --check."""
    out: Path | None = None
    """Write the plan to this file, TOML, or JSON if it is named so."""
    check: Annotated[tuple[Path, ...], Parameter(negative="")] = ()
    """A day that the plan was not made from: does it hold there? May be repeated."""
    mapping: str | None = None
    """The columns of tables: a mapping that is built in, or a TOML file."""
    day: str | None = None
    """The day of feeds whose names do not say."""
    svg: Path | None = None
    """Draw peaks, kinship and what listeners join into this file (the extra `spark` has what it takes)."""
    png: Path | None = None
    """Draw the same into this file."""
    width: int = 1800
    """Of the picture, in pixels, 600 to 8,000."""
    rows: int = 40
    """Rows of a table at most."""
    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object instead of tables."""
