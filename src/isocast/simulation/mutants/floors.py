"""Mutants of the distributed trading floor: one rule of its arbiters or of the floor switched off each (§7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from isocast.floor.arbiter import Arbiter, ArbiterEffect, Standing, StepRecord, TokenReleased
from isocast.floor.following import FloorFollower, FloorStep
from isocast.floor.machine import Floor, SymbolState
from isocast.simulation.mutants.ring import Mutant, switch_off
from isocast.terms.ids import NodeId

__all__ = ["FLOOR_MUTANTS"]

_MUTANTS: list[Mutant] = []
_register = partial(switch_off, _MUTANTS)


def _with(standing: type[Standing] = Standing, floor: type[Floor] = Floor) -> type[Arbiter]:
    follower = type("MutantFollower", (FloorFollower,), {"floor_class": floor})
    return type("MutantArbiter", (Arbiter,), {"standing_class": standing, "follower_class": follower})


# Arbiters ---------------------------------------------------------------------------------------------------------


class _Hasty(Standing):
    def is_stable(self, reported: int, stable: int) -> bool:  # noqa: ARG002
        return reported > 0


class _Renumbering(Standing):
    """Numbers what it takes over behind the last trade that is confirmed."""

    def _report(self, record: StepRecord, event: TokenReleased) -> list[ArbiterEffect]:
        result = record.result
        if result.token == event.token:
            return super()._report(record, event)
        anew = tuple([trade._replace(number=number) for number, trade in enumerate(result.trades, self.confirmed + 1)])
        return super()._report(replace(record, result=result._replace(trades=anew)), event)


class _Silent(Standing):
    """Says what is due at its own tokens alone."""

    def _publish(self, event: TokenReleased) -> list[ArbiterEffect]:
        own = self.records.get(event.token)
        if not event.is_own or own is not None:
            return self._report(own, event) if event.is_own and own is not None else []
        return self._announce(event) if any(token == event.token for _, token, _ in self.unannounced) else []


# The floor --------------------------------------------------------------------------------------------------------


class _Backwards(FloorFollower):
    """Applies the events of a token from the last to the first."""

    def finish(self) -> FloorStep | None:
        self._kept.reverse()
        return super().finish()


class _OneBackwards(Arbiter):
    """One site has an order of its own."""

    def __init__(self, code: str, site: NodeId, snapshot: bytes | None = None, **more: Any) -> None:  # noqa: ANN401
        if site == 2:  # noqa: PLR2004 (any of them)
            self.follower_class = _Backwards
        super().__init__(code, site, snapshot, **more)


class _WakingTwice(Floor):
    """Leaves a copy of each stop that it wakes."""

    def _note_prices(self, state: SymbolState, prices: list[int]) -> None:
        before = len(self._woken)
        super()._note_prices(state, prices)
        for _, stop in list(self._woken)[before:]:
            self._woken.append((state, replace(stop)))


_register(
    "report-before-release",
    "an arbiter applies and reports a token when it is released, not when it is complete",
    floor_unreleased=True,
)
_register(
    "confirmed-before-stable",
    "a trade is confirmed when every member of a ring holds its report",
    arbiter=_with(standing=_Hasty),
)
_register(
    "takeover-numbers-anew",
    "trades are numbered by the floor, whoever reports them",
    arbiter=_with(standing=_Renumbering),
)
_register(
    "no-takeover",
    "what the owner of a token does not report, or announce, other owners do",
    arbiter=_with(standing=_Silent),
)
_register(
    "another-order-at-one-site",
    "every site applies the events of a token in the order of the sequence",
    arbiter=_OneBackwards,
)
_register(
    "stop-woken-twice",
    "a stop that is woken enters the book once",
    arbiter=_with(floor=_WakingTwice),
)
FLOOR_MUTANTS: Sequence[Mutant] = tuple(_MUTANTS)
"""Each is caught where receivers are a trading floor, and some of them crash."""
