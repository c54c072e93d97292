"""Who was first, from journals: cities by sources, contests by time or number, shuffles computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.disk.journals import write_of
from tests.wire.journal_samples import DELAY, PERIOD

from isocast.ring.settings import OrderRule
from isocast.ring.token import label_order
from isocast.studies.entry.figures import entry_figures
from isocast.studies.entry.journals import ContestKey, find_journals, read_journals
from isocast.studies.entry.stream import cities_of
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.instants import MILLISECOND
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Run, Token, payload_digest, short_digest_of

LONDON, SYDNEY = cities_of(("London", "Sydney"))
PLACES = {1: LONDON, 2: SYDNEY}
WITHIN = 10 * MILLISECOND
TOKENS = 40


def order(number: int, source: int, at: int) -> bytes:
    row = MarketEvent(EventKind.ORDER, Mic("XISO"), Symbol("ISO"), price=10_000, quantity=1, time=at)
    return pack_events(build_events([row._replace(id=10 * number + source)]))


def message(number: int, source: int, at: int) -> bytes:
    """An order of a gateway, as an opaque message that says when it was sent."""
    [packet] = cut_opaque([OpaqueMessage("floor/XISO", b"%d of %d" % (number, source), sent=at)], 1_000)
    return packet


def unknown(number: int, source: int, at: int) -> bytes:
    """Bytes that say nothing of a time."""
    return b"%d of %d, not at %d" % (number, source, at)


def shuffled(tokens: int = TOKENS, content: Callable[[int, int, int], bytes] = order) -> list[ReleasedBlock]:
    """In each token one order of London and one of Sydney, a millisecond later, in the order of the token's key."""
    made = []
    for number in range(1, tokens + 1):
        key = short_digest_of(b"%d" % number)
        epoch = Epoch(1, server_id(1))
        runs = tuple([Run(source_id(source), number, 1, NO_DIGEST) for source in (1, 2)])
        token = Token(
            0, epoch, 1, number, number * PERIOD, 2 * number - 1, runs, (), (), NO_NONCE, key, 0, 0, (), NO_DIGEST
        )
        messages = []
        for source, count in label_order(token, OrderRule.SHUFFLE, key):
            at = number * PERIOD - 300 * MILLISECOND + (source >> 32) * MILLISECOND
            payload = content(count, source >> 32, at)
            messages.append((source, count, payload_digest(payload), payload))
        due = number * PERIOD + DELAY
        made.append(ReleasedBlock(epoch, number, 2, 0, 2 * number - 1, number * PERIOD, due, due, 1_000, key, messages))
    return made


def written(folder: Path, journals: Sequence[Sequence[ReleasedBlock]]) -> Path:
    for site, blocks in enumerate(journals, 1):
        write_of(folder / f"site{site}" / "journal", 0, site, blocks)
    return folder


def swapped(block: ReleasedBlock) -> ReleasedBlock:
    return replace(block, messages=block.messages[::-1])


@pytest.mark.parametrize("key", [ContestKey.TIME, ContestKey.NUMBER])
@pytest.mark.parametrize("content", [order, message])
def test_who_was_first_is_read_from_the_sequence(
    tmp_path: Path, key: ContestKey, content: Callable[[int, int, int], bytes]
) -> None:
    blocks = shuffled(content=content)
    found = read_journals(find_journals([written(tmp_path, [blocks] * 2)]), PLACES, key, WITHIN)
    won = sum(block.messages[0][0] == source_id(1) for block in blocks)
    assert 10 < won < 30
    figures = entry_figures(found.stream, found.sequences, "released")
    pair = figures.pair("London", "Sydney")
    assert pair is not None
    assert (pair.contests, pair.share) == (TOKENS, won / TOKENS)
    assert found.stream.places == tuple([PLACES[1 if name == "London" else 2] for name in found.stream.names])
    assert (found.tokens, found.untimed) == (TOKENS, 0)
    # London's order is the earlier one: each contest that Sydney won has an order out of sequence.
    assert figures.out_of_sequence == (TOKENS - won) / (2 * TOKENS)


def test_every_journals_shuffles_are_verified(tmp_path: Path) -> None:
    blocks = shuffled()
    whole = written(tmp_path / "whole", [blocks] * 2)
    verified = read_journals(find_journals([whole]), PLACES, ContestKey.TIME, WITHIN).shuffles
    assert [(one.verified, one.other) for one in verified.values()] == [(TOKENS, 0)] * 2
    changed = written(tmp_path / "changed", [[*blocks[:5], swapped(blocks[5]), *blocks[6:]]])
    [found] = read_journals(find_journals([changed]), PLACES, ContestKey.TIME, WITHIN).shuffles.values()
    assert (found.verified, found.first_other) == (5, 6)


def test_journals_that_differ_are_refused(tmp_path: Path) -> None:
    blocks = shuffled(6)
    folder = written(tmp_path, [blocks, [*blocks[:3], swapped(blocks[3]), *blocks[4:]]])
    with pytest.raises(JournalError, match="another message at sequence 7"):
        read_journals(find_journals([folder]), PLACES, ContestKey.TIME, WITHIN)


def test_a_journal_that_is_behind_adds_nothing_and_spoils_nothing(tmp_path: Path) -> None:
    blocks = shuffled(6)
    folder = written(tmp_path, [blocks[:2], blocks])
    assert read_journals(find_journals([folder]), PLACES, ContestKey.TIME, WITHIN).stream.orders == 12


def test_messages_that_tell_no_time_compete_by_number(tmp_path: Path) -> None:
    journals = find_journals([written(tmp_path, [shuffled(content=unknown)])])
    assert read_journals(journals, PLACES, ContestKey.NUMBER, WITHIN).stream.contests == TOKENS
    with pytest.raises(ConfigurationError, match="--by number"):
        read_journals(journals, PLACES, ContestKey.TIME, WITHIN)


def test_a_source_without_a_place_stands_under_its_name(tmp_path: Path) -> None:
    journals = find_journals([written(tmp_path, [shuffled(3)])])
    found = read_journals(journals, {1: LONDON}, ContestKey.TIME, WITHIN)
    assert sorted(found.stream.names) == ["London", "source2"]
    assert None in found.stream.places


def test_journals_are_found_in_data_directories_and_by_themselves(tmp_path: Path) -> None:
    folder = written(tmp_path / "data", [shuffled(3)] * 2)
    both = (folder / "site1" / "journal", folder / "site2" / "journal")
    assert find_journals([folder]) == both
    assert find_journals([both[1], folder]) == (both[1], both[0])
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(JournalError):
            find_journals([path])


def test_journals_of_several_stripes_are_refused(tmp_path: Path) -> None:
    blocks = shuffled(3)
    write_of(tmp_path / "one" / "journal", 0, 1, blocks)
    write_of(tmp_path / "two" / "journal", 1, 1, blocks)
    with pytest.raises(JournalError, match="several stripes"):
        read_journals(find_journals([tmp_path]), PLACES, ContestKey.TIME, WITHIN)
