"""The core key in a roster: who reads it, who does not, and when there is another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.security.rosters import ROOT, a_roster, identity, next_roster

from isocast.security.group_keys import has_core_key, keeps_core_key, open_core_key, seal_core_key
from isocast.security.keys import SecretKey
from isocast.security.roster import read_roster, sign_roster
from isocast.terms.errors import LocalProtocolError, RosterError

CORE, EPHEMERAL = bytes(range(32)), bytes(range(32, 64))
SEALED = seal_core_key(a_roster(), CORE, EPHEMERAL)


@pytest.mark.parametrize("name", ["london", "tokyo", "reformer", "floor"])
def test_a_node_of_the_core_reads_it_from_the_signed_file(name: str) -> None:
    roster = read_roster(sign_roster(SEALED, ROOT))
    assert open_core_key(roster, identity(name)) == SecretKey(CORE)


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
    assert all(CORE not in part for part in parts)


def test_the_same_nodes_keep_their_core_key() -> None:
    later = next_roster(SEALED)
    prolonged = replace(later, members=tuple([replace(one, not_after_ns=2_000) for one in later.members]))
    kept = keeps_core_key(prolonged, SEALED)
    assert kept.ephemeral == SEALED.ephemeral
    assert open_core_key(kept, identity("tokyo")) == SecretKey(CORE)


def test_whoever_left_or_was_revoked_has_no_part_in_the_next() -> None:
    gone = next_roster(SEALED, members=tuple([one for one in SEALED.members if one.name != "tokyo"]))
    revoked = next_roster(SEALED, revoked=[identity("tokyo").public])
    for roster in (gone, revoked):
        assert keeps_core_key(roster, SEALED).ephemeral == b""
        sealed = seal_core_key(roster, EPHEMERAL, CORE)
        assert open_core_key(sealed, identity("tokyo")) is None
        assert open_core_key(sealed, identity("london")) == SecretKey(EPHEMERAL)


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        seal_core_key(a_roster(), b"", EPHEMERAL)
    first, *others = a_roster().members
    broken = a_roster(members=(replace(first, exchange=bytes(32)), *others))
    with pytest.raises(LocalProtocolError, match="the exchange key of london is none"):
        seal_core_key(broken, CORE, EPHEMERAL)
