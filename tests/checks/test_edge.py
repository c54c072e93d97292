"""S14, S15, L5, L6, and S1 to S4 at the edge: archives, customers and secondary sources."""

from __future__ import annotations

from dataclasses import replace

from tests.checks.traces import E1, LAW, SOURCE, EdgeTrace

from isocast.checks.edge import EdgeChecker
from isocast.checks.facts import (
    Delivered,
    EndOfRun,
    Entrusted,
    Given,
    LatestDelivered,
    LeftOut,
    Released,
    Restarted,
    SnapshotTaken,
)
from isocast.simulation.edge import event_payload
from isocast.simulation.layers import archive_id, customer_id
from isocast.terms.ids import NO_EPOCH, NodeId, source_id
from isocast.wire import packets as wire
from isocast.wire.packets import Data, payload_digest

COMPLETE, LATEST, ARCHIVE, FORWARDER = customer_id(1), customer_id(2), archive_id(1), source_id(9)
EDGE = replace(
    LAW,
    complete=frozenset([COMPLETE, ARCHIVE]),
    latest=frozenset([LATEST]),
    forwarders=frozenset([FORWARDER]),
)
SIZE = 48


class Trace(EdgeTrace[EdgeChecker]):
    """Feeds the checker; every site has released messages 1 to 9."""

    def __init__(self, *keys: int) -> None:
        super().__init__(EDGE, EdgeChecker)
        self.released(1, *(keys or range(1, 10)))

    def released(self, first: int, *keys: int) -> None:
        messages = tuple([Data(0, E1, SOURCE, key, 1, event_payload(key, SIZE)) for key in keys])
        self.checker.on_released(Released(0, 1, E1, 1, 0, first, messages, 0, clock_kept=True, uncertified=False))

    def delivered(self, node: NodeId, *sequences: int) -> None:
        self.checker.on_delivered(Delivered(0, node, tuple([packet(sequence) for sequence in sequences])))

    def latest(self, *sequences: int, newest: int = 9) -> None:
        payload = b"".join([event_payload(sequence, SIZE) for sequence in sequences])
        self.checker.on_latest(LatestDelivered(0, LATEST, newest, payload, sequences))


def packet(sequence: int, key: int | None = None) -> wire.ReleasedPacket:
    payload = event_payload(sequence if key is None else key, SIZE)
    return wire.ReleasedPacket(0, E1, 1, 1, sequence, 0, 0, sequence, 1, payload, b"")


def restarted(node: NodeId, *, disk_kept: bool = True) -> Restarted:
    return Restarted(0, node, disk_kept, NO_EPOCH, NO_EPOCH, 0)


def test_a_complete_customer_gets_a_gapless_piece_of_the_sequence() -> None:
    trace = Trace()
    trace.delivered(COMPLETE, 3, 4, 5)
    trace.delivered(COMPLETE, 6, 7, 8, 9)
    assert trace.ended(COMPLETE) == []


def test_a_gap_and_a_repetition_break_s2_across_a_restart_too() -> None:
    trace = Trace()
    trace.delivered(COMPLETE, 3, 5)
    assert trace.found == ["S2"]
    trace.checker.on_restarted(restarted(COMPLETE))
    trace.delivered(COMPLETE, 5, 6)
    assert trace.found == ["S2", "S2"]


def test_who_lost_its_disk_begins_anew() -> None:
    trace = Trace()
    trace.delivered(COMPLETE, 3, 4)
    trace.checker.on_restarted(restarted(COMPLETE, disk_kept=False))
    trace.delivered(COMPLETE, 1, 2)
    assert trace.found == []


def test_other_content_breaks_s1_and_what_nobody_released_s4() -> None:
    trace = Trace()
    trace.checker.on_delivered(Delivered(0, COMPLETE, (packet(1, key=2),)))
    assert trace.found == ["S1"]
    trace.checker.on_delivered(Delivered(0, ARCHIVE, (packet(10),)))
    assert trace.found == ["S1", "S4"]


def test_whoever_lacks_something_at_the_end_breaks_l5_and_after_a_restart_l6() -> None:
    trace = Trace()
    trace.delivered(COMPLETE, 3, 4)
    trace.delivered(ARCHIVE, 1, 2)
    trace.checker.on_restarted(restarted(ARCHIVE))
    assert trace.ended() == []
    assert trace.ended(COMPLETE, ARCHIVE) == ["L5", "L6"]


def test_who_begins_when_all_is_over_lacks_nothing() -> None:
    trace = Trace()
    end = EndOfRun(now=1, correct=(), submissions_due=0, epochs={}, unacknowledged=0, edge={COMPLETE: 10, LATEST: 10})
    trace.checker.finish(end)
    assert trace.found == []


def test_an_archive_gives_only_what_is_on_its_disk() -> None:
    trace = Trace()
    trace.delivered(ARCHIVE, 1, 2, 3)
    trace.checker.on_given(Given(0, ARCHIVE, (packet(2), packet(3)), 3))
    assert trace.found == []
    trace.checker.on_given(Given(0, ARCHIVE, (packet(3), packet(4)), 3))
    trace.checker.on_given(Given(0, ARCHIVE, (packet(3, key=2),), 3))
    assert trace.found == ["S14", "S14"]


def test_an_archive_says_truly_how_far_it_goes() -> None:
    trace = Trace()
    trace.delivered(ARCHIVE, 1, 2, 3)
    for newest in (2, 4):
        trace.checker.on_given(Given(0, ARCHIVE, (), newest))
    assert trace.found == ["S14", "S14"]


def test_nobody_leaves_out_what_a_server_still_has() -> None:
    trace = Trace()
    trace.delivered(COMPLETE, 1)
    trace.checker.on_left_out(LeftOut(0, COMPLETE, 2, 3, kept=False))
    trace.delivered(COMPLETE, 4)
    assert trace.found == []
    trace.checker.on_left_out(LeftOut(0, COMPLETE, 5, 6, kept=True))
    assert trace.found == ["S14"]


def test_a_snapshot_is_what_the_sequence_says() -> None:
    trace = Trace(1, 2, 6, 7)
    newest = b"".join([event_payload(key, SIZE) for key in (6, 7)])
    trace.checker.on_snapshot(SnapshotTaken(0, COMPLETE, 5, newest))
    assert trace.found == []
    trace.checker.on_snapshot(SnapshotTaken(0, COMPLETE, 5, event_payload(1, SIZE)))
    assert trace.found == ["S15"]


def test_grade_latest_gets_no_older_event_of_a_key_after_a_newer_one() -> None:
    """Keys are five: 1 and 6 are of one."""
    trace = Trace()
    trace.latest(1, 3)
    trace.latest(7, 6, 4, 5, 8, 9)
    assert trace.found == []
    trace.latest(2)
    assert trace.found == ["S15"]
    trace.checker.on_restarted(restarted(LATEST))
    trace.latest(3)
    assert trace.found == ["S15"]


def test_grade_latest_gets_the_newest_of_each_key_or_is_told_of_a_gap() -> None:
    trace = Trace()
    trace.latest(4, 5, 6, 7, 8)
    assert trace.ended(LATEST) == ["L5"]
    trace.checker.on_left_out(LeftOut(0, LATEST, 9, 9, kept=True))
    assert trace.ended(LATEST) == ["L5"]


def test_grade_latest_that_hears_of_nothing_newer_breaks_l5() -> None:
    trace = Trace()
    trace.latest(4, 5, 6, 7, 8, newest=8)
    assert trace.ended(LATEST) == ["L5"]


def entrusted(*keys: int) -> Trace:
    """A secondary source took messages, numbered from 1, before anything was released."""
    trace = Trace(100)
    for number, key in enumerate(keys, 1):
        digest = payload_digest(event_payload(key, SIZE))
        trace.checker.on_entrusted(Entrusted(0, FORWARDER, number, digest))
    return trace


def test_what_a_secondary_source_took_enters_once_and_in_order() -> None:
    trace = entrusted(11, 12, 13)
    trace.released(2, 11, 12, 50, 13)
    assert trace.ended(FORWARDER) == []
    trace.released(6, 12)
    assert trace.found == ["S2"]


def test_what_overtakes_breaks_s3_and_what_never_enters_l1() -> None:
    trace = entrusted(11, 12, 13)
    trace.released(2, 12)
    assert trace.found == ["S3"]
    assert trace.ended(FORWARDER) == ["S3", "L1"]
    assert entrusted(11).ended() == []
