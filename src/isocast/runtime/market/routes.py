"""Which stripe of its core a market's symbols travel in, by its file; and that none ever changes its stripe.

Two stripes have no common order, so a symbol that went from one to the other would lose its own. A source remembers in
its directory how symbols were split, and does not start with a file that would split them otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.striping.plan import StripePlan
    from isocast.striping.routing import CoreRoutes

__all__ = ["core_routes", "insist_on_routes", "load_plan"]

_FILE = "routes.json"
_MARK = "isocast-routes"


def core_routes(market: Market) -> CoreRoutes:
    """For the whole market, of which this may be one stripe's share; ConfigurationError for a plan that is wrong."""
    from isocast.striping.routing import CoreRoutes  # noqa: PLC0415 - it needs numpy, and sources of one stripe do not

    path = market.stripe_plan or (market.edge.plan if market.edge is not None else None)
    if len(market.all_stripes) == 1:
        path = None  # It has everything, whatever a plan says.
    return CoreRoutes(market.all_stripes, None if path is None else load_plan(path))


def load_plan(path: Path) -> StripePlan:
    """The stripe plan of a file; ConfigurationError for one that cannot be read or breaks a rule."""
    from isocast.striping.plan import PLAN_BYTES_MAX, read_plan  # noqa: PLC0415 - as above

    try:
        if path.stat().st_size > PLAN_BYTES_MAX:
            raise ConfigurationError(str(path), "file", f"is larger than {PLAN_BYTES_MAX:,} bytes: not a stripe plan")
        text = path.read_bytes().decode()
    except OSError as reason:
        raise ConfigurationError(str(path), "file", f"cannot be read: {reason.strerror}") from reason
    except UnicodeDecodeError as reason:
        raise ConfigurationError(str(path), "file", "is not UTF-8 text: not a stripe plan") from reason
    return read_plan(text, str(path))


def insist_on_routes(market: Market, directory: Path) -> CoreRoutes | None:
    """How symbols are split, the same as ever; ConfigurationError if one would travel in another stripe than before.

    None in a market of one stripe, where all travel together.
    """
    routes = core_routes(market) if len(market.all_stripes) > 1 else None
    _compare(market, directory, routes)
    return routes


def _compare(market: Market, directory: Path, routes: CoreRoutes | None) -> None:
    path = directory / _FILE
    record = routes.record() if routes is not None else {"stripes": list(market.all_stripes), "planned": False}
    before = _read(path)
    if before is not None:
        moved = routes.moved(before) if routes is not None else _moved_to_one(record, before)
        if moved:
            rule = f"a symbol keeps its stripe as long as the market lives, and {moved}; found a new market for that"
            raise ConfigurationError(market.file, "ring.stripes", rule)
    content = json.dumps({"what": _MARK, **record}) + "\n"
    if before is None or before != record:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(content, encoding="utf-8")
        part.replace(path)


def _read(path: Path) -> dict[str, object] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as reason:
        raise ConfigurationError(str(path), "routes", f"cannot be read: {reason}") from None
    if not isinstance(content, dict) or content.pop("what", None) != _MARK:
        raise ConfigurationError(
            str(path), "routes", "is not a record of how symbols were split; remove it only if you know the split"
        )
    return content


def _moved_to_one(record: dict[str, object], before: dict[str, object]) -> str:
    if before.get("stripes") == record["stripes"]:
        return ""
    return f"the market had the stripes {before.get('stripes')}, and now has {record['stripes']}"
