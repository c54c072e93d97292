"""The stripe of a symbol never changes while a market lives: a source remembers how its symbols were split.

Two stripes have no common order, so a symbol that changed from one to the other would lose its own. The split follows
from the market's file; a source whose file would split otherwise than before does not start.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.striping.routing import CoreRoutes

__all__ = ["insist_on_routes"]

_FILE = "routes.json"
_MARK = "isocast-routes"


def insist_on_routes(market: Market, directory: Path) -> CoreRoutes | None:
    """How symbols are split, the same as ever; ConfigurationError if one would travel in another stripe than before.

    None in a market of one stripe, where all travel together.
    """
    routes = _routes_if_striped(market)
    _compare(market, directory, routes)
    return routes


def _routes_if_striped(market: Market) -> CoreRoutes | None:
    if len(market.all_stripes) == 1:
        return None
    from isocast.runtime.market.routes import core_routes  # noqa: PLC0415 - it needs numpy, and most sources do not

    return core_routes(market)


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
        raise ConfigurationError(str(path), "routes", "does not say how symbols were split; move it away if you know")
    return content


def _moved_to_one(record: dict[str, object], before: dict[str, object]) -> str:
    if before.get("stripes") == record["stripes"]:
        return ""
    return f"the market had the stripes {before.get('stripes')}, and now has {record['stripes']}"
