"""Digests: of events, however they are cut, and of tapes, however they came to be."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from isocast.feeds.tape_digest import TapeDigest
from isocast.ticker.tape import Tape, state_digest
from isocast.wire.events import EVENT_DTYPE, EventArray


def trades(floor: bytes, number: int) -> EventArray:
    events = np.zeros(number, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = 1, floor, b"ISO"
    events["id"], events["price"], events["quantity"] = np.arange(1, number + 1), 100, 5
    return events


def digest_of(blocks: Iterable[EventArray]) -> TapeDigest:
    digest = TapeDigest()
    for block in blocks:
        digest.update(block)
    return digest


ONE, OTHER = trades(b"XNYS", 30), trades(b"XLON", 20)


def test_cutting_makes_no_difference_and_order_does() -> None:
    whole = digest_of([np.concatenate([ONE, OTHER])])
    assert digest_of([ONE[:7], ONE[7:], OTHER]).hex == whole.hex
    turned = digest_of([OTHER, ONE])
    assert turned.hex != whole.hex
    assert turned.floors == whole.floors


def test_a_floor_that_lost_or_changed_an_event_has_another_digest() -> None:
    whole = digest_of([ONE, OTHER]).floors
    assert [digest_of([ONE, OTHER[:-1]]).floors[name] == whole[name] for name in ("XNYS", "XLON")] == [True, False]
    assert list(digest_of([ONE]).floors) == ["XNYS"]
    changed = ONE.copy()
    changed["price"][3] += 1
    assert [digest_of([changed, OTHER]).floors[name] == whole[name] for name in ("XNYS", "XLON")] == [False, True]


def test_somebody_who_joined_late_has_the_digest_of_the_tape() -> None:
    tape = Tape()
    tape.take(ONE)
    late = Tape.restore(tape.snapshot())
    for each in (tape, late):
        each.take(OTHER)
    assert state_digest(tape) == state_digest(late)
    late.take(OTHER[:1])
    assert state_digest(tape) != state_digest(late)
