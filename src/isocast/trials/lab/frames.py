"""Ethernet, as much of it as a switch reads: who a frame is for, and behind which port that station is."""

from __future__ import annotations

__all__ = ["HEADER_BYTES", "MacTable", "mac_text", "site_mac"]

HEADER_BYTES = 14
"""Destination, source and type; nothing shorter is a frame."""
_GROUP_BIT = 1
"""In the first byte of an address: multicast or broadcast."""
_LOCAL_PREFIX = b"\x02IC\x00"
"""Locally administered, so that no station outside the lab has such an address."""
_STATIONS_MAX = 4096
"""Attack: a site that sends from ever new addresses. Far more than the stations of any lab."""


def site_mac(port: int) -> bytes:
    """The hardware address of the site behind a port."""
    return _LOCAL_PREFIX + port.to_bytes(2)


def mac_text(mac: bytes) -> str:
    """An address as people write it."""
    return mac.hex(":")


class MacTable:
    """Which port a station is behind: given at the start, learned from what it sends."""

    __slots__ = ("_everybody_but", "_port_of")

    def __init__(self, ports: int) -> None:
        """A switch with that many ports and the lab's own site behind each."""
        self._port_of = {site_mac(port): port for port in range(ports)}
        self._everybody_but = [tuple(other for other in range(ports) if other != port) for port in range(ports)]

    def __len__(self) -> int:
        return len(self._port_of)

    def destinations(self, frame: bytes, port: int) -> tuple[int, ...]:
        """The ports that a frame from `port` leaves by: one for a known station, all others for the rest.

        Nothing for a frame that is too short, or that is for a station on its own side.
        """
        if len(frame) < HEADER_BYTES:
            return ()
        source = frame[6:12]
        if self._port_of.get(source) != port:
            self._learn(source, port)
        if frame[0] & _GROUP_BIT:
            return self._everybody_but[port]
        found = self._port_of.get(frame[:6])
        if found is None:
            return self._everybody_but[port]
        return () if found == port else (found,)

    def _learn(self, source: bytes, port: int) -> None:
        """Remember a station; a group never sends, and a full table floods instead."""
        if source[0] & _GROUP_BIT == 0 and (source in self._port_of or len(self._port_of) < _STATIONS_MAX):
            self._port_of[source] = port
