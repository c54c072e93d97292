"""Release instants in tracking numbers: what is stamped is read, and nothing else of a message changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import OPEN, frame

from isocast.feeds.release_stamps import STAMP_STEP_NS, read_release, stamp_release

MESSAGES = [itch.directory(1, OPEN, "ISO"), itch.system(OPEN, "Q"), itch.trade(1, OPEN, 5, "ISO", 77, 9)]
FRAMED = [frame(message) for message in MESSAGES]
RELEASE = 1_700_000_000_123_456_789

releases = st.integers(RELEASE, RELEASE + 10**15)
shifts = st.integers(-30 * 10**9, 30 * 10**9)


@given(releases, st.integers(1, (1 << 64) - 1), shifts, st.integers(2, 3))
def test_two_messages_say_the_instant(release: int, first: int, shift: int, count: int) -> None:
    """To 16 ns, for receivers that know the time within half a minute."""
    body = stamp_release(b"".join(FRAMED[:count]), first, release)
    found, exactly = read_release(body, first, release + shift)
    assert exactly == STAMP_STEP_NS
    assert 0 <= release - found < STAMP_STEP_NS


@given(releases, shifts)
def test_one_message_says_the_millisecond_or_the_place_in_it(release: int, shift: int) -> None:
    even, exactly = read_release(stamp_release(FRAMED[0], 2, release), 2, release + shift)
    assert (release // 10**6 * 10**6, 10**6) == (even, exactly)
    near = release + shift % 400_000
    odd, exactly = read_release(stamp_release(FRAMED[0], 3, release), 3, near)
    assert exactly == STAMP_STEP_NS
    assert 0 <= release - odd < STAMP_STEP_NS


def test_nothing_else_changes() -> None:
    whole = b"".join(FRAMED)
    stamped = stamp_release(whole, 7, RELEASE)
    at = 0
    for message in FRAMED:
        got = stamped[at : at + len(message)]
        assert got[:5] + got[7:] == message[:5] + message[7:]
        at += len(message)
    assert len(stamped) == len(whole)
    assert stamp_release(b"", 1, RELEASE) == b""


def test_messages_of_one_size_need_no_search() -> None:
    trades = FRAMED[2] * 5
    for first in (1, 2, (1 << 64) - 1):
        assert stamp_release(trades, first, RELEASE, size=len(FRAMED[2])) == stamp_release(trades, first, RELEASE)
