"""A site's own secret, from which the nonces of the keyed shuffle are made (protocol §2).

Nobody else may know it before a nonce is revealed, so it is in no key file; it must outlive the process, since what
was committed to is revealed a cycle later.
"""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_bytes

from isocast.runtime.disk.store_marker import sync_directory
from isocast.terms.errors import StoreError

__all__ = ["site_secret"]

_BYTES = 32


def site_secret(directory: Path) -> bytes:
    """The secret in a site's directory, made at its first start."""
    path = directory / "nonces.secret"
    try:
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except OSError as reason:
        raise StoreError(str(path), f"cannot be used: {reason.strerror}") from reason
    if len(secret) != _BYTES:
        raise StoreError(str(path), f"must have {_BYTES} bytes: remove it, and start the site anew")
    return secret


def _make(path: Path) -> None:
    """All of it or nothing, on the disk before anybody hears what was made of it."""
    draft = path.with_suffix(".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, token_bytes(_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)
    draft.rename(path)
    sync_directory(path.parent)
