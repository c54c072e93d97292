"""Writes to a store in child processes that are killed at any moment, and compares what they left: a program.

    python tests/runtime/disk/killed_writers.py site|outbox DIRECTORY KILLS SEED

A writer tells of each group of records after the store has acknowledged it. Whatever it told must be there when the
store is opened again, and nothing else but the first records, each whole, of the one group that it was about to tell.
The next writer goes on from there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.runtime.disk.disks import SITE, Author, Step, blank_site, folded

from isocast.ring.effects import OutboxAppended, OutboxFreed, Record
from isocast.ring.source import OutboxState
from isocast.runtime.disk.outbox_store import OutboxStore, open_outbox_store
from isocast.runtime.disk.site_store import SiteStore, open_site_store
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.market.model import StoreSettings
from isocast.terms.ids import source_id

SETTINGS = StoreSettings(segment_bytes=300_000, keep_bytes=600_000)
FLOOR = StoreIdentity("test market", "floor", source_id(1, 0))
MOST_ACKNOWLEDGED = 12
LONGEST_SPIN_S = 0.004
GROUPS_PER_KILL = 15
TORN: list[int] = []
"""Bytes cut off at each opening."""


@dataclass(frozen=True, slots=True)
class Group:
    """What is appended together; then everything up to a token is collected."""

    records: list[Record]
    collect: int = 0


def site_groups(count: int, random: Random) -> list[Group]:
    """Tokens small and large, promises and rings."""
    author, groups = Author(payload_bytes=300), []
    for _ in range(count):
        steps: list[Step] = []
        for _ in range(random.choice([1, 1, 1, 3])):
            kind = random.choice(["entry", "entry", "entry", "large", "promise", "ring", "taken"])
            if kind == "large":
                # More messages than one writev takes, so that a kill may come between two of them.
                steps.append(("entry", random.randint(1_100, 1_500), 0))
            else:
                steps.append((kind, random.randint(0, 5), random.randint(0, 3)))
        records = [author.record(step) for step in steps]
        author.floor = max(author.floor, author.chain.head.token_number - random.randint(2, 6))
        groups.append(Group(records, author.floor))
    return groups


def outbox_groups(count: int, random: Random) -> list[Group]:
    """Messages in bursts, and what is freed of them."""
    following, base, groups = 1, 1, []
    for _ in range(count):
        records: list[Record] = []
        for _ in range(random.choice([1, 5, 100])):
            records.append(OutboxAppended(b"%d" % following, following, random.randbytes(random.randint(0, 1_300))))
            following += 1
        if random.random() < 0.7:
            base = random.randint(base, following)
            records.append(OutboxFreed(base))
        groups.append(Group(records))
    return groups


def open_site(directory: Path) -> SiteStore:
    return open_site_store(directory, SITE, blank_site, SETTINGS, fresh=True)


def open_outbox(directory: Path) -> OutboxStore:
    return open_outbox_store(directory, FLOOR, settings=SETTINGS)


def site_left(directory: Path, records: list[Record], rest: list[Record]) -> int | None:
    """How many of the rest a site's store has besides the records; None when it says something else."""
    store = open_site(directory)
    state = store.state
    TORN.append(store.counters.torn_bytes)
    store.abandon()
    floor = state.checkpoint.token_number
    for extra in range(len(rest) + 1):
        if state == folded(blank_site(), [*records, *rest[:extra]], floor):
            return extra
    return None


def outbox_left(directory: Path, records: list[Record], rest: list[Record]) -> int | None:
    """The same of an outbox."""
    store = open_outbox(directory)
    state = store.state
    TORN.append(store.counters.torn_bytes)
    store.abandon()
    reference = OutboxState()
    for record in records:
        reference.apply(record)
    for extra in range(len(rest) + 1):
        if state == reference:
            return extra
        if extra < len(rest):
            reference.apply(rest[extra])
    return None


def write(store: SiteStore | OutboxStore, groups: list[Group], told: int) -> NoReturn:
    """Append until killed, or until nothing is left."""
    for group in groups:
        store.append_many(group.records)
        os.write(told, b".")
        if isinstance(store, SiteStore):
            store.collected(group.collect)
    signal.pause()
    os._exit(1)


def killed(store_of: Callable[[], SiteStore | OutboxStore], groups: list[Group], random: Random) -> int:
    """How many groups a writer told of before it was killed."""
    reads, writes = os.pipe()
    writer = os.fork()
    if not writer:
        write(store_of(), groups, writes)
    os.close(writes)
    told = 0
    for _ in range(min(random.randint(0, MOST_ACKNOWLEDGED), len(groups))):
        told += len(os.read(reads, 1))
    until = perf_counter() + random.random() * LONGEST_SPIN_S
    while perf_counter() < until:
        pass
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    while more := os.read(reads, 65_536):
        told += len(more)
    os.close(reads)
    return told


def main() -> None:
    """Kill writers, one after the other; end with what happened, or with the first difference."""
    role, directory, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    random = Random(seed)
    count = GROUPS_PER_KILL * kills
    groups = site_groups(count, random) if role == "site" else outbox_groups(count, random)
    store_of = open_site if role == "site" else open_outbox
    left = site_left if role == "site" else outbox_left
    records: list[Record] = []
    told_of = 0
    for kill in range(kills):
        told = killed(lambda: store_of(directory), groups, random)
        told_of += told
        records += [record for group in groups[:told] for record in group.records]
        rest = groups[told].records if told < len(groups) else []
        extra = left(directory, records, rest)
        if extra is None:
            sys.exit(f"after kill {kill}: {told_of} groups were acknowledged, and the store says something else")
        records += rest[:extra]
        if told < len(groups):
            # A group that was all written and not told of yet leaves nothing for the next life.
            unwritten = [Group(rest[extra:], groups[told].collect)] if rest[extra:] else []
            groups = [*unwritten, *groups[told + 1 :]]
        else:
            groups = []
    torn = sum(map(bool, TORN))
    sys.stdout.write(json.dumps({"kills": kills, "groups": told_of, "torn": torn}))


if __name__ == "__main__":
    main()
