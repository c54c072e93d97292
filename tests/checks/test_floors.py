"""T1, T2, T3 and T5: what the checker of trading floors tells, each from as few facts as show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.checks.traces import E1, E2, LAW

from isocast.checks.facts import (
    AgreedTrade,
    Completed,
    EndOfRun,
    FloorBusted,
    FloorConfirmed,
    FloorCut,
    FloorDiffered,
    FloorReported,
    FloorStepped,
    FloorTold,
    Installed,
    Released,
)
from isocast.checks.suite import Suite
from isocast.terms.ids import NO_EPOCH
from isocast.wire.packets import NewRing

TRADE = AgreedTrade(1, "ISO", 100, 5, 2, 1)
NEXT = AgreedTrade(2, "ISO", 101, 5, 4, 3)
ORDERS = ((1, 5), (2, 5))
STATE = bytes(32)
E = E1
NOTHING = EndOfRun(0, (), 0, {}, 0)


class Trace:
    """Three sites that have released tokens 1 to 9."""

    def __init__(self, *, agreement: bool = True) -> None:
        self.suite = Suite(replace(LAW, floor=True, universe=(1, 2, 3), agreement=agreement))
        checker = self.suite._floors  # noqa: SLF001 - the one that is tested
        assert checker is not None
        self.checker = checker
        self.view = self.checker._view  # noqa: SLF001
        for site in (1, 2, 3):
            self.view.site(site).released = 9
            self.view.site(site).held = 9

    def stepped(self, site: int, token: int = 2, **other: Any) -> None:  # noqa: ANN401 - fields of the fact
        fact = FloorStepped(0, site, E, token, STATE, (TRADE,), ORDERS)
        self.suite.observe(fact._replace(**other))

    def told(self) -> list[str]:
        return [f"{each.property}: {each.text}" for each in self.suite.violations]


def test_sites_that_agree_break_nothing() -> None:
    trace = Trace()
    for site in (1, 2, 3):
        trace.stepped(site)
        trace.stepped(site, again=True)
    trace.suite.observe(FloorReported(0, 1, 2, STATE, (TRADE,), 0))
    for site in (1, 2, 3):
        trace.suite.observe(FloorConfirmed(0, site, E, 6, 3, (TRADE,)))
    trace.suite.observe(FloorReported(0, 2, 2, STATE, (), 1))
    trace.suite.observe(FloorTold(0, (TRADE,)))
    trace.checker.finish(NOTHING._replace(floor={0: (1, 1), 1: (1, 1)}))
    assert trace.told() == []


def test_another_state_or_other_trades_break_t1() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.stepped(2, state=bytes(31) + b"1")
    trace.stepped(3, trades=(TRADE._replace(price=99),))
    assert trace.told() == [
        "T1: site2 has another state after token 2 than site1",
        "T1: site3 has other trades after token 2 than site1",
    ]


def test_the_same_number_in_another_epoch_is_another_token() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.stepped(2, epoch=E2, state=bytes(31) + b"1")
    assert trace.told() == []


def test_a_token_that_is_not_released_breaks_t1() -> None:
    trace = Trace()
    trace.stepped(1, 10)
    trace.stepped(2, 10, again=True)
    assert trace.told() == ["T1: site1 applied token 10, which it has not released"]


def test_a_report_of_what_a_site_does_not_have_breaks_t1() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.suite.observe(FloorReported(0, 1, 3, STATE, (), 0))
    trace.suite.observe(FloorReported(0, 1, 2, bytes(31) + b"1", (TRADE,), 0))
    trace.suite.observe(FloorReported(0, 1, 2, STATE, (TRADE._replace(number=2),), 0))
    trace.suite.observe(FloorDiffered(0, 2, 2, "a report differs"))
    assert trace.told() == [
        "T1: site1 reports token 3, which it has not released",
        "T1: site1 reports of token 2 what it does not have",
        "T1: site1 reports of token 2 what it does not have",
        "T1: site2 after token 2: a report differs",
    ]


def test_a_confirmation_that_nobody_made_breaks_t2() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.suite.observe(FloorReported(0, 1, 2, STATE, (TRADE,), 1))
    trace.suite.observe(FloorTold(0, (TRADE,)))
    assert [line[:2] for line in trace.told()] == ["T2", "T2"]


def test_a_confirmed_trade_that_changes_or_is_taken_back_breaks_t2() -> None:
    trace = Trace()
    trace.suite.observe(FloorConfirmed(0, 1, E, 6, 3, (TRADE,)))
    trace.suite.observe(FloorConfirmed(0, 2, E, 6, 3, (TRADE._replace(price=99),)))
    trace.stepped(3, epoch=E2, trades=(TRADE._replace(price=99),))
    trace.suite.observe(FloorBusted(0, 3, (TRADE,)))
    trace.suite.observe(FloorBusted(0, 3, (NEXT, TRADE._replace(price=98))))
    assert [line[:9] for line in trace.told()] == ["T2: site2", "T2: site3", "T2: site3"]


def test_where_released_tokens_may_be_cut_off_a_tentative_trade_may_have_the_number_of_a_confirmed_one() -> None:
    trace = Trace(agreement=False)
    trace.suite.observe(FloorConfirmed(0, 1, E, 6, 3, (TRADE,)))
    trace.stepped(3, epoch=E2, trades=(TRADE._replace(price=99),))
    trace.suite.observe(FloorDiffered(0, 3, 2, "a report differs"))
    trace.suite.observe(FloorBusted(0, 3, (TRADE,)))
    assert trace.told() == []
    trace.suite.observe(FloorBusted(0, 1, (TRADE,)))
    trace.suite.observe(FloorConfirmed(0, 3, E2, 6, 3, (TRADE._replace(price=99),)))
    assert [line[:9] for line in trace.told()] == ["T2: site1", "T2: site3"]


def test_what_differs_from_a_confirmed_trade_is_taken_back_in_the_end() -> None:
    """Trading rules, settlement 8: under the gate `timed` a tentative trade may be void, but a confirmed one never."""
    for is_cut in (False, True):
        trace = Trace(agreement=False)
        trace.stepped(3, trades=(TRADE._replace(price=99),))
        trace.suite.observe(FloorConfirmed(0, 1, E2, 6, 3, (TRADE,)))
        if is_cut:
            trace.suite.observe(FloorCut(0, 3, 1))
            trace.stepped(3, epoch=E2)
        trace.checker.finish(NOTHING._replace(floor={3: (1, 1)}))
        assert [line[:23] for line in trace.told()] == ([] if is_cut else ["T2: at the end site3 st"])


def test_a_gap_in_what_is_confirmed_breaks_t2() -> None:
    trace = Trace()
    trace.suite.observe(FloorConfirmed(0, 1, E, 6, 3, (NEXT,)))
    trace.suite.observe(FloorTold(0, (NEXT,)))
    assert trace.told() == [
        "T2: site1 confirms trade 2, and the one before is open",
        "T2: a customer hears of trade 2 behind trade 0",
    ]


def test_a_member_without_the_report_breaks_t2() -> None:
    trace = Trace()
    ring = NewRing(0, E, E.server, E, (1, 2, 3), 1, 1, 0, NO_EPOCH, 0, STATE, (1, 2, 3), (), (1, 2, 3), ())
    for site in (1, 2, 3):
        trace.view.on_installed(Installed(0, site, ring, 0))
        for token in range(1, 4 if site == 3 else 8):
            trace.view.on_completed(Completed(0, site, E, token, STATE, 0, 0, ()))
    trace.suite.observe(FloorConfirmed(0, 1, E, 6, 3, (TRADE,)))
    assert trace.told() == []
    trace.suite.observe(FloorConfirmed(0, 1, E, 7, 4, (NEXT,)))
    assert trace.told() == ["T2: site1 confirms trades up to 2, reported in token 4, but site3 holds 3"]


def test_trades_that_are_never_confirmed_or_missing_break_t2() -> None:
    trace = Trace()
    trace.suite.observe(FloorConfirmed(0, 1, E, 6, 3, (TRADE,)))
    trace.checker.finish(NOTHING._replace(floor={0: (2, 1), 1: (1, 1), 2: (0, 0)}))
    assert trace.told() == [
        "T2: trades 2..2 are never confirmed at a customer",
        "T2: site2 lacks trades 1..1, which were confirmed",
    ]


def test_an_order_that_trades_too_much_breaks_t3() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.stepped(1, 3, trades=(TRADE._replace(number=2),), orders=((3, 5),))
    assert [line[:11] for line in trace.told()] == ["T3: order 2", "T3: order 1"]


def test_an_order_that_is_there_twice_breaks_t5() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.stepped(1, 3, trades=())
    assert [line[:2] for line in trace.told()] == ["T5", "T5"]


def test_what_was_cut_off_does_not_count() -> None:
    trace = Trace()
    trace.stepped(1)
    trace.suite.observe(FloorCut(0, 1, 1))
    trace.stepped(1, 3, epoch=E2)
    assert trace.told() == []


def test_released_tokens_are_those_of_the_view() -> None:
    trace = Trace()
    trace.suite.observe(Released(0, 1, E, 12, 0, 1, (), 0, clock_kept=True, uncertified=False))
    trace.stepped(1, 12)
    assert not [line for line in trace.told() if line.startswith("T")]
