"""Planned changes of a running market: drain, add, remove, force, restart (protocol §5).

Each is a request at an operator's door and then a wait until the market says that it is so. Everything is safe to
ask for twice: what is already true is said to be, and what was interrupted goes on. All of it happens beside the
traffic; nothing is lost and nobody need stop publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from isocast.runtime.market import Market, NodePlan, NodeRole
from isocast.runtime.operator_door import OperatorError, ask
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND

__all__ = ["Change", "RingView", "RollingRestart", "restart_order"]

_LOOK_S = 0.05
_PATIENCE_S = 30.0
_NEAR_TOKENS = 8
"""A site so far behind the ring counts as caught up."""
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


@dataclass(frozen=True, slots=True)
class RingView:
    """The ring as one primary receiver sees it."""

    site: NodeId
    epoch: str
    mode: str
    ring: tuple[NodeId, ...]
    universe: tuple[NodeId, ...]
    settled: bool
    """Whether the last change of U is certified."""
    uncertified: bool
    leaving: bool
    held: int
    certified: int
    knows: frozenset[NodeId]
    """The nodes of the market file that it was started with."""
    outcomes: Mapping[str, str]
    """What became of requests that this site was given: by "KIND site"."""


def _view(answer: dict[str, Any]) -> RingView:
    return RingView(
        answer["site"],
        answer["epoch"],
        answer["mode"],
        tuple(answer["ring"]),
        tuple(answer["universe"]),
        answer["settled"],
        answer["uncertified"],
        answer["leaving"],
        answer["held"],
        answer["certified"],
        frozenset(answer["knows"]),
        dict(answer["outcomes"]),
    )


class Change:
    """Changes one market through the operator's doors on this machine. `told` hears what is being waited for."""

    def __init__(
        self, market: Market, told: Callable[[str], None] = lambda _: None, patience_s: float | None = None
    ) -> None:
        """`patience_s` is how long to wait for the market to follow."""
        self.market = market
        self._told = told
        timing = market.timing
        cycle_s = (len(market.universe) * timing.token_period_ns + timing.reformation_ns) / SECOND
        self.patience_s = _PATIENCE_S + 8 * cycle_s if patience_s is None else patience_s

    # Looking ------------------------------------------------------------------------------------

    async def ask(self, name: str, do: str, *, seconds: float = 30.0, **arguments: object) -> dict[str, Any]:
        """Ask one node; OperatorError with its name and reason."""
        try:
            return await ask(self.market.directory_of(name), do, seconds=seconds, **arguments)
        except OperatorError as reason:
            raise OperatorError(f"{name}: {reason}") from None

    async def view(self, name: str) -> RingView | None:
        """How a primary receiver sees the ring; None if it does not answer here."""
        try:
            return _view(await self.ask(name, "ring"))
        except (OperatorError, KeyError, TypeError):
            return None

    async def views(self) -> dict[str, RingView]:
        """Everybody who answers on this machine."""
        names = [plan.name for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER)]
        found = await asyncio.gather(*[self.view(name) for name in names])
        return {name: view for name, view in zip(names, found, strict=True) if view is not None}

    async def newest(self) -> RingView:
        """The view of whoever knows the newest ring."""
        views = await self.views()
        if not views:
            where = self.market.data_directory
            raise OperatorError(f"no primary receiver answers below {where}: run this where one is, as its user")
        return max(views.values(), key=lambda view: (view.epoch != "0", view.held))

    async def _member(self) -> str:
        """Somebody on the ring who can carry a request."""
        views = await self.views()
        for name, view in sorted(views.items(), key=lambda item: -item[1].held):
            if view.site in view.ring and view.mode == "normal" and not view.leaving:
                return name
        raise OperatorError("nobody on this machine is on the ring: wait until it has formed, or run this elsewhere")

    async def until(self, what: str, so: Callable[[dict[str, RingView]], bool], otherwise: str) -> dict[str, RingView]:
        """Wait until what everybody says makes it so."""
        self._told(what)
        deadline = monotonic() + self.patience_s
        while True:
            views = await self.views()
            if views and so(views):
                return views
            if monotonic() > deadline:
                raise OperatorError(f"{what}: not so after {self.patience_s:.0f} s. {otherwise}")
            await asyncio.sleep(_LOOK_S)

    # Leaving and coming back --------------------------------------------------------------------

    async def drain(self, plan: NodePlan) -> RingView:
        """Take a site off the ring, so that it can be stopped without anybody waiting for it."""
        view = await self.view(plan.name)
        if view is None:
            await self.ask(plan.name, "ring")  # Says why.
        newest = await self.newest()
        others = [site for site in newest.ring if site != plan.node]
        if plan.node in newest.ring and len(others) < len(newest.universe) // 2 + 1:
            need = len(newest.universe) // 2 + 1
            rule = (
                f"the ring has {len(newest.ring)} of {len(newest.universe)} sites and cannot do with fewer than {need}"
            )
            raise OperatorError(f"{plan.name} cannot leave: {rule}")
        await self.ask(plan.name, "drain", leaving=True)
        views = await self.until(
            f"a ring without {plan.name}",
            lambda views: plan.name in views and _off(plan.node, views),
            "It stays asked for: isocast ring status shows what the ring waits for.",
        )
        return views[plan.name]

    async def undrain(self, plan: NodePlan) -> RingView:
        """Let a site come back."""
        await self.ask(plan.name, "drain", leaving=False)
        return await self.on_ring(plan)

    async def on_ring(self, plan: NodePlan) -> RingView:
        """Wait until a site is on the ring, as it and everybody else here sees it."""
        views = await self.until(
            f"a ring with {plan.name}",
            lambda views: plan.name in views and all(plan.node in view.ring for view in views.values()),
            f"Is {plan.name} up and in U, and is its clock within its bound?",
        )
        return views[plan.name]

    # U ------------------------------------------------------------------------------------------

    async def add(self, plan: NodePlan) -> RingView:
        """Make a site that follows the ring a member of U, and let it in."""
        newest = await self.newest()
        self._insist_that_all_know(plan, await self.views())
        if plan.node not in newest.universe:
            await self.until(
                f"{plan.name} to catch up with the ring",
                lambda views: (
                    plan.name in views
                    and views[plan.name].held >= max(view.held for view in views.values()) - _NEAR_TOKENS > 0
                ),
                f"Is it up? Its first start says --join: isocast node --name {plan.name} --join",
            )
            await self._change("add-site", f"U with {plan.name}", plan, lambda universe: plan.node in universe)
        return await self.on_ring(plan)

    async def remove(self, plan: NodePlan) -> RingView:
        """Take a site out of U, alive or dead, and off the ring."""
        newest = await self.newest()
        if plan.node in newest.universe:
            if plan.node in newest.ring and await self.view(plan.name) is not None:
                await self.drain(plan)
            await self._change(
                "remove-site", f"U without {plan.name}", plan, lambda universe: plan.node not in universe
            )
        views = await self.until(
            f"a ring without {plan.name}",
            lambda views: _off(plan.node, _others(views, plan.node)),
            "It stays asked for: isocast ring status shows what the ring waits for.",
        )
        return next(iter(_others(views, plan.node).values()))

    async def force(self, survivors: Iterable[NodePlan]) -> RingView:
        """U becomes these sites, on an operator's word: the others never come back."""
        sites = sorted(plan.node for plan in survivors)
        names = [plan.name for plan in self.market.by_role(NodeRole.REFORMATION_SERVER)]
        refused: list[str] = []
        for name in names:
            try:
                await self.ask(name, "force", universe=sites)
                break
            except OperatorError as reason:
                refused.append(str(reason))
        else:
            raise OperatorError("; ".join(refused) or "this market has no reformation server")
        views = await self.until(
            f"U of {len(sites)} sites, by force",
            lambda views: _certified(views, lambda universe: sorted(universe) == sites),
            "All of them must be up and hear one another.",
        )
        return next(iter(views.values()))

    async def _change(self, do: str, what: str, plan: NodePlan, so: Callable[[tuple[NodeId, ...]], bool]) -> None:
        """Have U changed; a request that fell with the site that carried it is given to another."""
        await self.until("the last change of U to settle", _settled, "A majority of U must be up to certify it.")
        key = f"{do.replace('-', '_').upper()} {plan.node}"
        deadline = monotonic() + self.patience_s
        while monotonic() < deadline:
            carrier = await self._member()
            await self.ask(carrier, do, site=plan.node)

            def over(views: dict[str, RingView], carrier: str = carrier) -> bool:
                fell = carrier not in views or views[carrier].outcomes.get(key) == "off-ring"
                return fell or _certified(_others(views, plan.node), so)

            views = await self.until(what, over, "A majority of U must be up to certify it.")
            if _certified(_others(views, plan.node), so):
                return
            await asyncio.sleep(_LOOK_S)
        raise OperatorError(f"{what}: those who carried the request left the ring: ask again")

    def _insist_that_all_know(self, plan: NodePlan, views: dict[str, RingView]) -> None:
        behind = [name for name, view in views.items() if plan.node not in view.knows]
        if behind:
            names = ", ".join(behind)
            rule = f"started with a market file that has no {plan.name}: isocast ring restart rolls the new one out"
            raise OperatorError(f"{names}: {rule}")


def _off(site: NodeId, views: dict[str, RingView]) -> bool:
    """Everybody else's ring does without the site, and is at work."""
    return all(site not in view.ring and view.mode != "sealed" for view in views.values())


def _others(views: dict[str, RingView], site: NodeId) -> dict[str, RingView]:
    return {name: view for name, view in views.items() if view.site != site}


def _certified(views: dict[str, RingView], so: Callable[[tuple[NodeId, ...]], bool]) -> bool:
    on_ring = [view for view in views.values() if view.site in view.ring]
    return bool(on_ring) and all(view.settled and so(view.universe) for view in on_ring)


def _settled(views: dict[str, RingView]) -> bool:
    return all(view.settled for view in views.values() if view.site in view.ring)


def restart_order(market: Market, names: Iterable[str] = ()) -> list[NodePlan]:
    """All nodes that this market starts, or those named, in the order in which to restart them."""
    wanted = set(names)
    plans = [plan for plan in market.nodes if (plan.name in wanted if wanted else plan.start)]
    return sorted(plans, key=lambda plan: _ORDER.index(plan.role))


class RollingRestart:
    """Starts node after node anew, each only when the one before is back: for a new version, or a new market file."""

    def __init__(self, change: Change, told: Callable[[str], None] = lambda _: None) -> None:
        """`told` hears each node when it is back, and what could not be done in the best way."""
        self._change = change
        self._told = told

    async def run(self, plans: Iterable[NodePlan]) -> None:
        """All of them; OperatorError names the one that did not come back, and the rest is untouched."""
        for plan in plans:
            await self.restart(plan)
            self._told(f"{plan.name} is back")

    async def restart(self, plan: NodePlan) -> None:
        """One node: off the ring first, if it is on one; then down, up, and back on."""
        change = self._change
        voter = plan.role is NodeRole.PRIMARY_RECEIVER
        member = voter and await self._drained(plan)
        before = await self._pid(plan)
        await change.ask(plan.name, "restart")
        await self._back(plan, before)
        if member:
            await change.on_ring(plan)

    async def _drained(self, plan: NodePlan) -> bool:
        """Whether it was on the ring. One that the ring cannot do without is restarted all the same."""
        view = await self._change.view(plan.name)
        if view is None or plan.node not in view.ring:
            return view is not None and plan.node in view.universe
        try:
            await self._change.drain(plan)
        except OperatorError as reason:
            self._told(f"{reason}: it is restarted all the same, and the ring waits for it")
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
                status = (await self._change.ask(plan.name, "status", seconds=2.0))["status"]
                if status["pid"] != before:
                    if status["ready"]:
                        return
                    doubt = "; ".join(status["reasons"])
            except OperatorError:
                pass
            await asyncio.sleep(_LOOK_S)
        raise OperatorError(f"{plan.name} is not back after {self._change.patience_s:.0f} s: {doubt}")
