"""Journals after a fault: everything that a drill counts is seen to be counted, and nothing else is."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.trials.drill.marked import NOW, PLAIN, Mark, canned_market, promise, write_journals

from isocast.checks.journals import JournalWalk
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.market.model import Market
from isocast.terms.instants import SECOND
from isocast.trials.drill.safety import Safety, judge
from isocast.trials.drill.staging import flip_bit
from isocast.trials.evidence import Journals, journal_of, read_journals

SOUND = Safety(lost=0, repeated=0, divergent=0, gaps=0, early=0)


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return canned_market(tmp_path)


def canned_market_beside(market: Market) -> Market:
    folder = Path(market.file).parent / "beside"
    folder.mkdir()
    return canned_market(folder)


def read(market: Market) -> Journals:
    return read_journals(market, lambda: JournalWalk(1))


def verdict(market: Market, promised: list[Mark] = PLAIN, *absent: str) -> Safety:
    return judge(read(market), promise(*promised), market.timing.release_delay_ns, absent)


def test_journals_that_agree_are_sound(market: Market) -> None:
    write_journals(market)
    assert verdict(market) == SOUND
    assert verdict(market).is_sound


def test_what_was_promised_and_is_nowhere_is_lost(market: Market) -> None:
    write_journals(market)
    assert verdict(market, [*PLAIN, Mark(0, 7, "never seen"), Mark(0, 8, "nor this")]) == replace(SOUND, lost=2)


def test_a_promise_that_was_kept_with_another_content_is_lost(market: Market) -> None:
    write_journals(market)
    assert verdict(market, [PLAIN[0]._replace(text="something else")]).lost == 1


def test_what_a_whole_market_took_and_does_not_release_is_told_apart(market: Market) -> None:
    write_journals(market)
    promised = [*promise(Mark(0, 7, "during")), *promise(Mark(0, 8, "after"), at=NOW + 5 * SECOND)]
    found = judge(read(market), promised, 0, (), NOW + SECOND)
    assert (found.lost, found.unserved) == (2, 1)


def test_a_message_that_one_journal_has_twice_is_repeated(market: Market) -> None:
    write_journals(market, {"tokyo": [*PLAIN[:5], Mark(6, 5, "message 5")]})
    found = verdict(market)
    assert (found.repeated, found.divergent) == (1, 1), "and the sixth is another one there"


def test_a_customer_that_gets_a_content_again_is_repeated(market: Market) -> None:
    write_journals(market, {"fund": [*PLAIN, Mark(7, 0, "message 2")]})
    assert verdict(market).repeated == 1


def test_another_content_under_the_same_sequence_is_divergent(market: Market) -> None:
    write_journals(market, {"sydney": [*PLAIN[:4], Mark(5, 15, "another"), Mark(6, 16, "story")]})
    assert verdict(market) == replace(SOUND, divergent=2)


def test_two_journals_that_differ_from_each_other_alone_are_divergent(market: Market) -> None:
    """Neither is compared with the longest only: both end before it has anything to say."""
    write_journals(market, {"tokyo": [*PLAIN, Mark(7, 7, "this")], "fund": [*PLAIN, Mark(7, 0, "that")]})
    assert verdict(market).divergent == 1


def test_another_label_for_the_same_content_is_divergent(market: Market) -> None:
    write_journals(market, {"sydney": [*PLAIN[:5], PLAIN[5]._replace(number=16)]})
    assert verdict(market).divergent == 1


def test_a_journal_that_was_filled_again_knows_no_labels_and_is_judged_by_contents(market: Market) -> None:
    again = [mark._replace(number=0) for mark in PLAIN]
    write_journals(market, {"sydney": again}, unlabelled=("sydney",))
    assert verdict(market) == SOUND
    market = canned_market_beside(market)
    write_journals(market, {"sydney": [*again[:5], Mark(6, 0, "another")]}, unlabelled=("sydney",))
    assert verdict(market) == replace(SOUND, divergent=1)


def test_a_guaranteed_customer_with_a_hole_has_a_gap(market: Market) -> None:
    write_journals(market, {"bank": [*PLAIN[:2], *PLAIN[3:]]})
    assert verdict(market) == replace(SOUND, gaps=1)


def test_a_journal_that_ends_early_has_gaps_unless_its_node_cannot_come_back(market: Market) -> None:
    write_journals(market, {"tokyo": PLAIN[:2]})
    assert verdict(market) == replace(SOUND, gaps=4)
    assert verdict(market, PLAIN, "tokyo") == SOUND


def test_what_is_out_before_its_instant_is_early(market: Market) -> None:
    write_journals(market, early_ns=1)
    assert verdict(market).early == len(PLAIN) * len([*read(market).sites, *read(market).followers])


def test_a_flipped_bit_is_damage_and_not_divergence(market: Market) -> None:
    write_journals(market)
    (segment,) = segment_files(journal_of(market, "chicago"))
    flip_bit(segment.path, segment.path.stat().st_size // 2)
    journals = read(market)
    assert list(journals.damaged) == ["chicago"]
    assert journals.sites["chicago"].messages < len(PLAIN)
    assert verdict(market) == SOUND
