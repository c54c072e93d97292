"""Who reports, who takes over, when a trade is confirmed, and what happens to whoever differs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.keys import KEY
from tests.floor.rings import CODE, OPEN, Ring

from isocast.floor.arbiter import (
    Arbiter,
    ArbiterStopped,
    FloorDiverged,
    PublishHalt,
    TokenReleased,
    TradesBusted,
    TradesConfirmed,
)
from isocast.floor.events import Phase, Trade
from isocast.floor.following import REPORT_EVERY, Entering, FloorFollower, FloorMessage, read_token
from isocast.floor.reporting import FloorReport, encode_report
from isocast.floor.snapshot import fold
from isocast.floor.state import state_hash
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

TRADE = Trade(1, SYMBOL, 100, 5, 2, 1)


def opened(size: int = 4, arbiter: type[Arbiter] = Arbiter) -> Ring:
    """A ring whose floor trades, at token 1."""
    ring = Ring(size, arbiter)
    ring.issue(OPEN)
    return ring


# Reports -----------------------------------------------------------------------------------------------------------


def test_the_owner_of_a_token_reports_its_trades_when_it_releases_it() -> None:
    ring = opened()
    t = ring.trade()
    owners = [number for number, site in ring.sites.items() if site.reports]
    assert owners == [2]  # Token 2 is its own.
    (effect,) = ring.sites[2].reports
    state = state_hash(ring.sites[1].arbiter.floor.floor)
    assert effect.parts == (FloorReport(t, state, 0, (TRADE,)),)


def test_a_token_without_trades_needs_no_report_and_an_idle_floor_is_silent() -> None:
    ring = opened()
    ring.issue(order(1, SELL, 5, 100))
    ring.idle(30)
    assert not [site for site in ring.sites.values() if site.reports]


def test_every_hundredth_step_is_reported_once() -> None:
    ring = opened()
    for number in range(1, 2 * REPORT_EVERY):
        ring.issue(order(number, SELL, 5, 100))
    ring.idle(20)
    reports = [report for site in ring.sites.values() for report in site.reports]
    assert [effect.parts[0].token for effect in sorted(reports, key=lambda one: one.parts[0].token)] == [100, 200]
    assert not ring.alarms()


def test_trades_end_in_one_report_and_one_word_that_they_are_confirmed() -> None:
    """Reports do not breed reports."""
    ring = opened()
    t = ring.trade()
    ring.idle(60)
    told = [
        (part.token, part.confirmed, part.trades) for s in ring.sites.values() for e in s.reports for part in e.parts
    ]
    assert sorted(told) == [(t, 0, (TRADE,)), (t, 1, ())]
    assert ring.heard() == [TRADE]


def test_a_large_report_goes_out_in_parts_and_counts_when_all_are_there() -> None:
    ring = opened()
    ring.issue(*(order(number, SELL, 1, 100) for number in range(1, 101)))
    t = ring.issue(order(200, BUY, 100, 100))
    (effect,) = ring.sites[3].reports
    assert len(effect.parts) > 2
    last = ring.sites[3].outbox[effect.key].pop()
    ring.issue()
    ring.restart(1)
    ring.sites[3].outbox[b"rest"] = [last]
    r = ring.issue()
    ring.idle(10)
    (confirmed,) = ring.sites[1].of(TradesConfirmed)
    assert isinstance(confirmed, TradesConfirmed)
    assert (confirmed.token, confirmed.trades[-1].number, r) == (r + 3, 100, t + 2)
    assert len(ring.heard()) == 100


# Confirmation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 10])
def test_a_trade_is_confirmed_at_the_release_of_token_r_plus_m_less_1_everywhere(size: int) -> None:
    """Settlement 3; protocol §11: r+9 in a ring of ten."""
    ring = opened(size)
    for _ in range(size):  # A whole cycle, so that something can be stable.
        ring.idle(1)
    r = ring.trade() + 1
    ring.idle(2 * size)
    tokens = {effect.token for site in ring.sites.values() for effect in site.of(TradesConfirmed)}  # type: ignore[union-attr]
    assert tokens == {r + size - 1}


def test_a_trade_is_never_confirmed_before_the_one_before() -> None:
    ring = opened()
    first = ring.trade(1, reports=False)
    ring.sites[2].outbox.clear()  # The report of the first is lost on its way.
    ring.sites[2].keys.clear()
    ring.trade(3)
    ring.idle(20)
    got = [effect for effect in ring.sites[1].effects if isinstance(effect, TradesConfirmed)]
    assert [trade.number for effect in got for trade in effect.trades] == [1, 2]
    assert len(got) == 1  # The first was reported late, the second had to wait for it.
    assert got[0].token >= first + 5 + 4


def test_a_report_in_an_old_epoch_is_confirmed_by_a_token_of_a_new_one() -> None:
    ring = opened()
    ring.trade()
    r = ring.issue()
    ring.crash(1)
    ring.reform(2, 3, 4)
    ring.idle(2)
    assert not ring.confirmed()
    ring.idle(1)
    assert ring.token == r + 3
    assert ring.confirmed() == {1: TRADE}


# Takeover ----------------------------------------------------------------------------------------------------------


def test_the_report_of_a_lost_owner_comes_from_the_owner_of_token_t_plus_m_plus_1() -> None:
    ring = opened()
    t = ring.trade()
    ring.crash(2)
    ring.reform(1, 3, 4)
    while ring.token < t + 4:
        ring.idle(1)
    assert not [n for n in (1, 3, 4) if ring.sites[n].reports]
    owner = ring.next_owner
    ring.idle(1)  # t+m+1, m of the ring that issued t.
    assert [n for n in (1, 3, 4) if ring.sites[n].reports] == [owner]
    ring.idle(10)
    assert [len(ring.sites[n].reports) for n in (1, 3, 4)].count(0) >= 1
    assert ring.confirmed() == {1: TRADE}
    assert ring.heard() == [TRADE]
    assert not ring.alarms()


def test_the_same_report_of_a_takeover_counts_once() -> None:
    ring = opened()
    ring.trade(reports=False)
    late = dict(ring.sites[2].outbox)
    ring.sites[2].outbox.clear()
    ring.idle(8)
    ring.sites[2].outbox.update(late)
    ring.idle(10)
    assert ring.heard() == [TRADE]
    assert all(len(site.of(TradesConfirmed)) == 1 for site in ring.sites.values())
    assert not ring.alarms()


def test_whoever_hears_of_a_confirmation_late_hears_it_from_others() -> None:
    ring = opened()
    ring.trade()
    ring.idle(3)
    owner = ring.next_owner
    ring.idle(1)
    assert ring.sites[owner].reports[-1].parts[0].confirmed == 1
    ring.crash(owner)
    ring.reform(*[n for n in ring.members if n != owner])
    ring.idle(12)
    assert ring.heard() == [TRADE]


# Every window ------------------------------------------------------------------------------------------------------


def lost_arbiter(stage: int, outbox: str) -> Ring:
    ring = opened()
    ring.idle(4)
    owner = ring.next_owner
    if stage == 0:
        ring.trade(skip=[owner])  # type: ignore[arg-type]
    else:
        ring.trade(reports=False)
    if stage >= 2:
        ring.idle(stage - 1)
    ring.crash(owner, loses_outbox=outbox == "lost" or stage == 0)
    ring.reform(*[n for n in ring.members if n != owner])
    return ring


@pytest.mark.parametrize("stage, outbox", list(product(range(10), ("kept", "lost"))))
def test_an_arbiter_lost_in_any_window_loses_no_confirmed_trade(stage: int, outbox: str) -> None:
    ring = lost_arbiter(stage, outbox)
    before = ring.confirmed()
    ring.trade(11)
    ring.idle(25)
    after = ring.confirmed()
    assert before.items() <= after.items()
    assert after == {1: TRADE, 2: Trade(2, SYMBOL, 100, 5, 12, 11)}
    assert [trade.number for trade in ring.heard()] == [1, 2]
    assert not ring.alarms()


@pytest.mark.parametrize("stage, survivor, outbox", list(product(range(10), range(1, 5), ("kept", "lost"))))
def test_one_survivor_and_a_forced_ring_bring_all_confirmed_trades_back(stage: int, survivor: int, outbox: str) -> None:
    """Row 3: a confirmed trade is on the disk of every member."""
    ring = opened()
    ring.idle(4)
    ring.trade()
    ring.idle(stage)
    before = ring.confirmed()
    for number in ring.members:
        ring.crash(number, loses_outbox=outbox == "lost")
    ring.restart(survivor)
    assert ring.sites[survivor].confirmed.items() >= before.items()
    ring.reform(survivor)
    ring.trade(11)
    ring.idle(25)
    assert ring.confirmed() == {1: TRADE, 2: Trade(2, SYMBOL, 100, 5, 12, 11)}
    assert ring.heard() == list(ring.confirmed().values())
    assert not ring.alarms()


# Cut ---------------------------------------------------------------------------------------------------------------


def test_a_cut_busts_the_trades_behind_it_and_the_floor_goes_on_from_there() -> None:
    ring = opened()
    ring.issue(order(1, SELL, 5, 100))
    ring.idle(4)
    keep = ring.token
    ring.issue(order(2, BUY, 5, 100))
    ring.issue()
    for site in ring.sites.values():
        site.outbox.clear()
    ring.cut(keep)
    for site in ring.sites.values():
        assert [one.trades for one in site.effects if isinstance(one, TradesBusted)] == [(TRADE,)]
    ring.customer = ring.customer.__class__(FloorFollower(CODE))  # A customer of the majority has seen nothing of it.
    ring.issue(order(3, BUY, 5, 100))
    ring.idle(15)
    assert ring.confirmed() == {1: Trade(1, SYMBOL, 100, 5, 3, 1)}
    assert not any(site.arbiter.has_stopped for site in ring.sites.values())


def test_a_report_that_was_cut_off_counts_where_it_finally_stands() -> None:
    ring = opened()
    ring.idle(4)
    t = ring.trade()
    ring.issue()
    ring.cut(t)
    ring.idle(12)
    assert ring.confirmed() == {1: TRADE}
    (effect,) = [one for one in ring.sites[1].effects if isinstance(one, TradesConfirmed)]
    assert effect.token >= t + 5


def test_what_was_confirmed_stays_so_when_the_token_that_showed_it_is_cut_off() -> None:
    ring = opened()
    ring.idle(4)
    r = ring.trade() + 1
    while not ring.confirmed():
        ring.issue()
    for site in ring.sites.values():
        site.outbox.clear()
        site.keys.clear()
    ring.cut(r)
    assert {site.arbiter.confirmed for site in ring.sites.values()} == {1}
    ring.idle(10)
    assert ring.heard() == [TRADE]
    assert all(len(site.of(TradesConfirmed)) == 1 for site in ring.sites.values())


def test_a_confirmed_trade_that_is_cut_off_stops_the_arbiter() -> None:
    ring = opened()
    t = ring.trade()
    ring.idle(10)
    ring.cut(t - 1)
    assert all(site.arbiter.has_stopped for site in ring.sites.values())


def test_what_is_kept_for_a_cut_is_bounded_by_what_is_not_stable() -> None:
    ring = opened()
    for number in range(1, 400, 2):
        ring.trade(number)
        assert ring.sites[1].arbiter.retained < 16
    ring.idle(40)
    assert ring.sites[1].arbiter.retained <= 8
    ring.idle(1_000)
    assert ring.sites[1].arbiter.retained <= 8


# Restart -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("titi2"), min_size=1, max_size=25), st.integers(1, 4), st.data())
def test_a_restart_at_any_token_concludes_the_same(plan: str, number: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(plan)))
    straight, halting = opened(), opened()
    for ring in (straight, halting):
        identity = 1
        for place, what in enumerate(plan):
            if place == at and ring is halting:
                ring.restart(number)
            if what == "i":
                ring.idle(1)
            elif what == "2":
                ring.issue(order(identity, SELL, 5, 100))
                identity += 1
            else:
                ring.trade(identity)
                identity += 2
        ring.idle(20)
    assert halting.confirmed() == straight.confirmed()
    assert halting.heard() == straight.heard()
    assert not halting.alarms()
    for site in halting.sites.values():
        assert site.arbiter.snapshot() == straight.sites[number].arbiter.snapshot()
        assert state_hash(site.arbiter.floor.floor) == state_hash(straight.sites[1].arbiter.floor.floor)


def test_a_snapshot_is_the_same_at_every_site_and_serves_any_of_them() -> None:
    ring = opened()
    for number in range(1, 40, 2):
        ring.trade(number)
    ring.idle(20)
    snapshots = {site.arbiter.snapshot() for site in ring.sites.values()}
    assert len(snapshots) == 1
    new = Arbiter(CODE, 9, snapshots.pop())
    for event in ring.log[new.token :]:
        new.step(TokenReleased(event.token, event.instant, event.stable, 4, event.universe, event.messages))
    assert new.confirmed == ring.sites[1].arbiter.confirmed


def test_a_token_that_is_not_the_next_is_refused() -> None:
    ring = opened()
    with pytest.raises(LocalProtocolError, match="needs every token"):
        ring.sites[1].arbiter.step(TokenReleased(3, 0, 0, 4))
    with pytest.raises(LocalProtocolError, match="needs every token"):
        ring.sites[1].arbiter.step(TokenReleased(1, 0, 0, 4))


def test_a_snapshot_of_another_floor_or_of_nothing_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="floor XISO"):
        Arbiter("YYYY", 1, Arbiter("XISO", 1).snapshot())
    with pytest.raises(RemoteProtocolError, match="another version"):
        Arbiter("XISO", 1, fold({"code": "XISO"}))
    with pytest.raises(RemoteProtocolError):
        Arbiter("XISO", 1, b"")


# Differences -------------------------------------------------------------------------------------------------------


class Backwards(FloorFollower):
    """Applies the events of a token in another order."""

    @staticmethod
    def reads(messages: Sequence[FloorMessage]) -> tuple[list[Entering], int]:
        events, strange = read_token(messages)
        return events[::-1], strange


class Odd(Arbiter):
    """One site has a mistake."""

    wrong: tuple[int, ...] = (3,)

    def __init__(self, code: str, site: int, snapshot: bytes | None = None) -> None:
        if site in self.wrong:
            self.follower_class = Backwards
        super().__init__(code, site, snapshot)


def uneven(ring: Ring, first: int) -> int:
    """A token whose result depends on the order of its events."""
    return ring.issue(order(first, SELL, 5, 100), order(first + 1, SELL, 5, 100), order(first + 2, BUY, 5, 100))


@pytest.mark.parametrize("before", range(4))
def test_a_site_that_differs_from_a_majority_stops_and_the_others_go_on(before: int) -> None:
    ring = opened(4, Odd)
    ring.idle(before)
    uneven(ring, 1)
    ring.idle(25)
    stopped = [number for number, site in ring.sites.items() if site.arbiter.has_stopped]
    assert stopped == [3]
    (effect,) = ring.sites[3].of(ArbiterStopped)
    assert isinstance(effect, ArbiterStopped)
    assert effect.own != effect.other == state_hash(ring.sites[1].arbiter.floor.floor)
    assert ring.heard() == [Trade(1, SYMBOL, 100, 5, 3, 1)]
    assert not any(site.of(PublishHalt) for site in ring.sites.values())
    ring.trade(11)
    ring.idle(25)
    assert [trade.number for trade in ring.heard()] == [1, 2]


def test_a_site_that_stopped_goes_on_from_the_last_agreed_snapshot() -> None:
    ring = opened(4, Odd)
    ring.trade(1)
    ring.idle(15)
    uneven(ring, 11)
    ring.idle(15)
    assert ring.sites[3].arbiter.has_stopped
    ring.arbiter = Arbiter  # The mistake is mended.
    ring.restart(3)
    assert not ring.sites[3].arbiter.has_stopped
    assert ring.sites[3].arbiter.floor.snapshot() == ring.sites[1].arbiter.floor.snapshot()
    assert ring.sites[3].arbiter.confirmed == 2


def test_a_disputed_state_is_no_snapshot_to_go_on_from() -> None:
    ring = opened(4, Odd)
    first = ring.trade(1)
    while ring.next_owner != 3:
        ring.idle(1)
    ring.idle(12)
    t = uneven(ring, 11)
    ring.issue()  # The wrong report; the others answer it.
    ring.sites[1].outbox.clear()
    ring.sites[2].outbox.clear()
    ring.idle(6)
    assert not ring.sites[3].arbiter.has_stopped
    assert first <= ring.sites[3].arbiter.agreed_token < t


def test_where_no_majority_agrees_the_floor_halts() -> None:
    class Split(Odd):
        wrong = (2, 3)

    ring = opened(4, Split)
    uneven(ring, 1)
    ring.idle(30)
    assert [len(site.of(PublishHalt)) for site in ring.sites.values()] == [1, 1, 1, 1]
    assert not any(site.arbiter.has_stopped for site in ring.sites.values())
    phases = {site.arbiter.floor.floor.symbols[SYMBOL].phase for site in ring.sites.values()}
    assert phases == {Phase.HALTED}


def test_a_report_that_differs_is_ignored_and_an_alarm() -> None:
    ring = opened()
    t = ring.trade(reports=False)
    wrong = encode_report(FloorReport(t, bytes(32), 1, (TRADE._replace(price=99),)))
    ring.issue(others=wrong)
    for site in ring.sites.values():
        (alarm,) = site.of(FloorDiverged)
        assert isinstance(alarm, FloorDiverged)
        assert (alarm.token, alarm.other, alarm.site) == (t, bytes(32), None)
    assert ring.heard() == []
    ring.idle(10)
    assert ring.heard() == [TRADE]


def test_what_is_no_report_is_counted_and_ignored() -> None:
    ring = opened()
    ring.issue(others=b"no report")
    ring.trade()
    ring.idle(12)
    assert ring.heard() == [TRADE]
    assert not ring.alarms()


def test_a_message_of_another_floor_is_not_for_this_one() -> None:
    arbiter = Arbiter(CODE, 1)
    event = TokenReleased(
        1, 10, 0, 4, (1,), (FloorMessage(1, "floor/YYYY", b"x", KEY), FloorMessage(2, "news", b"", KEY))
    )
    assert arbiter.step(event) == ()
    assert (arbiter.token, arbiter.retained, arbiter.floor.steps) == (1, 0, 0)
