"""`isocast evidence`: proofs that a site broke a promise, and whether they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cyclopts import App

from isocast.cli.options import Flag, MarketFile
from isocast.cli.render import line, show_json, show_table
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.ring.court import Court, Evidence
    from isocast.runtime.market.model import Market

__all__ = ["evidence"]

_FOUND = 1


class _Proof(NamedTuple):
    author: str
    what: str
    stripe: int | None
    epoch: str
    token: int | None
    kept_by: str
    proven: bool
    file: str


evidence = App(name="evidence", help_epilogue="Example:\n\n    isocast evidence --config market.toml --json\n")


@evidence.default
def _evidence(*, config: MarketFile = None, json: Flag = False) -> int:
    """Show the proofs of broken promises that a market's nodes keep, each verified with the roster.

    A proof is two contents of one token, or two receipts for one token, that one site signed in one stripe and epoch.
    It shows that a promise was broken, not why: a stolen key, a changed program, or a disk that was lost and replaced.
    A site that is proven to lie counts in no majority; remove it, and add it again under a new number.

    Exit code: 0 nothing is proven, 1 something is, 2 bad input.

    Parameters
    ----------
    config
        The market's TOML file. The nodes' directories and the roster are read from this machine; no node must run.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.file import open_market

    market = open_market(config, running=False)
    proofs = _proofs(market)
    proven = [proof for proof in proofs if proof.proven]
    if json:
        show_json({"market": market.name, "proven": len(proven), "proofs": [proof._asdict() for proof in proofs]})
        return _FOUND if proven else 0
    if proofs:
        rows = [
            (
                proof.author,
                proof.what,
                "–" if proof.stripe is None else str(proof.stripe),
                proof.epoch,
                "–" if proof.token is None else str(proof.token),
                proof.kept_by,
                "proven" if proof.proven else "not proven",
            )
            for proof in proofs
        ]
        heads = ("signed by", "two", "stripe", "epoch", "token", "kept by", "")
        show_table(f"Evidence in {market.data_directory}", heads, rows)
    authors = sorted({proof.author for proof in proven})
    told = f": {', '.join(authors)}" if authors else ""
    line(f"{counted(len(proofs), 'file')}, {counted(len(proven), 'proof')}{told}.")
    return _FOUND if proven else 0


def _proofs(market: Market) -> list[_Proof]:
    from isocast.runtime.disk.evidence_store import kept_evidence

    court = _court(market)
    found = []
    for plan in market.nodes:
        for path, kept in kept_evidence(market.directory_of(plan.name)):
            found.append(_told(market, court, kept, plan.name, str(path)))
    return found


def _court(market: Market) -> Court:
    from isocast.ring.court import Court
    from isocast.ring.notary import Notary
    from isocast.runtime.market.roster_files import load_roster, past_rosters
    from isocast.security.roster import RosterBook
    from isocast.security.signing import RosterVerifier

    # Without revocations: what a key signed before it was taken away stays proven.
    book = RosterBook(load_roster(market), past=past_rosters(market))
    return Court(Notary(None, RosterVerifier(book.newest.market, book)))


def _told(market: Market, court: Court, kept: Evidence | None, by: str, file: str) -> _Proof:
    from isocast.wire.packets import Token

    if kept is None:
        return _Proof("–", "a damaged file", None, "–", None, by, proven=False, file=file)
    what = "contents" if isinstance(kept.first, Token) else "receipts"
    proven = court.proves(kept)
    return _Proof(
        market.name_of(kept.author), what, kept.stripe, str(kept.epoch), kept.number, by, proven=proven, file=file
    )
