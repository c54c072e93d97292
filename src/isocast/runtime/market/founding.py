"""Telling a node that has never run from one that lost its disk.

Both find an empty directory, and only people know which it is. A site that lost its disk has forgotten promises and
must not vote (protocol §5), so a node that votes starts anew only where somebody said so: `--new`, or `isocast up` for
a whole market of which nothing exists yet, so that nobody can remember a promise either. A node that is added to a
market that runs says `--join` instead: it begins with nothing too, but knows of no universe of its own, so that it can
found nothing, and takes the log over from those who have it. The word is a file, gone once the node has begun.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.terms.errors import ConfigurationError, StoreError
from isocast.terms.ids import NodeId

__all__ = ["LeftOutSites", "begun", "found_market", "found_node", "insist_on_past", "is_new", "join_node", "joins"]


_VOTERS = (NodeRole.PRIMARY_RECEIVER, NodeRole.REFORMATION_SERVER)
_MARKER = "new"
_JOINING = "joins"
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
        for plan in market.nodes:
            # A place that is kept for a program has no disk: nothing of it is new, or ever begun.
            is_kept = plan.role is NodeRole.CUSTOMER and not plan.start
            if not is_kept and not _has_past(market.directory_of(plan.name)):
                _declare(market.directory_of(plan.name))
        marker.unlink()
    except OSError as reason:
        raise ConfigurationError(str(here), "data", f"cannot be written: {reason.strerror}") from reason
    return True


def found_node(market: Market, name: str) -> None:
    """Declare one node new; ConfigurationError if it has run before."""
    _declare_once(market, name, _MARKER, "--new")


def join_node(market: Market, name: str) -> None:
    """Declare that one node joins a market that runs; ConfigurationError if it has run before."""
    _declare_once(market, name, _JOINING, "--join")


def _declare_once(market: Market, name: str, marker: str, option: str) -> None:
    directory = market.directory_of(name)
    other = _JOINING if marker == _MARKER else _MARKER
    try:
        if _has_past(directory) and not (directory / marker).exists():
            said = f"it was declared with the other of --new and --join: remove {directory / other} first"
            rule = (
                f"this node has run before: start it without {option}, or move its directory away if it is another now"
            )
            raise ConfigurationError(str(directory), name, said if (directory / other).exists() else rule)
        _declare(directory, marker)
    except OSError as reason:
        raise ConfigurationError(str(directory), name, f"cannot be written: {reason.strerror}") from reason


def insist_on_past(market: Market, plan: NodePlan) -> None:
    """ConfigurationError for a node that votes and finds nothing here: lost, or never begun, and only people know."""
    directory = market.directory_of(plan.name)
    if plan.role in _VOTERS and not _has_past(directory):
        again = f", then: isocast ring remove {plan.name}, isocast ring add NAME"
        rule = (
            "has no data here. If it has never run, start it with --new, or with --join if the market runs already."
            " If its data was lost, so were its promises: let it come back as another node, with another number,"
            f" started with --join{again if plan.node in market.universe else ''}"
        )
        raise ConfigurationError(str(directory), plan.name, rule)


def is_new(directory: Path) -> bool:
    """Whether the node may begin with nothing."""
    return (directory / _MARKER).exists() or joins(directory)


def joins(directory: Path) -> bool:
    """Whether the node begins with nothing in a market that runs: it takes over what others have."""
    return (directory / _JOINING).exists()


def begun(directory: Path) -> None:
    """The node's stores exist: from now on an empty one is a lost one."""
    (directory / _MARKER).unlink(missing_ok=True)
    (directory / _JOINING).unlink(missing_ok=True)


def _has_past(directory: Path) -> bool:
    """Whether a directory has anything in it; an empty one is made beforehand, with the right owner."""
    return directory.is_dir() and any(directory.iterdir())


def _declare(directory: Path, marker: str = _MARKER) -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    (directory / marker).touch()


# The sites that an operator's force left out of U: their numbers are never given a vote again.
#
# Whoever was left out may have promised things, and told customers a story, that nobody here knows of. A number in this
# file is refused; the node comes back under another one.


_NAME = "left-out"


class LeftOutSites:
    """A receiver's memory of them: one number in each line of a small file."""

    def __init__(self, directory: Path) -> None:
        """Read what there is."""
        self._path = directory / _NAME
        self.sites: tuple[NodeId, ...] = self._read()

    def _read(self) -> tuple[NodeId, ...]:
        try:
            return tuple([int(line) for line in self._path.read_text(encoding="ascii").split()])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as reason:
            rule = "must list the numbers that a forced change left out, one in each line"
            raise StoreError(str(self._path), rule) from reason

    def note(self, sites: Iterable[NodeId]) -> None:
        """More of them, on the disk when this returns."""
        known = tuple(sorted({*self.sites, *sites}))
        if known == self.sites:
            return
        draft = self._path.with_suffix(".new")
        try:
            with draft.open("w", encoding="ascii") as file:
                file.write("".join([f"{site}\n" for site in known]))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as reason:
            raise StoreError(str(self._path), f"cannot be written: {reason.strerror}") from reason
        self.sites = known
