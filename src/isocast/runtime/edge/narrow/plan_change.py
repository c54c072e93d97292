"""Stripe plans of a market: looked at before a start, and a new one announced while it runs and waited for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from time import monotonic
from typing import Any

from isocast.runtime.edge.narrow.places import check_cores, edge_of
from isocast.runtime.edge.narrow.plans import PlanFolder, plan_name
from isocast.runtime.edge.narrow.service import edge_settings
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.market.routes import load_plan
from isocast.runtime.operate.operator_door import OperatorError, ask
from isocast.runtime.operate.orders import OperatorHand
from isocast.runtime.operate.ring_change import RingChange, RingView
from isocast.striping.edge import EdgeStriper
from isocast.striping.plan import StripePlan, plan_entry, plan_text
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import duration_text

__all__ = ["PlanChange", "check_edge", "check_plan", "edge_advice", "edges_of"]


_LOOK_S = 0.1
_ASK_S = 3.0


def edges_of(market: Market) -> list[NodePlan]:
    """The receivers that send narrow stripes."""
    return [plan for plan in market.receivers if plan.line]


def check_plan(market: Market, plan: StripePlan, before: StripePlan | None) -> None:
    """ConfigurationError for a plan that this market cannot follow."""
    edge, settings = edge_of(market), edge_settings(market)
    check_cores(market, plan)
    for core in market.stripes:
        EdgeStriper(plan, core, settings)
    for node in edges_of(market):
        for stripe in plan.stripes:
            edge.group(node.number, stripe.number)
            if market.security.signatures:
                edge.proof_group(node.number, stripe.number)
    if before is None:
        return
    if plan.version <= before.version:
        rule = f"must be above {before.version}, which is in force, not {plan.version}"
        raise ConfigurationError(plan.file, "version", rule)
    cores = {symbol: stripe.core for stripe in before.stripes for symbol in stripe.symbols}
    for stripe in plan.stripes:
        for symbol in stripe.symbols:
            if cores.get(symbol, stripe.core) != stripe.core:
                rule = f"{symbol} is in stripe {cores[symbol]} of the core: its events would lose their order"
                raise ConfigurationError(plan.file, f'stripe "{stripe.name}".symbols', rule)


class PlanChange:
    """Puts plans into force through the operator's doors of this machine. `told` hears what is being waited for."""

    def __init__(self, market: Market, told: Callable[[str], None] = lambda _: None) -> None:
        """It waits for the edges as long as a change of the ring may take."""
        self._market = market
        self._edge = edge_of(market)
        self._told = told
        self._patience_s = RingChange(market).patience_s

    async def views(self) -> dict[str, dict[str, Any]]:
        """What the edges on this machine say of themselves, by receiver."""
        names = [plan.name for plan in edges_of(self._market)]
        found = await asyncio.gather(*[self._view(name) for name in names])
        return {name: view for name, view in zip(names, found, strict=True) if view is not None}

    async def repairs(self) -> dict[str, dict[str, Any]]:
        """What the retransmit servers on this machine say of the stripes that they keep and repair."""
        names = [plan.name for plan in self._market.by_role(NodeRole.RETRANSMIT_SERVER)]
        found: dict[str, dict[str, Any]] = {}
        for name in names:
            with suppress(OperatorError):
                said = await ask(self._market.directory_of(name), "edge", seconds=_ASK_S)
                found[name] = {**said["repairs"], **said["requests"]}
        return found

    async def _view(self, name: str) -> dict[str, Any] | None:
        try:
            view = await ask(self._market.directory_of(name), "edge", seconds=_ASK_S)
        except OperatorError:
            return None
        return view if "plan" in view else None

    async def apply(self, plan: StripePlan) -> dict[str, dict[str, Any]]:
        """Announce a plan in every stripe of the core, and wait until the edges here follow it."""
        views = await self.views()
        if not views:
            where = self._market.data_directory
            raise OperatorError(f"no receiver below {where} sends narrow stripes: run this where one is, as its user")
        version = max(view["plan"] for view in views.values())
        folder = PlanFolder(self._edge)
        before = max(
            [known for known in folder.all() if known.version == version], key=lambda one: one.version, default=None
        )
        if before is not None and before.digest == plan.digest:
            return views
        check_plan(self._market, plan, before)
        hand = OperatorHand(self._market)
        hand.insist()
        self._write(plan)
        for core in self._market.stripes:
            member, view = await self._member(self._market.of_stripe(core))
            order = hand.sign(plan_entry(plan), core, view.order, view.roster).order.hex()
            await ask(self._market.directory_of(member), "stripe-plan", digest=plan.digest.hex(), order=order)
        return await self._until_followed(plan)

    def _write(self, plan: StripePlan) -> None:
        """All of the file or nothing, under a name of its own: edges look there by digest."""
        self._edge.plans.mkdir(parents=True, exist_ok=True)
        path = self._edge.plans / plan_name(plan)
        if not path.exists():
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(plan_text(plan), encoding="utf-8")
            draft.replace(path)

    async def _member(self, share: Market) -> tuple[str, RingView]:
        views = await RingChange(share).views()
        for name, view in sorted(views.items(), key=lambda item: -item[1].held):
            if view.site in view.ring and view.mode == "normal" and not view.leaving:
                return name, view
        raise OperatorError(
            "no node of this machine is on the ring: wait until the ring has formed, or run this on another machine"
        )

    async def _until_followed(self, plan: StripePlan) -> dict[str, dict[str, Any]]:
        self._told(f"the narrow stripes of plan {plan.version}")
        deadline = monotonic() + self._patience_s
        while True:
            views = await self.views()
            if views and all(view["plan"] >= plan.version for view in views.values()):
                return views
            if monotonic() > deadline:
                behind = [name for name, view in views.items() if view["plan"] < plan.version]
                raise OperatorError(
                    f"plan {plan.version} is announced, and {', '.join(behind) or 'nobody'} does not follow it after"
                    f" {self._patience_s:.0f} s: isocast edge status says why"
                )
            await asyncio.sleep(_LOOK_S)


# `[edge]` together with the plan that it names: looked at before anything is started.


def check_edge(market: Market) -> None:
    """ConfigurationError for narrow stripes that could not be sent, or would be sent into each other's groups."""
    edge = market.edge
    if edge is None:
        return
    check_plan(market, load_plan(edge.plan), None)
    sites = [plan.number for plan in edges_of(market)]
    servers = [plan.number for plan in market.by_role(NodeRole.RETRANSMIT_SERVER)]
    places = [("groups", edge.groups, sites), ("repairs", edge.repairs, servers)]
    if market.security.signatures:
        places.append(("proofs", edge.proofs, sites))
    taken: dict[str, tuple[int, int]] = {}
    for name, base, numbers in places:
        if not numbers:
            continue
        span = _span(base, numbers, edge.span)
        for other, theirs in taken.items():
            if theirs[0] <= span[1] and span[0] <= theirs[1]:
                what = {"groups": "stripes"}.get(other, other)
                rule = f"{base} and what follows are groups of {what}: those are {_text(theirs)}; choose another"
                raise ConfigurationError(market.file, f"edge.{name}", rule)
        taken[name] = span


def edge_advice(market: Market) -> tuple[str, ...]:
    """Of a plan that is sound: what was perhaps not meant."""
    if market.edge is None:
        return ()
    planned, period = load_plan(market.edge.plan).token_period_ns, market.timing.token_period_ns
    if planned == period:
        return ()
    wanted = duration_text(period)
    rule = f"was made for a token period of {duration_text(planned)}, and the market's is {wanted}: it has other peaks"
    return (f"edge.plan: {rule}; make it with --token-period {wanted}",)


def _span(base: str, numbers: list[int], span: int) -> tuple[int, int]:
    first = int(IPv4Address(base))
    return first + min(numbers) * span, first + (max(numbers) + 1) * span - 1


def _text(groups: tuple[int, int]) -> str:
    return f"{IPv4Address(groups[0])} to {IPv4Address(groups[1])}"
