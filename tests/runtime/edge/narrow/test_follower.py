"""What a journal says, with the plans and the empty tokens that it does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.edge.narrow.edge_worlds import NOON, PLAN_2, block, trades_of, write_journal

from isocast.runtime.disk.journal import Journal
from isocast.runtime.edge.narrow.plans import PLAN_NOTES, PlanNote, PlanNotes
from isocast.runtime.edge.narrow.service import HistoryGapError, JournalFollower, TokenPassed
from isocast.striping.plan import plan_entry
from isocast.striping.released import ReleasedPart
from isocast.terms.errors import JournalError
from isocast.terms.instants import SECOND

ENTRY = plan_entry(PLAN_2)


def blocks(*tokens: int) -> list[object]:
    return [
        block(token, place, trades_of("AB", 10 * token), NOON + token * SECOND) for place, token in enumerate(tokens, 1)
    ]


def told(parts: list[ReleasedPart]) -> list[tuple[int, int, bool]]:
    return [(part.token_number, part.token_count, bool(part.control)) for part in parts]


def note(token: int) -> PlanNote:
    return PlanNote(token, NOON + token * SECOND, 1, ENTRY)


def test_plans_come_with_their_tokens_empty_or_not(tmp_path: Path) -> None:
    notes = PlanNotes(tmp_path / PLAN_NOTES)
    notes.append(note(3))
    notes.append(note(5))
    write_journal(tmp_path, blocks(1, 3, 7))  # type: ignore[arg-type]
    follower = JournalFollower(tmp_path, 1)
    parts = list(follower.read())
    assert told(parts) == [(1, 1, False), (3, 1, True), (5, 0, True), (7, 1, False)]
    assert parts[2].instant == NOON + 5 * SECOND
    assert parts[2].first_sequence == 3
    follower.close()


def test_who_starts_in_the_middle_gets_the_rest(tmp_path: Path) -> None:
    PlanNotes(tmp_path / PLAN_NOTES).append(note(3))
    write_journal(tmp_path, blocks(1, 3, 7))  # type: ignore[arg-type]
    follower = JournalFollower(tmp_path, 3, 3)
    assert told(list(follower.read())) == [(7, 1, False)]
    follower.close()


def test_it_goes_on_with_what_is_written_later_and_hears_of_empty_tokens(tmp_path: Path) -> None:
    follower = JournalFollower(tmp_path, 1)
    assert list(follower.read()) == []
    with Journal.open(tmp_path / "journal", 0, 1) as journal:
        first, second = blocks(1, 4)
        journal.append(first)  # type: ignore[arg-type]
        assert told(list(follower.passed(TokenPassed(3, NOON + 3 * SECOND, 2)))) == [(1, 1, False), (3, 0, False)]
        assert list(follower.passed(TokenPassed(3, NOON + 3 * SECOND, 2))) == []
        assert list(follower.passed(TokenPassed(5, NOON + 5 * SECOND, 3))) == [], "its block is not here yet"
        journal.append(second)  # type: ignore[arg-type]
        PlanNotes(tmp_path / PLAN_NOTES).append(note(6))
        parts = list(follower.passed(TokenPassed(8, NOON + 8 * SECOND, 3)))
        assert told(parts) == [(4, 1, False), (6, 0, True), (8, 0, False)]
    follower.close()


def test_a_gap_and_what_came_from_elsewhere_are_told(tmp_path: Path) -> None:
    write_journal(tmp_path / "a", [block(1, 1, trades_of("A"), NOON), block(5, 4, trades_of("A"), NOON + SECOND)])
    follower = JournalFollower(tmp_path / "a", 1)
    with pytest.raises(HistoryGapError, match="sequences 2 to 3"):
        list(follower.read())
    follower.close()
    write_journal(tmp_path / "b", [block(1, 1, trades_of("A"), NOON, fetched=True)])
    follower = JournalFollower(tmp_path / "b", 1)
    with pytest.raises(HistoryGapError, match="came from another archive"):
        list(follower.read())
    follower.close()


def test_notes_survive_a_crash_and_are_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / PLAN_NOTES
    notes = PlanNotes(path)
    notes.append(note(3))
    notes.append(note(3))
    with path.open("ab") as file:
        file.write(b"cut")
    again = PlanNotes(path)
    assert [one.token_number for one in again.read()] == [3]
    again.append(note(4))
    assert [one.entry for one in PlanNotes(path).read()] == [ENTRY, ENTRY]
    raw = bytearray(path.read_bytes())
    raw[5] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(JournalError, match="damaged at byte 0"):
        list(PlanNotes(path).read())
