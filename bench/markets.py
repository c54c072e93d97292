"""Markets of real processes for the benches: started on loopback and fed by sources of the bench's own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from scratch import room_at

from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.hosts.source import SourceHost
from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import found_market
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.net.clock import become_punctual
from isocast.runtime.net.kernel import signal_at_parents_end
from isocast.runtime.operate.supervisor import node_command
from isocast.runtime.watch.logs import configure_logs
from isocast.terms.instants import SECOND
from isocast.wire.events import EVENT_DTYPE

__all__ = [
    "BYTES_PER_SECOND",
    "CHUNK",
    "UNTIL_READY_S",
    "Usage",
    "judge",
    "quiet_market",
    "ring_market",
    "run",
    "run_with",
    "serve_child",
    "until",
    "usage",
]

UNTIL_READY_S = 20.0
_UNTIL_ALL_ARE_S = 60.0
"""That the sources of a bench wait for one another: on a busy machine a process takes its time to start."""
CHUNK = 64
"""Messages that a source offers at once."""
BYTES_PER_SECOND = 120e6
"""What the log and the journal of one receiver take, about: more than a million events a second."""
_CHILD = "--child"
_READY, _BEGIN = ".ready", "begin"
"""Empty files: a source's, once it could offer, and the bench's, by which all of them do."""
_LOOK_EVERY_S = 0.5
"""Between two looks at what is left of a place."""


# ---- what processes cost


class Usage(dict[str, float]):
    """CPU seconds by node."""


def usage(nodes: Mapping[str, subprocess.Popen[Any]]) -> Usage:
    """What each process has used so far."""
    found = Usage()
    for name, child in nodes.items():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def resident_mb(pid: int) -> float:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# ---- one source, as a process of the bench's own


async def _offer(market: Market, place: Path, name: str, seconds: float, rate: float, chunk: int) -> int:
    """Publish `rate` messages a second, 0 for as many as the window takes; the number of events."""
    process = NodeProcess(market, market.node(name))
    await process.start()
    try:
        host = process.host
        assert isinstance(host, SourceHost)  # noqa: S101
        await until(lambda: not process.monitor.not_ready(), UNTIL_READY_S)
        (place / f"{name}{_READY}").touch()
        await until((place / _BEGIN).exists, _UNTIL_ALL_ARE_S)
        published = await _publish(host, market, time.monotonic() + seconds, rate, chunk)
        await until(lambda: not host.machine.snapshot().unstable, UNTIL_READY_S)
        return published
    finally:
        await process.stop()


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Look again and again; nobody signals what a machine comes to know."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _publish(host: SourceHost, market: Market, until: float, rate: float, chunk: int) -> int:
    per_message = market.events_per_payload
    block = np.zeros(chunk * per_message, EVENT_DTYPE)
    block["kind"], block["floor"], block["symbol"] = 1, b"XNYS", b"ISO"
    step = per_message * EVENT_DTYPE.itemsize
    published = sent = 0
    began = time.monotonic()
    while time.monotonic() < until:
        block["id"] = np.arange(published, published + len(block))
        block["time"] = time.time_ns()
        whole = block.tobytes()
        keys = [f"{sent + at}".encode() for at in range(chunk)]
        await host.publish([(key, whole[at * step : (at + 1) * step]) for at, key in enumerate(keys)])
        published += len(block)
        sent += chunk
        # Uneven steps, so that messages fall anywhere between two tokens.
        pause = began + sent / rate * (1 + 0.001 * (sent % 7)) - time.monotonic() if rate else 0
        await asyncio.sleep(max(pause, 0))
    return published


def serve_child() -> bool:
    """Whether this process is a source of a bench; then it has run."""
    if sys.argv[1:2] != [_CHILD]:
        return False
    config, name, seconds, rate, chunk = sys.argv[2:]
    market = load_market(Path(config))
    configure_logs(node=name)
    become_punctual(realtime=market.clock.realtime)
    print(asyncio.run(_offer(market, Path(config).parent, name, float(seconds), float(rate), int(chunk))))
    return True


# ---- the whole


def ring_market(  # noqa: PLR0913 - each is a key of the market file
    receivers: int,
    sources: int,
    *,
    mtu: int,
    window: int,
    stripes: int = 1,
    loss: float = 0.0,
    lines: int = 0,
    top: str = "",
    tables: str = "",
) -> str:
    """A ring of receivers for each stripe, one server, and sources; as fast as this machine can.

    The first `lines` receivers remulticast. `top` and `tables` are further keys of the market's file.
    """
    impairment = f"[impairment]\nenabled = true\ndelay = 'none'\nloss = {loss}\n" if loss else ""
    nodes = [
        f"[nodes.r{n}]\nrole = 'primary-receiver'\nline = {str(n <= lines).lower()}\naddress = '127.60.1.{n}'"
        for n in range(1, receivers + 1)
    ]
    nodes += [f"[nodes.s{n}]\nrole = 'primary-source'\naddress = '127.60.2.{n}'" for n in range(1, sources + 1)]
    nodes += ["[nodes.x1]\nrole = 'reformation-server'\naddress = '127.60.3.1'"]
    return f"""name = "bench"
durability = "process"
{top}
[timing]
profile = "lan"
detect = "10ms"
process = "20ms"
[clock]
bound = "100us"
source = "configured"
[ring]
stripes = {list(range(stripes))}
window = {window}
[network]
mtu = {mtu}
groups = "239.255.60.0"
lines = "239.255.61.0"
repairs = "239.255.62.0"
port = 7660
receive_buffer = "64MiB"
{impairment}
{tables}
""" + "\n".join(nodes)


def quiet_market(receivers: int) -> str:
    """A small ring on LAN timings, for what is measured in microseconds."""
    nodes = [
        f"[nodes.r{n}]\nrole = 'primary-receiver'\nline = false\naddress = '127.60.1.{n}'"
        for n in range(1, receivers + 1)
    ]
    return """name = "bench"
durability = "process"
[timing]
profile = "lan"
[clock]
bound = "100us"
source = "configured"
[network]
groups = "239.255.60.0"
lines = "239.255.61.0"
repairs = "239.255.62.0"
port = 7660
[nodes.s1]
role = 'primary-source'
address = '127.60.2.1'
[nodes.x1]
role = 'reformation-server'
address = '127.60.3.1'
""" + "\n".join(nodes)


def run(
    text: str, place: Path, seconds: float, *, rate: float = 0, chunk: int = 1, script: str
) -> tuple[Market, int, dict[str, float], dict[str, float]]:
    """Run a market; returns it, the events published, and CPU seconds and memory of every node that is no source."""

    def offering(market: Market, config: Path) -> list[list[str]]:
        own = [sys.executable, script, _CHILD, str(config)]
        wanted = [str(seconds), str(rate), str(chunk)]
        return [[*own, plan.name, *wanted] for plan in market.by_role(NodeRole.PRIMARY_SOURCE)]

    market, answers, cpu, memory = run_with(text, place, offering, seconds, together=True)
    return market, sum(int(answer or 0) for answer in answers), cpu, memory


def run_with(
    text: str,
    place: Path,
    offering: Callable[[Market, Path], list[list[str]]],
    seconds: float,
    *,
    with_sources: bool = False,
    together: bool = False,
) -> tuple[Market, list[bytes], dict[str, float], dict[str, float]]:
    """The same with sources of the bench's own, by their commands; returns what each of them printed.

    `with_sources`: those of the market run too, and the commands are whoever publishes at their doors. `together`: the
    commands say when they could offer, and begin when all can. One that is still starting takes the processor from
    those that offer already, whose windows then shrink by chance; and how long it starts is no cost of an event.
    """
    config = place / "market.toml"
    config.write_text(text, encoding="utf-8")
    market = load_market(config)
    init_keys(market)
    found_market(market)
    nodes: dict[str, subprocess.Popen[bytes]] = {}
    sources: list[subprocess.Popen[bytes]] = []
    with (place / "logs.txt").open("wb") as logs:
        try:
            for plan in market.nodes:
                if with_sources or not plan.role.is_source:
                    nodes[plan.name] = _start(node_command(config, plan.name), logs, logs)
            _until_ready(place / "logs.txt", nodes)
            before = usage(nodes)
            commands = offering(market, config)
            sources += [_start(command, subprocess.PIPE, logs) for command in commands]
            if together:
                _until_all_are(place, sources)
                before = usage(nodes)
                (place / _BEGIN).touch()
            answers = _answers(sources, place, time.monotonic() + seconds + 120)
            time.sleep(2 * market.timing.release_delay_ns / SECOND + 0.5)
            cpu = {name: used - before[name] for name, used in usage(nodes).items()}
            memory = {name: resident_mb(child.pid) for name, child in nodes.items()}
        finally:
            _stop((*nodes.values(), *sources))
    return market, answers, cpu, memory


def _until_ready(logs: Path, nodes: Collection[str]) -> None:
    """Wait until every node says so, and a moment more for the ring that all of them are on: a start costs CPU too."""
    deadline = time.monotonic() + UNTIL_READY_S
    while time.monotonic() < deadline:
        said = [json.loads(line) for line in logs.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        if {line["node"] for line in said if line["event"] == "ready"} >= set(nodes):
            break
        time.sleep(0.1)
    time.sleep(1.0)


def _until_all_are(place: Path, sources: Collection[subprocess.Popen[bytes]]) -> None:
    """Wait until every source could offer, or one has failed."""
    deadline = time.monotonic() + _UNTIL_ALL_ARE_S
    while len(list(place.glob(f"*{_READY}"))) < len(sources) and time.monotonic() < deadline:
        if any(source.poll() is not None for source in sources):
            break
        time.sleep(0.02)


# ---- what it released


def judge(market: Market, published: int) -> dict[str, object]:
    """Order, completeness and the common rate, from the journals alone."""
    digests, counts, late = set(), set(), []
    released: dict[int, int] = {}
    for plan in market.by_role(NodeRole.PRIMARY_RECEIVER):
        count = order = 0
        for block in read_blocks(market.directory_of(plan.name) / "journal", check=False):
            count += block.header.events
            order = hash((order, block.directory.tobytes()))
            second = block.header.released_at // SECOND
            released[second] = released.get(second, 0) + block.header.events
            late.append(block.header.lateness_ns)
        digests.add(order)
        counts.add(count)
    share = len(market.universe)
    rates = [released[second] / share for second in sorted(released)[1:-1]]
    return {
        "events": published,
        "complete": counts == {published},
        "same_order": len(digests) == 1,
        "events_per_second": round(sum(rates) / max(len(rates), 1)),
        "best_second": round(max(rates, default=0)),
        "release_lateness_ms_p50": round(float(np.median(late)) / 1e6, 3) if late else None,
        "release_lateness_ms_p99": round(float(np.quantile(late, 0.99)) / 1e6, 3) if late else None,
    }


def _start(command: list[str], stdout: IO[bytes] | int, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process that ends with the bench, even if that is killed."""

    def end_with_us() -> None:
        signal_at_parents_end(signal.SIGTERM)

    return subprocess.Popen(command, stdout=stdout, stderr=stderr, preexec_fn=end_with_us)  # noqa: PLW1509, S603


def _answers(sources: Sequence[subprocess.Popen[bytes]], place: Path, until: float) -> list[bytes]:
    """What each of them printed; meanwhile nothing may fill the place beyond its share."""
    room, answers = room_at(place), []
    for child in sources:
        while True:
            try:
                answers.append(child.communicate(timeout=_LOOK_EVERY_S)[0])
                break
            except subprocess.TimeoutExpired:
                room.insist_left()
                if time.monotonic() > until:
                    raise
    return answers


def _stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.send_signal(signal.SIGTERM)
    for child in children:
        child.wait(timeout=30)
