"""Telling a node that has never run from one that lost its disk.

Both find an empty directory, and only people know which it is. A site that lost its disk has forgotten promises and
must not vote (protocol §5), so a node starts anew only where somebody said so: `isocast up` for a market whose data
directory does not exist yet, `isocast node --new` for one node. The word is a file, gone once the node has begun.
"""

from __future__ import annotations

from pathlib import Path

from isocast.runtime.market import Market
from isocast.terms.errors import ConfigurationError

__all__ = ["begun", "found_market", "found_node", "is_new"]

_MARKER = "new"


def found_market(market: Market) -> bool:
    """Declare every node new, if nothing of the market exists yet; whether it was so."""
    if market.data_directory.exists():
        return False
    for plan in market.nodes:
        _declare(market.directory_of(plan.name))
    return True


def found_node(market: Market, name: str) -> None:
    """Declare one node new; ConfigurationError if it has run before."""
    directory = market.directory_of(name)
    if directory.exists() and not is_new(directory):
        rule = "this node has run before: start it without --new, or move its directory away if it shall begin anew"
        raise ConfigurationError(str(directory), name, rule)
    _declare(directory)


def is_new(directory: Path) -> bool:
    """Whether the node may begin with nothing."""
    return (directory / _MARKER).exists()


def begun(directory: Path) -> None:
    """The node's stores exist: from now on an empty one is a lost one."""
    (directory / _MARKER).unlink(missing_ok=True)


def _declare(directory: Path) -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    (directory / _MARKER).touch()
