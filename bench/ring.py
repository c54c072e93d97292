"""How much a ring carries on this machine: events a second, ordered, certified by a majority, sealed and released.

    python bench/ring.py [--seconds 10] [--sources 3] [--receivers 4] [--mtu 9000] [--loss 0] [--json]

Real processes over real UDP multicast on loopback, each with its log and its journal. Sources offer as much as their
windows take. Afterwards the journals are read: every receiver must have released the same events in the same order,
and all that was published. The rate counts what all receivers had released, between the first and the last second.

On a shared machine the ratio counts: `raw` is the same payloads by plain multicast in the same run, from one sender
to as many receivers, with no order, no log, no seal and no promise to anybody.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from dataclasses import dataclass
from multiprocessing import Process, Queue
from pathlib import Path

from markets import BYTES_PER_SECOND, CHUNK, judge, ring_market, run, serve_child
from scratch import folder

from isocast.runtime.net.sockets import multicast_inlet, multicast_outlet
from isocast.wire.events import EVENT_DTYPE


@dataclass(frozen=True)
class Options:
    """What is measured."""

    seconds: float
    sources: int
    receivers: int
    mtu: int
    loss: float
    window: int


def market_text(options: Options) -> str:
    """The market that is measured."""
    return ring_market(options.receivers, options.sources, mtu=options.mtu, window=options.window, loss=options.loss)


# ---- plain multicast, for the ratio


def _hear(port: int, seconds: float, heard: Queue[int]) -> None:
    inlet = multicast_inlet("239.255.63.1", port, "127.0.0.1", buffer_bytes=64 << 20)
    until = time.monotonic() + seconds + 1
    size = 0
    while time.monotonic() < until:
        frames = inlet.read(1 << 20)
        size += sum(map(len, frames))
        if not frames:
            time.sleep(0.0005)
    heard.put(size)


def raw_rate(options: Options) -> float:
    """Events a second that every receiver gets of plain multicast."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    heard: Queue[int] = Queue()
    seconds = 2.0
    children = [Process(target=_hear, args=(port, seconds, heard)) for _ in range(options.receivers)]
    for child in children:
        child.start()
    time.sleep(0.5)
    outlet = multicast_outlet("239.255.63.1", port, "127.0.0.1")
    frames = [bytes(options.mtu - 28)] * CHUNK
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        outlet.send(frames)
    sizes = [heard.get(timeout=10) for _ in children]
    for child in children:
        child.join()
    outlet.close()
    return min(sizes) / EVENT_DTYPE.itemsize / seconds


def main() -> int:
    """Parse, run, print."""
    if serve_child():
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--sources", type=int, default=3)
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--mtu", type=int, default=9_000)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--window", type=int, default=4_096, help="the most; sources size their own")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave everything in this directory")
    given = parser.parse_args()
    options = Options(given.seconds, given.sources, given.receivers, given.mtu, given.loss, given.window)
    result: dict[str, object] = {
        "sources": options.sources,
        "receivers": options.receivers,
        "mtu": options.mtu,
        "loss": options.loss,
    }
    with folder(given.keep, options.seconds * options.receivers * BYTES_PER_SECOND, warm=True) as place:
        market, published, cpu, memory = run(market_text(options), place, options.seconds, chunk=CHUNK, script=__file__)
        result |= judge(market, published)
    receivers = [used for name, used in cpu.items() if name.startswith("r")]
    raw = raw_rate(options)
    result |= {
        "receiver_cpu_ns_per_event": round(1e9 * sum(receivers) / len(receivers) / max(published, 1)),
        "receiver_mb": round(max(memory.values())),
        "raw_events_per_second": round(raw),
        "ratio_to_raw": round(float(str(result["events_per_second"])) / raw, 3),
    }
    if given.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value:,}" if isinstance(value, int | float) else f"{name:28} {value}")
    return 0 if result["complete"] and result["same_order"] else 1


if __name__ == "__main__":
    sys.exit(main())
