"""The metrics of a process: the one table of them, and pages that read plain counters when scraped.

`METRICS` says which there are; `python -m tools.metrics` writes that table as docs/reference/metrics.md.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TypeAlias

from isocast import __version__
from isocast.runtime.market.model import NodeRole
from isocast.runtime.watch.counters import Channel, Histogram, NodeCounters, NodeGauges, gauges_from, packet_slot
from isocast.terms.instants import SECOND
from isocast.wire.frame import PacketKind

__all__ = [
    "CONTENT_TYPE",
    "LABELS",
    "METRICS",
    "MODES",
    "PREFIX",
    "Channel",
    "Histogram",
    "Metric",
    "MetricType",
    "Metrics",
    "NodeCounters",
    "NodeGauges",
    "NodeIdentity",
    "NodeReading",
    "gauges_from",
    "packet_slot",
    "totals_of",
]


# ---- The one table of metrics: name, type, who has it, what it means, and where its value is.
#
# Each series carries the labels `node`, `role` and `stripe`. Only `build_info`, whose point is a version, and the
# detailed page, which splits totals by closed sets (kind, channel, reason), have more; never a symbol or an account.
# Guests have no name but an address and a key's fingerprint: the loudest few are told by them.


PREFIX = "isocast_"
MODES = {"sealed": 0, "normal": 1, "catchup": 2}
"""A receiver's mode as a number."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who a node is: what its labels and log lines say."""

    name: str
    role: NodeRole
    node_id: int
    stripe: int = 0
    city: str = ""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """Everything that the metrics of one node are made of, at one moment."""

    identity: NodeIdentity
    counters: NodeCounters
    gauges: NodeGauges
    started_s: float = 0.0
    ready: bool = False
    alarms: int = 0
    loop_lag_ns: int = 0


class MetricType(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


MetricValue: TypeAlias = float | Histogram | Mapping[tuple[str, ...], float] | None
Read: TypeAlias = Callable[[NodeReading], MetricValue]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    name: str
    type: MetricType
    roles: tuple[NodeRole, ...]
    meaning: str
    read: Read
    split_by: tuple[str, ...] = ()
    """Labels beyond the common ones."""
    detailed: bool = False
    """Only on the page /metrics/detail."""

    @property
    def full_name(self) -> str:
        """As it is scraped."""
        return PREFIX + self.name

    @property
    def roles_text(self) -> str:
        """The roles as people call them."""
        if set(self.roles) == set(NodeRole):
            return "all"
        return ", ".join(
            dict.fromkeys(f"{role.value.removeprefix('primary-').removeprefix('secondary-')}s" for role in self.roles)
        ).replace("-", " ")


def _counter(name: str, roles: tuple[NodeRole, ...], meaning: str, read: Read) -> Metric:
    return Metric(name, MetricType.COUNTER, roles, meaning, read)


def _gauge(name: str, roles: tuple[NodeRole, ...], meaning: str, read: Read) -> Metric:
    return Metric(name, MetricType.GAUGE, roles, meaning, read)


def _histogram(name: str, roles: tuple[NodeRole, ...], meaning: str, read: Read) -> Metric:
    return Metric(name, MetricType.HISTOGRAM, roles, meaning, read)


def _detail(name: str, meaning: str, read: Read, *split_by: str) -> Metric:
    return Metric(name, MetricType.COUNTER, _ALL, meaning, read, split_by, detailed=True)


def _count(attribute: str) -> Read:
    get = attrgetter(attribute)
    return lambda reading: get(reading.counters)


def _total(attribute: str) -> Read:
    get = attrgetter(attribute)
    return lambda reading: sum(get(reading.counters))


def _sent(kind: PacketKind) -> Read:
    return lambda reading: reading.counters.sent_of(kind)


def _came(kind: PacketKind) -> Read:
    return lambda reading: reading.counters.received_of(kind)


def _plan(attribute: str) -> Read:
    """A figure of the plan of lines, or how many of something it has."""

    def read(reading: NodeReading) -> float | None:
        plan = reading.gauges.line_plan
        value = None if plan is None else getattr(plan, attribute)
        return len(value) if isinstance(value, tuple) else value

    return read


def _state(attribute: str, unit: int = 1) -> Read:
    get = attrgetter(attribute)

    def read(reading: NodeReading) -> float | None:
        value = get(reading.gauges)
        return None if value is None else value / unit

    return read


def _members(reading: NodeReading) -> float | None:
    return None if reading.gauges.ring is None else len(reading.gauges.ring)


def _headed(reading: NodeReading) -> float | None:
    return None if reading.gauges.heads is None else len(reading.gauges.heads)


def _adopted(reading: NodeReading) -> float | None:
    return None if reading.gauges.adopted is None else len(reading.gauges.adopted)


def _head_replaced(reading: NodeReading) -> float | None:
    return None if reading.gauges.head is None else reading.gauges.head != reading.gauges.head_configured


def _mode(reading: NodeReading) -> float | None:
    return MODES.get(reading.gauges.mode or "")


def _waiting(reading: NodeReading) -> float:
    return reading.gauges.waiting is not None


def _unreleased(reading: NodeReading) -> float | None:
    held, released = reading.gauges.held_token, reading.gauges.released_token
    return None if held is None or released is None else max(held - released, 0)


def _resident(_reading: NodeReading) -> float:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # A Path costs more than the read itself.
        return int(file.read().split()[1]) * resource.getpagesize()


def _by_slot(attribute: str) -> Read:
    get = attrgetter(attribute)

    def read(reading: NodeReading) -> Mapping[tuple[str, ...], float]:
        counts: list[int] = get(reading.counters)
        found = {(c.name.lower(), k.name): counts[packet_slot(c, k)] for c in Channel for k in PacketKind}
        return {labels: count for labels, count in found.items() if count}

    return read


def _by_channel(attribute: str) -> Read:
    get = attrgetter(attribute)
    return lambda reading: {(channel.name.lower(),): get(reading.counters)[channel] for channel in Channel}


def _by_reason(reading: NodeReading) -> Mapping[tuple[str, ...], float]:
    return {(reason.value,): count for reason, count in reading.counters.suspicions.items()}


def _by_fault(reading: NodeReading) -> Mapping[tuple[str, ...], float]:
    return {(fault.value,): count for fault, count in reading.counters.refused_certificates.items()}


def _by_purpose(reading: NodeReading) -> Mapping[tuple[str, ...], float]:
    return {(kind.name.lower(),): count for kind, count in reading.counters.refused_signatures.items()}


_ALL = tuple(NodeRole)
_RECEIVERS = (NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER)
_PRIMARY = (NodeRole.PRIMARY_RECEIVER,)
_SOURCES = (NodeRole.PRIMARY_SOURCE, NodeRole.SECONDARY_SOURCE)
_PRIMARIES = (NodeRole.PRIMARY_RECEIVER,)
_SECONDARIES = (NodeRole.SECONDARY_RECEIVER,)
_SERVERS = (NodeRole.REFORMATION_SERVER,)
_ARCHIVES = (NodeRole.RETRANSMIT_SERVER,)
_CUSTOMERS = (NodeRole.CUSTOMER,)
_EDGE = (*_CUSTOMERS, *_ARCHIVES)
_PLANNED = (*_RECEIVERS, *_SERVERS, *_EDGE)
_RING = (*_RECEIVERS, *_SERVERS)
_DURABLE = (*_RECEIVERS, *_SOURCES, *_SERVERS, *_ARCHIVES)

METRICS: tuple[Metric, ...] = (
    # The process
    Metric(
        "build_info",
        MetricType.GAUGE,
        _ALL,
        "1; its label `version` says which program this is",
        lambda _: {(__version__,): 1.0},
        ("version",),
    ),
    _gauge("start_time_seconds", _ALL, "when the process started, Unix time", lambda r: r.started_s),
    _gauge("ready", _ALL, "1 if /readyz says so", lambda r: r.ready),
    _gauge("loop_lag_seconds", _ALL, "longest lateness of the event loop, last 10 s", lambda r: r.loop_lag_ns / SECOND),
    _counter("cpu_seconds_total", _ALL, "processor time of the process", lambda _: time.process_time()),
    _gauge("resident_bytes", _ALL, "memory of the process in RAM", _resident),
    _counter("alarms_total", _ALL, "alarms raised; /statusz lists them with what to do", lambda r: r.alarms),
    _counter("http_requests_total", _ALL, "requests answered by this page's server", _count("http_requests")),
    _counter("http_refused_total", _ALL, "requests refused: malformed, too long, too slow", _count("http_refused")),
    _histogram("timer_lateness_seconds", _ALL, "how late timers fired", _count("timer_lateness")),
    # The clock
    _gauge("clock_synchronised", _ALL, "1 if the kernel calls its clock synchronised", _state("clock_synchronised")),
    _gauge("clock_bound_seconds", _ALL, "ε: the clock's error bound that counts", _state("clock_bound_ns", SECOND)),
    _gauge("clock_trusted", _ALL, "0 once the clock is proven outside its bound", _state("clock_trusted")),
    # Packets
    _counter("packets_received_total", _ALL, "packets accepted", _total("packets_received")),
    _counter("packets_sent_total", _ALL, "packets sent", _total("packets_sent")),
    _counter("bytes_received_total", _ALL, "bytes of all datagrams that came", _total("bytes_received")),
    _counter("bytes_sent_total", _ALL, "bytes of all datagrams sent", _total("bytes_sent")),
    _counter("data_received_total", _RECEIVERS, "DATA packets accepted", _came(PacketKind.DATA)),
    _counter("data_sent_total", _SOURCES, "DATA packets sent, repeated ones included", _sent(PacketKind.DATA)),
    _counter("kernel_drops_total", _ALL, "datagrams that a full receive buffer dropped", _total("kernel_drops")),
    _counter("filtered_packets_total", _ALL, "datagrams that the kernel's filters dropped", _count("filtered")),
    _counter("unsent_packets_total", _ALL, "datagrams that the kernel did not take", _count("unsent")),
    _counter(
        "authentication_failures_total", _ALL, "packets with a wrong tag, dropped", _count("authentication_failures")
    ),
    _counter(
        "refused_signatures_total",
        _ALL,
        "packets whose signature is missing or another's, dropped",
        lambda r: sum(r.counters.refused_signatures.values()),
    ),
    _counter(
        "refused_certificates_total",
        _ALL,
        "certificates of other nodes' doors that do not count: not pinned, of another authority, out of time",
        lambda r: sum(r.counters.refused_certificates.values()),
    ),
    _counter(
        "convictions_total", _RING, "sites proven to have signed two contents for one token", _count("convictions")
    ),
    _counter("malformed_packets_total", _ALL, "packets that break a rule of the wire, dropped", _count("malformed")),
    _counter(
        "unknown_senders_total",
        _ALL,
        "packets from senders that are not in the market, dropped",
        _count("unknown_senders"),
    ),
    _counter("another_market_packets_total", _ALL, "packets of another market, dropped", _count("another_market")),
    _counter("unpaid_packets_total", _EDGE, "packets of a period or service that was not bought", _count("unpaid")),
    _counter("unaddressed_packets_total", _ALL, "packets not for this role or stripe, dropped", _count("unaddressed")),
    _counter("injected_losses_total", _ALL, "packets lost on purpose (demo, lab)", _count("injected_losses")),
    # The ring
    _gauge("ring_epoch", _RING, "number of the newest ring's ballot", _state("epoch_number")),
    _gauge("ring_members", _RING, "receivers on the ring", _members),
    _gauge("ring_members_configured", _RING, "receivers that the market has: |U|", _state("ring_configured")),
    _gauge("ring_uncertified", _RECEIVERS, "1 if the ring began without a majority of U", _state("uncertified")),
    _gauge("leaving", _PRIMARIES, "1 if an operator wants the node off the ring", _state("leaving")),
    _gauge("ring_mode", _RECEIVERS, "0 sealed, 1 normal, 2 catching up", _mode),
    _counter("reformations_total", _RING, "rings installed or decided", _count("reformations")),
    _counter("suspicions_total", _RECEIVERS, "suspicions raised", lambda r: sum(r.counters.suspicions.values())),
    _gauge("ballot_number", _SERVERS, "number of the highest ballot seen", _state("ballot_number")),
    _gauge("ballot_votes", _SERVERS, "JOINs of the ballot under way", _state("ballot_votes")),
    _counter("token_passes_total", _RECEIVERS, "tokens that this node sent as their owner", _count("tokens_sent")),
    _counter("tokens_accepted_total", _RECEIVERS, "tokens complete with their messages", _count("tokens_accepted")),
    _gauge("token_age_seconds", (*_RECEIVERS, *_SOURCES), "since the newest token", _state("token_age_ns", SECOND)),
    _gauge("held_token", _RECEIVERS, "h: everything up to this token is here", _state("held_token")),
    _gauge("certified_token", _RECEIVERS, "a majority is known to hold it", _state("certified_token")),
    _gauge("released_token", _RECEIVERS, "newest token released in full", _state("released_token")),
    _gauge("collected_token", _RECEIVERS, "newest token that left memory", _state("collected_token")),
    _gauge("secondary_stable_token", _RECEIVERS, "the secondary group holds it", _state("secondary_stable_token")),
    _gauge("groups_headed", _RECEIVERS, "secondary groups that this node heads", _headed),
    _gauge("members_adopted", _RECEIVERS, "of other groups, counted while their head is silent", _adopted),
    _gauge("head_replaced", _SECONDARIES, "1 while another than the file's heads it", _head_replaced),
    _counter(
        "head_changes_total", _RECEIVERS, "groups taken or handed on; changes of its head", _count("head_changes")
    ),
    _gauge("acknowledged_unreleased", _RECEIVERS, "tokens held and not released yet", _unreleased),
    _gauge("waiting_messages", _RECEIVERS, "messages that no token has named yet", _state("waiting_messages")),
    _counter("window_drops_total", _RECEIVERS, "messages outside their source's window", _state("dropped_messages")),
    _counter("nacks_sent_total", _RECEIVERS, "requests for what is missing", _sent(PacketKind.NACK)),
    _counter("nacks_received_total", _RECEIVERS, "requests of others", _came(PacketKind.NACK)),
    _counter("repairs_total", (*_RECEIVERS, *_ARCHIVES), "packets sent again on request", _sent(PacketKind.REPAIR)),
    _counter("repairs_received_total", (*_RECEIVERS, *_CUSTOMERS), "packets got on request", _came(PacketKind.REPAIR)),
    _counter("receipts_sent_total", _RECEIVERS, "receipts sent", _sent(PacketKind.RECEIPT)),
    _counter("receipts_received_total", _RECEIVERS, "receipts of others", _came(PacketKind.RECEIPT)),
    # Releases
    _gauge(
        "next_sequence", (*_RECEIVERS, *_CUSTOMERS), "sequence of the next message to come", _state("next_sequence")
    ),
    _counter("messages_released_total", _RECEIVERS, "messages released", _count("messages_released")),
    _counter("events_released_total", _RECEIVERS, "market events released", _count("events_released")),
    _histogram("release_lateness_seconds", _RECEIVERS, "release after its instant", _count("release_lateness")),
    _histogram("submit_to_release_seconds", _RECEIVERS, "publish to release, if known", _count("submit_to_release")),
    _counter("late_releases_total", _RECEIVERS, "messages released later than P; 0 is right", _count("late_releases")),
    _counter("early_releases_total", _RECEIVERS, "messages released too early; 0 is right", _count("early_releases")),
    _counter("fairness_faults_total", _RECEIVERS, "tokens held at their instant", _count("fairness_faults")),
    _counter("divergences_total", _RECEIVERS, "releases that a ring contradicts; 0 is right", _count("divergences")),
    _counter("sequences_diverged_total", _RECEIVERS, "sequences of them; 0 is right", _count("sequences_diverged")),
    _counter(
        "void_messages_total", _RECEIVERS, "messages whose key was not disclosed in time", _count("void_messages")
    ),
    _counter("unopened_payloads_total", _RECEIVERS, "payloads that failed authentication", _count("unopened_payloads")),
    _counter(
        "forged_messages_total",
        _SOURCES,
        "messages in its name, in the sequence, that it never sent; 0 is right",
        _count("forged_messages"),
    ),
    # Floors
    _counter(
        "floor_messages_refused_total",
        _RECEIVERS,
        "messages of floors that their sources may not send; 0 is right",
        _count("floor_messages_refused"),
    ),
    _counter("floor_trades_total", _PRIMARY, "trades of floors, computed here", _count("floor_trades")),
    _counter("floor_trades_confirmed_total", _PRIMARY, "of them confirmed", _count("floor_trades_confirmed")),
    _counter("floor_trades_busted_total", _PRIMARY, "of them void; 0 is right", _count("floor_trades_busted")),
    _counter("floor_reports_total", _PRIMARY, "reports of its arbiters that a source took", _count("floor_reports")),
    _counter(
        "floor_prints_total", _PRIMARY, "batches of trades for the tape that a source took", _count("floor_prints")
    ),
    # Ways in
    _counter("publishes_accepted_total", _SOURCES, "batches taken into the outbox", _count("publishes_accepted")),
    _counter(
        "publishes_rejected_total",
        _SOURCES,
        "batches refused; the publisher was notified",
        _count("publishes_rejected"),
    ),
    _counter("events_published_total", _SOURCES, "market events taken", _count("events_published")),
    _gauge("outbox_unacknowledged", _SOURCES, "batches without a token", _state("outbox_unacknowledged")),
    _gauge("outbox_unstable", _SOURCES, "batches that some receiver may lack", _state("outbox_unstable")),
    _gauge("outbox_window", _SOURCES, "batches that may be unacknowledged", _state("outbox_window")),
    _gauge(
        "parent_answers",
        (NodeRole.SECONDARY_SOURCE,),
        "secondary: 1 if the parent takes what it is offered",
        _state("parent_answers"),
    ),
    # Disks
    _counter(
        "journal_bytes_total",
        (*_RECEIVERS, *_ARCHIVES, *_CUSTOMERS),
        "bytes written to the journal",
        _count("journal_bytes"),
    ),
    _counter(
        "journal_alarms_total", (*_RECEIVERS, *_ARCHIVES), "writes to the journal that failed", _count("journal_alarms")
    ),
    _counter(
        "journal_prune_failures_total",
        (*_RECEIVERS, *_ARCHIVES, *_CUSTOMERS),
        "times that retention could not remove old segments; 0 is right",
        _count("journal_prune_failures"),
    ),
    _counter("store_bytes_total", _DURABLE, "bytes of protocol state written", _count("store_bytes")),
    _counter("store_alarms_total", _DURABLE, "writes of state that failed", _count("store_alarms")),
    # Ways out
    _gauge("clients", (*_RECEIVERS, *_SOURCES, *_ARCHIVES), "connections that are open", _state("clients")),
    _gauge("guests", (*_RECEIVERS, *_ARCHIVES), "of these, listeners without a seat", _state("guests")),
    _counter("ranges_served_total", (*_RECEIVERS, *_ARCHIVES), "requests for ranges answered", _count("ranges_served")),
    _counter(
        "ranges_refused_total", (*_RECEIVERS, *_ARCHIVES), "requests for ranges refused", _count("ranges_refused")
    ),
    _gauge("archive_first_sequence", _ARCHIVES, "oldest message still kept", _state("archive_first_sequence")),
    _gauge("archive_next_sequence", _ARCHIVES, "one past the newest kept", _state("archive_next_sequence")),
    _gauge("stripe_plan_version", _RECEIVERS, "stripe plan that its narrow stripes follow", _state("stripe_plan")),
    _gauge(
        "stripe_packets", _RECEIVERS, "packets of narrow stripes since their process began", _state("stripe_packets")
    ),
    _gauge("stripe_packets_waiting", _RECEIVERS, "packets of narrow stripes not sent yet", _state("stripe_waiting")),
    _gauge("stripe_events_conflated", _RECEIVERS, "events left out for newer ones", _state("stripe_conflated")),
    _gauge(
        "stripe_lateness_seconds",
        _RECEIVERS,
        "mean lateness of packets against their instants",
        _state("stripe_late_ns", SECOND),
    ),
    _gauge("line_plan_epoch", _PLANNED, "ballot number of the plan of lines in force here", _plan("ballot")),
    _gauge("line_scope_km", _RECEIVERS, "how far its line reaches by the plan; 0 is silent", _plan("radius_km")),
    _gauge("line_groups_draining", _PLANNED, "groups that rest before they are used again", _plan("draining")),
    _gauge("lines_planned", _EDGE, "receivers that it hears by the plan", _plan("sources")),
    _gauge("customers_short", _SERVERS, "customers who hear too few lines by the plan; 0 is right", _plan("short")),
    _counter(
        "out_of_reach_total", _EDGE, "packets of lines whose scope does not cover this node", _count("out_of_reach")
    ),
    _gauge("lines_heard", _CUSTOMERS, "lines that carried something lately", _state("lines_heard")),
    _gauge("lines_configured", _CUSTOMERS, "lines that there are", _state("lines_configured")),
    _counter("messages_received_total", _CUSTOMERS, "messages in sequence, once each", _count("messages_received")),
    _counter("events_received_total", _CUSTOMERS, "market events in sequence, once each", _count("events_received")),
    _counter("line_duplicates_total", _CUSTOMERS, "later copies from other lines", _count("duplicates")),
    _counter("line_switches_total", _EDGE, "times that another line was followed than before", _count("line_switches")),
    _counter("line_conflicts_total", _EDGE, "copies with other content: an alarm; 0 is right", _count("conflicts")),
    _counter("line_forgeries_total", _EDGE, "packets that no owner of a line signed, dropped", _count("forged")),
    _counter(
        "line_proofs_differing_total",
        _EDGE,
        "tokens for which two lines signed different messages: an alarm; 0 is right",
        _count("proofs_differing"),
    ),
    _counter("line_unproven_total", _EDGE, "messages whose proof did not come in time", _count("unproven")),
    _counter("line_unverified_total", _EDGE, "proofs beyond a line's share, not looked at", _count("unverified")),
    _gauge("ring_waiting", _EDGE, "1 while the ring re-forms or no line is received", _waiting),
    _gauge("sequence_gaps", _CUSTOMERS, "gaps that are open now; 0 is right", _state("sequence_gaps")),
    _counter("gaps_seen_total", _CUSTOMERS, "gaps that outlived the lines' skew", _count("gaps_seen")),
    _counter("gaps_repaired_total", _CUSTOMERS, "gaps closed by a retransmit server", _count("gaps_repaired")),
    _counter("messages_skipped_total", _CUSTOMERS, 'passed over by "latest only"', _count("messages_skipped")),
    # Totals split by closed sets
    _detail("received_by_kind_total", "packets accepted", _by_slot("packets_received"), "channel", "kind"),
    _detail("sent_by_kind_total", "packets sent", _by_slot("packets_sent"), "channel", "kind"),
    _detail("received_by_channel_bytes_total", "bytes that came", _by_channel("bytes_received"), "channel"),
    _detail("sent_by_channel_bytes_total", "bytes sent", _by_channel("bytes_sent"), "channel"),
    _detail("kernel_drops_by_channel_total", "datagrams dropped", _by_channel("kernel_drops"), "channel"),
    _detail(
        "refused_by_address_total",
        "datagrams that were refused; the 8 noisiest addresses",
        lambda reading: reading.counters.refused_by_address,
        "address",
    ),
    _detail(
        "guest_throttles_total",
        "requests that had to wait for the share of an address and key; the 16 loudest",
        lambda reading: reading.counters.guest_throttles,
        "address",
        "key",
    ),
    _detail("refused_signatures_by_kind_total", "packets with a wrong signature, dropped", _by_purpose, "kind"),
    _detail("refused_certificates_by_fault_total", "certificates of doors that do not count", _by_fault, "fault"),
    _detail("suspicions_by_reason_total", "suspicions raised", _by_reason, "reason"),
)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABELS = ("node", "role", "stripe")
_ROWS_AT_ONCE = 8
"""Some 100 µs: no release waits longer for a scrape."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """The metrics of a process, as Prometheus reads them: its text format, version 0.0.4."""

    def __init__(self, read: Callable[[], Sequence[NodeReading]]) -> None:
        """`read` gives every node of the process; it is called once for each page."""
        self._read = read

    def parts(self, *, detailed: bool) -> Iterator[bytes]:
        """/metrics, or /metrics/detail, piece by piece: between two of them others may run."""
        readings = self._read()
        rows = [row for row in METRICS if detailed or not row.detailed]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield "".join([_family(row, readings) for row in rows[start : start + _ROWS_AT_ONCE]]).encode()

    def page(self) -> bytes:
        """Few series: /metrics."""
        return b"".join(self.parts(detailed=False))


def _family(row: Metric, readings: Sequence[NodeReading]) -> str:
    """A row with its series of every node; nothing if it applies to none of them."""
    series = [
        line
        for reading in readings
        if reading.identity.role in row.roles
        for line in _series(row, _labels(reading.identity), row.read(reading))
    ]
    head = f"# HELP {row.full_name} {row.meaning}\n# TYPE {row.full_name} {row.type.value}\n"
    return head + "".join(series) if series else ""


def _series(row: Metric, labels: Mapping[str, str], value: MetricValue) -> Iterator[str]:
    match value:
        case None:
            return
        case Histogram():
            bounds = [*(repr(bound_ns / SECOND) for bound_ns in value.bounds_ns), "+Inf"]
            counts = value.cumulative()
            for bound, count in zip(bounds, counts, strict=True):
                yield _sample(f"{row.full_name}_bucket", {**labels, "le": bound}, count)
            yield _sample(f"{row.full_name}_count", labels, counts[-1])
            yield _sample(f"{row.full_name}_sum", labels, value.total_ns / SECOND)
        case Mapping():
            for more, part in value.items():
                yield _sample(row.full_name, {**labels, **dict(zip(row.split_by, more, strict=True))}, part)
        case _:
            yield _sample(row.full_name, labels, value)


def _labels(who: NodeIdentity) -> dict[str, str]:
    return dict(zip(LABELS, (who.name, who.role.value, str(who.stripe)), strict=True))


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join([f'{label}="{said.translate(_ESCAPES)}"' for label, said in labels.items()])
    return f"{name}{{{text}}} {float(value)!r}\n"


def totals_of(reading: NodeReading) -> dict[str, float]:
    """Every everyday counter by its name without the prefix, for /statusz."""
    totals: dict[str, float] = {}
    for row in METRICS:
        if row.type is MetricType.COUNTER and not row.detailed and reading.identity.role in row.roles:
            value = row.read(reading)
            if isinstance(value, (int, float)):
                totals[row.name] = value
    return totals
