"""Counters become metrics when somebody asks: complete, well-formed, documented."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from isocast import __version__
from isocast.nodes.primary_receiver import PrimaryReceiverSnapshot
from isocast.reformation.forming import ServerSnapshot, Stage
from isocast.reformation.member import MemberSnapshot
from isocast.ring.receiver import Mode, ReceiverSnapshot
from isocast.ring.source import PrimarySourceSnapshot
from isocast.runtime.market.model import NodeRole
from isocast.runtime.watch.counters import (
    LATENCY_BOUNDS_NS,
    LATENESS_BOUNDS_NS,
    Channel,
    Histogram,
    NodeCounters,
    NodeGauges,
    gauges_from,
    packet_slot,
)
from isocast.runtime.watch.metrics import (
    LABELS,
    METRICS,
    Metrics,
    MetricType,
    NodeIdentity,
    NodeReading,
    totals_of,
)
from isocast.terms.ids import Epoch
from isocast.wire.frame import PacketKind
from isocast.wire.packets import NO_DIGEST, Suspicion

ROOT = Path(__file__).parents[3]
RECEIVER = NodeIdentity("london", NodeRole.PRIMARY_RECEIVER, 3, stripe=1, city="London")


def reading(
    who: NodeIdentity = RECEIVER, gauges: NodeGauges | None = None, counters: NodeCounters | None = None
) -> NodeReading:
    return NodeReading(who, counters or NodeCounters(), gauges or NodeGauges())


def scraped(page: Callable[[Metrics], bytes], *readings: NodeReading) -> dict[str, Metric]:
    text = page(Metrics(lambda: list(readings))).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], name: str) -> float:
    (sample,) = families[f"isocast_{name}"].samples
    return sample.value


# ---- the table


def series_names() -> frozenset[str]:
    """Every name that a query may use, those of histograms' parts included."""
    names: set[str] = set()
    for row in METRICS:
        parts = ("_bucket", "_sum", "_count") if row.type is MetricType.HISTOGRAM else ("",)
        names.update(row.full_name + part for part in parts)
    return frozenset(names)


def test_every_name_is_used_once_and_follows_the_rules() -> None:
    names = [row.name for row in METRICS]
    assert len(set(names)) == len(names)
    for row in METRICS:
        assert re.fullmatch(r"[a-z][a-z_]+[a-z]", row.name), row.name
        assert row.name.endswith("_total") == (row.type is MetricType.COUNTER), row.name
        assert not re.search(r"_(ns|ms|us|milliseconds|bits)(_|$)", row.name), "base units"
        assert row.roles
        assert row.meaning


def test_the_names_that_people_expect_are_there() -> None:
    expected = (
        "token_passes_total nacks_sent_total repairs_total reformations_total ring_epoch ring_members"
        " late_releases_total sequence_gaps acknowledged_unreleased build_info release_lateness_seconds_bucket"
    )
    assert {f"isocast_{name}" for name in expected.split()} <= series_names()


def test_every_counter_of_the_driver_is_in_some_metric() -> None:
    """Raise one counter at a time: some series must notice."""

    def shown(counters: NodeCounters) -> list[object]:
        everybody = [reading(NodeIdentity("n", role, 1), counters=counters) for role in NodeRole]
        rows = [row for row in METRICS if row.name not in ("cpu_seconds_total", "resident_bytes")]
        got = [row.read(one) for row in rows for one in everybody if one.identity.role in row.roles]
        return [part.counts[:] if isinstance(part, Histogram) else part for part in got]

    quiet = shown(NodeCounters())
    for field in fields(NodeCounters):
        counters = NodeCounters()
        match getattr(counters, field.name):
            case int():
                setattr(counters, field.name, 1)
            case Histogram() as histogram:
                histogram.observe(1)
            case dict() as by_reason:
                by_reason[Suspicion.CLOCK] = 1
            case list() as numbers:
                numbers[packet_slot(Channel.DIRECT, PacketKind.NACK) if len(numbers) > len(Channel) else 0] = 1
            case _:
                continue  # Marks are for the status only.
        assert shown(counters) != quiet, field.name


def test_every_gauge_that_is_a_number_is_in_some_metric() -> None:
    shown_elsewhere = {
        "heads",
        "adopted",
        "head",
        "head_configured",
        "epoch",
        "ring",
        "universe",
        "ring_first_token",
        "ring_start_ns",
        "mode",
        "clock_source",
        "owns_token",
        "line_followed",
        "line_plan",
        "waiting",
        "edge_waits",
        "guests_throttled",
    }
    for field in fields(NodeGauges):
        if field.name in shown_elsewhere:
            continue
        gauges = NodeGauges(held_token=0, released_token=0)
        setattr(gauges, field.name, 7)
        values = [row.read(reading(gauges=gauges)) for row in METRICS]
        assert any(part in (7, 7 / 1e9) for part in values if isinstance(part, (int, float))), field.name


# ---- a scrape


def test_a_scrape_parses_and_carries_the_three_labels_and_no_others() -> None:
    families = scraped(Metrics.page, reading(gauges=NodeGauges(held_token=9)))
    assert len(families) > 40
    for family in families.values():
        for sample in family.samples:
            extra = {"le"} if sample.name.endswith("_bucket") else set()
            extra |= {"version"} if family.name == "isocast_build_info" else set()
            assert set(sample.labels) == {*LABELS, *extra}
            assert (sample.labels["node"], sample.labels["stripe"]) == ("london", "1")
    assert families["isocast_build_info"].samples[0].labels["version"] == __version__


def test_a_scrape_reads_the_counters_of_that_moment() -> None:
    counters = NodeCounters()
    metrics = Metrics(lambda: [reading(counters=counters)])

    def nacks() -> float:
        return value({one.name: one for one in text_string_to_metric_families(metrics.page().decode())}, "nacks_sent")

    assert nacks() == 0
    counters.packets_sent[packet_slot(Channel.DIRECT, PacketKind.NACK)] += 2
    counters.packets_sent[packet_slot(Channel.CONTROL, PacketKind.NACK)] += 1
    assert nacks() == 3


def test_what_does_not_apply_to_a_role_is_absent() -> None:
    customer = scraped(Metrics.page, reading(NodeIdentity("c", NodeRole.CUSTOMER, 9)))
    assert "isocast_token_passes" not in customer
    assert "isocast_gaps_seen" in customer
    receiver = scraped(Metrics.page, reading())
    assert "isocast_gaps_seen" not in receiver
    assert "isocast_held_token" not in receiver, "not known yet"


def test_names_that_need_it_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    families = scraped(Metrics.page, reading(NodeIdentity(odd, NodeRole.CUSTOMER, 9)))
    assert families["isocast_ready"].samples[0].labels["node"] == odd


def test_nodes_of_one_process_share_a_scrape() -> None:
    families = scraped(Metrics.page, reading(), reading(NodeIdentity("paris", NodeRole.PRIMARY_RECEIVER, 4)))
    assert [one.labels["node"] for one in families["isocast_ready"].samples] == ["london", "paris"]


def test_prometheus_own_client_reads_the_page_and_writes_the_same_lines() -> None:
    counters = NodeCounters()
    counters.timer_lateness.observe(30_000)
    counters.kernel_drops[Channel.DATA] = 3
    page = b"".join(Metrics(lambda: [reading(counters=counters)]).parts(detailed=True)).decode()
    families = list(text_string_to_metric_families(page))
    assert {family.type for family in families} == {"counter", "gauge", "histogram"}
    theirs = generate_latest(SimpleNamespace(collect=lambda: families)).decode()
    # They write large numbers with exponents, and some versions sort the labels.
    assert [numbers(line) for line in theirs.splitlines()] == [numbers(line) for line in page.splitlines()]


def numbers(line: str) -> str:
    head, _, value = line.rpartition(" ")
    name, _, labels = head.partition("{")
    return line if line.startswith("#") else f"{name} {sorted(labels.rstrip('}').split(','))} {float(value)}"


def test_the_detailed_page_splits_totals_that_the_everyday_page_sums() -> None:
    counters = NodeCounters()
    counters.packets_received[packet_slot(Channel.CONTROL, PacketKind.TOKEN)] = 5
    counters.packets_received[packet_slot(Channel.DATA, PacketKind.DATA)] = 7
    counters.kernel_drops[Channel.DATA] = 3
    counters.suspicions[Suspicion.LATE] = 1
    everyday = scraped(Metrics.page, reading(counters=counters))
    detailed = scraped(lambda metrics: b"".join(metrics.parts(detailed=True)), reading(counters=counters))
    assert set(everyday) < set(detailed)
    assert value(everyday, "packets_received") == 12
    kinds = {
        (one.labels["channel"], one.labels["kind"]): one.value for one in detailed["isocast_received_by_kind"].samples
    }
    assert kinds == {("control", "TOKEN"): 5, ("data", "DATA"): 7}
    drops = {one.labels["channel"]: one.value for one in detailed["isocast_kernel_drops_by_channel"].samples}
    assert drops == {"direct": 0, "control": 0, "data": 3, "line": 0}
    reasons = {one.labels["reason"]: one.value for one in detailed["isocast_suspicions_by_reason"].samples}
    assert reasons == {reason.value: int(reason is Suspicion.LATE) for reason in Suspicion}


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    counters = NodeCounters()
    for lateness_ns, count in ((9_000, 2), (10_000, 1), (10_001, 4), (10**12, 3)):
        counters.release_lateness.observe(lateness_ns, count)
    family = scraped(Metrics.page, reading(counters=counters))["isocast_release_lateness_seconds"]
    buckets = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert (buckets["1e-05"], buckets["2e-05"], buckets["10.0"], buckets["+Inf"]) == (3, 7, 7, 10)
    parts = {one.name.rpartition("_")[2]: one.value for one in family.samples if "le" not in one.labels}
    assert parts["count"] == 10
    assert parts["sum"] == pytest.approx((18_000 + 10_000 + 40_004 + 3 * 10**12) / 1e9)


def test_totals_are_the_counters_of_the_everyday_page() -> None:
    counters = NodeCounters(late_releases=4)
    totals = totals_of(reading(counters=counters))
    assert totals["late_releases_total"] == 4
    assert "gaps_seen_total" not in totals
    assert all(name.endswith("_total") for name in totals)


# ---- counters


def test_quantiles_are_the_bounds_that_hold_them() -> None:
    histogram = Histogram(LATENESS_BOUNDS_NS)
    assert histogram.quantile_ns(0.5) is None
    histogram.observe(15_000, 98)
    histogram.observe(3_000_000, 2)
    assert (histogram.quantile_ns(0.5), histogram.quantile_ns(0.98)) == (20_000, 20_000)
    assert histogram.quantile_ns(0.99) == 5_000_000
    since = histogram.counts[:]
    assert histogram.quantile_ns(0.5, since) is None
    histogram.observe(10**15)
    assert histogram.quantile_ns(0.5, since) == 2 * LATENESS_BOUNDS_NS[-1]


@pytest.mark.parametrize("bounds", [LATENESS_BOUNDS_NS, LATENCY_BOUNDS_NS])
def test_bounds_rise(bounds: tuple[int, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def released(counters: NodeCounters, token_number: int, lateness_ns: int) -> None:
    counters.released(
        token_number=token_number,
        first_sequence=10 * token_number,
        messages=3,
        events=100,
        due_ns=1_000_000,
        now_ns=1_000_000 + lateness_ns,
        late_after_ns=50_000,
    )


def test_a_release_is_counted_once_and_judged_by_its_instant() -> None:
    counters = NodeCounters()
    released(counters, 1, 0)
    released(counters, 1, 50_000)
    released(counters, 2, 50_001)
    released(counters, 3, -1)
    assert (counters.messages_released, counters.events_released) == (12, 400)
    assert (counters.late_releases, counters.early_releases) == (3, 3)
    assert counters.release_lateness.count == 12
    assert [(mark.token_number, mark.sequence, mark.at_ns) for mark in counters.release_marks] == [
        (1, 10, 1_000_000),
        (2, 20, 1_050_001),
        (3, 30, 999_999),
    ]


def test_only_the_newest_marks_are_kept() -> None:
    counters = NodeCounters()
    for token_number in range(1_000):
        released(counters, token_number, 0)
    assert [mark.token_number for mark in counters.release_marks] == list(range(936, 1_000))


def test_slots_of_channels_and_kinds_never_meet() -> None:
    slots = {packet_slot(channel, kind) for channel in Channel for kind in PacketKind}
    assert len(slots) == len(Channel) * len(PacketKind)
    assert max(slots) < len(NodeCounters().packets_sent)


def test_gauges_come_from_every_kind_of_snapshot() -> None:
    epoch = Epoch(3, 65_537)
    receiver = ReceiverSnapshot(3, Mode.NORMAL, epoch, epoch, 9, NO_DIGEST, 8, 7, 2, 5, 1, None)
    gauges = gauges_from(PrimaryReceiverSnapshot(receiver, MemberSnapshot(None, None)))
    assert gauges == gauges_from(receiver)
    assert (gauges.epoch, gauges.epoch_number, gauges.mode) == ("3.1", 3, "normal")
    assert (gauges.held_token, gauges.certified_token, gauges.released_token, gauges.collected_token) == (9, 8, 7, 2)
    assert (gauges.waiting_messages, gauges.dropped_messages) == (5, 1)
    source = gauges_from(PrimarySourceSnapshot(1 << 32, 12, 4, 6, 8, 1024))
    assert (source.outbox_unacknowledged, source.outbox_unstable, source.outbox_window) == (6, 8, 1024)
    server = gauges_from(ServerSnapshot(65_537, Stage.INVITING, Epoch(4, 65_537), epoch, 2))
    assert (server.mode, server.epoch, server.ballot_number, server.ballot_votes) == ("inviting", "3.1", 4, 2)
    assert gauges_from(object()) == NodeGauges()


# ---- documents


@pytest.mark.parametrize("file", ["grafana/dashboard.json", "grafana/alerts.yml", "docs/how-to/monitor.md"])
def test_every_metric_that_is_named_exists(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    named = set(re.findall(r"\bisocast_[a-z_]+", text))
    assert named
    assert named <= series_names(), named - series_names()


def test_the_dashboard_has_panels_with_queries_in_places_of_their_own() -> None:
    board = json.loads((ROOT / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) >= 10
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", []):
            assert "isocast_" in target["expr"]


def test_alerts_cover_what_must_be_zero() -> None:
    text = (ROOT / "grafana" / "alerts.yml").read_text(encoding="utf-8")
    for name in ("late_releases_total", "sequence_gaps", "ring_members", "kernel_drops_total", "clock_trusted"):
        assert f"isocast_{name}" in text
    assert text.count("- alert:") == text.count("expr:") == text.count("summary:")
