"""One token, one body; parts come together again; what is inconsistent is refused."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.samples import DISCLOSING
from tests.wire.samples import TOKEN as SIGNED
from tests.wire.strategies import tokens

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.limits import (
    MAX_CONTROL_BODY,
    MAX_CONTROL_ENTRIES,
    MAX_DISCLOSURES,
    MAX_GRANTS,
    MAX_INTERLEAVE,
    MAX_LINKS,
    MAX_MESSAGES_PER_TOKEN,
    MAX_NUMBER,
    MAX_PARTS,
    MAX_TOKEN_BODY,
    SIGNATURE_BYTES,
    TOKEN_BYTES,
)
from isocast.wire.packets import (
    NO_DIGEST,
    NO_NONCE,
    ControlEntry,
    ControlKind,
    Disclosure,
    Grant,
    Run,
    Token,
    TokenPart,
    digest_of,
)
from isocast.wire.token_body import decode_token_body, join_parts, split_token, token_body, token_bytes, token_digest

TOKEN = replace(SIGNED, signature=b"")
OPENING = replace(DISCLOSING, signature=b"")
STRIPE = TOKEN.stripe
EMPTY = Token(1, Epoch(1, 2), 3, 4, 5, 6, (), (), (), NO_NONCE, NO_NONCE, 7, 8, (), NO_DIGEST)


def with_(token: Token, **changes: Any) -> Token:  # noqa: ANN401  any field
    """The token with other content and nothing remembered."""
    return replace(token, **changes)


@given(token=tokens())
def test_a_body_is_read_as_its_token(token: Token) -> None:
    body = token_body(token)
    got = decode_token_body(token.stripe, token_bytes(token))
    assert got == token
    assert token_body(got) == body
    assert token_digest(got) == token_digest(token) == digest_of(body)
    assert token_body(with_(got)) == body


@given(token=tokens(), limit=st.integers(90, 2_000), random=st.randoms(use_true_random=False))
def test_parts_come_together_in_any_order(token: Token, limit: int, random: Any) -> None:  # noqa: ANN401
    parts = list(split_token(token, limit))
    assert all(0 < len(part.body) <= limit for part in parts)
    random.shuffle(parts)
    got = join_parts(parts)
    assert got == token
    assert token_digest(got) == token_digest(token)


def test_a_short_token_is_one_part() -> None:
    (part,) = split_token(TOKEN)
    assert part == TokenPart(TOKEN.stripe, TOKEN.epoch, TOKEN.sender, TOKEN.token_number, 0, 1, token_body(TOKEN))


CHANGES: dict[str, Any] = {
    "epoch": Epoch(9, 9),
    "sender": 9,
    "token_number": 9,
    "instant": 9,
    "first_sequence": 9,
    "runs": (TOKEN.runs[0]._replace(first=40), TOKEN.runs[1]),
    "interleave": (),
    "control": (),
    "commit": NO_NONCE,
    "reveal": NO_NONCE,
    "stable": 9,
    "secstable": 9,
    "grants": (),
    "prev_digest": NO_DIGEST,
    "disclosures": DISCLOSING.disclosures,
}


def test_the_digest_covers_every_field() -> None:
    """And through `prev_digest` every token before: a changed past changes every digest after it."""
    assert set(CHANGES) | {"stripe", "signature"} == {
        field.name for field in fields(Token) if not field.name.startswith("_")
    }
    digests = {token_digest(with_(TOKEN, **{name: value})) for name, value in CHANGES.items()}
    assert len(digests | {token_digest(TOKEN)}) == len(CHANGES) + 1


def test_a_signature_is_carried_whole_or_not_at_all_and_is_no_part_of_the_digest() -> None:
    raw = token_bytes(SIGNED)
    assert raw == token_body(TOKEN) + SIGNED.signature
    assert decode_token_body(STRIPE, raw) == SIGNED
    assert token_digest(SIGNED) == token_digest(TOKEN)
    assert join_parts(split_token(SIGNED, 90)) == SIGNED
    for length in range(len(token_body(TOKEN)) + 1, len(raw)):
        with pytest.raises(RemoteProtocolError, match="expected"):
            decode_token_body(STRIPE, raw[:length])
    with pytest.raises(LocalProtocolError, match="signature of 3 bytes"):
        token_bytes(with_(TOKEN, signature=b"abc"))


def test_body_and_digest_are_computed_once() -> None:
    token = with_(TOKEN)
    assert token_body(token) is token_body(token)
    assert token_digest(token) is token_digest(token)


def run(source: int, count: int, first: int = 1) -> Run:
    return Run(source, first, count, NO_DIGEST)


BROKEN: dict[str, dict[str, Any]] = {
    "a run of nothing": {"runs": (run(1, 0),)},
    "a source twice": {"runs": (run(1, 1), run(1, 1, 2))},
    "too many messages": {"runs": (run(1, MAX_MESSAGES_PER_TOKEN), run(2, 1))},
    "numbers beyond 64 bits": {"runs": (run(1, 2, MAX_NUMBER - 1),)},
    "sequences beyond 64 bits": {"runs": (run(1, 2),), "first_sequence": MAX_NUMBER - 1},
    "steps of no runs": {"interleave": ((0, 1),)},
    "a step of nothing": {"runs": (run(1, 2),), "interleave": ((0, 2), (0, 0))},
    "a step of a run that is not there": {"runs": (run(1, 2),), "interleave": ((1, 2),)},
    "steps that fall short": {"runs": (run(1, 2),), "interleave": ((0, 1),)},
    "steps that go too far": {"runs": (run(1, 2),), "interleave": ((0, 3),)},
    "steps that swap counts": {"runs": (run(1, 2), run(2, 1)), "interleave": ((0, 1), (1, 2))},
    "a window twice": {"grants": (Grant(1, 1), Grant(1, 2))},
    "too many windows": {"grants": tuple(Grant(i, 1) for i in range(MAX_GRANTS + 1))},
    "too much control": {"control": (ControlEntry(ControlKind.MARK, 1, b""),) * (MAX_CONTROL_ENTRIES + 1)},
    "a key twice": {"disclosures": (Disclosure(1, 1, NO_DIGEST), Disclosure(1, 1, NO_DIGEST))},
    "keys out of order": {"disclosures": (Disclosure(1, 2, NO_DIGEST), Disclosure(1, 1, NO_DIGEST))},
    "too many keys of a source": {"disclosures": tuple([Disclosure(1, i, NO_DIGEST) for i in range(MAX_LINKS + 1)])},
    "too many keys": {"disclosures": tuple([Disclosure(i, 1, NO_DIGEST) for i in range(MAX_DISCLOSURES + 1)])},
    "too long a control entry": {"control": (ControlEntry(ControlKind.MARK, 1, bytes(MAX_CONTROL_BODY + 1)),)},
}

NEVER_WRITTEN: dict[str, dict[str, Any]] = {
    "too many runs": {"runs": tuple(run(i, 1) for i in range(MAX_MESSAGES_PER_TOKEN + 1))},
    "a negative count": {"runs": (run(1, -1), run(2, 2))},
    "a negative step": {"runs": (run(1, 2),), "interleave": ((-1, 2),)},
    "too many steps": {"runs": (run(1, 2),), "interleave": ((0, 1),) * (MAX_INTERLEAVE + 1)},
    "a short commit": {"commit": bytes(15)},
    "a long digest": {"runs": (Run(1, 1, 1, bytes(33)),)},
    "a short key": {"disclosures": (Disclosure(1, 1, bytes(31)),)},
    "a number beyond 64 bits": {"stable": 1 << 64},
    "an instant beyond 64 bits": {"instant": 1 << 63},
    "a stripe beyond 16 bits": {"stripe": 1 << 16},
    "a window beyond 32 bits": {"grants": (Grant(1, 1 << 32),)},
}


@pytest.mark.parametrize("rule", BROKEN | NEVER_WRITTEN)
def test_what_breaks_a_rule_is_not_written(rule: str) -> None:
    with pytest.raises(LocalProtocolError):
        token_body(with_(EMPTY, **(BROKEN | NEVER_WRITTEN)[rule]))


@pytest.mark.parametrize("rule", BROKEN)
def test_what_breaks_a_rule_is_refused(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is written past the check, as a hostile member would write it."""
    with monkeypatch.context() as patch:
        patch.setattr("isocast.wire.token_body.token_fault", lambda _: None)
        body = token_body(with_(EMPTY, **BROKEN[rule]))
    with pytest.raises(RemoteProtocolError):
        decode_token_body(1, body)


def test_a_body_cut_short_or_continued_is_refused() -> None:
    for body in (token_body(TOKEN), token_body(OPENING)):
        for length in range(len(body)):
            with pytest.raises(RemoteProtocolError):
                decode_token_body(STRIPE, body[:length])
        with pytest.raises(RemoteProtocolError, match="expected"):
            decode_token_body(STRIPE, body + b"\0")


@settings(max_examples=300)
@given(token=st.sampled_from((TOKEN, OPENING)), place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_another_token(token: Token, place: float, value: int) -> None:
    """No tag guards a body in a journal: every accepted change must show in the token and in its digest."""
    body = bytearray(token_body(token))
    at = int(place * len(body))
    changed = body[at] != value
    body[at] = value
    try:
        got = decode_token_body(STRIPE, bytes(body))
    except RemoteProtocolError:
        return
    assert (got != token) == changed
    assert (token_digest(got) != token_digest(token)) == changed


def test_the_flag_of_disclosures_stands_before_some() -> None:
    flagged = bytearray(token_body(EMPTY))
    flagged[TOKEN_BYTES - 1] = 2
    for rest in (b"", b"\0\0", b"\1\0"):
        with pytest.raises(RemoteProtocolError):
            decode_token_body(1, bytes(flagged) + rest)
    assert token_body(with_(OPENING, disclosures=())) == token_body(with_(TOKEN, interleave=()))


def test_unknown_flags_and_kinds_are_refused() -> None:
    body = bytearray(token_body(TOKEN))
    body[TOKEN_BYTES - 1] = 4
    with pytest.raises(RemoteProtocolError, match="flags"):
        decode_token_body(STRIPE, bytes(body))
    marked = bytearray(token_body(with_(EMPTY, control=(ControlEntry(ControlKind.MARK, 1, b""),))))
    marked[TOKEN_BYTES] = 99
    with pytest.raises(RemoteProtocolError, match="99"):
        decode_token_body(1, bytes(marked))


def test_wide_steps_are_for_wide_values_only() -> None:
    narrow = with_(EMPTY, runs=(run(1, 255),), interleave=((0, 255),))
    wide = with_(EMPTY, runs=(run(1, 256),), interleave=((0, 256),))
    assert len(token_body(wide)) == len(token_body(narrow)) + 2
    forged = bytearray(token_body(wide))
    forged[TOKEN_BYTES + 16] = 255
    forged[TOKEN_BYTES + 17] = 0
    forged[-2:] = b"\xff\0"
    with pytest.raises(RemoteProtocolError, match="wide"):
        decode_token_body(1, bytes(forged))
    flagged = bytearray(token_body(with_(EMPTY)))
    flagged[TOKEN_BYTES - 1] = 1
    with pytest.raises(RemoteProtocolError, match="wide"):
        decode_token_body(1, bytes(flagged))


# ---- parts


PARTS = split_token(TOKEN, 110)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        PARTS[1:],
        [*PARTS, PARTS[0]],
        [PARTS[0], *PARTS[:-1]],
        [*PARTS[:-1], PARTS[-1]._replace(part=len(PARTS))],
        [*PARTS[:-1], PARTS[-1]._replace(part=-1)],
        [*PARTS[:-1], PARTS[-1]._replace(parts=len(PARTS) + 1)],
        [*PARTS[:-1], PARTS[-1]._replace(body=b"")],
        [*PARTS[:-1], PARTS[-1]._replace(stripe=9)],
        [*PARTS[:-1], PARTS[-1]._replace(epoch=Epoch(9, 9))],
        [*PARTS[:-1], PARTS[-1]._replace(sender=9)],
        [*PARTS[:-1], PARTS[-1]._replace(token_number=9)],
        [part._replace(token_number=9) for part in PARTS],
        [part._replace(sender=9) for part in PARTS],
        [part._replace(epoch=Epoch(9, 9)) for part in PARTS],
        [part._replace(parts=0) for part in PARTS],
        [*PARTS[1:], PARTS[0]._replace(body=PARTS[0].body + b"\0")],
        [PARTS[0]._replace(parts=MAX_PARTS + 1)] * (MAX_PARTS + 1),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(parts: Sequence[TokenPart]) -> None:
    with pytest.raises(RemoteProtocolError):
        join_parts(parts)


@pytest.mark.parametrize(
    "parts, message",
    [
        (PARTS[1:], "2 of 3 parts"),
        ([*PARTS, PARTS[0]], "4 of 3 parts"),
        ([part._replace(parts=0) for part in PARTS], "3 of 0 parts"),
        ([PARTS[0]._replace(parts=MAX_PARTS + 1)] * (MAX_PARTS + 1), f"of {MAX_PARTS + 1} parts"),
        ([PARTS[0], *PARTS[:-1]], "part 0 of 3 is empty, repeated"),
        ([*PARTS[:-1], PARTS[-1]._replace(body=b"")], "part 2 of 3 is empty"),
    ],
)
def test_the_refusal_says_what_is_wrong_with_the_parts(parts: Sequence[TokenPart], message: str) -> None:
    """Not merely that their bytes make no token."""
    with pytest.raises(RemoteProtocolError, match=message):
        join_parts(parts)


def test_a_body_beyond_every_limit_is_not_even_read() -> None:
    for length in (TOKEN_BYTES - 1, MAX_TOKEN_BODY + SIGNATURE_BYTES + 1):
        with pytest.raises(RemoteProtocolError, match=f"token body of {length} bytes$"):
            decode_token_body(1, bytes(length))


def test_a_token_is_not_split_into_more_parts_than_a_reader_takes() -> None:
    token = with_(EMPTY, runs=tuple(run(i, 1) for i in range(2_000)))
    with pytest.raises(LocalProtocolError, match="parts"):
        split_token(token, 30)
