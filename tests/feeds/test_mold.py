"""MoldUDP64: packets as the protocol prescribes, and every message once and in order out of whatever comes."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import MIDNIGHT, frame

from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import (
    HEADER_BYTES,
    MoldCounts,
    MoldReader,
    end_of_session,
    heartbeat,
    packetise,
    parse_packet,
    parse_request,
    request,
)
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError, LocalProtocolError, RemoteProtocolError
from isocast.terms.market import Mic

TRADES = [itch.trade(1, clock, 100, "ISO", 10_000, clock) for clock in range(1, 101)]
PACKETS = list(packetise("ISO", 1, frame(*TRADES), room=300))


def reader(*, strict: bool = False, waiting_max: int = 1_024) -> MoldReader:
    log = FeedLog("test.pcap", strict=strict)
    return MoldReader(lambda _: ItchDecoder(Mic("XNAS"), MIDNIGHT, log), log, waiting_max=waiting_max)


def log_of(made: MoldReader) -> FeedLog:
    return made._log  # noqa: SLF001


def counts(made: MoldReader) -> MoldCounts:
    """Of the only session."""
    ((_, session),) = made.streams
    return session.counts


def ids(made: MoldReader, packets: list[bytes]) -> list[int]:
    for place, packet in enumerate(packets):
        made.receive(packet, 1_000 * place)
    return [number for block in made.end() for number in block["id"].tolist()]


# ---- packets


def test_the_bytes_of_a_packet() -> None:
    (packet,) = packetise("ISO", 7, frame(TRADES[0], TRADES[1]))
    assert packet[:20] == b"ISO       " + (7).to_bytes(8) + (2).to_bytes(2)
    assert packet[20:] == frame(TRADES[0], TRADES[1])


def test_heartbeats_ends_and_requests_are_twenty_bytes() -> None:
    assert heartbeat("ISO", 5) == b"ISO       " + (5).to_bytes(8) + b"\0\0"
    assert end_of_session("ISO", 5) == b"ISO       " + (5).to_bytes(8) + b"\xff\xff"
    assert request("ISO", 5, 3) == b"ISO       " + (5).to_bytes(8) + b"\0\3"
    asked = parse_request(request("ISO", 5, 3))
    assert (asked.session, asked.sequence, asked.count) == (b"ISO       ", 5, 3)
    assert parse_packet(heartbeat("ISO", 5)).is_heartbeat
    assert parse_packet(end_of_session("ISO", 5)).is_end


@given(sizes=st.lists(st.integers(0, 200), max_size=60), room=st.integers(222, 2_000))
def test_packets_are_full_and_lose_nothing(sizes: list[int], room: int) -> None:
    framed = b"".join(size.to_bytes(2) + bytes(size) for size in sizes)
    packets = list(packetise("S", 1, framed, room=room))
    parsed = [parse_packet(packet) for packet in packets]
    assert b"".join(packet.body for packet in parsed) == framed
    assert all(len(packet) <= room for packet in packets)
    assert sum(packet.messages for packet in parsed) == len(sizes)
    assert all(after.sequence == before.sequence + before.count for before, after in pairwise(parsed))
    for before, after in pairwise(parsed):
        assert HEADER_BYTES + len(before.body) + 2 + int.from_bytes(after.body[:2]) > room, "one more would not fit"


def test_what_cannot_be_sent_is_refused() -> None:
    for session in ("", "ELEVENCHARS"):
        with pytest.raises(LocalProtocolError, match="1 to 10 letters"):
            heartbeat(session, 1)
    with pytest.raises(LocalProtocolError, match="does not fit 40"):
        list(packetise("S", 1, frame(TRADES[0]), room=40))
    with pytest.raises(LocalProtocolError, match="is cut"):
        list(packetise("S", 1, frame(TRADES[0])[:-1]))
    with pytest.raises(LocalProtocolError, match="can be asked for"):
        request("S", 1, 65_535)


@pytest.mark.parametrize(
    "raw, rule",
    [
        (b"", "0 bytes are too short"),
        (PACKETS[0][:19], "19 bytes are too short"),
        (PACKETS[0][:-1], "messages of 276 bytes in a body of 275"),
        (PACKETS[0] + b"!", "messages of 276 bytes in a body of 277"),
        (PACKETS[0][:40], "its lengths pass its end at message 2 of 6"),
        (heartbeat("S", 1) + b"!", "1 bytes after a heartbeat"),
        (b"S".ljust(10) + b"\xff" * 8 + b"\0\1" + b"\0\0", "passes 64 bits"),
    ],
)
def test_a_packet_whose_lengths_do_not_fit_is_refused(raw: bytes, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        parse_packet(raw)


@pytest.mark.parametrize("raw", [b"", request("S", 1, 1) + b"!", heartbeat("S", 1), end_of_session("S", 1)])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_request(raw)


# ---- streams


def test_a_stream_in_order_is_what_was_sent() -> None:
    made = reader(strict=True)
    assert ids(made, [heartbeat("ISO", 1), *PACKETS, heartbeat("ISO", 101), end_of_session("ISO", 101)]) == list(
        range(1, 101)
    )
    found = counts(made)
    assert (found.session, found.first, found.last, found.ended, found.heartbeats) == ("ISO", 1, 100, True, 2)
    assert (found.messages, found.missing, found.gaps) == (100, 0, 0)


@given(seed=st.integers(0, 1000))
def test_two_lines_that_overtake_each_other_give_every_message_once(seed: int) -> None:
    """Packets of both lines, cut differently, late by up to a dozen places."""
    random = Random(seed)
    other = list(packetise("ISO", 1, frame(*TRADES), room=500))
    late = [(place * 6 + random.random() * 70, packet) for place, packet in enumerate(PACKETS)]
    late += [(place * 10 + random.random() * 70, packet) for place, packet in enumerate(other)]
    made = reader(strict=True)
    made.receive(heartbeat("ISO", 1), 0)
    packets = [packet for _, packet in sorted(late)]
    assert ids(made, packets) == list(range(1, 101))
    assert counts(made).repeated == 100


def test_of_two_that_wait_alike_the_longer_counts() -> None:
    short, long = (next(packetise("ISO", 7, frame(*TRADES[6:]), room=room)) for room in (100, 500))
    for order in ([short, long], [long, short]):
        made = reader(strict=True)
        assert ids(made, [heartbeat("ISO", 1), *order, PACKETS[0]]) == list(range(1, 17))


def test_taking_in_between_changes_nothing() -> None:
    made = reader()
    parts = []
    for packet in PACKETS:
        made.receive(packet, 0)
        parts += made.take()
    parts += made.end()
    assert np.concatenate(parts)["id"].tolist() == list(range(1, 101))


def test_a_gap_is_counted_and_reading_goes_on() -> None:
    made = reader()
    assert ids(made, [PACKETS[0], *PACKETS[3:]]) == [*range(1, 7), *range(19, 101)]
    assert (counts(made).missing, counts(made).gaps) == (12, 1)
    assert log_of(made).faults[FeedFault.GAP] == {
        "count": 12,
        "first_offset": 1_000,
        "first": "messages 7 to 18 are missing",
    }
    with pytest.raises(FeedError, match="gap: messages 7 to 18 are missing"):
        ids(reader(strict=True), [PACKETS[0], *PACKETS[3:]])


def test_only_so_many_packets_wait_for_a_gap() -> None:
    made = reader(waiting_max=4)
    made.receive(PACKETS[0], 0)
    for packet in PACKETS[2:6]:
        made.receive(packet, 0)
    assert len(made.take()[0]) == 6
    made.receive(PACKETS[6], 0)
    assert len(made.take()[0]) == 30, "the fifth that waits ends the waiting"
    made.receive(PACKETS[1], 0)
    made.end()
    assert (counts(made).missing, counts(made).repeated) == (6, 0)
    assert log_of(made).skipped == {
        "messages that came after their gap was given up: they are among the missing ones": 6
    }


@pytest.mark.parametrize(
    "proof, words", [(heartbeat("ISO", 323), "a heartbeat"), (end_of_session("ISO", 323), "the end of the session")]
)
def test_a_lost_tail_that_the_next_number_proves_is_a_gap_of_its_size(proof: bytes, words: str) -> None:
    made = reader()
    assert ids(made, [*PACKETS, proof]) == list(range(1, 101))
    assert (counts(made).missing, counts(made).gaps, counts(made).last) == (222, 1, 322)
    assert log_of(made).faults[FeedFault.GAP] == {
        "count": 222,
        "first_offset": 17_000,
        "first": f"messages 101 to 322 are missing, as {words} says",
    }


def test_a_heartbeat_ahead_of_its_packets_proves_nothing_once_they_come() -> None:
    made = reader(strict=True)
    assert ids(made, [PACKETS[0], heartbeat("ISO", 101), *PACKETS[1:]]) == list(range(1, 101))


def test_messages_that_were_sent_while_only_heartbeats_came_are_missing() -> None:
    made = reader()
    assert ids(made, [heartbeat("ISO", 5), heartbeat("ISO", 11)]) == []
    assert (counts(made).missing, counts(made).first, counts(made).last) == (6, 5, 10)


def test_a_late_join_begins_at_its_first_number_and_is_no_loss() -> None:
    made = reader(strict=True)
    assert ids(made, PACKETS[3:]) == list(range(19, 101))
    assert counts(made).first == 19
    assert log_of(made).notes == ["session ISO begins at message 19"]


def test_packets_that_overtake_each_other_at_a_late_join_are_all_had() -> None:
    made = reader(strict=True)
    assert ids(made, [PACKETS[4], PACKETS[3], *PACKETS[5:]]) == list(range(19, 101))
    assert counts(made).repeated == 0


def test_what_comes_from_before_a_late_join_is_counted_and_not_called_repeated() -> None:
    made = reader()
    late = list(packetise("ISO", 19, frame(*TRADES[18:]), room=100))
    assert ids(made, [*late, PACKETS[0]]) == list(range(19, 101))
    assert counts(made).repeated == 0
    assert log_of(made).skipped == {"messages from before the first one that was taken": 6}


def test_sessions_that_alternate_are_judged_each_for_itself() -> None:
    other = list(packetise("NEXT", 1, frame(*TRADES[:36]), room=300))
    made = reader()
    mixed = [packet for pair in zip(PACKETS, other[:4], strict=False) for packet in pair]
    ids(made, [*mixed, *PACKETS[4:], heartbeat("NEXT", 37)])
    found = {session.counts.session: session.counts for _, session in made.streams}
    assert (found["ISO"].messages, found["ISO"].missing) == (100, 0)
    assert (found["NEXT"].messages, found["NEXT"].missing) == (24, 12)


def test_lines_of_one_session_on_two_groups_are_one_stream() -> None:
    made = reader(strict=True)
    other = list(packetise("ISO", 1, frame(*TRADES), room=500))
    for packet in PACKETS[:4] + PACKETS[6:]:
        made.receive(packet, 0, ("239.0.0.1", 1))
    for packet in other:
        made.receive(packet, 0, ("239.0.0.2", 1))
    assert [number for block in made.end() for number in block["id"].tolist()] == list(range(1, 101))
    ((lines, _),) = made.streams
    assert lines == [("239.0.0.1", 1), ("239.0.0.2", 1)]


def test_two_feeds_whose_sessions_have_the_same_name_stay_two() -> None:
    made = reader(strict=True)
    others = [itch.trade(1, clock, 100, "ISO", 10_000, 1_000 + clock) for clock in range(1, 11)]
    for packet in PACKETS:
        made.receive(packet, 0, ("239.0.0.1", 1))
    for packet in packetise("ISO", 1, frame(*others)):
        made.receive(packet, 0, ("239.0.0.1", 2))
    assert [len(block) for block in made.end()] == [100, 10]


def test_a_number_that_comes_again_with_other_bytes_is_a_fault() -> None:
    made = reader()
    (forged,) = packetise("ISO", 7, frame(itch.trade(1, 1, 1, "ISO", 1, 999)))
    assert ids(made, [*PACKETS, forged]) == list(range(1, 101))
    assert log_of(made).faults[FeedFault.BAD_PACKET]["count"] == 1


def test_a_new_session_begins_with_its_own_numbers() -> None:
    made = reader()
    assert ids(made, [PACKETS[0], *packetise("NEXT", 1, frame(*TRADES[:3]))]) == [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert [session.counts.session for _, session in made.streams] == ["ISO", "NEXT"]
    assert (
        log_of(made).faults[FeedFault.SESSION_CHANGED]["first"] == "session ISO has not ended when session NEXT begins"
    )
    ids(reader(strict=True), [PACKETS[0], end_of_session("ISO", 7), *packetise("NEXT", 1, frame(*TRADES[:3]))])


def test_damaged_names_of_sessions_do_not_fill_the_memory() -> None:
    made = reader()
    for number in range(1_002):
        made.receive(heartbeat(f"S{number}", 1), number)
    assert len(made.streams) == 1_000
    assert log_of(made).faults[FeedFault.BAD_PACKET]["count"] == 2


def test_unknown_types_and_wrong_lengths_cost_their_message_alone() -> None:
    framed = frame(TRADES[0], b"z" * 20, TRADES[1][:30], b"", TRADES[2])
    made = reader()
    assert ids(made, list(packetise("S", 1, framed))) == [1, 3]
    faults = log_of(made).faults
    assert faults[FeedFault.UNKNOWN_TYPE]["count"] == 1
    assert faults[FeedFault.BAD_LENGTH]["count"] == 2


def test_packets_without_numbers_are_taken_as_they_come() -> None:
    blank = [bytes(18) + packet[18:] for packet in PACKETS[:3]]
    assert ids(reader(strict=True), blank) == list(range(1, 19))
