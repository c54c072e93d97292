"""A group of nodes, reached by IP multicast or by a copy to each: the rest of the program does not know which.

Both modes give the same: each member but the sender hears each datagram once, in the sender's order; with `sources`,
from those addresses only. What differs is who pays. Multicast sends once, and the kernel keeps the sender's own
datagrams and strangers' from the inlet; fan-out sends once for each member, leaves out the sender's own endpoint, and
tells strangers by the address that every read brings along.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from isocast.runtime.market.model import NetworkMode
from isocast.runtime.net.udp import (
    BUFFER_BYTES,
    TTL,
    Endpoint,
    Inlet,
    Outlet,
    fanout_outlet,
    multicast_inlet,
    multicast_outlet,
    unicast_inlet,
)

__all__ = ["open_group_inlet", "open_group_outlet"]


def open_group_outlet(
    mode: NetworkMode,
    group: str,
    port: int,
    *,
    interface: str,
    members: Sequence[Endpoint] = (),
    alone: bool = True,
    ttl: int = TTL,
    kind: type[socket.socket] = socket.socket,
) -> Outlet:
    """Send to a group from the node whose address is `interface`.

    Multicast uses group, port and TTL; fan-out the members, except the one with this node's own address. Where it is
    not `alone` at its address, the members are others already.
    """
    match mode:
        case NetworkMode.MULTICAST:
            return multicast_outlet(group, port, interface, ttl=ttl, kind=kind)
        case NetworkMode.FANOUT:
            others = [member for member in dict.fromkeys(members) if not alone or member.address != interface]
            return fanout_outlet(interface, others, kind=kind)


def open_group_inlet(  # noqa: PLR0913 - where, as whom, to whom and how much: nothing of it follows from the rest
    mode: NetworkMode,
    group: str,
    port: int,
    *,
    interface: str,
    own: Endpoint,
    alone: bool = True,
    sources: Sequence[str] = (),
    buffer_bytes: int = BUFFER_BYTES,
    kind: type[socket.socket] = socket.socket,
) -> Inlet:
    """Hear a group at the node whose address is `interface`.

    Multicast joins group and port; fan-out listens at `own`, the endpoint under which senders list this member. Where
    it is not `alone` at its address, multicast brings it its own datagrams too: the kernel tells nodes by address.
    """
    match mode:
        case NetworkMode.MULTICAST:
            deaf_to = interface if alone else None
            return multicast_inlet(
                group, port, interface, sources=sources, deaf_to=deaf_to, buffer_bytes=buffer_bytes, kind=kind
            )
        case NetworkMode.FANOUT:
            return unicast_inlet(own.address, own.port, sources=sources, buffer_bytes=buffer_bytes, kind=kind)
