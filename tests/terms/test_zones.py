"""Wall times and instants: the same as the zone database's own answers, on days of change too."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from isocast.terms.errors import ConfigurationError
from isocast.terms.zones import DAY_NS, day_number, zone_of

ZONES = ["America/New_York", "Europe/London", "UTC", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Cairo",
         "America/Havana", "America/Recife", "Asia/Gaza"]  # fmt: skip
CHANGES = [date(2024, 3, 10), date(2024, 11, 3), date(2024, 3, 31), date(2024, 10, 27), date(2001, 9, 23)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 10**9


def seconds_around_changes() -> list[int]:
    """Every ten minutes of two days around each change, and a random second of each month."""
    random = np.random.default_rng(7)
    near = [day_number(day) * 86_400 + step * 600 for day in CHANGES for step in range(-144, 144 + 144)]
    return [*near, *random.integers(0, 9_000_000_000, 1_000).tolist()]


@pytest.mark.parametrize("name", ZONES)
def test_a_wall_shows_what_the_zone_database_says(name: str) -> None:
    rules, zone = ZoneInfo(name), zone_of(name)
    seconds = np.array(seconds_around_changes())
    expected = [
        (datetime.fromtimestamp(second, rules).replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
        for second in seconds.tolist()
    ]
    assert (zone.walls(seconds * SECOND) // SECOND).tolist() == expected
    assert [zone.wall_at(second * SECOND) // SECOND for second in seconds.tolist()] == expected


@pytest.mark.parametrize("name", ZONES)
def test_every_instant_is_found_again_and_skipped_times_are_none(name: str) -> None:
    rules, zone = ZoneInfo(name), zone_of(name)
    walls = np.array([second * SECOND for second in seconds_around_changes()])
    settled = zone.settle(walls)
    for wall, instant, skipped, repeated, back in zip(
        walls.tolist(), *(part.tolist() for part in settled), strict=True
    ):
        here = datetime.fromtimestamp(wall // SECOND, UTC).replace(tzinfo=rules)
        first, second = (here.replace(fold=fold).timestamp() for fold in (0, 1))
        exists = datetime.fromtimestamp(first, rules).replace(tzinfo=None) == here.replace(tzinfo=None)
        assert (skipped, repeated) == (not exists, exists and first != second)
        if exists:
            assert (instant // SECOND, (instant + back) // SECOND) == (first, second)


@pytest.mark.parametrize("name", ZONES)
def test_a_table_for_other_engines_knows_the_last_change_of_a_day(name: str) -> None:
    zone = zone_of(name)
    for instant in [second * SECOND for second in seconds_around_changes()]:
        change = int(zone.by_period.change[instant >> zone.by_period.shift])
        known = zone.changed_at(instant)
        assert known == change if instant >= change else instant - known > DAY_NS


def test_a_day_begins_at_midnight_or_when_clocks_skip_it() -> None:
    assert zone_of("America/New_York").begins(date(2024, 3, 10)) == 1_710_046_800 * SECOND
    # In Cairo clocks went from midnight to one o'clock.
    cairo = zone_of("Africa/Cairo").begins(date(2024, 4, 26))
    assert datetime.fromtimestamp(cairo // SECOND, ZoneInfo("Africa/Cairo")).hour == 1
    # In Havana they go back from one o'clock to midnight, which comes twice.
    havana = zone_of("America/Havana")
    begins = havana.begins(date(2024, 11, 3))
    assert havana.wall_at(begins) % DAY_NS == 0
    assert havana.begins(date(2024, 11, 4)) - begins == 25 * 3_600 * SECOND


def test_a_zone_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigurationError, match="Mars/Olympus"):
        zone_of("Mars/Olympus")
