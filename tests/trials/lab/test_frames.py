"""A switch knows who a frame is for, and behind which port that station is."""

import pytest

from isocast.trials.lab.fabric import MacTable, site_mac

BROADCAST = b"\xff" * 6
MULTICAST = b"\x01\x00\x5e\x7f\x4d\x01"
STRANGER = b"\x02\xaa\xaa\xaa\xaa\xaa"


def frame(to: bytes, source: bytes) -> bytes:
    return to + source + b"\x08\x00" + b"payload"


def test_every_site_has_an_address_of_its_own_that_is_local_and_no_group() -> None:
    macs = [site_mac(port) for port in range(300)]
    assert len(set(macs)) == 300
    assert {len(mac) for mac in macs} == {6}
    assert {mac[0] & 3 for mac in macs} == {2}


def test_a_frame_for_a_site_goes_there_alone() -> None:
    assert MacTable(4).destinations(frame(site_mac(2), site_mac(0)), 0) == (2,)


@pytest.mark.parametrize("group", [BROADCAST, MULTICAST])
def test_a_frame_for_a_group_goes_to_everybody_else(group: bytes) -> None:
    assert MacTable(4).destinations(frame(group, site_mac(1)), 1) == (0, 2, 3)


def test_a_frame_for_an_unknown_station_goes_to_everybody_else() -> None:
    assert MacTable(3).destinations(frame(STRANGER, site_mac(1)), 1) == (0, 2)


def test_a_station_is_known_by_what_it_sends_and_may_move() -> None:
    table = MacTable(3)
    table.destinations(frame(BROADCAST, STRANGER), 2)
    assert table.destinations(frame(STRANGER, site_mac(0)), 0) == (2,)
    table.destinations(frame(BROADCAST, STRANGER), 1)
    assert table.destinations(frame(STRANGER, site_mac(0)), 0) == (1,)


def test_a_frame_for_ones_own_side_goes_nowhere() -> None:
    assert MacTable(3).destinations(frame(site_mac(1), STRANGER), 1) == ()


@pytest.mark.parametrize("length", [0, 5, 13])
def test_what_is_shorter_than_a_header_is_no_frame(length: int) -> None:
    assert MacTable(3).destinations(frame(BROADCAST, site_mac(0))[:length], 0) == ()


def test_a_group_is_never_learned_as_a_sender() -> None:
    table = MacTable(2)
    table.destinations(frame(BROADCAST, MULTICAST), 0)
    assert len(table) == 2


def test_ever_new_senders_do_not_fill_the_memory() -> None:
    table = MacTable(2)
    for number in range(5000):
        table.destinations(frame(BROADCAST, b"\x02" + number.to_bytes(5)), 0)
    assert len(table) == 4096
    assert table.destinations(frame(site_mac(1), site_mac(0)), 0) == (1,)
