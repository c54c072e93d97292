"""Where requests for lost messages come in: MoldUDP64's own, from anybody, each answered with one packet.

A request has 48 bytes on the line and an answer up to 1,500, and a sender's address can be forged. So strangers are
answered on loopback, and elsewhere only where the market's file says so; nobody, known or not, gets more than his
share of answers a second, and all together no more than `ANSWERS_A_SECOND`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from time import monotonic

from isocast.feeds.mold import HEADER_BYTES, packet_of, parse_request
from isocast.runtime.edge.narrow.archive import StripeArchive
from isocast.runtime.net.udp import Endpoint
from isocast.terms.errors import RemoteProtocolError, TransportError

__all__ = ["ANSWERS_A_SECOND", "ROOM", "DeskCounts", "RequestDesk"]

ANSWERS_A_SECOND = 20_000
ROOM = 1_400
"""Bytes of messages in an answer."""
_AT_ONCE = 256
_ASKERS_MAX = 4_096
"""Bounds: addresses whose shares are remembered."""
_DATAGRAM = 2_048


@dataclass(slots=True)
class DeskCounts:
    """What happened so far."""

    requests: int = 0
    answered: int = 0
    unknown: int = 0
    """For what is not here."""
    refused: int = 0
    """No requests, beyond a share, or from strangers that are not answered."""


class _Shares:
    """Leaky buckets by address."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left: dict[str, tuple[float, float]] = {}
        self._all = (float(ANSWERS_A_SECOND), monotonic())

    def take(self, address: str) -> bool:
        """Whether this address may have one more answer now."""
        now = monotonic()
        left, at = self._left.pop(address, (float(self._rate), now))
        left = min(left + (now - at) * self._rate, self._rate)
        total = min(self._all[0] + (now - self._all[1]) * ANSWERS_A_SECOND, ANSWERS_A_SECOND)
        granted = left >= 1 and total >= 1
        self._all = (total - granted, now)
        self._left[address] = left - granted, now
        while len(self._left) > _ASKERS_MAX:
            del self._left[next(iter(self._left))]
        return granted


class RequestDesk:
    """A socket at an own address. `other` is given what is no request of MoldUDP64: (datagram, sender)."""

    def __init__(
        self,
        where: Endpoint,
        archive: StripeArchive,
        *,
        strangers: bool,
        known: Collection[str] = (),
        rate: int,
        other: Callable[[bytes, tuple[str, int]], bool] = lambda _raw, _sender: False,
    ) -> None:
        """Off loopback, `strangers` says whether addresses that are not `known` are answered."""
        self.counts = DeskCounts()
        self._archive = archive
        self._strangers = strangers or IPv4Address(where.address).is_loopback
        self._known = frozenset(known)
        self._shares = _Shares(rate)
        self._other = other
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.settimeout(0)
            self._socket.bind((where.address, where.port))
        except OSError as reason:
            self._socket.close()
            raise TransportError(f"cannot hear requests at {where}: {reason.strerror}") from None
        self.where = Endpoint(*self._socket.getsockname())

    def fileno(self) -> int:
        """For the event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hear nobody."""
        self._socket.close()

    def read(self) -> None:
        """Answer what has come."""
        for _ in range(_AT_ONCE):
            try:
                raw, sender = self._socket.recvfrom(_DATAGRAM)
            except OSError:
                return
            self.counts.requests += 1
            if len(raw) != HEADER_BYTES:
                self.counts.refused += not self._other(raw, sender)
            elif not (self._strangers or sender[0] in self._known) or not self._shares.take(sender[0]):
                self.counts.refused += 1
            else:
                self._answer(raw, sender)

    def _answer(self, raw: bytes, sender: tuple[str, int]) -> None:
        try:
            wanted = parse_request(raw)
        except RemoteProtocolError:
            self.counts.refused += 1
            return
        count, framed = self._archive.take(wanted.session, wanted.sequence, wanted.count, ROOM)
        if not count:
            self.counts.unknown += 1
            return
        with suppress(OSError):
            self._socket.sendto(packet_of(wanted.session, wanted.sequence, count, framed), sender)
            self.counts.answered += 1
