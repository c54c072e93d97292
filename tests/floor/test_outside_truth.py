"""The book against what others have published.

ISOCAST_DATA=/path/to/data pytest tests/floor/test_outside_truth.py
"""

from __future__ import annotations

import csv
import gzip
import lzma
import os
import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from isocast.floor.arrays import as_reports, run
from isocast.floor.book import Book, WorkingOrder
from isocast.floor.events import (
    Cancel,
    Cancelled,
    Directory,
    Order,
    OwnRule,
    Phase,
    Refused,
    Replace,
    Replaced,
    Report,
    Trade,
)
from isocast.floor.fast import FastFloor
from isocast.floor.machine import Floor
from isocast.runtime.client.floor_replay import read_benchmark_flow
from isocast.terms.market import Side

DATA = os.environ.get("ISOCAST_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the published files are")

PUBLISHED = "e9b2e3926854410b01a035aeb25dd05f1e597c233be8263de9eb49b6713d367e"
"""Of the report text of the flow `normal`: engines of several authors agree on it."""
RECORD = struct.Struct("<BBBBIQQqq")
NEW, TRADE, CANCELLED, MODIFIED, CANCEL_REFUSED, MODIFY_REFUSED = range(6)


def answers(raw: bytes, floor: Floor) -> Iterator[tuple[int, int, str]]:
    """The published flow through a floor: sequence, type and text of each line of the report."""
    floor.step(1, 0, [Directory("X", own_rule=OwnRule.NONE, phase=Phase.OPEN)])
    for kind, side, ioc, _, quantity, sequence, number, price, _ in RECORD.iter_unpack(raw[16:]):
        known = floor.orders.get(number)
        where = (side, number, price)
        if kind == 0:
            told = floor.apply(Order(number, number, "X", Side(side + 1), quantity, price, is_immediate=bool(ioc)))
            yield sequence, NEW, f"{side},{number},{price},{quantity}"
        elif kind == 1:
            told = floor.apply(Cancel(number, number))
            where = where if known is None else (known[1].side - 1, number, known[1].price)
        else:
            filled = 0 if known is None else known[1].filled  # The flow says what shall be open.
            told = floor.apply(Replace(number, number, filled + quantity, price))
        for report in told:
            yield sequence, *line(report, kind, where, quantity)


def line(report: Report, kind: int, where: tuple[int, int, int], quantity: int) -> tuple[int, str]:
    side, number, price = where
    match report:
        case Trade(_, _, traded, part, buy, sell):
            maker = sell if buy == number else buy
            return TRADE, f"{traded},{part},{maker},{number}"
        case Cancelled():
            return CANCELLED, f"{side},{number},{price}"
        case Replaced():
            return MODIFIED, f"{side},{number},{price},{quantity}"
        case Refused():
            assert kind, f"a new order was refused: {report}"
            return (CANCEL_REFUSED if kind == 1 else MODIFY_REFUSED), f"{number}"
        case _:
            raise AssertionError(report)


@needs_data
@pytest.mark.long
@pytest.mark.parametrize("new_floor", [Floor, FastFloor])
def test_two_million_messages_give_the_published_hash(new_floor: type[Floor]) -> None:
    raw = lzma.decompress(Path(DATA, "meb_workload", "normal.bin.xz").read_bytes())
    found = sorted(answers(raw, new_floor()), key=lambda one: one[:2])
    text = "\n".join(f"{kind},{sequence},{rest}" for sequence, kind, rest in found)
    assert sha256(text.encode()).hexdigest() == PUBLISHED


@needs_data
@pytest.mark.long
def test_two_million_messages_as_arrays_give_the_published_hash() -> None:
    path = Path(DATA, "meb_workload", "normal.bin.xz")
    messages = list(RECORD.iter_unpack(lzma.decompress(path.read_bytes())[16:]))
    floor = FastFloor()
    floor.step(1, 0, [Directory("X", own_rule=OwnRule.NONE, phase=Phase.OPEN)])
    told = [(block, run(floor, block)) for block in read_benchmark_flow(path)]
    lines: list[tuple[int, int, str]] = []
    where: dict[int, tuple[int, int]] = {}
    start = 0
    for block, reports in told:
        said = iter(zip(reports["event"].tolist(), as_reports(reports, ["X"]), strict=True))
        event, report = next(said, (-1, None))
        for place in range(len(block)):
            kind, side, _, _, quantity, sequence, number, price, _ = messages[start + place]
            if not kind:
                where[number] = side, price
                lines.append((sequence, NEW, f"{side},{number},{price},{quantity}"))
            while event == place and report is not None:
                if isinstance(report, Replaced):
                    where[number] = where[number][0], price
                    side = where[number][0]
                    lines.append((sequence, MODIFIED, f"{side},{number},{price},{quantity}"))
                else:
                    at = where.get(number, (side, price))
                    lines.append((sequence, *line(report, kind, (at[0], number, at[1]), quantity)))
                event, report = next(said, (-1, None))
        start += len(block)
    lines.sort(key=lambda one: one[:2])
    text = "\n".join(f"{kind},{sequence},{rest}" for sequence, kind, rest in lines)
    assert sha256(text.encode()).hexdigest() == PUBLISHED


@needs_data
def test_executions_of_a_real_hour_hit_the_head_of_the_queue_at_the_best_price() -> None:
    """Nasdaq's own matching, followed: 99.41 % of what LOBSTER knows of AAPL's first hour hit the head."""
    book, known = Book(), dict[int, WorkingOrder]()
    executions = at_head = at_best = 0
    with gzip.open(Path(DATA, "lobster", "AAPL_2012-06-21_34200000_37800000_message_50.csv.gz"), "rt") as rows:
        for place, (_, kind, number, size, price, direction) in enumerate(csv.reader(rows)):
            side = Side.BUY if int(direction) > 0 else Side.SELL
            order = known.get(int(number))
            if kind == "1":
                order = WorkingOrder(int(number), 0, 0, side, int(price), int(size), 0, 0, place)
                known[order.id] = order
                book.side(side).add(order)
            elif order is not None and kind in "234":
                if kind == "4":
                    best = book.side(side).best
                    assert best is not None
                    executions += 1
                    at_head += best is order
                    at_best += best.price == order.price
                order.filled += int(size)
                if kind == "3" or order.left <= 0:
                    book.side(side).remove(known.pop(order.id))
    assert executions == 4_055
    assert at_best == executions
    assert round(at_head / executions, 4) == 0.9941
