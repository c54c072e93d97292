"""S13: what a source may believe, and what it may let go of.

S13  a source takes for acknowledged only what the log of its epoch names, and lets go only of what a token calls stable

The owner that acknowledged a message may die with the only copy, and what an epoch acknowledged may be cut off: a
source that believes a token of an older epoch, or forgets a message a token too early, may lose it for good.
"""

from __future__ import annotations

from isocast.checks.facts import Acknowledged, Freed, RingFormed, TokenMade
from isocast.checks.law import Law, Report, label
from isocast.checks.logs import Logs
from isocast.checks.view import WINDOW_TOKENS, trim
from isocast.terms.ids import Epoch, describe

__all__ = ["Sources"]


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
