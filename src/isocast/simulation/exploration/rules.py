"""The rules of reformation, switched off one at a time: the mutants that the model checker must find.

Four of them are the swarm's; the others give up several rules at once, as somebody would who stops half-way between the
paper and the protocol page. Nothing in the product's configuration reaches any of them.
"""

from __future__ import annotations

from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.ring.receiver import Mode, Receiver
from isocast.simulation.build import Build
from isocast.simulation.exploration.bounds import Bounds
from isocast.simulation.mutants import MUTANTS, Mutant
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.packets import Join, Token

__all__ = ["FOUND_AT", "RULES"]


class _TimedReceiver(Receiver):
    """§5: what is held is released when its instant has come."""

    def may_release(self, token_number: int) -> bool:
        return token_number <= self.held


class _TimedSite(PrimaryReceiver):
    receiver_class = _TimedReceiver


class _AnyServer(ReformationServer):
    """§4.3: whoever answers makes up the ring, which goes on after the highest token that any of them has."""

    @staticmethod
    def cut_key(vote: Join) -> tuple[Any, ...]:
        return (vote.held,)

    @staticmethod
    def enough(count: int, universe: tuple[NodeId, ...]) -> bool:  # noqa: ARG004
        return count >= 1


class _LiteralReceiver(_TimedReceiver):
    """The paper knows no epochs: a token is taken from whoever is due, and an invitation stops nobody."""

    def accepts(self, epoch: Epoch) -> bool:  # noqa: ARG002
        return True

    @property
    def mode(self) -> Mode:
        return Mode.NORMAL if self.ring is not None else Mode.SEALED

    def _doubt_clock(self, token: Token) -> None:
        """Nor does it doubt clocks."""


class _LiteralSite(PrimaryReceiver):
    receiver_class = _LiteralReceiver


def _mutant(name: str, rule: str, build: Build) -> Mutant:
    return Mutant(name, rule, 0, build)


RULES: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        _mutant(
            "paper-literal",
            "epochs fence old tokens off, a majority of U starts one, its cut is the greatest (e_acc, h),"
            " and a release waits for its gate",
            Build(receiver=_LiteralSite, server=_AnyServer),
        ),
        _mutant(
            "epochs-only",
            "a majority of U starts an epoch, its cut is the greatest (e_acc, h), and a release waits for its gate",
            Build(receiver=_TimedSite, server=_AnyServer),
        ),
        MUTANTS["release-on-time-alone"],
        MUTANTS["greatest-held"],
        MUTANTS["half-is-enough"],
        MUTANTS["vote-without-disk"],
    )
}
"""By name: the six that the protocol page names."""

FOUND_AT: dict[str, Bounds] = {
    "paper-literal": Bounds(servers=1, tokens=1),
    "epochs-only": Bounds(servers=1, tokens=1),
    "release-on-time-alone": Bounds(servers=1, tokens=1),
    "greatest-held": Bounds(tokens=1, more_votes=False),
    "half-is-enough": Bounds(servers=1, tokens=1),
    "vote-without-disk": Bounds(servers=1, tokens=1, lost_disks=1, more_votes=False),
}
"""Bounds within which each tells two stories; as small as they can be, so that a trace is short to read."""
