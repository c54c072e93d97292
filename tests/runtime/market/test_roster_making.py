"""Requests and the next roster: what travels to the root, and what it is asked to sign."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.market.test_roster_files import market_in
from tests.security.rosters import identity

from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import (
    KeysCounting,
    NewsReader,
    load_book,
    load_identity,
    load_roster,
    past_rosters,
    save_revocation,
    save_roster,
)
from isocast.runtime.market.roster_making import (
    IdentityRequest,
    RosterWish,
    load_root,
    make_request,
    next_roster,
    read_request,
    renew_roster,
    revocation_of,
    rotate_identity,
)
from isocast.security.roster import sign_roster
from isocast.terms.errors import ConfigurationError, RosterError

TOKYO = identity("tokyo")
REQUEST = make_request("tokyo", TOKYO)


@pytest.fixture
def keyed(tmp_path: Path) -> Market:
    market = market_in(tmp_path)
    init_keys(market)
    return market


# ---- requests


def test_a_request_carries_the_public_half_alone() -> None:
    assert read_request(REQUEST) == IdentityRequest("tokyo", TOKYO.public, TOKYO.exchange)


@given(st.integers(0, len(REQUEST) - 1), st.integers(1, 255))
def test_no_changed_request_is_accepted(at: int, change: int) -> None:
    raw = bytearray(REQUEST)
    raw[at] ^= change
    with pytest.raises(RosterError, match=r"this is no request|wrong signature"):
        read_request(bytes(raw))


@given(st.binary(max_size=400))
def test_any_bytes_are_a_request_or_refused(raw: bytes) -> None:
    for data in (raw, REQUEST[:5] + raw, REQUEST[: len(raw) % len(REQUEST)]):
        with pytest.raises(RosterError):
            read_request(data)


# ---- the next roster


def test_init_leaves_revocations_to_the_next_roster(keyed: Market) -> None:
    save_revocation(keyed, revocation_of(keyed, "b"))
    (keyed.keys_directory / "root.key").unlink()
    assert not [file for file in init_keys(keyed) if file.made]


def test_a_revoked_key_is_taken_away_for_good(keyed: Market) -> None:
    said = revocation_of(keyed, "b")
    save_revocation(keyed, said)
    assert [one.public for one in load_book(keyed).revocations] == [said.public]
    second = renew_roster(keyed)
    assert second is not None
    assert second.revoked == (said.public,)
    assert load_book(keyed).revocations == (), "the root's own word now"
    assert renew_roster(keyed) is None


def test_a_rotation_changes_one_key_and_nothing_else(keyed: Market) -> None:
    before = load_roster(keyed)
    new = rotate_identity(keyed, "b")
    assert rotate_identity(keyed, "b").public == new.public, "safe to repeat"
    after = renew_roster(keyed, RosterWish((IdentityRequest("b", new.public, new.exchange),)))
    assert after is not None
    assert after.follows(before)
    unsealed = [replace(member, sealed_core=b"") for member in after.members]
    changed = [one.name for one, two in zip(before.members, unsealed, strict=True) if one != two]
    assert changed == ["b"]
    assert rotate_identity(keyed, "b").public != new.public, "the next one"


def test_every_roster_is_kept(keyed: Market) -> None:
    first = load_roster(keyed)
    second = renew_roster(keyed, RosterWish(extend=("a",), valid_ns=2 * 10**18))
    assert past_rosters(keyed) == (first, second)


def test_an_older_roster_and_another_branch_are_not_taken_over(keyed: Market) -> None:
    first = load_roster(keyed)
    root = load_root(keyed.keys_directory / "root.key", first)
    renew_roster(keyed, RosterWish(extend=("a",), valid_ns=2 * 10**18))
    with pytest.raises(ConfigurationError, match="roster 1 is older than 2, which is in force: take the newest"):
        save_roster(keyed, sign_roster(first, root))
    branch = replace(first, serial=2, previous=first.digest)
    with pytest.raises(ConfigurationError, match="another roster 2 is in force"):
        save_roster(keyed, sign_roster(branch, root))
    with pytest.raises(ConfigurationError, match="roster 3 does not continue roster 2"):
        save_roster(keyed, sign_roster(replace(branch, serial=3, previous=branch.digest), root))


def test_two_nodes_cannot_have_one_key(keyed: Market) -> None:
    public = load_roster(keyed).members[0]
    twin = RosterWish((IdentityRequest("b", public.public, public.exchange),))
    with pytest.raises(ConfigurationError, match="two members have the same key"):
        next_roster(keyed, twin, 1)


def test_anothers_root_does_not_sign(keyed: Market) -> None:
    (keyed.keys_directory / "root.key").write_text("ab" * 32, encoding="ascii")
    with pytest.raises(ConfigurationError, match="is not the root of the market market: bring the right one"):
        renew_roster(keyed, RosterWish(extend=("a",), valid_ns=2 * 10**18))


def test_a_program_that_nobody_tells_looks_for_itself(keyed: Market) -> None:
    now = [0.0]
    reader = NewsReader(keyed, load_book(keyed), clock=lambda: now[0])
    b, public = keyed.node("b").node, load_identity(keyed, "b").public
    assert reader.key_of(b, 1) == public
    renew_roster(keyed, RosterWish(extend=("a",), valid_ns=2 * 10**18))
    assert reader.key_of(b, 2) is None, "within a second of the last look"
    now[0] = 1.0
    assert reader.key_of(b, 2) == public
    assert reader.key_of(b, 1) is None, "ballots are of the newest alone"
    (keyed.keys_directory / "roster.bin").write_bytes(b"half of it")
    now[0] = 30.0
    assert reader.key_of(b, 3) is None
    assert reader.key_of(b, 2) == public


def test_a_customer_looks_now_and_then_and_believes_the_roster_before(keyed: Market) -> None:
    now = [0.0]
    reader = NewsReader(keyed, load_book(keyed), KeysCounting.TWO_NEWEST, looks_unasked=True, clock=lambda: now[0])
    b, public = keyed.node("b").node, load_identity(keyed, "b").public
    renew_roster(keyed, RosterWish(extend=("a",), valid_ns=2 * 10**18))
    now[0] = 1.0
    assert [reader.key_of(b, serial) for serial in (1, 2, 1)] == [public, public, public]
    save_revocation(keyed, revocation_of(keyed, "b"))
    now[0] = 10.9
    assert reader.key_of(b, 2) == public
    now[0] = 11.0
    assert [reader.key_of(b, serial) for serial in (1, 2)] == [None, None]


def test_whoever_weighs_lies_goes_by_no_key_that_was_replaced(keyed: Market) -> None:
    """At an old token the old key counts for those who follow the sequence: a server does not."""
    b, old = keyed.node("b").node, load_identity(keyed, "b").public
    new = rotate_identity(keyed, "b")
    follower = NewsReader(keyed, load_book(keyed))
    server = NewsReader(keyed, load_book(keyed), KeysCounting.NEWEST)
    assert (follower.key_of(b, 1, 5), server.key_of(b, 1, 5)) == (old, old)
    renew_roster(keyed, RosterWish((IdentityRequest("b", new.public, new.exchange),)))
    follower, server = NewsReader(keyed, load_book(keyed)), NewsReader(keyed, load_book(keyed), KeysCounting.NEWEST)
    assert (follower.key_of(b, 1, 5), server.key_of(b, 1, 5)) == (old, None)
    assert (follower.key_of(b, 2, 5), server.key_of(b, 2, 5)) == (new.public, new.public)


def test_a_source_believes_the_ring_that_it_finds_by_a_key_that_is_still_the_signers(keyed: Market) -> None:
    a, b = (keyed.node(name).node for name in "ab")
    kept, old = (load_identity(keyed, name).public for name in "ab")
    running = NewsReader(keyed, load_book(keyed), KeysCounting.NOT_REPLACED)
    new = rotate_identity(keyed, "b")
    renew_roster(keyed, RosterWish((IdentityRequest("b", new.public, new.exchange),)))
    renew_roster(keyed, RosterWish(new_core_key=True))
    assert running.key_of(b, 1) == old, "it knows nothing newer"
    started = NewsReader(keyed, load_book(keyed), KeysCounting.NOT_REPLACED)
    assert [started.key_of(a, serial) for serial in (1, 2, 3)] == [kept, kept, kept]
    assert [started.key_of(b, serial) for serial in (1, 2, 3)] == [None, new.public, new.public]
    assert started.key_of(b, 1, 5) == old, "tokens are of their time"
    save_revocation(keyed, revocation_of(keyed, "a"))
    revoked = NewsReader(keyed, load_book(keyed), KeysCounting.NOT_REPLACED)
    assert [revoked.key_of(a, serial) for serial in (1, 2, 3)] == [None, None, None]
