"""A market with the plan that its file names: what is wrong is found before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.edge.narrow.edge_worlds import PLAN, edge_market

from isocast.runtime.edge.narrow.plan_change import check_edge, edge_advice
from isocast.striping.plan import EdgeStripe
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND


def test_a_sound_plan_passes_and_one_for_another_period_is_told(tmp_path: Path) -> None:
    market = edge_market(tmp_path)
    check_edge(market)
    (advice,) = edge_advice(market)
    assert "token period of 100ms, and the market's is 1s" in advice
    fitting = edge_market(tmp_path, plan=replace(PLAN, token_period_ns=SECOND))
    check_edge(fitting)
    assert edge_advice(fitting) == ()


def test_a_plan_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    market = edge_market(tmp_path)
    (tmp_path / "stripes.toml").unlink()
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        check_edge(market)


def test_a_plan_of_more_core_stripes_than_the_market_has_is_a_fault(tmp_path: Path) -> None:
    """Symbols of the other stripe would travel in this one, and no narrow stripe would carry them."""
    more = (EdgeStripe(11, 1, "other", 56_000, ("Z",)), EdgeStripe(12, 1, "spare-1", 56_000, spare=True))
    market = edge_market(tmp_path, plan=replace(PLAN, stripes=(*PLAN.stripes, *more)))
    with pytest.raises(ConfigurationError, match=r"core: stripe 1 is not in ring\.stripes"):
        check_edge(market)


def test_repairs_have_groups_of_their_own(tmp_path: Path) -> None:
    market = edge_market(tmp_path, {"edge": {"plan": "stripes.toml", "repairs": "239.192.0.0"}})
    with pytest.raises(ConfigurationError, match=r"edge\.repairs: 239\.192\.0\.0 and what follows are groups of"):
        check_edge(market)


@pytest.mark.parametrize("base, whose", [("239.192.0.0", "stripes"), ("239.200.0.0", "repairs")])
def test_proofs_have_groups_of_their_own(tmp_path: Path, base: str, whose: str) -> None:
    changes = {"edge": {"plan": "stripes.toml", "proofs": base}}
    check_edge(edge_market(tmp_path, changes))
    market = edge_market(tmp_path, {**changes, "security": {"signatures": True}})
    with pytest.raises(ConfigurationError, match=rf"edge\.proofs: {base} and what follows are groups of {whose}"):
        check_edge(market)


def test_stripes_that_have_no_group_are_a_fault(tmp_path: Path) -> None:
    market = edge_market(tmp_path, {"edge": {"plan": "stripes.toml", "span": 4}})
    with pytest.raises(ConfigurationError, match=r"edge\.span: is 4, but there is a stripe 9"):
        check_edge(market)
