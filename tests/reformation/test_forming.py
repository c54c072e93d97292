"""From the votes to a ring (protocol §5, step 3)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reformation.ballots import join, votes
from tests.ring.makers import EPOCH, NEXT_EPOCH

from isocast.reformation.forming import enough, form, hearing_group, spread
from isocast.terms.ids import NodeId
from isocast.wire.packets import Join

FIVE = (1, 2, 3, 4, 5)


def five(*, broken: tuple[tuple[NodeId, NodeId], ...] = (), held: int = 4) -> dict[NodeId, Join]:
    """Votes of five sites; broken pairs do not hear each other."""
    pairs = {frozenset(pair) for pair in broken}
    return votes(
        *[
            join(site, held, universe=FIVE, heard=tuple(o for o in FIVE if o != site and {o, site} not in pairs))
            for site in FIVE
        ]
    )


# The cut


def test_the_cut_is_the_greatest_epoch_first_and_never_the_greatest_h() -> None:
    """Protocol §5, step 3; §12, mistake 3: a stale site overrides the live epoch."""
    found = form(votes(join(1, 9, EPOCH), join(2, 5, NEXT_EPOCH), join(3, 4, NEXT_EPOCH)), {}, {})
    assert found is not None
    assert (found.best.sender, found.holders, found.ring[0]) == (2, (2,), 2)


def test_within_an_epoch_the_longest_log_is_the_cut() -> None:
    found = form(votes(join(1, 4), join(2, 6), join(3, 6)), {}, {})
    assert found is not None
    assert (found.best.held, found.holders) == (6, (2, 3))


def test_the_first_owner_holds_the_cut() -> None:
    """Protocol §0, correction 3: the first token site has h = start-1."""
    found = form(votes(join(1, 4), join(2, 4), join(3, 6)), {}, {})
    assert found is not None
    assert found.ring == (3, 1, 2)


# Majorities


@pytest.mark.parametrize("voters, suffices", [((1,), False), ((1, 3), True), ((1, 2, 3), True)])
def test_only_a_majority_of_u_forms_a_ring(voters: tuple[NodeId, ...], suffices: bool) -> None:  # noqa: FBT001
    found = form(votes(*[join(site, 4) for site in voters]), {}, {})
    assert (found is not None) == suffices


def test_voters_outside_u_do_not_count() -> None:
    assert form(votes(join(1, 4), join(8, 4), join(9, 4)), {}, {}) is None


def test_u_is_that_of_the_cut() -> None:
    """Protocol §5, step 3: a majority of U (U as of the cut)."""
    older = [join(site, 4) for site in (1, 2)]
    newer = join(3, 5, universe=(1, 2, 3, 4, 5), heard=(1, 2))
    assert form(votes(*older), {}, {}) is not None
    found = form(votes(*older, newer), {}, {})
    assert found is not None
    assert found.best.universe == (1, 2, 3, 4, 5)
    assert form(votes(older[0], newer), {}, {}) is None


def test_any_two_majorities_share_a_site() -> None:
    for size in range(1, 8):
        sites = tuple(range(size))
        quorums = [
            set(group) for count in range(size + 1) for group in combinations(sites, count) if enough(count, sites)
        ]
        assert all(one & other for one, other in combinations(quorums, 2))


def test_no_votes_no_ring() -> None:
    assert form({}, {}, {}) is None


# Hearing


def test_a_broken_pair_is_not_on_one_ring() -> None:
    """Protocol §5, step 3: else a broken pair re-forms the same ring for ever."""
    found = form(five(broken=((2, 4),)), {}, {})
    assert found is not None
    assert sorted(found.ring) in ([1, 2, 3, 5], [1, 3, 4, 5])


def test_hearing_must_be_mutual() -> None:
    cast = votes(join(1, 4, heard=(2, 3)), join(2, 4, heard=(1,)), join(3, 4, heard=(1, 2)))
    found = form(cast, {}, {})
    assert found is not None
    assert sorted(found.ring) in ([1, 2], [1, 3])


def test_a_site_that_nobody_hears_stays_off_the_ring() -> None:
    found = form(five(broken=((1, 2), (1, 3), (1, 4), (1, 5))), {}, {})
    assert found is not None
    assert sorted(found.ring) == [2, 3, 4, 5]


def test_without_a_majority_that_hears_one_another_there_is_no_ring() -> None:
    assert form(five(broken=tuple(combinations(FIVE, 2))), {}, {}) is None


@given(st.sets(st.sampled_from(list(combinations(FIVE, 2)))))
def test_whoever_is_on_the_ring_hears_all_the_others(broken: set[tuple[NodeId, NodeId]]) -> None:
    group = hearing_group(five(broken=tuple(broken)), list(FIVE))
    assert not [pair for pair in broken if pair[0] in group and pair[1] in group]


def test_a_majority_that_hears_one_another_is_found_whenever_there_is_one() -> None:
    """Protocol §5, step 3: the largest majority of joiners that hear each other. Here sites 1, 4 and 5."""
    broken = ((1, 2), (2, 5), (5, 3), (3, 4))
    assert hearing_group(five(broken=broken), list(FIVE)) == [1, 4, 5]


def test_the_longest_log_does_not_block_a_majority_that_cannot_hear_it() -> None:
    """L1, L2: a connected majority suffices. Any majority of votes is safe: the unheard one need not be counted."""
    cast = votes(join(1, 5), join(2, 4, heard=(3,)), join(3, 4, heard=(2,)))
    found = form(cast, {}, {})
    assert found is not None
    assert sorted(found.ring) == [2, 3]


# Order


def test_neighbours_come_from_different_regions() -> None:
    """Protocol §5, step 3: ordered to spread regions."""
    regions = {1: "us", 2: "us", 3: "us", 4: "eu", 5: "eu", 6: "eu"}
    ring = spread([1, 2, 3, 4, 5, 6], regions, (1,))
    assert ring[0] == 1
    assert all(regions[one] != regions[other] for one, other in zip(ring, ring[1:] + ring[:1], strict=True))


def test_the_order_does_not_depend_on_the_order_of_votes() -> None:
    regions = {1: "us", 3: "eu"}
    assert spread([3, 1, 2], regions, (2,)) == spread([1, 2, 3], regions, (2,))


# Clocks


def test_a_barred_site_stays_off_the_ring_if_it_can_do_without() -> None:
    found = form(votes(*[join(site, 4) for site in (1, 2, 3)]), {}, {2: 1})
    assert found is not None
    assert sorted(found.ring) == [1, 3]


def test_a_barred_site_is_taken_when_the_ring_needs_it() -> None:
    found = form(votes(join(1, 4), join(2, 4)), {}, {2: 1})
    assert found is not None
    assert sorted(found.ring) == [1, 2]
