"""Whoever has the sequence follows the floor: its messages in, one step for every token that has any of them.

A floor's messages are those of its topic; a token without one does not exist for the floor. The messages of a token may
come one after the other: they are kept until the token is over, which the first message of a later token says, or
whoever knows it sooner. Then the token is applied as a whole: its events enter in the order that the token's shuffle
key gives them (`terms.entry`), not in that of the sequence.

Payloads that are no event are counted and change nothing: everybody has the same bytes, and drops the same.

The events of a large token go to a fast floor as columns (`floor.columns`), and what came of each becomes objects when
somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from isocast.floor.codec import decode_event, floor_topic
from isocast.floor.columns import TokenColumns, read_columns
from isocast.floor.events import Event, Report, Trade
from isocast.floor.fast import FastFloor, Told, told_reports
from isocast.floor.machine import Floor
from isocast.floor.snapshot import floor_of, fold, rows_of, unfold
from isocast.floor.state import state_hash
from isocast.terms.entry import EntryRule, entry_order
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId

__all__ = [
    "REPORT_EVERY",
    "Applied",
    "Entering",
    "FloorFollower",
    "FloorMessage",
    "FloorStep",
    "SequencedReport",
    "insist_on_key",
    "read_token",
]

REPORT_EVERY: Final = 100
"""Every so many steps a report is due that says no more than the state's hash."""
MANY: Final = 40
"""Events of a token from which on columns cost less than objects."""


class FloorMessage(NamedTuple):
    """A message of the sequence, of whatever topic. Messages that travelled in one packet share its sequence."""

    sequence: int
    topic: str
    payload: bytes
    shuffle_key: bytes
    """Of its token: all messages of a token have the same."""
    site: NodeId | None = None
    """Of an arbiter's report: the receiver that published it, where that is known."""


class Entering(NamedTuple):
    """An event of the floor, and where it stood in the sequence."""

    place: int
    """Among the events of its token."""
    sequence: int
    event: Event


def insist_on_key(token: int, message: FloorMessage) -> None:
    """LocalProtocolError for an event whose token's key is not known."""
    if not any(message.shuffle_key):
        raise LocalProtocolError(
            f"token {token} has no shuffle key, without which nobody knows in which order its events enter: what an"
            " older version of a customer wrote down has none; fetch sequence"
            f" {message.sequence:,} and what follows again, from a receiver"
        )


def read_token(messages: Sequence[FloorMessage]) -> tuple[list[Entering], int]:
    """The events of a token in the order in which they enter, and how many of its messages are no event.

    `messages` are those of the floor's topic, in sequence. What is no event takes no part in the shuffle.
    """
    found: list[Entering] = []
    for message in messages:
        with suppress(RemoteProtocolError):
            found.append(Entering(len(found), message.sequence, decode_event(message.payload)))
    strange = len(messages) - len(found)
    if len(found) > 1:
        accounts = [getattr(one.event, "account", None) for one in found]
        found = [found[place] for place in entry_order(accounts, messages[0].shuffle_key, EntryRule.SHUFFLE)]
    return found, strange


class SequencedReport(NamedTuple):
    """What came of an event of the floor."""

    sequence: int | None
    """Of the message that carried the event; None: the token itself made it due, at its beginning or its end."""
    report: Report


class Applied(NamedTuple):
    """An event, with what came of it; the first of a step is its beginning and the last its end, without an event."""

    event: Event | None
    reports: tuple[Report, ...]
    place: int = 0
    """Of the event among those of its token, in the order of the sequence."""


class _ByObject(NamedTuple):
    """What came of the events of a token, each given by itself."""

    entered: list[tuple[int, int, Event, tuple[Report, ...]]]
    """Place, sequence, event and reports."""
    columns: None = None

    def all(self) -> list[tuple[int, int, Event, tuple[Report, ...]]]:
        """The same."""
        return self.entered

    @property
    def trades(self) -> list[Trade]:
        """Among the reports."""
        return [report for *_, reports in self.entered for report in reports if isinstance(report, Trade)]


class _ByColumn(NamedTuple):
    """The same, given at once: nothing of it is an object yet."""

    columns: TokenColumns
    told: Told
    sequences: Sequence[int]
    floor: FastFloor

    def _reports(self) -> list[Report]:
        return told_reports(self.told, self.columns.ids, self.floor.orders.states)

    def all(self) -> list[tuple[int, int, Event, tuple[Report, ...]]]:
        """Place, sequence, event and reports of each."""
        columns = self.columns
        reports: list[list[Report]] = [[] for _ in columns.places]
        for index, report in zip(self.told.lines[::4], self._reports(), strict=True):
            reports[index].append(report)
        return [
            (place, self.sequences[place], columns.event(index), tuple(reports[index]))
            for index, place in enumerate(columns.places)
        ]

    @property
    def trades(self) -> list[Trade]:
        """Among the reports."""
        return [report for report in self._reports() if isinstance(report, Trade)]


@dataclass(frozen=True, eq=False)
class FloorStep:
    """One token, applied."""

    token: int
    instant: int
    """T_t."""
    number: int
    """Which step of the floor it is, from 1."""
    shuffle_key: bytes
    """Of the token, which gave the order in which its events entered."""
    _begun: tuple[Report, ...]
    _came: _ByObject | _ByColumn
    _ended: tuple[Report, ...]
    _floor: Floor = field(repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloorStep) and self._said == other._said

    __hash__ = None  # type: ignore[assignment]

    @property
    def _said(self) -> tuple[object, ...]:
        return self.token, self.instant, self.number, self.shuffle_key, self.reports, self.applied

    @cached_property
    def applied(self) -> tuple[Applied, ...]:
        """Beginning, events in the order in which they entered, end; each with what came of it."""
        entered = [Applied(event, reports, place) for place, _, event, reports in self._came.all()]
        return (Applied(None, self._begun), *entered, Applied(None, self._ended))

    @cached_property
    def reports(self) -> tuple[SequencedReport, ...]:
        """The same reports, each with the message that it came of."""
        told = [SequencedReport(None, report) for report in self._begun]
        told += [SequencedReport(one[1], report) for one in self._came.all() for report in one[3]]
        return (*told, *[SequencedReport(None, report) for report in self._ended])

    @cached_property
    def trades(self) -> tuple[Trade, ...]:
        """The trades among the reports, in order."""
        before, after = ([one for one in own if isinstance(one, Trade)] for own in (self._begun, self._ended))
        return (*before, *self._came.trades, *after)

    @property
    def columns(self) -> TokenColumns | None:
        """Its events, if they were given to the floor at once: another floor at the same token can have them too."""
        return self._came.columns

    @property
    def is_reported(self) -> bool:
        """Whether a report of its arbiter is due: it made trades, or it is one of every hundred."""
        return not self.number % REPORT_EVERY or bool(self.trades)

    def state_hash(self) -> bytes:
        """The floor's state after this token; LocalProtocolError once a later token has been applied."""
        if self._floor.token != self.token:
            raise LocalProtocolError(f"the state after token {self.token} is gone: token {self._floor.token} followed")
        return state_hash(self._floor)


class FloorFollower:
    """A floor, applied token by token from the sequence."""

    floor_class: type[Floor] = FastFloor
    reads = staticmethod(read_token)
    """How it reads a token; only mutants do it in another way."""

    def __init__(self, code: str) -> None:
        """A floor of this code that has heard nothing."""
        self.code = code
        self.topic = floor_topic(code)
        self.floor = self.floor_class()
        self.steps = 0
        self.sequence = 0
        """Of the newest message of the floor; a replay goes on behind it."""
        self.undecodable = 0
        """Messages of the floor's topic that are no event; since this program started."""
        self._token: int | None = None
        """The token that has begun; None: none has."""
        self._instant = 0
        self._kept: list[FloorMessage] = []
        """Its messages so far."""

    @property
    def open_token(self) -> int | None:
        """The token whose messages are kept until it is over."""
        return self._token

    # One message after the other -------------------------------------------------------------------------------

    def hear(self, token: int, instant: int, message: FloorMessage) -> FloorStep | None:
        """The next message of the sequence; the step of the token before, where this one says that it is over.

        LocalProtocolError for a message of a token that was over already, and for one without its token's key.
        """
        self._insist_on(token)
        is_ours = message.topic == self.topic
        if is_ours:
            insist_on_key(token, message)
            if token == self._token and self._kept[0].shuffle_key != message.shuffle_key:
                raise LocalProtocolError(f"token {token} has two shuffle keys: one of them is not the ring's")
        step = self.finish() if self._token is not None and token > self._token else None
        if is_ours:
            self._token, self._instant = token, instant
            self._kept.append(message)
            self.sequence = message.sequence
        return step

    def _insist_on(self, token: int) -> None:
        if token < (self.floor.token + 1 if self._token is None else self._token):
            raise LocalProtocolError(f"a message of token {token}: the floor is at {self._token or self.floor.token}")

    def finish(self, known: TokenColumns | None = None) -> FloorStep | None:
        """The token that has begun is over: its step; None where the floor has nothing of it.

        `known`: its events as another floor's step had them (`FloorStep.columns`), which need not be read again.
        """
        if self._token is None:
            return None
        token, instant, kept = self._token, self._instant, self._kept
        self._token, self._kept = None, []
        begun = tuple(self.floor.begin(token, instant))
        came = self._entered(kept, known)
        ended = tuple(self.floor.end())
        self.steps += 1
        return FloorStep(token, instant, self.steps, kept[0].shuffle_key, begun, came, ended, self.floor)

    def _entered(self, kept: list[FloorMessage], columns: TokenColumns | None) -> _ByObject | _ByColumn:
        floor = self.floor
        if len(kept) >= MANY and isinstance(floor, FastFloor) and type(self).reads is read_token:
            if columns is None:
                columns = read_columns([message.payload for message in kept], kept[0].shuffle_key)
            if columns is not None:
                self.undecodable += columns.strange
                return _ByColumn(
                    columns, columns.apply(floor), columns.of_events([one.sequence for one in kept]), floor
                )
        events, strange = self.reads(kept)
        self.undecodable += strange
        return _ByObject([(place, at, event, tuple(floor.apply(event))) for place, at, event in events])

    # A whole token ---------------------------------------------------------------------------------------------

    def follow(
        self, token: int, instant: int, messages: Iterable[FloorMessage], known: TokenColumns | None = None
    ) -> FloorStep | None:
        """A token with all its messages, behind others that are over; None where the floor has none of them.

        `known` as in `finish`.
        """
        if self._token is not None:
            raise LocalProtocolError(f"token {token}: token {self._token} is not over")
        every = tuple(messages)
        if every:
            self._insist_on(token)
        ours = [message for message in every if message.topic == self.topic]
        if ours:
            for message in {message.shuffle_key: message for message in reversed(ours)}.values():
                insist_on_key(token, message)
                if message.shuffle_key != ours[0].shuffle_key:
                    raise LocalProtocolError(f"token {token} has two shuffle keys: one of them is not the ring's")
            self._token, self._instant, self._kept, self.sequence = token, instant, ours, ours[-1].sequence
        return self.finish(known)

    # Restart ---------------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, Any]:
        """All that it goes on from, the messages of a token that has begun included."""
        return {
            "code": self.code,
            "steps": self.steps,
            "sequence": self.sequence,
            "floor": rows_of(self.floor),
            "open": None
            if self._token is None
            else [
                self._token,
                self._instant,
                self._kept[0].shuffle_key.hex(),
                [[message.sequence, message.payload.hex()] for message in self._kept],
            ],
        }

    def snapshot(self) -> bytes:
        """All that it goes on from, as canonical bytes."""
        return fold(self.rows())

    @classmethod
    def from_rows(cls, rows: dict[str, Any]) -> FloorFollower:
        """The follower of these rows; RemoteProtocolError for rows that are none."""
        try:
            follower = cls(rows["code"])
            follower.steps, follower.sequence = rows["steps"], rows["sequence"]
            follower.floor = floor_of(rows["floor"], cls.floor_class)
            if rows["open"] is not None:
                follower._token, follower._instant, key, kept = rows["open"]
                follower._kept = [
                    FloorMessage(sequence, follower.topic, bytes.fromhex(payload), bytes.fromhex(key))
                    for sequence, payload in kept
                ]
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise RemoteProtocolError("a snapshot of a floor with rows of another version") from reason
        return follower

    @classmethod
    def restored(cls, snapshot: bytes) -> FloorFollower:
        """As it was; RemoteProtocolError for bytes that are no snapshot of a floor."""
        return cls.from_rows(unfold(snapshot))
