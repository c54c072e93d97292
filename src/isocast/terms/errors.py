"""Every error that Isocast raises, in one place."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

__all__ = [
    "AnotherMarketError",
    "ConfigurationError",
    "FeedError",
    "ForgeryError",
    "IsocastError",
    "JournalError",
    "JournalFull",
    "LedgerError",
    "LedgerFault",
    "LocalProtocolError",
    "NodeFailedError",
    "OfficeError",
    "OfficeFault",
    "PackageError",
    "RemoteProtocolError",
    "RosterError",
    "RowError",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StrangerError",
    "TraderLostError",
    "TraderRefusedError",
    "TransportError",
    "UnpaidError",
]


class IsocastError(Exception):
    """Base of all errors of this package."""


class LocalProtocolError(IsocastError):
    """This program asked its own machine for something that the protocol forbids."""


class RemoteProtocolError(IsocastError):
    """Bytes from the network that this version cannot accept: count them and drop them."""


class ForgeryError(RemoteProtocolError):
    """The authentication tag is not the sender's."""


class RosterError(RemoteProtocolError):
    """A roster or a revocation that does not count; the message says why, and what to do."""


class StrangerError(RemoteProtocolError):
    """Nobody here has a key of this sender."""


class PackageError(RemoteProtocolError):
    """A customer's package, or its secret, that opens nothing here; the message says what to do, and no secret."""


class UnpaidError(RemoteProtocolError):
    """A packet of a service or period that was not bought: nothing of it can be read."""


class OfficeFault(StrEnum):
    """Why a box office does not do what it was asked for."""

    BAD_REQUEST = "bad-request"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    DECLINED = "declined"
    """Not paid."""
    LIMITED = "limited"
    """Too many attempts."""
    UNAVAILABLE = "unavailable"
    """Not now."""


class OfficeError(IsocastError):
    """A box office, or a customer's request to one, that does not do it; the message says what to do, and no secret."""

    def __init__(self, fault: OfficeFault, message: str) -> None:
        """Remember why, so that a service can answer with the right status."""
        super().__init__(message)
        self.fault = fault

    def __reduce__(self) -> tuple[type[OfficeError], tuple[OfficeFault, str]]:
        """Pass from a worker process to its parent with both parts."""
        return OfficeError, (self.fault, str(self))


class LedgerFault(StrEnum):
    """Why something cannot be posted."""

    AMOUNT = "amount"
    """Not positive, or larger than can be counted."""
    UNBALANCED = "unbalanced"
    """Its legs do not sum to zero."""
    SHORT = "short"
    """The account has not enough."""
    UNRESERVED = "unreserved"
    """More is spent or freed than was reserved."""
    FROZEN = "frozen"
    """An operator has frozen the account."""
    KEY_USED = "key used"
    """The same key was used for something else."""
    UNKNOWN = "unknown"
    """No such account."""
    UNSOUND = "unsound"
    """The books contradict themselves: nothing is posted until that is explained."""
    UNAVAILABLE = "unavailable"
    """The database does not answer."""


class LedgerError(IsocastError):
    """The books refuse an entry, and have not changed; the message says why."""

    def __init__(self, fault: LedgerFault, message: str) -> None:
        """Remember why, so that a gateway can answer with the right reason."""
        super().__init__(message)
        self.fault = fault

    def __reduce__(self) -> tuple[type[LedgerError], tuple[LedgerFault, str]]:
        """Pass from a worker process to its parent with both parts."""
        return LedgerError, (self.fault, str(self))


class AnotherMarketError(RemoteProtocolError):
    """A packet of another market that uses the same group or port."""


class TransportError(IsocastError):
    """This machine refuses a socket; the message names the address, the reason and what to change."""


class TraderRefusedError(IsocastError):
    """A request of a trader that was refused; the message says why, and what to do.

    `reason` is one word or two for programs, such as "funds", "unknown order" or "unauthorised"; `field` is the one
    that is meant, or empty.
    """

    def __init__(self, reason: str, message: str, field: str = "") -> None:
        """Remember the parts, so that a program can decide."""
        super().__init__(message)
        self.reason = reason
        self.field = field

    def __reduce__(self) -> tuple[type[TraderRefusedError], tuple[str, str, str]]:
        """Pass from a worker process to its parent with all parts."""
        return TraderRefusedError, (self.reason, str(self), self.field)


class TraderLostError(TransportError):
    """No answer to a request of a trader: whether it was done is not known.

    The same request under the same `client_id` finds out: it is done once, however often it is sent.
    """

    def __init__(self, client_id: str, message: str) -> None:
        """Remember the id under which it was sent."""
        super().__init__(message)
        self.client_id = client_id

    def __reduce__(self) -> tuple[type[TraderLostError], tuple[str, str]]:
        """Pass from a worker process to its parent with both parts."""
        return TraderLostError, (self.client_id, str(self))


class NodeFailedError(IsocastError):
    """A node that ran and could not go on; started again it may."""


class ConfigurationError(IsocastError):
    """A key of a file breaks a rule; the message names file, key and rule."""

    def __init__(self, file: str, key: str, rule: str) -> None:
        """Remember the three parts, so that a command can print them alike."""
        super().__init__(f"{file}: {key}: {rule}")
        self.file = file
        self.key = key
        self.rule = rule

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[str, str, str]]:
        """Pass from a worker process to its parent with all three parts."""
        return ConfigurationError, (self.file, self.key, self.rule)


class RowError(IsocastError):
    """A row that is no event: nothing of its batch was published. The message names the row, the column and the rule.

    `row` counts from 0, `column` is its name (empty if the whole row is meant), `rule` says what is wanted.
    """

    def __init__(self, row: int, column: str, rule: str) -> None:
        """Remember the parts, so that a program can mark the cell."""
        super().__init__(f"row {row} (from 0){f', column {column}' if column else ''}: {rule}")
        self.row = row
        self.column = column
        self.rule = rule

    def __reduce__(self) -> tuple[type[RowError], tuple[int, str, str]]:
        """Pass from a worker process to its parent with all parts."""
        return RowError, (self.row, self.column, self.rule)


class _PlacedError(IsocastError):
    """A file that is wrong at one of its bytes, or as a whole; the message names it, the byte and the rule."""

    def __init__(self, file: str, rule: str, offset: int | None = None) -> None:
        """Remember the parts; `offset` is where in the file, if it is about one place."""
        super().__init__(f"{file}: {rule}" if offset is None else f"{file}: byte {offset}: {rule}")
        self.file = file
        self.rule = rule
        self.offset = offset

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, int | None]]:
        """Pass from a worker process to its parent with all parts."""
        return type(self), (self.file, self.rule, self.offset)


class _FullError(IsocastError):
    """A disk that takes no more; the message names the file and the reason."""

    def __init__(self, file: str, reason: str) -> None:
        """Remember both parts."""
        super().__init__(f"{file}: {reason}")
        self.file = file
        self.reason = reason

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Pass from a worker process to its parent with both parts."""
        return type(self), (self.file, self.reason)


class FeedError(_PlacedError):
    """A feed that cannot be read as it is; the message names the file, the byte, what is wrong and what to do."""


class JournalError(_PlacedError):
    """A journal that cannot be read or continued; the message names the file, the byte and the rule."""


class JournalFull(_FullError):  # noqa: N818  A state of the disk, and the name that an alarm shows.
    """The disk took no more: nothing is corrupt, and nothing may be released until it does."""


class StoreError(_PlacedError):
    """State of the protocol that cannot be read or continued; the message names file, byte, rule and what to do."""


class StoreGone(StoreError):  # noqa: N818  A state of the disk, and the name that an alarm shows.
    """What a running node keeps on disk was removed, replaced or cut under it: nothing is durable any more."""


class StoreFull(_FullError):  # noqa: N818  A state of the disk, and the name that an alarm shows.
    """The disk took no more: nothing is corrupt, and the node must stop until it does."""
