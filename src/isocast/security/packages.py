r"""Packages: what a customer bought, sealed for him alone and signed by the box office (§6, "who may receive").

A package holds service keys. It is sealed with AES-256-GCM under a key that only the buyer's secret gives, and it names
its buyer in the clear: a copy without the secret opens nothing, and a copy says whose it is.

    "isocast package 1\n"
    market 32 | office 32                                         the market's id, the box office's public key
    number 8 | issued 8 | begins 8 | ends 8                       instants in ns
    salt 16 | memory in KiB 4 | passes 1 | lanes 1 | nonce 12     how the secret becomes a key
    length 1, name of the market | length 1, name of the buyer
    length 4, sealed: count 2 | (length 1, service | period 8 | begins 8 | ends 8 | key 32) ... | tag 16
    signature 64, the office's, of everything before it

Integers are big-endian. Keys are in order of period and service, so that a package has one spelling. Everything before
`sealed` is associated data of the seal. The market's roster says which key is the box office's.

The mask (the key from the secret) is argon2id of it with the subscriber's salt. What it costs is in the package,
under seal and signature, and has bounds: a hostile file can ask neither for 100 GB nor for a cheap guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, NoReturn
from unicodedata import is_normalized

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from isocast.security.identities import (
    ED25519_BYTES,
    Identity,
    is_signed,
    statement,
)
from isocast.security.keys import KEY_BYTES
from isocast.security.subscriptions import ServiceKey, check_service
from isocast.terms.errors import LocalProtocolError, PackageError
from isocast.terms.instants import SECOND
from isocast.wire.signing import MARKET_BYTES, SignedKind

__all__ = [
    "KEYS_MAX",
    "NAME_BYTES_MAX",
    "NONCE_BYTES",
    "PACKAGE_BYTES_MAX",
    "SALT_BYTES",
    "SECRET_BYTES",
    "STRETCHING",
    "TEST_CARDS",
    "Mask",
    "Package",
    "PackageLabel",
    "Stretching",
    "card_secret",
    "check_name",
    "mask_of",
    "open_package",
    "read_label",
    "read_secret",
    "seal_package",
    "write_secret",
]

SECRET_BYTES: Final = 16
"""128 random bits: beyond any search, with or without a slow hash."""
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
NAME_BYTES_MAX: Final = 64
"""Of a buyer's name, in UTF-8."""
KEYS_MAX: Final = 1_024
"""Follows: 100 stripes with repairs and history for ten periods."""
PACKAGE_BYTES_MAX: Final = 128 * 1_024
"""1,024 keys of 75 bytes are 75 KiB."""
_MARKET_NAME_MAX = 200

_MAGIC = b"isocast package 1\n"
_HEAD = Struct(">32s32sQQQQ16sIBB12s")
_COUNT = Struct(">H")
_LENGTH = Struct(">I")
_KEY = Struct(">QQQ32s")
_TAG_BYTES = 16
_LAST = (1 << 63) - 1
_CLOCK_NS = 300 * SECOND
"""How far a buyer's clock may be behind the office's."""
_MASK_PERSON = b"isocast package"
_CHECK_PERSON = b"isocast secret"


# What the secret is, and what it costs to try one -------------------------------------------------


class Stretching(NamedTuple):
    """What one guess of a secret costs: argon2id's memory, passes over it, and lanes."""

    memory_kib: int
    passes: int
    lanes: int


STRETCHING: Final = Stretching(memory_kib=256 * 1_024, passes=3, lanes=1)
"""Of every package, and the least that is believed: 256 MiB and most of a second for each guess."""
_STRETCHING_MAX = Stretching(memory_kib=1_024 * 1_024, passes=8, lanes=4)
"""Bounds: a hostile file takes a gibibyte for some seconds, and not more."""
_KIB_PER_LANE = 8
"""What argon2id needs at least."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What a buyer's secret becomes: enough to seal and open his packages, and no way back to the secret."""

    salt: bytes
    stretching: Stretching
    key: bytes = field(repr=False)

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a mask is not pickled or copied")


def mask_of(secret: bytes, salt: bytes, stretching: Stretching = STRETCHING) -> Mask:
    """The mask of a secret: slow, and with 256 MiB of memory, on purpose."""
    if len(salt) != SALT_BYTES:
        raise LocalProtocolError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    memory, passes, lanes = stretching
    try:
        key = Argon2id(salt=salt, length=KEY_BYTES, iterations=passes, lanes=lanes, memory_cost=memory).derive(secret)
    except MemoryError:
        raise LocalProtocolError(f"a package needs {memory >> 10} MiB of memory for a moment: free some") from None
    return Mask(salt, stretching, key)


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without I, L, O and U: what is read for another letter, or as a word."""
_READ_AS = str.maketrans("OIL", "011", " -\t\r\n")
_CHECK_BITS = 12
_DIGIT_BITS = 5
_SECRET_DIGITS = (8 * SECRET_BYTES + _CHECK_BITS) // _DIGIT_BITS
_GROUP = 4


def _check_bits(secret: bytes) -> int:
    return int.from_bytes(blake2b(secret, digest_size=2, person=_CHECK_PERSON).digest()) >> (16 - _CHECK_BITS)


def write_secret(secret: bytes) -> str:
    """A secret as people type it: seven groups of four, the last digits of which check the others."""
    if len(secret) != SECRET_BYTES:
        raise LocalProtocolError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    number = int.from_bytes(secret) << _CHECK_BITS | _check_bits(secret)
    digits = [_ALPHABET[number >> shift & 31] for shift in range(_DIGIT_BITS * (_SECRET_DIGITS - 1), -1, -_DIGIT_BITS)]
    return "-".join("".join(digits[at : at + _GROUP]) for at in range(0, _SECRET_DIGITS, _GROUP))


def read_secret(text: str) -> bytes:
    """The secret that somebody typed, however he spaced it; PackageError, which does not show it, for a slip."""
    digits = text.upper().translate(_READ_AS)
    if len(digits) != _SECRET_DIGITS or any(digit not in _ALPHABET for digit in digits):
        raise PackageError("a secret has seven groups of four letters and digits: type it as it was shown")
    number = 0
    for digit in digits:
        number = number << _DIGIT_BITS | _ALPHABET.index(digit)
    secret = (number >> _CHECK_BITS).to_bytes(SECRET_BYTES)
    if number & ((1 << _CHECK_BITS) - 1) != _check_bits(secret):
        raise PackageError("a letter of the secret is mistyped: type it as it was shown")
    return secret


TEST_CARDS: Final = ("4111111111111111", "4242424242424242", "5555555555554444", "378282246310005", "6011111111111117")
"""Numbers that card companies publish for tests; nobody pays with them."""


def card_secret(text: str) -> bytes:
    """A card number as the paper's mask (§6), for demonstration: only numbers published for tests are taken.

    It deters, no more: who knows a card's last four digits has some 10^5 numbers to try, and has the card then, too.
    """
    digits = re.sub(r"[ -]", "", text)
    if digits not in TEST_CARDS:
        raise PackageError(f"only test numbers mask a package, such as {TEST_CARDS[0]}: never give a real card's")
    return b"card:" + digits.encode()


# What is in a package -----------------------------------------------------------------------------


def check_name(name: str, whose: str = "a buyer", most: int = NAME_BYTES_MAX) -> str:
    """The same name, if a package can carry it; LocalProtocolError otherwise."""
    fits = 0 < len(name.encode(errors="replace")) <= most
    if not fits or not name.isprintable() or name != name.strip() or not is_normalized("NFC", name):
        raise LocalProtocolError(f"the name of {whose} has 1 to {most} bytes of printable text")
    return name


@dataclass(frozen=True, slots=True)
class PackageLabel:
    """What a package says in the clear. It is checked only when the package is opened."""

    market: bytes
    """What signatures name as the market."""
    office: bytes
    """The public key of whoever signed it."""
    market_name: str
    buyer: str
    number: int
    """The box office counts its packages; its audit log says when and for which orders it made this one."""
    issued: int
    begins: int
    ends: int
    """The first instant T_t for which there is no key in it."""
    salt: bytes
    stretching: Stretching
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Package:
    """An opened package: whose it is, and the keys."""

    label: PackageLabel
    keys: tuple[ServiceKey, ...] = field(repr=False)

    @property
    def buyer(self) -> str:
        """Whom it names."""
        return self.label.buyer


# Writing ------------------------------------------------------------------------------------------


def seal_package(  # noqa: PLR0913 - who signs, in which market, for whom, what, and when
    office: Identity,
    mask: Mask,
    *,
    market: bytes,
    market_name: str,
    buyer: str,
    keys: Sequence[ServiceKey],
    number: int,
    issued: int,
    nonce: bytes,
) -> bytes:
    """A package of these keys for one buyer; `nonce`: 12 random bytes."""
    if not 0 < len(keys) <= KEYS_MAX:
        raise LocalProtocolError(f"a package has 1 to {KEYS_MAX} keys, not {len(keys)}")
    if len(nonce) != NONCE_BYTES or len(market) != MARKET_BYTES:
        raise LocalProtocolError(f"a nonce of {len(nonce)} and a market of {len(market)} bytes: they have 12 and 32")
    ordered = sorted(keys, key=_order)
    if len({_order(key) for key in ordered}) != len(ordered):
        raise LocalProtocolError("a package has one key for a service and a period")
    label = PackageLabel(
        market,
        office.public,
        check_name(market_name, "a market", _MARKET_NAME_MAX),
        check_name(buyer),
        number,
        issued,
        min(key.begins for key in ordered),
        max(key.ends for key in ordered),
        mask.salt,
        mask.stretching,
        nonce,
    )
    head = _write_label(label)
    plain = _COUNT.pack(len(ordered)) + b"".join(map(_write_key, ordered))
    sealed = _cipher(mask, head).encrypt(nonce, plain, head)
    body = head + _LENGTH.pack(len(sealed)) + sealed
    return body + office.sign(statement(SignedKind.PACKAGE, market, body))


def _order(key: ServiceKey) -> tuple[int, str]:
    return key.period, key.service


def _cipher(mask: Mask, head: bytes) -> AESGCM:
    """A key for this label alone: packages of one buyer share no key, whatever their nonces are."""
    return AESGCM(blake2b(head, digest_size=KEY_BYTES, key=mask.key, person=_MASK_PERSON).digest())


def _write_label(label: PackageLabel) -> bytes:
    fixed = (label.market, label.office, label.number, label.issued, label.begins, label.ends, label.salt)
    head = _HEAD.pack(*fixed, *label.stretching, label.nonce)
    return _MAGIC + head + _write_text(label.market_name) + _write_text(label.buyer)


def _write_text(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


def _write_key(key: ServiceKey) -> bytes:
    return _write_text(key.service) + _KEY.pack(key.period, key.begins, key.ends, key.key)


# Reading ------------------------------------------------------------------------------------------

_DAMAGED = "the package is damaged: fetch it again by isocast subscribe"


class _Bytes:
    """Takes one field after another."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.raw) - self.at:
            raise PackageError(_DAMAGED)
        self.at += size
        return self.raw[self.at - size : self.at]

    def text(self) -> str:
        size = self.take(1)[0]
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise PackageError(_DAMAGED) from None


def read_label(raw: bytes) -> PackageLabel:
    """What a package says in the clear, not yet believed; PackageError for what is no package."""
    return _parted(raw)[0]


def _parted(raw: bytes) -> tuple[PackageLabel, bytes, bytes, bytes]:
    """Label, its bytes, sealed part, signature."""
    if len(raw) > PACKAGE_BYTES_MAX or not raw.startswith(_MAGIC):
        raise PackageError("this is no package of a box office: isocast subscribe fetches one")
    rest = _Bytes(raw)
    rest.take(len(_MAGIC))
    fields = _HEAD.unpack(rest.take(_HEAD.size))
    try:
        market_name = check_name(rest.text(), "a market", _MARKET_NAME_MAX)
        buyer = check_name(rest.text())
    except LocalProtocolError:
        raise PackageError(_DAMAGED) from None
    head = raw[: rest.at]
    sealed = rest.take(_LENGTH.unpack(rest.take(_LENGTH.size))[0])
    signature = rest.take(ED25519_BYTES)
    if rest.at != len(raw):
        raise PackageError(_DAMAGED)
    market, office, number, issued, begins, ends, salt, memory, passes, lanes, nonce = fields
    costs = Stretching(memory, passes, lanes)
    label = PackageLabel(market, office, market_name, buyer, number, issued, begins, ends, salt, costs, nonce)
    if max(label.issued, label.ends) > _LAST or not label.begins < label.ends:
        raise PackageError(_DAMAGED)
    return label, head, sealed, signature


def open_package(
    raw: bytes,
    secret: bytes,
    market: bytes,
    office: bytes,
    now: int,
    *,
    buyer: str | None = None,
    least: Stretching = STRETCHING,
) -> Package:
    """The keys of a package; PackageError, in one sentence, for anything else.

    `secret`: from `read_secret`; `market`: from `market_of`; `office`: the public key that the roster lists for the box
    office; `buyer`: whose package it has to be, if that is known.
    Whatever is wrong, the secret is stretched first: the answer takes as long for a wrong secret as for a right one.
    `least` is for tests: no product configuration sets it.
    """
    label, head, sealed, signature = _parted(raw)
    costs = label.stretching
    if costs.memory_kib < _KIB_PER_LANE * costs.lanes or any(
        not low <= cost <= high for low, cost, high in zip(least, costs, _STRETCHING_MAX, strict=True)
    ):
        raise PackageError(_DAMAGED)
    plain = _unsealed(mask_of(secret, label.salt, costs), label, head, sealed)
    if not is_signed(label.office, signature, statement(SignedKind.PACKAGE, label.market, raw[:-ED25519_BYTES])):
        raise PackageError(_DAMAGED)
    if label.market != market:
        raise PackageError(f"the package is for another market, {label.market_name}: give the file of that market")
    if label.office != office:
        raise PackageError(
            "the package is not from the box office of the roster: get the newest roster, fetch it again"
        )
    if buyer is not None and buyer != label.buyer:
        raise PackageError(f"the package is {label.buyer}'s, not {buyer}'s: fetch your own by isocast subscribe")
    if plain is None:
        raise PackageError(f"the secret does not open the package of {label.buyer}: type it again, or fetch your own")
    if now < label.issued - _CLOCK_NS:
        raise PackageError("the package was made later than this machine's clock says: set the clock")
    if now >= label.ends:
        raise PackageError("the package has expired: renew it by isocast subscribe --renew")
    return Package(label, _read_keys(plain, label))


def _unsealed(mask: Mask, label: PackageLabel, head: bytes, sealed: bytes) -> bytes | None:
    if len(sealed) < _TAG_BYTES:
        return None
    try:
        return _cipher(mask, head).decrypt(label.nonce, sealed, head)
    except InvalidTag:
        return None


def _read_keys(plain: bytes, label: PackageLabel) -> tuple[ServiceKey, ...]:
    rest = _Bytes(plain)
    (count,) = _COUNT.unpack(rest.take(_COUNT.size))
    if not 0 < count <= KEYS_MAX:
        raise PackageError(_DAMAGED)
    keys = [_read_key(rest) for _ in range(count)]
    places = [_order(key) for key in keys]
    bounds = min(key.begins for key in keys), max(key.ends for key in keys)
    if rest.at != len(plain) or places != sorted(set(places)) or bounds != (label.begins, label.ends):
        raise PackageError(_DAMAGED)
    return tuple(keys)


def _read_key(rest: _Bytes) -> ServiceKey:
    try:
        service = check_service(rest.text())
    except LocalProtocolError:
        raise PackageError(_DAMAGED) from None
    period, begins, ends, key = _KEY.unpack(rest.take(_KEY.size))
    if not begins < ends <= _LAST:
        raise PackageError(_DAMAGED)
    return ServiceKey(service, period, begins, ends, key)
