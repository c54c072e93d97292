"""Copies of machines share nothing that changes, and equal states have one spelling."""

from __future__ import annotations

from collections.abc import Callable

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.effects import Persist, PromiseMade
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.simulation.exploration.freezing import Freezer, clone
from isocast.terms.ids import Epoch, server_id
from isocast.terms.timing import Timing

SETTINGS = RingSettings(Timing(detect_ns=1_000))


class Shelf:
    def __init__(self) -> None:
        self.books = {"a": [1, 2]}
        self.same = self.books
        self.count: Callable[[], int] = lambda: len(self.books)
        self.bound = self.size

    def size(self) -> int:
        return len(self.books)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: object, right: object) -> None:
        self.left = left
        self.right = right


def site() -> PrimaryReceiver:
    return PrimaryReceiver(1, SETTINGS, b"secret", SiteState(Checkpoint(universe=(1, 2, 3))))


def test_a_copy_changes_alone() -> None:
    shelf = Shelf()
    other = clone(shelf)
    other.books["a"].append(3)
    other.books["b"] = []
    assert shelf.books == {"a": [1, 2]}


def test_two_names_of_one_thing_are_two_names_of_its_copy() -> None:
    other = clone(Shelf())
    other.books["b"] = []
    assert other.same is other.books


def test_closures_and_bound_methods_look_at_the_copy() -> None:
    other = clone(Shelf())
    other.books["b"] = []
    assert (other.count(), other.bound()) == (2, 2)


def test_slots_are_copied() -> None:
    pair = Slotted([1], {2})
    other = clone(pair)
    other.left.append(2)
    other.right.add(3)
    assert (pair.left, pair.right) == ([1], {2})


def test_a_copied_machine_goes_its_own_way() -> None:
    machine = site()
    other = clone(machine)
    other.receiver.seal(Epoch(7, server_id(1)))
    assert machine.receiver.promised < other.receiver.promised
    assert Persist(PromiseMade(Epoch(7, server_id(1)))) in other.receiver.take(0)
    assert machine.receiver.take(0) == ()
    assert other.receiver.releaser is not machine.receiver.releaser


def test_equal_states_have_one_digest() -> None:
    freezer = Freezer()
    assert freezer.digest(site()) == freezer.digest(site())
    assert freezer.digest(clone(site())) == freezer.digest(site())
    assert Freezer().digest(site()) == freezer.digest(site())


def test_every_field_counts_even_one_that_nobody_knew_of() -> None:
    freezer = Freezer()
    plain, extended = site(), site()
    vars(extended.receiver)["_of_tomorrow"] = 1
    assert freezer.digest(plain) != freezer.digest(extended)


def test_order_counts_in_dictionaries_and_not_in_sets() -> None:
    freezer = Freezer()
    assert freezer.digest({1: 0, 2: 0}) != freezer.digest({2: 0, 1: 0})
    assert freezer.digest({(1, 2), (3, 4)}) == freezer.digest({(3, 4), (1, 2)})


def test_sharing_counts() -> None:
    freezer = Freezer()
    one: list[int] = []
    assert freezer.digest(Slotted(one, one)) != freezer.digest(Slotted([], []))
