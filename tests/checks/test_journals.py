"""Journals judged without a disk: each rule on blocks that break it, and journals against each other."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.wire.journal_samples import DELAY, block, blocks, events_payload, message

from isocast.checks.journals import Copy, FaultKind, JournalWalk, differences, lost, repeated
from isocast.terms.ids import Epoch, source_id
from isocast.wire.journal_blocks import BlockView, ReleasedBlock, encode_block, view_block

FIRST, SECOND = block(4, 1, (None,) * 2), block(5, 3, (None,) * 2)


def views(released: Iterable[ReleasedBlock]) -> list[BlockView]:
    return [view_block(b"".join(encode_block(one).pieces)) for one in released]


def copy(name: str, *released: ReleasedBlock) -> Copy:
    return Copy.of(name, views(released), JournalWalk(1))


def unlabelled(one: ReleasedBlock) -> ReleasedBlock:
    return replace(one, fetched=True, messages=[(0, 0, bytes(32), payload) for *_, payload in one.messages])


def test_a_journal_that_keeps_the_rules() -> None:
    whole = copy("a", *blocks(5, size=4))
    assert (whole.breaches, whole.messages, whole.missing(), whole.early(DELAY), repeated(whole)) == (
        (),
        20,
        0,
        0,
        set(),
    )


@pytest.mark.parametrize(
    "second, kind, law, span",
    [
        (block(5, 5), FaultKind.GAP, "S2", (3, 4)),
        (block(5, 2), FaultKind.OVERLAP, "S2", (2, 2)),
        (replace(SECOND, messages=[message(3), message(3)]), FaultKind.SOURCE, "S2", (4, 4)),
        (replace(SECOND, messages=[message(3), message(7)]), FaultKind.SOURCE, "S3", (4, 4)),
        (replace(SECOND, token_number=3), FaultKind.ORDER, "S11", (3, 4)),
        (replace(SECOND, instant=FIRST.instant), FaultKind.ORDER, "S11", (3, 4)),
        (replace(SECOND, epoch=Epoch(1, 65_537)), FaultKind.ORDER, "S11", (3, 4)),
        (replace(SECOND, due=0, released_at=FIRST.released_at - 7), FaultKind.ORDER, "S11", (3, 4)),
        (replace(SECOND, token_number=4), FaultKind.ORDER, "S5", (3, 4)),
        (replace(SECOND, released_at=SECOND.due - 3), FaultKind.EARLY, "S12", (3, 4)),
    ],
    ids=["gap", "overlap", "repeated", "skipped", "token", "instant", "epoch", "clock", "contradiction", "early"],
)
def test_what_one_journal_must_not_do(second: ReleasedBlock, kind: FaultKind, law: str, span: tuple[int, int]) -> None:
    (breach,) = copy("a", FIRST, second).breaches
    assert (breach.kind, breach.law, (breach.sequence, breach.last_sequence)) == (kind, law, span)


@pytest.mark.parametrize("key, laws", [(FIRST.shuffle_key, []), (bytes(16), []), (b"another key 1234", ["S5"])])
def test_a_part_of_a_token_that_was_fetched_has_its_key_or_none(key: bytes, laws: list[str]) -> None:
    """A floor's events enter by it, whoever gave it on; archives of older versions had none."""
    number, instant, due = FIRST.token_number, FIRST.instant, FIRST.due
    rest = unlabelled(replace(SECOND, token_number=number, instant=instant, due=due, shuffle_key=key))
    assert [breach.law for breach in copy("a", FIRST, rest).breaches] == laws


def test_an_instant_that_was_moved_forward_is_early_too() -> None:
    sooner = replace(SECOND, due=SECOND.due - 9, released_at=SECOND.due - 9)
    (view,) = views([sooner])
    assert JournalWalk(3).take(view) == [], "by its own instant it is not"
    (lie,) = JournalWalk(3).take(view, DELAY)
    (early,) = JournalWalk(3, DELAY).take(view)
    assert (lie.law, lie.field, early.law) == ("S12", "due", "S12")
    assert copy("a", FIRST, sooner).early(DELAY) == 2


def test_another_shuffle_key_is_another_order() -> None:
    """Of a site and of a customer alike; an archive of an older version has none."""
    whole, other = copy("a", FIRST, SECOND), replace(SECOND, shuffle_key=b"another key 1234")
    (site,) = differences([whole, copy("b", FIRST, other)])
    (customer,) = differences([whole], [copy("bank", *map(unlabelled, [FIRST, other]))])
    for found, name in ((site, "b"), (customer, "bank")):
        assert (found.name, found.by_label, found.by_content) == (name, (3, 4), ())
    assert differences([whole], [copy("old", *map(unlabelled, [FIRST, replace(SECOND, shuffle_key=bytes(16))]))]) == []


def test_journals_are_compared_by_content_and_those_of_sites_by_label() -> None:
    other = [FIRST, replace(SECOND, messages=[SECOND.messages[0], (*SECOND.messages[1][:3], events_payload(99))])]
    relabelled = [FIRST, replace(SECOND, messages=[(source_id(9), 1, *SECOND.messages[0][2:]), SECOND.messages[1]])]
    sites = [copy("a", FIRST, SECOND), copy("b", *other), copy("c", *relabelled), copy("d", FIRST)]
    found = differences(sites, [copy("bank", *map(unlabelled, other))])
    assert [(one.name, one.other, one.by_label, one.by_content) for one in found] == [
        ("b", "a", (), (4,)),
        ("c", "a", (3,), ()),
        ("bank", "a", (), (4,)),
    ]


def test_whom_nobody_told_the_labels_is_compared_by_content_alone() -> None:
    assert differences([copy("a", FIRST, SECOND), copy("b", *map(unlabelled, [FIRST, SECOND]))]) == []
    assert differences([], []) == []


def test_what_the_longest_journal_lacks_is_compared_too() -> None:
    later = block(9, 31, (None,) * 2)
    changed = replace(later, messages=[message(31, b"this"), message(32)])
    long = copy("a", *blocks(10, size=3))
    (found,) = differences([copy("b", later), long, copy("c", changed)])
    assert (found.name, found.other, found.sequences) == ("c", "b", (31,))


def test_a_message_that_comes_again_is_found_wherever_it_is() -> None:
    by_label = copy("a", *blocks(4), replace(block(9, 9), messages=[message(1, b"another content")]))
    assert len(repeated(by_label)) == 1
    by_content = copy("a", *blocks(4), replace(block(9, 9), messages=[(source_id(7), 1, *message(1)[2:])]))
    assert (len(repeated(by_content)), len(repeated(by_content, by_content=True))) == (0, 1)
    assert len(repeated(copy("a", FIRST, FIRST))) == 2


def test_what_was_promised_is_in_every_journal_or_lost() -> None:
    one, two = copy("a", FIRST, SECOND), copy("b", FIRST)
    source, number, _, _ = SECOND.messages[0]
    digest = one.contents["digest"].tolist()[2]
    assert lost([one], [(source, number, None), (source, number, digest)]) == []
    assert lost([one], [(source, number, bytes(32))]) == [(source, number, bytes(32))], "with another content"
    assert lost([one, two], [(source, number, None)]) == [(source, number, None)]
