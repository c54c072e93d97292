"""What a mutant is: the product with one rule switched off."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.member import Member
from isocast.ring.receiver import Receiver
from isocast.simulation.build import Build

__all__ = ["Mutant", "site_of"]


@dataclass(frozen=True)
class Mutant:
    """One rule switched off."""

    name: str
    rule: str
    """The rule of the protocol that it breaks."""
    mistake: int
    """Its number among the ten mistakes to expect; 0 for one of ours."""
    build: Build


def site_of(receiver: type[Receiver] = Receiver, member: type[Member] = Member) -> type[PrimaryReceiver]:
    """A site made of the given halves."""
    return type("MutantReceiver", (PrimaryReceiver,), {"receiver_class": receiver, "member_class": member})
