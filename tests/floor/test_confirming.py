"""What somebody who has only the sequence believes, and when."""

from __future__ import annotations

import pytest
from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.keys import KEY
from tests.floor.rings import CODE, OPEN, Ring

from isocast.floor.arbiter import TokenReleased
from isocast.floor.confirming import (
    RESULTS_KEPT,
    ConfirmationFollower,
    Confirmed,
    News,
    OwnResult,
    ReportDiffers,
    ReportParts,
    Tentative,
)
from isocast.floor.events import Trade
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.reporting import FloorReport, cut_report, encode_report
from isocast.floor.snapshot import fold
from isocast.floor.state import state_hash
from isocast.terms.errors import RemoteProtocolError

TRADE = Trade(1, SYMBOL, 100, 5, 2, 1)
REPORTS = f"floor/{CODE}/report"


def a_day() -> list[TokenReleased]:
    """Many trades, some of them in large reports."""
    ring = Ring(4)
    ring.issue(OPEN)
    for number in range(1, 30, 2):
        ring.trade(number)
    ring.issue(*(order(number, SELL, 1, 100) for number in range(101, 141)))
    ring.issue(order(200, BUY, 40, 100))
    ring.idle(15)
    assert len(ring.heard()) == 55
    return ring.log


def heard(follower: ConfirmationFollower, log: list[tuple[TokenReleased, FloorMessage]]) -> list[News]:
    return [news for event, message in log for news in follower.hear(event.token, event.instant, message)]


def flat(log: list[TokenReleased]) -> list[tuple[TokenReleased, FloorMessage]]:
    return [(event, message) for event in log for message in event.messages]


def fresh() -> ConfirmationFollower:
    return ConfirmationFollower(FloorFollower(CODE))


def test_a_restart_at_any_message_hears_the_same() -> None:
    log = flat(a_day())
    through = fresh()
    for place, (event, message) in enumerate(log):
        again = ConfirmationFollower.restored(through.snapshot())
        assert again.snapshot() == through.snapshot()
        rest = log[place : place + 12]
        assert heard(again, rest) == heard(ConfirmationFollower.restored(through.snapshot()), rest)
        through.hear(event.token, event.instant, message)
    assert through.confirmed == 55
    assert not through.tentative


def test_a_restart_between_two_parts_of_a_report_loses_neither() -> None:
    log = flat(a_day())
    straight = heard(fresh(), log)
    for place in range(len(log)):
        follower = fresh()
        before = heard(follower, log[:place])
        if follower.parts:
            after = heard(ConfirmationFollower.restored(follower.snapshot()), log[place:])
            assert [*before, *after] == straight
            return
    pytest.fail("no report in parts")


def traded() -> tuple[ConfirmationFollower, bytes]:
    """One tentative trade, in token 2; and the state after it."""
    follower, other = fresh(), fresh()
    for one in (follower, other):
        ring = Ring(1)
        ring.issue(OPEN)
        ring.issue(order(1, SELL, 5, 100), order(2, BUY, 5, 100))
        heard(one, flat(ring.log))
    other.finish()
    return follower, state_hash(other.follower.floor)


def report(follower: ConfirmationFollower, told: FloorReport, token: int = 3) -> list[News]:
    return follower.hear(token, 30, FloorMessage(9, REPORTS, encode_report(told), KEY))


def test_a_trade_is_tentative_until_a_report_with_the_same_state_says_that_it_is_confirmed() -> None:
    follower, state = traded()
    first = report(follower, FloorReport(2, state, 0, (TRADE,)))
    assert [type(news) for news in first] == [Tentative]
    assert follower.tentative == (TRADE,)
    assert report(follower, FloorReport(2, state, 1), 4) == [Confirmed((TRADE,), 4)]
    assert report(follower, FloorReport(2, state, 1), 5) == []
    assert not follower.tentative
    assert follower.confirmed == 1


@pytest.mark.parametrize(
    "wrong",
    [
        FloorReport(2, bytes(32), 1, (TRADE,)),
        FloorReport(2, bytes(32), 1),
        FloorReport(3, bytes(32), 1),
        FloorReport(1, bytes(32), 1),
    ],
)
def test_a_report_that_differs_is_an_alarm_and_confirms_nothing(wrong: FloorReport) -> None:
    follower, _ = traded()
    news = report(follower, wrong, 4)
    assert isinstance(news[-1], ReportDiffers)
    assert news[-1].other == bytes(32)
    assert follower.confirmed == 0


def test_other_trades_beside_the_same_state_differ() -> None:
    follower, state = traded()
    news = report(follower, FloorReport(2, state, 1, (TRADE._replace(number=2),)))
    assert news[-1] == ReportDiffers(2, state, state)
    assert follower.tentative == (TRADE,)


def test_whoever_begins_with_a_snapshot_does_not_judge_what_was_before() -> None:
    follower, state = traded()
    follower.finish()
    late = ConfirmationFollower(FloorFollower.restored(follower.follower.snapshot()))
    assert late.confirmed == 1
    assert report(late, FloorReport(2, bytes(32), 1)) == []
    assert report(late, FloorReport(2, state, 1)) == []


def test_results_are_remembered_for_a_while() -> None:
    follower = fresh()
    follower.hear(1, 1, FloorMessage(1, f"floor/{CODE}", b"", KEY))
    for token in range(2, 100 * (RESULTS_KEPT + 3)):
        follower.hear(token, token, FloorMessage(token, f"floor/{CODE}", b"", KEY))
    follower.finish()
    last = 100 * (RESULTS_KEPT + 3)
    assert report(follower, FloorReport(200, bytes(32), 0), last) == []
    assert isinstance(report(follower, FloorReport(300, bytes(32), 0), last)[0], ReportDiffers)


def test_parts_of_two_sites_are_not_mixed_and_what_never_ends_is_forgotten() -> None:
    whole = FloorReport(1, bytes(32), 0, tuple([TRADE._replace(number=number) for number in range(1, 9)]))
    one, two, *rest = cut_report(whole, 160)
    parts = ReportParts()
    assert parts.take(encode_report(one), 1) is None
    assert parts.take(encode_report(two), 2) is None
    for number in range(100):
        parts.take(encode_report(one._replace(token=1_000 + number)), 3)
    assert all(parts.take(encode_report(part), 1) is None for part in (two, *rest))
    found = [parts.take(encode_report(part), 4) for part in (two, one, *rest)]
    assert found[:-1] == [None] * (len(found) - 1)
    assert found[-1] == whole


def test_rows_of_another_version_are_refused() -> None:
    for data in (b"", fold({}), fold({"follower": {}})):
        with pytest.raises(RemoteProtocolError):
            ConfirmationFollower.restored(data)


def test_a_result_without_trades_ends_at_0() -> None:
    assert OwnResult(1, b"", ()).last == 0
