"""S21: what is in a source's name is what this source signed for, and every way to slip something in is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checks.proven_journals import FLOORS, ROSTER, SITES, SignedMarket, identity, signature, views

from isocast.checks.journals import Breach
from isocast.checks.source_words import SourcesVouched, SourceWords
from isocast.checks.vouchers import Vouched, VoucherWalk
from isocast.ring.ledger import LogEntry
from isocast.security.roster import Roster, RosterMember, RosterRole
from isocast.security.witness import RosterWitness, resealed
from isocast.terms.ids import NO_EPOCH, NodeId, without_incarnation
from isocast.wire.packets import NO_DIGEST, Data, SourceChain, chained, payload_digest
from isocast.wire.statements import read_chain_statement, signed

SOURCE = FLOORS[0]


def with_sources() -> Roster:
    """The usual roster, with an identity for each floor."""
    members = [
        RosterMember(
            without_incarnation(floor),
            f"floor {place}",
            RosterRole.PRIMARY_SOURCE,
            identity(100 + place).public,
            bytes(32),
            0,
            1 << 62,
        )
        for place, floor in enumerate(FLOORS)
    ]
    return replace(ROSTER, members=(*ROSTER.members, *members))


ROSTER_OF_ALL = with_sources()


class SigningMarket(SignedMarket):
    """Floors sign, behind each token, for what it names of them."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.points: dict[NodeId, tuple[int, bytes]] = dict.fromkeys(FLOORS, (0, NO_DIGEST))
        self.told = dict(self.points)
        self.silent: set[int] = set()
        """Tokens whose statements are lost."""

    def issued(self, entry: LogEntry) -> LogEntry:
        """The floors sign before anything is released."""
        for message in sorted(entry.messages, key=lambda one: one.label):
            self.sign(message)
        for place, floor in enumerate(FLOORS):
            self.say(place, floor, lost=entry.token.token_number in self.silent)
        return super().issued(entry)

    def sign(self, message: Data) -> None:
        _, chain = self.points[message.sender]
        self.points[message.sender] = message.number, chained(chain, self.own(message))

    @staticmethod
    def own(message: Data) -> bytes:
        """What the source itself knows of its message."""
        return message.digest

    def say(self, place: int, floor: NodeId, *, lost: bool) -> None:
        number, chain = self.points[floor]
        since, before = self.told[floor]
        if number == since:
            return
        self.told[floor] = number, chain
        if not lost:
            said = SourceChain(0, self.chain.ring.ballot, floor, since, before, number, chain)
            kind, epoch, body = signed(said)
            self.vouchers.heard(
                said._replace(signature=signature(identity(100 + place), kind, epoch, body, ROSTER_OF_ALL))
            )


def grown(market: SigningMarket) -> SigningMarket:
    for floors in ((1, 2, 1), (), (2,), (1, 2, 2, 1), (), (1,), (2,), (1,), ()):
        market.add(*floors)
    market.finish()
    return market


def judged(market: SignedMarket, roster: Roster = ROSTER_OF_ALL, first: int = 0) -> tuple[list[Breach], Vouched]:
    witness = RosterWitness((roster,))
    judge = VoucherWalk(0, SITES, witness, resealed)
    breaches = [breach for view in views(market.blocks[first:]) for breach in judge.take(view)]
    judge.end()
    return breaches, judge.report


def test_everything_that_sources_signed_for_is_proven() -> None:
    breaches, vouched = judged(grown(SigningMarket()))
    assert breaches == []
    assert vouched.is_whole
    assert vouched.sources == SourcesVouched(signed=vouched.sources.signed)
    assert vouched.sources.signed.total() == 11


@pytest.mark.parametrize("lost", [{1}, {3}, {4}, {3, 4}, {1, 3, 4, 6}])
def test_a_statement_that_was_lost_is_proven_by_its_neighbours(lost: set[int]) -> None:
    market = SigningMarket()
    market.silent = lost
    breaches, vouched = judged(grown(market))
    assert (breaches, vouched.sources.unsigned.total()) == ([], 0)
    assert vouched.sources.signed.total() == 11


def test_without_an_identity_nothing_is_demanded_of_a_source() -> None:
    breaches, vouched = judged(grown(SigningMarket()), ROSTER)
    assert (breaches, vouched.is_whole, vouched.sources) == ([], True, SourcesVouched())


def test_a_message_that_a_receiver_put_into_a_sources_name_is_named() -> None:
    """A majority ordered and signed it (S17); its source signed something else for that number."""

    class Robbed(SigningMarket):
        def own(self, message: Data) -> bytes:  # type: ignore[override]
            return payload_digest(b"genuine") if message.label == (SOURCE, 3) else message.digest

    breaches, vouched = judged(grown(Robbed()))
    assert [(breach.law, breach.sequence) for breach in breaches] == [("S21", 5)]
    assert "messages 3 to 4 of source1#7" in breaches[0].text
    assert vouched.sources.unsigned == {SOURCE: 2}
    assert not vouched.is_whole
    assert vouched.proven_until == 5


def test_messages_that_a_source_never_signed_for_are_told() -> None:
    """Of the last tokens they may still be signed for; of older ones they will not."""
    market = SigningMarket()
    market.silent = set(range(1, 200))
    breaches, vouched = judged(grown(market))
    assert (breaches, vouched.is_whole, vouched.sources.waiting) == ([], True, 11)
    market = SigningMarket()
    market.silent = set(range(1, 200))
    market.add(1)
    for _ in range(80):
        market.add()
    market.add(2)
    market.finish()
    breaches, vouched = judged(market)
    assert (breaches, dict(vouched.sources.unsigned), vouched.sources.waiting) == ([], {SOURCE: 1}, 1)
    assert [(run.first, run.last, run.sequence) for run in vouched.sources.listed] == [(1, 1, 1)]
    assert not vouched.is_whole
    assert vouched.proven_until == 1


def test_a_journal_that_begins_later_than_its_sources_proves_the_rest() -> None:
    market = grown(SigningMarket())
    breaches, vouched = judged(market, first=1)
    assert (breaches, vouched.sources.unsigned.total(), vouched.sources.waiting) == ([], 0, 0)
    assert vouched.sources.signed.total() + vouched.sources.before == 8


def test_a_statement_under_anothers_key_is_named() -> None:
    market = grown(SigningMarket())
    block = market.blocks[0]
    assert block.proof is not None
    other = bytes(72)
    words = [one._replace(signature=one.signature[:8] + other[8:]) if one.sender == SOURCE else one
             for one in block.proof.statements]  # fmt: skip
    market.blocks[0] = replace(block, proof=replace(block.proof, statements=tuple(words)))
    breaches, _ = judged(market)
    assert {breach.law for breach in breaches} == {"S21"}
    assert "is not signed by source1#7" in breaches[0].text


@pytest.mark.parametrize("body", [b"", bytes(87), bytes(88), bytes(89)])
def test_a_statement_that_says_nothing_is_named(body: bytes) -> None:
    market = grown(SigningMarket())
    block = market.blocks[0]
    assert block.proof is not None
    words = [one._replace(body=body) if one.sender == SOURCE else one for one in block.proof.statements]
    market.blocks[0] = replace(block, proof=replace(block.proof, statements=tuple(words)))
    breaches, _ = judged(market)
    assert "no statement of a source" in breaches[0].text


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_source_that_signs_two_chains_is_named(is_settled: bool) -> None:  # noqa: FBT001
    words = SourceWords(SourcesVouched())
    words.take(SOURCE, 1, payload_digest(b"1"), 1, 1)
    right = chained(NO_DIGEST, payload_digest(b"1"))
    said = [SourceChain(0, NO_EPOCH, SOURCE, 0, NO_DIGEST, 1, right)]
    said.append(said[0]._replace(digest=chained(NO_DIGEST, payload_digest(b"2"))))
    assert words.hear(said[0]) == ""
    if is_settled:
        assert list(words.settle()) == []
    assert words.hear(said[1]) == "source1#7 signed two chains behind its message 1"


def test_a_chain_that_begins_with_a_later_message_covers_what_follows() -> None:
    """A market that signs only since then."""
    report = SourcesVouched()
    words = SourceWords(report)
    digests = [payload_digest(bytes([number])) for number in range(1, 5)]
    for number, digest in enumerate(digests, 1):
        words.take(SOURCE, number, digest, number, number)
    words.hear(SourceChain(0, NO_EPOCH, SOURCE, 2, NO_DIGEST, 4, chained(chained(NO_DIGEST, digests[2]), digests[3])))
    assert list(words.settle()) == []
    words.end()
    assert (report.signed[SOURCE], report.waiting, report.unsigned) == (2, 0, {SOURCE: 2})
    assert "begins later" in report.listed[0].reason


def told(words: SourceWords, chain: list[bytes], since: int, number: int) -> None:
    assert words.hear(SourceChain(0, NO_EPOCH, SOURCE, since, chain[since], number, chain[number])) == ""


def contents(count: int) -> tuple[list[bytes], list[bytes]]:
    """The digests of messages 1 to `count`, and the chain behind each number from 0 on."""
    digests = [payload_digest(bytes([number % 256])) for number in range(count)]
    return digests, list(accumulate(digests, chained, initial=NO_DIGEST))


def test_a_source_that_stopped_before_it_could_sign_is_not_accused() -> None:
    """Nobody can tell a crash from a forgery here: no breach, and not proven."""
    report = SourcesVouched()
    words = SourceWords(report)
    digests, chain = contents(3)
    for number, digest in enumerate(digests, 1):
        words.take(SOURCE, number, digest, number, number)
    told(words, chain, 0, 2)
    words.take(FLOORS[1], 1, digests[0], 4, 400)
    assert list(words.settle()) == []
    words.end()
    [run] = report.listed
    assert (run.first, run.last, "stopped before it could" in run.reason) == (3, 3, True)
    assert (report.signed[SOURCE], report.unsigned, report.waiting, report.open_from) == (2, {SOURCE: 1}, 1, 3)


def test_where_a_restarted_source_says_that_its_chain_stands_proves_what_came_before() -> None:
    report = SourcesVouched()
    words = SourceWords(report)
    digests, chain = contents(3)
    for number, digest in enumerate(digests, 1):
        words.take(SOURCE, number, digest, number, number)
    told(words, chain, 3, 3)
    assert list(words.settle()) == []
    assert report.signed == {SOURCE: 3}


def test_only_the_first_tokens_of_a_journal_are_excused_by_its_beginning() -> None:
    """Who cuts the statements out of a journal does not make it look proven."""
    report = SourcesVouched()
    words = SourceWords(report)
    digests, chain = contents(200)
    for number in range(11, 201):
        words.take(SOURCE, number, digests[number - 1], number, number)
    told(words, chain, 190, 200)
    assert list(words.settle()) == []
    words.end()
    assert (report.signed[SOURCE], report.before, report.unsigned[SOURCE]) == (10, 65, 115)
    assert [(run.first, run.last) for run in report.listed] == [(76, 190)]


@pytest.mark.parametrize("bent", [0, 3, 40, 45])
def test_however_long_no_statement_came_the_next_one_judges_all(bent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that was away catches up with more messages than a judge remembers."""
    monkeypatch.setattr("isocast.checks.source_words._MESSAGES_MAX", 8)
    report = SourcesVouched()
    words = SourceWords(report)
    digests, chain = contents(50)
    for number, digest in enumerate(digests[:45], 1):
        words.take(SOURCE, number, bytes(32) if number == bent else digest, number, number)
        if number == 30:
            told(words, chain, 1, 2)
    told(words, chain, 20, 45)
    breaches = list(words.settle())
    assert [(breach.sequence, breach.last_sequence) for breach in breaches] == ([(1, 45)] if bent else [])
    assert (report.signed[SOURCE], report.unsigned[SOURCE]) == ((0, 45) if bent else (45, 0))
    for number in range(46, 51):
        words.take(SOURCE, number, digests[number - 1], number, number)
    told(words, chain, 45, 50)
    assert list(words.settle()) == []
    assert report.signed[SOURCE] == (5 if bent else 50)


def test_what_is_remembered_by_its_link_alone_is_unsigned_if_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isocast.checks.source_words._MESSAGES_MAX", 8)
    report = SourcesVouched()
    words = SourceWords(report)
    for number, digest in enumerate(contents(20)[0], 1):
        words.take(SOURCE, number, digest, number, number)
    words.end()
    assert (report.unsigned[SOURCE], report.waiting, report.open_from) == (12, 8, 1)


def test_a_number_that_comes_again_is_not_signed_for() -> None:
    report = SourcesVouched()
    words = SourceWords(report)
    digests, chain = contents(1)
    for sequence, digest in enumerate((payload_digest(b"forged"), digests[0]), 1):
        words.take(SOURCE, 1, digest, sequence, 1)
    told(words, chain, 0, 1)
    assert [breach.sequence for breach in words.settle()] == [1]
    assert report.unsigned == {SOURCE: 2}


def test_a_journal_keeps_one_statement_of_a_source_in_a_block_however_many_it_makes() -> None:
    market = SigningMarket()
    for number in range(1, 5_000):
        market.vouchers.heard(SourceChain(0, NO_EPOCH, SOURCE, number - 1, NO_DIGEST, number, NO_DIGEST, bytes(72)))
    market.add(2)
    market.finish()
    [block] = market.blocks
    assert block.proof is not None
    [kept] = [one for one in block.proof.statements if one.sender == SOURCE]
    assert read_chain_statement(0, SOURCE, kept.body).number == 4_999


@given(st.data())
def test_one_bent_message_is_found_whatever_statements_are_left(data: st.DataObject) -> None:
    """As long as a statement behind it is there; an honest journal has no breach, whichever are lost."""
    count = data.draw(st.integers(1, 30))
    digests = [payload_digest(bytes([number])) for number in range(count)]
    chain = [NO_DIGEST]
    for digest in digests:
        chain.append(chained(chain[-1], digest))
    ends = sorted(data.draw(st.sets(st.integers(1, count), min_size=1)) | {count})
    windows = list(zip([0, *ends], ends, strict=False))
    kept = [window for window in windows[:-1] if data.draw(st.booleans())] + windows[-1:]
    bent = data.draw(st.integers(0, count))
    report = SourcesVouched()
    words = SourceWords(report)
    for number, digest in enumerate(digests, 1):
        words.take(SOURCE, number, bytes(32) if number == bent else digest, number, number)
    for since, number in kept:
        words.hear(SourceChain(0, NO_EPOCH, SOURCE, since, chain[since], number, chain[number]))
    breaches = list(words.settle())
    words.end()
    assert len(breaches) == bool(bent)
    for breach in breaches:
        assert breach.sequence <= bent <= breach.last_sequence
    assert report.signed.total() + report.unsigned.total() == count
