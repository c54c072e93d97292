"""Mutants of the rules that keep wrong clocks from stopping the market (L7, F3)."""

from __future__ import annotations

from isocast.reformation.ballot import Ballot
from isocast.reformation.server import ReformationServer
from isocast.ring.issuing import Issuer
from isocast.ring.receiver import Receiver
from isocast.simulation.build import Build
from isocast.simulation.mutant import Mutant, site_of
from isocast.terms.ids import NodeId

__all__ = ["CLOCK_MUTANTS"]


class _SelfAssuredServer(ReformationServer):
    def _members_now(self, now: int) -> int:
        return now


class _FirstServer(_SelfAssuredServer):
    # Only rings that begin at a wrong time show who may try again.
    def _turn(self) -> int:
        return self._rank


class _CredulousServer(ReformationServer):
    def _wrong(self, ballot: Ballot, now: int) -> tuple[NodeId, ...]:  # noqa: ARG002
        return ()


class _SkippingIssuer(Issuer):
    def set_back(self, held: int) -> None:
        """Go on where a clock that was ahead has left off."""


class _SkippingReceiver(Receiver):
    issuer_class = _SkippingIssuer


CLOCK_MUTANTS = (
    Mutant("start-by-own-clock", "a ring begins by the clocks of its voters, not by its server's alone", 0,
           Build(server=_SelfAssuredServer)),
    Mutant("fruitless-server-first", "a server whose ballots bring no token moves behind the others", 0,
           Build(server=_FirstServer)),
    Mutant("wrong-clocks-on-the-ring", "a voter whose clock is wrong stays off the ring", 0,
           Build(server=_CredulousServer)),
    Mutant("skipped-slots", "an owner takes up the slots that a clock ahead made it skip", 0,
           Build(receiver=site_of(_SkippingReceiver))),
)  # fmt: skip
"""Each breaks one rule."""
