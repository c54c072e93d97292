"""A secondary source's machine: once, in order, for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.hierarchy.forwarding import (
    Forward,
    ForwardAccepted,
    ForwardEffect,
    ForwardFailed,
    ForwardSettings,
    ParentBack,
    ParentSilent,
    SecondarySource,
    parent_key,
)
from isocast.ring.effects import OutboxAppended, OutboxFreed, Persist, PublishAccepted, PublishRejected
from isocast.ring.inputs import PublishRequested, TimerFired
from isocast.ring.source import OutboxState
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Label, source_id
from isocast.terms.instants import MILLISECOND, NEVER

OWN = source_id(4, 77)
SETTINGS = ForwardSettings(payload_max=48, held_max=4, batch_max=2, first_pause_ns=10, longest_pause_ns=40)


def machine(settings: ForwardSettings = SETTINGS, state: OutboxState | None = None) -> SecondarySource:
    return SecondarySource(OWN, settings, state)


def offer(first: int, *keys: bytes) -> Forward:
    return Forward(first, tuple([(parent_key(OWN, key), key * 2) for key in keys]))


def publish(broker: SecondarySource, *keys: bytes, now: int = 0) -> list[ForwardEffect]:
    return [effect for key in keys for effect in broker.step(PublishRequested(key, key * 2), now)]


def test_a_batch_is_on_disk_before_it_is_promised_and_promised_before_it_is_offered() -> None:
    assert publish(machine(), b"k") == [
        Persist(OutboxAppended(b"k", 1, b"kk")),
        PublishAccepted(b"k", Label(OWN, 1)),
        offer(1, b"k"),
    ]


def test_one_offer_at_a_time_and_the_oldest_first() -> None:
    broker = machine()
    assert publish(broker, b"a", b"b", b"c")[-1] == PublishAccepted(b"c", Label(OWN, 3))
    assert broker.step(ForwardAccepted(1), 5) == (Persist(OutboxFreed(2)), offer(2, b"b", b"c"))
    assert broker.step(ForwardAccepted(3), 6) == (Persist(OutboxFreed(4)),)
    assert broker.next_deadline() == NEVER


def test_the_same_key_is_one_batch() -> None:
    broker = machine()
    publish(broker, b"a")
    assert publish(broker, b"a") == [PublishAccepted(b"a", Label(OWN, 1))]
    broker.step(ForwardAccepted(1), 1)
    assert publish(broker, b"a") == [PublishAccepted(b"a", Label(OWN, 1))]


def test_what_does_not_fit_is_refused() -> None:
    broker = machine()
    (refused,) = broker.step(PublishRequested(b"k", bytes(49)), 0)
    assert isinstance(refused, PublishRejected)
    publish(broker, b"a", b"b", b"c", b"d")
    (full,) = publish(broker, b"e")
    assert isinstance(full, PublishRejected)
    broker.step(ForwardAccepted(1), 1)
    assert publish(broker, b"e")[1] == PublishAccepted(b"e", Label(OWN, 5))


def test_a_silent_parent_is_tried_for_ever_after_pauses_that_double() -> None:
    broker = machine()
    publish(broker, b"a")
    now, told, pauses = 0, 0, []
    for _ in range(6):
        effects = broker.step(ForwardFailed("no connection"), now)
        told += len([effect for effect in effects if isinstance(effect, ParentSilent)])
        assert not [effect for effect in effects if isinstance(effect, Forward)]
        pauses.append(broker.next_deadline() - now)
        assert broker.step(TimerFired(), broker.next_deadline() - 1) == ()
        now = broker.next_deadline()
        assert broker.step(TimerFired(), now) == (offer(1, b"a"),)
    assert pauses == [10, 20, 40, 40, 40, 40]
    assert told == 3
    assert broker.step(ForwardAccepted(1), now) == (Persist(OutboxFreed(2)), ParentBack(6))
    assert broker.snapshot().failures == 0


def test_a_clock_that_was_set_back_does_not_lengthen_the_pause() -> None:
    broker = machine()
    publish(broker, b"a", now=1_000 * MILLISECOND)
    broker.step(ForwardFailed("gone"), 1_000 * MILLISECOND)
    broker.step(TimerFired(), 0)
    assert broker.next_deadline() <= SETTINGS.longest_pause_ns


def test_an_answer_to_something_else_frees_nothing() -> None:
    broker = machine()
    publish(broker, b"a")
    assert broker.step(ForwardAccepted(9), 1) == (offer(1, b"a"),)
    assert broker.snapshot().held == 1


def test_a_restart_offers_what_is_left_under_the_same_keys() -> None:
    state = OutboxState()
    for number, key in enumerate((b"a", b"b"), 1):
        state.apply(OutboxAppended(key, number, key * 2))
    state.apply(OutboxFreed(2))
    broker = machine(state=state)
    assert broker.next_deadline() <= 0
    assert broker.step(TimerFired(), 0) == (offer(2, b"b"),)
    assert publish(broker, b"a") == [PublishAccepted(b"a", Label(OWN, 1))]


def test_keys_at_the_parent_are_of_one_source_whatever_its_incarnation() -> None:
    assert parent_key(source_id(4, 1), b"k") == parent_key(source_id(4, 99), b"k")
    assert parent_key(source_id(5, 1), b"k") != parent_key(source_id(4, 1), b"k")
    assert len(parent_key(OWN, bytes(64))) <= 64


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        ForwardSettings(payload_max=48, batch_max=0)


@given(st.lists(st.sampled_from(["publish", "accept", "fail", "timer", "restart"]), max_size=60))
def test_whatever_happens_the_parent_gets_every_accepted_batch_once_in_order(steps: list[str]) -> None:
    state, broker = OutboxState(), machine()
    taken: dict[bytes, bytes] = {}
    """At the parent: it takes a key once."""
    accepted: list[bytes] = []
    under_way: Forward | None = None
    now = count = 0

    def perform(effects: tuple[ForwardEffect, ...]) -> None:
        nonlocal under_way
        for effect in effects:
            if isinstance(effect, Persist):
                state.apply(effect.record)
            elif isinstance(effect, PublishAccepted):
                accepted.append(effect.key)
            elif isinstance(effect, Forward):
                under_way = effect

    def parent_takes(offered: Forward) -> None:
        for key, payload in offered.batches:
            taken.setdefault(key, payload)

    for step in [*steps, *["timer", "accept"] * 40]:
        now += 50
        if step == "publish":
            count += 1
            perform(broker.step(PublishRequested(b"%d" % count, b"%d" % count), now))
        elif step == "accept" and under_way is not None:
            offered, under_way = under_way, None
            parent_takes(offered)
            perform(broker.step(ForwardAccepted(offered.last), now))
        elif step == "fail" and under_way is not None:
            # It broke off after the parent had taken everything: the worst that can happen.
            offered, under_way = under_way, None
            parent_takes(offered)
            perform(broker.step(ForwardFailed("broke off"), now))
        elif step == "timer":
            perform(broker.step(TimerFired(), now))
        elif step == "restart":
            under_way, broker = None, machine(state=state)
    assert list(taken.values()) == accepted
    assert not state.messages
