"""The core key in a roster: who reads it, who does not, and when there is another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.security.rosters import ROOT, a_roster, identity, next_roster

from isocast.security.group_keys import (
    awaits_core_key,
    former_core_keys,
    has_core_key,
    keeps_core_key,
    open_core_key,
    seal_core_key,
    wants_core_key,
)
from isocast.security.keys import SecretKey
from isocast.security.roster import FORMER_MAX, Roster, read_roster, read_unsigned, sign_roster, unsigned
from isocast.terms.errors import LocalProtocolError, RosterError

EPHEMERAL, ANOTHER = bytes(range(32)), bytes(range(32, 64))
SEALED = seal_core_key(a_roster(), ROOT, EPHEMERAL)


def core_of(roster: Roster, name: str = "london") -> SecretKey:
    found = open_core_key(roster, identity(name))
    assert found is not None
    return found


CORE = core_of(SEALED)


@pytest.mark.parametrize("name", ["london", "tokyo", "reformer", "floor"])
def test_a_node_of_the_core_reads_it_from_the_signed_file(name: str) -> None:
    roster = read_roster(sign_roster(SEALED, ROOT))
    assert open_core_key(roster, identity(name)) == CORE


@pytest.mark.parametrize("name", ["operator", "archive", "stranger"])
def test_nobody_else_does(name: str) -> None:
    assert open_core_key(SEALED, identity(name)) is None


def test_a_roster_without_one_brings_none() -> None:
    assert open_core_key(a_roster(), identity("london")) is None


def test_a_part_that_was_moved_to_another_or_changed_does_not_open() -> None:
    london, tokyo, *others = SEALED.members
    moved = replace(london, sealed_core=tokyo.sealed_core)
    with pytest.raises(RosterError, match=r"the core key in roster 1 does not open for london: .*isocast keys rotate"):
        open_core_key(replace(SEALED, members=(moved, tokyo, *others)), identity("london"))
    other_market = replace(SEALED, name="another")
    with pytest.raises(RosterError, match="does not open"):
        open_core_key(other_market, identity("london"))
    with pytest.raises(RosterError, match="does not open"):
        open_core_key(replace(SEALED, ephemeral=bytes(32)), identity("london"))


def test_two_parts_are_never_alike() -> None:
    parts = [member.sealed_core for member in SEALED.members if has_core_key(member)]
    assert len(set(parts)) == len(parts) == 4


def test_every_ephemeral_key_makes_another_core_key_and_every_root_too() -> None:
    assert core_of(seal_core_key(a_roster(), ROOT, ANOTHER)) != CORE
    other_root = a_roster(root=identity("another root").public)
    assert core_of(seal_core_key(other_root, identity("another root"), EPHEMERAL)) != CORE


def test_the_same_nodes_keep_their_core_key() -> None:
    later = next_roster(SEALED)
    prolonged = replace(later, members=tuple([replace(one, not_after_ns=2_000) for one in later.members]))
    kept = keeps_core_key(prolonged, SEALED)
    assert kept.ephemeral == SEALED.ephemeral
    assert open_core_key(kept, identity("tokyo")) == CORE


def test_whoever_left_or_was_revoked_has_no_part_in_the_next() -> None:
    gone = next_roster(SEALED, members=tuple([one for one in SEALED.members if one.name != "tokyo"]))
    revoked = next_roster(SEALED, revoked=[identity("tokyo").public])
    for roster in (gone, revoked):
        awaiting = keeps_core_key(roster, SEALED)
        assert awaits_core_key(awaiting)
        sealed = seal_core_key(awaiting, ROOT, ANOTHER)
        assert not awaits_core_key(sealed)
        assert open_core_key(sealed, identity("tokyo")) is None
        assert core_of(sealed) != CORE
        with pytest.raises(RosterError, match="hands on do not open"):
            former_core_keys(sealed, CORE)


# ---- the keys before


def another(before: Roster) -> Roster:
    """The next roster, with another core key, as it comes back from the root: the market's file is not there."""
    raw = unsigned(wants_core_key(next_roster(before), before))
    drawn = seal_core_key(read_unsigned(raw), ROOT, bytes([before.serial]) * 32)
    return read_roster(sign_roster(drawn, ROOT), previous=before)


def test_who_is_new_has_the_core_keys_before_from_the_newest_roster_alone() -> None:
    second = another(SEALED)
    third = another(second)
    assert former_core_keys(SEALED, CORE) == ()
    assert former_core_keys(second, core_of(second)) == (CORE,)
    assert former_core_keys(third, core_of(third, "tokyo")) == (core_of(second), CORE)


def test_a_roster_that_keeps_its_core_key_hands_on_the_same() -> None:
    second = another(SEALED)
    kept = keeps_core_key(next_roster(second), second)
    assert former_core_keys(kept, core_of(kept)) == (CORE,)
    third = another(kept)
    assert former_core_keys(third, core_of(third)) == (core_of(second), CORE)


def test_so_many_are_handed_on_and_no_more() -> None:
    keys, roster = [CORE], SEALED
    for _ in range(FORMER_MAX + 2):
        roster = another(roster)
        keys.insert(0, core_of(roster))
    assert former_core_keys(roster, keys[0]) == tuple(keys[1 : FORMER_MAX + 1])


def test_a_core_key_that_the_root_did_not_draw_is_not_handed_on() -> None:
    """Of a version before this one, which drew it where the roster was made, and kept no copy."""
    older = replace(SEALED, former=b"")
    second = another(older)
    assert former_core_keys(second, core_of(second)) == ()
    third = another(second)
    assert former_core_keys(third, core_of(third)) == (core_of(second),)


def test_what_is_handed_on_counts_in_its_own_market_alone() -> None:
    second = another(SEALED)
    with pytest.raises(RosterError, match=r"the core keys that roster 2 hands on do not open: .*--new-core-key"):
        former_core_keys(replace(second, name="another"), core_of(second))
    with pytest.raises(LocalProtocolError, match="its root did not draw"):
        seal_core_key(replace(next_roster(second), former=bytes(48)), ROOT, ANOTHER)


def test_an_ephemeral_key_that_is_none_is_refused_in_the_same_words() -> None:
    """With it the root would agree on zeros; whoever prepares a roster for it could put it there."""
    wanted = wants_core_key(next_roster(SEALED), SEALED)
    with pytest.raises(LocalProtocolError, match="its root did not draw"):
        seal_core_key(replace(wanted, ephemeral=bytes(32)), ROOT, ANOTHER)


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="32 random bytes"):
        seal_core_key(a_roster(), ROOT, b"")
    with pytest.raises(LocalProtocolError, match="the root of the roster draws"):
        seal_core_key(a_roster(), identity("london"), EPHEMERAL)
    first, *others = a_roster().members
    broken = a_roster(members=(replace(first, exchange=bytes(32)), *others))
    with pytest.raises(LocalProtocolError, match="the exchange key of london is none"):
        seal_core_key(broken, ROOT, EPHEMERAL)
