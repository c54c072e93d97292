"""The lab's account of its own lateness."""

from hypothesis import given
from hypothesis import strategies as st

from isocast.trials.lab.report import Distribution, Episode, LatenessHistogram, LatenessRecord

MS = 1_000_000


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_never_below_the_true_one_and_at_most_a_32nd_above(values: list[int], share: float) -> None:
    histogram = LatenessHistogram()
    for value in values:
        histogram.record(value)
    ranked = sorted(values)
    true = next(value for place, value in enumerate(ranked, 1) if place >= share * len(ranked))
    assert true <= histogram.percentile(share) <= true + true // 32 + 1


def test_the_largest_is_exact() -> None:
    histogram = LatenessHistogram()
    for value in (3, 123_456_789, 17):
        histogram.record(value)
    summary = histogram.summary()
    assert (summary.count, summary.p50_ns, summary.max_ns) == (3, 17, 123_456_789)


def test_an_empty_histogram_says_nothing() -> None:
    assert LatenessHistogram().summary() == Distribution()


def test_punctual_forwards_make_no_episode() -> None:
    record = LatenessRecord()
    for due in range(0, 100 * MS, MS):
        record.forwarded(due, due + 50_000, realtime_offset=0)
    assert record.episodes() == ()
    assert record.forwards.summary().count == 100


def test_late_frames_that_follow_each_other_are_one_episode_in_real_time() -> None:
    record = LatenessRecord(late_ns=2 * MS)
    epoch = 10**18
    record.forwarded(10 * MS, 13 * MS, epoch)
    record.forwarded(11 * MS, 18 * MS, epoch)
    record.woke(20 * MS, 22 * MS, epoch)
    record.forwarded(22 * MS, 22 * MS + 5, epoch)
    record.forwarded(500 * MS, 504 * MS, epoch)
    first, second = record.episodes()
    assert first == Episode(epoch + 10 * MS, epoch + 22 * MS, 7 * MS, 3)
    assert second == Episode(epoch + 500 * MS, epoch + 504 * MS, 4 * MS, 1)
    assert first.covers(epoch + 21 * MS, epoch + 30 * MS)
    assert not first.covers(epoch + 23 * MS, epoch + 30 * MS)


def test_a_starved_switch_shows_even_when_nothing_is_sent() -> None:
    record = LatenessRecord()
    record.woke(0, 40 * MS, realtime_offset=0)
    assert record.wakeups.summary().max_ns == 40 * MS
    assert len(record.episodes()) == 1
    assert record.forwards.summary().count == 0


def test_only_so_many_episodes_are_kept_the_newest() -> None:
    record = LatenessRecord()
    for number in range(1500):
        record.woke(number * 1000 * MS, number * 1000 * MS + 5 * MS, realtime_offset=0)
    episodes = record.episodes()
    assert len(episodes) == 1000
    assert episodes[-1].from_ns == 1499 * 1000 * MS
