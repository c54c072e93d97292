"""S21: every message of a source with an identity is one that this source signed for, by what a journal keeps.

All receivers hold a source's tag key, so each of them could put messages into its name. A source therefore signs the
chain of its payloads' digests (`wire.packets.chained`), once in a token period:

    C behind number `since` is `before`; C behind `number` is `digest`

These are two points of its chain. The messages between two points, as the journal holds them, must lead from the one to
the other, however many statements between them were lost. Contents that do not are a breach.

Messages that no two points enclose are *unsigned*: nothing accuses their source, which may have stopped before it could
sign, and nobody may call them its own. Those of the last tokens *wait*, as their statements come with the next blocks.
Those of the first tokens of a journal that begins later than its source may have been signed for *before*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from isocast.checks.journals import Breach, FaultKind
from isocast.terms.ids import NodeId, describe
from isocast.wire.packets import NO_DIGEST, SourceChain, chained

__all__ = ["SourceWords", "SourcesVouched", "UnsignedMessages"]

_PATIENCE_TOKENS = 64
"""A statement leaves its source two delays after the token, and is said again within 16: so many tokens at the end of a
journal wait for theirs, and so many at its beginning may have had theirs before."""
_MESSAGES_MAX = 1 << 17
"""Bounds, for each source: messages behind the last point that are remembered one by one."""
_POINTS_MAX = 1 << 10
"""Bounds, for each source: points ahead of the journal's messages."""
_LISTED_MAX = 1_000

_SILENT = "it signed nothing at or behind them: it stopped before it could, or they are not its own"
_OTHER = "it signed for other contents"
_UNBEGUN = "nothing that it signed leads up to them: its chain, or the journal, begins later"
_AGAIN = "the number was there before"


class UnsignedMessages(NamedTuple):
    """Messages in a source's name that it did not sign for."""

    source: NodeId
    first: int
    last: int
    sequence: int
    """Of the first."""
    reason: str


class _Message(NamedTuple):
    digest: bytes
    sequence: int
    token_number: int


class _Point(NamedTuple):
    """The source's chain behind a number."""

    number: int
    chain: bytes


@dataclass(slots=True)
class SourcesVouched:
    """What sources signed for."""

    signed: Counter[NodeId] = field(default_factory=Counter)
    """Messages that each source vouched for."""
    unsigned: Counter[NodeId] = field(default_factory=Counter)
    """Messages in its name that it did not."""
    waiting: int = 0
    """Messages at the end of the journal, whose statements come with its next blocks."""
    before: int = 0
    """Messages at the beginning of a journal that begins later than its sources: their statements lie before it."""
    listed: list[UnsignedMessages] = field(default_factory=list)
    """The first thousand runs of unsigned messages."""
    open_from: int | None = None
    """The first sequence that waits, or that is unsigned."""

    def open(self, sequence: int) -> None:
        """A message of this sequence is not proven."""
        self.open_from = sequence if self.open_from is None else min(self.open_from, sequence)


class _Source:
    """What one source said, and what the journal holds in its name."""

    def __init__(self, source: NodeId, report: SourcesVouched, first: int) -> None:
        """`first`: the number of the first message that the journal holds."""
        self._source = source
        self._report = report
        self._first = first
        self._newest = first - 1
        self._messages: dict[int, _Message] = {}
        """That no point encloses yet, in order."""
        self._points: dict[int, bytes] = {}
        """What it signed and is not judged."""
        self._signed = _Point(0, NO_DIGEST) if first == 1 else None
        """The newest point that the messages lead on from; before number 1 the chain is always this one."""
        self._reached = _Point(0, NO_DIGEST)
        """By the contents of messages behind `_signed` that are no longer remembered."""
        self._reached_sequence = 0

    def take(self, number: int, message: _Message) -> None:
        if number <= self._newest:
            self._note(number, number, message.sequence, _AGAIN)
            return
        self._newest = number
        self._messages[number] = message
        if len(self._messages) > _MESSAGES_MAX:
            self._condense()

    def _condense(self) -> None:
        """Remember the oldest message by its link of the chain alone."""
        number = next(iter(self._messages))
        if self._signed is None or number != self._reached.number + 1:
            self._let_go(number, _UNBEGUN)
            return
        message = self._messages.pop(number)
        if self._reached == self._signed:
            self._reached_sequence = message.sequence
        self._reached = _Point(number, chained(self._reached.chain, message.digest))

    def hear(self, said: SourceChain) -> str:
        """Take both points; what contradicts them."""
        for point in (_Point(said.since, said.before), _Point(said.number, said.digest)):
            known = self._points.get(point.number)
            if known is None and self._signed is not None and point.number == self._signed.number:
                known = self._signed.chain
            if known is None:
                self._points[point.number] = point.chain
            elif known != point.chain:
                return f"{describe(self._source)} signed two chains behind its message {point.number}"
        while len(self._points) > _POINTS_MAX:
            del self._points[max(self._points)]
        return ""

    def settle(self) -> Iterator[Breach]:
        """Judge the points whose messages are all here."""
        for number in sorted([number for number in self._points if number <= self._newest]):
            yield from self._judge(_Point(number, self._points.pop(number)))

    def _judge(self, point: _Point) -> Iterator[Breach]:
        """Whether the messages behind the newest point lead to this one."""
        signed, reached = self._signed, self._reached
        if signed is not None and point.number < max(reached.number, signed.number + 1):
            return
        if signed is None or point.chain == NO_DIGEST or self._lacks(reached.number + 1, point.number):
            # A chain that begins here: that of this journal, or that of a source that did not sign before.
            if point.number >= self._first - 1:
                self._begin(point)
            return
        window = range(reached.number + 1, point.number + 1)
        found = [self._messages.pop(number) for number in window]
        chain = reached.chain
        for message in found:
            chain = chained(chain, message.digest)
        self._signed = self._reached = point
        if chain == point.chain:
            self._report.signed[self._source] += point.number - signed.number
            return
        first = found[0].sequence if reached == signed else self._reached_sequence
        last = found[-1].sequence if found else first
        self._note(signed.number + 1, point.number, first, _OTHER)
        text = (
            f"messages {signed.number + 1} to {point.number} of {describe(self._source)} are not those that it signed"
            " for: somebody else put at least one of them into its name"
        )
        yield Breach(FaultKind.PROOF, "S21", text, first, last)

    def _lacks(self, first: int, last: int) -> bool:
        return any(number not in self._messages for number in range(first, last + 1))

    def _begin(self, point: _Point) -> None:
        """What stands before this point stays as it is: nothing encloses it."""
        self._give_up_reached()
        self._signed = self._reached = point

    def _give_up_reached(self) -> None:
        signed, reached = self._signed, self._reached
        if signed is not None and reached.number > signed.number:
            self._note(signed.number + 1, reached.number, self._reached_sequence, _SILENT)

    def _let_go(self, number: int, reason: str) -> None:
        self._note(number, number, self._messages.pop(number).sequence, reason)

    def _note(self, first: int, last: int, sequence: int, reason: str) -> None:
        self._report.unsigned[self._source] += last - first + 1
        self._report.open(sequence)
        listed = self._report.listed
        if listed and (listed[-1].source, listed[-1].last + 1, listed[-1].reason) == (self._source, first, reason):
            listed[-1] = listed[-1]._replace(last=last)
        elif len(listed) < _LISTED_MAX:
            listed.append(UnsignedMessages(self._source, first, last, sequence, reason))

    def end(self, first_token: int, last_token: int) -> None:
        """The journal goes from this token to that one."""
        signed = self._signed
        self._give_up_reached()
        for number, message in list(self._messages.items()):
            is_passed = signed is not None and number <= signed.number
            if is_passed and self._first > 1 and message.token_number <= first_token + _PATIENCE_TOKENS:
                self._report.before += 1
            elif is_passed:
                self._let_go(number, _UNBEGUN)
            elif message.token_number + _PATIENCE_TOKENS >= last_token:
                self._report.waiting += 1
                self._report.open(message.sequence)
            else:
                self._let_go(number, _SILENT)


class SourceWords:
    """Takes messages and statements of all sources, as the blocks of a journal bring them."""

    def __init__(self, report: SourcesVouched) -> None:
        """Fills this report."""
        self._report = report
        self._sources: dict[NodeId, _Source] = {}
        self._early: dict[NodeId, SourceChain] = {}
        """The newest statement of each source of which no message has come."""
        self._first_token: int | None = None
        self._last_token = 0

    def begin(self, token_number: int) -> None:
        """A block of this token."""
        if self._first_token is None:
            self._first_token = token_number
        self._last_token = max(self._last_token, token_number)

    def take(self, source: NodeId, number: int, digest: bytes, sequence: int, token_number: int) -> None:
        """A message that the journal holds in the name of a source that must sign."""
        self.begin(token_number)
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = _Source(source, self._report, number)
            early = self._early.pop(source, None)
            if early is not None:
                found.hear(early)
        found.take(number, _Message(digest, sequence, token_number))

    def hear(self, said: SourceChain) -> str:
        """A statement whose signature is right; what contradicts it."""
        found = self._sources.get(said.sender)
        if found is not None:
            return found.hear(said)
        self._early[said.sender] = said
        if len(self._early) > _POINTS_MAX:
            del self._early[next(iter(self._early))]
        return ""

    def settle(self) -> Iterator[Breach]:
        """What is wrong by now."""
        for source in self._sources.values():
            yield from source.settle()

    def end(self) -> None:
        """The journal ends here."""
        for source in self._sources.values():
            source.end(self._first_token or 0, self._last_token)
