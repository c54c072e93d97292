"""Bringing one log to the cut of a new ring (protocol §5, step 4).

A stale site may hold tokens *below* the cut that were never part of the surviving log. The chained digest tells:
walking down from the cut, the first token whose predecessor's digest is also ours marks the common prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ring.entries import LogEntry
from isocast.ring.ledger import Ledger
from isocast.ring.parts import PartStore
from isocast.ring.recovery import RANGE_FROM, RANGE_TOKENS
from isocast.ring.token import run_digest
from isocast.terms.ids import NodeId
from isocast.wire.packets import Data, NewRing, Range, Repairable, Token, TokenPart
from isocast.wire.token_body import token_digest

__all__ = ["Reconciled", "Reconciliation", "WantedMessages", "WantedTokens", "moved_on"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Keep the log up to `keep`; then comes `suffix`, up to the cut."""

    keep: int
    suffix: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class WantedTokens:
    """Ask for a range of tokens."""

    kind: Range
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """Ask for messages of one token."""

    token_number: int
    labels: tuple[tuple[NodeId, int], ...]


def moved_on(before: WantedTokens | WantedMessages | None, after: WantedTokens | WantedMessages) -> bool:
    """Whether what is wanted now was not asked for before."""
    match before, after:
        case WantedTokens(), WantedTokens():
            return after.first > before.last or after.last < before.first
        case WantedMessages(), WantedMessages():
            return after.token_number != before.token_number
        case _:
            return True


class Reconciliation:
    """Collects what lies between the common prefix and the cut."""

    def __init__(self, target: NewRing, ledger: Ledger) -> None:
        """Towards the ring `target`, from what `ledger` holds; the ledger must not change meanwhile."""
        self.target = target
        self._ledger = ledger
        self._tokens: dict[int, Token] = {}
        self._messages: dict[tuple[NodeId, int], Data] = {}
        self._distrusted: dict[NodeId, None] = {}
        self._parts = PartStore()
        self._keep: int | None = None
        self._expected = target.cut_token
        self._digest = target.cut_digest
        self._entries: list[LogEntry] = []
        self._walk()

    @property
    def progress(self) -> int:
        """Grows with every token that is proven or complete."""
        return self.target.cut_token - self._expected + len(self._entries) + (self._keep is not None)

    def offer(self, item: Repairable) -> None:
        """A packet from a holder."""
        match item:
            case Data():
                self._messages[item.sender, item.number] = item
            case Token():
                # Above the point that the walk has reached the chain is proven: nothing replaces it.
                if self._ledger.collected < item.token_number <= self._expected:
                    self._tokens[item.token_number] = item
                    self._walk()
            case TokenPart():
                token = self._parts.add(item)
                if token is not None:
                    self.offer(token)

    def _walk(self) -> None:
        """Go down from the cut while our own log differs and the next token is here."""
        while self._keep is None:
            number = self._expected
            if self._ledger.digest_at(number) == self._digest:
                self._keep = number
                return
            token = self._tokens.get(number)
            if token is None:
                return
            if token_digest(token) != self._digest:
                # A holder's honest answer never differs from the chain: wait for another one.
                del self._tokens[number]
                return
            self._expected, self._digest = number - 1, token.prev_digest

    def wanted(self) -> WantedTokens | WantedMessages:
        """What to ask a holder for next.

        A site that is a token or two behind has most of the messages: it asks for the tokens alone, and then for
        what it lacks of them. One that was away asks for everything.
        """
        near = self.target.cut_token - self._ledger.held < RANGE_FROM
        kind = Range.HEADS if near else Range.TOKENS
        if self._keep is None:
            last = self._expected
            first = min(last, max(self._ledger.held + 1, last - RANGE_TOKENS + 1, self._ledger.collected + 1))
            return WantedTokens(kind, first, last)
        first = self._keep + 1 + len(self._entries)
        if near:
            return WantedMessages(first, tuple(self._missing(self._tokens[first])))
        return WantedTokens(kind, first, min(first + RANGE_TOKENS - 1, self.target.cut_token))

    def _missing(self, token: Token) -> list[tuple[NodeId, int]]:
        return [
            (run.source, number)
            for run in token.runs
            for number in range(run.first, run.first + run.count)
            if self._message(run.source, number) is None
        ]

    def result(self) -> Reconciled | None:
        """Everything, once it is complete."""
        if self._keep is None:
            return None
        reveal = self._reveal(self._keep + len(self._entries))
        for number in range(self._keep + 1 + len(self._entries), self.target.cut_token + 1):
            token = self._tokens[number]
            entry = self._entry(token, reveal)
            if entry is None:
                return None
            self._entries.append(entry)
            reveal = token.reveal
        return Reconciled(self._keep, tuple(self._entries))

    def _reveal(self, number: int) -> bytes:
        """The nonce revealed in a token of the common prefix or of the suffix."""
        if self._entries:
            return self._entries[-1].token.reveal
        return self._ledger.reveal_at(number)

    def _entry(self, token: Token, previous_reveal: bytes) -> LogEntry | None:
        found: dict[tuple[NodeId, int], Data] = {}
        for run in token.runs:
            messages = [self._message(run.source, number) for number in range(run.first, run.first + run.count)]
            whole = [message for message in messages if message is not None]
            if len(whole) < run.count:
                return None
            if run_digest(whole) != run.digest:
                # One of our own copies is not what the owner had: only holders' copies count from now on.
                self._distrusted[run.source] = None
                return None
            found.update({(message.sender, message.number): message for message in whole})
        return self._ledger.entry(token, found, previous_reveal)

    def _message(self, source: NodeId, number: int) -> Data | None:
        """From a holder, from what waits, or from our own tokens that are to be cut."""
        found = self._messages.get((source, number))
        if found is not None or source in self._distrusted:
            return found
        found = self._ledger.waiting.get((source, number))
        if found is not None:
            return found
        for token_number in range(self._ledger.held, self._ledger.collected, -1):
            for message in self._ledger.entries[token_number].messages:
                if message.sender == source and message.number == number:
                    return message
        return None
