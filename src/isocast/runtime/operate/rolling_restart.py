"""Node after node started anew, for a new version or a new market file, while the market goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.operate.operator_door import NobodyListensError, OperatorError
from isocast.runtime.operate.ring_change import Change

__all__ = ["RollingRestart", "restart_order"]

_LOOK_S = 0.05
_ANSWER_S = 2.0
_ORDER = (
    NodeRole.REFORMATION_SERVER,
    NodeRole.RETRANSMIT_SERVER,
    NodeRole.SECONDARY_RECEIVER,
    NodeRole.PRIMARY_RECEIVER,
    NodeRole.PRIMARY_SOURCE,
    NodeRole.SECONDARY_SOURCE,
    NodeRole.CUSTOMER,
)
"""Those whom others rest on least come first."""


def restart_order(market: Market, names: Iterable[str] = ()) -> list[NodePlan]:
    """All nodes that this market starts, or those named (a node in all its stripes), in the order to restart them."""
    wanted = set(names)
    plans = [plan for plan in market.nodes if ({plan.name, plan.origin} & wanted if wanted else plan.start)]
    return sorted(plans, key=lambda plan: _ORDER.index(plan.role))


class RollingRestart:
    """Starts node after node anew, each only when the one before is back."""

    def __init__(self, change: Change, told: Callable[[str], None] = lambda _: None) -> None:
        """`told` hears each node when it is back, and what could not be done in the best way."""
        self._change = change
        self._told = told

    async def up(self, plans: Iterable[NodePlan]) -> list[NodePlan]:
        """Those that run on this machine; of the others `told` hears that they are left out."""
        found = []
        for plan in plans:
            try:
                await self._change.ask(plan.name, "status", seconds=_ANSWER_S)
            except NobodyListensError:
                self._told(f"{plan.name} is not up on this machine: left out")
            else:
                found.append(plan)
        return found

    async def run(self, plans: Sequence[NodePlan]) -> None:
        """All of them; OperatorError names the one that did not come back, and those that were not touched."""
        for at, plan in enumerate(plans):
            try:
                await self.restart(plan)
            except OperatorError as reason:
                rest = " ".join(one.name for one in plans[at + 1 :])
                left = f"; not restarted: {rest}" if rest else ""
                raise OperatorError(f"{reason}{left}") from None
            self._told(f"{plan.name} is back")

    async def restart(self, plan: NodePlan) -> None:
        """One node: off the ring first, if it is on one; then down, up, and back on."""
        change = self._change.of(plan)
        voter = plan.role is NodeRole.PRIMARY_RECEIVER
        member = voter and await self._drained(plan)
        before = await self._pid(plan)
        await change.ask(plan.name, "restart")
        await self._back(plan, before)
        if member:
            await change.on_ring(plan)

    async def _drained(self, plan: NodePlan) -> bool:
        """Whether it was on the ring. One that the ring cannot do without is restarted all the same, if others can."""
        change = self._change.of(plan)
        view = await change.view(plan.name)
        if view is None or plan.node not in view.ring:
            return view is not None and plan.node in view.universe
        await change.spare(plan, self._told)
        try:
            await change.drain(plan)
        except OperatorError as reason:
            await change.spare(plan, self._told)  # Somebody may have fallen meanwhile.
            self._told(f"{reason}: it is restarted all the same, and the ring re-forms")
        return True

    async def _pid(self, plan: NodePlan) -> int:
        answer = await self._change.ask(plan.name, "status")
        return int(answer["status"]["pid"])

    async def _back(self, plan: NodePlan, before: int) -> None:
        """Wait until another process answers and is ready."""
        deadline = monotonic() + self._change.patience_s
        doubt = "it ended, and nobody started it again: isocast up and systemd do"
        while monotonic() < deadline:
            try:
                status = (await self._change.ask(plan.name, "status", seconds=_ANSWER_S))["status"]
                if status["pid"] != before:
                    if status["ready"]:
                        return
                    doubt = "; ".join(status["reasons"])
            except OperatorError:
                pass
            await asyncio.sleep(_LOOK_S)
        raise OperatorError(f"{plan.name} is not back after {self._change.patience_s:.0f} s: {doubt}")
