"""Several stripes as one sequence: the same whatever comes first, and nothing before its place is certain."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from isocast.striping.merging import StripeMerge
from isocast.terms.ids import NO_EPOCH
from isocast.wire.packets import ReleasedPacket

PERIOD = 10


def message(stripe: int, sequence: int, instant: int) -> ReleasedPacket:
    return ReleasedPacket(stripe, NO_EPOCH, 1, 1, sequence, instant, stripe, sequence, 1, b"", b"")


def places(merge: StripeMerge) -> list[tuple[int, int, int]]:
    found = []
    while (run := merge.ready()) is not None:
        assert run.packets, "never nothing"
        found += [(packet.instant, run.stripe, packet.sequence) for packet in run.packets]
    return found


def test_a_message_waits_until_every_other_stripe_has_passed_its_instant() -> None:
    merge = StripeMerge([0, 1], PERIOD)
    merge.take(0, [message(0, 1, 100)])
    assert places(merge) == []
    assert merge.awaited == (1,)
    merge.passed(1, 89, 1)
    assert merge.awaited == (1,), "a token of 99 may still come"
    assert places(merge) == []
    merge.passed(1, 90, 1)
    assert places(merge) == [(100, 0, 1)]
    assert not merge.awaited


def test_at_one_instant_the_lower_stripe_comes_first() -> None:
    merge = StripeMerge([0, 1], PERIOD)
    merge.take(1, [message(1, 1, 100)])
    merge.passed(0, 89, 1)
    assert places(merge) == [], "stripe 0 may have a token of 100"
    merge.take(0, [message(0, 1, 100)])
    assert places(merge) == [(100, 0, 1)], "and more of it"
    merge.passed(0, 100, 2)
    assert places(merge) == [(100, 1, 1)]


def test_a_token_that_comes_in_parts_is_not_interrupted() -> None:
    merge = StripeMerge([0, 1], PERIOD)
    merge.take(0, [message(0, 1, 100)])
    merge.take(1, [message(1, 1, 105)])
    assert places(merge) == [(100, 0, 1)]
    merge.take(0, [message(0, 2, 100)])
    assert places(merge) == [(100, 0, 2)]
    merge.take(0, [message(0, 3, 110)])
    assert places(merge) == [(105, 1, 1)]


def test_the_cut_is_what_was_shown_until_then() -> None:
    merge = StripeMerge([0, 1], PERIOD)
    merge.take(0, [message(0, 1, 100), message(0, 2, 110), message(0, 3, 110)])
    assert merge.cut(99) is None, "stripe 1 may have had something"
    merge.take(1, [message(1, 1, 105)])
    before = merge.cut(104)
    assert before is not None
    assert before.last == ((0, 1), (1, 0))
    merge.passed(1, 105, 2)
    merge.passed(0, 110, 4)
    cut = merge.cut(107)
    assert cut is not None
    assert cut.last == ((0, 1), (1, 1))
    later = merge.cut(114)
    assert later is not None
    assert later.last == ((0, 3), (1, 1))


def test_who_joins_late_knows_nothing_of_before() -> None:
    merge = StripeMerge([0, 1], PERIOD)
    merge.take(0, [message(0, 41, 100), message(0, 42, 120)])
    merge.take(1, [message(1, 7, 115), message(1, 8, 130)])
    assert places(merge) == [(100, 0, 41), (115, 1, 7), (120, 0, 42)]
    assert merge.cut(120) is None, "the token of 120 may not be whole"
    cut = merge.cut(119)
    assert cut is not None
    assert cut.last == ((0, 41), (1, 7))


def test_a_line_that_lies_about_its_tokens_is_noticed() -> None:
    merge = StripeMerge([0, 1], PERIOD)
    merge.take(0, [message(0, 1, 100)])
    merge.passed(1, 200, 1)
    assert places(merge) == [(100, 0, 1)]
    merge.take(1, [message(1, 1, 90), message(1, 2, 300)])
    merge.take(0, [message(0, 2, 300)])
    assert merge.disordered, "said that nothing was there"
    assert places(merge)[0] == (90, 1, 1), "and nothing is lost"


@st.composite
def stories(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """For each stripe its tokens: (instant, messages)."""
    story = []
    for _ in range(draw(st.integers(2, 4))):
        instant, tokens = draw(st.integers(0, 15)), []
        for _ in range(draw(st.integers(0, 6))):
            tokens.append((instant, draw(st.integers(0, 3))))
            instant += PERIOD + draw(st.integers(0, 12))
        story.append(tokens)
    return story


@given(stories(), st.integers(0, 2**32))
def test_whatever_comes_first_the_order_is_that_of_instants(story: list[list[tuple[int, int]]], seed: int) -> None:
    """Stripes are fed in parts, at random; tokens are told of, or not; what is shown never has to be taken back."""
    random = Random(seed)
    feeds: list[list[tuple[str, int, int, int]]] = []
    everything = []
    for stripe, tokens in enumerate(story):
        feed, sequence = [], 1
        for instant, number in tokens:
            for _ in range(number):
                feed.append(("message", stripe, sequence, instant))
                everything.append((instant, stripe, sequence))
                sequence += 1
            if random.random() < 0.7:
                feed.append(("passed", stripe, sequence, instant))
        feed.append(("passed", stripe, sequence, 10_000))
        feeds.append(feed)
    merge, shown = StripeMerge(range(len(story)), PERIOD), []
    while any(feeds):
        kind, stripe, sequence, instant = random.choice([feed for feed in feeds if feed]).pop(0)
        if kind == "message":
            merge.take(stripe, [message(stripe, sequence, instant)])
        else:
            merge.passed(stripe, instant, sequence)
        shown += places(merge)
        assert shown == sorted(everything)[: len(shown)]
        at = random.randrange(150)
        cut = merge.cut(at)
        assert cut is None or cut.last == truth(everything, len(story), at), "never a wrong one"
    assert shown == sorted(everything)
    for at in range(150):
        cut = merge.cut(at)
        assert cut is not None
        assert cut.last == truth(everything, len(story), at)
    assert not merge.disordered


def truth(everything: list[tuple[int, int, int]], stripes: int, at: int) -> tuple[tuple[int, int], ...]:
    existed = [(stripe, sequence) for instant, stripe, sequence in everything if instant <= at]
    return tuple((s, max([sequence for stripe, sequence in existed if stripe == s], default=0)) for s in range(stripes))
