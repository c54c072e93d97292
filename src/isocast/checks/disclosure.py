"""S20: what is sealed with a disclosed key stays closed until it is certified, and is void everywhere or nowhere.

Whether a key opens a message is asked of whoever knows the seals (`Law.opens`); which keys count, and when one may be
shown, is worked out here from the tokens and receipts that there are.
"""

from __future__ import annotations

from hashlib import blake2b

from isocast.checks.facts import (
    Completed,
    Disclosed,
    Law,
    Opens,
    ReceiptHeard,
    ReceiptSent,
    Released,
    Replaced,
    Report,
    Sealed,
    TokenMade,
    label,
)
from isocast.checks.sources import Logs
from isocast.checks.view import WINDOW_TOKENS, trim
from isocast.terms.ids import Epoch, NodeId, describe, is_source
from isocast.wire.packets import Data, Token

__all__ = ["DisclosureChecker"]

_MESSAGES_MAX = 65_536
"""Messages that are remembered: those of the tokens that may still be opened, and many more."""
_LINKS_MAX = 65_536
"""Links of one source that are remembered: a chain that is used again is used soon."""
_CHAIN_LENGTH = 1_024


class DisclosureChecker:
    """Watches sources that disclose keys, and sites that open messages by them."""

    def __init__(self, law: Law, opens: Opens, logs: Logs, report: Report) -> None:
        """Nothing is sealed yet."""
        self._opens = opens
        self._tokens = law.timing.reveal_tokens
        self._majority = len(law.universe) // 2 + 1
        self._logs = logs
        self._report = report
        self._held: dict[Epoch, dict[NodeId, int]] = {}
        self._heard: dict[NodeId, dict[Epoch, dict[NodeId, int]]] = {}
        self._hears = law.hears
        self._acknowledging: dict[tuple[NodeId, int], list[Token]] = {}
        self._shown: dict[NodeId, dict[bytes, None]] = {}
        self._sites: dict[NodeId, dict[int, bytes]] = {}
        self._voids: dict[int, tuple[NodeId, bool]] = {}
        self._fixed_universe = True

    def on_made(self, fact: TokenMade) -> None:
        """Which token acknowledges a message."""
        token = fact.token
        self._fixed_universe &= not token.control
        for labels in token.labels:
            for one in labels:
                self._acknowledging.setdefault(one, []).append(token)
        trim(self._acknowledging, _MESSAGES_MAX)

    def on_receipt(self, fact: ReceiptSent) -> None:
        """How far a site says that it holds the log."""
        held = self._held.setdefault(fact.epoch, {})
        held[fact.site] = max(fact.held, held.get(fact.site, 0))
        trim(self._held, WINDOW_TOKENS)

    def on_heard(self, fact: ReceiptHeard) -> None:
        """What a source knows of it."""
        if is_source(fact.site):
            held = self._heard.setdefault(fact.site, {}).setdefault(fact.epoch, {})
            held[fact.sender] = max(fact.held, held.get(fact.sender, 0))

    def on_completed(self, fact: Completed) -> None:
        """A site's log."""
        log = self._sites.setdefault(fact.site, {})
        log.pop(fact.token_number, None)
        log[fact.token_number] = fact.digest
        trim(log, WINDOW_TOKENS)

    def on_replaced(self, fact: Replaced) -> None:
        """It begins anew."""
        self._sites.pop(fact.site, None)

    def on_sealed(self, fact: Sealed) -> None:
        """No link that was shown before a message was made opens it."""
        if fact.link in self._shown.get(fact.source, {}):
            text = f"{label(fact.source, fact.number)} is sealed with a key that follows from what its source showed"
            self._report("S20", fact.at, f"{text} before")

    def on_disclosed(self, fact: Disclosed) -> None:
        """A link is shown only when a majority has said that it holds the token of its message."""
        shown = self._shown.setdefault(fact.source, {})
        for number, link in fact.links:
            self._walk(shown, link)
            if self._fixed_universe and not self._is_certified((fact.source, number)):
                text = f"{describe(fact.source)} shows the key of {label(fact.source, number)}"
                self._report("S20", fact.at, f"{text}, and has not seen receipts of a majority")
        trim(shown, _LINKS_MAX)

    @staticmethod
    def _walk(shown: dict[bytes, None], link: bytes) -> None:
        """A link of a chain gives all links before it."""
        for _ in range(_CHAIN_LENGTH):
            if link in shown:
                return
            shown[link] = None
            link = blake2b(link, digest_size=len(link), person=b"isocast chain").digest()

    def _is_certified(self, message: tuple[NodeId, int]) -> bool:
        receipts = self._heard.get(message[0], {}) if self._hears else self._held
        for token in self._acknowledging.get(message, []):
            for epoch, held in receipts.items():
                told = [site for site, number in held.items() if number >= token.token_number]
                if epoch >= token.epoch and len(told) >= self._majority:
                    return True
        return False

    def on_released(self, fact: Released) -> None:
        """What the tokens behind it disclose decides whether a message is opened, at every site alike."""
        following = self._following(fact)
        if following is not None and len(following) < self._tokens:
            text = (
                f"{describe(fact.site)} released token {fact.token_number}, and does not hold the next {self._tokens}"
            )
            self._report("S20", fact.at, f"{text} tokens, which decide what is void")
            return
        for place, message in enumerate(fact.messages):
            link = fact.links[place] if place < len(fact.links) else b""
            sequence = fact.first_sequence + place
            text = f"{describe(fact.site)} released {label(*message.label)} of token {fact.token_number}"
            site, is_void = self._voids.setdefault(sequence, (fact.site, not link))
            if is_void != (not link):
                word = "opened" if link else "void"
                self._report("S20", fact.at, f"{text} {word}, and {describe(site)} otherwise")
            if link and not self._opens(message.label, (message.number, link), message.payload):
                self._report("S20", fact.at, f"{text} with a key that does not open it")
            elif following is not None and bool(link) != self._is_opened(message, following):
                word = "opened, and none" if link else "as void, and one"
                self._report("S20", fact.at, f"{text} {word} of the next {self._tokens} tokens opens it")
        trim(self._voids, _MESSAGES_MAX)

    def _following(self, fact: Released) -> list[Token] | None:
        """The tokens of the site's log that may open what is released; None where they are not known."""
        log = self._sites.get(fact.site, {})
        numbers = range(fact.token_number + 1, fact.token_number + self._tokens + 1)
        found = [self._logs.token(log[number]) for number in numbers if number in log]
        if fact.token_number not in log or None in found:
            return None
        return [token for token in found if token is not None]

    def _is_opened(self, message: Data, following: list[Token]) -> bool:
        source, number = message.label
        return any(
            one.source == source
            and one.number >= number
            and self._opens((source, number), (one.number, one.key), message.payload)
            for token in following
            for one in token.disclosures
        )
