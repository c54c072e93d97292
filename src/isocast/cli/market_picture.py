"""What follows from a market file, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence

from isocast.cli.coverage_picture import coverage_as_json, coverage_text, show_coverage
from isocast.cli.render import line, show_table
from isocast.runtime.market.model import Market, NetworkMode, NodePlan
from isocast.runtime.market.rules import slowest_pair
from isocast.terms import formulas
from isocast.terms.errors import ConfigurationError
from isocast.terms.formulas import Formula, number
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted, duration_text, size_text
from isocast.wire.limits import EVENT_BYTES

__all__ = ["faults_as_json", "market_as_json", "show_market"]

_GIVEN = (
    ("δ_N", "detect", "a token later than this is taken for lost"),
    ("X", "transmit", "to transmit a request and its answer"),
    ("P", "process", "to process a request and its answer"),
    ("ε", "clock_error", "no clock is further from true time"),
)


def faults_as_json(faults: Sequence[ConfigurationError]) -> dict[str, object]:
    """Everything that is wrong with a file."""
    return {
        "sound": False,
        "faults": [{"file": fault.file, "key": fault.key, "rule": fault.rule} for fault in faults],
    }


def market_as_json(market: Market, warnings: Sequence[str]) -> dict[str, object]:
    """All that follows from a sound file."""
    timing = market.timing
    times = {f"{name}_ns": getattr(timing, f"{name}_ns") for _, name, _ in _GIVEN}
    derived = ("retry", "token_period", "release_delay", "secondary_detect", "secondary_retry")
    times |= {f"{name}_ns": getattr(timing, f"{name}_ns") for name in derived}
    return {
        "sound": True,
        "name": market.name,
        "profile": market.profile,
        "gate": timing.gate.value,
        "stripes": list(market.stripes),
        "stripe_plan": str(market.stripe_plan) if market.stripe_plan is not None else None,
        "nodes": [_node_json(market, plan) for plan in market.nodes],
        "groups": [{"what": what, "address": address} for what, address in _groups(market)],
        "port": market.network.port,
        "mode": market.network.mode.value,
        "payload_bytes": market.payload_bytes,
        "events_per_payload": market.events_per_payload,
        "times": times,
        "formulas": [
            {"meaning": meaning, "symbol": f.symbol, "formula": f.symbols, "numbers": f.numbers, "value": value}
            for meaning, f, value in _times(market)
        ],
        "data": str(market.data_directory),
        "keys": str(market.keys_directory),
        "coverage": coverage_as_json(market),
        "warnings": list(warnings),
    }


def _node_json(market: Market, plan: NodePlan) -> dict[str, object]:
    return {
        "name": plan.name,
        "table": plan.origin,
        "role": plan.role.value,
        "id": plan.node,
        "number": plan.number,
        "address": plan.address,
        "port": plan.port,
        "http_port": plan.http_port,
        "tcp_port": plan.tcp_port,
        "city": plan.place.name if plan.place else "",
        "layer": plan.layer,
        "parent": plan.parent,
        "backup": plan.backup,
        "line": market.line_group(plan.name) if plan.line else "",
        "lines": list(plan.lines),
        "retransmit": list(plan.retransmit),
        "grade": plan.grade.value,
        "stripes": list(plan.stripes),
    }


def show_market(market: Market, warnings: Sequence[str]) -> None:
    """The same in tables."""
    title = f"{market.name}: {counted(len(market.nodes), 'node')}"
    headers = ("name", "role", "number", "city", "address", "UDP", "HTTP", "TCP", "belongs to")
    show_table(title, headers, [_node_row(market, plan) for plan in market.nodes])
    if market.network.mode is NetworkMode.MULTICAST:
        show_table(f"Groups, UDP port {market.network.port}", ("group", "address"), list(_groups(market)))
    given = [(meaning, symbol, duration_text(getattr(market.timing, f"{name}_ns"))) for symbol, name, meaning in _GIVEN]
    given.append(("requests before a receiver gives up", "k_r", str(market.timing.retries_max)))
    if market.layers > 1:
        second = market.timing.secondary_detect_ns
        given.append(("the same as δ_N between a secondary receiver and its parent", "δ_S", duration_text(second)))
    show_table(f"Times given by profile {market.profile} and file", ("", "symbol", "value"), given)
    rows = [(meaning, f.symbol, f.symbols, f.numbers, f"{number(value)} s") for meaning, f, value in _times(market)]
    show_table(f"Times derived, gate {market.timing.gate}", ("", "symbol", "formula", "in numbers", "value"), rows)
    show_table("Payloads and places on disk", ("", "value"), _facts(market))
    show_coverage(market)
    for warning in warnings:
        line(f"warning: {warning}")
    line(f"{market.file} is sound; {len(warnings) or 'no'} warning{'' if len(warnings) == 1 else 's'}.")


def _node_row(market: Market, plan: NodePlan) -> tuple[str, ...]:
    ports = f"{plan.port}-{plan.line_port}"
    place = plan.place.name if plan.place else "–"
    doors = (str(plan.http_port or "–"), str(plan.tcp_port or "–"))
    return (plan.name, plan.role.value, str(plan.number), place, plan.address, ports, *doors, _belongs(market, plan))


def _belongs(market: Market, plan: NodePlan) -> str:
    """Whom it asks, hears and serves."""
    parts = []
    if plan.parent:
        parts.append(f"{plan.parent} (backup {plan.backup})" if plan.backup else plan.parent)
    if plan.lines:
        parts.append(f"hears {', '.join(plan.lines)}")
    if plan.retransmit:
        parts.append(f"asks {', '.join(plan.retransmit)}")
    if plan.line:
        parts.append(f"line {market.line_group(plan.name)}")
    return "; ".join(parts)


def _groups(market: Market) -> list[tuple[str, str]]:
    rows = []
    for stripe in market.stripes:
        rows.append((f"data of stripe {stripe}", market.data_group(stripe)))
        rows.append((f"control of stripe {stripe}", market.control_group(stripe)))
    rows += [(f"line of {plan.name}", market.line_group(plan.name)) for plan in market.nodes if plan.line]
    return rows


def _times(market: Market) -> list[tuple[str, Formula, float]]:
    """Meaning, formula, and the value that counts, which the file may have chosen above the formula's."""
    timing = market.timing
    slowest, _, _ = slowest_pair(market)
    latency = formulas.latency(timing, round(slowest, -5), 0.0)
    return [
        ("between two requests", formulas.retry(timing), timing.retry_ns / SECOND),
        ("between two tokens", formulas.token_period(timing), timing.token_period_ns / SECOND),
        ("timestamp to release", formulas.release_delay(timing), timing.release_delay_ns / SECOND),
        ("release skew at most", formulas.skew(timing), timing.skew_bound_ns / SECOND),
        ("mean submit to release, from farthest", latency, latency.value),
        ("failure found at the latest", *_same(formulas.detection_worst(timing))),
        ("failure found with receipts, about", *_same(formulas.detection_with_receipts(timing))),
        ("ballot to first new token at most", *_same(formulas.reformation(timing))),
    ]


def _same(formula: Formula) -> tuple[Formula, float]:
    return formula, formula.value


def _facts(market: Market) -> list[tuple[str, str]]:
    payload = f"{market.payload_bytes:,} bytes: {market.events_per_payload} events of {EVENT_BYTES}, and their seal"
    journal = market.journal
    kept = [f"{size_text(journal.keep_bytes)}"] if journal.keep_bytes else []
    kept += [f"{journal.keep_seconds:,} s"] if journal.keep_seconds else []
    return [
        *_stripes(market),
        ("payload", payload),
        ("sealed", "yes" if market.seal else "no"),
        ("durability", market.durability.value),
        ("data", str(market.data_directory)),
        ("keys", str(market.keys_directory)),
        ("journals keep", " or ".join(kept) or "everything"),
        ("impairment", _impairment(market)),
        ("coverage", coverage_text(market)),
    ]


def _stripes(market: Market) -> list[tuple[str, str]]:
    """How symbols are split, where there are several."""
    if len(market.stripes) == 1:
        return []
    plan = market.stripe_plan or (market.edge.plan if market.edge is not None else None)
    split = f"symbols split by the plan {plan}" if plan else "symbols split by a hash of their names"
    return [("stripes", f"{', '.join(map(str, market.stripes))}: {split}")]


def _impairment(market: Market) -> str:
    impairment = market.impairment
    if not impairment.enabled:
        return "none"
    delay = f"delay by {impairment.delay}"
    return f"{delay}, jitter {duration_text(impairment.jitter_ns)}, loss {impairment.loss:g}, seed {impairment.seed}"
