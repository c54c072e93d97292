"""Batches onto a tape: what is missing between them makes books incomplete."""

from __future__ import annotations

import pytest

from isocast.runtime.client.live_tape import take_batch
from isocast.runtime.client.received import ReceivedBatch, batch_of
from isocast.terms.ids import NO_EPOCH
from isocast.terms.market import EventKind, Mic, Side, Symbol
from isocast.ticker.records import TapeFault
from isocast.ticker.tape import Tape
from isocast.wire.events import MarketEvent, build_events
from isocast.wire.packets import ReleasedPacket


def message(sequence: int) -> ReceivedBatch:
    order = MarketEvent(EventKind.ORDER, Mic("XNYS"), Symbol("ISO"), Side.BUY, 100, 10, id=sequence)
    payload = build_events([order]).tobytes()
    return batch_of([ReleasedPacket(0, NO_EPOCH, 1, 1, sequence, 9, 0, sequence, 1, payload, b"")], 1, 9)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "sequences, is_sound, gaps, told", [((1, 2), True, 0, 0), ((1, 3), False, 1, 1), ((5, 6), False, 0, 0)]
)
def test_a_gap_makes_books_incomplete_and_is_told(
    *, several: bool, sequences: tuple[int, ...], is_sound: bool, gaps: int, told: int
) -> None:
    tape, said = Tape(), list[str]()
    for sequence in sequences:
        take_batch(tape, message(sequence), 1, several=several, told=said.append)
    assert tape.books.books[0].is_sound is is_sound
    assert (tape.faults.counts.get(TapeFault.GAP, 0), len(said)) == (gaps, told)
