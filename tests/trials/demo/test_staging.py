"""The stage: a market file that is sound, whose delays are honest and whose times keep it lively."""

import stat
from pathlib import Path

import pytest
from tests.trials.demo.canned import canned_market
from tests.trials.demo.canned_trading import trading_market

from isocast.runtime.market.file import read_market
from isocast.runtime.market.founding import is_new
from isocast.runtime.market.key_files import check_keys
from isocast.runtime.market.model import DelayModel, Market, NodeRole
from isocast.runtime.market.rules import slowest_pair
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import Grade
from isocast.trials.demo.books import gateway_command, read_books
from isocast.trials.demo.cast import DemoNetwork, actors, process_count
from isocast.trials.demo.floors import FLOORS
from isocast.trials.demo.staging import set_stage
from isocast.trials.demo.trading import GATEWAYS, token_file


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return canned_market(tmp_path)


def test_the_cast_is_complete(market: Market) -> None:
    count = {role: len(actors(market, role)) for role in NodeRole}
    assert count == {
        NodeRole.PRIMARY_RECEIVER: 5,
        NodeRole.SECONDARY_RECEIVER: 2,
        NodeRole.PRIMARY_SOURCE: 3,
        NodeRole.SECONDARY_SOURCE: 1,
        NodeRole.REFORMATION_SERVER: 2,
        NodeRole.RETRANSMIT_SERVER: 1,
        NodeRole.CUSTOMER: 3,
    }
    assert len({plan.place for plan in market.by_role(NodeRole.PRIMARY_RECEIVER)}) == 5
    grades = sorted(plan.grade for plan in actors(market, NodeRole.CUSTOMER))
    assert grades == [Grade.COMPLETE, Grade.COMPLETE, Grade.LATEST]
    assert [plan.name for plan in market.nodes if plan not in actors(market)] == ["visitor"], (
        "a seat for whoever listens"
    )
    assert {plan.source for plan in FLOORS} == {plan.name for plan in market.nodes if plan.role.is_source}


def test_the_file_is_sound_and_warns_of_the_one_line_only(market: Market) -> None:
    reading = read_market(market.file)
    assert reading.faults == ()
    assert [warning.partition(":")[0] for warning in reading.warnings] == ["nodes.ticker.lines"]


def test_delays_are_honest_and_the_show_is_lively(market: Market) -> None:
    timing = market.timing
    slowest, _, _ = slowest_pair(market)
    assert market.impairment.delay is DelayModel.CITIES
    assert 50 * MILLISECOND < slowest < timing.detect_ns - 10 * market.impairment.jitter_ns
    for plan in market.by_role(NodeRole.SECONDARY_RECEIVER):
        for above in (plan.parent, plan.backup):
            assert market.delay_ns(plan.name, above) < timing.secondary_detect_ns
    assert timing.token_period_ns < SECOND
    assert 1 < timing.latency_ns(slowest, 0.02) / SECOND < 1.6


def test_everybody_may_begin_and_finds_his_keys(market: Market) -> None:
    assert all(is_new(market.directory_of(plan.name)) for plan in market.nodes if plan.start)
    assert [file.fault for file in check_keys(market) if file.fault] == []
    assert (Path(market.file).parent / "logs").is_dir()


def test_loss_seed_and_place_are_the_visitor_s(tmp_path: Path) -> None:
    market = set_stage(tmp_path, DemoNetwork(99, 3), loss=0.125, seed=42)
    assert (market.impairment.loss, market.impairment.seed) == (0.125, 42)
    assert {plan.address.rpartition(".")[0] for plan in market.nodes} == {"127.99.3"}
    assert market.data_group().startswith("239.99.3.")
    assert market.line_group("tokyo").startswith("239.99.3.")


# ---- traders


def test_a_market_with_traders_has_a_floor_gateways_and_books(tmp_path: Path) -> None:
    market = trading_market(tmp_path)
    assert [floor.code for floor in market.floors] == ["XISO"]
    assert process_count(market) == len(actors(market)) + 2 == 21
    for gateway in GATEWAYS:
        assert market.node(gateway.source).role is NodeRole.PRIMARY_SOURCE
        books = read_books(market, gateway)
        assert books.audit.is_sound
        assert books.cities == {seat.account: seat.city for seat in gateway.traders}, "as the show numbers them"
        assert stat.S_IMODE(gateway.folder(market).stat().st_mode) == 0o700
        for seat in gateway.traders:
            token = token_file(market, seat)
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            secret = token.read_text(encoding="ascii").strip()
            assert secret not in " ".join(gateway_command(market, gateway)), "everybody can read a command line"


def test_a_market_without_traders_is_as_it_was(tmp_path: Path) -> None:
    market = canned_market(tmp_path)
    assert market.floors == ()
    assert process_count(market) == len(actors(market)) == 17
    assert not any(gateway.name in market.by_name for gateway in GATEWAYS)
