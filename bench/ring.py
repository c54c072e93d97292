"""How much a ring carries on this machine: events a second, ordered, certified by a majority, sealed and released.

    python bench/ring.py [--seconds 10] [--sources 3] [--receivers 4] [--mtu 9000] [--loss 0] [--json]

Real processes over real UDP multicast on loopback, each with its log and its journal. Sources offer as much as their
windows take. Afterwards the journals are read: every receiver must have released the same events in the same order,
and all that was published. The rate counts what all receivers had released, between the first and the last second.

On a shared machine the ratio counts: `raw` is the same payloads by plain multicast in the same run, from as many
senders to as many receivers, with no order, no log, no seal and no promise to anybody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import Process, Queue
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from isocast.runtime.founding import found_market
from isocast.runtime.journal_reader import read_blocks
from isocast.runtime.key_files import init_keys
from isocast.runtime.logs import configure_logs
from isocast.runtime.market import Market, NodeRole
from isocast.runtime.market_file import load_market
from isocast.runtime.priority import become_punctual
from isocast.runtime.process import NodeProcess
from isocast.runtime.roles.source import SourceHost
from isocast.runtime.supervisor import node_command
from isocast.runtime.udp import multicast_inlet, multicast_outlet
from isocast.terms.instants import SECOND
from isocast.wire.events import EVENT_DTYPE

CHUNK = 64
"""Messages that a source offers at once."""
SETTLE_S = 20.0


@dataclass(frozen=True)
class Options:
    """What is measured."""

    seconds: float
    sources: int
    receivers: int
    mtu: int
    loss: float
    window: int


def market_text(options: Options, port: int) -> str:
    """A ring of receivers, one server, and sources."""
    impairment = f"[impairment]\nenabled = true\ndelay = 'none'\nloss = {options.loss}\n" if options.loss else ""
    nodes = [f"[nodes.r{n}]\nrole = 'primary-receiver'\nline = false" for n in range(1, options.receivers + 1)]
    nodes += [f"[nodes.s{n}]\nrole = 'primary-source'" for n in range(1, options.sources + 1)]
    nodes += ["[nodes.x1]\nrole = 'reformation-server'"]
    return f"""name = "bench"
[timing]
profile = "lan"
detect = "10ms"
process = "20ms"
[clock]
bound = "100us"
source = "configured"
[ring]
window = {options.window}
[network]
mtu = {options.mtu}
port = {port}
receive_buffer = "64MiB"
[journal]
keep_bytes = "8GiB"
{impairment}
""" + "\n".join(nodes)


# ---- one source


async def offer(market: Market, name: str, seconds: float) -> int:
    """Publish as much as the window takes; the number of events."""
    process = NodeProcess(market, market.node(name))
    await process.start()
    try:
        host = process.host
        assert isinstance(host, SourceHost)  # noqa: S101
        while process.monitor.not_ready():
            await asyncio.sleep(0.01)
        until = time.monotonic() + seconds
        per_message = market.events_per_payload
        block = np.zeros(CHUNK * per_message, EVENT_DTYPE)
        block["kind"], block["floor"], block["symbol"] = 1, b"XNYS", b"ISO"
        step = per_message * EVENT_DTYPE.itemsize
        published = 0
        while time.monotonic() < until:
            block["id"] = np.arange(published, published + len(block))
            block["time"] = time.time_ns()
            whole = block.tobytes()
            keys = [f"{published + at}".encode() for at in range(CHUNK)]
            await host.publish([(key, whole[at * step : (at + 1) * step]) for at, key in enumerate(keys)])
            published += len(block)
            await asyncio.sleep(0)
        deadline = time.monotonic() + SETTLE_S
        while host.machine.snapshot().unstable and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return published
    finally:
        await process.stop()


def run_source(config: Path, name: str, seconds: float) -> None:
    """A child of this bench."""
    market = load_market(config)
    configure_logs(node=name)
    become_punctual(realtime=market.clock.realtime)
    print(asyncio.run(offer(market, name, seconds)))


# ---- the whole


def warm_memory(folder: Path, size: int) -> None:
    """Touch memory once: a virtual machine's first use of a page costs many times the second."""
    path = folder / "warm"
    piece = bytes(64 << 20)
    with path.open("wb") as file:
        for _ in range(size // len(piece)):
            file.write(piece)
    path.unlink()


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def run_market(options: Options, folder: Path) -> dict[str, object]:
    """Start everything, let it run, and read the journals."""
    config = folder / "market.toml"
    config.write_text(market_text(options, 7_600), encoding="utf-8")
    market = load_market(config)
    init_keys(market)
    found_market(market)
    logs = (folder / "logs.txt").open("wb")
    nodes = {}
    sources = []
    try:
        for plan in market.nodes:
            if not plan.role.is_source:
                nodes[plan.name] = subprocess.Popen(node_command(config, plan.name), stdout=logs, stderr=logs)  # noqa: S603
        time.sleep(2.0)
        for plan in market.by_role(NodeRole.PRIMARY_SOURCE):
            command = [sys.executable, __file__, "--child", str(config), plan.name, str(options.seconds)]
            sources.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=logs))  # noqa: S603
        began = {name: cpu_seconds(child.pid) for name, child in nodes.items()}
        published = [int(child.communicate(timeout=options.seconds + 60)[0] or 0) for child in sources]
        time.sleep(2 * market.timing.release_delay_ns / SECOND + 0.5)
        cpu = {name: cpu_seconds(child.pid) - began[name] for name, child in nodes.items()}
        memory = {name: resident_mb(child.pid) for name, child in nodes.items()}
    finally:
        for child in (*nodes.values(), *sources):
            child.send_signal(signal.SIGTERM)
        for child in (*nodes.values(), *sources):
            child.wait(timeout=30)
        logs.close()
    return judge(market, sum(published)) | {
        "receiver_cpu_ns_per_event": round(
            1e9 * sum(cpu[name] for name in cpu if name.startswith("r")) / max(sum(published), 1) / options.receivers
        ),
        "receiver_mb": round(max(memory.values())),
    }


def judge(market: Market, published: int) -> dict[str, object]:
    """Order, completeness and the common rate, from the journals alone."""
    digests, counts, late = set(), set(), []
    released: dict[int, int] = {}
    for plan in market.by_role(NodeRole.PRIMARY_RECEIVER):
        count = 0
        order = 0
        for block in read_blocks(market.directory_of(plan.name) / "journal", check=False):
            events = block.events
            count += len(events)
            order = hash((order, block.directory.tobytes()))
            second = block.header.released_at // SECOND
            released[second] = released.get(second, 0) + len(events)
            late.append(block.header.lateness_ns)
        digests.add(order)
        counts.add(count)
    seconds = sorted(released)[1:-1]
    share = len(market.universe)
    rates = [released[second] / share for second in seconds]
    return {
        "events": published,
        "complete": counts == {published},
        "same_order": len(digests) == 1,
        "events_per_second": round(sum(rates) / max(len(rates), 1)),
        "best_second": round(max(rates, default=0)),
        "release_lateness_ms_p50": round(float(np.median(late)) / 1e6, 3) if late else None,
        "release_lateness_ms_p99": round(float(np.quantile(late, 0.99)) / 1e6, 3) if late else None,
    }


# ---- plain multicast, for the ratio


def _hear(port: int, seconds: float, heard: Queue[int]) -> None:
    inlet = multicast_inlet("239.255.76.1", port, "127.0.0.1", buffer_bytes=64 << 20)
    until = time.monotonic() + seconds + 1
    size = 0
    while time.monotonic() < until:
        frames = inlet.read(1 << 20)
        size += sum(map(len, frames))
        if not frames:
            time.sleep(0.0005)
    heard.put(size)


def raw_rate(options: Options) -> float:
    """Events a second that every receiver gets of plain multicast, when senders pause as receivers need."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    heard: Queue[int] = Queue()
    seconds = 2.0
    children = [Process(target=_hear, args=(port, seconds, heard)) for _ in range(options.receivers)]
    for child in children:
        child.start()
    time.sleep(0.5)
    outlet = multicast_outlet("239.255.76.1", port, "127.0.0.1")
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
    if sys.argv[1:2] == ["--child"]:
        run_source(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--sources", type=int, default=3)
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--mtu", type=int, default=9_000)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--window", type=int, default=1_500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave everything in this directory")
    arguments = parser.parse_args()
    options = Options(
        arguments.seconds, arguments.sources, arguments.receivers, arguments.mtu, arguments.loss, arguments.window
    )
    # Journals of gigabytes: in memory where there is a file system for that, so that no disk is measured.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
    with TemporaryDirectory(prefix="isocast-bench-", dir=place) as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        warm_memory(folder, round(options.seconds * options.receivers * 250e6))
        result = {"sources": options.sources, "receivers": options.receivers, "mtu": options.mtu, "loss": options.loss}
        result |= run_market(options, folder)
        raw = raw_rate(options)
        result |= {"raw_events_per_second": round(raw), "ratio_to_raw": round(result["events_per_second"] / raw, 3)}
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value:,}" if isinstance(value, int | float) else f"{name:28} {value}")
    return 0 if result["complete"] and result["same_order"] else 1


if __name__ == "__main__":
    sys.exit(main())
