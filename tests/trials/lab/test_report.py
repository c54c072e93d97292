"""What a lab says about itself."""

import json
from dataclasses import replace

import pytest

from isocast.trials.lab.report import Distribution, Episode, LabReport, report_rows, short_time

REPORT = LabReport(
    forwards=Distribution(1000, 41_000, 103_000, 950_000),
    wakeups=Distribution(),
    episodes=(),
    frames_in=300,
    frames_out=1000,
    frames_lost=12,
    frames_cut=3,
    frames_ignored=0,
    frames_refused=0,
    device_drops=0,
    on_the_way=0,
    real_time=True,
    user_namespace=False,
)


def test_it_survives_the_way_through_json() -> None:
    late = replace(REPORT, episodes=(Episode(1, 2, 3, 4), Episode(5, 6, 7, 8)))
    assert LabReport.from_json(json.loads(json.dumps(late.as_json()))) == late


def test_the_table_has_the_three_figures_of_the_lateness() -> None:
    rows = dict(report_rows(REPORT))
    assert rows["forwarding late: p50 / p99 / max"] == "41 µs / 103 µs / 950 µs"
    assert rows["wake-ups late: p50 / p99 / max"] == "–"
    assert rows["frames lost as the world wants"] == "12"


@pytest.mark.parametrize(
    "change",
    [{"episodes": (Episode(1, 2, 3, 4),)}, {"frames_refused": 1}, {"device_drops": 1}],
    ids=["late", "refused", "dropped"],
)
def test_it_is_at_fault_when_it_was_late_or_dropped_frames(change: dict[str, object]) -> None:
    assert not REPORT.at_fault
    assert LabReport.from_json(REPORT.as_json() | LabReport.as_json(replace(REPORT, **change))).at_fault  # type: ignore[arg-type]


def test_a_late_release_is_compared_with_the_labs_own_late_times() -> None:
    late = replace(REPORT, episodes=(Episode(100, 200, 50, 1), Episode(900, 950, 50, 1)))
    assert late.late_within(150, 160) == (Episode(100, 200, 50, 1),)
    assert late.late_within(201, 899) == ()


@pytest.mark.parametrize(
    "nanoseconds, text", [(0, "0 µs"), (41_400, "41 µs"), (1_500_000, "1.5 ms"), (2_000_000_000, "2 s")]
)
def test_short_times_as_people_write_them(nanoseconds: int, text: str) -> None:
    assert short_time(nanoseconds) == text
