"""Mutants that read too early, or differ on what is void: one rule about disclosed keys switched off each (§6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.disclosures import Discloser, DisclosureBook, Place
from isocast.ring.receiver import Receiver
from isocast.ring.source import PrimarySource
from isocast.simulation.mutants.ring import Mutant, switch_off
from isocast.terms.ids import NodeId
from isocast.wire.packets import Disclosure

__all__ = ["REVEAL_MUTANTS"]

_MUTANTS: list[Mutant] = []


class _HastyDiscloser(Discloser):
    def is_certified(self, place: Place) -> bool:  # noqa: ARG002
        return True

    def not_before(self, instant: int) -> int:  # noqa: ARG002
        return 0


class _HastySource(PrimarySource):
    discloser_class = _HastyDiscloser


class _LenientBook(DisclosureBook):
    """Opens what any token that is here discloses, however late."""

    def disclosed(self, token_number: int) -> list[Disclosure]:
        entries = self._ledger.entries
        return [one for number, entry in entries.items() if number > token_number for one in entry.token.disclosures]


class _HearsayBook(DisclosureBook):
    """Opens by what was heard, whether or not a token carries it."""

    def disclosed(self, token_number: int) -> list[Disclosure]:
        heard = [Disclosure(source, *link) for source, links in self._heard.items() for link in links.items()]
        return [*super().disclosed(token_number), *heard]


class _CredulousBook(DisclosureBook):
    """Takes every link of a later number for one of the message's own chain."""

    def fits(self, label: tuple[NodeId, int], link: bytes, sealed: bytes) -> bool:  # noqa: ARG002
        return True


class _HastyReceiver(Receiver):
    """Releases when the token is certified, without waiting for the tokens that may open or void its messages."""

    def may_release(self, token_number: int) -> bool:
        return self._releases and token_number <= self.certificates.certified


def _made_of(receiver: type[Receiver] = Receiver, book: type[DisclosureBook] = DisclosureBook) -> type[PrimaryReceiver]:
    parts = type("MutantParts", (receiver,), {"disclosures_class": book})
    return type("MutantReceiver", (PrimaryReceiver,), {"receiver_class": parts})


_register = partial(switch_off, _MUTANTS)


_register(
    "disclosed-before-receipts",
    "a source discloses a key only after it has seen receipts of a majority",
    source=_HastySource,
)
_register(
    "void-released",
    "a message that none of the next V tokens opens is void",
    receiver=_made_of(book=_LenientBook),
)
_register(
    "opened-by-hearsay",
    "only keys that a token carries open a message",
    receiver=_made_of(book=_HearsayBook),
)
_register(
    "key-off-the-chain",
    "a key counts only for a message that commits to it",
    receiver=_made_of(book=_CredulousBook),
)
_register(
    "released-before-settled",
    "nothing is released before the token that may make it void is certified",
    receiver=_made_of(receiver=_HastyReceiver),
)
_register(
    "chain-reused",
    "every start of a source begins chains of its own",
    same_chain=True,
)
REVEAL_MUTANTS: Sequence[Mutant] = tuple(_MUTANTS)
"""Each is caught where sources disclose keys, and one of them crashes."""
