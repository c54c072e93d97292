"""Figures of releases: skew, lateness and latency, and what is left out of them for a reason."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.trials.demo.canned import EPOCH, canned_market, released, write_journals

from isocast.checks.skew import Quantiles, ReleaseSkew
from isocast.runtime.market.model import Market
from isocast.terms.ids import Epoch, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.trials.demo.releases import Absence, Releases, one_way_ns
from isocast.trials.demo.summary import read_proof
from isocast.wire.journal_blocks import BlockView, ReleasedBlock, encode_block, view_block


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return canned_market(tmp_path)


def view(block: ReleasedBlock) -> BlockView:
    return view_block(b"".join(encode_block(block).pieces))


def test_skew_is_between_the_first_and_the_last_place(market: Market) -> None:
    write_journals(market)  # Each receiver a millisecond later than the one before it.
    figures = read_proof(market).releases.figures()
    widest = 6 * MILLISECOND
    assert figures.skew == ReleaseSkew(20, widest, widest, widest, 10 * MILLISECOND), "a ring's first token, too"
    assert figures.lateness == Quantiles(35, 3 * MILLISECOND, widest, widest)
    assert figures.disturbed == 4 * 7, "of latency: the first token of a ring has what waited for it"


def test_latency_is_from_the_events_time_to_each_release(market: Market) -> None:
    write_journals(market)
    figures = read_proof(market).releases.figures()
    # 100, 200, 300 and 400 ms before the instant; then Δ_A, and 0 to 6 ms.
    expected = 250 * MILLISECOND + market.timing.release_delay_ns + 3 * MILLISECOND
    assert figures.latency_ns == pytest.approx(expected)
    assert figures.measured == 4 * 4 * 7
    assert figures.latency_all_ns == pytest.approx(expected - 3 * MILLISECOND), "at the first place"


def test_a_place_that_was_away_is_counted_apart(market: Market) -> None:
    releases = Releases(market)
    for block in released(market):
        for plan in market.receivers:
            late = plan.name == "tokyo" and block.token_number >= 4
            releases.add(plan.name, view(replace(block, released_at=block.due + (2 * SECOND if late else 0))))
    honest = releases.figures()
    assert (honest.skew.count, honest.skew.max_ns, honest.skew.faulted, honest.skew.late) == (12, 0, 8, 8)
    away = releases.figures([Absence("tokyo", released(market)[3].due, released(market)[4].due)])
    assert away.skew == honest.skew, "whoever was away, and why, is no matter of the skew"
    assert away.disturbed == honest.disturbed + 8


def test_what_a_broken_ring_held_up_is_counted_apart(market: Market) -> None:
    releases = Releases(market)
    for block in released(market):
        held_up = replace(block, due=block.due + SECOND, released_at=block.due + SECOND)
        releases.add("tokyo", view(held_up if block.token_number == 3 else block))
    assert not releases.is_unbroken(releases.chunks[9])
    assert releases.is_unbroken(releases.chunks[13])
    figures = releases.figures()
    assert figures.measured == 3 * 4
    assert figures.latency_all_ns > figures.latency_ns


def test_each_ring_has_a_first_token(market: Market) -> None:
    releases = Releases(market)
    second = Epoch(2, 1)
    for block in released(market):
        releases.add("tokyo", view(replace(block, epoch=second if block.token_number > 3 else EPOCH)))
    assert releases.first_tokens == {EPOCH: 1, second: 4}


def test_d_is_the_mean_way_from_the_sources_to_the_owners(market: Market) -> None:
    ring = ("new-york", "london", "mumbai", "hong-kong", "tokyo")
    london = sum(market.delay_ns("london", name) for name in ring) / 5
    tokyo = sum(market.delay_ns("tokyo", name) for name in ring) / 5
    counts = {source_id(2, 1): 30, source_id(3, 1): 10}
    assert one_way_ns(market, counts) == pytest.approx((3 * london + tokyo) / 4 + market.impairment.jitter_ns, abs=2)
    assert one_way_ns(market, {}) == market.impairment.jitter_ns


def test_no_values_are_no_quantiles() -> None:
    assert Quantiles.of([]) == Quantiles()
    assert Quantiles.of([5]) == Quantiles(1, 5, 5, 5)
