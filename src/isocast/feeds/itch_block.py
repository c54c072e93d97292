"""A block of ITCH messages on its way to events: its records by type, its events as they fill, what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.itch_layout import LAYOUTS, PREFIX_BYTES, Bytes, Indices, records_at
from isocast.feeds.outcomes import Fault, FeedLog
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["KINDS", "MessageBlock", "by_code", "open_block"]

KINDS = {
    "S": EventKind.MARK,
    "W": EventKind.MARK,
    "R": EventKind.DIRECTORY,
    "H": EventKind.STATUS,
    "h": EventKind.STATUS,
    "A": EventKind.ORDER,
    "F": EventKind.ORDER,
    "E": EventKind.EXECUTION,
    "C": EventKind.EXECUTION,
    "X": EventKind.CANCEL,
    "D": EventKind.CANCEL,
    "U": EventKind.CANCEL,
    "P": EventKind.TRADE,
    "Q": EventKind.TRADE,
    "B": EventKind.TRADE_CANCEL,
}
"""The types that events carry; U is a CANCEL and an ORDER."""


def by_code(values: Mapping[str, int]) -> npt.NDArray[np.uint8]:
    """A table from the code of a letter; what is not named is 0."""
    table = np.zeros(256, np.uint8)
    for name, value in values.items():
        table[ord(name)] = value
    return table


_KIND_OF = by_code(KINDS)
_EVENTS_OF = by_code({name: 2 if name == "U" else 1 for name in KINDS})


@dataclass(slots=True)
class MessageBlock:
    """Made by `open_block`; everything that has a length of its own is aligned with the messages or the events."""

    log: FeedLog
    where: Indices
    """The byte of each message in the feed."""
    types: npt.NDArray[np.uint8]
    carrier: Indices
    """The message of each event."""
    first: Indices
    """The first event of each message."""
    events: EventArray
    refused: npt.NDArray[np.bool_]
    """Messages whose events are dropped."""
    chosen: dict[str, Indices]
    """The messages of each type."""
    records: dict[str, npt.NDArray[Any]]
    salt: npt.NDArray[np.uint64] | None = None
    """Of each message's floor, where there are several."""

    def of(self, name: str) -> tuple[npt.NDArray[Any], Indices]:
        """The records of a type, and the first event of each."""
        return self.records[name], self.first[self.chosen[name]]

    def order_keys(self, name: str, field: str = "order") -> npt.NDArray[np.uint64]:
        """Numbers of orders as the table of orders knows them: those of different floors differ."""
        numbers: npt.NDArray[np.uint64] = self.records[name][field].astype(np.uint64)
        return numbers if self.salt is None else numbers ^ self.salt[self.chosen[name]]

    def refuse(self, name: str, which: npt.NDArray[np.bool_], kind: Fault, what: str) -> None:
        """Some messages of a type have no event, because of a fault."""
        if which.any():
            self.refuse_messages(self.chosen[name][which], kind, what)

    def refuse_messages(self, messages: Indices, kind: Fault, what: str) -> None:
        """These messages have no event; one that was refused before is not counted twice."""
        fresh = messages[~self.refused[messages]]
        if len(fresh):
            self.log.fault(kind, int(self.where[fresh[0]]), what, len(fresh))
            self.refused[fresh] = True

    def leave_out(self, name: str, which: npt.NDArray[np.bool_], reason: str) -> None:
        """Some sound messages of a type have no event."""
        if which.any():
            messages = self.chosen[name][which]
            self.log.skip(reason, int(np.count_nonzero(~self.refused[messages])))
            self.refused[messages] = True

    def finished(self) -> EventArray:
        """The events of the messages that were not refused."""
        if not self.refused.any():
            return self.events
        return self.events[~self.refused[self.carrier]]


def open_block(raw: Bytes, places: Indices, where: Indices, log: FeedLog) -> MessageBlock:
    """Gather the records of every type, and make room for the events, whose kinds are known."""
    types = raw[places + PREFIX_BYTES]
    chosen: dict[str, Indices] = {}
    records: dict[str, npt.NDArray[Any]] = {}
    for name in KINDS:
        found = np.flatnonzero(types == ord(name))
        if len(found):
            chosen[name] = found
            records[name] = records_at(raw, places[found] + PREFIX_BYTES, LAYOUTS[name])
    each = _EVENTS_OF[types].astype(np.int64)
    after = np.cumsum(each)
    carrier = np.repeat(np.arange(len(places)), each)
    events = np.zeros(len(carrier), EVENT_DTYPE)
    events["kind"] = _KIND_OF[types[carrier]]
    return MessageBlock(
        log, where, types, carrier, after - each, events, np.zeros(len(places), np.bool_), chosen, records
    )
