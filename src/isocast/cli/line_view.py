"""What `isocast ring status` shows of the plan of lines: where each line is, how far it reaches, who hears how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isocast.cli.render import figure, line, show_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.watch.line_gauges import LineGauges
    from isocast.runtime.watch.status_poll import Answer

__all__ = ["line_report", "line_watchers", "show_lines"]


def line_watchers(market: Market) -> tuple[NodePlan, ...]:
    """Whose status pages tell of lines; nobody's where the market plans none."""
    if not market.coverage.enabled:
        return ()
    from isocast.runtime.market.coverage_table import line_listeners, line_receivers

    return (*line_receivers(market), *[plan for plan in line_listeners(market) if plan.start])


def line_report(market: Market, answers: Mapping[str, Answer]) -> dict[str, Any] | None:
    """Everything, for programs; None where the market plans no lines."""
    if not market.coverage.enabled:
        return None
    known = {name: plan for name, answer in answers.items() if (plan := _plan_of(answer)) is not None}
    newest = max(known.values(), key=lambda plan: (plan.ballot, plan.version), default=None)
    watchers = line_watchers(market)
    return {
        "version": newest.version if newest is not None else None,
        "wanted": market.coverage.lines,
        "lines": [_receiver(plan, known.get(plan.name)) for plan in watchers if plan.role.is_receiver],
        "listeners": [_listener(plan, known.get(plan.name)) for plan in watchers if not plan.role.is_receiver],
        "draining": [
            {"group": rest.group, "receiver": rest.receiver, "free_in_s": rest.free_in_s}
            for rest in (newest.draining if newest is not None else ())
        ],
    }


def _plan_of(answer: Answer) -> LineGauges | None:
    return answer.status.gauges.line_plan if answer.status is not None else None


def _receiver(plan: NodePlan, known: LineGauges | None) -> dict[str, Any]:
    return {
        "name": plan.name,
        "version": known.version if known else None,
        "group": known.group if known else None,
        "radius_km": known.radius_km if known else None,
        "ttl": known.ttl if known else None,
    }


def _listener(plan: NodePlan, known: LineGauges | None) -> dict[str, Any]:
    return {
        "name": plan.name,
        "city": plan.place.name if plan.place else None,
        "version": known.version if known else None,
        "sources": list(known.sources) if known else [],
    }


def show_lines(report: dict[str, Any]) -> None:
    """For people."""
    if report["version"] is None:
        line("Lines: no plan yet; each speaks in the group of its number.")
        return
    line(f"Lines by plan {report['version']}; everybody is to hear {report['wanted']}.")
    rows = [
        (one["name"], one["group"] or _why_none(one), _km(one["radius_km"]), figure(one["ttl"]), one["version"] or "–")
        for one in report["lines"]
    ]
    show_table("", ("line of", "group", "scope", "TTL", "plan"), rows)
    heard = [
        (one["name"], one["city"] or "–", _sources(one, report["wanted"]), one["version"] or "–")
        for one in report["listeners"]
    ]
    show_table("", ("listener", "city", "hears by plan", "plan"), heard)
    if report["draining"]:
        rests = [(one["group"], one["receiver"], f"{one['free_in_s']:.0f} s") for one in report["draining"]]
        show_table("", ("group that rests", "left by", "free in"), rests)


def _why_none(one: dict[str, Any]) -> str:
    if one["version"] is None:
        return "–"
    return "silent, in reserve" if one["radius_km"] is not None else "not in the plan"


def _km(radius_km: float | None) -> str:
    return f"{radius_km:,.0f} km" if radius_km else "–"


def _sources(one: dict[str, Any], wanted: int) -> str:
    names = ", ".join(one["sources"]) or "–"
    return names if one["version"] is None or len(one["sources"]) >= wanted else f"{names} (too few)"
