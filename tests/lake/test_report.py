"""Reports and pictures: what a person reads, from figures that are given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocast.checks.skew import ReleaseSkew
from isocast.lake.fairness import FairnessReport
from isocast.lake.report import Page, ReportTable, draw_delays, draw_skew, write_page
from isocast.lake.report_fairness import fairness_page, span_text
from isocast.lake.timing_advice import advise
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND
from isocast.terms.timing import Timing

MS = MILLISECOND
TIMING = Timing(detect_ns=80 * MS, process_ns=10 * MS, clock_error_ns=MS)


def report() -> FairnessReport:
    site = {"receiver": "paris", "messages": 9, "first": 3, "p50_ns": 5, "p99_ns": 4 * MS, "p999_ns": 5 * MS}
    place = {"node": "paris", "city": "Paris", "tokens": 20, "p50_ns": MS, "p99_ns": 2 * MS, "wanted_ns": 3 * MS}
    lost = dict.fromkeys(("seconds", "nacks_sent", "repairs_received", "repairs_sent", "kernel_drops"), 7)
    basis = {
        "receivers": ["paris", "rome"],
        "stripes": [0],
        "releases": 18,
        "first_instant_ns": 1_767_623_400_250_000_000,
        "last_instant_ns": 1_767_623_460_000_000_000,
        "clock_bound_ns": MS,
        "late_after_ns": 10 * MS,
        "within_ns": 10**9,
    }
    return FairnessReport(
        basis,
        ReleaseSkew(7, MS, 4 * MS, 5 * MS, 2 * MS, exceeding=1, faulted=2, late=2, alone=3),
        sites=[{**site, "max_ns": 5 * MS, "bound_ns": 2 * MS, "exceeding": 1}],
        worst=[],
        faults=[],
        worst_faults=[],
        entry=[],
        order=[],
        losses=[{"node": "rome", "city": "Naples", "tokens": 20, "token_loss": 0.05, "repairs_per_data": 0.01, **lost}],
        delays=[{**place, "max_ns": 4 * MS}],
        unread={"newer": 4},
        advice=advise(TIMING, {"paris": 3 * MS}, {"paris": 20}, 0.999, 0.05, {"ostia": 4 * MS, "pisa": 9 * MS}),
        skew_curves={"paris": [0, MS, 2 * MS, 5 * MS]},
        delay_curves={"paris": [MS, 2 * MS, 3 * MS]},
    )


def test_a_page_has_the_verdict_every_table_and_its_pictures(tmp_path: Path) -> None:
    found = report()
    draw_skew(found.skew_curves, 2 * MS, tmp_path / "skew.svg")
    draw_delays(found.delay_curves, found.advice, tmp_path / "delays.png")
    drawn = {"skew": tmp_path / "skew.svg", "delays": tmp_path / "delays.png"}
    write_page(fairness_page(found, "Fairness", drawn), tmp_path / "page.html")
    write_page(fairness_page(found, "Fairness", drawn), tmp_path / "page.md")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<img") == 2
    assert "6 of 9 messages were released within 2ε" in text
    assert "TOO FEW TOKENS" in text
    assert "δ_N+2ε+δ_S = 5 ms; pisa needs 9 ms. TOO SHORT for pisa" in text
    assert "4 lines are of a newer version and were left out" in text
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| paris | 9 | 3 | 5 ns | 4 ms | 5 ms | 5 ms | 2 ms | 1 |" in page
    assert "| rome (Naples) |" in page
    assert "2026-01-05 14:30:00.250 UTC" in page, "whoever judges it knows from when it is"
    assert "![Release skew by site](skew.svg)" in page
    assert json.loads(json.dumps(found.as_json()))["advice"]["present"]["detect"] == 80 * MS


def test_an_unkind_cell_stays_in_its_cell() -> None:
    page = Page("A", "b|c", (ReportTable("T", ("h",), [("<script>|\n",)]),), good=False)
    assert "&lt;script&gt;" in page.as_html()
    assert "| &lt;script>\\|  |" in page.as_markdown()


def test_a_report_of_another_kind_or_place_is_refused(tmp_path: Path) -> None:
    page = Page("A", "b", ())
    with pytest.raises(ConfigurationError, match=r"must end in \.md or \.html"):
        write_page(page, tmp_path / "page.pdf")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_page(page, tmp_path / "none" / "page.md")


@pytest.mark.parametrize("span, text", [(None, "–"), (0, "0 ns"), (1_500, "1.5 µs"), (-2 * MS, "-2 ms"), (3e9, "3 s")])
def test_spans_are_for_people(span: float | None, text: str) -> None:
    assert span_text(span) == text
