"""Orders that say what they react to: every rule from one journal, what is left out, and an error that is honest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.runtime.disk.journals import write_of
from tests.wire.journal_samples import DELAY, PERIOD

from isocast.studies.entry.journals import ContestKey, read_journals
from isocast.studies.entry.reactions import LeftOutOrders, Reactions, clustered_share
from isocast.studies.entry.stream import cities_of
from isocast.terms.entry import EntryRule, entry_groups
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.instants import MILLISECOND
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import payload_digest, short_digest_of

LONDON, SYDNEY = 1, 2
PLACES = dict(zip((LONDON, SYDNEY), cities_of(("London", "Sydney")), strict=True))
PAIRS, TOKENS, OWNERS = 5, 60, 2
WITHIN = 5 * MILLISECOND
ORDER = MarketEvent(EventKind.ORDER, Mic("XISO"), Symbol("ISO"), price=10_000, quantity=1)


def orders(token: int, source: int, at: int, count: int = PAIRS) -> bytes:
    """Upon the one event of the ticker in a token; every pair has an id of its own, every trader an account."""
    rows = [ORDER._replace(id=PAIRS * token + pair, reference=pair + 1, time=at + source) for pair in range(count)]
    return pack_events(build_events(rows))


def block(token: int, sequence: int, messages: list[tuple[int, bytes]]) -> ReleasedBlock:
    due = token * PERIOD + DELAY
    made = [(source_id(source), sequence + place, payload_digest(one), one)
            for place, (source, one) in enumerate(messages)]  # fmt: skip
    key, epoch = short_digest_of(b"%d" % token), Epoch(1, server_id(1))
    return ReleasedBlock(epoch, token, len(made), 0, sequence, token * PERIOD, due, due, 1_000, key, made)


def by_turns(tokens: int = TOKENS) -> list[ReleasedBlock]:
    """A ring of two owners: the first hears London first, the second Sydney."""
    made = []
    for token in range(1, tokens + 1):
        at = token * PERIOD - PERIOD // 2
        both = [(source, orders(token, source, at)) for source in (LONDON, SYDNEY)]
        made.append(block(token, 2 * token - 1, both if token % OWNERS else both[::-1]))
    return made


def read(folder: Path, blocks: list[ReleasedBlock]) -> Reactions:
    write_of(folder, 0, 1, blocks)
    found = read_journals([folder], PLACES, ContestKey.ID, WITHIN).reactions
    assert found is not None
    return found


def test_one_journal_tells_every_rule(tmp_path: Path) -> None:
    found = read(tmp_path, by_turns())
    assert found.left_out == LeftOutOrders(0, 0, 0, 0, 0)
    assert found.stream.contests == PAIRS * TOKENS
    released, shuffle, batch = (found.estimate(rule, ("London", "Sydney"), OWNERS) for rule in EntryRule)
    assert released is not None
    assert shuffle is not None
    assert batch is not None
    assert (released.contests, released.tokens) == (PAIRS * TOKENS, TOKENS)
    assert (released.share, released.standard_error, released.ahead_ns) == (0.5, 0.0, 1.0), "owners take turns by rule"
    assert (batch.share, batch.standard_error) == (0.5, 0.0), "at one time"
    assert shuffle.share == pytest.approx(won_by_the_keys(), abs=1e-12)
    assert shuffle.standard_error == pytest.approx(0.5 / (PAIRS * TOKENS) ** 0.5, rel=0.3)


def won_by_the_keys() -> float:
    """London's share, from the keys alone."""
    won = 0
    for token in range(1, TOKENS + 1):
        sources = (LONDON, SYDNEY) if token % OWNERS else (SYDNEY, LONDON)
        accounts = [source << 32 | pair + 1 for source in sources for pair in range(PAIRS)]
        order = [
            accounts[place] for [place] in entry_groups(accounts, short_digest_of(b"%d" % token), EntryRule.SHUFFLE)
        ]
        won += sum(order.index(LONDON << 32 | pair) < order.index(SYDNEY << 32 | pair) for pair in range(1, PAIRS + 1))
    return won / (PAIRS * TOKENS)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    at = PERIOD // 2
    cancel = pack_events(build_events([ORDER._replace(kind=EventKind.CANCEL, id=3, reference=1, time=at)]))
    blocks = [
        block(1, 1, [(LONDON, orders(1, LONDON, at)), (SYDNEY, orders(1, SYDNEY, at, 3)), (LONDON, cancel)]),
        block(2, 4, [(LONDON, orders(2, LONDON, at)), (SYDNEY, orders(2, SYDNEY, at + WITHIN)), (SYDNEY, b"opaque")]),
        block(3, 7, [(LONDON, orders(3, LONDON, at, 1)), (LONDON, orders(3, LONDON, at, 1))]),
    ]
    found = read(tmp_path, blocks)
    assert found.left_out == LeftOutOrders(opaque_messages=1, other_events=1, alone=2, repeated=2, apart=PAIRS)
    assert found.stream.contests == 3


def test_a_second_journal_adds_nothing_twice(tmp_path: Path) -> None:
    blocks = by_turns(8)
    for site, some in ((1, [*blocks[:6], blocks[6].part(0, 1)]), (2, blocks)):
        write_of(tmp_path / str(site), 0, site, some)
    found = read_journals([tmp_path / "1", tmp_path / "2"], PLACES, ContestKey.ID, WITHIN)
    assert found.reactions is not None
    assert (found.stream.contests, found.reactions.left_out.repeated) == (8 * PAIRS, 0)


def test_journals_without_a_contest_are_refused(tmp_path: Path) -> None:
    write_of(tmp_path, 0, 1, [block(1, 1, [(LONDON, orders(1, LONDON, 1))])])
    with pytest.raises(ConfigurationError, match="no two cities have an order of the same id"):
        read_journals([tmp_path], PLACES, ContestKey.ID, WITHIN)


def test_more_pairs_in_a_token_that_decides_them_alike_make_nothing_surer() -> None:
    tokens = np.arange(20)
    won = (tokens % 3 == 0).astype(float)
    share, error = clustered_share(won, tokens, 1)
    assert error == pytest.approx(won.std(ddof=1) / 20**0.5)
    assert clustered_share(np.repeat(won, 50), np.repeat(tokens, 50), 1) == pytest.approx((share, error))


def test_one_token_at_a_place_of_the_turn_shows_no_error() -> None:
    assert clustered_share(np.array([1.0, 0.0, 1.0]), np.array([1, 2, 3]), 2) == (0.5, None)


def test_the_error_is_as_large_as_the_figure_scatters() -> None:
    """Owners in turn, and in each token one contest in ten that all pairs of its moment share."""
    random = np.random.default_rng(1)
    tokens, shares, errors = np.repeat(np.arange(60), 40), [], []
    for _ in range(400):
        alike = np.repeat(random.random(60) < 0.3, 40) & (random.random(2_400) < 0.3)
        won = np.where(alike, 1.0, random.random(2_400) < np.where(tokens % 3, 0.8, 0.2))
        share, error = clustered_share(won, tokens, 3)
        assert error is not None
        shares.append(share)
        errors.append(error)
    assert np.std(shares) == pytest.approx(np.mean(errors), rel=0.1)
