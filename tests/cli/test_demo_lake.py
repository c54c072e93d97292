"""The pipeline beside the demo: what the demo makes of what it says, and once the whole of it with Spark."""

import asyncio
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.cli.left_behind import own_place
from tests.trials.demo.canned import NOW, canned_market, write_journals

from isocast.checks.skew import Quantiles, ReleaseSkew
from isocast.cli import demo_lake
from isocast.cli.demo_lake import MISSING, LakeBeside, LakeStage, behind_s, interval_for, lake_lines, lake_words
from isocast.cli.demo_lake_job import Orders
from isocast.cli.demo_run import next_steps
from isocast.cli.demo_view import frame
from isocast.runtime.market.model import Market
from isocast.terms.instants import SECOND
from isocast.trials.demo.show import Show, ShowPhase, ShowSettings
from isocast.trials.demo.trading import TRADERS
from isocast.trials.demo.trading_summary import TradingSummary

EVENTS = 60
BAR = {"open": 1_428_600, "high": 1_428_700, "low": 1_428_100, "close": 1_428_100, "volume": 10_400, "trades": 18}
SKEW = asdict(
    ReleaseSkew(17, 3_000_000, 6_000_000, 6_500_000, 10_000_000, partly=4, faulted=2, late=1, backlog=1, alone=1)
)
AUDIT = {"verdict": "clean", "sentence": "", "messages_compared": 20, "counts": {}, "journals": 10, "findings": []}
DONE: dict[str, Any] = {
    "stage": "done",
    "events": EVENTS,
    "tables": {"bronze/released": EVENTS, "silver/tape": 10, "silver/quotes": 30, "gold/bars": 4},
    "interval": "10s",
    "bars": [
        {"symbol": "IBM", "start_ns": (1_794_752_740 + 10 * place) * SECOND, **BAR, "vwap": "1428452.884615"}
        for place in range(4)
    ],
    "skew": SKEW,
    "audit": AUDIT,
}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    made = canned_market(tmp_path)
    (Path(made.file).parent / "logs").mkdir(exist_ok=True)
    return made


def job(before: list[dict[str, Any]], after: list[dict[str, Any]], code: int = 0) -> tuple[str, ...]:
    """A process that says some things, hears that the market has stopped, says others, and ends."""
    script = (
        "import json, sys\n"
        f"for said in json.loads({json.dumps(before)!r}): print(json.dumps(said), flush=True)\n"
        "print('no JSON, as libraries say', flush=True)\n"
        f"heard = sys.stdin.readline() if {bool(after)} or not {code} else ''\n"
        f"for said in json.loads({json.dumps(after)!r}): print(json.dumps(said), flush=True)\n"
        f"assert not heard or heard == 'finish {EVENTS}\\n'\n"
        f"sys.exit({code})\n"
    )
    return ("-c", script)


def ended(market: Market, command: tuple[str, ...], patience_s: float = 60.0) -> LakeBeside:
    async def run() -> LakeBeside:
        async with LakeBeside(market, 30.0, command) as lake:
            await lake.finish(EVENTS, patience_s)
        return lake

    return asyncio.run(run())


def text_of(lake: LakeBeside) -> str:
    return "\n".join(lake_lines(lake))


def test_a_pipeline_that_catches_up_is_summed_up(market: Market) -> None:
    lake = ended(market, job([{"stage": "following", "events": 40}], [{"stage": "judging"}, DONE]))
    assert (lake.stage, lake.faults) == (LakeStage.DONE, [])
    text = text_of(lake)
    assert "60 of 60 events, " in text
    assert "10 trades, 30 quotes, 4 bars" in text
    assert re.search(r"IBM +14:\d\d:\d\d  142\.86  142\.87  142\.81  142\.81  10,400 +18  142\.85", text)
    assert text.count("142.87") == 3, "the newest three of four"
    assert "3.0 ms median, 6.0 ms p99, 6.5 ms at most" in text
    assert "17 of 17 messages within 2ε = 10 ms\n" in text
    assert "4 of them without a receiver that was away" in text
    assert "left out: 2 fairness faults (1 too late, 1 owed to an earlier ring)\n" in text
    assert "left out: 1 message of one receiver alone" in text
    assert "audit       clean: 10 journals, 20 messages compared" in text
    assert max(map(len, text.splitlines())) <= 100
    found = lake.as_json()
    assert (found["stage"], found["events"], found["audit"], found["skew"]) == ("done", EVENTS, AUDIT, SKEW)
    assert len(found["bars"]) == 4
    assert any("lake bars --lake" in line for line in next_steps(market, lake))


def test_what_the_audit_finds_and_what_tables_lack_is_wrong(market: Market) -> None:
    bad = {**AUDIT, "verdict": "findings", "counts": {"early": 1}, "findings": ["early: stripe 0, sequence 7: 2 ms"]}
    lake = ended(market, job([], [{**DONE, "events": EVENTS - 1, "audit": bad}]))
    assert lake.faults == [
        "59 events in the tables, 60 released",
        "audit: early: stripe 0, sequence 7: 2 ms",
    ]
    assert "audit       findings (1 early)" in text_of(lake)
    assert "WRONG       59 events" in text_of(lake)
    behind = {**AUDIT, "verdict": "incomplete", "counts": {"behind": 1}, "findings": ["behind: stripe 0: ends early"]}
    lake = ended(market, job([], [{**DONE, "audit": behind}]))
    assert lake.faults == [], "a market that was interrupted has not released everything everywhere"
    assert "incomplete (1 behind)" in text_of(lake)


TRADES: dict[str, Any] = {
    "floor": "XISO",
    "orders": 3,
    "trades": 1,
    "volume": 40,
    "confirmed": 1,
    "differing": 0,
    "newest": [
        {"trade": 1, "symbol": "ISO", "price": 1_000_000, "quantity": 40, "state": "confirmed"}
        | {side: str(seat.account << 32 | 1) for side, seat in zip(("buy", "sell"), TRADERS, strict=False)}
    ],
}


def trading_summary(trades: int = 1, sequenced: int = 3) -> TradingSummary:
    none = Quantiles()
    return TradingSummary(
        floor="XISO", traders=(), orders=3, sequenced=sequenced, cancels=0, trades=trades, confirmed=1, busted=0,
        value=0, currency="USD", to_tentative=none, to_confirmed=none, tokens_to_confirmed=0, settled=2, unsettled=0,
        clearing={}, reserved={}, agreeing=7, receivers=7, state="ab", agreed={}, faults=(),
    )  # fmt: skip


def test_trades_of_the_floor_are_a_table_that_agrees_with_the_journals(market: Market) -> None:
    lake = ended(market, job([], [{**DONE, "trades": TRADES}]))
    lake.trading = trading_summary()
    assert lake.faults == []
    text = text_of(lake)
    assert "trades      XISO: 3 orders, 1 trade of 40 shares, 1 confirmed; the newest:" in text
    assert re.search(r"1  ISO +100\.00 +40  London  New York  confirmed", text)
    assert max(map(len, text.splitlines())) <= 100
    assert lake.as_json()["trades"] == TRADES
    lake.trading = trading_summary(trades=2, sequenced=4)
    assert lake.faults == [
        "XISO has 3 orders in the tables, 4 in journals and books",
        "XISO has 1 trades in the tables, 2 in journals and books",
    ]
    quiet = {**TRADES, "trades": 0, "volume": 0, "confirmed": 0, "newest": []}
    lake = ended(market, job([], [{**DONE, "trades": quiet}]))
    assert "trades      XISO: 3 orders, 0 trades of 0 shares, 0 confirmed\n" in text_of(lake)


def test_a_pipeline_that_fails_is_one_line_and_no_fault(market: Market) -> None:
    told = ended(market, job([], [{"stage": "failed", "reason": "no Java"}], 1))
    died = ended(market, job([{"stage": "starting"}], [], 7))
    for lake, reason in ((told, "no Java"), (died, "Spark's process ended with code 7")):
        assert (lake.stage, lake.reason, lake.faults) == (LakeStage.FAILED, reason, [])
        assert text_of(lake) == f"  tables      none, Spark failed: {reason}\n"
        assert lake.as_json()["bars"] is None
        assert not any("lake" in line.split() for line in next_steps(market, lake))


def test_the_market_waits_a_little_for_spark_which_then_gives_way(market: Market) -> None:
    script = (
        "import json, sys\n"
        "print(json.dumps({'stage': 'starting'}), flush=True)\n"
        "print(json.dumps({'stage': 'ready'}), flush=True)\n"
        "heard = sys.stdin.readline().strip()\n"
        "print(json.dumps({'stage': 'failed', 'reason': heard}), flush=True)\n"
        "sys.stdin.readline()\n"
    )

    async def run(command: tuple[str, ...], patience_s: float) -> tuple[LakeStage, LakeBeside]:
        async with LakeBeside(market, 30.0, command) as lake:
            await lake.head_start(patience_s)
            stage = lake.stage
            await lake.finish(EVENTS, 60.0 if patience_s > 1 else 0.1)
        return stage, lake

    stage, lake = asyncio.run(run(("-c", script), 60.0))
    assert (stage, lake.reason) == (LakeStage.READY, "give way")
    stage, lake = asyncio.run(run(("-c", "import time; time.sleep(600)"), 0.2))
    assert (stage, lake.stage) == (LakeStage.STARTING, LakeStage.LEFT)


def test_nobody_waits_for_ever(market: Market) -> None:
    asleep = ("-c", "import time; time.sleep(600)")
    lake = ended(market, asleep, patience_s=0.5)
    assert lake.stage is LakeStage.LEFT
    assert "left behind with 0 events: the tables were not complete" in text_of(lake)
    assert lake._process is not None  # noqa: SLF001
    assert lake._process.returncode == -9, "its process is gone"  # noqa: SLF001


def test_whoever_is_interrupted_does_not_wait(market: Market) -> None:
    async def run() -> LakeBeside:
        async with LakeBeside(market, 30.0, ("-c", "import time; time.sleep(600)")) as lake:
            asyncio.get_running_loop().call_later(0.1, lake.give_up)
            await lake.finish(EVENTS, 600.0)
        return lake

    assert asyncio.run(run()).reason == "interrupted"


def test_without_spark_the_demo_says_how_to_get_it(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_lake, "find_spec", lambda _: None)
    lake = ended(market, ())
    assert (lake.stage, lake.reason) == (LakeStage.MISSING, MISSING)
    assert "pip install 'isocast[spark]'" in text_of(lake)
    assert lake._process is None  # noqa: SLF001


@pytest.mark.parametrize(
    "seconds, interval", [(5, "5s"), (15, "5s"), (30, "10s"), (60, "30s"), (180, "1m"), (3_600, "20m")]
)
def test_a_show_has_about_three_bars(seconds: float, interval: str) -> None:
    assert interval_for(seconds) == interval


# ---- while it runs


def drawn(show: Show, lake: LakeBeside, width: int, height: int, now: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, force_terminal=True)
    console.print(frame(show, width, height, now, lake))
    return out.getvalue().splitlines()


def following(market: Market) -> tuple[Show, LakeBeside]:
    show = Show(market, ShowSettings(30.0, 7))
    show.phase, show.began_at, show.opened_at = ShowPhase.PLAYING, NOW - 2 * SECOND, NOW
    write_journals(market)
    with show.watch:
        show.watch.follow_journals()
    return show, LakeBeside(market, 30.0)


@pytest.mark.parametrize("width, height", [(100, 40), (80, 24), (8, 2)])
def test_the_live_view_has_a_line_of_the_tables(width: int, height: int, market: Market) -> None:
    show, lake = following(market)
    lines = drawn(show, lake, width, height, NOW + SECOND)
    assert len(lines) <= height
    if width > 8:
        assert "tables: Spark starts" in "\n".join(lines)
    lake.stage, lake.events = LakeStage.FOLLOWING, 40
    newest = max(chunk.due for chunk in show.watch.releases.chunks.values())
    lake.through_ns = newest - 2 * SECOND
    assert behind_s(lake, show) == 2.0
    if width > 8:
        assert "tables: 40 events, 2.0 s behind" in "\n".join(drawn(show, lake, width, height, NOW + SECOND))


def test_the_words_follow_the_stages(market: Market) -> None:
    show, lake = following(market)
    lake.stage = LakeStage.READY
    assert lake_words(lake, show) == "tables: Spark waits for the market"
    lake.stage = LakeStage.FOLLOWING
    assert lake_words(lake, show) == "tables: Spark reads its first batch"
    lake.stage, lake.events, lake.expected = LakeStage.CATCHING_UP, 40, EVENTS
    assert lake_words(lake, show) == "tables catch up: 40 of 60 events"
    assert "all have stopped; tables catch up: 40 of 60 events" in drawn(show, lake, 100, 40, NOW)[0]
    lake.events = EVENTS
    assert lake_words(lake, show) == "tables: 60 events; tape, quotes and bars follow"
    lake.stage = LakeStage.JUDGING
    assert "skew and audit are computed" in lake_words(lake, show)
    lake.stage = LakeStage.DONE
    assert lake_words(lake, show) == "tables: all 60 events"
    lake.stage, lake.reason = LakeStage.FAILED, "no Java"
    assert lake_words(lake, show) == "no tables: no Java"


# ---- the job


@pytest.mark.parametrize(
    "lines, events", [(["give way\n", "finish 12\n"], 12), (["what\n", "finish x\n"], None), ([], None)]
)
def test_the_job_hears_when_the_market_stops_and_when_nobody_listens(
    lines: list[str], events: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[bool] = []
    monkeypatch.setattr("isocast.cli.demo_lake_job._usual_priority", lambda: None)
    monkeypatch.setattr("isocast.cli.demo_lake_job.lower_priority", lambda: lowered.append(True))
    gone: list[bool] = []
    leave: Callable[[], None] = lambda: gone.append(True)  # noqa: E731
    orders = Orders(leave)
    orders.hear(lines)
    assert (orders.events if orders.finish.is_set() else None, gone) == (events, [True])
    assert lowered == [True] * ("give way\n" in lines)


@pytest.mark.long
@pytest.mark.xdist_group("demo")
def test_spark_follows_a_real_market_to_its_last_event(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "isocast", "demo", "--headless", "--seconds", "15", "--json", "--keep", "kept")
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=tmp_path, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    lake = found["lake"]
    assert (lake["stage"], lake["reason"]) == ("done", None)
    assert lake["events"] == lake["tables"]["bronze/released"] == found["events"] >= found["events_published"]
    assert (lake["audit"]["verdict"], lake["audit"]["messages_compared"]) == ("clean", found["messages"])
    assert lake["audit"]["journals"] == 10
    assert lake["skew"] == found["skew"], "one definition, one figure, and the same is left out"
    assert sum(lake["skew"][name] for name in ("count", "faulted", "alone")) == found["messages"]
    assert lake["interval"] == "5s"
    assert len({bar["symbol"] for bar in lake["bars"]}) == 3
    for bar in lake["bars"]:
        assert bar["low"] <= min(bar["open"], bar["close"]) <= max(bar["open"], bar["close"]) <= bar["high"]
        assert bar["volume"] >= bar["trades"] > 0
    trading, trades = found["trading"], lake["trades"]
    assert (trades["floor"], trades["differing"]) == ("XISO", 0)
    assert (trades["orders"], trades["trades"]) == (trading["sequenced"], trading["trades"])
    assert trades["confirmed"] == trading["confirmed"] == trading["trades"]
    assert (trading["unsettled"], trading["clearing"]) == (0, {})
    assert (tmp_path / "kept" / "lake" / "lake.json").is_file()


# ---- interrupted

MOMENTS = 10
LINES = 24
"""So many a demo of eight seconds says before its summary, however slow the machine is."""
SHOWN = "isocast: interrupted\n"
CAUSES = ("Ctrl-C", "SIGTERM", "a closed terminal", "a closed pipe")
SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "a closed terminal": signal.SIGHUP}


@pytest.mark.long
@pytest.mark.xdist_group("demo")
@pytest.mark.parametrize("number", range(MOMENTS))
def test_the_whole_demo_interrupted_at_a_random_moment_ends_and_leaves_nothing(number: int) -> None:
    draws = random.Random(f"demo {number}")
    cause, lines, pause = CAUSES[number % len(CAUSES)], draws.randint(1, LINES), draws.uniform(0, 1.5)
    command = (sys.executable, "-m", "isocast", "demo", "--headless", "--seconds", "8")
    with (
        own_place() as place,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=place.environment,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        heard = [process.stdout.readline() for _ in range(lines)]
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        if cause in SIGNALS:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGNALS[cause])
            process.stdout.read()
        else:
            process.stdout.close()
        said = process.stderr.read()
        code = process.wait(600)
        left = place.left()
    where = f"{cause}, {pause:.1f} s after {heard[-1]!r}"
    assert "processes" in heard[0], where
    assert "no tables" not in "".join(heard), where
    assert (code, said) in ((0, ""), (130, SHOWN), (141, "")), where
    assert left == [], where
