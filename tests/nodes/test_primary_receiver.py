"""A primary receiver, R_P (§4.1): receiver and member in one site."""

from __future__ import annotations

from tests.hierarchy.layer_makers import GROUPS, LAYERED, due, passed, said
from tests.reformation.ballots import invite, join
from tests.ring.makers import (
    EPOCH,
    MS,
    NEXT_EPOCH,
    PERIOD,
    Chain,
    T,
    arrive,
    blank,
    completed,
    following,
    founding,
    message,
    packets,
    receipt,
    secret,
    settings,
    told,
)

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.effects import Multicast, Persist, PromiseMade, RingInstalled, RingSuspected
from isocast.ring.inputs import ControlRequested, DrainRequested, JournalRead, TimerFired
from isocast.ring.receiver import Mode
from isocast.terms.ids import NO_EPOCH
from isocast.wire.packets import (
    NO_LIMIT,
    ControlEntry,
    ControlKind,
    Join,
    Receipt,
    Repair,
    Suspect,
    Suspicion,
    Token,
)


def site(number: int = 2, chain: Chain | None = None) -> PrimaryReceiver:
    return PrimaryReceiver(number, settings(), secret(number), chain.state() if chain else Chain().state())


def test_a_fresh_site_wants_to_be_woken_at_once_and_asks_for_a_ring() -> None:
    machine = PrimaryReceiver(2, settings(), secret(2), blank())
    assert machine.next_deadline() == 0
    suspicion, told_all = machine.step(TimerFired(), MS)
    assert suspicion == RingSuspected(0, 2, Suspicion.LOST)
    assert told_all == Multicast(Suspect(0, NO_EPOCH, 2, 0, 2, Suspicion.LOST, NO_EPOCH))


def test_a_burst_of_messages_is_stored_in_silence() -> None:
    machine = site()
    assert machine.step(arrive(message(1), message(2)), T(1) - MS) == ()
    assert machine.snapshot().receiver.waiting == 2


def test_a_burst_is_taken_in_its_order() -> None:
    entry = Chain().add(message(1))
    effects = site().step(arrive(entry.token, message(1)), T(1) + MS)
    assert effects == (*completed(entry), told(2, entry))


def test_whoever_votes_is_heard_though_the_log_does_not_have_it_in_u_yet() -> None:
    """Else the token that added it, which some lack, would be a broken pair."""
    machine = site(2, Chain().grow(1))
    effects = machine.step(arrive(join(4, 2, universe=(1, 2, 3, 4)), invite()), T(2))
    [vote] = [packet for packet in packets(effects) if isinstance(packet, Join)]
    assert vote.heard == (4,)


def test_an_operator_takes_a_site_off_the_ring_and_its_vote_says_so() -> None:
    machine = site(2, Chain().grow(1))
    effects = machine.step(DrainRequested(leaving=True), T(1) + MS)
    assert machine.leaving
    assert Multicast(Suspect(0, EPOCH, 2, 1, 2, Suspicion.LEAVING, EPOCH)) in effects
    [vote] = [packet for packet in packets(machine.step(arrive(invite()), T(2))) if isinstance(packet, Join)]
    assert vote.leaving


def test_a_vote_in_the_same_burst_reports_what_came_before_it() -> None:
    """S7 no RECEIPT(e) after prom > e: the receipt goes out first, and the promise covers it."""
    entry = Chain().add()
    effects = site().step(arrive(entry.token, invite()), T(1) + MS)
    kinds = [type(packet) for packet in packets(effects)]
    assert kinds == [Receipt, Join]
    assert effects.index(Persist(PromiseMade(NEXT_EPOCH))) > effects.index(told(2, entry))
    assert [packet.held for packet in packets(effects) if isinstance(packet, Join)] == [1]


def test_after_the_promise_the_rest_of_the_burst_is_fenced_off() -> None:
    entry = Chain().add()
    machine = site()
    machine.step(arrive(invite(), entry.token, receipt(1, Chain().grow(1))), T(1) + MS)
    assert (machine.snapshot().receiver.held, machine.snapshot().receiver.mode) == (0, Mode.SEALED)


def test_a_suspicion_is_told_to_everybody_with_the_promise() -> None:
    """Protocol §2: SUSPECT{t, reason} to the reformation servers and multicast."""
    machine = site(1)
    effects = machine.step(TimerFired(), T(1) + PERIOD)
    late = RingSuspected(1, 1, Suspicion.LATE)
    assert effects[effects.index(late) + 1] == Multicast(Suspect(0, EPOCH, 1, 1, 1, Suspicion.LATE, EPOCH))


def test_repairs_belong_to_the_reconciliation_while_there_is_one() -> None:
    chain = Chain().grow(1)
    machine = site(2, chain)
    entry = chain.fork().add()
    ring = following(Chain())
    alive = chain.fork()
    wanted = alive.add(message(1))
    ring = following(alive, holders=(1, 3))
    machine.step(arrive(ring), T(2))
    assert machine.snapshot().member.reconciling == NEXT_EPOCH
    repairs = [Repair(0, NEXT_EPOCH, 1, item) for item in (entry.token, wanted.token, message(1))]
    effects = machine.step(arrive(*repairs), T(2) + MS)
    assert Persist(RingInstalled(ring, 1, (wanted,))) in effects


def test_who_was_heard_is_in_the_vote() -> None:
    machine = site(2)
    machine.step(arrive(receipt(3, Chain())), T(1))
    [vote] = [packet for packet in packets(machine.step(arrive(invite()), T(1) + MS)) if isinstance(packet, Join)]
    assert vote.heard == (3,)


def test_the_site_is_woken_for_its_receiver_and_for_its_member() -> None:
    machine = site(3)
    machine.step(TimerFired(), T(1))
    assert machine.next_deadline() == T(1) + 22 * MS
    machine.step(arrive(invite()), T(1) + MS)
    assert machine.next_deadline() == T(1) + MS + machine.receiver.timing.grace_ns // 2


def test_an_operators_entry_and_the_journals_answer_reach_the_receiver() -> None:
    mark = ControlEntry(ControlKind.MARK, 1, b"open")
    machine = site(1)
    machine.step(ControlRequested(mark), T(1) - MS)
    [token] = [packet for packet in packets(machine.step(TimerFired(), T(1))) if isinstance(packet, Token)]
    assert token.control == (mark,)
    entry = Chain().add()
    [repair] = packets(machine.step(JournalRead(3, (entry,)), T(1) + 1))
    assert repair == Repair(0, EPOCH, 1, entry.token)


def test_a_lost_disk_is_never_forgotten() -> None:
    machine = PrimaryReceiver(2, settings(), secret(2), blank(), forgot=True)
    assert machine.step(arrive(founding(), invite()), T(1)) == ()
    assert machine.snapshot().receiver.promised == NO_EPOCH


# Head of a secondary group


def headed(chain: Chain) -> PrimaryReceiver:
    return PrimaryReceiver(1, LAYERED, secret(1), chain.state(), groups=GROUPS)


def reported(machine: PrimaryReceiver, now: int) -> list[tuple[int, int]]:
    """(secstable, stable) of the tokens that a machine sends."""
    sent = [packet for packet in packets(machine.step(TimerFired(), now)) if isinstance(packet, Token)]
    return [(token.secstable, token.stable) for token in sent]


def test_a_site_without_secondary_receivers_sets_no_limit() -> None:
    machine = site(1)
    assert reported(machine, T(1)) == [(NO_LIMIT, 0)]
    assert machine.snapshot().groups == ()
    assert machine.step(arrive(said(4, 1, Chain())), T(1) + MS) == ()


def test_the_head_reports_what_its_group_holds_in_its_next_token() -> None:
    """§4.1: "That R_P can infer state of the secondary group and transfer that information to the primary group"."""
    chain = Chain().grow(6)
    machine = headed(chain)
    effects = machine.step(arrive(said(4, 4, chain), said(5, 5, chain)), T(7) - MS)
    assert passed(effects) == [(4, 3), (5, 3)]
    [group] = machine.snapshot().groups
    assert group.floor == 3
    assert reported(machine, T(7)) == [(3, 3)]


def test_a_site_reports_for_the_group_of_one_that_is_off_the_ring() -> None:
    """Site 1 is off the second ring; site 2 is the backup of its group, and speaks for it in its first token there."""
    chain = Chain().grow(2)
    new = following(chain)
    second = new._replace(ring=new.ring[1:], commits=new.commits[1:])
    machine = PrimaryReceiver(2, LAYERED, secret(2), chain.state(), groups=GROUPS)
    machine.step(TimerFired(), T(2))
    assert machine.snapshot().groups == ()
    machine.step(arrive(second), T(2) + MS)
    [group] = machine.snapshot().groups
    assert (group.group, group.members) == (1, (2, 4, 5))
    assert reported(machine, second.start) == [(0, 0)], "nobody has spoken in this epoch: no limit would be a mistake"


def test_an_orphan_is_in_the_snapshot() -> None:
    chain = Chain().grow(6)
    machine = PrimaryReceiver(3, LAYERED, secret(3), chain.state(), groups=GROUPS)
    machine.step(arrive(said(4, 6, chain)), T(7))
    assert machine.snapshot().orphans == ((4, 1),)
    assert machine.receiver.reports.own == 6


def test_until_it_knows_anything_the_head_holds_everybody_up() -> None:
    chain = Chain().grow(6)
    assert reported(headed(chain), T(7)) == [(0, 0)]


def test_the_head_is_woken_for_its_secondary_token() -> None:
    chain = Chain().grow(6)
    machine = headed(chain)
    machine.step(TimerFired(), T(7))
    deadlines = []
    while machine.next_deadline() <= due(6):
        deadlines.append(machine.next_deadline())
        machine.step(TimerFired(), machine.next_deadline())
    assert due(6) in deadlines


def test_votes_name_members_and_no_secondary_receivers() -> None:
    machine = headed(Chain())
    machine.step(arrive(receipt(3, Chain()), said(4, 1, Chain())), T(1) - MS)
    [vote] = [packet for packet in packets(machine.step(arrive(invite()), T(1) - MS)) if isinstance(packet, Join)]
    assert vote.heard == (3,)
