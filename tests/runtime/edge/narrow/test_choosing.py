"""What fits a line: copies of several lines, and repairs, count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.edge.narrow.edge_worlds import edge_market

from isocast.runtime.edge.narrow.choosing import choose, describe
from isocast.runtime.edge.narrow.places import repair_budget, request_endpoint
from isocast.runtime.market.model import Market
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import budget_bytes
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

WIDE = StripePlan(
    1,
    (
        *[EdgeStripe(number, 0, f"s{number}", 56_000, (f"S{number}",)) for number in range(1, 31)],
        EdgeStripe(31, 0, "spare", 56_000, spare=True),
    ),
    SECOND,
)


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return edge_market(tmp_path, plan=WIDE)


@pytest.mark.parametrize("rate, count", [(56_000, 1), (1_500_000, 26), (45_000_000, 31)])
def test_a_line_takes_as_many_as_the_paper_says(market: Market, rate: int, count: int) -> None:
    chosen = choose(market, market.node("bank"), WIDE, rate=rate)
    assert len(chosen.stripes) == count
    assert chosen.period_bytes <= budget_bytes(rate, market.timing.token_period_ns)
    assert [line.name for line in chosen.lines] == ["a2"]


def test_two_lines_take_twice_the_rate(market: Market) -> None:
    chosen = choose(market, market.node("bank"), WIDE, rate=1_500_000, lines=["a", "b"])
    assert len(chosen.stripes) == 13
    with pytest.raises(ConfigurationError, match=r"no stripe fits 56 kb/s: the narrowest, s1, has 112 kb/s"):
        choose(market, market.node("bank"), WIDE, rate=56_000, lines=["a", "b"])


def test_who_wants_everything_needs_room_for_repairs(market: Market) -> None:
    chosen = choose(market, market.node("bank"), WIDE, rate=1_500_000, complete=True)
    assert len(chosen.stripes) == 21
    assert repair_budget(market, WIDE, 1) == 1_750
    assert chosen.period_bytes == 21 * (7_000 + 1_750) <= 187_500
    assert [server.name for server in chosen.servers] == ["archive"]
    assert describe(chosen, 1_500_000) == "21 stripes (s1, s2, s3 and 18 more), 21 symbols of a line of 1.5 Mb/s"


def test_symbols_without_a_rate_and_everything(market: Market) -> None:
    assert [stripe.number for stripe in choose(market, market.node("bank"), WIDE, symbols=["S3", "NEW"]).stripes] == [
        3,
        31,
    ]
    assert len(choose(market, market.node("bank"), WIDE).stripes) == 31


def test_whom_one_cannot_hear_is_a_clear_error(market: Market) -> None:
    with pytest.raises(ConfigurationError, match="floor sends no narrow stripes; these do: a, b, c, a2"):
        choose(market, market.node("bank"), WIDE, lines=["floor"])
    with pytest.raises(ConfigurationError, match="needs a retransmit server"):
        choose(market, replace(market.node("bank"), retransmit=()), WIDE, complete=True)


def test_where_requests_go(market: Market) -> None:
    assert request_endpoint(market, market.node("archive")).port == 26_478
