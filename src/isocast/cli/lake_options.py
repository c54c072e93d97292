"""What the commands of `isocast lake` have in common: where events come from, and what tables are made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.lake.pipeline import Origin
    from isocast.lake.tables import LakeSettings

__all__ = ["LakeOptions", "OriginOptions"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class OriginOptions:
    """Where events come from."""

    journals: Path | None = None
    """A directory with journals of one market, of one receiver or of many."""
    market: Path | None = None
    """A market's configuration: its retransmit servers are asked instead."""
    server: str | None = None
    """Which retransmit server, by its name in the configuration."""
    as_: Annotated[str | None, Parameter(name="--as")] = None
    """As which node of the configuration."""
    receiver: str | None = None
    """Whose journals, by name or number; one for each stripe if left out, its gaps filled from another."""
    max_rows: int = 4_000_000
    """Events of one commit at most: more need more memory."""

    def check(self) -> None:
        """Name what is wrong, before Spark takes its seconds to start."""
        if (self.journals is None) == (self.market is None):
            raise ConfigurationError("command line", "--journals", "give either --journals or --market")
        for key, path in (("--journals", self.journals), ("--market", self.market)):
            if path is not None and not path.exists():
                raise ConfigurationError("command line", key, f"there is no {path}")
        if self.receiver is not None and self.receiver.strip() == "all":
            rule = "a lake has every event once: `isocast lake fairness --journals` and `audit` compare receivers"
            raise ConfigurationError("command line", "--receiver", rule)
        if self.max_rows < 1:
            raise ConfigurationError("command line", "--max-rows", "at least one event")

    def origin(self) -> Origin:
        """As the pipeline takes it."""
        from isocast.lake.pipeline import Origin

        named = {"server": self.server, "as": self.as_, "receiver": self.receiver}
        return Origin(self.journals, self.market, {key: value for key, value in named.items() if value is not None})


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class LakeOptions:
    """What a lake is made with; one that exists keeps its own."""

    format: str | None = None
    """parquet, delta or iceberg; the last two tell other engines of the same files."""
    interval: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Length of bars: 1s, 1m, 5m, 1h, 1d, 1w, 1mo; may be repeated. One minute if left out."""
    zone: str | None = None
    """By whose clock bars begin: UTC, America/New_York."""
    session: str | None = None
    """Hours of trading there, such as 09:30-16:00: bars count from the opening, and nothing else is in them.

    The last moment belongs to them."""
    days: str | None = None
    """Days of trading there, such as mon-fri or sun-thu; all of them if left out."""

    def settings(self, existing: Path) -> LakeSettings | None:
        """Settings for a new lake; None if nothing was said of one that exists."""
        from isocast.lake.tables import Lake, LakeSettings
        from isocast.lake.transforms.calendars import read_calendar, read_interval

        base = Lake.open(existing).settings if (existing / "lake.json").is_file() else LakeSettings()
        for text in self.interval:
            read_interval(text)
        days = self.days or base.days
        read_calendar(self.zone or base.zone, self.session or base.session or None, days=days)
        return LakeSettings(
            self.format or base.format,
            self.interval or base.intervals,
            self.zone or base.zone,
            self.session or base.session,
            days,
            base.window,
            base.horizon,
        )
