"""The state's hash: of the lines alone, whatever way led to them; and at the cost of what changed."""

from __future__ import annotations

from hashlib import blake2b, shake_128

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, Case, cancel, order, replace
from tests.floor.test_fast import flows

from isocast.floor import machine, set_hash
from isocast.floor.book import Book
from isocast.floor.events import Cancel, Crossing, Event, Phase, Status
from isocast.floor.fast import FastFloor
from isocast.floor.fast_book import FastBook
from isocast.floor.machine import Floor
from isocast.floor.set_hash import SetHash
from isocast.floor.snapshot import floor_of, rows_of
from isocast.floor.state import state_hash, state_lines

pytestmark = pytest.mark.usefixtures("both_floors")


def defined(floor: Floor) -> bytes:
    """The hash as the page defines it, from all lines."""
    head, *lines = state_lines(floor)
    assert len(set(lines)) == len(lines)
    numbers = [int.from_bytes(shake_128(line.encode()).digest(512), "little") for line in lines]
    total = sum(numbers) % (1 << 4096)
    whole = f"{head}\n".encode() + total.to_bytes(512, "little")
    return blake2b(whole, digest_size=32, person=b"isocast floor 2").digest()


@given(flows(), st.sets(st.integers(1, 9)), st.sampled_from((Floor, FastFloor)))
def test_hashed_now_or_later_or_after_a_restart_it_is_the_same(
    tokens: list[list[Event]], hashed: set[int], kind: type[Floor]
) -> None:
    """Settlement 31: independent of the data structure, and of what went before."""
    floor = kind()
    for number, token in enumerate(tokens, 1):
        floor.step(number, number, token)
        if number in hashed:
            assert state_hash(floor) == defined(floor)
    again = floor_of(rows_of(floor), Floor if kind is FastFloor else FastFloor)
    assert state_hash(floor) == defined(floor) == state_hash(again)


@given(flows(), st.integers(0, 6))
def test_a_floor_that_has_touched_too_much_begins_anew(tokens: list[list[Event]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_TOUCHED_MAX", most)
        floor = Floor()
        for number, token in enumerate(tokens, 1):
            floor.step(number, number, token)
            assert len(floor.touched) <= len(floor.orders) + most + max(map(len, tokens)) * 9
            assert state_hash(floor) == defined(floor)


def test_the_way_to_a_set_does_not_matter_and_every_line_does() -> None:
    one, other = SetHash(), SetHash()
    for key in (1, 2, 3):
        one.put(key, f"line {key}")
    for key in (3, 4, 1, 2):
        other.put(key, f"once {key}")
    for key in (2, 3, 1):
        other.put(key, f"line {key}")
    assert one.digest() != other.digest()
    other.put(4, None)
    other.put(5, None)
    assert one.digest() == other.digest()
    assert len(one) == len(other) == 3
    one.put(1, "line 2")
    one.put(2, "line 1")
    assert one.digest() == other.digest()
    one.put(1, "line 3")
    assert one.digest() != other.digest()


def test_two_orders_that_change_places_are_another_state() -> None:
    """Priority counts: the same two orders, in the other order of time, of one token."""
    found = []
    for first, second in ((1, 2), (2, 1)):
        case = Case()
        case.token(order(first, BUY, 5, 90), order(second, BUY, 5, 90))
        found.append(state_hash(case.floor))
    assert found[0] != found[1]


def test_an_order_that_loses_its_place_and_gets_it_back_is_another_state() -> None:
    case = Case()
    case.token(order(1, BUY, 5, 90), order(2, BUY, 5, 90))
    before = {line for line in state_lines(case.floor) if line.startswith("order")}
    case.token(replace(1, 6), replace(1, 5), replace(2, 6), replace(2, 5))
    after = {line for line in state_lines(case.floor) if line.startswith("order")}
    assert len(before) == len(after) == 2
    assert not before & after
    assert state_hash(case.floor) == defined(case.floor)


def test_an_id_that_two_accounts_use_in_one_token_counts_for_both() -> None:
    case = Case()
    assert state_hash(case.floor) == defined(case.floor)
    case.token(order(5, BUY, 1, 90, account=1), order(5, BUY, 1, 90, account=2))
    assert state_hash(case.floor) == defined(case.floor)
    case.token(order(5, BUY, 1, 90, account=3), order(6, SELL, 1, 90, account=4))
    assert state_hash(case.floor) == defined(case.floor)


def test_orders_for_the_close_that_is_put_off_wait_in_the_order_of_their_places() -> None:
    case = Case()
    case.token(order(1, SELL, 5, 90, at=Crossing.CLOSE), order(2, BUY, 5, 80, at=Crossing.CLOSE))
    case.token(Status(case.state.terms.symbol, Phase.CLOSING))
    case.token(Status(case.state.terms.symbol, Phase.OPEN))
    places = [one.place for one in case.state.for_close.values()]
    assert places == sorted(places)
    assert len(places) == 2
    assert state_hash(case.floor) == defined(case.floor)


@pytest.mark.parametrize("book", [Book, FastBook])
def test_a_hash_costs_what_changed_and_not_what_is_there(book: type[Book], monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    number = set_hash._number  # noqa: SLF001 - what it costs

    def counted(line: str) -> int:
        hashed.append(line)
        return number(line)

    monkeypatch.setattr(set_hash, "_number", counted)
    costs = []
    for depth in (20, 2_000):
        case = Case()
        case.floor.new_book = book
        case.token(*(order(one, BUY, 5, 50 + one % 7) for one in range(1, depth + 1)))
        state_hash(case.floor)
        hashed.clear()
        case.token(order(10_001, SELL, 7, 56), Cancel(3, 3), cancel(10, 2))
        assert state_hash(case.floor) == defined(case.floor)
        costs.append(len(hashed))
    assert costs[0] == costs[1] <= 12
