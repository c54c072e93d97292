"""A source whose file would move symbols to other stripes does not start."""

import json
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, market_file

from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.runtime.market.routes import core_routes, insist_on_routes, load_plan
from isocast.striping.plan import EdgeStripe, StripePlan, plan_text
from isocast.terms.errors import ConfigurationError


def market(folder: Path, *stripes: int, plan: str = "") -> Market:
    folder.mkdir(exist_ok=True)
    ring: dict[str, object] = {"stripes": list(stripes), "stripe_plan": plan}
    return load_market(market_file(folder, SMALL, settings={"ring": ring}))


def write_plan(path: Path, **symbols: int) -> None:
    stripes = [EdgeStripe(core + 1, core, f"spare {core}", 56_000, spare=True) for core in (0, 1)]
    stripes += [
        EdgeStripe(place, core, symbol, 56_000, (symbol,)) for place, (symbol, core) in enumerate(symbols.items(), 10)
    ]
    path.write_text(plan_text(StripePlan(1, tuple(stripes))), encoding="utf-8")


def test_the_same_split_again_is_fine_and_another_is_not(tmp_path: Path) -> None:
    place = tmp_path / "floor"
    assert insist_on_routes(market(tmp_path, 0), place) is None
    assert insist_on_routes(market(tmp_path, 0), place) is None
    with pytest.raises(ConfigurationError, match="the market's stripes were 0 and are 0, 1"):
        insist_on_routes(market(tmp_path, 0, 1), place)
    other = tmp_path / "other"
    routes = insist_on_routes(market(tmp_path, 0, 1), other)
    assert routes is not None
    assert routes.stripes == (0, 1)
    insist_on_routes(market(tmp_path, 0, 1).of_stripe(1), other)
    with pytest.raises(ConfigurationError, match="a symbol keeps its stripe"):
        insist_on_routes(market(tmp_path, 0), other)


def test_a_plan_may_grow_but_move_nothing(tmp_path: Path) -> None:
    place, plan = tmp_path / "floor", tmp_path / "plan.toml"
    write_plan(plan, IBM=0, VOD=1)
    insist_on_routes(market(tmp_path, 0, 1, plan="plan.toml"), place)
    write_plan(plan, IBM=0, VOD=1, NEW=0)
    insist_on_routes(market(tmp_path, 0, 1, plan="plan.toml"), place)
    assert "NEW" in json.loads((place / "routes.json").read_text(encoding="utf-8"))["cores"]["0"]
    write_plan(plan, IBM=1, VOD=1, NEW=0)
    with pytest.raises(ConfigurationError, match="IBM travelled in stripe 0, and the plan has it in stripe 1"):
        insist_on_routes(market(tmp_path, 0, 1, plan="plan.toml"), place)


@pytest.mark.parametrize("content", ["{", "[]", '{"what": "else"}'])
def test_a_record_that_nobody_wrote_is_no_reason_to_guess(tmp_path: Path, content: str) -> None:
    place = tmp_path / "floor"
    place.mkdir()
    (place / "routes.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="routes"):
        insist_on_routes(market(tmp_path, 0), place)


def test_one_stripe_needs_no_plan_and_several_a_sound_one(tmp_path: Path) -> None:
    assert core_routes(market(tmp_path, 0, plan="missing.toml")).plan is None
    with pytest.raises(ConfigurationError, match="cannot be read"):
        core_routes(market(tmp_path, 0, 1, plan="missing.toml"))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        load_plan(tmp_path / "bad.toml")
