"""Mutants of the rules of planned changes, and of rings without a majority."""

from __future__ import annotations

from isocast.ring.membership import Membership
from isocast.ring.ordering import Ordering
from isocast.ring.receiver import Receiver
from isocast.ring.release import Releaser
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.simulation.build import Build
from isocast.simulation.mutant import Mutant, site_of
from isocast.terms.ids import NodeId
from isocast.wire.packets import NewRing

__all__ = ["CHANGE_MUTANTS"]


class _HastyMembership(Membership):
    changes_max = 2

    def settled(self, receiver: Ordering, ring: NewRing) -> bool:  # noqa: ARG002
        return True


class _HastyReceiver(Receiver):
    membership_class = _HastyMembership


class _FoundersReceiver(Receiver):
    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes, state: SiteState) -> None:
        self._founders = state.checkpoint.universe
        super().__init__(site, settings, secret, state)

    def _certify(self) -> None:
        if self._founders:
            self.certificates.certify(self._founders, self.held)
        super()._certify()


class _SilentReceiver(Receiver):
    @property
    def may_lose(self) -> bool:
        return False


class _RepeatingReleaser(Releaser):
    def take_over(self, token_number: int, next_sequence: int) -> None:
        self.restore(token_number, 0, next_sequence, next_sequence)


class _RepeatingReceiver(Receiver):
    releaser_class = _RepeatingReleaser


def _mutant(name: str, rule: str, receiver: type[Receiver]) -> Mutant:
    return Mutant(name, rule, 0, Build(receiver=site_of(receiver)))


CHANGE_MUTANTS = (
    _mutant("two-changes-at-once", "a change of U is certified before the next one begins", _HastyReceiver),
    _mutant("founders-only", "U is that of the log: whoever was added counts, whoever was removed does not",
            _FoundersReceiver),
    _mutant("unmarked-releases", "what is released without a majority of U says so", _SilentReceiver),
    _mutant("release-again", "what was released before a log was given up is never released again",
            _RepeatingReceiver),
)  # fmt: skip
"""Each breaks one rule."""
