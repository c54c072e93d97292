"""Several feeds in their own time order, however they are cut into blocks; and digests that compare them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isocast.feeds.merge import merge_feeds
from isocast.feeds.tape_digest import TapeDigest
from isocast.wire.events import EVENT_DTYPE, EventArray

TIMES = st.lists(st.lists(st.integers(0, 12), max_size=25), max_size=5)


def feed(place: int, times: list[int]) -> EventArray:
    events = np.zeros(len(times), EVENT_DTYPE)
    events["kind"] = 1
    events["floor"] = f"FL{place:02}"
    events["time"] = times
    events["id"] = np.arange(len(times))
    return events


def blocks(events: EventArray, cuts: list[int]) -> list[EventArray]:
    return np.split(events, sorted(cut % (len(events) + 1) for cut in cuts))


def joined(found: list[EventArray]) -> EventArray:
    return np.concatenate([np.empty(0, EVENT_DTYPE), *found])


def expected(feeds: list[EventArray]) -> list[tuple[bytes, int]]:
    """By the latest time that its feed has shown, then by feed, then by place."""
    rows = []
    for place, events in enumerate(feeds):
        latest = 0
        for number, time in enumerate(events["time"].tolist()):
            latest = max(latest, time)
            rows.append((latest, place, number))
    return [(f"FL{place:02}".encode(), number) for _, place, number in sorted(rows)]


@given(times=TIMES, cuts=st.lists(st.integers(0, 100), max_size=6))
def test_feeds_merge_by_time_and_keep_their_own_order(times: list[list[int]], cuts: list[int]) -> None:
    feeds = [feed(place, each) for place, each in enumerate(times)]
    merged = joined(list(merge_feeds([blocks(events, cuts[place:]) for place, events in enumerate(feeds)])))
    assert list(zip(merged["floor"].tolist(), merged["id"].tolist(), strict=True)) == expected(feeds)


def test_nothing_is_read_long_before_it_is_needed() -> None:
    """A feed of the evening waits with its second block while the morning is merged."""
    read = []

    def told(name: str, starts: list[int]) -> list[EventArray]:
        def parts() -> object:
            for start in starts:
                read.append((name, start))
                yield feed(0, list(range(start, start + 10)))

        return parts()  # type: ignore[return-value]

    merging = merge_feeds([told("morning", [0, 10, 20]), told("evening", [1_000, 1_010])])
    first = next(merging)
    assert first["time"].max() < 20
    assert ("evening", 1_010) not in read


@given(times=st.lists(st.integers(0, 9), max_size=30), cuts=st.lists(st.integers(0, 100), max_size=6))
def test_a_digest_does_not_see_blocks(times: list[int], cuts: list[int]) -> None:
    events = feed(1, times)
    events["floor"] = np.where(events["time"] % 2, b"ODDS", b"EVEN")
    whole, cut = TapeDigest(), TapeDigest()
    whole.update(events)
    for block in blocks(events, cuts):
        cut.update(block)
    assert (whole.hex, whole.floors, whole.events) == (cut.hex, cut.floors, cut.events)


def test_another_interleaving_changes_the_whole_and_no_floor() -> None:
    one, other = feed(1, [1, 2, 3]), feed(2, [1, 2, 3])
    before, after = TapeDigest(), TapeDigest()
    for events in (one, other):
        before.update(events)
    for events in (other, one):
        after.update(events)
    assert before.hex != after.hex
    assert before.floors == after.floors


def test_any_change_of_an_event_changes_the_digest() -> None:
    events = feed(1, [1, 2, 3])
    digests = set()
    for name in EVENT_DTYPE.names or ():
        changed = events.copy()
        changed[name][1] = b"ZZ" if name in ("floor", "symbol") else 9
        digest = TapeDigest()
        digest.update(changed)
        digests.add(digest.hex)
    assert len(digests) == len(EVENT_DTYPE.names or ())
