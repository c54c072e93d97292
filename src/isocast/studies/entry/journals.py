"""Who was first, from the journals of a market: orders with the city of their source and their place in the sequence.

What a market shuffled is computed again on the way, so that a figure of fairness says how much of it was verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from isocast.checks.shuffles import Shuffles, ShuffleWalk
from isocast.reformation.scopes.world import Ints
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.market.model import Market, NodeRole
from isocast.studies.entry.reactions import Reactions, ReactionWalk
from isocast.studies.entry.stream import OrderStream, contests_within, source_city
from isocast.terms.entry import EntryRule
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.ids import NodeId
from isocast.terms.topology import City
from isocast.wire.journal_blocks import IS_EVENTS, BlockView
from isocast.wire.opaque import read_opaque_or_none

__all__ = ["ContestKey", "JournalOrders", "find_journals", "market_ring", "read_journals", "source_places"]

_SOURCE_BITS = 32
"""Below them a source's id has its incarnation."""


class ContestKey(Enum):
    """Which messages of a journal compete with each other."""

    TIME = "time"
    """Those that happened within some milliseconds of each other, by the clocks of those who published them."""
    NUMBER = "number"
    """The n-th messages of all sources."""
    ID = "id"
    """Orders, event by event, that have the same id; each city decided within some milliseconds of the others."""


@dataclass(frozen=True, eq=False)
class JournalOrders:
    """The orders of a market, as its journals have them."""

    stream: OrderStream
    sequences: Ints
    """Of each order: its place in the one sequence."""
    journals: tuple[Path, ...]
    tokens: int
    """With messages."""
    untimed: int
    """Messages that are left out because they do not say when they happened."""
    shuffles: Mapping[Path, Shuffles]
    """Of each journal: tokens that stand in the order of their keys."""
    reactions: Reactions | None = None
    """Of orders that compete by id: who entered first by every rule for the events of a token."""


def find_journals(where: Iterable[Path]) -> tuple[Path, ...]:
    """The journals of some directories: each is a journal, or has journals of nodes below it."""
    found: list[Path] = []
    for directory in where:
        if not directory.is_dir():
            raise JournalError(str(directory), "no such directory")
        inside = [directory] if segment_files(directory) else sorted(directory.glob("*/journal"))
        inside = [journal for journal in inside if segment_files(journal)]
        if not inside:
            raise JournalError(str(directory), "there is no segment of a journal here, nor in NODE/journal below it")
        found += [journal for journal in inside if journal not in found]
    return tuple(found)


def source_places(market: Market) -> dict[int, City]:
    """Where the sources of a market are, by their numbers."""
    return {plan.number: plan.place for plan in market.nodes if plan.role.is_source and plan.place is not None}


def market_ring(market: Market) -> tuple[City, ...] | None:
    """Where a market's primary receivers are; None if one of them is nowhere."""
    places = [plan.place for plan in market.by_role(NodeRole.PRIMARY_RECEIVER)]
    known = tuple(place for place in places if place is not None)
    return known if known and len(known) == len(places) else None


def read_journals(
    journals: Sequence[Path], places: Mapping[int, City], key: ContestKey, within_ns: int
) -> JournalOrders:
    """The orders of journals of one stripe; JournalError where two say different things of one sequence.

    A source whose place is not known stands under its own name.
    """
    stripes = {file.stripe for journal in journals for file in segment_files(journal)}
    if len(stripes) > 1:
        raise JournalError(str(journals[0]), "and the others are of several stripes: name journals of one")
    rows: dict[int, tuple[NodeId, int, int | None, int]] = {}
    tokens: set[int] = set()
    shuffles = {}
    reacting = ReactionWalk()
    for journal in journals:
        walk = ShuffleWalk()
        for block in read_blocks(journal):
            walk.take(block)
            if key is ContestKey.ID:
                reacting.take(block)
            tokens.add(block.header.token_number)
            for sequence, row in _rows(block):
                if row[0] and rows.setdefault(sequence, row)[:2] != row[:2]:
                    rule = f"has another message at sequence {sequence} than the journals before it: isocast lake audit"
                    raise JournalError(str(journal), rule)
        walk.end()
        shuffles[journal] = walk.report
    if key is ContestKey.ID:
        reactions = reacting.end(places, within_ns)
        return JournalOrders(
            reactions.stream, reactions.ranks[EntryRule.ARRIVAL], tuple(journals), len(tokens), 0, shuffles, reactions
        )
    timed = {sequence: row for sequence, row in rows.items() if row[2] is not None or key is ContestKey.NUMBER}
    if not timed:
        rule = "no message says when it happened: --by number compares n-th messages"
        raise ConfigurationError("command line", "--by", rule)
    stream, sequences = _stream(timed, places, key, within_ns)
    return JournalOrders(stream, sequences, tuple(journals), len(tokens), len(rows) - len(timed), shuffles)


def _rows(block: BlockView) -> Iterable[tuple[int, tuple[NodeId, int, int | None, int]]]:
    """Sequence; source, number, when its first event happened or was sent, T_t."""
    header, times = block.header, block.events["time"]
    directory = block.directory
    for place, (source, number, first, flags) in enumerate(
        zip(*(directory[name].tolist() for name in ("source", "number", "first_event", "flags")), strict=True)
    ):
        happened = int(times[first]) if flags & IS_EVENTS else _sent(block.payload(place))
        yield header.first_sequence + place, (source, number, happened, header.instant)


def _sent(payload: bytes) -> int | None:
    """When an opaque message was sent, the first of those that share a packet; None for bytes that are none."""
    messages = read_opaque_or_none(payload)
    return messages[0].sent if messages else None


def _stream(
    rows: Mapping[int, tuple[NodeId, int, int | None, int]],
    places: Mapping[int, City],
    key: ContestKey,
    within_ns: int,
) -> tuple[OrderStream, Ints]:
    names: dict[str, int] = {}
    where: list[City | None] = []
    table = []
    for sequence, (source, number, happened, instant) in rows.items():
        name, place = source_city(source, places)
        if name not in names:
            names[name] = len(names)
            where.append(place)
        table.append((instant if happened is None else happened, names[name], source >> _SOURCE_BITS, number, sequence))
    columns = np.array(sorted(table), np.int64).T
    instants, city, account, number, sequences = columns
    if key is ContestKey.TIME:
        contest = contests_within(instants, within_ns)
    else:
        contest = np.unique(number, return_inverse=True)[1].astype(np.int64)
    return OrderStream(tuple(names), tuple(where), instants, city, account, contest), sequences
