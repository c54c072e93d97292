"""S17: a journal proves what a majority signed, and every way to bend it is named with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.checks.proven_journals import (
    ROSTER,
    SITES,
    SignedMarket,
    identity,
    roster_of,
    sign,
    signature,
    views,
    walk,
)
from tests.ring import makers
from tests.wire.journal_samples import events_payload

from isocast.checks.journals import Breach
from isocast.checks.vouchers import Vouched
from isocast.ring.settings import OrderRule
from isocast.security.roster import Roster
from isocast.terms.ids import describe
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock
from isocast.wire.journal_proofs import MessageSeal, Statement
from isocast.wire.packets import digest_of, payload_digest
from isocast.wire.signing import SignedKind
from isocast.wire.statements import signed
from isocast.wire.token_body import decode_token_body, token_digest

Blocks = list[ReleasedBlock]


def market(**options: object) -> SignedMarket:
    """Seven tokens, four of them with messages; two more without."""
    made = SignedMarket(**options)  # type: ignore[arg-type]
    for floors in ((1, 2, 1), (), (2,), (1, 2, 2, 1), (), (1,), (), (), ()):
        made.add(*floors)
    return made.finish()


def judged(blocks: Blocks, *rosters: Roster) -> tuple[list[Breach], Vouched]:
    judge = walk(*rosters)
    breaches = [breach for view in views(blocks) for breach in judge.take(view)]
    judge.end()
    return breaches, judge.report


def reasons(vouched: Vouched) -> list[str]:
    return list(vouched.reasons)


@pytest.mark.parametrize("order", list(OrderRule))
@pytest.mark.parametrize("behind", [0, 1, 2, 3])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_honest_journal_is_proven_but_for_its_end(order: OrderRule, behind: int, *, is_sealed: bool) -> None:
    made = market(order=order, behind=behind, is_sealed=is_sealed)
    breaches, vouched = judged(made.blocks)
    assert breaches == []
    assert reasons(vouched) == []
    assert (vouched.tokens, vouched.universe) == (4, SITES)
    # The vouchers of the last token come with the next block, unless they were there when it was released.
    assert vouched.waiting_tokens == (behind < 1)
    assert vouched.proven_tokens == 4 - vouched.waiting_tokens
    assert vouched.proven_messages == 9 - vouched.waiting_tokens
    assert vouched.proven_until == 10 - vouched.waiting_tokens
    assert sum(vouched.signed.values()) >= 2 * vouched.proven_tokens


def test_what_was_released_in_steps_is_proven_as_one_token() -> None:
    made = market()
    blocks = [part for block in made.blocks for part in (block.part(0, 1), block.part(1)) if part.messages]
    assert len(blocks) > len(made.blocks)
    breaches, vouched = judged(blocks)
    assert (breaches, reasons(vouched), vouched.proven_tokens) == ([], [], 4)


def test_vouchers_that_come_late_are_in_the_next_block() -> None:
    made = SignedMarket(behind=0)
    for floors in ((1,), *[()] * 6, (2,)):
        made.add(*floors)
    breaches, vouched = judged(made.blocks)
    assert (breaches, reasons(vouched)) == ([], [])
    assert (vouched.proven_tokens, vouched.waiting_tokens) == (1, 1)


def test_a_receipt_is_a_voucher() -> None:
    made = SignedMarket(behind=0)
    entry = made.add(1, 2)
    receipt = (1).to_bytes(8, "little") + token_digest(entry.token)
    other = next(site for site in SITES if site != entry.token.sender)
    said = Statement(
        SignedKind.RECEIPT,
        entry.token.epoch,
        other,
        signature(identity(other), SignedKind.RECEIPT, entry.token.epoch, receipt),
        receipt,
    )
    [block] = made.blocks
    assert block.proof is not None
    with_it = replace(block, proof=replace(block.proof, statements=(*block.proof.statements, said)))
    assert judged([block])[1].waiting_tokens == 1
    assert judged([with_it])[1].proven_tokens == 1
    forged = said._replace(sender=entry.token.sender)
    with_forged = replace(block, proof=replace(block.proof, statements=(*block.proof.statements, forged)))
    [breach] = judged([with_forged])[0]
    assert "the receipt for token 1" in breach.text


# ---- what bends a journal


def bent(blocks: Blocks, at: int, change: Callable[[ReleasedBlock], ReleasedBlock]) -> Blocks:
    return [change(block) if place == at else block for place, block in enumerate(blocks)]


def with_message(block: ReleasedBlock, place: int, message: JournalMessage) -> ReleasedBlock:
    messages = list(block.messages)
    messages[place] = message
    return replace(block, messages=messages)


def with_statement(block: ReleasedBlock, place: int, change: Callable[[Statement], Statement | None]) -> ReleasedBlock:
    assert block.proof is not None
    said = list(block.proof.statements)
    new = change(said[place])
    said[place : place + 1] = [] if new is None else [new]
    return replace(block, proof=replace(block.proof, statements=tuple(said)))


def kept(blocks: Blocks, token_number: int) -> tuple[int, int]:
    """Which block keeps a token, and where."""
    for at, block in enumerate(blocks):
        for place, said in enumerate(block.proof.statements if block.proof is not None else ()):
            if decode_token_body(0, said.body).token_number == token_number:
                return at, place
    raise AssertionError(token_number)


def with_token(
    blocks: Blocks, token_number: int, change: Callable[[Statement], Statement | None]
) -> tuple[Blocks, Statement]:
    """The journal with another word for a token, and what it was."""
    at, place = kept(blocks, token_number)
    proof = blocks[at].proof
    assert proof is not None
    return bent(blocks, at, lambda block: with_statement(block, place, change)), proof.statements[place]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_flipped_bit_of_a_payload_is_named_with_its_sequence(*, is_sealed: bool) -> None:
    made = market(is_sealed=is_sealed)
    source, number, digest, payload = made.blocks[2].messages[1]
    other = bytes([payload[0] ^ 1]) + payload[1:]
    blocks = bent(made.blocks, 2, lambda block: with_message(block, 1, (source, number, digest, other)))
    [breach], vouched = judged(blocks)
    assert (breach.law, breach.sequence, breach.last_sequence) == ("S17", 6, 6)
    assert "is not what was ordered" in breach.text
    assert (vouched.proven_tokens, vouched.proven_until) == (3, 5)


def test_a_content_with_a_digest_and_a_key_to_suit_contradicts_the_token() -> None:
    """Whoever holds a journal can change payload, seal key and digest together: the token's runs are signed."""
    made = market(is_sealed=False)
    source, number, _, _ = made.blocks[0].messages[0]
    other = events_payload(99)
    blocks = bent(made.blocks, 0, lambda block: with_message(block, 0, (source, number, payload_digest(other), other)))
    [breach], vouched = judged(blocks)
    assert f"token 1: the messages of {describe(source)}" in breach.text
    assert "not those that it acknowledges" in breach.text
    assert reasons(vouched) == ["the journal contradicts it"]


def test_another_key_opens_nothing_else() -> None:
    """A seal commits to its key: no key makes of the sealed bytes another content."""
    made = market()

    def change(block: ReleasedBlock) -> ReleasedBlock:
        assert block.proof is not None
        seals = (MessageSeal(block.proof.seals[0].salt, b"k" * 32), *block.proof.seals[1:])
        return replace(block, proof=replace(block.proof, seals=seals))

    [breach], _ = judged(bent(made.blocks, 1, change))
    assert breach.sequence == 4


@pytest.mark.parametrize("order", list(OrderRule))
def test_messages_in_another_order_are_found(order: OrderRule) -> None:
    made = market(order=order)

    def swapped(block: ReleasedBlock) -> ReleasedBlock:
        assert block.proof is not None
        sources = [message[0] for message in block.messages]
        at = next(i for i in range(3) if sources[i] != sources[i + 1])
        messages, seals = list(block.messages), list(block.proof.seals)
        for listed in (messages, seals):
            listed[at], listed[at + 1] = listed[at + 1], listed[at]  # type: ignore[assignment]
        return replace(block, messages=messages, proof=replace(block.proof, seals=tuple(seals)))

    [breach], vouched = judged(bent(made.blocks, 2, swapped))
    assert "not in the order" in breach.text
    assert breach.sequence == 5
    assert vouched.proven_tokens == 3


def test_a_flipped_bit_of_a_signature_is_named_with_its_token() -> None:
    made = market()

    def flip(said: Statement) -> Statement:
        return said._replace(signature=said.signature[:-1] + bytes([said.signature[-1] ^ 1]))

    [breach], vouched = judged(with_token(made.blocks, 4, flip)[0])
    assert breach.text.startswith("token 4 of epoch")
    assert "the signature is not that of" in breach.text
    assert (4, "the journal does not hold the token itself") in [
        (one.token_number, one.reason) for one in vouched.unproven
    ]


def test_a_token_that_is_left_out_is_missed() -> None:
    made = market()
    breaches, vouched = judged(with_token(made.blocks, 4, lambda _: None)[0])
    assert breaches == []
    assert (4, "the journal does not hold the token itself") in [
        (one.token_number, one.reason) for one in vouched.unproven
    ]
    assert not vouched.is_whole


def test_a_forged_token_needs_the_keys_of_a_majority() -> None:
    """Its own site signs what it likes: nobody else vouches for it."""
    made = market(is_sealed=False)
    block = made.blocks[3]
    at, place = kept(made.blocks, block.token_number)
    assert at == 3
    token = made.chain.entries[block.token_number - 1].token
    source, number, _, _ = block.messages[0]
    payload = events_payload(77)
    run = token.runs[0]._replace(digest=digest_of(payload_digest(payload)))
    forged = replace(token, runs=(run,))
    sign(forged)
    kind, epoch, body = signed(forged)
    said = Statement(kind, epoch, forged.sender, forged.signature, body)
    lie = with_statement(block, place, lambda _: said)
    lie = with_message(lie, 0, (source, number, payload_digest(payload), payload))
    breaches, vouched = judged([*made.blocks[:3], lie])
    assert breaches == []
    assert (vouched.proven_tokens, vouched.waiting_tokens) == (3, 1), "nothing proves it, however long one waits"
    sign(forged, identity(next(site for site in SITES if site != forged.sender)))
    bad = with_statement(lie, place, lambda one: one._replace(signature=forged.signature))
    [breach], vouched = judged([*made.blocks[:3], bad])
    assert "the signature is not that of" in breach.text


def test_an_owner_that_signed_two_contents_is_convicted() -> None:
    made = market()
    block = made.blocks[3]
    assert block.proof is not None
    token = made.chain.entries[block.token_number - 1].token
    other = replace(token, stable=token.stable + 1)
    sign(other)
    kind, epoch, body = signed(other)
    said = Statement(kind, epoch, other.sender, other.signature, body)
    twice = replace(block, proof=replace(block.proof, statements=(*block.proof.statements, said)))
    [breach], _ = judged([*made.blocks[:3], twice])
    assert f"signed two contents of token {token.token_number}" in breach.text


def test_words_of_another_stripe_market_or_roster_prove_nothing() -> None:
    made = market()
    breaches, vouched = judged(made.blocks, replace(ROSTER, name="another"))
    assert breaches
    assert vouched.proven_tokens == 0
    breaches, vouched = judged(made.blocks, roster_of(SITES, serial=2))
    assert breaches == []
    assert reasons(vouched) == ["nobody signed it by a key that counts under the given rosters"]


def test_a_key_that_was_revoked_counts_for_nothing() -> None:
    made = market()
    breaches, vouched = judged(made.blocks, replace(ROSTER, revoked=(identity(1).public,)))
    assert breaches == []
    assert set(vouched.signed) == {2, 3}


def test_a_minority_proves_nothing() -> None:
    """Five sites are listed, and three of them signed nothing."""
    breaches, vouched = judged(market(behind=3).blocks, roster_of((1, 2, 3, 4, 5, 6, 7)))
    assert breaches == []
    assert vouched.proven_tokens == 0
    assert vouched.proven_until == 1


def test_a_journal_without_proofs_says_so() -> None:
    blocks = [replace(block, proof=None) for block in market().blocks]
    breaches, vouched = judged(blocks)
    assert breaches == []
    assert vouched.reasons == {"the journal keeps no proof of it": 4}
    assert vouched.proven_until == 1


def test_a_message_that_nobody_could_open_has_no_content_to_prove() -> None:
    made = market()

    def unopened(block: ReleasedBlock) -> ReleasedBlock:
        assert block.proof is not None
        source, number, digest, _ = block.messages[0]
        seals = (MessageSeal(b"", b""), *block.proof.seals[1:])
        return with_message(replace(block, proof=replace(block.proof, seals=seals)), 0, (source, number, digest, b""))

    breaches, vouched = judged(bent(made.blocks, 1, unopened))
    assert (breaches, vouched.unopened_messages, vouched.proven_tokens) == ([], 1, 4)


def test_missing_blocks_leave_their_token_unproven() -> None:
    made = market()
    first, second = made.blocks[2].part(0, 2), made.blocks[2].part(2)
    _, vouched = judged([*made.blocks[:2], first, made.blocks[3]])
    assert "its last messages are not here" in reasons(vouched)
    _, vouched = judged([*made.blocks[:2], second, made.blocks[3]])
    assert "its first messages are not here" in reasons(vouched)


# ---- the shuffle


@pytest.mark.parametrize("order", list(OrderRule))
def test_shuffles_are_computed_again_from_the_nonces(order: OrderRule) -> None:
    """F5: every key is the one of two owners' nonces, and every nonce the one committed to a cycle before."""
    made = market(order=order)
    vouched = judged(made.blocks)[1]
    assert (vouched.mixed_tokens, vouched.keyed_tokens) == (2, 4)
    assert vouched.shuffled_tokens == (2 if order is OrderRule.SHUFFLE else 0)
    first_cycle = sum(block.token_number <= len(SITES) for block in made.blocks)
    assert vouched.committed_tokens == 4 - first_cycle


def test_what_stands_in_the_order_of_its_key_by_chance_is_no_shuffle() -> None:
    """By arrival two messages of two sources stand as their key has them every other time."""
    made = SignedMarket()
    for _ in range(12):
        made.add(2, 1)
    vouched = judged(made.finish().blocks)[1]
    assert (vouched.mixed_tokens, vouched.shuffled_tokens) == (12, 0)


@pytest.mark.parametrize("fetched", [False, True])
def test_a_shuffle_key_that_the_nonces_do_not_make_is_named(fetched: bool) -> None:  # noqa: FBT001
    blocks = market(order=OrderRule.SHUFFLE).blocks
    blocks = bent(blocks, 2, lambda block: replace(block, shuffle_key=b"k" * 16, fetched=fetched))
    [breach] = judged(blocks)[0]
    assert (breach.law, breach.field) == ("F5", "shuffle_key")
    assert "token 4" in breach.text


def test_an_owner_that_reveals_another_nonce_than_it_committed_to_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SignedMarket(order=OrderRule.SHUFFLE)
    for _ in range(3):
        made.add(1, 2)
    monkeypatch.setattr(makers, "secret", lambda site: b"another secret of %d" % site)
    made.add(1, 2)
    breaches, vouched = judged(made.finish().blocks)
    [breach] = breaches
    assert (breach.law, breach.field) == ("F5", "reveal")
    assert breach.text == f"token 4: {describe(1)} reveals another nonce than it committed to"
    assert (vouched.keyed_tokens, vouched.committed_tokens) == (3, 0)
