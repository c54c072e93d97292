"""Several markets on one machine: a slot for each, and who is in the way of a market that is to start.

A slot moves loopback addresses and the port of the groups (`network.slot`), so that markets of different slots share
nothing. Files carry theirs: all processes of a market must agree on it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from secrets import randbelow

from isocast.runtime.market.file import load_market
from isocast.runtime.market.finding import running_markets
from isocast.runtime.market.keys import GROUP_PORT, NODE_PORT, SLOT_MAX
from isocast.runtime.market.model import Market, NetworkMode, NodePlan
from isocast.runtime.market.rules import groups_in_use
from isocast.terms.errors import ConfigurationError, IsocastError

__all__ = ["Clash", "clashes", "free_slot", "is_up", "key_to_move", "sharer"]

_KINDS = (1, 2, 3, 4)
"""Second numbers of loopback addresses: receivers, sources, servers, others."""


def free_slot(start: int | None = None) -> int:
    """A slot that no market of this machine uses now: the first from `start`, or from anywhere, on."""
    start = randbelow(SLOT_MAX + 1) if start is None else start
    for step in range(SLOT_MAX + 1):
        slot = (start + step) % (SLOT_MAX + 1)
        taken = [kind for kind in _KINDS if _is_taken(socket.SOCK_DGRAM, f"127.{kind}.{slot}.1", NODE_PORT)]
        if not taken and not _is_taken(socket.SOCK_DGRAM, "127.0.0.1", GROUP_PORT + slot):
            return slot
    raise ConfigurationError("market", "network.slot", f"all {SLOT_MAX + 1} slots are in use: stop a market first")


# ---- who is in the way


@dataclass(frozen=True, slots=True)
class Clash:
    """A port that a node needs and another process has."""

    node: str
    key: str
    """Of the node's table."""
    where: str


def clashes(plans: Sequence[NodePlan]) -> list[Clash]:
    """The first of each node."""
    found = [next(_clashes(plan), None) for plan in plans]
    return [clash for clash in found if clash is not None]


def _clashes(plan: NodePlan) -> Iterator[Clash]:
    wanted = (
        (socket.SOCK_DGRAM, "port", plan.port),
        (socket.SOCK_STREAM, "http_port", plan.http_port),
        (socket.SOCK_STREAM, "tcp_port", plan.tcp_port),
    )
    for kind, key, port in wanted:
        if port and _is_taken(kind, plan.address, port):
            protocol = "UDP" if kind == socket.SOCK_DGRAM else "TCP"
            yield Clash(plan.name, key, f"{protocol} port {port} of {plan.address}")


def key_to_move(market: Market, plan: NodePlan | None = None, key: str = "") -> str:
    """What to set in the file to move a node, or without one the market's groups, to a free port."""
    slot = market.network.slot
    if plan is None:
        is_moved = market.network.port == GROUP_PORT + slot
    else:
        own = f".{(plan.number >> 8) + slot & 255}.{plan.number & 255}"
        is_moved = plan.address.startswith("127.") and plan.address.endswith(own)
    if is_moved:
        return f"network.slot = {free_slot(slot + 1)}"
    return "network.port" if plan is None else f"nodes.{plan.origin}.{key}"


def is_up(market: Market) -> bool:
    """Whether the market of this very file runs on this machine."""
    return Path(market.file).resolve() in running_markets()


def sharer(market: Market) -> Path | None:
    """The file of another market that runs here and sends in the same groups; None if there is none."""
    if market.network.mode is not NetworkMode.MULTICAST:
        return None
    own = _groups(market)
    for path in running_markets():
        if path != Path(market.file).resolve():
            with suppress(IsocastError):
                other = load_market(path)
                if other.network.mode is NetworkMode.MULTICAST and own & _groups(other):
                    return path
    return None


def _groups(market: Market) -> set[tuple[str, int]]:
    return {(str(IPv4Address(number)), market.network.port) for _, _, number in groups_in_use(market)}


def _is_taken(kind: int, address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind == socket.SOCK_STREAM:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As a door does: what ended is not in the way.
        try:
            trial.bind((address, port))
        except OSError as reason:
            return reason.errno == errno.EADDRINUSE
    return False
