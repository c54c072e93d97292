"""Pins: which certificates the newest roster on this machine vouches for, and what is wrong with one that it does not.

A certificate of the market's authority says that somebody had the authority's key. A pin says that the root meant this
one: the roster holds the SHA-256 of the authority's certificate and of each that a listed node may show, two of them
while one takes the other's place. What counts is the newest roster here, whatever token the sequence is at: whoever
shows a certificate and whoever looks at it follow no sequence together. A roster without pins asks for none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import ROSTER, past_rosters, read_roster_file
from isocast.runtime.market.tls_files import CA, certificate_digests, certificate_paths
from isocast.security.roster import Roster
from isocast.terms.errors import ConfigurationError

__all__ = [
    "CertificateFault",
    "PinTrouble",
    "PinningState",
    "authority_judged_by",
    "authority_trouble",
    "judged_by",
    "pin_trouble",
    "pinning_roster",
    "pinning_state",
]

_PAST = 16
"""Rosters before the newest that are looked through for a pin."""


class CertificateFault(StrEnum):
    """What is wrong with a certificate that was shown; nodes count them by this."""

    AUTHORITY = "authority"
    """It is of another market's authority, or of nobody's."""
    UNPINNED = "unpinned"
    OLDER = "older"
    """Pinned by an older roster alone."""
    ANOTHER = "another"
    """Of another node."""
    EARLY = "early"
    EXPIRED = "expired"
    OTHER = "other"


class PinTrouble(NamedTuple):
    """Why a certificate does not count."""

    fault: CertificateFault
    text: str
    """Goes on after "the certificate of somebody"."""


def pinning_roster(market: Market) -> Roster | None:
    """The newest roster here, if it pins certificates; ConfigurationError for one that does not count."""
    path = market.keys_directory / ROSTER
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    roster = _roster(path, market.name, found.st_mtime_ns, found.st_ino, found.st_size)
    return roster if roster.pins and market.security.signatures else None


@lru_cache(maxsize=8)
def _roster(path: Path, name: str, *_stamp: int) -> Roster:
    """Read again when the file has another stamp."""
    return read_roster_file(path, name=name)


def pin_trouble(market: Market, name: str, digest: bytes) -> PinTrouble | None:
    """What is wrong with a certificate that was shown as this node's; None: nothing, or nobody pins it.

    Only whoever the roster lists is pinned: of a customer's gateway the authority's pin is all.
    """
    roster = pinning_roster(market)
    return None if roster is None else judged_by(roster, name, digest, lambda: past_rosters(market, last=_PAST))


def judged_by(
    roster: Roster, name: str, digest: bytes, past: Callable[[], Sequence[Roster]] = tuple
) -> PinTrouble | None:
    """The same by one roster; `past` gives those before it, where they are kept."""
    member = roster.by_name(name)
    if member is None or not roster.pins or digest in member.certificates:
        return None
    serial = roster.serial
    if not member.certificates:
        rule = f"isocast keys roster --pin {name} adds it, where the certificate and root.key are"
        return PinTrouble(CertificateFault.UNPINNED, f"is not pinned: roster {serial} pins none of {name}; {rule}")
    owner = next((other.name for other in roster.members if digest in other.certificates), "")
    if owner:
        rule = f"give {name} its own, with isocast certs node {name}"
        return PinTrouble(CertificateFault.ANOTHER, f"is that of {owner}, not of {name}: {rule}")
    older = [known.serial for known in past() if known.serial < serial and _pins(known, name, digest)]
    if older:
        text = f"was pinned by roster {max(older)} and is not by roster {serial}: give {name} its newest certificate"
        return PinTrouble(CertificateFault.OLDER, f"{text}; if it has that, the old one was stolen")
    text = f"is not one that roster {serial} pins for {name}: if it was renewed, bring the newest roster here"
    return PinTrouble(
        CertificateFault.UNPINNED, f"{text} (isocast keys apply); if nobody renewed it, the authority's key was stolen"
    )


def _pins(roster: Roster, name: str, digest: bytes) -> bool:
    member = roster.by_name(name)
    return member is not None and digest in member.certificates


def authority_trouble(market: Market) -> str:
    """Why the authority's certificate on this machine is not the one that the roster pins; empty: it is."""
    roster = pinning_roster(market)
    return "" if roster is None else authority_judged_by(roster, certificate_paths(market, CA)[0])


def authority_judged_by(roster: Roster, authority: Path) -> str:
    """The same by one roster, of a file; OSError or ValueError for a file that has no certificate."""
    if not roster.authorities or set(certificate_digests(authority)) <= set(roster.authorities):
        return ""
    rule = "copy it from where isocast certs init was run, or bring the newest roster here (isocast keys apply)"
    return f"is not the authority that roster {roster.serial} pins: {rule}"


class PinningState(NamedTuple):
    """How a market's certificates are pinned."""

    found: str
    change: str = ""
    """What to do about it; empty: nothing."""


def pinning_state(market: Market) -> PinningState | None:
    """Whether every door that speaks TLS shows a certificate that is pinned; None without such doors, or a roster."""
    plans = [plan for plan in (market.whole or market).nodes if market.uses_tls(plan.address)]
    if not plans or not market.security.signatures or not (market.keys_directory / ROSTER).exists():
        return None
    try:
        roster = pinning_roster(market)
    except ConfigurationError as error:
        return PinningState(str(error), "isocast keys check tells more")
    how = "isocast keys roster --pin all, where tls/ and root.key are, then isocast keys apply"
    if roster is None:
        return PinningState("the roster pins no certificate: whoever has the authority's key can show one", how)
    listed = [roster.by_name(plan.origin) for plan in plans]
    bare = list(dict.fromkeys(one.name for one in listed if one is not None and not one.certificates))
    if bare:
        return PinningState(f"roster {roster.serial} pins no certificate of {', '.join(bare)}: nobody visits them", how)
    return PinningState(f"roster {roster.serial} pins those of doors and pages")
