"""What one receiver holds: the store of waiting messages and the receive list of §2.1, as one object.

`held` is h: everything up to token h is here with its messages. `next_number`, `next_sequence` and the
universe are pure functions of the log up to h, so cutting the log back rolls them back too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from isocast.ring.settings import OrderRule
from isocast.ring.token import label_order, run_digest, shuffle_key
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.wire.orders import listed_universe, order_number
from isocast.wire.packets import NO_DIGEST, NO_NONCE, ControlKind, Data, NextNumber, Token
from isocast.wire.token_body import token_digest

__all__ = [
    "CHANGES",
    "UNIVERSE_MIN",
    "Checkpoint",
    "Ledger",
    "LogEntry",
    "Stored",
    "forced_universe",
    "universe_after",
]


# A token with its messages: the unit of the log, of the journal and of release.


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Token t and its messages in release order, from its first sequence on."""

    token: Token
    messages: tuple[Data, ...]
    shuffle_key: bytes
    """Derived from the nonces of t and t-1; travels with the release."""


# U, the sites whose majority decides, as a function of the log: tokens change it, one site at a time (protocol
# §5).
#
# A forced change replaces U on an operator's word alone: a majority of the U before will never come back, so nobody
# waits for its certificate, and what was uncertified before the change is certified by the new U.


UNIVERSE_MIN = 2
"""A ring of one orders nothing that anybody else could vouch for."""
CHANGES = (ControlKind.ADD_SITE, ControlKind.REMOVE_SITE)
"""What an operator may ask of a site. A forced change is asked of a server."""


def forced_universe(token: Token) -> tuple[NodeId, ...] | None:
    """U as a token forces it; None for a token that forces nothing."""
    for entry in token.control:
        if entry.kind is ControlKind.FORCE_UNIVERSE:
            return listed_universe(entry)
    return None


def universe_after(universe: tuple[NodeId, ...], token: Token) -> tuple[NodeId, ...]:
    """U after the token's control entries."""
    for entry in token.control:
        if entry.kind is ControlKind.ADD_SITE and entry.subject not in universe:
            universe = tuple(sorted([*universe, entry.subject]))
        elif entry.kind is ControlKind.REMOVE_SITE and len(universe) > UNIVERSE_MIN:
            universe = tuple([site for site in universe if site != entry.subject])
        elif entry.kind is ControlKind.FORCE_UNIVERSE:
            universe = forced_universe(token) or universe
    return universe


class Stored(Enum):
    """What became of a message."""

    KEPT = "kept"
    DUPLICATE = "duplicate"
    OUTSIDE_WINDOW = "outside-window"
    BEHIND = "behind"
    """Kept, and its source no longer holds what this site expects first: the site is behind `stable`."""


@dataclass(slots=True)
class Checkpoint:
    """The state of a log at one token, so that what came before can leave memory."""

    token_number: int = 0
    epoch: Epoch = NO_EPOCH
    digest: bytes = NO_DIGEST
    instant: int = 0
    next_sequence: int = 1
    reveal: bytes = NO_NONCE
    universe: tuple[NodeId, ...] = ()
    next_number: dict[NodeId, int] = field(default_factory=dict)
    order: int = 0
    """The number of the last operator's order."""

    def advance(self, entry: LogEntry) -> None:
        """Move on over one entry."""
        token = entry.token
        self.token_number = token.token_number
        self.epoch = token.epoch
        self.digest = token_digest(token)
        self.instant = token.instant
        self.next_sequence = token.first_sequence + token.count
        self.reveal = token.reveal
        if token.control:
            self.universe = universe_after(self.universe, token)
            self.order = max([self.order, *map(order_number, token.control)])
        for run in token.runs:
            self.next_number[run.source] = run.first + run.count

    def copy(self) -> Checkpoint:
        """An independent one."""
        return Checkpoint(
            self.token_number,
            self.epoch,
            self.digest,
            self.instant,
            self.next_sequence,
            self.reveal,
            self.universe,
            dict(self.next_number),
            self.order,
        )


class Ledger:
    """Messages that wait, tokens that are complete, and everything that follows from them."""

    def __init__(self, order: OrderRule, window: int, checkpoint: Checkpoint) -> None:
        """An empty log on top of a checkpoint."""
        self.order = order
        self.window = window
        self.entries: dict[int, LogEntry] = {}
        self.waiting: dict[tuple[NodeId, int], Data] = {}
        self.dropped = 0
        """Messages outside their source's window: counted, never kept."""
        self._floor = checkpoint.copy()
        self._head = checkpoint.copy()
        self.next_number = self._head.next_number
        self._changes: dict[int, tuple[NodeId, ...]] = {}
        """Tokens in memory that changed U, in order, and U before each."""
        self._forced = 0
        """The newest of them that forced U."""

    # What the log says --------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """H."""
        return self._head.token_number

    @property
    def head(self) -> Checkpoint:
        """The state at h; read only."""
        return self._head

    @property
    def floor(self) -> Checkpoint:
        """The state at `collected`: what another site may take over; read only."""
        return self._floor

    @property
    def digest(self) -> bytes:
        """The chained digest at h."""
        return self._head.digest

    @property
    def universe(self) -> tuple[NodeId, ...]:
        """U as of h."""
        return self._head.universe

    @property
    def collected(self) -> int:
        """Everything up to here has left memory."""
        return self._floor.token_number

    def digest_at(self, token_number: int) -> bytes | None:
        """The chained digest at a token that is still in memory, or at the floor."""
        if token_number == self._floor.token_number:
            return self._floor.digest
        entry = self.entries.get(token_number)
        return None if entry is None else token_digest(entry.token)

    def universe_at(self, token_number: int) -> tuple[NodeId, ...]:
        """U as of a token that is in memory, or at the floor."""
        return next((before for number, before in self._changes.items() if number > token_number), self.universe)

    def order_at(self, token_number: int) -> int:
        """The number of the last operator's order as of a token that is in memory, or at the floor."""
        before = [entry.token for number, entry in self.entries.items() if number <= token_number]
        return max([self._floor.order, *[order_number(entry) for token in before for entry in token.control]])

    def reveal_at(self, token_number: int) -> bytes:
        """The nonce revealed in a token that is in memory, or at the floor."""
        if token_number == self._floor.token_number:
            return self._floor.reveal
        return self.entries[token_number].token.reveal

    def uncertified_change(self, certified: int) -> tuple[int, tuple[NodeId, ...]]:
        """The newest change of U, if it lies above `certified`, and U before it; else (0, U).

        A forced change needs no certificate of the U before, and settles every change before it.
        """
        number = next(reversed(self._changes), 0)
        if number > max(certified, self._forced):
            return number, self._changes[number]
        return 0, self._head.universe

    @property
    def settled_change(self) -> int:
        """The newest change of U that another one follows: it was certified before that one was issued."""
        numbers = list(self._changes)[-2:]
        return numbers[0] if len(numbers) > 1 and numbers[1] > self._forced else 0

    def _advance(self, entry: LogEntry) -> None:
        """Move the head on, and note whether U changed."""
        number, before = entry.token.token_number, self._head.universe
        self._head.advance(entry)
        if self._head.universe != before:
            self._changes[number] = before
        if entry.token.control and forced_universe(entry.token) is not None:
            self._forced = number

    def unstable_next_numbers(self, limit: int) -> tuple[NextNumber, ...]:
        """NextM of the sources that appear in the log's memory: what a roll-back could concern."""
        sources = {run.source: None for entry in self.entries.values() for run in entry.token.runs}
        return tuple([NextNumber(source, self.next_number[source]) for source in sorted(sources)[:limit]])

    # Messages -----------------------------------------------------------------------------------

    def store(self, message: Data) -> Stored:
        """Keep a message until a token acknowledges it (§2.1)."""
        source, number = message.sender, message.number
        expected = self.next_number.get(source, 1)
        if number < expected:
            return Stored.DUPLICATE
        if number >= expected + self.window:
            self.dropped += 1
            return Stored.OUTSIDE_WINDOW
        if message.label not in self.waiting:
            self.waiting[message.label] = message
        elif message.base <= expected:
            return Stored.DUPLICATE
        return Stored.BEHIND if message.base > expected else Stored.KEPT

    def missing(self, token: Token) -> list[tuple[NodeId, int]]:
        """Which messages of a token have not arrived."""
        waiting = self.waiting
        return [label for labels in token.labels for label in labels if label not in waiting]

    def gather(self, token: Token) -> LogEntry | None:
        """The next token with its messages in sequence order, if all of them are here and are the right ones."""
        waiting = self.waiting
        for run, labels in zip(token.runs, token.labels, strict=True):
            try:
                messages = [waiting[label] for label in labels]
            except KeyError:
                return None
            if run_digest(messages) != run.digest:
                # Somebody's copy differs from the owner's: drop ours, and ask for all of the run again.
                for label in labels:
                    del waiting[label]
                return None
        return self.entry(token, waiting, self._head.reveal)

    def entry(self, token: Token, messages: Mapping[tuple[NodeId, int], Data], previous_reveal: bytes) -> LogEntry:
        """A token with its messages in sequence order."""
        key = shuffle_key(token, previous_reveal)
        return LogEntry(token, tuple([messages[label] for label in self.labels(token, key)]), key)

    def labels(self, token: Token, key: bytes) -> list[tuple[NodeId, int]]:
        """The ring's order rule."""
        return label_order(token, self.order, key)

    def follows(self, token: Token) -> bool:
        """Whether a token continues this log: number, chain, sequence and each source's next number."""
        head = self._head
        return (
            token.token_number == head.token_number + 1
            and token.prev_digest == head.digest
            and token.first_sequence == head.next_sequence
            and all(run.first == self.next_number.get(run.source, 1) for run in token.runs)
        )

    # The log ------------------------------------------------------------------------------------

    def append(self, entry: LogEntry) -> None:
        """H += 1."""
        if entry.token.token_number != self.held + 1:
            raise LocalProtocolError(f"token {entry.token.token_number} does not follow {self.held}")
        waiting = self.waiting
        for message in entry.messages:
            waiting.pop(message.label, None)
        self.entries[entry.token.token_number] = entry
        self._advance(entry)

    def truncate(self, keep: int) -> None:
        """Cut the log back to token `keep`; its messages wait again, and next numbers roll back."""
        if keep >= self.held:
            return
        if keep < self.collected:
            raise LocalProtocolError(f"cannot cut back to {keep}: everything up to {self.collected} is stable")
        cut = [self.entries.pop(number) for number in range(keep + 1, self.held + 1)]
        self._head = self._floor.copy()
        self._changes, self._forced = {}, 0
        for number in range(self.collected + 1, keep + 1):
            self._advance(self.entries[number])
        self.next_number = self._head.next_number
        for entry in cut:
            for message in entry.messages:
                self.waiting[message.label] = message

    def replace(self, checkpoint: Checkpoint) -> None:
        """Begin anew behind another site's checkpoint; messages that it does not acknowledge wait again."""
        for entry in self.entries.values():
            for message in entry.messages:
                self.waiting.setdefault(message.label, message)
        self.entries.clear()
        self._floor, self._head = checkpoint.copy(), checkpoint.copy()
        self._changes, self._forced = {}, 0
        self.next_number = self._head.next_number
        self.waiting = {
            (source, number): message
            for (source, number), message in self.waiting.items()
            if 0 <= number - self.next_number.get(source, 1) < self.window
        }

    def collect(self, token_number: int) -> None:
        """Let everything up to a token leave memory."""
        for number in range(self.collected + 1, min(token_number, self.held) + 1):
            self._floor.advance(self.entries.pop(number))
            self._changes.pop(number, None)

    def acknowledging(self, source: NodeId, number: int) -> Token | None:
        """The token in memory that acknowledged a message, newest first."""
        for token_number in range(self.held, self.collected, -1):
            token = self.entries[token_number].token
            for run in token.runs:
                if run.source == source and run.first <= number < run.first + run.count:
                    return token
        return None
