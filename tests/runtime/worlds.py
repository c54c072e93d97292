"""Whole markets on loopback for tests: files with addresses of their own, and nodes that live in one event loop.

    path = market_file(tmp_path, LAYERED, loss=0.05)
    async with World(path) as world:
        await world.start()
        await world.publish("floor", trades(100))
        await world.until_journals_have(range(1, 101), "bank")

Every file has a block 127.A.B.* and multicast groups and ports that nobody else has, so that tests run beside each
other and beside a market of the person who runs them. Times are those of the profile `ci`, shortened: a message is
released some 400 ms after it was published.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import SystemRandom
from threading import Thread
from time import monotonic, sleep
from typing import Any, Self, TypeVar

import numpy as np
import structlog

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import found_market
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.operate.supervisor import node_command
from isocast.wire.events import EVENT_DTYPE, EventArray, events_view
from isocast.wire.opaque import is_opaque

__all__ = [
    "BUSY",
    "LAYERED",
    "PATIENCE_S",
    "SMALL",
    "Nodes",
    "World",
    "eventually",
    "market_file",
    "run",
    "running",
    "trades",
    "wait_until",
]

ResultT = TypeVar("ResultT")

Nodes = Mapping[str, Mapping[str, object]]

SMALL: Nodes = {
    "a": {"role": "primary-receiver"},
    "b": {"role": "primary-receiver"},
    "c": {"role": "primary-receiver"},
    "floor": {"role": "primary-source"},
    "x": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["a", "b"]},
    "bank": {"role": "customer", "lines": ["b", "c"], "retransmit": ["archive"]},
}
"""A ring of three, and a complete customer that can be repaired."""

LAYERED: Nodes = {
    **SMALL,
    "a2": {"role": "secondary-receiver", "parent": "a", "backup": "b"},
    "broker": {"role": "secondary-source", "parent": "floor"},
    "fund": {"role": "customer", "lines": ["a2", "a"], "retransmit": ["archive"]},
    "ticker": {"role": "customer", "lines": ["c", "a"], "retransmit": ["archive"], "grade": "latest"},
}
"""One of each role, customers of both grades."""

PATIENCE_S = 90.0
"""Before something counts as never happening, on a machine with much else to do; a passing test does not wait."""

BUSY = re.compile(r" is slow \((stopped|lagging)\): |^line (switched|is silent|silent|late|back)\b")
"""What a listener says on a machine that does not let it or its receivers run: true, and no fault of the program."""

_RANDOM = SystemRandom()
_NUMBERS = count(1)


def market_file(
    folder: Path,
    nodes: Nodes = SMALL,
    *,
    loss: float = 0.0,
    seed: int = 1,
    settings: Mapping[str, Mapping[str, object]] = {},
) -> Path:
    """Write a market's file with its keys; `settings` are further keys of its tables."""
    a, b = _RANDOM.randrange(16, 192), _RANDOM.randrange(256)
    tables: dict[str, dict[str, object]] = {
        "timing": {"profile": "ci", "detect": "20ms", "process": "50ms", "retries_max": 2},
        "clock": {"bound": "1ms", "source": "configured", "realtime": False},
        "network": {
            "groups": f"239.{a}.{b}.0",
            "lines": f"239.{a}.{b}.32",
            "repairs": f"239.{a}.{b}.128",
            "port": _RANDOM.randrange(20_000, 30_000),
            "receive_buffer": "2MiB",
        },
    }
    if any(node["role"] == "secondary-receiver" for node in nodes.values()):
        tables["timing"]["secondary_detect"] = "20ms"
    if "edge" in settings:  # Whoever hears a group hears every market that has the same.
        tables["edge"] = {
            "groups": f"239.{_RANDOM.randrange(192, 200)}.{b // 2}.0",
            "repairs": f"239.{_RANDOM.randrange(200, 208)}.{b // 2}.0",
            "proofs": f"239.{_RANDOM.randrange(208, 216)}.{b // 2}.0",
            "port": _RANDOM.randrange(30_000, 32_000),
        }
    if loss:
        tables["impairment"] = {"enabled": True, "delay": "none", "loss": loss, "seed": seed}
    for name, more in settings.items():
        tables.setdefault(name, {}).update(more)
    path = folder / "market.toml"
    # A folder's keys are those of one market: written again, it keeps its name.
    name = path.read_text(encoding="utf-8").splitlines()[0] if path.exists() else f'name = "test {next(_NUMBERS)}"'
    lines = [name, 'durability = "process"']
    for name, table in tables.items():
        lines += [f"[{name}]", *_entries(table)]
    for place, (name, node) in enumerate(nodes.items(), 1):
        lines += [f"[nodes.{name}]", *_entries({"address": f"127.{a}.{b}.{place}", "http_port": 0, **node})]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    init_keys(load_market(path))
    return path


def _entries(table: Mapping[str, object]) -> list[str]:
    # Strings, numbers, booleans and lists of strings are written alike in JSON and TOML.
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def trades(number: int, first_id: int = 1, symbols: Sequence[bytes] = (b"ISO",)) -> EventArray:
    """So many trades with ids in a row."""
    events = np.zeros(number, EVENT_DTYPE)
    events["kind"], events["floor"] = 1, b"XNYS"
    events["symbol"] = np.resize(np.array(symbols, "S8"), number)
    events["id"] = np.arange(first_id, first_id + number)
    events["price"] = 10_000 + events["id"]
    events["quantity"] = 100
    events["time"] = 1_700_000_000_000_000_000 + events["id"]
    return events


async def eventually(holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds."""
    until = monotonic() + patience_s
    while not holds():
        assert monotonic() < until, f"not within {patience_s} s"
        await asyncio.sleep(0.01)


class World:
    """The nodes of one market in this event loop, or apart as processes of their own; leaves nothing open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.market = load_market(path)
        self.nodes: dict[str, NodeProcess] = {}
        self.apart: dict[str, Process] = {}
        self._doors: dict[str, Publisher] = {}
        found_market(self.market)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for door in self._doors.values():
            await door.close()
        for name in list(self.apart):
            await self.kill(name)
        for name in list(self.nodes):
            await self.stop(name)

    async def start(self, *names: str, ready: bool = True) -> None:
        """Start nodes, all that `isocast up` would if none is named; wait until they can work."""
        chosen = names or tuple([plan.name for plan in self.market.nodes if plan.start])
        for name in chosen:
            process = NodeProcess(self.market, self.market.node(name))
            await process.start()
            self.nodes[name] = process
        if ready:
            await eventually(lambda: not [name for name in chosen if self.nodes[name].monitor.not_ready()])

    async def stop(self, name: str) -> None:
        """As SIGTERM would."""
        process = self.nodes.pop(name)
        await process.stop()
        assert process.failure is None, process.failure

    async def start_apart(self, name: str) -> None:
        """Start a node as a process of its own, which `kill` can kill."""
        self.apart[name] = await asyncio.create_subprocess_exec(*node_command(self.path, name), stderr=DEVNULL)

    async def kill(self, name: str) -> None:
        """kill -9."""
        process = self.apart.pop(name)
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def publish(self, source: str, events: EventArray, key: bytes | None = None) -> None:
        """Publish at a source's door; returns when its outbox has it."""
        if source not in self._doors:
            self._doors[source] = Publisher(self.market, source)
        await self._doors[source].publish(events, key)

    # What came of it ----------------------------------------------------------------------------

    def released(self, name: str) -> list[tuple[int, bytes]]:
        """(sequence, payload) of everything in a node's journal, block after block."""
        where = self.market.directory_of(name) / "journal"
        found: list[tuple[int, bytes]] = []
        for block in read_blocks(where) if where.exists() else ():
            found += zip(block.sequences, [payload for _, _, _, payload in block.messages()], strict=True)
        return found

    def ids(self, name: str) -> list[int]:
        """The events of a node's journal, by their ids; opaque messages are passed over."""
        payloads = [payload for _, payload in self.released(name) if not is_opaque(payload)]
        return [int(number) for payload in payloads for number in events_view(payload)["id"]]

    def count(self, name: str) -> int:
        """How many events a node's journal has; looks at headers alone."""
        where = self.market.directory_of(name) / "journal"
        return sum([block.header.events for block in read_blocks(where, check=False)] if where.exists() else [])

    def holds(self, symbol: str, count: int = 1, *names: str) -> bool:
        """Whether the journals of nodes, of all that run with one if none is named, have so many events of a symbol.

        A listener may hear what other nodes release a moment later: whoever asks another wants them all to have it.
        """
        chosen = names or [name for name in self.nodes if (self.market.directory_of(name) / "journal").exists()]
        return all(self._count_of(name, symbol.encode("ascii")) >= count for name in chosen)

    def _count_of(self, name: str, symbol: bytes) -> int:
        payloads = [payload for _, payload in self.released(name) if not is_opaque(payload)]
        return sum([int((events_view(payload)["symbol"] == symbol).sum()) for payload in payloads])

    def alarms(self, name: str) -> list[str]:
        """What a node complains of, by code."""
        return [alarm.code for alarm in self.nodes[name].monitor.alarms.list()]

    async def until_journals_have(self, ids: Iterable[int], *names: str) -> None:
        """Wait until the journals of nodes have so many events: exactly these, in this order."""
        wanted = list(ids)
        await eventually(lambda: all(self.count(name) >= len(wanted) for name in names))
        for name in names:
            assert self.ids(name) == wanted, name

    async def until_journals_end_with(self, number: int, *names: str) -> None:
        """Wait until the last event in the journals of nodes has this id."""
        await eventually(lambda: all(self.ids(name)[-1:] == [number] for name in names))


@contextmanager
def running(path: Path, *names: str) -> Iterator[World]:
    """The nodes of a market in a thread of their own, for tests of commands that have an event loop themselves.

    Its nodes log nothing: the output that such a test looks at is the command's.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="market")
    thread.start()

    def wait_for(work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, loop).result(2 * PATIENCE_S)

    async def made() -> World:
        return World(path)

    world = wait_for(made())
    try:
        wait_for(world.start(*names))
        yield world
    finally:
        wait_for(world.__aexit__(None, None, None))
        wait_for(loop.shutdown_asyncgens())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        structlog.reset_defaults()


def wait_until(holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """As `eventually`, outside an event loop."""
    until = monotonic() + patience_s
    while not holds():
        assert monotonic() < until, f"not within {patience_s} s"
        sleep(0.01)


def run(work: Coroutine[Any, Any, ResultT], patience_s: float = 2 * PATIENCE_S) -> ResultT:
    """Run a test's work; whatever hangs ends."""
    return asyncio.run(asyncio.wait_for(work, patience_s))
