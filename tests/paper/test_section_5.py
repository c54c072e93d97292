"""§5 of the paper, the modified protocol: its introduction, sentence by sentence (5.1 and 5.2 have their own files)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.paper.timed_ring import PAPER, START, Sent, TimedRing, first_copy_lost
from tests.paper.worlds import original, world
from tests.ring.original.group import Group, R_n

from isocast.checks.facts import Released, TokenSent
from isocast.ring.effects import RingSuspected
from isocast.ring.original.packets import OriginalNack
from isocast.simulation.scenario import scenario_from_mapping
from isocast.terms.ids import NodeId, is_source, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import Timing
from isocast.wire.packets import Data, Nack, Suspect, Suspicion, Token

PERIOD = PAPER.token_period_ns


# ---- delayed delivery


def test_receivers_wait_between_the_acknowledgement_and_the_release() -> None:
    """§5: "the R_T wait Δ_A between the time a message is acknowledged and the time that it is remulticast"."""
    ring = TimedRing(4)
    ring.submit(START - SECOND)
    ring.run(START + PAPER.release_delay_ns - 1)
    assert len(ring.tokens()) == 1
    assert ring.releases() == []
    ring.run(START + PAPER.release_delay_ns)
    assert [(at, site) for at, site, _ in ring.releases()] == [
        (START + PAPER.release_delay_ns, n) for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("error_ms", [0, 1, 5])
def test_release_is_as_simultaneous_as_the_clocks_are(error_ms: int) -> None:
    """§5: "The R_T have synchronized clocks". With an error of ±ε releases are at most 2ε apart."""
    error = error_ms * MILLISECOND
    timing = Timing(PAPER.detect_ns, process_ns=PAPER.process_ns, retries_max=3, clock_error_ns=error, gate=PAPER.gate)
    ring = TimedRing(3, timing, errors={1: error, 2: -error})
    ring.submit(START - SECOND)
    ring.run(START + 2 * timing.release_delay_ns)
    instants = [at for at, _, _ in ring.releases()]
    assert max(instants) - min(instants) == 2 * error
    assert ring.suspicions() == []


def test_the_token_site_timestamps_the_acknowledgement() -> None:
    """§5: "When the token site acknowledges a source message, it timestamps the acknowledgement"."""
    ring = TimedRing(3)
    for number in range(1, 4):
        ring.submit(ring.instant(number) - SECOND)
    ring.run(ring.instant(3))
    assert [(token.token_number, token.instant) for token in ring.tokens()] == [(t, ring.instant(t)) for t in (1, 2, 3)]


def test_the_timestamp_is_the_scheduled_instant_even_if_the_site_sends_late() -> None:
    """§5, corrected: the scheduled instant and never that of sending, or a late site would move the release."""
    late = 30 * MILLISECOND
    ring = TimedRing(3, replace(PAPER, clock_error_ns=0), errors={1: -late})
    ring.submit(START - SECOND)
    ring.run(START + SECOND)
    assert ring.when(Token, 1) == [START + late]
    assert ring.tokens()[0].instant == START


def test_a_message_is_released_a_fixed_time_after_its_timestamp() -> None:
    """§5: "The R_T remulticast a message Δ_A after the message's time stamp"."""
    ring = TimedRing(3)
    for tenth in range(100):
        ring.submit(START - SECOND + tenth * 100 * MILLISECOND)
    ring.run(START + 20 * SECOND)
    assert {at - release.entry.token.instant for at, _, release in ring.releases()} == {PAPER.release_delay_ns}
    assert sum(len(release.messages) for _, site, release in ring.releases() if site == 1) == 100


@pytest.mark.parametrize("kind", [Token, Data])
def test_the_delay_compensates_for_distance_and_recovery(kind: type[Token | Data]) -> None:
    """§5: "compensates for the difference in reception times ... and the time to detect and recover"."""
    ring = TimedRing(4, hears=first_copy_lost(kind, 3), delay=lambda a, b: (10 + 40 * ((a + b) % 4)) * MILLISECOND)
    ring.submit(START - SECOND)
    ring.run(START + 2 * PERIOD)
    assert len(ring.requests()) == 1
    assert [(at, site) for at, site, _ in ring.releases()] == [
        (START + PAPER.release_delay_ns, n) for n in (1, 2, 3, 4)
    ]


def test_a_system_is_fair_when_all_release_at_once() -> None:
    """§5: "A system is fair when all of the R_T simultaneously retransmit the message"."""
    seen = world(messages=400, arrival_rate=20, loss=0.02, retries_max=8)
    instants: dict[int, set[int]] = {}
    for fact in seen.of(Released):
        instants.setdefault(fact.first_sequence, set()).add(fact.at)
    assert {len(of_one) for of_one in instants.values()} == {1}
    assert seen.run.recorder.fairness_faults == 0
    assert seen.run.skew_ns() == 0


# ---- the periodic token


@pytest.mark.parametrize("rate", [0.1, 5.0])
def test_the_token_is_passed_periodically_whatever_arrives(rate: float) -> None:
    """§5: "the token is transferred periodically, every τ_t seconds"."""
    seen = world(receivers=3, arrival_rate=rate, messages=round(30 * rate))
    sent = seen.of(TokenSent)
    assert {b.at - a.at for a, b in pairwise(sent)} == {seen.run.timing.token_period_ns}
    assert [fact.token_number for fact in sent] == list(range(1, len(sent) + 1))


def test_a_token_acknowledges_everything_that_waits() -> None:
    """§5: "acknowledges all of the unacknowledged source messages"."""
    ring = TimedRing(3, sources=4)
    for source in (1, 2, 2, 3, 4, 4, 4):
        ring.submit(START - SECOND, source)
    ring.run(START)
    assert {(run.source >> 32, run.first, run.count) for run in ring.tokens()[0].runs} == {
        (1, 1, 1), (2, 1, 2), (3, 1, 1), (4, 1, 3),
    }  # fmt: skip


def test_a_token_acknowledges_what_previous_token_sites_missed() -> None:
    """§5: "including any messages that were missed by the previous token sites"."""
    ring = TimedRing(4, hears=lambda sent, to: not isinstance(sent.packet, Data) or to == 3)
    ring.submit(START - SECOND)
    ring.run(ring.instant(3))
    assert [token.count for token in ring.tokens()] == [0, 0, 1]


def test_a_token_acknowledges_a_variable_number_of_messages_in_one_sequence() -> None:
    """§5: "can acknowledge a sequence of k source messages, where k is variable ... numbers s to s+k-1"."""
    ring = TimedRing(3, sources=3)
    for number, count in ((1, 2), (2, 0), (3, 5), (4, 1)):
        for message in range(count):
            ring.submit(ring.instant(number) - SECOND, 1 + message % 3)
    ring.run(ring.instant(7))
    assert [(token.first_sequence, token.count) for token in ring.tokens()[:4]] == [(1, 2), (3, 0), (3, 5), (8, 1)]
    released = [(r.first_sequence, len(r.messages)) for _, site, r in ring.releases() if site == 2]
    assert released == [(1, 2), (3, 5), (8, 1)]


@pytest.mark.parametrize("rate", [1, 10, 50])
def test_acknowledging_many_at_once_keeps_the_latency_at_any_rate(rate: int) -> None:
    """§5: "the latency before messages are acknowledged can become large. Acknowledging multiple ... prevents this"."""
    seen = world(receivers=3, arrival_rate=rate, messages=60 * rate)
    recorder = seen.run.recorder
    expected = seen.run.timing.latency_ns(50 * MILLISECOND, 0)
    # 60 s of arrivals are 22 tokens; a uniform wait of up to τ_t has a standard deviation of .8 s.
    assert recorder.latency_ns / recorder.releases == pytest.approx(expected, abs=4 * 0.8e9 / (60 * rate) ** 0.5)


def test_an_event_driven_ring_sends_fewer_tokens_when_little_arrives() -> None:
    """§5: "An event driven protocol transmits fewer tokens when the message arrival rate is low"."""
    rate, messages = 0.05, 30
    event_driven = original(rate, messages)
    seen = world(receivers=10, arrival_rate=rate, messages=messages)
    assert event_driven.acks < len(seen.of(TokenSent)) / 4


def test_an_event_driven_ring_acknowledges_sooner() -> None:
    """§5: "and acknowledges source messages sooner when the message arrival rate is high"."""
    seen = world(receivers=10, arrival_rate=10, messages=500)
    waiting = seen.run.recorder.latency_ns / seen.run.recorder.releases - seen.run.timing.release_delay_ns
    assert original(10.0, 500).latency_s_mean * SECOND < waiting / 10


def test_a_missing_token_is_detected_when_its_instant_passes() -> None:
    """§5: "we detect missing acknowledgments when their scheduled transmission time passes"."""
    ring = TimedRing(4, hears=first_copy_lost(Token, 3))
    ring.run(START + PAPER.detect_ns)
    # Nothing was submitted and no other token was sent.
    assert (ring.when(Nack), len(ring.tokens())) == ([START + PAPER.detect_ns], 1)


def test_the_original_detects_it_only_by_the_next_acknowledgement() -> None:
    """§5: "The next acknowledgement is initiated by the arrival of the next source message, which is a random ..."."""
    group = Group(4, hears=lambda _packet, to: to != 4)
    group.submit()
    group.hears = lambda _packet, _to: True
    group.wait(100 * R_n)
    assert group.packets(OriginalNack) == []
    group.submit()
    assert group.packets(OriginalNack) != []


def test_one_token_period_makes_a_ring_fair() -> None:
    """§5: fair "when Δ_A > τ_t, just one token transfer time".

    Corrected: Δ_A = δ_N+2ε+k_r·τ_r, which is τ_t at its shortest; clocks and other layers add to it.
    """
    assert PAPER.release_delay_ns == PAPER.token_period_ns == PAPER.recovery_ns
    slow = Timing(
        PAPER.detect_ns, process_ns=PAPER.process_ns, retries_max=3, token_period_ns=5 * SECOND, gate=PAPER.gate
    )
    assert slow.release_delay_ns == PAPER.release_delay_ns


def test_in_the_original_protocol_a_delay_cannot_guarantee_fairness() -> None:
    """§5: "When we delay delivery, we can guarantee a higher probability ..., but cannot guarantee fairness"."""
    group = Group(4, hears=lambda _packet, to: to != 4)
    for _ in range(3):
        group.submit()
        group.wait(100 * R_n)
    # However long the others wait, receiver 4 neither has the messages nor knows that it lacks them.
    assert [len(group.placed[site]) for site in group.ring] == [3, 3, 3, 0]
    assert group.packets(OriginalNack) == []


# ---- failures


def test_the_others_detect_a_failed_token_site_when_its_token_does_not_come() -> None:
    """§5: "the other R_T detect a failed token site when a token isn't transferred on time"."""
    ring = TimedRing(4)
    ring.crash(2)
    ring.run(ring.instant(2) + PAPER.recovery_ns)
    late = ring.instant(2) + PAPER.detect_ns
    assert {(s.at, s.node) for s in ring.sent if isinstance(s.packet, Nack) and s.at == late} == {
        (late, 1), (late, 3), (late, 4),
    }  # fmt: skip
    assert {(site, effect.suspect, effect.reason) for _, site, effect in ring.suspicions()} >= {
        (site, 2, Suspicion.UNRECOVERED) for site in (1, 3, 4)
    }


def test_no_source_has_to_complain() -> None:
    """§5: "We do not have to wait for a source to complain that it is unable to elicit an acknowledgement"."""
    ring = TimedRing(4)
    ring.crash(2)
    ring.submit(ring.instant(2) - SECOND)
    ring.run(ring.instant(2) + 2 * PERIOD)
    suspects = [s.node for s in ring.sent if isinstance(s.packet, Suspect)]
    assert suspects
    assert not any(is_source(node) for node in suspects)


def test_a_source_never_reports_a_failure() -> None:
    """§5: "Removing failure detection and reporting responsibility from the sources"."""
    ring = TimedRing(2, hears=lambda sent, _to: not is_source(sent.node))
    ring.submit(START)
    ring.run(START + 20 * PERIOD)
    of_source = [effect for _, node, effect in ring.effects if is_source(node)]
    assert len(ring.packets(Data)) > 5
    assert not any(isinstance(effect, RingSuspected) for effect in of_source)


def test_a_source_that_is_silent_or_lies_about_its_number_stops_nobody() -> None:
    """§5: "makes it possible to operate with less trusted sources"."""
    ring = TimedRing(3, sources=2)
    wild = source_id(2)

    def hears(sent: Sent, _to: NodeId) -> bool:
        if isinstance(sent.packet, Data) and sent.node == wild:
            sent.packet.number = 10**9
        return True

    ring.hears = hears
    ring.submit(START - SECOND, 2)
    ring.submit(START - SECOND, 1)
    ring.run(START + PERIOD)
    assert {len(release.messages) for _, _, release in ring.releases()} == {1}
    assert ring.suspicions() == []


# ---- NACK reduction


def test_nack_reduction_is_off_unless_asked_for() -> None:
    """§5: "the NACK reduction mechanisms should not be used in the current stock market applications"."""
    assert Timing(SECOND).nack_sets == 1
    assert scenario_from_mapping({}).timing.nack_sets == 1
