"""How fast the floor matches: orders a second through both floors, and through other people's books, on one stream.

    python bench/floor.py [--json] [--events N] [--quick]

The stream is seeded: 60 % limit orders, 30 % cancels, 10 % orders that cross. `array` is the fast floor with events as
an array and reports as another, checks included; `events` is that with objects. The yardstick is the plainest book that
matches, forty lines without one of a floor's checks and reports. pyorderbook and lightmatchingengine get the same
stream, where they are installed; all must agree on the shares that traded. Growth: the same stream over a book that
holds 10² to 10⁶ orders already, and over 1 to 10,000 symbols, in tokens of 20 events and as an array; memory by open
orders. The state's hash: of a token of 50 events with trades, over books of 20,000 and 200,000 resting orders, beside
one hash over all lines, which is what it cost without the sum. With ISOCAST_DATA, the published flow of the
matching-engine benchmark. Time is CPU time, the least of several rounds; nothing takes more than 1.5 GB.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import random
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any, TypeAlias

import numpy as np

from isocast.floor.arrays import REPORT_KINDS, ArrayKind, Events, Reports, run
from isocast.floor.events import Cancel, Directory, Event, Order, OwnRule, Phase, Trade
from isocast.floor.fast import FastFloor
from isocast.floor.machine import Floor
from isocast.floor.state import state_hash, state_lines
from isocast.runtime.client.floor_replay import read_benchmark_flow
from isocast.terms.market import Side

Row: TypeAlias = tuple[int, int, int, str, int, int, int, int, bool]
"""(kind, id, account, symbol, side, quantity, price, owner, is_immediate)."""
ARRAY_FIELDS = ("kind", "id", "symbol", "side", "quantity", "price")
ROUNDS = 3
SYMBOL = "ISO"
MIDDLE = 10_000


def stream(events: int, seed: int = 7, first: int = 1, symbols: int = 1) -> list[Row]:
    """60 % limit orders away from the middle, 30 % cancels of one that was entered, 10 % that cross."""
    chance = random.Random(seed)
    rows: list[Row] = []
    live: list[int] = []
    number = first
    for _ in range(events):
        roll = chance.random()
        if roll >= 0.6 and roll < 0.9 and live:  # noqa: PLR2004
            place = chance.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            gone = live.pop()
            rows.append((ArrayKind.CANCEL, gone, gone, "", 0, 0, 0, 0, False))
            continue
        side = chance.choice((1, 2))
        away = chance.randint(1, 100) if roll < 0.6 else -chance.randint(0, 20)  # noqa: PLR2004
        price = MIDDLE - away if side == 1 else MIDDLE + away
        name = SYMBOL if symbols == 1 else f"S{chance.randrange(symbols)}"
        rows.append((ArrayKind.ORDER, number, number, name, side, chance.randint(1, 100), price, 0, False))
        live.append(number)
        number += 1
    return rows


def as_array(rows: list[Row]) -> Events:
    """The same as an array."""
    found = np.zeros(len(rows), np.dtype([(name, np.int64) for name in ARRAY_FIELDS]))
    kind, number, _, symbol, side, quantity, price, _, _ = zip(*rows, strict=True)
    places = {name: place for place, name in enumerate(dict.fromkeys(symbol))} if len(set(symbol)) > 2 else {}  # noqa: PLR2004
    columns = (kind, number, [int(name[1:]) if places and name else 0 for name in symbol], side, quantity, price)
    for name, values in zip(ARRAY_FIELDS, columns, strict=True):
        found[name] = values
    return found


def as_events(rows: list[Row]) -> list[Event]:
    """The same as objects."""
    return [
        Order(number, account, symbol, Side(side), quantity, price)
        if kind == ArrayKind.ORDER
        else Cancel(number, account)
        for kind, number, account, symbol, side, quantity, price, _, _ in rows
    ]


def opened(new_floor: type[Floor], symbols: int = 1) -> Any:  # noqa: ANN401 - a floor of either class
    """A floor whose symbols trade."""
    floor = new_floor()
    names = [SYMBOL] if symbols == 1 else [f"S{place}" for place in range(symbols)]
    floor.step(1, 0, [Directory(name, own_rule=OwnRule.NONE, phase=Phase.OPEN) for name in names])
    return floor


def shares(reports: list[Any]) -> int:
    """What traded."""
    return sum(one.quantity for one in reports if isinstance(one, Trade))


def shares_of(reports: Reports) -> int:
    """The same of an array."""
    return int(reports["quantity"][reports["kind"] == REPORT_KINDS.index(Trade)].sum())


# ---- other books


def plainest(rows: list[Row]) -> int:
    """A dict of deques and two heaps, with lazy deletion; the shares that traded."""
    live: dict[int, list[int]] = {}
    levels: tuple[dict[int, deque[list[int]]], dict[int, deque[list[int]]]] = ({}, {})
    heaps: tuple[list[int], list[int]] = ([], [])
    traded = 0
    for kind, number, _, _, side, quantity, price, _, _ in rows:
        if kind == ArrayKind.CANCEL:
            gone = live.pop(number, None)
            if gone is not None:
                gone[1] = 0
            continue
        own, facing = (0, 1) if side == 1 else (1, 0)
        sign, left = (1 if side == 1 else -1), quantity
        heap, queues = heaps[facing], levels[facing]
        while left and heap and heap[0] <= price * sign:
            queue = queues[heap[0]]
            while queue and left:
                first = queue[0]
                part = min(left, first[1])
                left -= part
                first[1] -= part
                traded += part
                if not first[1]:
                    queue.popleft()
                    live.pop(first[0], None)
            if not queue:
                del queues[heappop(heap)]
        if left:
            key = -price if side == 1 else price
            queue = levels[own].get(key)  # type: ignore[assignment]
            if queue is None:
                queue = levels[own][key] = deque()
                heappush(heaps[own], key)
            order = [number, left]
            queue.append(order)
            live[number] = order
    return traded


def with_pyorderbook(rows: list[Row]) -> int:
    """pyorderbook: limit orders only, which is all that the stream has."""
    from pyorderbook import Book, ask, bid  # type: ignore[import-not-found]  # noqa: PLC0415 - optional

    logging.getLogger("pyorderbook").setLevel(logging.CRITICAL)
    book, known, traded = Book(), {}, 0
    for kind, number, _, symbol, side, quantity, price, _, _ in rows:
        if kind == ArrayKind.CANCEL:
            order = known.pop(number, None)
            try:
                book.cancel(order)
            except KeyError:
                continue  # An order that is filled; it says so in its log too.
            continue
        order = (bid if side == 1 else ask)(symbol, price, quantity)
        known[number] = order
        traded += sum(trade.fill_quantity for trade in book.match(order).trades)
    return traded


def with_lightmatchingengine(rows: list[Row]) -> int:
    """Lightmatchingengine."""
    from lightmatchingengine.lightmatchingengine import LightMatchingEngine  # type: ignore[import-not-found]  # noqa: PLC0415
    from lightmatchingengine.lightmatchingengine import Side as Way  # noqa: PLC0415

    engine, known, traded = LightMatchingEngine(), {}, 0
    for kind, number, _, symbol, side, quantity, price, _, _ in rows:
        if kind == ArrayKind.CANCEL:
            found = known.pop(number, None)
            if found is not None:
                try:
                    engine.cancel_order(found, symbol or SYMBOL)
                except AssertionError:
                    continue  # Its issue 18: an order that is filled.
            continue
        order, trades = engine.add_order(symbol, price, quantity, Way.BUY if side == 1 else Way.SELL)
        known[number] = order.order_id
        traded += sum(trade.trade_qty for trade in trades) // 2
    return traded


# ---- measuring


def least(work: Callable[[], int], rounds: int = ROUNDS) -> tuple[float, int]:
    """CPU seconds of the fastest round, and what it gave."""
    best, found = float("inf"), 0
    for _ in range(rounds):
        gc.collect()
        gc.freeze()  # The stream itself is nobody's work.
        begin = process_time()
        found = work()
        best = min(best, process_time() - begin)
    return best, found


def speeds(rows: list[Row]) -> dict[str, Any]:
    """Events a second of everybody, on one stream."""
    events, array = as_events(rows), as_array(rows)

    def each(new_floor: type[Floor]) -> int:
        floor = opened(new_floor)
        return sum(shares(floor.apply(event)) for event in events)

    work: dict[str, Callable[[], int]] = {
        "plainest book (yardstick)": lambda: plainest(rows),
        "fast floor, array": lambda: shares_of(run(opened(FastFloor), array)),
        "fast floor, events": lambda: each(FastFloor),
        "readable floor, events": lambda: each(Floor),
        "pyorderbook": lambda: with_pyorderbook(rows),
        "lightmatchingengine": lambda: with_lightmatchingengine(rows),
    }
    found: dict[str, Any] = {}
    for name, matching in work.items():
        try:
            seconds, traded = least(matching, 1 if name == "lightmatchingengine" else ROUNDS)
        except ImportError as reason:
            found[name] = {"skipped": f"not installed: {reason}"}
            continue
        found[name] = {"events_per_second": round(len(rows) / seconds), "shares": traded}
    agreed = {one["shares"] for one in found.values() if "shares" in one}
    if len(agreed) != 1:
        raise SystemExit(f"they do not agree on what traded: {found}")
    return found


def growth(events: int, *, quick: bool) -> dict[str, Any]:
    """Events a second with more orders open, and with more symbols; bytes for each open order."""
    found: dict[str, Any] = {"open orders": {}, "symbols": {}, "bytes per open order": {}}
    rows = stream(events, first=10_000_001)
    for depth in (100, 10_000, 100_000 if quick else 1_000_000):
        for new_floor in (Floor, FastFloor):
            floor = opened(new_floor)
            far = [
                Order(
                    number,
                    number,
                    SYMBOL,
                    Side(1 + number % 2),
                    10,
                    MIDDLE - 150 - number % 97 if number % 2 == 0 else MIDDLE + 150 + number % 97,
                )
                for number in range(1, depth + 1)
            ]
            for order in far:
                floor.apply(order)
            own = [order.id for order in far[:: max(1, depth // 1000)]][:1000]
            del far
            gc.collect()
            gc.freeze()
            batch = as_events(rows)
            begin = process_time()
            for event in batch:
                floor.apply(event)
            for number in own:  # From the middle of deep levels.
                floor.apply(Cancel(number, number))
            seconds = process_time() - begin
            gc.unfreeze()
            name = f"{new_floor.__name__}, {depth:,}"
            found["open orders"][name] = round((len(batch) + len(own)) / seconds)
            if new_floor is FastFloor:
                array = as_array(stream(events, seed=8, first=20_000_001))
                begin = process_time()
                run(floor, array)
                found["open orders"][f"array, {depth:,}"] = round(len(array) / (process_time() - begin))
            del floor, batch
    for symbols in (1, 100, 10_000):
        array = as_array(stream(events, symbols=symbols))
        floor = opened(FastFloor, symbols)
        begin = process_time()
        run(floor, array)
        found["symbols"][f"array, {symbols:,}"] = round(len(array) / (process_time() - begin))
        batch = as_events(stream(events, symbols=symbols))
        for new_floor in (Floor, FastFloor):
            floor = opened(new_floor, symbols)
            begin = process_time()
            tokens = iter(batch)
            token = 1
            while part := list(islice(tokens, 20)):  # Small tokens: what each costs counts.
                token += 1
                floor.step(token, token, part)
            found["symbols"][f"{new_floor.__name__}, {symbols:,}"] = round(len(batch) / (process_time() - begin))
            del floor
    for new_floor in (Floor, FastFloor):
        found["bytes per open order"][new_floor.__name__] = memory(new_floor, 50_000)
    return found


def hashes() -> dict[str, Any]:
    """Milliseconds for the state's hash after a token of 50 events, and for one over all lines."""
    found: dict[str, Any] = {}
    for depth in (20_000, 200_000):
        floor = opened(FastFloor)
        floor.begin(2, 2)
        for number in range(1, depth + 1):
            side = Side(1 + number % 2)
            away = 30 + number % 97
            floor.apply(Order(number, number, SYMBOL, side, 10, MIDDLE + (-away if side is Side.BUY else away)))
        floor.end()
        begin = process_time()
        state_hash(floor)
        first, changed, whole = process_time() - begin, [], []
        for token, rows in enumerate(_tokens(stream(1_000, first=10_000_001), 50), 3):
            floor.begin(token, token)
            run(floor, as_array(rows))
            floor.end()
            begin = process_time()
            state_hash(floor)
            changed.append(process_time() - begin)
            if token % 5 == 0:
                begin = process_time()
                blake2b("\n".join(state_lines(floor)).encode(), digest_size=32).digest()
                whole.append(process_time() - begin)
        found[f"{depth:,} resting"] = {
            "token of 50 events": round(1e3 * min(changed), 3),
            "all lines": round(1e3 * min(whole), 3),
            "first hash after a start": round(1e3 * first, 3),
        }
        del floor
    return found


def _tokens(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def memory(new_floor: type[Floor], orders: int) -> int:
    """Bytes for each order that rests."""
    floor = opened(new_floor)
    batch = [Order(number, number, SYMBOL, Side.BUY, 10, 1 + number % 500) for number in range(1, orders + 1)]
    tracemalloc.start()
    for order in batch:
        floor.apply(order)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return round(used / orders)


def published(limit: int | None) -> dict[str, Any] | str:
    """The flow of the matching-engine benchmark through the fast floor."""
    data = os.environ.get("ISOCAST_DATA", "")
    path = Path(data, "meb_workload", "normal.bin.xz")
    if not data or not path.exists():
        return "skipped: ISOCAST_DATA does not say where meb_workload is"
    floor = opened(FastFloor)
    seconds, count, traded = 0.0, 0, 0
    for block in islice(read_benchmark_flow(path), None if limit is None else max(1, limit // 65_536)):
        begin = process_time()
        told = run(floor, block)
        seconds += process_time() - begin
        count += len(block)
        traded += shares_of(told)
    return {
        "messages": count,
        "messages_per_second": round(count / seconds),
        "shares": traded,
        "state": state_hash(floor).hex()[:16],
    }


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, and at most 100,000 open orders")
    options = parser.parse_args()
    events = max(1_000, options.events // 10 if options.quick else options.events)
    found: dict[str, Any] = {
        "events": events,
        "speeds": speeds(stream(events)),
        "growth": growth(events // 4, quick=options.quick),
        "state hash, ms": hashes(),
        "published flow": published(100_000 if options.quick else None),
    }
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    yardstick = found["speeds"]["plainest book (yardstick)"]["events_per_second"]
    sys.stdout.write(f"{events:,} events, seeded\n")
    for name, one in found["speeds"].items():
        rate = one.get("events_per_second")
        told = one["skipped"] if rate is None else f"{rate:>12,} events/s   {rate / yardstick:5.2f} of the yardstick"
        sys.stdout.write(f"  {name:<28}{told}\n")
    for title, rows in found["growth"].items():
        sys.stdout.write(f"{title}\n")
        for name, value in rows.items():
            sys.stdout.write(f"  {name:<28}{value:>12,}{'' if 'bytes' in title else ' events/s'}\n")
    sys.stdout.write("state hash, ms\n")
    for name, row in found["state hash, ms"].items():
        sys.stdout.write(f"  {name:<20}" + ", ".join(f"{what} {value:,}" for what, value in row.items()) + "\n")
    sys.stdout.write(f"published flow: {found['published flow']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
