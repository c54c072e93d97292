"""What the tests on loopback share: free ports, waiting for datagrams, kernels that refuse."""

# ruff: noqa: ANN401 - fakes pass on whatever a socket takes

import errno
import os
import select
import socket
from time import monotonic
from typing import Any

from isocast.runtime.net.sockets import SOL_UDP, UDP_GRO, Inlet

PATIENCE_S = 10.0
"""Before a datagram counts as never coming; a passing test does not wait."""
BUDGET = 1 << 20


def free_port() -> int:
    """A port that no socket of this machine uses right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104 - nothing is read from it
        port: int = probe.getsockname()[1]
        return port


def gather(inlet: Inlet, count: int) -> list[bytes]:
    """`count` datagrams, or what came until patience ended; and whatever came along with the last."""
    frames: list[bytes] = []
    until = monotonic() + PATIENCE_S
    while len(frames) < count and monotonic() < until:
        if select.select([inlet], [], [], until - monotonic())[0]:
            frames += inlet.read(BUDGET)
    return frames


def frames_of(*lengths: int) -> list[bytes]:
    """Frames of these lengths, each with its place in front as far as it fits."""
    return [place.to_bytes(4).ljust(length, b".")[:length] for place, length in enumerate(lengths)]


class NoAggregates(socket.socket):
    """A kernel before 5.0."""

    def setsockopt(self, level: int, name: int, *rest: Any) -> None:
        if (level, name) == (SOL_UDP, UDP_GRO):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        super().setsockopt(level, name, *rest)
