"""A correction of a confirmed trade on its way: proposed and signed by one operator, checked and sent by another.

Each reads the trade from a journal of his own choice, and signs where his key is: keys never travel, the paper does. In
a file it is one line of text, with as many signatures as it has:

    isocast-correction FLOOR HEX
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple

from isocast.floor.confirming import ConfirmationFollower
from isocast.floor.corrections import (
    Correction,
    Signature,
    correction_said,
    correction_topic,
    decode_correction,
    encode_correction,
    signature_fault,
)
from isocast.floor.events import Trade
from isocast.floor.following import FloorFollower
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.floor_journal import JournalFloor
from isocast.runtime.hosts.order_checks import listed_now
from isocast.runtime.market.floors import FloorTable
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import has_roster, load_book
from isocast.runtime.market.secret_files import OTHERS_WRITE, read_file, read_secret
from isocast.security.identities import Identity
from isocast.security.roster import RosterBook
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId, operator_id
from isocast.wire.opaque import OpaqueMessage

__all__ = [
    "Proposal",
    "StandingTrade",
    "correction_text",
    "countersigned",
    "proposed",
    "publish_correction",
    "read_proposal",
    "signed",
    "standing_trade",
]

_WORD: Final = "isocast-correction"
_TEXT_MAX: Final = 4_096
_KEY_BYTES: Final = 16


class Proposal(NamedTuple):
    """A correction for a floor, with the signatures that it has."""

    floor: str
    correction: Correction


class StandingTrade(NamedTuple):
    """A trade as a journal shows it now, and the floor that it is of."""

    trade: Trade
    version: int
    """How often it was corrected."""
    followed: ConfirmationFollower


# The trade ---------------------------------------------------------------------------------------------------------


def standing_trade(journal: JournalFloor, number: int) -> StandingTrade:
    """A trade as it stands at the end of a journal; ConfigurationError for one that is unknown or not confirmed."""
    made: Trade | None = None
    followed = ConfirmationFollower(FloorFollower(journal.code))
    for followed, step in journal.confirmations():  # noqa: B007 - as it is at the end
        made = next((one for one in step.trades if one.number == number), made) if step is not None else made
    if made is None:
        last = followed.follower.floor.next_trade - 1
        raise _wrong(
            "TRADE", f"{number} is unknown: the journal has trades up to {last}; isocast floor trades lists them"
        )
    if number > followed.confirmed:
        raise _wrong("TRADE", f"{number} is tentative in this journal: only a confirmed one is corrected; wait for it")
    known = followed.corrections.standing.get(number)
    return StandingTrade(followed.corrections.of(made), 0 if known is None else known.version, followed)


def proposed(
    standing: StandingTrade, price: int | None, quantity: int | None, lasts_ns: int, reason: str
) -> Correction:
    """The next correction of a trade, without a signature; with neither price nor quantity it is void.

    ConfigurationError for one that would change nothing.
    """
    trade, until = standing.trade, time_ns() + lasts_ns
    right = (0, 0)
    if price is not None or quantity is not None:
        right = trade.price if price is None else price, trade.quantity if quantity is None else quantity
    correction = Correction(trade, standing.version + 1, *right, until, reason)
    _insist_on_sense(correction, standing)
    return correction


def _insist_on_sense(correction: Correction, standing: StandingTrade) -> None:
    """ConfigurationError, which says what to do, for a correction that receivers would leave without effect."""
    followed, number = standing.followed, correction.trade.number
    floor, confirmed = followed.follower.floor, followed.confirmed
    if correction.version == standing.version + 1 and correction.trade != standing.trade:
        raise _wrong("TRADE", f"{number} is another one in this journal than in the proposal: find out whose is wrong")
    fault = followed.corrections.fault(correction, floor, confirmed, time_ns())
    if fault is not None:
        raise _wrong("TRADE", f"{number} cannot be corrected so: {fault}")
    try:
        encode_correction(correction)
    except LocalProtocolError as error:
        raise _wrong("TRADE", str(error)) from None


def _wrong(name: str, rule: str) -> ConfigurationError:
    return ConfigurationError("command line", name, rule)


# Signatures --------------------------------------------------------------------------------------------------------


def _book(market: Market, floor: FloorTable) -> RosterBook:
    if not floor.correctors:
        rule = f"nobody may correct trades of {floor.code}: name two or more operators there"
        raise ConfigurationError(market.file, f"floor.{floor.code}.correctors", rule)
    if not has_roster(market):
        raise ConfigurationError(market.file, "roster", "there is none that says who signs: isocast keys init makes it")
    return load_book(market)


def signed(market: Market, floor: FloorTable, correction: Correction, key: Path) -> tuple[Correction, str]:
    """A correction with one signature more, and whose; ConfigurationError for a key that may not, or has signed."""
    book = _book(market, floor)
    identity = Identity(read_secret(key))
    name = next((one.name for one in book.newest.members if one.public == identity.public), "")
    listed = listed_now(book, time_ns())
    node = operator_id(name)
    if name not in floor.correctors or listed is None or listed[1](node) != identity.public:
        rule = f"is the key of nobody who may correct trades of {floor.code} now: {', '.join(floor.correctors)} may"
        raise ConfigurationError(str(key), "--operator-key", rule)
    if node in [one.signer for one in correction.signatures]:
        rule = f"{name} has signed this already: another one of {', '.join(floor.correctors)} must countersign it"
        raise ConfigurationError(str(key), "--operator-key", rule)
    said = correction_said(book.newest.market, floor.code, correction)
    signature = Signature(node, identity.sign(said))
    return correction._replace(signatures=(*correction.signatures, signature)), name


def countersigned(
    market: Market, floor: FloorTable, correction: Correction, standing: StandingTrade, key: Path
) -> tuple[Correction, tuple[str, ...]]:
    """A proposal with the second signature, and whose both are; ConfigurationError for one that would not count."""
    _insist_on_sense(correction, standing)
    found, _ = signed(market, floor, correction, key)
    listed = listed_now(_book(market, floor), time_ns())
    if listed is None:
        raise ConfigurationError(market.file, "roster", "there is none that says who signs")
    named, (name, key_of) = {operator_id(one): one for one in floor.correctors}, listed

    def corrector(node: NodeId) -> bytes | None:
        return key_of(node) if node in named else None

    fault = signature_fault(found, floor.code, name, corrector)
    if fault:
        raise _wrong("FILE", f"it has {fault}: have it proposed and signed again")
    return found, tuple([named[one.signer] for one in found.signatures])


# The paper ---------------------------------------------------------------------------------------------------------


def correction_text(proposal: Proposal) -> str:
    """A proposal as one line."""
    return f"{_WORD} {proposal.floor} {encode_correction(proposal.correction).hex()}\n"


def read_proposal(path: Path) -> Proposal:
    """A proposal from its file; ConfigurationError for one that is none."""
    text = read_file(path, _TEXT_MAX, OTHERS_WRITE)
    with suppress(ValueError, RemoteProtocolError):
        word, floor, raw = text.decode("ascii").split()
        if word == _WORD:
            return Proposal(floor, decode_correction(bytes.fromhex(raw)))
    raise ConfigurationError(str(path), "FILE", "is no proposal: isocast floor correct writes one")


async def publish_correction(
    market: Market, floor: FloorTable, correction: Correction, told: Callable[[str], None] = lambda _: None
) -> None:
    """Bring a correction into the sequence, once however often it is sent, through the first source that takes it."""
    payload = encode_correction(correction)
    key = blake2b(payload, digest_size=_KEY_BYTES, person=b"isocast correct").digest()
    sources = (*floor.sources, *floor.operators)
    for place, source in enumerate(sources):
        try:
            async with Publisher(market, source) as publisher:
                await publisher.send([OpaqueMessage(correction_topic(floor.code), payload)], key)
        except OSError as reason:
            if place == len(sources) - 1:
                raise
            told(f"{source} does not answer ({reason}): the next source is asked")
        else:
            return
