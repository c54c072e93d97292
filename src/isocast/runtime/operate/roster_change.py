"""Bring the newest roster and revocations of this machine's keys directory to its running nodes.

First every node reads the files: it then believes the new roster, and no revoked key. Then a site on the ring puts the
roster into the sequence, and every receiver applies it at the same token; while the ring re-forms, that waits. On a
machine without a site of the ring only the first half happens; the other is another machine's. Safe to repeat: what is
so already is not done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import load_roster
from isocast.runtime.operate.operator_door import NobodyListensError, OperatorError, ask
from isocast.runtime.operate.ring_change import RingChange

__all__ = ["RosterChange", "RosterState"]

_LOOK_S = 0.1
_ASK_S = 10.0


@dataclass(frozen=True, slots=True)
class RosterState:
    """What one running node says of rosters."""

    newest: int
    """The serial of the newest that it knows."""
    counting: int
    """The serial of the one that counts."""
    revoked: int


class RosterChange:
    """Tells the nodes of one market on this machine. `told` hears what is being waited for."""

    def __init__(
        self, market: Market, told: Callable[[str], None] = lambda _: None, patience_s: float | None = None
    ) -> None:
        """`patience_s` is how long to wait for a ring, and then for a roster to count."""
        self._market = market
        self._told = told
        self._patience_s = RingChange(market).patience_s if patience_s is None else patience_s

    async def tell(self) -> dict[str, RosterState]:
        """Let every node here read the files; OperatorError for one that is up and cannot."""
        names = [plan.name for plan in self._market.nodes]
        return await self._states(names)

    async def _look(self, name: str) -> RosterState | None:
        try:
            answer = await ask(self._market.directory_of(name), "roster", seconds=_ASK_S)
        except NobodyListensError:
            return None
        except OperatorError as reason:
            raise OperatorError(f"{name}: {reason}") from None
        return _state(answer)

    async def apply(self) -> dict[str, RosterState]:
        """Tell every node here, and put the newest roster into force in every stripe with a site of the ring here."""
        states = await self.tell()
        serial = load_roster(self._market).serial
        for stripe in self._market.stripes:
            share = self._market.of_stripe(stripe)
            sites = {plan.name for plan in share.nodes if plan.node in share.universe and plan.name in states}
            counting = min((states[name].counting for name in sites), default=serial)
            for later in range(counting + 1, serial + 1):
                await self._put(share, later)
        return await self.tell()

    async def _put(self, share: Market, serial: int) -> None:
        """Put one roster into force in one stripe, and wait until its receivers here count it."""
        ring = RingChange(share, self._told, self._patience_s)
        views = await ring.views()
        if not any(view.site in view.universe and not view.leaving for view in views.values()):
            return
        # While a ring re-forms nobody can announce anything: to go away then would leave the roster out of force.
        speaker = await ring.member_when_ready(f"roster {serial} to be announced")
        await ring.ask(speaker, "announce-roster", serial=serial)
        epoch = views[speaker].epoch if speaker in views else ""
        self._told(f"roster {serial} to count")
        deadline = monotonic() + self._patience_s
        while behind := [name for name, state in (await self._states(views)).items() if state.counting < serial]:
            if monotonic() > deadline:
                rule = f"roster {serial} is announced, and does not count at {', '.join(behind)}"
                raise OperatorError(
                    f"{rule} after {self._patience_s:.0f} s: see whether the ring runs, and repeat this"
                )
            await asyncio.sleep(_LOOK_S)
            now = await ring.view(speaker)
            if now is not None and now.epoch != epoch:
                # The new ring may have cut the announcement off; where it has not, another changes nothing.
                epoch = now.epoch
                with suppress(OperatorError):
                    await ring.ask(speaker, "announce-roster", serial=serial)

    async def _states(self, names: Iterable[str]) -> dict[str, RosterState]:
        """Of those that are up."""
        asked = list(names)
        found = await asyncio.gather(*[self._look(name) for name in asked])
        return {name: state for name, state in zip(asked, found, strict=True) if state is not None}


def _state(answer: Mapping[str, Any]) -> RosterState:
    return RosterState(int(answer["newest"]), int(answer["counting"]), int(answer["revoked"]))
