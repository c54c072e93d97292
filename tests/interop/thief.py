"""An attacker on a member's machine: hears the core from the first packet on, sends what it likes as whom it likes.

It has the group's key, as any member has, and identities only as far as a test gives them to it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Lock
from typing import TypeVar

from tests.interop.ears import Ear, keys_of_a_receiver

from isocast.ring.notary import Notary
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.security.signing import IdentitySigner
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.codec import decode, encode
from isocast.wire.packets import Packet, Token

__all__ = ["Thief", "hand_of", "listening"]

PacketT = TypeVar("PacketT", bound=Packet)


class Thief:
    """Sends from the address of one node, so that filters of addresses let it through."""

    def __init__(self, market: Market, victim: str) -> None:
        """Nothing was heard yet."""
        self.market = market
        self.plan = market.node(victim)
        self.keys = keys_of_a_receiver(market).core_ring()
        self._heard: list[tuple[bytes, Packet]] = []
        self._lock = Lock()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.plan.address, 0))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self.plan.address))

    def learn(self) -> None:
        """A roster has brought another core key, which the thief has as well."""
        self.keys = keys_of_a_receiver(self.market).core_ring()

    # Hearing ------------------------------------------------------------------------------------

    def heard(self, _: str, frame: bytes) -> None:
        """A frame came by a group."""
        try:
            packet = decode(frame, self.keys, self.market.id)
        except RemoteProtocolError:
            return
        with self._lock:
            self._heard.append((frame, packet))

    def frames(self, kind: type[Packet], stripe: int = 0) -> list[bytes]:
        """Frames of one kind, the oldest first."""
        with self._lock:
            return [frame for frame, packet in self._heard if type(packet) is kind and packet.stripe == stripe]

    def packets(self, kind: type[PacketT], stripe: int = 0) -> list[PacketT]:
        """The same, as packets."""
        with self._lock:
            return [packet for _, packet in self._heard if isinstance(packet, kind) and packet.stripe == stripe]

    def newest_token(self, sender: NodeId | None = None, stripe: int = 0) -> Token | None:
        """Of anybody, or of one owner."""
        own = [token for token in self.packets(Token, stripe) if sender in (None, token.sender)]
        return max(own, key=lambda token: (token.epoch, token.token_number), default=None)

    # Sending ------------------------------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        """To the group of its stripe, with the group's key."""
        self.send_frame(encode(packet, self.keys, self.market.id), self.market.control_group(packet.stripe))

    def send_frame(self, frame: bytes, group: str, market: Market | None = None) -> None:
        """These bytes, to a group of this market or of another one."""
        self._socket.sendto(frame, (group, (market or self.market).network.port))

    def send_to(self, frame: bytes, victim: str) -> None:
        """These bytes, to one node."""
        plan = self.market.node(victim)
        self._socket.sendto(frame, (plan.address, plan.port))

    def close(self) -> None:
        """No more is sent."""
        self._socket.close()


@contextmanager
def listening(market: Market, victim: str) -> Iterator[Thief]:
    """A thief that hears every group of the core, from before the market starts."""
    stripes = sorted({stripe for plan in market.nodes for stripe in plan.stripes})
    groups = [group for stripe in stripes for group in (market.control_group(stripe), market.data_group(stripe))]
    with closing(Thief(market, victim)) as thief, Ear(market, thief.plan.address, groups, thief.heard):
        yield thief


def hand_of(market: Market, name: str) -> Notary:
    """Signs as a node, with its stolen identity."""
    keys = load_keys(market, market.node(name))
    assert keys.identity is not None
    assert keys.book is not None
    return Notary(IdentitySigner(keys.identity, keys.book.newest.market, keys.book))
