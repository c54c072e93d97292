"""Identities, the roster and revocations of a market, as files in its keys directory.

    identity-NAME.key       a node's private key: on its own machine, and nowhere else; `operator` and `box-office` have
                            one too
    identity-NAME.next.key  the key that follows it, until a roster that lists it is in force
    root.key                signs rosters; belongs offline
    revoke.key              signs revocations and nothing else; with whoever is on duty
    roster.bin              who is who, signed by the root; public, every node has it
    rosters/                the rosters until now, and revocations; public

What is public is signed, so that it may travel by any way and be kept anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from time import monotonic, time_ns
from typing import Final

from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.secret_files import (
    OTHERS_WRITE,
    read_file,
    read_secret,
    replace_file,
)
from isocast.security.identities import Identity, fingerprint_of
from isocast.security.roster import (
    ROSTER_BYTES_MAX,
    Revocation,
    Roster,
    RosterBook,
    read_revocation,
    read_roster,
)
from isocast.terms.errors import ConfigurationError, RosterError
from isocast.terms.ids import NodeId
from isocast.terms.quantities import counted

__all__ = [
    "PUBLIC",
    "REVOKE",
    "ROOT",
    "ROSTER",
    "SOON_NS",
    "KeysCounting",
    "NewsReader",
    "has_roster",
    "identity_file",
    "insist_on_listing",
    "is_revocation",
    "load_book",
    "load_identity",
    "load_revocations",
    "load_roster",
    "next_identity_file",
    "past_rosters",
    "read_news",
    "read_public",
    "read_roster_file",
    "roster_note",
    "save_revocation",
    "save_roster",
]

ROOT: Final = "root.key"
REVOKE: Final = "revoke.key"
ROSTER: Final = "roster.bin"
PUBLIC: Final = 0o644
_DAY_NS: Final = 86_400 * 10**9
SOON_NS: Final = 30 * _DAY_NS
"""A key that ends within this is spoken of."""

_LOOK_S = 10.0
_HURRY_S = 1.0
_ROSTERS = "rosters"
_REVOKED = "revoked-"
_REVOCATION_MAGIC = b"ICRV"
_FILES_MAX = 20_000
"""Bounds: as many revocations as a roster has revoked keys, and as many rosters."""


def identity_file(name: str) -> str:
    """The file of a node's private key."""
    return f"identity-{name}.key"


def next_identity_file(name: str) -> str:
    """The file of the key that is to follow it."""
    return f"identity-{name}.next.key"


# ---- identities


def load_identity(market: Market, name: str, public: bytes = b"") -> Identity:
    """A private key from its file, or the one that follows it where that is the one listed.

    ConfigurationError for one that is missing or not safe.
    """
    identity = Identity(read_secret(market.keys_directory / identity_file(name)))
    follower = market.keys_directory / next_identity_file(name)
    if public and identity.public != public and follower.exists():
        later = Identity(read_secret(follower))
        return later if later.public == public else identity
    return identity


def insist_on_listing(market: Market, plan: NodePlan, identity: Identity, book: RosterBook, now_ns: int) -> None:
    """ConfigurationError, which says what to do, for a node whose key its roster does not vouch for now."""
    path, name, roster = str(market.keys_directory / identity_file(plan.origin)), plan.origin, book.newest
    member = roster.member(plan.node)
    if member is None or member.role.label != plan.role.value or plan.stripe not in member.stripes:
        rule = f"roster {roster.serial} does not list {name} as it is in {market.file}: isocast keys init adds it"
        raise ConfigurationError(path, "identity", rule)
    if roster.is_revoked(identity.public) or identity.public in [said.public for said in book.revocations]:
        rule = f"the key of {name} was revoked: isocast keys rotate {name} makes another"
        raise ConfigurationError(path, "identity", rule)
    if member.public != identity.public:
        rule = f"is not the key that roster {roster.serial} lists for {name}: copy the newest {ROSTER} here"
        raise ConfigurationError(path, "identity", f"{rule}, or make another key with isocast keys rotate {name}")
    if now_ns < member.not_before_ns:
        rule = f"the key of {name} does not count yet: this machine's clock is behind, set it"
        raise ConfigurationError(path, "identity", rule)
    if now_ns >= member.not_after_ns:
        rule = f"the key of {name} has expired: isocast keys roster --extend {name} prolongs it"
        raise ConfigurationError(path, "identity", rule)


# ---- rosters


def has_roster(market: Market) -> bool:
    """Whether the market has one."""
    return (market.keys_directory / ROSTER).exists()


def read_public(path: Path) -> bytes:
    """A file that everybody may read and nobody else may write."""
    return read_file(path, ROSTER_BYTES_MAX + 1, OTHERS_WRITE)


def load_roster(market: Market, now_ns: int | None = None) -> Roster:
    """The roster of a market; ConfigurationError, which says what to do, for one that does not count."""
    path = market.keys_directory / ROSTER
    if not path.exists():
        rule = "is missing: isocast keys init adds it to keys of version 0.1; or copy it from where it was signed"
        raise ConfigurationError(str(path), "roster", rule)
    return read_roster_file(path, name=market.name, now_ns=now_ns)


def read_roster_file(path: Path, *, name: str = "", now_ns: int | None = None) -> Roster:
    """A roster from anywhere, of the market of this name if one is given; ConfigurationError as `load_roster`."""
    try:
        return read_roster(read_public(path), name=name, now_ns=now_ns)
    except RosterError as error:
        raise ConfigurationError(str(path), "roster", str(error)) from None


def past_rosters(market: Market, *, last: int = 0) -> tuple[Roster, ...]:
    """Rosters that are kept, all or so many, by serial; ConfigurationError for a file that is none of this market's."""
    found = [read_roster_file(path, name=market.name) for path in _kept(market, "roster-*.bin")[-last:]]
    return tuple(sorted(found, key=lambda roster: roster.serial))


def _kept(market: Market, pattern: str) -> list[Path]:
    return sorted((market.keys_directory / _ROSTERS).glob(pattern))[:_FILES_MAX]


def save_roster(market: Market, raw: bytes) -> Roster:
    """Take a signed roster over, if it is the market's first or follows the one that is there; keep both."""
    path = market.keys_directory / ROSTER
    before = load_roster(market) if has_roster(market) else None
    try:
        roster = read_roster(raw, name=market.name, previous=before)
    except RosterError as error:
        raise ConfigurationError(str(path), "roster", str(error)) from None
    folder = market.keys_directory / _ROSTERS
    folder.mkdir(mode=0o755, exist_ok=True)
    replace_file(folder / f"roster-{roster.serial:06}.bin", raw, PUBLIC)
    replace_file(path, raw, PUBLIC)
    return roster


def roster_note(roster: Roster) -> str:
    """What people should know of a roster that counts."""
    now = time_ns()
    ending = [member for member in roster.members if now + SOON_NS >= member.not_after_ns]
    if not ending:
        return f"serial {roster.serial}"
    days = max(min(member.not_after_ns for member in ending) - now, 0) // _DAY_NS
    whose = f"the key of {ending[0].name} ends" if len(ending) == 1 else f"{len(ending)} keys end"
    return f"serial {roster.serial}; {whose} within {counted(days + 1, 'day')}: isocast keys roster --extend all"


# ---- revocations


def is_revocation(raw: bytes) -> bool:
    """Whether a file is one, and no roster."""
    return raw.startswith(_REVOCATION_MAGIC)


def save_revocation(market: Market, revocation: Revocation) -> Path:
    """Keep a revocation, so that nodes know of it when they start."""
    folder = market.keys_directory / _ROSTERS
    folder.mkdir(mode=0o755, exist_ok=True)
    path = folder / f"{_REVOKED}{fingerprint_of(revocation.public)}.bin"
    replace_file(path, revocation.encoded, PUBLIC)  # Perhaps over one of a revoke key that was replaced.
    return path


def load_book(market: Market, now_ns: int | None = None) -> RosterBook:
    """The roster that a node starts with, and the revocations that count under it; others have lapsed."""
    book = RosterBook(load_roster(market, now_ns), past=past_rosters(market))
    for said in load_revocations(market, book.newest):
        book.revoke(said)
    return book


def read_news(market: Market, book: RosterBook) -> tuple[Revocation, ...]:
    """Tell a book of the rosters and revocations that came into the keys directory since; those that are news.

    ConfigurationError for a file that does not count, or a chain with a gap.
    """
    for roster in (*past_rosters(market), load_roster(market)):
        if roster.serial > book.newest.serial and not book.offer(roster):
            rule = f"roster {roster.serial} does not follow {book.newest.serial}, which this node has"
            where = str(market.keys_directory / _ROSTERS)
            raise ConfigurationError(where, "roster", f"{rule}: bring those between into this directory")
    return tuple([said for said in load_revocations(market, book.newest) if book.revoke(said)])


class KeysCounting(Enum):
    """Which keys of a book a reader goes by."""

    AT_TOKEN = auto()
    """Those that count at the token; without a token those of the newest roster."""
    NEWEST = auto()
    """At any token only those that nothing has replaced, for a server that weighs who lied.

    It does not follow the sequence, and cannot tell from which token on an older key means nothing: whoever kept one
    would convict its honest owner.
    """
    TWO_NEWEST = auto()
    """Without a token those of the roster before the newest too, at doors, where nobody follows the sequence.

    The two sides change over one after the other, and each may be a roster behind.
    """
    NOT_REPLACED = auto()
    """Without a token also those of older rosters that nothing has replaced, for a source.

    It votes for no ring, but has to know the one that it finds: signed when it was formed, rosters ago perhaps.
    """


class NewsReader:
    """A book that looks for new files by itself when a signature names a roster that it does not know.

    No more than once a second, whatever strangers sign.
    """

    def __init__(
        self,
        market: Market,
        book: RosterBook,
        counting: KeysCounting = KeysCounting.AT_TOKEN,
        *,
        looks_unasked: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`looks_unasked`: now and then as well, for a customer, whom nobody tells; `clock` in seconds."""
        self._market = market
        self._book = book
        self._counting = counting
        self._looks_unasked = looks_unasked
        self._clock = clock
        self._looked = clock()

    def key_of(
        self,
        node: NodeId,
        serial: int,
        token_number: int | None = None,
        stripe: int | None = None,
        *,
        settled: bool = False,
    ) -> bytes | None:
        """As the book has it, if it is one of those that count."""
        if self._looks_unasked:
            self._look(_LOOK_S)
        if serial > self._book.newest.serial:
            self._look(_HURRY_S)
        at, counting = token_number, self._counting
        older = counting is KeysCounting.NOT_REPLACED
        if token_number is None and (older or (counting is KeysCounting.TWO_NEWEST and self._is_before_newest(serial))):
            at = 0
        found = self._book.key_of(node, serial, at, stripe, settled=settled)
        insists = counting is KeysCounting.NEWEST or (older and token_number is None)
        return None if insists and found != self._book.newest.public_of(node, stripe) else found

    def _is_before_newest(self, serial: int) -> bool:
        return serial == self._book.newest.serial - 1

    def _look(self, pause_s: float) -> None:
        """Unless it has looked within so long."""
        if self._clock() - self._looked >= pause_s:
            self._looked = self._clock()
            with suppress(ConfigurationError):  # Whoever copies files is not done yet, or did it wrongly.
                read_news(self._market, self._book)

    def serial_of(self, public: bytes, token_number: int | None = None) -> int:
        """As the book has it."""
        return self._book.serial_of(public, token_number)

    def is_revoked(self, public: bytes) -> bool:
        """As the book has it."""
        return self._book.is_revoked(public)


def load_revocations(market: Market, roster: Roster) -> tuple[Revocation, ...]:
    """Those that are kept and count under a roster."""
    found = []
    for path in _kept(market, f"{_REVOKED}*.bin"):
        try:
            found.append(read_revocation(read_public(path), roster))
        except RosterError:
            continue  # Of a revoke key that was replaced.
    return tuple(found)
