"""Logs, records and directories for tests of the stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st
from tests.ring.makers import PERIOD, S1, S2, SERVER, Chain, following, founding

from isocast.ring.effects import EntryAppended, LogReplaced, PromiseMade, Record, RingInstalled
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.settings import Schedule
from isocast.ring.storage import SiteState
from isocast.runtime.disk.site_store import SiteStore, open_site_store
from isocast.runtime.disk.store import HighWater
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.disk.store_segments import Location
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.packets import Data, NewRing

__all__ = [
    "ENTRY",
    "LARGE",
    "POWER",
    "SHORT",
    "SITE",
    "SMALL",
    "Author",
    "Step",
    "blank_site",
    "fill",
    "flipping_bits",
    "folded",
    "open_site",
    "quick_directory",
    "segment_paths",
    "site_steps",
    "state_of",
    "told_up_to",
]

SITE = StoreIdentity("test market", "london", 2)
UNIVERSE = (1, 2, 3)
SMALL = StoreSettings(segment_bytes=5_120, keep_bytes=10_240)
"""A new segment after a few records, and two of them kept."""
POWER = replace(SMALL, durability=Durability.POWER)
LARGE = StoreSettings()

_MEMORY = Path("/dev/shm")  # noqa: S108  Only for throw-away directories of its own.

Step = tuple[str, int, int]
ENTRY: Step = ("entry", 2, 0)
SHORT: Step = ("entry", 1, 0)


def quick_directory() -> TemporaryDirectory[str]:
    """A directory in memory, where there is such a thing: examples by the hundred need not wait for a disk."""
    return TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)


def blank_site() -> SiteState:
    """Before anything happened."""
    return SiteState(Checkpoint(universe=UNIVERSE))


def open_site(directory: Path, settings: StoreSettings = SMALL, *, boot: str = "boot 1") -> SiteStore:
    """London's store, on a machine that has not been started again unless `boot` says so."""
    return open_site_store(directory, SITE, blank_site, settings, fresh=True, boot=boot)


def segment_paths(directory: Path) -> list[Path]:
    """The segments, oldest first."""
    return sorted(directory.glob("segment-*.log"))


def told_up_to(directory: Path, length: int, segment: int = 1) -> None:
    """What lies behind was written, and its process, or its machine, died before anybody was told of it."""
    HighWater(directory, Location(segment, length)).close()


def fill(
    directory: Path, *steps: Step, settings: StoreSettings = LARGE, payload_bytes: int = 40
) -> tuple[list[Record], list[int]]:
    """Write these records, as a process that is killed then; and say how long the newest segment was after each."""
    author, records, lengths = Author(payload_bytes), [], []
    store = open_site(directory, settings)
    for step in steps:
        records.append(author.record(step))
        store.append(records[-1])
        lengths.append(segment_paths(directory)[-1].stat().st_size)
    store.abandon()
    return records, lengths


def state_of(directory: Path, settings: StoreSettings = LARGE, boot: str = "boot 1") -> SiteState:
    with open_site(directory, settings, boot=boot) as store:
        return store.state


class Author:
    """Writes the records of one site, as a ring and its reformations would; everything follows from the steps."""

    def __init__(self, payload_bytes: int = 40) -> None:
        """A site on the first ring, before its first token."""
        self.chain = Chain(founding(*UNIVERSE))
        self.ballot = 1
        self.floor = 0
        self._payload_bytes = payload_bytes

    def message(self, source: NodeId, ahead: int) -> Data:
        """The message that the chain expects of a source, or one so many later."""
        number = self.chain.head.next_number.get(source, 1) + ahead
        payload = f"{source >> 32}/{number}/{self.ballot}/".encode().ljust(self._payload_bytes, b".")
        return Data(0, self.chain.ring.ballot, source, number, max(number - 3, 1), payload)

    def entry(self, messages: int) -> LogEntry:
        """The next token, its messages from two sources in turn."""
        return self.chain.add(*[self.message((S1, S2)[place % 2], place // 2) for place in range(messages)])

    def record(self, step: Step) -> Record:
        """Of ("entry", messages, _), ("promise", ahead, _), ("ring", tokens cut off, new entries).

        Or ("taken", tokens missed, new entries): a checkpoint ahead of the log; with new entries a ring comes with it.
        """
        kind, one, two = step
        if kind == "entry":
            return EntryAppended(self.entry(one))
        if kind == "promise":
            self.ballot += one + 1
            return PromiseMade(Epoch(self.ballot, SERVER))
        if kind == "taken":
            return self._taken(one, two)
        keep = max(self.floor, self.chain.head.token_number - one)
        self._cut(keep)
        suffix = tuple([self.entry(place + 1) for place in range(two)])
        return RingInstalled(self._ring(), keep, suffix)

    def _taken(self, missed: int, more: int) -> LogReplaced:
        for _ in range(missed + 1):
            self.entry(2)
        point = self.chain.head.copy()
        self.floor = point.token_number
        suffix = tuple([self.entry(place + 1) for place in range(more)])
        return LogReplaced(point, self._ring() if more else None, suffix)

    def _ring(self) -> NewRing:
        self.ballot += 1
        epoch = Epoch(self.ballot, SERVER)
        start = self.chain.schedule.instant(self.chain.head.token_number + 5)
        ring = following(self.chain, start=start, epoch=epoch)
        self.chain = self.chain.enter(ring)
        return ring

    def _cut(self, keep: int) -> None:
        """As another site's log would go on from a token of ours: with other messages in it."""
        other = Chain(self.chain.ring, self.chain.order)
        other.schedule = Schedule(self.chain.ring, PERIOD)
        other.entries = self.chain.entries[:keep]
        for entry in other.entries:
            other.head.advance(entry)
        self.chain = other


def folded(state: SiteState, records: Iterable[Record], floor: int) -> SiteState:
    """A state after some records, everything up to a token folded into its checkpoint: what a store should say."""
    for record in records:
        state.apply(record)
    while state.checkpoint.token_number < floor and state.entries:
        state.checkpoint.advance(state.entries.pop(state.checkpoint.token_number + 1))
    # How far the site has released is the journal's to say.
    state.released = state.offset = state.skip_below = 0
    state.next_sequence = 1
    return state


def site_steps() -> st.SearchStrategy[list[Step]]:
    """What may happen to a site, with restarts and collections in between."""
    return st.lists(
        st.one_of(
            st.tuples(st.just("entry"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("promise"), st.integers(0, 2), st.just(0)),
            st.tuples(st.just("ring"), st.integers(0, 4), st.integers(0, 3)),
            st.tuples(st.just("taken"), st.integers(0, 9), st.integers(0, 2)),
            st.tuples(st.just("collect"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("close"), st.just(0), st.just(0)),
            st.tuples(st.just("kill"), st.just(0), st.just(0)),
        ),
        max_size=40,
    )


def flipping_bits(path: Path) -> Iterator[int]:
    """Damage one bit of every byte of a file in turn, and give the place; in the end the file is whole again."""
    whole = path.read_bytes()
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        path.write_bytes(damaged)
        yield byte
    path.write_bytes(whole)
