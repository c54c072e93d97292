"""Bringing one log to the cut of a new ring (protocol §5, step 4).

A stale site may hold tokens *below* the cut that were never part of the surviving log. The chained digest tells:
walking down from the cut, the first token whose predecessor's digest is also ours marks the common prefix.

Where the holders have let go what lies between, a checkpoint takes the place of the common prefix (`ring.rejoin`).
The walk down from the cut must end in its digest. A checkpoint beyond the cut, of the new epoch itself, is proven by
the token of that epoch that continues it. A log that shares nothing with the cut above its own floor, because another
history was released, and one that was never begun, need a checkpoint in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ring.ledger import Checkpoint, Ledger, LogEntry
from isocast.ring.recovery import RANGE_FROM, RANGE_TOKENS
from isocast.ring.rejoin import continues
from isocast.ring.token import PartStore, run_digest
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Data, NewRing, Range, Repairable, Token, TokenPart
from isocast.wire.token_body import token_digest

__all__ = ["Reconciled", "Reconciliation", "WantedMessages", "WantedTokens", "lacking", "moved_on"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Keep the log up to `keep`; then comes `suffix`, up to the cut.

    With a checkpoint, at token `keep`, nothing of the log is kept.
    """

    keep: int
    suffix: tuple[LogEntry, ...]
    checkpoint: Checkpoint | None = None
    proof: Token | None = None
    """The token of the new epoch that continues a checkpoint beyond the cut: it comes next."""


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


def lacking(asked: WantedTokens | WantedMessages | None) -> int:
    """The first token of what was asked for; 0 for nothing."""
    match asked:
        case WantedTokens(_, first, _):
            return first
        case WantedMessages(number, _):
            return number
        case None:
            return 0


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
        self.parted = NEVER
        """When a checkpoint was adopted: this site's log has other tokens than the ring's above this one."""
        self._ledger = ledger
        self._tokens: dict[int, Token] = {}
        self._messages: dict[tuple[NodeId, int], Data] = {}
        self._distrusted: dict[NodeId, None] = {}
        self._parts = PartStore()
        self._keep: int | None = None
        self._expected = target.cut_token
        self._digest = target.cut_digest
        self._entries: list[LogEntry] = []
        self._base: Checkpoint | None = None
        self._proof: Token | None = None
        self._walk()

    @property
    def lost(self) -> bool:
        """Whether nothing that holders could send leads from this site's log to the cut."""
        if self._base is not None or self._keep is not None:
            return False
        return self._expected <= self._ledger.collected or not self._ledger.universe

    @property
    def above(self) -> int:
        """Above which token a checkpoint helps."""
        if self._keep is not None:
            return self._keep
        # What the walk has come to, or passed, of this site's own log is not the ring's: nothing is lost with it.
        return -1 if self.lost or self._expected <= self._ledger.held else self._ledger.held

    @property
    def has_checkpoint(self) -> bool:
        """Whether a checkpoint takes the place of the common prefix."""
        return self._base is not None

    def adopt(self, checkpoint: Checkpoint) -> bool:
        """Go down to a checkpoint instead of this site's own log; whether that is possible."""
        number, target = checkpoint.token_number, self.target
        beyond = number > target.cut_token
        fits = checkpoint.epoch == target.ballot if beyond else checkpoint.epoch < target.ballot
        if number <= self.above or not fits or not checkpoint.universe:
            return False
        if self._ledger.universe:
            self.parted = min(self.parted, self._expected)
        if not beyond and (number > self._expected or self._keep is not None):
            # The walk has passed it: what it found there decides.
            self._expected, self._digest = target.cut_token, target.cut_digest
        self._keep = None
        self._entries.clear()
        self._base = checkpoint.copy()
        if not beyond:
            self._walk()
        return self._base is not None

    def refuse(self) -> None:
        """Forget a checkpoint that leads nowhere."""
        if self._base is not None:
            self._base, self._keep = None, None
            self._entries.clear()

    @property
    def _beyond(self) -> bool:
        return self._base is not None and self._base.token_number > self.target.cut_token

    @property
    def _floor(self) -> int:
        return self._ledger.collected if self._base is None else self._base.token_number

    @property
    def progress(self) -> int:
        """Grows with every token that is proven or complete."""
        return self.target.cut_token - self._expected + len(self._entries) + (self._keep is not None)

    def offer(self, item: Repairable) -> None:
        """A packet from a holder."""
        match item:
            case Data():
                self._messages[item.sender, item.number] = item
            case Token() if self._beyond:
                self._prove(item)
            case Token():
                # Above the point that the walk has reached the chain is proven: nothing replaces it.
                if self._floor < item.token_number <= self._expected:
                    self._tokens[item.token_number] = item
                    self._walk()
            case TokenPart():
                token = self._parts.add(item)
                if token is not None:
                    self.offer(token)

    def _prove(self, token: Token) -> None:
        """A token of the new epoch continues a checkpoint beyond the cut, or shows that it is none."""
        base = self._base
        if base is None or token.epoch != self.target.ballot or token.token_number != base.token_number + 1:
            return
        if continues(token, base):
            self._keep, self._proof = base.token_number, token
        else:
            self.refuse()

    def _walk(self) -> None:
        """Go down from the cut while our own log differs and the next token is here."""
        while self._keep is None and not self._beyond:
            number, base = self._expected, self._base
            if base is not None and number == base.token_number:
                if base.digest != self._digest:
                    self.refuse()
                    return
                self._keep = number
                return
            if base is None and self._ledger.universe and self._ledger.digest_at(number) == self._digest:
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
        base = self._base
        if base is not None and self._beyond:
            return WantedTokens(Range.TOKENS, base.token_number + 1, base.token_number + RANGE_TOKENS)
        held = self._ledger.held if base is None else base.token_number
        near = base is None and self.target.cut_token - held < RANGE_FROM
        kind = Range.HEADS if near else Range.TOKENS
        if self._keep is None:
            last = self._expected
            first = min(last, max(held + 1, last - RANGE_TOKENS + 1, self._floor + 1))
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
        if self._base is not None and not self._leads_to_cut(self._base):
            self.refuse()
            return None
        return Reconciled(self._keep, tuple(self._entries), self._base, self._proof)

    def _leads_to_cut(self, base: Checkpoint) -> bool:
        """What the chain does not prove, the ring tells: the sequence after the cut, and U there."""
        if self._beyond:
            return True
        state, ring = base.copy(), self.target
        for entry in self._entries:
            state.advance(entry)
        universe = state.universe == ring.universe or ring.forced
        return state.next_sequence == ring.first_sequence and universe

    def _reveal(self, number: int) -> bytes:
        """The nonce revealed in a token of the common prefix or of the suffix."""
        if self._entries:
            return self._entries[-1].token.reveal
        if self._base is not None:
            return self._base.reveal
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
