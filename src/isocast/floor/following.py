"""Whoever has the sequence follows the floor: its messages in, one step for every token that has any of them.

A floor's messages are those of its topic; a token without one does not exist for the floor. The messages of a token may
come one after the other: they are kept until the token is over, which the first message of a later token says, or
whoever knows it sooner. Then the token is applied as a whole: its events enter in the order that the token's shuffle
key gives them (`terms.entry`), not in that of the sequence.

Payloads that are no event are counted and change nothing: everybody has the same bytes, and drops the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from isocast.floor.codec import decode_event, floor_topic
from isocast.floor.events import Event, Report, Trade
from isocast.floor.fast import FastFloor
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


@dataclass(frozen=True)
class FloorStep:
    """One token, applied."""

    token: int
    instant: int
    """T_t."""
    number: int
    """Which step of the floor it is, from 1."""
    reports: tuple[SequencedReport, ...]
    applied: tuple[Applied, ...]
    """The same reports, by what they came of: in the order in which they entered."""
    shuffle_key: bytes
    """Of the token, which gave that order."""
    _floor: Floor = field(repr=False, compare=False)

    @property
    def trades(self) -> tuple[Trade, ...]:
        """The trades among the reports, in order."""
        return tuple([told.report for told in self.reports if isinstance(told.report, Trade)])

    @property
    def is_reported(self) -> bool:
        """Whether a report of its arbiter is due: it made trades, or it is one of every hundred."""
        return not self.number % REPORT_EVERY or any(isinstance(told.report, Trade) for told in self.reports)

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
        if token < (self.floor.token + 1 if self._token is None else self._token):
            raise LocalProtocolError(f"a message of token {token}: the floor is at {self._token or self.floor.token}")
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

    def finish(self) -> FloorStep | None:
        """The token that has begun is over: its step; None where the floor has nothing of it."""
        if self._token is None:
            return None
        token, instant, kept = self._token, self._instant, self._kept
        self._token, self._kept = None, []
        begun = tuple(self.floor.begin(token, instant))
        applied = [Applied(None, begun)]
        told = [SequencedReport(None, report) for report in begun]
        events, strange = self.reads(kept)
        self.undecodable += strange
        for place, sequence, event in events:
            reports = tuple(self.floor.apply(event))
            applied.append(Applied(event, reports, place))
            told += [SequencedReport(sequence, report) for report in reports]
        ended = tuple(self.floor.end())
        applied.append(Applied(None, ended))
        told += [SequencedReport(None, report) for report in ended]
        self.steps += 1
        return FloorStep(token, instant, self.steps, tuple(told), tuple(applied), kept[0].shuffle_key, self.floor)

    # A whole token ---------------------------------------------------------------------------------------------

    def follow(self, token: int, instant: int, messages: Iterable[FloorMessage]) -> FloorStep | None:
        """A token with all its messages, behind others that are over; None where the floor has none of them."""
        if self._token is not None:
            raise LocalProtocolError(f"token {token}: token {self._token} is not over")
        for message in messages:
            self.hear(token, instant, message)
        return self.finish()

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
