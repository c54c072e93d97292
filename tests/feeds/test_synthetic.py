"""A synthetic day is a day: by one seed, with hours, bursts, sectors, corrections and halts."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan, day_shape
from isocast.feeds.tape_digest import TapeDigest
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EventArray, are_events

PLAN = SyntheticPlan(seed=11, floors=9, symbols=120, trades=60_000, quotes_per_trade=0.5)


@cache
def whole(plan: SyntheticPlan = PLAN) -> EventArray:
    events: EventArray = np.concatenate(list(SyntheticDay(plan).blocks()))
    return events


def of(kind: EventKind) -> EventArray:
    chosen: EventArray = whole()[whole()["kind"] == kind]
    return chosen


def digest(plan: SyntheticPlan) -> str:
    made = TapeDigest()
    for block in SyntheticDay(plan).blocks():
        made.update(block)
    return made.hex


def continuous_trades() -> EventArray:
    trades = of(EventKind.TRADE)
    continuous: EventArray = trades[(trades["flags"] & int(EventFlag.AUCTION)) == 0]
    return continuous


def test_the_same_seed_gives_the_same_day_and_another_another() -> None:
    small = SyntheticPlan(seed=3, floors=4, symbols=20, trades=2_000)
    assert digest(small) == digest(SyntheticPlan(seed=3, floors=4, symbols=20, trades=2_000))
    assert digest(small) != digest(SyntheticPlan(seed=4, floors=4, symbols=20, trades=2_000))


def test_it_is_events_in_the_order_of_time_about_as_many_as_were_asked_for() -> None:
    assert are_events(whole().tobytes())
    assert (np.diff(whole()["time"].astype(np.int64)) >= 0).all()
    assert 0.8 < len(of(EventKind.TRADE)) / PLAN.trades < 1.2
    assert 0.8 < len(of(EventKind.QUOTE)) / (2 * PLAN.trades * PLAN.quotes_per_trade) < 1.2


def test_hundreds_of_floors_and_thousands_of_symbols() -> None:
    day = SyntheticDay(SyntheticPlan(floors=300, symbols=3_000, trades=1_000, quotes_per_trade=0))
    events = np.concatenate(list(day.blocks()))
    assert len(np.unique(events["floor"])) == 300
    assert len(np.unique(events["symbol"])) == 3_001, "those, and marks that have none"
    listed = events[events["kind"] == EventKind.DIRECTORY]
    assert len(listed) == len(day.directory) == len({(row["floor"], row["symbol"]) for row in listed})


def test_trades_are_dense_at_the_opening_and_at_the_close() -> None:
    day = SyntheticDay(PLAN)
    trades = continuous_trades()
    names = {name: place for place, name in enumerate(day.world.symbol_names.tolist())}
    regions = day.world.symbol_region[[names[symbol] for symbol in trades["symbol"].tolist()]]
    for region, session in enumerate(day.world.sessions):
        times = trades["time"][regions == region].astype(np.int64)
        assert times.min() >= session.opens
        assert times.max() < session.closes
        part = (times - session.opens) / (session.closes - session.opens)
        counts, _ = np.histogram(part, bins=20, range=(0, 1))
        noon = counts[8:13].mean()
        assert counts[0] > 2 * noon
        assert counts[-1] > 2 * noon
    assert day_shape(np.array([0.0]))[0] > 5 * day_shape(np.array([0.55]))[0]


def fano(times: npt.NDArray[np.int64], window: int) -> float:
    """Variance of the counts in windows over their mean: 1 for chance alone."""
    counts = np.bincount((times - times.min()) // window)
    return float(counts.var() / counts.mean())


def test_trades_come_in_bursts() -> None:
    """The quiet middle of a session, one symbol at a time, so that neither the U nor the sum explains it."""
    day = SyntheticDay(PLAN)
    session = day.world.sessions[1]
    middle = (session.opens + session.closes) // 2
    trades = continuous_trades()
    near = trades[np.abs(trades["time"].astype(np.int64) - middle) < 5_400 * 10**9]
    names, counts = np.unique(near["symbol"], return_counts=True)
    busy = names[np.argsort(counts)[-10:]]
    factors = [fano(near["time"][near["symbol"] == name].astype(np.int64), 10 * 10**9) for name in busy]
    assert np.median(factors) > 2.5

    calm = SyntheticDay(SyntheticPlan(seed=11, floors=3, symbols=120, trades=30_000, quotes_per_trade=0, branching=0))
    events = np.concatenate(list(calm.blocks()))
    inside = np.abs(events["time"].astype(np.int64) - middle) < 3_600 * 10**9
    busiest = calm.world.symbol_names[np.argmax(np.where(calm.world.symbol_region == 1, calm.world.activity, 0))]
    chosen = inside & (events["kind"] == EventKind.TRADE) & (events["symbol"] == busiest)
    assert fano(events["time"][chosen].astype(np.int64), 10 * 10**9) < np.median(factors) - 0.3, (
        "offspring are the bursts"
    )


def test_sectors_move_together() -> None:
    """Correlation of five-minute returns: higher within a sector than between two."""
    plan = SyntheticPlan(seed=5, floors=1, symbols=60, trades=150_000, quotes_per_trade=0)
    day = SyntheticDay(plan)
    events = np.concatenate(list(day.blocks()))
    trades = events[events["kind"] == EventKind.TRADE]
    session = day.world.sessions[0]
    grid = np.arange(session.opens, session.closes, 300 * 10**9)
    returns, sectors = [], []
    for place, name in enumerate(day.world.symbol_names):
        own = trades[trades["symbol"] == name]
        if len(own) > 1_000:
            at = np.searchsorted(own["time"].astype(np.int64), grid[1:]) - 1
            returns.append(np.diff(np.log(own["price"][np.maximum(at, 0)].astype(float))))
            sectors.append(day.world.symbol_sector[place])
    matrix = np.corrcoef(np.array(returns))
    same = np.equal.outer(sectors, sectors)
    within = matrix[same & ~np.eye(len(sectors), dtype=bool)]
    across = matrix[~same]
    assert len(within) >= 10
    assert within.mean() > across.mean() + 0.15
    assert across.mean() > 0.05, "all follow their region"


def test_every_floor_opens_and_closes_with_auctions() -> None:
    trades = of(EventKind.TRADE)
    auctions = trades[(trades["flags"] & int(EventFlag.AUCTION)) > 0]
    letters, counts = np.unique(auctions["reference"], return_counts=True)
    assert dict(zip(letters.tolist(), counts.tolist(), strict=True)) == {ord("O"): 120, ord("C"): 120}
    marks = of(EventKind.MARK)
    assert np.unique(marks["reference"]).tolist() == sorted(b"OQMC")
    assert len(marks) == 4 * PLAN.floors


def test_trades_are_numbered_by_floor_from_one_on() -> None:
    trades = of(EventKind.TRADE)
    for floor in np.unique(trades["floor"]):
        own = trades["id"][trades["floor"] == floor]
        assert own.tolist() == list(range(1, len(own) + 1))


def test_corrections_and_cancels_name_a_trade_of_the_past() -> None:
    trades = {(row["floor"], row["id"]): row for row in of(EventKind.TRADE)}
    late = np.concatenate([of(EventKind.CORRECTION), of(EventKind.TRADE_CANCEL)])
    assert 60 < len(late) < 240
    for row in late:
        trade = trades[row["floor"], row["id"]]
        assert trade["symbol"] == row["symbol"]
        assert trade["time"] < row["time"]
    for row in of(EventKind.CORRECTION):
        assert row["price"] != trades[row["floor"], row["id"]]["price"]


def test_a_halted_symbol_does_not_trade() -> None:
    statuses = of(EventKind.STATUS)
    halts = statuses[statuses["reference"] == MarketStatus.HALTED]
    assert len(halts)
    for halt in halts:
        own = whole()[
            (whole()["symbol"] == halt["symbol"]) & np.isin(whole()["kind"], [EventKind.TRADE, EventKind.QUOTE])
        ]
        since = own["time"].astype(np.int64) - int(halt["time"])
        assert not ((since >= 0) & (since < 300 * 10**9)).any()


def test_quotes_are_pairs_that_do_not_cross() -> None:
    quotes = of(EventKind.QUOTE)
    bids, offers = quotes[::2], quotes[1::2]
    assert set(bids["side"]) == {Side.BUY}
    assert set(offers["side"]) == {Side.SELL}
    assert (bids["flags"] == EventFlag.LINKED).all()
    assert (bids["symbol"] == offers["symbol"]).all()
    assert (bids["price"] < offers["price"]).all()


@pytest.mark.parametrize("key, value", [("floors", 0), ("floors", 1_001), ("symbols", 0), ("branching", 1.0)])
def test_a_plan_that_makes_no_day_names_its_key(key: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=key):
        SyntheticPlan(**{key: value})  # type: ignore[arg-type]
