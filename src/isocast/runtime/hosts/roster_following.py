"""A running node follows the market's rosters and revocations.

When an operator says that there are new files, it reads them: from then on it believes what is signed under a new
roster, and nothing of a revoked key. A receiver also follows the sequence: a certified entry says from which token on
the roster counts, and older ones do not. If that entry is cut off the log, so is what followed from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from isocast.ring.inputs import ControlRequested
from isocast.ring.receiver import Receiver
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import past_rosters, read_news
from isocast.runtime.market.secret_files import replace_file
from isocast.runtime.operate.operator_door import Operation
from isocast.security.identities import fingerprint_of
from isocast.security.roster import Roster, RosterBook, RosterNotice, read_roster_entry, roster_entry
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RosterError
from isocast.wire.packets import ControlEntry, ControlKind, Token

__all__ = ["NoFollower", "RosterFollower", "RosterFollowing", "RosterPlace"]

_NOTES = "rosters-in-force.json"
_DUE_MAX = 16
"""Changes that are remembered, in case that their tokens are cut off: more than a log keeps."""
_ROUNDS = 2
_MARGIN = 8
"""A roster counts so many tokens, beyond some rounds of the ring, behind the one that announces it: by then every site
that is up has seen that one certified."""


@dataclass(frozen=True, slots=True)
class RosterPlace:
    """The surroundings of a node's book."""

    market: Market
    book: RosterBook
    log: FilteringBoundLogger
    alarm: Callable[[str, str, str], None]
    """(code, what happened, what to do)."""
    operations: dict[str, Operation]
    """What an operator may ask."""
    directory: Path
    """Where the node keeps what must survive it."""
    take_key: Callable[[], None] = lambda: None
    """Called when a new roster may list another key of this node, or bring another of the core."""
    turn_core: Callable[[], None] = lambda: None
    """Called when a roster comes into force."""


class NoFollower:
    """Of a receiver in a market in which nobody signs."""

    def completed(self, token: Token) -> None:
        """The receiver holds a token."""

    def passed(self) -> None:
        """The machine made a step."""


class RosterFollowing:
    """What every node does when it is told of new files."""

    def __init__(self, place: RosterPlace) -> None:
        """Offers itself at the operator's door."""
        self._place = place
        self.book = place.book
        place.operations["roster"] = self._look

    async def _look(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        """Read what is new in the keys directory, and say what is known."""
        book, market, log = self.book, self._place.market, self._place.log
        for said in read_news(market, book):
            log.warning("a key is revoked", whose=market.name_of(said.node), key=fingerprint_of(said.public))
        self._place.take_key()
        self.looked()
        return {
            "newest": book.newest.serial,
            "counting": book.entries[-1][1].serial,
            "revoked": len(book.revocations) + len(book.newest.revoked),
        }

    def looked(self) -> None:
        """Files were read."""


class RosterFollower(RosterFollowing, NoFollower):
    """What a receiver does besides: it follows the sequence, and puts entries into it."""

    def __init__(self, place: RosterPlace, receiver: Receiver, feed: Callable[[ControlRequested], None] | None) -> None:
        """`feed` takes requests of a receiver that has tokens of its own; None: it only follows."""
        super().__init__(place)
        self._receiver = receiver
        self._feed = feed
        self._held: dict[int, RosterNotice] = {}
        """By token: announced, and not certified yet."""
        self._due: dict[int, RosterNotice] = {}
        """By token: certified, and put into the book; or the roster is not here."""
        self._notes = place.directory / _NOTES
        self._counting = _read_notes(self._notes) or {self.book.newest.serial: 0}
        """By serial: since which token."""
        self.book.restore(self._counting)
        self._note()
        if feed is not None:
            place.operations["announce-roster"] = self._announce
        for entry in receiver.ledger.entries.values():
            self.completed(entry.token)

    # What the receiver says ---------------------------------------------------------------------

    def completed(self, token: Token) -> None:
        """The receiver holds a token: perhaps another of its number than before, if a ring was cut back."""
        number = token.token_number
        if not (self._held or self._due or token.control):
            return
        notice, gone = _notice(token), self._due.get(number)
        if gone is not None and gone != notice:
            del self._due[number]
            self.book.withdraw(gone.effective)
            self._counting.pop(gone.serial, None)
            self._note()
            self._place.log.warning("a roster is withdrawn: its token is no more", serial=gone.serial)
        if notice is None:
            self._held.pop(number, None)
        elif gone != notice:
            self._held[number] = notice

    def passed(self) -> None:
        """After a step of the machine: what is certified now counts from its token on."""
        if not self._held:
            return
        certified = max(self._receiver.certificates.certified, self._receiver.releaser.released)
        for number in [held for held in self._held if held <= certified]:
            self._due[number] = self._held.pop(number)
            self._due = dict(sorted(self._due.items())[-_DUE_MAX:])
            self._schedule(number)

    def looked(self) -> None:
        """A roster that was missing may be here now."""
        for number in sorted(self._due):
            self._schedule(number)

    def _schedule(self, number: int) -> None:
        notice, book, place = self._due[number], self.book, self._place
        if notice.serial <= book.entries[-1][1].serial:
            return
        roster = _known(place.market, book, notice)
        if roster is None or not book.schedule(roster, notice.effective):
            place.alarm(
                f"roster-missing-{notice.serial}",
                f"the market has put roster {notice.serial} into force, and this node does not have it",
                "copy the rosters to this machine and run isocast keys apply; until then it believes nobody who signs"
                " under that roster",
            )
            return
        self._counting[roster.serial] = notice.effective
        self._note()
        try:
            # Perhaps nobody has told this node: it heard of the roster from the sequence, and found the file.
            place.take_key()
        except ConfigurationError as reason:
            place.alarm(f"roster-keys-{roster.serial}", str(reason), "mend it, and run isocast keys apply here")
        if roster is book.newest:
            place.turn_core()
        place.log.warning("a roster is in force", serial=roster.serial, token=notice.effective)

    def _note(self) -> None:
        """For the next start."""
        self._counting = dict(sorted(self._counting.items())[-_DUE_MAX:])
        text = json.dumps({str(serial): token for serial, token in self._counting.items()})
        replace_file(self._notes, text.encode())

    # What an operator says ----------------------------------------------------------------------

    async def _announce(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Put the next roster into this site's next token."""
        receiver, book = self._receiver, self.book
        ring = receiver.ring
        if self._feed is None or ring is None or receiver.site not in ring.ring:
            raise LocalProtocolError("this site is not on the ring and sends no token: ask another site")
        counting = book.entries[-1][1].serial
        roster = book.of_serial(counting + 1)
        if roster is None or request.get("serial") != roster.serial:
            raise LocalProtocolError(f"roster {counting} is in force, and this node has none after it of this serial")
        effective = receiver.held + _ROUNDS * len(ring.ring) + _MARGIN
        self._place.log.warning("a roster is announced", by="operator", serial=roster.serial, token=effective)
        self._feed(ControlRequested(roster_entry(roster, effective)))
        return {"serial": roster.serial, "effective": effective}


def _read_notes(path: Path) -> dict[int, int]:
    """Since which token each serial counts; none from a file that is not there or damaged: nothing is lost by it."""
    try:
        found = json.loads(path.read_bytes())
        return {int(serial): int(token) for serial, token in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _notice(token: Token) -> RosterNotice | None:
    """What a token says of rosters; an entry that says nothing is none."""
    for entry in token.control:
        if entry.kind is ControlKind.ROSTER:
            return _read(entry, token.token_number)
    return None


def _read(entry: ControlEntry, token_number: int) -> RosterNotice | None:
    try:
        return read_roster_entry(entry, token_number)
    except RosterError:
        return None


def _known(market: Market, book: RosterBook, notice: RosterNotice) -> Roster | None:
    """By its digest, among what was offered and in the files."""
    roster = book.of_serial(notice.serial)
    if roster is None:
        try:
            kept = past_rosters(market)
        except ConfigurationError:
            kept = ()
        roster = next((one for one in kept if one.serial == notice.serial), None)
    return roster if roster is not None and roster.digest == notice.digest else None
