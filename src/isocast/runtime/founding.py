"""Telling a node that has never run from one that lost its disk.

Both find an empty directory, and only people know which it is. A site that lost its disk has forgotten promises and
must not vote (protocol §5), so a node that votes starts anew only where somebody said so: `--new`, or `isocast up` for
a whole market of which nothing exists yet, so that nobody can remember a promise either. The word is a file, gone once
the node has begun.
"""

from __future__ import annotations

from pathlib import Path

from isocast.runtime.market import Market, NodePlan, NodeRole
from isocast.terms.errors import ConfigurationError

__all__ = ["begun", "found_market", "found_node", "insist_on_past", "is_new"]

_VOTERS = (NodeRole.PRIMARY_RECEIVER, NodeRole.REFORMATION_SERVER)
_MARKER = "new"
_FOUNDING = "founding"
"""There while nodes are being declared: what was interrupted is finished the next time."""


def found_market(market: Market) -> bool:
    """Declare every node new, if nothing of the market exists yet; whether it was so. All of it must run here."""
    here = market.data_directory
    marker = here / f".{_FOUNDING}"
    if _has_past(here) and not marker.exists():
        return False
    try:
        here.mkdir(mode=0o750, parents=True, exist_ok=True)
        marker.touch()
        for name in market.by_name:
            if not _has_past(market.directory_of(name)):
                _declare(market.directory_of(name))
        marker.unlink()
    except OSError as reason:
        raise ConfigurationError(str(here), "data", f"cannot be written: {reason.strerror}") from reason
    return True


def found_node(market: Market, name: str) -> None:
    """Declare one node new; ConfigurationError if it has run before."""
    directory = market.directory_of(name)
    try:
        if _has_past(directory) and not is_new(directory):
            rule = "this node has run before: start it without --new, or move its directory away if it shall begin anew"
            raise ConfigurationError(str(directory), name, rule)
        _declare(directory)
    except OSError as reason:
        raise ConfigurationError(str(directory), name, f"cannot be written: {reason.strerror}") from reason


def insist_on_past(market: Market, plan: NodePlan) -> None:
    """ConfigurationError for a node that votes and finds nothing here: lost, or never begun, and only people know."""
    directory = market.directory_of(plan.name)
    if plan.role in _VOTERS and not _has_past(directory):
        rule = (
            "has no data here. If it has never run, start it with --new; if its data was lost, so were its promises:"
            " let it come back as another node, with another number"
        )
        raise ConfigurationError(str(directory), plan.name, rule)


def is_new(directory: Path) -> bool:
    """Whether the node may begin with nothing."""
    return (directory / _MARKER).exists()


def begun(directory: Path) -> None:
    """The node's stores exist: from now on an empty one is a lost one."""
    (directory / _MARKER).unlink(missing_ok=True)


def _has_past(directory: Path) -> bool:
    """An empty directory has none: whoever prepares a machine makes it, with the right owner."""
    return directory.is_dir() and any(directory.iterdir())


def _declare(directory: Path) -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    (directory / _MARKER).touch()
