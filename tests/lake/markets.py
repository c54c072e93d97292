"""A generated market on disk: real journals of several receivers that released the same sequence.

    market = write_market(tmp_path, receivers=3, stripes=(0, 1), events=5_000, seed=7)
    market.path                       # give it to spark.read.format("isocast").load(...)
    market.journal(2, stripe=1)       # the folder of one journal, to damage it
    market.blocks(1)                  # what was released of a stripe, as the first receiver wrote it
    market.events(1)                  # all events of a stripe, one numpy array in sequence order
    market.append(stripe=0, events=500)   # go on where all journals of the stripe end

The same arguments give the same bytes. A stripe holds `events` events, rounded up to whole messages: groups of a bid,
an ask (LINKED) and a trade, for `symbols` symbols on three floors, spread evenly over `span_s` seconds from START on.
One message in 64 is opaque and one in 97 is empty: they have a sequence and no events. Receivers differ in release
times (up to 80 µs after the due instant) and in nothing else. Layout: `path/city-stripe/journal/*.isoj`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.runtime.disk.journal import Journal, ReleasedPosition
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import JournalSettings
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock
from isocast.wire.journal_proofs import BlockProof, Statement
from isocast.wire.packets import payload_digest, short_digest_of
from isocast.wire.signing import SignedKind

__all__ = [
    "BEGINNING",
    "CITIES",
    "CLOCK_BOUND",
    "DELAY",
    "FLOORS",
    "START",
    "Behind",
    "Market",
    "released_blocks",
    "token_block",
    "write_market",
]

CITIES = ("tokyo", "london", "newyork", "mumbai", "saopaulo", "sydney")
"""Receivers 1, 2, 3 … live here."""
FLOORS = (b"XNYS", b"XLON", b"XTKS")
"""The floors, published by sources 1, 2 and 3."""
START = 1_767_623_400_000_000_000
"""5 January 2026, 14:30 UTC."""
DELAY = 250_000_000
CLOCK_BOUND = 100_000
JITTER = 80_000

_GROUP = 3
_GROUPS_MAX = 9
_MESSAGES_PER_TOKEN = 8
_CHUNK = 1 << 12
"""Messages that are drawn at once."""


class Behind(NamedTuple):
    """Where a journal ends, and the last number of each floor's source in it."""

    position: ReleasedPosition
    numbers: Sequence[int]


BEGINNING = Behind(ReleasedPosition(), (0,) * len(FLOORS))


@dataclass(frozen=True)
class Market:
    """What was written, and how to have it once more."""

    path: Path
    receivers: tuple[int, ...]
    stripes: tuple[int, ...]
    count: int
    seed: int
    symbols: int
    span_s: int
    segment_bytes: int

    def journal(self, receiver: int, stripe: int) -> Path:
        """The folder of one receiver's journal."""
        return self.path / f"{CITIES[receiver - 1]}-{stripe}" / "journal"

    def blocks(self, stripe: int) -> Iterator[ReleasedBlock]:
        """What was released at first, in order (without what `append` added)."""
        return released_blocks(stripe, self.count, self.seed, symbols=self.symbols, span_s=self.span_s)

    def events(self, stripe: int) -> EventArray:
        """Every event of a stripe, in order (without what `append` added)."""
        payloads = [message[3] for block in self.blocks(stripe) for message in block.messages]
        return np.frombuffer(b"".join(p for p in payloads if not p.startswith(b"opaque")), EVENT_DTYPE)

    def append(self, stripe: int, events: int, seed: int = 0) -> None:
        """More of a stripe at every receiver, behind what is there."""
        for receiver in self.receivers:
            with self._open(receiver, stripe) as journal:
                at = journal.position
                for block in released_blocks(
                    stripe,
                    events,
                    seed or self.seed + at.next_sequence,
                    symbols=self.symbols,
                    span_s=1,
                    behind=Behind(at, _numbers(self.journal(receiver, stripe))),
                ):
                    journal.append(self.as_released(receiver, block))

    def as_released(self, receiver: int, block: ReleasedBlock) -> ReleasedBlock:
        """A block with the release time of a receiver; the last one keeps proofs, which readers must step over."""
        draw = np.random.Philox(key=[receiver, block.first_sequence]).random_raw()
        said = Statement(SignedKind.TOKEN, block.epoch, receiver, b"", bytes(block.token_number % 40))
        proof = BlockProof((), (said,)) if receiver == self.receivers[-1] else None
        return replace(block, released_at=block.due + int(draw) % JITTER, proof=proof)

    def write(self, missing: Mapping[tuple[int, int], Sequence[range]]) -> None:
        """All journals."""
        for stripe in self.stripes:
            for receiver in self.receivers:
                gaps = missing.get((receiver, stripe), ())
                with self._open(receiver, stripe) as journal:
                    for block in self.blocks(stripe):
                        if any(block.first_sequence in gap for gap in gaps):
                            continue
                        if block.first_sequence > journal.position.next_sequence:
                            journal.skip_to(block.first_sequence)
                        journal.append(self.as_released(receiver, block))

    def _open(self, receiver: int, stripe: int) -> Journal:
        settings = JournalSettings(segment_bytes=self.segment_bytes, release_delay_ns=DELAY)
        return Journal.open(self.journal(receiver, stripe), stripe, receiver, settings)


def write_market(  # noqa: PLR0913 - each has a default that suits most tests
    path: Path,
    *,
    receivers: int = 3,
    stripes: Sequence[int] = (0, 1),
    events: int = 2_000,
    seed: int = 1,
    symbols: int = 20,
    span_s: int = 600,
    segment_bytes: int = 64 << 20,
    missing: Mapping[tuple[int, int], Sequence[range]] | None = None,
) -> Market:
    """Write the journals of a market under `path`.

    `events` is for each stripe. `missing` names, for (receiver, stripe), ranges of sequences: a block that begins in
    one is left out of that journal.
    """
    numbers = tuple(range(1, receivers + 1))
    market = Market(path, numbers, tuple(stripes), events, seed, symbols, span_s, segment_bytes)
    market.write(missing or {})
    return market


def released_blocks(
    stripe: int,
    events: int,
    seed: int,
    *,
    symbols: int = 20,
    span_s: int = 600,
    behind: Behind = BEGINNING,
) -> Iterator[ReleasedBlock]:
    """A stripe's tokens, each released at once; nothing depends on how many are taken."""
    random = np.random.default_rng([seed, stripe])
    names = np.array([f"S{stripe}N{at:03}".encode() for at in range(symbols)], "S8")
    prices = random.integers(100_000, 5_000_000, symbols)
    gap_ns = span_s * 1_000_000_000 // max(events // _GROUP, 1)
    numbers = [number + 1 for number in behind.numbers]
    first_sequence, start = behind.position.next_sequence, (behind.position.instant or START - 1_000_000) + 1_000_000
    sequence, token, made = first_sequence, behind.position.released + 1, 0
    while made < events:
        groups = random.integers(1, _GROUPS_MAX + 1, _CHUNK)
        floors = random.integers(0, len(FLOORS), _CHUNK)
        table = _events(random, int(groups.sum()), names, prices)
        table["time"] = start + (made // _GROUP + np.arange(len(table)) // _GROUP) * gap_ns
        table["id"] = (stripe << 48) + first_sequence * 1_000 + made + np.arange(len(table))
        table["floor"] = np.repeat(np.array(FLOORS)[floors], groups * _GROUP)
        ends = groups.cumsum() * _GROUP
        for first in range(0, _CHUNK, _MESSAGES_PER_TOKEN):
            messages: list[JournalMessage] = []
            for at in range(first, first + _MESSAGES_PER_TOKEN):
                if made >= events:
                    break
                floor, place = int(floors[at]), sequence + len(messages)
                payload = table[ends[at] - groups[at] * _GROUP : ends[at]].tobytes()
                made += int(groups[at]) * _GROUP
                for extra in [b"opaque %d" % place] * (place % 64 == 0) + [b""] * (place % 97 == 0) + [payload]:
                    messages.append((source_id(floor + 1), numbers[floor], payload_digest(extra), extra))
                    numbers[floor] += 1
            if not messages:
                return
            instant = int(table["time"][ends[min(first + _MESSAGES_PER_TOKEN, _CHUNK) - 1] - 1]) + 1_000_000
            yield token_block(stripe, token, sequence, instant, messages)
            sequence, token = sequence + len(messages), token + 1


def _numbers(directory: Path) -> list[int]:
    last = dict.fromkeys((source_id(at + 1) for at in range(len(FLOORS))), 0)
    for block in read_blocks(directory):
        last.update(zip(block.directory["source"].tolist(), block.directory["number"].tolist(), strict=True))
    return list(last.values())


def _events(
    random: np.random.Generator, groups: int, names: npt.NDArray[np.bytes_], prices: npt.NDArray[np.int64]
) -> EventArray:
    """A bid, an ask and a trade for each group; `prices` walk on."""
    chosen = random.integers(0, len(names), groups)
    steps = random.integers(-3, 4, groups) * 100
    for symbol in range(len(names)):
        mine = chosen == symbol
        steps[mine] = prices[symbol] + steps[mine].cumsum()
        if mine.any():
            prices[symbol] = steps[mine][-1]
    table = np.zeros((groups, _GROUP), EVENT_DTYPE)
    table["symbol"] = names[chosen][:, None]
    table["kind"] = [EventKind.QUOTE, EventKind.QUOTE, EventKind.TRADE]
    table["side"][:, :2] = [Side.BUY, Side.SELL]
    table["side"][:, 2] = random.integers(0, 3, groups)
    table["flags"] = [EventFlag.LINKED, 0, 0]
    spread = random.integers(1, 5, groups) * 100
    table["price"] = np.stack([steps - spread, steps + spread, steps + random.integers(-1, 2, groups) * 100], axis=1)
    table["quantity"] = random.integers(1, 500, (groups, _GROUP))
    return table.reshape(-1)


def token_block(
    stripe: int, token: int, sequence: int, instant: int, messages: Sequence[JournalMessage]
) -> ReleasedBlock:
    """What one token assigned, released when it was due."""
    return ReleasedBlock(
        epoch=Epoch(2, server_id(1)),
        token_number=token,
        token_count=len(messages),
        place=0,
        first_sequence=sequence,
        instant=instant,
        due=instant + DELAY,
        released_at=instant + DELAY,
        clock_bound_ns=CLOCK_BOUND,
        shuffle_key=short_digest_of(b"%d %d" % (stripe, token)),
        messages=messages,
    )
