"""Late releases beside what made them late, and messages that were promised and are not there."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.worlds import market_file
from tests.trials.lab.test_report import REPORT
from tests.wire.journal_samples import DELAY, PERIOD, blocks

from isocast.runtime.disk.journal import Journal
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.terms.ids import Label, source_id
from isocast.terms.instants import MILLISECOND
from isocast.trials.lab.report import Episode
from isocast.trials.lab.verdict import LabVerdict, judge

MS = MILLISECOND
TOKEN = 4
"""Released 120 ms late at site b; P is 50 ms."""
LATE_NS = 120 * MS


@pytest.fixture
def market(tmp_path: Path) -> Market:
    found = load_market(market_file(tmp_path))
    for name in ("a", "b", "c"):
        with Journal.open(found.directory_of(name) / "journal", 0, found.node(name).node) as journal:
            for one in blocks(6, size=3):
                late_ns = LATE_NS if name == "b" and one.token_number == TOKEN else MS
                journal.append(replace(one, released_at=one.due + late_ns))
    return found


def log(folder: Path, behind_ns: int) -> None:
    """What site b said, between other things."""
    said = {"event": "released late", "token": TOKEN, "sequence": 10, "late_ns": LATE_NS, "behind_ns": behind_ns}
    lines = [
        "no JSON: released late",
        json.dumps({"event": "started"}),
        json.dumps(said),
        '{"event": "released late", "seq',
    ]
    (folder / "b.log").write_text("\n".join(lines), encoding="utf-8")


def judged(market: Market, folder: Path, *episodes: Episode) -> LabVerdict:
    return judge(market, replace(REPORT, episodes=episodes), folder)


def test_a_release_that_nothing_explains(market: Market, tmp_path: Path) -> None:
    verdict = judged(market, tmp_path)
    (late,) = verdict.late
    assert (late.release.site, late.release.token_number, late.release.late_ns) == ("b", TOKEN, LATE_NS)
    assert late.behind_ns is None
    assert verdict.unexplained == (late,)
    assert verdict.is_sound, "late is not unsound"


@pytest.mark.parametrize(
    "behind_ms, explained",
    [(0, False), (69, False), (70, True), (120, True)],
    ids=["held", "hardly", "would have been in time", "all of it"],
)
def test_a_process_that_came_late_itself(market: Market, tmp_path: Path, behind_ms: int, *, explained: bool) -> None:
    log(tmp_path, behind_ms * MS)
    (late,) = judged(market, tmp_path).late
    assert late.behind_ns == behind_ms * MS
    assert late.by_process is late.is_explained is explained


@pytest.mark.parametrize(
    "from_ns, to_ns, explained",
    [
        (TOKEN * PERIOD - 2, TOKEN * PERIOD - 1, False),
        (TOKEN * PERIOD - 2, TOKEN * PERIOD, True),
        (TOKEN * PERIOD + DELAY + LATE_NS, TOKEN * PERIOD + DELAY + LATE_NS + 1, True),
        (TOKEN * PERIOD + DELAY + LATE_NS + 1, TOKEN * PERIOD + DELAY + LATE_NS + 2, False),
    ],
    ids=["before the token", "as it was sent", "as it was released", "after that"],
)
def test_a_lab_that_was_late_meanwhile(
    market: Market, tmp_path: Path, from_ns: int, to_ns: int, *, explained: bool
) -> None:
    verdict = judged(market, tmp_path, Episode(from_ns, to_ns, 3 * MS, 1))
    assert verdict.late[0].is_explained is explained
    assert len(verdict.unexplained) == (not explained)


def test_what_was_promised_and_is_missing_somewhere_is_lost(market: Market, tmp_path: Path) -> None:
    there, nowhere = Label(source_id(1), 6), Label(source_id(1), 7)
    assert judge(market, REPORT, tmp_path, promised=[there], waited_for=["a", "b"]).is_sound
    verdict = judge(market, REPORT, tmp_path, promised=[there, nowhere], waited_for=["a", "b"])
    assert (verdict.promised, verdict.lost, verdict.is_sound) == (2, 1, False)
    assert judge(market, REPORT, tmp_path, promised=[there, nowhere]).is_sound, "nobody was waited for"


def test_who_was_waited_for_and_is_behind_has_stalled(market: Market, tmp_path: Path) -> None:
    """Without a gap in its journal, which only ends too early."""
    assert judge(market, REPORT, tmp_path, waited_for=["archive"]).stalled == ("archive",)
    assert not judge(market, REPORT, tmp_path, waited_for=["archive"]).is_sound
    assert judge(market, REPORT, tmp_path).stalled == ()


def test_the_verdict_is_json(market: Market, tmp_path: Path) -> None:
    log(tmp_path, 0)
    parts = json.loads(
        json.dumps(judged(market, tmp_path, Episode(TOKEN * PERIOD, TOKEN * PERIOD, 3 * MS, 1)).as_json())
    )
    (late,) = parts["late"]
    assert (late["late_ns"], late["behind_ns"], late["is_explained"], late["by_process"]) == (LATE_NS, 0, True, False)
    assert late["lab"] == [{"from_ns": TOKEN * PERIOD, "to_ns": TOKEN * PERIOD, "worst_ns": 3 * MS, "count": 1}]
    assert (parts["late_unexplained"], parts["lost"], parts["is_sound"]) == (0, 0, True)
