"""What bench/lake.py measures with, and on: a process tree's time and memory, and the journal of a market's day."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from isocast.runtime.journal import Journal
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.events import EVENT_DTYPE, EVENTS_PER_PAYLOAD, EventArray
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import payload_digest

__all__ = ["Figures", "Memory", "events_of", "make_market", "measured", "write_journal"]

SYMBOLS = 500
FLOORS = (b"XNYS", b"XNAS", b"ARCX", b"BATS")
START = 1_767_623_400_000_000_000
DAY_NS = int(6.5 * 3_600e9)
PER_TOKEN = 200

Figures = dict[str, Any]


# ---- measuring


def tree() -> dict[int, tuple[float, float, int]]:
    """CPU seconds, those of ended children, and resident bytes of this process and all below it."""
    parents, found = {}, {}
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(entry.name)
        parents[number] = int(fields[1])
        own, ended = (sum(map(int, fields[at : at + 2])) / tick for at in (11, 13))
        found[number] = (own, ended, int(fields[21]) * page)
    own = {os.getpid()}
    while True:
        more = {number for number, parent in parents.items() if parent in own} - own
        if not more:
            return {number: found[number] for number in own if number in found}
        own |= more


class Memory:
    """The most that the tree took, looked at four times a second."""

    def __init__(self) -> None:
        """Starts at once."""
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            self.peak = max(self.peak, sum(memory for *_, memory in tree().values()))

    def end(self) -> int:
        """The most until now."""
        self._over.set()
        self._thread.join()
        return self.peak


def _used(before: dict[int, tuple[float, float, int]], after: dict[int, tuple[float, float, int]]) -> float:
    """CPU seconds between two looks.

    Of a worker that ended in between, what it had used before is not to be counted, nor, where nobody waited for it,
    to be missed.
    """
    none = (0.0, 0.0, 0)
    running = sum(own - before.get(number, none)[0] for number, (own, _, _) in after.items())
    ended = sum(of - before.get(number, none)[1] for number, (_, of, _) in after.items())
    known = sum(own + of for number, (own, of, _) in before.items() if number not in after)
    return running + max(ended - known, 0.0)


def measured(work: Callable[[], Any], rounds: int) -> tuple[Any, Figures]:
    """The answer, and the best of some rounds after one to warm up."""
    answer = work()
    best: Figures = {"wall_s": float("inf"), "cpu_s": float("inf")}
    for _ in range(rounds):
        before, began = tree(), time.perf_counter()
        answer = work()
        wall = time.perf_counter() - began
        used = _used(before, tree())
        if used < best["cpu_s"]:
            best = {"wall_s": round(wall, 3), "cpu_s": round(used, 3)}
    return answer, best


# ---- the market


def events_of(count: int, first: int, random: np.random.Generator, total: int) -> EventArray:
    """A part of the day."""
    table = np.zeros(count, EVENT_DTYPE)
    weights = 1 / np.arange(1, SYMBOLS + 1)
    chosen = random.choice(SYMBOLS, count, p=weights / weights.sum())
    is_trade = random.random(count) < 1 / 3
    side = np.where(is_trade, 0, random.integers(1, 3, count))
    middle = 100_000 + 7_919 * (chosen + 1) % 4_900_000 + random.integers(-20, 21, count) * 100
    table["symbol"] = np.array([f"SY{number:04}".encode() for number in range(SYMBOLS)])[chosen]
    table["floor"] = np.array(FLOORS)[random.integers(0, len(FLOORS), count)]
    table["kind"], table["side"] = np.where(is_trade, 1, 2), side
    table["price"] = middle + np.choose(side, [0, -500, 500])
    table["quantity"] = random.integers(1, 500, count)
    table["quantity"][~is_trade & (random.random(count) < 0.01)] = 0  # noqa: PLR2004 - one in a hundred withdraws
    places = np.arange(first, first + count)
    table["id"] = np.where(is_trade, places + 1, 0)
    table["time"] = START + places * (DAY_NS // total)
    return table


def write_journal(journal: Journal, events: EventArray, released_at: int | None = None) -> None:
    """Tokens of some hundred messages, as a receiver released them."""
    raw = events.tobytes()
    size = EVENTS_PER_PAYLOAD * EVENT_DTYPE.itemsize
    payloads = [raw[at : at + size] for at in range(0, len(raw), size)]
    for first in range(0, len(payloads), PER_TOKEN):
        chosen = payloads[first : first + PER_TOKEN]
        at = journal.position
        number = at.next_sequence
        instant = int(events["time"][min((first + len(chosen)) * EVENTS_PER_PAYLOAD, len(events)) - 1])
        instant = released_at or max(instant, at.instant + 1)
        messages = [(source_id(1), number + place, payload_digest(raw), raw) for place, raw in enumerate(chosen)]
        journal.append(
            ReleasedBlock(
                epoch=Epoch(2, server_id(1)),
                token_number=at.released + 1,
                token_count=len(messages),
                place=0,
                first_sequence=number,
                instant=instant,
                due=instant + 1,
                released_at=instant + 1,
                clock_bound_ns=100_000,
                shuffle_key=payload_digest(b"key"),
                messages=messages,
            )
        )


def make_market(place: Path, count: int) -> tuple[Path, Path]:
    """The journal of one receiver."""
    random = np.random.default_rng(1)
    journals = place / "data"
    with Journal.open(journals / "tokyo" / "journal", 0, 1) as journal:
        for first in range(0, count, 540_000):
            write_journal(journal, events_of(min(540_000, count - first), first, random, count))
    return journals, place / "released"
