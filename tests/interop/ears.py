"""Hearing everything that a market sends: as an attacker on its network does, and as a test that holds the keys."""

import select
import socket
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Self

from isocast.runtime.market.key_files import MarketKeys, load_keys
from isocast.runtime.market.model import Market
from isocast.runtime.net.sockets import multicast_inlet

__all__ = ["Ear", "keys_of_a_receiver"]

_BUDGET = 1 << 20
_BUFFER = 8 << 20
_LOOK_S = 0.05


class Ear:
    """Joins groups and hands over every frame, with the group that it came by, in a thread of its own."""

    def __init__(
        self,
        market: Market,
        interface: str,
        groups: Iterable[str],
        heard: Callable[[str, bytes], None],
        *,
        deaf_to: str | None = None,
    ) -> None:
        port = market.network.port
        self._inlets = {
            group: multicast_inlet(group, port, interface, deaf_to=deaf_to, buffer_bytes=_BUFFER)
            for group in dict.fromkeys(groups)
        }
        self._heard = heard
        self._closing, self._close = socket.socketpair()
        self._thread = Thread(target=self._run, name="ear", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()
        self._thread.join()
        self._closing.close()
        for inlet in self._inlets.values():
            inlet.close()

    def _run(self) -> None:
        groups = {inlet.fileno(): (group, inlet) for group, inlet in self._inlets.items()}
        closing = self._closing.fileno()
        while True:
            readable, _, _ = select.select([closing, *groups], [], [], _LOOK_S)
            for ready in readable:
                if ready == closing:
                    return
                group, inlet = groups[ready]
                for frame in inlet.read(_BUDGET):
                    self._heard(group, frame)


def keys_of_a_receiver(market: Market) -> MarketKeys:
    """What a test needs to read all that it hears: receivers hold the key of every sender."""
    return load_keys(market, market.receivers[0])
