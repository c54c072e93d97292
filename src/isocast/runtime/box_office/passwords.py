"""Passwords of subscribers as the database has them: argon2id with a salt of each, compared in constant time."""

from __future__ import annotations

from hmac import compare_digest
from secrets import token_bytes

from isocast.security.packages import SALT_BYTES, Stretching, mask_of

__all__ = ["PASSWORD_STRETCHING", "hash_password", "is_password"]

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
