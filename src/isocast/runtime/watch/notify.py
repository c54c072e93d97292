"""Telling a supervisor how a process fares, by systemd's convention: datagrams to the socket that NOTIFY_SOCKET names.

`isocast up` listens in the same way, so a node needs to know only one of them.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["is_watched", "notify"]


def notify(state: str) -> bool:
    """Send one state, such as ``READY=1`` or ``STATUS=waiting for a ring``; False where nobody listens.

    Never waits: a supervisor that is stopped must not stop its nodes.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract namespace.
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.sendto(state.encode(), address)
        return True
    return False


def is_watched() -> bool:
    """Whether the supervisor wants to hear ``WATCHDOG=1`` now and then, and takes silence for the end."""
    return bool(os.environ.get("WATCHDOG_USEC"))
