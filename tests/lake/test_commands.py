"""`isocast lake fairness` and `isocast lake stripes` as somebody types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest
from tests.cli.left_behind import own_place
from tests.lake.markets import CLOCK_BOUND, write_market
from tests.lake.measured import line, write_lines
from tests.lake.planted import flip_in_place
from tests.runtime.worlds import SMALL, market_file

from isocast.cli.main import main
from isocast.runtime.market.file import load_market

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_fairness_of_a_market_is_told_with_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    market = write_market(tmp_path / "market", events=600, stripes=(0,))
    write_lines(market.path, "tokyo-0", [line("tokyo-0", at, {"tokens_accepted": 1}, [[1, at, at]]) for at in range(9)])
    words = ["lake", "fairness", "--journals", str(market.path), "--report", str(tmp_path / "fairness.html"), "--json"]
    assert main(words) == 0
    got = capsys.readouterr()
    told = json.loads(got.out)
    assert told["exceeding"] == 0
    assert {row["bound_ns"] for row in told["sites"]} == {2 * CLOCK_BOUND}
    assert {row["region"] for row in told["entry"]} == {"XNYS", "XLON", "XTKS"}
    assert told["advice"] is None, "nobody said what the times are now"
    assert told["delays"][0]["tokens"] == 9
    assert (tmp_path / "skew.svg").exists()
    assert (tmp_path / "fairness.html").read_text(encoding="utf-8").count("<img") == 2
    flip_in_place(market.journal(2, 0), 20, 1, "price")
    assert main(["lake", "fairness", "--journals", str(market.path)]) == 2
    got = capsys.readouterr()
    assert got.err.strip().splitlines()[-1].startswith("isocast: ")
    assert "checksum" in got.err
    assert "Traceback" not in got.err


@pytest.mark.long
def test_stripes_writes_what_the_planner_reads(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    market = write_market(tmp_path / "market", receivers=1, stripes=(0,), events=1_500, span_s=30)
    history, plan = tmp_path / "history.parquet", tmp_path / "stripes.toml"
    sectors = tmp_path / "sectors.csv"
    sectors.write_text("symbol,sector\nS0N000,Energy\nS0N001,Energy\n", encoding="utf-8")
    words = ["lake", "stripes", "--journals", str(market.path), "--rate", "8k", "--sectors", str(sectors)]
    assert main([*words, "--out", str(history)]) == 0
    out = capsys.readouterr().out
    assert "Energy" in out
    assert f"Plan with: isocast plan stripes {history} --rate 8k --token-period 1s" in out
    assert main(["plan", "stripes", str(history), "--rate", "8k", "--out", str(plan), "--json"]) == 0
    by_spark = json.loads(capsys.readouterr().out)["digest"]
    assert main(["plan", "stripes", str(market.journal(1, 0)), "--rate", "8k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == by_spark


def test_a_site_has_one_name_in_all_its_stripes(tmp_path: Path) -> None:
    """Its releases of all stripes stand in one row."""
    from isocast.cli.lake_fairness import _settings  # noqa: PLC0415

    market = load_market(market_file(tmp_path, SMALL, settings={"ring": {"stripes": [0, 1]}}))
    assert dict(_settings(market, 0.9, 1, curves=False).names) == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize(
    "words, rule",
    [
        (["stripes"], "give either --journals DIR or --lake DIR"),
        (["stripes", "--journals", ".", "--rate", "fast"], "must be a bit-rate"),
        (["stripes", "--journals", ".", "--token-period", "soon"], "must be a time"),
        (["run", "--journals", ".", "--lake", "x", "--receiver", "all"], "a lake has every event once"),
        (["fairness"], "--journals: is missing"),
        (["fairness", "--journals", "/nowhere/at/all"], "no such folder"),
        (["fairness", "--journals", "/proc/self/fdinfo"], "no journal"),
        (["fairness", "--journals", ".", "--lake", "."], "give either --journals DIR or --lake DIR"),
        (["fairness", "--lake", "/nowhere/at/all"], "is no lake"),
        (["fairness", "--journals", ".", "--fraction", "1"], "Must be < 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    words: list[str],
    rule: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # Where no market runs.
    assert main(["lake", *words]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert rule in got.err


@pytest.mark.long
@pytest.mark.parametrize(
    "number, stage",
    [
        (signal.SIGHUP, "Java starts"),
        (signal.SIGINT, "a query runs"),
        (signal.SIGINT, "tables are written"),
        (signal.SIGTERM, "tables are written"),
    ],
)
def test_a_signal_at_any_stage_of_a_query_is_one_line_and_java_goes_too(
    number: signal.Signals, stage: str, tmp_path: Path
) -> None:
    """No word of py4j's, and nobody left, whichever of the threads, sockets and processes it meets."""
    market = write_market(tmp_path / "market", events=3_000, stripes=(0,))
    lake = tmp_path / "lake"
    words = ["lake", "run", "--journals", str(market.path), "--lake", str(lake), "--json"]
    with own_place() as place:
        awaited: Callable[[], bool] = {
            "Java starts": lambda: any("java" in one for one in place.left()),
            "a query runs": lambda: any("pyspark" in one and "java" not in one for one in place.left()),
            "tables are written": lambda: any(lake.glob("bronze/*/_log/*")),
        }[stage]
        with subprocess.Popen(
            [sys.executable, "-m", "isocast", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=place.environment,
            start_new_session=True,
        ) as process:
            until = monotonic() + 240
            while process.poll() is None and not awaited():
                assert monotonic() < until
                sleep(0.1)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            _, said = process.communicate(timeout=240)
            left = place.left()
    assert (process.returncode, said) == (130, "isocast: interrupted\n")
    assert left == []
