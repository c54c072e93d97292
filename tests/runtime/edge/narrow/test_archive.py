"""Packets of stripes on disk: found by any of their numbers, whole after a crash, gone after some days."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocast.feeds.mold import packet_of, parse_packet
from isocast.runtime.edge.narrow.archive import StripeArchive
from isocast.terms.errors import TransportError

ONE, TWO = b"2410040001", b"2410040002"


def packet(session: bytes, first: int, count: int) -> bytes:
    body = b"".join((4).to_bytes(2) + number.to_bytes(4) for number in range(first, first + count))
    return packet_of(session, first, count, body)


def fill(archive: StripeArchive, *places: tuple[bytes, int, int]) -> None:
    for session, first, count in places:
        archive.append(session, first, count, 0, packet(session, first, count))


def test_a_packet_is_found_by_each_of_its_numbers(tmp_path: Path) -> None:
    archive = StripeArchive(tmp_path, 7)
    fill(archive, (ONE, 1, 3), (TWO, 1, 2), (ONE, 4, 5))
    for again in range(2):
        opened = StripeArchive(tmp_path, 7) if again else archive
        for number in range(1, 9):
            assert parse_packet(opened.find(ONE, number)).sequence == (1 if number < 4 else 4)
        assert opened.find(ONE, 9) == opened.find(ONE, 0) == opened.find(b"2410050001", 1) == b""
        assert (opened.next_number(ONE), opened.next_number(TWO), opened.next_number(b"2410040003")) == (9, 3, 1)
        assert opened.newest() == {1: (ONE, 9), 2: (TWO, 3)}
        opened.close()


def test_two_processes_do_not_write_one_archive(tmp_path: Path) -> None:
    archive = StripeArchive(tmp_path, 7)
    fill(archive, (ONE, 1, 3))
    with pytest.raises(TransportError, match="another process writes it"):
        StripeArchive(tmp_path, 7)
    archive.close()
    StripeArchive(tmp_path, 7).close()


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_what_a_crash_cut_is_cut_off(tmp_path: Path, cut: int) -> None:
    archive = StripeArchive(tmp_path, 7)
    fill(archive, (ONE, 1, 3), (ONE, 4, 5))
    archive.close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    archive = StripeArchive(tmp_path, 7)
    assert archive.next_number(ONE) == 4
    fill(archive, (ONE, 4, 5))
    archive.close()
    archive = StripeArchive(tmp_path, 7)
    assert archive.find(ONE, 8) == packet(ONE, 4, 5)
    archive.close()


def test_holes_are_known_and_filled_in_any_order(tmp_path: Path) -> None:
    archive = StripeArchive(tmp_path, 7)
    fill(archive, (ONE, 3, 2), (ONE, 9, 1))
    assert archive.missing(ONE, 12, 10) == [(1, 2), (5, 4), (10, 2)]
    assert archive.missing(ONE, 12, 1) == [(1, 2)]
    fill(archive, (ONE, 5, 4), (ONE, 1, 2))
    assert archive.missing(ONE, 10, 10) == []
    assert all(archive.has(ONE, number) for number in range(1, 10))
    assert parse_packet(archive.find(ONE, 6)).sequence == 5
    archive.close()


def test_an_answer_has_no_more_than_was_asked_for_or_fits(tmp_path: Path) -> None:
    archive = StripeArchive(tmp_path, 7)
    fill(archive, (ONE, 1, 10))
    assert archive.take(ONE, 4, 3, 1_400) == (3, packet(ONE, 4, 3)[20:])
    assert archive.take(ONE, 4, 100, 1_400)[0] == 7
    assert archive.take(ONE, 4, 100, 13)[0] == 2
    assert archive.take(ONE, 4, 100, 1)[0] == 1, "one message at least"
    assert archive.take(ONE, 11, 1, 1_400) == (0, b"")
    archive.close()


def test_a_record_that_contradicts_its_packet_is_no_answer(tmp_path: Path) -> None:
    archive = StripeArchive(tmp_path, 7)
    archive.append(ONE, 1, 9, 0, packet(ONE, 1, 2))
    assert archive.take(ONE, 5, 3, 1_400) == (0, b"")
    archive.close()


def test_old_days_go(tmp_path: Path) -> None:
    archive = StripeArchive(tmp_path, 2)
    for day in range(1, 8):
        fill(archive, (f"24100{day}0001".encode(), 1, 1))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["241005", "241006", "241007"]
    assert not archive.find(b"2410040001", 1)
    archive.close()
