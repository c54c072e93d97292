"""ITCH without the framing of files: back to back, and in SoupBinTCP packets."""

from __future__ import annotations

from struct import pack

import numpy as np
import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import MIDNIGHT, OPEN, frame
from tests.feeds.test_itch_decoder import decode

from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.itch_streams import (
    ItchStream,
    SoupPackets,
    UnframedMessages,
    begins_like_soup,
    begins_like_unframed,
)
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.feeds.recognition import begins_like_events, begins_like_itch
from isocast.terms.market import Mic
from isocast.wire.events import EVENT_DTYPE, EventArray

DAY = itch.day()


def packet(kind: str, payload: bytes = b"") -> bytes:
    return pack(">H", len(payload) + 1) + kind.encode() + payload


def accepted(number: int, session: str = "SESSION") -> bytes:
    return packet("A", session.rjust(10).encode() + str(number).rjust(20).encode())


def session(*messages: bytes, number: int = 1) -> bytes:
    """As a client records it."""
    login = packet("L", b"USER  PASSWORD  " + b" " * 10 + b"1".rjust(20))
    sequenced = b"".join(packet("S", each) for each in messages)
    return login + accepted(number) + packet("H") + sequenced + packet("+", b"debug") + packet("Z")


def read(raw: bytes, framing: str, size: int = 1 << 20) -> tuple[EventArray, FeedLog]:
    log = FeedLog("x")
    frames = SoupPackets(log) if framing == "soup" else UnframedMessages()
    stream = ItchStream(ItchDecoder(Mic("XNAS"), MIDNIGHT, log), frames)
    blocks = list(stream.blocks(raw[at : at + size] for at in range(0, len(raw), size)))
    assert len(stream.directory) > 0 or log.faults
    return np.concatenate([np.empty(0, EVENT_DTYPE), *blocks]), log


@pytest.mark.parametrize("size", [1 << 20, 100, 3])
@pytest.mark.parametrize("framing, raw", [("none", b"".join(DAY)), ("soup", session(*DAY))])
def test_the_same_messages_give_the_same_events(framing: str, raw: bytes, size: int) -> None:
    events, log = read(raw, framing, size)
    framed, reference = decode(frame(*DAY))
    assert events.tobytes() == framed.tobytes()
    assert log.messages == reference.messages
    assert log.total_faults == reference.total_faults
    assert log.bytes_read == len(raw)


def test_packets_without_messages_are_counted() -> None:
    _, log = read(session(*DAY) + packet("U", b"x"), "soup")
    counted = {reason: count for reason, count in log.skipped.items() if reason.startswith("SoupBinTCP")}
    assert counted == {
        "SoupBinTCP L login request": 1,
        "SoupBinTCP A login accepted": 1,
        "SoupBinTCP H server heartbeat": 1,
        "SoupBinTCP + debug": 1,
        "SoupBinTCP Z end of session": 1,
        "SoupBinTCP U unsequenced data": 1,
    }
    assert log.notes == ["SoupBinTCP session SESSION begins at message 1"]


def test_a_second_login_repeats_messages_which_are_taken_once() -> None:
    again = accepted(len(DAY) - 1) + b"".join(packet("S", each) for each in DAY[-2:])
    events, log = read(session(*DAY) + again, "soup")
    assert events.tobytes() == decode(frame(*DAY))[0].tobytes()
    assert log.skipped["messages that came twice"] == 2


def test_a_second_login_behind_what_was_read_is_a_gap() -> None:
    _, log = read(session(*DAY) + accepted(len(DAY) + 6), "soup")
    record = log.faults[FeedFault.GAP]
    assert record["count"] == 5
    assert record["first_offset"] == len(session(*DAY))
    assert f"messages {len(DAY) + 1} to {len(DAY) + 5} are missing" in record["first"]


@pytest.mark.parametrize("size", [1 << 20, 100])
def test_reading_goes_on_behind_garbage(size: int) -> None:
    """One fault at its byte; everything around it is read."""
    trades = [itch.trade(1, OPEN + place, 5, "ISO", 77, place) for place in range(8)]
    head = [itch.directory(1, OPEN, "ISO"), *trades]
    plain = b"".join(head) + b"\xff" * 50 + b"".join(trades)
    events, log = read(plain, "none", size)
    assert len(events) == 17
    assert log.faults[FeedFault.GARBAGE]["first_offset"] == len(b"".join(head))
    assert log.faults[FeedFault.GARBAGE]["count"] == 1
    soup = session(*head) + b"\xff" * 50 + b"".join(packet("S", each) for each in trades)
    events, log = read(soup, "soup", size)
    assert len(events) == 17
    assert log.faults[FeedFault.GARBAGE]["first"] == "50 bytes that are no packets"


@pytest.mark.parametrize(
    "bad, kind, what",
    [
        (packet("S", b"P" + bytes(20)), FeedFault.BAD_LENGTH, "type 'P' has 21 bytes"),
        (packet("S", b"z" + bytes(20)), FeedFault.UNKNOWN_TYPE, "type 'z' has 21 bytes"),
        (packet("A", b"SESSION   " + b"x" * 20), FeedFault.BAD_VALUE, "without a number"),
    ],
)
def test_what_is_wrong_with_a_packet_is_said_at_its_byte(bad: bytes, kind: FeedFault, what: str) -> None:
    head = session(*DAY)
    _, log = read(head + bad + packet("H"), "soup")
    assert log.faults[kind]["first_offset"] == len(head)
    assert what in log.faults[kind]["first"]


@pytest.mark.parametrize("framing, raw", [("none", b"".join(DAY)), ("soup", session(*DAY))])
def test_a_cut_feed_says_so(framing: str, raw: bytes) -> None:
    cut = raw[:-1] + (b"\0\x27S" if framing == "soup" else b"")
    _, log = read(cut if framing == "none" else raw + b"\0\x27SA", framing)
    assert log.faults[FeedFault.TRUNCATED]["count"] == 1


def test_each_framing_is_told_from_the_others() -> None:
    plain, soup, framed = b"".join(DAY), session(*DAY), frame(*DAY)
    assert [begins_like_unframed(raw) for raw in (plain, soup, framed)] == [True, False, False]
    assert [begins_like_soup(raw) for raw in (plain, soup, framed)] == [False, True, False]
    assert [begins_like_itch(raw) for raw in (plain, soup, framed)] == [False, False, True]
    assert not any(begins_like_events(raw[:480]) for raw in (plain, soup))
    random = np.random.default_rng(3)
    noise = [random.bytes(4_096) for _ in range(300)] + [bytes(4_096)]
    assert not any(begins_like_soup(each) or begins_like_unframed(each) for each in noise)
