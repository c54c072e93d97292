"""Times by the clock on the wall, on the days on which clocks change: every reader and writer of feeds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from tests.feeds.itch_samples import add, directory, frame

from isocast.feeds.days import SKIPPED_TIME, DayClock, WallClock
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.lobster import LobsterDecoder
from isocast.feeds.mappings import TableMapping, TimeForm, read_mapping
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.feeds.stripe_writer import StripeWriter
from isocast.feeds.tables import TableDecoder
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.terms.zones import zone_of
from isocast.wire.events import EVENT_DTYPE, EventArray, MarketEvent, build_events

SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3_600 * 10**9
NEW_YORK, LONDON = "America/New_York", "Europe/London"
CHANGES = [
    (NEW_YORK, date(2024, 3, 10), 13),
    (NEW_YORK, date(2024, 11, 3), 14),
    (LONDON, date(2024, 3, 31), 8),
    (LONDON, date(2024, 10, 27), 9),
]
"""A zone, a day on which its clocks change, and the hour in UTC when it is 09:30 there."""


def at(zone: str, day: date, hour: int, minute: int = 0, fold: int = 0) -> int:
    """By the zone database itself."""
    moment = datetime(day.year, day.month, day.day, hour, minute, fold=fold, tzinfo=ZoneInfo(zone))
    return round(moment.timestamp()) * SECOND


def decoded(
    form: str, zone: str, day: date, *texts: str, strict: bool = True, day_begins: str = ""
) -> tuple[list[int], FeedLog]:
    columns = {"price": "p", "quantity": "q", "zone": zone, "day_begins": day_begins}
    mapping = TableMapping("trade", "t", TimeForm(form), ("t", "p", "q"), **columns)  # type: ignore[arg-type]
    log = FeedLog("t.csv", strict=strict)
    decoder = TableDecoder(mapping, log, day=day, symbol=Symbol("A"), floor=Mic("XNYS"))
    raw = "".join(f"{text},1,1\n" for text in texts).encode()
    return [time for block in decoder.blocks([raw]) for time in block["time"].tolist()], log


@pytest.mark.parametrize("zone, day, _", CHANGES)
@pytest.mark.parametrize("texts", [("18:00:00", "23:30:00", "00:30:00", "09:30:00", "16:59:00")])
def test_a_trading_day_that_begins_on_the_evening_before_on_the_day_of_a_change(
    zone: str, day: date, _: int, texts: tuple[str, ...]
) -> None:
    found, log = decoded("clock", zone, day, *texts, day_begins="18:00")
    before = day - timedelta(days=1)
    expected = [at(zone, before, 18), at(zone, before, 23, 30), at(zone, day, 0, 30), at(zone, day, 9, 30)]
    assert found == [*expected, at(zone, day, 16, 59)]
    assert not log.faults
    assert found == sorted(found)


@pytest.mark.parametrize("clock", ["24:00", "18", "6pm"])
def test_what_is_no_clock_is_refused(clock: str) -> None:
    with pytest.raises(ConfigurationError, match="day_begins"):
        read_mapping(
            f'kind="trade"\ntime="t"\ntime_form="clock"\nprice="p"\nquantity="q"\nday_begins="{clock}"', "m.toml"
        )


@pytest.mark.parametrize("zone, day, utc_hour", CHANGES)
@pytest.mark.parametrize("form", ["clock", "iso", "midnight-s", "midnight-ns"])
def test_half_past_nine_is_half_past_nine_on_the_day_of_a_change(
    zone: str, day: date, utc_hour: int, form: str
) -> None:
    text = {
        "clock": "09:30:00.5",
        "iso": f"{day}T09:30:00.5",
        "midnight-s": "34200.5",
        "midnight-ns": "34200500000000",
    }[form]
    expected = datetime(day.year, day.month, day.day, utc_hour, 30, tzinfo=UTC).timestamp()
    assert decoded(form, zone, day, text)[0] == [round(expected) * SECOND + SECOND // 2]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2024-03-10T09:30:00-04:00", "2024-03-10T13:30:00"),
        ("2024-03-10T09:30:00.000000001-0400", "2024-03-10T13:30:00"),
        ("2024-11-03 01:30:00-04", "2024-11-03T05:30:00"),
        ("2024-11-03 01:30:00-05", "2024-11-03T06:30:00"),
        ("2024-03-31T01:30:00.123456789+01:00", "2024-03-31T00:30:00"),
        ("2024-03-10T13:30:00Z", "2024-03-10T13:30:00"),
        ("2024-03-10T19:00:00+05:30", "2024-03-10T13:30:00"),
    ],
)
def test_an_offset_says_exactly_when(text: str, expected: str) -> None:
    (found,), _ = decoded("iso", NEW_YORK, date(2024, 1, 1), text)
    assert datetime.fromtimestamp(found // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S") == expected
    assert found % SECOND == {"1": 1, "9": 123_456_789}.get(text.partition(".")[2][8:9], 0)


@pytest.mark.parametrize("end", ["-25:00", "-04:60", "+", "-4", "-04-00", ".123456789x", ".1ZZ", "-04:00Z"])
def test_an_offset_that_is_none_is_a_bad_row(end: str) -> None:
    text = f"2024-03-10T09:30:00{end}"
    found, log = decoded("iso", NEW_YORK, date(2024, 1, 1), text, "2024-03-10T09:30:00Z", strict=False)
    assert len(found) == 1
    assert log.faults[FeedFault.BAD_ROW]["count"] == 1


@pytest.mark.parametrize(
    "form, text", [("clock", "02:30:00"), ("midnight-ms", "9000000"), ("iso", "2024-03-10 02:30:00")]
)
def test_a_time_that_clocks_skip_is_a_bad_row_with_its_reason(form: str, text: str) -> None:
    after = {"clock": "03:30:00", "midnight-ms": "12600000", "iso": "2024-03-10 03:30:00"}[form]
    found, log = decoded(form, NEW_YORK, date(2024, 3, 10), text, after, strict=False)
    assert found == [at(NEW_YORK, date(2024, 3, 10), 3, 30)]
    assert log.faults[FeedFault.BAD_ROW]["first"] == f"t: {SKIPPED_TIME} in {NEW_YORK}"


def test_a_time_that_comes_twice_is_settled_by_the_order_and_the_log_says_so() -> None:
    day = date(2024, 11, 3)
    texts = ["00:59:00", "01:00:00", "01:59:00", "01:58:30", "01:00:00", "01:30:00", "02:00:00"]
    found, log = decoded("clock", NEW_YORK, day, *texts, strict=False)
    first, second = at(NEW_YORK, day, 1), at(NEW_YORK, day, 1, fold=1)
    assert second - first == HOUR
    assert found == [
        first - MINUTE,
        first,
        first + 59 * MINUTE,
        first + 59 * MINUTE - 30 * SECOND,
        second,
        second + 30 * MINUTE,
        second + HOUR,
    ]
    (note,) = log.notes
    assert "5 times are of an hour that clocks showed twice" in note
    assert "3 are of the first round and 2 of the second" in note


def test_the_order_of_a_feed_is_known_across_blocks_and_begins_anew_before_the_hour() -> None:
    day = date(2024, 10, 27)
    zone = zone_of(LONDON)
    instants = np.arange(at(LONDON, day, 0, 30), at(LONDON, day, 3), MINUTE)
    # Sorted by symbols: the whole night twice.
    night = np.concatenate([instants, instants])
    walls = zone.walls(night)
    for size in (1, 7, 60, len(walls)):
        clock = WallClock(zone, FeedLog("x"))
        parts = [clock.instants(walls[at : at + size]) for at in range(0, len(walls), size)]
        assert np.concatenate([found for found, _ in parts]).tolist() == night.tolist(), size
        assert all(exists.all() for _, exists in parts)


def test_lobster_counts_by_the_clock_of_new_york() -> None:
    log = FeedLog("l.csv")
    decoder = LobsterDecoder(Mic("XNAS"), Symbol("A"), "2024-03-10", log)
    raw = b"34200.5,1,1,1,1,1\n9000.0,1,2,1,1,1\n99999999999999.0,1,3,1,1,1\n"
    (events,) = decoder.blocks([raw])
    assert events["time"].tolist() == [at(NEW_YORK, date(2024, 3, 10), 9, 30) + SECOND // 2]
    assert log.faults[FeedFault.BAD_ROW]["count"] == 2


@pytest.mark.parametrize("zone, day, utc_hour", CHANGES)
def test_itch_counts_by_the_clock_both_ways(zone: str, day: date, utc_hour: int) -> None:
    raw = frame(directory(1, 0, "A"), add(1, 34_200 * SECOND, 7, "B", 5, "A", 10_000))
    (events,) = ItchDecoder(Mic("XNAS"), DayClock.at(day, zone), FeedLog("x", strict=True)).blocks([raw])
    nine = round(datetime(day.year, day.month, day.day, utc_hour, 30, tzinfo=UTC).timestamp()) * SECOND
    assert events["time"].tolist() == [at(zone, day, 0), nine]
    written = ItchWriter(DayClock.at(day, zone), FeedLog("out")).write(events)
    assert clocks(written) == [0, 34_200 * SECOND]


def clocks(framed: bytes) -> list[int]:
    """Nanoseconds since midnight of each message."""
    found, place = [], 0
    while place < len(framed):
        size = int.from_bytes(framed[place : place + 2])
        found.append(int.from_bytes(framed[place + 7 : place + 13]))
        place += 2 + size
    return found


def trades(*times: int) -> EventArray:
    return build_events(
        MarketEvent(EventKind.TRADE, Mic("XNAS"), Symbol("A"), price=1, quantity=1, time=time, id=number)
        for number, time in enumerate(times, 1)
    )


@pytest.mark.parametrize("zone, day, _utc", CHANGES)
def test_a_night_of_change_is_written_and_read_again(zone: str, day: date, _utc: int) -> None:
    begins = at(zone, day, 0)
    night = trades(*range(begins, begins + 5 * HOUR, 10 * MINUTE))
    writer = ItchWriter(DayClock.at(day, zone), FeedLog("out"))
    framed = writer.write(night)
    log = FeedLog("x", strict=True)
    (events,) = ItchDecoder(Mic("XNAS"), DayClock.at(day, zone), log).blocks([framed])
    own = events[events["kind"] == EventKind.TRADE]
    assert own["time"].tolist() == night["time"].tolist()


def test_an_event_of_another_season_keeps_its_hour() -> None:
    """09:30 of a day in summer, told in a session in winter: it was 08:30 when hours counted from midnight of UTC."""
    summer, winter = at(NEW_YORK, date(2012, 6, 21), 9, 30), date(2026, 1, 15)
    events = np.concatenate([trades(summer), np.zeros(0, EVENT_DTYPE)])
    writer = ItchWriter(DayClock.at(winter, NEW_YORK), FeedLog("out"), keep_hour=True)
    assert clocks(writer.write(events)) == [34_200 * SECOND] * 2
    stripe = StripeWriter(DayClock.at(winter, NEW_YORK))
    assert clocks(stripe.messages(events, {(b"XNAS", b"A"): 1, (b"XNAS", b""): 2})) == [34_200 * SECOND]
    assert writer.log.skipped == {"times of another day, written as the same time of this day": 1}
