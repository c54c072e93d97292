"""Which signed words a journal keeps, so that everything in it can be proven: of the ring (S17), of sources (S21).

For a token with messages these are the token before it, whose nonce orders them, the token itself, and as many that
follow as it takes until a majority of U has signed one in one epoch. Where those are not there yet when the block is
written, they go into the next block. A busy ring hence keeps every token once, and a quiet one a few around each
message.

The newest that each source signed goes into the next block, whatever it covers: two statements prove all that lies
between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isocast.ring.ledger import LogEntry
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.journal_proofs import BlockProof, MessageSeal, Statement
from isocast.wire.packets import SourceChain, Token
from isocast.wire.statements import signed
from isocast.wire.token_body import token_digest

__all__ = ["Vouchers"]

_RECENT = 4
"""Tokens remembered although the log has let go of them: the one before the next with messages is among them."""
_OWED_MAX = 1 << 10
"""Bounds: sites of U that have left the ring sign nothing, and a majority may never come."""


class Vouchers:
    """The tokens that the next block of one journal is to carry."""

    def __init__(self) -> None:
        """Nothing is written yet, as far as it knows: what is written twice does no harm."""
        self._recent: dict[int, Token] = {}
        self._owed: list[Token] = []
        self._said: dict[NodeId, SourceChain] = {}
        """The newest statement of each source since the last block."""
        self._written: dict[bytes, None] = {}
        """Digests, oldest first."""
        self._tip = b""
        """Digest of the newest token behind the last one with messages, while no majority has signed one."""
        self._signers: dict[Epoch, set[NodeId]] = {}
        """Of that token and those behind it, by the epoch in which they signed."""

    def completed(self, token: Token, universe: Sequence[NodeId]) -> None:
        """A token became part of the log."""
        self._recent[token.token_number] = token
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        if token.control and token.signature:
            # It may change U, so counting votes needs it, with messages or without.
            self._owe(token)
        if self._tip and token.prev_digest == self._tip:
            self._owe(token)
            self._follow(token, universe)

    def heard(self, said: SourceChain) -> None:
        """A source signed for what it sent: however much it says between two blocks, one statement is kept."""
        self._said[said.sender] = said
        if len(self._said) > _OWED_MAX:
            del self._said[next(iter(self._said))]

    def proof(
        self, token: Token, entries: Mapping[int, LogEntry], universe: Sequence[NodeId], seals: Sequence[MessageSeal]
    ) -> BlockProof | None:
        """What the block of a token keeps; `entries` is the log. None if there is nothing to prove it by."""
        if token.signature:
            self._gather(token, entries, universe)
        statements = (*map(_statement, self._owed), *map(_statement, self._said.values()))
        self._owed.clear()
        self._said.clear()
        if not statements and not seals:
            return None
        return BlockProof(tuple(seals), statements)

    def _gather(self, token: Token, entries: Mapping[int, LogEntry], universe: Sequence[NodeId]) -> None:
        number = token.token_number
        held = entries.get(number - 1)
        before = self._recent.get(number - 1) if held is None else held.token
        if before is not None and token_digest(before) == token.prev_digest:
            self._owe(before)
        self._owe(token)
        if token_digest(token) == self._tip:
            return
        self._signers = {}
        self._follow(token, universe)
        while self._tip and (entry := entries.get(number + 1)) is not None:
            number += 1
            self._owe(entry.token)
            self._follow(entry.token, universe)

    def _owe(self, token: Token) -> None:
        digest = token_digest(token)
        if digest not in self._written and len(self._owed) < _OWED_MAX:
            self._written[digest] = None
            self._owed.append(token)
            if len(self._written) > _OWED_MAX:
                del self._written[next(iter(self._written))]

    def _follow(self, token: Token, universe: Sequence[NodeId]) -> None:
        """A token's signature also covers all tokens before it."""
        signers = self._signers.setdefault(token.epoch, set())
        signers.add(token.sender)
        is_majority = 2 * len(signers.intersection(universe)) > len(universe)
        self._tip = b"" if is_majority else token_digest(token)


def _statement(packet: Token | SourceChain) -> Statement:
    kind, epoch, body = signed(packet)
    return Statement(kind, epoch, packet.sender, packet.signature, body)
