"""The pipeline beside the demo's market: a process of low priority, watched, waited for, and summed up at the end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from isocast.checks.skew import ReleaseSkew
from isocast.cli.render import entry
from isocast.cli.skew_text import skew_words
from isocast.runtime.disk.scratch import scratch_directory
from isocast.runtime.market.model import Market
from isocast.runtime.operate import shutdown
from isocast.terms.instants import SECOND
from isocast.terms.market import from_ticks
from isocast.terms.quantities import counted
from isocast.trials.demo.show import Show
from isocast.trials.demo.trading import city_of

if TYPE_CHECKING:
    from isocast.trials.demo.trading_summary import TradingSummary

__all__ = [
    "MISSING",
    "LakeBeside",
    "LakeStage",
    "behind_s",
    "interval_for",
    "lake_lines",
    "lake_words",
]


MISSING = "Spark is not installed, so that no tables are made: pip install 'isocast[spark]'"
_JOB = ("-m", "isocast.cli.demo_lake_job")
_PATIENCE_S = 180.0
"""From the market's end to the verdict: some 15 s where nobody else works, and far more on a loaded machine."""
_HEAD_START_S = 12.0
"""A start takes some 5 s where nobody else works; on a loaded machine the market does not wait for all of it."""
_LINE_MOST = 1 << 24
_INTERVALS_S = (5, 10, 15, 30, 60, 120, 300, 600, 1_200)
_BARS_EACH = 3


class LakeStage(StrEnum):
    """How far the pipeline is; the first seven are the job's own words."""

    STARTING = "starting"
    READY = "ready"
    """There is no market yet to follow."""
    FOLLOWING = "following"
    CATCHING_UP = "catching up"
    JUDGING = "judging"
    DONE = "done"
    FAILED = "failed"
    LEFT = "left"
    """Nobody waited for it."""
    MISSING = "missing"
    """Spark is not there."""


_ENDS = (LakeStage.DONE, LakeStage.FAILED, LakeStage.LEFT, LakeStage.MISSING)


def interval_for(seconds: float) -> str:
    """A length of bars of which a show has about three."""
    chosen = next((each for each in _INTERVALS_S if seconds <= _BARS_EACH * each), _INTERVALS_S[-1])
    return f"{chosen // 60}m" if chosen % 60 == 0 else f"{chosen}s"


class LakeBeside:
    """In an `async with` block, which ends its processes and removes what they leave, but not the tables."""

    def __init__(self, market: Market, seconds: float, command: Sequence[str] = ()) -> None:
        """Nothing runs yet; `command` stands in for the pipeline."""
        self.root = Path(market.file).parent / "lake"
        self.stage = LakeStage.STARTING
        self.began = time.monotonic()
        self.events = 0
        """In tables."""
        self.through_ns = 0
        """The release instant of the newest of them."""
        self.expected: int | None = None
        """Events that were released in all, once the market has stopped."""
        self.trading: TradingSummary | None = None
        """What traders did, as journals and books have it."""
        self.reason = ""
        self.found: dict[str, Any] = {}
        """What the job said at its end."""
        self.followed = 0
        """Events that were in tables when the market stopped."""
        self.caught_up_s: float | None = None
        """From the market's end until everything was in tables."""
        self._market_file = Path(market.file)
        self._interval = interval_for(seconds)
        self._command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._stack = ExitStack()
        self._hearing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if not self._command and find_spec("pyspark") is None:
            self._end(LakeStage.MISSING, MISSING)
            return self
        with ExitStack() as stack:
            # Spark's sockets need a short path, and a process that is killed does not tidy up.
            scratch = stack.enter_context(scratch_directory("lake"))
            log = stack.enter_context((self._market_file.parent / "logs" / "lake.log").open("wb"))
            job = (*_JOB, str(self._market_file), str(self.root), self._interval)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(self._command or job),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_MOST,
                # Its own session can be weighed against the market's, and Ctrl-C is not for it.
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(scratch)},
            )
            self._stack = stack.pop_all()
        self._hearing = asyncio.create_task(self._hear(self._process), name="lake")
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._stack:
            if self._process is not None:
                shutdown.kill_family(self._process.pid)  # Java, and what it has started, wherever they put themselves.
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            if self._hearing is not None:
                await self._hearing

    # Asked of it ----------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.stage in _ENDS

    @property
    def faults(self) -> list[str]:
        """What its verdict says against the market, or against the tables themselves."""
        if self.stage is not LakeStage.DONE:
            return []
        found = []
        if self.events != self.expected:
            found.append(f"{counted(self.events, 'event')} in the tables, {self.expected:,} released")
        if self.found["audit"]["verdict"] == "findings":
            found += [f"audit: {text}" for text in self.found["audit"]["findings"]]
        if self.trading is not None and self.found.get("trades") is not None:
            found += _trade_faults(self.found["trades"], self.trading)
        return found

    async def head_start(self, patience_s: float = _HEAD_START_S) -> None:
        """Wait until Spark is there, which is soon while nobody else works; from then on it gives way to the market."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._started.wait()
        await self._order("give way")

    async def finish(self, events: int, patience_s: float = _PATIENCE_S) -> None:
        """The market has stopped after so many events: wait until all are in tables and judged, within reason."""
        self.expected, self.followed = events, self.events
        since = time.monotonic()
        await self._order(f"finish {events}")
        while not self.is_over and time.monotonic() < since + patience_s:
            if self.caught_up_s is None and self.stage is LakeStage.JUDGING:
                self.caught_up_s = time.monotonic() - since
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._ended.wait()
        if not self.is_over:
            self._end(LakeStage.LEFT, f"the tables were not complete {patience_s:.0f} s after the market's end")

    async def _order(self, words: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self.is_over:
            with suppress(ConnectionError):
                self._process.stdin.write(f"{words}\n".encode())
                await self._process.stdin.drain()

    def give_up(self, reason: str = "interrupted") -> None:
        """Do not wait any longer."""
        if not self.is_over:
            self._end(LakeStage.LEFT, reason)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "stage": self.stage.value,
            "reason": self.reason or None,
            "events": self.events,
            "events_while_it_ran": self.followed,
            "caught_up_s": None if self.caught_up_s is None else round(self.caught_up_s, 3),
            "tables": self.found.get("tables"),
            "interval": self.found.get("interval"),
            "bars": self.found.get("bars"),
            "skew": self.found.get("skew"),
            "audit": self.found.get("audit"),
            "trades": self.found.get("trades"),
        }

    # Told to it -----------------------------------------------------------------------------------

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is not None:
            async for line in process.stdout:
                with suppress(ValueError, KeyError):
                    self._take(json.loads(line))
        await process.wait()
        if not self.is_over:
            self._end(LakeStage.FAILED, f"Spark's process ended with code {process.returncode}")

    def _take(self, said: dict[str, Any]) -> None:
        if self.is_over:
            return
        stage = LakeStage(said["stage"])
        self.events = said.get("events", self.events)
        self.through_ns = said.get("through_ns", self.through_ns)
        if stage is LakeStage.DONE:
            self.found = said
        if stage in _ENDS:
            self._end(stage, said.get("reason", ""))
        else:
            self.stage = stage
            if stage is not LakeStage.STARTING:
                self._started.set()

    def _end(self, stage: LakeStage, reason: str) -> None:
        self.stage, self.reason = stage, reason
        self._started.set()
        self._ended.set()


def behind_s(lake: LakeBeside, show: Show) -> float:
    """How far the tables are behind the newest release that the journals show."""
    newest = max((chunk.due for chunk in show.watch.releases.chunks.values()), default=0)
    return max(newest - lake.through_ns, 0) / SECOND if lake.through_ns else 0.0


def lake_words(lake: LakeBeside, show: Show) -> str:
    """What it does now, in a few words."""
    match lake.stage:
        case LakeStage.STARTING:
            return f"tables: Spark starts, {time.monotonic() - lake.began:.0f} s"
        case LakeStage.READY:
            return "tables: Spark waits for the market"
        case LakeStage.FOLLOWING if not lake.events:
            return "tables: Spark reads its first batch"
        case LakeStage.FOLLOWING:
            return f"tables: {counted(lake.events, 'event')}, {behind_s(lake, show):.1f} s behind"
        case LakeStage.CATCHING_UP if lake.expected is not None and lake.events < lake.expected:
            return f"tables catch up: {lake.events:,} of {lake.expected:,} events"
        case LakeStage.CATCHING_UP:
            return f"tables: {counted(lake.events, 'event')}; tape, quotes and bars follow"
        case LakeStage.JUDGING:
            return f"tables: all {counted(lake.events, 'event')}; skew and audit are computed"
        case LakeStage.DONE:
            return f"tables: all {counted(lake.events, 'event')}"
        case LakeStage.FAILED | LakeStage.LEFT | LakeStage.MISSING:
            return f"no tables: {lake.reason}"


# What the demo says of its tables at the end: bars, skew and the audit's verdict.


_ROWS = (("tape", "trade"), ("quotes", "quote"), ("bars", "bar"))
"""Tables, and what a row of each is."""

_BARS_SHOWN = 3
"""Of each symbol, the newest."""
_FINDINGS_SHOWN = 5
_ORDER_BITS = 32
"""Below the account, in an order's id."""
_TRADE_SIDES = (True, False, True, True, False, False, False)
"""Which columns of trades are figures."""
_BAR_NAMES = ("symbol", "from", "open", "high", "low", "close", "volume", "trades", "VWAP")


def lake_lines(lake: LakeBeside) -> Iterator[str]:
    """Lines of at most 100 characters, below those of the market."""
    if lake.stage is not LakeStage.DONE:
        yield from entry("tables", _why(lake))
        yield ""
        return
    found = lake.found
    yield "The same by Spark, from the tables that followed the market, and from the journals of all"
    yield ""
    yield from entry("tables", *_tables(lake))
    if found["bars"]:
        yield from entry("bars", *_bars(found["bars"], found["interval"]))
    yield from entry("skew", *skew_words(ReleaseSkew(**found["skew"])))
    yield from entry("audit", *_audit(found["audit"]))
    if found.get("trades") is not None:
        yield from entry("trades", *_trades(found["trades"]))
    if lake.faults:
        yield from entry("WRONG", *lake.faults[:_FINDINGS_SHOWN])
    yield ""


def _why(lake: LakeBeside) -> str:
    match lake.stage:
        case LakeStage.MISSING:
            return f"none: {lake.reason}"
        case LakeStage.LEFT:
            return f"left behind with {counted(lake.events, 'event')}: {lake.reason}"
        case _:
            return f"none, Spark failed: {lake.reason}"


def _tables(lake: LakeBeside) -> list[str]:
    rows = {name.rpartition("/")[2]: count for name, count in lake.found["tables"].items()}
    after = "" if lake.caught_up_s is None else f"; complete {lake.caught_up_s:.1f} s after its end"
    return [
        f"{lake.events:,} of {lake.expected or 0:,} events, {lake.followed:,} while the market ran{after}",
        ", ".join([counted(rows.get(table, 0), row) for table, row in _ROWS]),
    ]


def _bars(bars: Sequence[dict[str, Any]], interval: str) -> list[str]:
    """The newest of each symbol, in columns."""
    by_symbol: dict[str, list[dict[str, Any]]] = {}
    for bar in bars:
        by_symbol.setdefault(bar["symbol"], []).append(bar)
    table = [list(_BAR_NAMES)]
    for own in by_symbol.values():
        for place, bar in enumerate(own[-_BARS_SHOWN:]):
            start = datetime.fromtimestamp(bar["start_ns"] // SECOND, tz=UTC)
            prices = [_price(bar[name]) for name in ("open", "high", "low", "close")]
            counts = [f"{bar['volume']:,}", f"{bar['trades']:,}"]
            table.append(["" if place else bar["symbol"], f"{start:%H:%M:%S}", *prices, *counts, _price(bar["vwap"])])
    widths = [max(len(row[place]) for row in table) for place in range(len(_BAR_NAMES))]
    made = ["  ".join(_cell(*each) for each in zip(range(len(row)), row, widths, strict=True)) for row in table]
    return [f"of {interval}, the busiest symbols:", *[text.rstrip() for text in made]]


def _trade_faults(table: dict[str, Any], trading: TradingSummary) -> Iterator[str]:
    """The table says what journals and books say."""
    wanted = {"orders": trading.sequenced, "trades": trading.trades, "confirmed": trading.confirmed, "differing": 0}
    for name, count in wanted.items():
        if table[name] != count:
            yield f"{table['floor']} has {table[name]:,} {name} in the tables, {count:,} in journals and books"


def _trades(found: dict[str, Any]) -> list[str]:
    """The newest trades of the market's own floor, in columns."""
    said = f"{counted(found['orders'], 'order')}, {counted(found['trades'], 'trade')}"
    rows = [f"{found['floor']}: {said} of {found['volume']:,} shares, {found['confirmed']:,} confirmed"]
    if found["newest"]:
        rows[0] += "; the newest:"
    table = [["trade", "symbol", "price", "quantity", "buyer", "seller", "state"]] if found["newest"] else []
    for row in found["newest"]:
        who = [city_of(int(row[side]) >> _ORDER_BITS) for side in ("buy", "sell")]
        table.append(
            [str(row["trade"]), row["symbol"], _price(row["price"]), f"{row['quantity']:,}", *who, row["state"]]
        )
    widths = [max(len(row[place]) for row in table) for place in range(len(_TRADE_SIDES))] if table else []
    for row in table:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, _TRADE_SIDES, strict=True)
        ]
        rows.append("  ".join(cells).rstrip())
    return rows


def _cell(place: int, text: str, width: int) -> str:
    return text.ljust(width) if place < 2 else text.rjust(width)  # noqa: PLR2004 - names left, figures right


def _price(ticks: int | str) -> str:
    return f"{from_ticks(1) * Decimal(ticks):,.2f}"


def _audit(audit: dict[str, Any]) -> list[str]:
    compared = f"{counted(audit['journals'], 'journal')}, {counted(audit['messages_compared'], 'message')} compared"
    if audit["verdict"] == "clean":
        return [f"clean: {compared}: one sequence everywhere, nothing early"]
    if audit["verdict"] == "unjudged":
        return [audit["sentence"]]
    counts = ", ".join(f"{count} {kind}" for kind, count in audit["counts"].items())
    shown = audit["findings"][:_FINDINGS_SHOWN] if audit["verdict"] != "findings" else []
    return [f"{audit['verdict']} ({counts}): {compared}", *shown]
