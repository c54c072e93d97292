"""Gold that goes on behind a stream: the same as if it had been made at once, whatever comes when.

A day with corrections and cancels, two stripes that share their symbols, one of which comes later than the other.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.lake.markets import token_block
from tests.lake.test_pipeline import rows
from tests.lake.transforms.days import synthetic_day

from isocast.lake import pipeline
from isocast.lake.pipeline import BackgroundWorker, Origin, run, stream
from isocast.lake.pipeline_stages import spread_counts
from isocast.lake.tables import Lake, LakeSettings
from isocast.lake.transforms.asof import LEFT_OUT, NOTED
from isocast.lake.transforms.bars import bar_parts, grown_bars, read_calendar, read_interval, whole_bars
from isocast.runtime.disk.journal import Journal
from isocast.terms.ids import source_id
from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import JournalMessage
from isocast.wire.packets import payload_digest

SETTINGS = LakeSettings(intervals=("1m", "1w"), zone="America/New_York", session="09:30-16:00", window="90m")
DAY_NS = 86_400 * 10**9
UNTIL_NS = 16 * 3_600 * 10**9
"""11:00 in New York, in the middle of the session."""
_PER_MESSAGE = 9
_PER_TOKEN = 4


def write_stripe(place: Path, stripe: int, events: EventArray) -> None:
    """A journal of some events, in their order."""
    raw = [events[at : at + _PER_MESSAGE] for at in range(0, len(events), _PER_MESSAGE)]
    due = np.maximum.accumulate(events["time"].astype(np.int64))
    with Journal.open(place / f"tokyo-{stripe}" / "journal", stripe, 1) as journal:
        for first in range(0, len(raw), _PER_TOKEN):
            messages: list[JournalMessage] = []
            for number, part in enumerate(raw[first : first + _PER_TOKEN], first + 1):
                payload = part.tobytes()
                messages.append((source_id(1), number, payload_digest(payload), payload))
            last = min((first + len(messages)) * _PER_MESSAGE, len(events)) - 1
            instant = max(int(due[last]), journal.position.instant + 1)
            journal.append(token_block(stripe, first // _PER_TOKEN + 1, first + 1, instant, messages))


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Floors by turns in two stripes: every symbol is in both. The first stripe ends within the session."""
    events = synthetic_day(trades=700, symbols=6, corrections=0.05)
    floors = sorted(set(events["floor"].tolist()))
    place = tmp_path_factory.mktemp("journals")
    until = int(events["time"].max()) // DAY_NS * DAY_NS + UNTIL_NS
    for stripe, whose in ((0, events["time"] < until), (1, events["time"] > 0)):
        write_stripe(place, stripe, events[np.isin(events["floor"], floors[stripe::2]) & whose])
    return place


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake.create(tmp_path_factory.mktemp("at-once") / "lake", SETTINGS)
    run(spark, lake, Origin(journals))
    return lake


def amendments(lake: Lake) -> int:
    """Commits of the tape that changed trades of before."""
    return sum(bool(note["amends"]) for note in lake.tape.notes_since(0))


@pytest.mark.long
def test_gold_made_in_steps_is_gold_made_at_once(
    spark: SparkSession, journals: Path, at_once: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables follow every batch here; commits that amend and commits that do not take turns."""
    monkeypatch.setattr(pipeline, "STREAM_SMALL", 2)
    lake = Lake.create(tmp_path / "lake", SETTINGS)
    for last in (40, 80, 120, 160, 10**6):
        # A job for each batch: a follower may take several at once.
        stream(spark, lake, Origin(journals, options={"toSequence": str(last)}), available_now=True)
    assert 0 < amendments(lake) < lake.tape.snapshot().version
    run(spark, lake, Origin(journals))
    assert rows(lake) == rows(at_once)


@pytest.mark.long
def test_a_stripe_that_comes_later_opens_bars_that_others_have_begun(
    spark: SparkSession, journals: Path, at_once: Lake, tmp_path: Path
) -> None:
    """It changes windows of later hours too, in which it has no trade."""
    early = tmp_path / "early"
    shutil.copytree(journals / "tokyo-1", early / "tokyo-1")
    lake = Lake.create(tmp_path / "lake", SETTINGS)
    assert run(spark, lake, Origin(early)).events
    shutil.copytree(journals / "tokyo-0", early / "tokyo-0")
    assert run(spark, lake, Origin(early)).events
    assert amendments(lake) == 0, "corrections are in the stripe of their trades"
    assert rows(lake) == rows(at_once)


def test_what_comes_in_the_same_instant_of_a_stripe_closes_a_bar_and_does_not_open_it(spark: SparkSession) -> None:
    """A token in two blocks, which two batches bring."""
    names = "stripe INT, sequence BIGINT, index INT, symbol STRING, price BIGINT, quantity BIGINT, state INT"
    rows = [(0, 1, 0, "A", 300, 1, 0, 5, 9), (0, 2, 0, "A", 100, 1, 0, 5, 9)]
    tape = spark.createDataFrame(rows, f"{names}, event_ns BIGINT, due_ns BIGINT")
    first, second = (bar_parts(tape.where(F.col("sequence") == at), read_interval("1s")) for at in (1, 2))
    made = grown_bars(whole_bars(first), second).collect()
    assert [(row["open"], row["high"], row["low"], row["close"], row["trades"]) for row in made] == [
        (300, 300, 100, 100, 2)
    ]


@pytest.mark.long
def test_spreads_of_every_interval_are_of_the_same_trades(spark: SparkSession, at_once: Lake) -> None:
    """A week begins days before its last trade: it is there too, and the report says how many have no spread."""
    made = at_once.spreads.read(spark)
    assert made is not None
    names = ("trades", *LEFT_OUT, *NOTED)
    found = {
        row["interval"]: row for row in made.groupBy("interval").agg(*(F.sum(n).alias(n) for n in names)).collect()
    }
    counts = spread_counts(at_once)
    assert {text: {name: row[name] for name in names} for text, row in found.items()} == dict.fromkeys(
        SETTINGS.intervals, counts
    )
    assert counts["trades"] > 0
    tape = at_once.tape.read(spark)
    assert tape is not None
    stands = bar_parts(tape, read_interval("1d"), read_calendar(SETTINGS.zone, SETTINGS.session))
    total = stands.agg(F.sum("trades")).collect()[0][0]
    assert sum(counts[name] for name in ("trades", *LEFT_OUT)) == total


def test_a_follower_does_what_is_due_and_tells_what_failed() -> None:
    at_work, may_go_on = Event(), Event()
    done: list[int] = []

    def work() -> None:
        at_work.set()
        assert may_go_on.wait(30)
        done.append(len(done))

    with BackgroundWorker(work) as follower:
        follower.wake()
        assert at_work.wait(30)
        follower.wake()
        follower.wake()
        may_go_on.set()
    assert done == [0, 1], "what was wanted twice while it was at work is done once"

    def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"), BackgroundWorker(fail) as follower:
        follower.wake()
    assert not follower.is_well


def test_an_error_of_the_job_itself_comes_first() -> None:
    def fail() -> None:
        raise KeyError("no")

    def job() -> None:
        with BackgroundWorker(fail) as follower:
            follower.wake()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        job()
