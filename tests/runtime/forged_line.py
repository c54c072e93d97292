"""A second sender on a receiver's line, with the right key: what a site that was taken over could send."""

from __future__ import annotations

from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.runtime.net.sockets import multicast_outlet
from isocast.terms.ids import Epoch
from isocast.wire.codec import encode
from isocast.wire.packets import NO_SHUFFLE_KEY, ReleasedPacket

__all__ = ["send_on_line"]


def send_on_line(
    market: Market, name: str, sequence: int, payload: bytes, epoch: Epoch, shuffle_key: bytes = NO_SHUFFLE_KEY
) -> None:
    """One message on the line of a receiver, as if it were the receiver's own."""
    plan = market.node(name)
    packet = ReleasedPacket(0, epoch, plan.node, 1, sequence, 1, 0, sequence, 1, payload, b"", shuffle_key=shuffle_key)
    frame = encode(packet, load_keys(market, plan).edge_ring(), market.id)
    outlet = multicast_outlet(market.line_group(name), market.network.port, plan.address)
    try:
        outlet.send([frame])
    finally:
        outlet.close()
