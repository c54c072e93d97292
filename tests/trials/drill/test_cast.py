"""The market of a drill: every drill's loads, and a cut between its halves is complete."""

from pathlib import Path

import pytest

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import NodeRole
from isocast.runtime.net.faults import allows_faults
from isocast.trials.demo.cast import DemoNetwork
from isocast.trials.demo.staging import prepare
from isocast.trials.drill.cast import HERE, THERE, TIMINGS, DrillSettings, market_text
from isocast.trials.drill.run import DRILLS, Drill

PLACE = DemoNetwork(16, 18)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_every_drill_has_a_market_to_play_with(tmp_path: Path, drill: Drill) -> None:
    market = prepare(tmp_path, market_text(PLACE, DrillSettings(), drill.sites))
    assert allows_faults(market)
    assert tuple([plan.name for plan in market.by_role(NodeRole.PRIMARY_RECEIVER)]) == drill.sites


@pytest.mark.parametrize("profile", TIMINGS)
def test_every_profile_and_policy_makes_a_market(tmp_path: Path, profile: str) -> None:
    for policy in StartPolicy:
        folder = tmp_path / policy
        folder.mkdir()
        market = prepare(folder, market_text(PLACE, DrillSettings(profile, policy)))
        assert market.ring_settings().policy is policy


def test_whatever_needs_tcp_lies_on_one_side_of_the_cut(tmp_path: Path) -> None:
    """A customer or retransmit server visits those whose lines it hears and whom it asks."""
    market = prepare(tmp_path, market_text(PLACE, DrillSettings()))
    assert sorted(market.by_name) == sorted([*HERE, *THERE])
    for half in (set(HERE), set(THERE)):
        for plan in market.nodes:
            if plan.name in half:
                assert {*plan.lines, *plan.retransmit} <= half, plan.name


def test_names_of_drills_are_told_apart_and_come_in_the_order_of_the_list() -> None:
    names = [drill.name for drill in DRILLS]
    assert len(set(names)) == len(names)
    assert names[:3] == ["token-site", "token-site-unheard", "partition"]
    assert names[-2:] == ["restart", "rolling"]
