"""How fast the tape is: events a second, against a plain numpy pass over the same records in the same run.

    python bench/tape.py [--json] [--events N] [--block N]

Days are made in memory by one seed: 12 floors, 2,000 symbols. `trades` has trades alone; `mixed` has four quotes for
each trade, and directory, halts, corrections and cancels as the floors of a synthetic day publish them; `random ids`
has trades whose ids do not rise, so that each is looked up; `orders` has orders of 200 symbols and what becomes of
them, half cancelled and half executed, so that books are followed: its rate is set against `dictionary`, which enters
each order into a dictionary by its id and takes it out again, one by one. `plain` computes volume, turnover, high and
low of all records together, knows no symbols and remembers nothing: it is what reading the columns once costs. Events
are given in blocks, as a customer gets them, and nobody asks before the end; time is CPU time, the best of several
rounds, taken in turns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import islice
from time import process_time

import numpy as np

from isocast.feeds.days import read_day
from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.terms.market import EventKind, Side
from isocast.ticker.tape import Tape
from isocast.wire.events import EVENT_DTYPE, EventArray

ROUNDS = 3
AIMS = {"trades": 2e6, "mixed": 1e6}


def day(events: int, quotes: float) -> EventArray:
    """So many events of a synthetic day."""
    trades = int(1.1 * events / (1 + 2 * quotes)) + 1_000
    plan = SyntheticPlan(
        seed=1, floors=12, symbols=2_000, trades=trades, quotes_per_trade=quotes, day=read_day("2026-03-02")
    )
    blocks: list[EventArray] = []
    for block in islice(SyntheticDay(plan).blocks(), 10_000):
        blocks.append(block)
        if sum(map(len, blocks)) >= events:
            break
    return np.concatenate(blocks)[:events]


def samples(events: int) -> dict[str, EventArray]:
    """What is measured."""
    trades = day(2 * events, 0.0)
    trades = trades[trades["kind"] == EventKind.TRADE][:events]
    shuffled = trades.copy()
    shuffled["id"] = np.random.default_rng(1).permutation(len(shuffled)) + 1
    return {"trades": trades, "mixed": day(events, 2.0), "random ids": shuffled, "orders": orders(events // 2)}


def orders(count: int) -> EventArray:
    """So many orders around a price, and the end of each some 2,000 orders later."""
    random = np.random.default_rng(2)
    events = np.zeros(2 * count, EVENT_DTYPE)
    begun, ended = events[:count], events[count:]
    begun["kind"], begun["side"] = EventKind.ORDER, random.integers(1, 3, count)
    away = (random.exponential(20, count).astype(np.int64) + 1) * 100
    begun["price"] = 1_000_000 + np.where(begun["side"] == Side.BUY, -away, away)
    begun["quantity"], begun["id"] = 100 * random.integers(1, 9, count), np.arange(1, count + 1)
    begun["floor"], begun["symbol"] = b"XNAS", [b"S%d" % number for number in random.integers(0, 200, count)]
    ended[:] = begun
    ended["kind"] = np.where(random.random(count) < 0.5, int(EventKind.CANCEL), int(EventKind.EXECUTION))  # noqa: PLR2004
    ended["reference"] = ended["id"]
    moments = np.concatenate([np.arange(count), np.arange(count) + 1 + random.exponential(2_000, count)])
    return events[np.argsort(moments, kind="stable")]


def dictionary(blocks: list[EventArray]) -> int:
    """Each order into a dictionary, and out of it."""
    known: dict[int, tuple[int, int]] = {}
    events = 0
    for block in blocks:
        columns = (block[name].tolist() for name in ("kind", "id", "price", "quantity"))
        for kind, number, price, quantity in zip(*columns, strict=True):
            if kind == EventKind.ORDER:
                known[number] = price, quantity
            else:
                known.pop(number, None)
        events += len(block)
    return events


def tape(blocks: list[EventArray]) -> int:
    """Everything that a tape does."""
    made = Tape()
    for block in blocks:
        made.take(block)
    made.settle()
    return made.events


def plain(blocks: list[EventArray]) -> int:
    """Four figures of all records."""
    volume = turnover = events = 0
    high, low = -(1 << 62), 1 << 62
    for block in blocks:
        price, quantity = block["price"], block["quantity"].astype(np.int64)
        volume += int(quantity.sum())
        turnover += int((price * quantity).sum())
        high, low = max(high, int(price.max())), min(low, int(price.min()))
        events += len(block)
    return events


def rates(blocks: list[EventArray]) -> dict[str, float]:
    """Events for each second of CPU."""
    best: dict[str, float] = {}
    ways: dict[str, Callable[[list[EventArray]], int]] = {"tape": tape, "plain": plain}
    if (blocks[0]["kind"] == EventKind.ORDER).any():
        ways["dictionary"] = dictionary
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began = process_time()
            count = way(blocks)
            best[name] = max(best.get(name, 0.0), count / (process_time() - began))
    return best


def snapshots(events: EventArray) -> dict[str, float]:
    """Bytes and seconds of saving and restoring."""
    made = Tape()
    made.take(events)
    began = process_time()
    raw = made.snapshot()
    saved = process_time()
    Tape.restore(raw)
    return {"bytes": len(raw), "save_s": saved - began, "restore_s": process_time() - saved}


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", type=int, default=500_000, help="how many in each sample")
    parser.add_argument("--block", type=int, default=16_384, help="events of a block")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    made = samples(options.events)
    for name, events in made.items():
        blocks = [events[at : at + options.block] for at in range(0, len(events), options.block)]
        found[name] = {"events": len(events), **rates(blocks)}
    saved = snapshots(made["trades"])
    if options.json:
        print(json.dumps({"block": options.block, "events_per_s": found, "snapshot": saved}, indent=2))
        return
    for name, figures in found.items():
        aim = AIMS.get(name, 0.0)
        missed = f" (the aim is {aim / 1e6:.0f})" if figures["tape"] < aim else ""
        beside = f", a dictionary {figures['dictionary'] / figures['tape']:.1f}" if "dictionary" in figures else ""
        print(
            f"{name:10} {figures['tape'] / 1e6:7.2f} million events a second of CPU{missed};"
            f" plain pass {figures['plain'] / 1e6:.1f}, {figures['plain'] / figures['tape']:.1f} times that{beside}"
        )
    print(
        f"snapshot   {saved['bytes'] / 1e6:.1f} MB, {saved['save_s']:.3f} s to save,"
        f" {saved['restore_s']:.3f} s to restore"
    )


if __name__ == "__main__":
    main()
