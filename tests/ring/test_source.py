"""A source: sends, resends, and holds a message until it is stable (§2.1, §5; protocol §3)."""

from __future__ import annotations

from dataclasses import replace

from tests.ring.makers import (
    EPOCH,
    MS,
    PERIOD,
    S1,
    S2,
    START,
    Chain,
    T,
    arrive,
    following,
    founding,
    message,
    packets,
    settings,
)

from isocast.ring.effects import (
    Effect,
    Multicast,
    NumbersForgotten,
    OutboxAppended,
    OutboxFreed,
    Persist,
    PublishAccepted,
    PublishRejected,
)
from isocast.ring.inputs import PublishRequested, TimerFired
from isocast.ring.source import OutboxState, PrimarySource
from isocast.terms.ids import NO_EPOCH, Epoch, Label
from isocast.terms.instants import NEVER
from isocast.wire.limits import STANDARD_PAYLOAD
from isocast.wire.packets import Data, Grant, Packet, Repair, Standing, Token

RESEND = 2 * PERIOD
"""τ_s."""


def key(number: int) -> bytes:
    return f"key {number}".encode()


def publish(source: PrimarySource, number: int, now: int = 0) -> tuple[Effect, ...]:
    """A client hands over the batch that becomes message `number`."""
    return source.step(PublishRequested(key(number), message(number).payload), now)


def source(published: int = 0, now: int = 0) -> PrimarySource:
    machine = PrimarySource(S1, settings())
    for number in range(1, published + 1):
        publish(machine, number, now)
    return machine


def hear(machine: PrimarySource, *burst: Packet, now: int = START) -> tuple[Effect, ...]:
    return machine.step(arrive(*burst), now)


def sent(effects: tuple[Effect, ...]) -> list[int]:
    """Numbers of the messages that go out."""
    return [packet.number for packet in packets(effects) if isinstance(packet, Data)]


def data(number: int, epoch: Epoch = NO_EPOCH, base: int = 1) -> Data:
    return replace(message(number, base=base), epoch=epoch)


# Publishing


def test_a_batch_is_on_disk_before_it_is_accepted_and_sent() -> None:
    """Protocol §1: a source persists its outbox before it sends."""
    assert publish(source(), 1) == (
        Persist(OutboxAppended(key(1), 1, b"1/1")),
        PublishAccepted(key(1), Label(S1, 1)),
        Multicast(data(1)),
    )


def test_the_same_key_twice_is_one_batch() -> None:
    """Protocol §1: `publish(batch, key)` is idempotent by key."""
    machine = source(2)
    assert publish(machine, 1) == (PublishAccepted(key(1), Label(S1, 1)),)
    assert machine.snapshot().next_number == 3


def test_a_key_is_known_after_a_restart_and_after_its_message_is_stable() -> None:
    state = OutboxState()
    for effect in (*publish(source(), 1), Persist(OutboxFreed(2))):
        if isinstance(effect, Persist):
            state.apply(effect.record)
    assert state.messages == {}
    assert publish(PrimarySource(S1, settings(), state), 1) == (PublishAccepted(key(1), Label(S1, 1)),)


def test_more_than_the_window_is_refused_with_a_reason_and_may_be_tried_again() -> None:
    """Protocol §7: S_P rejects the excess with a clear error; nothing acknowledged is dropped."""
    machine = source(8)
    [refused] = publish(machine, 9)
    assert isinstance(refused, PublishRejected)
    assert "window is 8" in refused.reason
    chain = Chain()
    hear(machine, chain.add(message(1)).token)
    assert PublishAccepted(key(9), Label(S1, 9)) in publish(machine, 9)


def test_a_payload_that_fits_no_packet_is_refused_and_takes_no_number() -> None:
    machine = source()
    [refused] = machine.step(PublishRequested(b"big", bytes(STANDARD_PAYLOAD + 1)), 0)
    assert isinstance(refused, PublishRejected)
    assert sent(publish(machine, 1)) == [1]


def test_a_grant_narrows_the_window_until_the_next_token() -> None:
    """Protocol §7: `grants` sets each source's window."""
    machine, chain = source(), Chain()
    hear(machine, chain.add(grants=(Grant(S1, 2), Grant(S2, 1))).token)
    accepted = [isinstance(publish(machine, number)[-1], Multicast) for number in (1, 2, 3)]
    assert accepted == [True, True, False]
    hear(machine, chain.add().token)
    assert machine.snapshot().window == 8


def in_rounds(*fills: int) -> list[int]:
    """The window after each token, if a source fills so much of it before, and the token acknowledges that."""
    machine, chain, number, windows = PrimarySource(S1, replace(settings(), window=4_096)), Chain(), 1, []
    for place, count in enumerate(fills, 1):
        numbers = range(number, number + count)
        for one in numbers:
            publish(machine, one, T(place) - PERIOD // 2)
        hear(machine, chain.add(*[message(one) for one in numbers]).token, now=T(place) + MS)
        number += count
        windows.append(machine.snapshot().window)
    return windows


def test_a_full_window_that_is_acknowledged_grows_and_one_that_is_not_filled_stays() -> None:
    """What tokens acknowledge decides, up to the W of the market."""
    assert in_rounds(1_024, 1_024, 2_048, 2_048) == [1_024, 2_048, 2_048, 4_096]
    assert in_rounds(1_023, 1_023, 1_023, 1_023) == [1_024] * 4


def test_the_first_ring_is_no_reformation_and_the_second_is() -> None:
    """What is published before there is a ring fills the window, and nothing has failed under it."""
    machine, chain = PrimarySource(S1, replace(settings(), window=4_096)), Chain()
    for number in range(1, 1_025):
        publish(machine, number)
    hear(machine, founding())
    assert machine.snapshot().window == 1_024
    token = chain.add(message(1)).token
    hear(machine, token)
    for number in range(1_025, 1_026):
        publish(machine, number)
    hear(machine, following(chain))
    assert machine.snapshot().window < 1_024


def test_an_older_token_does_not_bring_its_grant_back() -> None:
    machine, chain = source(), Chain()
    old, new = chain.add(grants=(Grant(S1, 2),)).token, chain.add().token
    hear(machine, new, old)
    assert machine.snapshot().window == 8


# Resending


def test_a_message_is_sent_again_every_tau_s_while_no_token_names_it() -> None:
    machine = source(1)
    assert machine.next_deadline() == RESEND
    assert machine.step(TimerFired(), RESEND - 1) == ()
    assert sent(machine.step(TimerFired(), RESEND)) == [1]
    assert machine.next_deadline() == 2 * RESEND


def test_a_token_that_should_have_named_a_message_makes_it_go_out_again() -> None:
    """Protocol §3: resends after any token scheduled ≥ δ_N later that omits M."""
    token = Chain().add().token
    assert sent(hear(source(1, now=T(1) - 20 * MS), token, now=T(1) + MS)) == [1]
    assert sent(hear(source(1, now=T(1) - 20 * MS + 1), token, now=T(1) + MS)) == []


def test_a_token_that_names_it_ends_the_resending() -> None:
    machine = source(1)
    hear(machine, Chain().add(message(1)).token)
    assert machine.step(TimerFired(), START + 9 * RESEND) == ()
    assert machine.next_deadline() == NEVER
    assert machine.snapshot().unacknowledged == 0


def test_a_later_run_acknowledges_what_came_before() -> None:
    """Numbers are acknowledged in order: a token that was missed is implied by the next."""
    machine, chain = source(3), Chain()
    chain.add(message(1), message(2))
    hear(machine, chain.add(message(3)).token)
    assert machine.snapshot().unacknowledged == 0


def test_a_repaired_token_and_a_standing_count_as_well() -> None:
    machine, chain = source(3), Chain()
    token = chain.add(message(1)).token
    hear(machine, Repair(0, EPOCH, 2, token))
    assert machine.snapshot().unacknowledged == 2
    hear(machine, Standing(0, EPOCH, 2, S1, 4, 2))
    assert machine.snapshot().unacknowledged == 0


def test_a_standing_of_another_epoch_or_source_says_nothing() -> None:
    machine = source(1)
    hear(machine, founding(), Standing(0, Epoch(9, 9), 2, S1, 2, 1), Standing(0, EPOCH, 2, S2, 2, 1))
    assert machine.snapshot().unacknowledged == 1


def test_a_clock_that_was_set_back_does_not_make_a_message_wait() -> None:
    machine = source(1, now=START)
    machine.step(TimerFired(), 0)
    assert machine.next_deadline() == RESEND
    assert sent(machine.step(TimerFired(), RESEND)) == [1]


# Holding


def test_a_message_is_held_until_it_is_stable_and_not_until_it_is_acknowledged() -> None:
    """Protocol §3; §12, mistake 5: the owner dies with the only copy."""
    machine, chain = source(2, now=T(2)), Chain()
    assert hear(machine, chain.add(message(1)).token, chain.add(message(2)).token) == ()
    assert machine.snapshot().unstable == 2
    assert hear(machine, chain.add().token) == (Persist(OutboxFreed(2)),)
    assert hear(machine, chain.add().token) == (Persist(OutboxFreed(3)),)
    assert machine.snapshot().unstable == 0


def test_data_says_the_lowest_number_that_is_still_held() -> None:
    """Protocol §2: `base` is the lowest M the source still holds."""
    machine, chain = source(1), Chain()
    hear(machine, chain.add(message(1)).token, chain.add().token, chain.add().token)
    assert publish(machine, 2)[-1] == Multicast(data(2, EPOCH, base=2))


def test_an_unacknowledged_message_is_never_freed() -> None:
    machine = source(1)
    hear(machine, Chain().grow(8).add().token)
    assert machine.snapshot().unstable == 1


# Reformation


def acknowledged() -> tuple[PrimarySource, Chain]:
    """Messages 1, 2 and 3, acknowledged one by one in tokens 1, 2 and 3 of a ring of four."""
    machine, chain = source(3), Chain(founding(1, 2, 3, 4))
    tokens = [chain.add(message(number)).token for number in (1, 2, 3)]
    hear(machine, *tokens)
    assert machine.snapshot().unacknowledged == 0
    return machine, chain


def cut_after(chain: Chain, tokens: int) -> Chain:
    """The chain as those know it who hold so many of its tokens."""
    short = Chain(chain.ring)
    for entry in chain.entries[:tokens]:
        short.head.advance(entry)
        short.entries.append(entry)
    return short


def test_a_new_ring_makes_it_send_again_what_is_not_in_the_cut() -> None:
    """Protocol §5, step 5: sources resend every M ≥ Mvec[source]."""
    machine, chain = acknowledged()
    ring = following(cut_after(chain, 1))
    effects = hear(machine, ring)
    assert packets(effects) == [data(2, ring.ballot), data(3, ring.ballot)]
    assert machine.snapshot().unacknowledged == 2


def test_a_new_ring_that_does_not_name_the_source_makes_it_send_everything_again() -> None:
    machine, chain = acknowledged()
    assert sent(hear(machine, following(cut_after(chain, 0)))) == [1, 2, 3]


def test_what_is_in_the_cut_stays_held_until_it_is_stable_in_the_new_ring() -> None:
    machine, chain = acknowledged()
    short = cut_after(chain, 1)
    ring = following(short)
    hear(machine, ring)
    later = short.enter(ring)
    tokens = [later.add().token for _ in range(4)]
    assert Persist(OutboxFreed(2)) not in hear(machine, *tokens[:2])
    assert Persist(OutboxFreed(2)) in hear(machine, *tokens[2:])


def test_a_token_of_a_later_ring_rolls_back_too_if_its_ring_was_never_heard_of() -> None:
    machine, chain = acknowledged()
    short = cut_after(chain, 1)
    later = short.enter(following(short))
    assert sent(hear(machine, later.add().token, now=2 * START)) == [1, 2, 3]
    assert machine.snapshot().unacknowledged == 3


def test_a_token_of_an_earlier_ring_is_ignored() -> None:
    """Protocol §5: old tokens are fenced by e."""
    machine, chain = acknowledged()
    hear(machine, following(cut_after(chain, 1)))
    hear(machine, *[entry.token for entry in chain.entries])
    assert machine.snapshot().unacknowledged == 2


def test_the_same_ring_twice_rolls_back_once() -> None:
    machine, chain = acknowledged()
    short = cut_after(chain, 1)
    ring = following(short)
    later = short.enter(ring)
    hear(machine, ring, later.add(message(2), message(3)).token)
    assert hear(machine, ring) == ()
    assert machine.snapshot().unacknowledged == 0


# Restart


def test_a_restart_resumes_the_incarnation_and_sends_what_the_outbox_holds() -> None:
    """Protocol §1: resumes the same incarnation after a restart."""
    state = OutboxState()
    for number in (1, 2, 3):
        state.apply(OutboxAppended(key(number), number, message(number).payload))
    state.apply(OutboxFreed(2))
    machine = PrimarySource(S1, settings(), state)
    assert machine.next_deadline() == 0
    assert packets(machine.step(TimerFired(), START)) == [data(2, base=2), data(3, base=2)]
    assert sent(publish(machine, 4)) == [4]


def test_an_empty_outbox_wakes_nobody() -> None:
    assert PrimarySource(S1, settings(), OutboxState(next_number=5)).next_deadline() == NEVER


def test_tokens_that_name_other_sources_mean_nothing() -> None:
    machine = source(1)
    token: Token = Chain().add(message(1, S2)).token
    hear(machine, token)
    assert machine.snapshot().unacknowledged == 1


# ---- an outbox that is older than the ring


def test_a_source_whose_numbers_the_ring_knows_better_numbers_nothing_more() -> None:
    """A copy of last week was put in the place of its outbox: numbers 4 to 6 were sealed, and sent, before."""
    old = PrimarySource(S1, settings(), OutboxState(next_number=4))
    effects = hear(old, Standing(0, NO_EPOCH, 1, S1, 7, 3))
    assert effects == (NumbersForgotten(S1, 4, 7),)
    refusal = publish(old, 4)
    assert [type(effect) for effect in refusal] == [PublishRejected]
    assert hear(old, Standing(0, NO_EPOCH, 1, S1, 8, 3)) == (), "it is said once"


def test_a_new_ring_and_a_token_tell_it_as_well() -> None:
    chain = Chain(founding(1, 2, 3))
    token = chain.add(*[message(number) for number in (1, 2, 3)]).token
    assert NumbersForgotten(S1, 1, 4) in hear(source(), token)
    ring = following(chain)
    assert NumbersForgotten(S1, 3, 4) in hear(PrimarySource(S1, settings(), OutboxState(next_number=3)), ring)


def test_numbers_of_an_incarnation_that_has_ended_are_nobodys_concern() -> None:
    chain = Chain(founding(1, 2, 3))
    other = PrimarySource(S1 + 1, settings())
    assert hear(other, chain.add(message(1)).token) == ()
