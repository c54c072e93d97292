"""F5: nobody chooses the order inside a shuffled token."""

from dataclasses import replace

from tests.checks.traces import SOURCE, broken, law
from tests.ring.makers import EPOCH, Chain, founding, message

from isocast.checks.facts import Completed, Fact, Installed, Released, Replaced, RingFormed, TokenMade
from isocast.ring.settings import OrderRule
from isocast.terms.ids import source_id
from isocast.terms.instants import SECOND
from isocast.wire.packets import Token
from isocast.wire.token_body import token_digest

LAW = law(shuffled=True)
OTHER = source_id(2)
LIE = b"\x07" * 16


def chain() -> Chain:
    grown = Chain(order=OrderRule.SHUFFLE).grow(4)
    grown.add(*[message(number, source) for number in range(1, 6) for source in (SOURCE, OTHER)])
    return grown


def made(*tokens: Token) -> list[Fact]:
    ring = founding()
    facts: list[Fact] = [RingFormed(SECOND, ring.sender, ring)]
    return [*facts, *[TokenMade(SECOND, token.sender, token_digest(token), token) for token in tokens]]


def f5(facts: list[Fact], **changes: object) -> list[str]:
    found = broken(facts, law(shuffled=True, **changes))
    return [name for name in found if name == "F5"]


TOKENS = tuple([entry.token for entry in chain().entries])


def test_honest_owners_reveal_what_they_committed_to() -> None:
    assert f5(made(*TOKENS)) == []


def test_an_owner_reveals_another_nonce() -> None:
    for place in (0, 3):
        lie = replace(TOKENS[place], reveal=LIE)
        assert f5(made(*TOKENS[:place], lie)) == ["F5"]
        assert f5(made(*TOKENS[:place], lie), liars=frozenset({lie.sender})) == [], "as planned"


def test_a_lie_stays_in_the_liars_log() -> None:
    lie = replace(TOKENS[3], reveal=LIE)
    facts = made(*TOKENS[:3], lie)
    taken = Completed(SECOND, 2, EPOCH, 4, token_digest(lie), 0, 0)
    liars = frozenset({lie.sender})
    assert f5([*facts, taken._replace(site=lie.sender)], liars=liars) == []
    assert f5([*facts, taken], liars=liars) == ["F5"]
    later = EPOCH._replace(number=9)
    assert f5([*facts, taken._replace(epoch=later)], liars=liars) == [], "there may be no majority without the liar"
    assert f5([*facts, taken._replace(epoch=later)], liars=liars, lies_alone=True) == ["F5"]


def test_who_took_a_log_over_cannot_know() -> None:
    lie = replace(TOKENS[3], reveal=LIE)
    taken_over = Replaced(SECOND, 2, EPOCH, 3, token_digest(TOKENS[2]), 1)
    taken = Completed(SECOND, 2, EPOCH, 4, token_digest(lie), 0, 0)
    facts = [*made(*TOKENS[:3], lie), Installed(SECOND, 2, founding(), 0)]
    assert f5([*facts, taken], liars=frozenset({lie.sender})) == ["F5"]
    assert f5([*facts, taken_over, taken], liars=frozenset({lie.sender})) == []


def test_messages_stand_where_two_owners_nonces_put_them() -> None:
    entry = chain().entries[-1]
    token = entry.token
    facts = made(*TOKENS)
    out = Released(SECOND, 2, EPOCH, 5, token.instant, 1, entry.messages, 0, clock_kept=False)
    assert f5([*facts, out]) == []
    assert f5([*facts, out._replace(messages=entry.messages[3:], first_sequence=4)]) == []
    by_source = tuple(sorted(entry.messages, key=lambda data: (data.sender, data.number)))
    assert f5([*facts, out._replace(messages=by_source)]) == ["F5"]
