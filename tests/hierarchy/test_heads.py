"""Who heads which secondary group on which ring (§4.1, §4.3): a function that every node computes alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.hierarchy.headship import NO_GROUPS, Group, GroupPlan
from isocast.terms.ids import NodeId

PARENTS = {11: 1, 12: 1, 21: 2, 22: 2, 31: 3, 111: 11, 112: 11}
"""Three groups below a ring of four, and a third layer below site 11."""
BACKUPS = {11: 2, 12: 3, 21: 3, 22: 3, 31: 4, 111: 1, 112: 1}
RING = (1, 2, 3, 4)


def line(group: NodeId, site: NodeId) -> int:
    """Sites stand in a row."""
    return abs(group - site)


PLAN = GroupPlan.below(PARENTS, BACKUPS, line)


def test_the_files_head_heads_its_group_while_it_is_on_the_ring() -> None:
    assert PLAN.heads(RING) == {1: 1, 2: 2, 3: 3, 11: 11}


def test_a_group_whose_head_is_off_the_ring_goes_to_the_backup_that_most_of_it_name() -> None:
    assert PLAN.heads((1, 3, 4))[2] == 3
    assert PLAN.heads((2, 3, 4))[1] == 2, "each names another: the lowest number"
    assert PLAN.heads((3, 4))[1] == 3, "of those on the ring"


def test_without_a_backup_on_the_ring_the_nearest_with_less_than_its_share_heads_it() -> None:
    plan = GroupPlan.below(PARENTS, {}, line)
    assert plan.heads((1, 3, 4)) == {1: 1, 2: 4, 3: 3, 11: 11}, "sites 1 and 3 have their share"
    assert plan.heads((1, 4)) == {1: 1, 2: 1, 3: 4, 11: 11}, "two each, nearest first"
    assert plan.heads((4,)) == {1: 4, 2: 4, 3: 4, 11: 11}


def test_a_group_comes_back_with_its_head() -> None:
    assert PLAN.heads((1, 3, 4))[2] != 2
    assert PLAN.heads((4, 3, 2, 1))[2] == 2


def test_a_secondary_head_keeps_its_group_whatever_the_ring() -> None:
    assert PLAN.heads((3, 4))[11] == 11
    assert PLAN.heads(()) == {11: 11}


def test_a_silent_heads_group_is_adopted_by_its_own_head_or_by_whoever_would_come_next() -> None:
    assert PLAN.adopter(11, RING) == 1
    assert PLAN.adopter(11, (2, 3, 4)) == 2, "who heads the group of site 1 now"
    assert PLAN.adopter(2, RING) == 3
    assert PLAN.adopter(2, (2,)) is None
    assert PLAN.adopter(11, ()) is None


def test_who_is_whose() -> None:
    group = Group(1, (11, 12), (2, 3))
    assert (PLAN.group_of(11), PLAN.group_of(1), group.size) == (group, None, 3)
    assert [PLAN.backup_of(site) for site in (12, 111, 1)] == [3, 1, None]
    assert PLAN.askers_of(3) == (12, 21, 22, 31)
    assert NO_GROUPS.heads(RING) == {}


@pytest.mark.parametrize("ring", [RING, (4, 2, 3, 1), (3, 1, 4, 2)])
def test_the_order_of_the_ring_does_not_matter(ring: tuple[NodeId, ...]) -> None:
    plan = GroupPlan.below(PARENTS, {}, lambda _, __: 0)
    for gone in RING:
        left = [site for site in ring if site != gone]
        assert plan.heads(left) == plan.heads(sorted(left))


def test_without_distances_groups_go_to_different_sites() -> None:
    """Five sites of ten die, and nobody named a backup: nobody heads more than two groups."""
    plan = GroupPlan.below({site + 100: site for site in range(1, 11)}, {})
    heads = list(plan.heads(range(1, 6)).values())
    assert {heads.count(site) for site in range(1, 6)} == {2}


@given(
    st.sets(st.integers(1, 12), min_size=1),
    st.lists(st.tuples(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 12))), max_size=24),
)
def test_every_group_has_a_head_on_the_ring_and_nobody_is_loaded_by_choice(
    ring: set[int], below: list[tuple[int, int | None]]
) -> None:
    parents = {100 + place: parent for place, (parent, _) in enumerate(below)}
    backups = {100 + place: backup for place, (_, backup) in enumerate(below) if backup is not None}
    plan = GroupPlan.below(parents, backups, line)
    heads = plan.heads(sorted(ring))
    assert set(heads) == set(parents.values())
    assert set(heads.values()) <= ring
    share = -(-len(heads) // len(ring))
    for group, head in heads.items():
        named = [backup for backup in plan.groups[group].backups if backup in ring]
        chosen = group not in ring and not named
        assert not chosen or list(heads.values()).count(head) <= share
        assert group not in ring or head == group
