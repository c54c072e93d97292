"""Everything that was ever sent, one number for each packet and addressee.

The network never forgets: whatever was sent to a node may reach it at any later time, before or after anything else,
any number of times, or never. That is loss, delay, reordering and duplication in one, and needs no action of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from isocast.simulation.exploration.properties import Bounds
from isocast.terms.ids import NodeId, is_server, is_site, is_source
from isocast.wire.codec import decode, encode
from isocast.wire.frame import AUDIENCE, Role
from isocast.wire.packets import (
    Data,
    Invite,
    Join,
    Nack,
    NewRing,
    Packet,
    Pending,
    RangeReply,
    RangeRequest,
    Receipt,
    Refuse,
    Repair,
    Standing,
    Suspect,
    Token,
)

__all__ = ["Letter", "Mail", "numbers_in"]


def numbers_in(letters: int) -> list[int]:
    """Which letters a set holds."""
    found = []
    while letters:
        low = letters & -letters
        found.append(low.bit_length() - 1)
        letters ^= low
    return found


class Letter(NamedTuple):
    """One packet for one node."""

    packet: Packet
    to: int
    """The addressee's place among the nodes."""


class Mail:
    """Numbers letters; a set of letters is an integer with a bit for each."""

    def __init__(self, nodes: tuple[NodeId, ...], bounds: Bounds) -> None:
        """Nothing was sent."""
        self.nodes = nodes
        self.letters: list[Letter] = []
        self.addressed = [0] * len(nodes)
        """By node: all letters that are for it."""
        self.votes = 0
        self.receipts = 0
        self.requests = 0
        """Letters of three kinds that reductions know; see `market` and `sweep`."""
        self.choices: list[int] = []
        """Sets of votes that some server may count together."""
        self._choice_numbers: dict[int, int] = {}
        self._bounds = bounds
        self._place = {node: place for place, node in enumerate(nodes)}
        self._numbers: dict[tuple[bytes, int], int] = {}
        roles = {Role.RECEIVER: is_site, Role.SERVER: is_server, Role.SOURCE: is_source}
        self._audience = {
            kind: tuple([node for node in nodes if any(roles[role](node) for role in audience)])
            for kind, audience in AUDIENCE.items()
        }

    def multicast(self, sender: NodeId, packet: Packet) -> int:
        """The letters of a packet to a group."""
        return self._post(sender, packet, self._audience.get(type(packet), ()))

    def unicast(self, sender: NodeId, packet: Packet, to: NodeId) -> int:
        """The letter of a packet to one node."""
        return self._post(sender, packet, (to,))

    def packets(self, letters: int) -> list[Packet]:
        """What a set of letters says, oldest first."""
        return [self.letters[number].packet for number in numbers_in(letters)]

    def choice(self, letters: int) -> int:
        """The number of a set of votes."""
        known = self._choice_numbers.get(letters)
        if known is None:
            known = self._choice_numbers[letters] = len(self.choices)
            self.choices.append(letters)
        return known

    def _post(self, sender: NodeId, packet: Packet, to: tuple[NodeId, ...]) -> int:
        addressees = [node for node in to if node != sender and node in self._place and self._carried(packet, node)]
        if not addressees:
            return 0
        if isinstance(packet, Join):
            # When a vote was cast decides only when a ring begins, and here it may begin at any time.
            packet = packet._replace(now=0)
        frame = encode(packet)
        mask = 0
        for node in addressees:
            key = (frame, self._place[node])
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self.letters)
                self.letters.append(Letter(decode(frame), self._place[node]))
                self.addressed[self._place[node]] |= 1 << number
                if isinstance(packet, Join):
                    self.votes |= 1 << number
                elif isinstance(packet, Receipt):
                    self.receipts |= 1 << number
                elif isinstance(packet, RangeRequest | Nack):
                    self.requests |= 1 << number
            mask |= 1 << number
        return mask

    def _carried(self, packet: Packet, to: NodeId) -> bool:
        """Whether a packet can matter to a node within these bounds."""
        bounds = self._bounds
        match packet:
            case Suspect() | Pending() | Standing() | RangeReply():
                # Suspicions only inform: here every server may begin a ballot at any moment anyway.
                return False
            case Join() if not bounds.rivals:
                return to == packet.ballot.server
            case Refuse() | Invite() if is_server(to):
                return bounds.rivals
            case Nack() | RangeRequest() if is_server(to) or is_source(to):
                return False
            case Token() | NewRing() if is_server(to):
                return bounds.rivals
            case Token() | NewRing() if is_source(to):
                return bounds.sources
            case Data() | Repair() | Receipt() | Token() | NewRing() | Invite() | RangeRequest() | Nack():
                return is_site(to)
            case _:
                return bounds.rivals
