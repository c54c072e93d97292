"""Which tokens a journal keeps: each once, as few as prove it, and in time."""

from __future__ import annotations

from tests.checks.proven_journals import SITES, SignedMarket, sign, views, walk
from tests.ring.makers import following

from isocast.runtime.disk.journal_vouchers import Vouchers
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.journal_proofs import MessageSeal
from isocast.wire.packets import ControlEntry, ControlKind
from isocast.wire.token_body import decode_token_body

SEAL = MessageSeal(b"s" * 16, b"k" * 32)


def kept(block: ReleasedBlock) -> list[int]:
    """The tokens of a block."""
    assert block.proof is not None
    return [decode_token_body(0, said.body).token_number for said in block.proof.statements]


def test_a_busy_ring_keeps_every_token_once() -> None:
    made = SignedMarket(behind=2)
    for _ in range(8):
        made.add(1, 2)
    assert [kept(block) for block in made.finish().blocks] == [[1, 2], [3], [4], [5], [6], [7], [8], []]


def test_a_quiet_ring_keeps_a_few_around_each_message() -> None:
    made = SignedMarket(behind=2)
    for floors in ((), (), (), (1,), *[()] * 9, (2,), (), ()):
        made.add(*floors)
    assert [kept(block) for block in made.blocks] == [[3, 4, 5], [13, 14, 15]]


def test_what_is_not_there_yet_comes_with_the_next_block() -> None:
    made = SignedMarket(behind=0)
    for floors in ((), (1,), *[()] * 9, (2,)):
        made.add(*floors)
    assert [kept(block) for block in made.blocks] == [[1, 2], [3, 11, 12]]


def test_signatures_of_two_epochs_make_no_majority() -> None:
    """A ring is reformed behind a message: the new one's members must vouch for it among themselves."""
    made = SignedMarket(behind=0)
    made.add(1)
    made.chain = made.chain.enter(following(made.chain))
    for floors in ((), (), (), (2,), ()):
        made.add(*floors)
    assert [kept(block) for block in made.blocks] == [[1], [2, 3, 4, 5]]
    judge = walk()
    assert [breach for view in views(made.blocks) for breach in judge.take(view)] == []
    assert (judge.report.proven_tokens, list(judge.report.reasons)) == (1, [])


def test_the_token_before_is_known_although_the_log_has_let_go_of_it() -> None:
    made = SignedMarket(behind=0)
    made.add(1)
    made.add()
    entry = made.chain.add(made.data(1))
    sign(entry.token)
    made.vouchers.completed(entry.token, SITES)
    proof = made.vouchers.proof(entry.token, {entry.token.token_number: entry}, SITES, [SEAL])
    assert proof is not None
    assert [decode_token_body(0, said.body).token_number for said in proof.statements] == [2, 3]


def test_a_restart_writes_some_again_and_harms_nothing() -> None:
    made = SignedMarket(behind=2)
    for _ in range(4):
        made.add(1, 2)
    made.vouchers = Vouchers()
    for _ in range(4):
        made.add(2, 1)
    judge = walk()
    assert [breach for view in views(made.finish().blocks) for breach in judge.take(view)] == []
    judge.end()
    assert (judge.report.proven_tokens, judge.report.waiting_tokens) == (7, 1)


def test_a_token_that_changes_u_is_kept_with_or_without_messages() -> None:
    made = SignedMarket(behind=0)
    made.add(1)
    for _ in range(3):
        made.add()
    made.issued(made.chain.add(control=(ControlEntry(ControlKind.ADD_SITE, 4, b""),)))
    for floors in ((), (), (), (2,)):
        made.add(*floors)
    assert [kept(block) for block in made.blocks] == [[1], [2, 5, 8, 9]]
    judge = walk()
    assert [breach for view in views(made.blocks) for breach in judge.take(view)] == []
    assert judge.report.universe == (1, 2, 3, 4)


def test_a_market_that_does_not_sign_keeps_the_seals_alone() -> None:
    made = SignedMarket()
    entry = made.chain.add(made.data(1))
    vouchers = Vouchers()
    vouchers.completed(entry.token, SITES)
    proof = vouchers.proof(entry.token, {1: entry}, SITES, [SEAL])
    assert proof is not None
    assert (proof.seals, proof.statements) == ((SEAL,), ())
    assert vouchers.proof(entry.token, {1: entry}, SITES, []) is None
