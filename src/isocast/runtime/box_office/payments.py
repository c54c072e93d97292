"""Payment as a port: what a provider has to do, and one for tests that moves no money.

The office never sees a card. A customer's *instrument* is the word by which the provider knows it; what looks like a
card number is refused before anything is written down.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from isocast.terms.errors import OfficeError, OfficeFault

__all__ = ["TEST_ACCEPTED", "TEST_DECLINED", "Charge", "PaymentProvider", "TestPayments", "check_instrument"]

TEST_ACCEPTED = "test:accepted"
TEST_DECLINED = "test:declined"

_INSTRUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_-]{0,127}")
_CARD = re.compile(r"(?:[0-9][ :_-]?){12,19}")
"""A card number has 12 to 19 digits, however they are grouped."""


class Charge(NamedTuple):
    """What a provider said to a request for money."""

    accepted: bool
    reference: str
    """By which the provider knows it."""
    reason: str = ""
    """Why it was not accepted, for the customer."""


class PaymentProvider(Protocol):
    """Who moves the money. May raise OSError or OfficeError; the order then waits, and is asked for again."""

    name: str

    def charge(self, key: str, amount: int, currency: str, instrument: str) -> Charge:
        """Charge so many minor units. Idempotent: the same key is charged once, and gets the same answer."""

    def find(self, key: str) -> Charge | None:
        """What was said to this key; None if it was never heard of."""


def check_instrument(text: str) -> str:
    """The same word, if it may be one; OfficeError, which does not repeat it, for a card number and anything else."""
    if _CARD.search(text):
        rule = "that looks like a card number, which this office never takes: give the payment provider's token"
        raise OfficeError(OfficeFault.BAD_REQUEST, f"{rule}, such as {TEST_ACCEPTED}")
    if not _INSTRUMENT.fullmatch(text):
        rule = f"a means of payment is the payment provider's token, such as {TEST_ACCEPTED}"
        raise OfficeError(OfficeFault.BAD_REQUEST, rule)
    return text


class TestPayments:
    """A provider for tests and demonstrations: it keeps a file of what it was asked to charge, and moves no money."""

    __test__ = False  # No test, whatever its name begins with.
    name = "test"

    def __init__(self, file: Path) -> None:
        """`file` is the provider's own, as if it were on another machine: it outlives a crash of the office."""
        self._file = file

    def charge(self, key: str, amount: int, currency: str, instrument: str) -> Charge:
        """Accepted from `test:accepted`, declined from anything else."""
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = _found(file.read(), key)
            if known is not None:
                return known
            accepted = instrument == TEST_ACCEPTED
            reference = f"test-{sha256(key.encode()).hexdigest()[:16]}"
            charge = Charge(accepted, reference, "" if accepted else "the test provider declines this instrument")
            row = {"key": key, "amount": amount, "currency": currency, **charge._asdict()}
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return charge

    def find(self, key: str) -> Charge | None:
        """What was said to this key."""
        try:
            return _found(self._file.read_bytes(), key)
        except FileNotFoundError:
            return None


def _found(lines: bytes, key: str) -> Charge | None:
    for line in lines.splitlines():
        row = json.loads(line)
        if row["key"] == key:
            return Charge(row["accepted"], row["reference"], row["reason"])
    return None
