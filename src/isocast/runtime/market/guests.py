"""A market as a listener without a seat sees it: the same, with one more customer, which only this program knows.

A guest hears lines by multicast and fetches at doors. It sends no datagram, so that it needs no id that others know, no
port of its own in the file, and no nonce under the edge key: all that it says is inside connections, whose keys come
from fresh nonces of both ends (`wire.door`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from secrets import randbelow

from isocast.runtime.market.model import Market, NetworkMode, NodePlan, NodeRole, line_receivers
from isocast.runtime.market.nodes import process_name
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import guest_id

__all__ = ["has_room_for_guests", "with_guest"]

_LINES = 2
"""That a guest hears: the loss of one goes unnoticed, and a third would cost as much as the first."""
_IDS = 1 << 31


def has_room_for_guests(market: Market) -> bool:
    """Whether one may listen to this market without a seat: fan-out sends to those that the file names, and no more."""
    return market.guests.allowed and market.network.mode is NetworkMode.MULTICAST and bool(line_receivers(market))


def with_guest(market: Market, stripes: Sequence[int] | None = None) -> tuple[Market, tuple[NodePlan, ...]]:
    """The market with a guest in these stripes, or in all of them, and the guest's places there."""
    speakers = line_receivers(market)
    wanted = tuple(stripes or market.stripes)
    deaf = [stripe for stripe in wanted if not any(plan.stripe == stripe for plan in speakers)]
    if deaf:
        rule = f"no receiver of stripe {deaf[0]} has a line: set line = true, or listen to other stripes"
        raise ConfigurationError(market.file, "nodes", rule)
    address = _own_address(speakers[0])
    number = guest_id(randbelow(_IDS))
    places = tuple([_place(market, stripe, address, number) for stripe in wanted])
    return replace(market, nodes=(*market.nodes, *places)), places


def _place(market: Market, stripe: int, address: str, node: int) -> NodePlan:
    """Guests of one address hear the same lines, so that its network carries them once; others may hear others."""
    start = int.from_bytes(blake2b(address.encode(), digest_size=4).digest(), "big")
    lines = _in_turn([plan for plan in line_receivers(market) if plan.stripe == stripe], start)[:_LINES]
    archives = [plan for plan in market.by_role(NodeRole.RETRANSMIT_SERVER) if plan.stripe == stripe and plan.tcp_port]
    table = f"guest@{address}"
    name = process_name(table, stripe, market.stripes[0])
    return NodePlan(
        name=name,
        role=NodeRole.CUSTOMER,
        node=node,
        number=0,
        address=address,
        port=0,
        place=lines[0].place,
        lines=tuple([plan.name for plan in lines]),
        retransmit=tuple([plan.name for plan in _in_turn(archives, start)]),
        start=False,
        stripes=(stripe,),
        table="" if name == table else table,
    )


def _in_turn(plans: Sequence[NodePlan], start: int) -> list[NodePlan]:
    """All of them, beginning somewhere."""
    at = start % len(plans) if plans else 0
    return [*plans[at:], *plans[:at]]


def _own_address(there: NodePlan) -> str:
    """The address of this machine from which a node is reached; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect((there.address, there.port))
        except OSError as reason:
            rule = f"{there.address} is not reached from this machine: {reason.strerror}"
            raise ConfigurationError("listen", f"nodes.{there.origin}.address", rule) from reason
        return str(trial.getsockname()[0])
