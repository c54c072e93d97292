"""What is sold, for how long, and the keys of it (§6, "who may receive").

A market sells four kinds of service, each under keys of its own:

    base        the lines: everything that receivers and retransmit servers send to all
    repair      what retransmit servers send again
    stripe:N    narrow stripe N, and its repairs
    history     the past, at the doors of retransmit servers

Time is cut into periods of one length: period n covers [n·P, (n+1)·P) of T_t, the instant of a message's token. So the
change from one key to the next needs no message and no agreement: T_t decides, live or repaired, in whatever epoch.

All keys come from one secret of 32 bytes, the region's, which receivers, retransmit servers and the box office hold:

    service key   of period, length and service, under the region's secret: what a customer buys
    line key      of market, service, edge stripe and sender, under the service key: what one sender seals with

Each is keyed BLAKE2b. Nobody gets from one to another: neither to a period or a service that was not paid for, nor to
the region's secret.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from isocast.security.keys import KEY_BYTES, Purpose, SecretKey
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND
from isocast.wire.signing import MARKET_BYTES

__all__ = [
    "BASE",
    "DAY_NS",
    "HISTORY",
    "MAX_EDGE_STRIPE",
    "REPAIR",
    "ServiceKey",
    "check_service",
    "line_key",
    "period_of",
    "service_key",
    "stripe_of",
    "stripe_service",
]

BASE: Final = "base"
REPAIR: Final = "repair"
HISTORY: Final = "history"
MAX_EDGE_STRIPE: Final = (1 << 32) - 1
"""Follows: an edge stripe is 4 bytes on the wire."""
DAY_NS: Final = 24 * 3_600 * SECOND
"""The length of a period unless a market says otherwise."""

_STRIPE = re.compile(r"stripe:(0|[1-9][0-9]{0,9})")
_LAST = (1 << 63) - 1
"""Of instants, in 64 bits with a sign."""
_LINE = Struct(">32sIQ")
_SERVICE_PERSON = b"isocast service"
_LINE_PERSON = b"isocast line"


class ServiceKey(NamedTuple):
    """The key of one service in one period: what a customer buys, and what line keys are derived from."""

    service: str
    period: int
    begins: int
    """The first T_t of the period."""
    ends: int
    """The first T_t after it."""
    key: bytes

    def __repr__(self) -> str:
        """Without the key: it may be printed and logged."""
        return f"ServiceKey({self.service}, period {self.period}, {self.begins} to {self.ends})"


def stripe_service(stripe: int) -> str:
    """The service of one narrow stripe."""
    return check_service(f"stripe:{stripe}")


def stripe_of(service: str) -> int | None:
    """The narrow stripe that a service is for; None for the others."""
    found = _STRIPE.fullmatch(service)
    return int(found[1]) if found else None


def check_service(service: str) -> str:
    """The same name, if there is such a service; LocalProtocolError otherwise."""
    stripe = stripe_of(service)
    if service in (BASE, REPAIR, HISTORY) or (stripe is not None and stripe <= MAX_EDGE_STRIPE):
        return service
    raise LocalProtocolError(f"{service!r} is no service: base, repair, history or stripe:N")


def period_of(instant: int, length_ns: int) -> int:
    """The period that an instant T_t belongs to."""
    if length_ns <= 0 or instant < 0:
        raise LocalProtocolError(f"no period of {length_ns} ns has the instant {instant}")
    return instant // length_ns


def service_key(region: SecretKey, service: str, period: int, length_ns: int) -> ServiceKey:
    """The key of a service in a period; LocalProtocolError for a service or a period that cannot be."""
    if length_ns <= 0 or period < 0 or (period + 1) * length_ns > _LAST:
        raise LocalProtocolError(f"there is no period {period} of {length_ns} ns")
    of_period = region.derive(Purpose.PERIOD, period, length_ns)
    name = check_service(service).encode()
    key = blake2b(name, digest_size=KEY_BYTES, key=of_period, person=_SERVICE_PERSON).digest()
    return ServiceKey(service, period, period * length_ns, (period + 1) * length_ns, key)


def line_key(key: bytes, market: bytes, service: str, stripe: int, sender: NodeId) -> bytes:
    """What one sender seals the packets of one edge stripe with, in the period of `key`."""
    if len(key) != KEY_BYTES or len(market) != MARKET_BYTES:
        raise LocalProtocolError(f"a key of {len(key)} and a market of {len(market)} bytes: both have 32")
    if not 0 <= stripe <= MAX_EDGE_STRIPE:
        raise LocalProtocolError(f"edge stripe {stripe} is beyond {MAX_EDGE_STRIPE}")
    name = _LINE.pack(market, stripe, sender) + check_service(service).encode()
    return blake2b(name, digest_size=KEY_BYTES, key=key, person=_LINE_PERSON).digest()
