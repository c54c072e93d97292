"""Proofs of a broken promise (§6): two contents that one owner signed for one token, or one site for one receipt.

Both must name the same stripe and epoch: parallel rings number their tokens alike, and after truncation another epoch
issues a number again, so nobody is convicted by tokens of another stripe or epoch. A proof shows that a promise was
broken, not why: a site that lost its disk and went on all the same breaks it too.

Whoever is convicted counts in no majority and is left out of the next ring; U keeps its size until an operator removes
the site.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ring.notary import Notary
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.packets import Receipt, Token
from isocast.wire.token_body import token_digest

__all__ = ["Court", "Evidence"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Two packets that their author's signatures vouch for, and that cannot both be true."""

    first: Token | Receipt
    second: Token | Receipt

    @property
    def author(self) -> NodeId:
        """Who signed both."""
        return self.first.sender

    @property
    def stripe(self) -> int:
        """Of both."""
        return self.first.stripe

    @property
    def epoch(self) -> Epoch:
        """Of both."""
        return self.first.epoch

    @property
    def number(self) -> int:
        """The token, or the one up to which everything is held."""
        return _number(self.first)

    @property
    def contradicts(self) -> bool:
        """Whether the two are of one author, stripe, epoch, kind and number, and differ in content."""
        first, second = self.first, self.second
        same = (type(first), first.stripe, first.epoch, first.sender, _number(first)) == (
            type(second), second.stripe, second.epoch, second.sender, _number(second),
        )  # fmt: skip
        return same and _content(first) != _content(second)


def _number(packet: Token | Receipt) -> int:
    return packet.token_number if isinstance(packet, Token) else packet.held


def _content(packet: Token | Receipt) -> bytes:
    return token_digest(packet) if isinstance(packet, Token) else packet.digest


class Court:
    """Weighs what contradicts itself, and remembers who was convicted."""

    def __init__(self, notary: Notary) -> None:
        """Nobody is convicted."""
        self.convicted: dict[NodeId, None] = {}
        """Sites that broke a promise; for good."""
        self._notary = notary

    def weigh(self, first: Token | Receipt, second: Token | Receipt) -> Evidence | None:
        """The proof, if this is one and the first against its author."""
        evidence = Evidence(first, second)
        if not self._notary.verifies or evidence.author in self.convicted or not self.proves(evidence):
            return None
        self.convicted[evidence.author] = None
        return evidence

    def proves(self, evidence: Evidence) -> bool:
        """Whether the two contradict each other, and their author signed both."""
        return evidence.contradicts and all(self._notary.is_genuine(one) for one in (evidence.first, evidence.second))
