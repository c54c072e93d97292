"""Faults that a drill injects into one process of a market on loopback, through its operator's door.

    {"do": "cut", "from": ["tokyo"]}                       hear nothing more of Tokyo; `heal` hears everybody again
    {"do": "step-clock", "ns": 5000000000}                 as if somebody had set this machine's clock
    {"do": "crash-after", "packet": "token"}               SIGKILL itself right after its next token is on the wire

Where a market injects no impairments, or has a node beyond loopback, none of these operations exists.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from isocast.runtime.hosts.driver import Driver
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.net.channels import ON_A_LINE, Channels
from isocast.runtime.operate.operator_door import Operation, OperatorError
from isocast.runtime.watch.logs import get_log
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND
from isocast.terms.quantities import suggestion
from isocast.wire.codec import PacketKind
from isocast.wire.packets import Invite, Lines, Packet, Token

__all__ = ["FATAL", "FaultyChannels", "allows_faults", "fault_operations"]

FATAL: dict[str, type[Packet]] = {"token": Token, "invite": Invite, "lines": Lines}
"""Packets that a process can be told to die of."""
_STEP_MOST_NS = 3_600 * SECOND


def allows_faults(market: Market) -> bool:
    """Whether this is a market to play with: impaired on purpose, and all of it on this machine."""
    return market.impairment.enabled and market.on_loopback


class FaultyChannels(Channels):
    """Channels that can be deafened, and a process that can be told to die while it speaks."""

    _fatal: type[Packet] | None = None
    _unheard = False
    _doomed = False
    _unheard_of: Sequence[NodeId] = ()

    def cut(self, names: list[str]) -> None:
        """Hear nothing more of these nodes, on any channel, and again of all others."""
        self._unheard_of = [self._market.node(name).node for name in names]
        for ear in self._ears:
            if ear.impairment is not None:
                ear.impairment.cut(self._unheard_of)

    def hear_line(self, group: str, owners: Sequence[NodePlan], kinds: Sequence[PacketKind] = ON_A_LINE) -> object:
        """Join a group; packets of a node that is cut off are dropped there, too."""
        ear = super().hear_line(group, owners, kinds)
        for one in self._ears:
            if one is ear and one.impairment is not None:
                one.impairment.cut(self._unheard_of)
        return ear

    def crash_after(self, packet: type[Packet], *, unheard: bool) -> None:
        """Die once the next such packet is out; `unheard`: once it is on our disk, and not yet out."""
        self._fatal, self._unheard = packet, unheard

    def multicast(self, packet: Packet) -> None:
        """Queue a packet for its group; a token that acknowledges nothing is not worth dying for."""
        super().multicast(packet)
        if type(packet) is self._fatal and (not isinstance(packet, Token) or packet.runs):
            self._doomed = True

    def flush(self) -> None:
        """Send what is queued, and end if that was the last thing to do."""
        if self._doomed and self._unheard:
            _die("before it is sent")
        super().flush()
        if self._doomed:
            _die("once it is sent")


def _die(when: str) -> None:
    """As kill -9 does it: nothing is closed, nothing is said to anybody but the log."""
    get_log().warning("ends by a drill", when=when)
    os.kill(os.getpid(), signal.SIGKILL)


def fault_operations(market: Market, driver: Driver[Any, Any]) -> Mapping[str, Operation]:
    """What a drill may ask of this node; nothing in a market that is not for drills."""
    channels = driver.channels
    if not allows_faults(market) or not isinstance(channels, FaultyChannels):
        return {}

    async def cut(request: Mapping[str, Any]) -> None:
        names = request.get("from")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise OperatorError('"from" is a list of nodes')
        for name in names:
            if name not in market.by_name:
                raise OperatorError(f"there is no {name}{suggestion(name, market.by_name)}")
        get_log().warning("cut off by a drill", senders=", ".join(names))
        channels.cut(names)

    async def heal(_: Mapping[str, Any]) -> None:
        get_log().warning("healed by a drill")
        channels.cut([])

    async def step_clock(request: Mapping[str, Any]) -> None:
        span_ns = request.get("ns")
        if type(span_ns) is not int or abs(span_ns) > _STEP_MOST_NS:
            raise OperatorError('"ns" is a whole number of nanoseconds, an hour at most')
        get_log().warning("clock set by a drill", ns=span_ns)
        driver.step_clock(span_ns)

    async def crash_after(request: Mapping[str, Any]) -> None:
        packet = FATAL.get(str(request.get("packet")))
        if packet is None:
            raise OperatorError(f'"packet" is one of {", ".join(FATAL)}')
        channels.crash_after(packet, unheard=request.get("unheard") is True)

    return {"cut": cut, "heal": heal, "step-clock": step_clock, "crash-after": crash_after}
