"""Which stripe of its core a market's symbols travel in, by its file."""

from __future__ import annotations

from pathlib import Path

from isocast.runtime.market.model import Market
from isocast.striping.plan import PLAN_BYTES_MAX, StripePlan, read_plan
from isocast.striping.routing import CoreRoutes
from isocast.terms.errors import ConfigurationError

__all__ = ["core_routes", "load_plan"]


def core_routes(market: Market) -> CoreRoutes:
    """For the whole market, of which this may be one stripe's share; ConfigurationError for a plan that is wrong."""
    path = market.stripe_plan or (market.edge.plan if market.edge is not None else None)
    if len(market.all_stripes) == 1:
        path = None  # It has everything, whatever a plan says.
    return CoreRoutes(market.all_stripes, None if path is None else load_plan(path))


def load_plan(path: Path) -> StripePlan:
    """The stripe plan of a file; ConfigurationError for one that cannot be read or breaks a rule."""
    try:
        if path.stat().st_size > PLAN_BYTES_MAX:
            raise ConfigurationError(str(path), "file", f"is larger than {PLAN_BYTES_MAX:,} bytes: not a stripe plan")
        text = path.read_bytes().decode()
    except OSError as reason:
        raise ConfigurationError(str(path), "file", f"cannot be read: {reason.strerror}") from reason
    except UnicodeDecodeError as reason:
        raise ConfigurationError(str(path), "file", "is not UTF-8 text: not a stripe plan") from reason
    return read_plan(text, str(path))
