"""What journals prove, each by itself and all against each other. Pure: blocks come in decoded.

- One journal, block after block (`JournalWalk`): no gap, no duplicate (S2), each source's order (S3), one content per
  token (S5), instants that rise (S11), nothing early (S12).
- Journals against each other (`differences`): the same message under the same sequence (S1), and everybody to the end.
- Journals against what was promised: `lost` by what sources accepted (L1), `FloorEvents` by the floors' own numbers.

Nothing that a process says of itself is believed. Instants are those of each node's own clock. How far apart sites
released is judged by `skew`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.ids import NodeId, describe
from isocast.terms.market import Mic
from isocast.wire.journal import BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.packets import DIGEST_BYTES, NO_SHUFFLE_KEY, payload_digest

__all__ = [
    "Breach",
    "Copy",
    "Difference",
    "FaultKind",
    "FloorEvents",
    "JournalWalk",
    "Promise",
    "delay_breach",
    "differences",
    "early_breach",
    "early_ns",
    "lost",
    "order_breaches",
    "place_breach",
    "repeated",
    "source_breach",
]

_CONTENT = np.dtype(
    [
        ("source", "<u8"),
        ("number", "<u8"),
        ("ordered", f"V{DIGEST_BYTES}"),
        ("digest", f"V{DIGEST_BYTES}"),
        ("key", f"V{len(NO_SHUFFLE_KEY)}"),
    ]
)
_LABEL = ["source", "number", "ordered"]


class FaultKind(StrEnum):
    """What can be wrong with a journal."""

    DAMAGE = "damage"
    """A checksum is wrong, a block is no block, or a segment ends within one: reported by the reader of the bytes."""
    GAP = "gap"
    """Sequences are missing."""
    OVERLAP = "overlap"
    """Sequences occur twice."""
    ORDER = "order"
    """Tokens, epochs or instants go back, or a token contradicts itself."""
    EARLY = "early"
    """Released before its instant."""
    SOURCE = "source"
    """A message of a source is missing, repeated or out of its source's order."""
    PROOF = "proof"
    """A signature, or what was signed, is not what the journal says."""


class Breach(NamedTuple):
    """One thing that a journal shows and that must not be."""

    kind: FaultKind
    law: str
    """The property that it breaks."""
    text: str
    sequence: int
    """The first message that it concerns."""
    last_sequence: int
    field: str = ""
    """Of the block, if it is about one."""

    @property
    def messages(self) -> int:
        """How many it concerns."""
        return self.last_sequence - self.sequence + 1


# One journal --------------------------------------------------------------------------------------


def place_breach(expected: int, found: int) -> Breach | None:
    """Sequences follow one another (S2)."""
    if found > expected:
        text = f"sequences {expected} to {found - 1} are missing"
        return Breach(FaultKind.GAP, "S2", text, expected, found - 1)
    if found < expected:
        text = f"sequences {found} to {expected - 1} are repeated"
        return Breach(FaultKind.OVERLAP, "S2", text, found, expected - 1)
    return None


def early_ns(header: BlockHeader, release_delay_ns: int | None = None) -> int:
    """How long before its instant a block was out, and before T_t+Δ_A if that is known (S12); not if at most 0."""
    due = header.due if release_delay_ns is None else max(header.due, header.instant + release_delay_ns)
    return due - header.released_at


def early_breach(header: BlockHeader, release_delay_ns: int | None = None) -> Breach | None:
    """Nothing is out before its instant (S12)."""
    early = early_ns(header, release_delay_ns)
    if early <= 0:
        return None
    text = f"token {header.token_number} was released {early:,} ns before its instant"
    return _block_breach(FaultKind.EARLY, "S12", text, header)


def delay_breach(header: BlockHeader, delay_ns: int) -> Breach | None:
    """Nor is anything due before T_t+Δ_A: a journal may lie about its instant too (S12)."""
    short = delay_ns - (header.due - header.instant)
    if short <= 0:
        return None
    text = f"due {delay_ns - short:,} ns after T_t, {short:,} ns before T_t+Δ_A (Δ_A = {delay_ns:,} ns)"
    return _block_breach(FaultKind.EARLY, "S12", text, header, "due")


def order_breaches(before: BlockHeader, header: BlockHeader) -> Iterator[Breach]:
    """Between two blocks that follow each other: T increases (S11), one token has one instant (S5)."""
    foreign = header.fetched or before.fetched
    if header.token_number < before.token_number:
        yield _disorder("S11", f"token {header.token_number} follows {before.token_number}", header)
    elif header.token_number == before.token_number:
        same = (before.epoch, before.instant, before.token_count)
        is_same = foreign or same == (header.epoch, header.instant, header.token_count)
        keys = {before.shuffle_key, header.shuffle_key}
        if foreign:
            keys.discard(NO_SHUFFLE_KEY)  # Of an archive of an older version.
        if not is_same or len(keys) > 1:
            yield _disorder("S5", f"token {header.token_number} contradicts itself", header)
    elif header.instant <= before.instant:
        yield _disorder("S11", f"the instant of token {header.token_number} is not after the one before", header)
    if header.epoch < before.epoch:
        yield _disorder("S11", f"epoch {header.epoch} follows {before.epoch}", header)
    if header.released_at < before.released_at and not foreign:
        yield _disorder("S11", f"the clock went back by {before.released_at - header.released_at} ns", header)


def source_breach(source: NodeId, number: int, before: int, sequence: int) -> Breach:
    """A source's numbers do not follow one another: one is repeated (S2), or some are missing (S3)."""
    is_repeated = number <= before
    what = "it is repeated" if is_repeated else "what lies between is missing"
    text = f"message {number} of {describe(source)} follows {before}: {what}"
    return Breach(FaultKind.SOURCE, "S2" if is_repeated else "S3", text, sequence, sequence)


def _disorder(law: str, text: str, header: BlockHeader) -> Breach:
    return _block_breach(FaultKind.ORDER, law, text, header)


def _block_breach(kind: FaultKind, law: str, text: str, header: BlockHeader, field: str = "") -> Breach:
    return Breach(kind, law, text, header.first_sequence, header.next_sequence - 1, field)


class JournalWalk:
    """The rules that a journal keeps by itself, block after block."""

    def __init__(self, next_sequence: int | None = None, release_delay_ns: int | None = None) -> None:
        """`next_sequence` is that of the first block and `release_delay_ns` is Δ_A, if they are known."""
        self.next_sequence = next_sequence
        self._release_delay_ns = release_delay_ns
        self._before: BlockHeader | None = None
        self._expected: dict[NodeId, int] = {}
        """The next number of each source."""

    def take(self, block: BlockView, delay_ns: int | None = None) -> list[Breach]:
        """What is wrong with the next block; `delay_ns` is Δ_A, if its instant is to be held to that."""
        header = block.header
        found = [] if self.next_sequence is None else [place_breach(self.next_sequence, header.first_sequence)]
        if self.next_sequence != header.first_sequence:
            self._expected.clear()
        found.append(early_breach(header, self._release_delay_ns))
        if delay_ns is not None:
            found.append(delay_breach(header, delay_ns))
        if self._before is not None:
            found.extend(order_breaches(self._before, header))
        found.extend(self._sources(block))
        self._before, self.next_sequence = header, header.next_sequence
        return [breach for breach in found if breach is not None]

    def _sources(self, block: BlockView) -> Iterator[Breach]:
        """Each source's numbers follow one another; a retransmit server's blocks do not name the sources."""
        rows, first_sequence = block.directory, block.header.first_sequence
        if block.header.fetched and not rows["source"].all():
            self._expected.clear()
            return
        order = np.argsort(rows["source"], kind="stable")
        sources, numbers = rows["source"][order], rows["number"][order]
        begins = np.flatnonzero(np.concatenate(([True], sources[1:] != sources[:-1])))
        follows = np.concatenate(([True], numbers[1:] == numbers[:-1] + np.uint64(1)))
        follows[begins] = True
        for at in np.flatnonzero(~follows).tolist():
            sequence = first_sequence + int(order[at])
            yield source_breach(int(sources[at]), int(numbers[at]), int(numbers[at - 1]), sequence)
        ends = [*begins[1:].tolist(), len(order)]
        for begin, end in zip(begins.tolist(), ends, strict=True):
            source, number = int(sources[begin]), int(numbers[begin])
            expected = self._expected.get(source)
            if expected is not None and number != expected:
                yield source_breach(source, number, expected - 1, first_sequence + int(order[begin]))
            self._expected[source] = int(numbers[end - 1]) + 1


# A whole journal ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copy:
    """One node's copy of the sequence: its blocks by their headers, its messages by label and content."""

    name: str
    headers: tuple[BlockHeader, ...]
    contents: npt.NDArray[np.void]
    """Source, number and the ring's digest, and the digest of the opened payload, in the order of the file."""
    breaches: tuple[Breach, ...] = ()
    """What is wrong with it by itself."""

    @classmethod
    def of(cls, name: str, blocks: Iterable[BlockView], walk: JournalWalk | None = None) -> Copy:
        """Everything in some blocks of a node's journal."""
        walk = walk or JournalWalk()
        headers: list[BlockHeader] = []
        breaches: list[Breach] = []
        contents: list[npt.NDArray[np.void]] = [np.zeros(0, _CONTENT)]
        for block in blocks:
            rows = block.directory
            part = np.zeros(len(rows), _CONTENT)
            part["source"], part["number"], part["ordered"] = rows["source"], rows["number"], rows["digest"]
            digests = b"".join([payload_digest(payload) for _, _, _, payload in block.messages()])
            part["digest"] = np.frombuffer(digests, _CONTENT["digest"])
            part["key"] = np.void(block.header.shuffle_key)
            headers.append(block.header)
            contents.append(part)
            breaches += walk.take(block)
        return cls(name, tuple(headers), np.concatenate(contents), tuple(breaches))

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.contents)

    @property
    def sequences(self) -> npt.NDArray[np.int64]:
        """Of every message, in the order of the file."""
        counts = np.array([header.messages for header in self.headers], np.int64)
        spread = self._spread([header.first_sequence for header in self.headers])
        spread += np.arange(len(spread)) - np.repeat(counts.cumsum() - counts, counts)
        return spread

    @property
    def released_at(self) -> npt.NDArray[np.int64]:
        """Of every message, by the node's clock."""
        return self._spread([header.released_at for header in self.headers])

    @property
    def last_sequence(self) -> int:
        """The highest; 0 in an empty journal."""
        return self.headers[-1].next_sequence - 1 if self.headers else 0

    def missing(self, end: int = 0) -> int:
        """Sequences that it skips, and that it lacks at its end up to `end` (S2; L1 or L5)."""
        skipped = sum(breach.messages for breach in self.breaches if breach.kind is FaultKind.GAP)
        return skipped + max(end - self.last_sequence, 0)

    def early(self, release_delay_ns: int | None = None) -> int:
        """Messages that were out before their instant, or before T_t+Δ_A (S12)."""
        return sum(header.messages for header in self.headers if early_ns(header, release_delay_ns) > 0)

    def since(self, instant_ns: int) -> Copy:
        """What was released from an instant on; what is wrong with its order is left to the whole."""
        kept = [header.released_at >= instant_ns for header in self.headers]
        headers = tuple(header for header, keep in zip(self.headers, kept, strict=True) if keep)
        return Copy(self.name, headers, self.contents[self._spread(kept).astype(np.bool_)])

    def _spread(self, values: Sequence[int]) -> npt.NDArray[np.int64]:
        """A block's value for each of its messages."""
        counts = np.array([header.messages for header in self.headers], np.int64)
        return np.repeat(np.array(values, np.int64), counts)


def repeated(copy: Copy, *, by_content: bool = False) -> set[bytes]:
    """The contents of messages that a journal has twice, by sequence or by label (S2).

    `by_content`: no two messages are alike, so one that comes again is found by what it says too.
    """
    contents, labelled = copy.contents, copy.contents["source"] != 0
    keys = [(copy.sequences, contents), (contents[labelled][_LABEL[:2]], contents[labelled])]
    if by_content:
        keys.append((contents["digest"], contents))
    return {digest for key, messages in keys for digest in messages["digest"][_again(key)].tolist()}


def _again(keys: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """The places of keys that occurred before."""
    _, first = np.unique(keys, return_index=True)
    return np.setdiff1d(np.arange(len(keys)), first)


# Journals against each other ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """Two journals that differ under the same sequence (S1): always an alarm."""

    name: str
    other: str
    """Who has the first of these sequences otherwise."""
    by_label: tuple[int, ...]
    """Sequences with another source, number or ring's digest, or with another key of their token: the order differs."""
    by_content: tuple[int, ...]
    """Sequences with another content."""

    @property
    def sequences(self) -> tuple[int, ...]:
        """All of them, ascending."""
        return tuple(sorted({*self.by_label, *self.by_content}))


def differences(sites: Sequence[Copy], followers: Sequence[Copy] = ()) -> list[Difference]:
    """Journals that differ where they overlap (S1): all by content, sites by label, and all by the shuffle key.

    The longest journal of a site that has a sequence is what the others are compared with. Retransmit servers and
    customers know no labels; nor does a site that filled its journal again from one of them. Archives of an older
    version know no key.
    """
    copies = [*sorted(sites, key=lambda copy: -copy.messages), *followers]
    if not copies:
        return []
    sequences = np.concatenate([copy.sequences for copy in copies])
    contents = np.concatenate([copy.contents for copy in copies])
    owners = np.repeat(np.arange(len(copies)), [copy.messages for copy in copies])
    known = np.flatnonzero((contents["source"] != 0) & (owners < len(sites)))
    keyed = np.flatnonzero(contents["key"] != np.void(NO_SHUFFLE_KEY))
    everything = np.arange(len(owners))
    others = np.zeros(len(owners), np.int64)
    differing = []
    for rows, values in ((known, contents[_LABEL]), (keyed, contents["key"]), (everything, contents["digest"])):
        _, first, group = np.unique(sequences[rows], return_index=True, return_inverse=True)
        reference = rows[first[group]]
        is_other = values[rows] != values[reference]
        others[rows[is_other]] = owners[reference[is_other]]
        differing.append(rows[is_other])
    found = []
    for place, copy in enumerate(copies):
        labels, keys, by_content = (rows[owners[rows] == place] for rows in differing)
        by_label = np.union1d(labels, keys)
        either = np.union1d(by_label, by_content)
        if len(either):
            other = copies[others[either[np.argmin(sequences[either])]]].name
            found.append(Difference(copy.name, other, _of(sequences, by_label), _of(sequences, by_content)))
    return found


def _of(sequences: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]) -> tuple[int, ...]:
    return tuple(np.unique(sequences[rows]).tolist())


# Journals against promises ------------------------------------------------------------------------

Promise: TypeAlias = tuple[NodeId, int, bytes | None]
"""Source and number of a message that a source accepted, and the digest of its content if that is known."""


def lost(copies: Iterable[Copy], promised: Sequence[Promise]) -> list[Promise]:
    """Messages that were promised and are not, or not so, in one of some journals (L1)."""
    known = []
    for copy in copies:
        columns = [copy.contents[name].tolist() for name in ("source", "number", "digest")]
        there = set(zip(*columns, strict=True))
        known.append(there | {(source, number, None) for source, number, _ in there})
    return [promise for promise in promised if not all(promise in there for there in known)]


class FloorEvents:
    """The numbers of every floor's events, in the order of the sequence: each floor counts its own from 1 on."""

    def __init__(self) -> None:
        """Nothing is in the sequence."""
        self.total = 0
        self._next_sequence = 1
        self._numbers: dict[bytes, list[npt.NDArray[np.uint64]]] = {}

    def take(self, block: BlockView) -> None:
        """A block of any journal; one that another journal had before is passed over."""
        if block.header.next_sequence <= self._next_sequence:
            return
        events, self._next_sequence = block.events, block.header.next_sequence
        self.total += len(events)
        for floor in np.unique(events["floor"]).tolist():
            self._numbers.setdefault(floor, []).append(events["id"][events["floor"] == floor])

    def counts(self) -> dict[Mic, int]:
        """How many of each floor."""
        return {Mic(floor.decode()): sum(map(len, parts)) for floor, parts in self._numbers.items()}

    def faults(self, published: Mapping[Mic, int]) -> list[str]:
        """Each floor's events in its order (S3), each once (S2), all that were promised (L1)."""
        found = []
        for mic, count in published.items():
            parts = self._numbers.get(mic.fixed, [])
            numbers = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
            absent = np.setdiff1d(np.arange(1, count + 1, dtype=np.uint64), numbers)
            again = len(_again(numbers))
            if (numbers[1:] < numbers[:-1]).any():
                found.append(f"{mic}: its own order is not kept (S3)")
            if len(absent):
                what = f"{len(absent)} of {count} events are in no journal, the first is number {absent[0]}"
                found.append(f"{mic}: {what} (L1)")
            if again:
                found.append(f"{mic}: {again} events are in the sequence more than once (S2)")
        return found
