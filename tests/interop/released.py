"""What journals say: every message that a receiver released, in the order in which it did."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from isocast.runtime.disk.journal_reader import JournalCursor, read_blocks
from isocast.terms.ids import Epoch, Label
from isocast.wire.journal_blocks import BlockView

__all__ = ["JournalWatch", "ReleasedMessage", "journal_of", "whole_journal"]


class ReleasedMessage(NamedTuple):
    """One message in a journal."""

    sequence: int
    label: Label
    digest: bytes
    payload: bytes
    token_number: int
    epoch: Epoch
    instant: int
    due: int
    released_at: int
    shuffle_key: bytes


def journal_of(directory: Path) -> Path:
    """Where a receiver keeps it."""
    return directory / "journal"


def _messages(blocks: Iterable[BlockView]) -> list[ReleasedMessage]:
    found = []
    for block in blocks:
        header = block.header
        for sequence, (source, number, digest, payload) in zip(block.sequences, block.messages(), strict=True):
            found.append(
                ReleasedMessage(
                    sequence,
                    Label(source, number),
                    digest,
                    payload,
                    header.token_number,
                    header.epoch,
                    header.instant,
                    header.due,
                    header.released_at,
                    header.shuffle_key,
                )
            )
    return found


def whole_journal(directory: Path) -> list[ReleasedMessage]:
    """Everything, from the first segment on, in the order of the file."""
    return _messages(read_blocks(journal_of(directory)))


class JournalWatch:
    """Follows a journal over all lives of its writer: what it has seen once must stay."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cursor = JournalCursor(journal_of(directory))
        self.messages: list[ReleasedMessage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def look(self) -> Sequence[ReleasedMessage]:
        """All that is there by now."""
        while new := self._cursor.read():
            self.messages += _messages(new)
        return self.messages

    def again(self) -> list[ReleasedMessage]:
        """All of it, read anew."""
        return whole_journal(self._directory)
