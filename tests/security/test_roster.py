"""Rosters: one spelling, one chain, one root; revocations that count at once; which roster counts when."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.rosters import NAME, REVOKE, ROOT, a_roster, identity, member, next_roster

from isocast.security.identities import Identity, market_of
from isocast.security.roster import (
    FORMER_MAX,
    ROSTER_BYTES_MAX,
    Roster,
    RosterBook,
    RosterMember,
    RosterRole,
    read_revocation,
    read_roster,
    read_roster_entry,
    read_unsigned,
    roster_entry,
    sign_revocation,
    sign_roster,
    unsigned,
)
from isocast.terms.errors import LocalProtocolError, RosterError
from isocast.terms.ids import other_id, source_id
from isocast.wire.packets import ControlEntry, ControlKind

FIRST = a_roster()
SIGNED = sign_roster(FIRST, ROOT)
LONDON = FIRST.members[0]


# ---- who is who


def test_a_roster_knows_its_members_whatever_a_sources_incarnation() -> None:
    assert FIRST.market == market_of(NAME, ROOT.public)
    assert FIRST.public_of(1) == identity("london").public
    assert FIRST.public_of(source_id(1, 77)) == identity("floor").public
    assert FIRST.member(source_id(1, 5)) == FIRST.by_name("floor")
    for stranger in (0, 3, 77, source_id(2, 1), other_id(2)):
        assert FIRST.public_of(stranger) is None
    assert FIRST.by_name("paris") is None


def test_a_key_counts_in_its_stripes_and_its_time_alone() -> None:
    assert FIRST.public_of(2, stripe=0) is not None
    assert FIRST.public_of(2, stripe=1) is None
    assert [FIRST.public_of(1, now_ns=now) is not None for now in (99, 100, 999, 1_000)] == [False, True, True, False]


def test_a_revoked_key_does_not_count() -> None:
    second = next_roster(FIRST, [LONDON.public])
    assert second.public_of(1) is None
    assert second.member(1) == LONDON, "people still see whose it was"
    assert second.public_of(2) is not None


# ---- one spelling


def test_what_was_signed_is_read() -> None:
    assert read_roster(SIGNED) == FIRST
    assert read_roster(SIGNED, name=NAME, root=ROOT.public, previous=FIRST, now_ns=500) == FIRST
    assert read_unsigned(unsigned(FIRST)) == FIRST


_KEYS = st.binary(min_size=32, max_size=32)
_PINS = st.lists(_KEYS, max_size=2, unique=True).map(tuple)
_NAMES = st.text("abcdefé-", min_size=1, max_size=20)


@st.composite
def rosters(draw: st.DrawFn) -> Roster:
    nodes = sorted(draw(st.sets(st.integers(1, 1 << 20) | st.integers(1, 99).map(lambda n: n << 32), max_size=5)))
    names = draw(st.lists(_NAMES, min_size=len(nodes), max_size=len(nodes), unique=True))
    publics = draw(st.lists(_KEYS, min_size=len(nodes) + 2, max_size=len(nodes) + 2, unique=True))
    members = []
    for node, name, public in zip(nodes, names, publics[2:], strict=True):
        begin = draw(st.integers(0, (1 << 64) - 2))
        members.append(
            RosterMember(
                node,
                name,
                draw(st.sampled_from(RosterRole)),
                public,
                draw(_KEYS),
                begin,
                draw(st.integers(begin + 1, (1 << 64) - 1)),
                tuple(sorted(draw(st.sets(st.integers(0, 65_535), max_size=3)))),
                draw(_PINS),
                draw(st.just(b"") | st.binary(min_size=48, max_size=48)),
            )
        )
    return Roster(
        draw(_NAMES),
        publics[0],
        draw(st.integers(2, (1 << 64) - 1)),
        tuple(members),
        publics[1],
        draw(_KEYS.filter(any)),
        tuple(sorted(draw(st.sets(_KEYS, max_size=3)))),
        draw(_PINS),
        draw(st.just(b"") | _KEYS),
    )


@given(rosters())
def test_any_roster_is_read_as_it_was_written(roster: Roster) -> None:
    raw = unsigned(roster)
    assert read_unsigned(raw) == roster
    assert unsigned(read_unsigned(raw)) == raw


@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_no_changed_byte_is_accepted(at: int, change: int) -> None:
    raw = bytearray(SIGNED)
    raw[at] ^= change
    with pytest.raises(RosterError):
        read_roster(bytes(raw), name=NAME, root=ROOT.public)


@given(st.integers(0, len(SIGNED) - 1))
def test_no_cut_roster_is_accepted(length: int) -> None:
    with pytest.raises(RosterError):
        read_roster(SIGNED[:length])


# ---- refusals, one sentence each


@pytest.mark.parametrize(
    "raw, others, sentence",
    [
        (b"", {}, "this is no roster: it begins otherwise; copy it again from where it was signed"),
        (SIGNED + b"x", {}, "this is no roster: it is cut, or bytes follow it; copy it again from where it was signed"),
        (bytes(ROSTER_BYTES_MAX + 1), {}, "this is no roster: it has 10,485,761 bytes, and 10,485,760 are the most"),
        (
            SIGNED[:4] + b"\2" + SIGNED[5:],
            {},
            "a roster of version 2, and this program reads version 1: update the older",
        ),
        (unsigned(FIRST), {}, "roster 1 is not signed: isocast keys sign signs it, where root.key is"),
        (
            SIGNED[:-1] + bytes((SIGNED[-1] ^ 1,)),
            {},
            "roster 1 has a wrong signature: it was changed, copy it again from where it was signed",
        ),
        (
            SIGNED,
            {"name": "other"},
            'a roster of the market "demo", not of "other": take the right one',
        ),
        (
            SIGNED,
            {"root": identity("other").public},
            'a roster of the market "demo", not of this market, whose root has another key: take the right one',
        ),
        (
            SIGNED,
            {"previous": next_roster(FIRST)},
            "roster 1 is older than 2, which is in force: take the newest",
        ),
        (
            SIGNED,
            {"previous": a_roster(authorities=(bytes(32),))},
            "another roster 1 is in force: the root signed two with one serial; make number 2 from the one in force",
        ),
        (
            sign_roster(next_roster(next_roster(FIRST)), ROOT),
            {"previous": FIRST},
            "roster 3 does not follow 1: bring those between into force first",
        ),
        (
            sign_roster(next_roster(a_roster(authorities=(bytes(32),))), ROOT),
            {"previous": FIRST},
            "roster 2 does not continue roster 1: make it again from the one in force",
        ),
        (SIGNED, {"now_ns": 99}, "roster 1 does not count yet: this machine's clock is behind, set it"),
        (SIGNED, {"now_ns": 1_000}, "all keys of roster 1 have expired: isocast keys roster --extend prolongs them"),
    ],
)
def test_each_refusal_says_what_to_do(raw: bytes, others: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RosterError) as caught:
        read_roster(raw, **others)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "others, rule",
    [
        ({"root": b"short"}, "the root has 32 bytes, not 5"),
        ({"serial": 0}, "a serial is from 1"),
        ({"serial": 2}, "names the digest of the one before"),
        ({"name": ""}, "a market's name has 1 to 200 bytes"),
        ({"authorities": (b"x",)}, "the CA has up to 2 pins of 32 bytes"),
        ({"ephemeral": b"x"}, "an ephemeral key has 32 bytes"),
        ({"former": bytes(48)}, "up to 6 core keys are handed on, behind an ephemeral key"),
        ({"ephemeral": bytes(32), "former": bytes(47)}, "up to 6 core keys are handed on"),
        ({"ephemeral": bytes(32), "former": bytes(16 + 7 * 32)}, "up to 6 core keys are handed on"),
        ({"revoked": (bytes(32), bytes(32))}, "revoked keys have 32 bytes each, ascending"),
        ({"members": (LONDON, LONDON)}, "members stand by id, each once"),
        ({"members": (LONDON, replace(LONDON, node=2))}, "two members have the same name"),
        ({"members": (LONDON, replace(LONDON, node=2, name="x"))}, "two members have the same key"),
        ({"revoke_key": ROOT.public}, "two members have the same key, or that of the root"),
        ({"members": (replace(LONDON, node=source_id(1, 1)),)}, "a source's without incarnation"),
        ({"members": (replace(LONDON, public=b""),)}, "public keys have 32 bytes"),
        ({"members": (replace(LONDON, not_after_ns=100),)}, "counts from an instant until a later one"),
        ({"members": (replace(LONDON, stripes=(1, 0)),)}, "up to 255 stripes, ascending"),
        ({"members": (replace(LONDON, certificates=(b"x",)),)}, "up to 2 pins of 32 bytes, each once"),
        ({"members": (replace(LONDON, certificates=(bytes(32), bytes(32))),)}, "up to 2 pins of 32 bytes, each once"),
        ({"members": (replace(LONDON, sealed_core=b"x"),)}, "a sealed key has 48 bytes"),
    ],
)
def test_a_roster_that_breaks_a_rule_is_neither_made_nor_signed(others: dict[str, Any], rule: str) -> None:
    with pytest.raises(LocalProtocolError, match=rule):
        a_roster(**others)


@pytest.mark.parametrize("former", [0, 16, 48, 16 + FORMER_MAX * 32])
def test_a_roster_is_read_with_as_many_core_keys_as_it_hands_on(former: int) -> None:
    roster = a_roster(ephemeral=bytes(range(32)), former=bytes(former))
    assert read_roster(sign_roster(roster, ROOT)) == roster


def test_nobody_else_signs_for_the_root() -> None:
    with pytest.raises(LocalProtocolError, match="the roster names another root"):
        sign_roster(FIRST, REVOKE)


# ---- the chain


def test_the_next_roster_continues_the_one_before() -> None:
    second = next_roster(FIRST, [LONDON.public])
    assert second.follows(FIRST)
    assert not FIRST.follows(second)
    assert not second.follows(second)
    assert not next_roster(a_roster(authorities=(bytes(32),))).follows(FIRST)
    forgetful = replace(next_roster(second), revoked=())
    assert not forgetful.follows(second), "a revoked key does not come back"
    assert read_roster(sign_roster(second, ROOT), previous=FIRST) == second


# ---- revocations


@pytest.mark.parametrize("key", [ROOT, REVOKE])
def test_root_and_revoke_key_revoke(key: Identity) -> None:
    said = sign_revocation(FIRST, LONDON, key, 500)
    assert read_revocation(said.encoded, FIRST) == said
    book = RosterBook(FIRST)
    assert book.public_of(1, 7) == LONDON.public
    assert book.revoke(said)
    assert book.public_of(1, 7) is None
    assert book.public_of(2, 7) is not None
    assert not book.revoke(said), "no news"
    assert book.revocations == (said,)


def test_nobody_else_revokes() -> None:
    with pytest.raises(LocalProtocolError, match="neither the root of the roster nor its revoke key"):
        sign_revocation(FIRST, LONDON, identity("tokyo"), 500)
    raw = sign_revocation(FIRST, LONDON, REVOKE, 500).encoded
    refusals = {
        raw[:-1]: "this is no revocation",
        raw + b"x": "this is no revocation",
        raw[:-1] + bytes((raw[-1] ^ 1,)): "a revocation with a wrong signature",
        raw[:4] + b"\2" + raw[5:]: "a revocation of version 2",
    }
    for damaged, sentence in refusals.items():
        with pytest.raises(RosterError, match=sentence):
            read_revocation(damaged, FIRST)
    with pytest.raises(RosterError, match="a revocation of another market"):
        read_revocation(raw, a_roster(name="other"))
    stranger = replace(sign_revocation(FIRST, LONDON, REVOKE, 500), public=identity("tokyo").public)
    book = RosterBook(FIRST)
    assert not book.revoke(stranger)
    assert not book.revoke(sign_revocation(FIRST, member(9, "nobody", RosterRole.OPERATOR), REVOKE, 500))
    assert book.public_of(2, 0) is not None


def test_a_new_revoke_key_lifts_what_the_stolen_one_said_and_the_root_did_not() -> None:
    book = RosterBook(FIRST)
    tokyo = FIRST.members[1]
    assert book.revoke(sign_revocation(FIRST, LONDON, REVOKE, 500))
    assert book.revoke(sign_revocation(FIRST, tokyo, REVOKE, 500))
    second = next_roster(FIRST, [tokyo.public], revoke_key=identity("another").public)
    assert book.schedule(second, 10)
    assert book.public_of(1, 10) == LONDON.public
    assert book.public_of(2, 10) is None


# ---- when which counts


def test_a_roster_counts_from_its_token_on_and_truncation_withdraws_it() -> None:
    book = RosterBook(FIRST)
    new = member(1, "london", RosterRole.PRIMARY_RECEIVER, (0, 1), public=identity("london 2").public)
    second = next_roster(FIRST, members=(new, *FIRST.members[1:]))
    assert book.schedule(second, 10)
    assert [book.public_of(1, token) == new.public for token in (0, 9, 10, 11)] == [False, False, True, True]
    assert (book.at(9), book.at(10), book.newest) == (FIRST, second, second)
    assert (book.of_serial(1), book.of_serial(2), book.of_serial(3)) == (FIRST, second, None)
    book.withdraw(11)
    assert book.at(10) == second
    book.withdraw(10)
    assert book.entries == ((0, FIRST),)
    assert book.newest == second, "known, and not in force"
    assert book.public_of(1, 10) == LONDON.public
    assert book.schedule(second, 12)
    assert book.public_of(1, 12) == new.public


def test_only_the_next_roster_is_taken() -> None:
    book = RosterBook(FIRST, 5)
    second = next_roster(FIRST)
    assert not book.schedule(FIRST, 10)
    assert not book.schedule(next_roster(second), 10)
    assert not book.schedule(second, 4), "not before the one in force"
    assert book.schedule(second, 10)
    assert not book.schedule(second, 11)


def test_a_book_is_bounded() -> None:
    book, roster = RosterBook(FIRST), FIRST
    for token in range(1, 40):
        roster = next_roster(roster)
        assert book.schedule(roster, token)
    assert len(book.entries) == 16
    assert book.at(0) == book.entries[0][1]


NEW_LONDON = member(1, "london", RosterRole.PRIMARY_RECEIVER, (0, 1), public=identity("london 2").public)
SECOND = next_roster(FIRST, members=(NEW_LONDON, *FIRST.members[1:]))


def test_an_offered_roster_is_believed_before_and_the_old_one_until_it_counts() -> None:
    book = RosterBook(FIRST)
    assert book.key_of(1, 2) is None, "nobody knows serial 2"
    assert book.offer(SECOND)
    assert not book.offer(SECOND)
    assert (book.key_of(1, 1, 5), book.key_of(1, 2, 5)) == (LONDON.public, NEW_LONDON.public)
    assert (book.key_of(1, 1), book.key_of(1, 2)) == (None, NEW_LONDON.public), "of ballots only the newest counts"
    assert (book.serial_of(LONDON.public), book.serial_of(LONDON.public, 5)) == (1, 1)
    assert (book.serial_of(NEW_LONDON.public), book.serial_of(NEW_LONDON.public, 5)) == (2, 2)
    assert (book.serial_of(identity("tokyo").public), book.serial_of(identity("tokyo").public, 5)) == (2, 1)
    assert book.schedule(SECOND, 10)
    assert (book.key_of(1, 1, 10), book.key_of(1, 2, 10)) == (None, NEW_LONDON.public), "older serials are refused"
    assert book.key_of(1, 1, token_number=9) == LONDON.public, "but for what is older"
    assert book.key_of(1, 1, token_number=10) is None
    assert book.serial_of(identity("tokyo").public, 9) == 1
    assert book.serial_of(identity("tokyo").public, 10) == 2


def test_whoever_starts_with_the_next_roster_understands_those_who_are_not_there_yet() -> None:
    book = RosterBook(SECOND)
    assert book.key_of(2, 1, 5) == identity("tokyo").public
    assert book.key_of(2, 3, 5) is None
    assert book.schedule(next_roster(SECOND), 10)
    assert book.key_of(2, 1, 10) is None


def test_an_entry_names_the_roster_and_when_it_counts() -> None:
    entry = roster_entry(SECOND, 40)
    assert read_roster_entry(entry, 7) == (2, SECOND.digest, 40)
    assert read_roster_entry(entry, 40).effective == 41, "never before the entry itself"
    for wrong in (
        ControlEntry(ControlKind.MARK, 2, entry.body),
        entry._replace(body=entry.body[:-1]),
        entry._replace(subject=0),
    ):
        with pytest.raises(RosterError, match="announces no roster"):
            read_roster_entry(wrong, 7)


def test_a_book_that_is_restored_knows_again_what_counted_when() -> None:
    third = next_roster(SECOND)
    book = RosterBook(third, past=(FIRST, SECOND))
    assert book.key_of(1, 1, token_number=5) == LONDON.public, "it does not know since when the third counts"
    assert book.key_of(1, 1) is None
    book.restore({1: 0, 2: 10})
    assert book.entries == ((0, FIRST), (10, SECOND))
    assert book.newest == third, "offered, and not in force"
    assert book.key_of(1, 1, token_number=9) == LONDON.public
    assert book.key_of(1, 1, token_number=10) is None
    assert book.key_of(1, 3, token_number=10) == NEW_LONDON.public
    assert book.serial_of(identity("tokyo").public, 12) == 2
    assert book.schedule(third, 20)


def test_rosters_of_another_branch_are_no_past() -> None:
    other = next_roster(a_roster(authorities=(bytes(32),)))
    book = RosterBook(next_roster(SECOND), past=(FIRST, other))
    assert book.of_serial(2) is None
    assert book.of_serial(1) is None, "nor what a gap leads to"
