"""Ed25519 under the roster: who may sign what, where, and under which serial."""

from __future__ import annotations

from tests.security.rosters import REVOKE, a_roster, identity, member, next_roster

from isocast.security.identities import Identity, market_of
from isocast.security.roster import RosterBook, RosterRole, sign_revocation
from isocast.security.signing import IdentitySigner, RosterVerifier
from isocast.terms.ids import Epoch, source_id
from isocast.terms.timing import affords_receipts
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.signing import SignedKind

ROOT, ONE, TWO = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
MARKET = market_of("exchange", ROOT.public)
OTHER = market_of("other", ROOT.public)
LISTED = {1: ONE.public, 2: TWO.public}
EPOCH = Epoch(4, 65_537)
BODY = bytes(16) + (77).to_bytes(8, "little") + b"the rest of the body"


class Listed:
    """As of one serial."""

    def __init__(self, serial: int = 5) -> None:
        self.serial = serial
        self.asked: list[int | None] = []
        self.revoked: list[bytes] = []

    def key_of(
        self,
        node: int,
        serial: int,
        token_number: int | None = None,
        stripe: int | None = None,
        *,
        settled: bool = False,  # noqa: ARG002
    ) -> bytes | None:
        self.asked.append(token_number)
        return LISTED.get(node) if stripe == 0 and serial <= self.serial else None

    def serial_of(self, public: bytes, token_number: int | None = None) -> int:
        self.asked.append(token_number)
        return self.serial if public in LISTED.values() else 0

    def is_revoked(self, public: bytes) -> bool:
        return public in self.revoked


SIGNER = IdentitySigner(ONE, MARKET, Listed())
VERIFIER = RosterVerifier(MARKET, Listed())


def test_what_a_node_signed_is_believed_and_signing_again_gives_the_same_bytes() -> None:
    signature = SIGNER.sign(SignedKind.TOKEN, 0, EPOCH, BODY)
    assert len(signature) == SIGNATURE_BYTES
    assert signature == SIGNER.sign(SignedKind.TOKEN, 0, EPOCH, BODY)
    assert VERIFIER.is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, signature)


class CountingHand:
    """Signs as an identity does, and counts how often."""

    def __init__(self) -> None:
        self.public = ONE.public
        self.signed = 0

    def sign(self, said: bytes) -> bytes:
        self.signed += 1
        return ONE.sign(said)


def test_the_same_words_are_signed_once_and_under_another_roster_again() -> None:
    hand, listed = CountingHand(), Listed()
    signer = IdentitySigner(hand, MARKET, listed)
    said = [signer.sign(SignedKind.RECEIPT, 0, EPOCH, BODY) for _ in range(3)]
    assert hand.signed == 1
    assert said == [SIGNER.sign(SignedKind.RECEIPT, 0, EPOCH, BODY)] * 3

    other = (
        signer.sign(SignedKind.RECEIPT, 0, EPOCH, BODY + b"!"),
        signer.sign(SignedKind.RECEIPT, 1, EPOCH, BODY + b"!"),
        signer.sign(SignedKind.RECEIPT, 1, EPOCH._replace(number=5), BODY + b"!"),
        signer.sign(SignedKind.TOKEN, 1, EPOCH._replace(number=5), BODY + b"!"),
    )
    listed.serial += 1
    assert len({*said, *other, signer.sign(SignedKind.TOKEN, 1, EPOCH._replace(number=5), BODY + b"!")}) == 6
    assert hand.signed == 6


def test_nothing_else_is_believed() -> None:
    """Another node, purpose, stripe, epoch, body, market or serial: each is another statement."""
    signature = SIGNER.sign(SignedKind.TOKEN, 0, EPOCH, BODY)
    is_from = VERIFIER.is_from
    assert not is_from(2, SignedKind.TOKEN, 0, EPOCH, BODY, signature)
    assert not is_from(9, SignedKind.TOKEN, 0, EPOCH, BODY, signature)
    assert not is_from(1, SignedKind.RECEIPT, 0, EPOCH, BODY, signature)
    assert not is_from(1, SignedKind.TOKEN, 1, EPOCH, BODY, signature)
    assert not is_from(1, SignedKind.TOKEN, 0, Epoch(5, 65_537), BODY, signature)
    assert not is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY + b".", signature)
    assert not is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, (4).to_bytes(8, "little") + signature[8:])
    assert not RosterVerifier(OTHER, Listed()).is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, signature)


def test_a_roster_that_is_not_here_is_not_believed_and_an_older_one_is() -> None:
    signature = SIGNER.sign(SignedKind.TOKEN, 0, EPOCH, BODY)
    assert not RosterVerifier(MARKET, Listed(4)).is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, signature)
    assert RosterVerifier(MARKET, Listed(6)).is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, signature)


def test_hostile_bytes_are_no_signature() -> None:
    for hostile in (b"", bytes(71), bytes(SIGNATURE_BYTES), bytes(73), b"\xff" * SIGNATURE_BYTES):
        assert not VERIFIER.is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, hostile)


def test_tokens_and_receipts_are_judged_by_the_roster_of_their_token() -> None:
    """A roster counts from a token on: what was signed before it is repaired after it."""
    listing = Listed()
    signer, verifier = IdentitySigner(ONE, MARKET, listing), RosterVerifier(MARKET, listing)
    for kind, body, number in (
        (SignedKind.TOKEN, BODY, 77),
        (SignedKind.RECEIPT, (5).to_bytes(8, "little") + bytes(32), 5),
        (SignedKind.JOIN, BODY, None),
    ):
        assert verifier.is_from(1, kind, 0, EPOCH, body, signer.sign(kind, 0, EPOCH, body))
        assert listing.asked[-2:] == [number, number]


def test_a_key_that_follows_signs_from_its_roster_on_and_ballots_at_once() -> None:
    first, new = a_roster(), identity("london 2")
    london = member(1, "london", RosterRole.PRIMARY_RECEIVER, (0, 1), public=new.public)
    book, followers = RosterBook(first), [new]
    assert book.offer(next_roster(first, members=(london, *first.members[1:])))
    assert book.schedule(book.newest, 77)
    signer = IdentitySigner(identity("london"), first.market, book, followers)
    verifier = RosterVerifier(first.market, book)

    def serial_of(kind: SignedKind, token_number: int) -> int:
        body = bytes(16) + token_number.to_bytes(8, "little")
        signature = signer.sign(kind, 0, EPOCH, body)
        assert verifier.is_from(1, kind, 0, EPOCH, body, signature)
        return int.from_bytes(signature[:8], "little")

    assert [serial_of(SignedKind.TOKEN, number) for number in (76, 77, 78)] == [1, 2, 2]
    assert serial_of(SignedKind.JOIN, 0) == 2


def test_a_revoked_key_signs_no_more_where_another_follows() -> None:
    """Nobody believes it: before its roster counts, too, a node has a voice again as soon as others have the file."""
    first, new = a_roster(), identity("london 2")
    london = member(1, "london", RosterRole.PRIMARY_RECEIVER, (0, 1), public=new.public)
    book = RosterBook(first)
    assert book.offer(next_roster(first, members=(london, *first.members[1:])))
    signer = IdentitySigner(identity("london"), first.market, book, [new])
    verifier = RosterVerifier(first.market, book)
    before = signer.sign(SignedKind.TOKEN, 0, EPOCH, BODY)
    assert before.startswith((1).to_bytes(8, "little"))
    assert verifier.is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, before)

    assert book.revoke(sign_revocation(first, first.members[0], REVOKE, 0))
    after = signer.sign(SignedKind.TOKEN, 0, EPOCH, BODY)
    assert not verifier.is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, before)
    assert verifier.is_from(1, SignedKind.TOKEN, 0, EPOCH, BODY, after)
    assert after.startswith((2).to_bytes(8, "little"))

    alone = IdentitySigner(identity("london"), first.market, book)
    assert len(alone.sign(SignedKind.TOKEN, 0, EPOCH, BODY)) == SIGNATURE_BYTES, "it says what nobody believes"


def test_a_source_signs_for_its_messages_under_either_key_while_it_is_rotated() -> None:
    """It hears of a roster later than the sites, and signs for the past too; a key that was revoked counts no more."""
    first, old, new = a_roster(), identity("floor"), identity("floor 2")
    floor = member(source_id(1, 0), "floor", RosterRole.PRIMARY_SOURCE, (0,), public=new.public)
    second = next_roster(first, members=(*first.members[:-1], floor))
    book = RosterBook(first)
    assert book.offer(second)
    assert book.schedule(second, 77)
    words = [
        IdentitySigner(old, first.market, RosterBook(first)).sign(SignedKind.SOURCE_CHAIN, 0, EPOCH, BODY),
        IdentitySigner(old, first.market, book, [new]).sign(SignedKind.SOURCE_CHAIN, 0, EPOCH, BODY),
    ]
    assert [word[0] for word in words] == [1, 2]

    def believed() -> list[bool]:
        verifier = RosterVerifier(first.market, book)
        return [verifier.is_from(source_id(1, 9), SignedKind.SOURCE_CHAIN, 0, EPOCH, BODY, word) for word in words]

    assert believed() == [True, True]
    assert book.offer(next_roster(second, revoked=[old.public]))
    assert believed() == [False, True]


def test_receipts_are_signed_while_a_twentieth_of_a_period_suffices() -> None:
    assert affords_receipts(8, 20_000_000)
    assert not affords_receipts(9, 20_000_000)
