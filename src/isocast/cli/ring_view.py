"""What `isocast ring status` shows: the ring in its order, U, and where everybody stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isocast.cli.line_view import line_report, line_watchers, show_lines
from isocast.cli.render import figure, line, show_table
from isocast.runtime.operate import shutdown

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.watch.status import NodeStatus
    from isocast.runtime.watch.status_poll import Answer

__all__ = ["ring_report", "show_ring"]


def ring_report(market: Market) -> dict[str, Any]:
    """Everything, for programs: asked of the status pages of those who are on rings and those who make them."""
    from isocast.runtime.market.model import NodeRole
    from isocast.runtime.watch.status_poll import Target, poll

    plans = [*market.by_role(NodeRole.PRIMARY_RECEIVER), *market.by_role(NodeRole.REFORMATION_SERVER)]
    asked = [plan for plan in dict.fromkeys((*plans, *line_watchers(market))) if plan.http_port]
    answers = shutdown.run(poll([Target(plan.address, plan.http_port, plan.name) for plan in asked]))
    by_name = {plan.name: answer for plan, answer in zip(asked, answers, strict=True)}
    receivers = [plan for plan in plans if plan.role is NodeRole.PRIMARY_RECEIVER]
    best = _newest([by_name[plan.name].status for plan in receivers if plan.name in by_name])
    ring, universe = _of(best, "ring"), _of(best, "universe")
    whole = bool(ring) and set(ring) == set(universe) and best is not None and best.gauges.mode == "normal"
    return {
        "market": market.name,
        "stripe": market.stripes[0],
        "policy": market.policy.value,
        "epoch": best.gauges.epoch if best is not None else None,
        "ring": ring,
        "universe": universe,
        "majority": len(universe) // 2 + 1 if universe else None,
        "uncertified": bool(best is not None and best.gauges.uncertified),
        "whole": whole,
        "receivers": [_receiver(plan, by_name.get(plan.name), ring, universe) for plan in receivers],
        "servers": [
            _server(plan, by_name.get(plan.name)) for plan in plans if plan.role is NodeRole.REFORMATION_SERVER
        ],
        "lines": line_report(market, by_name),
    }


def _newest(statuses: list[NodeStatus | None]) -> NodeStatus | None:
    """Whoever knows the newest ring, and of those who holds most."""
    known = [status for status in statuses if status is not None and status.gauges.ring]
    return max(known, key=lambda s: (s.gauges.epoch_number or 0, s.gauges.held_token or 0), default=None)


def _of(status: NodeStatus | None, name: str) -> list[str]:
    return list(getattr(status.gauges, name) or ()) if status is not None else []


def _receiver(plan: NodePlan, answer: Answer | None, ring: list[str], universe: list[str]) -> dict[str, Any]:
    status = answer.status if answer is not None else None
    gauges = status.gauges if status is not None else None
    return {
        "name": plan.name,
        "number": plan.number,
        "city": plan.place.name if plan.place else None,
        "on_ring": plan.name in ring,
        "in_universe": plan.name in universe,
        "leaving": gauges.leaving if gauges else None,
        "mode": gauges.mode if gauges else None,
        "epoch": gauges.epoch if gauges else None,
        "held": gauges.held_token if gauges else None,
        "certified": gauges.certified_token if gauges else None,
        "released": gauges.released_token if gauges else None,
        "trouble": _trouble(answer),
    }


def _server(plan: NodePlan, answer: Answer | None) -> dict[str, Any]:
    status = answer.status if answer is not None else None
    gauges = status.gauges if status is not None else None
    return {
        "name": plan.name,
        "stage": gauges.mode if gauges else None,
        "epoch": gauges.epoch if gauges else None,
        "ballot": gauges.ballot_number if gauges else None,
        "trouble": _trouble(answer),
    }


def _trouble(answer: Answer | None) -> str | None:
    if answer is None:
        return "has no status page"
    if answer.status is None:
        return answer.trouble
    return "; ".join(answer.status.reasons) or None


def show_ring(report: dict[str, Any], *, of_several: bool = False) -> None:
    """For people."""
    ring, universe = report["ring"], report["universe"]
    whose = f"{report['market']}, stripe {report['stripe']}" if of_several else report["market"]
    if ring:
        mark = " (uncertified: started without a majority)" if report["uncertified"] else ""
        line(f"{whose}, epoch {report['epoch']}{mark}: {' → '.join(ring)} → {ring[0]}")
        line(f"U has {len(universe)}: {', '.join(universe)}; a majority is {report['majority']}.")
    else:
        line(f"{whose}: no primary receiver knows a ring")
    line()
    rows = [
        (
            one["name"],
            figure(one["number"]),
            one["city"] or "–",
            _place(one) if universe else "–",
            one["mode"] or "–",
            one["epoch"] or "–",
            figure(one["held"]),
            figure(one["certified"]),
            figure(one["released"]),
            one["trouble"] or "",
        )
        for one in report["receivers"]
    ]
    headers = ("receiver", "number", "city", "place", "mode", "epoch", "held", "certified", "released", "")
    show_table("", headers, rows)
    servers = [
        (one["name"], one["stage"] or "–", one["epoch"] or "–", figure(one["ballot"]), one["trouble"] or "")
        for one in report["servers"]
    ]
    show_table("", ("reformation server", "stage", "epoch", "ballot", ""), servers)
    if report["lines"] is not None:
        show_lines(report["lines"])


def _place(one: dict[str, Any]) -> str:
    """Where a receiver stands."""
    if one["on_ring"]:
        return "on the ring, leaving" if one["leaving"] else "on the ring"
    if one["in_universe"]:
        return "in U, drained" if one["leaving"] else "in U, off the ring"
    return "not in U"
