"""F4: what a token takes of what waits at its owner, and in which order."""

from tests.checks.traces import E1, broken, law

from isocast.checks.facts import BatchTaken
from isocast.terms.ids import source_id
from isocast.terms.instants import SECOND

A, B, C = source_id(1), source_id(2), source_id(3)
LAW = law(batch_max=4)


def judged(
    taken: list[tuple[int, int, int]], left: tuple[tuple[int, int], ...] = (), *, shuffled: bool = False
) -> list[str]:
    fact = BatchTaken(SECOND, 1, E1, 7, tuple(taken), left)
    return broken([fact], law(batch_max=4, shuffled=shuffled))


def test_a_token_takes_everything_that_waits() -> None:
    assert judged([(A, 1, 1), (B, 1, 2)]) == []
    assert judged([(A, 1, 1)], ((B, 1),)) == ["F4"]


def test_a_full_token_takes_fair_shares() -> None:
    fair = [(A, 1, 1), (A, 2, 2), (B, 1, 3), (B, 2, 4)]
    assert judged(fair, ((A, 5), (B, 1))) == []
    favoured = [(A, 1, 1), (A, 2, 2), (A, 3, 3), (B, 1, 4)]
    assert judged(favoured, ((A, 5), (B, 1))) == ["F4"]
    assert judged(favoured, ((A, 5),)) == [], "B has no more"


def test_shares_of_whole_messages_may_differ_by_one() -> None:
    uneven = [(A, 1, 1), (A, 2, 2), (B, 1, 3), (C, 1, 4)]
    assert judged(uneven, ((A, 1), (B, 1), (C, 1))) == []


def test_who_gets_nothing_at_all_is_noticed() -> None:
    assert judged([(A, 1, 1), (A, 2, 2), (B, 1, 3), (B, 2, 4)], ((C, 1),)) == ["F4"]


def test_messages_stand_in_the_order_of_their_arrival() -> None:
    assert judged([(A, 1, 1), (B, 1, 2), (A, 2, 3)]) == []
    assert judged([(A, 1, 1), (A, 2, 3), (B, 1, 2)]) == ["F4"]
    assert judged([(A, 1, 1), (A, 2, 3), (B, 1, 2)], shuffled=True) == []


def test_a_message_that_overtook_its_predecessor_stands_right_behind_it() -> None:
    assert judged([(B, 1, 2), (A, 1, 3), (A, 2, 1)]) == []


def test_an_arrival_that_is_not_known_excuses_those_behind_it() -> None:
    assert judged([(A, 1, -1), (A, 2, 9), (B, 1, 2)]) == []
