"""The instants of a floor's days: holidays, half days, clocks that change, hours of its own."""

from datetime import UTC, date, datetime

import pytest

from isocast.floor.events import Phase
from isocast.runtime.market.floors import FloorHours, FloorTable
from isocast.runtime.operate.floor_sessions import session_day, today
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

HOUR = 3_600 * SECOND


def floor(**hours: object) -> FloorTable:
    return FloorTable("XISO", "USD", ("xiso",), 0, 0, (), hours=FloorHours(**hours))  # type: ignore[arg-type]


def told(table: FloorTable, day: date) -> list[tuple[str, str]]:
    return [
        (f"{datetime.fromtimestamp(at // SECOND, UTC):%d %H:%M}", phase.value)
        for at, phase in session_day(table, day).schedule.changes
    ]


def test_a_calendar_knows_holidays_half_days_and_clocks_that_change() -> None:
    pytest.importorskip("exchange_calendars")
    nyse = floor(calendar="XNYS")
    summer = [("02 13:00", "pre-open"), ("02 13:30", "open"), ("02 19:55", "closing"), ("02 20:00", "closed")]
    assert told(nyse, date(2024, 7, 2)) == summer
    assert told(nyse, date(2024, 7, 3))[-1] == ("03 17:00", "closed"), "a half day"
    assert told(nyse, date(2024, 7, 4)) == [], "a holiday"
    assert told(nyse, date(2024, 7, 6)) == [], "a Saturday"
    assert told(nyse, date(2024, 12, 2))[1] == ("02 14:30", "open"), "in winter"
    assert today(nyse, int(datetime(2024, 7, 3, 2, tzinfo=UTC).timestamp()) * SECOND) == date(2024, 7, 2)


def test_hours_of_its_own_by_the_clock_of_a_place() -> None:
    london = floor(opens_ns=8 * HOUR, closes_ns=16 * HOUR + HOUR // 2, zone="Europe/London", closing_ns=0)
    assert told(london, date(2024, 7, 2)) == [("02 06:30", "pre-open"), ("02 07:00", "open"), ("02 15:30", "closed")]
    assert told(london, date(2024, 12, 2))[1] == ("02 08:00", "open")
    assert told(london, date(2024, 7, 6)) == []
    night = floor(opens_ns=22 * HOUR, closes_ns=2 * HOUR, weekdays=(0,), pre_open_ns=0)
    assert told(night, date(2024, 7, 1)) == [("01 22:00", "open"), ("02 01:55", "closing"), ("02 02:00", "closed")]
    short = floor(opens_ns=HOUR, closes_ns=HOUR + 60 * SECOND, pre_open_ns=0)
    phases = [phase for _, phase in session_day(short, date(2024, 7, 1)).schedule.changes]
    assert phases == [Phase.OPEN, Phase.CLOSING, Phase.CLOSED], "a day that is shorter than its closing call"


@pytest.mark.parametrize(
    "hours, day, rule",
    [
        ({}, date(2024, 7, 2), "this floor has no sessions: give it a calendar"),
        (
            {"calendar": "XNYX"},
            date(2024, 7, 2),
            "is no exchange that is known, such as XNYS, XLON or XTKS; did you mean",
        ),
        ({"calendar": "XNYS"}, date(1900, 1, 2), "is the package up to date"),
    ],
)
def test_errors_say_what_to_do(hours: dict[str, object], day: date, rule: str) -> None:
    if hours:
        pytest.importorskip("exchange_calendars")
    with pytest.raises(ConfigurationError, match=rule):
        session_day(floor(**hours), day)
