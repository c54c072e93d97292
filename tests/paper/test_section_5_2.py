"""§5.2 of the paper, NACK reduction, sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from tests.paper.timed_ring import DELAY, PAPER, START, Sent, TimedRing, first_copy_lost
from tests.paper.worlds import world

from isocast.ring.recovery import nack_sets, turn
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.world import branch_of
from isocast.terms import timing as formulas
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND
from isocast.terms.timing import Timing
from isocast.wire.packets import Data, Nack, Repair, Token

RINGS = [(m, k) for m, k in product(range(2, 14), range(1, 9)) if k < m]
PERIOD, DETECT = PAPER.token_period_ns, PAPER.detect_ns


def reduced(size: int, sets: int, hears: Callable[[Sent, NodeId], bool]) -> TimedRing:
    """A ring whose receivers take turns in asking."""
    timing = Timing(DETECT, process_ns=PAPER.process_ns, retries_max=3, gate=PAPER.gate, nack_sets=sets)
    return TimedRing(size, timing, hears=hears)


def requests(ring: TimedRing) -> list[tuple[int, NodeId]]:
    return [(s.at, s.node) for s in ring.sent if isinstance(s.packet, Nack)]


def test_few_ask_and_the_repair_is_multicast_to_all() -> None:
    """§5.2: "limit the subset of receivers that request ..., but ... multicast the missing message to all"."""
    ring = reduced(10, 4, first_copy_lost(Token, *range(2, 11)))
    ring.run(START + DETECT)
    assert [node for _, node in requests(ring)] == [2, 6, 10]
    ring.run(START + SECOND)
    assert {s.to for s in ring.sent if isinstance(s.packet, Repair)} == {None}
    # One of the three answers would have been enough for everybody.
    assert {ring.site(site).receiver.held for site in ring.sites} == {1}


def test_without_reduction_everybody_asks_and_repairs_are_unicast() -> None:
    """§5.2: the standard mechanism is what it changes; without it each asks for itself."""
    ring = TimedRing(10, hears=first_copy_lost(Token, *range(2, 11)))
    ring.run(START + SECOND)
    assert requests(ring) == [(START + DETECT, site) for site in range(2, 11)]
    assert None not in {s.to for s in ring.sent if isinstance(s.packet, Repair)}


def test_in_later_intervals_other_subsets_may_ask() -> None:
    """§5.2: "In subsequent intervals of time different subsets of receivers can request the missing message"."""
    # Nobody gets token 1 but site 1, and no repair of it arrives anywhere.
    ring = reduced(7, 3, lambda sent, _to: not (isinstance(sent.packet, Repair) or sent.at == START))
    ring.run(START + 2 * PERIOD + DETECT)
    first = {node: at for at, node in reversed(requests(ring))}
    for number, members in enumerate(nack_sets(7, 3)):
        assert {first[1 + place] for place in members} == {START + number * PERIOD + DETECT}


@pytest.mark.parametrize("size, sets", RINGS)
def test_all_receivers_have_the_opportunity_and_only_once(size: int, sets: int) -> None:
    """§5.2: "until all of the receivers have had the opportunity".

    Corrected: 0 ≤ j ≤ ⌊(m-i-2)/k_p⌋; the printed bound lets the sender into one of the sets.
    """
    for owner in range(size):
        members = [place for group in nack_sets(size, sets, owner) for place in group]
        assert sorted(members) == [place for place in range(size) if place != owner]


@pytest.mark.parametrize("size, sets", [ring for ring in RINGS if ring[0] > ring[1] + 1])
def test_the_printed_bound_contains_the_sender(size: int, sets: int) -> None:
    """§5.2: "for 0 ≤ j ≤ (m-i-1)/k_p", as printed, names the sender once and everybody else once."""
    printed = [(i + 1 + j * sets) % size for i in range(sets) for j in range((size - i - 1) // sets + 1)]
    assert sorted(printed) == list(range(size))


def test_a_receiver_that_got_the_multicast_repair_does_not_ask() -> None:
    """§5.2: "the later receiver does not request the retransmission, and the number of NACK's is reduced"."""
    ring = reduced(10, 4, first_copy_lost(Token, *range(2, 11)))
    ring.run(START + 4 * PERIOD)
    assert len(requests(ring)) == 3


def test_the_sets_suit_a_tree_where_many_miss_the_same_message() -> None:
    """§5.2: "particularly appropriate in the Internet where the multicast is transmitted on a tree"."""
    keys = {"receivers": 24, "messages": 600, "arrival_rate": 10, "loss": 0.02, "loss_model": "tree"}
    runs = [world(tree_branches=2, retries_max=6, servers=1, nack_sets=sets, **keys).run for sets in (1, 4)]
    alone, taking_turns = [run.recorder.losses.quantile(0.99) for run in runs]
    assert taking_turns < alone / 2
    assert runs[1].recorder.fairness_faults == 0


@pytest.mark.parametrize("size, sets", RINGS)
def test_a_receiver_may_ask_before_it_becomes_the_token_site(size: int, sets: int) -> None:
    """§5.2: "we must guarantee that a receiver has an opportunity to recover ... before it becomes the token site"."""
    for owner, distance in product(range(size), range(1, size)):
        # It asks in the interval of token t+i and must send token t+distance.
        assert turn(size, sets, owner, (owner + distance) % size) < distance


def test_the_next_token_site_recovers_in_time_to_send() -> None:
    """§5.2: "the receiver that accepts the token must have all of the source message"."""
    ring = reduced(5, 3, first_copy_lost(Data, 2, 3, 4, 5))
    ring.submit(START - SECOND)
    ring.run(ring.instant(2))
    assert ring.when(Token, 2) == [ring.instant(2)]


@pytest.mark.parametrize("size", [3, 5, 10])
def test_the_most_economical_sets_have_one_receiver_each(size: int) -> None:
    """§5.2: "to have one receiver in each subset, the next token site"."""
    assert nack_sets(size, size - 1) == [[place] for place in range(1, size)]


def test_with_one_receiver_in_each_set_a_site_may_wait_an_entire_rotation() -> None:
    """§5.2: "a site may have to wait an entire token rotation before it can recover a missing message"."""
    assert turn(10, 9, 0, 9) == 8
    ring = reduced(5, 4, first_copy_lost(Token, 5))
    ring.run(START + 4 * PERIOD)
    assert requests(ring) == [(ring.instant(4) + DETECT, 5)]


def test_with_one_receiver_in_each_set_it_may_recover_what_a_preceding_site_asked_for() -> None:
    """§5.2: "can recover any message that was also missed by a preceding token site"."""
    ring = reduced(5, 4, first_copy_lost(Token, 3, 5))
    ring.run(START + 4 * PERIOD)
    assert requests(ring) == [(ring.instant(2) + DETECT, 3)]


@pytest.mark.parametrize("size, sets", RINGS)
def test_the_sites_of_a_set_are_equidistant(size: int, sets: int) -> None:
    """§5.2: "We space those sites equidistant around the token ring"."""
    for members in nack_sets(size, sets):
        assert members == list(range(members[0], size, sets))


def test_the_sets_of_ten_receivers() -> None:
    """§5.2: "S_{i,t} = {(r+i+1+j·k_p) mod m}", for m = 10, k_p = 4, r = 0."""
    assert nack_sets(10, 4) == [[1, 5, 9], [2, 6], [3, 7], [4, 8]]
    assert nack_sets(10, 4, owner=7) == [[8, 2, 6], [9, 3], [0, 4], [1, 5]]
    assert [list(members) for members in formulas.nack_sets(10, 4)] == nack_sets(10, 4)


@pytest.mark.parametrize("size, sets", RINGS)
def test_a_receiver_s_turn_is_that_of_its_set(size: int, sets: int) -> None:
    """§5.2: the definition of the sets and the rule of who asks when are the same."""
    for owner in range(size):
        for number, members in enumerate(nack_sets(size, sets, owner)):
            assert {turn(size, sets, owner, place) for place in members} <= {number}


@pytest.mark.parametrize("site, number", [(2, 0), (3, 1), (4, 2)])
def test_a_receiver_of_set_i_asks_after_token_t_plus_i(site: NodeId, number: int) -> None:
    """§5.2: "After a receiver in S_{i,t} receives token t+i it can request the message acknowledged by t".

    Corrected: at the instant by which token t+i is late, whether or not it came.
    """
    ring = reduced(4, 3, lambda sent, to: not (to == site and isinstance(sent.packet, Token) and sent.to is None))
    ring.run(START + number * PERIOD + DETECT)
    assert requests(ring)[0] == (START + number * PERIOD + DETECT, site)


@pytest.mark.parametrize("size, sets", RINGS)
def test_every_receiver_may_ask_within_k_p_passes(size: int, sets: int) -> None:
    """§5.2: "every receiver can request a missing message within k_p token passes"."""
    assert max(turn(size, sets, 0, place) for place in range(1, size)) <= sets - 1


@pytest.mark.parametrize("size, sets", [(6, 2), (6, 3), (12, 4), (10, 5)])
def test_if_the_sets_divide_the_ring_a_receiver_asks_in_every_k_p_th_interval(size: int, sets: int) -> None:
    """§5.2: "in the interval it is scheduled to accept the token, and every k_p-th interval after that"."""
    for place in range(size):
        # The token after interval u is sent by place u+1; the receiver accepts the token in interval place-1.
        intervals = {(token + turn(size, sets, token % size, place)) % sets for token in range(4 * size)
                     if token % size != place}  # fmt: skip
        assert intervals == {(place - 1) % sets}


def test_in_the_other_intervals_the_receiver_listens() -> None:
    """§5.2: "the receiver listens in case one of its missing messages is recovered by one of the other receivers"."""
    ring = reduced(4, 3, first_copy_lost(Token, 2, 4))
    ring.run(START + DETECT + 3 * DELAY)
    assert requests(ring) == [(START + DETECT, 2)]
    assert ring.site(4).receiver.held == 1


def test_the_average_number_of_requests_is_reduced() -> None:
    """§5.2: "the average number of requests for retransmission is clearly reduced"."""
    keys = {"receivers": 12, "messages": 600, "arrival_rate": 10, "loss": 0.02, "loss_model": "tree"}
    counts = [
        world(tree_branches=3, retries_max=6, servers=1, nack_sets=sets, **keys).run.figures.sent[Nack]
        for sets in (1, 3)
    ]
    assert counts[1] < 0.8 * counts[0]


@pytest.mark.parametrize("sets", [2, 3, 4])
def test_receivers_of_one_branch_are_in_different_sets(sets: int) -> None:
    """§5.2: "placing receivers in different sets if they are likely ... to miss the same messages"."""
    branch = branch_of(scenario_from_mapping({"receivers": 12, "tree_branches": 3}))
    for members in nack_sets(12, sets, owner=11):
        in_branches = [branch(place + 1) for place in members]
        # A branch has four neighbours on the ring; a set takes every k_p-th.
        assert max(in_branches.count(one) for one in set(in_branches)) <= -(-4 // sets)


@pytest.mark.parametrize("sets", [1, 2, 4])
def test_fairness_then_takes_k_p_token_passes(sets: int) -> None:
    """§5.2: "we have to wait for k_p token passes, instead of one, for complete fairness"."""
    assert reduced(10, sets, lambda _sent, _to: True).timing.release_delay_ns == sets * PERIOD


def test_the_last_set_still_completes_before_release() -> None:
    """§5.2: "it increases the delay until a missing message may be acquired"; the delay covers it."""
    # Site 4 asks last, and its first two requests are lost.
    ring = reduced(4, 3, first_copy_lost(Token, 4))
    lose = ring.hears
    ring.hears = lambda sent, to: (
        lose(sent, to)
        and not (isinstance(sent.packet, Nack) and sent.at < START + 2 * PERIOD + DETECT + 2 * PAPER.retry_ns)
    )
    ring.submit(START - SECOND)
    ring.run(START + 3 * PERIOD)
    assert len(requests(ring)) == 3
    assert {at for at, _, _ in ring.releases()} == {START + 3 * PERIOD}
    assert (ring.suspicions(), ring.faults()) == ([], [])


def test_the_reduction_is_not_recommended() -> None:
    """§5.2: "Since NACK reduction increases Δ_A in the stock market applications, we do not recommend it"."""
    assert Timing(SECOND).nack_sets == 1
    assert replace(PAPER, nack_sets=2, release_delay_ns=0).release_delay_ns > PAPER.release_delay_ns
