"""Which journals a folder holds: whose, of which stripe, and whether they are of one market.

Nothing in a journal names its market; a trusted receiver's folder does, in the log beside its journal. What tells
markets apart besides is what they did: two receivers of one market agree, for every sequence, on the token that
assigned it, its epoch and its instant. So journals of a stripe are compared at the ends of what they have in common,
and one receiver has one journal of a stripe.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isocast.lake.source_faults import Fault, Faults
from isocast.runtime.disk.journal_segments import SegmentFile, segment_files
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.ids import NodeId, describe, is_site
from isocast.terms.places import local_path
from isocast.terms.suggestion import suggestion
from isocast.wire.journal import segment_of_name

__all__ = ["JournalFolder", "Lane", "files_from", "find_journals", "lanes_of", "market_of", "of_other_markets"]

_IDENTITY = Path("log") / "identity.json"
"""Beside a site's journal: what `runtime.store_marker` writes."""


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """One receiver's journal of one stripe: a directory, or one segment that was named itself."""

    stripe: int
    receiver: NodeId
    path: str

    @property
    def name(self) -> str:
        """What its node is called: data/NAME/journal."""
        here = Path(self.path)
        here = here.parent if here.is_file() else here
        return here.parent.name if here.name == "journal" else here.name

    @property
    def rank(self) -> tuple[bool, NodeId]:
        """Trusted receivers first, as they know the sources; then by number."""
        return not is_site(self.receiver), self.receiver

    def files(self) -> list[SegmentFile]:
        """Its segments in order of sequence; empty if it is gone."""
        try:
            return segment_files(Path(self.path))
        except JournalError:
            if Path(self.path).exists():
                raise
            return []

    def newest(self) -> int:
        """The first sequence of the segment in which blocks may be unfinished."""
        here = Path(self.path)
        files = segment_files(here.parent if here.is_file() else here) if here.exists() else []
        return files[-1].first_sequence if files else 0


@dataclass(frozen=True, slots=True)
class Lane:
    """What is read as one sequence: the journals of a stripe in the order in which they are asked."""

    key: str
    """Of offsets: the stripe, or stripe@receiver where every receiver is read for itself."""
    stripe: int
    journals: tuple[JournalFolder, ...]
    may_miss: bool = False
    """Whether a gap is no fault: what one receiver lacks is what an audit looks for."""


def find_journals(*places: str) -> list[JournalFolder]:
    """Every journal below some folders, and those that are named; ConfigurationError for a place without any.

    A journal that lies below two of the places is one.
    """
    found = {str(Path(one.path).resolve()): one for where in reversed(places) for one in reversed(_journals(where))}
    return sorted(found.values(), key=lambda journal: (journal.stripe, *journal.rank, journal.path))


def _journals(where: str) -> list[JournalFolder]:
    top = local_path(where, "format isocast", "path")
    if not top.exists():
        raise ConfigurationError("format isocast", "path", f"{where}: no such folder")
    if top.is_file():
        file = segment_files(top)[0]
        return [JournalFolder(file.stripe, file.site, str(top))]
    found: list[JournalFolder] = []
    for directory, folders, names in os.walk(top):
        folders.sort()
        if any(segment_of_name(name) for name in names):
            file = segment_files(Path(directory))[0]
            found.append(JournalFolder(file.stripe, file.site, directory))
    if not found:
        rule = f"{where}: holds no journal; give the data directory of a market, or one journal"
        raise ConfigurationError("format isocast", "path", rule)
    return found


def lanes_of(
    journals: Sequence[JournalFolder], receiver: str, stripes: frozenset[int], faults: Faults
) -> tuple[Lane, ...]:
    """The lanes of a choice of receiver: `one`, `all`, a number or a name."""
    known = sorted({journal.stripe for journal in journals})
    strangers = sorted(stripes - set(known))
    if strangers:
        rule = f"{strangers[0]}: there is no journal of it; there are {_listed(known)}"
        raise ConfigurationError("format isocast", "stripe", rule)
    lanes: list[Lane] = []
    for stripe in known:
        if stripes and stripe not in stripes:
            continue
        mine = _without_doubles([journal for journal in journals if journal.stripe == stripe], faults)
        if receiver == "one":
            lanes.append(Lane(str(stripe), stripe, tuple(mine)))
        elif receiver == "all":
            lanes += [Lane(f"{stripe}@{one.receiver}", stripe, (one,), may_miss=True) for one in mine]
        else:
            lanes.append(Lane(str(stripe), stripe, (_named(mine, receiver, stripe),)))
    return tuple(lanes)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _named(journals: Sequence[JournalFolder], receiver: str, stripe: int) -> JournalFolder:
    for journal in journals:
        # A node's process in a further stripe is called NAME.s1.
        if receiver in {str(journal.receiver), journal.name, journal.name.removesuffix(f".s{stripe}")}:
            return journal
    names = [journal.name for journal in journals]
    there = ", ".join(f"{journal.receiver} ({journal.name})" for journal in journals)
    rule = f"{receiver!r} has no journal of stripe {stripe}{suggestion(receiver, names)}; there are {there}"
    raise ConfigurationError("format isocast", "receiver", rule)


def _without_doubles(journals: Sequence[JournalFolder], faults: Faults) -> list[JournalFolder]:
    """One journal of each receiver."""
    kept: dict[NodeId, JournalFolder] = {}
    for journal in journals:
        first = kept.setdefault(journal.receiver, journal)
        if first is journal:
            continue
        rule = (
            f"a second journal of {describe(journal.receiver)} for stripe {journal.stripe}, beside {first.path}: two"
            " markets are mixed, or one is a copy; give the folder of one market"
        )
        fault = Fault(journal.path, "foreign", rule, 1, journal.stripe, journal.receiver)
        faults.lost(fault)
    return list(kept.values())


def market_of(journal: Path) -> str | None:
    """The market whose node keeps a journal, as its own log says; None where there is none to read."""
    try:
        found = json.loads((journal.parent / _IDENTITY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    market = found.get("market") if isinstance(found, dict) else None
    return market if isinstance(market, str) else None


def of_other_markets(journals: Sequence[JournalFolder], faults: Faults) -> set[JournalFolder]:
    """The journals whose nodes belong to another market than the first of which that is known; strict faults raise."""
    first: tuple[str, JournalFolder] | None = None
    strangers = set()
    for journal in journals:
        here = Path(journal.path)
        market = market_of(here.parent if here.is_file() else here)
        first = first or (None if market is None else (market, journal))
        if market is None or first is None or market == first[0]:
            continue
        known, other = first
        rule = f'is of market "{market}", and {other.path} of "{known}": two markets are mixed; give the folder of one'
        faults.lost(Fault(journal.path, "foreign", rule, 1, journal.stripe, journal.receiver))
        strangers.add(journal)
    return strangers


def files_from(files: Sequence[SegmentFile], sequence: int) -> Iterator[SegmentFile]:
    """The segments that can hold a sequence or a later one."""
    start = bisect_right([file.first_sequence for file in files], sequence) - 1
    yield from files[max(start, 0) :]
