"""A new plan for a running market: what is refused before anybody is told, and where its file goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.edge.narrow.edge_worlds import PLAN, PLAN_2, edge_market

from isocast.runtime.edge.narrow.plan_change import PlanChange, check_plan
from isocast.runtime.edge.narrow.plans import PlanFolder, plan_name
from isocast.runtime.market.routes import load_plan
from isocast.runtime.operate.operator_door import OperatorError
from isocast.striping.plan import EdgeStripe, StripePlan, plan_text
from isocast.terms.errors import ConfigurationError


def test_a_sound_plan_passes(tmp_path: Path) -> None:
    check_plan(edge_market(tmp_path), PLAN_2, PLAN)


@pytest.mark.parametrize(
    "plan, rule",
    [
        (PLAN, "version: must be above 1, which is in force"),
        (StripePlan(2, (EdgeStripe(1, 3, "s", 56_000, spare=True),)), "core: has no plan for stripe 0"),
        (StripePlan(2, (EdgeStripe(1, 0, "s", 900, spare=True),)), "one packet needs"),
        (StripePlan(2, (EdgeStripe(5_000, 0, "s", 56_000, spare=True),)), "edge.span: is 1,024, but there is a stripe"),
    ],
    ids=["old", "core", "narrow", "span"],
)
def test_what_the_market_cannot_follow_is_refused(tmp_path: Path, plan: StripePlan, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        check_plan(edge_market(tmp_path), plan, PLAN)


def test_a_symbol_stays_in_its_core_stripe(tmp_path: Path) -> None:
    other = EdgeStripe(7, 1, "other", 56_000, spare=True)
    before = replace(PLAN, stripes=(*PLAN.stripes, EdgeStripe(6, 1, "six", 56_000, ("Z",)), other))
    stripes = [
        replace(stripe, symbols=(*stripe.symbols, "Z")) if stripe.number == 1 else stripe for stripe in PLAN.stripes
    ]
    with pytest.raises(ConfigurationError, match="Z is in stripe 1 of the core"):
        check_plan(edge_market(tmp_path), StripePlan(2, tuple(stripes), PLAN.token_period_ns), before)


def test_where_nobody_sends_the_operator_is_told(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"no receiver below .* sends narrow stripes"):
        asyncio.run(PlanChange(edge_market(tmp_path)).apply(PLAN_2))


def test_plans_are_found_by_their_digests_and_rubbish_is_passed_over(tmp_path: Path) -> None:
    market = edge_market(tmp_path)
    assert market.edge is not None
    folder = PlanFolder(market.edge)
    assert folder.first() == PLAN
    assert folder.find(PLAN_2.digest) is None
    market.edge.plans.mkdir()
    (market.edge.plans / "rubbish.toml").write_text("no plan", encoding="utf-8")
    path = market.edge.plans / plan_name(PLAN_2)
    path.write_text(plan_text(PLAN_2)[:40], encoding="utf-8")
    assert folder.find(PLAN_2.digest) is None
    path.write_text(plan_text(PLAN_2), encoding="utf-8")
    assert folder.find(PLAN_2.digest) == PLAN_2
    assert folder.all() == [PLAN, PLAN_2]
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_plan(tmp_path / "nowhere.toml")
