"""What journals prove, and that each kind of wrong is seen: journals are written as a market would, then bent."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.worlds import market_file
from tests.wire.journal_samples import DELAY, PERIOD, block, blocks, events_payload

from isocast.checks.journals import FaultKind
from isocast.checks.skew import Quantiles, ReleaseSkew
from isocast.runtime.disk.journal import Journal
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.terms.errors import JournalError
from isocast.terms.instants import MILLISECOND
from isocast.trials.evidence import (
    MarketEvidence,
    gather,
    journal_of,
    late_releases,
    lateness_ns,
    read_journals,
    skew_of,
)
from isocast.wire.journal_blocks import ReleasedBlock

MS = MILLISECOND
SITES = ("a", "b", "c")
FOLLOWERS = ("archive", "bank")


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return load_market(market_file(tmp_path))


def write(market: Market, name: str, released: Sequence[ReleasedBlock]) -> None:
    plan = market.node(name)
    with Journal.open(journal_of(market, name), 0, plan.node) as journal:
        for one in released:
            journal.append(one)


def shifted(released: Sequence[ReleasedBlock], late_ns: int) -> list[ReleasedBlock]:
    """The same, each so long after its instant."""
    return [replace(one, released_at=one.due + late_ns) for one in released]


def heard(released: Sequence[ReleasedBlock], delay_ns: int) -> list[ReleasedBlock]:
    """What a customer makes of it: no labels, and its own instants."""
    return [
        replace(
            one,
            released_at=one.due + delay_ns,
            messages=[
                (0, one.first_sequence + at, digest, payload) for at, (_, _, digest, payload) in enumerate(one.messages)
            ],
        )
        for one in released
    ]


def write_all(market: Market, released: Sequence[ReleasedBlock]) -> None:
    """Sites a, b and c are 0, 1 and 3 ms late; followers hear it 20 ms later."""
    for name, late_ms in zip(SITES, (0, 1, 3), strict=True):
        write(market, name, shifted(released, late_ms * MS))
    for name in FOLLOWERS:
        write(market, name, heard(released, 20 * MS))


def test_a_sound_market(market: Market) -> None:
    write_all(market, blocks(10, size=4))
    found = gather(market)
    assert found.is_sound
    assert (found.sites, found.messages, found.tokens, found.early) == (3, 40, 10, 0)
    assert found.skew == ReleaseSkew(40, 3 * MS, 3 * MS, 3 * MS, bound_ns=MS // 5, exceeding=40)
    assert found.lateness == Quantiles(30, 1 * MS, 3 * MS, 3 * MS)
    assert [(one.name, one.messages, one.missing, one.behind) for one in found.followers] == [
        ("archive", 40, 0, 0),
        ("bank", 40, 0, 0),
    ]
    assert found.skew_bound_ns == market.timing.skew_bound_ns == 2 * MS
    assert not found.is_simultaneous
    assert found.late == ()


def test_nothing_at_all_is_sound(market: Market) -> None:
    found = gather(market)
    assert found.is_sound
    assert found.is_simultaneous
    assert (found.messages, found.skew.count) == (0, 0)


def bent(market: Market, name: str, bend: Callable[[list[ReleasedBlock]], list[ReleasedBlock]]) -> MarketEvidence:
    """A sound market but for one journal."""
    released = blocks(10, size=4)
    whole = heard(released, 20 * MS) if name in FOLLOWERS else shifted(released, MS)
    for other in (*SITES, *FOLLOWERS):
        if other != name:
            write(market, other, heard(released, 20 * MS) if other in FOLLOWERS else shifted(released, MS))
    write(market, name, bend(whole))
    return gather(market)


def test_a_release_before_its_instant_is_early(market: Market) -> None:
    found = bent(market, "b", lambda whole: [*whole[:-1], replace(whole[-1], released_at=whole[-1].due - 1)])
    assert found.early == 4
    assert not found.is_sound


def test_what_a_customer_has_before_anybody_might_release_it_is_early(market: Market) -> None:
    found = bent(
        market,
        "bank",
        lambda whole: [
            *whole[:-1],
            replace(whole[-1], due=whole[-1].instant, released_at=whole[-1].instant + DELAY // 2),
        ],
    )
    assert market.timing.release_delay_ns > DELAY // 2
    assert found.early == 4


@pytest.mark.parametrize("name, kind", [("b", "missing"), ("bank", "gaps")])
def test_a_hole_is_seen(market: Market, name: str, kind: str) -> None:
    found = bent(market, name, lambda whole: [*whole[:3], *whole[5:]])
    assert getattr(found, kind) == 8
    assert not found.is_sound


def test_a_journal_that_only_ends_early_has_no_hole_but_is_behind(market: Market) -> None:
    found = bent(market, "bank", lambda whole: whole[:7])
    assert found.is_sound
    assert [one.behind for one in found.followers] == [0, 12]


@pytest.mark.parametrize("name, other", [("b", "a"), ("bank", "a")])
def test_another_content_is_a_difference(market: Market, name: str, other: str) -> None:
    def bend(whole: list[ReleasedBlock]) -> list[ReleasedBlock]:
        source, number, digest, _ = whole[2].messages[1]
        changed = list(whole[2].messages)
        changed[1] = (source, number, digest, events_payload(999))
        return [*whole[:2], replace(whole[2], messages=changed), *whole[3:]]

    (difference,) = bent(market, name, bend).differences
    assert (difference.name, difference.other, difference.sequences) == (name, other, (10,))


def test_another_order_is_a_difference_between_sites(market: Market) -> None:
    def bend(whole: list[ReleasedBlock]) -> list[ReleasedBlock]:
        swapped = [whole[0].messages[1], whole[0].messages[0], *whole[0].messages[2:]]
        return [replace(whole[0], messages=swapped), *whole[1:]]

    (difference,) = bent(market, "c", bend).differences
    assert difference.by_label == difference.by_content == (1, 2)


def test_late_releases_are_listed_with_their_instants(market: Market) -> None:
    limit = market.timing.process_ns

    def bend(whole: list[ReleasedBlock]) -> list[ReleasedBlock]:
        late = replace(whole[-1], released_at=whole[-1].due + limit + 1)
        return [*whole[:-1], late]

    found = bent(market, "b", bend)
    (late,) = found.late
    assert (late.site, late.token_number, late.first_sequence, late.last_sequence) == ("b", 10, 37, 40)
    assert (late.instant, late.due, late.late_ns) == (10 * PERIOD, 10 * PERIOD + DELAY, limit + 1)
    assert found.is_sound, "late is not unsound"
    assert late_releases(read_journals(market).sites, limit + 1) == []


def test_only_what_was_released_since_then_counts_for_times(market: Market) -> None:
    write_all(market, blocks(10, size=4))
    found = gather(market, since_ns=6 * PERIOD)
    assert (found.messages, found.tokens, found.skew.count) == (20, 5, 20)
    assert [one.messages for one in found.followers] == [40, 40]


def test_skew_is_of_each_sequence_however_a_token_was_cut(market: Market) -> None:
    """A site that died in the middle of a token has it in two blocks."""
    whole = shifted([block(1, 1, (None,) * 4)], 0)
    halves = [block(1, 1, (None,) * 2, count=4), block(1, 3, (None,) * 2, place=2, count=4)]
    due = whole[0].due
    cut = [replace(one, due=due, released_at=due + late) for one, late in zip(halves, (0, 7 * MS), strict=True)]
    write(market, "a", whole)
    write(market, "b", cut)
    copies = {name: read_journals(market).sites[name] for name in ("a", "b")}
    found = skew_of(copies, 50 * MS)
    assert (found.count, found.p50_ns, found.p99_ns, found.max_ns) == (4, 0, 7 * MS, 7 * MS)
    assert sorted(lateness_ns(copies).tolist()) == [0, 0, 7 * MS]
    assert [copy.early() for copy in copies.values()] == [0, 0]


def test_what_one_alone_has_released_has_no_skew_and_is_counted(market: Market) -> None:
    write(market, "a", blocks(3))
    write(market, "b", blocks(2))
    sites = read_journals(market).sites
    found = skew_of(sites, 50 * MS)
    assert (found.count, found.partly, found.alone, found.messages) == (4, 4, 2, 6), "c was away"
    both = skew_of({name: sites[name] for name in "ab"}, 50 * MS)
    assert (both.count, both.partly, both.alone) == (4, 0, 2)
    assert skew_of({}, 50 * MS) == ReleaseSkew()


def test_a_copy_knows_its_sequences(market: Market) -> None:
    write(market, "a", [*blocks(2, size=3), *blocks(2, size=3, first_token=5, first_sequence=13)])
    copy = read_journals(market).sites["a"]
    assert copy.sequences.tolist() == [1, 2, 3, 4, 5, 6, 13, 14, 15, 16, 17, 18]
    assert [(breach.kind, breach.sequence, breach.last_sequence) for breach in copy.breaches] == [
        (FaultKind.GAP, 7, 12)
    ]
    assert (copy.last_sequence, copy.messages, copy.missing(), copy.missing(20)) == (18, 12, 6, 8)
    assert all(earlier <= later for earlier, later in pairwise(copy.released_at.tolist()))


def test_damage_is_not_passed_over(market: Market) -> None:
    write_all(market, blocks(2))
    (segment,) = journal_of(market, "b").glob("*.isoj")
    segment.write_bytes(segment.read_bytes()[:-9] + b"damaged!!")
    assert list(read_journals(market).damaged) == ["b"]
    with pytest.raises(JournalError, match="checksum"):
        gather(market)


def test_quantiles_are_values_that_occurred() -> None:
    assert Quantiles.of([]) == Quantiles()
    assert Quantiles.of([5]) == Quantiles(1, 5, 5, 5)
    assert Quantiles.of([1, 2, 3, 4]) == Quantiles(4, 2, 4, 4)
    assert Quantiles.of(np.arange(1, 101)) == Quantiles(100, 50, 99, 100)


def test_the_evidence_is_json(market: Market) -> None:
    write_all(market, blocks(2))
    parts = gather(market).as_json()
    assert parts["is_sound"] is True
    assert parts["skew"]["p50_ns"] == 3 * MS
    assert [one["name"] for one in parts["followers"]] == list(FOLLOWERS)
