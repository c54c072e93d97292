"""Shuffles computed again (§7.2; F5): whether a journal's tokens stand in the order that their keys give them.

A journal keeps the shuffle key of every token, and the label of every message. The key alone decides the order, so
anybody can compute it again. Whether the key is the right one, only the nonces tell from which it was made: a journal
that keeps proofs holds them, and `vouchers` compares.

A journal does not say whether its market shuffles. A market that orders by arrival departs from its keys as soon as a
token has messages of several sources; one that shuffles never does. A token whose messages are all of one source has
one order only and shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from isocast.terms.ids import NodeId
from isocast.wire.journal import BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.packets import Run

__all__ = ["ShuffleWalk", "Shuffles", "nonces_key", "shuffled_labels"]

Label: TypeAlias = tuple[NodeId, int]


@dataclass(frozen=True, slots=True)
class RunOfLabels:
    """Messages of one source with numbers in a row."""

    source: NodeId
    first: int
    count: int


@dataclass(slots=True)
class Shuffles:
    """How many tokens of a journal stand in the order of their keys."""

    verified: int = 0
    """Tokens with messages of several sources that stand where the key of the token puts them."""
    other: int = 0
    """Those that do not."""
    first_other: int | None = None
    """The number of the first of them."""
    alone: int = 0
    """Tokens with messages of one source: nothing to shuffle."""
    unknown: int = 0
    """Tokens of which a message, its label or the key is not in the journal."""

    @property
    def is_shuffled(self) -> bool | None:
        """Whether the market shuffles, by what is here; None where no token shows it."""
        return not self.other if self.verified or self.other else None


@dataclass(slots=True)
class _Gathered:
    header: BlockHeader
    labels: list[Label] = field(default_factory=list)


class ShuffleWalk:
    """Takes a journal's blocks in order.

    Once a token departs from its key, those that follow are counted among the departing ones and not computed: the
    market orders by arrival, or the journal was changed, and one token says so as well as all.
    """

    def __init__(self) -> None:
        """Nothing is computed."""
        self.report = Shuffles()
        self._open: _Gathered | None = None

    def take(self, block: BlockView) -> None:
        """The next sound block."""
        header, opened = block.header, self._open
        if header.place == 0:
            self._lose()
            opened = self._open = _Gathered(header)
        elif opened is None or not _follows(opened, header):
            self._lose()
            self.report.unknown += header.ends_token
            return
        rows = block.directory
        opened.labels += zip(rows["source"].tolist(), rows["number"].tolist(), strict=True)
        if header.ends_token:
            self._open = None
            self._judge(opened)

    def end(self) -> None:
        """The journal ends here."""
        self._lose()

    def _lose(self) -> None:
        if self._open is not None:
            self.report.unknown += 1
            self._open = None

    def _judge(self, token: _Gathered) -> None:
        header, report = token.header, self.report
        runs = _runs(token.labels)
        if runs is None or header.fetched or not any(header.shuffle_key):
            report.unknown += 1
        elif len(runs) == 1:
            report.alone += 1
        elif not report.other and shuffled_labels(runs, header.shuffle_key) == token.labels:
            report.verified += 1
        else:
            report.other += 1
            if report.first_other is None:
                report.first_other = header.token_number


def _follows(opened: _Gathered, header: BlockHeader) -> bool:
    first = opened.header
    same = (first.epoch, first.token_number, first.first_sequence + len(opened.labels))
    return same == (header.epoch, header.token_number, header.first_sequence)


def _runs(labels: Sequence[Label]) -> list[RunOfLabels] | None:
    """Each source's messages; None where one has no label, or numbers are missing."""
    numbers: dict[NodeId, list[int]] = {}
    for source, number in labels:
        numbers.setdefault(source, []).append(number)
    if 0 in numbers or not numbers:
        return None
    runs = [RunOfLabels(source, min(own), len(own)) for source, own in numbers.items()]
    whole = all(sorted(numbers[run.source]) == list(range(run.first, run.first + run.count)) for run in runs)
    return runs if whole else None


def shuffled_labels(runs: Iterable[Run | RunOfLabels], key: bytes) -> list[Label]:
    """Labels by keyed hash; then each source's numbers take its places in ascending order."""
    runs = list(runs)
    keyed = blake2b(key=key, digest_size=8)
    places = []
    for run in runs:
        prefix = run.source.to_bytes(8)
        for number in range(run.first, run.first + run.count):
            state = keyed.copy()
            state.update(prefix + number.to_bytes(8))
            places.append((state.digest(), run.source))
    places.sort()
    following = {run.source: run.first for run in runs}
    labels = []
    for _, source in places:
        labels.append((source, following[source]))
        following[source] += 1
    return labels


def nonces_key(reveal: bytes, previous_reveal: bytes) -> bytes:
    """The key of a token, from the nonces revealed in it and in the one before."""
    return blake2b(reveal + previous_reveal, digest_size=len(reveal)).digest()
