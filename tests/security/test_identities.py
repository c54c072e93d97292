"""Identities: who signed what, and that a signature for one thing counts for no other."""

import copy
import pickle
from typing import Any

import pytest

from isocast.security.identities import Identity, is_signed, market_of, statement
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.signing import SignedKind

ROOT = Identity(bytes(range(32)))
MARKET = market_of("demo", ROOT.public)
TOKEN: dict[str, Any] = {"stripe": 1, "epoch": Epoch(3, 2), "serial": 4}


def test_a_signature_counts_for_its_owner_and_its_statement_alone() -> None:
    said = statement(SignedKind.TOKEN, MARKET, b"body", **TOKEN)
    signature = ROOT.sign(said)
    assert is_signed(ROOT.public, signature, said)
    assert not is_signed(Identity(bytes(32)).public, signature, said)
    others = [
        statement(SignedKind.RECEIPT, MARKET, b"body", **TOKEN),
        statement(SignedKind.TOKEN, market_of("other", ROOT.public), b"body", **TOKEN),
        statement(SignedKind.TOKEN, market_of("demo", Identity(bytes(32)).public), b"body", **TOKEN),
        statement(SignedKind.TOKEN, MARKET, b"bodY", **TOKEN),
        *(
            statement(SignedKind.TOKEN, MARKET, b"body", **{**TOKEN, name: value})
            for name, value in (("stripe", 2), ("epoch", Epoch(3, 3)), ("epoch", Epoch(4, 2)), ("serial", 5))
        ),
    ]
    assert not any(is_signed(ROOT.public, signature, other) for other in others)


@pytest.mark.parametrize("public, signature", [(b"", bytes(64)), (bytes(32), b""), (b"\xff" * 32, bytes(64))])
def test_bytes_that_are_no_key_or_signature_are_false(public: bytes, signature: bytes) -> None:
    assert not is_signed(public, signature, b"anything")


def test_an_identity_shows_and_gives_away_nothing() -> None:
    assert repr(ROOT) == f"Identity({ROOT.fingerprint})"
    assert bytes(range(32)).hex() not in repr(ROOT)
    for taken in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            taken(ROOT)


def test_another_length_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes, not 31"):
        Identity(bytes(31))
    with pytest.raises(LocalProtocolError, match="32 bytes, not 3"):
        market_of("demo", b"abc")
