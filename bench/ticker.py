"""The peaks of a consolidated tape, through core stripes to narrow ones: what is carried, what is conflated, the delay.

    python bench/ticker.py [--seconds 5] [--stripes 2] [--receivers 3] [--share 1.0] [--rates 56k 1.5M 10M] [--json]

The offer is that of the busiest second of the UTP tape in 2024, for as long as is wanted: 404,000 quotes and 120,000
trades a second. A quote is two events, its bid and its offer, so that these are 928,000 events. They are those of a
synthetic day of 12 floors and 2,000 symbols, in its own bursts, and are split over the stripes by symbol; each stripe
has a ring, processes and journals of its own, over real UDP multicast on loopback. `--share 0.5` offers half.

The delay of an event is that from the instant at which it was offered, not that at which the source found time for it,
to its release. Afterwards the journals are read: all receivers of a stripe must have the same events, and together all
that was offered. Then each stripe's journal goes through the edge striper once for each rate, with a plan made from
the second before the peak: packets, the share of prices that gave way to newer ones, the share that still waits in the
end, and how long after its release an event leaves. A symbol that alone exceeds a rate has a stripe of its own there.

On a shared machine the ratios count: `carried` is events against those offered, and `edge_cpu` is the striper's CPU
time against the length of the peak.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from markets import UNTIL_READY_S, ring_market, run_with, until
from scratch import folder

from isocast.feeds.days import read_day
from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.hosts.source import SourceHost
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.market.routes import core_routes
from isocast.runtime.net.clock import become_punctual
from isocast.runtime.watch.logs import configure_logs
from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.history import make_history
from isocast.striping.making import MakingSettings, make_plan
from isocast.striping.plan import StripePlan
from isocast.striping.rates import parse_rate, rate_text
from isocast.striping.released import part_of_block
from isocast.terms.instants import SECOND
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

QUOTES, TRADES = 404_000, 120_000
"""A second, UTP 2024."""
SYMBOLS, FLOORS = 2_000, 12
LEAD_S = 2.0
"""From the start of the sources to the first event of the peak."""
STEP_S = 0.002
"""A source looks so often for what it has to offer."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """What is measured."""

    seconds: float
    stripes: int
    receivers: int
    share: float
    mtu: int
    rates: tuple[int, ...]


# ---- the peak


def peak(seconds: float, share: float, seed: int) -> EventArray:
    """So long a peak; `time` is nanoseconds since its beginning."""
    wanted = int((2 * QUOTES + TRADES) * share * seconds)
    quotes = QUOTES / TRADES
    plan = SyntheticPlan(
        seed=seed,
        floors=FLOORS,
        symbols=SYMBOLS,
        trades=int(1.3 * wanted / (1 + 2 * quotes)) + 1_000,
        quotes_per_trade=quotes,
        day=read_day("2026-03-02"),
    )
    blocks, count = [], 0
    for block in SyntheticDay(plan).blocks():
        kept = block[np.isin(block["kind"], (EventKind.TRADE, EventKind.QUOTE))]
        blocks.append(kept)
        count += len(kept)
        if count >= wanted:
            break
    events = np.concatenate(blocks)[:wanted]
    since = (events["time"] - events["time"][0]).astype(np.float64)
    events["time"] = (since * (seconds * SECOND / max(since[-1], 1))).astype(np.uint64)
    return events


def parted(events: EventArray) -> tuple[EventArray, EventArray]:
    """The first second, and the rest from its own beginning on."""
    at = int(np.searchsorted(events["time"], SECOND))
    rest = events[at:].copy()
    rest["time"] -= np.uint64(SECOND)
    return events[:at], rest


def cut(events: EventArray, per_message: int) -> Integers:
    """Where messages end: full, but a bid is not parted from its offer."""
    linked = (events["flags"] & EventFlag.LINKED) != 0
    ends, at = [], 0
    while at < len(events):
        at = min(at + per_message, len(events))
        while at < len(events) and linked[at - 1]:
            at -= 1
        ends.append(at)
    return np.array(ends, np.int64)


# ---- a source of one stripe, in a process of its own


async def offer(market: Market, name: str, file: Path, start_ns: int) -> float:
    """Offer every event at its instant; by how many seconds the last message was later than that."""
    events = np.fromfile(file, EVENT_DTYPE)
    ends = cut(events, market.events_per_payload)
    instants = events["time"][ends - 1].astype(np.int64) + start_ns
    events["time"] += np.uint64(start_ns)
    payload, size = events.tobytes(), EVENT_DTYPE.itemsize
    process = NodeProcess(market, market.node(name))
    await process.start()
    try:
        host = process.host
        assert isinstance(host, SourceHost)  # noqa: S101
        await until(lambda: not process.monitor.not_ready(), UNTIL_READY_S)
        sent, begin = 0, 0
        while sent < len(ends):
            ready = int(np.searchsorted(instants, time.time_ns(), side="right"))
            if ready == sent:
                await asyncio.sleep(STEP_S)
                continue
            messages = []
            for place in range(sent, min(ready, sent + 64)):
                end = int(ends[place])
                messages.append((f"{place}".encode(), payload[begin * size : end * size]))
                begin = end
            await host.publish(messages)
            sent += len(messages)
        late = (time.time_ns() - int(instants[-1])) / SECOND
        await until(lambda: not host.machine.snapshot().unstable, UNTIL_READY_S)
        return late
    finally:
        await process.stop()


def serve_source() -> bool:
    """Whether this process is a source of the bench; then it has run."""
    if sys.argv[1:2] != ["--source"]:
        return False
    config, name, file, start_ns = sys.argv[2:]
    market = load_market(Path(config))
    configure_logs(node=name)
    become_punctual(realtime=market.clock.realtime)
    print(asyncio.run(offer(market, name, Path(file), int(start_ns))))
    return True


# ---- the core


def split(market: Market, events: EventArray, place: Path) -> dict[int, Path]:
    """What each stripe's source offers."""
    files = {}
    stripes = core_routes(market).stripes_of(events["symbol"])
    for stripe in market.stripes:
        files[stripe] = place / f"offer.{stripe}"
        events[stripes == stripe].tofile(files[stripe])
    return files


def start_sources(market: Market, config: Path, events: EventArray, place: Path) -> list[list[str]]:
    """The commands of the sources."""
    files = split(market, events, place)
    start = time.time_ns() + int(LEAD_S * SECOND)
    return [
        [sys.executable, __file__, "--source", str(config), plan.name, str(files[plan.stripes[0]]), str(start)]
        for plan in market.by_role(NodeRole.PRIMARY_SOURCE)
    ]


def judge_core(market: Market, offered: int) -> dict[str, object]:
    """Completeness and delay, from the journals alone."""
    carried, same = 0, True
    delays = []
    for stripe in market.stripes:
        orders, counts = set(), set()
        for plan in market.by_role(NodeRole.PRIMARY_RECEIVER):
            if stripe not in plan.stripes:
                continue
            count = order = 0
            for block in read_blocks(market.directory_of(plan.name) / "journal", check=False):
                count += block.header.events
                order = hash((order, block.directory.tobytes()))
                if count % 7 < 2:  # noqa: PLR2004 - a sample
                    delays.append(block.header.released_at - block.events["time"][::16].astype(np.int64))
            orders.add(order)
            counts.add(count)
        same = same and len(orders) == len(counts) == 1
        carried += min(counts)
    delay = np.concatenate(delays) / SECOND if delays else np.zeros(1)
    return {
        "carried": round(carried / offered, 6),
        "same_everywhere": same,
        "delay_s_p50": round(float(np.median(delay)), 3),
        "delay_s_p99": round(float(np.quantile(delay, 0.99)), 3),
        "release_delay_s": market.timing.release_delay_ns / SECOND,
    }


# ---- the edge


def judge_edge(market: Market, plan: StripePlan, rate: int, seconds: float) -> dict[str, object]:
    """Every stripe's journal through the striper."""
    settings = EdgeSettings(market.timing.token_period_ns, market.timing.release_delay_ns)
    packets = numbers = conflated = events = waiting = 0
    delays: list[float] = []
    cpu = 0.0
    for stripe in market.stripes:
        receiver = next(p for p in market.by_role(NodeRole.PRIMARY_RECEIVER) if stripe in p.stripes)
        striper = EdgeStriper(plan, stripe, settings)
        for block in read_blocks(market.directory_of(receiver.name) / "journal", check=False):
            part = part_of_block(block)
            events += len(part.events)
            began = time.process_time()
            made = striper.step(part)
            cpu += time.process_time() - began
            packets += len(made)
            numbers += sum(packet.count for packet in made)
            delays += [(packet.due - block.header.due) / SECOND for packet in made[::8]]
        conflated += sum(sum(kinds.values()) for kinds in striper.conflated.values())
        waiting += sum(striper.waiting.values())
    return {
        "rate": rate_text(rate),
        "narrow_stripes": len(plan.stripes),
        "packets": packets,
        "messages": numbers,
        "conflated": round(conflated / max(events, 1), 4),
        "waiting": round(waiting / max(events, 1), 4),
        "delay_s_p50": round(float(np.median(delays)), 3) if delays else None,
        "delay_s_p99": round(float(np.quantile(delays, 0.99)), 3) if delays else None,
        "edge_cpu": round(cpu / seconds, 2),
    }


def plan_for(events: EventArray, options: Options, rate: int, token_period_ns: int) -> StripePlan:
    """From what came before, so that it cannot know the peak."""
    history = make_history([events], token_period_ns)
    return make_plan(history, MakingSettings(rate=rate, cores=options.stripes)).plan


# ---- the whole


def show(result: dict[str, object], edges: Iterable[dict[str, object]]) -> None:
    """As text."""
    for name, value in result.items():
        print(f"{name:28} {value:,}" if isinstance(value, int | float) else f"{name:28} {value}")
    for edge in edges:
        print("edge  " + "  ".join(f"{name} {value}" for name, value in edge.items()))


def main() -> int:
    """Parse, run, print."""
    if serve_source():
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--stripes", type=int, default=2)
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the peak")
    parser.add_argument("--mtu", type=int, default=9_000)
    parser.add_argument("--rates", nargs="*", default=["56k", "1.5M", "10M"], help="of narrow stripes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave everything in this directory")
    given = parser.parse_args()
    rates = tuple(parse_rate(text) for text in given.rates)
    options = Options(given.seconds, given.stripes, given.receivers, given.share, given.mtu, rates)
    before, events = parted(peak(options.seconds + 1, options.share, seed=1))
    result: dict[str, object] = {
        "stripes": options.stripes,
        "receivers": options.receivers,
        "offered_events": len(events),
        "offered_per_second": round(len(events) / options.seconds),
    }
    with folder(given.keep, options.receivers * len(events) * 2.5 * EVENT_DTYPE.itemsize, warm=True) as place:

        def offering(market: Market, config: Path) -> list[list[str]]:
            return start_sources(market, config, events, place)

        text = ring_market(options.receivers, 1, mtu=options.mtu, window=600, stripes=options.stripes)
        market, answers, cpu, _ = run_with(text, place, offering, options.seconds + LEAD_S)
        result |= judge_core(market, len(events))
        result["source_behind_s"] = round(max(float(answer or "nan") for answer in answers), 3)
        receivers = [used for name, used in cpu.items() if name.startswith("r")]
        result["receiver_cpu_ns_per_event"] = round(1e9 * sum(receivers) / options.receivers / len(events))
        period = market.timing.token_period_ns
        edges = [
            judge_edge(market, plan_for(before, options, rate, period), rate, options.seconds) for rate in options.rates
        ]
    if given.json:
        print(json.dumps({**result, "edges": edges}))
    else:
        show(result, edges)
    return 0 if result["carried"] == 1 and result["same_everywhere"] else 1


if __name__ == "__main__":
    sys.exit(main())
