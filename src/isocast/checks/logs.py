"""The tokens that anybody made, as a chain: which messages a log names, by the digest of its last token."""

from __future__ import annotations

from isocast.checks.facts import TokenMade
from isocast.checks.view import WINDOW_TOKENS, trim
from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_DIGEST, Token

__all__ = ["Logs"]


class Logs:
    """Every token by its digest, and each leads to the one before."""

    def __init__(self) -> None:
        """Nobody has made any."""
        self._tokens: dict[bytes, Token] = {}
        self._numbered: dict[int, list[Token]] = {}

    def on_made(self, fact: TokenMade) -> None:
        """One more."""
        self._tokens[fact.digest] = fact.token
        trim(self._tokens, WINDOW_TOKENS)
        self._numbered.setdefault(fact.token.token_number, []).append(fact.token)
        trim(self._numbered, WINDOW_TOKENS)

    def numbered(self, token_number: int) -> list[Token]:
        """All tokens of that number, of whatever epoch."""
        return self._numbered.get(token_number, [])

    def token(self, digest: bytes) -> Token | None:
        """The token of that digest, if it is remembered."""
        return self._tokens.get(digest)

    def before(self, digest: bytes, token_number: int) -> bytes | None:
        """The digest at an earlier token of the log that ends with `digest`; None where the chain is not known."""
        while digest != NO_DIGEST:
            token = self._tokens.get(digest)
            if token is None or token.token_number < token_number:
                return None
            if token.token_number == token_number:
                return digest
            digest = token.prev_digest
        return NO_DIGEST if token_number == 0 else None

    def next_number(self, digest: bytes, source: NodeId) -> int | None:
        """The first number of a source that a log does not name; None where the chain is not known far enough."""
        while digest != NO_DIGEST:
            token = self._tokens.get(digest)
            if token is None:
                return None
            for run in token.runs:
                if run.source == source:
                    return run.first + run.count
            digest = token.prev_digest
        return 1
