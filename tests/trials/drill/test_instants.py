"""From hand-made logs to times: detection, ballots, and the longest silence."""

import json
from datetime import UTC, datetime
from pathlib import Path

from tests.trials.drill.marked import NOW, canned_market, write_journals

from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import Timing
from isocast.trials.drill.trial import (
    LogBook,
    Reformation,
    detected_at,
    first_span_ns,
    outage_ns,
    parse_line,
    reformations,
    release_instants,
    releases_by_part,
)
from isocast.trials.evidence import read_journals

TIMING = Timing(detect_ns=10 * MILLISECOND, retries_max=2)


def log(folder: Path, node: str, *lines: tuple[float, str, dict[str, object]]) -> None:
    """Lines at seconds after NOW."""
    with (folder / f"{node}.log").open("a", encoding="utf-8") as file:
        for second, event, values in lines:
            when = datetime.fromtimestamp(NOW / SECOND + second, UTC).isoformat().replace("+00:00", "Z")
            file.write(json.dumps({"time": when, "level": "info", "event": event, **values}) + "\n")


def after(seconds: float) -> int:
    return NOW + round(seconds * SECOND)


def book_of(folder: Path) -> LogBook:
    book = LogBook(folder)
    book.read()
    return book


def test_lines_of_all_nodes_come_in_the_order_of_their_instants(tmp_path: Path) -> None:
    log(tmp_path, "xray", (2, "b", {}), (3, "c", {}))
    log(tmp_path, "tokyo", (1, "a", {"token": 7}))
    book = book_of(tmp_path)
    assert [(line.at, line.node, line.event) for line in book.lines] == [
        (after(1), "tokyo", "a"),
        (after(2), "xray", "b"),
        (after(3), "xray", "c"),
    ]
    assert book.lines[0].text("token") == "7"


def test_a_log_is_followed_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    log(tmp_path, "xray", (1, "a", {}))
    book = book_of(tmp_path)
    with (tmp_path / "xray.log").open("a", encoding="utf-8") as file:
        file.write('{"time": "2027-01-15T08:00:02Z", ')
        file.flush()
        assert book.read() == []
        file.write('"event": "b"}\n')
    assert [line.event for line in book.read()] == ["b"]
    assert book.read() == []


def test_what_is_no_line_of_a_log_is_passed_over() -> None:
    for raw in (b"Traceback (most recent call last):", b"[]", b'{"event": "a"}', b'{"time": "now", "event": "a"}', b""):
        assert parse_line(raw, "xray") is None


def test_detection_is_the_first_suspicion_alarm_or_ballot_after_the_fault(tmp_path: Path) -> None:
    log(tmp_path, "xray", (0.5, "ballot begins", {"epoch": "2.1"}), (4, "ballot begins", {"epoch": "3.1"}))
    log(tmp_path, "london", (2, "ready", {}), (3.25, "suspects", {"suspect": "tokyo"}))
    assert detected_at(book_of(tmp_path), after(1)) == after(3.25)
    log(tmp_path, "tokyo", (3, "clock", {}))
    assert detected_at(book_of(tmp_path), after(1)) == after(3)
    assert detected_at(book_of(tmp_path), after(5)) is None


def test_a_reformation_is_a_ballot_with_its_ring_and_its_token(tmp_path: Path) -> None:
    log(
        tmp_path,
        "xray",
        (1, "ballot begins", {"epoch": "2.1"}),
        (1.1, "ring decided", {"epoch": "2.1", "members": "london, tokyo"}),
        (2, "ballot begins", {"epoch": "3.1"}),
    )
    log(tmp_path, "yoke", (3, "ballot begins", {"epoch": "4.2"}))
    log(tmp_path, "yoke", (3.5, "ring decided", {"epoch": "4.2", "members": "london"}))
    log(tmp_path, "london", (1.25, "first token of a ring", {"epoch": "2.1"}))
    book = book_of(tmp_path)
    assert reformations(book, 0) == [Reformation("2.1", ("london", "tokyo"), after(1), after(1.1), after(1.25))]
    assert reformations(book, 0)[0].span_ns == SECOND // 4
    log(tmp_path, "london", (3.75, "first token of a ring", {"epoch": "4.2"}))
    book.read()
    assert [ring.epoch for ring in reformations(book, after(2))] == ["4.2"]


def ring(epoch: str, ballot_s: float, token_s: float) -> Reformation:
    return Reformation(epoch, ("london",), after(ballot_s), after(ballot_s), after(token_s))


def test_the_first_ring_counts_from_its_own_ballot() -> None:
    assert first_span_ns([ring("2.1", 1, 1.25), ring("3.1", 5, 9)]) == SECOND // 4
    assert first_span_ns([]) is None


def test_a_lost_majority_counts_from_its_return() -> None:
    """A ballot that was held in vain and succeeds when they are back; and a ring from before they were gone."""
    rings = [ring("2.1", 0.5, 0.75), ring("3.1", 1, 4)]
    assert first_span_ns(rings, returned_at=after(3.5)) == SECOND // 2
    assert first_span_ns(rings, returned_at=after(5)) is None


def test_the_ballots_of_a_server_that_died_count() -> None:
    assert first_span_ns([ring("3.2", 2, 2.25)], ballots=[after(1), after(2)]) == 5 * SECOND // 4


def test_the_outage_is_the_longest_silence_less_a_token_period() -> None:
    period = TIMING.token_period_ns
    steady = [period * place for place in range(20)]
    held_up = [*steady[:8], *[instant + 5 * period for instant in steady[8:]]]
    assert outage_ns([steady], 3 * period, 10 * period, TIMING) == 0
    assert outage_ns([steady, held_up], 7 * period + 1, 20 * period, TIMING) == 5 * period
    assert outage_ns([held_up], 13 * period + 1, 20 * period, TIMING) == 0, "that was before"
    assert outage_ns([[]], 0, period, TIMING) is None


def test_a_silence_that_only_begins_or_ends_in_the_time_counts_whole() -> None:
    period = TIMING.token_period_ns
    assert outage_ns([[0, 10 * period]], 4 * period, 5 * period, TIMING) == 9 * period


def test_releases_by_part_count_messages(tmp_path: Path) -> None:
    market = canned_market(tmp_path)
    write_journals(market)
    period, sites = market.timing.token_period_ns, read_journals(market).sites
    instants = release_instants(sites.values())
    assert len(instants) == 6
    found = releases_by_part(sites, instants[1] - period // 2, 2 * period, 2)
    assert found == {name: [2, 2] for name in sites}
