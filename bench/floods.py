"""What a flood costs a receiver: CPU ns per hostile datagram, with the kernel's filter and without, on loopback.

    python bench/floods.py [--json]

Each row is one kind of flood at the direct port of a receiver of a small market, sent by another process, so that only
the receiver's own CPU is counted: what it takes to read, judge and refuse; what the kernel does on the receiver's
behalf while the sender runs is the sender's. Everything that was sent must be counted as refused, taken or dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import process_time_ns

from scratch import folder

from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import init_keys, load_keys
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.net.channels import Channels, NodeKeys
from isocast.runtime.net.sockets import Endpoint, unicast_outlet
from isocast.runtime.watch.counters import NodeCounters
from isocast.terms.ids import Epoch
from isocast.wire.codec import encode
from isocast.wire.frame import market_id
from isocast.wire.packets import Data, Repair

ROUNDS = 20
BURST = 400
STRANGER = "127.66.6.6"
_FILE = """
name = "floods"
durability = "process"
[network]
groups = "239.66.6.0"
lines = "239.66.6.32"
repairs = "239.66.6.96"
filter = "{mode}"
receive_buffer = "16MiB"
[nodes.a]
role = "primary-receiver"
address = "127.66.6.1"
[nodes.b]
role = "primary-receiver"
address = "127.66.6.2"
[nodes.floor]
role = "primary-source"
address = "127.66.6.3"
[nodes.x]
role = "reformation-server"
address = "127.66.6.4"
"""
Frames = Callable[[Market], Sequence[bytes]]


def repairs(market: Market) -> list[bytes]:
    """Genuine packets of node b: repairs of full messages."""
    keys = load_keys(market, market.node("b")).core_ring()
    site, source, epoch = market.node("b").node, market.node("floor").node, Epoch(1, 65_536)
    messages = [Data(0, epoch, source, number, 1, bytes(1_296)) for number in range(1, BURST + 1)]
    return [encode(Repair(0, epoch, site, message), keys, market.id) for message in messages]


def forged(market: Market) -> list[bytes]:
    """The same with a bit of the tag turned."""
    return [frame[:-1] + bytes((frame[-1] ^ 1,)) for frame in repairs(market)]


def foreign(market: Market) -> list[bytes]:
    """The same of another market."""
    other = market_id("another")
    return [frame[:4] + other + frame[8:] for frame in repairs(market)]


def noise(_: Market) -> list[bytes]:
    """Random bytes."""
    random = Random(1)
    return [random.randbytes(200) for _ in range(BURST)]


FLOODS: dict[str, tuple[Frames, str | None]] = {
    "strangers: noise": (noise, STRANGER),
    "strangers: copies": (repairs, STRANGER),
    "a node's address: noise": (noise, None),
    "a node's address: another market": (foreign, None),
    "a node's address: forged tags": (forged, None),
    "a node's address: copies": (repairs, None),
}
"""What is sent, and from where; None: node b's address."""


def send(plan: NodePlan, sender: str, frames: Sequence[bytes]) -> None:
    """From another process: its CPU is not ours."""
    child = os.fork()
    if not child:
        with unicast_outlet(sender) as outlet:
            for frame in frames:
                outlet.send_to(Endpoint(plan.address, plan.port), [frame])
        os._exit(0)
    os.waitpid(child, 0)


def measured(where: Path, mode: str, frames_of: Frames, sender: str | None) -> tuple[float, int]:
    """CPU ns per datagram of the best round, and how many of all the kernel dropped."""
    where.mkdir()
    file = where / "market.toml"
    file.write_text(_FILE.format(mode=mode), encoding="utf-8")
    market = load_market(file)
    init_keys(market)
    plan, keys, counters = market.node("a"), load_keys(market, market.node("a")), NodeCounters()
    channels = Channels(market, plan, plan.node, NodeKeys(keys.core_ring(), keys.edge_ring()), counters)
    frames = frames_of(market)
    best = float("inf")
    try:
        for _ in range(ROUNDS):
            send(plan, sender or market.node("b").address, frames)
            begin = process_time_ns()
            while True:
                before = counters.bytes_received[:]
                channels.receive(0)
                if counters.bytes_received == before:
                    break
            best = min(best, (process_time_ns() - begin) / len(frames))
        channels.collect()
    finally:
        channels.close()
    refused = counters.authentication_failures + counters.malformed + counters.unknown_senders
    refused += counters.another_market + counters.unaddressed + sum(counters.packets_received)
    if refused + counters.filtered + sum(counters.kernel_drops) < ROUNDS * len(frames):
        raise SystemExit(f"{ROUNDS * len(frames)} were sent, {refused} refused and {counters.filtered} filtered")
    return best, counters.filtered


def main() -> int:
    """Print one row for each flood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    found: dict[str, dict[str, float]] = {}
    with folder() as place:
        for number, (name, (frames_of, sender)) in enumerate(FLOODS.items()):
            row: dict[str, float] = {}
            for mode in ("off", "addresses"):
                row[mode], row["filtered"] = measured(place / f"{number}{mode}", mode, frames_of, sender)
            found[name] = row
            if not as_json:
                share = row["filtered"] / (ROUNDS * BURST)
                told = f"{row['off']:8,.0f} ns without, {row['addresses']:8,.0f} ns with the filter"
                sys.stdout.write(f"{name:36} {told}; the kernel drops {share:.0%}\n")
                sys.stdout.flush()
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
