"""Planned changes of a running market: drain, add, remove, force (protocol §5); and a rolling restart.

Each is a request at an operator's door and then a wait until the market says that it is so. Everything is safe to
ask for twice: what is already true is said to be, and what was interrupted goes on. All of it happens beside the
traffic; nothing is lost and nobody need stop publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.operate.operator_door import NobodyListensError, OperatorError, ask
from isocast.runtime.operate.orders import OperatorHand
from isocast.runtime.watch.status import node_target, poll
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND
from isocast.wire.orders import force_entry
from isocast.wire.packets import ControlEntry, ControlKind

__all__ = ["RingChange", "RingView", "RollingRestart", "restart_order"]


_LOOK_S = 0.05
_VIEW_S = 2.0
"""A process that hangs must not hold up every look at the others."""
_PATIENCE_S = 30.0
_FELL = ("off-ring", "stale")
"""What became of a request that is to be given again: to another site, or signed anew."""
_NEAR_TOKENS = 8
"""A site so far behind the ring counts as caught up."""


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
    left_out: frozenset[NodeId] = frozenset()
    """Sites that a forced change left out of U."""
    order: int = 0
    """The number of the last operator's order in its log."""
    roster: int = 0
    """The serial of the roster in force; 0: the market has none."""


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
        frozenset(answer.get("left_out", ())),
        answer.get("order", 0),
        answer.get("roster", 0),
    )


class RingChange:
    """Changes one market through the operator's doors on this machine. `told` hears what is being waited for."""

    def __init__(
        self,
        market: Market,
        told: Callable[[str], None] = lambda _: None,
        patience_s: float | None = None,
        hand: OperatorHand | None = None,
    ) -> None:
        """`patience_s` is how long to wait for the market to follow; `hand` signs what only an operator may order."""
        self.market = market
        self._hand = hand or OperatorHand(market)
        self._told = told
        timing = market.timing
        cycle_s = (len(market.universe) * timing.token_period_ns + timing.reformation_ns) / SECOND
        self.patience_s = _PATIENCE_S + 8 * cycle_s if patience_s is None else patience_s

    def of(self, plan: NodePlan) -> RingChange:
        """The same for the ring of a node's stripe."""
        share = self.market.of_stripe(plan.stripe)
        return self if share is self.market else RingChange(share, self._told, self.patience_s, self._hand)

    # Looking ------------------------------------------------------------------------------------

    async def ask(self, name: str, do: str, *, seconds: float = 30.0, **arguments: object) -> dict[str, Any]:
        """Ask one node; OperatorError with its name and reason."""
        try:
            return await ask(self.market.directory_of(name), do, seconds=seconds, **arguments)
        except OperatorError as reason:
            raise type(reason)(f"{name}: {reason}") from None

    async def view(self, name: str) -> RingView | None:
        """How a primary receiver sees the ring; None if it does not answer here."""
        try:
            return _view(await self.ask(name, "ring", seconds=_VIEW_S))
        except (OperatorError, KeyError, TypeError):
            return None

    async def views(self) -> dict[str, RingView]:
        """Everybody who answers on this machine."""
        names = [plan.name for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER)]
        found = await asyncio.gather(*[self.view(name) for name in names])
        return {name: view for name, view in zip(names, found, strict=True) if view is not None}

    async def newest(self) -> RingView:
        """The view of the node that knows the newest ring."""
        views = await self.views()
        if not views:
            where = self.market.data_directory
            raise OperatorError(f"no primary receiver answers below {where}: run this where one is, as its user")
        return _newest(views)

    async def _member(self) -> str:
        """A receiver on the ring that can carry a request."""
        for name in _able(await self.views()):
            return name
        raise OperatorError(
            "no node of this machine is on the ring: wait until the ring has formed, or run this on another machine"
        )

    async def member_when_ready(self, what: str) -> str:
        """The same, once there is one: a ring may be re-forming."""
        rule = "See whether the ring runs: isocast ring status; or run this on another machine"
        views = await self.until(what, lambda views: bool(_able(views)), rule)
        return _able(views)[0]

    async def until(self, what: str, so: Callable[[dict[str, RingView]], bool], otherwise: str) -> dict[str, RingView]:
        """Wait until what everybody says makes it so; what is so already is not talked about."""
        deadline = monotonic() + self.patience_s
        told = False
        while True:
            views = await self.views()
            if views and so(views):
                return views
            if not told:
                self._told(what)
                told = True
            if monotonic() > deadline:
                raise OperatorError(f"{what}: not done after {self.patience_s:.0f} s. {otherwise}")
            await asyncio.sleep(_LOOK_S)

    # Leaving and coming back --------------------------------------------------------------------

    async def drain(self, plan: NodePlan) -> RingView:
        """Take a site off the ring, so that it can be stopped without anybody waiting for it."""
        view = await self.view(plan.name)
        if view is None:
            await self.ask(plan.name, "ring")  # Says why.
        await self.newest()
        views = await self.until("a ring at work", _at_work, "A majority of U must be up: isocast ring status.")
        self._insist_on_a_ring_without(plan, views)
        await self.ask(plan.name, "drain", leaving=True)
        try:  # Somebody else may have been drained at the same moment: neither would ever be let go.
            self._insist_on_a_ring_without(plan, await self.views())
        except OperatorError:
            await self.ask(plan.name, "drain", leaving=False)
            raise
        views = await self.until(
            f"a ring without {plan.name}",
            lambda views: plan.name in views and _off(plan.node, views),
            "It stays asked for: isocast ring status shows what the ring waits for.",
        )
        return views[plan.name]

    async def undrain(self, plan: NodePlan) -> RingView:
        """Let a site come back."""
        await self.ask(plan.name, "drain", leaving=False)
        if plan.node not in (await self.newest()).universe:
            raise OperatorError(f"{plan.name} is not in U, so no ring takes it: isocast ring add {plan.name}")
        return await self.on_ring(plan)

    async def on_ring(self, plan: NodePlan, *, here: bool = True) -> RingView:
        """Wait until a site is on the ring, as everybody on this machine sees it, and it itself if it is `here`."""
        views = await self.until(
            f"a ring with {plan.name}",
            lambda views: (plan.name in views or not here) and all(plan.node in view.ring for view in views.values()),
            f"Is {plan.name} up and in U, and is its clock within its bound?",
        )
        return _newest(views)

    async def spare(self, plan: NodePlan, told: Callable[[str], None]) -> None:
        """Wait until a majority of U is up without this site; not where U is so small that it never can be."""

        def so(views: dict[str, RingView]) -> bool:
            newest = _newest(views)
            up = set(newest.ring) | {view.site for view in views.values() if view.site in newest.universe}
            alone = len(newest.universe) - 1 < _majority(newest)
            return alone or plan.node not in newest.universe or len(up - {plan.node}) >= _majority(newest)

        views = await self.views()
        if views and so(views):
            return
        told(f"{plan.name} waits: the others that are up are no majority of U")
        await self.until(
            f"a majority without {plan.name}",
            so,
            "Nothing would be released while it is down: start the sites that are missing, or remove them from U.",
        )

    def _insist_on_a_ring_without(self, plan: NodePlan, views: dict[str, RingView]) -> None:
        """OperatorError if those who stay are no majority of U."""
        if not views:
            return
        newest = _newest(views)
        leaving = [view.site for view in views.values() if view.leaving and view.site != plan.node]
        staying = [site for site in newest.ring if site != plan.node and site not in leaving]
        if plan.node not in newest.ring or len(staying) >= _majority(newest):
            return
        rule = f"the ring has {len(newest.ring)} of {len(newest.universe)} sites and needs at least {_majority(newest)}"
        going = ", ".join(self.market.name_of(site) for site in leaving if site in newest.ring)
        raise OperatorError(f"{plan.name} cannot leave: {rule}{f', and {going} is leaving too' if going else ''}")

    # U ------------------------------------------------------------------------------------------

    async def add(self, plan: NodePlan) -> RingView:
        """Make a site that follows the ring a member of U, and let it in."""
        self._hand.insist()
        newest = await self.newest()
        views = await self.views()
        self._insist_that_all_know(plan, views)
        if plan.node not in newest.universe and any(plan.node in view.left_out for view in views.values()):
            rule = f"number {plan.number} was removed from U by force and must not vote again"
            advice = "give it another number in the market's file, an empty directory, and --join"
            raise OperatorError(f"{plan.name} cannot be added: {rule}; {advice}")
        if plan.node not in newest.universe:
            await self._caught_up(plan)
            await self._change("add-site", f"U with {plan.name}", plan, lambda universe: plan.node in universe)
        view = await self.view(plan.name)
        if view is not None and view.leaving:  # It was drained, say when it was removed.
            await self.ask(plan.name, "drain", leaving=False)
        return await self.on_ring(plan, here=view is not None)

    async def _caught_up(self, plan: NodePlan) -> None:
        """Wait until a site holds what the ring does; one on another machine says so on its status page."""
        what = f"{plan.name} to catch up with the ring"
        self._told(what)
        deadline = monotonic() + self.patience_s
        while True:
            views = await self.views()
            held = views[plan.name].held if plan.name in views else await self._held_elsewhere(plan)
            if held >= max((view.held for view in views.values()), default=0) - _NEAR_TOKENS > 0:
                return
            if monotonic() > deadline:
                doubt = f"Is it up? Its first start says --join: isocast node --name {plan.name} --join"
                raise OperatorError(f"{what}: not confirmed after {self.patience_s:.0f} s. {doubt}")
            await asyncio.sleep(_LOOK_S)

    async def _held_elsewhere(self, plan: NodePlan) -> int:
        if not plan.http_port:
            return 0
        (answer,) = await poll([node_target(self.market, plan)])
        return (answer.status.gauges.held_token or 0) if answer.status is not None else 0

    async def remove(self, plan: NodePlan) -> RingView:
        """Take a site out of U, alive or dead, and off the ring."""
        self._hand.insist()
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
        self._hand.insist()
        sites = sorted(plan.node for plan in survivors)
        await self._insist_that_others_are_down(sites)
        newest = await self.newest()
        entry = self._hand.sign(force_entry(0, sites), self.market.stripes[0], newest.order, newest.roster)
        names = [plan.name for plan in self.market.by_role(NodeRole.REFORMATION_SERVER)]
        refused: list[str] = []
        for name in names:
            try:
                await self.ask(name, "force", universe=sites, order=entry.order.hex())
                break
            except OperatorError as reason:
                refused.append(str(reason))
        else:
            raise OperatorError("; ".join(refused) or "this market has no reformation server")
        views = await self.until(
            f"U of {len(sites)} sites, by force",
            lambda views: _certified(views, lambda universe: sorted(universe) == sites),
            "All of them must be up and hear one another; the word holds for a short time, so give it again then.",
        )
        return next(iter(views.values()))

    async def _insist_that_others_are_down(self, sites: list[NodeId]) -> None:
        """OperatorError names those of U that would be left out and answer, here or on their status pages."""
        universe = (await self.newest()).universe
        views = await self.views()
        others = [
            plan
            for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER)
            if plan.node in universe and plan.node not in sites
        ]
        paged = [plan for plan in others if plan.http_port and plan.name not in views]
        answers = await poll([node_target(self.market, plan) for plan in paged])
        alive = {plan.name for plan, answer in zip(paged, answers, strict=True) if answer.status is not None}
        names = ", ".join(plan.name for plan in others if plan.name in views or plan.name in alive)
        if names:
            rule = "isocast ring remove takes out who is up; to leave them out by force, stop them for good first"
            raise OperatorError(f"these nodes still answer: {names}. {rule}")

    async def _change(self, do: str, what: str, plan: NodePlan, so: Callable[[tuple[NodeId, ...]], bool]) -> None:
        """Have U changed; a request that fell with the site that carried it is given to another."""
        await self.until("the last change of U to settle", _settled, "A majority of U must be up to certify it.")
        key = f"{do.replace('-', '_').upper()} {plan.node}"
        deadline = monotonic() + self.patience_s
        while monotonic() < deadline:
            carrier = await self._member()
            await self._give(carrier, do, plan)

            def over(views: dict[str, RingView], carrier: str = carrier) -> bool:
                fell = carrier not in views or views[carrier].outcomes.get(key) in _FELL
                return fell or _certified(_others(views, plan.node), so)

            views = await self.until(what, over, "A majority of U must be up to certify it.")
            if _certified(_others(views, plan.node), so):
                return
            await asyncio.sleep(_LOOK_S)
        raise OperatorError(f"{what}: those who carried the request left the ring: ask again")

    async def _give(self, carrier: str, do: str, plan: NodePlan) -> None:
        """Give one site the operator's order."""
        view = await self.view(carrier)
        last, roster = (0, 0) if view is None else (view.order, view.roster)
        kind = ControlKind[do.replace("-", "_").upper()]
        entry = self._hand.sign(ControlEntry(kind, plan.node, b""), plan.stripe, last, roster)
        await self.ask(carrier, do, site=plan.node, order=entry.order.hex())

    def _insist_that_all_know(self, plan: NodePlan, views: dict[str, RingView]) -> None:
        behind = [name for name, view in views.items() if plan.node not in view.knows]
        if behind:
            names = ", ".join(behind)
            rule = f"started with a market file that has no {plan.name}: isocast ring restart rolls the new one out"
            raise OperatorError(f"{names}: {rule}")


def _newest(views: dict[str, RingView]) -> RingView:
    return max(views.values(), key=lambda view: (view.epoch != "0", view.held))


def _able(views: dict[str, RingView]) -> list[str]:
    """Who is on the ring and can carry a request, the furthest first."""
    able = [
        name for name, view in views.items() if view.site in view.ring and view.mode == "normal" and not view.leaving
    ]
    return sorted(able, key=lambda name: -views[name].held)


def _at_work(views: dict[str, RingView]) -> bool:
    """Whether a member of the newest ring is not sealed: a market without a majority only remembers a ring."""
    return any(view.mode == "normal" and view.site in view.ring for view in views.values())


def _majority(view: RingView) -> int:
    return len(view.universe) // 2 + 1


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


# Node after node started anew, for a new version or a new market file, while the market goes on.


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

    def __init__(self, change: RingChange, told: Callable[[str], None] = lambda _: None) -> None:
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
        doubt = "it ended and was not restarted; `isocast up` and systemd restart nodes"
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
