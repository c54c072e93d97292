"""Stripes that fall silent are told of once, and once more when they are back."""

from isocast.runtime.edge.narrow.listener import HeardStripe, SilenceWatch
from isocast.terms.instants import SECOND

STRIPES = [HeardStripe(line, stripe) for line in ("london", "tokyo") for stripe in (1, 2)]


def test_silence_is_told_once_by_line_and_so_is_its_end() -> None:
    watch = SilenceWatch(5 * SECOND)
    watch.expect(STRIPES, 0)
    watch.heard("london", 1, 4 * SECOND)
    assert watch.poll(5 * SECOND) == []
    fallen = watch.poll(6 * SECOND)
    assert [text.partition(" for ")[0] for text in fallen] == [
        "london sends nothing on stripe 2",
        "tokyo sends nothing on stripes 1, 2",
    ]
    assert watch.poll(7 * SECOND) == []
    watch.heard("tokyo", 2, 8 * SECOND)
    assert watch.poll(8 * SECOND) == ["tokyo is heard again on stripe 2"]


def test_what_is_not_expected_any_more_is_not_missed() -> None:
    watch = SilenceWatch(5 * SECOND)
    watch.expect(STRIPES, 0)
    assert len(watch.poll(6 * SECOND)) == 2
    watch.expect([HeardStripe("london", 7)], 6 * SECOND)
    watch.heard("tokyo", 1, 7 * SECOND)
    assert watch.poll(7 * SECOND) == []
    assert watch.poll(12 * SECOND)[0].startswith("london sends nothing on stripe 7")


def test_many_stripes_are_counted() -> None:
    watch = SilenceWatch(5 * SECOND)
    watch.expect([HeardStripe("london", number) for number in range(1, 27)], 0)
    assert watch.poll(6 * SECOND)[0].startswith("london sends nothing on stripes 1, 2, 3, 4, 5 and 21 more")
