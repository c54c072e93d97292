"""Identities at doors: what a signature counts for, and what it does not."""

from __future__ import annotations

import copy

import pytest
from tests.security.rosters import a_roster, identity

from isocast.security.door_identities import DoorHand, DoorWord, EphemeralKey, Handshake, encode_word, read_word
from isocast.security.roster import RosterBook
from isocast.security.signing import IdentitySigner
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import source_id
from isocast.wire.signing import SignedKind

BOOK = RosterBook(a_roster())
MARKET = BOOK.newest.market
FLOOR, LONDON = source_id(1, 0), 1
NONCES = (bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32)
ABOUT = Handshake(FLOOR, 0, "source/floor", NONCES)
VISITOR, DOOR = EphemeralKey(bytes([7]) * 32), EphemeralKey(bytes([8]) * 32)


def hand(name: str = "", refused: dict[SignedKind, int] | None = None) -> DoorHand:
    signer = IdentitySigner(identity(name), MARKET, BOOK) if name else None
    return DoorHand(MARKET, BOOK, signer, refused)


def test_both_sides_believe_what_the_other_signed() -> None:
    word = hand("floor").visitor_word(ABOUT, VISITOR.public)
    assert hand().is_visitor(ABOUT, FLOOR, read_word(encode_word(word)))
    answer = hand("floor").door_word(ABOUT, word.ephemeral, DOOR.public)
    assert hand().is_door(ABOUT, VISITOR.public, read_word(encode_word(answer)))


@pytest.mark.parametrize(
    "other",
    [
        ABOUT._replace(door=LONDON),
        ABOUT._replace(stripe=1),
        ABOUT._replace(visitor="source/flooR"),
        *(ABOUT._replace(nonces=(*NONCES[:at], bytes(32), *NONCES[at + 1 :])) for at in range(3)),
    ],
    ids=["door", "stripe", "name", "door's nonce", "visitor's nonce", "certificate"],
)
def test_a_signature_counts_for_one_handshake_alone(other: Handshake) -> None:
    refused: dict[SignedKind, int] = {}
    word = hand("floor").visitor_word(ABOUT, VISITOR.public)
    assert not hand(refused=refused).is_visitor(other, FLOOR, word)
    answer = hand("floor").door_word(ABOUT, VISITOR.public, DOOR.public)
    assert not hand(refused=refused).is_door(other, VISITOR.public, answer)
    assert refused == {SignedKind.DOOR: 2}


def test_ephemeral_keys_are_signed_and_sides_are_not_exchanged() -> None:
    judge = hand()
    word = hand("floor").visitor_word(ABOUT, VISITOR.public)
    assert not judge.is_visitor(ABOUT, FLOOR, word._replace(ephemeral=DOOR.public))
    assert not judge.is_door(ABOUT, VISITOR.public, word)
    answer = hand("floor").door_word(ABOUT, VISITOR.public, DOOR.public)
    assert not judge.is_door(ABOUT, DOOR.public, answer)
    assert not judge.is_visitor(ABOUT, FLOOR, answer)


def test_nobody_else_and_nobody_without_a_signature_is_believed() -> None:
    judge = hand()
    assert not judge.is_visitor(ABOUT, FLOOR, hand("london").visitor_word(ABOUT, VISITOR.public))
    assert not judge.is_visitor(ABOUT, FLOOR, hand("stranger").visitor_word(ABOUT, VISITOR.public))
    silent = hand().visitor_word(ABOUT, VISITOR.public)
    assert silent == DoorWord(VISITOR.public)
    assert not judge.is_visitor(ABOUT, FLOOR, silent)


def test_both_agree_on_a_key_that_the_doors_key_does_not_give() -> None:
    key = bytes(range(32))
    agreed = VISITOR.agree(DOOR.public, key)
    assert agreed == DOOR.agree(VISITOR.public, key)
    assert agreed not in (key, VISITOR.agree(DOOR.public, bytes(32)), VISITOR.agree(VISITOR.public, key))


@pytest.mark.parametrize("raw", [b"", b"\x0f", b"\x0e" + bytes(32), b"\x0f" + bytes(33), b"\x0f" + bytes(105)])
def test_what_is_no_word_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_word(raw)


def test_a_key_on_which_nobody_agrees_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="an ephemeral key that is none"):
        VISITOR.agree(bytes(32), bytes(32))


def test_an_ephemeral_key_is_not_copied() -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(VISITOR)
