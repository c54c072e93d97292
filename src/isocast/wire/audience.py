"""Which roles listen to a multicast packet: the groups of the core, for simulator and sockets alike."""

from __future__ import annotations

from enum import IntEnum

from isocast.wire.packets import (
    Data,
    Invite,
    Join,
    LineAck,
    LineAsk,
    Lines,
    NewRing,
    Packet,
    Receipt,
    Repair,
    Suspect,
    Token,
    TokenPart,
)

__all__ = ["AUDIENCE", "Role"]


class Role(IntEnum):
    """Who listens on the core's groups."""

    RECEIVER = 1
    SOURCE = 2
    SERVER = 3


_EVERYBODY = (Role.RECEIVER, Role.SOURCE, Role.SERVER)
_NETWORK = (Role.RECEIVER, Role.SERVER)

AUDIENCE: dict[type[Packet], tuple[Role, ...]] = {
    Data: (Role.RECEIVER,),
    Token: _EVERYBODY,
    TokenPart: _EVERYBODY,
    Receipt: (Role.RECEIVER,),
    Repair: (Role.RECEIVER,),
    Suspect: _NETWORK,
    Invite: _NETWORK,
    Join: _NETWORK,
    NewRing: _EVERYBODY,
    LineAsk: _NETWORK,
    LineAck: _NETWORK,
    Lines: _NETWORK,
}
"""Who a multicast packet is for; packets not named here travel by unicast."""
