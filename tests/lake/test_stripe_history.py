"""Histories by Spark: the plan that they give is the plan that the events themselves give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.lake.markets import START, token_block
from tests.striping.busy_days import events_of

from isocast.cli.main import main
from isocast.cli.plan_stripes import load_history
from isocast.runtime.disk.journal import Journal
from isocast.striping.history import History, make_history
from isocast.striping.making import MakingSettings, make_plan
from isocast.striping.plan import read_plan
from isocast.striping.routing import CoreRoutes
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import source_id
from isocast.terms.instants import SECOND
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENTS_PER_PAYLOAD, EventArray
from isocast.wire.packets import payload_digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERIOD = 720_000_000


def frame_of(spark: SparkSession, events: EventArray) -> DataFrame:
    import pyarrow as pa  # noqa: PLC0415

    columns = {
        "kind": events["kind"].astype(np.int8),
        "symbol": [name.decode() for name in events["symbol"].tolist()],
        "event_ns": events["time"].astype(np.int64),
    }
    return spark.createDataFrame(pa.table(columns).to_pandas(), "kind tinyint, symbol string, event_ns bigint")


def equal(one: History, two: History) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(two, name))
        for name in ("names", "begins", "slices", "starts", "start_times", "prices", "everything", "floor_wide")
    ) and (one.length, one.active_ns) == (two.length, two.active_ns)


@pytest.mark.parametrize("name", ["history.csv", "history.parquet"])
def test_the_plan_from_sparks_history_is_the_plan_from_the_day(spark: SparkSession, tmp_path: Path, name: str) -> None:
    from isocast.lake.stripe_history import symbol_slices, write_history  # noqa: PLC0415

    day = events_of(1, 40, 3_000)
    assert EventKind.DIRECTORY in day["kind"], "announcements may wait, and count apart"
    assert (day["symbol"] == b"").any(), "some concern whole floors"
    write_history(symbol_slices(frame_of(spark, day), PERIOD), tmp_path / name, tmp_path / "aside")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aside", name]
    direct = make_history([day], PERIOD)
    loaded = load_history([tmp_path / name], PERIOD, None, None, quiet=True)
    assert equal(loaded, direct)
    settings = MakingSettings(rate=24_000)
    assert make_plan(loaded, settings).plan.digest == make_plan(direct, settings).plan.digest


def test_what_every_stripe_has_is_added_up_once(spark: SparkSession, tmp_path: Path) -> None:
    """From the journals of two stripes comes the history of the day that was split into them."""
    from isocast.cli.lake_stripes import _events  # noqa: PLC0415
    from isocast.lake.stripe_history import symbol_slices  # noqa: PLC0415

    day = events_of(1, 10, 600)
    parts = CoreRoutes((1, 2)).split(day)
    assert (parts[2]["flags"] & EventFlag.COPIED).any()
    for stripe, part in parts.items():
        with Journal.open(tmp_path / f"tokyo-{stripe}" / "journal", stripe, 1) as journal:
            for token, start in enumerate(range(0, len(part), EVENTS_PER_PAYLOAD), 1):
                payload = part[start : start + EVENTS_PER_PAYLOAD].tobytes()
                message = (source_id(1), token, payload_digest(payload), payload)
                journal.append(token_block(stripe, token, token, START + token, [message]))

    def floor_wide(folder: Path) -> int:
        made = symbol_slices(_events(spark, folder, None), PERIOD).where("symbol = ''")
        return int(made.agg({"count": "sum"}).collect()[0][0])

    whole = int((day["symbol"] == b"").sum())
    assert floor_wide(tmp_path) == whole
    assert floor_wide(tmp_path / "tokyo-2") == whole, "nobody else counts them"


def test_peaks_and_kin_are_those_of_a_hand_made_day(spark: SparkSession) -> None:
    from isocast.lake.stripe_history import co_movement, sector_loads, symbol_peaks, symbol_slices  # noqa: PLC0415

    trade = int(EventKind.TRADE)
    rows = []
    for minute in range(40):
        for symbol, many in (("AA", minute % 2), ("AB", minute % 2), ("BB", 1 - minute % 2), ("CC", 1)):
            rows += [(trade, symbol, minute * 60 * SECOND + at) for at in range(3 * many)]
    # The busiest period of CC straddles a second: no token knows where seconds begin.
    rows += [(trade, "CC", 3_000 * SECOND + 700_000_000 + 30_000_000 * at) for at in range(20)]
    slices = symbol_slices(spark.createDataFrame(rows, "kind tinyint, symbol string, event_ns bigint"), SECOND).cache()
    peaks = {row.symbol: row for row in symbol_peaks(slices, SECOND).collect()}
    assert (peaks["CC"].events, peaks["CC"].peak_bytes) == (140, 20 * 46)
    assert peaks["AA"].peak_bytes == 3 * 46
    pairs = {(row.one, row.two): row.correlation for row in co_movement(slices, SECOND, 4).collect()}
    assert pairs["AA", "AB"] == pytest.approx(1.0)
    assert pairs["AA", "BB"] < -0.5
    loads = {row.sector: row for row in sector_loads(slices, {"AA": "A", "AB": "A"}, SECOND).collect()}
    assert (loads["A"].symbols, loads["A"].peak_bytes, loads["–"].symbols) == (2, 6 * 46, 2)
    slices.unpersist()


def write_day(folder: Path, day: EventArray) -> None:
    with Journal.open(folder / "tokyo" / "journal", 0, 1) as journal:
        for token, start in enumerate(range(0, len(day), EVENTS_PER_PAYLOAD), 1):
            payload = day[start : start + EVENTS_PER_PAYLOAD].tobytes()
            message = (source_id(1), token, payload_digest(payload), payload)
            journal.append(token_block(0, token, token, START + token, [message]))


@pytest.mark.usefixtures("spark")
def test_one_command_from_journals_to_a_plan_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = events_of(1, 40, 3_000)
    write_day(tmp_path / "data", day)
    plan = tmp_path / "stripes.toml"
    words = ["lake", "stripes", "--journals", str(tmp_path / "data"), "--rate", "24k", "--token-period", "720ms"]
    assert main([*words, "--plan", str(plan), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    made = make_plan(make_history([day], PERIOD), MakingSettings(rate=24_000)).plan
    assert read_plan(plan.read_text(encoding="utf-8"), "stripes.toml").digest == made.digest
    assert value["plan"]["digest"] == made.digest.hex()
    assert value["plan"]["against_hash"]["planned"]["too_busy"] == 0
    assert main(["plan", "stripes", "--from", str(plan), "--check", str(tmp_path / "data" / "tokyo" / "journal")]) == 0


@pytest.mark.parametrize(
    "words, rule",
    [
        ("--journals nowhere", "nowhere: no such folder"),
        ("--lake nowhere", "is no lake"),
        ("--journals . --out x.json", "--out: must end in .csv or .parquet"),
        ("--journals . --out nowhere/x.csv", "--out: there is no directory nowhere"),
        ("--journals . --plan nowhere/x.toml", "--plan: there is no directory nowhere"),
        ("--journals . --png nowhere/x.png", "--png: there is no directory nowhere"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    words: str, rule: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isocast.cli.lake_tables.lake_session", lambda *_: pytest.fail("Spark was started"))
    assert main(["lake", "stripes", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert rule in err


def test_a_history_of_another_kind_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from isocast.lake.stripe_history import symbol_slices, write_history  # noqa: PLC0415

    slices = symbol_slices(spark.createDataFrame([(1, "A", 5)], "kind tinyint, symbol string, event_ns bigint"), SECOND)
    with pytest.raises(ConfigurationError, match=r"must end in \.csv or \.parquet"):
        write_history(slices, tmp_path / "history.json", tmp_path)
    write_history(slices, tmp_path / "small.csv", tmp_path)
    assert (tmp_path / "small.csv").read_text(encoding="utf-8").splitlines()[1] == "A,0.000000000,1,46,46"
