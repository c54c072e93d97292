"""S13: what a source may believe, and what it may let go of.

The owner that acknowledged a message may die with the only copy, and what an epoch acknowledged may be cut off: a
source that believes a token of an older epoch, or forgets a message a token too early, may lose it for good.
"""

from __future__ import annotations

from hashlib import blake2b

from isocast.checks.facts import (
    Acknowledged,
    Completed,
    Freed,
    Law,
    Released,
    Replaced,
    Report,
    Restarted,
    RingFormed,
    TokenMade,
    label,
)
from isocast.checks.shuffles import nonces_key, shuffled_labels
from isocast.checks.view import WINDOW_TOKENS, View, trim
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.wire.packets import NO_DIGEST, NO_NONCE, NewRing, Token

__all__ = ["Logs", "Reveals", "Sources"]


# The tokens that anybody made, as a chain: which messages a log names, by the digest of its last token.


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
        """All tokens of that number, of any epoch."""
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


class Sources:
    """Watches sources against the logs that there are."""

    def __init__(self, law: Law, logs: Logs, report: Report) -> None:
        """No log yet."""
        self._may_diverge = law.may_diverge
        self._logs = logs
        self._report = report
        self._newest: dict[Epoch, tuple[int, bytes]] = {}
        self._stable = 0
        self._claimed = b""
        """The digest of the token that first called `_stable` stable."""
        self._at_stable: bytes | None = None

    def on_formed(self, fact: RingFormed) -> None:
        """The log of a new epoch is that of its cut."""
        ring = fact.ring
        if ring.ballot not in self._newest:
            self._newest[ring.ballot] = (ring.cut_token, ring.cut_digest)
            trim(self._newest, WINDOW_TOKENS)

    def on_made(self, fact: TokenMade) -> None:
        """It grows. The logs know of it already."""
        token = fact.token
        known = self._newest.get(token.epoch)
        if known is None or token.token_number > known[0]:
            self._newest[token.epoch] = (token.token_number, fact.digest)
            trim(self._newest, WINDOW_TOKENS)
        if token.stable > self._stable:
            self._stable, self._claimed, self._at_stable = token.stable, fact.digest, None

    def on_acknowledged(self, fact: Acknowledged) -> None:
        """What a source takes for acknowledged is in the log of its epoch."""
        if self._may_diverge:
            # What was stable in a log that lost is gone for good.
            return
        known = self._newest.get(fact.epoch)
        following = None if known is None else self._logs.next_number(known[1], fact.source)
        if following is not None and fact.below > following:
            text = (
                f"{describe(fact.source)} takes {label(fact.source, fact.below - 1)} for acknowledged,"
                f" but the log of epoch {fact.epoch} names only those below {following}"
            )
            self._report("S13", fact.at, text)

    def on_freed(self, fact: Freed) -> None:
        """What a source lets go is stable, by the word of some token."""
        if self._may_diverge:
            return
        if self._stable and self._at_stable is None:
            self._at_stable = self._logs.before(self._claimed, self._stable) or b""
        following: int | None = 1
        if self._stable:
            following = self._logs.next_number(self._at_stable, fact.source) if self._at_stable else None
        if following is not None and fact.base > following:
            text = (
                f"{describe(fact.source)} let go of {label(fact.source, fact.base - 1)},"
                f" but what is stable, up to token {self._stable}, names only those below {following}"
            )
            self._report("S13", fact.at, text)


# F5: nobody chooses the order inside a shuffled token.


_NONCE_BYTES = 16
_ORDERS_MAX = 64


class Reveals:
    """Watches nonces, and the order that follows from them."""

    def __init__(self, law: Law, view: View, logs: Logs, report: Report) -> None:
        """Nobody has committed to anything."""
        self._watches = law.shuffled
        self._liars = law.liars
        self._alone = law.lies_alone
        self._view = view
        self._unknowing: dict[NodeId, Epoch] = {}
        self._logs = logs
        self._report = report
        self._rings: dict[Epoch, NewRing] = {}
        self._commits: dict[tuple[Epoch, int], bytes] = {}
        self._lies: dict[bytes, tuple[NodeId, Epoch]] = {}
        self._orders: dict[bytes, list[tuple[NodeId, int]]] = {}

    def on_formed(self, fact: RingFormed) -> None:
        """The first cycle's commitments come with the votes."""
        if self._watches:
            self._rings.setdefault(fact.ring.ballot, fact.ring)
            trim(self._rings, WINDOW_TOKENS)

    def on_made(self, fact: TokenMade) -> None:
        """Compare a reveal with its commitment. The logs know of the token already."""
        token = fact.token
        if not self._watches:
            return
        self._commits[token.epoch, token.token_number] = token.commit
        trim(self._commits, WINDOW_TOKENS)
        commit = self._committed(token)
        if commit is None or commit == blake2b(token.reveal, digest_size=_NONCE_BYTES).digest():
            return
        self._lies[fact.digest] = (fact.site, token.epoch)
        trim(self._lies, WINDOW_TOKENS)
        if fact.site not in self._liars:
            text = f"{describe(fact.site)} reveals in token {token.token_number} of epoch {token.epoch} another nonce"
            self._report("F5", fact.at, f"{text} than it committed to")

    def _committed(self, token: Token) -> bytes | None:
        ring = self._rings.get(token.epoch)
        if ring is None or token.sender not in ring.ring:
            return None
        before = token.token_number - len(ring.ring)
        if before < ring.first_token:
            return ring.commits[ring.ring.index(token.sender)]
        return self._commits.get((token.epoch, before))

    def on_disturbed(self, fact: Restarted | Replaced) -> None:
        """A site that restarts, or takes a log over, may not know what was committed to in this epoch."""
        node = fact.node if isinstance(fact, Restarted) else fact.site
        self._unknowing[node] = self._view.site(node).accepted

    def on_completed(self, fact: Completed) -> None:
        """A lie stays in the liar's own log.

        A new ring may begin with it where there is no majority without the liar.
        """
        lie = self._lies.get(fact.digest)
        if lie is None or lie[0] == fact.site or self._unknowing.get(fact.site) == fact.epoch:
            return
        if fact.epoch == lie[1] or self._alone:
            text = f"{describe(fact.site)} took token {fact.token_number} into its log in epoch {fact.epoch}"
            self._report(
                "F5", fact.at, f"{text}, in which {describe(lie[0])} reveals another nonce than it committed to"
            )

    def on_released(self, fact: Released) -> None:
        """The order inside a token is what the nonces say, wherever it is released."""
        if not self._watches or not fact.messages:
            return
        found = self._order(fact)
        if found is None:
            return
        first, labels = found
        place = fact.first_sequence - first
        for message, expected in zip(fact.messages, labels[place:], strict=False):
            if (message.sender, message.number) != expected:
                text = (
                    f"{describe(fact.site)} released {label(message.sender, message.number)} of token"
                    f" {fact.token_number} where the nonces put {label(*expected)}"
                )
                self._report("F5", fact.at, text)
                return

    def _order(self, fact: Released) -> tuple[int, list[tuple[NodeId, int]]] | None:
        """The first sequence of the token, and its messages in order; None where the chain is not known."""
        token = self._token_of(fact)
        if token is None:
            return None
        digest = token.prev_digest
        before = self._logs.token(digest)
        if before is None and digest != NO_DIGEST:
            return None
        key = nonces_key(token.reveal, before.reveal if before is not None else NO_NONCE)
        known = self._orders.get(key)
        if known is None:
            known = self._orders[key] = shuffled_labels(token.runs, key)
            trim(self._orders, _ORDERS_MAX)
        return token.first_sequence, known

    def _token_of(self, fact: Released) -> Token | None:
        """The token of that number that was sent with that instant: two epochs never share one."""
        for token in self._logs.numbered(fact.token_number):
            if token.instant == fact.instant and token.first_sequence <= fact.first_sequence:
                return token
        return None
