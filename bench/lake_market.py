"""What bench/lake.py measures with, and on: a process tree's time and memory, and the journal of a market's day."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isocast.runtime.disk.journal import Journal
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.events import EVENT_DTYPE, EVENTS_PER_PAYLOAD, EventArray
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import payload_digest, short_digest_of

__all__ = ["Figures", "Memory", "events_of", "make_market", "measured", "say", "tree", "write_journal"]

SYMBOLS = 500
FLOORS = (b"XNYS", b"XNAS", b"ARCX", b"BATS")
START = 1_767_623_400_000_000_000
DAY_NS = int(6.5 * 3_600e9)
PER_TOKEN = 200
AT_ONCE = 540_000
"""Events that are made together: some 100 MB of memory, however many there will be."""
TOLD_EVERY = 10_000_000
OWNERS = ("jvm", "workers", "driver")

Figures = dict[str, Any]


# ---- measuring

_BEGAN = time.perf_counter()


def say(text: str) -> None:
    """Progress, with the seconds since the beginning."""
    print(f"{time.perf_counter() - _BEGAN:8.1f} s  {text}", file=sys.stderr, flush=True)


def _processes() -> Iterator[tuple[int, str, list[str]]]:
    """Number, name and fields of this process and of all below it."""
    found: dict[int, tuple[str, list[str]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                before, _, after = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            found[int(entry.name)] = before.partition("(")[2], after.split()
    own = {os.getpid()}
    while more := {number for number, (_, fields) in found.items() if int(fields[1]) in own} - own:
        own |= more
    for number in own & found.keys():
        yield number, *found[number]


def tree() -> dict[int, tuple[float, float, int]]:
    """CPU seconds, those of ended children, and resident bytes of this process and all below it."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {}
    for number, _, fields in _processes():
        own, ended = (sum(map(int, fields[at : at + 2])) / tick for at in (11, 13))
        found[number] = (own, ended, int(fields[21]) * page)
    return found


class Memory:
    """The most that Java, Spark's Python workers and this process took, in MB, looked at twice a second.

    Of a page that several share, as workers do since they were forked, each has its part.
    """

    def __init__(self) -> None:
        """Starts at once."""
        self._now = dict.fromkeys(OWNERS, 0)
        self._part = dict.fromkeys(OWNERS, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self._look()

    def _look(self) -> None:
        seen = dict.fromkeys(OWNERS, 0)
        for number, name, _ in _processes():
            owner = "driver" if number == os.getpid() else "jvm" if name == "java" else "workers"
            seen[owner] += _part_of_memory(number) >> 10
        self._now = {owner: max(most, seen[owner]) for owner, most in self._now.items()}

    def lap(self) -> dict[str, int]:
        """The most since the last lap."""
        self._look()
        found, self._now = self._now, dict.fromkeys(OWNERS, 0)
        self._part = {owner: max(most, found[owner]) for owner, most in self._part.items()}
        return found

    def part(self) -> dict[str, int]:
        """The most of all laps since this was last asked."""
        self.lap()
        found, self._part = self._part, dict.fromkeys(OWNERS, 0)
        return found

    def end(self) -> None:
        """Looks no more."""
        self._over.set()
        self._thread.join()


def _part_of_memory(process: int) -> int:
    """Its proportional share of what is resident, in kB; 0 if it has ended."""
    try:
        rolled = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in rolled.splitlines() if line.startswith("Pss:")), 0)


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
                shuffle_key=short_digest_of(b"key"),
                messages=messages,
            )
        )


def make_market(place: Path, count: int) -> tuple[Path, Path]:
    """The journal of one receiver."""
    random = np.random.default_rng(1)
    journals = place / "data"
    told = 0
    with Journal.open(journals / "tokyo" / "journal", 0, 1) as journal:
        for first in range(0, count, AT_ONCE):
            write_journal(journal, events_of(min(AT_ONCE, count - first), first, random, count))
            if first + AT_ONCE - told >= TOLD_EVERY:
                told = first + AT_ONCE
                say(f"journal: {told:,} of {count:,} events")
    return journals, place / "released"
