"""The options that many commands have, each with the values that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

__all__ = ["Config", "Count", "Flag", "Port", "Seconds", "Seed"]

Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
"""Given or not; there is no `--no-…`."""
Config: TypeAlias = Annotated[Path | None, Parameter(name=["--config", "-c"])]
"""The market's file; left out, the one that `find_market` finds."""
Count: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1))]
Port: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lt=65_536))]
Seconds: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0))]
Seed: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]
