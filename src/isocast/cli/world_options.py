"""What `isocast plan world` may be asked, and a small planet to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from isocast.cli.options import Flag
from isocast.studies.spreading import Engine, Spreading
from isocast.terms.errors import ConfigurationError

__all__ = ["EXAMPLE", "WorldOptions"]

_RECEIVERS_MAX, _CUSTOMERS_MAX, _TOKENS_MAX = 200_000, 1_000_000_000, 10_000_000
_NARROWEST, _WIDEST = 600, 8_000

EXAMPLE = """# A planet for `isocast plan world`: two layers of receivers on land, customers around cities.
title = "A small planet"
seed = 1

[receivers]
count = 400
primaries = 20         # on the ring; the others stand below the nearest of them

[customers]
count = 50_000
pattern = "cities"     # or "land": every square km alike
spread = 300           # km
rural = 0.3            # the share that lives anywhere on land

[times]                # what is left out is the paper's (§5.1)
retries_max = 4
clock_error = "5ms"    # releases are at most twice that apart
secondary_detect = "50ms"

[core]
batch = 30             # messages in a token
loss = 0.01
loss_model = "tree"    # or "independent"
branches = 5
tokens = 200
nack_sets = 4          # for the comparison with NACK reduction (§5.2)

[edge]
lines = 2
loss = 0.01
jitter = "2ms"
deadline = "30ms"      # after the common instant of release
"""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class WorldOptions:
    """Of one run."""

    example: Flag = False
    """Print a planet's file to start from, and do nothing else."""
    figures: Flag = False
    """Also compute the design's own table of figures, each beside what it should be; some seconds more."""
    receivers: int | None = None
    """So many receivers instead of the file's; ring and reach follow."""
    customers: int | None = None
    """So many customers instead of the file's."""
    tokens: int | None = None
    """So many tokens instead of the file's."""
    seed: int | None = None
    """The seed, if not the file's own. The same seed gives the same bits, whatever the engine."""
    engine: Engine = Engine.LOCAL
    """Processes of this machine, or Spark (the extra `spark`)."""
    jobs: int | None = None
    """Processes, or cores of a local Spark; one for each core if left out."""
    partitions: int | None = None
    """Partitions of Spark; four for each core if left out."""
    master: str | None = None
    """Spark's master, such as spark://HOST:7077; this machine if left out."""
    svg: Path | None = None
    """Draw maps and plots into this file (needs the extra `plots`)."""
    png: Path | None = None
    """Draw maps and plots into this file."""
    width: int = 1800
    """Of the picture, in pixels, 600 to 8,000."""
    strict: Flag = False
    """Exit with 1 if a figure is not what its formula says."""
    json: Flag = False
    """Print one JSON object instead of tables."""

    def file(self, world: Path | None) -> Path:
        """The planet's file, once all options are judged; ConfigurationError for what cannot be."""
        if world is None:
            rule = "is missing: name a planet's file; --example prints one"
            raise ConfigurationError("command line", "WORLD", rule)
        bounds = (
            ("--receivers", self.receivers, 2, _RECEIVERS_MAX),
            ("--customers", self.customers, 1, _CUSTOMERS_MAX),
            ("--tokens", self.tokens, 1, _TOKENS_MAX),
            ("--seed", self.seed, 0, 2**63 - 1),
            ("--jobs", self.jobs, 1, None),
            ("--partitions", self.partitions, 1, None),
            ("--width", self.width, _NARROWEST, _WIDEST),
        )
        for name, value, least, most in bounds:
            if value is not None and not (least <= value and (most is None or value <= most)):
                limit = f"must be at least {least:,}" if most is None else f"must be from {least:,} to {most:,}"
                raise ConfigurationError("command line", name, f"{limit}, not {value:,}")
        self.spreading.check()
        return world

    @property
    def spreading(self) -> Spreading:
        """How the work is done."""
        return Spreading(self.engine, self.jobs or 0, self.partitions or 0, self.master)
