"""How services let people in: passwords as a database keeps them, and limits on attempts.

A password is kept as argon2id with a salt of its own, and compared in constant time.
"""

from __future__ import annotations

from collections import OrderedDict
from hmac import compare_digest
from secrets import token_bytes
from threading import Lock

from isocast.security.packages import SALT_BYTES, Stretching, mask_of

__all__ = ["PASSWORD_STRETCHING", "AttemptLimit", "hash_password", "is_password"]

PASSWORD_STRETCHING = Stretching(memory_kib=64 * 1_024, passes=3, lanes=1)
"""Some tenths of a second and 64 MiB: what a login may cost the office, and a thief of the database for each guess."""
_SCHEME = "argon2id"


def hash_password(password: str, stretching: Stretching = PASSWORD_STRETCHING) -> str:
    """What is kept of a password."""
    salt = token_bytes(SALT_BYTES)
    mask = mask_of(password.encode(), salt, stretching)
    return "$".join([_SCHEME, *map(str, stretching), salt.hex(), mask.key.hex()])


def is_password(password: str, kept: str) -> bool:
    """Whether it is the password of which this was kept; takes as long for a wrong one."""
    _, memory, passes, lanes, salt, digest = kept.split("$")
    stretching = Stretching(int(memory), int(passes), int(lanes))
    found = mask_of(password.encode(errors="replace"), bytes.fromhex(salt), stretching)
    return compare_digest(found.key, bytes.fromhex(digest))


_REMEMBERED = 4_096
"""Bounds: who floods from more addresses pushes out the oldest, and has spent an attempt for each."""


class AttemptLimit:
    """Allows so many attempts by one name within a time; threads may share it."""

    def __init__(self, attempts: int, seconds: float) -> None:
        """A name has all its attempts back `seconds` after the first of them."""
        self._attempts = attempts
        self._seconds = seconds
        self._made: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Since when, and how many."""
        self._lock = Lock()

    def allows(self, name: str, now: float) -> bool:
        """Count an attempt; False if it is one too many."""
        with self._lock:
            since, made = self._made.pop(name, (now, 0))
            if now - since >= self._seconds:
                since, made = now, 0
            self._made[name] = since, made + 1
            if len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)
            return made < self._attempts

    def forgive(self, name: str) -> None:
        """Forget the attempts of a name: the last one was right."""
        with self._lock:
            self._made.pop(name, None)
