"""Virtual time: the order of what happens depends on instants and insertions alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isocast.simulation.network import Agenda


def test_actions_happen_in_the_order_of_their_instants() -> None:
    agenda, done = Agenda(), list[object]()
    for instant in (30, 10, 20):
        agenda.put(instant, done.append, instant)
    agenda.run(99)
    assert done == [10, 20, 30]


@given(st.lists(st.integers(0, 5)))
def test_actions_of_one_instant_happen_in_the_order_of_insertion(instants: list[int]) -> None:
    agenda, done = Agenda(), list[object]()
    for place, instant in enumerate(instants):
        agenda.put(instant, done.append, (instant, place))
    agenda.run(5)
    assert done == sorted([(instant, place) for place, instant in enumerate(instants)])


def test_an_action_may_put_down_another_for_the_same_instant() -> None:
    agenda, done = Agenda(), list[object]()

    def first(argument: object) -> None:
        done.append(argument)
        agenda.put(agenda.now, done.append, "second")

    agenda.put(7, first, "first")
    agenda.run(7)
    assert done == ["first", "second"]


def test_an_instant_that_is_past_means_now() -> None:
    agenda, seen = Agenda(), list[int]()
    agenda.put(10, lambda _: agenda.put(3, lambda _: seen.append(agenda.now), None), None)
    agenda.run(20)
    assert seen == [10]


def test_time_stops_where_it_was_told_to() -> None:
    agenda, done = Agenda(), list[object]()
    agenda.put(10, done.append, 1)
    agenda.put(11, done.append, 2)
    agenda.run(10)
    assert (agenda.now, done, agenda.next_instant) == (10, [1], 11)
    agenda.run(50)
    assert (agenda.now, done, agenda.next_instant) == (50, [1, 2], None)
