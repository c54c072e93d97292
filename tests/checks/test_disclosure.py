"""S20: a key is shown when a majority has receipted its message, and what is void is void at every site."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.checks.traces import LAW, SOURCE
from tests.ring.makers import EPOCH, Chain
from tests.ring.test_disclosures import Keys, commitment, link, sealed, shown

from isocast.checks.disclosure import DisclosureChecker
from isocast.checks.facts import (
    Completed,
    Disclosed,
    Law,
    ReceiptHeard,
    ReceiptSent,
    Released,
    Replaced,
    Report,
    Sealed,
    TokenMade,
)
from isocast.checks.sources import Logs
from isocast.ring.disclosures import links
from isocast.terms.ids import NodeId
from isocast.terms.timing import Gate
from isocast.wire.packets import ControlEntry, ControlKind, Disclosure
from isocast.wire.token_body import token_digest

RULES = replace(LAW, timing=replace(LAW.timing, reveal_tokens=2, release_delay_ns=0, gate=Gate.MAJORITY))


def opens(label: tuple[NodeId, int], key: tuple[int, bytes], payload: bytes) -> bool:
    found = links(Disclosure(label[0], *key), 1).get(label[1])
    return found is not None and commitment(found) == payload


class Watched:
    """A checker, and the log of a ring that it watches: token 1 acknowledges messages 1 and 2."""

    def __init__(self, law: Law = RULES) -> None:
        self.report, self.logs, self.chain = Report(), Logs(), Chain()
        self.checker = DisclosureChecker(law, opens, self.logs, self.report)
        self.add(sealed(1), sealed(2))

    def add(self, *messages: object, **token: object) -> Watched:
        """One token more, which its owner made and every site completes."""
        entry = self.chain.add(*messages, **token)  # type: ignore[arg-type]
        made = TokenMade(0, entry.token.sender, token_digest(entry.token), entry.token)
        self.logs.on_made(made)
        self.checker.on_made(made)
        for site in (1, 2, 3):
            done = Completed(0, site, EPOCH, entry.token.token_number, made.digest, len(messages), len(messages))
            self.checker.on_completed(done)
        return self

    def receipts(self, *sites: NodeId, held: int = 1) -> Watched:
        for site in sites:
            self.checker.on_receipt(ReceiptSent(0, site, EPOCH, held))
        return self

    def shows(self, number: int, key: bytes | None = None) -> Watched:
        self.checker.on_disclosed(Disclosed(0, SOURCE, ((number, link(number) if key is None else key),)))
        return self

    def releases(self, site: NodeId, *keys: bytes) -> Watched:
        """Token 1, its messages opened by these links or void."""
        token, messages = self.chain.entries[0].token, self.chain.entries[0].messages
        fact = Released(0, site, EPOCH, token.token_number, token.instant, 1, messages, 0, clock_kept=True, links=keys)
        self.checker.on_released(fact)
        return self

    @property
    def told(self) -> list[str]:
        assert {violation.property for violation in self.report.violations} <= {"S20"}
        return [violation.text for violation in self.report.violations]


# When a key may be shown


def test_a_key_may_be_shown_once_a_majority_has_receipted() -> None:
    assert Watched().receipts(1, 3).shows(2).told == []
    [text] = Watched().receipts(1).shows(2).told
    assert text == "source1 shows the key of source1/2, and has not seen receipts of a majority"
    assert len(Watched().receipts(1, 3).shows(3).told) == 1, "no token acknowledges it"
    assert len(Watched().receipts(1, 2, 3, held=0).shows(1).told) == 1


def test_a_source_is_held_to_what_it_heard_where_that_is_known() -> None:
    watched = Watched(replace(RULES, hears=True)).receipts(1, 2, 3)
    for site in (1, 2):
        watched.checker.on_heard(ReceiptHeard(0, 3, site, EPOCH, 1))
    assert len(watched.shows(2).told) == 1, "a site heard, the source did not"
    watched = Watched(replace(RULES, hears=True))
    for site in (1, 2):
        watched.checker.on_heard(ReceiptHeard(0, SOURCE, site, EPOCH, 1))
    assert watched.shows(2).told == []


def test_receipts_of_an_earlier_epoch_certify_no_token_of_a_later_one() -> None:
    watched = Watched()
    for site in (1, 2):
        watched.checker.on_receipt(ReceiptSent(0, site, EPOCH._replace(number=0), 1))
    assert len(watched.shows(2).told) == 1


def test_where_u_changes_majorities_are_not_judged() -> None:
    watched = Watched().add(control=(ControlEntry(ControlKind.ADD_SITE, 4, b""),))
    assert watched.receipts(1).shows(2).told == []


def test_no_message_is_made_under_a_key_that_follows_from_what_was_shown() -> None:
    watched = Watched().receipts(1, 2).shows(2)
    watched.checker.on_sealed(Sealed(0, SOURCE, 3, link(3)))
    assert watched.told == []
    watched.checker.on_sealed(Sealed(0, SOURCE, 3, link(1)))
    assert watched.told == ["source1/3 is sealed with a key that follows from what its source showed before"]


# What is void


OPENED = (link(1), link(2))
VOID = (b"", b"")


def settled(*, disclosed: bool = True) -> Watched:
    watched = Watched().add()
    return watched.add(disclosures=(shown(2),) if disclosed else ())


def test_what_one_of_the_next_v_tokens_opens_is_opened_and_the_rest_is_void() -> None:
    assert settled().releases(1, *OPENED).releases(2, *OPENED).told == []
    assert settled(disclosed=False).releases(1, *VOID).releases(2, *VOID).told == []
    assert settled(disclosed=False).add(disclosures=(shown(2),)).releases(1, *VOID).told == [], "a token too late"


@pytest.mark.parametrize(
    "disclosed, keys, text",
    [
        (True, VOID, "released source1/1 of token 1 as void, and one of the next 2 tokens opens it"),
        (False, OPENED, "released source1/1 of token 1 opened, and none of the next 2 tokens opens it"),
        (True, (link(2), link(2)), "released source1/1 of token 1 with a key that does not open it"),
        (True, (Keys(b"other").all[1], link(2)), "with a key that does not open it"),
    ],
)
def test_a_site_that_opens_otherwise_is_told(disclosed: bool, keys: tuple[bytes, ...], text: str) -> None:  # noqa: FBT001
    assert text in settled(disclosed=disclosed).releases(1, *keys).told[0]


def test_two_sites_that_differ_on_what_is_void_are_told() -> None:
    told = settled().releases(1, *OPENED).releases(2, link(1), b"").told
    assert "site2 released source1/2 of token 1 void, and site1 otherwise" in told


def test_nothing_is_released_before_the_tokens_that_decide_are_here() -> None:
    [text] = Watched().add().releases(1, *VOID).told
    assert text == "site1 released token 1, and does not hold the next 2 tokens, which decide what is void"


def test_a_log_that_begins_anew_is_not_held_to_tokens_that_it_never_had() -> None:
    watched = Watched()
    watched.checker.on_replaced(Replaced(0, 1, EPOCH, 1, b"", 3))
    assert watched.releases(1, *OPENED).told == []
