"""What datagrams cost this program: CPU ns per datagram, sent and received, on loopback.

    python bench/transport.py [--json]

Each row is also given as a multiple of the plain way, one `sendto` and one `recv_into` for each datagram to the same
listener, measured in the same run: on a shared machine the ratios count. Every datagram is checked. On loopback the
sender also pays for the kernel's work of delivery.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from time import process_time_ns

from isocast.runtime.net.clock import become_punctual
from isocast.runtime.net.impairment import InboundImpairment
from isocast.runtime.net.sockets import (
    Endpoint,
    Inlet,
    Outlet,
    fanout_outlet,
    multicast_inlet,
    multicast_outlet,
    unicast_inlet,
    unicast_outlet,
)

ROUNDS = 15
BUFFER = 16 << 20
SO_RCVBUFFORCE = 33
BUDGET = 512 << 10
HERE, THERE = "127.0.0.91", "127.0.0.92"
GROUP = "239.255.77.91"
Pair = tuple[float, float]


def frames_of(length: int, count: int) -> list[bytes]:
    """Frames that look like DATA of one site."""
    head = bytes(16) + (1).to_bytes(8, "little")
    return [head + number.to_bytes(8) + bytes(length - 32) for number in range(count)]


def read_all(inlet: Inlet, count: int) -> list[bytes]:
    """Everything that was sent, budget by budget, as a driver does; keeps the last for the check."""
    seen, last = 0, b""
    while seen < count:
        frames = inlet.read(BUDGET)
        if not frames:
            break
        seen += len(frames)
        last = frames[-1]
    return [seen.to_bytes(8), last]


def timed(send: Callable[[], None], read: Callable[[], list[bytes]], frames: list[bytes], copies: int = 1) -> Pair:
    """The least CPU ns per datagram of several rounds: what the machine does when nobody disturbs it."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        began = process_time_ns()
        send()
        sent = process_time_ns()
        got = read()
        ended = process_time_ns()
        if got != [(len(frames) * copies).to_bytes(8), frames[-1]]:
            print(f"lost datagrams: {int.from_bytes(got[0])} of {len(frames) * copies} arrived", file=sys.stderr)
            raise SystemExit(1)
        count = len(frames) * copies
        best = [min(best[0], (sent - began) / count), min(best[1], (ended - sent) / count)]
    return best[0], best[1]


def room() -> int:
    """Datagrams that a buffer holds here: the kernel counts some 2,300 bytes for one of 1,400."""
    with unicast_inlet(THERE, 0, buffer_bytes=BUFFER) as inlet:
        return 2 * inlet.buffer_bytes // 2560


def plain(frames: list[bytes]) -> Pair:
    """One call for each datagram, by the module `socket` alone."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        with suppress(PermissionError):
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        receiver.bind((THERE, 0))
        receiver.settimeout(0)
        sender.bind((HERE, 0))
        endpoint = receiver.getsockname()
        buffer = bytearray(65_536)
        view = memoryview(buffer)

        def send() -> None:
            for frame in frames:
                sender.sendto(frame, endpoint)

        def read() -> list[bytes]:
            seen, last = 0, b""
            for _ in frames:
                last = bytes(view[: receiver.recv_into(buffer)])
                seen += 1
            return [seen.to_bytes(8), last]

        return timed(send, read, frames)


def ours(outlet: Outlet, inlet: Inlet, frames: list[bytes], burst: int) -> Pair:
    """Our own way, a burst at a time."""
    bursts = [frames[at : at + burst] for at in range(0, len(frames), burst)]

    def send() -> None:
        for some in bursts:
            outlet.send(some)

    with outlet, inlet:
        return timed(send, lambda: read_all(inlet, len(frames)), frames)


def to_one(frames: list[bytes], burst: int) -> Pair:
    """Unicast."""
    inlet = unicast_inlet(THERE, 0, buffer_bytes=BUFFER)
    return ours(fanout_outlet(HERE, [inlet.endpoint]), inlet, frames, burst)


def to_group(frames: list[bytes], burst: int) -> Pair:
    """Multicast with one listener."""
    with unicast_inlet(THERE, 0) as probe:
        port = probe.endpoint.port
    inlet = multicast_inlet(GROUP, port, THERE, deaf_to=THERE, buffer_bytes=BUFFER)
    return ours(multicast_outlet(GROUP, port, HERE), inlet, frames, burst)


def to_old_reader(frames: list[bytes]) -> Pair:
    """Bursts to a listener that takes datagrams one by one."""

    class NoAggregates(socket.socket):
        def setsockopt(self, level: int, name: int, value: int) -> None:  # type: ignore[override]
            if level == socket.IPPROTO_UDP:
                raise OSError
            super().setsockopt(level, name, value)

    inlet = unicast_inlet(THERE, 0, buffer_bytes=BUFFER, kind=NoAggregates)
    return ours(fanout_outlet(HERE, [inlet.endpoint]), inlet, frames, len(frames))


def to_four(frames: list[bytes]) -> Pair:
    """Fan-out to four members; per datagram and member."""
    inlets = [unicast_inlet(f"127.0.0.{93 + place}", 0, buffer_bytes=BUFFER) for place in range(4)]
    outlet = unicast_outlet(HERE)
    outlet.destinations = tuple(Endpoint(*inlet.endpoint) for inlet in inlets)

    def read() -> list[bytes]:
        parts = [read_all(inlet, len(frames)) for inlet in inlets]
        return [sum(int.from_bytes(part[0]) for part in parts).to_bytes(8), parts[0][1]]

    with outlet:
        cost = timed(lambda: outlet.send(frames), read, frames, len(inlets))
    for inlet in inlets:
        inlet.close()
    return cost


def impaired(frames: list[bytes], jitter_ns: int) -> Pair:
    """What a demo's delay adds: frames in, frames out."""
    impairment = InboundImpairment({1: 1000}, jitter_ns=jitter_ns, loss=0.0)
    now = 0

    def send() -> None:
        nonlocal now
        now += 10**9
        impairment.admit(frames, now)

    def read() -> list[bytes]:
        got = impairment.due(now + 10**9)
        return [len(got).to_bytes(8), got[-1]]

    return timed(send, read, frames)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    become_punctual(realtime=True)
    report: dict[str, dict[str, float]] = {}
    fits = room()
    for length, most in ((1400, 2_000), (200, 4_000)):
        count = min(most, fits)
        frames = frames_of(length, count)
        base = plain(frames)
        rows: list[tuple[str, Pair]] = [
            ("sendto, recv_into", base),
            ("unicast, one by one", to_one(frames, 1)),
            ("unicast, bursts", to_one(frames, count)),
            ("multicast, bursts of 8", to_group(frames, 8)),
            ("multicast, bursts", to_group(frames, count)),
            ("bursts, plain reader", to_old_reader(frames)),
            ("fan-out to 4, bursts", to_four(frames)),
            ("delay (in, out)", impaired(frames, 0)),
            ("delay, jitter (in, out)", impaired(frames, 1000)),
        ]
        for name, (send, receive) in rows:
            report[f"{name}, {length} B"] = {
                "send_ns": send,
                "receive_ns": receive,
                "send_ratio": send / base[0],
                "receive_ratio": receive / base[1],
            }
    if chosen.json:
        print(json.dumps(report))
        return
    print(f"{'':<34}{'send':>16}{'receive':>22}")
    for name, row in report.items():
        send, receive = row["send_ns"], row["receive_ns"]
        print(f"{name:<34}{send:>8.0f} ns{row['send_ratio']:>7.3f} ×{receive:>9.0f} ns{row['receive_ratio']:>7.3f} ×")


if __name__ == "__main__":
    main()
