"""What a node says of itself (state, rates, alarms, peers, health), and how other nodes' status is asked for.

`Monitor` stands beside a driver: the driver raises counters and alarms, and the monitor makes a `NodeStatus` of them
when somebody asks. Liveness asks whether the process gets to run; readiness asks whether the role can do its work.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from isocast import __version__
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.market.tls_files import read_status_token
from isocast.runtime.net.tls import client_tls, tls_trouble
from isocast.runtime.watch.counters import Channel, Histogram, NodeCounters, NodeGauges, ReleaseMark, packet_slot
from isocast.runtime.watch.metrics import Metrics, NodeIdentity, NodeReading, totals_of
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.wire.frame import PacketKind

__all__ = [
    "Alarm",
    "Alarms",
    "Monitor",
    "NodeStatus",
    "PeerStatus",
    "Rates",
    "Spread",
    "StatusAnswer",
    "Target",
    "node_target",
    "poll",
    "reasons_not_ready",
    "status_from_json",
    "wrong_key_reason",
]


_WINDOW = 10
"""Seconds over which rates and quantiles are taken."""
_SAMPLE_EVERY_NS = 9 * SECOND // 10
"""Ticks more often than once a second do not shorten the window."""
_STALLED_NS = 5 * SECOND
"""An event loop that did not run for so long serves nobody."""
_PATIENCE_NS = 10 * SECOND
"""Without a token for so long, a source says that it is not ready, unless its market's timing says otherwise."""
_SLOTS = tuple(
    (packet_slot(channel, kind), f"{channel.name.lower()} {kind.name}") for channel in Channel for kind in PacketKind
)
_ALARMS_KEPT = 64
"""Distinct alarms: there are fewer kinds than that; texts made of hostile bytes fill no memory."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One distinct thing that went wrong, how often, and what to do."""

    code: str
    text: str
    remedy: str
    count: int
    first_ns: int
    last_ns: int


class Alarms:
    """The distinct alarms of a node, newest text first to be replaced, never more than a fixed number."""

    def __init__(self) -> None:
        """Nothing is wrong yet."""
        self._by_code: dict[str, Alarm] = {}
        self.total = 0

    def raise_alarm(self, code: str, text: str, remedy: str, now_ns: int) -> bool:
        """Count one; True if it is the first of its code, which is when a log line is worth its room."""
        self.total += 1
        known = self._by_code.get(code)
        if known is not None:
            self._by_code[code] = replace(known, text=text, remedy=remedy, count=known.count + 1, last_ns=now_ns)
            return False
        if len(self._by_code) >= _ALARMS_KEPT:
            oldest = min(self._by_code.values(), key=lambda alarm: alarm.last_ns)
            del self._by_code[oldest.code]
        self._by_code[code] = Alarm(code, text, remedy, 1, now_ns, now_ns)
        return True

    def list(self) -> tuple[Alarm, ...]:
        """The newest first."""
        return tuple(sorted(self._by_code.values(), key=lambda alarm: alarm.last_ns, reverse=True))


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Another node as this one hears it."""

    name: str
    heard_s: float | None = None
    """Since its last packet; None if it was never heard."""
    address: str = ""
    note: str = ""
    """Anything to say of it: a slow customer is named here."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, over the last seconds."""

    over_s: float = 0.0
    events: float = 0.0
    """Released by a receiver, published by a source, received by a customer."""
    messages: float = 0.0
    packets_received: float = 0.0
    packets_sent: float = 0.0
    bytes_received: float = 0.0
    bytes_sent: float = 0.0
    cpu: float = 0.0
    """Share of one processor."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles, in seconds: upper bounds of the buckets that hold them."""

    count: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """All that /statusz says."""

    name: str
    role: str
    node_id: int
    stripe: int = 0
    city: str = ""
    version: str = ""
    pid: int = 0
    at_ns: int = 0
    uptime_s: float = 0.0
    healthy: bool = True
    ready: bool = False
    reasons: tuple[str, ...] = ()
    """Why it is not ready, or not healthy."""
    gauges: NodeGauges = field(default_factory=NodeGauges)
    rates: Rates = field(default_factory=Rates)
    lateness: Spread | None = None
    """Of releases against their instant, over the last seconds."""
    latency: Spread | None = None
    """Publish to release, over the last seconds, where it is known."""
    timer: Spread | None = None
    """Lateness of timers, over the last seconds."""
    loop_lag_s: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    """Every counter of /metrics, by its name without the prefix."""
    packets_received: dict[str, int] = field(default_factory=dict)
    """By channel and kind, such as "control TOKEN"."""
    packets_sent: dict[str, int] = field(default_factory=dict)
    kernel_drops: dict[str, int] = field(default_factory=dict)
    """By channel."""
    alarms: tuple[Alarm, ...] = ()
    peers: tuple[PeerStatus, ...] = ()
    releases: tuple[ReleaseMark, ...] = ()
    """The newest tokens, for the skew between nodes."""

    def as_json(self) -> dict[str, object]:
        """For programs: dictionaries, lists and simple values."""
        return {name: _plain(getattr(self, name)) for name in _names(NodeStatus)}


_SIMPLE = (int, float, str, bool, type(None))


def _plain(value: object) -> object:
    """As `asdict` does it, without its copies of copies: this runs beside the protocol, every second."""
    shape: type = type(value)
    if shape in _SIMPLE or not (isinstance(value, (tuple, dict)) or is_dataclass(shape)):
        return value
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return dict(value)
    return {name: _plain(getattr(value, name)) for name in _names(shape)}


@lru_cache
def _names(shape: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(shape))


# Ready or not -------------------------------------------------------------------------------------


def reasons_not_ready(
    role: NodeRole, gauges: NodeGauges, *, patience_ns: int = _PATIENCE_NS, forged: int = 0
) -> tuple[str, ...]:
    """What keeps a role from its work, each with what it waits for; empty if nothing does.

    `forged` packets came with a wrong tag. A node that is ready ignores them; one that is not may have the wrong key.
    """
    reasons = _reasons(role, gauges, patience_ns)
    if reasons and forged:
        key = "edge.key" if role is NodeRole.CUSTOMER else "core.key"
        return (wrong_key_reason(forged, key), *reasons)
    return reasons


def wrong_key_reason(forged: int, key: str) -> str:
    """Packets come, and none of them is believed."""
    came = f"{counted(forged, 'packet')} arrived with a tag that {key} did not make"
    return f"{came}: is it the present key file of this market?"


def _reasons(role: NodeRole, gauges: NodeGauges, patience_ns: int) -> tuple[str, ...]:
    if role.is_receiver:
        return _receiver_reasons(gauges, patience_ns)
    if role is NodeRole.SECONDARY_SOURCE:
        reason = "its parent does not answer: batches are taken, kept on disk, and offered again"
        return () if gauges.parent_answers else (reason,)
    if role.is_source:
        return _token_reasons(gauges, patience_ns)
    if role is NodeRole.CUSTOMER and not gauges.lines_heard:
        return ("no packets on any line: are its receivers up, and does multicast reach this machine?",)
    return ()


def _receiver_reasons(gauges: NodeGauges, patience_ns: int) -> tuple[str, ...]:
    reasons = []
    if not gauges.epoch_number and gauges.universe == ():
        reasons.append("joins a market and has received nothing from it yet: are the other nodes up?")
    elif not gauges.epoch_number:
        reasons.append("not on a ring yet: a majority of the receivers and one reformation server must be up")
    elif gauges.mode == "sealed":
        reasons.append("sealed: a ballot is under way")
    elif gauges.mode == "catchup":
        reasons.append("catching up with the ring")
    else:
        reasons += _token_reasons(gauges, patience_ns)
    if gauges.edge_waits is not None:
        reasons.append(gauges.edge_waits)
    if gauges.clock_trusted is False:
        reasons.append("the clock is proven outside its bound: synchronise it, then restart this node")
    return tuple(reasons)


def _token_reasons(gauges: NodeGauges, patience_ns: int) -> tuple[str, ...]:
    if gauges.token_age_ns is None:
        return ("no token has arrived yet",)
    if gauges.token_age_ns > patience_ns:
        return (f"no token for {gauges.token_age_ns / SECOND:.1f} s",)
    return ()


# The monitor --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sample:
    """What the rates and quantiles of a window begin with."""

    at_ns: int
    events: int
    messages: int
    packets_received: int
    packets_sent: int
    bytes_received: int
    bytes_sent: int
    cpu_ns: int
    lateness: tuple[int, ...]
    latency: tuple[int, ...]
    timer: tuple[int, ...]
    lag_ns: int


class Monitor:
    """Watches one node: call `tick` every second; everything else is computed on demand."""

    def __init__(
        self,
        identity: NodeIdentity,
        counters: NodeCounters,
        read_gauges: Callable[[], NodeGauges],
        *,
        read_peers: Callable[[], Sequence[PeerStatus]] = tuple,
        patience_ns: int = _PATIENCE_NS,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`read_gauges` and `read_peers` are the driver's: called for each status and scrape, never else."""
        self.identity = identity
        self.counters = counters
        self.alarms = Alarms()
        self.metrics = Metrics(lambda: [self.reading()])
        self._read_gauges = read_gauges
        self._read_peers = read_peers
        self._patience_ns = patience_ns
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._started_wall_ns = wall_ns()
        self._started_ns = self._ticked_ns = steady_ns()
        self._samples: deque[_Sample] = deque([self._sample(0)], maxlen=_WINDOW + 1)

    def alarm(self, code: str, text: str, remedy: str) -> bool:
        """Raise an alarm; True if it is the first of its code."""
        return self.alarms.raise_alarm(code, text, remedy, self._wall_ns())

    def tick(self, lag_ns: int = 0) -> None:
        """At least once a second: the event loop runs, and woke `lag_ns` later than it was asked to."""
        self._ticked_ns = self._steady_ns()
        newest = self._samples[-1]
        if self._ticked_ns - newest.at_ns >= _SAMPLE_EVERY_NS:
            self._samples.append(self._sample(lag_ns))
        elif lag_ns > newest.lag_ns:
            self._samples[-1] = replace(newest, lag_ns=lag_ns)

    def unhealthy(self) -> tuple[str, ...]:
        """Why the process should be looked at, or restarted; empty if it gets to run."""
        silent_ns = self._steady_ns() - self._ticked_ns
        worst_ns = max(silent_ns - SECOND, self._lag_ns())
        if worst_ns < _STALLED_NS:
            return ()
        return (f"the event loop did not run for {worst_ns / SECOND:.1f} s: a stopped process or a starved machine",)

    def not_ready(self, gauges: NodeGauges | None = None) -> tuple[str, ...]:
        """Why the node cannot do its work now; empty if it can."""
        gauges = self._read_gauges() if gauges is None else gauges
        forged = self.counters.authentication_failures
        role, patience_ns = self.identity.role, self._patience_ns
        return self.unhealthy() + reasons_not_ready(role, gauges, patience_ns=patience_ns, forged=forged)

    def reading(self) -> NodeReading:
        """For the metrics."""
        return self._reading(self._read_gauges())

    def status(self) -> NodeStatus:
        """For people and for `isocast top`."""
        who, counters, gauges = self.identity, self.counters, self._read_gauges()
        unhealthy, reasons = self.unhealthy(), self.not_ready(gauges)
        since, now = self._samples[0], self._sample(0)
        return NodeStatus(
            name=who.name,
            role=who.role.value,
            node_id=who.node_id,
            stripe=who.stripe,
            city=who.city,
            version=__version__,
            pid=os.getpid(),
            at_ns=self._wall_ns(),
            uptime_s=(self._steady_ns() - self._started_ns) / SECOND,
            healthy=not unhealthy,
            ready=not reasons,
            reasons=reasons,
            gauges=gauges,
            rates=_rates(since, now),
            lateness=_spread(counters.release_lateness, since.lateness),
            latency=_spread(counters.submit_to_release, since.latency),
            timer=_spread(counters.timer_lateness, since.timer),
            loop_lag_s=self._lag_ns() / SECOND,
            totals=totals_of(self._reading(gauges)),
            packets_received=_by_kind(counters.packets_received),
            packets_sent=_by_kind(counters.packets_sent),
            kernel_drops={channel.name.lower(): counters.kernel_drops[channel] for channel in Channel},
            alarms=self.alarms.list(),
            peers=tuple(self._read_peers()),
            releases=tuple(counters.release_marks),
        )

    def _reading(self, gauges: NodeGauges) -> NodeReading:
        return NodeReading(
            self.identity,
            self.counters,
            gauges,
            started_s=self._started_wall_ns / SECOND,
            ready=not self.not_ready(gauges),
            alarms=self.alarms.total,
            loop_lag_ns=self._lag_ns(),
        )

    def _lag_ns(self) -> int:
        return max(sample.lag_ns for sample in self._samples)

    def _sample(self, lag_ns: int) -> _Sample:
        counters = self.counters
        return _Sample(
            at_ns=self._steady_ns(),
            events=counters.events_released + counters.events_published + counters.events_received,
            messages=counters.messages_released + counters.publishes_accepted + counters.messages_received,
            packets_received=sum(counters.packets_received),
            packets_sent=sum(counters.packets_sent),
            bytes_received=sum(counters.bytes_received),
            bytes_sent=sum(counters.bytes_sent),
            cpu_ns=time.process_time_ns(),
            lateness=tuple(counters.release_lateness.counts),
            latency=tuple(counters.submit_to_release.counts),
            timer=tuple(counters.timer_lateness.counts),
            lag_ns=lag_ns,
        )


def _rates(since: _Sample, now: _Sample) -> Rates:
    span_ns = now.at_ns - since.at_ns
    if span_ns <= 0:
        return Rates()
    span_s = span_ns / SECOND
    return Rates(
        over_s=span_s,
        events=(now.events - since.events) / span_s,
        messages=(now.messages - since.messages) / span_s,
        packets_received=(now.packets_received - since.packets_received) / span_s,
        packets_sent=(now.packets_sent - since.packets_sent) / span_s,
        bytes_received=(now.bytes_received - since.bytes_received) / span_s,
        bytes_sent=(now.bytes_sent - since.bytes_sent) / span_s,
        cpu=(now.cpu_ns - since.cpu_ns) / span_ns,
    )


def _spread(histogram: Histogram, since: Sequence[int]) -> Spread | None:
    middle, high = histogram.quantile_ns(0.5, since), histogram.quantile_ns(0.99, since)
    if middle is None or high is None:
        return None
    return Spread(sum(histogram.counts) - sum(since), middle / SECOND, high / SECOND)


def _by_kind(counts: Sequence[int]) -> dict[str, int]:
    return {name: counts[slot] for slot, name in _SLOTS if counts[slot]}


# Asking nodes for their status, all at once; whatever comes back is checked before it is shown.


_ANSWER_BYTES_MAX = 1 << 20
"""A status has some tens of kilobytes."""
_TEXT_MAX = 400
_ITEMS_MAX = 4_096
_NUMBER_MAX = 1 << 64
_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Target:
    """A node to ask: where it answers, and what the market's file says of it if there is one."""

    host: str
    port: int
    name: str = ""
    role: str = ""
    city: str = ""
    may_be_away: bool = False
    """A place that is kept for a program: nobody need be there, and a program that listens serves no status."""
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    token: str = field(default="", repr=False)
    """What a page away from loopback asks for."""

    @property
    def title(self) -> str:
        """How to call it before it has spoken."""
        return self.name or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """What a node said, or why it did not."""

    target: Target
    status: NodeStatus | None
    trouble: str = ""


def node_target(market: Market, plan: NodePlan, *, may_be_away: bool = False) -> Target:
    """The status page of a node of a market, with what it asks for where it leaves the machine."""
    tls = client_tls(market, plan.address, plan.origin)
    return Target(
        plan.address,
        plan.http_port,
        plan.name,
        plan.role.value,
        plan.place.name if plan.place else "",
        may_be_away,
        tls,
        "" if tls is None else read_status_token(market),
    )


async def poll(targets: Sequence[Target], *, seconds: float = _SECONDS) -> list[StatusAnswer]:
    """Ask all nodes at once; one that has not answered after `seconds` is unreachable."""
    return list(await asyncio.gather(*[_ask(target, seconds) for target in targets]))


async def _ask(target: Target, seconds: float) -> StatusAnswer:
    try:
        async with asyncio.timeout(seconds):
            body = await _get(target)
        return StatusAnswer(target, status_from_json(json.loads(body)))
    except TimeoutError:
        return StatusAnswer(target, None, f"no answer within {seconds:g} s")
    except ssl.SSLError as error:
        return StatusAnswer(target, None, tls_trouble(f"{target.host}:{target.port}", error))
    except OSError as error:
        code = error.errno or 0
        # The event loop puts the address into its words, which the reader has already; a resolver has words of its own.
        return StatusAnswer(target, None, os.strerror(code) if code > 0 else _printable(error.strerror or str(error)))
    except (RemoteProtocolError, ValueError, RecursionError) as error:
        return StatusAnswer(target, None, f"not a status: {_printable(str(error))}")


async def _get(target: Target) -> bytes:
    """The body of /statusz."""
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=target.tls)
    shown = f"Authorization: Bearer {target.token}\r\n" if target.token else ""
    try:
        request = f"GET /statusz HTTP/1.1\r\nHost: {target.host}\r\n{shown}Connection: close\r\n\r\n"
        writer.write(request.encode("ascii"))
        chunks: list[bytes] = []
        size = 0
        while chunk := await reader.read(65_536):
            size += len(chunk)
            if size > _ANSWER_BYTES_MAX:
                raise RemoteProtocolError("the answer is too long")
            chunks.append(chunk)
    finally:
        writer.transport.abort()
    head, end, body = b"".join(chunks).partition(b"\r\n\r\n")
    if not end or not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")):
        line = head.partition(b"\r\n")[0].decode("ascii", "replace")
        raise RemoteProtocolError(line or "the connection was closed")
    return body


# From JSON ----------------------------------------------------------------------------------------


def status_from_json(value: object) -> NodeStatus:
    """A status of any near version: unknown keys are passed over, those with a default may be missing."""
    status = _decoded(NodeStatus, value, "status")
    if not isinstance(status, NodeStatus):
        raise RemoteProtocolError("status: is not an object")
    return status


@lru_cache
def _hints(shape: type) -> Mapping[str, Any]:
    return get_type_hints(shape)


def _decoded(hint: Any, value: object, where: str) -> object:  # noqa: ANN401  # A type as annotations write it.
    """`value` as `hint` wants it, or a RemoteProtocolError that says where it is not."""
    if get_origin(hint) is UnionType:
        if value is None and NoneType in get_args(hint):
            return None
        return _decoded(next(part for part in get_args(hint) if part is not NoneType), value, where)
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return _object(hint, value, where)
    if get_origin(hint) is tuple and isinstance(value, list) and len(value) <= _ITEMS_MAX:
        item = get_args(hint)[0]
        return tuple([_decoded(item, part, f"{where}[{place}]") for place, part in enumerate(value)])
    if get_origin(hint) is dict and isinstance(value, dict) and len(value) <= _ITEMS_MAX:
        item = get_args(hint)[1]
        return {_printable(str(name)): _decoded(item, part, f"{where}.{name}") for name, part in value.items()}
    if hint is str and isinstance(value, str):
        return _printable(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX:
        return value
    # The comparison is False for "not a number", too.
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX:
        return float(value)
    raise RemoteProtocolError(f"{where}: a value of the wrong kind")


def _object(shape: type, value: Mapping[str, object], where: str) -> object:
    hints = _hints(shape)
    given: dict[str, object] = {}
    for one in fields(shape):
        if one.name in value:
            given[one.name] = _decoded(hints[one.name], value[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise RemoteProtocolError(f"{where}.{one.name}: is missing")
    return shape(**given)


def _printable(text: str) -> str:
    """Printable and short: a terminal obeys what it is shown."""
    return "".join([letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:_TEXT_MAX]])
