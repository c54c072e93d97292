"""Mutants that believe liars: one rule about signatures or evidence switched off each (§6)."""

from __future__ import annotations

from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.member import Member
from isocast.ring.court import Court, Evidence
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.security.roster import Revocation, RosterBook
from isocast.simulation.mutants.ring import Mutant, switch_off
from isocast.terms.ids import Epoch, NodeId, server_id
from isocast.wire.packets import NewRing, Receipt, Repair, Token, Vote
from isocast.wire.statements import SignedPacket

__all__ = ["LIAR_MUTANTS"]

_MUTANTS: list[Mutant] = []


def _blinded(notary: Notary | None, kind: type) -> Notary | None:
    """The same notary, which believes every packet of a kind."""
    if notary is None or not notary.verifies:
        return notary

    class Blind(type(notary)):  # type: ignore[misc]
        def is_genuine(self, packet: SignedPacket) -> bool:
            return isinstance(packet, kind) or super().is_genuine(packet)

    notary.__class__ = Blind
    return notary


def _site_blind_to(kind: type) -> type[PrimaryReceiver]:
    class BlindSite(PrimaryReceiver):
        def __init__(self, *given: Any, notary: Notary | None = None, **named: Any) -> None:  # noqa: ANN401
            super().__init__(*given, notary=_blinded(notary, kind), **named)

    return BlindSite


class _CarelessNotary(Notary):
    """Believes votes of other ballots, too."""

    def is_vote(self, vote: Vote, ballot: Epoch, stripe: int) -> bool:
        ballots = [Epoch(number, server) for number in range(1, ballot.number + 1) for server in _SERVERS]
        return any(super(_CarelessNotary, self).is_vote(vote, one, stripe) for one in ballots)


class _TrustingNotary(Notary):
    """Believes every vote that a server shows."""

    def is_vote(self, vote: Vote, ballot: Epoch, stripe: int) -> bool:  # noqa: ARG002
        return True


def _site_with(notary_class: type[Notary]) -> type[PrimaryReceiver]:
    class CarelessSite(PrimaryReceiver):
        def __init__(self, *given: Any, notary: Notary | None = None, **named: Any) -> None:  # noqa: ANN401
            if notary is not None and notary.verifies:
                notary.__class__ = notary_class
            super().__init__(*given, notary=notary, **named)

    return CarelessSite


_SERVERS = tuple(map(server_id, range(1, 4)))
"""A simulated world has no more."""


class _RepairedReceiver(Receiver):
    """Takes a token that comes as a repair for granted."""

    def on_event(self, event: Any, now: int) -> None:  # noqa: ANN401
        if not isinstance(event, Repair) or not self.notary.verifies:
            super().on_event(event, now)
            return
        careful = type(self.notary)
        _blinded(self.notary, Token)
        super().on_event(event, now)
        self.notary.__class__ = careful


class _LenientReceiver(Receiver):
    """Counts the receipts of convicted sites."""

    def convict(self, site: NodeId) -> None:
        super().convict(site)
        self.certificates.excluded.clear()
        self._certify()


class _HearsayCourt(Court):
    """Believes an accusation."""

    def proves(self, evidence: Evidence) -> bool:
        return evidence.contradicts


class _HearsayReceiver(Receiver):
    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self.court.__class__ = _HearsayCourt


class _EasilyHeldReceiver(Receiver):
    """Any word against a token holds its release back."""

    def _question(self, receipt: Receipt, now: int) -> None:
        signs, self.notary.receipts = self.notary.receipts, False
        super()._question(receipt, now)
        self.notary.receipts = signs


class _AgelessBook(RosterBook):
    """A node that was listed once is believed for ever."""

    def key_of(
        self,
        node: NodeId,
        serial: int,
        token_number: int | None = None,  # noqa: ARG002
        stripe: int | None = None,
        now_ns: int | None = None,
        *,
        settled: bool = False,
    ) -> bytes | None:
        roster = self.of_serial(serial)
        public = None if roster is None else roster.public_of(node, stripe, now_ns)
        return public if settled else self._alive(public)


class _ForgivingBook(RosterBook):
    """Hears of revocations, and believes the keys."""

    def revoke(self, revocation: Revocation) -> bool:  # noqa: ARG002
        return False


class _CredulousMember(Member):
    def is_voted(self, ring: NewRing) -> bool:  # noqa: ARG002
        return True


class _HastyReceiver(Receiver):
    def _question(self, receipt: Receipt, now: int) -> None:
        """Neither asks nor waits."""


class _SubservientReceiver(Receiver):
    def is_ordered(self, token: Token) -> bool:  # noqa: ARG002
        return True


def _made_of(receiver: type[Receiver] = Receiver, member: type[Member] = Member) -> type[PrimaryReceiver]:
    return type("LiarsFriend", (PrimaryReceiver,), {"receiver_class": receiver, "member_class": member})


switch_off(
    _MUTANTS,
    "token-signature-unchecked",
    "a token counts only with the signature of its owner",
    receiver=_site_blind_to(Token),
)
switch_off(
    _MUTANTS,
    "votes-unchecked",
    "a ring counts only with its server's signature and the votes of a majority of U",
    receiver=_made_of(member=_CredulousMember),
)
switch_off(
    _MUTANTS,
    "order-unchecked",
    "a token that changes U counts only with an operator's order",
    receiver=_made_of(_SubservientReceiver),
)
switch_off(
    _MUTANTS,
    "contested-released",
    "a token of which somebody vouches for another content is not released before it is asked for",
    receiver=_made_of(_HastyReceiver),
)
switch_off(
    _MUTANTS,
    "vote-of-another-ballot",
    "a vote counts for the ballot for which it was cast, and for no other",
    receiver=_site_with(_CarelessNotary),
)
switch_off(
    _MUTANTS,
    "votes-made-up",
    "a vote that a ring shows counts only with its voter's signature",
    receiver=_site_with(_TrustingNotary),
)
switch_off(
    _MUTANTS,
    "receipt-signature-unchecked",
    "where receipts are signed, a receipt counts only with the signature of its site",
    receiver=_site_blind_to(Receipt),
)
switch_off(
    _MUTANTS,
    "repaired-token-unchecked",
    "a token that comes as a repair counts only with the signature of its owner",
    receiver=_made_of(_RepairedReceiver),
)
switch_off(
    _MUTANTS,
    "convicted-counted",
    "whoever is convicted counts in no majority",
    receiver=_made_of(_LenientReceiver),
)
switch_off(
    _MUTANTS,
    "evidence-unchecked",
    "nobody is convicted without two signatures of his own",
    receiver=_made_of(_HearsayReceiver),
)
switch_off(
    _MUTANTS,
    "held-back-by-anybody",
    "where receipts are signed, only a genuine one holds a release back",
    receiver=_made_of(_EasilyHeldReceiver),
)
switch_off(
    _MUTANTS,
    "old-rosters-count",
    "what is signed under an older roster than the one in force is refused",
    book=_AgelessBook,
)
switch_off(_MUTANTS, "revoked-believed", "a revoked key counts no more wherever the word comes", book=_ForgivingBook)
LIAR_MUTANTS = tuple(_MUTANTS)
"""Each is caught where a member lies."""
