"""The source of §2.1: stop and wait."""

from __future__ import annotations

from tests.ring.original.group import SOURCE, TIMERS, R_s, ack, arrive, data

from isocast.ring.original.packets import (
    MessageSubmitted,
    OriginalAcknowledged,
    OriginalMulticast,
    OriginalRingSuspected,
    OriginalSuspicion,
    TimerFired,
)
from isocast.ring.original.receiver import Source
from isocast.terms.ids import source_id
from isocast.terms.instants import NEVER

SUBMITTED = MessageSubmitted(b"")


def test_a_message_is_sent_at_once_under_its_label() -> None:
    """§2.1: "A message from source s contains the label (s, M_s)"."""
    source = Source(SOURCE, TIMERS)
    assert source.step(SUBMITTED, 5) == (OriginalMulticast(data(1)),)
    assert source.next_deadline() == 5 + R_s


def test_it_is_repeated_until_it_is_acknowledged() -> None:
    """§2.1: "transmits message M_s at regular intervals until it receives an acknowledgement"."""
    source = Source(SOURCE, TIMERS)
    source.step(SUBMITTED, 0)
    assert source.step(TimerFired(), R_s) == (OriginalMulticast(data(1)),)
    assert source.step(TimerFired(), 2 * R_s - 1) == ()
    assert source.step(arrive(ack(7, data(1))), 2 * R_s - 1) == (OriginalAcknowledged(7, data(1).label),)
    assert source.next_deadline() == NEVER
    assert source.step(TimerFired(), 9 * R_s) == ()


def test_after_k_r_attempts_the_token_site_is_suspected() -> None:
    """§2.1: "... or decides that the token site is not operating"."""
    source = Source(SOURCE, TIMERS)
    source.step(SUBMITTED, 0)
    copy = OriginalMulticast(data(1))
    sent = [source.step(TimerFired(), attempt * R_s) for attempt in (1, 2, 3)]
    assert sent == [(copy,), (copy,), (OriginalRingSuspected(OriginalSuspicion.SOURCE), copy)]


def test_the_next_message_waits_for_the_acknowledgement() -> None:
    source = Source(SOURCE, TIMERS)
    source.step(SUBMITTED, 0)
    assert source.step(SUBMITTED, 1) == ()
    assert source.snapshot().queued == 1
    assert source.step(arrive(ack(1, data(1))), 2) == (
        OriginalAcknowledged(1, data(1).label),
        OriginalMulticast(data(2)),
    )
    state = source.snapshot()
    assert (state.next_number, state.outstanding, state.queued, state.attempts) == (3, data(2).label, 0, 1)


def test_other_packets_mean_nothing_to_it() -> None:
    source = Source(SOURCE, TIMERS)
    assert source.step(arrive(ack(1, data(1))), 0) == ()
    source.step(SUBMITTED, 0)
    assert source.step(arrive(ack(1, data(1, source_id(2))), data(1)), 0) == ()
    assert not source.idle
