"""`isocast evidence`: what is proven, by whom it is kept, and what only looks like a proof."""

from __future__ import annotations

from dataclasses import replace
from json import loads
from pathlib import Path

import pytest
from tests.interop.places import Place, new_market
from tests.ring.makers import EPOCH, Chain

from isocast.cli.main import main
from isocast.ring.court import Evidence
from isocast.ring.notary import Notary
from isocast.runtime.disk.evidence_store import FOLDER, keep_evidence
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.security.signing import IdentitySigner
from isocast.wire.packets import Token

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
}


def hand(market: Market, name: str) -> Notary:
    keys = load_keys(market, market.node(name))
    assert keys.identity is not None
    assert keys.book is not None
    return Notary(IdentitySigner(keys.identity, keys.book.newest.market, keys.book))


def two_faced(market: Market, signer: str) -> Evidence:
    """Two contents of London's first token, signed by somebody."""
    token: Token = replace(Chain().add().token, sender=market.node("london").node)
    notary = hand(market, signer)
    return Evidence(notary.sign(token), notary.sign(replace(token, secstable=5, signature=b"")))


def test_proofs_are_verified_with_the_roster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    market = new_market(tmp_path, Place(16, 1), NODES)
    command = ["evidence", "--config", str(market.file)]
    assert main(command) == 0
    assert "0 proofs" in capsys.readouterr().out
    keep_evidence(market.directory_of("nyse"), two_faced(market, "paris"))
    assert main(command) == 0, "Paris cannot accuse London with its own signatures"
    assert "not proven" in capsys.readouterr().out
    keep_evidence(market.directory_of("paris"), two_faced(market, "london"))
    (market.directory_of("paris") / FOLDER / "noise.proof").write_bytes(b"noise")
    assert main([*command, "--json"]) == 1
    told = loads(capsys.readouterr().out)
    assert told["proven"] == 1
    [proven] = [proof for proof in told["proofs"] if proof["proven"]]
    expected = {"author": "london", "what": "contents", "stripe": 0, "epoch": str(EPOCH), "token": 1}
    assert expected.items() <= proven.items()
    assert proven["kept_by"] == "paris"
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert "3 files, 1 proof: london" in shown
    assert "a damaged file" in shown


def test_a_market_without_a_roster_is_told_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    market = new_market(tmp_path, Place(16, 2), NODES)
    (market.keys_directory / "roster.bin").unlink()
    assert main(["evidence", "--config", str(market.file)]) == 2
    assert "isocast keys init" in capsys.readouterr().err
