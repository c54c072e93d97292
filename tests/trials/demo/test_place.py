"""Places on loopback: one for each process, never shared."""

import socket

import pytest

from isocast.terms.errors import TransportError
from isocast.trials.demo import cast as module
from isocast.trials.demo.cast import CLAIM_PORT, DemoNetwork, own_place


def test_two_that_want_the_same_get_different_ones() -> None:
    with own_place(7_000) as one, own_place(7_000) as other:
        assert one != other
        assert one.address(3) == f"127.{one.first}.{one.second}.3"
        assert other.group(3) == f"239.{other.first}.{other.second}.3"


def test_a_place_is_free_again_when_its_block_ends() -> None:
    with own_place(7_001) as one:
        pass
    with own_place(7_001) as again:
        assert again == one


def test_the_file_s_own_addresses_are_left_alone() -> None:
    for number in (0, 255, 256, 65_535, 4_194_304):
        with own_place(number) as place:
            assert 16 <= place.first <= 254


def test_a_market_that_was_started_by_hand_is_seen() -> None:
    with own_place(7_002) as wanted:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as node:
        node.bind((wanted.address(5), 7_780))
        node.listen()
        with own_place(7_002) as place:
            assert place != wanted


def test_a_machine_without_a_free_place_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRIES", 1)
    with own_place(7_003), pytest.raises(TransportError, match=f"UDP port {CLAIM_PORT}") as told, own_place(7_003):
        pass
    assert "\n" not in str(told.value)


def test_places_are_values() -> None:
    assert DemoNetwork(16, 2) == DemoNetwork(16, 2)
