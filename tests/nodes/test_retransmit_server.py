"""A retransmit server, R_x (§4.1): archives what is released, and gives it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.hierarchy.edge_makers import FIRE, GAP, MS, NOW, RETRY, X1, C, arrive, beat, of, quote, rel, rels, settings

from isocast.hierarchy.archive import (
    AnswerLimits,
    Archive,
    ArchiveRead,
    ArchiveTrimmed,
    CustomerThrottled,
    GiveRange,
    GiveSnapshot,
    KeepSnapshot,
    RangeAsked,
    RangeWithdrawn,
    ReadArchive,
    SnapshotAsked,
    TurnAway,
)
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.hierarchy.edge import (
    Deliver,
    DeliverSnapshot,
    FetchRange,
    FetchSnapshot,
    GapAbandoned,
    RangeArrived,
    SendLine,
    SnapshotArrived,
)
from isocast.hierarchy.latest import LatestSnapshot, LatestTable
from isocast.nodes.retransmit_server import ArchiveState, RetransmitServer, RetransmitSettings
from isocast.ring.effects import Unicast
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import SECOND
from isocast.wire.packets import Packet, Range, RangeReply, RangeRequest, ReleasedPacket

OTHER = C + 1


def rules(line: AnswerLimits | None = None, door: AnswerLimits | None = None, **changes: Any) -> RetransmitSettings:  # noqa: ANN401 (any field)
    """It hears lines 1 and 2, and fetches what it lacks at the doors of both receivers."""
    given: dict[str, Any] = {"servers": (1, 2), "by_datagram": False, "join": JoinPoint.SEQUENCE} | changes
    return RetransmitSettings(settings(**given), line, door or AnswerLimits.at_door(), snapshot_every=10)


def server(held: int = 0, state: ArchiveState | None = None, **changes: Any) -> RetransmitServer:  # noqa: ANN401 (any field)
    """A server that archived so many messages."""
    machine = RetransmitServer(X1, rules(**changes), state)
    machine.step(FIRE, NOW)
    if held:
        machine.step(arrive(*rels(1, held)), NOW)
        machine.step(FIRE, NOW)
    return machine


def request(first: int, last: int, customer: NodeId = C, kind: Range = Range.SEQUENCES) -> RangeRequest:
    return RangeRequest(0, NO_EPOCH, customer, kind, first, last)


def repairs(effects: Iterable[object]) -> list[Packet]:
    """Messages sent on the server's line."""
    return [packet for burst in of(effects, SendLine) for packet in burst.packets if packet.count]


def test_what_is_delivered_goes_to_the_archive_and_nowhere_else() -> None:
    effects = server().step(arrive(*rels(1, 3)), NOW)
    assert of(effects, Archive) == [Archive(tuple(rels(1, 3)))]
    assert of(effects, Deliver) == []


def test_it_fetches_what_it_lacks_at_a_receivers_door() -> None:
    machine = server()
    machine.step(arrive(rel(1), rel(4)), NOW)
    effects = machine.step(FIRE, NOW + GAP)
    assert of(effects, FetchRange) == [FetchRange(1, 2, 3)]
    assert of(effects, Unicast) == []
    effects = machine.step(RangeArrived(1, rels(2, 3), 1, 4), NOW + GAP + MS)
    assert of(effects, Archive) == [Archive(tuple(rels(2, 4)))]


def test_a_request_is_answered_by_multicast_under_the_servers_name() -> None:
    """§4.1: "when an R detects a missing sequence number, it can request the message from R_x"."""
    effects = server(5).step(arrive(request(2, 3)), NOW)
    assert repairs(effects) == rels(2, 3, X1)


def test_requests_and_messages_of_one_burst_are_both_taken() -> None:
    effects = server(5).step(arrive(rel(6), request(6, 6), rel(7)), NOW)
    assert of(effects, Archive) == [Archive(tuple(rels(6, 7)))]


def test_many_losers_are_served_by_one_repair() -> None:
    machine = server(5)
    effects = machine.step(arrive(*[request(2, 3, C + place) for place in range(100)]), NOW)
    assert repairs(effects) == rels(2, 3, X1)
    assert machine.snapshot().spared == 198


def test_who_lost_the_repair_too_is_answered_when_it_asks_again() -> None:
    machine = server(5)
    machine.step(arrive(request(2, 3)), NOW)
    assert repairs(machine.step(arrive(request(2, 3)), NOW + RETRY // 2 - 1)) == []
    assert repairs(machine.step(arrive(request(2, 3)), NOW + RETRY)) == rels(2, 3, X1)


def test_what_memory_forgot_is_read_from_the_archive() -> None:
    machine = server(20, recent_max=4)
    effects = machine.step(arrive(request(2, 3)), NOW)
    assert (of(effects, ReadArchive), repairs(effects)) == ([ReadArchive(0, 2, 3)], [])
    effects = machine.step(ArchiveRead(0, 2, 3, rels(2, 3)), NOW + MS)
    assert repairs(effects) == rels(2, 3, X1)
    assert repairs(machine.step(ArchiveRead(0, 2, 3, ()), NOW + MS)) == []


def test_a_request_below_the_low_water_mark_is_told_where_it_is() -> None:
    machine = server(20)
    machine.step(ArchiveTrimmed(10), NOW)
    effects = machine.step(arrive(request(8, 11)), NOW)
    assert of(effects, Unicast) == [Unicast(C, RangeReply(0, NO_EPOCH, X1, Range.SEQUENCES, 10, 20, 10))]
    assert repairs(effects) == rels(10, 11, X1)
    machine.step(ArchiveTrimmed(5), NOW)
    assert machine.snapshot().low_water == 10


@pytest.mark.parametrize(
    "asked",
    [request(21, 30), request(1, 5, kind=Range.TOKENS), request(1, 5)._replace(stripe=1)],
    ids=["not there yet", "tokens", "other stripe"],
)
def test_what_it_does_not_have_is_not_answered(asked: RangeRequest) -> None:
    effects = server(20).step(arrive(asked), NOW)
    assert (repairs(effects), of(effects, Unicast), of(effects, ReadArchive)) == ([], [], [])


def test_an_empty_archive_answers_nothing_and_announces_nothing() -> None:
    machine = RetransmitServer(X1, rules())
    assert of(machine.step(FIRE, NOW), SendLine) == []
    assert machine.step(arrive(request(1, 5)), NOW) == ()
    assert machine.step(RangeAsked(C, 1, 5), NOW) == (GiveRange(C, (), 1, 0),)


def test_its_line_has_heartbeats_too() -> None:
    machine = server(20)
    machine.step(FIRE, NOW)
    beats: list[ReleasedPacket] = []
    for place in range(1, 5):
        now = NOW + place * 100 * MS
        for burst in of(machine.step(FIRE, now), SendLine):
            beats.extend(burst.packets)
    assert [packet.sequence for packet in beats] == [21, 21, 21, 21]
    assert {packet.count for packet in beats} == {0}


def test_a_customer_that_asks_too_much_waits_alone_and_is_named() -> None:
    limits = AnswerLimits(customer_rate=10, customer_burst=5, quantum=5, quiet_ns=MS)
    machine = server(200, line=limits)
    effects = machine.step(arrive(request(1, 100)), NOW)
    assert repairs(effects) == rels(1, 5, X1)
    assert of(effects, CustomerThrottled) == [CustomerThrottled(C, 100, 5, 0)]
    assert repairs(machine.step(arrive(request(150, 152, OTHER)), NOW)) == rels(150, 152, X1)
    assert repairs(machine.step(FIRE, machine.line.wake_at)) == rels(6, 10, X1)
    assert machine.snapshot().accounts == 2


def test_a_range_at_the_door_is_given_to_who_asked() -> None:
    effects = server(20).step(RangeAsked(C, 5, 8), NOW)
    assert effects == (GiveRange(C, tuple(rels(5, 8, X1)), 1, 20),)


def test_a_door_reads_the_archive_for_what_memory_forgot() -> None:
    machine = server(20, recent_max=4)
    assert machine.step(RangeAsked(C, 1, 99), NOW) == (ReadArchive(C, 1, 20),)
    assert machine.step(ArchiveRead(C, 1, 20, rels(1, 20)), NOW) == (GiveRange(C, tuple(rels(1, 20, X1)), 1, 20),)


@pytest.mark.parametrize("first, last", [(5, 12), (21, 25)])
def test_a_door_says_what_it_does_not_have(first: int, last: int) -> None:
    machine = server(20)
    machine.step(ArchiveTrimmed(10), NOW)
    assert machine.step(RangeAsked(C, first, last), NOW) == (GiveRange(C, (), 10, 20),)


def test_a_door_is_closed_to_who_asks_too_much() -> None:
    limits = AnswerLimits(customer_rate=10, customer_burst=5, pending_max=1, quiet_ns=0, keeps_rest=False)
    machine = server(200, door=limits)
    assert of(machine.step(RangeAsked(C, 1, 5), NOW), GiveRange)
    assert of(machine.step(RangeAsked(C, 6, 9), NOW), GiveRange) == []
    effects = machine.step(RangeAsked(C, 6, 9), NOW)
    assert of(effects, TurnAway) == [TurnAway(C)]
    assert of(machine.step(RangeAsked(C, 500, 501), NOW), TurnAway) == [TurnAway(C)]
    assert of(machine.step(SnapshotAsked(C), NOW), TurnAway) == [TurnAway(C)]
    assert of(machine.step(SnapshotAsked(OTHER), NOW), GiveSnapshot)


SCARCE = AnswerLimits(
    customer_rate=1, customer_burst=3, pending_max=1, quiet_ns=0, keeps_rest=False, newest_counts=True
)
"""A door that lets three messages go, and then one a second."""


def test_a_customer_that_came_back_is_not_refused_for_what_its_last_life_asked() -> None:
    machine = server(5, door=SCARCE)
    assert of(machine.step(RangeAsked(C, 1, 3), NOW), GiveRange) != []
    assert of(machine.step(RangeAsked(C, 1, 3), NOW), GiveRange) == [], "its share is used up"
    effects = machine.step(RangeAsked(C, 4, 5), NOW + MS)
    assert of(effects, TurnAway) == []
    [given] = of(machine.step(FIRE, NOW + SECOND), GiveRange)
    assert [packet.sequence for packet in given.packets] == [4]


def test_a_request_that_waited_too_long_is_turned_away_at_once() -> None:
    machine = server(5, door=SCARCE)
    machine.step(RangeAsked(C, 1, 3), NOW)
    machine.step(RangeAsked(C, 1, 3), NOW)
    effects = machine.step(FIRE, NOW + 2 * SECOND)
    assert (of(effects, TurnAway), of(effects, GiveRange)) == ([TurnAway(C)], [])
    assert of(machine.step(FIRE, NOW + 3 * SECOND), TurnAway) == []


def test_a_request_that_nobody_waits_for_is_not_answered() -> None:
    machine = server(5, door=SCARCE)
    machine.step(RangeAsked(C, 1, 3), NOW)
    machine.step(RangeAsked(C, 1, 3), NOW)
    machine.step(RangeWithdrawn(C), NOW + MS)
    assert of(machine.step(FIRE, NOW + SECOND), GiveRange) == []
    assert machine.door.accounts[C].served == 3


def test_a_snapshot_is_the_latest_of_each_key_as_of_the_archive() -> None:
    machine = server(20)
    [given] = of(machine.step(SnapshotAsked(C), NOW), GiveSnapshot)
    table = LatestTable()
    table.apply(list(range(1, 21)), [quote(sequence) for sequence in range(1, 21)])
    assert given == GiveSnapshot(C, table.snapshot())
    assert given.snapshot.next_sequence == 21


def test_a_snapshot_is_made_anew_only_after_a_while() -> None:
    machine = server(20)
    machine.step(SnapshotAsked(C), NOW)
    machine.step(arrive(*rels(21, 25)), NOW + MS)
    [again] = of(machine.step(SnapshotAsked(OTHER), NOW + 2 * MS), GiveSnapshot)
    assert again.snapshot.next_sequence == 21
    [later] = of(machine.step(SnapshotAsked(OTHER), NOW + SECOND), GiveSnapshot)
    assert later.snapshot.next_sequence == 26


def test_a_message_that_cannot_be_read_is_archived_all_the_same() -> None:
    machine = server()
    effects = machine.step(arrive(rel(1), rel(2, payload=b"noise"), rel(3)), NOW)
    assert len(of(effects, Archive)[0].packets) == 3
    [given] = of(machine.step(SnapshotAsked(C), NOW), GiveSnapshot)
    assert (given.snapshot.next_sequence, len(given.snapshot.events)) == (4, 1)


def test_a_restart_goes_on_where_the_archive_ends() -> None:
    machine = server(state=ArchiveState(1, 21))
    effects = machine.step(arrive(*rels(15, 22)), NOW)
    assert of(effects, Archive) == [Archive(tuple(rels(21, 22)))]


def test_after_a_restart_the_table_is_read_from_the_archive() -> None:
    kept = LatestTable()
    kept.apply([5], [quote(5, symbol="MSFT")])
    machine = RetransmitServer(X1, rules(), ArchiveState(2, 21, kept.snapshot()))
    effects = machine.step(FIRE, NOW)
    assert of(effects, ReadArchive) == [ReadArchive(-1, 6, 20)]
    machine.step(arrive(*rels(21, 22)), NOW)
    assert machine.step(SnapshotAsked(C), NOW) == (TurnAway(C),)
    effects = machine.step(ArchiveRead(-1, 6, 20, rels(6, 20)), NOW)
    assert of(effects, ReadArchive) == [ReadArchive(-1, 21, 22)]
    machine.step(ArchiveRead(-1, 21, 22, rels(21, 22)), NOW)
    [given] = of(machine.step(SnapshotAsked(C), NOW), GiveSnapshot)
    assert given.snapshot.events["price"].tolist() == [22, 5]
    machine.step(arrive(rel(23)), NOW)
    assert machine.snapshot().keys == 2


def test_snapshots_are_kept_beside_the_archive() -> None:
    machine = server()
    effects = machine.step(arrive(*rels(1, 12)), NOW)
    [kept] = of(effects, KeepSnapshot)
    assert kept.snapshot.next_sequence == 13
    assert of(machine.step(arrive(*rels(13, 20)), NOW + SECOND), KeepSnapshot) == []
    assert of(machine.step(arrive(*rels(21, 25)), NOW + SECOND), KeepSnapshot)


def test_what_no_receiver_keeps_raises_the_low_water_mark() -> None:
    machine = server(5)
    machine.step(arrive(rel(10)), NOW)
    machine.step(FIRE, NOW + GAP)
    machine.step(RangeArrived(1, (), 8, 10), NOW + 2 * GAP)
    effects = machine.step(RangeArrived(2, (), 9, 10), NOW + 2 * GAP)
    assert GapAbandoned(6, 7, 2) in effects
    assert machine.snapshot().low_water == 8
    effects = machine.step(arrive(request(1, 5)), NOW + 2 * GAP)
    assert of(effects, Unicast)


def test_a_new_server_may_begin_with_anothers_snapshot() -> None:
    machine = RetransmitServer(X1, rules(join=JoinPoint.SNAPSHOT))
    assert of(machine.step(FIRE, NOW), FetchSnapshot) == [FetchSnapshot(1)]
    snapshot = LatestSnapshot(0, 50, 50, 0, quote(3))
    effects = machine.step(SnapshotArrived(1, snapshot), NOW)
    assert of(effects, KeepSnapshot) == [KeepSnapshot(snapshot)]
    assert of(effects, DeliverSnapshot) == []
    machine.step(arrive(rel(50)), NOW)
    view = machine.snapshot()
    assert (view.low_water, view.next_sequence, view.keys) == (50, 51, 1)


def test_two_servers_give_the_same_snapshot_however_their_lines_were_cut() -> None:
    one, other = server(), server()
    packets = [rel(sequence, payload=quote(sequence, symbol=f"S{sequence % 7}")) for sequence in range(1, 60)]
    one.step(arrive(*packets), NOW)
    for packet in packets:
        other.step(arrive(packet), NOW)
    [first] = of(one.step(SnapshotAsked(C), NOW + SECOND), GiveSnapshot)
    [second] = of(other.step(SnapshotAsked(C), NOW + SECOND), GiveSnapshot)
    assert first.snapshot.digest == second.snapshot.digest


def test_a_clock_that_is_set_back_makes_nobody_wait() -> None:
    machine = server(20, line=AnswerLimits(customer_rate=10, customer_burst=5, quantum=5, quiet_ns=MS))
    machine.step(arrive(request(1, 20)), NOW)
    back = NOW - 3_600 * SECOND
    machine.step(FIRE, back)
    assert machine.next_deadline() <= back + 100 * MS
    assert repairs(machine.step(FIRE, machine.line.wake_at)) == rels(6, 10, X1)


def test_its_own_line_is_not_strange_to_it() -> None:
    machine = server(5)
    machine.step(arrive(rel(5, X1), beat(6, X1)), NOW)
    assert machine.snapshot().customer.counters.strange == 0


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="needs everything"):
        RetransmitSettings(settings(Grade.LATEST, by_datagram=False))
    with pytest.raises(LocalProtocolError, match="at doors"):
        RetransmitSettings(settings())
    with pytest.raises(LocalProtocolError, match="asks again"):
        RetransmitSettings(settings(by_datagram=False), AnswerLimits(quiet_ns=RETRY))
    with pytest.raises(LocalProtocolError, match="snapshot_every"):
        RetransmitSettings(settings(by_datagram=False), snapshot_every=0)
