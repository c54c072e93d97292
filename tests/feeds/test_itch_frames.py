"""Malformed files: each fault is named with its byte, and what is sound is read."""

from struct import pack

import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import frame
from tests.feeds.test_itch_decoder import decode

from isocast.feeds.outcomes import FeedFault
from isocast.terms.errors import FeedError

TRADES = [itch.trade(1, clock, 100, "ISO", 10_000, clock) for clock in range(1, 41)]
SIZE = 46
"""Of a framed trade."""


def ids(raw: bytes, size: int = 1 << 20) -> list[int]:
    found: list[int] = decode(raw, size)[0]["id"].tolist()
    return found


@pytest.mark.parametrize("size", [50, 300, 1 << 20])
def test_an_unknown_type_is_skipped_by_its_length(size: int) -> None:
    strange = b"z" + bytes(29)
    raw = frame(*TRADES[:10], strange, strange, *TRADES[10:])
    events, log = decode(raw, size)
    assert events["id"].tolist() == list(range(1, 41))
    assert log.faults == {
        FeedFault.UNKNOWN_TYPE: {"count": 2, "first_offset": 460, "first": "a message of type 'z' has 30 bytes"}
    }


def test_a_strict_reader_stops_at_an_unknown_type_and_says_what_to_do() -> None:
    raw = frame(*TRADES[:10], b"z" + bytes(29), *TRADES[10:])
    with pytest.raises(FeedError) as caught:
        decode(raw, strict=True)
    assert str(caught.value) == (
        "test.itch: byte 460: unknown-type: a message of type 'z' has 30 bytes "
        "(is it ITCH 5.0? Without --strict the message is skipped by its length)"
    )
    assert caught.value.offset == 460


def test_a_known_type_of_another_length_is_skipped_whole() -> None:
    raw = frame(*TRADES[:10], TRADES[0] + b"more", *TRADES[10:])
    events, log = decode(raw)
    assert len(events) == 40
    assert log.faults[FeedFault.BAD_LENGTH]["first"] == "a message of type 'P' has 48 bytes, not 44"
    assert log.faults[FeedFault.BAD_LENGTH]["first_offset"] == 460


def test_both_bytes_of_a_length_count() -> None:
    long = TRADES[0] + bytes(256)
    events, log = decode(frame(*TRADES[:10], long, *TRADES[10:]))
    assert len(events) == 40
    assert log.faults[FeedFault.BAD_LENGTH]["first"] == "a message of type 'P' has 300 bytes, not 44"


def test_a_damaged_length_costs_one_message() -> None:
    raw = bytearray(frame(*TRADES))
    raw[460:462] = pack(">H", 9_999)
    events, log = decode(bytes(raw))
    assert events["id"].tolist() == [*range(1, 11), *range(12, 41)]
    assert log.faults[FeedFault.BAD_LENGTH]["first_offset"] == 460


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_bytes_that_are_no_messages_cost_themselves_alone(size: int) -> None:
    raw = frame(*TRADES[:10]) + b"\xff\xfe" * 40 + frame(*TRADES[10:])
    events, log = decode(raw, size)
    assert events["id"].tolist() == list(range(1, 41))
    assert log.faults[FeedFault.GARBAGE]["first_offset"] == 460


def test_a_file_without_lengths_is_read_by_its_types() -> None:
    raw = b"".join(b"\0\0" + each for each in TRADES)
    events, log = decode(raw)
    assert len(events) == 40
    assert log.faults[FeedFault.MISSING_LENGTH]["count"] == 40


@pytest.mark.parametrize("cut", range(1, SIZE))
def test_a_cut_last_message_is_named(cut: int) -> None:
    raw = frame(*TRADES)[:-cut]
    events, log = decode(raw)
    assert len(events) == 39
    assert log.faults == {
        FeedFault.TRUNCATED: {
            "count": 1,
            "first_offset": 39 * SIZE,
            "first": f"the feed ends {SIZE - cut} bytes into a message",
        }
    }


def test_a_message_that_looks_like_others_inside_is_one_message() -> None:
    """Its fields hold what a length and a type would be: the chain decides."""
    decoy = pack(">H", 19) + b"D"
    inner = itch.message("A", 1, 5, decoy + b"\0" * 5 + b"B" + pack(">I", 10) + itch.stock("ISO") + pack(">I", 7))
    events, log = decode(frame(*TRADES[:3], inner, *TRADES[3:]))
    assert len(events) == 41
    assert FeedFault.BACKWARD_TIME in log.faults
    assert set(log.faults) == {FeedFault.BACKWARD_TIME}


def test_zeros_are_no_messages() -> None:
    events, log = decode(frame(*TRADES) + bytes(10_000))
    assert len(events) == 40
    assert log.faults[FeedFault.GARBAGE]["first_offset"] == 40 * SIZE


def test_nothing_at_all_is_no_fault() -> None:
    events, log = decode(b"")
    assert not len(events)
    assert not log.faults
