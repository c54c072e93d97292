"""What the striper is given: consecutive messages of one token, from a release, a line or a journal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import BlockView
from isocast.wire.packets import ControlEntry

__all__ = ["ReleasedPart", "part_of_block"]

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """Consecutive messages of one token that were released, or an empty token."""

    token_number: int
    instant: int
    """T_t, of the token."""
    token_count: int
    """Messages of the whole token."""
    place: int
    """Of the first message here, in its token."""
    first_sequence: int
    events: EventArray
    """Of all messages here, in order."""
    counts: Counts
    """How many of them each message has; 0 for one that is no market events."""
    control: tuple[ControlEntry, ...] = ()
    """The token's own entries; with the first part of a token, or with all of them."""

    @property
    def ends_token(self) -> bool:
        """Whether the token's last message is here."""
        return self.place + len(self.counts) == self.token_count

    def behind(self, skip: int) -> ReleasedPart:
        """The part without its first messages."""
        events = int(self.counts[:skip].sum())
        return replace(
            self,
            place=self.place + skip,
            first_sequence=self.first_sequence + skip,
            events=self.events[events:],
            counts=self.counts[skip:],
        )


def part_of_block(block: BlockView, control: tuple[ControlEntry, ...] = ()) -> ReleasedPart:
    """The same from a receiver's journal; entries are not in the journal and must be given."""
    header = block.header
    return ReleasedPart(
        header.token_number,
        header.instant,
        header.token_count,
        header.place,
        header.first_sequence,
        block.events,
        block.directory["events"].astype(np.int64),
        control,
    )
