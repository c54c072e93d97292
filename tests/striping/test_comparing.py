"""A plan beside a hash of the symbols: what a line takes, and what a listener joins."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.striping.busy_days import events_of, sectors_of

from isocast.striping.comparing import HashComparison, compare_with_hash, hash_plan, judge
from isocast.striping.history import History, make_history
from isocast.striping.loads import Load, limits_for
from isocast.striping.making import DrawnStripe, Kinship, MakingSettings, make_plan, settle
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.routing import CoreRoutes
from isocast.terms.instants import SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

SYMBOLS, RATE = 240, 40_000


@cache
def day() -> History:
    return make_history([events_of(1, SYMBOLS, 30_000)])


@cache
def plan_of_day() -> StripePlan:
    return make_plan(day(), MakingSettings(rate=RATE), sectors_of(SYMBOLS)).plan


def compared(plan: StripePlan, history: History, sectors: dict[str, str]) -> HashComparison:
    return compare_with_hash(plan, judge(plan, history), history, sectors, patience=4)


def test_the_hash_is_the_one_by_which_floors_split_without_a_plan() -> None:
    plan = StripePlan(1, (*[EdgeStripe(n, 0, f"s{n}", RATE, tuple(f"S{n}{k}" for k in range(9))) for n in (1, 2, 3)],
                          EdgeStripe(4, 0, "alone", RATE, ("HUGE",), conflated=True),
                          EdgeStripe(5, 0, "spare", RATE, spare=True)))  # fmt: skip
    other = hash_plan(plan)
    assert other.symbols == plan.symbols
    routes = CoreRoutes((1, 2, 3))
    assert all(routes.stripe_of(symbol) == stripe.number for stripe in other.stripes[:3] for symbol in stripe.symbols)
    assert other.by_number[4] == plan.by_number[4], "who is too busy for any stripe is alone in both"


def test_related_stocks_cost_fewer_stripes_than_by_hash_and_none_is_too_busy() -> None:
    found = compared(plan_of_day(), day(), sectors_of(SYMBOLS))
    assert found.planned.stripes == found.hashed.stripes > 2
    assert found.planned.too_busy == 0
    assert found.planned.highest <= 1
    assert found.planned.kin_stripes < 0.8 * found.hashed.kin_stripes
    assert found.planned.kin_on_one > found.hashed.kin_on_one
    assert found.planned.kin_stripes < found.planned.any_stripes, "it is kinship that helps, and not chance"
    assert found.hashed.too_busy > 0
    assert found.hashed_needs is not None
    assert found.hashed_needs > found.planned.stripes
    assert sum(row.stripes for row in found.sectors) < sum(row.hashed_stripes for row in found.sectors)
    assert sum(row.symbols for row in found.sectors) == SYMBOLS


def test_a_plan_that_is_a_hash_gains_nothing() -> None:
    plan = hash_plan(plan_of_day())
    found = compared(plan, day(), sectors_of(SYMBOLS))
    assert found.planned == found.hashed
    assert all((row.stripes, row.wanted) == (row.hashed_stripes, row.hashed_wanted) for row in found.sectors)


def test_so_many_stripes_as_a_hash_needs_are_enough() -> None:
    calm = make_history([events_of(1, 40, 1_000)])
    plan = make_plan(calm, MakingSettings(rate=RATE)).plan
    needs = compared(plan, calm, {}).hashed_needs
    assert needs is not None
    alone = sum(stripe.conflated for stripe in plan.stripes)
    spare = [stripe for stripe in plan.stripes if stripe.spare]
    busy = [stripe for stripe in plan.stripes if stripe.conflated]
    shared = [symbol for stripe in plan.stripes if not stripe.conflated for symbol in stripe.symbols]
    empty = [EdgeStripe(1_000 + n, 0, f"h{n}", RATE) for n in range(needs - alone)]
    wide = StripePlan(1, (replace(empty[0], symbols=tuple(shared)), *empty[1:], *busy, *spare))
    assert all(load.peak <= load.stripe.rate or load.stripe.conflated for load in judge(hash_plan(wide), calm).loads)


def test_few_symbols_are_compared_by_their_peaks_alone() -> None:
    history = make_history([events_of(1, 5, 300)])
    found = compared(make_plan(history, MakingSettings()).plan, history, {})
    assert (found.planned.kin_stripes, found.planned.any_stripes, found.sectors) == (0, 0, ())


# ---- who settles where


def trades(rows: list[tuple[bytes, int]]) -> EventArray:
    events = np.zeros(len(rows), EVENT_DTYPE)
    events["kind"], events["floor"] = EventKind.TRADE, b"XLON"
    events["symbol"] = [symbol for symbol, _ in rows]
    events["time"] = [time for _, time in rows]
    return events


def two_families() -> History:
    """A1 to A6 are busy in even minutes, B1 to B6 in odd ones."""
    rows = []
    for minute in range(120):
        family = b"AB"[minute % 2 : minute % 2 + 1]
        rows += [(family + b"%d" % member, 60 * minute * SECOND + k) for member in range(1, 7) for k in range(4)]
    return make_history([trades(rows)])


LIMITS = limits_for(16_000, SECOND, 0.0, 4, MakingSettings().sizes)


def settled(history: History, stripes: list[list[str]], sectors: dict[str, str]) -> list[DrawnStripe]:
    names = [name.decode() for name in history.names.tolist()]
    drawn = [DrawnStripe(0, [names.index(symbol) for symbol in stripe]) for stripe in stripes]
    settle(Load(history), drawn, [sectors.get(name, "") for name in names], LIMITS, Kinship(history))
    return drawn


def symbols_of(history: History, drawn: list[DrawnStripe]) -> list[list[str]]:
    return [sorted([history.names[place].decode() for place in stripe.symbols]) for stripe in drawn]


def test_symbols_settle_with_their_kin() -> None:
    history = two_families()
    drawn = settled(history, [["A1", "A2", "A3", "A4", "B1", "B2"], ["A5", "A6", "B3", "B4", "B5", "B6"]], {})
    assert symbols_of(history, drawn) == [[f"{family}{n}" for n in range(1, 7)] for family in "AB"]


def test_a_symbol_of_a_sector_stays_with_it() -> None:
    history = two_families()
    sectors = {"A1": "oil", "A2": "oil", "A3": "oil", "A4": "oil", "A6": "tea"} | {f"B{n}": "tea" for n in range(1, 7)}
    others = ["A5", "A6", *[f"B{n}" for n in range(1, 7)]]
    drawn = settled(history, [["A1", "A2", "A3", "A4"], others], sectors)
    assert symbols_of(history, drawn) == [["A1", "A2", "A3", "A4", "A5"], sorted(set(others) - {"A5"})]
    assert [stripe.sector for stripe in drawn] == ["mixed", "tea"]


def test_nobody_settles_where_there_is_no_room() -> None:
    """All four are busy in the same second; two of them are all that a stripe takes."""
    rows = [(b"ABCD"[symbol : symbol + 1], 60 * minute * SECOND + k) for minute in range(0, 120, 2)
            for symbol in range(4) for k in range(15)]  # fmt: skip
    rows += [
        (symbol, 60 * minute * SECOND + k) for minute in range(1, 120, 2) for symbol in (b"E", b"F") for k in range(9)
    ]
    history = make_history([trades(rows)])
    before = [["A", "B"], ["C", "D", "E", "F"]]
    assert symbols_of(history, settled(history, before, {})) == before


def test_settling_adds_no_stripe_exceeds_no_limit_and_brings_kin_together(monkeypatch: pytest.MonkeyPatch) -> None:
    after = make_plan(day(), MakingSettings(rate=RATE)).plan
    monkeypatch.setattr("isocast.striping.making.settle", lambda *_: None)
    before = make_plan(day(), MakingSettings(rate=RATE)).plan
    assert len(after.stripes) == len(before.stripes)
    assert judge(after, day()).holds
    wanted = [compared(plan, day(), {}).planned.kin_wanted for plan in (after, before)]
    assert wanted[0] > 1.5 * wanted[1], "of what a listener's stripes carry, more is of symbols that move together"
