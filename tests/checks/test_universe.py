"""U as the checkers see it, and what S9 says of its changes."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest
from tests.checks.traces import (
    E1,
    E2,
    MS,
    R1,
    SITES,
    completed,
    digest,
    installed,
    instant,
    law,
    released,
    ring,
    unsafe,
)

from isocast.checks.facts import Completed, Fact
from isocast.checks.universe import Chains, UniverseChange, spans
from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_DIGEST, ControlEntry, ControlKind, NewRing

ADD4, ADD5 = [ControlEntry(ControlKind.ADD_SITE, site, b"") for site in (4, 5)]
REMOVE3 = ControlEntry(ControlKind.REMOVE_SITE, 3, b"")
FORCE = ControlEntry(ControlKind.FORCE_UNIVERSE, 0, pack("<2I", 1, 2))
LOST = law(agreement=False)


def changing(site: NodeId, number: int, *control: ControlEntry, of: NewRing = R1) -> Completed:
    return completed(site, number, of)._replace(control=control)


def founded(*extra: NodeId) -> list[Fact]:
    return [installed(site) for site in (*SITES, *extra)]


def test_a_chain_grows_with_the_log() -> None:
    chains = Chains(SITES)
    chain = chains.grow(chains.first, 1, digest(E1, 1), ())
    assert chain == (UniverseChange(0, SITES),)
    chain = chains.grow(chain, 2, digest(E1, 2), (ADD4,))
    chain = chains.grow(chain, 3, digest(E1, 3), (REMOVE3,))
    assert chain == (UniverseChange(0, SITES), UniverseChange(2, (1, 2, 3, 4)), UniverseChange(3, (1, 2, 4)))
    assert chains.at(digest(E1, 2)) == chain[:2]
    assert chains.at(NO_DIGEST) == chains.first


def test_each_span_is_certified_by_the_u_before_its_change() -> None:
    chain = (UniverseChange(0, SITES), UniverseChange(4, (1, 2, 3, 4)), UniverseChange(9, (1, 2, 4)))
    assert spans(chain[:2], 0)[0] == (4, SITES)
    assert [universe for _, universe in spans(chain, 0)] == [(1, 2, 3, 4), (1, 2, 4)]
    assert [universe for _, universe in spans(chain, 9)] == [(1, 2, 4)]
    forced = (*chain, UniverseChange(12, (1, 2), forced=True))
    assert [universe for _, universe in spans(forced, 0)] == [(1, 2)]


def test_s9_a_majority_certifies_a_change() -> None:
    """Protocol §5: a `control` entry that a majority of the old U has certified; or one of the new U."""
    facts = [*founded(4), changing(1, 1, ADD4), changing(4, 1, ADD4)]
    assert "S9" in unsafe([*facts, released(1, 1)], LOST)
    assert "S9" not in unsafe([*facts, changing(2, 1, ADD4), released(1, 1)], LOST)


def test_s9_whoever_was_added_counts() -> None:
    facts: list[Fact] = [*founded(4), *[changing(site, 1, ADD4) for site in (*SITES, 4)]]
    facts += [completed(site, 2) for site in (2, 1)]
    assert "S9" in unsafe([*facts, released(1, 2)], LOST)
    assert "S9" not in unsafe([*facts, completed(4, 2), released(1, 2)], LOST)


def test_s9_whoever_was_removed_does_not() -> None:
    facts: list[Fact] = [*founded(), *[changing(site, 1, REMOVE3) for site in SITES], completed(2, 2), completed(3, 2)]
    assert "S9" in unsafe([*facts, released(2, 2)], LOST)
    assert "S9" not in unsafe([*facts, completed(1, 2), released(2, 2)], LOST)


@pytest.mark.parametrize("holders, blamed", [((1,), True), ((1, 2), False)])
def test_s9_a_change_is_certified_before_the_next_begins(holders: tuple[NodeId, ...], blamed: bool) -> None:  # noqa: FBT001
    facts = [*founded(), *[changing(site, 1, ADD4) for site in holders], changing(1, 2, ADD5)]
    assert ("S9" in unsafe(facts, LOST)) == blamed


def test_s9_u_changes_by_one_site_at_a_time() -> None:
    assert "S9" in unsafe([*founded(), changing(1, 1, ADD4, ADD5)], LOST)


def test_s9_u_does_not_change_without_a_majority() -> None:
    alone = replace_ring(ring(E1, (1,)), uncertified=True)
    assert "S9" in unsafe([installed(1, alone), changing(1, 1, ADD4, of=alone)], LOST)


def replace_ring(found: NewRing, *, uncertified: bool = False, forced: bool = False) -> NewRing:
    return found._replace(uncertified=uncertified, forced=forced)


def test_s9_after_a_forced_change_the_new_u_certifies() -> None:
    facts: list[Fact] = [*founded(), *[completed(site, 1) for site in SITES]]
    second = replace_ring(ring(E2, (1, 2), cut_epoch=E1, cut_token=1, start=instant(4), universe=(1, 2)), forced=True)
    facts += [installed(site, second, at=instant(2)) for site in (1, 2)]
    facts += [changing(site, 2, FORCE, of=second) for site in (1, 2)]
    assert "S9" not in unsafe([*facts, released(1, 2)._replace(epoch=E2)], LOST)


@pytest.mark.parametrize("marked", [False, True])
def test_s9_a_release_without_a_majority_says_so(marked: bool) -> None:  # noqa: FBT001
    alone = replace_ring(ring(E1, (1,)), uncertified=True)
    release = released(1, 1)._replace(uncertified=marked)
    may = replace(LOST, may_diverge=True)
    assert ("S9" in unsafe([installed(1, alone), completed(1, 1, alone), release], may)) == (not marked)


def test_s9_a_release_with_a_majority_does_not_say_otherwise() -> None:
    facts: list[Fact] = [*founded(), *[completed(site, 1) for site in SITES]]
    assert "S9" in unsafe([*facts, released(1, 1)._replace(uncertified=True)], LOST)
    assert instant(1) + 20 * MS < instant(2)
